//! Brands: types that tell the compiler which heap a value belongs to.
//!
//! Every object and place of a transaction carries the brand of its heap, so a pointer of one heap cannot be
//! stored in another. Media has no brands.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Distinguishes the heaps of a program.
pub trait Brand {}

/// The brand of a heap that is open for the length of a closure. No other heap has it.
pub struct Scoped<'h>(PhantomData<fn(&'h ()) -> &'h ()>);

impl Brand for Scoped<'_> {}

/// A brand with a name, for heaps in long-lived structs. Made by [`brand!`](crate::brand).
///
/// # Safety
///
/// `is_open` always returns the same flag, and no other brand has that flag.
pub unsafe trait NamedBrand: Brand + 'static {
    /// Whether a heap with this brand is open.
    fn is_open() -> &'static AtomicBool;
}

/// Proves that a transaction and an object that it links have the same brand. A brand equals only itself.
#[diagnostic::on_unimplemented(
    message = "this belongs to the heap `{Self}`, and the transaction to the heap `{B}`",
    label = "of another heap than the transaction",
    note = "pointers do not lead from heap to heap: the other file may be absent, or another one, when they are followed",
    note = "call this on the transaction of the heap `{Self}`; to name an object of another heap, store a number or a key by which it \
            is found there"
)]
pub trait SameHeap<B>: Brand + same::Same<B> {}

impl<B: Brand> SameHeap<B> for B {}

/// Keeps programs from implementing [`SameHeap`] for two different brands.
mod same {
    pub trait Same<B> {}
    impl<B> Same<B> for B {}
}

/// States that a value may leave the thread of its transaction. No type implements it: its purpose is the
/// error.
#[diagnostic::on_unimplemented(
    message = "objects, places and transactions cannot go to another thread",
    label = "holds something of a transaction",
    note = "they belong to the transaction that runs on this thread, and end with it",
    note = "send a `Handle`: `tx.hold(object)` makes one, and a transaction of the other thread gets the object by `tx.enter(&handle)`; or send \
            values that were read"
)]
pub(crate) trait OfAnyThread {}

/// Makes a brand for a heap that is open at most once at a time.
///
/// ```
/// tembo_heap::brand!(pub Inventory);
/// struct Shop {
///     heap: tembo_heap::Heap<Inventory, u64>,
/// }
/// ```
#[macro_export]
macro_rules! brand {
    ($(#[$doc:meta])* $vis:vis $name:ident) => {
        $(#[$doc])*
        $vis enum $name {}
        impl $crate::Brand for $name {}
        // SAFETY: the flag is this implementation's own.
        unsafe impl $crate::NamedBrand for $name {
            fn is_open() -> &'static ::std::sync::atomic::AtomicBool {
                static IS_OPEN: ::std::sync::atomic::AtomicBool = ::std::sync::atomic::AtomicBool::new(false);
                &IS_OPEN
            }
        }
    };
}

/// Reserves a named brand for one heap.
#[derive(Debug)]
pub(crate) struct BrandLease(&'static AtomicBool);

impl BrandLease {
    pub(crate) fn take<B: NamedBrand>() -> Option<BrandLease> {
        let flag = B::is_open();
        // ORDER: acquire and release hand the brand from the heap that was closed to the one that opens.
        (!flag.swap(true, Ordering::AcqRel)).then_some(BrandLease(flag))
    }
}

impl Drop for BrandLease {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
