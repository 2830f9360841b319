//! The log of commits: which commit changed which keys, and when.
//!
//! # Media layout
//!
//! ```text
//! PmStore -> PmHistory -> tree: number of a commit, big-endian -> entry
//! entry: number - begin, time - number, then for each key: 2 * keyspace + (1 if deleted), length, bytes
//! ```
//!
//! All numbers of an entry are varints; that of the time has its sign in the lowest bit. The log exists from
//! the first time that it is switched on; while it is off its tree is empty.
//!
//! # Invariants
//!
//! * L1: entries can be read; their numbers are above `PmHistory::log_after`, and at most the current one.
//! * L2: `PmHistory::log_bytes` is the sum of the lengths of the keys and values in the tree.
//! * L3: while the log is on, a version with a number above `log_after` is named by the entry of that number.
//!
//! # Commit point
//!
//! An entry, and the sum that it adds to, are in the record of the commit that it tells of; so it costs no
//! fence. Entries go from the front, and `log_after` rises, by one record for up to [`STEP`] of them.
//! Switching the log off empties its tree by a constant number of words; the nodes go step by step.
//!
//! # Recovery
//!
//! None: the pool's. A log that was being freed is found by the tree's own list.
//!
//! # Concurrency
//!
//! All changes are made under the lock of commits. Readers walk over the tree, a part at a time, and report
//! no entry whose number is above the current one.

use crate::error::{Result, corrupt};
use crate::layout::{HISTORY_FORMAT, PmHistory, field};
use crate::log_entry::{Reader, number_of, read_commit};
use crate::retention::{steady_unix_ns, window_start};
use parking_lot::RwLock;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tembo_index::WbTree;
use tembo_pool::{KeptSpace, Marks, Pool, Tx};

/// Entries that one record removes, and nodes of a log that was switched off that one record frees.
const STEP: usize = 32;

/// How long the log of commits keeps its entries ([`Store::set_audit`](crate::Store::set_audit)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Audit {
    /// There is no log.
    #[default]
    Off,
    /// Entries stay for this time, to the microsecond.
    For(Duration),
    /// The last entries stay, this many.
    Commits(u64),
}

impl Audit {
    const FOR: u64 = 1;
    const COMMITS: u64 = 2;
    const KIND_BITS: u32 = 8;

    fn encode(self) -> u64 {
        let with = |kind: u64, number: u64| kind | number.min(u64::MAX >> 8) << Audit::KIND_BITS;
        match self {
            Audit::Off => 0,
            Audit::For(time) => with(Audit::FOR, u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Audit::Commits(count) => with(Audit::COMMITS, count),
        }
    }

    fn decode(word: u64) -> Option<Audit> {
        let (kind, number) = (word & 0xFF, word >> Audit::KIND_BITS);
        match kind {
            0 if number == 0 => Some(Audit::Off),
            Audit::FOR => Some(Audit::For(Duration::from_micros(number))),
            Audit::COMMITS => Some(Audit::Commits(number)),
            _ => None,
        }
    }
}

/// The log of a store that has, or had, one.
pub(crate) struct Log {
    pub(crate) head: u64,
    tree: WbTree,
    /// The word of its `Audit`.
    audit: AtomicU64,
    /// Entries that were added since the oldest were looked at.
    added: AtomicU64,
}

/// The log, if the store has one.
#[derive(Default)]
pub(crate) struct LogSlot {
    is_there: AtomicBool,
    log: RwLock<Option<Arc<Log>>>,
}

impl LogSlot {
    /// The log of the store whose head lies at `store_off`.
    pub(crate) fn open(pool: &Pool, store_off: u64) -> Result<LogSlot> {
        let head = pool.region().load_u64(store_off + field!(PmStore.history))?;
        let slot = LogSlot::default();
        if head != 0 {
            slot.set(Log::open(pool, head)?);
        }
        Ok(slot)
    }

    /// Whether the store ever had a log.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    fn set(&self, log: Log) {
        *self.log.write() = Some(Arc::new(log));
        self.is_there.store(true, Ordering::Release);
    }

    /// Chooses how long entries stay in the log of the store at `store_off`, from its `current` number on.
    pub(crate) fn switch(&self, tx: &mut Tx<'_>, store_off: u64, audit: Audit, current: u64) -> Result<()> {
        let log = self.get();
        let was = log.as_ref().map_or(Audit::Off, |log| log.audit());
        if was == audit {
            return Ok(());
        }
        let head = match &log {
            Some(log) => log.head,
            None => {
                let (tree, head) = (WbTree::create_unnamed(tx)?, tx.alloc(size_of::<PmHistory>() as u64)?);
                tx.write_fresh_words(head, &[HISTORY_FORMAT, tree.head(), audit.encode(), current], &[0; 4])?;
                tx.store(store_off + field!(PmStore.history), head)?;
                head
            }
        };
        if let Some(log) = &log {
            tx.use_kept_space(KeptSpace::All);
            tx.store(head + field!(PmHistory.audit), audit.encode())?;
            if audit == Audit::Off {
                log.tree.clear(tx)?;
                tx.store(head + field!(PmHistory.log_bytes), 0)?;
            }
            if audit == Audit::Off || was == Audit::Off {
                tx.store(head + field!(PmHistory.log_after), current)?;
            }
        }
        tx.commit_and_begin()?;
        match log {
            Some(log) => log.audit.store(audit.encode(), Ordering::Release),
            None => {
                let pool = tx.pool().clone();
                self.set(Log::open(&pool, head)?);
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<Arc<Log>> {
        if self.is_there() { self.log.read().clone() } else { None }
    }

    /// The log, if it is on.
    pub(crate) fn get_on(&self) -> Option<Arc<Log>> {
        self.get().filter(|log| log.audit() != Audit::Off)
    }

    /// The sum of the lengths of keys and values in the log.
    pub(crate) fn bytes(&self, pool: &Pool) -> Result<u64> {
        match self.get() {
            Some(log) => Ok(pool.region().load_u64(log.head + field!(PmHistory.log_bytes))?),
            None => Ok(0),
        }
    }
}

impl Log {
    fn open(pool: &Pool, head: u64) -> Result<Log> {
        let region = pool.region();
        let format = region.load_u64(head)?;
        if format != HISTORY_FORMAT {
            return Err(corrupt("the head of a log", head, "the mark of a log", format!("{format:#x}")));
        }
        let word = region.load_u64(head + field!(PmHistory.audit))?;
        if Audit::decode(word).is_none() {
            return Err(corrupt("the retention of a log", head, "one that is known", format!("{word:#x}")));
        }
        let tree = WbTree::open_unnamed(pool, region.load_u64(head + field!(PmHistory.log))?)?;
        // The oldest entries are looked at with the first commit.
        Ok(Log { head, tree, audit: word.into(), added: AtomicU64::new(STEP as u64) })
    }

    pub(crate) fn tree(&self) -> &WbTree {
        &self.tree
    }

    pub(crate) fn audit(&self) -> Audit {
        Audit::decode(self.audit.load(Ordering::Acquire)).unwrap_or_default()
    }

    fn change_bytes(&self, tx: &mut Tx<'_>, by: i64) -> Result<()> {
        let off = self.head + field!(PmHistory.log_bytes);
        let bytes = tx.load(off)?.wrapping_add_signed(by);
        Ok(tx.store(off, bytes)?)
    }

    /// Adds the entry of a commit.
    pub(crate) fn append(&self, tx: &mut Tx<'_>, number: u64, entry: &[u8]) -> Result<()> {
        self.tree.put(tx, &number.to_be_bytes(), &[entry])?;
        self.change_bytes(tx, 8 + entry.len() as i64)?;
        self.added.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes up to `limit` of the oldest entries, those that are past or of `any` age, or frees as many
    /// nodes of a log that was switched off; returns how many.
    fn trim(&self, tx: &mut Tx<'_>, limit: usize, any: bool) -> Result<usize> {
        tx.use_kept_space(KeptSpace::All);
        if self.tree.has_cleared()? {
            self.tree.reclaim(tx, limit)?;
            return Ok(limit);
        }
        let audit = self.audit();
        let mut removed = 0;
        while removed < limit {
            let is_past = match audit {
                Audit::Off => false,
                Audit::Commits(count) => any || self.tree.len_in(tx)? > count,
                Audit::For(_) => true,
            };
            if !is_past {
                break;
            }
            let before = tx.savepoint();
            let Some((key, value)) = self.tree.pop_first(tx)? else { break };
            let number = number_of(&key)?;
            if let Audit::For(time) = audit
                && !any
                && Reader::new(&value, self.head).time(number)? >= window_start(time, steady_unix_ns())
            {
                tx.rollback_to(before);
                break;
            }
            // PERSIST(L1, L2): in the record that removes the entry.
            tx.store(self.head + field!(PmHistory.log_after), number)?;
            self.change_bytes(tx, -((key.len() + value.len()) as i64))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes entries that are past, if so many were added that it pays, by a record of its own; returns
    /// whether it may have left some.
    pub(crate) fn trim_if_added(&self, tx: &mut Tx<'_>, at_least: u64) -> Result<bool> {
        if self.added.load(Ordering::Relaxed) < at_least {
            return Ok(false);
        }
        let removed = self.trim(tx, STEP, false)?;
        tx.commit_and_begin()?;
        // As many again are looked at with the next call, if there may be more.
        self.added.store(if removed == STEP { STEP as u64 } else { 0 }, Ordering::Relaxed);
        Ok(removed == STEP)
    }

    /// Makes room in a full pool by a record that removes some entries: those that are past, or, for a commit
    /// that only deletes, the oldest. Returns whether there were any.
    pub(crate) fn make_room(&self, tx: &mut Tx<'_>, only_deletes: bool) -> Result<bool> {
        let removed = self.trim(tx, STEP, only_deletes)?;
        tx.use_kept_space(KeptSpace::None);
        tx.commit_and_begin()?;
        Ok(removed > 0)
    }
}

/// The entries of a log, for the check of what they name.
pub(crate) struct Named {
    after: u64,
    entries: HashSet<(u64, u64, Vec<u8>)>,
}

impl Named {
    /// L3.
    pub(crate) fn check(&self, off: u64, keyspace: u64, key: &[u8], number: u64) -> Result<()> {
        if number > self.after && !self.entries.contains(&(number, keyspace, key.to_vec())) {
            let expected = format!("an entry of commit {number} that names the key {}", key.escape_ascii());
            return Err(corrupt("the log", off, expected, "none"));
        }
        Ok(())
    }
}

impl LogSlot {
    /// L1 and L2; returns the keys that are named, if the log is on. Takes memory for all of them.
    pub(crate) fn check(&self, pool: &Pool, current: u64, marks: &mut Marks) -> Result<Option<Named>> {
        let Some(log) = self.get() else { return Ok(None) };
        let region = pool.region();
        marks.reach(log.head, size_of::<PmHistory>() as u64)?;
        log.tree.check(marks)?;
        let after = region.load_u64(log.head + field!(PmHistory.log_after))?;
        let mut entries = HashSet::new();
        let mut bytes = 0;
        let mut walk = log.tree.iter();
        while let Some((key, entry)) = walk.advance()? {
            let number = number_of(key)?;
            if number <= after || number > current {
                let expected = format!("above {after}, and at most {current}");
                return Err(corrupt("the number of an entry of the log", log.head, expected, number));
            }
            bytes += (key.len() + entry.len()) as u64;
            let keys = read_commit(number, entry, log.head)?.keys;
            entries.extend(keys.into_iter().map(|one| (number, one.keyspace, one.key)));
        }
        let noted = region.load_u64(log.head + field!(PmHistory.log_bytes))?;
        if noted != bytes {
            return Err(corrupt("the length of the log", log.head, bytes, noted));
        }
        if log.audit() == Audit::Off {
            return if bytes == 0 { Ok(None) } else { Err(corrupt("the log", log.head, "none", bytes)) };
        }
        Ok(Some(Named { after, entries }))
    }
}

/// Frees the log of a store that was dropped, a part at a time; returns whether anything is left.
pub(crate) fn free_log(tx: &mut Tx<'_>, store_off: u64) -> Result<bool> {
    let history = store_off + field!(PmStore.history);
    let head = tx.load(history)?;
    if head == 0 {
        return Ok(false);
    }
    let pool = tx.pool().clone();
    let tree = WbTree::open_unnamed(&pool, tx.load(head + field!(PmHistory.log))?)?;
    if !tree.len_in(tx).map(|len| len == 0)? {
        tree.clear(tx)?;
        tx.store(head + field!(PmHistory.log_bytes), 0)?;
    } else if !tree.reclaim(tx, 1)? {
        tree.free_unnamed(tx)?;
        tx.free(head)?;
        tx.store(history, 0)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_as_it_was_written() {
        let times = [0, 1, 3_600_000_000].map(|us| Audit::For(Duration::from_micros(us)));
        for audit in times.into_iter().chain([Audit::Off, Audit::Commits(0), Audit::Commits(1 << 40)]) {
            assert_eq!(Audit::decode(audit.encode()), Some(audit));
        }
        assert_eq!(Audit::decode(3), None);
    }
}
