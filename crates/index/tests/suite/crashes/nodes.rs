//! Counts of nodes in a simulation: a scenario that is meant to divide or to join nodes has done so.

use super::text;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pool::Pool;

/// How many nodes came and went in the run that crashes are made of.
#[derive(Debug)]
pub(crate) struct Nodes {
    bytes_of_one: u64,
    added: AtomicU64,
    joined: AtomicU64,
}

impl Nodes {
    pub(crate) fn of(bytes: u64) -> Nodes {
        Nodes { bytes_of_one: bytes, added: AtomicU64::new(0), joined: AtomicU64::new(0) }
    }

    /// Notes what an operation did, by what the pool has allocated.
    pub(crate) fn note(&self, allocated: &Allocated, pool: &Pool) -> Result<(), String> {
        let Some(before) = &allocated.0 else { return Ok(()) };
        let mut before = before.lock().unwrap();
        let after = allocated_bytes(pool)?;
        self.added.fetch_add(after.saturating_sub(*before) / self.bytes_of_one, Ordering::Relaxed);
        self.joined.fetch_add(before.saturating_sub(after) / self.bytes_of_one, Ordering::Relaxed);
        *before = after;
        Ok(())
    }

    /// Nodes added, and nodes joined.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.added.load(Ordering::Relaxed), self.joined.load(Ordering::Relaxed))
    }
}

/// The allocated bytes of a pool after the last operation. Nothing is known, and noted, after a recovery.
#[derive(Debug, Default)]
pub(crate) struct Allocated(Option<Mutex<u64>>);

impl Allocated {
    pub(crate) fn now(pool: &Pool) -> Result<Allocated, String> {
        Ok(Allocated(Some(Mutex::new(allocated_bytes(pool)?))))
    }
}

fn allocated_bytes(pool: &Pool) -> Result<u64, String> {
    Ok(pool.marks().map_err(text)?.usage().allocated_bytes)
}

/// The changes of nodes in the runs of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    runs: usize,
    /// Runs that added a node, and runs that joined some.
    adding: usize,
    joining: usize,
}

impl Changes {
    pub(crate) fn add(&mut self, nodes: &Nodes) {
        let (added, joined) = nodes.changes();
        self.runs += 1;
        self.adding += usize::from(added > 0);
        self.joining += usize::from(joined > 0);
    }

    /// That some runs added nodes, and some joined them, as far as that is asked for.
    pub(crate) fn assert(&self, adding: bool, joining: bool) {
        assert!((!adding || self.adding > 0) && (!joining || self.joining > 0), "{self:?}");
    }

    /// As [`assert`](Self::assert), of a campaign, unless it was very short.
    pub(crate) fn assert_in_campaign(&self, adding: bool, joining: bool) {
        println!("{self:?}");
        if self.runs >= 5 {
            self.assert(adding, joining);
        }
    }
}
