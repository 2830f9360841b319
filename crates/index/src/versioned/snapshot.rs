//! Holds versions: readers for a short time, snapshots as long as they live.

use super::bytes::VersionedBytes;
use super::map::VersionedMap;
use super::readers::ReaderSlot;
use super::shared::{HeldVersion, Shared};
use super::structure::VersionedStructure;
use super::tree::{TreeStructure, VersionedRange};
use super::version::Version;
use super::view::View;
use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A reader of the version that was the newest when the reader was made. Costs one locked instruction and no
/// memory.
///
/// While it lives, blocks of its version are not reused. For a long time, use a [`VersionedSnapshot`].
pub struct VersionedReader<'t, S = TreeStructure> {
    shared: &'t Shared,
    version: Version,
    hold: VersionPin<'t>,
    structure: PhantomData<S>,
}

/// A published version, which stays readable until this is dropped.
pub(super) struct VersionPin<'t> {
    shared: &'t Shared,
    place: ReaderSlot,
}

/// A held version: it can be read as long as this or a clone of it lives. Made in constant time.
pub struct VersionedSnapshot<S = TreeStructure> {
    shared: Arc<Shared>,
    version: Version,
    structure: PhantomData<S>,
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// A reader of the newest version. Takes no lock and never waits.
    #[inline]
    pub fn reader(&self) -> VersionedReader<'_, S> {
        let (version, place) = self.shared.enter();
        VersionedReader {
            shared: &self.shared,
            version,
            hold: VersionPin { shared: &self.shared, place },
            structure: PhantomData,
        }
    }

    /// Holds the newest version.
    pub fn snapshot(&self) -> VersionedSnapshot<S> {
        let reader = self.reader();
        // The reader stays in its slot until the version is among the held ones, so no writer misses it.
        VersionedSnapshot::hold(&self.shared, reader.version)
    }

    /// Holds a version that another snapshot, possibly a named one, holds already.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVersion`] if none does.
    pub fn snapshot_at(&self, version: u64) -> Result<VersionedSnapshot<S>> {
        let mut held = self.shared.held.lock();
        if let Some(held) = held.get_mut(&version) {
            held.snapshots += 1;
            return Ok(VersionedSnapshot::of(&self.shared, held.top));
        }
        drop(held);
        let kept = self.shared.kept.lock();
        if let Some(kept) = kept.iter().find(|kept| kept.version.number == version) {
            // The lock of the named snapshots keeps this one from being dropped before the version is held.
            return Ok(VersionedSnapshot::hold(&self.shared, kept.version));
        }
        drop(kept);
        let newest = self.snapshot();
        if newest.version.number == version { Ok(newest) } else { Err(Error::NoSuchVersion { version }) }
    }

    /// The value that a key has in the newest version.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the map is damaged on the way to the key.
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

impl<'t, S> VersionedReader<'t, S> {
    /// The version, for as long as its map lives. Nothing obtained from it may outlive the reader.
    #[inline]
    pub(super) fn pinned_view(&self) -> View<'t> {
        let shared: &'t Shared = self.shared;
        View { size_hint: shared.readers.size_hint(&self.hold.place), ..shared.view(self.version) }
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        self.pinned_view()
    }

    /// The pin of the version.
    #[inline]
    pub(super) fn into_hold(self) -> VersionPin<'t> {
        self.hold
    }
}

impl<S: VersionedStructure> VersionedSnapshot<S> {
    /// Holds a version that the caller already holds or has published.
    pub(super) fn hold(shared: &Arc<Shared>, version: Version) -> VersionedSnapshot<S> {
        shared.pool.assert_process();
        let mut held = shared.held.lock();
        held.entry(version.number).or_insert(HeldVersion { top: version, snapshots: 0 }).snapshots += 1;
        VersionedSnapshot::of(shared, version)
    }

    /// A snapshot of a version; the count of holders already includes it.
    fn of(shared: &Arc<Shared>, version: Version) -> VersionedSnapshot<S> {
        VersionedSnapshot { shared: shared.clone(), version, structure: PhantomData }
    }

    /// Whether the snapshot is of this map.
    pub(super) fn is_of(&self, map: &VersionedMap<S>) -> bool {
        Arc::ptr_eq(&self.shared, &map.shared)
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        self.shared.view(self.version)
    }

    pub(super) fn top(&self) -> Version {
        self.version
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl<S: VersionedStructure> Clone for VersionedSnapshot<S> {
    fn clone(&self) -> VersionedSnapshot<S> {
        VersionedSnapshot::hold(&self.shared, self.version)
    }
}

impl<S> Drop for VersionedSnapshot<S> {
    fn drop(&mut self) {
        if self.shared.pool.was_left_behind() {
            return;
        }
        let mut held = self.shared.held.lock();
        if let Some(of_version) = held.get_mut(&self.version.number) {
            of_version.snapshots -= 1;
            if of_version.snapshots == 0 {
                held.remove(&self.version.number);
            }
        }
    }
}

impl Drop for VersionPin<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.shared.pool.was_left_behind() {
            return;
        }
        self.shared.readers.leave(&self.place);
    }
}

/// The methods that readers and snapshots share.
macro_rules! reads_a_version {
    ($name:literal, $holder:ty, $ordered:ty) => {
        impl<S: VersionedStructure> $holder {
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

            /// The value of a key, borrowed in place if it has a block of its own. O(log n).
            ///
            /// # Errors
            ///
            /// [`Error::Pool`](crate::Error::Pool) when the map is damaged on the way to the key.
            #[inline]
            pub fn get(&self, key: &[u8]) -> Result<Option<VersionedBytes<'_>>> {
                S::get(self.view(), key)
            }

            /// All keys with their values: of a tree in order, from either end.
            pub fn iter(&self) -> S::Iter<'_> {
                S::iter(self.view())
            }
        }

        impl $ordered {
            /// The keys in a range with their values, in order from either end.
            pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> VersionedRange<'_> {
                VersionedRange::new(self.view(), range)
            }

            /// The keys that begin with `prefix`, with their values, in order from either end.
            pub fn prefix(&self, prefix: &[u8]) -> VersionedRange<'_> {
                VersionedRange::of_prefix(self.view(), prefix)
            }
        }

        impl<S: VersionedStructure> std::fmt::Debug for $holder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).field("version", &self.version()).finish_non_exhaustive()
            }
        }
    };
}

reads_a_version!("VersionedReader", VersionedReader<'_, S>, VersionedReader<'_, TreeStructure>);
reads_a_version!("VersionedSnapshot", VersionedSnapshot<S>, VersionedSnapshot<TreeStructure>);
