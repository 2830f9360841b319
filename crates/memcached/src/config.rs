//! Settings.

use crate::{Accounts, LimitSource};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The settings of a [`Server`](crate::Server).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Config {
    /// The address. 127.0.0.1:11211; with port 0 the system chooses one.
    pub listen: SocketAddr,
    /// The accounts that may use the server; `None`: everybody who can reach it, this machine alone then.
    pub accounts: Option<Accounts>,
    /// The longest value in bytes. 1 MiB, as memcached has it; at most 512 MiB less 32 bytes.
    pub max_value_bytes: usize,
    /// The most clients at once. 1024.
    pub max_clients: usize,
    /// After this much silence a client is disconnected. `None`.
    pub idle_timeout: Option<Duration>,
    /// The memory that the pool's data may have before items are evicted; `None`: nothing is.
    pub memory_limit: Option<LimitSource>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 11211),
            accounts: None,
            max_value_bytes: 1 << 20,
            max_clients: 1024,
            idle_timeout: None,
            memory_limit: None,
        }
    }
}
