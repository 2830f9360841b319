//! Handles: making them from objects, and getting the objects back.

use crate::error::{ErrorKind, Result};
use crate::handles::Handle;
use crate::objects::brand::{Brand, SameHeap};
use crate::objects::persist::Persist;
use crate::objects::place::Obj;
use crate::tx::read::ReadTx;
use crate::tx::write::{Tx, writer_of};

impl<'t, B: Brand> Tx<'t, B> {
    /// Makes a handle of an object. It counts from the commit on. An object without pointers may be held too.
    /// The commit keeps eight bytes in the file for a held object, so that its last pointer can be removed in
    /// a full pool.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`]; the pool's own.
    pub fn hold<T: Persist>(&mut self, object: Obj<'t, B, T>) -> Result<Handle<B, T>> {
        let (handle, new) = Handle::new(self.shared.handles.clone(), object.object_off());
        writer_of(self.shared, self.active)?.held.push(new);
        Ok(handle)
    }
}

impl<'t, B: Brand> ReadTx<'t, B> {
    /// The object of a handle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Cancelled`] if the handle is from a transaction that was not committed;
    /// [`ErrorKind::ClosedHandle`] if its heap was closed and opened again; [`ErrorKind::Conflict`].
    pub fn enter<H: SameHeap<B>, T: Persist>(&self, handle: &Handle<H, T>) -> Result<Obj<'t, B, T>> {
        if !handle.is_of(&self.shared.handles) {
            return Err(ErrorKind::ClosedHandle { handle: format!("{handle:?}") }.into());
        }
        if !handle.counts() {
            return Err(ErrorKind::Cancelled.into());
        }
        // This read is validated like every other: another thread may drop the handle before the commit.
        if !self.is_alive(handle.off())? {
            return self.active.conflict();
        }
        Ok(self.object(handle.off()))
    }
}
