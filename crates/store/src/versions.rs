//! The version table of a key, and finding a version in it. `table_writer.rs` changes it.
//!
//! A table has up to eight slots in no order, or more in the order of their numbers. A version goes into an
//! empty slot; in a table without order also into the slot of a version that nobody needs (I3). When there is
//! none, the versions that are needed, and the new one, are written into a new vector, and one store lets the
//! table lead there. The old slots then stay as they are: a reader goes on reading where it began.
//!
//! A tombstone that finds no slot goes into the *spare word*, which each table and vector has for one.
//! Deleting therefore never allocates, and works in a full pool whatever snapshots hold. The spare word has
//! the last version, or none: whoever adds a version after it makes a new vector, in which the tombstone has
//! a slot.
//!
//! # Readers beside a writer
//!
//! ORDER: a slot's number is stored before its value. Its number is higher than every snapshot that anybody
//! can read until the commit has been published, and then both words are visible. So:
//!
//! * A reader whose snapshot is *registered* finds the version that its snapshot has, whatever is added
//!   meanwhile: nobody reuses that version's slot, and numbers above the snapshot are stepped over.
//! * A reader that is not registered, and looks for what is current, may miss a version whose slot is reused.
//!   It then meets a number above its snapshot, or finds that the slot's number has changed after it has
//!   loaded the value; either makes the finding [unsure](Found::is_sure).
//!
//! The spare word is one store, and is loaded before the slots. These are not reused while it has a
//! tombstone.

use crate::error::{Result, corrupt};
use crate::layout::{
    HAS_TOMBSTONE, INLINE_VERSIONS, MAX_CAPACITY, TABLE_BYTES, VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES,
    VERSION_BYTES, ValueWord, field, number_of,
};
use smallvec::SmallVec;
use tembo_index::{ValuePlace, WbTree};
use tembo_pmem::Region;
use tembo_pool::Tx;

/// Versions of the smallest vector.
pub(crate) const MIN_CAPACITY: u64 = 3;
/// Up to this many versions are in no order.
pub(crate) const UNORDERED_MAX: u64 = 8;

/// Where words are loaded from: media, or what a transaction will make of it.
pub(crate) trait Words {
    fn word(&self, off: u64) -> Result<u64>;
}

impl Words for Region {
    #[inline(always)]
    fn word(&self, off: u64) -> Result<u64> {
        Ok(self.load_u64(off)?)
    }
}

impl Words for Tx<'_> {
    #[inline(always)]
    fn word(&self, off: u64) -> Result<u64> {
        Ok(self.load(off)?)
    }
}

/// A version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) value: ValueWord,
}

/// The finding of a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) version: Option<Version>,
    /// Whether the finding holds for a reader that is not registered.
    pub(crate) is_sure: bool,
}

/// The version table at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) off: u64,
}

/// The slots of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    off: u64,
    pub(crate) capacity: u64,
    /// The number of the tombstone in the spare word, or 0.
    pub(crate) spare: u64,
}

impl Slots {
    #[inline(always)]
    pub(crate) fn at(self, index: u64) -> u64 {
        self.off + index * VERSION_BYTES
    }

    #[inline(always)]
    pub(crate) fn is_ordered(self) -> bool {
        self.capacity > UNORDERED_MAX
    }

    /// The two words of a slot.
    #[inline(always)]
    pub(crate) fn words(self, words: &impl Words, index: u64) -> Result<[u64; 2]> {
        let off = self.at(index);
        Ok([words.word(off)?, words.word(off + field!(PmVersion.value))?])
    }

    pub(crate) fn version(self, words: &impl Words, index: u64) -> Result<Version> {
        version(self.at(index), self.words(words, index)?)
    }

    /// The version of the spare word.
    pub(crate) fn last_tombstone(self) -> Option<Version> {
        (self.spare != 0).then_some(Version { number: self.spare, value: ValueWord::Tombstone })
    }

    /// In a table in order: how many versions there are whose numbers are at most `snapshot`.
    pub(crate) fn count_to(self, words: &impl Words, snapshot: u64) -> Result<u64> {
        let (mut low, mut high) = (0, self.capacity);
        while low < high {
            let middle = low.midpoint(high);
            let number = number_of(words.word(self.at(middle))?);
            if number == 0 || number > snapshot {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

/// The version of a slot.
pub(crate) fn version(off: u64, words: [u64; 2]) -> Result<Version> {
    match ValueWord::decode(words) {
        Some(value) => Ok(Version { number: number_of(words[0]), value }),
        None => Err(corrupt("the value of a version", off, "a value", format!("{:#x}", words[1]))),
    }
}

impl Table {
    /// The table in the value of a record.
    #[inline]
    pub(crate) fn at(place: ValuePlace) -> Result<Table> {
        let off = place.off.next_multiple_of(8);
        let bytes = off - place.off + TABLE_BYTES;
        if place.bytes != bytes {
            return Err(corrupt("the length of a version table", place.off, bytes, place.bytes));
        }
        Ok(Table { off })
    }

    /// Puts the record of a key that has these versions, by `put`, which gets the parts of its value.
    pub(crate) fn put_with<T>(
        key: &[u8],
        versions: &[Version],
        put: impl FnOnce(&[&[u8]]) -> tembo_index::Result<T>,
    ) -> Result<T> {
        let mut image = [0; TABLE_BYTES as usize / 8];
        let words = versions.iter().flat_map(|version| version.value.encode(version.number));
        image[field!(PmTable.versions) as usize / 8..]
            .iter_mut()
            .zip(words)
            .for_each(|(at, word)| *at = word);
        Table::put_image(key, &image, put)
    }

    /// As [`put_with`](Self::put_with), with the words of the table.
    pub(crate) fn put_image<T>(
        key: &[u8],
        words: &[u64; TABLE_BYTES as usize / 8],
        put: impl FnOnce(&[&[u8]]) -> tembo_index::Result<T>,
    ) -> Result<T> {
        let begins = WbTree::value_begins_after(key.len() as u64);
        let padding = (begins.next_multiple_of(8) - begins) as usize;
        let mut image = [0; TABLE_BYTES as usize];
        for (place, word) in image.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(put(&[&[0; 8][..padding], &image])?)
    }

    #[inline]
    pub(crate) fn slots(self, words: &impl Words) -> Result<Slots> {
        let vector = words.word(self.off + field!(PmTable.vector))?;
        if vector == 0 || vector & HAS_TOMBSTONE != 0 {
            let off = self.off + field!(PmTable.versions);
            return Ok(Slots { off, capacity: INLINE_VERSIONS, spare: vector & !HAS_TOMBSTONE });
        }
        let capacity = words.word(vector + field!(PmVector.capacity))?;
        if !(MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity) {
            return Err(corrupt("a vector of versions", vector, "a capacity from 3 on", capacity));
        }
        let spare = words.word(vector + field!(PmVector.tombstone))?;
        Ok(Slots { off: vector + VECTOR_HEAD_BYTES, capacity, spare })
    }

    /// The offset of the vector, if there is one.
    pub(crate) fn vector(self, words: &impl Words) -> Result<Option<u64>> {
        let word = words.word(self.off + field!(PmTable.vector))?;
        Ok((word != 0 && word & HAS_TOMBSTONE == 0).then_some(word))
    }

    /// The version that a snapshot has, if the key had one.
    #[inline]
    pub(crate) fn find(self, words: &impl Words, snapshot: u64) -> Result<Found> {
        let slots = self.slots(words)?;
        if slots.spare != 0 && slots.spare <= snapshot {
            return Ok(Found { version: slots.last_tombstone(), is_sure: true });
        }
        if slots.is_ordered() {
            return find_ordered(slots, words, snapshot);
        }
        let (mut best, mut best_number, mut is_sure) = (0, 0, slots.spare == 0);
        for index in 0..slots.capacity {
            let number = number_of(words.word(slots.at(index))?);
            is_sure &= number <= snapshot;
            if number > best_number && number <= snapshot {
                (best, best_number) = (index, number);
            }
        }
        if best_number == 0 {
            return Ok(Found { version: None, is_sure });
        }
        let all = slots.words(words, best)?;
        // ORDER: a writer that reuses the slot stores the number first.
        if number_of(all[0]) != best_number || words.word(slots.at(best))? != all[0] {
            return Ok(Found { version: None, is_sure: false });
        }
        let version = version(slots.at(best), all)?;
        Ok(Found { version: Some(version), is_sure: is_sure && version.value != ValueWord::Collected })
    }

    /// All versions in the order of their numbers, those that were collected among them. For callers that
    /// keep writers away, or are writers.
    pub(crate) fn versions(self, words: &impl Words) -> Result<SmallVec<[Version; 8]>> {
        let slots = self.slots(words)?;
        let mut all: SmallVec<[Version; 8]> = SmallVec::new();
        for index in 0..slots.capacity {
            if slots.words(words, index)?[0] != 0 {
                all.push(slots.version(words, index)?);
            } else if slots.is_ordered() {
                break;
            }
        }
        all.extend(slots.last_tombstone());
        all.sort_unstable_by_key(|version| version.number);
        Ok(all)
    }

    /// Whether there is nothing but one value in the table's own slots, so that there is nothing to collect.
    pub(crate) fn has_one_value(self, words: &impl Words) -> Result<bool> {
        let slots = self.slots(words)?;
        if slots.capacity != INLINE_VERSIONS || slots.spare != 0 {
            return Ok(false);
        }
        let mut count = 0;
        for index in 0..INLINE_VERSIONS {
            if words.word(slots.at(index))? != 0 {
                count += 1;
                if slots.version(words, index)?.value == ValueWord::Tombstone {
                    return Ok(false);
                }
            }
        }
        Ok(count <= 1)
    }
}

fn find_ordered(slots: Slots, words: &impl Words, snapshot: u64) -> Result<Found> {
    let count = slots.count_to(words, snapshot)?;
    let is_last = slots.spare == 0 && (count == slots.capacity || words.word(slots.at(count))? == 0);
    let version = count.checked_sub(1).map(|last| slots.version(words, last)).transpose()?;
    let is_there = version.is_none_or(|version| version.value != ValueWord::Collected);
    Ok(Found { version, is_sure: is_last && is_there })
}

/// A value's bytes; `None` for a tombstone.
#[inline]
pub(crate) fn read_value(region: &Region, value: ValueWord, off: u64) -> Result<Option<Vec<u8>>> {
    if value == ValueWord::Tombstone {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    append_value(region, value, off, &mut bytes)?;
    Ok(Some(bytes))
}

/// Appends the bytes of a value that is there.
#[inline]
pub(crate) fn append_value(region: &Region, value: ValueWord, off: u64, to: &mut Vec<u8>) -> Result<()> {
    match value {
        ValueWord::Inline { bytes, len } => to.extend_from_slice(&bytes[..usize::from(len)]),
        ValueWord::Raw(bytes) => to.extend_from_slice(&bytes),
        ValueWord::Block(block) => {
            let bytes = value_bytes(region, block)?;
            append_bytes(region, block + VALUE_HEAD_BYTES, bytes, to)?;
        }
        ValueWord::Tombstone | ValueWord::Collected => {
            return Err(corrupt("a version", off, "one that a snapshot needs", format!("{value:?}")));
        }
    }
    Ok(())
}

/// Prefetches the beginning of a value.
#[inline]
pub(crate) fn prefetch_value(region: &Region, value: ValueWord) {
    if let ValueWord::Block(block) = value {
        region.prefetch_lines::<4>(block);
    }
}

/// The length of the value in a block.
pub(crate) fn value_bytes(region: &Region, block: u64) -> Result<u64> {
    let bytes = region.load_u64(block)?;
    if bytes > tembo_index::MAX_VALUE_BYTES {
        return Err(corrupt("the length of a value", block, "at most 512 MiB", bytes));
    }
    Ok(bytes)
}

/// Appends a copy of bytes that nobody changes.
fn append_bytes(region: &Region, off: u64, bytes: u64, to: &mut Vec<u8>) -> Result<()> {
    use std::sync::atomic::Ordering;
    let words = region.words(off, bytes.div_ceil(8))?;
    let start = to.len();
    to.resize(start + 8 * words.len(), 0);
    for (place, word) in to[start..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    to.truncate(start + bytes as usize);
    Ok(())
}
