//! Holding a version: readers for a short while, snapshots for as long as they live.

use super::bytes::CddsBytes;
use super::create::{CddsTree, Held, Shared, Version};
use super::readers::Place;
use super::scan::CddsRange;
use super::view::View;
use crate::error::{Error, Result};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Reads the version that was the newest when it was made. Costs one locked instruction and no memory.
///
/// While it lives, what its version needs is not reused; what should live long is a [`CddsSnapshot`].
pub struct CddsReader<'t> {
    shared: &'t Shared,
    version: Version,
    place: Place,
}

/// A version that is held: it can be read as long as this, or a clone of it, lives. Made in constant time.
pub struct CddsSnapshot {
    shared: Arc<Shared>,
    version: Version,
}

impl CddsTree {
    /// A reader of the newest version. Takes no lock and never waits.
    #[inline]
    pub fn reader(&self) -> CddsReader<'_> {
        self.shared.reader()
    }

    /// Holds the newest version.
    pub fn snapshot(&self) -> CddsSnapshot {
        let reader = self.reader();
        // In a slot until it is among the held ones, so that no writer misses it.
        CddsSnapshot::hold(&self.shared, reader.version)
    }

    /// Holds a version that another snapshot, or a kept one, holds already.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`] if none does.
    pub fn snapshot_at(&self, version: u64) -> Result<CddsSnapshot> {
        let mut held = self.shared.held.lock();
        if let Some(held) = held.get_mut(&version) {
            held.snapshots += 1;
            return Ok(CddsSnapshot { shared: self.shared.clone(), version: held.top });
        }
        drop(held);
        let kept = self.shared.kept.lock();
        if let Some(kept) = kept.iter().find(|kept| kept.version.number == version) {
            // Under the lock of the kept ones, so that none of them goes before this one is held.
            return Ok(CddsSnapshot::hold(&self.shared, kept.version));
        }
        drop(kept);
        let newest = self.snapshot();
        if newest.version.number == version { Ok(newest) } else { Err(Error::NoSuchVersion { version }) }
    }

    /// The value that a key has in the newest version.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way to the key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.reader().get(key)?.map(|value| value.to_vec()))
    }

    /// How many keys the newest version has. O(1).
    pub fn len(&self) -> u64 {
        self.reader().len()
    }

    /// Whether the newest version has no keys. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    #[inline]
    pub(super) fn reader(&self) -> CddsReader<'_> {
        let mut number = self.current();
        let mut place = self.readers.enter(number);
        loop {
            let version = self.top(number);
            if self.is_spared(number) {
                return CddsReader { shared: self, version, place };
            }
            // Two versions were made since. That may happen again, but only as writers get on.
            number = self.current();
            place = self.readers.move_to(place, number);
        }
    }
}

impl CddsSnapshot {
    /// Holds a version that is held or published by the caller.
    pub(super) fn hold(shared: &Arc<Shared>, version: Version) -> CddsSnapshot {
        let mut held = shared.held.lock();
        held.entry(version.number).or_insert(Held { top: version, snapshots: 0 }).snapshots += 1;
        CddsSnapshot { shared: shared.clone(), version }
    }

    /// Whether the snapshot is of this tree.
    pub(super) fn is_of(&self, tree: &CddsTree) -> bool {
        Arc::ptr_eq(&self.shared, &tree.shared)
    }

    pub(super) fn top(&self) -> Version {
        self.version
    }
}

impl Clone for CddsSnapshot {
    fn clone(&self) -> CddsSnapshot {
        CddsSnapshot::hold(&self.shared, self.version)
    }
}

impl Drop for CddsSnapshot {
    fn drop(&mut self) {
        let mut held = self.shared.held.lock();
        if let Some(of_version) = held.get_mut(&self.version.number) {
            of_version.snapshots -= 1;
            if of_version.snapshots == 0 {
                held.remove(&self.version.number);
            }
        }
    }
}

impl Drop for CddsReader<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.readers.leave(&self.place);
    }
}

/// What readers and snapshots offer alike.
macro_rules! reads_a_version {
    ($holder:ty) => {
        impl $holder {
            #[inline]
            pub(super) fn view(&self) -> View<'_> {
                self.version.view(self.shared.region())
            }

            /// The version that is read.
            pub fn version(&self) -> u64 {
                self.version.number
            }

            /// How many keys the version has. O(1).
            pub fn len(&self) -> u64 {
                self.version.length
            }

            /// Whether the version has no keys.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// The value of a key, in place where it has a block of its own. O(log n).
            ///
            /// # Errors
            ///
            /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way to the key.
            #[inline]
            pub fn get(&self, key: &[u8]) -> Result<Option<CddsBytes<'_>>> {
                self.view().get(key)
            }

            /// The keys in a range with their values, in order from either end.
            pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> CddsRange<'_> {
                CddsRange::new(self.view(), range)
            }

            /// All keys with their values, in order from either end.
            pub fn iter(&self) -> CddsRange<'_> {
                self.range::<&[u8]>(..)
            }

            /// The keys that begin with `prefix`, with their values, in order from either end.
            pub fn prefix(&self, prefix: &[u8]) -> CddsRange<'_> {
                CddsRange::of_prefix(self.view(), prefix)
            }
        }

        impl std::fmt::Debug for $holder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($holder)).field("version", &self.version()).finish_non_exhaustive()
            }
        }
    };
}

reads_a_version!(CddsReader<'_>);
reads_a_version!(CddsSnapshot);
