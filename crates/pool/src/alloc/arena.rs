//! The slabs that a lane holds.

use super::slab::{Slab, SlabRef};
use std::sync::Arc;

/// The slabs that a lane allocates from, by class.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pub(super) current: Vec<Option<Arc<Slab>>>,
    /// Slabs that the lane no longer needs, but that its transaction may have to publish. Two lanes must not
    /// publish one slab at once, so no other lane gets these before the transaction is over.
    pub(super) pending: Vec<Arc<Slab>>,
    /// The number of the last recall that the lane has answered.
    pub(super) recalls: u64,
}

impl Arena {
    #[inline]
    pub(crate) fn has_none_pending(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes back a slab of the class that was given up in this transaction and has a free block.
    pub(super) fn take_pending(&mut self, class: usize) -> Option<Arc<Slab>> {
        let fits = |slab: &Arc<Slab>| slab.class_number == class && slab.has_free_block();
        let at = self.pending.iter().position(fits)?;
        Some(self.pending.swap_remove(at))
    }

    pub(super) fn is_current(&self, slab: &SlabRef) -> bool {
        let current = self.current.get(slab.class_number).and_then(Option::as_ref);
        current.is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), &**slab))
    }
}
