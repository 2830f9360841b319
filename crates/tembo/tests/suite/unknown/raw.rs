//! A store beside the pool under it, by which tests make what no program can.

use std::ops::Deref;
use std::path::Path;
use tembo::{Options, Pool};

/// A store, and its pool.
pub(crate) struct RawStore {
    raw: tembo_pool::Pool,
    store: Pool,
}

impl RawStore {
    pub(crate) fn open(path: impl AsRef<Path>, options: &Options) -> RawStore {
        let raw = tembo_pool::Pool::open(path, options.as_ref()).unwrap();
        RawStore { store: Pool::from_pool(raw.clone()), raw }
    }

    pub(crate) fn raw(&self) -> &tembo_pool::Pool {
        &self.raw
    }
}

impl Deref for RawStore {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        &self.store
    }
}
