//! The handle of a map: making one, opening one, and what its clones share.

use super::ahead::Ahead;
use super::collect::OldScan;
use super::kept::{self, KeptSnapshot};
use super::layout::{FIRST_VERSION, HEAD_BYTES, MAX_VERSION, RootWord, at};
use super::owed::OwedByNewest;
use super::readers::{Readers, Retained};
use super::seldom::Seldom;
use super::structure::CddsStructure;
use super::work::Work;
use crate::error::{Error, Result, corrupt};
use crate::turns;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tembo_pmem::Region;
use tembo_pool::{Lane, OpenGuard, Pool};
use tembo_sync::{BiasedGuard, BiasedMutex};

/// A map from byte strings to byte strings, of which every version that is held by a snapshot can be read: a
/// [`CddsTree`](crate::CddsTree) if `S` is [`CddsOrdered`](crate::CddsOrdered), a [`CddsHash`](crate::CddsHash) if it is
/// [`CddsHashed`](crate::CddsHashed). Cheap to clone; all clones are one map.
///
/// Every change is durable when the call returns, is a version of its own, and costs one fence; changes in a
/// [`batch`](Self::batch) are one version together, and so are those of threads that change the map at once. Readers never wait.
pub struct CddsMap<S: CddsStructure> {
    pub(super) shared: Arc<Shared>,
    /// What the writer works with.
    pub(super) writer: Arc<BiasedMutex<Writing<S>>>,
}

/// What the clones of a handle share.
pub(crate) struct Shared {
    pub(super) pool: Pool,
    pub(super) header: u64,
    /// Of the hashes; 0 in a tree.
    pub(super) seed: u64,
    _hold: OpenGuard,
    /// The newest version.
    current: AtomicU64,
    /// The version that is being made, or was made last.
    intent: AtomicU64,
    /// Root and length of the newest version and of the one before or after it, by the lowest bit of their numbers.
    tops: [Top; 2],
    /// What the newest version did not store for the one before it.
    pub(super) owed: OwedByNewest,
    pub(super) readers: Readers,
    /// The versions of snapshots.
    pub(super) held: Seldom<BTreeMap<u64, Held>>,
    /// Mirrors the list of kept snapshots.
    pub(super) kept: Seldom<Vec<KeptSnapshot>>,
    pub(super) waiting: super::group::Waiting,
    /// The thread whose batch has the writer ([`CddsTree::part_of_batch`](super::CddsTree::part_of_batch)), or 0.
    pub(super) batch_thread: AtomicUsize,
}

/// What only the writer uses.
pub(super) struct Writing<S: CddsStructure> {
    /// None in a pool that is open for reading only.
    pub(super) lane: Option<Lane>,
    pub(super) scan: OldScan,
    /// What made the version before, for its memory to be used again.
    pub(super) spare: Option<Box<Work<S>>>,
}

#[derive(Default)]
struct Top {
    root: AtomicU64,
    length: AtomicU64,
}

/// A version that snapshots hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) top: Version,
    pub(super) snapshots: usize,
}

/// A version: its number, its root, and how many keys it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) root: RootWord,
    pub(crate) length: u64,
}

impl<S: CddsStructure> CddsMap<S> {
    /// What kind of root it has, as noted in the pool's root directory.
    pub const ROOT_KIND: u32 = S::ROOT_KIND;

    /// Makes an empty map and names it in the pool's root directory; one transaction, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the name is taken; [`Error::Pool`] when the pool is full, has no room for another root or no
    /// lane left, or the name is not 1 to 40 bytes long.
    pub fn create(pool: &Pool, name: &str) -> Result<CddsMap<S>> {
        // Nobody can tell this number in advance, or from outside.
        let seed = if S::HAS_SEED { RandomState::new().hash_one(name) } else { 0 };
        CddsMap::create_seeded(pool, name, seed)
    }

    pub(super) fn create_seeded(pool: &Pool, name: &str, seed: u64) -> Result<CddsMap<S>> {
        let mut lane = pool.lane()?;
        if pool.root(name)?.is_some() {
            return Err(Error::Exists { name: name.to_owned() });
        }
        let mut tx = lane.begin();
        let header = tx.alloc(HEAD_BYTES)?;
        let mut image = [0; HEAD_BYTES as usize];
        image[..8].copy_from_slice(&S::FORMAT.to_ne_bytes());
        image[at!(PmCddsHead.version) as usize..][..8].copy_from_slice(&FIRST_VERSION.to_ne_bytes());
        image[at!(PmCddsHead.seed) as usize..][..8].copy_from_slice(&seed.to_ne_bytes());
        tx.write_fresh(header, &image)?;
        tx.set_root(name, S::ROOT_KIND, header)?;
        tx.commit()?;
        Self::start(pool, header, Some(lane))
    }

    /// The map of this name, if there is one. Takes the same time for a map of any size, and a little for each kept snapshot. A
    /// map is opened once at a time: clone the handle to share it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is open already; [`Error::Pool`] if the name belongs to something else, the head is
    /// damaged, or no lane is left.
    pub fn open(pool: &Pool, name: &str) -> Result<Option<CddsMap<S>>> {
        let Some(root) = pool.root(name)? else { return Ok(None) };
        if root.kind != S::ROOT_KIND {
            let (expected, found) = (S::ROOT_KIND, root.kind);
            return Err(tembo_pool::Error::RootKind { name: root.name, expected, found }.into());
        }
        let lane = if pool.is_read_only() { None } else { Some(pool.lane()?) };
        Self::start(pool, root.off, lane).map(Some)
    }

    /// The names of all such maps in a pool.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool's root directory is damaged.
    pub fn names(pool: &Pool) -> Result<Vec<String>> {
        let maps = pool.roots()?.into_iter().filter(|root| root.kind == S::ROOT_KIND);
        Ok(maps.map(|root| root.name).collect())
    }

    fn start(pool: &Pool, header: u64, lane: Option<Lane>) -> Result<CddsMap<S>> {
        let region = pool.region();
        check_format::<S>(region, header)?;
        let Some(hold) = pool.hold(header) else { return Err(Error::InUse) };
        let version = load_version(region, header)?;
        let shared = Shared {
            pool: pool.clone(),
            header,
            seed: region.load_u64(header.saturating_add(at!(PmCddsHead.seed)))?,
            _hold: hold,
            current: AtomicU64::new(version.number),
            intent: AtomicU64::new(version.number),
            tops: Default::default(),
            owed: OwedByNewest::default(),
            readers: Readers::new(),
            held: Seldom::default(),
            kept: Seldom::new(kept::load(region, header, version.number)?),
            waiting: super::group::Waiting::default(),
            batch_thread: AtomicUsize::new(0),
        };
        shared.show(version, &[]);
        let writing = Writing { lane, scan: OldScan::default(), spare: None };
        Ok(CddsMap { shared: Arc::new(shared), writer: Arc::new(BiasedMutex::new(writing)) })
    }

    /// The pool that the map lies in.
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// The newest version. Every change, and every batch of changes, adds 1.
    pub fn version(&self) -> u64 {
        self.shared.current()
    }

    /// Waits for the writer.
    pub(super) fn lock_writer(&self) -> Result<BiasedGuard<'_, Writing<S>>> {
        self.shared.pool.check_process()?;
        if let Some(writing) = self.writer.try_lock() {
            return Ok(writing);
        }
        self.expect_other()?;
        Ok(self.writer.lock())
    }

    /// Refuses to let a thread wait for the writer that has it itself, in a closure or by a batch.
    #[cold]
    pub(super) fn expect_other(&self) -> Result<()> {
        let asks = S::TURN;
        turns::expect_other(self.shared.key(), asks)?;
        if self.shared.batch_thread.load(Ordering::Relaxed) == turns::this_thread() {
            return Err(Error::WouldWait { holds: "a batch", asks });
        }
        Ok(())
    }
}

impl<S: CddsStructure> Clone for CddsMap<S> {
    fn clone(&self) -> CddsMap<S> {
        CddsMap { shared: self.shared.clone(), writer: self.writer.clone() }
    }
}

impl<S: CddsStructure> std::fmt::Debug for CddsMap<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (header, version) = (self.shared.header, self.version());
        f.debug_struct("CddsMap").field("header", &header).field("version", &version).finish_non_exhaustive()
    }
}

/// Refuses the head of something else, and of another format version.
pub(super) fn check_format<S: CddsStructure>(region: &Region, header: u64) -> Result<()> {
    let [expected, found] = [S::FORMAT, region.load_u64(header)?].map(u64::to_ne_bytes);
    let (of_structure, versions) = (expected[..6] == found[..6], [expected[6], found[6]]);
    if expected == found {
        return Ok(());
    }
    if of_structure && found[7] == 0 {
        let [supported, found] = versions.map(u64::from);
        return Err(Error::FormatVersion { found, supported });
    }
    Err(corrupt("the head of a versioned map", header, expected.escape_ascii(), found.escape_ascii()))
}

/// The newest version, as the head has it.
///
/// No function of its own, which would store words that its caller then loads two at a time: a processor waits with that for all stores before
/// it, and so for the fence of the version before.
#[inline(always)]
pub(super) fn load_version(region: &Region, header: u64) -> Result<Version> {
    let word = |field| region.load_u64(header.saturating_add(field));
    let number = word(at!(PmCddsHead.version))?;
    if !(FIRST_VERSION..MAX_VERSION).contains(&number) {
        return Err(no_version(header, number));
    }
    let root = RootWord(word(at!(PmCddsHead.root))?);
    Ok(Version { number, root, length: word(at!(PmCddsHead.length))? })
}

#[cold]
fn no_version(header: u64, number: u64) -> Error {
    let expected = format!("{FIRST_VERSION} to {MAX_VERSION}");
    corrupt("the version of a map", header, expected, number)
}

/// A version to be read. Whoever has one holds the version, or is the map's writer.
#[derive(Clone, Copy)]
pub struct View<'m> {
    pub(crate) region: &'m Region,
    pub(crate) version: u64,
    pub(crate) root: RootWord,
    pub(crate) seed: u64,
    /// Of who reads it, if that is known.
    pub(crate) ahead: Option<&'m Ahead>,
}

impl Shared {
    #[inline]
    pub(super) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// A version of this map, to be read.
    #[inline]
    pub(super) fn view(&self, version: Version) -> View<'_> {
        View {
            region: self.region(),
            version: version.number,
            root: version.root,
            seed: self.seed,
            ahead: None,
        }
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        // ORDER: acquire, so that whoever has a version sees all that it consists of.
        self.current.load(Ordering::Acquire)
    }

    /// A version that is newest, or the one before: exact only if `intent` then says so.
    #[inline]
    pub(super) fn top(&self, number: u64) -> Version {
        let top = &self.tops[(number % 2) as usize];
        let root = RootWord(top.root.load(Ordering::Acquire));
        Version { number, root, length: top.length.load(Ordering::Acquire) }
    }

    /// Whether a version was published in time to be spared, and its top not written over: no writer has begun with the second
    /// version after it.
    #[inline]
    pub(super) fn is_spared(&self, number: u64) -> bool {
        // ORDER: sequentially consistent, after the publication (`readers.rs`).
        self.intent.load(Ordering::SeqCst) <= number + 1
    }

    /// What stands for the turn to write to the map.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Begins to make a version, and finds which others have to be spared for it.
    pub(super) fn intend(&self, retained: &mut Retained) -> u64 {
        let current = self.current();
        // ORDER: sequentially consistent, before the readers' slots are looked at (`readers.rs`).
        self.intent.store(current + 1, Ordering::SeqCst);
        retained.gather(current, |versions| {
            // Slots before snapshots: who makes a snapshot is in a slot until it is there.
            self.readers.collect(versions);
            if let Some(held) = self.held.lock_if_any() {
                versions.extend(held.keys());
            }
            if let Some(kept) = self.kept.lock_if_any() {
                versions.extend(kept.iter().map(|kept| kept.version.number));
            }
        });
        current + 1
    }

    /// Makes a version, which is durable, and owes these words, the newest for readers.
    #[inline]
    pub(super) fn show(&self, version: Version, owed: &[u64]) {
        // Before anybody finds the version.
        self.owed.set(version.number, owed);
        let top = &self.tops[(version.number % 2) as usize];
        top.root.store(version.root.0, Ordering::Release);
        top.length.store(version.length, Ordering::Release);
        // ORDER: release, with the load in `current`: all of the version before its number.
        self.current.store(version.number, Ordering::Release);
    }
}
