//! The pool, as users of the store see it.

use crate::compaction::AutoCompaction;
use crate::contents::{Kind, Listed, Unknown};
use crate::dropping::{Dropped, OpenPlain};
use crate::map::Tree;
use crate::open_stores::OpenStores;
use crate::open_trees::{OpenTrees, TreeHandle};
use crate::{Batch, Error, FixedMap, HashTable, Map, MapOptions, Result, VersionsReport};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tembo_heap::{Description, Heap, NamedBrand, Persist, Summary};
use tembo_index::{U64Tree, VersionedHash, VersionedTree, WbTree, Writers};
use tembo_pmem::journal::JournalStats;
use tembo_pmem::{Domain, FlushInstruction, OfProcess};
use tembo_pool::{ClassUsage, Ending, Reached, Recovery, Stats, Tx, Usage};
use tembo_store::Store;

/// An open pool: a file that holds named maps. Cheap to clone; closed with its last clone, map and
/// guard.
///
/// Any number of threads may write at once. Single changes of [`Map`]s run concurrently, each on a lane of
/// the pool; threads that never contend share one lane. A [`Batch`] excludes all other changes of maps. A
/// [`FixedMap`], a [`Map`] that keeps versions and a [`HashTable`] have writers of their own. Lookups never
/// wait; operations that read several records as of one moment may ([`Map::scan`], [`FixedMap`]).
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
        // Without a lane that is left, they wait.
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

/// The findings of a complete [check](Pool::check).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every map of byte strings that keeps no versions, with its number of records.
    pub maps: Vec<(String, u64)>,
    /// Every map of byte strings that keeps versions, with a report of its newest version and its named
    /// snapshots.
    pub versioned_maps: Vec<(String, VersionsReport)>,
    /// Every hash table, as in [`hash_tables`](Pool::hash_tables).
    pub hash_tables: Vec<(String, VersionsReport)>,
    /// Every map of fixed-size keys with its number of records.
    pub fixed_maps: Vec<(String, u64)>,
    /// Every store.
    pub stores: Vec<(String, tembo_store::Report)>,
    /// The heap of persistent objects, if there is one.
    pub heap: Option<Summary>,
    /// Dropped maps that still have blocks.
    pub dropped_maps: u64,
    /// Dropped stores that still have blocks.
    pub dropped_stores: u64,
    /// Structures that this version of the library cannot read, and hence did not check.
    pub unknown: Vec<Unknown>,
    /// Allocated blocks that no known structure reaches; they may belong to the unknown ones. 0 if there are
    /// none.
    pub unreached_blocks: u64,
    /// How the space is used.
    pub usage: Usage,
    /// How the slabs of each block size are used, the smallest first.
    pub classes: Vec<ClassUsage>,
    /// The blocks of each named structure, in order of the names; the heap's is the last.
    pub space: Vec<(String, Reached)>,
}

impl CheckReport {
    /// Notes a structure whose blocks were ticked off between two moments.
    fn note_space(&mut self, name: String, before: Reached, after: Reached) {
        let (blocks, bytes) = (after.blocks - before.blocks, after.bytes - before.bytes);
        if blocks > 0 {
            self.space.push((name, Reached { blocks, bytes }));
        }
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

    /// Opens the map of this name (1 to 40 bytes). If there is none, creates one that keeps no versions,
    /// durably.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); [`Error::OtherKind`](crate::Error::OtherKind) if the name belongs
    /// to another kind of structure; [`Error::ReadOnly`](crate::Error::ReadOnly) if there is no such map and
    /// none can be created; [`Error::WouldWait`](crate::Error::WouldWait) if there is none, and this thread
    /// has a [`Batch`] or is in a closure that [`Map::modify`] calls.
    pub fn open_map(&self, name: &str) -> Result<Map> {
        self.open_map_with(name, MapOptions::new())
    }

    /// Opens the map of this name (1 to 40 bytes), of the kind that the options ask for. If there is none,
    /// creates it, durably.
    ///
    /// All handles of an open map that keeps versions together hold one of the pool's lanes; a pool of the
    /// usual size has 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map); [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is
    /// left; [`Error::MapKind`](crate::Error::MapKind) if the map exists and is of the other kind.
    pub fn open_map_with(&self, name: &str, options: MapOptions) -> Result<Map> {
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        let mut tx = self.shared.begin("the turn to make a map")?;
        // Another thread may have created it while this one waited for its turn.
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        if options.wants_versions() {
            // Created on a lane of its own, while the turn excludes others that create names.
            let create = || Ok(Some(VersionedTree::create(&self.shared.pool, name)?));
            let tree = TreeHandle::open(self, name, create)?.expect("created if there was none");
            return Ok(Map { tree: Tree::Versioned(tree), pool: self.clone() });
        }
        self.shared.dropped.reclaim_within(&mut tx);
        let create = || {
            let tree = WbTree::create_counting(&mut tx, name, options.wants_counting())?;
            tx.commit()?;
            Ok(Some(tree))
        };
        let tree = self.shared.plain_maps.open(name, create)?.expect("created just now");
        Ok(Map { tree: Tree::Plain(tree), pool: self.clone() })
    }

    /// Opens the map of this name, if there is one, whether it keeps versions or not.
    ///
    /// # Errors
    ///
    /// [`Error::OtherKind`](crate::Error::OtherKind) if the name belongs to another kind of structure;
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged;
    /// [`Error::TooManyOpen`](crate::Error::TooManyOpen) if the map keeps versions and no lane is left.
    pub fn find_map(&self, name: &str) -> Result<Option<Map>> {
        let tree = match self.look_up(name)? {
            None => None,
            Some(Kind::VersionedMap) => TreeHandle::open(self, name, || Ok(None))?.map(Tree::Versioned),
            Some(_) => {
                let find = || WbTree::open(&self.shared.pool, name);
                self.shared.plain_maps.open(name, find)?.map(Tree::Plain)
            }
        };
        Ok(tree.map(|tree| Map { tree, pool: self.clone() }))
    }

    /// The names of all maps of byte strings, of both kinds. For other maps see
    /// [`fixed_map_names`](Self::fixed_map_names) and [`hash_tables`](Self::hash_tables).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::Map, Kind::VersionedMap])
    }

    /// Opens the map of 8-byte keys and values of this name (1 to 40 bytes). If there is none, creates it,
    /// durably.
    ///
    /// All handles of an open fixed map together hold one of the pool's lanes; a pool of the usual size has
    /// 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn open_fixed_map(&self, name: &str) -> Result<FixedMap> {
        if let Some(map) = self.find_fixed_map(name)? {
            return Ok(map);
        }
        // One thread at a time creates names: the only writer, as for the other maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(U64Tree::create(&self.shared.pool, name)?));
        let tree = TreeHandle::open(self, name, create)?.expect("created if there was none");
        Ok(FixedMap { tree })
    }

    /// Opens the map of 8-byte keys and values of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn find_fixed_map(&self, name: &str) -> Result<Option<FixedMap>> {
        self.look_up(name)?;
        Ok(TreeHandle::open(self, name, || Ok(None))?.map(|tree| FixedMap { tree }))
    }

    /// The names of all maps of 8-byte keys and values.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn fixed_map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::FixedMap])
    }

    /// Opens the hash table of this name (1 to 40 bytes). If there is none, creates it, durably.
    ///
    /// All handles of an open hash table together hold one of the pool's lanes; a pool of the usual size has
    /// 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn open_hash_table(&self, name: &str) -> Result<HashTable> {
        if let Some(table) = self.find_hash_table(name)? {
            return Ok(table);
        }
        // One thread at a time creates names: the only writer, as for the maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(VersionedHash::create(&self.shared.pool, name)?));
        let table = TreeHandle::open(self, name, create)?.expect("created if there was none");
        Ok(HashTable { table })
    }

    /// Opens the hash table of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane
    /// is left.
    pub fn find_hash_table(&self, name: &str) -> Result<Option<HashTable>> {
        self.look_up(name)?;
        Ok(TreeHandle::open(self, name, || Ok(None))?.map(|table| HashTable { table }))
    }

    /// The names of all hash tables, with reports of their newest versions and their named snapshots.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn hash_tables(&self) -> Result<Vec<(String, VersionsReport)>> {
        let mut tables = Vec::new();
        for name in self.names_of(&[Kind::HashTable])? {
            if let Some(root) = self.shared.pool.root(&name)? {
                tables.push((name, VersionedHash::describe_at(&self.shared.pool, root.off)?));
            }
        }
        Ok(tables)
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
    /// Nobody may write to the heap meanwhile. `note` is told how many objects were copied.
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

    /// Waits until no other thread writes to a [`Map`], and begins a group of changes that become durable
    /// together, with one fence.
    ///
    /// # Errors
    ///
    /// [`Error::WouldWait`](crate::Error::WouldWait) if this thread has a batch already or is in a closure
    /// that [`Map::modify`] calls: it would wait for itself. [`Error::ReadOnly`](crate::Error::ReadOnly);
    /// [`Error::Pool`](crate::Error::Pool) after the device failed.
    pub fn batch(&self) -> Result<Batch<'_>> {
        // Before the batch has the turn that a compaction needs.
        if self.shared.feed_starved() {
            self.compact_for_room();
        } else if self.shared.pool.has_outgrown_waste() {
            self.compact_outgrown();
        }
        Batch::begin(&self.shared)
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
    /// since it was opened. Its pages then come one by one, and those of a batch of keys are asked for ahead.
    pub fn is_larger_than_memory(&self) -> bool {
        self.shared.pool.region().is_larger_than_memory()
    }

    /// Whether it pays to ask for what is needed soon, in a pool that is larger than memory.
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
        // A second lane would make all commits that follow slower.
        if self.shared.has_writers()
            && pool.has_one_lane()
            && let Ok(tx) = self.shared.begin("a turn to trim the pool")
        {
            return Ok(pool.trim_in(tx)?);
        }
        Ok(pool.trim()?)
    }

    /// Reads the whole pool and proves that every structure is sound and every allocated block reachable
    /// exactly once. Changes nothing. There must be no writer meanwhile; a pool opened for reading only
    /// guarantees that.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the first damage found; [`Error::Unproved`] if there is none, but the pool holds
    /// a structure that this version of the library cannot read, whose blocks cannot be told from lost ones.
    pub fn check(&self) -> Result<CheckReport> {
        let pool = &self.shared.pool;
        let mut marks = pool.marks()?;
        let (mut report, mut has_heap) = (CheckReport::default(), false);
        for Listed { name, kind } in self.list()? {
            // On media, without the open handles: checking takes neither a lane nor the tree.
            let Some(root) = pool.root(&name)? else { continue };
            let (before, called) = (marks.reached(), name.clone());
            match kind {
                Kind::Map => {
                    if let Some(tree) = WbTree::open(pool, &name)? {
                        tree.check(&mut marks)?;
                        report.maps.push((name, tree.len()?));
                    }
                }
                Kind::VersionedMap => {
                    report.versioned_maps.push((name, VersionedTree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::HashTable => {
                    report.hash_tables.push((name, VersionedHash::check_at(pool, root.off, &mut marks)?));
                }
                Kind::FixedMap => {
                    report.fixed_maps.push((name, U64Tree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::Store => {
                    let checked = self.to_read_store(&name)?.check(&mut marks)?;
                    report.stores.push((name, checked));
                }
                Kind::Heap => has_heap = true,
                Kind::Unknown(unknown) => report.unknown.push(unknown),
            }
            report.note_space(called, before, marks.reached());
        }
        report.dropped_maps = tembo_index::check_dropped(pool, &mut marks)?;
        report.dropped_stores = Store::check_dropped(pool, &mut marks)?;
        // Last, since it looks for lost objects among the remaining blocks.
        if has_heap {
            let is_all_known = report.unknown.is_empty();
            let check = if is_all_known { tembo_heap::check } else { tembo_heap::check_beside_unknown };
            let before = marks.reached();
            report.heap = Some(check(pool, &mut marks)?);
            report.note_space("heap".to_owned(), before, marks.reached());
        }
        (report.usage, report.classes) = (marks.usage(), marks.by_class());
        if report.unknown.is_empty() {
            marks.finish()?;
            return Ok(report);
        }
        report.unreached_blocks = marks.unreached().count() as u64;
        Err(Error::Unproved { report: Box::new(report) })
    }
}
