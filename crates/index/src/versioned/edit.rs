//! Changes that depend on the present value of a key.

use super::builder::{BuildVersion, VersionBuilder};
use crate::error::Result;
use crate::key_edit::KeyEdit;
use crate::record::check_lengths;
use tembo_pool::Tx;

impl<S: BuildVersion> VersionBuilder<S> {
    /// Puts a key if it is absent; returns whether it was.
    pub(crate) fn insert(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(!self.decide(tx, key, |old| KeyEdit::inserted(value, old))?)
    }

    /// Replaces the value of a key if the key exists; returns whether it does.
    pub(crate) fn update(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        self.decide(tx, key, |old| KeyEdit::updated(value, old))
    }

    /// Replaces the value of a key by `new` if it is `expected`; returns whether it was.
    pub(crate) fn compare_and_swap(
        &mut self,
        tx: &mut Tx<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut is_expected = false;
        self.decide(tx, key, |old| {
            is_expected = old == expected;
            KeyEdit::swapped(new, is_expected)
        })?;
        Ok(is_expected)
    }

    /// Changes a key as `decide` says, which gets the present value; returns whether the key was there.
    pub(crate) fn decide<V: AsRef<[u8]>>(
        &mut self,
        tx: &mut Tx<'_>,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> KeyEdit<V>,
    ) -> Result<bool> {
        let old = self.get(tx, key)?;
        let is_there = old.is_some();
        match decide(old.as_deref()) {
            KeyEdit::Put(value) if old.as_deref() != Some(value.as_ref()) => {
                check_lengths(key, &[value.as_ref()])?;
                self.put(tx, key, value.as_ref())
            }
            KeyEdit::Remove if is_there => self.remove(tx, key),
            _ => Ok(is_there),
        }
    }
}
