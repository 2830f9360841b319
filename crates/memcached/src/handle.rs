//! The handle by which other threads reach a running server.

use crate::stats::Figures;
use mio::Waker;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Stops a [`Server`](crate::Server), and has its figures. Can be cloned and sent.
#[derive(Clone, Debug)]
pub struct Handle {
    requested: Arc<AtomicBool>,
    waker: Arc<Waker>,
    commands: Arc<AtomicU64>,
    figures: Arc<Mutex<Figures>>,
}

impl Handle {
    /// A handle of a server that `waker` wakes.
    pub(crate) fn new(waker: Waker) -> Handle {
        Handle {
            requested: Arc::default(),
            waker: Arc::new(waker),
            commands: Arc::default(),
            figures: Arc::default(),
        }
    }

    /// The commands that clients have had run since the start. It follows after each turn.
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// The counts since the start, or since a client's `stats reset`. They are renewed ten times a second.
    pub fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_commands(&self, commands: u64) {
        // Only the serving thread calls this, so no addition is lost.
        self.commands.store(self.commands() + commands, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, figures: Figures) {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Lets [`Server::run`](crate::Server::run) return after the turn under way. Returns at once.
    pub fn shutdown(&self) {
        // ORDER: release, so that what this thread did before is seen by the one that stops.
        self.requested.store(true, Ordering::Release);
        // Without the wake-up the server notices at its next tick.
        let _ = self.waker.wake();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}
