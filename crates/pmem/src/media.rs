//! Media types: structs that live in a pool, with their layout asserted and described.

/// One field of a media type, for `docs/format.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub off: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Its meaning: the field's doc lines.
    pub doc: &'static str,
}

/// A type whose byte layout is fixed on media.
pub trait MediaLayout {
    /// The type's name.
    const NAME: &'static str;
    /// The path of the module that declares it.
    const MODULE: &'static str;
    /// Its size in bytes.
    const BYTES: usize;
    /// Its fields in order, without gaps.
    const FIELDS: &'static [Field];
}

/// Declares a media struct: `repr(C)`, its size and every field's offset asserted at compile time,
/// no padding, and a [`MediaLayout`] from which the format document is made.
///
/// ```
/// tembo_pmem::media_struct! {
///     /// A counter on media.
///     pub struct PmCounter: 16 {
///         /// The count.
///         0 => count: u64,
///         /// Zero.
///         8 => reserved: [u8; 8],
///     }
/// }
/// assert_eq!(<PmCounter as tembo_pmem::MediaLayout>::FIELDS[1].off, 8);
/// ```
#[macro_export]
macro_rules! media_struct {
    (
        $(#[doc = $sdoc:literal])*
        $vis:vis struct $name:ident : $size:literal {
            $( #[doc = $fdoc:literal] $(#[doc = $more:literal])* $off:literal => $field:ident : $ty:ty ),* $(,)?
        }
    ) => {
        $(#[doc = $sdoc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        $vis struct $name {
            $( #[doc = $fdoc] $(#[doc = $more])* pub $field: $ty, )*
        }
        const _: () = {
            assert!($crate::size_of::<$name>() == $size, "size of a media struct changed");
            $( assert!($crate::offset_of!($name, $field) == $off, "a media field moved"); )*
            let mut sum = 0;
            $( sum += $crate::size_of::<$ty>(); )*
            assert!(sum == $size, "a media struct has implicit padding");
        };
        impl $crate::MediaLayout for $name {
            const NAME: &'static str = stringify!($name);
            const MODULE: &'static str = module_path!();
            const BYTES: usize = $size;
            const FIELDS: &'static [$crate::Field] = &[
                $( $crate::Field {
                    name: stringify!($field),
                    off: $off,
                    bytes: $crate::size_of::<$ty>(),
                    doc: concat!($fdoc $(, $more)*),
                }, )*
            ];
        }
    };
}
