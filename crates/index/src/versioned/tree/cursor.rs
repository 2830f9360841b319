//! A cursor over the keys of a version, which moves in both directions.

use super::super::entry::VersionedEntry;
use super::super::snapshot::VersionedReader;
use super::VersionedTree;
use super::scan::VersionedRange;
use crate::direction::Direction;
use crate::error::Result;
use std::ops::Bound;

/// A cursor over the keys of a tree. It is at a key, before the first, or after the last; a new cursor is
/// before the first.
///
/// A seek uses the newest version; steps stay in the version of the last seek. A step from before the first
/// or after the last key is a seek. At a key, the cursor holds its version, so it should not rest there for
/// long.
pub struct VersionedCursor<'t> {
    tree: &'t VersionedTree,
    place: CursorPosition<'t>,
}

enum CursorPosition<'t> {
    BeforeFirst,
    At(Box<CursorKey<'t>>),
    AfterLast,
}

/// A key, and the walks away from it. The reader is the last field, because it must be dropped last.
struct CursorKey<'t> {
    entry: VersionedEntry<'t>,
    /// The ranges are made when they are needed.
    up: Option<VersionedRange<'t>>,
    down: Option<VersionedRange<'t>>,
    reader: VersionedReader<'t>,
}

impl VersionedTree {
    /// A cursor before the first key.
    pub fn cursor(&self) -> VersionedCursor<'_> {
        VersionedCursor { tree: self, place: CursorPosition::BeforeFirst }
    }
}

impl<'t> VersionedCursor<'t> {
    /// Moves to the first key that is at least `key`, or after the last; returns whether it is at a key.
    /// O(log n), as are all moves except steps within a leaf.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged; the cursor is then at no key.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Direction::Up, (Bound::Included(key), Bound::Unbounded))
    }

    /// Moves to the last key that is at most `key`, or before the first; returns whether it is at a key.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Direction::Down, (Bound::Unbounded, Bound::Included(key)))
    }

    /// Moves to the first key; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_first(&mut self) -> Result<bool> {
        self.go(Direction::Up, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Moves to the last key; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_last(&mut self) -> Result<bool> {
        self.go(Direction::Down, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Moves to the next key, from before the first to the first, and from the last to after the last;
    /// returns whether it is at a key.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(clippy::should_implement_trait, reason = "it goes back as well, and lends its entries")]
    pub fn next(&mut self) -> Result<bool> {
        match &self.place {
            CursorPosition::BeforeFirst => self.seek_first(),
            CursorPosition::At(_) => self.step(Direction::Up),
            CursorPosition::AfterLast => Ok(false),
        }
    }

    /// Moves to the key before this one, from after the last to the last, and from the first to before the
    /// first; returns whether it is at a key.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool> {
        match &self.place {
            CursorPosition::BeforeFirst => Ok(false),
            CursorPosition::At(_) => self.step(Direction::Down),
            CursorPosition::AfterLast => self.seek_last(),
        }
    }

    /// The key at which the cursor is.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.place {
            CursorPosition::At(spot) => Some(spot.entry.key()),
            _ => None,
        }
    }

    /// Its value.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.place {
            CursorPosition::At(spot) => Some(spot.entry.value()),
            _ => None,
        }
    }

    /// Moves to the nearest key of a range of the newest version.
    fn go(&mut self, direction: Direction, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<bool> {
        self.leave(direction.opposite());
        let reader = self.tree.reader();
        let mut walk = VersionedRange::new::<&[u8]>(reader.pinned_view(), range);
        let found = match direction {
            Direction::Up => walk.next(),
            Direction::Down => walk.next_back(),
        };
        let Some(entry) = found.transpose()? else {
            self.leave(direction);
            return Ok(false);
        };
        let (up, down) = match direction {
            Direction::Up => (Some(walk), None),
            Direction::Down => (None, Some(walk)),
        };
        self.place = CursorPosition::At(Box::new(CursorKey { entry, up, down, reader }));
        Ok(true)
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        let CursorPosition::At(spot) = &mut self.place else { return Ok(false) };
        match spot.step(direction) {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.leave(direction);
                Ok(false)
            }
            Err(e) => {
                self.leave(direction.opposite());
                Err(e)
            }
        }
    }

    /// Moves before the first or after the last key.
    fn leave(&mut self, direction: Direction) {
        self.place = match direction {
            Direction::Up => CursorPosition::AfterLast,
            Direction::Down => CursorPosition::BeforeFirst,
        };
    }
}

impl CursorKey<'_> {
    fn step(&mut self, direction: Direction) -> Result<bool> {
        let view = self.reader.pinned_view();
        let next = match direction {
            Direction::Up => {
                self.down = None;
                let above = (Bound::Excluded(self.entry.key()), Bound::Unbounded);
                self.up.get_or_insert_with(|| VersionedRange::new::<&[u8]>(view, above)).next()
            }
            Direction::Down => {
                self.up = None;
                let below = (Bound::Unbounded, Bound::Excluded(self.entry.key()));
                self.down.get_or_insert_with(|| VersionedRange::new::<&[u8]>(view, below)).next_back()
            }
        };
        let Some(entry) = next.transpose()? else { return Ok(false) };
        self.entry = entry;
        Ok(true)
    }
}

impl std::fmt::Debug for VersionedCursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedCursor").field("key", &self.key()).finish_non_exhaustive()
    }
}
