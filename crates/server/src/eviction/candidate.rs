//! A key that may go, and the memory that it has.

/// A key that may go.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) database: usize,
    pub(crate) key: Vec<u8>,
    /// How little it was worth when it was seen.
    pub(super) rank: u64,
    /// Bytes of its value; of a large collection, those of the key's own record.
    pub(crate) value_bytes: usize,
}

/// Bytes of the pool that a key takes beside its own and its value's, about.
const ENTRY_BYTES: u64 = 32;

/// The bytes that an entry takes in the pool, about.
pub(crate) fn entry_bytes(key: &[u8], value_bytes: usize) -> i64 {
    (key.len() + value_bytes) as i64 + ENTRY_BYTES as i64
}
