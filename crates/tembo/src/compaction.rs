//! Compaction: records and nodes move out of sparse slabs, which become free space.

use crate::contents::Kind;
use crate::{Error, FixedMap, HashTable, Listed, Map, Pool, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tembo_store::{Store, StorePlace};

/// The time of one step in [`Pool::compact`], between which other writers get their turn.
const STEP: Duration = Duration::from_millis(1);

/// The outcome of [`Pool::compact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of records and nodes that were copied.
    pub moved_bytes: u64,
    /// Bytes that became free for allocations of any size.
    pub freed_bytes: u64,
}

/// A compaction under way ([`Pool::compaction`]). Dropping it ends it at any point; what was moved stays
/// moved.
#[derive(Debug)]
pub struct Compaction {
    pool: Pool,
    chosen: tembo_pool::Compaction,
    /// The structures that are left, the next one last.
    left: Vec<Part>,
    moved_bytes: u64,
}

/// A structure that is to be compacted.
#[derive(Debug)]
struct Part {
    name: String,
    at: Place,
}

/// Where the compaction of a structure goes on.
#[derive(Debug, Clone)]
enum Place {
    Map(Vec<u8>),
    Hash(Vec<u8>),
    Fixed(u64),
    Store(StorePlace),
}

impl Place {
    /// The beginning of a structure of this kind; `None` if its blocks stay where they are.
    fn first(kind: &Kind) -> Option<Place> {
        match kind {
            Kind::Map | Kind::VersionedMap => Some(Place::Map(Vec::new())),
            Kind::HashTable => Some(Place::Hash(Vec::new())),
            Kind::FixedMap => Some(Place::Fixed(0)),
            Kind::Store => Some(Place::Store(StorePlace::default())),
            _ => None,
        }
    }
}

/// A structure, open for one call of [`Compaction::step`]: nobody can drop it meanwhile.
enum Opened {
    Map(Map),
    Hash(HashTable),
    Fixed(FixedMap),
    Store(Store),
}

impl Opened {
    /// The structure of this name; `None` if it was dropped, or is one of another kind by now.
    fn find(pool: &Pool, Part { name, at }: &Part) -> Result<Option<Opened>> {
        let found = match at {
            Place::Map(_) => pool.find_map(name).map(|map| map.map(Opened::Map)),
            Place::Hash(_) => pool.find_hash_table(name).map(|table| table.map(Opened::Hash)),
            Place::Fixed(_) => pool.find_fixed_map(name).map(|map| map.map(Opened::Fixed)),
            Place::Store(_) => pool.find_store(name).map(|store| store.map(Opened::Store)),
        };
        match found {
            Err(Error::OtherKind { .. } | Error::TooManyOpen { .. }) => Ok(None),
            // Somebody makes it of a backup.
            Err(Error::Store(tembo_store::Error::InUse { .. })) => Ok(None),
            found => found,
        }
    }

    /// Moves blocks at a place; returns their bytes, and the place where to go on.
    fn compact_at(&self, chosen: &tembo_pool::Compaction, at: &Place) -> Result<(u64, Option<Place>)> {
        match (self, at) {
            (Opened::Map(map), Place::Map(from)) => {
                let step = map.compact_at(chosen, from)?;
                Ok((step.moved_bytes, step.next.map(Place::Map)))
            }
            (Opened::Hash(table), Place::Hash(from)) => {
                let step = table.table.compact_at(chosen, from)?;
                Ok((step.moved_bytes, step.next.map(Place::Hash)))
            }
            (Opened::Fixed(map), Place::Fixed(from)) => {
                let step = map.tree.compact_at(chosen, *from)?;
                Ok((step.moved_bytes, step.next.map(Place::Fixed)))
            }
            (Opened::Store(store), Place::Store(place)) => {
                let step = store.compact_at(chosen, place)?;
                Ok((step.moved_bytes, step.next.map(Place::Store)))
            }
            _ => Ok((0, None)),
        }
    }
}

impl Compaction {
    /// Moves blocks for about `budget`, or a little more; returns whether there is more to do. Other writers
    /// of a structure wait during one leaf at a time, readers never. A structure that nobody else has open is
    /// open during the call, so that it cannot be dropped.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`](crate::Map::put), but for a full pool, in which the compaction ends.
    pub fn step(&mut self, budget: Duration) -> Result<bool> {
        let started = Instant::now();
        while let Some(part) = self.left.last_mut() {
            let Some(opened) = Opened::find(&self.pool, part)? else {
                self.left.pop();
                continue;
            };
            loop {
                match opened.compact_at(&self.chosen, &part.at) {
                    Ok((moved_bytes, next)) => {
                        self.moved_bytes += moved_bytes;
                        let Some(next) = next else { break };
                        part.at = next;
                    }
                    Err(Error::Full { .. }) => {
                        self.left.clear();
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
                if started.elapsed() >= budget {
                    return Ok(true);
                }
            }
            self.left.pop();
            if started.elapsed() >= budget {
                break;
            }
        }
        Ok(!self.left.is_empty())
    }

    /// Bytes of records and nodes that were copied so far.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Makes the slabs that are empty by now free space, which goes back to the file system where it is at
    /// least 1 MiB long.
    ///
    /// # Errors
    ///
    /// As for [`Pool::trim`].
    pub fn finish(self) -> Result<()> {
        let Compaction { pool, chosen, .. } = self;
        // Closed slabs are not freed.
        drop(chosen);
        pool.trim().map(drop)
    }
}

impl Pool {
    /// Begins a compaction: chooses slabs of which little is in use and whose blocks find room in fuller
    /// ones. Nobody allocates from them until it ends. `None` if there is nothing to gain, or another
    /// compaction is under way. Reads the head of every slab.
    ///
    /// Blocks of maps of all kinds and of stores can move, unless a snapshot of a map holds them; those of
    /// heaps stay where they are. In a map with versions, or a hash table, moves make versions.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], and [`Error::Pool`] when the pool is damaged.
    pub fn compaction(&self) -> Result<Option<Compaction>> {
        let Some(chosen) = self.shared.pool.compaction()? else { return Ok(None) };
        if chosen.is_empty() {
            return Ok(None);
        }
        let part = |listed: Listed| Some(Part { at: Place::first(&listed.kind)?, name: listed.name });
        let left = self.list()?.into_iter().filter_map(part).collect();
        Ok(Some(Compaction { pool: self.clone(), chosen, left, moved_bytes: 0 }))
    }

    /// Compacts the pool until nothing more can be gained. Crashes and readers at any moment find everything
    /// as it is; other writers go on in between. Takes time in proportion to the records of the structures.
    ///
    /// ```
    /// # fn main() -> Result<(), tembo::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("example.pool");
    /// let pool = tembo::Options::new().create(true).open(&path)?;
    /// let map = pool.open_map("words")?;
    /// (0..20_000u32).try_for_each(|i| map.put(i.to_be_bytes(), [0; 100]).map(drop))?;
    /// (0..20_000u32).filter(|i| i % 10 > 0).try_for_each(|i| map.remove(i.to_be_bytes()).map(drop))?;
    /// assert!(pool.compact()?.freed_bytes > 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`compaction`](Self::compaction) and [`Compaction::step`].
    pub fn compact(&self) -> Result<Compacted> {
        self.compact_for(None)
    }

    /// As [`compact`](Self::compact), for about `budget`, if there is one, and a little more.
    ///
    /// # Errors
    ///
    /// As for [`compact`](Self::compact).
    pub fn compact_for(&self, budget: Option<Duration>) -> Result<Compacted> {
        let started = Instant::now();
        let is_over = || budget.is_some_and(|budget| started.elapsed() >= budget);
        let mut sum = Compacted::default();
        while !is_over()
            && let Some(mut compaction) = self.compaction()?
        {
            let before = self.stats().unused_bytes;
            while compaction.step(STEP)? && !is_over() {}
            sum.moved_bytes += compaction.moved_bytes();
            compaction.finish()?;
            let freed_bytes = self.stats().unused_bytes.saturating_sub(before);
            sum.freed_bytes += freed_bytes;
            if freed_bytes == 0 {
                break;
            }
        }
        Ok(sum)
    }

    /// Bytes of free blocks between allocated ones, which serve only allocations of their size; as far as
    /// this process knows the slabs.
    pub fn spare_bytes(&self) -> u64 {
        self.shared.pool.spare_bytes()
    }

    /// Reads up to `slabs` slabs that this process does not know yet; returns whether there may be more. Then
    /// [`spare_bytes`](Self::spare_bytes) is exact. Writers that need a new slab wait meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn learn_spare(&self, slabs: usize) -> Result<bool> {
        Ok(self.shared.pool.learn_slabs(slabs)?)
    }
}

/// When a pool is compacted unasked.
#[derive(Debug, Default)]
pub(crate) struct AutoCompaction {
    is_off: AtomicBool,
    /// The bytes in holes, and one more, after a compaction that has made no room; 0 if there was none.
    futile_at: AtomicU64,
}

/// A compaction is worth trying again with so many bytes more in holes.
const WORTH_BYTES: u64 = 1 << 20;

impl AutoCompaction {
    pub(crate) fn switch(&self, is_on: bool) {
        self.is_off.store(!is_on, Ordering::Relaxed);
    }
}

impl Pool {
    /// Whether the pool has grown since the last call although at least 16 MiB, and a quarter of what is in
    /// use, lay in holes. For a program that compacts the pool itself.
    pub fn take_outgrown_waste(&self) -> bool {
        self.shared.pool.take_outgrown_waste()
    }

    /// Chooses whether changes compact the pool, as
    /// [`Options::compact_unasked`](crate::Options::compact_unasked) did when it was opened.
    pub fn set_compact_unasked(&self, compact: bool) {
        self.shared.compacting.switch(compact);
    }

    /// Makes a change. If there is no space, tries again as long as dead blocks can be freed in any of the
    /// pool's maps, and at last after a compaction. If the pool has grown over its holes, compacts it.
    #[inline(always)]
    pub(crate) fn with_room<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        match change() {
            Err(full @ Error::Full { .. }) => self.change_again(full, &change),
            outcome => {
                if self.shared.pool.take_outgrown_waste() {
                    self.compact_for_room();
                }
                outcome
            }
        }
    }

    #[cold]
    fn change_again<T>(&self, mut full: Error, change: &dyn Fn() -> Result<T>) -> Result<T> {
        while self.shared.make_room() || self.compact_for_room() {
            match change() {
                Err(e @ Error::Full { .. }) => full = e,
                outcome => return outcome,
            }
        }
        Err(full)
    }

    /// Compacts the pool, if that is not switched off and may help; returns whether it has made room.
    #[cold]
    pub(crate) fn compact_for_room(&self) -> bool {
        let AutoCompaction { is_off, futile_at } = &self.shared.compacting;
        let futile = futile_at.load(Ordering::Relaxed);
        if is_off.load(Ordering::Relaxed) || futile != 0 && self.spare_bytes() < futile + WORTH_BYTES {
            return false;
        }
        let freed_bytes = self.compact().map_or(0, |compacted| compacted.freed_bytes);
        futile_at.store(self.spare_bytes() + 1, Ordering::Relaxed);
        freed_bytes > 0
    }
}
