//! Compaction: records and nodes move out of sparse slabs, which become free space.

use crate::auto_compaction::{AutoCompaction, MissedRun};
use crate::kinds::Kind;
use crate::pool::Trimming;
use crate::{Error, FixedMap, HashTable, Listed, Map, Pool, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tembo_heap::{HeapCompaction, HeapStep};
use tembo_store::{Store, StorePlace};

/// The time of one step in [`Pool::compact`], between which other writers get their turn.
const STEP: Duration = Duration::from_millis(1);
/// The most times that [`Pool::compact`] empties the end of the pool: writers beside it may fill it again.
const TAILS_MAX: usize = 16;
/// The file is not cut for less than this.
const CUT_BYTES_MIN: u64 = 1 << 20;

/// The outcome of [`Pool::compact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of records and nodes that were copied.
    pub moved_bytes: u64,
    /// Bytes that became free for allocations of any size.
    pub freed_bytes: u64,
    /// Bytes by which the pool, and its file, became shorter.
    pub cut_bytes: u64,
}

/// A compaction under way ([`Pool::compaction`]). Dropping it ends it at any point; what was moved stays
/// moved.
#[derive(Debug)]
pub struct Compaction {
    pool: Pool,
    chosen: tembo_pool::Compaction,
    /// The structures that are left, the next one last.
    left: Vec<Part>,
    /// A structure was passed over.
    is_partial: bool,
    moved_bytes: u64,
}

/// A structure that is to be compacted.
#[derive(Debug)]
struct Part {
    name: String,
    at: Place,
}

/// The position at which the compaction of a structure continues.
#[derive(Debug, Clone)]
enum Place {
    /// `None` once all has moved, and is to be freed.
    Map(Option<Vec<u8>>),
    Hash(Option<Vec<u8>>),
    Fixed(u64),
    Store(StorePlace),
    Heap(Arc<Mutex<HeapCompaction>>),
}

impl Place {
    /// The beginning of a structure of this kind; `None` if its blocks stay where they are.
    fn first(kind: &Kind, pool: &tembo_pool::Pool) -> Option<Place> {
        match kind {
            Kind::Map | Kind::VersionedMap => Some(Place::Map(Some(Vec::new()))),
            Kind::HashTable => Some(Place::Hash(Some(Vec::new()))),
            Kind::FixedMap => Some(Place::Fixed(0)),
            Kind::Store => Some(Place::Store(StorePlace::default())),
            Kind::Heap => Some(Place::Heap(Arc::new(Mutex::new(HeapCompaction::new(pool))))),
            _ => None,
        }
    }
}

/// A structure, open for one call of [`Compaction::step`], so that it cannot be dropped meanwhile.
enum Opened {
    Map(Map),
    Hash(HashTable),
    Fixed(FixedMap),
    Store(Store),
    /// A heap opens itself for a step.
    Heap,
}

impl Opened {
    /// The structure of this name; `None` if it was dropped, or is one of another kind by now.
    fn find(pool: &Pool, Part { name, at }: &Part) -> Result<Option<Opened>> {
        let found = match at {
            Place::Map(_) => pool.find_map(name).map(|map| map.map(Opened::Map)),
            Place::Hash(_) => pool.find_hash_table(name).map(|table| table.map(Opened::Hash)),
            Place::Fixed(_) => pool.find_fixed_map(name).map(|map| map.map(Opened::Fixed)),
            Place::Store(_) => pool.find_store(name).map(|store| store.map(Opened::Store)),
            Place::Heap(_) => Ok(Some(Opened::Heap)),
        };
        match found {
            Err(Error::OtherKind { .. } | Error::TooManyOpen { .. }) => Ok(None),
            // The store is being made from a backup.
            Err(Error::Store(tembo_store::Error::InUse { .. })) => Ok(None),
            found => found,
        }
    }

    /// Moves blocks at a place; returns their bytes, and the place where to go on.
    fn compact_at(&self, chosen: &tembo_pool::Compaction, at: &Place) -> Result<(u64, Option<Place>)> {
        match (self, at) {
            (Opened::Map(map), Place::Map(Some(from))) => {
                let step = map.compact_at(chosen, from)?;
                Ok((step.moved_bytes, Some(Place::Map(step.next))))
            }
            (Opened::Map(map), Place::Map(None)) => Ok((0, map.collect_moved()?.then_some(Place::Map(None)))),
            (Opened::Hash(table), Place::Hash(Some(from))) => {
                let step = table.table.compact_at(chosen, from)?;
                Ok((step.moved_bytes, Some(Place::Hash(step.next))))
            }
            (Opened::Hash(table), Place::Hash(None)) => {
                Ok((0, table.table.collect_moved()?.then_some(Place::Hash(None))))
            }
            (Opened::Fixed(map), Place::Fixed(from)) => {
                let step = map.tree.compact_at(chosen, *from)?;
                Ok((step.moved_bytes, step.next.map(Place::Fixed)))
            }
            (Opened::Store(store), Place::Store(place)) => {
                let step = store.compact_at(chosen, place)?;
                Ok((step.moved_bytes, step.next.map(Place::Store)))
            }
            (Opened::Heap, Place::Heap(walk)) => {
                match walk.lock().unwrap_or_else(PoisonError::into_inner).step(chosen)? {
                    HeapStep::Moved(bytes) => Ok((bytes, Some(Place::Heap(walk.clone())))),
                    HeapStep::Unavailable => {
                        chosen.note_held();
                        Ok((0, None))
                    }
                    _ => Ok((0, None)),
                }
            }
            _ => Ok((0, None)),
        }
    }
}

impl Compaction {
    /// Moves blocks for about `budget`, or a little more; returns whether there is more to do. Other writers
    /// of a structure wait during one leaf at a time, readers never. The call keeps the structure open, so
    /// that it cannot be dropped.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`](crate::Map::put), but for a full pool, in which the compaction ends.
    pub fn step(&mut self, budget: Duration) -> Result<bool> {
        let started = Instant::now();
        while let Some(part) = self.left.last_mut() {
            let Some(opened) = Opened::find(&self.pool, part)? else {
                self.is_partial = true;
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
                        self.is_partial = true;
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

    /// Turns empty slabs into free space, and returns runs of at least 1 MiB to the file system.
    ///
    /// # Errors
    ///
    /// As for [`Pool::trim`].
    pub fn finish(self) -> Result<()> {
        self.complete()?.trim().map(drop)
    }

    /// As [`finish`](Self::finish), for a thread that others wait for: the space becomes free with the steps
    /// of the trim that this begins.
    ///
    /// # Errors
    ///
    /// As for [`Pool::trim`].
    pub fn begin_finish(self) -> Result<Trimming> {
        self.complete()?.begin_trim()
    }

    fn complete(self) -> Result<Pool> {
        let Compaction { pool, chosen, left, is_partial, .. } = self;
        if !is_partial && left.is_empty() {
            chosen.complete()?;
        }
        Ok(pool)
    }
}

impl Pool {
    /// Begins a compaction: chooses slabs of which little is in use and whose blocks find room in fuller
    /// ones. Nobody allocates from them until it ends. `None` if there is nothing to gain, or another
    /// compaction is under way. Reads the head of every slab.
    ///
    /// Blocks of maps of all kinds and of stores can move, unless a snapshot of a map holds them; of a heap
    /// the objects with one owner ([`HeapCompaction`](crate::heap::HeapCompaction)). In a map with versions,
    /// or a hash table, moves make versions.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], and [`Error::Pool`] when the pool is damaged.
    pub fn compaction(&self) -> Result<Option<Compaction>> {
        self.begin_compaction(self.shared.pool.compaction()?)
    }

    /// Begins to empty the end of the pool, so that the file can be [cut](Self::cut): moves no more bytes
    /// than the file becomes shorter by. `None` if the file would not become much shorter (by a sixteenth,
    /// and 1 MiB), or another compaction is under way. Otherwise as [`compaction`](Self::compaction), which
    /// does this when there is nothing else to gain.
    ///
    /// # Errors
    ///
    /// As for [`compaction`](Self::compaction).
    pub fn tail_compaction(&self) -> Result<Option<Compaction>> {
        self.begin_compaction(self.shared.pool.tail_compaction()?)
    }

    fn begin_compaction(&self, chosen: Option<tembo_pool::Compaction>) -> Result<Option<Compaction>> {
        let Some(chosen) = chosen.filter(|chosen| !chosen.is_empty()) else { return Ok(None) };
        let part = |listed: Listed| {
            Some(Part { at: Place::first(&listed.kind, &self.shared.pool)?, name: listed.name })
        };
        let left = self.list()?.into_iter().filter_map(part).collect();
        Ok(Some(Compaction { pool: self.clone(), chosen, left, is_partial: false, moved_bytes: 0 }))
    }

    /// Compacts the pool until nothing more can be gained, and cuts its file at the end. Crashes and readers
    /// at any moment find everything as it is; other writers go on in between. Takes time in proportion to
    /// the records of the structures.
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
        let mut all = Compacted::default();
        for _ in 0..TAILS_MAX {
            all.add(self.compact_while(&is_over, true)?.all);
            // Blocks that cannot move may lie in the sparse slabs, and others at the end.
            let tail = if is_over() { None } else { self.tail_compaction()? };
            let Some(tail) = tail else { break };
            let round = self.compact_round(tail, &is_over, true)?;
            all.add(round);
            if round == Compacted::default() {
                break;
            }
        }
        Ok(all)
    }

    /// Makes rounds until nothing is gained. The file is cut if that was asked for.
    fn compact_while(&self, is_over: &dyn Fn() -> bool, cuts: bool) -> Result<Rounds> {
        let (mut sum, mut rounds_in_vain) = (Rounds::default(), 0);
        self.recall_slabs();
        while !is_over()
            && let Some(compaction) = self.compaction()?
        {
            sum.add_round(self.compact_round(compaction, is_over, cuts)?);
            sum.has_made_run = self.has_made_run();
            let is_in_vain = sum.freed_in_round == 0 && sum.cut_in_round == 0;
            rounds_in_vain = if is_in_vain { rounds_in_vain + 1 } else { 0 };
            // A run that was missed is made in the round after the sparse slabs, whatever these bring. It may
            // be missed again by what this round moved itself.
            let has_ended = is_in_vain && (rounds_in_vain > 1 || self.missed_run_bytes() == 0);
            if has_ended || sum.has_made_run && !cuts {
                break;
            }
        }
        if cuts {
            sum.all.cut_bytes += self.cut(CUT_BYTES_MIN, 0)?;
        }
        Ok(sum)
    }

    fn compact_round(
        &self,
        mut compaction: Compaction,
        is_over: &dyn Fn() -> bool,
        cuts: bool,
    ) -> Result<Compacted> {
        let before = self.stats().unused_bytes;
        while compaction.step(STEP)? && !is_over() {}
        let moved_bytes = compaction.moved_bytes();
        self.recall_slabs();
        compaction.finish()?;
        let freed_bytes = self.stats().unused_bytes.saturating_sub(before);
        let cut_bytes = if cuts { self.cut(CUT_BYTES_MIN, 0)? } else { 0 };
        Ok(Compacted { moved_bytes, freed_bytes, cut_bytes })
    }

    /// Lets the writers of maps give up the slabs that they allocate from, so that these can be emptied.
    /// Without a turn they do so with their next change.
    fn recall_slabs(&self) {
        self.shared.pool.recall_slabs();
        if self.shared.has_writers() {
            let _ = self.shared.begin("a turn to compact the pool");
        }
    }

    /// Gives the free end of the pool up, but for `slack_bytes`, if it is at least `least_bytes` long, and
    /// cuts the file there. Not below [`Options::min_bytes`](crate::Options::min_bytes); growth takes the
    /// space again. Where there is a journal, it is written home first, and stays where it lies. Returns the
    /// bytes by which the pool became shorter. Changes wait while its length changes; readers never.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn cut(&self, least_bytes: u64, slack_bytes: u64) -> Result<u64> {
        Ok(self.shared.pool.cut(least_bytes, slack_bytes)?)
    }

    /// As [`cut`](Self::cut), by about `most_bytes` at most, for a thread that others wait for: to free a
    /// gibibyte may take the file system a third of a second. Where there is a journal, all goes at once,
    /// since each step would write the journal home. Returns 0 once nothing is left to cut; steps after the
    /// first need a `least_bytes` of 1 to come to the end.
    ///
    /// # Errors
    ///
    /// As for [`cut`](Self::cut).
    pub fn cut_by(&self, least_bytes: u64, slack_bytes: u64, most_bytes: u64) -> Result<u64> {
        Ok(self.shared.pool.cut_by(least_bytes, slack_bytes, most_bytes)?)
    }

    /// As [`cut`](Self::cut), for programs that nobody asked to cut: leaves room for the next growth, and
    /// does nothing if less would be gained than that room.
    ///
    /// # Errors
    ///
    /// As for [`cut`](Self::cut).
    pub fn cut_unasked(&self) -> Result<u64> {
        let room = self.room_for_growth();
        self.cut(room, room)
    }

    /// The free bytes that [`cut_unasked`](Self::cut_unasked) leaves at the end.
    pub fn room_for_growth(&self) -> u64 {
        (self.stats().pool_bytes / 16).clamp(16 << 20, 1 << 30)
    }

    /// The length below which the file is not cut.
    pub fn min_bytes(&self) -> u64 {
        self.shared.pool.min_bytes()
    }

    /// Sets [`min_bytes`](Self::min_bytes) until the pool is closed.
    pub fn set_min_bytes(&self, bytes: u64) {
        self.shared.pool.set_min_bytes(bytes);
    }

    /// Whether the last compaction was to make such a piece, and did.
    pub fn has_made_run(&self) -> bool {
        self.shared.pool.has_made_run()
    }

    /// The length of the piece of free space that a change did not find; 0 if no piece is missed. Also 0 if
    /// the piece is a short one, for a slab, and less than an eighth of the pool is unused: the pool is full
    /// then. The next compaction, or the one after it, makes such a piece.
    pub fn missed_run_bytes(&self) -> u64 {
        self.shared.pool.missed_run_bytes()
    }

    /// Bytes of free blocks between allocated ones, which serve only allocations of their size; as far as
    /// this process knows the slabs.
    pub fn spare_bytes(&self) -> u64 {
        self.shared.pool.spare_bytes()
    }

    /// As [`spare_bytes`](Self::spare_bytes), for a thread that others wait for: looks at some slabs only,
    /// and returns the bytes that the last whole survey found, and whether this call has ended one. Exact in
    /// a pool of at most 1,024 slabs with holes.
    pub fn survey_spare(&self) -> (u64, bool) {
        self.shared.pool.survey_spare()
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

/// The sums of some rounds, and the gain of the last.
#[derive(Debug, Default)]
struct Rounds {
    all: Compacted,
    freed_in_round: u64,
    cut_in_round: u64,
    has_made_run: bool,
}

impl Compacted {
    fn add(&mut self, other: Compacted) {
        self.moved_bytes += other.moved_bytes;
        self.freed_bytes += other.freed_bytes;
        self.cut_bytes += other.cut_bytes;
    }
}

impl Rounds {
    fn add_round(&mut self, round: Compacted) {
        self.all.add(round);
        (self.freed_in_round, self.cut_in_round) = (round.freed_bytes, round.cut_bytes);
    }
}

/// A compaction is worth trying again with this many bytes more in holes, or unused.
const WORTH_BYTES: u64 = 1 << 20;
/// The most compactions for one change.
const COMPACTIONS_MAX: u32 = 64;

impl MissedRun {
    /// Whether a run is missed ([`Pool::missed_run_bytes`]), and a compaction may make it: no compaction has
    /// failed to make a run of at most this length, or at least 1 MiB more is unused now.
    pub fn may_be_made(&self, pool: &Pool) -> bool {
        let missed_bytes = pool.missed_run_bytes();
        let was_in_vain = self.bytes > 0 && missed_bytes >= self.bytes;
        missed_bytes > 0 && !(was_in_vain && pool.stats().unused_bytes < self.unused_bytes + WORTH_BYTES)
    }

    /// Notes the outcome of the compactions since the last call, before which this many bytes were missed.
    /// Those that were to make no run do not count.
    pub fn note_compaction(&mut self, pool: &Pool, missed_bytes: u64) {
        let has_made_run = pool.has_made_run();
        if !pool.shared.pool.take_tried_run() && !has_made_run {
            return;
        }
        let is_in_vain = self.was_called_off || pool.missed_run_bytes() == 0;
        *self = match has_made_run {
            true => MissedRun::default(),
            false if is_in_vain => {
                let unused_bytes = pool.stats().unused_bytes;
                MissedRun { bytes: missed_bytes, unused_bytes, was_called_off: false }
            }
            false => MissedRun { was_called_off: true, ..*self },
        };
    }
}

impl Pool {
    /// Whether the pool has grown since the last call although at least 16 MiB, and a quarter of the bytes in
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
                if self.shared.pool.has_outgrown_waste() && self.compact_outgrown() {
                    let _ = self.cut_unasked();
                }
                outcome
            }
        }
    }

    #[cold]
    fn change_again<T>(&self, mut full: Error, change: &dyn Fn() -> Result<T>) -> Result<T> {
        let mut compactions = 0..COMPACTIONS_MAX;
        while self.shared.make_room() || compactions.next().is_some() && self.compact_for_room() {
            match change() {
                Err(e @ Error::Full { .. }) => full = e,
                outcome => return outcome,
            }
        }
        Err(full)
    }

    /// After the pool has grown over its holes: compacts it, if that is not switched off; returns whether it
    /// has made room. A program that compacts the pool itself finds out by
    /// [`take_outgrown_waste`](Self::take_outgrown_waste).
    #[cold]
    pub(crate) fn compact_outgrown(&self) -> bool {
        let is_off = self.shared.compacting.is_off.load(Ordering::Relaxed);
        !is_off && self.shared.pool.take_outgrown_waste() && self.compact_for_room()
    }

    /// Compacts the pool, if that is not switched off and may help; returns whether it has made room.
    #[cold]
    pub(crate) fn compact_for_room(&self) -> bool {
        let AutoCompaction { is_off, futile_at, run } = &self.shared.compacting;
        let run = || run.lock().unwrap_or_else(PoisonError::into_inner);
        let futile = futile_at.load(Ordering::Relaxed);
        let is_futile = futile != 0 && self.spare_bytes() < futile + WORTH_BYTES;
        // A run for a large value may be made where no byte becomes free besides.
        let missed_bytes = self.missed_run_bytes();
        if is_off.load(Ordering::Relaxed) || is_futile && !run().may_be_made(self) {
            return false;
        }
        let rounds = self.compact_while(&|| false, false).unwrap_or_default();
        futile_at.store(self.spare_bytes() + 1, Ordering::Relaxed);
        run().note_compaction(self, missed_bytes);
        rounds.all.freed_bytes > 0 || rounds.has_made_run
    }
}

#[cfg(test)]
mod tests {
    use crate::{Durability, Options};

    /// Once a second lane has written, each commit looks for lines of other lanes. A pool with one writer was
    /// a seventh slower for good after its first compaction.
    #[test]
    fn a_compaction_leaves_a_pool_with_one_writer_with_one_lane() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().durability(Durability::PageCache).create(true).initial_bytes(1 << 20);
        let pool = options.max_bytes(16 << 20).open(dir.path().join("a.pool")).unwrap();
        let map = pool.open_map("map").unwrap();
        (0..50_000u32).for_each(|i| _ = map.put(i.to_be_bytes(), [0; 100]).unwrap());
        (0..50_000u32).filter(|i| i % 10 > 0).for_each(|i| _ = map.remove(i.to_be_bytes()).unwrap());
        assert!(pool.compact().unwrap().moved_bytes > 0);
        // A compaction that nobody asks for does this, too.
        (0..50_000u32).for_each(|i| _ = map.put(i.to_be_bytes(), [0; 100]).unwrap());
        (0..50_000u32).filter(|i| i % 10 > 0).for_each(|i| _ = map.remove(i.to_be_bytes()).unwrap());
        (0..10_000u32).for_each(|i| _ = map.put(i.to_be_bytes(), [0; 1000]).unwrap());
        pool.trim().unwrap();
        assert!(pool.shared.pool.has_one_lane());
        // Beside a batch of the same thread it takes a lane of its own.
        let batch = pool.batch().unwrap();
        pool.trim().unwrap();
        drop(batch);
        assert!(!pool.shared.pool.has_one_lane());
    }
}
