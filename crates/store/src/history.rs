//! The changes of a commit, as it tells others of them: the log, the accounts, and those who watch.

use crate::error::Result;
use crate::keyspace::KeyspaceInner;
use crate::limiter::Limiter;
use crate::log::{Log, LogSlot};
use crate::log_entry::EntryDraft;
use crate::retention::now_unix_ns;
use crate::space::{Accounts, Tally};
use crate::versions::Version;
use crate::watches::{Watched, Watches};
use std::sync::Arc;
use tembo_pool::Tx;

/// The state of a store beside its versions.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) log: LogSlot,
    pub(crate) accounts: Accounts,
    pub(crate) limits: Limiter,
    pub(crate) watches: Watches,
}

impl History {
    /// Whether commits have nothing to tell anybody, and no limits. This changes only while no lane commits.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.log.is_there() && !self.watches.has_any() && !self.accounts.is_on() && !self.limits.is_on()
    }
}

/// The changes of a group of transactions, until the group is committed.
pub(crate) struct Noted<'h> {
    history: &'h History,
    log: Option<Arc<Log>>,
    entry: EntryDraft,
    pub(crate) tally: Tally,
    watched: Watched,
}

/// A moment, to which notes are taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotedSoFar {
    tally: usize,
    watched: usize,
}

impl<'h> Noted<'h> {
    /// Nothing yet.
    pub(crate) fn new(history: &'h History) -> Noted<'h> {
        Noted {
            history,
            log: history.log.get_on(),
            entry: EntryDraft::default(),
            tally: history.accounts.tally(),
            watched: history.watches.watched(),
        }
    }

    pub(crate) fn so_far(&self) -> NotedSoFar {
        NotedSoFar { tally: self.tally.len(), watched: self.watched.len() }
    }

    /// Takes back what was noted since.
    pub(crate) fn take_back(&mut self, to: NotedSoFar) {
        self.entry = EntryDraft::default();
        self.tally.truncate(to.tally);
        self.watched.truncate(to.watched);
    }

    /// A key that had the version `last` gets a new one.
    pub(crate) fn change(
        &mut self,
        tx: &Tx<'_>,
        keyspace: &KeyspaceInner,
        (key, value): (&[u8], Option<&[u8]>),
        (last, new): (Option<Version>, Version),
    ) -> Result<()> {
        if self.log.is_some() {
            self.entry.add(keyspace.id, key, value.is_none());
        }
        self.watched.note(keyspace.id, key, value, new.number);
        let account = self.history.accounts.account(&self.tally, keyspace, || Ok(key.to_vec()))?;
        match account {
            Some(account) => account.add(tx, key, last, new),
            None => Ok(()),
        }
    }

    /// Ends a transaction: its entry goes into the log.
    pub(crate) fn end(&mut self, tx: &mut Tx<'_>, number: u64, begin: u64) -> Result<()> {
        let entry = std::mem::take(&mut self.entry);
        match &self.log {
            Some(log) if !entry.is_empty() => {
                log.append(tx, number, &entry.finish(number, begin, now_unix_ns()))
            }
            _ => Ok(()),
        }
    }

    /// The group is durable, and not visible yet.
    pub(crate) fn enter(&mut self) {
        self.history.accounts.enter(&self.tally);
        self.watched.hand_over();
    }

    /// The group is visible.
    pub(crate) fn wake(&self) {
        self.watched.wake();
    }
}
