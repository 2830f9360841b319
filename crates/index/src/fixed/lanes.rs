//! The lanes with which changes of a tree's structure are made durable.
//!
//! One to begin with. A thread that finds it in use gets another of its own, if the pool can spare one, and stays with that: what a
//! lane keeps in DRAM, and the lines of its records, would move from processor to processor otherwise.

use super::structure::soon;
use crate::error::{Error, Result};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pool::{Lane, Pool};

/// Lanes that threads may have for themselves.
const OWN_LANES: usize = 7;

/// In lines of its own, as what is changed with every use.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Lane>>);

/// The lanes of a tree.
#[repr(align(64))]
pub(super) struct Lanes {
    /// The numbers of the threads to which `own` belong; 0 where that is no one.
    owners: [AtomicU64; OWN_LANES],
    /// `None` in a pool that is open for reading only.
    first: Slot,
    own: [Slot; OWN_LANES],
}

/// A lane that nobody else uses meanwhile.
pub(super) type LaneGuard<'l> = MappedMutexGuard<'l, Lane>;

impl Slot {
    /// Waits for the lane, if there is one.
    fn lock(&self) -> Option<LaneGuard<'_>> {
        MutexGuard::try_map(soon(|| self.0.try_lock(), || self.0.lock()), Option::as_mut).ok()
    }
}

impl Lanes {
    pub(super) fn new(first: Option<Lane>) -> Lanes {
        Lanes { owners: Default::default(), first: Slot(Mutex::new(first)), own: Default::default() }
    }

    /// A lane for the calling thread, which has the lock of structure changes, shared or not: who waits here waits for no one who waits
    /// for that.
    pub(super) fn lock(&self, pool: &Pool) -> Result<LaneGuard<'_>> {
        let me = thread_number();
        let mine = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == me);
        if let Some(lane) = mine.and_then(|at| self.own[at].lock()) {
            return Ok(lane);
        }
        if let Some(first) = self.first.0.try_lock()
            && let Ok(lane) = MutexGuard::try_map(first, Option::as_mut)
        {
            return Ok(lane);
        }
        if let Some(lane) = self.take_own(me, pool)? {
            return Ok(lane);
        }
        self.first.lock().ok_or(Error::Pool(tembo_pool::Error::ReadOnly))
    }

    /// A lane that is the calling thread's from now on, if one can be had.
    #[cold]
    fn take_own(&self, me: u64, pool: &Pool) -> Result<Option<LaneGuard<'_>>> {
        let free = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == 0);
        // Who comes second to the same one does not wait.
        let Some((at, mut lane)) = free.and_then(|at| Some((at, self.own[at].0.try_lock()?))) else {
            return Ok(None);
        };
        if lane.is_none() {
            *lane = pool.spare_lane()?;
            if lane.is_some() {
                self.owners[at].store(me, Ordering::Relaxed);
            }
        }
        // Whoever filled it first has it.
        let is_mine = self.owners[at].load(Ordering::Relaxed) == me;
        Ok(if is_mine { MutexGuard::try_map(lane, Option::as_mut).ok() } else { None })
    }
}

/// The calling thread's number, which no other thread has or had.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
