//! The volatile state that all threads of an open heap share.

use crate::error::{Error, Result};
use crate::handles::Handles;
use crate::layout::{LINE, PmHeap};
use crate::objects::brand::BrandLease;
use crate::objects::types::Types;
#[cfg(feature = "research")]
use crate::research::{Layer, Parts};
use crate::stm::clock::{Clock, Storing};
use crate::stm::orec::Orecs;
use crate::stm::read_list::COUNT_RECORD;
use crate::stm::writer::WriterContext;
use crate::stm::writer_slots::WriterSlot;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tembo_pmem::{OfProcess, Region, offset_of};
use tembo_pool::{OpenGuard, Pool};

/// 2^15 ownership records for each processor: enough that two places owned at the same time rarely share a
/// record, and few enough that they stay in the caches.
const OREC_BITS: u32 = if cfg!(miri) { 8 } else { 15 };
const OREC_BITS_MAX: u32 = 22;
const COUNT_OREC_BITS: u32 = if cfg!(miri) { 7 } else { 14 };
/// Records of a heap that one thread alone uses.
const FEW_BITS: u32 = 8;

/// An open heap.
pub(crate) struct HeapShared {
    pub pool: Pool,
    /// The offset of its [`PmHeap`].
    pub off: u64,
    /// Its root object.
    pub root: u64,
    /// The number of openings for writing: the value of held generational locks.
    pub generation: u64,
    pub types: Types,
    #[cfg(feature = "research")]
    pub parts: Parts,
    /// Records of places.
    pub orecs: Orecs,
    /// Records of counts. Only commits own them.
    pub count_orecs: Orecs,
    /// In a cache line of its own, since every commit changes it.
    pub clock: CachePadded<Clock>,
    pub storing: Storing,
    writers: Box<[WriterSlot]>,
    /// Slots of lists of dying objects that were not empty when the heap was opened, and have no writer yet.
    pub leftovers: Mutex<Vec<u32>>,
    /// Shared by handles; this does not keep the heap open.
    pub handles: Arc<OfProcess<Handles>>,
    /// The index of the last release step of dying objects that found room: 0 except in a full pool.
    pub step: AtomicUsize,
    /// The error of a release after a commit, until the program asks for it.
    pub left: Mutex<Option<Error>>,
    /// Serialises a transaction that has conflicted too often.
    pub serial_turn: Mutex<()>,
    pub is_serial: AtomicBool,
    _leases: (Option<BrandLease>, OpenGuard),
}

thread_local! {
    /// The number of the writer that this thread used last, which is probably still in its cache.
    static LAST_WRITER: Cell<u32> = const { Cell::new(0) };
}

impl HeapShared {
    pub(crate) fn open(
        pool: Pool,
        off: u64,
        types: Types,
        leases: (Option<BrandLease>, OpenGuard),
    ) -> Result<HeapShared> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let bits = (OREC_BITS + processors.ilog2()).min(OREC_BITS_MAX);
        HeapShared::open_with(pool, off, types, leases, (bits, COUNT_OREC_BITS))
    }

    /// As [`open`](Self::open), for one thread alone, with few records.
    pub(crate) fn open_alone(pool: Pool, off: u64, types: Types, hold: OpenGuard) -> Result<HeapShared> {
        HeapShared::open_with(pool, off, types, (None, hold), (FEW_BITS, FEW_BITS))
    }

    fn open_with(
        pool: Pool,
        off: u64,
        types: Types,
        leases: (Option<BrandLease>, OpenGuard),
        (orec_bits, count_orec_bits): (u32, u32),
    ) -> Result<HeapShared> {
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
        Ok(HeapShared {
            root,
            generation,
            handles: Arc::new(OfProcess::new(handles)),
            pool,
            off,
            types,
            #[cfg(feature = "research")]
            parts: Layer::ConcurrentTx.parts(),
            orecs: Orecs::new(orec_bits),
            count_orecs: Orecs::new(count_orec_bits),
            clock: CachePadded::default(),
            storing: Storing::new(u64::from(lanes)),
            writers: (0..lanes).map(|_| WriterSlot::new()).collect(),
            leftovers: Mutex::new(leftovers),
            step: AtomicUsize::new(0),
            left: Mutex::new(None),
            serial_turn: Mutex::new(()),
            is_serial: AtomicBool::new(false),
            _leases: leases,
        })
    }

    /// Whether transactions count pointers.
    #[inline(always)]
    pub(crate) fn counts_pointers(&self) -> bool {
        #[cfg(feature = "research")]
        return self.parts.counts;
        #[cfg(not(feature = "research"))]
        true
    }

    /// Whether transactions own what they write, and validate what they read.
    #[inline(always)]
    pub(crate) fn isolates(&self) -> bool {
        #[cfg(feature = "research")]
        return self.parts.isolates;
        #[cfg(not(feature = "research"))]
        true
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// The table to which a record number in the list of reads belongs.
    #[inline(always)]
    pub(crate) fn records(&self, index: u32) -> &Orecs {
        if index & COUNT_RECORD == 0 { &self.orecs } else { &self.count_orecs }
    }

    /// The offset of the head of a list of dying objects.
    pub(crate) fn dying_off(&self, slot: u32) -> Result<u64> {
        let dying = self.region().load_u64(self.off + offset_of!(PmHeap, dying) as u64)?;
        Ok(dying + LINE * u64::from(slot))
    }

    /// Takes a free writer, if possible the one that this thread used last. Makes a new one only when all are
    /// in use, because a single lane is cheaper than several.
    #[inline]
    pub(crate) fn take_writer(&self) -> Result<Box<WriterContext>> {
        let last = LAST_WRITER.get() as usize;
        if let Some(slot) = self.writers.get(last)
            && let Some(writer) = slot.take()
        {
            return Ok(writer);
        }
        self.take_another_writer()
    }

    #[cold]
    fn take_another_writer(&self) -> Result<Box<WriterContext>> {
        for round in 0.. {
            for (number, slot) in self.writers.iter().enumerate() {
                if let Some(writer) = slot.take() {
                    LAST_WRITER.set(number as u32);
                    return Ok(writer);
                }
                if !slot.exists.swap(true, Ordering::AcqRel) {
                    match self.new_writer(number as u32) {
                        Ok(writer) => {
                            LAST_WRITER.set(number as u32);
                            return Ok(writer);
                        }
                        // Another structure writes to the pool by this lane. Other lanes may become free.
                        Err(e) if number > 0 && e.pool_error().is_some_and(tembo_pool::Error::is_no_lane) => {
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

    /// The number of commits that writers other than this thread's last one have begun or ended. A thread
    /// that has never written leaves out the first writer, and may take the heap for quiet too early, which
    /// only costs time.
    pub(crate) fn commits_of_others(&self) -> u64 {
        self.storing.of_others(u64::from(LAST_WRITER.get()) + 1)
    }

    fn new_writer(&self, slot: u32) -> Result<Box<WriterContext>> {
        #[cfg_attr(not(feature = "research"), expect(unused_mut))]
        let mut ptx = self.pool.lane()?.into_tx();
        #[cfg(feature = "research")]
        if !self.parts.logs {
            ptx.leave_log_out()?;
        }
        let mut leftovers = self.leftovers.lock();
        leftovers.retain(|leftover| *leftover != slot);
        let dying_off = self.dying_off(slot)?;
        let number = u64::from(slot) + 1;
        self.storing.add(number);
        Ok(Box::new(WriterContext {
            number,
            ptx,
            wanted: Default::default(),
            owned: Vec::new(),
            deltas: Default::default(),
            fresh: Default::default(),
            held: Vec::new(),
            moved: Vec::new(),
            dying_off,
            dying_first: self.region().load_u64(dying_off)?,
            buffers: Default::default(),
            reshaped: Vec::new(),
            lost: None,
        }))
    }

    /// Lets free writers give up the slabs that they allocate from.
    pub(crate) fn give_up_slabs(&self) {
        for slot in &self.writers {
            if let Some(mut writer) = slot.take() {
                writer.ptx.give_up_slabs();
                slot.put(writer);
            }
        }
    }

    /// Takes a free writer that has dying objects.
    pub(crate) fn take_writer_with_dying(&self) -> Option<Box<WriterContext>> {
        self.writers.iter().find_map(|slot| {
            let writer = slot.take()?;
            if writer.dying_first != 0 {
                return Some(writer);
            }
            slot.put(writer);
            None
        })
    }

    #[inline]
    pub(crate) fn put_writer(&self, writer: Box<WriterContext>) {
        let slot = writer.number as usize - 1;
        self.writers[slot].put(writer);
    }
}
