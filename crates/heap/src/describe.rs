//! Descriptions of layouts: made from types when a heap is opened, kept in the heap, and read by whoever checks it
//! without having the types.

use crate::persist::Persist;
use std::fmt::Write;

/// What a pointer does for the object that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointerKind {
    /// Keeps it alive.
    Strong,
    /// Does not.
    Weak,
    /// Keeps an array alive.
    Array,
}

/// A pointer counts only if a tag has this value: it belongs to one variant of an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    pub tag_off: u32,
    pub tag_bytes: u8,
    pub value: u64,
}

/// A pointer of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// Bytes from the start of the value.
    pub off: u32,
    pub kind: PointerKind,
    /// Hash of the name of the type that it leads to.
    pub target: u64,
    /// All have to hold.
    pub conditions: Vec<Condition>,
}

/// A type as it lies in a heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeInfo {
    pub name: String,
    pub name_hash: u64,
    pub hash: u64,
    pub bytes: u64,
    pub pointers: Vec<Pointer>,
    /// For people: fields and where they lie.
    pub text: String,
}

impl TypeInfo {
    /// The description of `T`, and what describes the types that its pointers lead to.
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

/// Describes a type, and names what describes those that its pointers lead to.
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
    /// How deep in fields of fields: only those of the type itself are put into words.
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

    /// The fields of one variant of an enum, which is there if the `tag_bytes` at the start have this value.
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
