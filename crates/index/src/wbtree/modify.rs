//! Changes that depend on what the map holds: one way down, and nothing is written where nothing changes.

use super::WbTree;
use super::search::{Probe, TreePosition};
use crate::error::Result;
use crate::key_edit::KeyEdit;
use crate::record::{check_lengths, write_record};
use tembo_pool::Tx;

impl WbTree {
    /// Puts a record if `key` has none; returns whether that was so. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), if a record has to be put. The transaction then is as it was, and can go
    /// on.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_there = self.decide(tx, key, |old| KeyEdit::inserted(value, old))?;
        Ok(!is_there)
    }

    /// Gives `key` another value if it has one; returns whether that was so. O(log n).
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

    /// Makes the value of `key` `new` if it is `expected`, where none stands for no record; returns whether
    /// it was. O(log n).
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

    /// Gives `key` the value that `change` makes of the one it has, where none stands for no record;
    /// returns whether there was one. `change` is called once, before anything is changed. A value that
    /// stays the same is not written again. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool. If `change` panics, the transaction is as it was.
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        self.decide(tx, key, |old| change(old).map_or(KeyEdit::Remove, KeyEdit::Put))
    }

    /// Lets a key have the fate that `decide` wants when it knows the value; returns whether there is one.
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

    /// As [`decide`](Self::decide), where the key is, or belongs.
    pub(crate) fn decide_at<V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        place: &TreePosition<'_>,
        probe: Probe<'_>,
        decide: impl FnOnce(Option<&[u8]>) -> KeyEdit<V>,
    ) -> Result<bool> {
        let key = probe.key;
        let old = place.found.map(|found| found.value);
        match decide(old) {
            KeyEdit::Put(value) if old != Some(value.as_ref()) => {
                let value = [value.as_ref()];
                let value_bytes = check_lengths(key, &value)?;
                // The blocks freed meanwhile were cleared before, so that the position is still right.
                self.change(tx, |tx| {
                    let record = write_record(tx, key, &value, value_bytes)?;
                    self.put_record(tx, place, probe, record)
                })
            }
            KeyEdit::Remove if old.is_some() => self.change(tx, |tx| self.remove_record(tx, place, key)),
            _ => Ok(old.is_some()),
        }
    }
}
