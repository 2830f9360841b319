//! The outcome of a change that depends on the value of its key.

/// Keeps a key as it is, gives it a value, or removes it.
pub(crate) enum KeyEdit<V> {
    Keep,
    Put(V),
    Remove,
}

impl<'v> KeyEdit<&'v [u8]> {
    /// The value, for a key that has none.
    pub(crate) fn inserted(value: &'v [u8], old: Option<&[u8]>) -> Self {
        if old.is_none() { KeyEdit::Put(value) } else { KeyEdit::Keep }
    }

    /// The value, for a key that has one.
    pub(crate) fn updated(value: &'v [u8], old: Option<&[u8]>) -> Self {
        if old.is_some() { KeyEdit::Put(value) } else { KeyEdit::Keep }
    }

    /// The new value, or none, for a key that has the expected one.
    pub(crate) fn swapped(new: Option<&'v [u8]>, is_expected: bool) -> Self {
        match new {
            _ if !is_expected => KeyEdit::Keep,
            Some(value) => KeyEdit::Put(value),
            None => KeyEdit::Remove,
        }
    }
}
