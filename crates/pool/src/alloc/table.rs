//! The slab table: which slab a chunk belongs to.
//!
//! A lane that frees a block looks its slab up here without a lock. Insertions and removals are rare and take
//! the table's own lock.
//!
//! ORDER: a slab is complete before the table leads to it: the insertion stores with release, a lookup loads
//! with acquire. A lookup is pinned in the table's epochs; a slab that is removed is retired there and stays
//! until no lookup can see it.

use super::slab::{Slab, SlabRef};
use parking_lot::Mutex;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use tembo_sync::{Epochs, PinSlot};

/// Chunks of a leaf, which takes a page. With chunks of the usual size a leaf stands for 8 MiB of the pool.
const LEAF_CHUNKS: usize = 1 << 9;

/// While a pin lives, slabs that were in the table when it began stay alive, also if they are removed.
pub(super) struct TablePin<'t> {
    epochs: &'t Epochs,
    place: PinSlot<'t>,
    /// The pin must not leave its thread.
    thread: PhantomData<*const ()>,
}

impl Drop for TablePin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.epochs.unpin(self.place);
    }
}

/// The slab of each chunk. All chunks of a slab have the same pointer; together they own one share of the
/// `Arc`.
type Leaf = [AtomicPtr<Slab>; LEAF_CHUNKS];

/// The slabs that the process knows, by chunk number; chunks are numbered through the file.
pub(crate) struct SlabTable {
    /// A leaf is made when the first slab in it is inserted. Pages of this array that lead to no leaf are not
    /// in memory.
    leaves: Box<[AtomicPtr<Leaf>]>,
    epochs: Epochs,
    /// Removed slabs, each with the epoch of its removal. Every change of the table takes this lock.
    removed: Mutex<Vec<(u64, Arc<Slab>)>>,
}

impl SlabTable {
    /// A table for a file of up to this many chunks.
    pub(crate) fn new(chunks: u64) -> SlabTable {
        let leaves = (chunks as usize).div_ceil(LEAF_CHUNKS);
        SlabTable {
            leaves: bytemuck::zeroed_slice_box(leaves),
            epochs: Epochs::default(),
            removed: Mutex::new(Vec::new()),
        }
    }

    #[inline]
    fn leaf(&self, chunk: u64) -> Option<&Leaf> {
        let leaf = self.leaves.get(chunk as usize / LEAF_CHUNKS)?.load(Ordering::Acquire);
        // SAFETY: a leaf stays as long as the table.
        unsafe { leaf.as_ref() }
    }

    #[inline]
    fn entry(&self, chunk: u64) -> *mut Slab {
        self.leaf(chunk).map_or(null_mut(), |leaf| leaf[chunk as usize % LEAF_CHUNKS].load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn pin(&self) -> TablePin<'_> {
        TablePin { epochs: &self.epochs, place: self.epochs.pin_briefly(), thread: PhantomData }
    }

    /// Whether this chunk belongs to a known slab.
    pub(crate) fn has(&self, chunk: u64) -> bool {
        !self.entry(chunk).is_null()
    }

    /// Calls `body` with the slab of a chunk, if it is known. The reference is valid until `body` returns; if
    /// `body` has claimed a block of the slab, until that block is released.
    #[inline]
    pub(crate) fn look<T>(&self, chunk: u64, body: impl FnOnce(SlabRef) -> T) -> Option<T> {
        let _pin = self.pin();
        // SAFETY: the slab stays as long as the pin lives, and as long as a block of it is claimed, as said
        // above.
        NonNull::new(self.entry(chunk)).map(|slab| body(unsafe { SlabRef::new(slab) }))
    }

    /// The slab of a chunk, if it is known.
    pub(crate) fn get(&self, chunk: u64) -> Option<Arc<Slab>> {
        self.look(chunk, |slab| slab.counted())
    }

    /// Inserts a slab; `None` if one of its chunks lies outside of the file or belongs to another slab.
    pub(crate) fn insert(&self, slab: Slab, chunks: Range<u64>) -> Option<Arc<Slab>> {
        let _changing = self.removed.lock();
        let entries: Option<Vec<&AtomicPtr<Slab>>> = chunks
            .map(|chunk| {
                let leaf = self.leaf(chunk).or_else(|| self.make_leaf(chunk))?;
                Some(&leaf[chunk as usize % LEAF_CHUNKS])
            })
            .collect();
        let entries = entries?;
        if entries.is_empty() || entries.iter().any(|entry| !entry.load(Ordering::Relaxed).is_null()) {
            return None;
        }
        let slab = Arc::new(slab);
        let share = Arc::into_raw(slab.clone()).cast_mut();
        entries.iter().for_each(|entry| entry.store(share, Ordering::Release));
        Some(slab)
    }

    /// The leaf of a chunk, made if there is none. The caller holds the table's lock.
    #[cold]
    fn make_leaf(&self, chunk: u64) -> Option<&Leaf> {
        let place = self.leaves.get(chunk as usize / LEAF_CHUNKS)?;
        let leaf = Box::into_raw(bytemuck::zeroed_box::<Leaf>());
        place.store(leaf, Ordering::Release);
        // SAFETY: it was just made, and stays as long as the table.
        Some(unsafe { &*leaf })
    }

    /// Removes slabs that no lane holds and whose blocks are all free.
    pub(crate) fn remove<'s>(&self, slabs: impl Iterator<Item = (&'s Slab, Range<u64>)>) {
        let mut removed = self.removed.lock();
        for (slab, chunks) in slabs {
            let mut share = null_mut();
            for chunk in chunks {
                if let Some(leaf) = self.leaf(chunk) {
                    let entry = &leaf[chunk as usize % LEAF_CHUNKS];
                    if std::ptr::eq(entry.load(Ordering::Relaxed), slab) {
                        share = entry.swap(null_mut(), Ordering::AcqRel);
                    }
                }
            }
            if !share.is_null() {
                // SAFETY: `insert` made this share, and the table has just given it up.
                removed.push((self.epochs.retire(false), unsafe { Arc::from_raw(share) }));
            }
        }
        // This costs a barrier of all threads; one serves all removed slabs.
        let safe_before = self.epochs.safe_before();
        removed.retain(|(epoch, _)| *epoch >= safe_before);
    }
}

impl Drop for SlabTable {
    fn drop(&mut self) {
        let mut last = null_mut();
        for leaf in self.leaves.iter_mut().map(|leaf| *leaf.get_mut()).filter(|leaf| !leaf.is_null()) {
            // SAFETY: made by `make_leaf` of a box; no one looks at the table any more.
            let mut leaf = unsafe { Box::from_raw(leaf) };
            for slab in leaf.iter_mut().map(|entry| *entry.get_mut()).filter(|slab| !slab.is_null()) {
                if slab != last {
                    // SAFETY: the table's share, made by `insert`; the chunks of a slab follow each other.
                    drop(unsafe { Arc::from_raw(slab) });
                }
                last = slab;
            }
        }
    }
}

impl std::fmt::Debug for SlabTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlabTable").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::Classes;
    use super::*;
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    const CHUNK_BYTES: u64 = 4096;

    /// Inserts a slab at a chunk. Returns a weak reference, which tells whether the slab is still alive, and
    /// its chunks.
    fn put(table: &SlabTable, first: u64) -> Option<(Weak<Slab>, Range<u64>)> {
        let classes = Classes::new(CHUNK_BYTES, false, false);
        let number = classes.class_for(1000).unwrap();
        let class = *classes.get(number).unwrap();
        assert!(class.chunks > 1);
        let chunks = first..first + class.chunks;
        let slab = Slab::fresh(first * CHUNK_BYTES, 0, first, number, class, true);
        table.insert(slab, chunks.clone()).map(|slab| (Arc::downgrade(&slab), chunks))
    }

    fn remove(table: &SlabTable, slab: &Weak<Slab>, chunks: Range<u64>) {
        let slab = slab.upgrade().unwrap();
        table.remove([(&*slab, chunks)].into_iter());
    }

    #[test]
    fn all_chunks_of_a_slab_lead_to_it_and_no_others() {
        let leaf = LEAF_CHUNKS as u64;
        let table = SlabTable::new(2 * leaf);
        // The second lies in two leaves.
        let slabs = [10, leaf - 1].map(|first| put(&table, first).unwrap());
        for (slab, chunks) in &slabs {
            for chunk in chunks.clone() {
                assert!(Weak::ptr_eq(slab, &Arc::downgrade(&table.get(chunk).unwrap())));
                assert!(put(&table, chunk).is_none(), "in the place of another");
            }
            for chunk in [chunks.start - 1, chunks.end, chunks.start + leaf] {
                assert!(!table.has(chunk) && table.get(chunk).is_none());
            }
        }
        assert!(put(&table, 9).is_none() && !table.has(9), "one over another");
        assert!(put(&table, 2 * leaf - 1).is_none() && !table.has(2 * leaf - 1), "past the file");
        assert!(table.get(u64::MAX).is_none());
        assert!(slabs.iter().all(|(slab, _)| slab.strong_count() == 1));
        drop(table);
        assert!(slabs.iter().all(|(slab, _)| slab.strong_count() == 0));
    }

    #[test]
    fn what_is_taken_out_stays_as_long_as_somebody_may_look_at_it() {
        let table = SlabTable::new(100);
        let (slab, chunks) = put(&table, 10).unwrap();
        let (other, of_other) = put(&table, 50).unwrap();
        let pin = table.pin();
        remove(&table, &slab, chunks.clone());
        assert!(!chunks.clone().any(|chunk| table.has(chunk)));
        assert_eq!(slab.strong_count(), 1);
        assert!(put(&table, 10).is_some(), "its chunks are free");
        drop(pin);
        remove(&table, &other, of_other);
        assert_eq!((slab.strong_count(), other.strong_count()), (0, 0));
    }

    #[test]
    fn slabs_are_whole_while_others_take_them_out() {
        let table = SlabTable::new(100);
        let (done, most) = (AtomicBool::new(false), if cfg!(miri) { 20 } else { 20_000 });
        let met = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            let look = |met: &AtomicU64| {
                while !done.load(Ordering::Relaxed) {
                    let found = table.look(11, |slab| (slab.off, slab.blocks_span(), slab.free_blocks()));
                    if let Some((off, span, free)) = found {
                        assert!(off == 10 * CHUNK_BYTES && span.start > off && free == slab_blocks());
                        met.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            let lookers = met.each_ref().map(|met| scope.spawn(move || look(met)));
            for _ in 0..most {
                let (slab, chunks) = put(&table, 10).unwrap();
                remove(&table, &slab, chunks);
            }
            // Again and again, until each thread has met the slab or has failed.
            let (slab, chunks) = put(&table, 10).unwrap();
            let has_not = |met: &AtomicU64| met.load(Ordering::Relaxed) == 0;
            while met.iter().any(has_not) && !lookers.iter().any(|looker| looker.is_finished()) {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
            remove(&table, &slab, chunks);
        });
    }

    fn slab_blocks() -> u64 {
        let classes = Classes::new(CHUNK_BYTES, false, false);
        classes.get(classes.class_for(1000).unwrap()).unwrap().blocks
    }
}
