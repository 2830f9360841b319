//! Collecting: versions that nobody needs any more, tombstones, and keyspaces that were dropped.
//!
//! A commit notes each key that it leaves with something to collect, and every few commits one collects what
//! was noted, in its own record. A walk over all tables (`walk.rs`) finds the rest: what an earlier process
//! left, what a deleted snapshot held, what time has passed over. While there is something to walk for, or a
//! keyspace was dropped, one of a few commits takes a small step of that before it, in a record of its own;
//! a commit that finds no space goes on with it to the end. Whoever collects keeps all lanes from committing.

use crate::active::Asked;
use crate::error::Result;
use crate::garbage::{COLLECTED_PER_RECORD, Garbage, Left};
use crate::handle::StoreInner;
use crate::keyspace::Keyspace;
use crate::layout::field;
use crate::space::Tally;
use crate::table_writer::collect_key;
use crate::versions::Table;
use std::sync::Weak;
use tembo_pool::{KeptSpace, Tx};

impl Left {
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
