//! Commits: on a lane of their own, or in a group.
//!
//! A transaction that commits takes the turn of a lane. If it is the only one of the store, or the
//! transaction gets the turns of all, nobody else commits meanwhile ([`Lead`]). Else it commits beside other
//! lanes:
//!
//! 1. It takes the locks of its keys (`key_locks.rs`), looks the keys up and compares their last versions
//!    with its snapshot.
//! 2. It takes a number (`sequence.rs`), and adds the versions under it (`apply.rs`). A new key is inserted
//!    under the index's own locks.
//! 3. The record commits; then the locks of the index, the keys, and the turn are given back.
//! 4. It waits until readers see its number, which they do when all lower numbers are decided.
//!
//! The turns of all lanes are taken by transactions with reads to be compared, with more than one new key, or
//! that find no space; by groups; every few commits by one that collects; and by everything else that changes
//! the store, or must not see it changed.
//!
//! Transactions that were asked for with `commit_async`, and those that find no lane free, enter a queue. Who
//! waits for one takes all turns. When it has them, either another thread has committed its transaction
//! meanwhile, or it takes the whole queue and commits it with one record, and one fence. There is no timer.

use crate::apply::{Attempt, Member, commit_beside, commit_members};
use crate::commit_queue::{Commits, Lead, Request};
use crate::error::{Error, Result};
use crate::garbage::Left;
use crate::handle::StoreInner;
use crate::read_write_sets::{Change, Changes, Reads, Writes, changes, only_deletes};
use crate::snapshot::Snapshot;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tembo_index::WriterLocks;
use tembo_pool::{Turn, Tx};

/// A commit beside other lanes has no more changes than this.
const CHANGES_BESIDE_MAX: usize = 64;

/// Tables in which a commit collects at most, when it takes a step.
const STEP_TABLES: usize = 8;
/// Tables that a commit which finds no space looks through before it tries again.
const FULL_TABLES: usize = 512;

/// A transaction that is to be committed.
pub(crate) struct Unit {
    pub(crate) snapshot: Snapshot,
    pub(crate) writes: Vec<Writes>,
    /// The reads of a serializable transaction.
    pub(crate) reads: Option<Reads>,
}

/// A commit that was asked for by [`Transaction::commit_async`](crate::Transaction::commit_async): a future,
/// for any runtime, and a handle to [wait](Self::wait) for.
///
/// Nothing is committed until somebody waits for it, or polls it, or another transaction of the store
/// commits; then all commits that were asked for are made by one record, with one fence.
///
/// # Polling
///
/// While the store has a [committer](crate::Store::committer), a poll registers the task and returns; the
/// committer's thread makes the commit, and wakes the task. Without one, the first poll is not pending: the
/// polling thread makes the commit, as [`wait`](Self::wait) does, unless another has. It waits for commits
/// and other changes of the store that are under way, then makes those that wait. That takes some
/// microseconds in memory; where a commit synchronises a device, the time of one or two synchronisations,
/// milliseconds on a slow one. It takes longer if the pool is full and is searched for space, or if somebody
/// collects or compacts the store in large steps. A task that must not wait for so long needs a committer, or
/// is polled on a thread that may block.
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
        match &self.request {
            Some(request) => self.store.commits.wait(&self.store, request),
            None => Ok(self.begin),
        }
    }
}

impl Future for Commit {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        match &self.request {
            Some(request) => self.store.commits.poll(&self.store, request, context.waker()),
            None => Poll::Ready(Ok(self.begin)),
        }
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").finish_non_exhaustive()
    }
}

impl Commits {
    /// Commits a transaction that has written something; returns the number of the commit.
    pub(crate) fn commit(&self, store: &Arc<StoreInner>, unit: Unit) -> Result<u64> {
        if unit.reads.is_none() {
            let begin = Some(unit.snapshot.number());
            if let Some(number) = self.commit_now(store, &changes(&unit.writes), begin)? {
                return Ok(number);
            }
        }
        let begin = Some(unit.snapshot.number());
        let request = self.enter(begin, Some(unit.snapshot.into_registration()), unit.writes, unit.reads);
        self.wait(store, &request)
    }

    /// Commits one change, whatever was written before.
    pub(crate) fn commit_change(&self, store: &Arc<StoreInner>, change: Change<'_>) -> Result<u64> {
        if let Some(number) = self.commit_now(store, &[change], None)? {
            return Ok(number);
        }
        let changes = [(change.key.to_vec(), change.value.map(<[u8]>::to_vec))].into();
        let writes = vec![Writes { keyspace: change.keyspace.clone(), changes }];
        let request = self.enter(None, None, writes, None);
        self.wait(store, &request)
    }

    /// As [`commit`](Self::commit), when somebody waits for it.
    pub(crate) fn commit_async(&self, store: &Arc<StoreInner>, unit: Unit) -> Commit {
        let begin = unit.snapshot.number();
        let Unit { snapshot, writes, reads } = unit;
        let is_empty = writes.is_empty();
        let request =
            (!is_empty).then(|| self.enter(Some(begin), Some(snapshot.into_registration()), writes, reads));
        Commit { store: store.clone(), request, begin }
    }

    /// Commits a transaction on a lane that is free; `None` if it has to wait, or be made while no other lane
    /// commits.
    #[inline]
    fn commit_now(
        &self,
        store: &Arc<StoreInner>,
        changes: &[Change<'_>],
        begin: Option<u64>,
    ) -> Result<Option<u64>> {
        // Whoever finds a queue takes it with it.
        if self.has_waiting() {
            return Ok(None);
        }
        match self.writers().try_turn::<tembo_index::Error>()? {
            None => Ok(None),
            Some(Turn { tx, locks: None, .. }) => {
                let changes = Changes::from_slice(changes);
                let mut member = [Member { changes, begin, reads: None, outcome: None }];
                let mut lead = Lead { tx, left: self.lazy_left() };
                self.relieve(store, &mut lead);
                self.commit_alone(&mut lead, store, &mut member);
                let [member] = member;
                member.outcome.transpose()
            }
            Some(Turn { tx, locks: Some(locks), number }) => {
                let is_due = self.schedule.is_due() || self.schedule.is_step_due();
                let needs_all = changes.len() > CHANGES_BESIDE_MAX || is_due;
                // Under the turn, so that it stays so.
                if needs_all || !store.history.is_quiet() {
                    return Ok(None);
                }
                self.commit_beside(store, tx, (number, locks), changes, begin)
            }
        }
    }

    fn commit_beside(
        &self,
        store: &StoreInner,
        mut tx: Tx<'_>,
        (lane, locks): (usize, &WriterLocks),
        changes: &[Change<'_>],
        begin: Option<u64>,
    ) -> Result<Option<u64>> {
        let keys = self.keys.lock(changes);
        let pin = store.pool.pin_for_writing();
        let mut garbage = Vec::new();
        let outcome = commit_beside(&mut tx, store, (lane, locks, &pin), changes, begin, &mut garbage)?;
        if !garbage.is_empty() {
            let mut left = self.left.lock();
            left.garbage.extend(garbage);
            self.schedule.set(&left);
        }
        drop((pin, keys, tx));
        match outcome {
            Attempt::NeedsAll => Ok(None),
            Attempt::Made(number) => {
                store.active.sequence.wait_until_visible(number);
                Ok(Some(number))
            }
        }
    }

    /// Commits a transaction of the queue with all others that are in it, unless another thread does.
    fn wait(&self, store: &Arc<StoreInner>, request: &Arc<Request>) -> Result<u64> {
        let mut lead = self.lead();
        if let Some(outcome) = request.outcome() {
            return outcome;
        }
        self.relieve(store, &mut lead);
        let wakers = self.commit_queue(store, &mut lead);
        drop(lead);
        wakers.into_iter().for_each(Waker::wake);
        request.outcome().unwrap_or_else(|| Err(panicked()))
    }

    /// The outcome of a transaction of the queue, if there is one, or a thread is there that will wake the
    /// task; else as [`wait`](Self::wait).
    fn poll(&self, store: &Arc<StoreInner>, request: &Arc<Request>, waker: &Waker) -> Poll<Result<u64>> {
        let handed = self.handover.hand_over(|| request.poll(waker));
        handed.unwrap_or_else(|| Poll::Ready(self.wait(store, request)))
    }

    /// Commits all that is in the queue, for those who have polled it.
    pub(crate) fn commit_for_others(&self, store: &Arc<StoreInner>) {
        if self.has_waiting() {
            let mut lead = self.lead();
            self.relieve(store, &mut lead);
            let wakers = self.commit_queue(store, &mut lead);
            drop(lead);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Commits the queue; returns whom to wake once nothing is locked: a waker is foreign code.
    fn commit_queue(&self, store: &StoreInner, lead: &mut Lead<'_>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let waiting: Vec<Waiting> = self.take_queue().into_iter().filter_map(Waiting::take).collect();
        // A range that was read is compared with the index, which has what was committed, and not what is in
        // the record.
        for part in waiting.chunk_by(|_, next| !next.request.has_read_ranges()) {
            let mut members: Vec<Member<'_>> = part.iter().map(Waiting::member).collect();
            self.commit_alone(lead, store, &mut members);
            for (waiting, member) in part.iter().zip(members) {
                let none = || Err(Error::Group { reason: "it was not tried".to_owned() });
                wakers.extend(waiting.request.finish(member.outcome.unwrap_or_else(none)));
            }
        }
        wakers
    }

    /// Looks after what commits look after, before one.
    #[inline]
    fn relieve(&self, store: &Arc<StoreInner>, lead: &mut Lead<'_>) {
        if self.schedule.is_due() || !store.history.is_quiet() {
            lead.relieve(store);
        }
        if self.schedule.is_step_due() {
            self.take_step(store, lead);
        }
    }

    /// A step of what the queue of garbage does not lead to.
    #[cold]
    fn take_step(&self, store: &StoreInner, lead: &mut Lead<'_>) {
        let Lead { tx, left } = lead;
        let left = left.get();
        // An error of this does not stop a commit: it will come again, and collections return it.
        if left.step(tx, store, STEP_TABLES).is_err() {
            tx.roll_back();
        }
        self.schedule.note_step(left);
    }

    /// Commits transactions while nobody else does. Everyone gets an outcome.
    fn commit_alone(&self, lead: &mut Lead<'_>, store: &StoreInner, members: &mut [Member<'_>]) {
        let Lead { tx, left } = lead;
        commit_members(tx, (left, self.schedule.is_due()), store, members, false);
        // Collecting may make room enough. Each is tried by itself, as the group may have been too much.
        for member in members.iter_mut().filter(|member| member.outcome.is_none()) {
            if left.get().collect_garbage(tx, store, usize::MAX).is_err() {
                tx.roll_back();
            }
            let mut may_be_more = left.get().has_step() || store.history.log.is_there();
            loop {
                commit_members(tx, (left, false), store, std::slice::from_mut(member), !may_be_more);
                if member.outcome.is_some() {
                    break;
                }
                // Until nothing is left, or an error: that of the pool being full is then for the commit.
                may_be_more = make_room(tx, left.get(), store, member).unwrap_or_else(|_| {
                    tx.roll_back();
                    false
                });
            }
        }
    }

    /// Commits what nobody has waited for.
    pub(crate) fn commit_waiting(&self, store: &StoreInner) {
        if self.has_waiting() {
            // No task waits for a store that is being closed: it would have it open.
            _ = self.commit_queue(store, &mut self.lead());
        }
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        // Commits that nobody waited for. There is nobody to tell of an error.
        self.commits.commit_waiting(self);
    }
}

/// Makes room for a commit in a full pool; returns whether there was any to make.
#[cold]
fn make_room(tx: &mut Tx<'_>, left: &mut Left, store: &StoreInner, member: &Member<'_>) -> Result<bool> {
    if left.has_step() {
        left.steps(tx, store, FULL_TABLES)?;
        return Ok(true);
    }
    let log = store.history.log.get();
    log.map_or(Ok(false), |log| log.make_room(tx, only_deletes(&member.changes)))
}

/// A transaction that is being committed.
struct Waiting {
    request: Arc<Request>,
    writes: Vec<Writes>,
}

/// A thread that panics tells those whose transactions it had begun.
impl Drop for Waiting {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(waker) = self.request.give_up(panicked)
        {
            waker.wake();
        }
    }
}

fn panicked() -> Error {
    Error::Group { reason: "a thread that was committing for others panicked".to_owned() }
}

impl Waiting {
    fn take(request: Arc<Request>) -> Option<Waiting> {
        request.take().map(|writes| Waiting { request, writes })
    }

    fn member(&self) -> Member<'_> {
        let Request { begin, reads, .. } = &*self.request;
        Member { changes: changes(&self.writes), begin: *begin, reads: reads.as_ref(), outcome: None }
    }
}
