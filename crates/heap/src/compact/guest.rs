//! The heap of a pool, for a step of a compaction: the one that a program has open, or else one that is
//! opened for the step, without the program's types.
//!
//! A program that opens or closes the heap meanwhile waits for the end of the step. It does not notice the
//! step: a heap counts as in use only while a program has it.

use crate::check::{find, is_migrating};
use crate::error::Result;
use crate::objects::types::Types;
use crate::stm::shared::HeapShared;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tembo_pmem::OfProcess;
use tembo_pool::Pool;
use tembo_sync::back_off;

static HEAPS: Mutex<Heaps> = Mutex::new(Heaps { open: Vec::new(), steps: 0 });

struct Heaps {
    /// The heaps that programs have open, and some that they have closed.
    open: Vec<Weak<OfProcess<HeapShared>>>,
    /// The number of steps under way.
    steps: usize,
}

/// Notes a heap that a program opens.
pub(crate) fn note_open(shared: &Arc<OfProcess<HeapShared>>) {
    let mut heaps = HEAPS.lock();
    heaps.open.retain(|open| open.strong_count() > 0);
    heaps.open.push(Arc::downgrade(shared));
}

/// Takes a resource that one heap has at a time; `None` if a heap that belongs to no step has it.
pub(crate) fn unless_moved<T>(take: impl Fn() -> Option<T>) -> Option<T> {
    for round in 0.. {
        let heaps = HEAPS.lock();
        let taken = take();
        if taken.is_some() || heaps.steps == 0 {
            return taken;
        }
        drop(heaps);
        back_off(round);
    }
    None
}

/// A heap for the length of a step.
pub(super) struct Guest {
    /// `None` only while it is dropped.
    shared: Option<Arc<OfProcess<HeapShared>>>,
}

impl Guest {
    /// The heap of a pool; `None` if there is none, or it is being opened or migrated.
    pub(super) fn of(pool: &Pool) -> Result<Option<Guest>> {
        pool.check_process()?;
        let mut heaps = HEAPS.lock();
        let is_it = |open: &Arc<OfProcess<HeapShared>>| !open.was_left_behind() && open.pool.is_same(pool);
        let open = heaps.open.iter().filter_map(Weak::upgrade).find(is_it);
        let shared = match open {
            Some(open) => open,
            None => match open_without_types(pool)? {
                Some(shared) => Arc::new(OfProcess::new(shared)),
                None => return Ok(None),
            },
        };
        heaps.steps += 1;
        Ok(Some(Guest { shared: Some(shared) }))
    }

    pub(super) fn shared(&self) -> &HeapShared {
        self.shared.as_ref().expect("until it is dropped")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut heaps = HEAPS.lock();
        // Within the lock, so that no thread finds the heap in use and no step under way.
        self.shared = None;
        heaps.steps -= 1;
    }
}

fn open_without_types(pool: &Pool) -> Result<Option<HeapShared>> {
    let Some(off) = find(pool)? else { return Ok(None) };
    if pool.is_read_only() || is_migrating(pool.region(), off)? {
        return Ok(None);
    }
    let Some(hold) = pool.hold(0) else { return Ok(None) };
    let types = Types::read(pool.region(), off, |_, _| Ok(()))?;
    HeapShared::open_alone(pool.clone(), off, types, hold).map(Some)
}
