//! The traits of types that may lie in a heap, and the descriptions of their layouts.

use crate::objects::type_info::{Condition, Pointer, PointerKind, TypeInfo};
use std::fmt::Write;

/// A type whose values may lie in a heap. Implemented by `#[derive(Persist)]` only.
///
/// A value that is built in ordinary memory has null pointers only ([`PRc`](crate::PRc) has no other
/// constructor). It is copied into the heap field by field, and a transaction sets its pointers there.
///
/// # Safety
///
/// The type is `repr(C)` (enums: a primitive representation), has no `Drop`, and every field is `Persist`.
/// `describe` names every pointer in it at its place, `HASH` changes whenever what `describe` says does, and
/// `encode` writes every field at its place and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a heap",
    label = "not a persistent type",
    note = "a heap outlives the process: it holds numbers of a fixed width, arrays, tuples, `PRc`, `PWeak`, `PArr` and what is made of them",
    note = "addresses (`Box`, `&T`, fn pointers), file descriptors, `usize` and types with `Drop` mean nothing after a restart",
    note = "instead of `String` or `&str`: `PString`; of `Vec<T>`: `PVec<T>`; of `Box<T>`: `PBox<T>`; of `Rc<T>`, `Arc<T>` or `&T`: `PRc<T>`; of \
            `HashMap` and `BTreeMap`: `PHashMap` and `PMap`; of `usize`: `u64`; of a `SystemTime` or `Instant`: the `Duration` since a moment that you know",
    note = "for a type of your own: #[derive(Persist)] #[repr(C)]"
)]
pub unsafe trait Persist: Sized + 'static {
    /// Hash of the type's name and of its parameters' names. Pointers name the types of their targets by it.
    const NAME_HASH: u64;
    /// Hash of the type's name and layout.
    const HASH: u64;
    /// Whether it contains an enum whose variants have fields. A write of the whole value may then change the
    /// variant.
    const HAS_VARIANTS: bool;
    /// Whether it contains a pointer, in one of its variants at least.
    const HAS_POINTERS: bool;

    /// The type's name, with its parameters.
    fn name() -> String;

    /// Describes the layout.
    fn describe(layout: &mut Describe);

    /// Writes the value into `out`, which has the type's size and is zero, so that padding stays zero.
    fn encode(&self, out: &mut [u8]);
}

/// A type without pointers: its values may be read, and borrowed mutably, as a whole. Implemented by
/// `#[derive(Plain)]`.
///
/// # Safety
///
/// The type contains no pointers, and `decode` returns what `encode` wrote.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read or borrowed as a whole",
    label = "not a plain type",
    note = "a value with persistent pointers in it would be copied or swapped past their counts: go to its fields by their \
            accessors, and use `load` and `link` for pointers",
    note = "a tuple is read as a whole: what has pointers in it is a struct with #[derive(Persist)] #[repr(C)]",
    note = "for a type without pointers: #[derive(Clone, Copy, Persist, Plain)] #[repr(C)]"
)]
pub unsafe trait Plain: Persist + Copy {
    /// The value of these bytes, which have the type's size; `None` if they are no value, on damaged media.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Hashes of layouts (FNV-1a), made at compile time.
#[derive(Clone, Copy)]
pub struct LayoutHash(u64);

impl LayoutHash {
    /// Begins with a name.
    pub const fn new(name: &str) -> LayoutHash {
        LayoutHash(0xCBF2_9CE4_8422_2325).text(name)
    }

    /// Adds a text.
    pub const fn text(mut self, text: &str) -> LayoutHash {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01B3);
            at += 1;
        }
        self.number(bytes.len() as u64)
    }

    /// Adds a number.
    pub const fn number(mut self, number: u64) -> LayoutHash {
        let mut rest = 0;
        while rest < 64 {
            self.0 = (self.0 ^ (number >> rest & 0xFF)).wrapping_mul(0x0100_0000_01B3);
            rest += 8;
        }
        self
    }

    /// Adds a field.
    pub const fn field(self, name: &str, off: usize, hash: u64) -> LayoutHash {
        self.text(name).number(off as u64).number(hash)
    }

    /// The hash.
    pub const fn finish(self) -> u64 {
        self.0
    }
}

impl TypeInfo {
    /// The description of `T`, and functions that describe the targets of its pointers.
    pub(crate) fn of<T: Persist>() -> (TypeInfo, Vec<TargetFn>) {
        let mut layout = Describe::default();
        T::describe(&mut layout);
        let Describe { pointers, targets, text, .. } = layout;
        let name = T::name();
        let text = if text.is_empty() { name.clone() } else { format!("{name} {{{text} }}") };
        let info = TypeInfo {
            name,
            name_hash: T::NAME_HASH,
            hash: T::HASH,
            bytes: size_of::<T>() as u64,
            pointers,
            text,
        };
        (info, targets)
    }
}

/// A function that describes a type, and names those that describe the targets of its pointers.
#[derive(Clone, Copy)]
pub(crate) struct TargetFn(pub fn() -> (TypeInfo, Vec<TargetFn>));

/// Collects the description of a type; given to [`Persist::describe`].
#[derive(Default)]
pub struct Describe {
    base: usize,
    conditions: Vec<Condition>,
    pointers: Vec<Pointer>,
    targets: Vec<TargetFn>,
    text: String,
    /// The depth in nested fields. Only fields of the type itself get into the text.
    depth: usize,
}

impl Describe {
    /// A field of type `T`, `off` bytes from the start of the type that is being described.
    pub fn field<T: Persist>(&mut self, name: &str, off: usize) {
        if self.depth == 0 {
            let comma = if self.text.is_empty() { "" } else { "," };
            let _ = write!(self.text, "{comma} {name}: {} @{}", T::name(), self.base + off);
        }
        self.at(off, T::describe);
    }

    /// `count` values of type `T`, one after another.
    pub fn array<T: Persist>(&mut self, count: usize) {
        let pointers = self.pointers.len();
        for i in 0..count {
            self.at(i * size_of::<T>(), T::describe);
            if self.pointers.len() == pointers {
                break;
            }
        }
    }

    /// The fields of one variant of an enum, which the value has if the `tag_bytes` at its start have this
    /// number.
    pub fn variant(&mut self, name: &str, tag_bytes: usize, value: u64, fields: impl FnOnce(&mut Describe)) {
        if self.depth == 0 {
            let bar = if self.text.is_empty() { "" } else { " |" };
            let _ = write!(self.text, "{bar} {name} = {value}:");
        }
        let condition = Condition { tag_off: self.base as u32, tag_bytes: tag_bytes as u8, value };
        self.conditions.push(condition);
        fields(self);
        self.conditions.pop();
    }

    fn at(&mut self, off: usize, describe: impl FnOnce(&mut Describe)) {
        self.base += off;
        self.depth += 1;
        describe(self);
        self.depth -= 1;
        self.base -= off;
    }

    /// A pointer at the current place.
    pub(crate) fn pointer<T: Persist>(&mut self, kind: PointerKind) {
        self.pointers.push(Pointer {
            off: self.base as u32,
            kind,
            target: T::NAME_HASH,
            conditions: self.conditions.clone(),
        });
        self.targets.push(TargetFn(TypeInfo::of::<T>));
    }
}
