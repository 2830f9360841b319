//! A crash simulator for code that writes to persistent memory.
