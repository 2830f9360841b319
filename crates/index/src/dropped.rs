//! Dropped maps: they have lost their names, and their blocks are freed step by step.
//!
//! # Media layout
//!
//! ```text
//! PmHeader::dropped ──▶ head of a map ──next_dropped──▶ head of a map ──▶ 0
//! ```
//!
//! The first word of a head has the kind of the map. The head leads to the blocks that are left of the map.
//! In an ordered map without versions that is a cleared tree (`wbtree/clear.rs`). In the other kinds, freeing
//! a child sets the word in its inner node to 0; queues and named snapshots are emptied from the front, as
//! always.
//!
//! # Invariants
//!
//! * I1: the head of a dropped map leads to each of its remaining blocks exactly once, and to nothing else
//!   (`check_dropped`).
//! * I2: an inner node is freed after all its children, and a leaf after all its records.
//!
//! # Commit point
//!
//! Dropping is one record: it removes the name and adds the head to the list, and the tree of an ordered map
//! without versions becomes a cleared one. It allocates nothing, so it works in a full pool, and it takes the
//! same time for a map of any size. A step frees one node with its records, or one block of another kind, and
//! is part of its caller's record.
//!
//! # Recovery
//!
//! None: the list on media is always valid, and the next step continues it. Opening does not read it.
//!
//! # Concurrency
//!
//! While a thread drops or frees a map, no other thread changes names, and no handle of the map exists. Freed
//! blocks wait for pinned readers, as always.

use crate::error::{Error, Result, corrupt};
use crate::map_kind::{MapFormat, MapKind};
use crate::versioned::{self, HashStructure, TreeStructure};
use crate::{U64Tree, WbTree, u64tree, wbtree};
use tembo_pool::{Feature, Marks, Pool, Tx};

/// Removes the name of a map of any kind, and leaves the map's blocks to [`reclaim_dropped`]. Returns whether
/// there was such a map. Needs no space, and takes the same time for a map of any size. The name can be
/// reused at once. [`Feature::Dropped`] has to be [enabled](Pool::enable).
///
/// No handle of the map may be in use, and none may be opened before the commit has returned. A handle of a
/// map that keeps state in memory is detected ([`Error::InUse`]); a handle of a [`WbTree`] is not.
///
/// # Errors
///
/// [`Error::InUse`]; [`Error::Pool`] if the name belongs to something else, or the head is damaged;
/// [`Error::FormatVersion`]. After an error the transaction is unchanged.
pub fn drop_map(tx: &mut Tx<'_>, name: &str) -> Result<bool> {
    let pool = tx.pool().clone();
    let Some(root) = pool.root(name)? else { return Ok(false) };
    let Some(kind) = MapKind::of_root(root.kind) else {
        let (expected, found) = (wbtree::layout::ROOT_KIND, root.kind);
        return Err(tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into());
    };
    if let MapFormat::Other { found, supported, .. } = kind.format_at(&pool, root.off)? {
        return Err(Error::FormatVersion { found, supported });
    }
    if kind != MapKind::Plain {
        pool.hold(root.off).ok_or(Error::InUse)?;
    }
    let before = tx.savepoint();
    let outcome = unname(tx, name, kind, root.off);
    if outcome.is_err() {
        tx.rollback_to(before);
    }
    outcome
}

/// Returns whether the name was there: the transaction itself may have removed it.
fn unname(tx: &mut Tx<'_>, name: &str, kind: MapKind, header: u64) -> Result<bool> {
    if !tx.remove_root(name)? {
        return Ok(false);
    }
    if kind == MapKind::Plain {
        WbTree::at(tx.pool(), header)?.clear(tx)?;
    }
    let next = tx.dropped()?;
    tx.store(kind.next_off(header), next)?;
    tx.set_dropped(header)?;
    Ok(true)
}

/// Frees up to `steps` nodes, and the records in them, of maps that were dropped; returns whether any are
/// left.
///
/// # Errors
///
/// [`Error::Pool`] when a dropped map is damaged. The transaction then has all steps before the damage,
/// whole.
pub fn reclaim_dropped(tx: &mut Tx<'_>, steps: usize) -> Result<bool> {
    for _ in 0..steps {
        let header = tx.dropped()?;
        if header == 0 {
            return Ok(false);
        }
        let before = tx.savepoint();
        if let Err(e) = step(tx, header) {
            tx.rollback_to(before);
            return Err(e);
        }
    }
    Ok(tx.dropped()? != 0)
}

fn kind_at(pool: &Pool, header: u64) -> Result<MapKind> {
    let word = pool.region().load_u64(header)?;
    MapKind::of_format(word).ok_or_else(|| {
        corrupt("the head of a dropped map", header, "that of a map", word.to_ne_bytes().escape_ascii())
    })
}

/// Frees a part of the map, and its head last.
fn step(tx: &mut Tx<'_>, header: u64) -> Result<()> {
    let kind = kind_at(tx.pool(), header)?;
    let has_freed = match kind {
        MapKind::Plain => WbTree::at(tx.pool(), header)?.reclaim_doomed(tx)?,
        MapKind::Versioned => versioned::dropped::step::<TreeStructure>(tx, header)?,
        MapKind::Hash => versioned::dropped::step::<HashStructure>(tx, header)?,
        MapKind::Fixed => u64tree::dropped::step(tx, header)?,
    };
    if !has_freed {
        let next = tx.load(kind.next_off(header))?;
        tx.set_dropped(next)?;
        tx.free(header)?;
    }
    Ok(())
}

/// Proves I1 for all dropped maps, and ticks their blocks off. Returns the number of these maps. Nobody may
/// write meanwhile.
///
/// # Errors
///
/// [`Error::Pool`] with the first damage found.
pub fn check_dropped(pool: &Pool, marks: &mut Marks) -> Result<u64> {
    let mut count = 0;
    let mut header = pool.dropped()?;
    while header != 0 {
        let kind = kind_at(pool, header)?;
        match kind {
            MapKind::Plain => WbTree::at(pool, header)?.check_dropped(marks)?,
            MapKind::Versioned => {
                versioned::dropped::check::<TreeStructure>(pool.region(), (header, kind.format()), marks)?
            }
            MapKind::Hash => {
                versioned::dropped::check::<HashStructure>(pool.region(), (header, kind.format()), marks)?
            }
            MapKind::Fixed => U64Tree::check_dropped(pool, header, marks)?,
        }
        count += 1;
        header = pool.region().load_u64(kind.next_off(header))?;
    }
    Ok(count)
}

/// Whether [`reclaim_dropped`] has anything to do.
///
/// # Errors
///
/// [`Error::Pool`] if the pool's list is damaged.
pub fn has_dropped(pool: &Pool) -> Result<bool> {
    debug_assert!(pool.dropped()? == 0 || pool.has(Feature::Dropped));
    Ok(pool.dropped()? != 0)
}
