//! A point in time of the databases, which is copied in steps while commands go on.
//!
//! A copy ([`crate::export`]) walks the maps of keys and, for each large collection, the map of its elements,
//! a few records in each turn. A command that is about to change a record which the walk has not passed keeps
//! the record first, as it is: the *old record*, in the map "db.old". The walk reads both maps side by side.
//!
//! # Media layout
//!
//! ```text
//!   map "db.old":  number key -> 0          the record was not there
//!                   number key -> 1 value    it was
//!
//!   number = the number of a database's maps; or 16 "db.elements", 17 "db.ordered", 18 "db.lists"
//!          | 19: the key is the id of a sorted set in 8 bytes, big-endian, the value its number of members in
//!            8, little-endian
//! ```
//!
//! The number of a sorted set's members is kept before the first of its records in order is changed, as the
//! walk needs it before the members.
//!
//! # Invariant
//!
//! At each commit, a record that the walk has not passed was, at the point, its old record, or, if it has
//! none, what it is now. A sorted set that the walk has not come to had, at the point, as many members as
//! were kept, or, if no number was, as many as it has now.
//!
//! # Commit point
//!
//! The batch of the change: an old record is committed, or taken back, together with it.
//!
//! # Recovery
//!
//! A copy does not survive a restart. Opening the databases empties the map.
//!
//! # Cost
//!
//! A change of a record that the walk has not passed costs another look-up and, the first time, another
//! record in the pool. What the walk has passed, collections that are newer than the point, and values that
//! the copy has no part in cost a comparison. Collections that are given up meanwhile are removed after the
//! copy: else all of their elements would be kept. If there is no room, the copy is given up and not the
//! command.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Bound;

use tembo::{Batch, Entry, MAX_VALUE_BYTES, Map, Pool, PoolErrorKind, Result};

use super::check_report::CheckError;
use super::collection::position::id_range;
use super::format::{DATABASES, OLD_RECORDS};
use crate::eviction::candidate::entry_bytes;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
/// A database with this many keys is kept key by key when it is cleared; a larger one ends the copy.
const CLEARED_KEYS_MAX: u64 = 1024;
/// The number of large collections that are remembered as copied. For later ones, old records are kept
/// without need.
const DONE_MAX: usize = 1 << 20;

/// Numbers of the maps of elements.
pub(crate) const ELEMENTS_NUMBER: u8 = DATABASES as u8;
pub(crate) const ORDERED_NUMBER: u8 = ELEMENTS_NUMBER + 1;
pub(crate) const LISTS_NUMBER: u8 = ORDERED_NUMBER + 1;
/// Stands for the numbers of members of sorted sets.
const COUNTS_NUMBER: u8 = LISTS_NUMBER + 1;

/// A promise that is broken, to prove that a test notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Broken {
    /// Nothing is kept of a range that is removed.
    Ranges,
    /// Nothing is kept of a collection that is under way.
    UnderWay,
    /// A record that changes again is kept again.
    KeptAgain,
    /// The last collection before the point counts as newer.
    Newer,
    /// The number of a sorted set's members is not kept.
    Counts,
}

#[cfg(test)]
thread_local! {
    pub(crate) static BROKEN: Cell<Option<Broken>> = const { Cell::new(None) };
}

/// Whether a test breaks a promise.
#[inline(always)]
pub(super) fn is_broken(_promise: Broken) -> bool {
    #[cfg(test)]
    return BROKEN.get() == Some(_promise);
    #[cfg(not(test))]
    false
}

/// Why a point was lost before its copy was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There is no room for old records.
    NoRoom,
    /// A database was cleared that had not been copied.
    Cleared,
    /// The databases of another history have come.
    Replaced,
}

/// How far the walk of a copy is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The numbers of the databases' maps, in the order of the walk.
    pub(crate) maps: Vec<u8>,
    /// How many of these were passed.
    pub(crate) passed: usize,
    /// The last place that was passed in the map after these.
    pub(crate) after: Option<Vec<u8>>,
    /// A collection that is under way, and the last record of its elements that was passed.
    pub(crate) under_way: Option<(u64, Vec<u8>)>,
    pub(super) done: HashSet<u64>,
}

impl Progress {
    pub(crate) fn end_collection(&mut self) {
        if let Some((id, _)) = self.under_way.take()
            && self.done.len() < DONE_MAX
        {
            self.done.insert(id);
        }
    }

    /// Whether the walk needs a record no more.
    fn has_passed(&self, number: u8, key: &[u8]) -> bool {
        if usize::from(number) < DATABASES {
            return match self.maps.iter().position(|maps| *maps == number) {
                Some(at) if at == self.passed => self.after.as_deref().is_some_and(|after| key <= after),
                Some(at) => at < self.passed,
                None => true,
            };
        }
        let Some(id) = key.first_chunk().map(|id| u64::from_be_bytes(*id)) else { return false };
        match &self.under_way {
            Some((current, after)) if *current == id => key <= &after[..] || is_broken(Broken::UnderWay),
            _ => self.done.contains(&id),
        }
    }
}

/// A point in time whose copy is under way.
pub(crate) struct Point {
    /// None: there was no room for the map.
    pub(super) old_records: Option<Map>,
    /// The maps of which a copy may need records, by their numbers.
    pub(super) maps: Vec<(u8, Map)>,
    /// Collections with this id and later ones are newer.
    pub(super) next_id: u64,
    pub(crate) progress: RefCell<Progress>,
    pub(in crate::keyspace) lost: Cell<Option<Lost>>,
    pub(in crate::keyspace) old_bytes: Cell<u64>,
    /// Collections that were given up wait for the end of the copy.
    pub(super) holds_back: Cell<bool>,
    /// Memory is short, so collections that were given up do not wait any more.
    pub(super) lets_go: Cell<bool>,
}

impl Point {
    /// The old records.
    pub(crate) fn old_records(&self) -> Option<&Map> {
        self.old_records.as_ref()
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost.get()
    }

    /// Whether the pool would have more room without the copy.
    pub(in crate::keyspace) fn is_in_the_way(&self) -> bool {
        self.lost.get() == Some(Lost::NoRoom) || self.old_bytes.get() > 0 || self.holds_back.get()
    }

    fn number_of(&self, map: &Map) -> Option<u8> {
        self.maps.iter().find(|(_, its)| its.is_same(map)).map(|(number, _)| *number)
    }

    /// Keeps a record that is about to be changed, if the walk needs it.
    ///
    /// # Errors
    /// Those of the pool. If the pool has no room within a command, an error of a full pool: the command is
    /// undone, the point is lost, and the command can run again.
    #[cold]
    pub(super) fn keep(&self, batch: &mut Batch<'_>, map: &Map, key: &[u8], is_nested: bool) -> Result<()> {
        let Some(number) = self.number_of(map).filter(|_| self.lost.get().is_none()) else { return Ok(()) };
        let is_newer = usize::from(number) >= DATABASES
            && key.first_chunk().is_some_and(|id| {
                u64::from_be_bytes(*id) >= self.next_id - u64::from(is_broken(Broken::Newer))
            });
        if is_newer || self.progress.borrow().has_passed(number, key) {
            return Ok(());
        }
        let Some(kept) = &self.old_records else {
            self.lost.set(Some(Lost::NoRoom));
            return Ok(());
        };
        let name = [&[number], key].concat();
        if batch.get(kept, &name)?.is_some() && !is_broken(Broken::KeptAgain) {
            return Ok(());
        }
        let old = batch.get(map, key)?.map(|value| [&[PRESENT], value].concat());
        let old = old.unwrap_or_else(|| vec![ABSENT]);
        if old.len() as u64 > MAX_VALUE_BYTES {
            self.lost.set(Some(Lost::NoRoom));
            return Ok(());
        }
        if number == ORDERED_NUMBER
            && let Some(id) = key.first_chunk()
            && !is_broken(Broken::Counts)
        {
            self.keep_count(batch, (kept, map), u64::from_be_bytes(*id), is_nested)?;
        }
        self.keep_as(batch, kept, (&name, &old), is_nested)
    }

    /// Keeps the number of a sorted set's members, before the first of them is changed.
    fn keep_count(
        &self,
        batch: &mut Batch<'_>,
        (kept, ordered): (&Map, &Map),
        id: u64,
        is_nested: bool,
    ) -> Result<()> {
        let name = count_name(id);
        if batch.get(kept, &name)?.is_some() {
            return Ok(());
        }
        let mut old = vec![PRESENT];
        old.extend_from_slice(&batch.count(ordered, id_range(id))?.to_le_bytes());
        self.keep_as(batch, kept, (&name, &old), is_nested)
    }

    fn keep_as(
        &self,
        batch: &mut Batch<'_>,
        kept: &Map,
        (name, old): (&[u8], &[u8]),
        is_nested: bool,
    ) -> Result<()> {
        match batch.put(kept, name, old) {
            Ok(_) => {
                let bytes = entry_bytes(name, old.len());
                self.old_bytes.set(self.old_bytes.get().saturating_add_signed(bytes));
                Ok(())
            }
            Err(error @ tembo::Error::Full { .. }) => {
                self.lost.set(Some(Lost::NoRoom));
                if is_nested { Err(error) } else { Ok(()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the walk may need records of a map.
    pub(super) fn has(&self, map: &Map) -> bool {
        self.number_of(map).is_some() && self.lost.get().is_none()
    }

    /// Whether the records of a map are to be kept before it is cleared. If the walk needs them and they are
    /// many, the point is lost.
    #[cold]
    pub(super) fn keeps_what_is_cleared(&self, batch: &Batch<'_>, map: &Map) -> Result<bool> {
        let Some(number) = self.number_of(map).filter(|_| self.lost.get().is_none()) else {
            return Ok(false);
        };
        let progress = self.progress.borrow();
        let is_needed = progress.maps[progress.passed..].contains(&number);
        if is_needed && batch.len(map)? > CLEARED_KEYS_MAX {
            self.lost.set(Some(Lost::Cleared));
            return Ok(false);
        }
        Ok(is_needed)
    }
}

/// Proves I17.
pub(super) fn check_old_records(pool: &Pool) -> Result<(), CheckError> {
    let Some(map) = pool.find_map(OLD_RECORDS)? else { return Ok(()) };
    for entry in map.iter() {
        let entry = entry?;
        let is_sound = match entry.key().split_first() {
            Some((&COUNTS_NUMBER, id)) => {
                id.len() == 8 && matches!(entry.value(), [PRESENT, count @ ..] if count.len() == 8)
            }
            Some((&number, _)) => number <= LISTS_NUMBER && matches!(entry.value(), [ABSENT] | [PRESENT, ..]),
            None => false,
        };
        if !is_sound {
            return Err(CheckError::Collection {
                place: format!("what a copy has kept, entry \"{}\"", entry.key().escape_ascii()),
                what: "malformed".to_owned(),
            });
        }
    }
    Ok(())
}

fn count_name(id: u64) -> [u8; 9] {
    let mut name = [COUNTS_NUMBER; 9];
    name[1..].copy_from_slice(&id.to_be_bytes());
    name
}

/// The number of a sorted set's members at a point, if it was kept.
pub(crate) fn kept_count(kept: Option<&Map>, id: u64) -> Result<Option<u64>> {
    let Some(kept) = kept else { return Ok(None) };
    let count = kept.get(count_name(id))?;
    Ok(count.and_then(|count| Some(u64::from_le_bytes(*count.get(1..)?.first_chunk()?))))
}

/// Opens a map, or creates it; none if the pool has no room for it, or no name is left.
pub(crate) fn open_if_there_is_room(pool: &Pool, name: &str) -> Result<Option<Map>> {
    match pool.open_map(name) {
        Err(tembo::Error::Full { .. }) => Ok(None),
        Err(tembo::Error::Pool(error)) if matches!(error.kind(), PoolErrorKind::NoRoot { .. }) => Ok(None),
        opened => opened.map(Some),
    }
}

/// The records of a part of a map as they were at a point, in order.
pub(crate) struct Records<'m> {
    now: Side<'m>,
    kept: Option<Side<'m>>,
}

/// One of two maps that are merged. The next record is read ahead.
struct Side<'m> {
    records: tembo::Iter<'m>,
    next: Option<Entry<'m>>,
}

impl<'m> Side<'m> {
    fn new(mut records: tembo::Iter<'m>) -> Result<Self> {
        let next = records.next().transpose()?;
        Ok(Side { records, next })
    }

    fn take(&mut self) -> Result<Option<Entry<'m>>> {
        let next = self.records.next().transpose()?;
        Ok(std::mem::replace(&mut self.next, next))
    }
}

impl<'m> Records<'m> {
    /// The records after a key, or from the beginning of a range on, up to the end of the range, which is
    /// excluded.
    pub(crate) fn new(
        (number, map): (u8, &'m Map),
        kept: Option<&'m Map>,
        (low, high): (Bound<&[u8]>, Option<&[u8]>),
    ) -> Result<Self> {
        let up_to = |end: Option<Vec<u8>>| end.map_or(Bound::Unbounded, Bound::Excluded);
        let now = map.range((low.map(<[u8]>::to_vec), up_to(high.map(<[u8]>::to_vec))));
        let named = |key: &[u8]| [&[number], key].concat();
        let kept_low = match low {
            Bound::Unbounded => Bound::Included(vec![number]),
            low => low.map(named),
        };
        let kept_high = high.map_or_else(|| vec![number + 1], named);
        let kept =
            kept.map(|kept| Side::new(kept.range((kept_low, Bound::Excluded(kept_high))))).transpose()?;
        Ok(Records { now: Side::new(now)?, kept })
    }

    /// Gives the next record to `visit`; returns false at the end.
    pub(crate) fn next<E: From<tembo::Error>>(
        &mut self,
        visit: impl FnOnce(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        loop {
            let old = self.kept.as_ref().and_then(|kept| kept.next.as_ref()).map(|entry| &entry.key()[1..]);
            let now = self.now.next.as_ref().map(Entry::key);
            let is_old = match (now, old) {
                (None, None) => return Ok(false),
                (Some(now), Some(old)) => old <= now,
                (now, _) => now.is_none(),
            };
            if !is_old {
                let entry = self.now.take()?;
                entry.map_or(Ok(()), |entry| visit(entry.key(), entry.value()))?;
                return Ok(true);
            }
            if now == old {
                self.now.take()?;
            }
            let Some(entry) = self.kept.as_mut().and_then(|kept| kept.take().transpose()).transpose()? else {
                return Ok(false);
            };
            if let Some((&PRESENT, value)) = entry.value().split_first() {
                visit(&entry.key()[1..], value)?;
                return Ok(true);
            }
        }
    }
}
