//! Group commit: the thread that has the lock commits all transactions that wait.
//!
//! A transaction enters the queue and takes the lock. When it has the lock, either another thread has
//! committed it meanwhile, or it takes the whole queue and commits it with one record, and one fence. There
//! is no timer: a thread that is alone commits at once, and threads that come while a commit is under way
//! make the next group.
//!
//! For each transaction of the group, in the order of the queue: its keys' last versions are compared with
//! its snapshot; if one is newer, it gets [`Error::Conflict`], and nothing of it is in the record. Else its
//! versions are added under the next number. Members see what was added before them, so that they conflict
//! with each other as with earlier commits.

use crate::active::{Needed, Registration};
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, KeyspaceInner, table_at};
use crate::layout::{ValueWord, field};
use crate::retention::{Keep, Retention, now_unix_ns};
use crate::snapshot::Snapshot;
use crate::store::StoreInner;
use crate::transaction::Writes;
use crate::versions::{Left, Table, Version, write_value};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tembo_pool::{KeptSpace, Lane, Savepoint, Tx};

/// Tables that one commit of a transaction looks through for versions that nobody needs any more.
const COLLECTED_PER_COMMIT: usize = 2;
/// Tables that one record of a collection is about, so that it fits into its lane.
const COLLECTED_PER_RECORD: usize = 32;
/// Bytes of a key that an error shows.
const SHOWN_KEY_BYTES: usize = 64;

/// The queue and the lock of commits.
pub(crate) struct Commits {
    queue: Mutex<Vec<Arc<Request>>>,
    leader: Mutex<Leader>,
}

/// A transaction that waits to be committed.
struct Request {
    /// The snapshot that it reads. It stays registered until the transaction has an outcome, so that no later
    /// version is collected before that.
    begin: u64,
    reads: Option<Reads>,
    state: Mutex<RequestState>,
}

/// A transaction that is to be committed.
pub(crate) struct Unit {
    pub(crate) snapshot: Snapshot,
    pub(crate) writes: Vec<Writes>,
    /// The reads of a serializable transaction.
    pub(crate) reads: Option<Reads>,
}

struct RequestState {
    work: Work,
    /// Until there is an outcome.
    _registration: Option<Arc<Registration>>,
}

enum Work {
    Waiting(Vec<Writes>),
    Done(Result<u64>),
    Taken,
}

/// A commit that was asked for by [`Transaction::commit_async`](crate::Transaction::commit_async): a future,
/// for any runtime, and a handle to [wait](Self::wait) for.
///
/// Nothing is committed until somebody waits for it, or polls it, or another transaction of the store
/// commits; then all commits that were asked for are made by one record, with one fence. The thread that does
/// this needs the time of that commit: a microsecond in memory, a synchronisation of the device where that is
/// what makes a commit durable. So the future is ready when it is first polled.
///
/// Dropping it takes nothing back: the transaction is committed with the next one, or when the store is
/// closed.
#[must_use = "nothing is durable before this was waited for"]
pub struct Commit {
    store: Arc<StoreInner>,
    /// `None` for a transaction that has written nothing.
    request: Option<Arc<Request>>,
    begin: u64,
}

impl Commit {
    /// Waits until the transaction is durable and visible, or failed; returns its number.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::commit`](crate::Transaction::commit).
    pub fn wait(self) -> Result<u64> {
        self.outcome()
    }

    fn outcome(&self) -> Result<u64> {
        match &self.request {
            Some(request) => self.store.commits.wait(&self.store, request),
            None => Ok(self.begin),
        }
    }
}

impl Future for Commit {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<u64>> {
        Poll::Ready(self.outcome())
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").finish_non_exhaustive()
    }
}

/// The state of the thread that holds the lock.
pub(crate) struct Leader {
    pub(crate) lane: Lane,
    /// In the order of their numbers.
    garbage: VecDeque<Garbage>,
    /// The position of a walk over all tables. It finds the versions to which `garbage` does not lead: those
    /// that an earlier process left, and those that a kept snapshot needed.
    walk: Option<Walk>,
    last_walk: Option<Instant>,
}

/// The last key that was looked at, by the name of its keyspace.
#[derive(Default)]
struct Walk {
    keyspace: String,
    key: Option<Vec<u8>>,
}

/// A table with old versions that somebody still needs.
struct Garbage {
    /// The commit that left them.
    number: u64,
    keyspace: Arc<KeyspaceInner>,
    table: Table,
}

/// The walk over tables with expired versions begins again when this fraction of the shortest retention time
/// of all keyspaces has passed.
const WALKS_PER_WINDOW: u32 = 4;

impl Commits {
    pub(crate) fn new(lane: Lane) -> Commits {
        let leader = Mutex::new(Leader { lane, garbage: VecDeque::new(), walk: None, last_walk: None });
        Commits { queue: Mutex::default(), leader }
    }

    /// The lock under which everything of the store is changed.
    pub(crate) fn lead(&self) -> parking_lot::MutexGuard<'_, Leader> {
        self.leader.lock()
    }

    /// Commits a transaction that has written something; returns the number of the commit.
    pub(crate) fn commit(&self, store: &Arc<StoreInner>, unit: Unit) -> Result<u64> {
        let request = self.enter(unit);
        self.wait(store, &request)
    }

    /// As [`commit`](Self::commit), when somebody waits for it.
    pub(crate) fn commit_async(&self, store: &Arc<StoreInner>, unit: Unit) -> Commit {
        let begin = unit.snapshot.number();
        let request = if unit.writes.is_empty() { None } else { Some(self.enter(unit)) };
        Commit { store: store.clone(), request, begin }
    }

    fn enter(&self, Unit { snapshot, writes, reads }: Unit) -> Arc<Request> {
        let begin = snapshot.number();
        let _registration = Some(snapshot.into_registration());
        let state = RequestState { work: Work::Waiting(writes), _registration };
        let request = Arc::new(Request { begin, reads, state: Mutex::new(state) });
        self.queue.lock().push(request.clone());
        request
    }

    /// Commits a transaction of the queue with all others that are in it, unless another thread does.
    fn wait(&self, store: &Arc<StoreInner>, request: &Arc<Request>) -> Result<u64> {
        let mut leader = self.leader.lock();
        if let Some(outcome) = request.outcome() {
            return outcome;
        }
        self.commit_queue(store, &mut leader);
        request.outcome().unwrap_or_else(|| {
            Err(Error::Group { reason: "a thread that was committing for others panicked".to_owned() })
        })
    }

    fn commit_queue(&self, store: &StoreInner, leader: &mut Leader) {
        let group = std::mem::take(&mut *self.queue.lock());
        let mut waiting: Vec<Waiting> = group.into_iter().filter_map(Request::take).collect();
        // A range that was read is compared with the index, which has what was committed, and not what is in
        // the record.
        for part in waiting.chunk_by_mut(|_, next| !next.request.has_read_ranges()) {
            let without_space = leader.commit(store, part, false);
            // Collecting may make room enough. Each is tried by itself, as the group may have been too
            // much.
            for mut request in without_space {
                let _ = leader.collect_garbage(store);
                leader.commit(store, std::slice::from_mut(&mut request), true);
            }
        }
    }

    /// Commits the transactions for which nobody has waited.
    pub(crate) fn commit_waiting(&self, store: &StoreInner) {
        self.commit_queue(store, &mut self.leader.lock());
    }
}

/// A transaction that is being committed.
struct Waiting {
    request: Arc<Request>,
    writes: Vec<Writes>,
}

impl Request {
    /// Takes its writes, to be committed.
    fn take(self: Arc<Request>) -> Option<Waiting> {
        let work = std::mem::replace(&mut self.state.lock().work, Work::Taken);
        match work {
            Work::Waiting(writes) => Some(Waiting { request: self, writes }),
            _ => None,
        }
    }

    fn outcome(&self) -> Option<Result<u64>> {
        let work = &mut self.state.lock().work;
        match work {
            Work::Done(_) => match std::mem::replace(work, Work::Taken) {
                Work::Done(outcome) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }

    fn has_read_ranges(&self) -> bool {
        self.reads.as_ref().is_some_and(|reads| !reads.ranges.is_empty())
    }

    fn finish(&self, outcome: Result<u64>) {
        *self.state.lock() = RequestState { work: Work::Done(outcome), _registration: None };
    }
}

/// The members of a group that are in the record.
struct Group<'g> {
    members: Vec<(&'g Request, u64)>,
    garbage: Vec<Garbage>,
}

impl Leader {
    /// Commits a group, and gives each member an outcome. Members for which there was no space are returned
    /// without one, unless this is the `last` attempt.
    fn commit(&mut self, store: &StoreInner, requests: &mut [Waiting], last_attempt: bool) -> Vec<Waiting> {
        let mut without_space = Vec::new();
        let needed = store.active.needed();
        let current = store.active.current();
        let now = now_unix_ns();
        let first = now.max(current + 1);
        let mut group = Group { members: Vec::with_capacity(requests.len()), garbage: Vec::new() };
        let Leader { lane, garbage, .. } = self;
        let mut tx = lane.begin();
        for Waiting { request, writes } in requests {
            let number = first + group.members.len() as u64;
            let before = (tx.savepoint(), group.garbage.len());
            let outcome = match &request.reads {
                Some(reads) => reads.validate(&tx, request.begin),
                None => Ok(()),
            };
            let outcome = outcome.and_then(|()| {
                apply(&mut tx, writes, (request.begin, number), (&needed, now), &mut group.garbage)
            });
            match outcome {
                Ok(()) => group.members.push((request, number)),
                Err(e) => {
                    tx.rollback_to(before.0);
                    group.garbage.truncate(before.1);
                    if e.is_full() && !last_attempt {
                        let writes = std::mem::take(writes);
                        without_space.push(Waiting { request: request.clone(), writes });
                    } else {
                        request.finish(Err(e));
                    }
                }
            }
            tx.use_kept_space(KeptSpace::None);
        }
        let Some(&(_, last)) = group.members.last() else { return without_space };
        let before = tx.savepoint();
        let old = collect_some(&mut tx, garbage, &needed, COLLECTED_PER_COMMIT * group.members.len());
        match finish(tx, store, last, before, old) {
            Ok(collected) => {
                garbage.drain(..collected);
                garbage.append(&mut group.garbage.into());
                store.active.publish(last);
                group.members.iter().for_each(|(request, number)| request.finish(Ok(*number)));
            }
            Err(e) => fail_all(&group.members, e),
        }
        without_space
    }

    /// Collects the unneeded versions to which the queue of garbage leads.
    fn collect_garbage(&mut self, store: &StoreInner) -> Result<()> {
        let needed = store.active.needed();
        let Leader { lane, garbage, .. } = self;
        let mut tx = lane.begin();
        loop {
            let collected = collect_some(&mut tx, garbage, &needed, COLLECTED_PER_RECORD)?;
            tx.commit_and_begin()?;
            garbage.drain(..collected);
            if collected < COLLECTED_PER_RECORD {
                return Ok(());
            }
        }
    }

    /// Collects unneeded versions in up to `tables` tables; returns whether more can be collected.
    pub(crate) fn collect(&mut self, store: &Arc<StoreInner>, tables: usize) -> Result<bool> {
        let (mut left, mut more) = (tables, true);
        while left > 0 && more {
            let part = left.min(COLLECTED_PER_RECORD);
            more = self.collect_part(store, part)?;
            left -= part;
        }
        Ok(more)
    }

    fn collect_part(&mut self, store: &Arc<StoreInner>, tables: usize) -> Result<bool> {
        let needed = store.active.needed();
        let Leader { lane, garbage, walk, last_walk } = self;
        let mut tx = lane.begin();
        let collected = collect_some(&mut tx, garbage, &needed, tables)?;
        tx.commit_and_begin()?;
        garbage.drain(..collected);
        if garbage.front().is_some_and(|first| first.number <= needed.first_read()) {
            return Ok(true);
        }
        let freed = free_dropped(&mut tx, store, tables - collected)?;
        tx.commit_and_begin()?;
        if tx.load(store.off + field!(PmStore.dropped))? != 0 {
            return Ok(true);
        }
        if walk.is_none() && last_walk.is_none_or(|last| window_has_moved(store, last)) {
            *walk = Some(Walk::default());
            *last_walk = Some(Instant::now());
        }
        // I4: what is in the queue has later numbers, and the walk removes no table with such a number.
        if let Some(at) = walk.take() {
            *walk = walk_on(&mut tx, store, at, &needed, tables - collected - freed)?;
            tx.commit()?;
        }
        Ok(walk.is_some())
    }

    /// Has the next calls of [`collect`](Self::collect) look at all tables: a kept snapshot is gone.
    pub(crate) fn walk_anew(&mut self) {
        self.walk = Some(Walk::default());
    }
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
fn free_dropped(tx: &mut Tx<'_>, store: &Arc<StoreInner>, tables: usize) -> Result<usize> {
    let first_off = store.off + field!(PmStore.dropped);
    let mut freed = 0;
    while freed < tables {
        let head = tx.load(first_off)?;
        if head == 0 {
            break;
        }
        tx.use_kept_space(KeptSpace::All);
        let keyspace = Keyspace::open(&store.pool, Arc::downgrade(store), "a dropped keyspace", head)?.inner;
        match keyspace.index.pop_first(tx)? {
            Some((_, table)) => table_at(&table)?.free(tx)?,
            None => {
                let after = tx.load(head + field!(PmKeyspace.next_dropped))?;
                tx.store(first_off, after)?;
                keyspace.index.clone().free_unnamed(tx)?;
                tx.free(head)?;
            }
        }
        freed += 1;
    }
    tx.use_kept_space(KeptSpace::None);
    Ok(freed)
}

/// Looks at some tables; returns the position after them, or none at the end.
fn walk_on(
    tx: &mut Tx<'_>,
    store: &Arc<StoreInner>,
    mut at: Walk,
    needed: &Needed,
    tables: usize,
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
            let next =
                keyspace.inner.index.range((from, Bound::Unbounded)).advance()?.map(|(key, _)| key.to_vec());
            let Some(key) = next else { break };
            left -= 1;
            if let Some(table) = keyspace.inner.table_in(tx, &key)? {
                let keep = Keep::new(needed, keyspace.inner.retention(), now_unix_ns());
                let Left { versions, ends_in_tombstone } = table.collect(tx, keep)?;
                let last = table.find(tx, u64::MAX)?.map_or(0, |last| last.number);
                if versions == 1 && ends_in_tombstone && keep.is_past(last) {
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
    // A failure to collect does not stop a commit.
    let collected = collected.unwrap_or_else(|_| {
        tx.rollback_to(before_collecting);
        0
    });
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
    (needed, now): (&Needed, u64),
    garbage: &mut Vec<Garbage>,
) -> Result<()> {
    let frees = writes.iter().all(|writes| writes.changes.values().all(Option::is_none));
    tx.use_kept_space(if frees { KeptSpace::Half } else { KeptSpace::None });
    for Writes { keyspace, changes } in writes {
        let keyspace = &keyspace.inner;
        keyspace.check_there()?;
        let keep = Keep::new(needed, keyspace.retention(), now);
        for (key, value) in changes {
            let table = keyspace.table_in(tx, key)?;
            let last = table.map(|table| table.find(tx, u64::MAX)).transpose()?.flatten();
            check_conflict(keyspace, key, last, begin)?;
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
            let left = table.add(tx, version, keep)?;
            if left.is_garbage(keyspace.retention()) {
                garbage.push(Garbage { number, keyspace: keyspace.clone(), table });
            }
        }
    }
    Ok(())
}

/// Refuses a key that was written after a snapshot.
fn check_conflict(keyspace: &KeyspaceInner, key: &[u8], last: Option<Version>, begin: u64) -> Result<()> {
    match last {
        Some(last) if last.number > begin => {
            let key = key[..key.len().min(SHOWN_KEY_BYTES)].to_vec();
            Err(Error::Conflict { keyspace: keyspace.name.clone(), key, by: last.number, snapshot: begin })
        }
        _ => Ok(()),
    }
}

/// The keys and ranges that a serializable transaction has read from its snapshot.
#[derive(Default)]
pub(crate) struct Reads {
    /// By the id of the keyspace.
    pub(crate) keys: BTreeMap<u64, (Keyspace, BTreeSet<Vec<u8>>)>,
    pub(crate) ranges: Vec<(Keyspace, (Bound<Vec<u8>>, Bound<Vec<u8>>))>,
}

impl Reads {
    /// Refuses a transaction if one of its reads would have another result now. A key that was deleted since
    /// is found by its tombstone, which is there as long as the transaction is registered.
    fn validate(&self, tx: &Tx<'_>, begin: u64) -> Result<()> {
        for (keyspace, keys) in self.keys.values() {
            keyspace.inner.check_there()?;
            for key in keys {
                let table = keyspace.inner.table_in(tx, key)?;
                let last = table.map(|table| table.find(tx, u64::MAX)).transpose()?.flatten();
                check_conflict(&keyspace.inner, key, last, begin)?;
            }
        }
        for (keyspace, bounds) in &self.ranges {
            keyspace.inner.check_there()?;
            let mut walk = keyspace.inner.index.range(bounds.clone());
            while let Some((key, table)) = walk.advance()? {
                let last = table_at(table)?.find(tx, u64::MAX)?;
                check_conflict(&keyspace.inner, key, last, begin)?;
            }
        }
        Ok(())
    }
}

/// Collects, in the tables at the front of the queue, the versions that nobody reads any more; returns the
/// number of tables that are finished.
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
        if keyspace.check_there().is_err() {
            done += 1;
            continue;
        }
        tx.use_kept_space(KeptSpace::Half);
        let keep = Keep::new(needed, keyspace.retention(), now_unix_ns());
        let Left { versions, ends_in_tombstone } = table.collect(tx, keep)?;
        // I4: the number in the table's last version may be a later one, whose own entry is still to come.
        if versions == 1 && ends_in_tombstone {
            let last = table.find(tx, u64::MAX)?.map_or(0, |last| last.number);
            if last == *number && keep.is_past(last) {
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

/// Gives all members the error of one.
fn fail_all(members: &[(&Request, u64)], error: Error) {
    let reason = error.to_string();
    let mut first = Some(error);
    for (request, _) in members {
        request.finish(Err(first.take().unwrap_or_else(|| Error::Group { reason: reason.clone() })));
    }
}
