//! The lanes with which changes of a tree's structure are made durable.
//!
//! A tree starts with one lane. A thread that finds it in use gets a lane of its own, if the pool can spare
//! one, and stays with it: otherwise the lane's DRAM state and the lines of its records would move between
//! processors. The tree keeps its lanes until it is closed. A thread that gets no new lane takes over one
//! that is not in use now, because that lane's thread may have ended.

use crate::error::{Error, Result};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pool::{Lane, Pool};
use tembo_sync::{lock_soon, thread_number};

/// The most lanes that belong to threads.
const OWN_LANES: usize = 7;

/// A lane, in cache lines of its own, because every use changes it.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Lane>>);

/// The lanes of a tree.
#[repr(align(64))]
pub(super) struct Lanes {
    /// The numbers of the threads that own the lanes in `own`; 0: none.
    owners: [AtomicU64; OWN_LANES],
    /// Set by tests.
    prefers_own: AtomicBool,
    /// `None` in a pool that is open for reading only.
    first: Slot,
    own: [Slot; OWN_LANES],
}

/// A lane that its holder alone uses.
pub(super) type LaneGuard<'l> = MappedMutexGuard<'l, Lane>;

/// The calling thread's word in `owners`. A thread that ends leaves its lane to the next thread that gets its
/// number.
fn owner_word() -> u64 {
    thread_number() as u64 + 1
}

impl Slot {
    /// Waits for the lane, if there is one.
    fn lock(&self) -> Option<LaneGuard<'_>> {
        MutexGuard::try_map(lock_soon(|| self.0.try_lock(), || self.0.lock()), Option::as_mut).ok()
    }

    fn try_lock(&self) -> Option<LaneGuard<'_>> {
        MutexGuard::try_map(self.0.try_lock()?, Option::as_mut).ok()
    }
}

impl Lanes {
    pub(super) fn new(first: Option<Lane>) -> Lanes {
        Lanes {
            owners: Default::default(),
            prefers_own: AtomicBool::new(false),
            first: Slot(Mutex::new(first)),
            own: Default::default(),
        }
    }

    /// A lane for the calling thread, which holds the lock of structure changes, shared or not. Holders of
    /// lanes never wait for that lock, so this cannot be a deadlock.
    pub(super) fn lock(&self, pool: &Pool) -> Result<LaneGuard<'_>> {
        let me = owner_word();
        let mine = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == me);
        if let Some(lane) = mine.and_then(|at| self.own[at].lock()) {
            return Ok(lane);
        }
        if !self.prefers_own.load(Ordering::Relaxed)
            && let Some(first) = self.first.try_lock()
        {
            return Ok(first);
        }
        if let Some(lane) = self.take_new(me, pool)? {
            return Ok(lane);
        }
        if let Some(lane) = self.first.try_lock().or_else(|| self.take_over(me)) {
            return Ok(lane);
        }
        self.first.lock().ok_or(Error::Pool(tembo_pool::ErrorKind::ReadOnly.into()))
    }

    /// A new lane, which the calling thread owns from now on, if the pool can spare one.
    #[cold]
    fn take_new(&self, me: u64, pool: &Pool) -> Result<Option<LaneGuard<'_>>> {
        for (owner, slot) in self.owners.iter().zip(&self.own) {
            if let Some(mut lane) = slot.0.try_lock()
                && lane.is_none()
            {
                *lane = pool.spare_lane()?;
                let lane = MutexGuard::try_map(lane, Option::as_mut).ok();
                lane.iter().for_each(|_| owner.store(me, Ordering::Relaxed));
                return Ok(lane);
            }
        }
        Ok(None)
    }

    /// A lane that is not in use now; the calling thread owns it from now on. Its former owner may have
    /// ended.
    #[cold]
    fn take_over(&self, me: u64) -> Option<LaneGuard<'_>> {
        let (owner, lane) =
            self.owners.iter().zip(&self.own).find_map(|(owner, slot)| Some((owner, slot.try_lock()?)))?;
        owner.store(me, Ordering::Relaxed);
        Some(lane)
    }

    /// From now on threads take lanes of their own even if the first one is free.
    pub(super) fn prefer_own(&self) {
        self.prefers_own.store(true, Ordering::Relaxed);
    }

    /// The number of lanes that belong to threads.
    pub(super) fn owned(&self) -> usize {
        self.owners.iter().filter(|owner| owner.load(Ordering::Relaxed) != 0).count()
    }
}
