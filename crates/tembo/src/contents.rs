//! The contents of a pool, by name: maps, stores, a heap, and structures that this version of the library
//! cannot read.

use crate::{Error, Pool, Result};
use std::fmt;
use tembo_heap::HeapFormat;
use tembo_index::{MapFormat, MapKind};
use tembo_pool::Root;
use tembo_store::{Format, Store};

/// A named structure in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// The kind of structure.
    pub kind: Kind,
}

/// The kind of a named structure in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A [`Map`](crate::Map) that keeps no versions.
    Map,
    /// A [`Map`](crate::Map) that keeps versions.
    VersionedMap,
    /// A [`HashTable`](crate::HashTable).
    HashTable,
    /// A [`FixedMap`](crate::FixedMap).
    FixedMap,
    /// A versioned, transactional [store](crate::store).
    Store,
    /// A [heap](crate::heap) of persistent objects.
    Heap,
    /// A structure that this version of the library cannot read.
    Unknown(Unknown),
}

/// A structure that this version of the library cannot read: its kind is unknown, or its format is another.
/// It is not damaged, and stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Its name.
    pub name: String,
    /// Its kind in the pool's directory: usually four letters.
    pub kind: u32,
    /// For a map, store or heap in another format: its kind in words, its format, and the format that this
    /// version reads.
    pub format: Option<(&'static str, u64, u64)>,
}

impl Kind {
    /// The kind in words.
    pub fn in_words(&self) -> &'static str {
        match self {
            Kind::Map => "map",
            Kind::VersionedMap => "map with versions",
            Kind::HashTable => "hash table",
            Kind::FixedMap => "fixed map",
            Kind::Store => "store",
            Kind::Heap => "heap",
            Kind::Unknown(_) => "unknown",
        }
    }

    fn of_map(kind: MapKind) -> Kind {
        match kind {
            MapKind::Plain => Kind::Map,
            MapKind::Versioned => Kind::VersionedMap,
            MapKind::Hash => Kind::HashTable,
            MapKind::Fixed => Kind::FixedMap,
        }
    }
}

impl Unknown {
    /// Whether it is a heap, in another format.
    pub fn is_heap(&self) -> bool {
        self.kind == tembo_heap::ROOT_KIND
    }

    /// The version of Tembo that can read it, as an advice.
    pub fn advice(&self) -> &'static str {
        match self.format {
            Some((_, found, supported)) if found < supported => "use the Tembo that made it",
            _ => "use a newer Tembo",
        }
    }

    /// A description, in words.
    pub fn what(&self) -> String {
        if let Some((what, found, supported)) = self.format {
            return format!("a {what} of format {found}, where this program reads format {supported}");
        }
        let letters = self.kind.to_le_bytes();
        if letters.iter().all(u8::is_ascii_graphic) {
            return format!("of the kind `{}`, which this program does not know", letters.escape_ascii());
        }
        format!("of the kind {:#x}, which this program does not know", self.kind)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is {}; {}", self.name, self.what(), self.advice())
    }
}

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
