//! The touch table: which lanes may have a live record for a line (`lane.rs`, L3).
//!
//! It is volatile, and used once a second lane is. Lines are hashed, so that what it says of a line may be of another: then a lane is settled in vain.
//!
//! # Two parts
//!
//! The first lanes have *columns*: a word for each lane and hash, with the number of the lane's last commit for such a line. Nobody else stores to it, and
//! a later commit of the lane stands for all before, so that registering is a plain store. That matters: a locked
//! instruction behind a commit's fence waits for it, where what the thread does next could overlap with it.
//!
//! All other lanes have one word for each hash together, with the lane and the commit that were there last. Who registers displaces who was there,
//! and settles that lane before: who looks there meanwhile has to find it, or its record dead.
//!
//! # Who sees what
//!
//! Who changes a word holds the structure's lock for it, from before it looks here until it has registered. So it sees what the lane before it has
//! registered. Who gives freed memory away looks here when all who had pinned it are done.

use crate::pool::PoolInner;
use crate::{Done, Result};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tembo_pmem::{LINE_BYTES, prefetch_for_store};

const HASH_BITS: u32 = if cfg!(miri) { 8 } else { 16 };
/// Lanes that have columns, at most. Each makes looking up a line a little longer, and all of those of a hash lie in a quarter of a line.
const COLUMNS: usize = 4;

/// Numbers of commits, of which the low bits are kept: another that has the same is [taken for live](is_newer) at worst. 0: none.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Columns([AtomicU32; COLUMNS]);

/// The touch table.
#[derive(Debug)]
pub(crate) struct TouchTable {
    /// Set once a second lane is in use, or something else that ends epochs; never unset.
    on: AtomicBool,
    /// So many lanes may have columns.
    columns_max: u32,
    /// So many have registered, or are going to.
    columns_used: AtomicU32,
    columns: OnceLock<Box<[Columns]>>,
    /// Of all others: the lane (high 16 bits) and the commit (low 48); 0: none. Made for the first of them.
    shared: OnceLock<Box<[AtomicU64]>>,
    /// Whether every record from before the table was turned on is dead.
    complete: Mutex<bool>,
}

/// What is kept of a commit's number in a column.
#[inline(always)]
fn short(commit: u64) -> u32 {
    (commit as u32).max(1)
}

/// Whether a commit in a column may come after `settled`. One that is 2^31 or more behind may seem to.
#[inline(always)]
fn is_newer(commit: u32, settled: u64) -> bool {
    commit != 0 && (commit.wrapping_sub(settled as u32) as i32) > 0
}

#[inline(always)]
fn hash(line: u64) -> usize {
    tembo_sync::hash_u64_to_bits(line, HASH_BITS) as usize
}

impl TouchTable {
    /// For a pool with so many lanes: half of them may have columns, at least one and no more than there are.
    pub(crate) fn new(lanes: u32) -> TouchTable {
        TouchTable {
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

    /// Begins to register touches, and settles every record from before: nobody but the first lane writes before that
    /// is done, by whichever thread. From then on this lane may register, too.
    pub(crate) fn turn_on(&self, pool: &PoolInner, lane: u32) -> Result<()> {
        let mut complete = self.complete.lock();
        if lane < self.columns_max {
            // ORDER: who changes what the lane has changed has seen a lock that it has released, and this with it.
            self.columns_used.fetch_max(lane + 1, Ordering::Relaxed);
        } else {
            self.shared.get_or_init(|| (0..1 << HASH_BITS).map(|_| AtomicU64::new(0)).collect());
        }
        if !*complete {
            self.columns.get_or_init(|| (0..1 << HASH_BITS).map(|_| Columns::default()).collect());
            self.on.store(true, Ordering::SeqCst);
            pool.lanes.iter().try_for_each(|lane| lane.settle(pool).map(drop))?;
            *complete = true;
        }
        Ok(())
    }

    /// Has what the table says about lines brought here, for a commit that is going to look there and to register: they come while
    /// it makes its record.
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

    /// The same for the line at `off`, long before the commit: what another processor has stored to takes longer than a record to make. (Of the
    /// columns; what the other lanes share is asked for by the commit.)
    #[inline(always)]
    pub(crate) fn prefetch_early(&self, off: u64) {
        if self.on.load(Ordering::Relaxed)
            && let Some(columns) = self.columns.get()
        {
            prefetch_for_store(&columns[hash(off / LINE_BYTES)]);
        }
    }

    /// Settles every other lane that may have a live record for one of the lines; returns the highest of
    /// their sequence numbers.
    #[inline]
    pub(crate) fn settle_others(&self, pool: &PoolInner, me: u32, lines: &[u64]) -> Result<u64> {
        self.settle_all(pool, me, || lines.iter().map(|line| hash(*line)))
    }

    /// As [`settle_others`](Self::settle_others), of the lines of a block.
    pub(crate) fn settle_others_in(&self, pool: &PoolInner, me: u32, off: u64, bytes: u64) -> Done {
        let lines = off / LINE_BYTES..(off + bytes).div_ceil(LINE_BYTES);
        if lines.end - lines.start >= 1 << HASH_BITS {
            // So many lines have every hash, or nearly.
            self.settle_all(pool, me, || 0..1 << HASH_BITS)?;
        } else {
            self.settle_all(pool, me, || lines.clone().map(hash))?;
        }
        Ok(())
    }

    #[inline]
    fn settle_all<H: Iterator<Item = usize>>(
        &self,
        pool: &PoolInner,
        me: u32,
        hashes: impl Fn() -> H,
    ) -> Result<u64> {
        let mut seq = 0;
        if let Some(columns) = self.columns.get() {
            let used = self.columns_used.load(Ordering::Relaxed);
            for lane in (0..used).filter(|lane| *lane != me) {
                let slot = &pool.lanes[lane as usize];
                // What is dead now stays so.
                let settled = slot.settled();
                let newest = hashes().map(|hash| columns[hash].0[lane as usize].load(Ordering::Acquire));
                if newest.fold(false, |is, commit| is | is_newer(commit, settled)) {
                    seq = seq.max(slot.settle(pool)?);
                }
            }
        }
        if let Some(shared) = self.shared.get() {
            for hash in hashes() {
                seq = seq.max(settle_touch(pool, me, shared[hash].load(Ordering::Acquire))?);
            }
        }
        Ok(seq)
    }

    /// Registers this lane's commit for the lines.
    #[inline]
    pub(crate) fn register(&self, pool: &PoolInner, me: u32, commit: u64, lines: &[u64]) -> Done {
        if me >= self.columns_max {
            return self.register_shared(pool, me, commit, lines);
        }
        let Some(columns) = self.columns.get() else { return Ok(()) };
        for line in lines {
            columns[hash(*line)].0[me as usize].store(short(commit), Ordering::Release);
        }
        Ok(())
    }

    /// The same for a lane without a column; settles the lanes that it displaces.
    #[cold]
    fn register_shared(&self, pool: &PoolInner, me: u32, commit: u64, lines: &[u64]) -> Done {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        let mine = u64::from(me) << 48 | commit;
        for line in lines {
            let word = &shared[hash(*line)];
            let mut displaced = word.load(Ordering::Acquire);
            while displaced != mine {
                // Before it leaves the table: who looks there meanwhile has to find it, or its record dead.
                settle_touch(pool, me, displaced)?;
                match word.compare_exchange(displaced, mine, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(found) => displaced = found,
                }
            }
        }
        Ok(())
    }
}

fn settle_touch(pool: &PoolInner, me: u32, touch: u64) -> Result<u64> {
    let (lane, commit) = ((touch >> 48) as u32, touch & ((1 << 48) - 1));
    if lane == me || commit == 0 {
        return Ok(0);
    }
    match pool.lanes.get(lane as usize) {
        Some(other) if other.may_be_live(commit) => other.settle(pool),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_are_not_settled_are_newer() {
        for base in [0, 1, 77, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 40) + 5] {
            for ahead in [1, 2, 500, 1 << 30] {
                assert!(is_newer(short(base + ahead), base), "{base} {ahead}");
            }
            // Number 0 is none, so that 2^32 seems to come one later than it does.
            for behind in [1, 500, 1 << 30].into_iter().filter(|behind| *behind <= base) {
                let is_odd = (base - behind) % (1 << 32) == 0 && behind == 1;
                assert!(is_odd || !is_newer(short(base - behind), base), "{base} {behind}");
            }
        }
        assert!(!is_newer(0, 0));
        assert!(!is_newer(0, 1 << 31 | 5), "none is none");
    }
}
