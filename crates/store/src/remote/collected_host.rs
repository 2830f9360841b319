//! A host each of whose stores has a collector while it is served.

use super::host::Host;
use crate::collector::{Collector, CollectorOptions};
use crate::error::Result;
use crate::handle::Store;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The stores of another host, with their collectors. These keep the stores open.
pub(super) struct CollectedHost<H> {
    host: H,
    collectors: Mutex<HashMap<String, Collector>>,
}

impl<H: Host> CollectedHost<H> {
    /// Starts the collectors of the stores that are there. A store that cannot be opened now has none until a
    /// client opens it: who asks for it gets the error.
    pub(super) fn new(host: H) -> CollectedHost<H> {
        let collected = CollectedHost { host, collectors: Mutex::default() };
        for name in collected.host.names().unwrap_or_default() {
            _ = collected.find(&name);
        }
        collected
    }
}

impl<H: Host> Host for CollectedHost<H> {
    fn find(&self, name: &str) -> Result<Option<Store>> {
        let Some(store) = self.host.find(name)? else { return Ok(None) };
        let mut collectors = self.collectors.lock();
        if !store.pool().is_read_only() && !collectors.contains_key(name) {
            collectors.insert(name.to_owned(), store.collector(CollectorOptions::default())?);
        }
        Ok(Some(store))
    }

    fn names(&self) -> Result<Vec<String>> {
        self.host.names()
    }
}
