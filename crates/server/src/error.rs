//! Errors that keep a server from starting or going on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// The server cannot listen on the socket of the file system. Remove the file of that name, or choose
    /// another name.
    #[error("cannot listen on {}: {source}", path.display())]
    UnixSocket {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The address for figures cannot be listened on. Choose another, or stop the program that has it.
    #[error("cannot listen on {address} for metrics: {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The address for figures can be reached from other machines, and nothing says that it should.
    #[error("metrics at {address} could be read from other machines; metrics-public yes allows that")]
    MetricsPublic {
        /// The address.
        address: SocketAddr,
    },
    /// The system's event queue failed.
    #[error("the event loop failed: {0}")]
    Poll(#[from] io::Error),
    /// The pool is not one of the mode that `cluster-enabled` chooses, and has keys.
    #[error("{0}")]
    ClusterMode(String),
    /// The users of the configuration or of the ACL file are wrong, or that file cannot be read. The message
    /// has no passwords.
    #[error("{0}")]
    Users(String),
    /// The settings of TLS are wrong, or one of their files is. The message has no secrets.
    #[error("TLS cannot be spoken: {0}")]
    Tls(String),
    /// The pool's databases cannot be opened.
    #[error("cannot open the pool's databases: {0}")]
    Pool(#[from] tembo::Error),
}
