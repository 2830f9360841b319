//! The threads that synchronise in time, and write back before the ring is full.

use super::Journal;
use crate::{RegionError, SyncError};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tembo_sync::nap;

/// Ends its threads when it is dropped.
pub(crate) struct Worker {
    journal: Arc<Journal>,
    threads: Vec<JoinHandle<()>>,
}

/// The pause after too few pages could be given back.
const PAUSE: Duration = Duration::from_millis(10);
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
    /// Synchronises on request, and records that have waited for half the interval, so that the
    /// synchronisation ends within it. Ends after a failure, which every fence reports.
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

    /// Lets the ring grow, or else writes back, while more than half of it is used; gives pages back while
    /// too many are private. Ends after a failure.
    fn write_back_in_time(&self) {
        loop {
            let mut state = self.lock();
            let is_half_full = loop {
                if state.has_to_stop {
                    return;
                }
                let is_half_full = state.end - state.tail > state.ring.capacity / 2;
                if is_half_full || state.is_relieved {
                    break is_half_full;
                }
                state = self.filling.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            let outcome = if is_half_full { self.make_room() } else { self.have_fewer_pages() };
            if outcome.is_err() {
                return;
            }
        }
    }

    fn make_room(&self) -> Result<(), SyncError> {
        if self.grow_ring()? { Ok(()) } else { self.write_some_back() }
    }

    fn have_fewer_pages(&self) -> Result<(), SyncError> {
        let is_done = self.relieve()?;
        if !is_done {
            // Each of the rest was stored to and not flushed, or has records that came meanwhile.
            nap(PAUSE);
        }
        self.lock().is_relieved = self.has_too_many_pages();
        Ok(())
    }
}
