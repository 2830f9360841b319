//! The pool, as users of the store see it.

use crate::Result;
use crate::auto_compaction::AutoCompaction;
use crate::dropped::Dropped;
use crate::open_stores::OpenStores;
use crate::open_trees::{OpenTrees, TreeHandle};
use crate::plain_maps::OpenPlain;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tembo_heap::{Description, Heap, NamedBrand, Persist};
use tembo_index::{U64Tree, VersionedHash, VersionedTree, WbTree, Writers};
use tembo_pmem::journal::JournalStats;
use tembo_pmem::{Domain, FlushInstruction, OfProcess};
use tembo_pool::{Ending, Recovery, Stats, TrimPlace, Tx};
use tembo_store::Store;

/// An open pool: a file that holds named maps. Cheap to clone; closed with its last clone, map and
/// guard.
///
/// Any number of threads may write at once. Single changes of [`Map`](crate::Map)s run concurrently, each on
/// a lane of the pool; threads that never contend share one lane. A [`Batch`](crate::Batch) excludes all
/// other changes of maps. A [`FixedMap`](crate::FixedMap), a map that keeps versions and a
/// [`HashTable`](crate::HashTable) have writers of their own. Lookups never wait; operations that read
/// several records as of one moment may ([`Map::scan`](crate::Map::scan), [`FixedMap`](crate::FixedMap)).
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) shared: Arc<OfProcess<Shared>>,
}

/// Nodes of a cleared map that are freed at a time; takes a millisecond or two.
const STEPS_PER_TREE: usize = 500;

#[derive(Debug)]
pub(crate) struct Shared {
    pub pool: tembo_pool::Pool,
    writers: OnceLock<Writers>,
    starting: Mutex<()>,
    /// A batch found no space.
    has_starved: AtomicBool,
    pub compacting: AutoCompaction,
    pub dropped: Dropped,
    pub plain_maps: OpenPlain,
    pub fixed_trees: OpenTrees<U64Tree>,
    pub versioned_trees: OpenTrees<VersionedTree>,
    pub hash_tables: OpenTrees<VersionedHash>,
    pub stores: OpenStores,
}

impl Shared {
    fn new(pool: tembo_pool::Pool) -> Shared {
        // A damaged list is reported when its blocks are freed.
        let has_dropped = !pool.is_read_only() && tembo_index::has_dropped(&pool).unwrap_or(false);
        Shared {
            pool,
            writers: OnceLock::new(),
            starting: Mutex::default(),
            has_starved: AtomicBool::new(false),
            compacting: AutoCompaction::default(),
            dropped: Dropped::new(has_dropped),
            plain_maps: OpenPlain::default(),
            fixed_trees: OpenTrees::default(),
            versioned_trees: OpenTrees::default(),
            hash_tables: OpenTrees::default(),
            stores: OpenStores::default(),
        }
    }

    /// The writers of the pool's maps. The first write takes their first lane.
    #[inline]
    pub(crate) fn writers(&self) -> Result<&Writers> {
        self.pool.check_process()?;
        match self.writers.get() {
            Some(writers) => Ok(writers),
            None => self.start_writers(),
        }
    }

    /// Whether a thread has written to a map.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.get().is_some()
    }

    /// Waits until no other thread writes to a map; refuses if this thread does.
    pub(crate) fn begin(&self, asks: &'static str) -> Result<Tx<'_>> {
        let writers = self.writers()?;
        writers.expect_other(asks).map_err(tembo_index::Error::from)?;
        Ok(writers.begin())
    }

    /// Notes that a batch found no space: dead blocks cannot be freed in the middle of a batch, and blocks
    /// that it frees itself are taken back with it.
    #[cold]
    pub(crate) fn note_starved(&self) {
        self.has_starved.store(true, Ordering::Relaxed);
    }

    /// Frees some dead blocks before a batch, if an earlier batch found no space; returns whether one did.
    #[inline]
    pub(crate) fn feed_starved(&self) -> bool {
        let has_starved = self.has_starved.load(Ordering::Relaxed);
        if has_starved {
            self.has_starved.store(false, Ordering::Relaxed);
            self.make_room();
        }
        has_starved
    }

    /// Frees some blocks of dropped maps and stores, of cleared maps, and dead blocks of maps that keep
    /// versions; returns whether there were any.
    #[cold]
    pub(crate) fn make_room(&self) -> bool {
        let mut has_any = false;
        for _ in 0..STEPS_PER_TREE {
            if !self.dropped.has_any() || self.reclaim_dropped(1).is_err() {
                break;
            }
            has_any = true;
        }
        // If no lane is left, the dropped stores wait.
        if matches!(Store::has_dropped(&self.pool), Ok(true)) {
            has_any |= self.reclaim_stores(STEPS_PER_TREE).is_ok();
        }
        for name in WbTree::names(&self.pool).unwrap_or_default() {
            let Ok(Some(tree)) = WbTree::open(&self.pool, &name) else { continue };
            for _ in 0..STEPS_PER_TREE {
                if !matches!(tree.has_cleared(), Ok(true)) || self.reclaim_step(&tree).is_err() {
                    break;
                }
                has_any = true;
            }
        }
        has_any |= TreeHandle::all(&self.versioned_trees).iter().any(|tree| tree.make_room());
        has_any | TreeHandle::all(&self.hash_tables).iter().any(|table| table.make_room())
    }

    /// One step at a time: its record always finds room.
    fn reclaim_step(&self, tree: &WbTree) -> Result<()> {
        let mut tx = self.begin("the turn to free what was cleared")?;
        tree.reclaim(&mut tx, 1)?;
        Ok(tx.commit()?)
    }

    #[cold]
    fn start_writers(&self) -> Result<&Writers> {
        let _one_at_a_time = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.writers.get().is_none() {
            let lane = self.pool.lane().map_err(|e| self.explain(e.into()))?;
            let _ = self.writers.set(Writers::new(lane));
        }
        Ok(self.writers.get().expect("set just now"))
    }
}

impl Pool {
    /// Bytes of freed blocks that wait until no reader or record can look at them.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn waiting_bytes(&self) -> u64 {
        self.shared.pool.limbo_bytes()
    }

    pub(crate) fn new(pool: tembo_pool::Pool) -> Pool {
        Pool { shared: Arc::new(OfProcess::new(Shared::new(pool))) }
    }

    /// How many structures the pool has names for.
    pub fn root_count(&self) -> u32 {
        self.shared.pool.geometry().root_count
    }

    /// Wraps a pool that was opened through the crate `tembo-pool`.
    pub fn from_pool(pool: tembo_pool::Pool) -> Pool {
        Pool::new(pool)
    }

    /// Opens the [heap](crate::heap) of persistent objects in this pool, which may hold maps too. An empty
    /// pool gets a heap; one with maps does not, so create the heap before the maps. The file is in use as
    /// long as the pool or the heap is open.
    ///
    /// Transactions of the heap and changes of the maps commit separately, even if one runs inside the other.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`](crate::Error::Heap) with [`NotAHeap`](crate::heap::ErrorKind::NotAHeap) if there are
    /// maps and no heap, with `InUse` or `BrandInUse` if the heap or one with the brand is open, with
    /// `Layout` or `OtherRoot` if it holds other types; [`Error::Pool`](crate::Error::Pool) if the pool is
    /// damaged.
    pub fn open_heap<B: NamedBrand, R: Persist + Default>(&self) -> Result<Heap<B, R>> {
        Ok(Heap::open_pool(self.shared.pool.clone())?)
    }

    /// Copies the [heap](crate::heap) of this pool into another one, which has none, shared objects included.
    /// No thread may write to the heap meanwhile. `note` gets the number of copied objects.
    ///
    /// # Errors
    ///
    /// As for [`heap::copy::copy`](crate::heap::copy::copy).
    pub fn copy_heap(&self, to: &Pool, note: impl FnMut(u64)) -> Result<()> {
        Ok(tembo_heap::copy::copy(&self.shared.pool, &to.shared.pool, note)?)
    }

    /// Whether the heaps of two pools are the same but for the places of their objects.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn has_same_heap(&self, other: &Pool) -> Result<bool> {
        Ok(tembo_heap::copy::are_same(&self.shared.pool, &other.shared.pool)?)
    }

    /// The description of the [heap](crate::heap) of persistent objects in this pool, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn describe_heap(&self) -> Result<Option<Description>> {
        Ok(tembo_heap::describe(&self.shared.pool)?)
    }

    /// The length of the pool, and its unused part.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn stats(&self) -> Stats {
        self.shared.pool.stats()
    }

    /// The durability domain.
    pub fn domain(&self) -> Domain {
        self.shared.pool.region().domain()
    }

    /// The instruction with which cache lines are written back, if the domain needs one.
    pub fn flush_instruction(&self) -> Option<FlushInstruction> {
        self.shared.pool.region().flush_instruction()
    }

    /// The state of the journal, if the domain has one.
    pub fn journal_stats(&self) -> Option<JournalStats> {
        self.shared.pool.journal_stats()
    }

    /// Waits until everything that was committed before the call is on the device, also where a commit does
    /// not wait for that itself ([`Durability::Relaxed`](crate::Durability::Relaxed)): what is committed and
    /// then made durable survives a power failure. Costs one synchronisation, or the rest of one, and nothing
    /// where everything is durable. Without a journal there is nothing to wait for: a commit of `dax` and
    /// `synced` is durable when it returns, and one of `page-cache` never becomes so.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the device fails.
    pub fn make_durable(&self) -> Result<()> {
        let made = self.shared.pool.journal().map_or(Ok(()), |journal| journal.make_durable());
        Ok(made.map_err(tembo_pool::Error::from)?)
    }

    /// Lets commits of this thread, in the domain `journaled`, return once they are written to the journal.
    /// The thread acknowledges them itself, when [`durable_position`](Self::durable_position) has come to the
    /// [`commit_position`](Self::commit_position) behind them. `wake` is called after each synchronisation
    /// that was [asked for](Self::want_durable). One thread of a process does this for a pool.
    #[doc(hidden)]
    pub fn put_off_durability(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(journal) = self.shared.pool.journal() {
            journal.set_wake(Some(Box::new(wake)));
            journal.put_off(true);
        }
    }

    /// Lets `wake` be called after each synchronisation that was [asked for](Self::want_durable).
    #[doc(hidden)]
    pub fn wake_when_durable(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(journal) = self.shared.pool.journal() {
            journal.set_wake(Some(Box::new(wake)));
        }
    }

    /// Lets `before` be called before each synchronisation of the journal, by the thread that makes it: it
    /// synchronises a file that commits tell of.
    #[doc(hidden)]
    pub fn synchronise_before(&self, before: impl Fn() + Send + Sync + 'static) {
        if let Some(journal) = self.shared.pool.journal() {
            journal.set_before(Some(Box::new(before)));
        }
    }

    /// Lets commits of this thread wait for the device again.
    #[doc(hidden)]
    pub fn wait_for_durability(&self) {
        if let Some(journal) = self.shared.pool.journal() {
            journal.put_off(false);
            journal.set_wake(None);
        }
    }

    /// The position in the journal behind all commits; 0 without one.
    #[doc(hidden)]
    pub fn commit_position(&self) -> u64 {
        self.shared.pool.journal().map_or(0, |journal| journal.end())
    }

    /// How long a synchronisation of the journal usually takes; nothing without one.
    #[doc(hidden)]
    pub fn typical_synchronisation(&self) -> Duration {
        self.shared.pool.journal().map_or(Duration::ZERO, |journal| journal.typical_synchronisation())
    }

    /// Asks for the commits before a position to be made durable, and does not wait.
    #[doc(hidden)]
    pub fn want_durable(&self, position: u64) {
        if let Some(journal) = self.shared.pool.journal() {
            journal.want(position);
        }
    }

    /// The position in the journal before which everything is on the device; the last possible one without a
    /// journal.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the device has failed.
    #[doc(hidden)]
    pub fn durable_position(&self) -> Result<u64> {
        let durable = self.shared.pool.journal().map_or(Ok(u64::MAX), |journal| journal.durable());
        Ok(durable.map_err(tembo_pool::Error::from)?)
    }

    /// The number of lines (64 bytes each) of which the journal had newer contents than the rest of the file
    /// when the pool was opened; `None` if it had no journal.
    pub fn journal_lines(&self) -> Option<u64> {
        self.shared.pool.journal_lines()
    }

    /// Whether the pool lies on a disk and has been larger than half of the memory that this process may use
    /// since it was opened. Its pages are then read one by one, and those of a batch of keys are requested
    /// ahead.
    pub fn is_larger_than_memory(&self) -> bool {
        self.shared.pool.region().is_larger_than_memory()
    }

    /// Whether it pays to request pages before they are needed: in a pool that is larger than memory.
    #[doc(hidden)]
    pub fn lacks_pages(&self) -> bool {
        self.shared.pool.region().lacks_pages()
    }

    /// The failures that an acknowledged write survives, in words.
    pub fn survives(&self) -> &'static str {
        self.domain().survives()
    }

    /// The path by which the pool was opened.
    pub fn path(&self) -> Option<&Path> {
        self.shared.pool.path()
    }

    /// The work of recovery when the pool was opened.
    pub fn recovery(&self) -> Recovery {
        self.shared.pool.recovery()
    }

    /// How the last use for writing before this one ended.
    pub fn last_ending(&self) -> Ending {
        self.shared.pool.last_ending()
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.shared.pool.is_read_only()
    }

    /// The identity of the pool; copies of the file have the same.
    pub fn uuid(&self) -> String {
        self.shared.pool.uuid().to_string()
    }

    /// Bytes of freed blocks that wait for readers before they can be used again.
    pub fn limbo_bytes(&self) -> u64 {
        self.shared.pool.limbo_bytes()
    }

    /// Gives unused space back to the file system; returns the bytes. Reads much of the pool. If one lane has
    /// written so far, the writers of maps wait for it, and it waits for a batch of another thread.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim(&self) -> Result<u64> {
        let pool = &self.shared.pool;
        match self.turn_to_trim() {
            Some(tx) => Ok(pool.trim_in(tx)?),
            None => Ok(pool.trim()?),
        }
    }

    /// Begins a [`trim`](Self::trim), for a thread that others wait for.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn begin_trim(&self) -> Result<Trimming> {
        let next = self.shared.pool.begin_trim()?;
        Ok(Trimming { pool: self.clone(), next: Some(next) })
    }

    /// The lane of the writers, if it is the only one: a second lane would make all later commits slower.
    fn turn_to_trim(&self) -> Option<Tx<'_>> {
        let is_theirs = self.shared.has_writers() && self.shared.pool.has_one_lane();
        is_theirs.then(|| self.shared.begin("a turn to trim the pool").ok()).flatten()
    }
}

/// A trim under way ([`Pool::begin_trim`]). Dropping it ends it at any point.
#[derive(Debug)]
pub struct Trimming {
    pool: Pool,
    next: Option<TrimPlace>,
}

impl Trimming {
    /// Does a part of about a millisecond, or in a pool with a journal gives all free space back at once;
    /// returns whether there is more to do.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn step(&mut self) -> Result<bool> {
        let Some(place) = self.next else { return Ok(false) };
        let turn = if place.has_slabs() { self.pool.turn_to_trim() } else { None };
        (_, self.next) = self.pool.shared.pool.trim_step(turn, place)?;
        Ok(self.next.is_some())
    }

    /// Whether empty slabs may be left that are no unused space yet, which comes first.
    pub fn has_slabs(&self) -> bool {
        self.next.is_some_and(|next| next.has_slabs())
    }
}
