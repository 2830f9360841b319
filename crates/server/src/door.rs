//! The way in for new clients while a script keeps the event loop.

use mio::Registry;

use crate::address::Acceptor;
use crate::stop::Stop;

/// The parts of the event loop that let clients in while a script keeps it.
pub(crate) struct Door<'s> {
    pub(crate) acceptors: &'s [Acceptor],
    pub(crate) registry: Registry,
    pub(crate) stop: &'s Stop,
}

impl<'s> Door<'s> {
    /// A door beside that of the event loop; none if the system has no file descriptor for it.
    pub(crate) fn new(acceptors: &'s [Acceptor], registry: &Registry, stop: &'s Stop) -> Option<Self> {
        Some(Door { acceptors, registry: registry.try_clone().ok()?, stop })
    }
}
