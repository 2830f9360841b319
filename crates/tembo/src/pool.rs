//! The pool, as users of the store see it.

use crate::contents::{Kind, Listed, Unknown};
use crate::dropping::{Dropped, OpenPlain};
use crate::map::Tree;
use crate::open::{Once, OpenTrees};
use crate::{Batch, Error, FixedMap, HashTable, Map, MapOptions, Result, VersionsReport};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tembo_heap::{Description, Heap, NamedBrand, Persist, Summary};
use tembo_index::{CddsHash, CddsTree, FixedTree, WbTree, Writers};
use tembo_pmem::{Domain, FlushInstruction, OfProcess};
use tembo_pool::{Ending, Recovery, Stats, Tx, Usage};

/// An open pool: a file that holds named maps. Cheap to clone; closed with its last clone, map and
/// guard.
///
/// Any number of threads may write at once. Single changes of [`Map`]s go on beside each other, each on a lane of the
/// pool; threads that never meet share one. A [`Batch`] waits until it is alone with the maps. A [`FixedMap`] has writers
/// of its own, and so have a [`Map`] that keeps versions and a [`HashTable`]. Lookups never wait; what reads
/// several records as they were at one moment may ([`Map::scan`], [`FixedMap`]).
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) shared: Arc<OfProcess<Shared>>,
}

/// Nodes of a cleared map that are freed at a time: in a millisecond or two.
const STEPS_PER_TREE: usize = 500;

#[derive(Debug)]
pub(crate) struct Shared {
    pub pool: tembo_pool::Pool,
    writers: OnceLock<Writers>,
    starting: Mutex<()>,
    /// A batch found no space.
    has_starved: AtomicBool,
    pub dropped: Dropped,
    pub plain_maps: OpenPlain,
    pub fixed_trees: OpenTrees<FixedTree>,
    pub versioned_trees: OpenTrees<CddsTree>,
    pub hash_tables: OpenTrees<CddsHash>,
}

impl Shared {
    fn new(pool: tembo_pool::Pool) -> Shared {
        // A list that is damaged is found by who frees what is in it.
        let has_dropped = !pool.is_read_only() && tembo_index::has_dropped(&pool).unwrap_or(false);
        Shared {
            pool,
            writers: OnceLock::new(),
            starting: Mutex::default(),
            has_starved: AtomicBool::new(false),
            dropped: Dropped::new(has_dropped),
            plain_maps: OpenPlain::default(),
            fixed_trees: OpenTrees::default(),
            versioned_trees: OpenTrees::default(),
            hash_tables: OpenTrees::default(),
        }
    }

    /// The writers of the pool's maps; their first lane is taken by the first write.
    #[inline]
    pub(crate) fn writers(&self) -> Result<&Writers> {
        self.pool.check_process()?;
        match self.writers.get() {
            Some(writers) => Ok(writers),
            None => self.start_writers(),
        }
    }

    /// Waits until nobody else writes to a map, unless this thread is who does.
    pub(crate) fn begin(&self, asks: &'static str) -> Result<Tx<'_>> {
        let writers = self.writers()?;
        writers.expect_other(asks).map_err(tembo_index::Error::from)?;
        Ok(writers.begin())
    }

    /// Notes that a batch found no space: what is dead cannot be freed in the middle of it, and what it frees itself is taken back with it.
    #[cold]
    pub(crate) fn note_starved(&self) {
        self.has_starved.store(true, Ordering::Relaxed);
    }

    /// Frees some of what is dead if a batch found no space, before the next one.
    #[inline]
    pub(crate) fn feed_starved(&self) {
        if self.has_starved.load(Ordering::Relaxed) {
            self.has_starved.store(false, Ordering::Relaxed);
            self.make_room();
        }
    }

    /// Makes a change; again, if there was no space, as long as something dead can be freed in any of the pool's maps.
    #[inline(always)]
    pub(crate) fn with_room<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        match change() {
            Err(full @ Error::Full { .. }) => self.change_again(full, &change),
            outcome => outcome,
        }
    }

    #[cold]
    fn change_again<T>(&self, mut full: Error, change: &dyn Fn() -> Result<T>) -> Result<T> {
        while self.make_room() {
            match change() {
                Err(e @ Error::Full { .. }) => full = e,
                outcome => return outcome,
            }
        }
        Err(full)
    }

    /// Frees some of the blocks of dropped and cleared maps, and dead ones of maps that keep versions; returns whether
    /// there were any.
    #[cold]
    fn make_room(&self) -> bool {
        let mut has_any = false;
        for _ in 0..STEPS_PER_TREE {
            if !self.dropped.has_any() || self.reclaim_dropped(1).is_err() {
                break;
            }
            has_any = true;
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
        has_any |= Once::all(&self.versioned_trees).iter().any(|tree| tree.make_room());
        has_any | Once::all(&self.hash_tables).iter().any(|table| table.make_room())
    }

    /// A step at a time, as the record of one always finds room.
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

/// What a complete [check](Pool::check) found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every map of byte strings that keeps no versions, with its number of records.
    pub maps: Vec<(String, u64)>,
    /// Every map of byte strings that keeps versions, with what its newest version and its named snapshots have.
    pub versioned_maps: Vec<(String, VersionsReport)>,
    /// Every hash table, as [`hash_tables`](Pool::hash_tables) tells.
    pub hash_tables: Vec<(String, VersionsReport)>,
    /// Every map of fixed-size keys with its number of records.
    pub fixed_maps: Vec<(String, u64)>,
    /// The heap of persistent objects, if there is one.
    pub heap: Option<Summary>,
    /// Maps that were dropped, and still have blocks.
    pub dropped_maps: u64,
    /// What is in the pool that this version of the library cannot read, and hence did not check.
    pub unknown: Vec<Unknown>,
    /// Blocks that nothing leads to but what is unknown, if that; 0 if nothing is unknown.
    pub unreached_blocks: u64,
    /// How the space is used.
    pub usage: Usage,
}

impl Pool {
    pub(crate) fn new(pool: tembo_pool::Pool) -> Pool {
        Pool { shared: Arc::new(OfProcess::new(Shared::new(pool))) }
    }

    /// Makes a store of a pool that was opened otherwise.
    pub fn from_pool(pool: tembo_pool::Pool) -> Pool {
        Pool::new(pool)
    }

    /// The map of this name (1 to 40 bytes). It is created, durably, if there is none; then it keeps no versions.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full), [`Error::OtherKind`](crate::Error::OtherKind) if the name is taken by something
    /// else; [`Error::ReadOnly`](crate::Error::ReadOnly) if there is no such map and none can be made; and
    /// [`Error::WouldWait`](crate::Error::WouldWait) if there is none, and this thread has a [`Batch`] or is in a closure that [`Map::modify`] calls.
    pub fn open_map(&self, name: &str) -> Result<Map> {
        self.open_map_with(name, MapOptions::new())
    }

    /// The map of this name (1 to 40 bytes), of the kind that the options ask for. It is created, durably, if there is none.
    ///
    /// An open map that keeps versions, all its handles together, holds one of the pool's lanes, of which a pool of the usual size has
    /// 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is left, and
    /// [`Error::MapKind`](crate::Error::MapKind) if the map is there and of the other kind.
    pub fn open_map_with(&self, name: &str, options: MapOptions) -> Result<Map> {
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        let mut tx = self.shared.begin("the turn to make a map")?;
        // Another thread may have made it while this one waited for its turn.
        if let Some(map) = self.find_map(name)? {
            return options.accept(name, map);
        }
        if options.wants_versions() {
            // Made on a lane of its own, while the turn keeps others from giving names.
            let create = || Ok(Some(CddsTree::create(&self.shared.pool, name)?));
            let tree = Once::open(self, name, create)?.expect("created if there was none");
            return Ok(Map { tree: Tree::Versioned(tree), pool: self.clone() });
        }
        self.shared.dropped.reclaim_beside(&mut tx);
        let create = || {
            let tree = WbTree::create(&mut tx, name)?;
            tx.commit()?;
            Ok(Some(tree))
        };
        let tree = self.shared.plain_maps.open(name, create)?.expect("created just now");
        Ok(Map { tree: Tree::Plain(tree), pool: self.clone() })
    }

    /// The map of this name, if there is one, whether it keeps versions or not.
    ///
    /// # Errors
    ///
    /// [`Error::OtherKind`](crate::Error::OtherKind) if the name belongs to something else, [`Error::Pool`](crate::Error::Pool) if the pool is
    /// damaged, and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if the map keeps versions and no lane is left.
    pub fn find_map(&self, name: &str) -> Result<Option<Map>> {
        let tree = match self.look_up(name)? {
            None => None,
            Some(Kind::VersionedMap) => Once::open(self, name, || Ok(None))?.map(Tree::Versioned),
            Some(_) => {
                let find = || WbTree::open(&self.shared.pool, name);
                self.shared.plain_maps.open(name, find)?.map(Tree::Plain)
            }
        };
        Ok(tree.map(|tree| Map { tree, pool: self.clone() }))
    }

    /// The names of all maps of byte strings, of both kinds; [`fixed_map_names`](Self::fixed_map_names) has the others.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::Map, Kind::VersionedMap])
    }

    /// The map of 8-byte keys and values of this name (1 to 40 bytes). It is created, durably, if there is none.
    ///
    /// An open fixed map, all its handles together, holds one of the pool's lanes, of which a pool of the usual size has
    /// 64; and up to seven more after threads have inserted beside each other, if half of the pool's were free then.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is left.
    pub fn open_fixed_map(&self, name: &str) -> Result<FixedMap> {
        if let Some(map) = self.find_fixed_map(name)? {
            return Ok(map);
        }
        // Names are given by one thread at a time, which is the only writer, as for the other maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(FixedTree::create(&self.shared.pool, name)?));
        let tree = Once::open(self, name, create)?.expect("created if there was none");
        Ok(FixedMap { tree })
    }

    /// The map of 8-byte keys and values of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is left.
    pub fn find_fixed_map(&self, name: &str) -> Result<Option<FixedMap>> {
        self.look_up(name)?;
        Ok(Once::open(self, name, || Ok(None))?.map(|tree| FixedMap { tree }))
    }

    /// The names of all maps of 8-byte keys and values.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn fixed_map_names(&self) -> Result<Vec<String>> {
        self.names_of(&[Kind::FixedMap])
    }

    /// The hash table of this name (1 to 40 bytes). It is created, durably, if there is none.
    ///
    /// An open hash table, all its handles together, holds one of the pool's lanes, of which a pool of the usual size has 64.
    ///
    /// # Errors
    ///
    /// As for [`open_map`](Self::open_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is left.
    pub fn open_hash_table(&self, name: &str) -> Result<HashTable> {
        if let Some(table) = self.find_hash_table(name)? {
            return Ok(table);
        }
        // Names are given by one thread at a time, which is the only writer, as for the maps.
        let _turn = self.shared.begin("the turn to make a map")?;
        let create = || Ok(Some(CddsHash::create(&self.shared.pool, name)?));
        let table = Once::open(self, name, create)?.expect("created if there was none");
        Ok(HashTable { table })
    }

    /// The hash table of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`find_map`](Self::find_map), and [`Error::TooManyOpen`](crate::Error::TooManyOpen) if no lane is left.
    pub fn find_hash_table(&self, name: &str) -> Result<Option<HashTable>> {
        self.look_up(name)?;
        Ok(Once::open(self, name, || Ok(None))?.map(|table| HashTable { table }))
    }

    /// The names of all hash tables, with what their newest versions and their named snapshots have.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn hash_tables(&self) -> Result<Vec<(String, VersionsReport)>> {
        let mut tables = Vec::new();
        for name in self.names_of(&[Kind::HashTable])? {
            if let Some(root) = self.shared.pool.root(&name)? {
                tables.push((name, CddsHash::describe_at(&self.shared.pool, root.off)?));
            }
        }
        Ok(tables)
    }

    /// The [heap](crate::heap) of persistent objects in this pool, beside its maps. A pool in which there is nothing yet gets one; so the heap comes
    /// first, and then the maps. The file is in use as long as the pool or the heap is open.
    ///
    /// Transactions of the heap and changes of the maps are each committed by themselves, whatever runs inside what.
    ///
    /// # Errors
    ///
    /// [`Error::Heap`](crate::Error::Heap) with [`NotAHeap`](crate::heap::Error::NotAHeap) if there are maps and no heap, with `InUse` or
    /// `BrandInUse` if the heap or one with the brand is open, with `Layout` or `OtherRoot` if it holds other types;
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn open_heap<B: NamedBrand, R: Persist + Default>(&self) -> Result<Heap<B, R>> {
        Ok(Heap::open_pool(self.shared.pool.clone())?)
    }

    /// What the [heap](crate::heap) of persistent objects in this pool says of itself, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is damaged.
    pub fn describe_heap(&self) -> Result<Option<Description>> {
        Ok(tembo_heap::describe(&self.shared.pool)?)
    }

    /// Waits until nobody else writes to a [`Map`] and begins a group of changes, which become durable together, with one fence.
    ///
    /// # Errors
    ///
    /// [`Error::WouldWait`](crate::Error::WouldWait) in a thread whose own batch is not over, or in a closure that [`Map::modify`] calls: it would wait
    /// for itself. [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Pool`](crate::Error::Pool) after the device failed.
    pub fn batch(&self) -> Result<Batch<'_>> {
        Batch::begin(&self.shared)
    }

    /// How long the pool is, and how much of that is not used.
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

    /// Which failures an acknowledged write survives.
    pub fn survives(&self) -> &'static str {
        self.domain().survives()
    }

    /// The path by which the pool was opened.
    pub fn path(&self) -> Option<&Path> {
        self.shared.pool.path()
    }

    /// What had to be recovered when the pool was opened.
    pub fn recovery(&self) -> Recovery {
        self.shared.pool.recovery()
    }

    /// How the pool's last use for writing had ended when it was opened.
    pub fn last_ending(&self) -> Ending {
        self.shared.pool.last_ending()
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.shared.pool.is_read_only()
    }

    /// The pool's identity, which copies of the file share.
    pub fn uuid(&self) -> String {
        self.shared.pool.uuid().to_string()
    }

    /// Bytes of freed blocks that wait for readers before they can be used again.
    pub fn limbo_bytes(&self) -> u64 {
        self.shared.pool.limbo_bytes()
    }

    /// Gives space that is not used back to the file system; returns the bytes. Reads much of the pool.
    ///
    /// # Errors
    ///
    /// As for a commit.
    pub fn trim(&self) -> Result<u64> {
        Ok(self.shared.pool.trim()?)
    }

    /// Reads the whole pool and proves that every structure is sound and every allocated block reachable exactly
    /// once. Changes nothing. Nobody may write meanwhile; a pool opened for reading only guarantees that.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the first damage found; [`Error::Unproved`] if there is none, but something in the pool is unknown to this version of
    /// the library, so that blocks which belong to it cannot be told from lost ones.
    pub fn check(&self) -> Result<CheckReport> {
        let pool = &self.shared.pool;
        let mut marks = pool.marks()?;
        let (mut report, mut has_heap) = (CheckReport::default(), false);
        for Listed { name, kind } in self.list()? {
            // On media, beside any handle that is open: checking takes neither lane nor claim.
            let Some(root) = pool.root(&name)? else { continue };
            match kind {
                Kind::Map => {
                    if let Some(tree) = WbTree::open(pool, &name)? {
                        tree.check(&mut marks)?;
                        report.maps.push((name, tree.len()?));
                    }
                }
                Kind::VersionedMap => {
                    report.versioned_maps.push((name, CddsTree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::HashTable => {
                    report.hash_tables.push((name, CddsHash::check_at(pool, root.off, &mut marks)?));
                }
                Kind::FixedMap => {
                    report.fixed_maps.push((name, FixedTree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::Heap => has_heap = true,
                Kind::Unknown(unknown) => report.unknown.push(unknown),
            }
        }
        report.dropped_maps = tembo_index::check_dropped(pool, &mut marks)?;
        // Last, since it looks for lost objects among the blocks that are left.
        if has_heap {
            let is_all_known = report.unknown.is_empty();
            let check = if is_all_known { tembo_heap::check } else { tembo_heap::check_beside_unknown };
            report.heap = Some(check(pool, &mut marks)?);
        }
        report.usage = marks.usage();
        if report.unknown.is_empty() {
            marks.finish()?;
            return Ok(report);
        }
        report.unreached_blocks = marks.unreached().count() as u64;
        Err(Error::Unproved { report: Box::new(report) })
    }
}
