//! The files of `src/alloc`, and a model of its table of slabs; what a test asks the allocator besides.

pub(super) use super::primitives;

#[path = "../../src/alloc/allocator.rs"]
mod allocator;
#[path = "../../src/alloc/arena.rs"]
mod arena;
#[path = "../../src/alloc/block.rs"]
mod block;
#[path = "../../src/alloc/chunks.rs"]
mod chunks;
#[path = "../../src/alloc/classes.rs"]
mod classes;
#[path = "../../src/alloc/evacuation.rs"]
mod evacuation;
#[path = "../../src/alloc/slab.rs"]
mod slab;
#[path = "../../src/alloc/sparse.rs"]
mod sparse;
#[path = "../../src/alloc/tail.rs"]
mod tail;
#[path = "../../src/alloc/zone.rs"]
mod zone;

/// Slabs by their chunks. None ever goes, so that references stay valid.
mod table {
    use super::slab::{Slab, SlabRef};
    use std::ops::Range;
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex};

    #[derive(Debug)]
    pub(super) struct SlabTable(Mutex<Vec<(Range<u64>, Arc<Slab>)>>);

    pub(super) struct TablePin;

    impl SlabTable {
        pub(super) fn new(_: u64) -> SlabTable {
            SlabTable(Mutex::new(Vec::new()))
        }

        pub(super) fn pin(&self) -> TablePin {
            TablePin
        }

        pub(super) fn get(&self, chunk: u64) -> Option<Arc<Slab>> {
            let slabs = self.0.lock().unwrap();
            slabs.iter().find(|(chunks, _)| chunks.contains(&chunk)).map(|(_, slab)| slab.clone())
        }

        pub(super) fn has(&self, chunk: u64) -> bool {
            self.get(chunk).is_some()
        }

        pub(super) fn look<T>(&self, chunk: u64, body: impl FnOnce(SlabRef) -> T) -> Option<T> {
            let slab = self.get(chunk)?;
            // SAFETY: the table has a share, which stays.
            Some(body(unsafe { SlabRef::new(NonNull::from(&*slab)) }))
        }

        pub(super) fn insert(&self, slab: Slab, chunks: Range<u64>) -> Option<Arc<Slab>> {
            let slab = Arc::new(slab);
            self.0.lock().unwrap().push((chunks, slab.clone()));
            Some(slab)
        }

        pub(super) fn remove<'s>(&self, slabs: impl Iterator<Item = (&'s Slab, Range<u64>)>) {
            assert_eq!(slabs.count(), 0, "no model frees chunks");
        }

        pub(super) fn all(&self) -> Vec<Arc<Slab>> {
            self.0.lock().unwrap().iter().map(|(_, slab)| slab.clone()).collect()
        }
    }
}

pub(crate) use allocator::Allocator;
pub(crate) use arena::Arena;
pub(crate) use block::{Block, Home, Room, Wanted};
pub(crate) use chunks::full;
pub(crate) use classes::Classes;
use slab::Slab;
pub(crate) use sparse::CloseLimits;
use std::sync::Arc;
pub(crate) use tail::CutRule;

impl Allocator {
    /// Lets the next compaction empty a run of this many chunks.
    pub(crate) fn miss(&self, chunks: u64) {
        self.shared.lock().missed_chunks = chunks;
    }

    /// Forgets which run is being emptied.
    pub(crate) fn forget_run(&self) {
        self.shared.lock().evacuated = None;
    }

    /// Bits of the blocks that are not free in the slab whose blocks begin there.
    pub(crate) fn busy_at(&self, first_off: u64) -> u64 {
        let slab = self.slabs.get(self.geometry.chunk_key(first_off)).unwrap();
        slab.busy_words()[0]
    }

    /// Fails unless each slab with free blocks is in one list or arena, and a full one in no list.
    pub(crate) fn take_census(&self, arenas: &[&Arena]) {
        let shared = self.shared.lock();
        let in_arenas = |slab: &Arc<Slab>| {
            let in_one = |arena: &&Arena| {
                let slabs = arena.current.iter().flatten().chain(&arena.pending);
                slabs.filter(|other| Arc::ptr_eq(other, slab)).count()
            };
            arenas.iter().map(in_one).sum::<usize>()
        };
        for slab in self.slabs.all() {
            let listed = shared.partial.iter().flatten().chain(&shared.closed);
            let places = listed.filter(|other| Arc::ptr_eq(other, &slab)).count() + in_arenas(&slab);
            assert!(places <= 1, "two have a slab");
            assert!(places == 1 || !slab.has_free_block(), "a slab with free blocks is lost");
        }
    }
}

impl Block {
    /// Sets or clears its bit on media, as a commit does.
    pub(crate) fn commit(&self, region: &tembo_pmem::Region, is_there: bool) {
        let Home::Slab(slab, index) = &self.home else { unreachable!("a block of a slab") };
        slab.set_published();
        slab.change_media(region, slab.bit(*index), is_there, false).unwrap();
    }
}
