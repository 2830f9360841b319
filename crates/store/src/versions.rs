//! The version table of a key: finding a version, adding one, collecting those that nobody needs.
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
use crate::keyspace::KeyspaceInner;
use crate::layout::{
    HAS_TOMBSTONE, INLINE_VERSIONS, MAX_CAPACITY, MAX_INLINE_BYTES, TABLE_BYTES, VALUE_HEAD_BYTES,
    VECTOR_HEAD_BYTES, VERSION_BYTES, ValueWord, field, number_of,
};
use crate::retention::{Keep, Retention};
use smallvec::SmallVec;
use tembo_index::{ValuePlace, WbTree};
use tembo_pmem::Region;
use tembo_pool::Tx;

/// Versions of the smallest vector.
const MIN_CAPACITY: u64 = 3;
/// Up to this many versions are in no order.
const UNORDERED_MAX: u64 = 8;

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

    fn version(self, words: &impl Words, index: u64) -> Result<Version> {
        version(self.at(index), self.words(words, index)?)
    }

    /// The version of the spare word.
    fn last_tombstone(self) -> Option<Version> {
        (self.spare != 0).then_some(Version { number: self.spare, value: ValueWord::Tombstone })
    }

    /// In a table in order: how many versions there are whose numbers are at most `snapshot`.
    fn count_to(self, words: &impl Words, snapshot: u64) -> Result<u64> {
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
fn version(off: u64, words: [u64; 2]) -> Result<Version> {
    match ValueWord::decode(words) {
        Some(value) => Ok(Version { number: number_of(words[0]), value }),
        None => Err(corrupt("the value of a version", off, "a value", format!("{:#x}", words[1]))),
    }
}

/// The contents of a table after a version was added, or versions were collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Versions with a value or a tombstone.
    pub(crate) versions: usize,
    pub(crate) ends_in_tombstone: bool,
    /// Whether more than the table's own words may be freed: a vector, or values in blocks.
    pub(crate) has_blocks: bool,
}

impl Left {
    /// Whether some of it is to be collected before the key is changed again, without the passing of time.
    pub(crate) fn is_garbage(self, retention: Retention) -> bool {
        match retention {
            Retention::None => self.has_blocks && self.versions > 1 || self.ends_in_tombstone,
            Retention::Versions(count) => self.has_blocks && self.versions > (count as usize).max(1),
            Retention::For(_) | Retention::Within(_) | Retention::All => false,
        }
    }
}

/// A slot that has a version.
#[derive(Debug, Clone, Copy)]
struct Slot {
    off: u64,
    version: Version,
}

/// A table as a writer has loaded it.
pub(crate) struct Loaded {
    table: Table,
    slots: Slots,
    /// The versions in the order of their numbers; of a table in order, only the last.
    list: SmallVec<[Slot; UNORDERED_MAX as usize]>,
    /// A slot without a version.
    empty: Option<u64>,
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

    /// Loads what a writer has to know.
    #[inline]
    pub(crate) fn load(self, tx: &Tx<'_>) -> Result<Loaded> {
        let slots = self.slots(tx)?;
        let mut loaded = Loaded { table: self, slots, list: SmallVec::new(), empty: None };
        if slots.is_ordered() {
            let count = slots.count_to(tx, u64::MAX)?;
            if let Some(last) = count.checked_sub(1) {
                loaded.list.push(Slot { off: slots.at(last), version: slots.version(tx, last)? });
            }
            loaded.empty = (count < slots.capacity).then(|| slots.at(count));
            return Ok(loaded);
        }
        for index in 0..slots.capacity {
            let (off, words) = (slots.at(index), slots.words(tx, index)?);
            if words[0] == 0 {
                loaded.empty = loaded.empty.or(Some(off));
                continue;
            }
            loaded.list.push(Slot { off, version: version(off, words)? });
        }
        loaded.list.sort_unstable_by_key(|slot| slot.version.number);
        Ok(loaded)
    }

    /// Collects the versions that are not needed.
    pub(crate) fn collect(self, tx: &mut Tx<'_>, keep: &Keep<'_>) -> Result<Left> {
        let slots = self.slots(tx)?;
        let mut numbers: Vec<(u64, u64)> = Vec::new();
        for index in 0..slots.capacity {
            let number = number_of(tx.word(slots.at(index))?);
            if number != 0 {
                numbers.push((number, index));
            }
        }
        numbers.sort_unstable();
        let last = slots.last_tombstone();
        let count = numbers.len() + usize::from(last.is_some());
        let has_vector = self.vector(tx)?.is_some();
        let mut left = Left { versions: 0, ends_in_tombstone: false, has_blocks: has_vector };
        for (i, (number, index)) in numbers.iter().enumerate() {
            let value = slots.version(tx, *index)?.value;
            if value == ValueWord::Collected {
                continue;
            }
            let newer = count - 1 - i;
            let next = numbers.get(i + 1).map(|(next, _)| *next).or(last.map(|last| last.number));
            let Some(next) = next.filter(|next| !keep.has(newer, *number, *next)) else {
                left.note(value);
                continue;
            };
            keep.note_collected(tx, Version { number: *number, value }, next)?;
            collect_slot(tx, slots.at(*index), Version { number: *number, value })?;
        }
        last.iter().for_each(|last| left.note(last.value));
        Ok(left)
    }

    /// Lets a table lead to no vector any more, by a new record of its key, if the versions that are left fit
    /// into that. The caller is the only writer.
    pub(crate) fn shrink(self, tx: &mut Tx<'_>, keyspace: &KeyspaceInner, key: &[u8]) -> Result<()> {
        let Some(vector) = self.vector(tx)? else { return Ok(()) };
        let mut versions = self.versions(tx)?;
        versions.retain(|version| version.value != ValueWord::Collected);
        if versions.len() as u64 > INLINE_VERSIONS {
            return Ok(());
        }
        Table::put_with(key, &versions, |value| keyspace.index.put(tx, key, value))?;
        Ok(tx.free(vector)?)
    }

    /// Frees the table's vector and all its values.
    pub(crate) fn free(self, tx: &mut Tx<'_>) -> Result<()> {
        for version in self.versions(tx)? {
            free_value(tx, version.value)?;
        }
        if let Some(vector) = self.vector(tx)? {
            tx.free(vector)?;
        }
        Ok(())
    }
}

fn find_ordered(slots: Slots, words: &impl Words, snapshot: u64) -> Result<Found> {
    let count = slots.count_to(words, snapshot)?;
    let is_last = slots.spare == 0 && (count == slots.capacity || words.word(slots.at(count))? == 0);
    let version = count.checked_sub(1).map(|last| slots.version(words, last)).transpose()?;
    let is_there = version.is_none_or(|version| version.value != ValueWord::Collected);
    Ok(Found { version, is_sure: is_last && is_there })
}

impl Left {
    /// Counts a version that is left; the last one is counted last.
    fn note(&mut self, value: ValueWord) {
        self.versions += 1;
        self.has_blocks |= matches!(value, ValueWord::Block(_));
        self.ends_in_tombstone = value == ValueWord::Tombstone;
    }
}

impl Loaded {
    /// The newest version.
    #[inline]
    pub(crate) fn last(&self) -> Option<Version> {
        self.slots.last_tombstone().or(self.list.last().map(|slot| slot.version))
    }

    /// Adds a version, which must be the newest; collects versions that are not needed beside it.
    pub(crate) fn add(self, tx: &mut Tx<'_>, new: Version, keep: &Keep<'_>) -> Result<Left> {
        if self.slots.spare != 0 {
            return self.move_to_vector(tx, new, keep);
        }
        if self.slots.is_ordered() {
            return self.append(tx, new, keep);
        }
        let has_vector = self.slots.capacity != INLINE_VERSIONS;
        let mut left = Left { versions: 0, ends_in_tombstone: false, has_blocks: has_vector };
        let mut place = self.empty;
        for (i, Slot { off, version }) in self.list.iter().enumerate() {
            let next = self.list.get(i + 1).map_or(new.number, |next| next.version.number);
            let is_collected = version.value == ValueWord::Collected;
            if !is_collected && keep.has(self.list.len() - i, version.number, next) {
                left.note(version.value);
            } else if place.is_none() {
                place = Some(*off);
                if !is_collected {
                    keep.note_collected(tx, *version, next)?;
                }
                free_value(tx, version.value)?;
            } else if matches!(version.value, ValueWord::Block(_)) {
                keep.note_collected(tx, *version, next)?;
                collect_slot(tx, *off, *version)?;
            }
        }
        match place {
            Some(place) => write_slot(tx, place, new)?,
            None if new.value == ValueWord::Tombstone => self.write_spare(tx, new.number)?,
            None => return self.move_to_vector(tx, new, keep),
        }
        left.note(new.value);
        Ok(left)
    }

    /// Puts a tombstone into the spare word, which has none.
    fn write_spare(&self, tx: &mut Tx<'_>, number: u64) -> Result<()> {
        let (off, word) = match self.table.vector(tx)? {
            Some(vector) => (vector + field!(PmVector.tombstone), number),
            None => (self.table.off + field!(PmTable.vector), number | HAS_TOMBSTONE),
        };
        Ok(tx.store(off, word)?)
    }

    /// Adds a version behind the others.
    fn append(self, tx: &mut Tx<'_>, new: Version, keep: &Keep<'_>) -> Result<Left> {
        match self.empty {
            Some(place) => write_slot(tx, place, new)?,
            None if new.value == ValueWord::Tombstone => self.write_spare(tx, new.number)?,
            None => return self.move_to_vector(tx, new, keep),
        }
        let ends_in_tombstone = new.value == ValueWord::Tombstone;
        Ok(Left { versions: self.slots.capacity as usize, ends_in_tombstone, has_blocks: true })
    }

    /// Writes what is needed into a vector with room for more.
    fn move_to_vector(self, tx: &mut Tx<'_>, new: Version, keep: &Keep<'_>) -> Result<Left> {
        let old = self.table.versions(tx)?;
        let mut left = Left { versions: 0, ends_in_tombstone: false, has_blocks: true };
        let mut kept: Vec<Version> = Vec::with_capacity(old.len() + 1);
        for (i, version) in old.iter().enumerate() {
            let next = old.get(i + 1).map_or(new.number, |next| next.number);
            if version.value == ValueWord::Collected {
                continue;
            }
            if keep.has(old.len() - i, version.number, next) {
                kept.push(*version);
                left.note(version.value);
            } else {
                keep.note_collected(tx, *version, next)?;
                free_value(tx, version.value)?;
            }
        }
        kept.push(new);
        left.note(new.value);
        let capacity = capacity_for(kept.len() as u64);
        let mut words = vec![0u64; (VECTOR_HEAD_BYTES + capacity * VERSION_BYTES) as usize / 8];
        words[0] = capacity;
        for (pair, version) in words[VECTOR_HEAD_BYTES as usize / 8..].chunks_exact_mut(2).zip(&kept) {
            pair.copy_from_slice(&version.value.encode(version.number));
        }
        let vector = tx.alloc(8 * words.len() as u64)?;
        tx.write_fresh_words(vector, &[], &words)?;
        let before = self.table.vector(tx)?;
        tx.store(self.table.off + field!(PmTable.vector), vector)?;
        before.map_or(Ok(()), |before| tx.free(before))?;
        Ok(left)
    }
}

/// The room of a vector for so many versions. A key that is overwritten again and again while `n` snapshots
/// are held needs `n + 2` slots: theirs, that of the current version, and one for the new version. One and
/// two snapshots get no more than that. In a longer vector, room for more keeps the cost of moving constant.
fn capacity_for(versions: u64) -> u64 {
    match versions {
        ..=MIN_CAPACITY => MIN_CAPACITY,
        4 => 4,
        5..=UNORDERED_MAX => UNORDERED_MAX,
        more => 2 * more,
    }
}

/// Fills a slot. ORDER: the number first; see the module.
#[inline]
fn write_slot(tx: &mut Tx<'_>, off: u64, new: Version) -> Result<()> {
    let [number, value] = new.value.encode(new.number);
    tx.store(off, number)?;
    Ok(tx.store(off + field!(PmVersion.value), value)?)
}

/// Collects the version of a slot.
fn collect_slot(tx: &mut Tx<'_>, off: u64, version: Version) -> Result<()> {
    write_slot(tx, off, Version { value: ValueWord::Collected, ..version })?;
    free_value(tx, version.value)
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
