//! The stores of a pool, by name.

use crate::kinds::Kind;
use crate::{Error, Pool, Result};
use std::io::Read;
use tembo_store::{Restoring, Store};

impl Pool {
    /// Opens the [store](crate::store) of this name (1 to 40 bytes). If there is none, creates it, durably.
    /// Opened again, it is the same store.
    ///
    /// An open store holds one of the pool's lanes; a pool of the usual size has 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map); [`Error::TooManyOpen`] if no lane is left.
    pub fn open_store(&self, name: &str) -> Result<Store> {
        if let Some(store) = self.find_store(name)? {
            return Ok(store);
        }
        // One thread at a time creates names: the only writer, as for the maps.
        let _turn = self.shared.begin("the turn to make a store")?;
        let open = || Store::open(&self.shared.pool, name);
        self.shared.stores.open(name, open).map_err(|e| self.shared.explain(e))
    }

    /// Opens the [store](crate::store) of this name, if there is one. In a pool that was opened for reading
    /// only, the store can be read, and whatever would change it fails.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`] if no lane is left.
    pub fn find_store(&self, name: &str) -> Result<Option<Store>> {
        self.shared.pool.check_process()?;
        match self.look_up(name)? {
            None => Ok(None),
            Some(Kind::Store) => self.to_read_store(name).map(Some),
            Some(other) => Err(not_a_store(name, &other)),
        }
    }

    /// Drops the [store](crate::store) of this name, with its keyspaces, snapshots and log; returns whether
    /// there was one.
    ///
    /// The name is free at once. Dropping is one commit, which takes no space and constant time: after a
    /// crash the store exists in full or not at all. [`reclaim_dropped`](Self::reclaim_dropped) frees the
    /// space; so does [`collect`](tembo_store::Store::collect) of any store, a little at a time. This
    /// continues after a crash.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] with [`InUse`](tembo_store::Error::InUse) if this process has a handle of the store,
    /// or a snapshot, transaction or iterator; [`Error::OtherKind`]; [`Error::Unknown`]; [`Error::ReadOnly`];
    /// [`Error::TooManyOpen`] if no lane is left; [`Error::Pool`].
    pub fn drop_store(&self, name: &str) -> Result<bool> {
        // One thread at a time makes and drops names.
        let _turn = self.shared.begin("the turn to drop a store")?;
        match self.look_up(name)? {
            None => return Ok(false),
            Some(Kind::Store) => {}
            Some(other) => return Err(not_a_store(name, &other)),
        }
        let drop = || Store::drop(&self.shared.pool, name);
        self.shared.stores.drop(name, drop).map_err(|e| self.shared.explain(e))
    }

    /// Makes a store from a [backup](tembo_store::Snapshot::backup) and from differences that follow it, and
    /// opens it. It is there when all were read to their ends.
    ///
    /// # Errors
    ///
    /// As for [`tembo_store::Store::restore`].
    pub fn restore_store<R: Read>(&self, name: &str, backups: impl IntoIterator<Item = R>) -> Result<Store> {
        let mut restoring = self.begin_restore(name)?;
        for backup in backups {
            if let Err(e) = restoring.read(backup) {
                // The first error says more than one of clearing up.
                let _ = self.abort_restore(restoring);
                return Err(e.into());
            }
        }
        self.finish_restore(restoring)
    }

    /// Makes a copy of the store of this name in another pool, with all its history, and opens the copy
    /// there; `None` if there is no such store. `note` gets the number of copied keys.
    ///
    /// # Errors
    ///
    /// As for [`tembo_store::Store::copy_to`].
    pub fn copy_store(&self, name: &str, to: &Pool, note: impl FnMut(u64)) -> Result<Option<Store>> {
        let Some(from) = self.find_store(name)? else { return Ok(None) };
        let copy = {
            let _turn = to.shared.begin("the turn to make a store")?;
            from.copy_to(&to.shared.pool, note).map_err(|e| to.shared.explain(e.into()))?
        };
        drop(copy);
        to.open_store(name).map(Some)
    }

    /// Begins to make a store from backups that come one by one.
    ///
    /// # Errors
    ///
    /// As for [`tembo_store::Restoring::begin`].
    pub fn begin_restore(&self, name: &str) -> Result<Restoring> {
        let _turn = self.shared.begin("the turn to make a store")?;
        Restoring::begin(&self.shared.pool, name).map_err(|e| self.shared.explain(e.into()))
    }

    /// Gives a store that was made from backups its name, and opens it.
    ///
    /// # Errors
    ///
    /// As for [`tembo_store::Restoring::finish`].
    pub fn finish_restore(&self, restoring: Restoring) -> Result<Store> {
        let _turn = self.shared.begin("the turn to make a store")?;
        let store = restoring.finish()?;
        self.shared.stores.lock().insert(store.name().to_owned(), store.downgrade());
        Ok(store)
    }

    /// Removes the part of the store that was made from backups so far.
    ///
    /// # Errors
    ///
    /// As for [`tembo_store::Restoring::abort`].
    pub fn abort_restore(&self, restoring: Restoring) -> Result<()> {
        let _turn = self.shared.begin("the turn to remove a store")?;
        Ok(restoring.abort()?)
    }

    /// The names of all stores.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged.
    pub fn store_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::Store])
    }

    /// A store that exists.
    pub(crate) fn to_read_store(&self, name: &str) -> Result<Store> {
        let open = || Store::open(&self.shared.pool, name);
        self.shared.stores.open(name, open).map_err(|e| self.shared.explain(e))
    }
}

fn not_a_store(name: &str, found: &Kind) -> Error {
    Error::OtherKind {
        name: name.to_owned(),
        found: format!("a {}", found.in_words()),
        expected: "a store".to_owned(),
    }
}
