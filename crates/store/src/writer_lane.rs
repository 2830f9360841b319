//! The lane of commits. A store in a pool that is open for reading only has none.

use crate::error::{Error, Result};
use crate::handle::{Store, StoreInner};
use tembo_pool::{ErrorKind, Lane, Pool};

/// Takes a lane, unless the pool is open for reading only.
pub(crate) fn take_lane(pool: &Pool) -> Result<Option<Lane>> {
    if pool.is_read_only() { Ok(None) } else { Ok(Some(pool.lane()?)) }
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
