//! Commits: whoever has the lock commits for all that wait.
//!
//! A transaction enters the queue and takes the lock. When it has the lock, either another thread has committed it meanwhile, or it takes the
//! whole queue and commits it with one record, and one fence. There is no timer: a thread that is alone commits at once, and threads that come
//! while a commit is under way make the next group.
//!
//! For each transaction of the group, in the order of the queue: its keys' last versions are compared with its snapshot; if one is newer,
//! it gets [`Error::Conflict`], and nothing of it is in the record. Else its versions are added under the next number. Members see what was
//! added before them, so that they conflict with each other as with earlier commits.

use crate::active::Needed;
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceInner;
use crate::layout::{ValueWord, field};
use crate::store::StoreInner;
use crate::transaction::Writes;
use crate::versions::{Left, Table, Version, write_value};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tembo_pool::{KeptSpace, Lane, Savepoint, Tx};

/// Tables that one commit of a transaction looks through for versions that nobody needs any more.
const COLLECTED_PER_COMMIT: usize = 2;
/// Bytes of a key that an error shows.
const SHOWN_KEY_BYTES: usize = 64;

/// The queue and the lock of commits.
pub(crate) struct Commits {
    queue: Mutex<Vec<Arc<Request>>>,
    leader: Mutex<Leader>,
}

/// A transaction that waits to be committed.
struct Request {
    begin: u64,
    work: Mutex<Work>,
}

enum Work {
    Waiting(Vec<Writes>),
    Done(Result<u64>),
    Taken,
}

/// What the holder of the lock has.
pub(crate) struct Leader {
    pub(crate) lane: Lane,
    /// In the order of their numbers.
    garbage: VecDeque<Garbage>,
    /// Where a walk over all tables has got to, that looks for versions that `garbage` does not lead to: those that an earlier process left, and those
    /// that a kept snapshot needed.
    walk: Option<Walk>,
}

/// The last key that was looked at, by the name of its keyspace.
#[derive(Default)]
struct Walk {
    keyspace: String,
    key: Option<Vec<u8>>,
}

/// A table that has versions which are needed for now.
struct Garbage {
    /// The commit that left them.
    number: u64,
    keyspace: Arc<KeyspaceInner>,
    table: Table,
}

impl Commits {
    pub(crate) fn new(lane: Lane) -> Commits {
        let leader = Mutex::new(Leader { lane, garbage: VecDeque::new(), walk: Some(Walk::default()) });
        Commits { queue: Mutex::default(), leader }
    }

    /// The lock under which everything of the store is changed.
    pub(crate) fn lead(&self) -> parking_lot::MutexGuard<'_, Leader> {
        self.leader.lock()
    }

    /// Commits the writes of a transaction that reads snapshot `begin`; returns the number of the commit.
    pub(crate) fn commit(&self, store: &StoreInner, begin: u64, writes: Vec<Writes>) -> Result<u64> {
        let request = Arc::new(Request { begin, work: Mutex::new(Work::Waiting(writes)) });
        self.queue.lock().push(request.clone());
        let mut leader = self.leader.lock();
        if let Some(outcome) = request.outcome() {
            return outcome;
        }
        let group = std::mem::take(&mut *self.queue.lock());
        leader.commit(store, &group);
        drop(leader);
        request.outcome().unwrap_or_else(|| {
            Err(Error::Group { reason: "a thread that was committing for others panicked".to_owned() })
        })
    }
}

impl Request {
    fn outcome(&self) -> Option<Result<u64>> {
        let mut work = self.work.lock();
        match &*work {
            Work::Done(_) => match std::mem::replace(&mut *work, Work::Taken) {
                Work::Done(outcome) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }

    fn finish(&self, outcome: Result<u64>) {
        *self.work.lock() = Work::Done(outcome);
    }
}

/// The members of a group that are in the record.
struct Group<'g> {
    members: Vec<(&'g Request, u64)>,
    garbage: Vec<Garbage>,
}

impl Leader {
    /// Commits a group; everyone in it gets an outcome.
    fn commit(&mut self, store: &StoreInner, requests: &[Arc<Request>]) {
        let needed = store.active.needed();
        let current = store.active.current();
        let mut group = Group { members: Vec::with_capacity(requests.len()), garbage: Vec::new() };
        let Leader { lane, garbage, .. } = self;
        let mut tx = lane.begin();
        for request in requests {
            let number = current + group.members.len() as u64 + 1;
            let Work::Waiting(writes) = std::mem::replace(&mut *request.work.lock(), Work::Taken) else { continue };
            let before = (tx.savepoint(), group.garbage.len());
            match apply(&mut tx, &writes, (request.begin, number), &needed, &mut group.garbage) {
                Ok(()) => group.members.push((request, number)),
                Err(e) => {
                    tx.rollback_to(before.0);
                    group.garbage.truncate(before.1);
                    request.finish(Err(e));
                }
            }
            tx.use_kept_space(KeptSpace::None);
        }
        let Some(&(_, last)) = group.members.last() else { return };
        let before = tx.savepoint();
        let old = collect_some(&mut tx, garbage, &needed, COLLECTED_PER_COMMIT * group.members.len());
        let outcome = finish(tx, store, last, before, old);
        match outcome {
            Ok(collected) => {
                garbage.drain(..collected);
                garbage.append(&mut group.garbage.into());
                store.active.publish(last);
                group.members.iter().for_each(|(request, number)| request.finish(Ok(*number)));
            }
            Err(e) => fail_all(&group.members, e),
        }
    }

    /// Collects what is not needed any more, in up to `tables` tables; returns whether more can be collected.
    pub(crate) fn collect(&mut self, store: &Arc<StoreInner>, tables: usize) -> Result<bool> {
        let needed = store.active.needed();
        let Leader { lane, garbage, walk } = self;
        let mut tx = lane.begin();
        let collected = collect_some(&mut tx, garbage, &needed, tables)?;
        tx.commit_and_begin()?;
        garbage.drain(..collected);
        if garbage.front().is_some_and(|first| first.number <= needed.first_read()) {
            return Ok(true);
        }
        // I4: what is in the queue has later numbers, and the walk removes no table with such a number.
        if let Some(at) = walk.take() {
            *walk = walk_on(&mut tx, store, at, &needed, tables - collected)?;
            tx.commit()?;
        }
        Ok(walk.is_some())
    }

    /// Has the next calls of [`collect`](Self::collect) look at all tables: a kept snapshot is gone.
    pub(crate) fn walk_anew(&mut self) {
        self.walk = Some(Walk::default());
    }
}

/// Looks at some tables; returns where it got to, or none at the end.
fn walk_on(
    tx: &mut Tx<'_>,
    store: &Arc<StoreInner>,
    mut at: Walk,
    needed: &Needed,
    tables: usize,
) -> Result<Option<Walk>> {
    let mut left = tables;
    for (_, keyspace) in store.all_keyspaces()? {
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
            let next = keyspace.inner.index.range((from, Bound::Unbounded)).advance()?.map(|(key, _)| key.to_vec());
            let Some(key) = next else { break };
            left -= 1;
            if let Some(table) = keyspace.inner.table_in(tx, &key)? {
                let Left { versions, ends_in_tombstone } = table.collect(tx, needed)?;
                let last = table.find(tx, u64::MAX)?.map_or(0, |last| last.number);
                if versions == 1 && ends_in_tombstone && last <= needed.first() {
                    keyspace.inner.index.remove(tx, &key)?;
                    table.free(tx)?;
                }
            }
            at.key = Some(key);
        }
    }
    Ok(None)
}

/// Writes the number of the last commit and commits the record; returns how many tables were collected.
fn finish(
    mut tx: Tx<'_>,
    store: &StoreInner,
    last: u64,
    before_collecting: Savepoint,
    collected: Result<usize>,
) -> Result<usize> {
    // What cannot be collected now does not stop a commit.
    let collected = collected.unwrap_or_else(|_| {
        tx.rollback_to(before_collecting);
        0
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_nanos() as u64);
    let time_off = store.off + field!(PmStore.time_unix_ns);
    let now = now.max(tx.load(time_off)?);
    tx.store(time_off, now)?;
    // PERSIST(I1): in the record of the versions that have these numbers.
    tx.store(store.off + field!(PmStore.current), last)?;
    tx.commit()?;
    Ok(collected)
}

/// Adds the versions of one transaction.
fn apply(
    tx: &mut Tx<'_>,
    writes: &[Writes],
    (begin, number): (u64, u64),
    needed: &Needed,
    garbage: &mut Vec<Garbage>,
) -> Result<()> {
    let frees = writes.iter().all(|writes| writes.changes.values().all(Option::is_none));
    tx.use_kept_space(if frees { KeptSpace::Half } else { KeptSpace::None });
    for Writes { keyspace, changes } in writes {
        let keyspace = &keyspace.inner;
        for (key, value) in changes {
            let table = keyspace.table_in(tx, key)?;
            let last = table.map(|table| table.find(tx, u64::MAX)).transpose()?.flatten();
            if let Some(last) = last
                && last.number > begin
            {
                let key = key[..key.len().min(SHOWN_KEY_BYTES)].to_vec();
                return Err(Error::Conflict { keyspace: keyspace.name.clone(), key, by: last.number, snapshot: begin });
            }
            if value.is_none() && last.is_none_or(|last| last.value == ValueWord::Tombstone) {
                // Nothing to delete. It conflicts with nobody, as a read of a missing key does not.
                continue;
            }
            let version = Version { number, value: write_value(tx, value.as_deref())? };
            let Some(table) = table else {
                let table = Table::create(tx, key, number, version.value)?;
                keyspace.index.put(tx, key, &[&table.off.to_ne_bytes()])?;
                continue;
            };
            let left = table.add(tx, version, needed)?;
            if left.versions > 1 || left.ends_in_tombstone {
                garbage.push(Garbage { number, keyspace: keyspace.clone(), table });
            }
        }
    }
    Ok(())
}

/// Collects the versions of the tables at the front of the queue that nobody reads any more; returns how many tables are done with.
fn collect_some(
    tx: &mut Tx<'_>,
    garbage: &VecDeque<Garbage>,
    needed: &Needed,
    tables: usize,
) -> Result<usize> {
    let mut done = 0;
    for Garbage { number, keyspace, table } in garbage.iter().take(tables) {
        // While somebody reads an older snapshot, some of them may be needed.
        if *number > needed.first_read() {
            break;
        }
        tx.use_kept_space(KeptSpace::Half);
        let Left { versions, ends_in_tombstone } = table.collect(tx, needed)?;
        // I4: the number in the table's last version may be a later one, whose own entry is still to come.
        if versions == 1 && ends_in_tombstone {
            let last = table.find(tx, u64::MAX)?.map_or(0, |last| last.number);
            if last == *number && last <= needed.first() {
                let key = table.key(tx.pool().region())?;
                keyspace.index.remove(tx, &key)?;
                table.free(tx)?;
            }
        }
        done += 1;
    }
    tx.use_kept_space(KeptSpace::None);
    Ok(done)
}

/// Gives everyone the error that one got.
fn fail_all(members: &[(&Request, u64)], error: Error) {
    let reason = error.to_string();
    let mut first = Some(error);
    for (request, _) in members {
        request.finish(Err(first.take().unwrap_or_else(|| Error::Group { reason: reason.clone() })));
    }
}
