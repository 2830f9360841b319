//! The results of reads: values, records, walks and cursors, of a map of either kind and of snapshots.

use crate::Result;
use std::iter::FusedIterator;
use std::ops::Deref;
use tembo_index::{
    VersionedBytes, VersionedCursor, VersionedEntry, VersionedPinnedEntry, VersionedPinnedRange,
    VersionedRange, VersionedValue,
};

/// A value in place, readable as long as this lives.
///
/// It keeps memory that is freed meanwhile from being reused, so it should not be kept for long. One of a
/// [`Snapshot`](crate::Snapshot) costs nothing.
pub struct Value<'m>(pub(crate) ValueKind<'m>);

pub(crate) enum ValueKind<'m> {
    Plain(tembo_index::Value<'m>),
    Newest(VersionedValue<'m>),
    Held(VersionedBytes<'m>),
}

impl Deref for Value<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueKind::Plain(value) => value,
            ValueKind::Newest(value) => value,
            ValueKind::Held(value) => value,
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Value").field(&&**self).finish()
    }
}

/// A key and its value in place, readable as long as this lives.
///
/// It keeps memory that is freed meanwhile from being reused, so it should not be kept for long. One of a
/// [`Snapshot`](crate::Snapshot) costs nothing.
pub struct Entry<'m>(pub(crate) EntryKind<'m>);

pub(crate) enum EntryKind<'m> {
    Plain(tembo_index::Entry<'m>),
    Newest(VersionedPinnedEntry<'m>),
    Held(VersionedEntry<'m>),
}

impl Entry<'_> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.0 {
            EntryKind::Plain(entry) => entry.key(),
            EntryKind::Newest(entry) => entry.key(),
            EntryKind::Held(entry) => entry.key(),
        }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.0 {
            EntryKind::Plain(entry) => entry.value(),
            EntryKind::Newest(entry) => entry.value(),
            EntryKind::Held(entry) => entry.value(),
        }
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("key", &self.key()).field("value", &self.value()).finish()
    }
}

/// Records in order of their keys, from both ends. It ends after an error.
///
/// In a map that keeps versions, and in a snapshot, all records are of one version: that of the snapshot, or
/// the one that was the newest when the walk began.
pub struct Iter<'m>(pub(crate) IterKind<'m>);

pub(crate) enum IterKind<'m> {
    Plain(tembo_index::Range<'m>),
    Newest(VersionedPinnedRange<'m>),
    Held(VersionedRange<'m>),
}

impl<'m> Iterator for Iter<'m> {
    type Item = Result<Entry<'m>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(
            match &mut self.0 {
                IterKind::Plain(range) => range.next()?.map(|entry| Entry(EntryKind::Plain(entry))),
                IterKind::Newest(range) => range.next()?.map(|entry| Entry(EntryKind::Newest(entry))),
                IterKind::Held(range) => range.next()?.map(|entry| Entry(EntryKind::Held(entry))),
            }
            .map_err(Into::into),
        )
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(
            match &mut self.0 {
                IterKind::Plain(range) => range.next_back()?.map(|entry| Entry(EntryKind::Plain(entry))),
                IterKind::Newest(range) => range.next_back()?.map(|entry| Entry(EntryKind::Newest(entry))),
                IterKind::Held(range) => range.next_back()?.map(|entry| Entry(EntryKind::Held(entry))),
            }
            .map_err(Into::into),
        )
    }
}

impl FusedIterator for Iter<'_> {}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// A position among the records of a [`Map`](crate::Map): at one of them, before the first, or after the
/// last.
///
/// The cursor sees some dozens of neighbouring records as they were when it reached them, and steps among
/// these are cheap; other moves are O(log n). A record that exists during the whole walk is not skipped; one
/// that is added or removed meanwhile is met or not; one that is removed stays readable while the cursor is
/// at it.
///
/// In a map that keeps versions, it steps through the version that was the newest at its last seek.
///
/// At a record, it keeps memory that is freed meanwhile from being reused, so it should not stay there for
/// long.
#[derive(Debug)]
pub struct Cursor<'m>(pub(crate) CursorKind<'m>);

#[derive(Debug)]
pub(crate) enum CursorKind<'m> {
    Plain(tembo_index::Cursor<'m>),
    Versioned(VersionedCursor<'m>),
}

/// Does the same with a cursor of either kind.
macro_rules! on_either {
    ($self:ident, $cursor:ident => $body:expr) => {
        match &mut $self.0 {
            CursorKind::Plain($cursor) => $body,
            CursorKind::Versioned($cursor) => $body,
        }
    };
}

impl Cursor<'_> {
    /// Moves to the first record whose key is at least `key`, or after the last record; returns whether it is
    /// at a record.
    ///
    /// # Errors
    ///
    /// As for [`Map::get`](crate::Map::get); the cursor is then at no record. The same holds for all moves.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.seek(key.as_ref()))?)
    }

    /// Moves to the last record whose key is at most `key`, or before the first record; returns whether it is
    /// at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.seek_back(key.as_ref()))?)
    }

    /// Moves to the first record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_first(&mut self) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.seek_first())?)
    }

    /// Moves to the last record; returns whether there is one.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    pub fn seek_last(&mut self) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.seek_last())?)
    }

    /// Moves to the next record: from before the first to the first, and from the last to after the last.
    /// Returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[expect(clippy::should_implement_trait, reason = "it goes back as well, and lends its records")]
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.next())?)
    }

    /// Moves to the previous record: from after the last to the last, and from the first to before the first.
    /// Returns whether it is at a record.
    ///
    /// # Errors
    ///
    /// As for [`seek`](Self::seek).
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        Ok(on_either!(self, cursor => cursor.prev())?)
    }

    /// The key of the record at which the cursor is.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            CursorKind::Plain(cursor) => cursor.key(),
            CursorKind::Versioned(cursor) => cursor.key(),
        }
    }

    /// The value of the record at which the cursor is.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0 {
            CursorKind::Plain(cursor) => cursor.value(),
            CursorKind::Versioned(cursor) => cursor.value(),
        }
    }
}
