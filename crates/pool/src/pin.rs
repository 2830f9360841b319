//! Guards of an open pool: pins, which keep freed memory from being reused, and claims of objects that may be
//! open only once.

use crate::Result;
use crate::inner::{Pool, PoolInner};
use std::marker::PhantomData;
use std::sync::Arc;
use tembo_pmem::{OfProcess, Region};
use tembo_sync::{Epochs, PinSlot};

/// While a pin lives, memory that is freed is not reused.
///
/// Pinning costs about ten nanoseconds and never waits. A pin may be sent to another thread. A pin that lives
/// long makes freed memory pile up.
pub struct Pin {
    inner: Arc<OfProcess<PoolInner>>,
    slot: PinSlot<'static>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inner.log.epochs.unpin(self.slot);
    }
}

impl Pin {
    /// The memory of the pool that is pinned.
    pub fn region(&self) -> &Region {
        &self.inner.log.region
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// A pin that lives no longer than a borrow of its pool, and stays on its thread.
pub struct BriefPin<'p> {
    epochs: &'p Epochs,
    slot: PinSlot<'p>,
    thread: PhantomData<*const ()>,
}

impl Drop for BriefPin<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.epochs.unpin(self.slot);
    }
}

impl std::fmt::Debug for BriefPin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BriefPin")
    }
}

impl BriefPin<'_> {
    /// Whether this pins the memory of the pool.
    #[inline(always)]
    pub fn is_of(&self, pool: &Pool) -> bool {
        std::ptr::eq(self.epochs, &pool.inner.log.epochs)
    }
}

/// The claim of an object ([`Pool::claim`], [`Pool::hold`]): no other code of this process can open it until
/// this is dropped.
pub struct OpenGuard {
    pool: Pool,
    off: u64,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        if !self.pool.was_left_behind() {
            self.pool.inner.open_objects.lock().remove(&self.off);
        }
    }
}

impl OpenGuard {
    /// Ends the current epoch, and returns it. Memory that was made unreachable before this call has no
    /// readers as soon as [`oldest_pin`](Self::oldest_pin) is higher. Only for guards of [`Pool::claim`].
    ///
    /// For memory that structures keep outside of the pool; the pool's own blocks wait in limbo.
    pub fn end_epoch(&self) -> u64 {
        let log = &self.pool.inner.log;
        debug_assert!(log.line_owners.is_on(), "a lane may end epochs without a locked instruction");
        log.epochs.retire(false)
    }

    /// The epoch of the oldest pin, or the current epoch if nothing is pinned.
    pub fn oldest_pin(&self) -> u64 {
        self.pool.inner.log.epochs.safe_before()
    }
}

impl std::fmt::Debug for OpenGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenGuard").field("off", &self.off).finish_non_exhaustive()
    }
}

impl Pool {
    /// Pins the current epoch.
    #[inline]
    pub fn pin(&self) -> Pin {
        Pin { slot: self.inner.log.epochs.pin(), inner: self.inner.clone() }
    }

    /// As [`pin`](Self::pin), for a short time on one thread. It does not keep the pool open, and costs no
    /// locked instruction.
    #[inline(always)]
    pub fn pin_briefly(&self) -> BriefPin<'_> {
        let epochs = &self.inner.log.epochs;
        BriefPin { slot: epochs.pin_briefly(), epochs, thread: PhantomData }
    }

    /// As [`pin_briefly`](Self::pin_briefly) if a few instructions suffice, as they mostly do; else `None`.
    #[inline(always)]
    pub fn try_pin_briefly(&self) -> Option<BriefPin<'_>> {
        let epochs = &self.inner.log.epochs;
        epochs.try_pin_briefly().map(|slot| BriefPin { slot, epochs, thread: PhantomData })
    }

    /// As [`pin_briefly`](Self::pin_briefly), for concurrent writers. It costs a locked instruction, but does
    /// not need the barriers across all threads that other brief pins cause now and then.
    #[inline]
    pub fn pin_for_writing(&self) -> BriefPin<'_> {
        let epochs = &self.inner.log.epochs;
        BriefPin { slot: epochs.pin(), epochs, thread: PhantomData }
    }

    /// Whether both are the same open pool.
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether the block at `off` is still allocated, which the caller has found allocated since `pin` began.
    /// The pin keeps others from being there. A commit of another thread that has not returned may or may not
    /// count.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if no block starts there.
    pub fn is_still_allocated(&self, pin: &Pin, off: u64) -> Result<bool> {
        debug_assert!(Arc::ptr_eq(&self.inner, &pin.inner), "a pin of another pool");
        self.inner.alloc.is_allocated(self.region(), off)
    }

    /// Claims an object for a structure that keeps volatile state for it, such as locks, so that one process
    /// does not open it twice; `None` if it is open already. The guard may [end
    /// epochs](OpenGuard::end_epoch).
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn claim(&self, off: u64) -> Result<Option<OpenGuard>> {
        self.check_process()?;
        let log = &self.inner.log;
        // ORDER: from here on no lane treats itself as the only one, so a guard can end epochs concurrently.
        log.line_owners.turn_on(log.lanes(), 0)?;
        Ok(self.open_once(off))
    }

    /// As [`claim`](Self::claim), for a structure that ends no epochs. It costs the pool's writers nothing.
    pub fn hold(&self, off: u64) -> Option<OpenGuard> {
        self.assert_process();
        self.open_once(off)
    }

    fn open_once(&self, off: u64) -> Option<OpenGuard> {
        self.inner.open_objects.lock().insert(off).then(|| OpenGuard { pool: self.clone(), off })
    }
}
