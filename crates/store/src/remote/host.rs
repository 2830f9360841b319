//! The stores that a host serves, and the options of serving them.

use crate::error::Result;
use crate::handle::Store;
use std::time::Duration;

/// The stores that are served at a socket.
pub trait Host: Send + Sync + 'static {
    /// The store of this name, if there is one.
    ///
    /// # Errors
    ///
    /// Those of opening it; the client gets them.
    fn find(&self, name: &str) -> Result<Option<Store>>;

    /// The names of all stores.
    ///
    /// # Errors
    ///
    /// Those of listing them; the client gets them.
    fn names(&self) -> Result<Vec<String>>;
}

impl Host for Store {
    fn find(&self, name: &str) -> Result<Option<Store>> {
        Ok((name == self.name()).then(|| self.clone()))
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(vec![self.name().to_owned()])
    }
}

/// Bounds of what clients take, and what is done beside serving them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Clients at the same time: 64. Each has a thread.
    pub clients_max: usize,
    /// Snapshots and transactions that a client has open at the same time: 1024.
    pub open_max: usize,
    /// How long a connection may take to say what it wants: 10 s.
    pub hello_timeout: Duration,
    /// Whether each store has a [collector](Store::collector) as long as the stores are served, so that space
    /// comes back while nobody commits: no. Stores that are there are then opened at once.
    pub collects: bool,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        let hello_timeout = Duration::from_secs(10);
        ServeOptions { clients_max: 64, open_max: 1024, hello_timeout, collects: false }
    }
}
