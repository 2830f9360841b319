//! Size classes: which block sizes there are, and how slabs of each are laid out.

use tembo_pmem::LINE_BYTES;

/// Chunks of the largest slabs.
pub(crate) const MAX_SLAB_CHUNKS: u64 = 16;

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    /// Bytes of a block: a multiple of 16; where it is a multiple of 64, blocks are line-aligned.
    pub block_bytes: u64,
    /// Chunks of a slab: a power of two up to 16.
    pub chunks: u64,
    /// Bytes of the slab's head and bitmap: whole lines.
    pub head_bytes: u64,
    /// Blocks of a slab.
    pub blocks: u64,
}

impl Class {
    fn new(block_bytes: u64, chunk_bytes: u64) -> Class {
        let mut chunks = 1;
        loop {
            let class = Class::with_chunks(block_bytes, chunks, chunk_bytes);
            // Many blocks to a slab spare visits to the allocator's lock, few chunks spare space in small pools.
            let enough_blocks = if chunks < 8 { 32 } else { 8 };
            if class.blocks >= enough_blocks || chunks == MAX_SLAB_CHUNKS {
                return class;
            }
            chunks *= 2;
        }
    }

    fn with_chunks(block_bytes: u64, chunks: u64, chunk_bytes: u64) -> Class {
        let slab_bytes = chunks * chunk_bytes;
        let head_for = |blocks: u64| (8 + 8 * blocks.div_ceil(64)).next_multiple_of(LINE_BYTES);
        let mut blocks = (slab_bytes - LINE_BYTES) / block_bytes;
        while head_for(blocks) + blocks * block_bytes > slab_bytes {
            blocks -= 1;
        }
        Class { block_bytes, chunks, head_bytes: head_for(blocks), blocks }
    }

    /// Words of the bitmap.
    pub(crate) fn words(&self) -> usize {
        self.blocks.div_ceil(64) as usize
    }
}

/// The size classes of a pool, by its chunk size. Index = class number on media.
#[derive(Debug)]
pub(crate) struct Classes {
    table: Vec<Class>,
    /// Class number by size in 16-byte units, for sizes up to 1 KiB.
    small: Vec<u8>,
}

impl Classes {
    /// Steps of 16 bytes up to 128, then eight (from 256 on) or four steps per doubling, up to two chunks.
    pub(crate) fn new(chunk_bytes: u64) -> Classes {
        let largest = (2 * chunk_bytes).min(32 << 10);
        let mut table = Vec::new();
        let mut size = 16;
        while size <= largest {
            table.push(Class::new(size, chunk_bytes));
            let step = if size < 128 {
                16
            } else if size < 512 {
                32
            } else {
                size.next_power_of_two().max(size + 1).next_power_of_two() / 16
            };
            size += step;
        }
        let class_of =
            |units: usize| table.iter().position(|c| c.block_bytes >= 16 * units as u64).unwrap_or(0);
        let small = (0..=64).map(|units| class_of(units) as u8).collect();
        Classes { table, small }
    }

    /// The class for blocks of at least `bytes`; `None` if they are larger than any slab's.
    pub(crate) fn class_for(&self, bytes: u64) -> Option<usize> {
        if bytes <= 1024 {
            return Some(usize::from(self.small[bytes.div_ceil(16) as usize]));
        }
        let class = self.table.partition_point(|c| c.block_bytes < bytes);
        (class < self.table.len()).then_some(class)
    }

    pub(crate) fn get(&self, class: usize) -> Option<&Class> {
        self.table.get(class)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_hold_their_blocks_and_sizes_waste_little() {
        for chunk_bytes in [4096, 16 << 10, 1 << 20] {
            let classes = Classes::new(chunk_bytes);
            for class in &classes.table {
                let end = class.head_bytes + class.blocks * class.block_bytes;
                assert!(end <= class.chunks * chunk_bytes, "{class:?}");
                assert!(class.head_bytes >= 8 + class.blocks.div_ceil(8), "{class:?}");
                assert!(class.blocks >= 7 && class.block_bytes % 16 == 0, "{class:?}");
            }
            for pair in classes.table.windows(2) {
                let (small, large) = (pair[0].block_bytes, pair[1].block_bytes);
                assert!(small < large && (large <= 128 || large - small <= small / 4), "{pair:?}");
            }
        }
    }

    #[test]
    fn the_class_of_a_size_is_the_smallest_that_fits() {
        let classes = Classes::new(16 << 10);
        for bytes in 0..=32 << 10 {
            let class = classes.class_for(bytes).unwrap();
            assert!(classes.table[class].block_bytes >= bytes);
            assert!(class == 0 || classes.table[class - 1].block_bytes < bytes);
        }
        assert_eq!(classes.class_for((32 << 10) + 1), None);
    }
}
