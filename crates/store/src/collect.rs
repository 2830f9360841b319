//! Collecting: versions that nobody needs any more, tombstones, and keyspaces that were dropped.
//!
//! A commit notes each key that it leaves with something to collect, and every few commits one collects what
//! was noted, in its own record. A walk over all tables (`walk.rs`) finds the rest: what an earlier process
//! left, what a deleted snapshot held, what time has passed over. While there is something to walk for, or a
//! keyspace was dropped, one of a few commits takes a small step of that before it, in a record of its own;
//! a commit that finds no space goes on with it to the end. Whoever collects keeps all lanes from committing.

use crate::active::Asked;
use crate::error::Result;
use crate::handle::StoreInner;
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::layout::field;
use crate::space::Tally;
use crate::table_writer::collect_key;
use crate::versions::Table;
use crate::walk::Walks;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tembo_pmem::Region;
use tembo_pool::{KeptSpace, Tx};

/// Tables that one record of a collection is about, so that it fits into its lane.
pub(crate) const COLLECTED_PER_RECORD: usize = 32;
/// After so many keys that were noted, a commit collects.
const NOTED_PER_COLLECTION: usize = COLLECTED_PER_RECORD / 2;

/// The rest that is to be collected.
#[derive(Default)]
pub(crate) struct Left {
    /// Nearly in the order of the numbers.
    pub(crate) garbage: VecDeque<Garbage>,
    /// The length of `garbage` from which on a commit collects.
    due_at: usize,
    pub(crate) walks: Walks,
    /// Whether the space of dropped keyspaces may still have to come back.
    pub(crate) has_dropped: bool,
}

/// A key that has versions which are needed for now, or a tombstone.
pub(crate) struct Garbage {
    /// The commit that left them.
    pub(crate) number: u64,
    pub(crate) keyspace: Arc<KeyspaceInner>,
    pub(crate) key: Box<[u8]>,
}

impl Left {
    /// What an earlier process may have left in the store at `off`, whose last commit has the number `last`.
    pub(crate) fn by_earlier(region: &Region, off: u64, last: u64) -> Result<Left> {
        let has_dropped = region.load_u64(off + field!(PmStore.dropped))? != 0;
        let mut left = Left { has_dropped, ..Left::default() };
        if last != 0 {
            left.walks.begin(last);
        }
        Ok(left)
    }

    /// Whether the next commit is to collect.
    pub(crate) fn is_due(&self) -> bool {
        self.garbage.len() > self.due_at
    }

    /// Takes keys off the queue that were collected.
    pub(crate) fn take_off(&mut self, collected: usize) {
        self.garbage.drain(..collected);
        self.due_at = self.garbage.len() + NOTED_PER_COLLECTION;
    }

    /// Collects what the queue of garbage leads to and nobody needs any more.
    /// Looks at up to `keys` of them.
    pub(crate) fn collect_garbage(&mut self, tx: &mut Tx<'_>, store: &StoreInner, keys: usize) -> Result<()> {
        let accounts = &store.history.accounts;
        let mut left = keys;
        while left > 0 {
            let (part, tally) = (left.min(COLLECTED_PER_RECORD), accounts.tally());
            let needed = Asked::new(&store.active);
            let collected = self.collect_some(tx, store, &needed, part, &tally)?;
            tx.commit_and_begin()?;
            accounts.enter(&tally);
            self.take_off(collected);
            left -= part;
            if collected < part {
                break;
            }
        }
        Ok(())
    }

    /// Collects the versions of the keys at the front of the queue that nobody reads any more; returns how
    /// many keys are done with, to be taken off when that is committed.
    pub(crate) fn collect_some(
        &self,
        tx: &mut Tx<'_>,
        store: &StoreInner,
        needed: &Asked<'_>,
        keys: usize,
        tally: &Tally,
    ) -> Result<usize> {
        let mut done = 0;
        for Garbage { number, keyspace, key } in self.garbage.iter().take(keys) {
            // While somebody reads an older snapshot, some of them may be needed.
            if *number > needed.needed().first_read() {
                break;
            }
            if keyspace.check_there().is_ok() {
                collect_key(tx, &store.history.accounts, (keyspace, key), needed, tally)?;
            }
            done += 1;
        }
        tx.use_kept_space(KeptSpace::None);
        Ok(done)
    }

    /// Collects what is not needed any more, in up to `tables` tables; returns whether more can be collected.
    pub(crate) fn collect(&mut self, tx: &mut Tx<'_>, store: &StoreInner, tables: usize) -> Result<bool> {
        self.walks.begin_first(&store.active);
        in_parts(tables, |part| self.collect_part(tx, store, part))
    }

    pub(crate) fn collect_part(
        &mut self,
        tx: &mut Tx<'_>,
        store: &StoreInner,
        tables: usize,
    ) -> Result<bool> {
        let needed = Asked::new(&store.active);
        let accounts = &store.history.accounts;
        let tally = accounts.tally();
        let collected = self.collect_some(tx, store, &needed, tables, &tally)?;
        tx.commit_and_begin()?;
        accounts.enter(&tally);
        self.take_off(collected);
        if self.garbage.front().is_some_and(|first| first.number <= needed.needed().first_read()) {
            return Ok(true);
        }
        self.step(tx, store, tables - collected)
    }

    /// A step of what the queue of garbage does not lead to, in up to `tables` tables: of dropped keyspaces,
    /// then of a walk. Returns whether there is more of it.
    pub(crate) fn step(&mut self, tx: &mut Tx<'_>, store: &StoreInner, tables: usize) -> Result<bool> {
        let freed = free_dropped(tx, store.off, tables)?;
        tx.commit_and_begin()?;
        self.has_dropped = tx.load(store.off + field!(PmStore.dropped))? != 0;
        if self.has_dropped {
            return Ok(true);
        }
        self.walks.go_on(tx, store, tables - freed)
    }

    /// As [`step`](Self::step), in as many records as that takes.
    pub(crate) fn steps(&mut self, tx: &mut Tx<'_>, store: &StoreInner, tables: usize) -> Result<bool> {
        in_parts(tables, |part| self.step(tx, store, part))
    }

    /// Whether there is something for a [`step`](Self::step) to do, or soon will be.
    pub(crate) fn has_step(&self) -> bool {
        self.has_dropped || self.walks.is_under_way()
    }
}

/// Calls `collect` for up to `tables` tables, as many at once as one record is about, while there are more.
fn in_parts(tables: usize, mut collect: impl FnMut(usize) -> Result<bool>) -> Result<bool> {
    let (mut left, mut more) = (tables, true);
    while left > 0 && more {
        let part = left.min(COLLECTED_PER_RECORD);
        more = collect(part)?;
        left -= part;
    }
    Ok(more)
}

/// Frees up to `tables` tables, and then the rest, of keyspaces that were dropped; returns how many.
pub(crate) fn free_dropped(tx: &mut Tx<'_>, store_off: u64, tables: usize) -> Result<usize> {
    let first_off = store_off + field!(PmStore.dropped);
    let pool = tx.pool().clone();
    let mut freed = 0;
    while freed < tables {
        let head = tx.load(first_off)?;
        if head == 0 {
            break;
        }
        tx.use_kept_space(KeptSpace::All);
        let keyspace = Keyspace::open(&pool, Weak::new(), "a dropped keyspace", head)?.inner;
        let free = |tx: &mut Tx<'_>, _: &[u8], place| Table::at(place)?.free(tx);
        if !keyspace.index.pop_first_place(tx, free)? {
            let after = tx.load(head + field!(PmKeyspace.next_dropped))?;
            tx.store(first_off, after)?;
            keyspace.index.clone().free_unnamed(tx)?;
            tx.free(head)?;
        }
        freed += 1;
    }
    tx.use_kept_space(KeptSpace::None);
    Ok(freed)
}
