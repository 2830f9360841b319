//! The state that the clones of a handle share: the newest version, the versions that are read, and the
//! snapshots.

use super::deferred_stamps::{DeferredStamps, NewestDeferredStamps};
use super::kept_list::KeptSnapshot;
use super::layout::RootWord;
use super::readers::{ReaderSlot, Readers, Retained};
use super::requests::Waiting;
use super::version::Version;
use super::view::View;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tembo_pmem::Region;
use tembo_pool::{OpenGuard, Pool};

/// The state that the clones of a handle share.
pub(crate) struct Shared {
    pub(super) pool: Pool,
    pub(super) header: u64,
    /// The seed of the hashes; 0 in a tree.
    pub(super) seed: u64,
    _hold: OpenGuard,
    /// The newest version.
    current: AtomicU64,
    /// The version under construction, or else the last one that was made.
    intent: AtomicU64,
    /// Root and length of two versions, the newest and the one before or after it, by the lowest bit of their
    /// numbers.
    tops: [Top; 2],
    /// The stamps that the newest version has deferred.
    pub(super) deferred: NewestDeferredStamps,
    pub(super) readers: Readers,
    /// The versions of snapshots.
    pub(super) held: Mutex<BTreeMap<u64, HeldVersion>>,
    /// Mirrors the list of kept snapshots.
    pub(super) kept: Mutex<Vec<KeptSnapshot>>,
    pub(super) waiting: Waiting,
    /// The thread whose batch has the writer
    /// ([`VersionedTree::part_of_batch`](crate::VersionedTree::part_of_batch)), or 0.
    pub(super) batch_thread: AtomicUsize,
}

#[derive(Default)]
struct Top {
    root: AtomicU64,
    length: AtomicU64,
}

/// A version that snapshots hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldVersion {
    pub(super) top: Version,
    pub(super) snapshots: usize,
}

impl Shared {
    /// The state of a map that was just opened or created; this is its newest version.
    pub(super) fn new(
        pool: &Pool,
        (header, seed, hold): (u64, u64, OpenGuard),
        version: Version,
        kept: Vec<KeptSnapshot>,
    ) -> Shared {
        let shared = Shared {
            pool: pool.clone(),
            header,
            seed,
            _hold: hold,
            current: AtomicU64::new(version.number),
            intent: AtomicU64::new(version.number),
            tops: Default::default(),
            deferred: NewestDeferredStamps::default(),
            readers: Readers::new(),
            held: Mutex::default(),
            kept: Mutex::new(kept),
            waiting: Waiting::default(),
            batch_thread: AtomicUsize::new(0),
        };
        shared.show(version, &[]);
        shared
    }

    #[inline]
    pub(super) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// A version of this map, for reading.
    #[inline]
    pub(super) fn view(&self, version: Version) -> View<'_> {
        View {
            region: self.region(),
            version: version.number,
            root: version.root,
            seed: self.seed,
            size_hint: None,
        }
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        // ORDER: acquire, so that a thread that sees a version's number sees all of the version.
        self.current.load(Ordering::Acquire)
    }

    /// The newest version, or the one before it. Valid only if [`is_spared`](Self::is_spared) holds
    /// afterwards.
    #[inline]
    pub(super) fn top(&self, number: u64) -> Version {
        let top = &self.tops[(number % 2) as usize];
        let root = RootWord(top.root.load(Ordering::Acquire));
        Version { number, root, length: top.length.load(Ordering::Acquire) }
    }

    /// Whether a version was published in time: no writer has begun the second version after it, so the
    /// version's blocks are spared and its top is not overwritten.
    #[inline]
    pub(super) fn is_spared(&self, number: u64) -> bool {
        // ORDER: sequentially consistent, after the publication (`readers.rs`).
        self.intent.load(Ordering::SeqCst) <= number + 1
    }

    /// The key of the turn to write to the map.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Begins a version, and determines which others have to be spared.
    #[inline]
    pub(super) fn intend(&self, retained: &mut Retained) -> u64 {
        let current = self.current();
        // ORDER: sequentially consistent, precedes the loads of the readers' slots (`readers.rs`).
        self.intent.store(current + 1, Ordering::SeqCst);
        retained.gather(current, |versions| {
            // Slots are read before snapshots: a thread that makes a snapshot stays in a slot until the
            // snapshot is listed.
            self.readers.collect(versions);
            versions.extend(self.held.lock().keys());
            versions.extend(self.kept.lock().iter().map(|kept| kept.version.number));
        });
        current + 1
    }

    /// Makes a durable version with these deferred stamps the newest one for readers.
    #[inline]
    pub(super) fn show(&self, version: Version, deferred: &[u64]) {
        // The stamps must be stored before a reader can find the version.
        self.deferred.set(version.number, deferred);
        let top = &self.tops[(version.number % 2) as usize];
        top.root.store(version.root.0, Ordering::Release);
        top.length.store(version.length, Ordering::Release);
        // ORDER: release, pairs with the load in `current`: all of the version precedes its number.
        self.current.store(version.number, Ordering::Release);
    }

    /// The stamps that the next version has deferred for this one. A comparison of the two versions calls
    /// this when both are held.
    pub(super) fn deferred_for(&self, version: u64) -> DeferredStamps {
        self.deferred.of(version + 1)
    }

    /// The deferred stamps that the next version has to store because one of these versions needs them.
    #[inline]
    pub(super) fn due(&self, retained: &Retained) -> DeferredStamps {
        let newest = self.current();
        match retained.held() {
            [] => DeferredStamps::default(),
            held if held.binary_search(&(newest - 1)).is_err() => DeferredStamps::default(),
            _ => self.deferred.of(newest),
        }
    }

    /// Publishes the newest version.
    #[inline]
    pub(super) fn enter(&self) -> (Version, ReaderSlot) {
        let mut number = self.current();
        let mut place = self.readers.enter(number);
        loop {
            let version = self.top(number);
            if self.is_spared(number) {
                return (version, place);
            }
            // Two versions were made meanwhile. This may happen again, but only if writers make progress.
            number = self.current();
            place = self.readers.move_to(place, number);
        }
    }
}
