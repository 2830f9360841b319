//! The lane manager of a pool: threads take turns with its lanes, or write concurrently.

use crate::inner::Pool;
use crate::turns::{self, HeldHere, WouldWait};
use crate::tx::Tx;
use crate::tx::lane::Lane;
use crate::tx::writer::Writer;
use crate::{Error, Result};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use tembo_sync::back_off;

/// The most writers of a pool.
pub const WRITERS_MAX: usize = 16;
/// The value of `limit` before it is determined.
const UNKNOWN: usize = usize::MAX;
/// Another writer is added after threads have found a writer busy this often.
const MEETINGS: u32 = 64;

/// The writers of a pool's structures. A transaction runs alone; single changes of several threads run
/// concurrently and respect the locks `L`.
///
/// As long as one lane is enough, there is only one, and its turn is the only lock. Threads that often wait
/// for each other take more lanes of the pool, up to one per processor, half of the pool's, or 16; these are
/// kept. A structure whose writer has its own lane must have no other writer.
#[derive(Debug)]
pub struct Writers<L> {
    pool: Pool,
    first: Writer,
    others: Box<[WriterSlot]>,
    /// The number of writers. Changes only in the turn of the first.
    count: AtomicUsize,
    /// The most writers that there may be. It is lowered for good when the pool has no lane for another.
    limit: AtomicUsize,
    meetings: AtomicU32,
    /// Scans that hold writers back.
    scans: AtomicU32,
    /// The locks are made before there are two writers.
    locks: OnceLock<L>,
    /// The number of transactions whose commit has begun, and of those whose commit has ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Another writer, in lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WriterSlot(OnceLock<Writer>);

/// The turn of one writer, to make one change.
#[derive(Debug)]
pub struct Turn<'w, L> {
    /// The transaction for it.
    pub tx: Tx<'w>,
    /// The locks that concurrent writers respect; none if there are no others.
    pub locks: Option<&'w L>,
    /// The number of the writer, below [`WRITERS_MAX`]. Turns that overlap have different ones.
    pub number: usize,
}

/// While this lives, no writer begins ([`Writers::hold_back`]).
#[derive(Debug)]
pub struct HeldBack<'w>(&'w AtomicU32);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// The number of the writer that this thread used last, modulo the number of the pool's writers.
    static PREFERRED: Cell<usize> = const { Cell::new(0) };
}

impl<L: Default> Writers<L> {
    /// Makes a lane the first writer's.
    pub fn new(lane: Lane) -> Writers<L> {
        let pool = lane.pool().clone();
        Writers {
            pool,
            first: Writer::new(lane),
            others: (1..WRITERS_MAX).map(|_| WriterSlot::default()).collect(),
            count: AtomicUsize::new(1),
            limit: AtomicUsize::new(UNKNOWN),
            meetings: AtomicU32::new(0),
            scans: AtomicU32::new(0),
            locks: OnceLock::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Waits until no thread writes, and begins a transaction. No other thread writes while it lasts. A
    /// thread that already has a turn would wait for ever: see [`expect_other`](Self::expect_other).
    #[inline]
    pub fn begin(&self) -> Tx<'_> {
        self.pool.assert_process();
        self.wait_for_scans();
        self.first.begin_before(|| (1..self.count()).filter_map(|number| self.writer(number)))
    }

    /// Refuses to wait if this thread already has a turn and has [noted it](Self::hold_here). `asks` names
    /// the purpose of the turn.
    ///
    /// # Errors
    ///
    /// [`WouldWait`].
    pub fn expect_other(&self, asks: &'static str) -> Result<(), WouldWait> {
        turns::expect_other(self.key(), asks)
    }

    /// Notes that the thread has a turn while the result lives; `holds` names its purpose. For turns in which
    /// code runs that may ask for another.
    #[doc(hidden)]
    pub fn hold_here(&self, holds: &'static str) -> HeldHere {
        HeldHere::note(self.key(), holds)
    }

    /// The key under which turns of these writers are noted.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Keeps threads from beginning to write while the result lives. A thread that has begun may still make
    /// one change; after that nothing changes. This does not wait, so the caller may have a turn itself, or
    /// locks for which other threads wait.
    pub fn hold_back(&self) -> HeldBack<'_> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        HeldBack(&self.scans)
    }

    /// Waits while a thread [holds writers back](Self::hold_back). A thread that sees the number late begins
    /// one more change.
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

    /// Commits a transaction of [`begin`](Self::begin). It is durable on return. Readers that compare
    /// [`commits`](Self::commits) see all of it or nothing; other readers may see some of its changes earlier
    /// than the rest.
    ///
    /// # Errors
    ///
    /// As for [`Tx::commit`].
    #[inline]
    pub fn commit(&self, tx: Tx<'_>) -> Result<()> {
        /// Counts the commit as ended when it is dropped, also after a failure.
        struct Under<'w>(&'w AtomicU64);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                // ORDER: release, after the stores of the commit.
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        // ORDER: raised before the stores of the commit; the fence of the commit stands in between.
        self.begun.fetch_add(1, Ordering::AcqRel);
        let _under = Under(&self.ended);
        tx.commit()
    }

    /// A number that changes with every transaction that is [committed](Self::commit) here; `None` while a
    /// commit is under way.
    pub fn commits(&self) -> Option<u64> {
        // ORDER: loads before this stay before it.
        fence(Ordering::Acquire);
        // `ended` is loaded first: if `begun` is equal afterwards, no commit was under way in between.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun == ended).then_some(begun)
    }

    /// Adds a writer; threads that often wait for each other do this by themselves. Returns whether the pool
    /// had a lane for it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Sync`](crate::ErrorKind::Sync) after the pool's device failed.
    pub fn add(&self) -> Result<bool> {
        self.pool.check_process()?;
        let _turn = self.first.begin();
        let count = self.count();
        let Some(slot) = self.others.get(count - 1) else { return Ok(false) };
        let lane = match self.pool.lane() {
            Ok(lane) => lane,
            Err(e) if e.is_no_lane() => {
                self.limit.store(count, Ordering::Relaxed);
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        self.locks.get_or_init(L::default);
        slot.0.get_or_init(|| Writer::new(lane));
        self.meetings.store(0, Ordering::Relaxed);
        // ORDER: release, so that a thread that sees the number sees the writer and the locks.
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
    ///
    /// # Errors
    ///
    /// [`WouldWait`] if this thread has all turns and has [noted it](Self::hold_here), and errors of the
    /// pool.
    #[inline]
    pub fn turn<E: From<Error> + From<WouldWait>>(&self) -> Result<Turn<'_, L>, E> {
        self.pool.check_process()?;
        self.wait_for_scans();
        if self.count() == 1
            && let Some(tx) = self.first.try_begin()
        {
            return Ok(self.turn_with(tx, 0));
        }
        self.turn_of_many()
    }

    /// As [`turn`](Self::turn), if a writer is free. Threads that often find none add one.
    ///
    /// # Errors
    ///
    /// As for [`turn`](Self::turn).
    #[inline]
    pub fn try_turn<E: From<Error> + From<WouldWait>>(&self) -> Result<Option<Turn<'_, L>>, E> {
        self.pool.check_process()?;
        self.wait_for_scans();
        if self.count() == 1
            && let Some(tx) = self.first.try_begin()
        {
            return Ok(Some(self.turn_with(tx, 0)));
        }
        loop {
            if let Some(turn) = self.free_turn() {
                return Ok(Some(turn));
            }
            if !self.add_after_meeting()? {
                return Ok(None);
            }
        }
    }

    /// The number of writers up to which waiting threads add more. Determined when it is first needed: asking
    /// the system would delay the first write of a process too long.
    #[cold]
    fn limit(&self) -> usize {
        if self.limit.load(Ordering::Relaxed) == UNKNOWN {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let limit = processors.min(self.pool.geometry().lane_count as usize / 2).min(WRITERS_MAX);
            // The exchange fails if `add` has stored a lower limit meanwhile.
            let _ = self.limit.compare_exchange(UNKNOWN, limit, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.limit.load(Ordering::Relaxed)
    }

    /// The turn that holds a writer's transaction.
    #[inline]
    fn turn_with<'w>(&'w self, tx: Tx<'w>, number: usize) -> Turn<'w, L> {
        // Whoever has the turn of the only writer keeps it the only one: another is added in that turn only.
        Turn { tx, locks: if self.count() == 1 { None } else { self.locks.get() }, number }
    }

    /// The turn of a free writer.
    #[inline]
    fn free_turn(&self) -> Option<Turn<'_, L>> {
        let (count, preferred) = (self.count(), PREFERRED.get());
        for i in 0..count {
            let number = (preferred + i) % count;
            if let Some(tx) = self.writer(number).and_then(Writer::try_begin) {
                if i > 0 {
                    PREFERRED.set(number);
                }
                return Some(self.turn_with(tx, number));
            }
        }
        None
    }

    /// Notes that a thread has found no free writer; returns whether it has added one.
    fn add_after_meeting(&self) -> Result<bool> {
        let (count, met) = (self.count(), self.meetings.fetch_add(1, Ordering::Relaxed));
        let has_added = met >= MEETINGS && count < self.limit() && self.add()?;
        if has_added {
            PREFERRED.set(count);
        }
        Ok(has_added)
    }

    /// The locks; `None` until there are two writers.
    pub fn locks(&self) -> Option<&L> {
        self.locks.get()
    }

    fn turn_of_many<E: From<Error> + From<WouldWait>>(&self) -> Result<Turn<'_, L>, E> {
        self.expect_other("the turn to change a map")?;
        loop {
            if let Some(turn) = self.free_turn() {
                return Ok(turn);
            }
            if self.add_after_meeting()? {
                continue;
            }
            let number = PREFERRED.get() % self.count();
            if let Some(writer) = self.writer(number) {
                return Ok(self.turn_with(writer.begin(), number));
            }
        }
    }
}
