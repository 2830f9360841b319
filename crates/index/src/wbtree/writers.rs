//! Lanes with which threads write at once.

use super::locks::Locks;
use crate::error::Result;
use crate::turns::{self, HeldHere};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use tembo_pool::{Error, Lane, Pool, Tx, Writer};
use tembo_sync::back_off;

/// Writers of a pool, at most.
const WRITERS_MAX: usize = 16;
/// No limit that there may be.
const UNKNOWN: usize = usize::MAX;
/// So often threads meet a writer at work before there is another one.
const MEETINGS: u32 = 64;

/// The writers of a pool's trees: transactions by themselves, and changes of single records beside each other
/// ([`WbTree::concurrent`](super::WbTree::concurrent)).
///
/// There is one lane as long as one is enough, and then nothing but its turns is locked. Threads that often wait for each
/// other take more lanes of the pool, up to one per processor, half of the pool's, or 16; these are kept. Whoever
/// writes to a tree by a lane of his own must be alone with it.
#[derive(Debug)]
pub struct Writers {
    pool: Pool,
    first: Writer,
    others: Box<[Place]>,
    /// How many writers there are. Changes in the first one's turn only.
    count: AtomicUsize,
    /// How many there may be; fewer, for good, once the pool had no lane for another.
    limit: AtomicUsize,
    meetings: AtomicU32,
    /// Scans for which nobody begins to write.
    scans: AtomicU32,
    /// Made before there are two writers.
    locks: OnceLock<Locks>,
    /// Transactions whose commit began, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Where another writer is, in lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(OnceLock<Writer>);

/// The turn to change one record.
pub(crate) struct Turn<'w> {
    pub(crate) tx: Tx<'w>,
    /// What others who write at this moment respect; none if there is nobody.
    pub(crate) locks: Option<&'w Locks>,
}

/// What [`Writers::hold_back`] lasts.
pub(crate) struct HeldBack<'w>(&'w AtomicU32);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// The number of the writer that this thread used last.
    static PREFERRED: Cell<usize> = const { Cell::new(0) };
}

impl Writers {
    /// Makes a lane the first writer's.
    pub fn new(lane: Lane) -> Writers {
        let pool = lane.pool().clone();
        Writers {
            pool,
            first: Writer::new(lane),
            others: (1..WRITERS_MAX).map(|_| Place::default()).collect(),
            count: AtomicUsize::new(1),
            limit: AtomicUsize::new(UNKNOWN),
            meetings: AtomicU32::new(0),
            scans: AtomicU32::new(0),
            locks: OnceLock::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Waits until nobody writes and begins a transaction. As long as it lasts nobody else does. In a thread that has a turn it waits for ever: see
    /// [`expect_other`](Self::expect_other).
    #[inline]
    pub fn begin(&self) -> Tx<'_> {
        self.pool.assert_process();
        self.wait_for_scans();
        self.first.begin_before(|| (1..self.count()).filter_map(|number| self.writer(number)))
    }

    /// Refuses to let a thread wait that has a turn already, and has [said so](Self::hold_here). `asks` names what it wants the turn for.
    ///
    /// # Errors
    ///
    /// [`Error::WouldWait`](crate::Error::WouldWait).
    pub fn expect_other(&self, asks: &'static str) -> Result<()> {
        turns::expect_other(self.key(), asks)
    }

    /// Notes that the thread has a turn, for what `holds` names, as long as the result lives: for turns in which code may run that asks for
    /// another.
    #[doc(hidden)]
    pub fn hold_here(&self, holds: &'static str) -> HeldHere {
        HeldHere::note(self.key(), holds)
    }

    /// What stands for the turns of these writers.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Lets nobody begin to write as long as the result lives. Who has begun goes on, and so changes something once more; after
    /// that nothing changes. The caller waits for nobody, so that it may have a turn itself, or locks that others wait for.
    pub(crate) fn hold_back(&self) -> HeldBack<'_> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        HeldBack(&self.scans)
    }

    /// Waits as long as somebody [holds writers back](Self::hold_back). A number that is seen late lets one more begin.
    #[inline]
    fn wait_for_scans(&self) {
        /// Scans last micro- or milliseconds.
        #[cold]
        fn wait(scans: &AtomicU32) {
            (0u32..).take_while(|_| scans.load(Ordering::Relaxed) != 0).for_each(back_off);
        }
        if self.scans.load(Ordering::Relaxed) != 0 {
            wait(&self.scans);
        }
    }

    /// Commits a transaction of [`begin`](Self::begin). It is durable on return, and [scans](super::WbTree::scan) see all of it
    /// or nothing. Other readers may see some of its changes before the others.
    ///
    /// # Errors
    ///
    /// As for [`Tx::commit`].
    #[inline]
    pub fn commit(&self, tx: Tx<'_>) -> Result<()> {
        /// Counts the end, also of a commit that fails.
        struct Under<'w>(&'w AtomicU64);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                // ORDER: release, after the stores of the commit.
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        // ORDER: before the stores of the commit, which come after a fence of its own.
        self.begun.fetch_add(1, Ordering::AcqRel);
        let _under = Under(&self.ended);
        Ok(tx.commit()?)
    }

    /// A number that changes with every transaction that is [committed](Self::commit) here; none while one is.
    pub(crate) fn commits(&self) -> Option<u64> {
        // ORDER: what was read before this is not read after it.
        fence(Ordering::Acquire);
        // The ends first: with as many beginnings afterwards, nothing was under way in between.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun == ended).then_some(begun)
    }

    /// Adds a writer, as threads that wait for each other do by themselves; returns whether the pool had a lane for it.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) after the pool's device failed.
    pub fn add(&self) -> Result<bool> {
        self.pool.check_process()?;
        let _turn = self.first.begin();
        let count = self.count();
        let Some(place) = self.others.get(count - 1) else { return Ok(false) };
        let lane = match self.pool.lane() {
            Ok(lane) => lane,
            Err(Error::NoLane { .. }) => {
                self.limit.store(count, Ordering::Relaxed);
                return Ok(false);
            }
            Err(e) => return Err(e.into()),
        };
        self.locks.get_or_init(Locks::new);
        place.0.get_or_init(|| Writer::new(lane));
        self.meetings.store(0, Ordering::Relaxed);
        // ORDER: release: who sees the number sees the writer and the locks.
        self.count.store(count + 1, Ordering::Release);
        Ok(true)
    }

    /// How many writers there are.
    #[inline]
    pub fn count(&self) -> usize {
        // ORDER: acquire, for the writers and the locks.
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    fn writer(&self, number: usize) -> Option<&Writer> {
        match number.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other)?.0.get(),
        }
    }

    /// Waits for the turn of one of the writers.
    #[inline]
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        self.pool.check_process()?;
        self.wait_for_scans();
        if self.count() == 1
            && let Some(tx) = self.first.try_begin()
        {
            return Ok(self.turn_with(tx));
        }
        self.turn_of_many()
    }

    /// How many writers threads that wait for each other make. Found out when it matters: asking the system takes longer than
    /// the first write of a process may.
    #[cold]
    fn limit(&self) -> usize {
        if self.limit.load(Ordering::Relaxed) == UNKNOWN {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let limit = processors.min(self.pool.geometry().lane_count as usize / 2).min(WRITERS_MAX);
            // Unless `add` has found fewer meanwhile.
            let _ = self.limit.compare_exchange(UNKNOWN, limit, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.limit.load(Ordering::Relaxed)
    }

    /// The turn with one writer's transaction.
    #[inline]
    fn turn_with<'w>(&'w self, tx: Tx<'w>) -> Turn<'w> {
        // With the first one's turn, a single writer stays the only one.
        Turn { tx, locks: if self.count() == 1 { None } else { self.locks.get() } }
    }

    #[cfg(test)]
    pub(crate) fn locks(&self) -> Option<&Locks> {
        self.locks.get()
    }

    fn turn_of_many(&self) -> Result<Turn<'_>> {
        self.expect_other("the turn to change a map")?;
        loop {
            let (count, preferred) = (self.count(), PREFERRED.get());
            for i in 0..count {
                let number = (preferred + i) % count;
                if let Some(tx) = self.writer(number).and_then(Writer::try_begin) {
                    PREFERRED.set(number);
                    return Ok(self.turn_with(tx));
                }
            }
            let met = self.meetings.fetch_add(1, Ordering::Relaxed);
            if met >= MEETINGS && count < self.limit() && self.add()? {
                PREFERRED.set(count);
                continue;
            }
            if let Some(writer) = self.writer(preferred % count) {
                return Ok(self.turn_with(writer.begin()));
            }
        }
    }
}
