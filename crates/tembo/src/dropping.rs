//! Dropping maps and stores: the name at once, the blocks step by step.

use crate::kinds::Kind;
use crate::open_trees::{OpenOnce, OpenTrees};
use crate::pool::Shared;
use crate::{Error, Pool, Result};
use std::sync::PoisonError;
use tembo_index::{U64Tree, VersionedHash, VersionedTree};
use tembo_pool::Feature;
use tembo_store::Store;

impl Pool {
    /// Drops the map of this name, of any kind but a store or a heap, with its versions and snapshots;
    /// returns whether there was one.
    ///
    /// The name is free at once, for another map. Dropping is one commit, which takes no space and constant
    /// time: after a crash the map exists in full or not at all. [`reclaim_dropped`](Self::reclaim_dropped)
    /// frees the space; so do each [`Batch`](crate::Batch) and each creation of a map, a little at a time.
    /// After a crash this continues. [`drop_store`](Self::drop_store) drops stores.
    ///
    /// Versions of Tembo older than this function refuse a pool in which a map was ever dropped.
    ///
    /// # Errors
    ///
    /// [`Error::MapOpen`] if this process has a handle of the map, or a snapshot, batch or iterator;
    /// [`Error::NotAMap`]; [`Error::Unknown`]; [`Error::ReadOnly`]; [`Error::Pool`].
    pub fn drop_map(&self, name: &str) -> Result<bool> {
        if self.look_up(name)?.is_none() {
            return Ok(false);
        }
        let writers = self.shared.writers()?;
        self.shared.pool.enable(Feature::Dropped)?;
        let mut tx = self.shared.begin("the turn to drop a map")?;
        // Names are created and dropped in the writers' turn, so that this stays true.
        let Some(kind) = self.look_up(name)? else { return Ok(false) };
        self.shared.while_closed(&kind, name, || {
            tembo_index::drop_map(&mut tx, name)?;
            self.shared.dropped.note(true);
            Ok(writers.commit(tx)?)
        })?;
        Ok(true)
    }

    /// Frees space of dropped maps, and then of dropped stores, in `steps` steps each; returns whether any is
    /// left. A step frees one node of a map with its records, at most about 43 blocks, or the versions of one
    /// key of a store. All steps for maps are one commit, or one each if the pool is too full for that.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool"))?;
    /// pool.open_map("old")?.put("key", "value")?;
    /// assert!(pool.drop_map("old")?);
    /// while pool.reclaim_dropped(100)? {}
    /// assert_eq!(pool.list()?, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]; [`Error::Pool`] if a dropped map or store is damaged, or the device failed;
    /// [`Error::TooManyOpen`] if there is a dropped store and no lane is left.
    pub fn reclaim_dropped(&self, steps: usize) -> Result<bool> {
        let shared = &self.shared;
        if !self.has_dropped_maps()? {
            return shared.reclaim_stores(steps);
        }
        let is_left = match shared.reclaim_dropped(steps) {
            // One step always fits into a lane, unless lanes are very short.
            Err(Error::Full { .. }) => {
                for _ in 1..steps {
                    shared.reclaim_dropped(1)?;
                }
                shared.reclaim_dropped(1)?
            }
            outcome => outcome?,
        };
        Ok(shared.reclaim_stores(steps)? || is_left)
    }
}

impl Pool {
    /// Whether dropped maps still have blocks, which [`reclaim_dropped`](Self::reclaim_dropped) frees.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged.
    pub fn has_dropped_maps(&self) -> Result<bool> {
        Ok(tembo_index::has_dropped(&self.shared.pool)?)
    }

    /// As [`has_dropped_maps`](Self::has_dropped_maps), for stores.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged.
    pub fn has_dropped_stores(&self) -> Result<bool> {
        Ok(Store::has_dropped(&self.shared.pool)?)
    }
}

impl Shared {
    /// Frees nodes of dropped maps, `steps` at most, in one commit; returns whether any are left.
    pub(crate) fn reclaim_dropped(&self, steps: usize) -> Result<bool> {
        let mut tx = self.begin("the turn to free dropped maps")?;
        let is_left = tembo_index::reclaim_dropped(&mut tx, steps)?;
        self.dropped.note(is_left);
        self.writers()?.commit(tx)?;
        Ok(is_left)
    }

    /// Frees space of dropped stores; returns whether any is left.
    pub(crate) fn reclaim_stores(&self, steps: usize) -> Result<bool> {
        Store::reclaim_dropped(&self.pool, steps).map_err(|e| self.explain(e.into()))
    }

    /// Runs `body` while the map has no handle and gets none; an error if it has one.
    fn while_closed(&self, kind: &Kind, name: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
        match kind {
            Kind::Map => {
                let mut open = self.plain_maps.lock();
                if open.get(name).is_some_and(|counted| counted.strong_count() > 0) {
                    return Err(Error::MapOpen { name: name.to_owned() });
                }
                open.remove(name);
                body()
            }
            Kind::VersionedMap => closed::<VersionedTree>(&self.versioned_trees, name, body),
            Kind::HashTable => closed::<VersionedHash>(&self.hash_tables, name, body),
            Kind::FixedMap => closed::<U64Tree>(&self.fixed_trees, name, body),
            Kind::Store | Kind::Heap | Kind::Unknown(_) => {
                Err(Error::NotAMap { name: name.to_owned(), found: kind.in_words() })
            }
        }
    }
}

fn closed<T: OpenOnce>(trees: &OpenTrees<T>, name: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut open = trees.lock().unwrap_or_else(PoisonError::into_inner);
    if open.get(name).is_some_and(|(_, entry)| entry.strong_count() > 0) {
        return Err(Error::MapOpen { name: name.to_owned() });
    }
    // The last handle is being dropped, and would remove this itself.
    open.remove(name);
    body()
}
