//! Transactions stay on their thread, and places in a variant end with the variant.

use crate::objects::brand::{Brand, OfAnyThread};
use crate::objects::place::Ref;
use crate::tx::read::ReadTx;
use std::marker::PhantomData;

// SAFETY: no type implements `OfAnyThread`, so this never applies. Without it the compiler would report an
// error for each other field.
unsafe impl<B: Brand> Send for ReadTx<'_, B> where PhantomData<B>: OfAnyThread {}
// SAFETY: as above.
unsafe impl<B: Brand> Sync for ReadTx<'_, B> where PhantomData<B>: OfAnyThread {}

impl<'t, B: Brand, T> Ref<'t, B, T> {
    /// The place, valid until a value with variants is written. `#[derive(Persist)]` makes the places in a
    /// variant of it, which are invalid once another variant lies there.
    ///
    /// # Safety
    ///
    /// A `T` lies here now: the caller has just read here by [`get`](crate::ReadTx::get), which refuses a
    /// place in a variant that was replaced.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn __as_now(mut self, tx: &ReadTx<'t, B>) -> Ref<'t, B, T> {
        self.stamp = tx.active.stamp();
        self
    }
}
