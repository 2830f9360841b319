//! Changes of the version table of a key: adding a version, collecting those that nobody needs.
//!
//! `versions.rs` has the table, and what stays true for readers beside a writer.

use crate::active::Asked;
use crate::error::Result;
use crate::keep::Keep;
use crate::keyspace::KeyspaceInner;
use crate::layout::{
    HAS_TOMBSTONE, INLINE_VERSIONS, MAX_INLINE_BYTES, VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES, VERSION_BYTES,
    ValueWord, field, number_of,
};
use crate::retention::{Retention, now_unix_ns};
use crate::space::{Accounts, Tally};
use crate::versions::{MIN_CAPACITY, Slots, Table, UNORDERED_MAX, Version, Words, version};
use smallvec::SmallVec;
use tembo_pool::{KeptSpace, Tx};

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

    /// Counts a version that is left; the last one is counted last.
    fn note(&mut self, value: ValueWord) {
        self.versions += 1;
        self.has_blocks |= matches!(value, ValueWord::Block(_));
        self.ends_in_tombstone = value == ValueWord::Tombstone;
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

/// Fills a slot. ORDER: the number first; see `versions.rs`.
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

/// Collects the versions of a key that nobody needs; the key, too, if nothing but a tombstone is left that
/// nobody is older than (I4).
pub(crate) fn collect_key(
    tx: &mut Tx<'_>,
    accounts: &Accounts,
    (keyspace, key): (&KeyspaceInner, &[u8]),
    needed: &Asked<'_>,
    tally: &Tally,
) -> Result<()> {
    tx.use_kept_space(KeptSpace::Half);
    let place = keyspace.index.look_up_in(tx, key)?;
    let Some(table) = place.value().map(Table::at).transpose()? else { return Ok(()) };
    let account = accounts.account(tally, keyspace, || Ok(key.to_vec()))?;
    let keep = Keep::new(needed, keyspace, now_unix_ns(), account);
    let versions = table.versions(tx)?;
    if is_past(&versions, &keep) {
        note_removed(tx, key, &versions, &keep)?;
        table.free(tx)?;
        return Ok(place.remove(tx)?);
    }
    table.collect(tx, &keep)?;
    table.shrink(tx, keyspace, key)
}

/// Notes that a key goes with all its versions.
fn note_removed(tx: &Tx<'_>, key: &[u8], versions: &[Version], keep: &Keep<'_>) -> Result<()> {
    for pair in versions.windows(2).filter(|pair| pair[0].value != ValueWord::Collected) {
        keep.note_collected(tx, pair[0], pair[1].number)?;
    }
    versions.last().map_or(Ok(()), |last| keep.note_removed(tx, key, *last))
}

/// Whether nobody needs any version, and the last one is a tombstone that nobody is older than.
fn is_past(versions: &[Version], keep: &Keep<'_>) -> bool {
    let is_tombstone = |last: &Version| last.value == ValueWord::Tombstone && keep.is_past(last.number);
    let mut pairs = versions.windows(2).enumerate();
    versions.last().is_some_and(is_tombstone)
        && pairs.all(|(i, pair)| {
            pair[0].value == ValueWord::Collected
                || !keep.has(versions.len() - 1 - i, pair[0].number, pair[1].number)
        })
}
