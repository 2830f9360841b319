//! A pointer that owns its object alone.

use crate::Persist;
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::objects::slots::PRc;
use crate::tx::{ReadTx, Tx};

/// An object with no other pointer to it: for large, optional or recursive fields.
///
/// For shared objects, and targets of weak pointers, use a [`PRc`]. A box opens as a [`Ref`], to which no
/// pointer can be linked. The box therefore stays the only pointer, and its value dies when the box is
/// emptied, filled anew, or dies itself.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PBox<T: Persist> {
    to: PRc<T>,
}

impl<T: Persist> PBox<T> {
    /// An empty box.
    pub const fn empty() -> PBox<T> {
        PBox { to: PRc::null() }
    }
}

impl<T: Persist> Default for PBox<T> {
    fn default() -> PBox<T> {
        PBox::empty()
    }
}

impl<'t, B: Brand, T: Persist> Ref<'t, B, PBox<T>> {
    /// The value in the box.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn open(self, tx: &ReadTx<'t, B>) -> Result<Option<Ref<'t, B, T>>> {
        Ok(tx.load(self.to())?.map(|object| *object))
    }

    /// Allocates a value, puts it into the box, and returns its place. The value that was in the box dies.
    ///
    /// # Errors
    ///
    /// As for [`Tx::alloc`].
    pub fn fill(self, tx: &mut Tx<'t, B>, value: T) -> Result<Ref<'t, B, T>> {
        let object = tx.alloc(value)?;
        tx.link(self.to(), object)?;
        Ok(*object)
    }

    /// Empties the box; its value dies.
    ///
    /// # Errors
    ///
    /// As for [`Tx::link`].
    pub fn empty(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.link(self.to(), None)
    }

    /// Moves the value of the other box to this one, and leaves the other empty. The value that was here
    /// dies.
    ///
    /// # Errors
    ///
    /// As for [`Tx::link`].
    pub fn take_from(self, tx: &mut Tx<'t, B>, other: Ref<'t, B, PBox<T>>) -> Result<()> {
        let object = tx.load(other.to())?;
        tx.link(other.to(), None)?;
        tx.link(self.to(), object)
    }
}
