//! The open maps without versions.

use crate::Result;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tembo_index::WbTree;

/// A handle of a map without versions: counted, so that the map cannot be dropped meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    tree: WbTree,
    counted: Arc<()>,
}

impl Plain {
    /// Whether both are handles of one tree.
    pub(crate) fn is_same(&self, other: &Plain) -> bool {
        Arc::ptr_eq(&self.counted, &other.counted)
    }
}

impl Deref for Plain {
    type Target = WbTree;
    #[inline(always)]
    fn deref(&self) -> &WbTree {
        &self.tree
    }
}

/// The maps without versions that have handles, by their names. Some entries have no handle any more.
#[derive(Debug, Default)]
pub(crate) struct OpenPlain(Mutex<HashMap<String, Weak<()>>>);

impl OpenPlain {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of the tree that `find` finds.
    pub(crate) fn open(
        &self,
        name: &str,
        find: impl FnOnce() -> tembo_index::Result<Option<WbTree>>,
    ) -> Result<Option<Plain>> {
        // The list stays locked until the handle is counted.
        let mut open = self.lock();
        let Some(tree) = find()? else { return Ok(None) };
        let counted = open.get(name).and_then(Weak::upgrade).unwrap_or_default();
        open.insert(name.to_owned(), Arc::downgrade(&counted));
        Ok(Some(Plain { tree, counted }))
    }
}
