//! Descriptions of layouts: made from types when a heap is opened, stored in the heap, and read by the check,
//! which does not have the types.

/// The effect of a pointer on its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointerKind {
    /// Keeps it alive.
    Strong,
    /// Does not keep it alive.
    Weak,
    /// Keeps an array alive.
    Array,
}

/// A pointer counts only if a tag has this value, since it belongs to one variant of an enum.
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
    /// The pointer counts if all hold.
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
    /// Fields and offsets as text, for people.
    pub text: String,
}

impl TypeInfo {
    /// The differences from the layout that a heap has, as text.
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

/// Name, type and offset of each field in the description; in an enum the variant precedes the name.
fn fields_of(info: &TypeInfo) -> Vec<(String, String, String)> {
    let body = info.text.strip_prefix(&*info.name).map_or("", |text| text.trim_matches([' ', '{', '}']));
    let body = &*body.replace(":,", ":");
    let mut fields = Vec::new();
    let mut variant = String::new();
    let mut rest = body;
    while !rest.is_empty() {
        // A field ends with its offset. Its type may contain commas.
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
