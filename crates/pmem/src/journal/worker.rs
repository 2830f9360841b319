//! The thread that synchronises in time, and writes back before the ring is full.

use super::Journal;
use crate::RegionError;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends its thread when it is dropped.
pub(crate) struct Worker {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

/// The next thing to do.
enum Work {
    Stop,
    Synchronise(u64),
    WriteBack,
}

impl Worker {
    pub(crate) fn start(journal: Arc<Journal>) -> Result<Worker, RegionError> {
        let works_for = journal.clone();
        let thread = std::thread::Builder::new()
            .name("tembo-journal".to_owned())
            .spawn(move || work(&works_for))
            .map_err(|e| RegionError::io("starting the thread of the journal", e))?;
        Ok(Worker { journal, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.journal.lock().has_to_stop = true;
        self.journal.work.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(journal: &Journal) {
    loop {
        let outcome = match journal.next_work() {
            Work::Stop => return,
            Work::Synchronise(end) => journal.wait_until_durable(end),
            Work::WriteBack => journal.write_some_back(),
        };
        // The journal has failed; every fence says so.
        if outcome.is_err() {
            return;
        }
    }
}

impl Journal {
    /// Waits for work. A synchronisation begins at half the interval, so that it ends within it.
    fn next_work(&self) -> Work {
        const IDLE: Duration = Duration::from_secs(60);
        let half = self.interval.map(|interval| interval / 2);
        let mut state = self.lock();
        loop {
            if state.has_to_stop {
                return Work::Stop;
            }
            if state.end - state.tail > self.ring.capacity / 2 {
                return Work::WriteBack;
            }
            let age = state.age();
            if half.is_some_and(|half| state.end > state.durable && age >= half) {
                return Work::Synchronise(state.end);
            }
            // A record that is written meanwhile is younger than this when it is looked at.
            let patience = half.map_or(IDLE, |half| half.saturating_sub(age)).max(Duration::from_millis(1));
            state = self.work.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
