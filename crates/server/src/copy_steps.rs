//! The steps of a copy of all data: see [`crate::copier`].

use std::fs::File;
use std::time::{Duration, Instant};

use crate::copier::{NoCopy, Purpose, RunningCopy};
use crate::executor::Executor;
use crate::export::{Export, Exported};
use crate::keyspace::point::Lost;
use crate::state::State;

/// The time of a step.
const STEP: Duration = Duration::from_millis(1);

/// The number of times that a copy is begun anew before it is written in one turn.
const RESTARTS_MAX: u32 = 2;

impl Executor<'_, '_> {
    /// Whether there is a copy to be written, or to be begun. The event loop does not sleep meanwhile.
    pub(crate) fn is_copying(&self) -> bool {
        let State { copier, saving, .. } = &*self.state;
        let may_begin = saving.is_scheduled && copier.forcing.is_none() && !self.keys.replication.is_arriving;
        copier.is_writing() || may_begin
    }

    /// Writes a part of the copy that is under way, or begins one. Called when the batch is committed.
    pub(crate) fn copy(&mut self) {
        self.take_forced();
        if self.state.copier.running.is_none() && !self.begin_copy() {
            return;
        }
        let Some(mut running) = self.state.copier.running.take() else { return };
        match self.step(&mut running) {
            Ok(false) => self.state.copier.running = Some(running),
            Ok(true) => {
                self.end_point();
                let RunningCopy { export, purpose, begun } = *running;
                let finished = export.finish();
                self.state.copier.restarts = 0;
                match finished {
                    Ok((file, exported)) => self.complete(purpose, file, exported, begun),
                    Err(error) => self.fail(&purpose, &NoCopy::Export(error)),
                }
            }
            Err(NoCopy::Lost(Lost::Cleared)) => {
                self.end_point();
                self.state.copier.restarts += 1;
                match self.restart(&running.purpose) {
                    // The copy begins at once, as the next turn may clear a database again.
                    Ok(()) => self.copy(),
                    Err(why) => {
                        self.state.copier.restarts = 0;
                        self.fail(&running.purpose, &why);
                    }
                }
            }
            Err(why) => {
                self.end_point();
                self.state.copier.restarts = 0;
                if !matches!(why, NoCopy::Unwanted) {
                    self.fail(&running.purpose, &why);
                }
            }
        }
    }

    /// Gives up the copy that is under way, for a command that found no room; returns whether there was one.
    #[cold]
    pub(crate) fn give_up_copy(&mut self) -> bool {
        if self.keys.point().is_none() {
            return false;
        }
        self.state.copier.restarts = 0;
        self.keys.lose_point(Lost::NoRoom);
        if let Some(running) = self.state.copier.running.take() {
            self.end_point();
            self.fail(&running.purpose, &NoCopy::Lost(Lost::NoRoom));
        }
        true
    }

    /// Begins the copy that is wanted, if one is.
    fn begin_copy(&mut self) -> bool {
        if self.keys.replication.is_arriving {
            // The present data may be cleared already.
            return false;
        }
        let begun = match self.wants_copies() {
            true => self.begin_for_replicas(),
            false if self.state.saving.is_scheduled && self.state.copier.forcing.is_none() => {
                self.begin_save()
            }
            false => return false,
        };
        match begun {
            Ok((export, purpose)) => self.run_copy(export, purpose),
            Err(refused) => {
                self.fail(&refused.0, &refused.1);
                false
            }
        }
    }

    /// Begins the copy anew, of the data that are committed now.
    fn restart(&mut self, purpose: &Purpose) -> Result<(), NoCopy> {
        if self.keys.replication.is_arriving {
            return Err(NoCopy::Lost(Lost::Replaced));
        }
        let begun = match purpose {
            Purpose::Save(_) => self.begin_save(),
            Purpose::Replicas(_) => self.begin_for_replicas(),
        };
        let (export, purpose) = begun.map_err(|refused| refused.1)?;
        self.run_copy(export, purpose);
        Ok(())
    }

    fn run_copy(&mut self, export: Export<File>, purpose: Purpose) -> bool {
        if let Err(fault) = self.keys.begin_point(export.maps()) {
            let error = std::io::Error::other(crate::fault::shown(&fault));
            self.fail(&purpose, &NoCopy::from(error));
            return false;
        }
        self.state.copier.running = Some(Box::new(RunningCopy { export, purpose, begun: Instant::now() }));
        true
    }

    /// Writes a part; returns whether that was all.
    fn step(&mut self, running: &mut RunningCopy) -> Result<bool, NoCopy> {
        if matches!(running.purpose, Purpose::Replicas(_)) && !self.has_takers() {
            return Err(NoCopy::Unwanted);
        }
        let Executor { keys, state, .. } = self;
        let Some(point) = keys.point() else { return Err(NoCopy::Lost(Lost::Replaced)) };
        if let Some(why) = point.lost() {
            return Err(NoCopy::Lost(why));
        }
        let kept = point.old_records().filter(|_| keys.old_bytes() > 0);
        let (begun, in_one_turn) = (Instant::now(), state.copier.restarts > RESTARTS_MAX);
        let mut count = |id| keys.count_committed(id);
        let done = running.export.step(&mut point.progress.borrow_mut(), kept, &mut count, &mut || {
            if in_one_turn {
                state.show_alive();
            }
            !in_one_turn && begun.elapsed() >= STEP
        });
        state.copier.old_bytes = keys.old_bytes();
        state.copier.longest_step = state.copier.longest_step.max(begun.elapsed());
        Ok(done?)
    }

    /// Ends the point of a copy. A pool that refuses does so again when the next one begins.
    fn end_point(&mut self) {
        self.state.copier.old_bytes = 0;
        if let Err(fault) = self.keys.end_point() {
            let why = crate::fault::shown(&fault);
            let message = format_args!("what a copy has kept cannot be removed now: {why}");
            self.state.log(crate::config::LogLevel::Warning, crate::log::MessageKind::Saving, message);
        }
    }

    fn complete(&mut self, purpose: Purpose, file: File, exported: Exported, begun: Instant) {
        match purpose {
            Purpose::Save(temporary) => self.force_saved(temporary, file, &exported, begun),
            Purpose::Replicas(position) => self.give_copies(file, &exported, &position, begun),
        }
    }

    fn fail(&mut self, purpose: &Purpose, why: &NoCopy) {
        match purpose {
            Purpose::Save(temporary) => {
                // The earlier error is the one that is reported.
                let _ = std::fs::remove_file(temporary);
                self.end_save(Err(why.to_string()));
            }
            Purpose::Replicas(_) => self.refuse_copies(why),
        }
    }

    /// Gives up unfinished copies, as the server stops; a whole file is completed.
    pub(crate) fn stop_copying(&mut self) {
        if let Some(running) = self.state.copier.running.take()
            && let Purpose::Save(temporary) = &running.purpose
        {
            let _ = std::fs::remove_file(temporary);
        }
        if let Some(forcing) = self.state.copier.forcing.take() {
            let _ = forcing.thread.join();
        }
    }
}
