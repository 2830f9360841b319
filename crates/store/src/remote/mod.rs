//! A store that several trusting processes use: its owner serves it over a Unix socket.
//!
//! One process has the pool open, and with it the lock of the file. It [serves](Store::serve) a store, or
//! whatever stores a [`Host`] knows, at a socket; other processes of the same user
//! [connect](RemoteStore::connect), and work with [`RemoteStore`], [`RemoteTransaction`], [`RemoteSnapshot`]
//! and [`RemoteEntries`], whose calls have the names, the meaning and the errors of those that the owner has.
//!
//! # Protocol
//!
//! A frame is its length in 4 bytes and a message, at most [`FRAME_BYTES_MAX`] bytes (`wire.rs`). A client
//! sends a request and waits for its reply (`message.rs`); a backup has a reply for each part of its stream.
//! The first request says the version of the protocol and the name of the store. An error keeps its type
//! where a program may act upon it (`fault.rs`); any other comes as
//! [`Error::Remote`](crate::Error::Remote), with its text.
//!
//! A transaction's writes lie in the client's memory until the commit, which is one message. Its snapshot,
//! and what a serializable transaction has read, lie with the owner.
//!
//! # Access
//!
//! The socket's mode is 0600 before anybody can connect. The user of whoever connects is asked of the kernel:
//! it is the owner's user or root, or the connection is closed. Whoever is let in can read and change the
//! whole store; nothing is encrypted.
//!
//! # Bounds
//!
//! Each client has a thread of the owner, and holds there at most one request and one reply, and a number of
//! snapshots and transactions ([`ServeOptions`]). A backup is a client of its own. Memory for a request grows
//! as its bytes arrive. Bytes that are not a message end the connection, and nothing else.
//!
//! # Ends
//!
//! The end of a connection, by whatever death of the client, frees its snapshots and forgets its
//! transactions; the kernel closes the socket of a process that was killed. A client whose owner is gone gets
//! [`Error::Disconnected`](crate::Error::Disconnected) from each call. A commit that was not answered by then
//! may have been made or not; all that were answered are durable. A client that stands still keeps its
//! snapshots, as a reader in the owner's process would: [`Limits`](crate::Limits) bound what that costs.
//!
//! # Concurrency
//!
//! The list of clients has a lock, which is held for no request. A client's connection has one, which is held
//! until the reply is there: threads that work at the same time connect once each.
//!
//! # Source
//!
//! Echo (INFLOW'13) 2, second use. D1: the types of a client are others than the owner's, so that a local
//! read stays a look at memory without a branch. D2: a page of a range or a value has to fit a frame. D3: the
//! log, watching, restoring, bulk loads, `commit_async` and limits are the owner's alone.

mod backup;
mod changes;
mod client;
mod collected_host;
mod entries;
mod fault;
mod host;
mod link;
mod message;
mod serve;
mod session;
mod snapshot;
mod transaction;
mod wire;

pub use changes::RemoteChanges;
pub use client::RemoteStore;
pub use entries::RemoteEntries;
pub use host::{Host, ServeOptions};
pub use serve::{Serving, serve};
pub use snapshot::{RemoteKeyspace, RemoteSnapshot};
pub use transaction::RemoteTransaction;

use crate::error::Result;
use crate::handle::Store;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The longest message.
pub const FRAME_BYTES_MAX: u64 = 64 << 20;

/// The place beside a pool where its owner serves its stores: the pool's path and `.sock`.
pub fn socket_of(pool: impl AsRef<Path>) -> PathBuf {
    let mut name = OsString::from(pool.as_ref());
    name.push(".sock");
    name.into()
}

impl Store {
    /// Serves this store at a socket until the guard is dropped, for processes of the same user and of root.
    /// A socket that a process left there when it was killed is replaced. [`socket_of`] is the usual place.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the socket cannot be made: something is there, or the path is
    /// longer than the some 100 bytes that a socket's may have; [`Error::Thread`](crate::Error::Thread).
    pub fn serve(&self, path: impl AsRef<Path>) -> Result<Serving> {
        serve(path, self.clone(), ServeOptions::default())
    }

    /// As [`RemoteStore::connect`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn connect(path: impl AsRef<Path>, name: &str) -> Result<RemoteStore> {
        RemoteStore::connect(path, name)
    }
}

#[cfg(test)]
mod tests;
