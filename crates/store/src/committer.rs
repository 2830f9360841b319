//! A thread that makes the commits that were asked for, so that polling them does not.

use crate::error::{Error, Result};
use crate::handle::{Store, StoreInner};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// A thread that makes the commits which were [asked for](crate::Transaction::commit_async) and polled, until
/// this is dropped, which waits for its last commit, but in a waker. Keeps the store open.
#[must_use = "the thread ends when this is dropped"]
pub struct Committer {
    store: Arc<StoreInner>,
    is_dismissed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Starts a thread that makes the commits which are [asked for](crate::Transaction::commit_async) and
    /// then polled. While it runs, [`Commit`](crate::Commit) is pending until its transaction is durable, and
    /// polling it takes no longer than a lock for some instructions. Without one, the first poll makes the
    /// commit itself, and takes as long as that. The thread makes all commits that wait by one record, with
    /// one fence. Costs a commit two changes of threads: it is for programs whose futures must not block, or
    /// whose commits take long, as where each synchronises a device.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`] if the system has none; [`Error::Pool`] of a store that is open for reading only.
    pub fn committer(&self) -> Result<Committer> {
        self.check_writable()?;
        let store = self.inner.clone();
        // Before the thread is there: who polls from now on hands over.
        let seat = Seat::take(&store);
        let is_dismissed = Arc::new(AtomicBool::new(false));
        let theirs = is_dismissed.clone();
        let thread = std::thread::Builder::new()
            .name("tembo-committer".to_owned())
            .spawn(move || {
                while seat.0.commits.handover.wait(&theirs) {
                    seat.0.commits.commit_for_others(&seat.0);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Committer { store, is_dismissed, thread: Some(thread) })
    }
}

/// A thread's seat. Whoever has handed a commit over to a thread that leaves, however that comes, makes it
/// when it is polled again.
struct Seat(Arc<StoreInner>);

impl Seat {
    fn take(store: &Arc<StoreInner>) -> Seat {
        store.commits.handover.enter();
        Seat(store.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.0.commits.handover.leave() {
            self.0.commits.wake_waiting();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.store.commits.handover.dismiss(&self.is_dismissed);
        let Some(thread) = self.thread.take() else { return };
        // A waker may drop this in the thread itself, which leaves after that.
        if thread.thread().id() != std::thread::current().id() {
            // A thread that panicked has said so.
            _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").finish_non_exhaustive()
    }
}
