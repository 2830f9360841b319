//! Collecting: versions that nobody needs any more, tombstones, and keyspaces that were dropped.
//!
//! A commit notes each key that it leaves with something to collect, and every few commits one collects what
//! was noted, in its own record. A walk over all tables finds the rest. Whoever collects keeps all lanes from
//! committing.

use crate::active::Asked;
use crate::error::Result;
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::layout::{ValueWord, field};
use crate::retention::{Keep, Retention, now_unix_ns};
use crate::space::Tally;
use crate::store::StoreInner;
use crate::versions::{Table, Version};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tembo_pool::{KeptSpace, Tx};

/// Tables that one record of a collection is about, so that it fits into its lane.
pub(crate) const COLLECTED_PER_RECORD: usize = 32;
/// The walk that looks for what time has passed over begins anew after this part of the shortest time that a
/// keyspace retains.
const WALKS_PER_WINDOW: u32 = 4;

/// After so many keys that were noted, a commit collects.
const NOTED_PER_COLLECTION: usize = COLLECTED_PER_RECORD / 2;

/// The rest that is to be collected.
#[derive(Default)]
pub(crate) struct Left {
    /// Nearly in the order of the numbers.
    pub(crate) garbage: VecDeque<Garbage>,
    /// The length of `garbage` from which on a commit collects.
    due_at: usize,
    /// Where a walk over all tables has got to, that looks for versions that `garbage` does not lead to:
    /// those that an earlier process left, and those that a kept snapshot needed.
    walk: Option<Walk>,
    last_walk: Option<Instant>,
}

/// The last key that was looked at, by the name of its keyspace.
#[derive(Default)]
struct Walk {
    keyspace: String,
    key: Option<Vec<u8>>,
}

/// A key that has versions which are needed for now, or a tombstone.
pub(crate) struct Garbage {
    /// The commit that left them.
    pub(crate) number: u64,
    pub(crate) keyspace: Arc<KeyspaceInner>,
    pub(crate) key: Box<[u8]>,
}

impl Left {
    /// Whether the next commit is to collect.
    pub(crate) fn is_due(&self) -> bool {
        self.garbage.len() > self.due_at
    }

    /// Takes keys off the queue that were collected.
    pub(crate) fn take_off(&mut self, collected: usize) {
        self.garbage.drain(..collected);
        self.due_at = self.garbage.len() + NOTED_PER_COLLECTION;
    }

    /// Collects what the queue of garbage leads to and nobody needs any more.
    /// Looks at up to `keys` of them.
    pub(crate) fn collect_garbage(&mut self, tx: &mut Tx<'_>, store: &StoreInner, keys: usize) -> Result<()> {
        let accounts = &store.history.accounts;
        let mut left = keys;
        while left > 0 {
            let (part, tally) = (left.min(COLLECTED_PER_RECORD), accounts.tally());
            let needed = Asked::new(&store.active);
            let collected = self.collect_some(tx, store, &needed, part, &tally)?;
            tx.commit_and_begin()?;
            accounts.enter(&tally);
            self.take_off(collected);
            left -= part;
            if collected < part {
                break;
            }
        }
        Ok(())
    }

    /// Collects the versions of the keys at the front of the queue that nobody reads any more; returns how
    /// many keys are done with, to be taken off when that is committed.
    pub(crate) fn collect_some(
        &self,
        tx: &mut Tx<'_>,
        store: &StoreInner,
        needed: &Asked<'_>,
        keys: usize,
        tally: &Tally,
    ) -> Result<usize> {
        let mut done = 0;
        for Garbage { number, keyspace, key } in self.garbage.iter().take(keys) {
            // While somebody reads an older snapshot, some of them may be needed.
            if *number > needed.needed().first_read() {
                break;
            }
            if keyspace.check_there().is_ok() {
                tx.use_kept_space(KeptSpace::Half);
                collect_key(tx, store, (keyspace, key), needed, tally)?;
            }
            done += 1;
        }
        tx.use_kept_space(KeptSpace::None);
        Ok(done)
    }

    /// Collects what is not needed any more, in up to `tables` tables; returns whether more can be collected.
    pub(crate) fn collect(
        &mut self,
        tx: &mut Tx<'_>,
        store: &Arc<StoreInner>,
        tables: usize,
    ) -> Result<bool> {
        let (mut left, mut more) = (tables, true);
        while left > 0 && more {
            let part = left.min(COLLECTED_PER_RECORD);
            more = self.collect_part(tx, store, part)?;
            left -= part;
        }
        Ok(more)
    }

    pub(crate) fn collect_part(
        &mut self,
        tx: &mut Tx<'_>,
        store: &Arc<StoreInner>,
        tables: usize,
    ) -> Result<bool> {
        let needed = Asked::new(&store.active);
        let accounts = &store.history.accounts;
        let tally = accounts.tally();
        let collected = self.collect_some(tx, store, &needed, tables, &tally)?;
        tx.commit_and_begin()?;
        accounts.enter(&tally);
        self.take_off(collected);
        if self.garbage.front().is_some_and(|first| first.number <= needed.needed().first_read()) {
            return Ok(true);
        }
        let freed = free_dropped(tx, store.off, tables - collected)?;
        tx.commit_and_begin()?;
        if tx.load(store.off + field!(PmStore.dropped))? != 0 {
            return Ok(true);
        }
        if self.walk.is_none() && self.last_walk.is_none_or(|last| window_has_moved(store, last)) {
            self.walk = Some(Walk::default());
            self.last_walk = Some(Instant::now());
        }
        if let Some(at) = self.walk.take() {
            self.walk = walk_on(tx, store, at, &needed, tables - collected - freed, &tally)?;
            tx.commit_and_begin()?;
            accounts.enter(&tally);
        }
        Ok(self.walk.is_some())
    }

    /// Has the next calls of [`collect`](Self::collect) look at all tables: a kept snapshot is gone.
    pub(crate) fn walk_anew(&mut self) {
        self.walk = Some(Walk::default());
    }
}

/// Collects the versions of a key that nobody needs; the key, too, if nothing but a tombstone is left that
/// nobody is older than (I4).
fn collect_key(
    tx: &mut Tx<'_>,
    store: &StoreInner,
    (keyspace, key): (&KeyspaceInner, &[u8]),
    needed: &Asked<'_>,
    tally: &Tally,
) -> Result<()> {
    let place = keyspace.index.look_up_in(tx, key)?;
    let Some(table) = place.value().map(Table::at).transpose()? else { return Ok(()) };
    let account = store.history.accounts.account(tally, keyspace, || Ok(key.to_vec()))?;
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

/// Whether a keyspace retains versions for a time, and a part of that has passed since a walk.
fn window_has_moved(store: &StoreInner, last: Instant) -> bool {
    let windows = store.open_keyspaces().into_iter().filter_map(|keyspace| match keyspace.retention() {
        Retention::For(time) => Some(time),
        _ => None,
    });
    windows
        .min()
        .is_some_and(|window| last.elapsed() > (window / WALKS_PER_WINDOW).max(Duration::from_millis(1)))
}

/// Frees up to `tables` tables, and then the rest, of keyspaces that were dropped; returns how many.
pub(crate) fn free_dropped(tx: &mut Tx<'_>, store_off: u64, tables: usize) -> Result<usize> {
    let first_off = store_off + field!(PmStore.dropped);
    let pool = tx.pool().clone();
    let mut freed = 0;
    while freed < tables {
        let head = tx.load(first_off)?;
        if head == 0 {
            break;
        }
        tx.use_kept_space(KeptSpace::All);
        let keyspace = Keyspace::open(&pool, Weak::new(), "a dropped keyspace", head)?.inner;
        let free = |tx: &mut Tx<'_>, _: &[u8], place| Table::at(place)?.free(tx);
        if !keyspace.index.pop_first_place(tx, free)? {
            let after = tx.load(head + field!(PmKeyspace.next_dropped))?;
            tx.store(first_off, after)?;
            keyspace.index.clone().free_unnamed(tx)?;
            tx.free(head)?;
        }
        freed += 1;
    }
    tx.use_kept_space(KeptSpace::None);
    Ok(freed)
}

/// Looks at some tables; returns where it got to, or none at the end.
fn walk_on(
    tx: &mut Tx<'_>,
    store: &Arc<StoreInner>,
    mut at: Walk,
    needed: &Asked<'_>,
    tables: usize,
    tally: &Tally,
) -> Result<Option<Walk>> {
    let mut left = tables;
    for keyspace in store.all_keyspaces()? {
        if keyspace.name() < at.keyspace.as_str() {
            continue;
        }
        if keyspace.name() != at.keyspace {
            at = Walk { keyspace: keyspace.name().to_owned(), key: None };
        }
        loop {
            if left == 0 {
                return Ok(Some(at));
            }
            let from = at.key.take().map_or(Bound::Unbounded, Bound::Excluded);
            let mut rest = keyspace.inner.index.range((from, Bound::Unbounded));
            let next = rest.advance_place()?.map(|(key, _)| key.to_vec());
            let Some(key) = next else { break };
            left -= 1;
            collect_key(tx, store, (&keyspace.inner, &key), needed, tally)?;
            at.key = Some(key);
        }
    }
    Ok(None)
}
