//! When a value is packed.

/// When a value is packed: Redis's settings of the same meaning. The defaults are those of Redis 7.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encodings {
    /// Most fields of a packed hash (`hash-max-listpack-entries`).
    pub hash_entries: u64,
    /// Longest field or value in a packed hash (`hash-max-listpack-value`).
    pub hash_bytes: usize,
    /// Most members of a packed sorted set (`zset-max-listpack-entries`).
    pub sorted_set_entries: u64,
    /// Longest member in a packed sorted set (`zset-max-listpack-value`).
    pub sorted_set_bytes: usize,
    /// Most members of a set of integers that is an intset (`set-max-intset-entries`).
    pub set_integers: u64,
    /// How many elements of a list are packed together (`list-max-listpack-size`).
    pub list_node: NodeSize,
    /// A list of more bytes than this is not packed, since its number of nodes would have to stand before
    /// them. Every Redis reads either form.
    pub list_bytes: usize,
    /// Compress strings (`rdbcompression`).
    pub compress: bool,
}

/// How many elements of a list are packed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSize {
    /// As many as fit into this many bytes.
    Bytes(usize),
    /// A number of elements, as long as they fit into 8 KiB.
    Elements(u64),
}

impl Default for Encodings {
    fn default() -> Self {
        Encodings {
            hash_entries: 512,
            hash_bytes: 64,
            sorted_set_entries: 128,
            sorted_set_bytes: 64,
            set_integers: 512,
            list_node: NodeSize::Bytes(8192),
            list_bytes: 1 << 20,
            compress: true,
        }
    }
}
