//! The stop of a server, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;

/// A request to stop, shared with the [`Handle`]s.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) requested: Arc<AtomicBool>,
    pub(crate) waker: Arc<Waker>,
}

impl Stop {
    /// Wakes the event loop.
    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}
