//! Pointers on media: eight bytes, an offset in the pool, 0 for null.
//!
//! They cannot be copied, moved out of the heap or made from anything but null. Transactions load and link
//! them.

use crate::objects::persist::Describe;
use crate::objects::persist::{LayoutHash, Persist};
use crate::objects::type_info::PointerKind;
use std::marker::PhantomData;

macro_rules! slot {
    ($(#[$doc:meta])* $slot:ident, $name:literal, $kind:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $slot<T: Persist> {
            off: u64,
            target: PhantomData<*const T>,
        }

        impl<T: Persist> $slot<T> {
            /// The null pointer, the only one that a program can make.
            pub const fn null() -> Self {
                $slot { off: 0, target: PhantomData }
            }
        }

        impl<T: Persist> Default for $slot<T> {
            fn default() -> Self {
                Self::null()
            }
        }

        impl<T: Persist> std::fmt::Debug for $slot<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!($name, "(null)"))
            }
        }

        // SAFETY: eight bytes that are described as a pointer, and null in every value that a program can
        // hold.
        unsafe impl<T: Persist> Persist for $slot<T> {
            const NAME_HASH: u64 = LayoutHash::new($name).number(T::NAME_HASH).finish();
            const HASH: u64 = Self::NAME_HASH;
            const HAS_VARIANTS: bool = false;
            const HAS_POINTERS: bool = true;
            fn name() -> String {
                format!(concat!($name, "<{}>"), T::name())
            }
            fn describe(layout: &mut Describe) {
                layout.pointer::<T>(PointerKind::$kind);
            }
            #[inline(always)]
            fn encode(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.off.to_ne_bytes());
            }
        }
    };
}

slot! {
    /// A pointer that, with all others to its object, keeps it alive.
    ///
    /// The object dies with the commit that removes the last of them, unless a [`Handle`](crate::Handle)
    /// holds it.
    PRc, "PRc", Strong
}
slot! {
    /// A pointer that does not keep its object alive, and is null as soon as that has died. For parents, and
    /// wherever pointers form a circle.
    PWeak, "PWeak", Weak
}
slot! {
    /// A pointer that keeps an array alive, whose length is set at its allocation.
    PArr, "PArr", Array
}
