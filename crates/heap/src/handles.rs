//! Handles: volatile references that keep objects alive from one transaction to the next.
//!
//! The counts of handles are in memory only, so a crash ends all handles. An object that only handles keep
//! alive is an *orphan*. The commit that removes its last pointer writes its offset to an orphan slot on
//! media, so that the next opening of the heap can release it.
//!
//! A handle shares the counts, but does not keep the heap open: dropping the heap closes it. Handles that are
//! left lead nowhere, and the heap refuses them after its next opening.
//!
//! A held object has an orphan slot from the commit of its first handle on, whether it is an orphan or not.
//! Its last pointer can therefore be removed even in a full pool.

use crate::error::{Result, corrupt};
use crate::layout::{ORPHAN_SLOTS, PmHeap, PmOrphans};
use crate::objects::brand::Brand;
use crate::objects::persist::Persist;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tembo_pmem::{OfProcess, Region, offset_of};

/// Keeps an object alive outside of transactions; [`enter`](crate::ReadTx::enter) gives the object back.
///
/// It may be sent to other threads, kept in structs, and cloned. When the last clone is dropped and no
/// pointer leads to the object, the object dies with one of the next commits. If the heap is closed before,
/// it dies after the next opening.
///
/// A handle does not keep its heap open. A handle that is left when the heap is dropped is useless: the
/// object lives on only if a pointer leads to it, and [`enter`](crate::ReadTx::enter) refuses the handle
/// after the next opening.
pub struct Handle<B: Brand, T> {
    object: Arc<HeldObject>,
    of: Of<B, T>,
}

/// Ties a handle to a heap and a type, and to no thread.
pub(crate) type Of<B, T> = PhantomData<(fn(B) -> B, fn() -> T)>;

// A transaction that panics changes no handle.
impl<B: Brand, T> std::panic::UnwindSafe for Handle<B, T> {}
impl<B: Brand, T> std::panic::RefUnwindSafe for Handle<B, T> {}

impl<B: Brand, T> Clone for Handle<B, T> {
    fn clone(&self) -> Self {
        Handle { object: self.object.clone(), of: PhantomData }
    }
}

impl<B: Brand, T> Handle<B, T> {
    /// A handle that does not count yet, and the transaction's share of it.
    pub(crate) fn new(handles: Arc<OfProcess<Handles>>, off: u64) -> (Handle<B, T>, NewHandle) {
        let object = Arc::new(HeldObject { handles, off, counts: AtomicBool::new(false) });
        (Handle { object: object.clone(), of: PhantomData }, NewHandle { object })
    }

    /// Whether the handle was made in this opening of the heap.
    pub(crate) fn is_of(&self, handles: &Arc<OfProcess<Handles>>) -> bool {
        Arc::ptr_eq(&self.object.handles, handles)
    }

    /// Whether the transaction that made the handle was committed.
    pub(crate) fn counts(&self) -> bool {
        self.object.counts.load(Ordering::Acquire)
    }

    /// The object's offset.
    pub(crate) fn off(&self) -> u64 {
        self.object.off
    }
}

impl<B: Brand, T: Persist> std::fmt::Debug for Handle<B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({} at {:#x})", T::name(), self.object.off)
    }
}

/// The state that the clones of a handle share.
struct HeldObject {
    /// The handles of the opening in which this one was made.
    handles: Arc<OfProcess<Handles>>,
    off: u64,
    /// Whether the transaction that made the handle was committed.
    counts: AtomicBool,
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        if *self.counts.get_mut() && !self.handles.was_left_behind() {
            self.handles.release(self.off);
        }
    }
}

/// A handle that a running transaction has made.
#[derive(Clone)]
pub(crate) struct NewHandle {
    object: Arc<HeldObject>,
}

impl std::fmt::Debug for NewHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewHandle({:#x})", self.object.off)
    }
}

impl NewHandle {
    pub(crate) fn off(&self) -> u64 {
        self.object.off
    }

    /// Makes the handle count: its transaction was committed. Follows [`Handles::hold`].
    pub(crate) fn confirm(&self) {
        self.object.counts.store(true, Ordering::Release);
    }
}

/// The result of [`Handles::find_slot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundSlot {
    HasOne,
    Free(u64),
    NoneFree,
}

/// The handles of a heap.
#[derive(Debug)]
pub(crate) struct Handles {
    tables: Mutex<HandleTables>,
    /// The number of held objects and orphans. While it is 0 no caller takes the lock.
    busy: AtomicUsize,
}

#[derive(Debug, Default)]
struct HandleTables {
    /// The number of handles of each object.
    held: HashMap<u64, usize>,
    /// The slot of every orphan.
    slots: HashMap<u64, u64>,
    /// The slots that are kept for held objects that are no orphans.
    spare: HashMap<u64, u64>,
    free_slots: Vec<u64>,
    /// Orphans without a handle.
    abandoned: Vec<u64>,
}

impl HandleTables {
    fn size(&self) -> usize {
        self.held.len() + self.slots.len()
    }

    /// Returns a slot that was found for an object: keeps it for that object if handles hold it, otherwise
    /// makes it free for any object.
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
    /// Reads the orphan slots. Those in use are from processes that have ended.
    pub(crate) fn read(region: &Region, heap_off: u64) -> Result<Handles> {
        let mut tables = HandleTables::default();
        for_each_slot(
            region,
            heap_off,
            |_| Ok(()),
            |slot, object| {
                if object == 0 {
                    tables.free_slots.push(slot);
                } else {
                    tables.slots.insert(object, slot);
                    tables.abandoned.push(object);
                }
                Ok(())
            },
        )?;
        let busy = AtomicUsize::new(tables.size());
        Ok(Handles { tables: Mutex::new(tables), busy })
    }

    fn with<T>(&self, change: impl FnOnce(&mut HandleTables) -> T) -> T {
        let mut tables = self.tables.lock();
        let result = change(&mut tables);
        self.busy.store(tables.size(), Ordering::Release);
        result
    }

    /// Whether there is any handle or orphan.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0
    }

    pub(crate) fn holds(&self, object: u64) -> bool {
        self.is_busy() && self.tables.lock().held.contains_key(&object)
    }

    /// Counts a handle. The caller owns the object's count record, so that no commit decides about its death
    /// meanwhile.
    pub(crate) fn hold(&self, object: u64) {
        self.with(|tables| *tables.held.entry(object).or_default() += 1);
    }

    /// Removes a handle from the count.
    pub(crate) fn release(&self, object: u64) {
        self.with(|tables| {
            let left = tables.held.get_mut(&object).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                tables.held.remove(&object);
                if let Some(slot) = tables.spare.remove(&object) {
                    tables.free_slots.push(slot);
                }
                if tables.slots.contains_key(&object) {
                    tables.abandoned.push(object);
                }
            }
        });
    }

    /// The objects that only handles keep alive, or that they kept when the heap was last in use.
    pub(crate) fn orphans(&self) -> Vec<u64> {
        if self.is_busy() { self.tables.lock().slots.keys().copied().collect() } else { Vec::new() }
    }

    /// The slot of an orphan.
    pub(crate) fn slot_of(&self, object: u64) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        self.tables.lock().slots.get(&object).copied()
    }

    /// Finds a slot for a held object that becomes an orphan, unless it is one already.
    pub(crate) fn find_slot(&self, object: u64) -> FoundSlot {
        self.with(|tables| match tables.slots.get(&object) {
            Some(_) => FoundSlot::HasOne,
            None => {
                let slot = tables.spare.remove(&object).or_else(|| tables.free_slots.pop());
                slot.map_or(FoundSlot::NoneFree, FoundSlot::Free)
            }
        })
    }

    /// Finds a slot to keep for an object that is going to be held, unless it has one.
    pub(crate) fn find_spare(&self, object: u64) -> FoundSlot {
        self.with(|tables| {
            if tables.slots.contains_key(&object) || tables.spare.contains_key(&object) {
                return FoundSlot::HasOne;
            }
            tables.free_slots.pop().map_or(FoundSlot::NoneFree, FoundSlot::Free)
        })
    }

    /// Returns a slot that was found for an object: keeps it for that object if handles hold it, otherwise
    /// makes it free for any object.
    pub(crate) fn put_slot(&self, object: u64, slot: u64) {
        self.with(|tables| tables.put_slot(object, slot));
    }

    /// Notes an orphan after the commit that made it one. It may have lost its handles meanwhile.
    pub(crate) fn make_orphan(&self, object: u64, slot: u64) {
        self.with(|tables| {
            tables.slots.insert(object, slot);
            if !tables.held.contains_key(&object) {
                tables.abandoned.push(object);
            }
        });
    }

    /// Removes an orphan: it died, or a pointer leads to it again.
    pub(crate) fn forget_orphan(&self, object: u64) {
        self.with(|tables| {
            if let Some(slot) = tables.slots.remove(&object) {
                tables.put_slot(object, slot);
            }
        });
    }

    pub(crate) fn add_slots(&self, slots: impl IntoIterator<Item = u64>) {
        self.with(|tables| tables.free_slots.extend(slots));
    }

    /// Takes a few of the orphans without handles.
    pub(crate) fn take_abandoned(&self, most: usize) -> Vec<u64> {
        if !self.is_busy() {
            return Vec::new();
        }
        self.with(|tables| {
            let kept = tables.abandoned.len().saturating_sub(most);
            tables.abandoned.split_off(kept)
        })
    }

    /// Puts orphans back after a commit that failed.
    pub(crate) fn put_abandoned(&self, objects: impl IntoIterator<Item = u64>) {
        self.with(|tables| {
            let HandleTables { slots, abandoned, .. } = tables;
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
