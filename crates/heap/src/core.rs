//! What all threads of an open heap share.

use crate::brand::BrandLease;
use crate::error::{Error, Result};
use crate::handle::Handles;
use crate::layer::{Layer, Parts};
use crate::layout::{LINE, PmHeap};
use crate::orec::{Clock, Orecs, Storing};
use crate::session::{COUNT_RECORD, Session};
use crate::sessions::SessionSlot;
use crate::types::Types;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tembo_pmem::{OfProcess, Region, offset_of};
use tembo_pool::{OpenGuard, Pool};

/// 2^15 ownership records for each processor, so that of those that are owned at a time hardly two are the same; and not so many more that
/// they would push each other out of the caches.
const OREC_BITS: u32 = if cfg!(miri) { 8 } else { 15 };
const OREC_BITS_MAX: u32 = 22;
const COUNT_OREC_BITS: u32 = if cfg!(miri) { 7 } else { 14 };

/// An open heap.
pub(crate) struct Core {
    pub pool: Pool,
    /// Where its [`PmHeap`] lies.
    pub off: u64,
    /// Its root object.
    pub root: u64,
    /// How often it was opened for writing: what held generational locks hold.
    pub generation: u64,
    pub types: Types,
    /// All of them, but in measurements.
    pub parts: Parts,
    /// Of places.
    pub orecs: Orecs,
    /// Of counts. Owned in the course of a commit only.
    pub count_orecs: Orecs,
    /// Every commit changes it, so that it lies beside nothing that is only read.
    pub clock: CachePadded<Clock>,
    pub storing: Storing,
    sessions: Box<[SessionSlot]>,
    /// Slots of lists that were not empty when the heap was opened, and belong to no session yet.
    pub leftovers: Mutex<Vec<u32>>,
    /// Handles have a share in them, which does not keep the heap open.
    pub handles: Arc<OfProcess<Handles>>,
    /// Which of the steps by which dying objects are released found room last: 0 but in a full pool.
    pub step: AtomicUsize,
    /// Why dying objects could not be released after a commit, until somebody asks.
    pub left: Mutex<Option<Error>>,
    /// A transaction that had no luck for long runs alone.
    pub alone: Mutex<()>,
    pub wants_alone: AtomicBool,
    _leases: (Option<BrandLease>, OpenGuard),
}

thread_local! {
    /// The session that the thread had last: it is in its cache.
    static LAST_SESSION: Cell<u32> = const { Cell::new(0) };
}

impl Core {
    pub(crate) fn open(
        pool: Pool,
        off: u64,
        types: Types,
        leases: (Option<BrandLease>, OpenGuard),
        layer: Layer,
    ) -> Result<Arc<OfProcess<Core>>> {
        let region = pool.region();
        let lanes = pool.geometry().lane_count;
        let dying = region.load_u64(off + offset_of!(PmHeap, dying) as u64)?;
        let leftovers = (0..lanes)
            .filter_map(|slot| match region.load_u64(dying + LINE * u64::from(slot)) {
                Ok(0) => None,
                Ok(_) => Some(Ok(slot)),
                Err(e) => Some(Err(e.into())),
            })
            .collect::<Result<Vec<_>>>()?;
        let handles = Handles::read(region, off)?;
        let root = region.load_u64(off + offset_of!(PmHeap, root) as u64)?;
        let generation = region.load_u64(off + offset_of!(PmHeap, generation) as u64)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(OfProcess::new(Core {
            root,
            generation,
            handles: Arc::new(OfProcess::new(handles)),
            pool,
            off,
            types,
            parts: layer.parts(),
            orecs: Orecs::new((OREC_BITS + processors.ilog2()).min(OREC_BITS_MAX)),
            count_orecs: Orecs::new(COUNT_OREC_BITS),
            clock: CachePadded::default(),
            storing: Storing::new(u64::from(lanes)),
            sessions: (0..lanes).map(|_| SessionSlot::new()).collect(),
            leftovers: Mutex::new(leftovers),
            step: AtomicUsize::new(0),
            left: Mutex::new(None),
            alone: Mutex::new(()),
            wants_alone: AtomicBool::new(false),
            _leases: leases,
        })))
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// The table that a record number, as noted for what was read, belongs to.
    #[inline(always)]
    pub(crate) fn records(&self, index: u32) -> &Orecs {
        if index & COUNT_RECORD == 0 { &self.orecs } else { &self.count_orecs }
    }

    /// Where the head of a list of dying objects lies.
    pub(crate) fn dying_off(&self, slot: u32) -> Result<u64> {
        let dying = self.region().load_u64(self.off + offset_of!(PmHeap, dying) as u64)?;
        Ok(dying + LINE * u64::from(slot))
    }

    /// A session that nobody uses: the one that this thread had last if possible; a new one only when all are in use, since one lane alone is
    /// cheaper than several.
    #[inline]
    pub(crate) fn take_session(&self) -> Result<Box<Session>> {
        let last = LAST_SESSION.get() as usize;
        if let Some(slot) = self.sessions.get(last)
            && let Some(session) = slot.take()
        {
            return Ok(session);
        }
        self.take_another_session()
    }

    #[cold]
    fn take_another_session(&self) -> Result<Box<Session>> {
        for round in 0.. {
            for (number, slot) in self.sessions.iter().enumerate() {
                if let Some(session) = slot.take() {
                    LAST_SESSION.set(number as u32);
                    return Ok(session);
                }
                if !slot.exists.swap(true, Ordering::AcqRel) {
                    match self.new_session(number as u32) {
                        Ok(session) => {
                            LAST_SESSION.set(number as u32);
                            return Ok(session);
                        }
                        // Someone else writes to the pool with this lane: others may come free.
                        Err(Error::Pool(e))
                            if number > 0 && matches!(*e, tembo_pool::Error::NoLane { .. }) =>
                        {
                            slot.exists.store(false, Ordering::Release);
                            break;
                        }
                        Err(e) => {
                            slot.exists.store(false, Ordering::Release);
                            return Err(e);
                        }
                    }
                }
            }
            if round > 10 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
        unreachable!("the loop has no end")
    }

    /// How many commits of sessions other than the one that this thread had last have begun or ended. (One that has never written leaves the first out, for which
    /// the clock may be taken for quiet too early, which costs time only.)
    pub(crate) fn commits_of_others(&self) -> u64 {
        self.storing.of_others(u64::from(LAST_SESSION.get()) + 1)
    }

    fn new_session(&self, slot: u32) -> Result<Box<Session>> {
        let mut ptx = self.pool.lane()?.into_tx();
        if !self.parts.logs {
            ptx.leave_log_out()?;
        }
        let mut leftovers = self.leftovers.lock();
        leftovers.retain(|leftover| *leftover != slot);
        let dying_off = self.dying_off(slot)?;
        let number = u64::from(slot) + 1;
        self.storing.add(number);
        Ok(Box::new(Session {
            number,
            ptx,
            wanted: Default::default(),
            owned: Vec::new(),
            deltas: Default::default(),
            fresh: Default::default(),
            held: Vec::new(),
            dying_off,
            dying_first: self.region().load_u64(dying_off)?,
            scratch: Default::default(),
            reshaped: Vec::new(),
            lost: None,
        }))
    }

    /// A session that nobody uses, and that has dying objects.
    pub(crate) fn take_session_with_dying(&self) -> Option<Box<Session>> {
        self.sessions.iter().find_map(|slot| {
            let session = slot.take()?;
            if session.dying_first != 0 {
                return Some(session);
            }
            slot.put(session);
            None
        })
    }

    #[inline]
    pub(crate) fn put_session(&self, session: Box<Session>) {
        let slot = session.number as usize - 1;
        self.sessions[slot].put(session);
    }
}
