//! The audit trail: the commits that the log (`log.rs`) tells of, and for how long it does.

use crate::commit_queue::Lead;
use crate::entries::is_empty;
use crate::error::Result;
use crate::handle::{Store, StoreInner};
use crate::keyspace::Keyspace;
use crate::layout::{ValueWord, field};
use crate::log::{Audit, Log};
use crate::log_entry::{LoggedCommit, number_of, read_commit};
use crate::versions::read_value;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Entries that are read in one go.
const BATCH: usize = 64;

/// A commit that changed a key ([`Store::audit`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its number.
    pub number: u64,
    /// The snapshot that its transaction read.
    pub begin: u64,
    /// When it was made, in nanoseconds since 1970, by the clock of the system.
    pub time_unix_ns: u64,
    /// The value that it gave the key.
    pub change: AuditedChange,
}

/// The change of a key that an [`AuditRecord`] tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditedChange {
    /// The key got this value.
    Put(Vec<u8>),
    /// The key got a value that the keyspace does not retain any more.
    PutCollected,
    /// The key was deleted.
    Deleted,
}

/// The commits of a part of the log, in the order of their numbers, from both ends ([`Store::log`]). Reads
/// some 64 entries at a time. After an error it ends.
pub struct LoggedCommits {
    log: Option<Arc<Log>>,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    front: VecDeque<LoggedCommit>,
    /// From the last to the first.
    back: VecDeque<LoggedCommit>,
}

impl LoggedCommits {
    fn fill(&mut self, from_back: bool) -> Result<()> {
        if !(if from_back { &self.back } else { &self.front }).is_empty() {
            return Ok(());
        }
        let Some(log) = self.log.clone().filter(|_| !is_empty(&self.bounds)) else { return Ok(()) };
        let mut walk = log.tree().range(self.bounds.clone());
        let mut last = None;
        for _ in 0..BATCH {
            let entry = if from_back { walk.advance_back()? } else { walk.advance()? };
            let Some((key, entry)) = entry else {
                self.log = None;
                return Ok(());
            };
            let commit = read_commit(number_of(key)?, entry, log.head)?;
            if from_back {
                self.back.push_back(commit)
            } else {
                self.front.push_back(commit)
            }
            last = Some(Bound::Excluded(key.to_vec()));
        }
        if let Some(last) = last {
            *(if from_back { &mut self.bounds.1 } else { &mut self.bounds.0 }) = last;
        }
        Ok(())
    }

    fn step(&mut self, from_back: bool) -> Option<Result<LoggedCommit>> {
        if let Err(e) = self.fill(from_back) {
            self.log = None;
            self.front.clear();
            self.back.clear();
            return Some(Err(e));
        }
        let LoggedCommits { front, back, .. } = self;
        let commit = if from_back {
            back.pop_front().or_else(|| front.pop_back())
        } else {
            front.pop_front().or_else(|| back.pop_back())
        };
        commit.map(Ok)
    }
}

impl Iterator for LoggedCommits {
    type Item = Result<LoggedCommit>;

    fn next(&mut self) -> Option<Result<LoggedCommit>> {
        self.step(false)
    }
}

impl DoubleEndedIterator for LoggedCommits {
    fn next_back(&mut self) -> Option<Result<LoggedCommit>> {
        self.step(true)
    }
}

impl FusedIterator for LoggedCommits {}

impl std::fmt::Debug for LoggedCommits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoggedCommits").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// The commits that changed a key, from the newest to the oldest ([`Store::audit`]). After an error it ends.
pub struct AuditTrail {
    commits: LoggedCommits,
    store: Arc<StoreInner>,
    keyspace: Keyspace,
    key: Vec<u8>,
}

impl AuditTrail {
    fn record(&self, commit: LoggedCommit) -> Result<Option<AuditRecord>> {
        let id = self.keyspace.inner.id;
        let Some(changed) = commit.keys.iter().find(|one| one.keyspace == id && one.key == self.key) else {
            return Ok(None);
        };
        let LoggedCommit { number, begin, time_unix_ns, .. } = commit;
        let change = if changed.is_deleted {
            AuditedChange::Deleted
        } else {
            match self.value(number)? {
                Some(value) => AuditedChange::Put(value),
                None => AuditedChange::PutCollected,
            }
        };
        Ok(Some(AuditRecord { number, begin, time_unix_ns, change }))
    }

    /// The value that a commit gave the key, if it was not collected.
    fn value(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let pool = &self.store.pool;
        let pin = pool.pin_briefly();
        // After the pin: what is freed from here on stays readable.
        self.keyspace.inner.check_there()?;
        let Some(table) = self.keyspace.inner.table(&pin, &self.key)? else { return Ok(None) };
        // A version whose slot is used again meanwhile is not found.
        match table.find(pool.region(), number)?.version {
            Some(version) if version.number == number && version.value != ValueWord::Collected => {
                read_value(pool.region(), version.value, table.off)
            }
            _ => Ok(None),
        }
    }
}

impl Iterator for AuditTrail {
    type Item = Result<AuditRecord>;

    fn next(&mut self) -> Option<Result<AuditRecord>> {
        while let Some(commit) = self.commits.next_back() {
            if let Some(record) = commit.and_then(|commit| self.record(commit)).transpose() {
                if record.is_err() {
                    self.commits.log = None;
                }
                return Some(record);
            }
        }
        None
    }
}

impl FusedIterator for AuditTrail {}

impl std::fmt::Debug for AuditTrail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditTrail").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

impl Store {
    /// Chooses how long the log of commits keeps its entries, from now on; [`Audit::Off`] empties it. The
    /// choice is kept in the pool. A new store has no log.
    ///
    /// With a log, the record of each commit has an entry of its keys; that costs no fence, and about 100
    /// bytes for a change of a short key. Entries that are past go by one record for 32 of them, with later
    /// commits or [`collect`](Self::collect). In a full pool the oldest entries go, however young they are,
    /// when a commit that only deletes needs the space for its own.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is full, damaged, or its device is.
    pub fn set_audit(&self, audit: Audit) -> Result<()> {
        self.check_writable()?;
        let inner = &self.inner;
        let mut lead = inner.commits.lead();
        let current = inner.active.current_alone();
        inner.history.log.switch(&mut lead.tx, inner.off, audit, current)
    }

    /// How long the log of commits keeps its entries.
    pub fn audit_policy(&self) -> Audit {
        self.inner.history.log.get().map_or(Audit::Off, |log| log.audit())
    }

    /// The number after which the log has every commit, if the store has a log. Rises as entries go.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the store is damaged.
    pub fn logged_after(&self) -> Result<Option<u64>> {
        match self.inner.history.log.get_on() {
            Some(log) => Ok(Some(self.inner.pool.region().load_u64(log.head + field!(PmHistory.log_after))?)),
            None => Ok(None),
        }
    }

    /// The commits of the log whose numbers lie in `numbers`, in their order, up to the current one. Those
    /// that have changed nothing are not in the log, nor are those up to
    /// [`logged_after`](Self::logged_after).
    pub fn log(&self, numbers: impl RangeBounds<u64>) -> LoggedCommits {
        let current = self.snapshot().number();
        let key = |bound: Bound<&u64>| bound.map(|number| number.to_be_bytes().to_vec());
        let upper = match numbers.end_bound() {
            Bound::Included(number) if *number <= current => key(Bound::Included(number)),
            Bound::Excluded(number) if *number <= current => key(Bound::Excluded(number)),
            _ => key(Bound::Included(&current)),
        };
        let log = self.inner.history.log.get_on();
        let bounds = (key(numbers.start_bound()), upper);
        LoggedCommits { log, bounds, front: VecDeque::new(), back: VecDeque::new() }
    }

    /// The commits that changed a key, from the newest to the oldest that the log has, with the values that
    /// are still there. Looks at every entry of the log that it passes.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`](crate::Error::OtherStore) and
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped). While it walks,
    /// [`Error::Pool`](crate::Error::Pool) if the store is damaged.
    pub fn audit(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<AuditTrail> {
        keyspace.check_store(&self.inner)?;
        Ok(AuditTrail {
            commits: self.log(..),
            store: self.inner.clone(),
            keyspace: keyspace.clone(),
            key: key.as_ref().to_vec(),
        })
    }
}

impl Lead<'_> {
    /// Removes entries of the log that are past, if so many were added that it pays; returns whether it may
    /// have left some.
    pub(crate) fn trim_log(&mut self, store: &StoreInner, at_least_added: u64) -> Result<bool> {
        store.history.log.get().map_or(Ok(false), |log| log.trim_if_added(&mut self.tx, at_least_added))
    }
}
