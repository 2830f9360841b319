//! The handle of a map: creating and opening it.

use super::builder::VersionBuilder;
use super::kept_list;
use super::layout::{FIRST_VERSION, HEAD_BYTES, at};
use super::old_scan::OldScan;
use super::shared::Shared;
use super::structure::VersionedStructure;
use super::version::{check_format, load_version};
use crate::error::{Error, Result};
use crate::turns;
use parking_lot::{Mutex, MutexGuard};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tembo_pool::{Lane, Pool};

/// A map from byte strings to byte strings. Every version that a snapshot holds can be read. It is a
/// [`VersionedTree`](crate::VersionedTree) if `S` is [`TreeStructure`](crate::TreeStructure), and a
/// [`VersionedHash`](crate::VersionedHash) if `S` is [`HashStructure`](crate::HashStructure). Cheap to clone;
/// all clones are one map.
///
/// Every change is durable when the call returns, makes a version, and costs one fence. The changes of a
/// [`batch`](Self::batch) make one version together, and so may concurrent changes of several threads.
/// Readers never wait.
pub struct VersionedMap<S: VersionedStructure> {
    pub(super) shared: Arc<Shared>,
    /// The state of the writer.
    pub(super) writer: Arc<Mutex<Writing<S>>>,
}

/// The state that only the writer uses.
pub(super) struct Writing<S: VersionedStructure> {
    /// `None` in a pool that is open for reading only.
    pub(super) lane: Option<Lane>,
    pub(super) scan: OldScan,
    /// The builder of an earlier version, whose memory is reused.
    pub(super) spare: Option<Box<VersionBuilder<S>>>,
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// The kind of its root in the pool's root directory.
    pub const ROOT_KIND: u32 = S::ROOT_KIND;

    /// Makes an empty map and names it in the pool's root directory; one transaction, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if the name is taken; [`Error::Pool`] when the pool is full, has no room for
    /// another root or no lane left, or the name is not 1 to 40 bytes long.
    pub fn create(pool: &Pool, name: &str) -> Result<VersionedMap<S>> {
        // The seed is random and cannot be predicted.
        let seed = if S::HAS_SEED { RandomState::new().hash_one(name) } else { 0 };
        VersionedMap::create_seeded(pool, name, seed)
    }

    pub(super) fn create_seeded(pool: &Pool, name: &str, seed: u64) -> Result<VersionedMap<S>> {
        let mut lane = pool.lane()?;
        if pool.root(name)?.is_some() {
            return Err(Error::Exists { name: name.to_owned() });
        }
        let mut tx = lane.begin();
        let header = tx.alloc(HEAD_BYTES)?;
        let mut image = [0; HEAD_BYTES as usize];
        image[..8].copy_from_slice(&S::FORMAT.to_ne_bytes());
        image[at!(PmVersionedHead.version) as usize..][..8].copy_from_slice(&FIRST_VERSION.to_ne_bytes());
        image[at!(PmVersionedHead.seed) as usize..][..8].copy_from_slice(&seed.to_ne_bytes());
        tx.write_fresh(header, &image)?;
        tx.set_root(name, S::ROOT_KIND, header)?;
        tx.commit()?;
        Self::start(pool, header, Some(lane))
    }

    /// The map of this name, if there is one. Takes the same time for a map of any size, and a little for
    /// each kept snapshot. A map is opened once at a time: clone the handle to share it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is open already; [`Error::Pool`] if the name belongs to something else, the
    /// head is damaged, or no lane is left.
    pub fn open(pool: &Pool, name: &str) -> Result<Option<VersionedMap<S>>> {
        let Some(root) = pool.root(name)? else { return Ok(None) };
        if root.kind != S::ROOT_KIND {
            let (expected, found) = (S::ROOT_KIND, root.kind);
            return Err(tembo_pool::ErrorKind::RootKind { name: root.name, expected, found }.into());
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

    fn start(pool: &Pool, header: u64, lane: Option<Lane>) -> Result<VersionedMap<S>> {
        let region = pool.region();
        check_format(region, header, S::FORMAT)?;
        let Some(hold) = pool.hold(header) else { return Err(Error::InUse) };
        let version = load_version(region, header)?;
        let seed = region.load_u64(header.saturating_add(at!(PmVersionedHead.seed)))?;
        let kept = kept_list::load(region, header, version.number)?;
        let shared = Shared::new(pool, (header, seed, hold), version, kept);
        let writing = Writing { lane, scan: OldScan::default(), spare: None };
        Ok(VersionedMap { shared: Arc::new(shared), writer: Arc::new(Mutex::new(writing)) })
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
    pub(super) fn lock_writer(&self) -> Result<MutexGuard<'_, Writing<S>>> {
        self.shared.pool.check_process()?;
        if let Some(writing) = self.writer.try_lock() {
            return Ok(writing);
        }
        self.expect_other()?;
        Ok(self.writer.lock())
    }

    /// Refuses to wait if this thread itself has the writer's lock, in a closure or by a batch.
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

impl<S: VersionedStructure> Clone for VersionedMap<S> {
    fn clone(&self) -> VersionedMap<S> {
        VersionedMap { shared: self.shared.clone(), writer: self.writer.clone() }
    }
}

impl<S: VersionedStructure> std::fmt::Debug for VersionedMap<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (header, version) = (self.shared.header, self.version());
        f.debug_struct("VersionedMap")
            .field("header", &header)
            .field("version", &version)
            .finish_non_exhaustive()
    }
}
