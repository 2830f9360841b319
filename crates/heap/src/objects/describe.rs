//! Descriptions of layouts: made from types when a heap is opened, kept in the heap, and read by whoever checks it
//! without having the types.

use crate::objects::persist::Persist;
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

    /// What differs from the layout that a heap has, in words.
    pub(crate) fn difference(&self, stored: &TypeInfo) -> String {
        let (theirs, ours) = (fields_of(stored), fields_of(self));
        let mut found = Vec::new();
        for (field, what, at) in &theirs {
            match ours.iter().find(|(name, ..)| name == field) {
                None => found.push(format!("`{field}` is only in the heap")),
                Some((_, now, _)) if now != what => {
                    found.push(format!("`{field}` is a {what} there and a {now} here"));
                }
                Some((.., now)) if now != at => {
                    found.push(format!("`{field}` lies at {at} there and at {now} here"));
                }
                Some(_) => {}
            }
        }
        let is_new = |name: &str| theirs.iter().all(|(field, ..)| field != name);
        found.extend(
            ours.iter()
                .filter(|(name, ..)| is_new(name))
                .map(|(name, ..)| format!("`{name}` is only in the program")),
        );
        if stored.bytes != self.bytes {
            found.push(format!("it has {} bytes there and {} here", stored.bytes, self.bytes));
        }
        if found.is_empty() {
            found.push(
                "the type of one of its fields, which has the same name, is laid out in another way"
                    .to_owned(),
            );
        }
        found.join(", ")
    }
}

/// Name, type and place of each field, as the description says; of an enum with the variant's name before that.
fn fields_of(info: &TypeInfo) -> Vec<(String, String, String)> {
    let body = info.text.strip_prefix(&*info.name).map_or("", |text| text.trim_matches([' ', '{', '}']));
    let body = &*body.replace(":,", ":");
    let mut fields = Vec::new();
    let mut variant = String::new();
    let mut rest = body;
    while !rest.is_empty() {
        // A field ends with its place. Commas may be in its type too.
        let (field, after) = match rest.split_once(" @") {
            Some((field, after)) => (field, after),
            None => (rest, ""),
        };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (at, after) = after.split_at(digits);
        let mut field = field.trim_start_matches([',', ' ', '|']);
        while let Some((before, after)) = field.split_once(": ").filter(|(before, _)| before.contains(" = "))
        {
            let after = after.trim_start_matches([',', ' ', '|']);
            fields.push((before.to_owned(), String::new(), String::new()));
            let name = before.split(" = ").next().unwrap_or_default();
            (variant, field) = (format!("{name}."), after);
        }
        match field.split_once(": ") {
            Some((name, what)) => fields.push((format!("{variant}{name}"), what.to_owned(), at.to_owned())),
            None if field.is_empty() => {}
            None => fields.push((field.trim_end_matches(':').to_owned(), String::new(), String::new())),
        }
        rest = after;
    }
    fields
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
