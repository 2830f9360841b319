//! Memory for replies that wait for a client.
//!
//! It is mapped, so that dropping it returns its memory to the system. An allocator may keep freed memory:
//! one small block after hundreds of megabytes is enough.

use std::rc::Rc;

use memmap2::MmapMut;

/// Sizes of chunks: of the first of a client, and of the largest.
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 1 << 20;
/// Replies of one turn that have at least this many bytes stay in the buffer in which they were made, which
/// saves a copy. Allocators return buffers of such sizes to the system when they are freed.
pub(crate) const OWNED_BYTES_MIN: usize = 32 << 20;

#[derive(Debug)]
pub(crate) enum Chunk {
    Mapped {
        memory: MmapMut,
        /// Bytes that are in use.
        len: usize,
    },
    Owned(Vec<u8>),
    /// A message that other connections have too. Each of the connections counts all of it.
    Shared(Rc<[u8]>),
}

impl Chunk {
    /// An empty chunk, for `wanted` bytes if it may be so large.
    pub(crate) fn new(wanted: usize) -> Self {
        let bytes = wanted.clamp(BYTES_MIN, BYTES_MAX).next_multiple_of(4096);
        match MmapMut::map_anon(bytes) {
            Ok(memory) => Chunk::Mapped { memory, len: 0 },
            // If this fails, too, nothing else can be done, as after any failure to allocate.
            Err(_) => Chunk::Owned(Vec::with_capacity(bytes)),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Mapped { memory, len } => &memory[..*len],
            Chunk::Owned(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }

    /// Memory held.
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Chunk::Mapped { memory, .. } => memory.len(),
            Chunk::Owned(bytes) => bytes.capacity(),
            Chunk::Shared(bytes) => bytes.len(),
        }
    }

    /// Appends as many of `bytes` as there is room for; returns the others.
    pub(crate) fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(self.capacity() - self.bytes().len()));
        match self {
            Chunk::Mapped { memory, len } => {
                memory[*len..*len + taken.len()].copy_from_slice(taken);
                *len += taken.len();
            }
            Chunk::Owned(bytes) => bytes.extend_from_slice(taken),
            Chunk::Shared(_) => debug_assert!(taken.is_empty(), "it is as long as its memory"),
        }
        rest
    }
}
