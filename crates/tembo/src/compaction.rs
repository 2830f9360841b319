//! Compaction: records and nodes move out of sparse slabs, which become free space.

use crate::contents::Kind;
use crate::{Error, Pool, Result};
use std::time::{Duration, Instant};

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
    /// The maps that are left, the next one last.
    maps: Vec<String>,
    /// The key from which the next map goes on.
    from: Vec<u8>,
    moved_bytes: u64,
}

impl Compaction {
    /// Moves blocks for about `budget`, or a little more; returns whether there is more to do. Other writers
    /// of the maps wait during one leaf at a time, readers never.
    ///
    /// # Errors
    ///
    /// As for [`Map::put`](crate::Map::put), but for a full pool, in which the compaction ends.
    pub fn step(&mut self, budget: Duration) -> Result<bool> {
        let started = Instant::now();
        while let Some(name) = self.maps.last() {
            let map = self.pool.find_map(name)?;
            let step = map.map(|map| map.compact_at(&self.chosen, &self.from)).transpose();
            match step.map(Option::flatten) {
                Ok(Some(step)) => {
                    self.moved_bytes += step.moved_bytes;
                    match step.next {
                        Some(next) => self.from = next,
                        None => self.leave_map(),
                    }
                }
                Ok(None) => self.leave_map(),
                Err(Error::Full { .. }) => self.maps.clear(),
                Err(error) => return Err(error),
            }
            if started.elapsed() >= budget && !self.maps.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn leave_map(&mut self) {
        self.maps.pop();
        self.from.clear();
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
    /// Records and nodes of maps without versions can move; everything else stays where it is.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], and [`Error::Pool`] when the pool is damaged.
    pub fn compaction(&self) -> Result<Option<Compaction>> {
        let Some(chosen) = self.shared.pool.compaction()? else { return Ok(None) };
        if chosen.is_empty() {
            return Ok(None);
        }
        let is_map = |listed: &crate::Listed| matches!(listed.kind, Kind::Map);
        let maps = self.list()?.into_iter().filter(is_map).map(|listed| listed.name).collect();
        Ok(Some(Compaction { pool: self.clone(), chosen, maps, from: Vec::new(), moved_bytes: 0 }))
    }

    /// Compacts the pool until nothing more can be gained. Crashes and readers at any moment find everything
    /// as it is; other writers go on in between. Takes time in proportion to the records of the maps.
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
        let mut sum = Compacted::default();
        while let Some(mut compaction) = self.compaction()? {
            let before = self.stats().unused_bytes;
            while compaction.step(STEP)? {}
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
