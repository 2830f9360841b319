//! Line owners: which lanes may have a live record for a line (`log/mod.rs`, L3).
//!
//! A lane *owns* a line from its last commit that changed, covered or freed the line until that commit's
//! record is dead. The table is volatile, and is used once a second lane is. Lines are hashed, so an entry
//! may belong to another line; a lane is then checkpointed needlessly.
//!
//! # Two parts
//!
//! The first lanes have *columns*: a word for each lane and hash, with the number of the lane's last commit
//! for a line with this hash. Only that lane stores to the word, and its newest commit stands for all earlier
//! ones, so registering is a plain store. That matters after a commit's fence: a locked instruction would
//! wait for the fence, whereas the thread's next operation can overlap with it.
//!
//! All other lanes share one word for each hash, with the lane and the commit that came last. A lane that
//! overwrites another lane's entry checkpoints that lane first. Until then readers find the old entry.
//!
//! # Visibility
//!
//! A lane that changes a word holds the structure's lock for it from before its lookup here until it has
//! registered, and therefore sees the entry of the lane that changed the word before it. A lane that releases
//! freed memory looks here after all threads that had pinned it are done.

use super::lane::{LaneSlot, Lanes};
use crate::Result;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, prefetch_for_store};

const HASH_BITS: u32 = if cfg!(miri) { 8 } else { 16 };
/// The most lanes that have columns. Each lengthens a lookup a little; the columns of one hash take a quarter
/// of a line.
const COLUMNS: usize = 4;

/// The low bits of commit numbers; 0: none. An old commit with the same low bits is at worst [taken for
/// live](is_newer).
#[derive(Debug, Default)]
#[repr(align(16))]
struct Columns([AtomicU32; COLUMNS]);

/// The table of line owners.
#[derive(Debug)]
pub(crate) struct LineOwnerTable {
    /// Set once a second lane, or anything else that ends epochs, is in use; never unset.
    on: AtomicBool,
    /// How many lanes may have columns.
    columns_max: u32,
    /// How many lanes have columns: they have registered or are about to.
    columns_used: AtomicU32,
    columns: OnceLock<Box<[Columns]>>,
    /// The entries of all other lanes: the lane (high 16 bits) and the commit (low 48); 0: none. Made for the
    /// first of them.
    shared: OnceLock<Box<[AtomicU64]>>,
    /// Whether all records from before the table was turned on are dead.
    complete: Mutex<bool>,
}

/// The part of a commit's number that a column keeps.
#[inline(always)]
fn short(commit: u64) -> u32 {
    (commit as u32).max(1)
}

/// Whether a commit in a column may be later than `dead_to`. A commit that is earlier by 2^31 or more may
/// seem later.
#[inline(always)]
fn is_newer(commit: u32, dead_to: u64) -> bool {
    commit != 0 && (commit.wrapping_sub(dead_to as u32) as i32) > 0
}

#[inline(always)]
fn hash(line: u64) -> usize {
    tembo_sync::hash_u64_to_bits(line, HASH_BITS) as usize
}

impl LineOwnerTable {
    /// A table for a pool with this many lanes. Half of the lanes may have columns: at least one, at most
    /// `COLUMNS`.
    pub(crate) fn new(lanes: u32) -> LineOwnerTable {
        LineOwnerTable {
            on: AtomicBool::new(false),
            columns_max: (lanes / 2).clamp(1, COLUMNS as u32),
            columns_used: AtomicU32::new(1),
            columns: OnceLock::new(),
            shared: OnceLock::new(),
            complete: Mutex::new(false),
        }
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// Begins to register owners, and checkpoints every lane. Until this call, only the first lane writes.
    /// From then on `lane` may register, too.
    pub(crate) fn turn_on(&self, lanes: Lanes<'_>, lane: u32) -> Result<()> {
        let mut complete = self.complete.lock();
        if lane < self.columns_max {
            // ORDER: a lane that changes the same word later has acquired a lock that this lane has released,
            // and sees this count with it.
            self.columns_used.fetch_max(lane + 1, Ordering::Relaxed);
        } else {
            self.shared.get_or_init(|| (0..1 << HASH_BITS).map(|_| AtomicU64::new(0)).collect());
        }
        if !*complete {
            self.columns.get_or_init(|| (0..1 << HASH_BITS).map(|_| Columns::default()).collect());
            self.on.store(true, Ordering::SeqCst);
            lanes.slots.iter().try_for_each(|slot| lanes.checkpoint(slot).map(drop))?;
            *complete = true;
        }
        Ok(())
    }

    /// Prefetches the entries of lines for a commit, which looks them up and registers: they arrive while it
    /// makes its record.
    #[inline]
    pub(crate) fn prefetch(&self, lines: &[u64]) {
        let (columns, shared) = (self.columns.get(), self.shared.get());
        for line in lines {
            if let Some(columns) = columns {
                prefetch_for_store(&columns[hash(*line)]);
            }
            if let Some(shared) = shared {
                prefetch_for_store(&shared[hash(*line)]);
            }
        }
    }

    /// As [`prefetch`](Self::prefetch), for the line at `off` and long before the commit: fetching a word
    /// that another processor has stored to takes longer than making a record. (Columns only; the commit
    /// prefetches the shared entries.)
    #[inline(always)]
    pub(crate) fn prefetch_early(&self, off: u64) {
        if self.on.load(Ordering::Relaxed)
            && let Some(columns) = self.columns.get()
        {
            prefetch_for_store(&columns[hash(off / LINE_BYTES)]);
        }
    }

    /// Checkpoints every other lane that may have a live record for one of the lines; returns the highest of
    /// their sequence numbers.
    #[inline]
    pub(crate) fn checkpoint_others(&self, lanes: Lanes<'_>, me: u32, lines: &[u64]) -> Result<u64> {
        self.checkpoint_owners(lanes, me, || lines.iter().map(|line| hash(*line)))
    }

    /// As [`checkpoint_others`](Self::checkpoint_others), of the lines of a block.
    pub(crate) fn checkpoint_others_in(&self, lanes: Lanes<'_>, me: u32, off: u64, bytes: u64) -> Result<()> {
        let lines = off / LINE_BYTES..(off + bytes).div_ceil(LINE_BYTES);
        if lines.end - lines.start >= 1 << HASH_BITS {
            // With this many lines, nearly every hash occurs.
            self.checkpoint_owners(lanes, me, || 0..1 << HASH_BITS)?;
        } else {
            self.checkpoint_owners(lanes, me, || lines.clone().map(hash))?;
        }
        Ok(())
    }

    #[inline]
    fn checkpoint_owners<H: Iterator<Item = usize>>(
        &self,
        lanes: Lanes<'_>,
        me: u32,
        hashes: impl Fn() -> H,
    ) -> Result<u64> {
        let mut seq = 0;
        if let Some(columns) = self.columns.get() {
            let used = self.columns_used.load(Ordering::Relaxed);
            for lane in (0..used).filter(|lane| *lane != me) {
                let slot = &lanes.slots[lane as usize];
                // Dead records stay dead, so one load serves all lines.
                let dead_to = slot.dead_to();
                let newest = hashes().map(|hash| columns[hash].0[lane as usize].load(Ordering::Acquire));
                if newest.fold(false, |is, commit| is | is_newer(commit, dead_to)) {
                    seq = seq.max(lanes.checkpoint(slot)?);
                }
            }
        }
        if let Some(shared) = self.shared.get() {
            for hash in hashes() {
                seq = seq.max(checkpoint_owner(lanes, me, shared[hash].load(Ordering::Acquire))?);
            }
        }
        Ok(seq)
    }

    /// Registers this lane's commit for the lines.
    #[inline]
    pub(crate) fn register(&self, lanes: Lanes<'_>, me: u32, commit: u64, lines: &[u64]) -> Result<()> {
        if me >= self.columns_max {
            return self.register_shared(lanes, me, commit, lines);
        }
        let Some(columns) = self.columns.get() else { return Ok(()) };
        for line in lines {
            columns[hash(*line)].0[me as usize].store(short(commit), Ordering::Release);
        }
        Ok(())
    }

    /// Registers for a lane without a column; checkpoints the lanes whose entries it overwrites.
    #[cold]
    fn register_shared(&self, lanes: Lanes<'_>, me: u32, commit: u64, lines: &[u64]) -> Result<()> {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        let mine = u64::from(me) << 48 | commit;
        for line in lines {
            let word = &shared[hash(*line)];
            let mut displaced = word.load(Ordering::Acquire);
            while displaced != mine {
                // The checkpoint precedes the new entry: a lane that reads the table meanwhile must find the
                // old entry, or its record must be dead.
                checkpoint_owner(lanes, me, displaced)?;
                match word.compare_exchange(displaced, mine, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(found) => displaced = found,
                }
            }
        }
        Ok(())
    }
}

/// Checkpoints the lane of a shared entry, if it is another lane that may have a live record.
fn checkpoint_owner(lanes: Lanes<'_>, me: u32, entry: u64) -> Result<u64> {
    let (lane, commit) = ((entry >> 48) as u32, entry & ((1 << 48) - 1));
    if lane == me || commit == 0 {
        return Ok(0);
    }
    let owner: Option<&LaneSlot> = lanes.slots.get(lane as usize);
    match owner {
        Some(slot) if slot.may_be_live(commit) => lanes.checkpoint(slot),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_may_be_live_are_newer() {
        for base in [0, 1, 77, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 40) + 5] {
            for ahead in [1, 2, 500, 1 << 30] {
                assert!(is_newer(short(base + ahead), base), "{base} {ahead}");
            }
            // 0 means none, so commit 2^32 is stored as the number after it.
            for behind in [1, 500, 1 << 30].into_iter().filter(|behind| *behind <= base) {
                let is_odd = (base - behind) % (1 << 32) == 0 && behind == 1;
                assert!(is_odd || !is_newer(short(base - behind), base), "{base} {behind}");
            }
        }
        assert!(!is_newer(0, 0));
        assert!(!is_newer(0, 1 << 31 | 5), "none is none");
    }
}
