//! Trees that are open once in a process, however many handles there are.

use crate::pool::Shared;
use crate::{Error, Pool, Result};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tembo_index::{U64Tree, VersionedHash, VersionedTree};
use tembo_pool::ErrorKind;

/// A tree with a lane, and with state in memory that must exist only once, until its last handle is dropped.
pub(crate) trait OpenOnce: Clone {
    fn open(pool: &tembo_pool::Pool, name: &str) -> tembo_index::Result<Option<Self>>;

    /// The open trees of this kind.
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
    /// Replaces the error that no lane is left by one that says how many open maps have them.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Pool(e) => match *e.kind() {
                ErrorKind::NoLane { lanes } => {
                    let trees =
                        count(&self.fixed_trees) + count(&self.versioned_trees) + count(&self.hash_tables);
                    let open = trees + self.stores.count();
                    Error::TooManyOpen { open, lanes }
                }
                _ => Error::Pool(e),
            },
            other => other,
        }
    }
}

fn count<T: OpenOnce>(trees: &OpenTrees<T>) -> usize {
    let trees = trees.lock().unwrap_or_else(PoisonError::into_inner);
    trees.values().filter(|(_, entry)| entry.strong_count() > 0).count()
}

/// The trees of one kind that are open.
pub(crate) type OpenTrees<T> = Mutex<HashMap<String, (T, Weak<OpenEntry<T>>)>>;

/// A handle of a tree.
#[derive(Debug)]
pub(crate) struct TreeHandle<T: OpenOnce> {
    // The fields are dropped in this order: the entry is removed after the last handle of the tree.
    tree: T,
    entry: Arc<OpenEntry<T>>,
}

/// Shared by the handles of a tree; keeps it among the open ones as long as they live.
#[derive(Debug)]
pub(crate) struct OpenEntry<T: OpenOnce> {
    pool: Pool,
    name: String,
    _tree: std::marker::PhantomData<fn() -> T>,
}

impl<T: OpenOnce> Drop for OpenEntry<T> {
    fn drop(&mut self) {
        if self.pool.shared.pool.was_left_behind() {
            return;
        }
        let mut open = T::among(&self.pool.shared).lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have opened the name again meanwhile; then it has another entry.
        if open.get(&self.name).is_some_and(|(_, entry)| entry.strong_count() == 0) {
            open.remove(&self.name);
        }
    }
}

impl<T: OpenOnce> TreeHandle<T> {
    /// The tree of this name: the open one, or else opened, or else made by `create`.
    pub(crate) fn open(
        pool: &Pool,
        name: &str,
        create: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<TreeHandle<T>>> {
        pool.shared.pool.check_process()?;
        TreeHandle::try_open(pool, name, create).map_err(|e| pool.shared.explain(e))
    }

    fn try_open(
        pool: &Pool,
        name: &str,
        create: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<TreeHandle<T>>> {
        let mut open = T::among(&pool.shared).lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.get(name).cloned();
        if let Some((tree, entry)) = &known
            && let Some(entry) = entry.upgrade()
        {
            return Ok(Some(TreeHandle { tree: tree.clone(), entry }));
        }
        let tree = match known.map(|(tree, _)| tree) {
            Some(tree) => Some(tree),
            None => T::open(&pool.shared.pool, name)?,
        };
        let Some(tree) = tree.map_or_else(create, |tree| Ok(Some(tree)))? else { return Ok(None) };
        let entry = Arc::new(OpenEntry {
            pool: pool.clone(),
            name: name.to_owned(),
            _tree: std::marker::PhantomData,
        });
        open.insert(name.to_owned(), (tree.clone(), Arc::downgrade(&entry)));
        Ok(Some(TreeHandle { tree, entry }))
    }

    /// Handles of all that are open.
    pub(crate) fn all(among: &OpenTrees<T>) -> Vec<TreeHandle<T>> {
        let open = among.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = open
            .values()
            .filter_map(|(tree, entry)| Some(TreeHandle { tree: tree.clone(), entry: entry.upgrade()? }));
        handles.collect()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.entry.pool
    }

    /// The entry that keeps the tree open.
    pub(crate) fn entry(&self) -> &Arc<OpenEntry<T>> {
        &self.entry
    }

    /// Whether both are handles of one tree.
    pub(crate) fn is_same(&self, other: &TreeHandle<T>) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl<T: OpenOnce> Clone for TreeHandle<T> {
    fn clone(&self) -> TreeHandle<T> {
        TreeHandle { tree: self.tree.clone(), entry: self.entry.clone() }
    }
}

impl<T: OpenOnce> Deref for TreeHandle<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.tree
    }
}
