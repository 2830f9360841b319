//! The threads that synchronise in time, and write back before the ring is full.

use super::Journal;
use crate::RegionError;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends its threads when it is dropped.
pub(crate) struct Worker {
    journal: Arc<Journal>,
    threads: Vec<JoinHandle<()>>,
}

/// Nothing has to be looked at for so long.
const IDLE: Duration = Duration::from_secs(60);

impl Worker {
    pub(crate) fn start(journal: Arc<Journal>) -> Result<Worker, RegionError> {
        let mut worker = Worker { journal: journal.clone(), threads: Vec::new() };
        // Two, as a write-back takes longer than a record may wait.
        for (name, work) in [
            ("tembo-sync", Journal::synchronise_in_time as fn(&Journal)),
            ("tembo-home", Journal::write_back_in_time),
        ] {
            let works_for = journal.clone();
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&works_for));
            let thread = thread.map_err(|e| RegionError::io("starting the threads of the journal", e))?;
            worker.threads.push(thread);
        }
        journal.lock().has_worker = true;
        Ok(worker)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        {
            let mut state = self.journal.lock();
            (state.has_worker, state.has_to_stop) = (false, true);
        }
        self.journal.work.notify_all();
        self.journal.filling.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Journal {
    /// Synchronises what is wanted, and what has waited for half the interval, so that it ends within that.
    /// Ends after a failure, of which every fence tells.
    fn synchronise_in_time(&self) {
        let half = self.interval.map(|interval| interval / 2);
        loop {
            let mut state = self.lock();
            let end = loop {
                if state.has_to_stop {
                    return;
                }
                let age = state.age();
                let is_due = half.is_some_and(|half| state.end > state.durable && age >= half);
                if state.wanted > state.durable || is_due {
                    break state.end;
                }
                // A record that is written meanwhile is younger than this when it is looked at.
                let patience = half.map_or(IDLE, |half| half.saturating_sub(age));
                let patience = patience.max(Duration::from_millis(1));
                state = self.work.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
            };
            drop(state);
            let outcome = self.wait_until_durable(end);
            if let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
                wake();
            }
            if outcome.is_err() {
                return;
            }
        }
    }

    /// Lets the ring grow, or else writes back, while more than half of it is used. Ends after a failure.
    fn write_back_in_time(&self) {
        loop {
            let mut state = self.lock();
            while state.end - state.tail <= state.ring.capacity / 2 {
                if state.has_to_stop {
                    return;
                }
                state = self.filling.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.has_to_stop {
                return;
            }
            drop(state);
            match self.grow_ring() {
                Ok(true) => {}
                Ok(false) if self.write_some_back().is_ok() => {}
                _ => return,
            }
        }
    }
}
