//! Collections that are mostly empty. A thread that only reads takes the lock only if the collection is not
//! empty.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A collection that can be empty.
pub(crate) trait Collection {
    fn is_empty(&self) -> bool;
}

impl<K, V> Collection for BTreeMap<K, V> {
    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}

impl<T> Collection for Vec<T> {
    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

/// A collection behind a lock.
#[derive(Debug, Default)]
pub(crate) struct MostlyEmpty<C> {
    collection: Mutex<C>,
    has_any: AtomicBool,
}

/// A locked collection.
pub(crate) struct Locked<'s, C: Collection> {
    has_any: &'s AtomicBool,
    collection: MutexGuard<'s, C>,
}

impl<C: Collection> MostlyEmpty<C> {
    pub(crate) fn new(collection: C) -> MostlyEmpty<C> {
        let has_any = AtomicBool::new(!collection.is_empty());
        MostlyEmpty { collection: Mutex::new(collection), has_any }
    }

    pub(crate) fn lock(&self) -> Locked<'_, C> {
        Locked { has_any: &self.has_any, collection: self.collection.lock() }
    }

    /// Locks the collection, if it is not empty. Sees every item that was inserted before, in the order of
    /// sequentially consistent operations.
    #[inline]
    pub(crate) fn lock_if_any(&self) -> Option<Locked<'_, C>> {
        // ORDER: sequentially consistent, pairs with the store at the end of a change.
        self.has_any.load(Ordering::SeqCst).then(|| self.lock())
    }
}

impl<C: Collection> Deref for Locked<'_, C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.collection
    }
}

impl<C: Collection> DerefMut for Locked<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.collection
    }
}

impl<C: Collection> Drop for Locked<'_, C> {
    fn drop(&mut self) {
        let has_any = !self.collection.is_empty();
        if self.has_any.load(Ordering::Relaxed) != has_any {
            // ORDER: sequentially consistent: precedes all later loads and stores of this thread.
            self.has_any.store(has_any, Ordering::SeqCst);
        }
    }
}
