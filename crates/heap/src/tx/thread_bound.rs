//! Transactions stay on their thread, and places in a variant end with the variant.

use crate::objects::brand::{Brand, OfAnyThread};
use crate::objects::place::Ref;
use crate::tx::read::ReadTx;
use std::marker::PhantomData;

// SAFETY: nothing is `OfAnyThread`, so that nothing may be sent by this; its other fields would each be named by an error of its own.
unsafe impl<B: Brand> Send for ReadTx<'_, B> where PhantomData<B>: OfAnyThread {}
// SAFETY: as above.
unsafe impl<B: Brand> Sync for ReadTx<'_, B> where PhantomData<B>: OfAnyThread {}

impl<'t, B: Brand, T> Ref<'t, B, T> {
    /// The place, as it is before anything else is written: what `#[derive(Persist)]` makes the places in a variant from, which are no longer
    /// what they were once another variant lies there.
    ///
    /// # Safety
    ///
    /// A `T` lies here now: the caller has just read here by [`get`](crate::ReadTx::get), which refuses a place in a variant that is gone.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn __as_now(mut self, tx: &ReadTx<'t, B>) -> Ref<'t, B, T> {
        self.stamp = tx.active.stamp();
        self
    }
}
