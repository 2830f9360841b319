//! Stores that are open once in a process, however many handles there are.

use crate::Result;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tembo_store::{Store, WeakStore};

/// The stores that are open, by name.
#[derive(Debug, Default)]
pub(crate) struct OpenStores(Mutex<HashMap<String, WeakStore>>);

/// The longest wait for a store that another thread is closing.
const CLOSING_MAX: Duration = Duration::from_secs(10);

impl OpenStores {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, WeakStore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are open; each has a lane.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().filter(|store| store.upgrade().is_some()).count()
    }

    /// The store of this name: the open one, or else what `open` opens.
    pub(crate) fn open(&self, name: &str, open: impl Fn() -> tembo_store::Result<Store>) -> Result<Store> {
        let mut stores = self.lock();
        let known = stores.get(name).cloned();
        if let Some(store) = known.as_ref().and_then(WeakStore::upgrade) {
            return Ok(store);
        }
        let store = once_closed(known.is_some(), open)?;
        stores.insert(name.to_owned(), store.downgrade());
        Ok(store)
    }

    /// Drops the store of this name by `drop`, unless it is open.
    pub(crate) fn drop(&self, name: &str, drop: impl Fn() -> tembo_store::Result<bool>) -> Result<bool> {
        let mut stores = self.lock();
        let known = stores.get(name).cloned();
        if known.as_ref().and_then(WeakStore::upgrade).is_some() {
            return Err(tembo_store::Error::InUse { name: name.to_owned() }.into());
        }
        let dropped = once_closed(known.is_some(), drop)?;
        stores.remove(name);
        Ok(dropped)
    }
}

/// Runs `body`, repeatedly while the store is closing: its last handle was dropped, and commits for which no
/// thread waited are still under way.
fn once_closed<T>(was_open: bool, body: impl Fn() -> tembo_store::Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match body() {
            Err(tembo_store::Error::InUse { .. }) if was_open && begun.elapsed() < CLOSING_MAX => {
                std::thread::sleep(Duration::from_micros(50));
            }
            outcome => return Ok(outcome?),
        }
    }
}
