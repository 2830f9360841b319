//! The contents of a pool, by name: maps, stores, a heap, and structures that this version of the library
//! cannot read.

use crate::kinds::{Kind, Listed, Unknown};
use crate::{Error, Pool, Result};
use tembo_heap::HeapFormat;
use tembo_index::{MapFormat, MapKind};
use tembo_pool::Root;
use tembo_store::{Format, Store};

impl Pool {
    /// Every named structure in the pool, in order of the names; also those that this version of the library
    /// cannot read. What was dropped is not among them.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the pool is damaged.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for root in self.shared.pool.roots()? {
            if root.kind == Store::DROPPED_ROOT_KIND {
                continue;
            }
            let kind = self.kind_of(&root)?;
            listed.push(Listed { name: root.name, kind });
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// The structures in the pool that this version of the library cannot read.
    ///
    /// # Errors
    ///
    /// As for [`list`](Self::list).
    pub fn unknown(&self) -> Result<Vec<Unknown>> {
        let unknown = self.list()?.into_iter().filter_map(|listed| match listed.kind {
            Kind::Unknown(unknown) => Some(unknown),
            _ => None,
        });
        Ok(unknown.collect())
    }

    fn kind_of(&self, root: &Root) -> Result<Kind> {
        let pool = &self.shared.pool;
        let other = |format| Kind::Unknown(Unknown { name: root.name.clone(), kind: root.kind, format });
        if root.kind == tembo_heap::ROOT_KIND {
            return Ok(match tembo_heap::format_at(pool, root.off)? {
                HeapFormat::Known => Kind::Heap,
                HeapFormat::Other { found, supported } => other(Some(("heap", found, supported))),
            });
        }
        if root.kind == Store::ROOT_KIND {
            return Ok(match Store::format_at(pool, root.off)? {
                Format::Known => Kind::Store,
                Format::Other { found, supported } => other(Some(("store", found, supported))),
            });
        }
        let Some(kind) = MapKind::of_root(root.kind) else { return Ok(other(None)) };
        Ok(match kind.format_at(pool, root.off)? {
            MapFormat::Known(kind) => Kind::of_map(kind),
            MapFormat::Other { found, supported, .. } => {
                other(Some((Kind::of_map(kind).in_words(), found, supported)))
            }
        })
    }

    /// The kind of the structure of this name, if there is one; an error if this version cannot read it.
    pub(crate) fn look_up(&self, name: &str) -> Result<Option<Kind>> {
        let Some(root) = self.shared.pool.root(name)? else { return Ok(None) };
        match self.kind_of(&root)? {
            Kind::Unknown(unknown) => Err(Error::Unknown(Box::new(unknown))),
            kind => Ok(Some(kind)),
        }
    }

    /// The names of all structures of these kinds.
    pub(crate) fn names_of(&self, kinds: &[Kind]) -> Result<Vec<String>> {
        let listed = self.list()?.into_iter().filter(|listed| kinds.contains(&listed.kind));
        Ok(listed.map(|listed| listed.name).collect())
    }
}
