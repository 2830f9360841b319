//! Handles: what keeps objects alive from one transaction to the next, in ordinary memory.
//!
//! The counts of handles are in memory only, so that all are gone after a crash. An object that handles alone keep alive is
//! an *orphan*; its offset is in an orphan slot on media, written by the commit that took its last pointer away, so that
//! whoever opens the heap next can release it.
//!
//! A handle has a share in the counts, and none in the heap: who drops the heap closes it. Handles that are left lead nowhere then, and are
//! refused by whoever opens the heap again.
//!
//! An object that is held has a slot kept for it from the commit that made the first handle on, whether it is an orphan or not: so that whoever takes its
//! last pointer away needs no room for that, in a full pool.

use crate::error::{Error, Result, corrupt};
use crate::objects::brand::{Brand, SameHeap};
use crate::objects::layout::{ORPHAN_SLOTS, PmHeap, PmOrphans};
use crate::objects::persist::Persist;
use crate::objects::place::Obj;
use crate::tx::{ReadTx, Tx, session_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tembo_pmem::{OfProcess, Region, offset_of};

/// Keeps an object alive outside of transactions; [`enter`](ReadTx::enter) gives the object back.
///
/// It may be sent to other threads, kept in structs, and cloned. When the last one is dropped and no pointer leads to the
/// object, it dies with one of the next commits, or, if the heap is closed before, when it is opened the next time.
///
/// A handle does not keep its heap open. One that is left when the heap is dropped is good for nothing any more: the object lives on only if
/// there is a pointer to it, and [`enter`](ReadTx::enter) refuses the handle in a heap that was opened since.
pub struct Handle<B: Brand, T> {
    shared: Arc<Shared>,
    of: Of<B, T>,
}

/// Ties a handle to a heap and a type, and to no thread.
pub(crate) type Of<B, T> = PhantomData<(fn(B) -> B, fn() -> T)>;

// What a transaction that panics does with a handle is forgotten with it.
impl<B: Brand, T> std::panic::UnwindSafe for Handle<B, T> {}
impl<B: Brand, T> std::panic::RefUnwindSafe for Handle<B, T> {}

impl<B: Brand, T> Clone for Handle<B, T> {
    fn clone(&self) -> Self {
        Handle { shared: self.shared.clone(), of: PhantomData }
    }
}

impl<B: Brand, T: Persist> std::fmt::Debug for Handle<B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({} at {:#x})", T::name(), self.shared.off)
    }
}

/// What the clones of a handle share.
struct Shared {
    /// Those of the heap as it was open then.
    handles: Arc<OfProcess<Handles>>,
    off: u64,
    /// Whether the transaction that made it was committed.
    counts: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.counts.get_mut() && !self.handles.was_left_behind() {
            self.handles.release(self.off);
        }
    }
}

/// A handle that a running transaction has made.
#[derive(Clone)]
pub(crate) struct Claim {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({:#x})", self.shared.off)
    }
}

impl Claim {
    pub(crate) fn off(&self) -> u64 {
        self.shared.off
    }

    /// Says that the transaction was committed, after [`Handles::hold`].
    pub(crate) fn confirm(&self) {
        self.shared.counts.store(true, Ordering::Release);
    }
}

/// What [`Handles::find_slot`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundSlot {
    HasOne,
    Free(u64),
    NoneFree,
}

/// The handles of a heap.
#[derive(Debug)]
pub(crate) struct Handles {
    inner: Mutex<Inner>,
    /// Handles, orphans and orphans to be looked at: as long as there are none nobody asks.
    busy: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Handles by object.
    held: HashMap<u64, usize>,
    /// The slot of every orphan.
    slots: HashMap<u64, u64>,
    /// The slots that are kept for held objects that are no orphans.
    spare: HashMap<u64, u64>,
    free_slots: Vec<u64>,
    /// Orphans that no handle keeps any more.
    abandoned: Vec<u64>,
}

impl Inner {
    fn size(&self) -> usize {
        self.held.len() + self.slots.len()
    }

    /// Keeps a slot that an object has no use for now: for it, if it is held, else for all.
    fn put_slot(&mut self, object: u64, slot: u64) {
        let has_one = self.slots.contains_key(&object) || self.spare.contains_key(&object);
        if self.held.contains_key(&object) && !has_one {
            self.spare.insert(object, slot);
        } else {
            self.free_slots.push(slot);
        }
    }
}

impl Handles {
    /// Reads the orphan slots: all that are in use are of processes that are gone.
    pub(crate) fn read(region: &Region, heap_off: u64) -> Result<Handles> {
        let mut inner = Inner::default();
        for_each_slot(
            region,
            heap_off,
            |_| Ok(()),
            |slot, object| {
                if object == 0 {
                    inner.free_slots.push(slot);
                } else {
                    inner.slots.insert(object, slot);
                    inner.abandoned.push(object);
                }
                Ok(())
            },
        )?;
        let busy = AtomicUsize::new(inner.size());
        Ok(Handles { inner: Mutex::new(inner), busy })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let result = change(&mut inner);
        self.busy.store(inner.size(), Ordering::Release);
        result
    }

    /// Whether there is any handle or orphan.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0
    }

    pub(crate) fn holds(&self, object: u64) -> bool {
        self.is_busy() && self.inner.lock().held.contains_key(&object)
    }

    /// Counts a handle. The caller owns the object's count record, so that nobody decides about its death meanwhile.
    pub(crate) fn hold(&self, object: u64) {
        self.with(|inner| *inner.held.entry(object).or_default() += 1);
    }

    /// Counts a handle less.
    pub(crate) fn release(&self, object: u64) {
        self.with(|inner| {
            let left = inner.held.get_mut(&object).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                inner.held.remove(&object);
                if let Some(slot) = inner.spare.remove(&object) {
                    inner.free_slots.push(slot);
                }
                if inner.slots.contains_key(&object) {
                    inner.abandoned.push(object);
                }
            }
        });
    }

    /// The slot of an orphan.
    pub(crate) fn slot_of(&self, object: u64) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        self.inner.lock().slots.get(&object).copied()
    }

    /// A slot for an object that is held and is to be an orphan, unless it is one already.
    pub(crate) fn find_slot(&self, object: u64) -> FoundSlot {
        self.with(|inner| match inner.slots.get(&object) {
            Some(_) => FoundSlot::HasOne,
            None => {
                let slot = inner.spare.remove(&object).or_else(|| inner.free_slots.pop());
                slot.map_or(FoundSlot::NoneFree, FoundSlot::Free)
            }
        })
    }

    /// A slot to be kept for an object that is going to be held, unless it has one.
    pub(crate) fn find_spare(&self, object: u64) -> FoundSlot {
        self.with(|inner| {
            if inner.slots.contains_key(&object) || inner.spare.contains_key(&object) {
                return FoundSlot::HasOne;
            }
            inner.free_slots.pop().map_or(FoundSlot::NoneFree, FoundSlot::Free)
        })
    }

    /// Takes a slot back that was found for an object, or keeps it for that.
    pub(crate) fn put_slot(&self, object: u64, slot: u64) {
        self.with(|inner| inner.put_slot(object, slot));
    }

    /// After the commit that made an object an orphan, with this slot: nobody may hold it any more.
    pub(crate) fn make_orphan(&self, object: u64, slot: u64) {
        self.with(|inner| {
            inner.slots.insert(object, slot);
            if !inner.held.contains_key(&object) {
                inner.abandoned.push(object);
            }
        });
    }

    /// Forgets an orphan: it died, or a pointer leads to it again.
    pub(crate) fn forget_orphan(&self, object: u64) {
        self.with(|inner| {
            if let Some(slot) = inner.slots.remove(&object) {
                inner.put_slot(object, slot);
            }
        });
    }

    pub(crate) fn add_slots(&self, slots: impl IntoIterator<Item = u64>) {
        self.with(|inner| inner.free_slots.extend(slots));
    }

    /// Takes a few of the orphans that no handle keeps any more.
    pub(crate) fn take_abandoned(&self, most: usize) -> Vec<u64> {
        if !self.is_busy() {
            return Vec::new();
        }
        self.with(|inner| {
            let kept = inner.abandoned.len().saturating_sub(most);
            inner.abandoned.split_off(kept)
        })
    }

    /// Gives them back, after a commit that failed.
    pub(crate) fn put_abandoned(&self, objects: impl IntoIterator<Item = u64>) {
        self.with(|inner| {
            let Inner { slots, abandoned, .. } = inner;
            abandoned.extend(objects.into_iter().filter(|object| slots.contains_key(object)));
        });
    }
}

/// Calls `block` with every block of orphan slots, and `found` with every slot and what it holds.
pub(crate) fn for_each_slot(
    region: &Region,
    heap_off: u64,
    mut block: impl FnMut(u64) -> Result<()>,
    mut found: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let mut off = region.load_u64(heap_off + offset_of!(PmHeap, orphans) as u64)?;
    let most = region.len() / size_of::<PmOrphans>() as u64;
    for _ in 0..=most {
        if off == 0 {
            return Ok(());
        }
        block(off)?;
        for slot in 0..ORPHAN_SLOTS {
            let at = off + offset_of!(PmOrphans, slots) as u64 + 8 * slot;
            found(at, region.load_u64(at)?)?;
        }
        off = region.load_u64(off)?;
    }
    Err(corrupt("the blocks of orphan slots", off, "an end", "a circle"))
}

impl<'t, B: Brand> Tx<'t, B> {
    /// Makes a handle of an object, which counts from the commit on. Also an object without a pointer to it may be held. The commit keeps eight bytes in the
    /// file for an object that is held, so that its last pointer can be taken away in a full pool too.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; the pool's own.
    pub fn hold<T: Persist>(&mut self, object: Obj<'t, B, T>) -> Result<Handle<B, T>> {
        let off = object.object_off();
        let handles = self.core.handles.clone();
        let shared = Arc::new(Shared { handles, off, counts: AtomicBool::new(false) });
        session_of(self.core, self.state)?.held.push(Claim { shared: shared.clone() });
        Ok(Handle { shared, of: PhantomData })
    }
}

impl<'t, B: Brand> ReadTx<'t, B> {
    /// The object of a handle.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if the handle comes from a transaction that was not committed; [`Error::ClosedHandle`] if its heap was closed and opened
    /// again; [`Error::Conflict`].
    pub fn enter<H: SameHeap<B>, T: Persist>(&self, handle: &Handle<H, T>) -> Result<Obj<'t, B, T>> {
        if !Arc::ptr_eq(&handle.shared.handles, &self.core.handles) {
            return Err(Error::ClosedHandle { handle: format!("{handle:?}").into() });
        }
        if !handle.shared.counts.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        // That it is alive is read as everything else is: the handle may be dropped before the transaction is committed.
        if !self.is_alive(handle.shared.off)? {
            return self.state.conflict();
        }
        Ok(self.object(handle.shared.off))
    }
}
