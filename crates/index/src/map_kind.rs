//! The kinds of maps, and how their heads are distinguished.

use crate::error::{Result, corrupt};
use crate::u64tree::layout as fixed;
use crate::versioned::hash::layout as hash;
use crate::versioned::layout as versioned;
use crate::versioned::tree::layout as tree;
use crate::wbtree::layout as plain;
use tembo_pool::Pool;

/// A kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// [`WbTree`](crate::WbTree).
    Plain,
    /// [`VersionedTree`](crate::VersionedTree).
    Versioned,
    /// [`VersionedHash`](crate::VersionedHash).
    Hash,
    /// [`U64Tree`](crate::U64Tree).
    Fixed,
}

/// The format of the map that a root leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapFormat {
    /// A map that this library can read.
    Known(MapKind),
    /// A map of a known kind, in a format of another version of this library.
    Other {
        /// Its kind.
        kind: MapKind,
        /// The version of its format.
        found: u64,
        /// The version that this library reads.
        supported: u64,
    },
}

impl MapKind {
    const ALL: [MapKind; 4] = [MapKind::Plain, MapKind::Versioned, MapKind::Hash, MapKind::Fixed];

    /// The kind of maps that such a root leads to, if this library knows it.
    pub fn of_root(kind: u32) -> Option<MapKind> {
        MapKind::ALL.into_iter().find(|known| known.root_kind() == kind)
    }

    /// The kind of root that leads to such a map.
    pub fn root_kind(self) -> u32 {
        match self {
            MapKind::Plain => plain::ROOT_KIND,
            MapKind::Versioned => tree::ROOT_KIND,
            MapKind::Hash => hash::ROOT_KIND,
            MapKind::Fixed => fixed::ROOT_KIND,
        }
    }

    /// The first word of such a map's head.
    pub(crate) fn format(self) -> u64 {
        match self {
            MapKind::Plain => plain::FORMAT,
            MapKind::Versioned => tree::FORMAT,
            MapKind::Hash => hash::FORMAT,
            MapKind::Fixed => fixed::FORMAT,
        }
    }

    /// The byte of the first word that has the version, as its position and the value that stands for version
    /// 0.
    fn version_at(self) -> (usize, u8) {
        if self == MapKind::Fixed { (6, b'0') } else { (6, 0) }
    }

    pub(crate) fn of_format(word: u64) -> Option<MapKind> {
        MapKind::ALL.into_iter().find(|known| known.reads(word))
    }

    /// The first word of such a map's head, in the newest format.
    fn newest_format(self) -> u64 {
        if self == MapKind::Plain { plain::COUNTING_FORMAT } else { self.format() }
    }

    /// Whether this library reads maps of this kind with such a first word.
    fn reads(self, word: u64) -> bool {
        word == self.format() || word == self.newest_format()
    }

    /// The offset of the word in a dropped map's head that leads to the next.
    pub(crate) fn next_off(self, header: u64) -> u64 {
        header.saturating_add(match self {
            MapKind::Plain => plain::field!(PmMap.next_dropped),
            MapKind::Fixed => fixed::NEXT_DROPPED_AT,
            MapKind::Versioned | MapKind::Hash => versioned::at!(PmVersionedHead.next_dropped),
        })
    }

    /// The format of the map whose head lies at `header`, as a root of this kind says.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if there is no such head.
    pub fn format_at(self, pool: &Pool, header: u64) -> Result<MapFormat> {
        let (ours, word) = (self.newest_format(), pool.region().load_u64(header)?);
        if self.reads(word) {
            return Ok(MapFormat::Known(self));
        }
        let (at, zero) = self.version_at();
        let [supported, found] = [ours, word].map(|word| word.to_ne_bytes()[at]);
        let of_version = 0xFF_u64 << (8 * at);
        if (word ^ ours) & !of_version == 0 && found > zero {
            let [supported, found] = [supported, found].map(|byte| u64::from(byte - zero));
            return Ok(MapFormat::Other { kind: self, found, supported });
        }
        let [expected, found] = [ours, word].map(|word| word.to_ne_bytes().escape_ascii().to_string());
        Err(corrupt("the head of a map", header, expected, found))
    }
}
