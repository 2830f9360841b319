//! Size classes: which block sizes there are, and how slabs of each are laid out.

use crate::layout::{FINE_CHUNK_BYTES_MIN, TAG_BYTES, TAGGED_GROUP, TAGGED_GROUP_BYTES};
use crate::{Error, ErrorKind};
use std::ops::Range;
use tembo_pmem::LINE_BYTES;

/// Chunks of the largest slabs.
pub(crate) const MAX_SLAB_CHUNKS: u64 = 16;

/// A size class. The fields that locate blocks come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Class {
    /// Bytes of a block, a multiple of 16, or of 8 in the classes of words. Blocks whose size is a multiple
    /// of 64 are line-aligned. In the class of tagged lines, the bytes of the line and its tag together.
    pub block_bytes: u64,
    /// Blocks of a slab.
    pub blocks: u64,
    /// Whether blocks are tagged lines; their tags lie elsewhere ([`tag_off`](crate::tag_off)).
    pub is_tagged: bool,
    /// Chunks of a slab: up to 16; a power of two but for wide classes.
    pub chunks: u64,
    /// Bytes of the slab's head and bitmap: whole lines.
    pub head_bytes: u64,
}

impl Class {
    fn new(block_bytes: u64, is_tagged: bool, chunk_bytes: u64) -> Class {
        let mut chunks = 1;
        loop {
            let class = match is_tagged {
                true => Class::tagged_with_chunks(chunks, chunk_bytes),
                false => Class::with_chunks(block_bytes, chunks, chunk_bytes),
            };
            // More blocks in a slab mean that the allocator's lock is taken less often; fewer chunks waste
            // less space in small pools.
            let enough_blocks = if chunks < 8 { 32 } else { 8 };
            if class.blocks >= enough_blocks || chunks == MAX_SLAB_CHUNKS {
                return class;
            }
            chunks *= 2;
        }
    }

    /// A wide class, in slabs of the least number of chunks that leaves the least of them unused.
    fn wide(block_bytes: u64, chunk_bytes: u64) -> Class {
        let in_chunks = |chunks| Class::with_chunks(block_bytes, chunks, chunk_bytes);
        let shapes = (1..=MAX_SLAB_CHUNKS).map(in_chunks).filter(|class| class.blocks >= 2);
        let best =
            shapes.reduce(
                |best, class| {
                    if class.blocks * best.chunks > best.blocks * class.chunks { class } else { best }
                },
            );
        best.expect("5 chunks have room for 2 wide blocks")
    }

    fn with_chunks(block_bytes: u64, chunks: u64, chunk_bytes: u64) -> Class {
        let slab_bytes = chunks * chunk_bytes;
        let head_for = |blocks: u64| (8 + 8 * blocks.div_ceil(64)).next_multiple_of(LINE_BYTES);
        let mut blocks = (slab_bytes - LINE_BYTES) / block_bytes;
        while blocks > 0 && head_for(blocks) + blocks * block_bytes > slab_bytes {
            blocks -= 1;
        }
        Class { block_bytes, chunks, head_bytes: head_for(blocks), blocks, is_tagged: false }
    }

    /// The class of tagged lines, in slabs of `chunks` chunks. A slab has whole groups; the first begins at
    /// most a group's length after the head.
    fn tagged_with_chunks(chunks: u64, chunk_bytes: u64) -> Class {
        let bytes = chunks * chunk_bytes - (TAGGED_GROUP_BYTES - LINE_BYTES);
        let untagged = Class::with_chunks(TAGGED_GROUP_BYTES / TAGGED_GROUP, 1, bytes);
        Class { chunks, blocks: untagged.blocks / TAGGED_GROUP * TAGGED_GROUP, is_tagged: true, ..untagged }
    }

    /// The offset of the first block, or the first group, of a slab at `slab_off`.
    pub(crate) fn first_off(&self, slab_off: u64) -> u64 {
        let first = slab_off + self.head_bytes;
        if self.is_tagged { first.next_multiple_of(TAGGED_GROUP_BYTES) } else { first }
    }

    /// The offset of block `index` in a slab whose blocks begin at `first_off`.
    #[inline]
    pub(crate) fn block_off(&self, first_off: u64, index: u64) -> u64 {
        if self.is_tagged {
            // A line of tags precedes every four lines.
            return first_off + LINE_BYTES * (index + 1 + index / TAGGED_GROUP);
        }
        first_off + index * self.block_bytes
    }

    /// The number of the block that starts at `off` in a slab whose blocks begin at `first_off`; `None` if no
    /// block starts there.
    #[inline]
    pub(crate) fn index_of(&self, first_off: u64, off: u64) -> Option<u64> {
        let past = off.checked_sub(first_off)?;
        let (index, is_start) = if self.is_tagged {
            let (group, within) = (past / TAGGED_GROUP_BYTES, past % TAGGED_GROUP_BYTES);
            let line = (within / LINE_BYTES).checked_sub(1)?;
            (group * TAGGED_GROUP + line, within.is_multiple_of(LINE_BYTES))
        } else {
            (past / self.block_bytes, past.is_multiple_of(self.block_bytes))
        };
        (is_start && index < self.blocks).then_some(index)
    }

    /// The range of a slab's blocks, the first of which is at `first_off`.
    pub(crate) fn blocks_span(&self, first_off: u64) -> Range<u64> {
        first_off..first_off + self.blocks * self.block_bytes
    }

    /// Bytes that the holder of a block may use, from the block's offset on.
    #[inline]
    pub(crate) fn usable_bytes(&self) -> u64 {
        if self.is_tagged { LINE_BYTES } else { self.block_bytes }
    }

    /// Words of the bitmap.
    pub(crate) fn words(&self) -> usize {
        self.blocks.div_ceil(64) as usize
    }
}

/// The size classes of a pool; they follow from its chunk size. The index is the class number on media.
#[derive(Debug)]
pub(crate) struct Classes {
    table: Vec<Class>,
    /// The number of the class of tagged lines. Fine classes follow it.
    tagged: usize,
    /// The numbers of the classes that blocks are taken from, by their sizes.
    by_size: Vec<u8>,
    /// The sizes of the classes.
    sizes: Vec<u64>,
    /// Class number by size in 16-byte units, for sizes up to 1 KiB.
    small: Vec<u8>,
    /// Class number by size in words, for blocks that may begin at any of them.
    words: Vec<u8>,
    chunk_bytes: u64,
    /// Whether the pool's features announce classes beyond this table, from a later build.
    pub has_later: bool,
}

/// Sizes of the fine classes, which [`Feature::FineClasses`](crate::Feature::FineClasses) announces: the
/// other steps of 16 bytes up to 256, and room for a power of two with 32 bytes more, the lengths and a short
/// key of a value, for example.
const FINE_BYTES: [u64; 8] = [144, 176, 208, 240, 544, 1056, 2080, 4128];

/// Sizes of the classes of words, which come last, are announced with the others, and only taken for blocks
/// that may begin at any multiple of 8.
const WORDS_BYTES: [u64; 4] = [24, 40, 56, 72];
/// Words of the largest.
const WORDS_MAX: u64 = 9;

/// Sizes of the wide classes, which come after all others and which
/// [`Feature::WideClasses`](crate::Feature::WideClasses) announces. They lie a quarter of 16 KiB apart, so
/// that blocks longer than two chunks of 16 KiB need not take whole chunks.
const WIDE_BYTES: [u64; 7] = [36_800, 40_896, 44_992, 49_088, 53_184, 57_280, 61_376];

impl Classes {
    /// Block sizes go in steps of 16 bytes up to 128, then in four steps per doubling, from 256 on in eight,
    /// up to two chunks. Tagged lines have a class of their own, and then come the fine and the wide classes.
    /// Those are known in any case, and used if the pool announces them.
    pub(crate) fn new(chunk_bytes: u64, is_fine: bool, is_wide: bool) -> Classes {
        let largest = (2 * chunk_bytes).min(32 << 10);
        let mut table = Vec::new();
        let mut size = 16;
        while size <= largest {
            table.push(Class::new(size, false, chunk_bytes));
            let step = if size < 128 {
                16
            } else if size < 512 {
                32
            } else {
                size.next_power_of_two().max(size + 1).next_power_of_two() / 16
            };
            size += step;
        }
        let tagged = table.len();
        table.push(Class::new(LINE_BYTES + TAG_BYTES, true, chunk_bytes));
        if chunk_bytes >= FINE_CHUNK_BYTES_MIN {
            let fine = FINE_BYTES.into_iter().chain(WORDS_BYTES);
            table.extend(fine.map(|bytes| Class::new(bytes, false, chunk_bytes)));
        }
        let wide = table.len();
        if chunk_bytes >= FINE_CHUNK_BYTES_MIN {
            table.extend(WIDE_BYTES.map(|bytes| Class::wide(bytes, chunk_bytes)));
        }
        let is_used = |class: usize| match class {
            _ if class <= tagged => true,
            _ if class < wide => is_fine,
            _ => is_wide,
        };
        let bytes_of = |class: &u8| table[usize::from(*class)].block_bytes;
        let is_ordinary = |class: &u8| usize::from(*class) != tagged && bytes_of(class).is_multiple_of(16);
        let used = || (0..table.len() as u8).filter(|class| is_used(usize::from(*class)));
        let mut by_size: Vec<u8> = used().filter(is_ordinary).collect();
        by_size.sort_by_key(bytes_of);
        let sizes: Vec<u64> = by_size.iter().map(bytes_of).collect();
        let class_of = |units: u64| by_size[sizes.partition_point(|bytes| *bytes < 16 * units)];
        let small = (0..=64).map(class_of).collect();
        let of_words =
            |words: u64| used().find(|class| usize::from(*class) >= tagged && bytes_of(class) == 8 * words);
        let class_of_words = |words: u64| of_words(words).unwrap_or(class_of(words.div_ceil(2)));
        let words = (0..=WORDS_MAX).map(class_of_words).collect();
        Classes { table, tagged, by_size, sizes, small, words, chunk_bytes, has_later: false }
    }

    /// The class for blocks of at least `bytes`; `None` if they are larger than any slab's, or whole chunks
    /// are no larger than its blocks.
    pub(crate) fn class_for(&self, bytes: u64) -> Option<usize> {
        if bytes <= 1024 {
            return Some(usize::from(self.small[bytes.div_ceil(16) as usize]));
        }
        let class = self.not_below(bytes).next()?;
        let is_wide = self.is_wide(class);
        (!is_wide || self.table[class].block_bytes < bytes.next_multiple_of(self.chunk_bytes))
            .then_some(class)
    }

    /// Whether blocks of this class can be whole chunks instead.
    pub(crate) fn is_wide(&self, class: usize) -> bool {
        self.table[class].block_bytes >= WIDE_BYTES[0]
    }

    /// As [`class_for`](Self::class_for), for blocks that may begin at any multiple of 8.
    pub(crate) fn class_of_words(&self, bytes: u64) -> Option<usize> {
        if bytes <= 8 * WORDS_MAX {
            return Some(usize::from(self.words[bytes.div_ceil(8) as usize]));
        }
        self.class_for(bytes)
    }

    /// The classes for blocks of at least `bytes`, the smallest first.
    pub(crate) fn not_below(&self, bytes: u64) -> impl Iterator<Item = usize> {
        let first = self.sizes.partition_point(|size| *size < bytes);
        self.by_size[first..].iter().map(|class| usize::from(*class))
    }

    /// The class of tagged lines.
    pub(crate) fn tagged(&self) -> usize {
        self.tagged
    }

    pub(crate) fn get(&self, class: usize) -> Option<&Class> {
        self.table.get(class)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The error for a class that is not in the table; the chunk word at `word_off` names it.
    #[cold]
    pub(crate) fn unknown(&self, class: usize, word_off: u64) -> Error {
        if self.has_later {
            return ErrorKind::UnknownClass { class: class as u64, off: word_off }.into();
        }
        Error::corrupt("a chunk's size class", word_off, format!("below {}", self.table.len()), class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag_off;

    #[test]
    fn slabs_hold_their_blocks_and_sizes_waste_little() {
        for chunk_bytes in [4096, 16 << 10, 1 << 20] {
            let classes = Classes::new(chunk_bytes, true, true);
            for class in &classes.table {
                for slab_off in (0..5).map(|i| i * chunk_bytes) {
                    let first_off = class.first_off(slab_off);
                    let span = class.blocks_span(first_off);
                    assert!(span.start >= slab_off + class.head_bytes, "{class:?}");
                    assert!(span.end <= slab_off + class.chunks * chunk_bytes, "{class:?}");
                    let starts: Vec<u64> =
                        span.clone().filter(|off| class.index_of(first_off, *off).is_some()).collect();
                    let blocks: Vec<u64> =
                        (0..class.blocks).map(|index| class.block_off(first_off, index)).collect();
                    assert_eq!(starts, blocks, "{class:?}");
                    assert!(blocks.last().unwrap() + class.usable_bytes() <= span.end, "{class:?}");
                    assert_eq!(class.index_of(first_off, span.end), None);
                }
                assert!(class.head_bytes >= 8 + class.blocks.div_ceil(8), "{class:?}");
                let least = if class.block_bytes > 32 << 10 { 2 } else { 7 };
                assert!(class.blocks >= least && class.block_bytes % 8 == 0, "{class:?}");
            }
            for pair in classes.sizes.windows(2) {
                let (small, large) = (pair[0], pair[1]);
                assert!(small < large && (large <= 128 || large - small <= small / 4), "{pair:?}");
            }
        }
    }

    /// These numbers are on media.
    #[test]
    fn class_numbers_stay_what_they_are() {
        let number_of = |chunk_bytes| {
            let classes = Classes::new(chunk_bytes, false, false);
            let last = classes.get(classes.tagged()).unwrap();
            (classes.class_for(1024), classes.tagged(), last.chunks, last.blocks, last.head_bytes)
        };
        assert_eq!(number_of(4096), (Some(27), 52, 1, 44, 64));
        assert_eq!(number_of(16 << 10), (Some(27), 68, 1, 200, 64));
        assert_eq!(number_of(1 << 20), (Some(27), 68, 1, 13080, 1664));
        let fine = Classes::new(16 << 10, true, true);
        let shape = |class: usize| {
            let class = fine.get(class).unwrap();
            (class.block_bytes, class.chunks, class.blocks)
        };
        assert_eq!(
            (69..81).map(shape).collect::<Vec<_>>(),
            [
                (144, 1, 113),
                (176, 1, 92),
                (208, 1, 78),
                (240, 1, 68),
                (544, 2, 60),
                (1056, 4, 62),
                (2080, 8, 62),
                (4128, 8, 31),
                (24, 1, 677),
                (40, 1, 408),
                (56, 1, 291),
                (72, 1, 226)
            ]
        );
        assert_eq!((fine.class_for(1034), fine.class_for(134), fine.len()), (Some(74), Some(69), 88));
        assert_eq!(
            (81..88).map(shape).collect::<Vec<_>>(),
            [
                (36_800, 9, 4),
                (40_896, 5, 2),
                (44_992, 11, 4),
                (49_088, 6, 2),
                (53_184, 13, 4),
                (57_280, 7, 2),
                (61_376, 15, 4)
            ]
        );
        let by_words =
            [17, 24, 25, 33, 40, 41, 49, 65, 72, 73].map(|bytes| fine.class_of_words(bytes).unwrap());
        assert_eq!(
            by_words.map(|class| fine.get(class).unwrap().block_bytes),
            [24, 24, 32, 40, 40, 48, 56, 72, 72, 80]
        );
        assert_eq!(fine.class_for(33).and_then(|class| fine.get(class)).unwrap().block_bytes, 48);
        assert_eq!(Classes::new(4096, true, true).len(), 53, "small chunks have none");
    }

    /// Sizes above 128 bytes have at most an eighth more than the requested size, up to the largest class.
    #[test]
    fn fine_classes_waste_an_eighth_at_most() {
        let waste = |classes: &Classes, bytes: u64| {
            classes.get(classes.class_for(bytes).unwrap()).unwrap().block_bytes - bytes
        };
        let fine = Classes::new(16 << 10, true, true);
        assert!((129..=32 << 10).all(|bytes| waste(&fine, bytes) * 8 <= bytes));
        // Beyond it, whole chunks are taken where they are no larger.
        let wide = |bytes: u64| match fine.class_for(bytes) {
            Some(_) => waste(&fine, bytes),
            None => bytes.next_multiple_of(16 << 10) - bytes,
        };
        assert!(((32 << 10) + 1..=64 << 10).all(|bytes| wide(bytes) * 8 <= bytes));
        assert_eq!((fine.class_for(48 << 10), fine.class_for(64 << 10)), (None, None));
        let coarse = Classes::new(16 << 10, false, false);
        assert_eq!((waste(&coarse, 129), waste(&coarse, 1034)), (31, 118));
    }

    /// The table of waste, for sizes up to 64 KiB with chunks of 16 KiB: per range, the most bytes that a
    /// block has beyond the requested size, in thousandths of that. Beyond the largest class blocks are whole
    /// chunks.
    #[test]
    fn the_table_of_waste() {
        let (chunk, classes) = (16 << 10, Classes::new(16 << 10, true, true));
        let taken = |bytes: u64| match classes.class_for(bytes) {
            Some(class) => classes.get(class).unwrap().block_bytes,
            None => bytes.next_multiple_of(chunk),
        };
        let in_words = |bytes: u64| classes.get(classes.class_of_words(bytes).unwrap()).unwrap().block_bytes;
        let most = |sizes: std::ops::RangeInclusive<u64>, taken: &dyn Fn(u64) -> u64| {
            sizes.map(|bytes| (taken(bytes) - bytes) * 1000 / bytes).max().unwrap()
        };
        let table = [
            (16, 64, 882),
            (65, 128, 230),
            (129, 256, 116),
            (257, 1024, 120),
            (1025, 4096, 110),
            (4097, 32 << 10, 124),
            ((32 << 10) + 1, 64 << 10, 123),
        ];
        let found = table.map(|(least, last, _)| (least, last, most(least..=last, &taken)));
        assert_eq!(found, table);
        // Blocks that may begin at any word.
        assert_eq!([(8, 72), (73, 128)].map(|(least, last)| most(least..=last, &in_words)), [1000, 185]);
        // The heads and ends of slabs come on top: the part of them that is no block, in thousandths.
        let lost = |class: &Class| 1000 - class.blocks * class.block_bytes * 1000 / (class.chunks * chunk);
        let ordinary = classes.table.iter().filter(|class| !class.is_tagged);
        assert_eq!(ordinary.map(lost).max(), Some(125));
    }

    #[test]
    fn lines_with_tags_and_their_tags_do_not_overlap() {
        let classes = Classes::new(16 << 10, true, true);
        let class = classes.get(classes.tagged()).unwrap();
        for slab_off in [16 << 10, 48 << 10, 1 << 40] {
            let first_off = class.first_off(slab_off);
            let blocks = (0..class.blocks).map(|index| class.block_off(first_off, index));
            let mut parts: Vec<(u64, u64)> =
                blocks.flat_map(|off| [(off, LINE_BYTES), (tag_off(off), TAG_BYTES)]).collect();
            parts.sort_unstable();
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let span = class.blocks_span(first_off);
            assert!(parts[0].0 >= span.start && parts[parts.len() - 1].0 < span.end);
            assert!(parts.iter().all(|(off, bytes)| *bytes == TAG_BYTES || off.is_multiple_of(LINE_BYTES)));
        }
    }

    #[test]
    fn the_class_of_a_size_is_the_smallest_that_fits() {
        for is_fine in [false, true] {
            let classes = Classes::new(16 << 10, is_fine, false);
            let used = |class: &Class| {
                let is_odd = !class.block_bytes.is_multiple_of(16);
                !class.is_tagged && !is_odd && (is_fine || !FINE_BYTES.contains(&class.block_bytes))
            };
            for bytes in 0..=32 << 10 {
                let class = classes.get(classes.class_for(bytes).unwrap()).unwrap();
                assert!(used(class) && class.block_bytes >= bytes);
                let others = classes.table.iter().filter(|other| used(other) && other.block_bytes >= bytes);
                assert_eq!(others.map(|other| other.block_bytes).min(), Some(class.block_bytes));
            }
            assert_eq!(classes.class_for((32 << 10) + 1), None);
        }
    }
}
