//! The queue of commits, their lanes, and what is locked with them. `commit.rs` makes commits.

use crate::active::Registration;
use crate::error::{Error, Result};
use crate::garbage::Left;
use crate::handover::Handover;
use crate::key_locks::KeyLocks;
use crate::read_write_sets::{Reads, Writes};
use crate::schedule::Schedule;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use tembo_index::Writers;
use tembo_pool::{Lane, Tx};

/// The queue, and the lanes of commits.
pub(crate) struct Commits {
    queue: Mutex<Vec<Arc<Request>>>,
    /// The length of the queue.
    queued: AtomicUsize,
    pub(crate) handover: Handover,
    /// None in a pool that is open for reading only.
    writers: Option<Writers>,
    pub(crate) keys: KeyLocks,
    pub(crate) left: Mutex<Left>,
    pub(crate) schedule: Schedule,
}

/// While this lives, nobody else changes anything of the store.
pub(crate) struct Lead<'c> {
    /// A transaction for the changes.
    pub(crate) tx: Tx<'c>,
    pub(crate) left: LazyLeft<'c>,
}

/// The rest that is to be collected, locked when it is first looked at: most commits do not.
/// When it was, the schedule takes over what is left at the end.
pub(crate) struct LazyLeft<'c> {
    mutex: &'c Mutex<Left>,
    guard: Option<MutexGuard<'c, Left>>,
    schedule: &'c Schedule,
}

impl Drop for LazyLeft<'_> {
    fn drop(&mut self) {
        if let Some(left) = &self.guard {
            self.schedule.set(left);
        }
    }
}

impl LazyLeft<'_> {
    pub(crate) fn get(&mut self) -> &mut Left {
        self.guard.get_or_insert_with(|| self.mutex.lock())
    }
}

/// A transaction that waits to be committed.
pub(crate) struct Request {
    /// The snapshot that it reads, registered until it has an outcome: what was written since is not
    /// collected before that. None: it conflicts with nobody.
    pub(crate) begin: Option<u64>,
    pub(crate) reads: Option<Reads>,
    state: Mutex<RequestState>,
}

struct RequestState {
    work: Work,
    /// The waker of the task that has polled the commit last.
    waker: Option<Waker>,
    /// Until there is an outcome.
    _registration: Option<Arc<Registration>>,
}

enum Work {
    Waiting(Vec<Writes>),
    /// Somebody is making it.
    Begun,
    Done(Result<u64>),
    /// The outcome was given away.
    Over,
}

impl Commits {
    /// With a lane, unless the pool is open for reading only; and with what is left to be collected.
    pub(crate) fn new(lane: Option<Lane>, left: Left) -> Commits {
        let schedule = Schedule::default();
        schedule.set(&left);
        Commits {
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            handover: Handover::default(),
            writers: lane.map(Writers::new),
            keys: KeyLocks::default(),
            left: Mutex::new(left),
            schedule,
        }
    }

    pub(crate) fn add_lane(&self) -> Result<bool> {
        Ok(self.writers().add()?)
    }

    pub(crate) fn writers(&self) -> &Writers {
        self.writers.as_ref().expect("a store that is open for writing")
    }

    /// Waits until nobody commits, and keeps it so. The caller has checked that the store can be changed.
    pub(crate) fn lead(&self) -> Lead<'_> {
        Lead { tx: self.writers().begin(), left: self.lazy_left() }
    }

    /// As [`lead`](Self::lead), for who only reads: nobody commits in a store that is open for reading only.
    pub(crate) fn hold(&self) -> Option<Lead<'_>> {
        self.writers.is_some().then(|| self.lead())
    }

    /// Whether a transaction waits to be committed.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Enters a transaction into the queue.
    pub(crate) fn enter(
        &self,
        begin: Option<u64>,
        _registration: Option<Arc<Registration>>,
        writes: Vec<Writes>,
        reads: Option<Reads>,
    ) -> Arc<Request> {
        let state = RequestState { work: Work::Waiting(writes), waker: None, _registration };
        let request = Arc::new(Request { begin, reads, state: Mutex::new(state) });
        let mut queue = self.queue.lock();
        queue.push(request.clone());
        self.queued.store(queue.len(), Ordering::Relaxed);
        request
    }

    /// Takes all transactions off the queue.
    pub(crate) fn take_queue(&self) -> Vec<Arc<Request>> {
        let mut queue = self.queue.lock();
        self.queued.store(0, Ordering::Relaxed);
        std::mem::take(&mut *queue)
    }

    /// Has the tasks poll again that wait for commits which nobody has begun.
    pub(crate) fn wake_waiting(&self) {
        let waiting = self.queue.lock().clone();
        waiting.iter().filter_map(|request| request.state.lock().waker.take()).for_each(Waker::wake);
    }

    pub(crate) fn lazy_left(&self) -> LazyLeft<'_> {
        LazyLeft { mutex: &self.left, guard: None, schedule: &self.schedule }
    }
}

impl Request {
    /// Takes its writes, to be committed.
    pub(crate) fn take(&self) -> Option<Vec<Writes>> {
        let work = std::mem::replace(&mut self.state.lock().work, Work::Begun);
        match work {
            Work::Waiting(writes) => Some(writes),
            _ => None,
        }
    }

    pub(crate) fn outcome(&self) -> Option<Result<u64>> {
        self.state.lock().outcome()
    }

    /// The outcome; without one, the task is woken when there is.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<u64>> {
        let mut state = self.state.lock();
        let outcome = state.outcome();
        if outcome.is_none() {
            state.waker = Some(waker.clone());
        }
        outcome
    }

    pub(crate) fn has_read_ranges(&self) -> bool {
        self.reads.as_ref().is_some_and(|reads| !reads.ranges.is_empty())
    }

    /// Notes the outcome; returns whom to tell of it.
    #[must_use = "the task waits"]
    pub(crate) fn finish(&self, outcome: Result<u64>) -> Option<Waker> {
        let mut state = self.state.lock();
        let waker = state.waker.take();
        *state = RequestState { work: Work::Done(outcome), waker: None, _registration: None };
        waker
    }

    /// As [`finish`](Self::finish), if nobody has noted an outcome.
    pub(crate) fn give_up(&self, error: impl FnOnce() -> Error) -> Option<Waker> {
        let is_open = matches!(self.state.lock().work, Work::Begun);
        if is_open { self.finish(Err(error())) } else { None }
    }
}

impl RequestState {
    fn outcome(&mut self) -> Option<Result<u64>> {
        match std::mem::replace(&mut self.work, Work::Over) {
            Work::Done(outcome) => Some(outcome),
            other => {
                self.work = other;
                None
            }
        }
    }
}
