//! Values that are borrowed mutably.

use crate::error::{Error, Result};
use crate::objects::brand::Brand;
use crate::objects::persist::Plain;
use crate::objects::place::Ref;
use crate::stm::hazards::ReadHazards;
use crate::tx::write::{Tx, writer_of};
use std::ops::{Deref, DerefMut};

/// A borrowed value of a heap. It is written back when it is dropped.
pub struct RefMut<'a, 't, B: Brand, T: Plain> {
    tx: &'a mut Tx<'t, B>,
    place: Ref<'t, B, T>,
    value: T,
}

impl<B: Brand, T: Plain> Deref for RefMut<'_, '_, B, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<B: Brand, T: Plain> DerefMut for RefMut<'_, '_, B, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<B: Brand, T: Plain> Drop for RefMut<'_, '_, B, T> {
    fn drop(&mut self) {
        self.tx.active.borrowed.set(self.tx.active.borrowed.get() - 1);
        let still_there = self.tx.check_stamp(self.place.stamp);
        if let Err(e) = still_there.and_then(|()| self.tx.write_value(self.place, &self.value)) {
            self.lost(e);
        }
    }
}

impl<B: Brand, T: Plain> RefMut<'_, '_, B, T> {
    /// Keeps the error for the commit, which must fail: `drop` cannot return it.
    #[cold]
    fn lost(&mut self, e: Error) {
        if let Ok(mut writer) = writer_of(self.tx.shared, self.tx.active) {
            writer.lost.get_or_insert(e);
        } else {
            self.tx.active.add_hazard(ReadHazards::DOOMED);
        }
    }
}

impl<B: Brand, T: Plain + std::fmt::Debug> std::fmt::Debug for RefMut<'_, '_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl<'t, B: Brand> Tx<'t, B> {
    /// Borrows the value at a place. When the borrow ends, the place gets its value.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    #[inline]
    pub fn get_mut<'a, T: Plain>(&'a mut self, place: Ref<'t, B, T>) -> Result<RefMut<'a, 't, B, T>> {
        self.own_place(place)?;
        let value = self.get(place)?;
        self.active.borrowed.set(self.active.borrowed.get() + 1);
        Ok(RefMut { tx: self, place, value })
    }
}
