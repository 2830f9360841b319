//! Commands that are run again: after a commit, with a database that was missing, or with space come back.

use crate::commands::table::Command;
use crate::commands::table::flag::{DENYOOM, WRITE};
use crate::config::LogLevel;
use crate::eviction::evictor;
use crate::executor::{Current, Executor, Tries};
use crate::fault::{Answer, Fault};
use crate::log::MessageKind;
use crate::state::State;

/// Times that space is reclaimed before a command that found the pool full is tried again.
const RECLAIMS_PER_RETRY: usize = 64;

impl Executor<'_, '_> {
    /// Prepares for another run of a command that ended in this fault; returns the fault if another run would
    /// not help. A command that had committed parts of a large collection is run again once, with all free
    /// space.
    pub(crate) fn prepare_retry(&mut self, fault: Fault, tries: &mut Tries, current: Current<'_>) -> Answer {
        match fault {
            Fault::NeedsCommit => {
                self.commit_batch(Some(current));
                Ok(())
            }
            Fault::MissingDatabase(database) => {
                self.commit_batch(Some(current));
                Ok(self.keys.create(database)?)
            }
            Fault::Engine(tembo::Error::Full { .. }) if self.keys.copy_is_in_the_way() => {
                self.commit_batch(Some(current));
                self.give_up_copy();
                self.reclaim_all()
            }
            Fault::Engine(tembo::Error::Full { .. }) if self.keys.is_reclaiming() => {
                self.commit_batch(Some(current));
                if !self.keys.gave_up_parts() {
                    return self.reclaim_now();
                }
                if std::mem::replace(&mut tries.is_built_again, true) {
                    Err(fault)
                } else {
                    self.reclaim_all()
                }
            }
            // Replaced states are given up before anything else.
            Fault::Engine(tembo::Error::Full { .. }) if self.keys.has_kept() => {
                self.commit_batch(Some(current));
                self.keys.give_up_kept()?;
                if self.keys.gave_up_parts() { self.reclaim_all() } else { self.reclaim_now() }
            }
            Fault::Engine(tembo::Error::Full { needed_bytes, .. })
                if self.evicts() && tries.evictions < evictor::TRIES_MAX =>
            {
                tries.evictions += 1;
                self.commit_batch(Some(current));
                if self.evict_for(needed_bytes)? { Ok(()) } else { Err(fault) }
            }
            Fault::Engine(tembo::Error::Full { .. })
                if !self.keys.gave_up_parts() && tries.evictions < evictor::TRIES_MAX =>
            {
                tries.evictions += 1;
                self.commit_batch(Some(current));
                let State { compactor, config, now, .. } = &mut *self.state;
                let has_room = compactor.make_room(self.keys.pool(), &config.compaction, *now);
                if has_room { Ok(()) } else { Err(fault) }
            }
            fault => Err(fault),
        }
    }

    /// Ends retained states whose time is over, and prepares for new ones. Called when there is no batch.
    pub(crate) fn tend_kept(&mut self) {
        self.keys.keeping.grace_ms = self.state.config.flush_grace.as_millis() as u64;
        if !self.keys.has_batch()
            && let Err(fault) = self.keys.end_kept().and_then(|()| self.keys.prepare_to_keep())
        {
            let why = crate::fault::shown(&fault);
            let message = format_args!("what is kept cannot be tended now: {why}");
            self.state.log(LogLevel::Verbose, MessageKind::Full, message);
        }
    }

    /// Frees space beside the data, for a transaction that found none: that of a copy, then space to be
    /// reclaimed, then replaced states.
    pub(crate) fn give_room(&mut self) -> Answer {
        if !self.give_up_copy() && !self.keys.is_reclaiming() {
            self.keys.give_up_kept()?;
        }
        self.reclaim_now()
    }

    /// Reclaims space that cleared databases still hold, for a command that found none.
    pub(crate) fn reclaim_now(&mut self) -> Answer {
        if !self.keys.is_reclaiming() {
            self.keys.give_up_kept()?;
        }
        for _ in 0..RECLAIMS_PER_RETRY {
            self.keys.reclaim()?;
        }
        Ok(())
    }

    /// A command that may not need space, and found none, may change in place the value that it would copy.
    /// Returns whether it is to be run again.
    #[cold]
    pub(crate) fn may_do_in_place(&mut self, command: &Command, fault: &Fault) -> bool {
        let is_full = matches!(fault, Fault::Engine(tembo::Error::Full { .. }));
        is_full && command.has(WRITE) && !command.has(DENYOOM) && !self.keys.set_in_one_batch(true)
    }

    fn reclaim_all(&mut self) -> Answer {
        while self.keys.is_reclaiming() {
            self.keys.reclaim()?;
        }
        Ok(())
    }
}
