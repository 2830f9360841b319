//! An embedded ordered key-value store that lives in persistent memory.
