//! Errors that keep a server from starting or going on, or that a check finds.

use std::io;
use std::net::SocketAddr;

/// The reason why a server could not be started or had to stop. An error of one client or command is answered
/// to that client, and is never one of these.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on. Choose another, or stop the program that has it.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Other machines could reach the address, and there are no [accounts](crate::Config::accounts).
    #[error(
        "{address} can be reached from other machines, and there are no accounts; listen on 127.0.0.1, or name a file of accounts"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The system's event queue failed.
    #[error("the event loop failed: {0}")]
    Poll(#[from] io::Error),
    /// The pool's items cannot be opened.
    #[error("cannot open the pool's items: {0}")]
    Pool(#[from] tembo::Error),
    /// A record of the map is no item.
    #[error("the item {key} of the map \"memcached\" is damaged: its value has {bytes} bytes")]
    Damaged {
        /// Its key, with escapes.
        key: String,
        /// The length of its value.
        bytes: usize,
    },
    /// The pool has a map with the name of memcached's items, which memcached has not made.
    #[error("the map \"memcached\" of this pool was not made for memcached: {what}; use another pool")]
    Foreign {
        /// The fault.
        what: String,
    },
}
