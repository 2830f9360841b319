//! The volatile state of a zone: which chunks are free, and which slabs it has.

use super::classes::Classes;
use crate::layout::{ChunkWord, Geometry, PmZone};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use tembo_pmem::{Region, offset_of};

const ZERO_FROM_AT: u64 = offset_of!(PmZone, zero_from) as u64;
/// The place, in zone 0, of the word that names the zone that last supplied new chunks.
pub(super) const NEWEST_AT: u64 = offset_of!(PmZone, newest) as u64;
/// How far ahead `zero_from` is raised: 16 MiB in chunks of the usual size.
const ZERO_STEP_CHUNKS: u64 = 1024;

/// A zone of the pool. Guarded by the allocator's lock.
#[derive(Debug)]
pub(crate) struct Zone {
    pub number: u64,
    is_read: bool,
    /// Chunks from this one on were never used. Never below the frontier on media.
    pub frontier: u64,
    /// The frontier on media when the zone was read. Chunks below it are known after a scan; this process has
    /// taken those above.
    opened_frontier: u64,
    /// `zero_from` on media when the zone was read, and now.
    opened_zero_from: u64,
    zero_from: u64,
    /// Chunks from this one on were not mapped in advance; `populate_chunks` is how many the next call maps.
    populated: u64,
    populate_chunks: u64,
    /// Free runs below the frontier: from first chunk to length. Complete once the zone is scanned.
    free: BTreeMap<u64, u64>,
    pub free_chunks: u64,
    pub scanned: bool,
}

/// A slab that a scan has found and no thread has read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreadSlab {
    pub zone: u64,
    pub chunk: u64,
    pub class: usize,
}

/// The most bytes of unused space that are mapped in advance at a time.
const POPULATE_BYTES: u64 = 512 << 10;

impl Zone {
    /// A zone that is not read yet: its words on media are read when they are needed.
    pub(crate) fn new(number: u64) -> Zone {
        Zone {
            number,
            is_read: false,
            frontier: 0,
            opened_frontier: 0,
            opened_zero_from: 0,
            zero_from: 0,
            populated: 0,
            populate_chunks: 0,
            free: BTreeMap::new(),
            free_chunks: 0,
            scanned: false,
        }
    }

    /// Reads the zone's head, if that was not done yet. No chunk of the zone is taken or freed before this.
    pub(crate) fn read(&mut self, region: &Region, geometry: &Geometry) -> Result<()> {
        if self.is_read {
            return Ok(());
        }
        let header_chunks = geometry.zone_header_chunks();
        let off = geometry.zone_off(self.number);
        let stored = region.load_u64(off)?;
        let limit = geometry.zone_limit(self.number, region.len());
        if stored != 0 && !(header_chunks..=limit).contains(&stored) {
            let expected = format!("{header_chunks} to {limit}");
            return Err(Error::corrupt("a zone's frontier", off, expected, stored));
        }
        let frontier = stored.max(header_chunks);
        let zero_from = region.load_u64(off + ZERO_FROM_AT)?.max(frontier);
        (self.frontier, self.opened_frontier) = (frontier, frontier);
        (self.zero_from, self.opened_zero_from) = (zero_from, zero_from);
        // A zone that was never used has nothing to scan.
        self.scanned = frontier == header_chunks;
        self.is_read = true;
        Ok(())
    }

    /// Reads the chunk table up to the frontier at opening: free runs go to the zone, slabs to `unread`. No
    /// chunk of that part is freed or taken before the scan.
    pub(crate) fn scan(
        &mut self,
        region: &Region,
        geometry: &Geometry,
        classes: &Classes,
        unread: &mut Vec<UnreadSlab>,
    ) -> Result<()> {
        self.read(region, geometry)?;
        let end = self.opened_frontier;
        let mut run_start = None;
        let number = self.number;
        let mut found: Vec<(u64, u64)> = Vec::new();
        walk_chunks(region, geometry, classes, number, end, |chunk, word| {
            match word {
                ChunkWord::Zero => {
                    run_start.get_or_insert(chunk);
                    return Ok(());
                }
                ChunkWord::Slab { class } => unread.push(UnreadSlab { zone: number, chunk, class }),
                _ => {}
            }
            if let Some(start) = run_start.take() {
                found.push((start, chunk - start));
            }
            Ok(())
        })?;
        if let Some(start) = run_start {
            found.push((start, end - start));
        }
        self.scanned = true;
        found.into_iter().for_each(|(start, chunks)| self.put_run(start, chunks));
        Ok(())
    }

    /// Adds a run of free chunks, joining it with its neighbours.
    pub(crate) fn put_run(&mut self, start: u64, chunks: u64) {
        self.free_chunks += chunks;
        let (mut start, mut chunks) = (start, chunks);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
            chunks += length;
        }
        if let Some(length) = self.free.remove(&(start + chunks)) {
            chunks += length;
        }
        self.free.insert(start, chunks);
    }

    /// Takes `chunks` chunks from the first free run that is long enough, of those that are not `evacuated`.
    pub(crate) fn take_run(&mut self, chunks: u64, evacuated: &Range<u64>) -> Option<u64> {
        if self.free_chunks < chunks {
            return None;
        }
        let place = |(start, length): (&u64, &u64)| {
            let (start, end) = (*start, start + length);
            let before = (start, end.min(evacuated.start));
            let behind = (start.max(evacuated.end), end);
            let fits = |(from, to): &(u64, u64)| from + chunks <= *to;
            [before, behind].into_iter().find(fits).map(|(from, _)| (start, end, from))
        };
        let (start, end, from) = self.free.iter().find_map(place)?;
        self.free.remove(&start);
        let left = [(start, from), (from + chunks, end)];
        left.into_iter().filter(|(from, to)| from < to).for_each(|(from, to)| {
            self.free.insert(from, to - from);
        });
        self.free_chunks -= chunks;
        Some(from)
    }

    /// The frontier as media has it.
    pub(crate) fn media_frontier(&self, region: &Region, geometry: &Geometry) -> Result<u64> {
        let stored = region.load_u64(geometry.zone_off(self.number))?;
        Ok(stored.clamp(geometry.zone_header_chunks(), self.frontier.max(geometry.zone_header_chunks())))
    }

    /// Forgets the chunks from `limit` on, which are free and leave the pool.
    pub(crate) fn cut(&mut self, limit: u64) {
        // T4: chunks that were used do not read as zero when they come back.
        self.opened_zero_from = self.opened_zero_from.max(self.frontier);
        self.frontier = self.frontier.min(limit);
        self.opened_frontier = self.opened_frontier.min(limit);
        self.populated = self.populated.min(limit);
        let gone = self.free.split_off(&limit);
        self.free_chunks -= gone.values().sum::<u64>();
        if let Some(mut last) = self.free.last_entry() {
            let over = (last.key() + last.get()).saturating_sub(limit);
            *last.get_mut() -= over;
            self.free_chunks -= over;
        }
    }

    /// Takes chunks that were never used; the zone has `limit` chunks. Returns also whether they read as
    /// zero: a process that crashed may have reserved them and written to them without a commit.
    pub(crate) fn take_new(
        &mut self,
        region: &Region,
        geometry: &Geometry,
        chunks: u64,
        limit: u64,
    ) -> Result<Option<(u64, bool)>> {
        self.read(region, geometry)?;
        let start = self.frontier;
        let end = start + chunks;
        if end > limit {
            return Ok(None);
        }
        if end > self.zero_from {
            // Raised for many chunks at once, since it costs a fence.
            let zero_from = (end + ZERO_STEP_CHUNKS).min(u64::from(geometry.zone_chunks));
            let off = geometry.zone_off(self.number) + ZERO_FROM_AT;
            region.store_u64(off, zero_from)?;
            // PERSIST(I7): `zero_from` is durable before any thread writes to the chunks.
            region.persist(off, 8)?;
            self.zero_from = zero_from;
        }
        if end > self.populated {
            // The first call maps nothing, so that the first allocation is quick; later calls map more each
            // time, so that there are fewer of them.
            self.populated = (start + self.populate_chunks).clamp(end, limit);
            let chunks = self.populated - start;
            if self.populate_chunks > 0 {
                region.populate(geometry.chunk_off(self.number, start), chunks * geometry.chunk());
            }
            self.populate_chunks = (2 * chunks).min(POPULATE_BYTES / geometry.chunk());
        }
        self.frontier = end;
        Ok(Some((start, start >= self.opened_zero_from)))
    }

    /// Every free run.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(start, chunks)| (*start, *chunks))
    }
}

/// Visits the free chunks, slabs and extents of a zone below `frontier`, each by its first chunk.
pub(crate) fn walk_chunks(
    region: &Region,
    geometry: &Geometry,
    classes: &Classes,
    zone: u64,
    frontier: u64,
    mut visit: impl FnMut(u64, ChunkWord) -> Result<()>,
) -> Result<()> {
    let mut chunk = geometry.zone_header_chunks();
    while chunk < frontier {
        let off = geometry.chunk_word_off(zone, chunk);
        let word = ChunkWord::decode(region.load_u64(off)?, off)?;
        let chunks = match word {
            ChunkWord::Zero => 1,
            ChunkWord::Slab { class } => match classes.get(class) {
                Some(class) => class.chunks,
                None => return Err(classes.unknown(class, off)),
            },
            ChunkWord::Extent { chunks } => chunks,
            ChunkWord::SlabRest { .. } => {
                return Err(Error::corrupt(
                    "the chunk table",
                    off,
                    "the first chunk of a slab",
                    "a later one",
                ));
            }
        };
        if chunks > frontier - chunk {
            return Err(Error::corrupt(
                "the chunk table",
                off,
                "a run that ends before the frontier",
                format!("{chunks} chunks"),
            ));
        }
        visit(chunk, word)?;
        chunk += chunks;
    }
    Ok(())
}
