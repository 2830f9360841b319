//! A thread that collects, so that space comes back without further calls.

use crate::error::{Error, Result};
use crate::handle::{Store, StoreInner};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a [`Collector`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectorOptions {
    /// How long it waits before it looks again, when there was nothing to do: 20 ms.
    pub interval: Duration,
    /// Keys that it looks at in one go, in which commits wait: 128.
    pub tables: usize,
    /// The part of the time, in percent from 1 to 100, that it works while there is something to do: 25.
    pub busy_percent: u32,
}

impl Default for CollectorOptions {
    fn default() -> CollectorOptions {
        CollectorOptions { interval: Duration::from_millis(20), tables: 128, busy_percent: 25 }
    }
}

/// A thread that [collects](Store::collect) until this is dropped, which waits for its last step. Keeps the
/// store open.
#[must_use = "the thread ends when this is dropped"]
pub struct Collector {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    error: Option<Error>,
}

impl Store {
    /// Starts a thread that collects what nobody needs any more: versions, past entries of the log, dropped
    /// keyspaces and stores; and looks after the [limits](crate::Limits). Without one, commits do
    /// the same in small steps, and calls of [`collect`](Self::collect) at once: it is for stores that are to
    /// give space back while nobody commits.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`] if the system has none.
    pub fn collector(&self, options: CollectorOptions) -> Result<Collector> {
        let shared = Arc::new(Shared::default());
        let (store, theirs) = (self.inner.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("tembo-collector".to_owned())
            .spawn(move || theirs.run(store, options))
            .map_err(Error::Thread)?;
        Ok(Collector { shared, thread: Some(thread) })
    }
}

impl Shared {
    fn run(&self, store: Arc<StoreInner>, options: CollectorOptions) {
        let share = options.busy_percent.clamp(1, 100);
        loop {
            let start = Instant::now();
            let outcome = store.collect(options.tables.max(1));
            let pause = match outcome {
                Ok(true) => start.elapsed() * (100 - share) / share,
                _ => options.interval,
            };
            let mut state = self.state.lock();
            if let Err(e) = outcome {
                state.error = Some(e);
            }
            if !state.is_stopped {
                self.changed.wait_for(&mut state, pause);
            }
            if state.is_stopped {
                return;
            }
        }
    }
}

impl Collector {
    /// The last error that the thread came across, since the last call. It goes on after an error.
    pub fn take_error(&self) -> Option<Error> {
        self.shared.state.lock().error.take()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}
