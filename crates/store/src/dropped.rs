//! Dropped stores: they have lost their names, and their blocks are freed step by step.
//!
//! # Media layout
//!
//! ```text
//! root DROPPED_NAME -> PmStore -> PmStore -> 0
//! ```
//!
//! The link to the next is the word that has the last keyspace's id in a store that is there. The first word
//! of the head says that the store was dropped. The root is there while the list has any.
//!
//! # Invariants
//!
//! * S1: what is left of a dropped store leads to each of its blocks exactly once, and to nothing else.
//!
//! # Commit point
//!
//! Dropping is one record: the name goes, and the head joins the list. It allocates nothing, so it works in a
//! full pool, and takes the same time for a store of any size. A step frees one version table with all its
//! versions, or one node of the log, or takes a keyspace from its tree into the store's list of dropped
//! keyspaces; when nothing is left, it frees the head.
//!
//! # Recovery
//!
//! None: the list on media is always valid, and the next step goes on with it. Opening does not look at it.
//!
//! # Concurrency
//!
//! The names of stores are changed under a lock of the process ([`names`]). Nobody has a handle of a dropped
//! store: its head is claimed while the name goes.

use crate::check::check_keyspace;
use crate::collect::free_dropped;
use crate::error::{Error, Result, corrupt};
use crate::format::{Format, format_of};
use crate::handle::{Store, word};
use crate::keyspace::Keyspace;
use crate::layout::{DROPPED_FORMAT, DROPPED_KIND, PmKeyspace, ROOT_KIND, STORE_BYTES, field};
use crate::log::{LogSlot, free_log};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Weak;
use tembo_index::WbTree;
use tembo_pool::{KeptSpace, Marks, Pool, Tx};

/// The name of the list's root.
const DROPPED_NAME: &str = "\u{1}dropped stores";
/// Steps that one record is about.
const STEPS_PER_RECORD: usize = 16;

/// The lock under which stores get and lose their names.
pub(crate) fn names() -> MutexGuard<'static, ()> {
    static NAMES: Mutex<()> = Mutex::new(());
    NAMES.lock()
}

/// The first dropped store, or 0.
fn first(pool: &Pool) -> Result<u64> {
    match pool.root(DROPPED_NAME)? {
        None => Ok(0),
        Some(root) if root.kind == DROPPED_KIND => Ok(root.off),
        Some(root) => {
            let (expected, found) = (DROPPED_KIND, root.kind);
            Err(Error::Pool(tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into()))
        }
    }
}

fn check_head(word: u64, head: u64) -> Result<()> {
    if word == DROPPED_FORMAT {
        return Ok(());
    }
    Err(corrupt("the head of a dropped store", head, "the mark of one", format!("{word:#x}")))
}

/// The trees of keyspaces and of kept snapshots.
fn trees(tx: &Tx<'_>, head: u64) -> Result<[WbTree; 2]> {
    let tree = |off| -> Result<WbTree> { Ok(WbTree::open_unnamed(tx.pool(), tx.load(off)?)?) };
    Ok([tree(head + field!(PmStore.keyspaces))?, tree(head + field!(PmStore.kept))?])
}

/// One step; returns whether it was the last one.
fn step(tx: &mut Tx<'_>, head: u64) -> Result<bool> {
    check_head(tx.load(head)?, head)?;
    tx.use_kept_space(KeptSpace::All);
    if free_dropped(tx, head, 1)? > 0 {
        return Ok(false);
    }
    tx.use_kept_space(KeptSpace::All);
    let [keyspaces, kept] = trees(tx, head)?;
    if let Some((_, keyspace)) = keyspaces.pop_first(tx)? {
        // Its next step frees the first of its tables.
        let keyspace = word(&keyspace)?;
        tx.store(keyspace + field!(PmKeyspace.next_dropped), 0)?;
        tx.store(head + field!(PmStore.dropped), keyspace)?;
        return Ok(false);
    }
    if kept.pop_first(tx)?.is_some() || free_log(tx, head)? {
        return Ok(false);
    }
    keyspaces.free_unnamed(tx)?;
    kept.free_unnamed(tx)?;
    match tx.load(head + field!(PmStore.last_keyspace))? {
        0 => _ = tx.remove_root(DROPPED_NAME)?,
        next => tx.set_root(DROPPED_NAME, DROPPED_KIND, next)?,
    }
    tx.free(head)?;
    Ok(true)
}

/// Frees dropped stores, in up to `steps` steps; returns whether any are left.
pub(crate) fn reclaim(pool: &Pool, tx: &mut Tx<'_>, steps: usize) -> Result<bool> {
    let _names = names();
    let mut left = steps;
    loop {
        let head = first(pool)?;
        if head == 0 || left == 0 {
            return Ok(head != 0);
        }
        for _ in 0..left.min(STEPS_PER_RECORD) {
            left -= 1;
            let before = tx.savepoint();
            match step(tx, head) {
                Ok(true) => break,
                Ok(false) => {}
                Err(e) => {
                    tx.rollback_to(before);
                    tx.commit_and_begin()?;
                    return Err(e);
                }
            }
        }
        tx.commit_and_begin()?;
    }
}

impl Store {
    /// The kind of the root that leads to the stores that were dropped. It is none of a structure that has a
    /// name, and is there while they have space.
    pub const DROPPED_ROOT_KIND: u32 = DROPPED_KIND;

    /// Drops the store of this name, with its keyspaces, snapshots and log; returns whether there was one.
    /// The name is free at once. The space comes back by [`reclaim_dropped`](Self::reclaim_dropped), or by
    /// [`collect`](Self::collect) of any store in the pool. Works in a full pool, and takes the same time for
    /// a store of any size.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if the store is open in this process, or a snapshot, a transaction or an iterator
    /// of it is there; [`Error::Pool`] if the name belongs to something else, or the pool is damaged, or its
    /// device is.
    pub fn drop(pool: &Pool, name: &str) -> Result<bool> {
        let mut lane = pool.lane()?;
        let _names = names();
        let Some(root) = pool.root(name)? else { return Ok(false) };
        if root.kind != ROOT_KIND {
            let (expected, found) = (ROOT_KIND, root.kind);
            return Err(Error::Pool(
                tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into(),
            ));
        }
        let _guard = pool.claim(root.off)?.ok_or_else(|| Error::InUse { name: name.to_owned() })?;
        if let Format::Other { found, supported } = format_of(pool.region().load_u64(root.off)?, root.off)? {
            return Err(Error::FormatVersion { found, supported });
        }
        let next = first(pool)?;
        let mut tx = lane.begin();
        tx.use_kept_space(KeptSpace::All);
        // The name first: its place in the directory may be the only one that is left.
        tx.remove_root(name)?;
        tx.set_root(DROPPED_NAME, DROPPED_KIND, root.off)?;
        tx.store(root.off, DROPPED_FORMAT)?;
        tx.store(root.off + field!(PmStore.last_keyspace), next)?;
        tx.commit()?;
        Ok(true)
    }

    /// Whether dropped stores still have space, which [`reclaim_dropped`](Self::reclaim_dropped) frees.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged.
    pub fn has_dropped(pool: &Pool) -> Result<bool> {
        Ok(first(pool)? != 0)
    }

    /// Frees space of dropped stores, in up to `steps` steps; returns whether any is left. A step frees the
    /// versions of one key, or less.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool has no lane left, is damaged, or its device is.
    pub fn reclaim_dropped(pool: &Pool, steps: usize) -> Result<bool> {
        if first(pool)? == 0 {
            return Ok(false);
        }
        reclaim(pool, &mut pool.lane()?.begin(), steps)
    }

    /// Proves that what is left of dropped stores is allocated and reachable exactly once; returns how many
    /// there are. Nobody may write meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the first damage found.
    pub fn check_dropped(pool: &Pool, marks: &mut Marks) -> Result<u64> {
        let region = pool.region();
        let (mut count, mut head) = (0, first(pool)?);
        while head != 0 {
            marks.reach(head, STORE_BYTES)?;
            check_head(region.load_u64(head)?, head)?;
            let tree =
                |off: u64| -> Result<WbTree> { Ok(WbTree::open_unnamed(pool, region.load_u64(off)?)?) };
            let keyspaces = tree(head + field!(PmStore.keyspaces))?;
            keyspaces.check(marks)?;
            tree(head + field!(PmStore.kept))?.check(marks)?;
            LogSlot::open(pool, head)?.check(pool, u64::MAX, marks)?;
            let mut heads = Vec::new();
            let mut walk = keyspaces.iter();
            while let Some((_, keyspace)) = walk.advance()? {
                heads.push(word(keyspace)?);
            }
            let mut dropped = region.load_u64(head + field!(PmStore.dropped))?;
            while dropped != 0 {
                heads.push(dropped);
                dropped = region.load_u64(dropped + field!(PmKeyspace.next_dropped))?;
            }
            for off in heads {
                let keyspace = Keyspace::open(pool, Weak::new(), "a keyspace of a dropped store", off)?;
                marks.reach(off, size_of::<PmKeyspace>() as u64)?;
                check_keyspace(&keyspace, region, u64::MAX, None, marks, &mut Default::default())?;
            }
            count += 1;
            head = region.load_u64(head + field!(PmStore.last_keyspace))?;
        }
        Ok(count)
    }
}
