//! The kinds of structures that a pool may hold, those included that this version cannot read.

use std::fmt;
use tembo_index::MapKind;

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

    pub(crate) fn of_map(kind: MapKind) -> Kind {
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

    /// An advice in words: the version of Tembo that can read it.
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
