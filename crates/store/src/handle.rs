//! Handles that do not keep a store open.

use crate::store::{Store, StoreInner};
use std::sync::{Arc, Weak};

/// A handle of a store that does not keep it open: for whoever lists the stores that others use.
#[derive(Clone)]
pub struct WeakStore(Weak<StoreInner>);

impl Store {
    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inner))
    }
}

impl WeakStore {
    /// The store, if somebody has it open. A snapshot, a transaction and an iterator keep it open, too.
    pub fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|inner| Store { inner })
    }
}

impl std::fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakStore").field("is_open", &(self.0.strong_count() > 0)).finish()
    }
}
