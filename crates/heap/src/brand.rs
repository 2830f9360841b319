//! Brands: which heap something belongs to, known to the compiler.
//!
//! Every handle of a transaction carries the brand of its heap, so that a pointer of one heap cannot be stored in
//! another. Brands are nowhere in the data.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the heaps of a program apart.
pub trait Brand {}

/// The brand of a heap that was opened for the length of a closure; no other has it.
pub struct Scoped<'h>(PhantomData<fn(&'h ()) -> &'h ()>);

impl Brand for Scoped<'_> {}

/// A brand with a name, for heaps in long-lived structs. Made by [`brand!`](crate::brand).
///
/// # Safety
///
/// `is_open` always returns the same flag, and no other brand's.
pub unsafe trait NamedBrand: Brand + 'static {
    /// Whether a heap with this brand is open.
    fn is_open() -> &'static AtomicBool;
}

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

/// Keeps a named brand for one heap.
#[derive(Debug)]
pub(crate) struct BrandLease(&'static AtomicBool);

impl BrandLease {
    pub(crate) fn take<B: NamedBrand>() -> Option<BrandLease> {
        let flag = B::is_open();
        // ORDER: acquire and release hand the brand from the heap that was closed to the one that is opened.
        (!flag.swap(true, Ordering::AcqRel)).then_some(BrandLease(flag))
    }
}

impl Drop for BrandLease {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
