//! Trees that are open once in a process, however many handles there are.

use crate::pool::Shared;
use crate::{Error, Pool, Result};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tembo_index::{U64Tree, VersionedHash, VersionedTree};

/// A tree that keeps state in memory which must exist once, and a lane, until its last handle is gone.
pub(crate) trait OpenOnce: Clone {
    fn open(pool: &tembo_pool::Pool, name: &str) -> tembo_index::Result<Option<Self>>;

    /// Where those that are open are found.
    fn among(shared: &Shared) -> &OpenTrees<Self>;
}

impl OpenOnce for U64Tree {
    fn open(pool: &tembo_pool::Pool, name: &str) -> tembo_index::Result<Option<U64Tree>> {
        U64Tree::open(pool, name)
    }

    fn among(shared: &Shared) -> &OpenTrees<U64Tree> {
        &shared.fixed_trees
    }
}

impl OpenOnce for VersionedTree {
    fn open(pool: &tembo_pool::Pool, name: &str) -> tembo_index::Result<Option<VersionedTree>> {
        VersionedTree::open(pool, name)
    }

    fn among(shared: &Shared) -> &OpenTrees<VersionedTree> {
        &shared.versioned_trees
    }
}

impl OpenOnce for VersionedHash {
    fn open(pool: &tembo_pool::Pool, name: &str) -> tembo_index::Result<Option<VersionedHash>> {
        VersionedHash::open(pool, name)
    }

    fn among(shared: &Shared) -> &OpenTrees<VersionedHash> {
        &shared.hash_tables
    }
}

impl Shared {
    /// An error as the user of the store can understand it: where there is no lane, what is open has them.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Pool(tembo_pool::Error::NoLane { lanes }) => {
                let open = count(&self.fixed_trees) + count(&self.versioned_trees) + count(&self.hash_tables);
                Error::TooManyOpen { open, lanes }
            }
            other => other,
        }
    }
}

fn count<T: OpenOnce>(trees: &OpenTrees<T>) -> usize {
    let trees = trees.lock().unwrap_or_else(PoisonError::into_inner);
    trees.values().filter(|(_, entry)| entry.strong_count() > 0).count()
}

/// The trees of one kind that are open.
pub(crate) type OpenTrees<T> = Mutex<HashMap<String, (T, Weak<Entry<T>>)>>;

/// A handle of a tree.
#[derive(Debug)]
pub(crate) struct Once<T: OpenOnce> {
    // In this order: the entry is taken out when nobody has the tree any more.
    tree: T,
    entry: Arc<Entry<T>>,
}

/// What the handles of a tree share: it stays among the open ones as long as they last.
#[derive(Debug)]
pub(crate) struct Entry<T: OpenOnce> {
    pool: Pool,
    name: String,
    _tree: std::marker::PhantomData<fn() -> T>,
}

impl<T: OpenOnce> Drop for Entry<T> {
    fn drop(&mut self) {
        if self.pool.shared.pool.was_left_behind() {
            return;
        }
        let mut open = T::among(&self.pool.shared).lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have asked for the name again meanwhile, and then it has another entry.
        if open.get(&self.name).is_some_and(|(_, entry)| entry.strong_count() == 0) {
            open.remove(&self.name);
        }
    }
}

impl<T: OpenOnce> Once<T> {
    /// The tree of this name as it is open, or as it can be opened, or as `create` makes it.
    pub(crate) fn open(
        pool: &Pool,
        name: &str,
        create: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<Once<T>>> {
        pool.shared.pool.check_process()?;
        Once::try_open(pool, name, create).map_err(|e| pool.shared.explain(e))
    }

    fn try_open(
        pool: &Pool,
        name: &str,
        create: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<Once<T>>> {
        let mut open = T::among(&pool.shared).lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.get(name).cloned();
        if let Some((tree, entry)) = &known
            && let Some(entry) = entry.upgrade()
        {
            return Ok(Some(Once { tree: tree.clone(), entry }));
        }
        let tree = match known.map(|(tree, _)| tree) {
            Some(tree) => Some(tree),
            None => T::open(&pool.shared.pool, name)?,
        };
        let Some(tree) = tree.map_or_else(create, |tree| Ok(Some(tree)))? else { return Ok(None) };
        let entry =
            Arc::new(Entry { pool: pool.clone(), name: name.to_owned(), _tree: std::marker::PhantomData });
        open.insert(name.to_owned(), (tree.clone(), Arc::downgrade(&entry)));
        Ok(Some(Once { tree, entry }))
    }

    /// Handles of all that are open.
    pub(crate) fn all(among: &OpenTrees<T>) -> Vec<Once<T>> {
        let open = among.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = open
            .values()
            .filter_map(|(tree, entry)| Some(Once { tree: tree.clone(), entry: entry.upgrade()? }));
        handles.collect()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.entry.pool
    }

    /// What keeps the tree open.
    pub(crate) fn entry(&self) -> &Arc<Entry<T>> {
        &self.entry
    }

    /// Whether both are handles of one tree.
    pub(crate) fn is_same(&self, other: &Once<T>) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl<T: OpenOnce> Clone for Once<T> {
    fn clone(&self) -> Once<T> {
        Once { tree: self.tree.clone(), entry: self.entry.clone() }
    }
}

impl<T: OpenOnce> Deref for Once<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.tree
    }
}
