//! The outcome of a change that depends on the value of its key.

/// The outcome for a key: keep it as it is, set its value, or remove it.
pub(crate) enum KeyEdit<V> {
    Keep,
    Put(V),
    Remove,
}

impl<'v> KeyEdit<&'v [u8]> {
    /// Sets the value if the key is absent.
    pub(crate) fn inserted(value: &'v [u8], old: Option<&[u8]>) -> Self {
        if old.is_none() { KeyEdit::Put(value) } else { KeyEdit::Keep }
    }

    /// Sets the value if the key is present.
    pub(crate) fn updated(value: &'v [u8], old: Option<&[u8]>) -> Self {
        if old.is_some() { KeyEdit::Put(value) } else { KeyEdit::Keep }
    }

    /// Sets the new value, or removes the key, if the value was the expected one.
    pub(crate) fn swapped(new: Option<&'v [u8]>, is_expected: bool) -> Self {
        match new {
            _ if !is_expected => KeyEdit::Keep,
            Some(value) => KeyEdit::Put(value),
            None => KeyEdit::Remove,
        }
    }
}
