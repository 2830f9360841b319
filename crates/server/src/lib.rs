//! A Redis-compatible server whose only copy of the data is a Tembo pool.
