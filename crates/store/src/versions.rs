//! The version table of a key: finding a version, adding one, collecting those that nobody needs.
//!
//! A version is added by two stores into the next slot, value before number, so that a reader that sees the
//! number sees the value. When the slots are full, the versions that are still needed, and the new one, are
//! written into a new vector, and one store lets the table lead there. A slot is never used a second time: a
//! reader of the old vector goes on reading what it began with.

use crate::error::{Result, corrupt};
use crate::layout::{
    INLINE_VERSIONS, KEY_HEAD_BYTES, MAX_CAPACITY, MAX_INLINE_BYTES, VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES,
    VERSION_BYTES, ValueWord, field,
};
use crate::retention::{Keep, Retention};
use smallvec::SmallVec;
use tembo_pmem::Region;
use tembo_pool::Tx;

/// Versions of the smallest vector.
const MIN_CAPACITY: u64 = 4;
/// Up to this many versions are looked at one after the other.
const LINEAR_MAX: u64 = 8;

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
}

impl Slots {
    #[inline(always)]
    fn at(self, index: u64) -> u64 {
        self.off + index * VERSION_BYTES
    }

    #[inline(always)]
    fn number(self, words: &impl Words, index: u64) -> Result<u64> {
        words.word(self.at(index))
    }

    fn value(self, words: &impl Words, index: u64) -> Result<ValueWord> {
        let off = self.at(index) + field!(PmVersion.value);
        let word = words.word(off)?;
        ValueWord::decode(word)
            .ok_or_else(|| corrupt("the value of a version", off, "a value", format!("{word:#x}")))
    }

    /// I1: behind the last version all slots are zero.
    pub(crate) fn check_rest(self, words: &impl Words, from: u64) -> Result<()> {
        for off in (self.at(from)..self.at(self.capacity)).step_by(8) {
            let word = words.word(off)?;
            if word != 0 {
                return Err(corrupt("a slot behind the last version", off, 0, format!("{word:#x}")));
            }
        }
        Ok(())
    }

    /// How many versions there are whose numbers are at most `snapshot`.
    #[inline]
    fn count_to(self, words: &impl Words, snapshot: u64) -> Result<u64> {
        let is_later = |number: u64| number == 0 || number > snapshot;
        if self.capacity <= LINEAR_MAX {
            for index in 0..self.capacity {
                if is_later(self.number(words, index)?) {
                    return Ok(index);
                }
            }
            return Ok(self.capacity);
        }
        let (mut low, mut high) = (0, self.capacity);
        while low < high {
            let middle = low.midpoint(high);
            if is_later(self.number(words, middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

/// The contents of a table after a version was added, or versions were collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Versions with a value or a tombstone.
    pub(crate) versions: usize,
    pub(crate) ends_in_tombstone: bool,
}

impl Left {
    /// Whether some of it may be collected before the key is changed again, without the passing of time.
    pub(crate) fn is_garbage(self, retention: Retention) -> bool {
        match retention {
            Retention::None => self.versions > 1 || self.ends_in_tombstone,
            Retention::Versions(count) => self.versions > (count as usize).max(1),
            Retention::For(_) | Retention::Within(_) | Retention::All => false,
        }
    }
}

impl Table {
    /// Makes the table of a key that has one version.
    pub(crate) fn create(tx: &mut Tx<'_>, key: &[u8], number: u64, value: ValueWord) -> Result<Table> {
        let off = tx.alloc(KEY_HEAD_BYTES + key.len() as u64)?;
        let words = [key.len() as u64, 0, number, value.encode(), 0, 0, 0, 0];
        let mut image: SmallVec<[u8; 256]> = SmallVec::new();
        words.iter().for_each(|word| image.extend_from_slice(&word.to_ne_bytes()));
        image.extend_from_slice(key);
        tx.write_fresh(off, &image)?;
        Ok(Table { off })
    }

    #[inline]
    pub(crate) fn slots(self, words: &impl Words) -> Result<Slots> {
        let vector = words.word(self.off + field!(PmKey.vector))?;
        if vector == 0 {
            return Ok(Slots { off: self.off + field!(PmKey.versions), capacity: INLINE_VERSIONS });
        }
        let capacity = words.word(vector + field!(PmVector.capacity))?;
        if !(MIN_CAPACITY..=MAX_CAPACITY).contains(&capacity) {
            return Err(corrupt("a vector of versions", vector, "a capacity from 4 on", capacity));
        }
        Ok(Slots { off: vector + VECTOR_HEAD_BYTES, capacity })
    }

    /// The version that a snapshot has, if the key had one.
    #[inline]
    pub(crate) fn find(self, words: &impl Words, snapshot: u64) -> Result<Option<Version>> {
        let slots = self.slots(words)?;
        let Some(index) = slots.count_to(words, snapshot)?.checked_sub(1) else { return Ok(None) };
        Ok(Some(Version { number: slots.number(words, index)?, value: slots.value(words, index)? }))
    }

    /// All versions, those that were collected among them.
    pub(crate) fn versions(self, words: &impl Words) -> Result<SmallVec<[Version; 8]>> {
        let slots = self.slots(words)?;
        let count = slots.count_to(words, u64::MAX)?;
        (0..count)
            .map(|index| {
                Ok(Version { number: slots.number(words, index)?, value: slots.value(words, index)? })
            })
            .collect()
    }

    /// Adds a version, which must be the newest, and collects those that are not needed beside it.
    pub(crate) fn add(self, tx: &mut Tx<'_>, new: Version, keep: Keep<'_>) -> Result<Left> {
        let slots = self.slots(tx)?;
        let mut versions = self.versions(tx)?;
        let count = versions.len() as u64;
        if count == slots.capacity {
            return self.move_to_vector(tx, versions, new, keep);
        }
        let left = collect(tx, slots, &mut versions, Some(new.number), keep)?;
        let off = slots.at(count);
        tx.store(off + field!(PmVersion.value), new.value.encode())?;
        // ORDER: I2. A reader finds the value by the number, which becomes visible after it.
        tx.store(off, new.number)?;
        Ok(Left { versions: left + 1, ends_in_tombstone: new.value == ValueWord::Tombstone })
    }

    /// Collects the versions that are not needed.
    pub(crate) fn collect(self, tx: &mut Tx<'_>, keep: Keep<'_>) -> Result<Left> {
        let slots = self.slots(tx)?;
        let mut versions = self.versions(tx)?;
        let left = collect(tx, slots, &mut versions, None, keep)?;
        let ends_in_tombstone = versions.last().is_some_and(|last| last.value == ValueWord::Tombstone);
        Ok(Left { versions: left, ends_in_tombstone })
    }

    /// Writes what is needed into a vector with room for as much again.
    fn move_to_vector(
        self,
        tx: &mut Tx<'_>,
        old: SmallVec<[Version; 8]>,
        new: Version,
        keep: Keep<'_>,
    ) -> Result<Left> {
        let mut kept: Vec<Version> = Vec::with_capacity(old.len() + 1);
        for (i, version) in old.iter().enumerate() {
            let next = old.get(i + 1).map_or(new.number, |next| next.number);
            if version.value == ValueWord::Collected {
                continue;
            }
            if keep.has(old.len() - i, version.number, next) {
                kept.push(*version);
            } else {
                keep.note_collected(tx, *version, next)?;
                free_value(tx, version.value)?;
            }
        }
        kept.push(new);
        let capacity = (2 * kept.len() as u64).max(MIN_CAPACITY);
        let mut words = vec![0u64; (VECTOR_HEAD_BYTES + capacity * VERSION_BYTES) as usize / 8];
        words[0] = capacity;
        for (pair, version) in words[VECTOR_HEAD_BYTES as usize / 8..].chunks_exact_mut(2).zip(&kept) {
            pair.copy_from_slice(&[version.number, version.value.encode()]);
        }
        let vector = tx.alloc(8 * words.len() as u64)?;
        tx.write_fresh_words(vector, &[], &words)?;
        let place = self.off + field!(PmKey.vector);
        let before = tx.load(place)?;
        tx.store(place, vector)?;
        if before != 0 {
            tx.free(before)?;
        }
        Ok(Left { versions: kept.len(), ends_in_tombstone: new.value == ValueWord::Tombstone })
    }

    /// The key.
    pub(crate) fn key(self, region: &Region) -> Result<Vec<u8>> {
        let bytes = region.load_u64(self.off + field!(PmKey.key_bytes))?;
        if bytes > tembo_index::MAX_KEY_BYTES {
            return Err(corrupt("the length of a key", self.off, "at most 65536", bytes));
        }
        read_bytes(region, self.off + KEY_HEAD_BYTES, bytes)
    }

    /// Frees the table, its vector and all its values.
    pub(crate) fn free(self, tx: &mut Tx<'_>) -> Result<()> {
        for version in self.versions(tx)? {
            free_value(tx, version.value)?;
        }
        let vector = tx.load(self.off + field!(PmKey.vector))?;
        if vector != 0 {
            tx.free(vector)?;
        }
        Ok(tx.free(self.off)?)
    }
}

/// Collects the versions that are not needed; returns how many have a value or a tombstone. `next` is the
/// number that follows the last one's.
fn collect(
    tx: &mut Tx<'_>,
    slots: Slots,
    versions: &mut [Version],
    next: Option<u64>,
    keep: Keep<'_>,
) -> Result<usize> {
    let mut left = 0;
    for i in 0..versions.len() {
        let Version { number, value } = versions[i];
        if value == ValueWord::Collected {
            continue;
        }
        let newer = versions.len() - 1 - i + usize::from(next.is_some());
        let next = versions.get(i + 1).map(|next| next.number).or(next);
        let Some(next) = next.filter(|next| !keep.has(newer, number, *next)) else {
            left += 1;
            continue;
        };
        keep.note_collected(tx, versions[i], next)?;
        tx.store(slots.at(i as u64) + field!(PmVersion.value), ValueWord::Collected.encode())?;
        free_value(tx, value)?;
        versions[i].value = ValueWord::Collected;
    }
    Ok(left)
}

fn free_value(tx: &mut Tx<'_>, value: ValueWord) -> Result<()> {
    if let ValueWord::Block(off) = value {
        tx.free(off)?;
    }
    Ok(())
}

/// Writes a value, or none: a tombstone.
pub(crate) fn write_value(tx: &mut Tx<'_>, value: Option<&[u8]>) -> Result<ValueWord> {
    let Some(value) = value else { return Ok(ValueWord::Tombstone) };
    if value.len() <= MAX_INLINE_BYTES
        && let Some(word) = ValueWord::inline(value)
    {
        return Ok(word);
    }
    let off = tx.alloc(VALUE_HEAD_BYTES + value.len() as u64)?;
    tx.write_fresh(off, &(value.len() as u64).to_ne_bytes())?;
    tx.write_fresh(off + VALUE_HEAD_BYTES, value)?;
    Ok(ValueWord::Block(off))
}

/// A value's bytes; `None` for a tombstone.
pub(crate) fn read_value(region: &Region, value: ValueWord, off: u64) -> Result<Option<Vec<u8>>> {
    match value {
        ValueWord::Tombstone => Ok(None),
        ValueWord::Inline { bytes, len } => Ok(Some(bytes[..usize::from(len)].to_vec())),
        ValueWord::Block(block) => {
            let bytes = value_bytes(region, block)?;
            read_bytes(region, block + VALUE_HEAD_BYTES, bytes).map(Some)
        }
        ValueWord::Collected => {
            Err(corrupt("a version", off, "a version that a snapshot needs", "one that was collected"))
        }
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

/// A copy of bytes that nobody changes.
fn read_bytes(region: &Region, off: u64, bytes: u64) -> Result<Vec<u8>> {
    use std::sync::atomic::Ordering;
    let words = region.words(off, bytes.div_ceil(8))?;
    let mut copy = Vec::with_capacity(8 * words.len());
    words.iter().for_each(|word| copy.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()));
    copy.truncate(bytes as usize);
    Ok(copy)
}
