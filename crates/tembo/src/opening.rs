//! The opening of maps by their names.

use crate::kinds::Kind;
use crate::map::Tree;
use crate::open_trees::TreeHandle;
use crate::{FixedMap, HashTable, Map, MapOptions, Pool, Result, VersionsReport};
use tembo_index::{U64Tree, VersionedHash, VersionedTree, WbTree};

impl Pool {
    /// Opens the map of this name (1 to 40 bytes). If there is none, creates one that keeps no versions,
    /// durably.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); [`Error::OtherKind`](crate::Error::OtherKind) if the name belongs
    /// to another kind of structure; [`Error::ReadOnly`](crate::Error::ReadOnly) if there is no such map and
    /// none can be created; [`Error::WouldWait`](crate::Error::WouldWait) if there is none, and this thread
    /// has a [`Batch`](crate::Batch) or is in a closure that [`Map::modify`] calls.
    pub fn open_map(&self, name: &str) -> Result<Map> {
        self.open_map_with(name, MapOptions::new())
    }

    /// Opens the map of this name (1 to 40 bytes), of the kind that the options ask for. If there is none,
    /// creates it, durably.
    ///
    /// All handles of an open map that keeps versions together hold one of the pool's lanes; a pool of the
    /// usual size has 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map); [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is
    /// left; [`Error::MapKind`](crate::Error::MapKind) if the map exists and is of the other kind.
    pub fn open_map_with(&self, name: &str, options: MapOptions) -> Result<Map> {
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        let mut tx = self.shared.begin("the turn to make a map")?;
        // Another thread may have created it while this one waited for its turn.
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        if options.wants_versions() {
            // Created on a lane of its own, while the turn excludes others that create names.
            let create = || Ok(Some(VersionedTree::create(&self.shared.pool, name)?));
            let tree = TreeHandle::open(self, name, create)?.expect("created if there was none");
            return Ok(Map { tree: Tree::Versioned(tree), pool: self.clone() });
        }
        self.shared.dropped.reclaim_within(&mut tx);
        let create = || {
            let tree = WbTree::create_counting(&mut tx, name, options.wants_counting())?;
            tx.commit()?;
            Ok(Some(tree))
        };
        let tree = self.shared.plain_maps.open(name, create)?.expect("created just now");
        Ok(Map { tree: Tree::Plain(tree), pool: self.clone() })
    }

    /// Opens the map of this name, if there is one, whether it keeps versions or not.
    ///
    /// # Errors
    ///
    /// [`Error::OtherKind`](crate::Error::OtherKind) if the name belongs to another kind of structure;
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged;
    /// [`Error::TooManyOpen`](crate::Error::TooManyOpen) if the map keeps versions and no lane is left.
    pub fn find_map(&self, name: &str) -> Result<Option<Map>> {
        let tree = match self.look_up(name)? {
            None => None,
            Some(Kind::VersionedMap) => TreeHandle::open(self, name, || Ok(None))?.map(Tree::Versioned),
            Some(_) => {
                let find = || WbTree::open(&self.shared.pool, name);
                self.shared.plain_maps.open(name, find)?.map(Tree::Plain)
            }
        };
        Ok(tree.map(|tree| Map { tree, pool: self.clone() }))
    }

    /// The names of all maps of byte strings, of both kinds. For other maps see
    /// [`fixed_map_names`](Self::fixed_map_names) and [`hash_tables`](Self::hash_tables).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::Map, Kind::VersionedMap])
    }

    /// Opens the map of 8-byte keys and values of this name (1 to 40 bytes). If there is none, creates it,
    /// durably.
    ///
    /// All handles of an open fixed map together hold one of the pool's lanes; a pool of the usual size has
    /// 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn open_fixed_map(&self, name: &str) -> Result<FixedMap> {
        if let Some(map) = self.find_fixed_map(name)? {
            return Ok(map);
        }
        // One thread at a time creates names: the only writer, as for the other maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(U64Tree::create(&self.shared.pool, name)?));
        let tree = TreeHandle::open(self, name, create)?.expect("created if there was none");
        Ok(FixedMap { tree })
    }

    /// Opens the map of 8-byte keys and values of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn find_fixed_map(&self, name: &str) -> Result<Option<FixedMap>> {
        self.look_up(name)?;
        Ok(TreeHandle::open(self, name, || Ok(None))?.map(|tree| FixedMap { tree }))
    }

    /// The names of all maps of 8-byte keys and values.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn fixed_map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::FixedMap])
    }

    /// Opens the hash table of this name (1 to 40 bytes). If there is none, creates it, durably.
    ///
    /// All handles of an open hash table together hold one of the pool's lanes; a pool of the usual size has
    /// 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn open_hash_table(&self, name: &str) -> Result<HashTable> {
        if let Some(table) = self.find_hash_table(name)? {
            return Ok(table);
        }
        // One thread at a time creates names: the only writer, as for the maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(VersionedHash::create(&self.shared.pool, name)?));
        let table = TreeHandle::open(self, name, create)?.expect("created if there was none");
        Ok(HashTable { table })
    }

    /// Opens the hash table of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn find_hash_table(&self, name: &str) -> Result<Option<HashTable>> {
        self.look_up(name)?;
        Ok(TreeHandle::open(self, name, || Ok(None))?.map(|table| HashTable { table }))
    }

    /// The names of all hash tables, with reports of their newest versions and their named snapshots.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn hash_tables(&self) -> Result<Vec<(String, VersionsReport)>> {
        let mut tables = Vec::new();
        for name in self.names_of(&[Kind::HashTable])? {
            if let Some(root) = self.shared.pool.root(&name)? {
                tables.push((name, VersionedHash::describe_at(&self.shared.pool, root.off)?));
            }
        }
        Ok(tables)
    }
}
