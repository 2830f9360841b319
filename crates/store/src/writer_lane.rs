//! The lane of the thread that commits. A store in a pool that is open for reading only has none.

use crate::error::{Error, Result};
use crate::store::{Store, StoreInner};
use tembo_pool::{ErrorKind, Lane, Pool, Tx};

/// The lane on which a store is changed, if it can be.
pub(crate) struct WriterLane(Option<Lane>);

impl WriterLane {
    /// Takes a lane, unless the pool is open for reading only.
    pub(crate) fn take(pool: &Pool) -> Result<WriterLane> {
        let lane = if pool.is_read_only() { None } else { Some(pool.lane()?) };
        Ok(WriterLane(lane))
    }

    /// Refuses a store that is open for reading only.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.is_none() { Err(read_only()) } else { Ok(()) }
    }

    /// Begins a transaction of the pool. Whoever gets here has checked that the store can be changed.
    pub(crate) fn begin(&mut self) -> Tx<'_> {
        self.0.as_mut().expect("a store that is open for writing").begin()
    }
}

impl Store {
    /// Whether the store can be read and not changed, since its pool was opened so.
    pub fn is_read_only(&self) -> bool {
        self.inner.pool.is_read_only()
    }

    /// Refuses to change a store that is open for reading only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }
}

impl StoreInner {
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.pool.is_read_only() { Err(read_only()) } else { Ok(()) }
    }
}

#[cold]
fn read_only() -> Error {
    Error::Pool(ErrorKind::ReadOnly.into())
}
