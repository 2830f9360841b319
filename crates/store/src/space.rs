//! Space accounting: how many bytes are live, and how many old versions and kept snapshots hold.
//!
//! The numbers lie in memory. Words on media for them would cost each commit a line, and lanes that commit at
//! the same time would have to wait for each other at that line. So a store counts when it is first asked, by
//! a walk over all tables in bounded steps (`Store::collect` takes them). From then on each commit notes
//! what it changes: a few additions under a lock in memory, and a look at the head of each value that becomes
//! old or is collected. A store that nobody asks pays nothing. After opening, it counts anew.
//!
//! # Classes
//!
//! The *live* bytes are those of each key whose last version has a value: its table's head, the key, and that
//! version. All other versions that are not collected are *old*, and so is a key that ends in a tombstone. An
//! old version is *kept* if a kept snapshot lies between it and its successor. Each version counts 16 bytes,
//! and a value that does not lie in it a block of 8 bytes and its length. Room to spare in vectors and slabs,
//! and the nodes of indexes, are not counted.
//!
//! # A count
//!
//! A count goes over the keyspaces in the order of their ids and over their keys in order, under the lock of
//! commits. A commit notes its changes of a key in a count only if the count is past the key. When a kept
//! snapshot is deleted, its versions change their class: a new count is made, while the former one stays in
//! use. To keep a snapshot takes no count, as no version is old that the current snapshot has.
//!
//! Old versions are also counted by the numbers of their successors, in classes of about the same size, so
//! that the number is known after which so many bytes became old: where a budget cuts the history.

use crate::active::Active;
use crate::error::Result;
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::layout::{TABLE_BYTES, VALUE_HEAD_BYTES, VERSION_BYTES, ValueWord};
use crate::versions::{Table, Version, Words};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pmem::Region;

/// Classes of age that are told apart.
const AGES_MAX: usize = 256;
/// Blocks of values are counted in multiples of this.
const BLOCK_UNIT: u64 = 16;

/// The space that a store or a keyspace takes ([`Store::space`](crate::Store::space)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes of keys that have a value, and of those values.
    pub live_bytes: u64,
    /// Bytes of versions that are not the last ones of their keys, and of deleted keys.
    pub old_bytes: u64,
    /// The part of the old bytes that kept snapshots hold.
    pub kept_bytes: u64,
    /// Bytes of the log of commits; 0 for a keyspace.
    pub log_bytes: u64,
    /// Whether a count has been finished since the store was opened. Before, the numbers are those of the
    /// part that was counted.
    pub is_counted: bool,
}

/// A change of what is counted.
#[derive(Debug, Clone, Copy)]
struct Entry {
    keyspace: u64,
    class: Class,
    bytes: i64,
    /// Whether the count that is under way is past the key.
    is_passed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Class {
    Live,
    /// A version with the first number, that one with the second number follows.
    Old(u64, u64),
}

/// Changes that a transaction makes, noted until it is committed.
#[derive(Default)]
pub(crate) struct Tally {
    is_on: bool,
    entries: RefCell<Vec<Entry>>,
}

/// The place of a key in the accounts.
#[derive(Clone, Copy)]
pub(crate) struct Account<'t> {
    tally: &'t Tally,
    keyspace: u64,
    is_passed: bool,
}

/// The bytes of a version.
fn version_bytes(words: &impl Words, value: ValueWord) -> Result<u64> {
    Ok(match value {
        ValueWord::Collected => 0,
        ValueWord::Block(block) => {
            VERSION_BYTES + (VALUE_HEAD_BYTES + words.word(block)?).next_multiple_of(BLOCK_UNIT)
        }
        _ => VERSION_BYTES,
    })
}

impl Account<'_> {
    fn note(&self, class: Class, bytes: i64) {
        let Account { tally, keyspace, is_passed } = *self;
        tally.entries.borrow_mut().push(Entry { keyspace, class, bytes, is_passed });
    }

    /// A key that had `last`, and its table if it had one, gets a version with this number.
    pub(crate) fn add(
        &self,
        words: &impl Words,
        key: &[u8],
        last: Option<Version>,
        new: Version,
    ) -> Result<()> {
        if let Some(last) = last {
            self.note_last(words, key, last, -1)?;
            self.note(Class::Old(last.number, new.number), version_bytes(words, last.value)? as i64);
        }
        self.note_last(words, key, new, 1)
    }

    /// The last version of a key comes or goes, with the table.
    fn note_last(&self, words: &impl Words, key: &[u8], last: Version, sign: i64) -> Result<()> {
        let bytes = version_bytes(words, last.value)? + TABLE_BYTES + key.len() as u64;
        let is_live = last.value != ValueWord::Tombstone;
        let class = if is_live { Class::Live } else { Class::Old(last.number, last.number) };
        self.note(class, sign * bytes as i64);
        Ok(())
    }

    /// A version that another follows is collected.
    pub(crate) fn collect(&self, words: &impl Words, version: Version, next: u64) -> Result<()> {
        let bytes = version_bytes(words, version.value)? as i64;
        self.note(Class::Old(version.number, next), -bytes);
        Ok(())
    }

    /// A table goes whose only version is a tombstone.
    pub(crate) fn remove(&self, words: &impl Words, key: &[u8], last: Version) -> Result<()> {
        self.note_last(words, key, last, -1)
    }
}

impl Tally {
    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    pub(crate) fn truncate(&self, len: usize) {
        self.entries.borrow_mut().truncate(len);
    }
}

/// The bytes that a keyspace takes.
#[derive(Debug, Clone, Default)]
struct Sums {
    live: i64,
    old: i64,
    kept: i64,
    /// Old bytes that are not kept, by the numbers of the versions that follow: in each class, up to its
    /// key.
    ages: BTreeMap<u64, i64>,
}

impl Sums {
    fn apply(&mut self, kept: &[u64], class: Class, bytes: i64) {
        match class {
            Class::Live => self.live += bytes,
            Class::Old(number, next) => {
                self.old += bytes;
                let first = kept.partition_point(|kept| *kept < number);
                if kept.get(first).is_some_and(|kept| *kept < next) {
                    self.kept += bytes;
                } else {
                    self.age(next, bytes);
                }
            }
        }
    }

    fn age(&mut self, next: u64, bytes: i64) {
        if bytes < 0 {
            if let Some((&class, sum)) = self.ages.range_mut(next..).next() {
                *sum += bytes;
                if *sum <= 0 {
                    self.ages.remove(&class);
                }
            }
            return;
        }
        *self.ages.entry(next).or_default() += bytes;
        if self.ages.len() > AGES_MAX {
            // Two neighbours become one.
            let all: Vec<(u64, i64)> = std::mem::take(&mut self.ages).into_iter().collect();
            let pairs = all.chunks(2).filter_map(|pair| {
                let (class, _) = pair.last()?;
                Some((*class, pair.iter().map(|(_, bytes)| bytes).sum()))
            });
            self.ages = pairs.collect();
        }
    }
}

/// A count, under way or finished.
#[derive(Debug, Clone, Default)]
struct Count {
    /// The kept snapshots that it knows, ascending.
    kept: Arc<[u64]>,
    sums: BTreeMap<u64, Sums>,
    /// The keyspace that it is in, and the last key that it has counted there.
    at: (u64, Option<Vec<u8>>),
}

impl Count {
    fn has_passed(&self, keyspace: u64, key: &[u8]) -> bool {
        let (id, last) = &self.at;
        keyspace < *id || keyspace == *id && last.as_ref().is_some_and(|last| key <= last.as_slice())
    }

    fn apply(&mut self, entry: &Entry) {
        self.sums.entry(entry.keyspace).or_default().apply(&self.kept, entry.class, entry.bytes);
    }

    fn space(&self, of: Option<u64>) -> Space {
        let mut space = Space::default();
        for (_, sums) in self.sums.iter().filter(|(id, _)| of.is_none_or(|of| of == **id)) {
            space.live_bytes += sums.live.max(0) as u64;
            space.old_bytes += sums.old.max(0) as u64;
            space.kept_bytes += sums.kept.max(0) as u64;
        }
        space
    }
}

#[derive(Default)]
struct State {
    finished: Option<Count>,
    counting: Option<Count>,
}

/// The accounts of a store.
#[derive(Default)]
pub(crate) struct Accounts {
    /// Whether anybody has asked.
    is_on: AtomicBool,
    /// Whether there is a count to go on with.
    is_counting: AtomicBool,
    state: Mutex<State>,
    /// The old bytes, and those that are kept, as they were after the last change.
    old: AtomicU64,
    kept: AtomicU64,
}

impl Accounts {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Where the changes of a transaction are noted.
    pub(crate) fn tally(&self) -> Tally {
        Tally { is_on: self.is_on(), entries: RefCell::default() }
    }

    /// The account of a key, if anybody counts.
    pub(crate) fn account<'t>(
        &self,
        tally: &'t Tally,
        keyspace: &KeyspaceInner,
        key: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Option<Account<'t>>> {
        if !tally.is_on {
            return Ok(None);
        }
        let is_passed = if self.is_counting.load(Ordering::Acquire) {
            let key = key()?;
            self.state.lock().counting.as_ref().is_some_and(|count| count.has_passed(keyspace.id, &key))
        } else {
            false
        };
        Ok(Some(Account { tally, keyspace: keyspace.id, is_passed }))
    }

    /// Enters the changes of a transaction that was committed.
    pub(crate) fn enter(&self, tally: &Tally) {
        let entries = std::mem::take(&mut *tally.entries.borrow_mut());
        if entries.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let State { finished, counting } = &mut *state;
        for entry in &entries {
            if let Some(count) = finished {
                count.apply(entry);
            }
            if let Some(count) = counting.as_mut().filter(|_| entry.is_passed) {
                count.apply(entry);
            }
        }
        self.note_sums(&state);
    }

    fn note_sums(&self, state: &State) {
        let count = state.finished.as_ref().or(state.counting.as_ref());
        let space = count.map(|count| count.space(None)).unwrap_or_default();
        self.old.store(space.old_bytes, Ordering::Relaxed);
        self.kept.store(space.kept_bytes, Ordering::Relaxed);
    }

    /// Begins a count, unless there is one. The caller has the lock of commits.
    pub(crate) fn begin(&self, active: &Active) {
        if !self.is_on.load(Ordering::Acquire) {
            self.count_anew(active);
        }
    }

    /// Begins a count, if anybody has asked for one: kept snapshots are gone. The caller has the lock of
    /// commits.
    pub(crate) fn renew(&self, active: &Active) {
        if self.is_on.load(Ordering::Acquire) {
            self.count_anew(active);
        }
    }

    fn count_anew(&self, active: &Active) {
        let count = Count { kept: active.kept_numbers().into(), ..Count::default() };
        self.state.lock().counting = Some(count);
        self.is_counting.store(true, Ordering::Release);
        self.is_on.store(true, Ordering::Release);
    }

    /// A snapshot is kept, and was not before. The caller has the lock of commits.
    pub(crate) fn note_kept(&self, active: &Active, number: u64) {
        if number != active.current() {
            return self.renew(active);
        }
        let kept: Arc<[u64]> = active.kept_numbers().into();
        let State { finished, counting } = &mut *self.state.lock();
        finished.iter_mut().chain(counting).for_each(|count| count.kept = kept.clone());
    }

    pub(crate) fn note_dropped(&self, keyspace: u64) {
        let mut state = self.state.lock();
        let State { finished, counting } = &mut *state;
        finished.iter_mut().chain(counting).for_each(|count| _ = count.sums.remove(&keyspace));
        self.note_sums(&state);
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.is_counting.load(Ordering::Acquire)
    }

    pub(crate) fn old_bytes(&self) -> u64 {
        self.old.load(Ordering::Relaxed)
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// The old bytes of a keyspace that no kept snapshot holds.
    pub(crate) fn unkept_bytes(&self, keyspace: u64) -> u64 {
        let space = self.space(Some(keyspace));
        space.old_bytes.saturating_sub(space.kept_bytes)
    }

    pub(crate) fn space(&self, of: Option<u64>) -> Space {
        let state = self.state.lock();
        match (&state.finished, &state.counting) {
            (Some(count), _) => Space { is_counted: true, ..count.space(of) },
            (None, Some(count)) => count.space(of),
            (None, None) => Space::default(),
        }
    }

    /// The least number such that the versions in `keyspaces` which are followed by that or a higher one take
    /// at most `bytes`.
    pub(crate) fn cut(&self, keyspaces: &[u64], bytes: u64) -> Option<u64> {
        let state = self.state.lock();
        let count = state.finished.as_ref().or(state.counting.as_ref())?;
        let sums = count.sums.iter().filter(|(id, _)| keyspaces.contains(id));
        let mut ages: Vec<(u64, i64)> = sums.flat_map(|(_, sums)| sums.ages.clone()).collect();
        ages.sort_unstable_by_key(|(class, _)| std::cmp::Reverse(*class));
        let mut left = bytes as i64;
        for (class, bytes) in ages {
            left -= bytes;
            if left < 0 {
                return Some(class + 1);
            }
        }
        None
    }

    /// Counts up to `tables` tables; returns whether there are more. The caller has the lock of commits.
    fn count_on(
        &self,
        region: &Region,
        keyspaces: impl FnOnce() -> Result<Vec<Keyspace>>,
        tables: usize,
    ) -> Result<bool> {
        let Some(mut count) = self.state.lock().counting.take() else { return Ok(false) };
        let outcome = count.step(region, keyspaces, tables);
        let mut state = self.state.lock();
        match outcome {
            Ok(true) => state.counting = Some(count),
            Ok(false) => {
                state.finished = Some(count);
                self.is_counting.store(false, Ordering::Release);
            }
            Err(e) => {
                state.counting = Some(count);
                return Err(e);
            }
        }
        self.note_sums(&state);
        Ok(state.counting.is_some())
    }
}

impl Count {
    /// Counts up to `tables` tables; returns whether there are more.
    fn step(
        &mut self,
        region: &Region,
        keyspaces: impl FnOnce() -> Result<Vec<Keyspace>>,
        tables: usize,
    ) -> Result<bool> {
        let mut left = tables;
        let mut keyspaces = keyspaces()?;
        keyspaces.retain(|keyspace| keyspace.inner.id >= self.at.0);
        keyspaces.sort_by_key(|keyspace| keyspace.inner.id);
        for Keyspace { inner } in keyspaces {
            if inner.id != self.at.0 {
                self.at = (inner.id, None);
            }
            let from = self.at.1.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let mut walk = inner.index.range((from, Bound::Unbounded));
            while left > 0 {
                let Some((key, place)) = walk.advance_place()? else { break };
                let key = key.to_vec();
                self.count_table(region, &inner, &key, Table::at(place)?)?;
                self.at.1 = Some(key);
                left -= 1;
            }
            if left == 0 {
                return Ok(true);
            }
            self.at = (inner.id + 1, None);
        }
        // Keyspaces that come later are empty when they come.
        self.at = (u64::MAX, None);
        Ok(false)
    }

    fn count_table(
        &mut self,
        region: &Region,
        inner: &KeyspaceInner,
        key: &[u8],
        table: Table,
    ) -> Result<()> {
        let tally = Tally::default();
        let account = Account { tally: &tally, keyspace: inner.id, is_passed: true };
        let versions = table.versions(region)?;
        for pair in versions.windows(2) {
            let bytes = version_bytes(region, pair[0].value)?;
            account.note(Class::Old(pair[0].number, pair[1].number), bytes as i64);
        }
        if let Some(last) = versions.last() {
            account.note_last(region, key, *last, 1)?;
        }
        tally.entries.take().iter().for_each(|entry| self.apply(entry));
        Ok(())
    }
}

impl Accounts {
    /// Goes on with the count, if there is one, over the keyspaces that there are; returns whether it is not
    /// finished. The caller keeps all lanes from committing.
    pub(crate) fn go_on(
        &self,
        region: &Region,
        keyspaces: impl FnOnce() -> Result<Vec<Keyspace>>,
        tables: usize,
    ) -> Result<bool> {
        if self.is_counting() { self.count_on(region, keyspaces, tables) } else { Ok(false) }
    }
}
