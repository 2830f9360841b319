//! Changes that depend on the present value of a key. They descend once, and write nothing if nothing
//! changes.

use super::WbTree;
use super::search::{Probe, TreePosition};
use crate::error::Result;
use crate::key_edit::KeyEdit;
use crate::record::check_lengths;
use tembo_pool::Tx;

impl WbTree {
    /// Puts a record if `key` is absent; returns whether it was. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), if a record has to be put. The transaction is then unchanged, and can go
    /// on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_there = self.decide(tx, key, |old| KeyEdit::inserted(value, old))?;
        Ok(!is_there)
    }

    /// Replaces the value of `key` if the key exists; returns whether it did. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn update(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        self.decide(tx, key, |old| KeyEdit::updated(value, old))
    }

    /// Replaces the value of `key` by `new` if it is `expected`; returns whether it was. `None` stands for an
    /// absent key. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn compare_and_swap(
        &self,
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

    /// Replaces the value of `key` by the result of `change`, which gets the present value; returns whether
    /// the key was there. `None` stands for an absent key. `change` is called once, before anything is
    /// changed. An unchanged value is not written again. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool. If `change` panics, the transaction is unchanged.
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        self.decide(tx, key, |old| change(old).map_or(KeyEdit::Remove, KeyEdit::Put))
    }

    /// Changes a key as `decide` says, which gets the present value; returns whether the key was there.
    pub(crate) fn decide<V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> KeyEdit<V>,
    ) -> Result<bool> {
        self.assert_writes(tx);
        let probe = Probe::new(key);
        let place = self.find_place(tx, probe)?;
        self.decide_at(tx, &place, probe, decide)
    }

    /// As [`decide`](Self::decide), at the key's place.
    pub(crate) fn decide_at<V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        probe: Probe<'_>,
        decide: impl FnOnce(Option<&[u8]>) -> KeyEdit<V>,
    ) -> Result<bool> {
        let key = probe.key;
        let old = place.found.map(|found| found.entry.value());
        match decide(old) {
            KeyEdit::Put(value) if old != Some(value.as_ref()) => {
                let value = [value.as_ref()];
                let value_bytes = check_lengths(key, &value)?;
                self.counting.check_length(value_bytes)?;
                // Only blocks of cleared trees were freed meanwhile, so the position is still valid.
                self.change(tx, |tx| {
                    let record = self.write_record(tx, key, &value, value_bytes)?;
                    self.put_record(tx, place, probe, record)
                })
            }
            KeyEdit::Remove if old.is_some() => self.change(tx, |tx| self.remove_record(tx, place, key)),
            _ => Ok(old.is_some()),
        }
    }
}
