//! The allocator of a pool: reserving and releasing blocks, and the slabs that no lane holds.

use super::arena::Arena;
use super::block::{Block, Home, Room, Wanted};
use super::classes::Classes;
use super::primitives::{AtomicBool, AtomicU64, Mutex, Ordering};
use super::slab::{Slab, SlabRef};
use super::sparse::Survey;
use super::table::SlabTable;
use super::zone::{NEWEST_AT, UnreadSlab, Zone};
use crate::layout::{ChunkWord, Geometry};
use crate::{Error, ErrorKind, Result};
use crossbeam_utils::CachePadded;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tembo_pmem::Region;

/// A place among the slabs with free blocks, at which a walk over all of them goes on. Slabs come and go
/// meanwhile: a walk may miss some of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlabPlace {
    class: usize,
    passed: usize,
}

/// The slabs that a step of such a walk looks at, and that it takes, at most: about a millisecond.
const LOOKS_PER_STEP: usize = 1024;
const TAKEN_PER_STEP: usize = 128;

/// Everything that the allocator's lock guards.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) zones: Vec<Zone>,
    /// Slabs with free blocks that no lane holds, by class. Lanes take the front one: it has waited longest,
    /// so other threads had the most time to free more of its blocks.
    pub(super) partial: Vec<VecDeque<Arc<Slab>>>,
    /// Slabs on media that this process has not read yet, by class.
    pub(super) unread: Vec<Vec<UnreadSlab>>,
    /// Zones with this number and below are not scanned yet.
    pub(super) scan_next: usize,
    /// Slabs that a compaction empties. They are held, so that no thread allocates from them.
    pub(super) closed: Vec<Arc<Slab>>,
    pub(super) is_compacting: bool,
    /// Offsets in which nothing is allocated, because a compaction empties them.
    pub(super) evacuated: Option<Range<u64>>,
    /// Slabs and extents that a compaction has left although all was moved that can be, by where they begin.
    pub(super) stuck: HashMap<u64, StuckBlocks>,
    /// The chunks of the largest block or slab that found no run of chunks, until a compaction is to make
    /// one.
    pub(super) missed_chunks: u64,
    /// Sparse slabs were emptied since, for which a slab waits no second time.
    pub(super) has_emptied_first: bool,
    /// The chunks of the run that the last compaction was to empty, or 0.
    pub(super) made_chunks: u64,
    /// A compaction was to make the missed run, or an earlier one.
    pub(super) has_tried_run: bool,
    /// The zone that last supplied new chunks, and the zone that the media word names as such.
    pub(super) newest: usize,
    pub(super) noted_newest: u64,
    /// The pool's length when its slabs were last looked at before it grew.
    pub(super) noted_bytes: Option<u64>,
    pub(super) survey: Survey,
}

/// Blocks that a compaction could not move out of a slab, or an extent.
#[derive(Debug)]
pub(super) struct StuckBlocks {
    /// The bits of the blocks that are not free; none for an extent.
    pub(super) busy: Vec<u64>,
    /// There was room for all movable blocks.
    pub(super) is_sure: bool,
}

/// The allocator of a pool.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(super) geometry: Geometry,
    pub(crate) classes: Classes,
    /// Bytes that hold no data: the journal's.
    pub(crate) set_aside_bytes: u64,
    /// The slabs that this process made or read. Changed under the lock.
    pub(super) slabs: SlabTable,
    pub(super) shared: CachePadded<Mutex<Shared>>,
    /// Whether there are closed slabs. Changed under the lock.
    pub(super) has_closed: AtomicBool,
    /// Whether the pool has grown while a compaction could have made room.
    pub(super) has_outgrown_waste: AtomicBool,
    /// How often lanes were asked to give their slabs up.
    pub(crate) recalls: AtomicU64,
}

const KEPT_BYTES_MAX: u64 = 2 << 20;
/// The number of unread slabs that a search reads before it makes a new slab.
const READS_PER_MISS: usize = 8;

/// Refuses to wait for a lock that a thread of the parent process may have for ever.
pub(super) fn check_process(region: &Region) -> Result<()> {
    if region.is_empty() { Err(ErrorKind::Forked.into()) } else { Ok(()) }
}

impl Allocator {
    /// The allocator of a pool, which takes blocks of fine and of wide classes if the pool announces them.
    pub(crate) fn open(region: &Region, geometry: Geometry, (is_fine, is_wide): (bool, bool)) -> Allocator {
        let classes = Classes::new(geometry.chunk(), is_fine, is_wide);
        let count = geometry.zone_count(region.len());
        let zones: Vec<Zone> = (0..count).map(Zone::new).collect();
        let newest = region.load_u64(geometry.zone_off(0) + NEWEST_AT).unwrap_or(0);
        let shared = Shared {
            newest: usize::try_from(newest).unwrap_or(0).min(zones.len().saturating_sub(1)),
            noted_newest: newest,
            noted_bytes: None,
            survey: Survey::default(),
            partial: vec![VecDeque::new(); classes.len()],
            unread: vec![Vec::new(); classes.len()],
            scan_next: zones.len(),
            closed: Vec::new(),
            is_compacting: false,
            evacuated: None,
            stuck: HashMap::new(),
            missed_chunks: 0,
            has_emptied_first: false,
            made_chunks: 0,
            has_tried_run: false,
            zones,
        };
        let slabs = SlabTable::new(geometry.chunk_key(region.max_bytes()) + 1);
        Allocator {
            geometry,
            classes,
            set_aside_bytes: 0,
            slabs,
            shared: CachePadded::new(Mutex::new(shared)),
            has_closed: AtomicBool::new(false),
            has_outgrown_waste: AtomicBool::new(false),
            recalls: AtomicU64::new(0),
        }
    }

    /// Bytes of the largest possible block.
    pub(crate) fn max_block_bytes(&self) -> u64 {
        (u64::from(self.geometry.zone_chunks) - self.geometry.zone_header_chunks()) * self.geometry.chunk()
    }

    /// Chunks that are kept for transactions that free something: a 64th of the pool, and no more than 2 MiB.
    pub(crate) fn kept_chunks(&self, region: &Region) -> u64 {
        (region.len() / 64).min(KEPT_BYTES_MAX) / self.geometry.chunk()
    }

    /// Chunks that a pool keeps behind this many bytes of its file.
    pub(super) fn kept_chunks_behind(&self, bytes: u64) -> u64 {
        (bytes / 63).min(KEPT_BYTES_MAX).div_ceil(self.geometry.chunk())
    }

    /// Reserves a block that has whole chunks to itself, whatever its size.
    pub(crate) fn reserve_whole_chunks(&self, region: &Region, bytes: u64, room: &Room<'_>) -> Result<Block> {
        self.reserve_extent(region, bytes, room)
    }

    /// Reserves a block from the slab that the lane holds for its size, if that has one.
    #[inline]
    pub(crate) fn reserve_held(&self, arena: &mut Arena, wanted: Wanted) -> Option<Block> {
        let slab = arena.current.get(self.class_of(wanted)?)?.as_ref()?;
        let (index, is_zero) = slab.take()?;
        Some(Block::of_slab(slab, index, is_zero))
    }

    /// The size class of a block; `None` if it is larger than any slab's.
    #[inline]
    fn class_of(&self, wanted: Wanted) -> Option<usize> {
        match wanted {
            Wanted::Bytes(bytes) => self.classes.class_for(bytes),
            Wanted::Words(bytes) => self.classes.class_of_words(bytes),
            Wanted::Tagged => Some(self.classes.tagged()),
        }
    }

    /// Reserves a block.
    pub(crate) fn reserve(
        &self,
        region: &Region,
        arena: &mut Arena,
        wanted: Wanted,
        room: &Room<'_>,
    ) -> Result<Block> {
        let class = match (self.class_of(wanted), wanted) {
            (None, Wanted::Bytes(bytes) | Wanted::Words(bytes)) => {
                return self.reserve_extent(region, bytes, room);
            }
            (class, _) => class.unwrap_or(self.classes.tagged()),
        };
        if arena.current.is_empty() {
            arena.current.resize(self.classes.len(), None);
        }
        loop {
            if let Some(slab) = &arena.current[class] {
                if let Some((index, is_zero)) = slab.take() {
                    return Ok(Block::of_slab(slab, index, is_zero));
                }
                let slab = slab.clone();
                arena.current[class] = None;
                self.shed(slab, &mut arena.pending);
            }
            arena.current[class] = Some(match (arena.take_pending(class), wanted) {
                (Some(slab), _) => slab,
                (None, Wanted::Bytes(bytes) | Wanted::Words(bytes)) if self.classes.is_wide(class) => {
                    match self.find_slab(region, class, room) {
                        // There may be room for the block, if not for a slab.
                        Err(error) if error.is_full() => return self.reserve_extent(region, bytes, room),
                        slab => slab?,
                    }
                }
                (None, _) => self.find_slab(region, class, room)?,
            });
        }
    }

    /// Reserves a block that is larger than asked for, up to a chunk, from a slab that exists: for a pool
    /// without space for another slab.
    pub(crate) fn reserve_larger(&self, arena: &mut Arena, bytes: u64) -> Option<Block> {
        for class in self.classes.not_below(bytes).skip(1) {
            if self.classes.get(class)?.block_bytes > self.geometry.chunk() {
                break;
            }
            let current = arena.current.get_mut(class)?;
            if !current.as_ref().is_some_and(|slab| slab.has_free_block()) {
                let full = current.take();
                full.into_iter().for_each(|slab| self.shed(slab, &mut arena.pending));
                let other = arena.take_pending(class);
                let found = other.or_else(|| self.shared.lock().partial[class].pop_front());
                arena.current[class] = found;
            }
            let taken = arena.current[class].as_ref().and_then(|slab| Some((slab, slab.take()?)));
            if let Some((slab, (index, is_zero))) = taken {
                return Some(Block::of_slab(slab, index, is_zero));
            }
        }
        None
    }

    fn reserve_extent(&self, region: &Region, bytes: u64, room: &Room<'_>) -> Result<Block> {
        if bytes > self.max_block_bytes() {
            return Err(ErrorKind::TooLarge { asked_bytes: bytes, max_bytes: self.max_block_bytes() }.into());
        }
        check_process(region)?;
        let chunks = bytes.div_ceil(self.geometry.chunk());
        let mut shared = self.shared.lock();
        let (zone, chunk, is_zero) = self.take_chunks(&mut shared, region, chunks, room)?;
        Ok(Block {
            off: self.geometry.chunk_off(zone, chunk),
            bytes: chunks * self.geometry.chunk(),
            home: Home::Extent { zone, chunk, chunks },
            is_zero,
        })
    }

    /// A slab of the class with a free block, held for the caller.
    fn find_slab(&self, region: &Region, class: usize, room: &Room<'_>) -> Result<Arc<Slab>> {
        check_process(region)?;
        let mut shared = self.shared.lock();
        if let Some(slab) = shared.partial[class].pop_front() {
            return Ok(slab);
        }
        for _ in 0..READS_PER_MISS {
            let Some(unread) = shared.unread[class].pop() else { break };
            if let Some(slab) = self.adopt(region, unread)? {
                return Ok(slab);
            }
        }
        let shape = *self.classes.get(class).expect("a class of the table");
        let (zone, chunk, is_zero) = self.take_chunks(&mut shared, region, shape.chunks, room)?;
        let off = self.geometry.chunk_off(zone, chunk);
        let slab = Slab::fresh(off, zone, chunk, class, shape, is_zero);
        let chunks = self.chunks_of(&slab);
        // A `SlabRef` relies on the table to keep its slab alive, so an entry in use must not be replaced.
        let taken = || Error::corrupt("a free chunk", off, "no slab in it", "a slab in use");
        self.slabs.insert(slab, chunks).ok_or_else(taken)
    }

    /// Reads a slab that a scan has found; `None` if it is full, held, or freed since the scan.
    fn adopt(&self, region: &Region, unread: UnreadSlab) -> Result<Option<Arc<Slab>>> {
        let UnreadSlab { zone, chunk, class } = unread;
        let word_off = self.geometry.chunk_word_off(zone, chunk);
        if region.load_u64(word_off)? != (ChunkWord::Slab { class }).encode() {
            return Ok(None);
        }
        let slab = self.slab_at(region, zone, chunk, class)?;
        Ok((slab.has_free_block() && slab.hold()).then_some(slab))
    }

    /// The chunks of a slab, as the table numbers them.
    fn chunks_of(&self, slab: &Slab) -> Range<u64> {
        let first = self.geometry.chunk_key(slab.off);
        first..first + slab.class.chunks
    }

    /// The volatile state of the slab at a chunk; read from media if this process does not know it yet. The
    /// caller holds the lock.
    fn slab_at(&self, region: &Region, zone: u64, chunk: u64, class: usize) -> Result<Arc<Slab>> {
        let (off, word_off) =
            (self.geometry.chunk_off(zone, chunk), self.geometry.chunk_word_off(zone, chunk));
        let taken =
            || Error::corrupt("the chunk table", word_off, "slabs beside each other", "one over another");
        if let Some(slab) = self.slabs.get(self.geometry.chunk_key(off)) {
            let is_it = slab.off == off && slab.class_number == class;
            return if is_it { Ok(slab) } else { Err(taken()) };
        }
        let shape = *self.classes.get(class).ok_or_else(|| self.classes.unknown(class, word_off))?;
        self.check_run(region, (zone, chunk), shape.chunks)?;
        let slab = Slab::load(region, (off, zone, chunk), class, shape)?;
        let chunks = self.chunks_of(&slab);
        self.slabs.insert(slab, chunks).ok_or_else(taken)
    }

    /// Gives up a slab, which is added to the partial list if it has free blocks.
    fn put_slab(&self, slab: Arc<Slab>) {
        slab.let_go();
        if slab.has_free_block() && slab.hold() {
            self.shared.lock().put(slab);
        }
    }

    /// Gives up a slab, or keeps it until the end of the transaction if the transaction may have to publish
    /// it.
    fn shed(&self, slab: Arc<Slab>, pending: &mut Vec<Arc<Slab>>) {
        if slab.is_published() {
            self.put_slab(slab);
        } else {
            pending.push(slab);
        }
    }

    /// Gives up the slabs of a lane while its transaction is under way.
    pub(crate) fn put_arena(&self, arena: &mut Arena) {
        for slab in arena.current.drain(..).flatten() {
            self.shed(slab, &mut arena.pending);
        }
    }

    /// Whether the lanes were asked to give up their slabs since a lane last answered.
    #[inline(always)]
    pub(crate) fn is_recalled(&self, arena: &Arena) -> bool {
        arena.recalls != self.recalls.load(Ordering::Relaxed)
    }

    /// Gives up a lane's slabs between two transactions.
    pub(crate) fn answer_recall(&self, arena: &mut Arena) {
        arena.recalls = self.recalls.load(Ordering::Relaxed);
        self.put_arena(arena);
        self.put_pending(arena);
    }

    /// Gives up the slabs that were kept until the end of the transaction.
    pub(crate) fn put_pending(&self, arena: &mut Arena) {
        arena.pending.drain(..).for_each(|slab| self.put_slab(slab));
    }

    /// Prefetches the word of a block's slab that [`release`](Self::release) changes.
    pub(crate) fn prefetch_for_release(&self, block: &Block) {
        if let Home::Slab(slab, index) = &block.home {
            slab.prefetch_for_release(*index);
        }
    }

    /// Makes blocks available again that no reader or record can reach any more. `arena` belongs to the
    /// calling lane. Takes the lock only for extents, and for slabs that no lane holds: full slabs, and slabs
    /// that were read for this block.
    pub(crate) fn release(&self, blocks: impl Iterator<Item = Block>, arena: Option<&Arena>) {
        // The loop still refers to slabs after it has released their blocks; the pin keeps them alive.
        let _slabs_stay = self.slabs.pin();
        for block in blocks {
            match &block.home {
                Home::Slab(slab, index) if arena.is_some_and(|arena| arena.is_current(slab)) => {
                    slab.release(*index)
                }
                Home::Slab(slab, index) => {
                    slab.release(*index);
                    if slab.hold() {
                        self.shared.lock().put(slab.counted());
                    }
                }
                Home::Extent { zone, chunk, chunks } => {
                    let mut shared = self.shared.lock();
                    shared.stuck.remove(&block.off);
                    shared.zones[*zone as usize].put_run(*chunk, *chunks);
                }
            }
        }
    }

    /// Finds the allocated block that starts at `off`, as media has it, and claims it. Takes no lock for
    /// blocks of slabs that are known.
    pub(crate) fn find_block(&self, region: &Region, off: u64) -> Result<Block> {
        let find_known =
            || self.slabs.look(self.geometry.chunk_key(off), |slab| claimed_block(region, slab, off));
        if let Some(block) = find_known() {
            return block;
        }
        let place = self.geometry.locate(off).ok_or_else(|| no_block(off))?;
        match self.read_home(region, place, off)? {
            Some(extent) => Ok(extent),
            None => find_known().unwrap_or_else(|| Err(no_block(off))),
        }
    }

    /// Whether media has the block at `off` allocated, which this process has seen allocated since it took a
    /// pin that it still has: no other block can lie there by now.
    pub(crate) fn is_allocated(&self, region: &Region, off: u64) -> Result<bool> {
        let in_slab = self.slabs.look(self.geometry.chunk_key(off), |slab| {
            let bit = slab.bit(slab.block_at(off)?);
            Ok(region.load_u64(bit.word_off)? & bit.mask != 0)
        });
        in_slab.unwrap_or_else(|| {
            // This process has freed nothing in a slab that it does not know.
            let is_extent = self
                .geometry
                .locate(off)
                .is_some_and(|(zone, chunk)| off == self.geometry.chunk_off(zone, chunk));
            Ok(!is_extent || self.extent_bytes(region, off) > 0)
        })
    }

    /// The length of the extent at `off`; 0 if there is none.
    pub(crate) fn extent_bytes(&self, region: &Region, off: u64) -> u64 {
        let word_off =
            self.geometry.locate(off).map(|(zone, chunk)| self.geometry.chunk_word_off(zone, chunk));
        let word = word_off.and_then(|at| ChunkWord::decode(region.load_u64(at).ok()?, at).ok());
        if let Some(ChunkWord::Extent { chunks }) = word { chunks * self.geometry.chunk() } else { 0 }
    }

    /// Prefetches the words that [`find_block`](Self::find_block) loads, if the block lies in a known slab.
    pub(crate) fn prefetch_for_free(&self, region: &Region, off: u64) {
        self.slabs.look(self.geometry.chunk_key(off), |slab| {
            if let Ok(index) = slab.block_at(off) {
                let bit = slab.bit(index);
                slab.prefetch(bit);
                region.prefetch_for_store(bit.word_off);
            }
        });
    }

    /// Refuses chunks that do not all lie in the zone, past its header.
    fn check_run(&self, region: &Region, (zone, chunk): (u64, u64), chunks: u64) -> Result<()> {
        let limit = self.geometry.zone_limit(zone, region.len());
        if chunk >= self.geometry.zone_header_chunks() && chunks <= limit.saturating_sub(chunk) {
            return Ok(());
        }
        let word_off = self.geometry.chunk_word_off(zone, chunk);
        Err(Error::corrupt("the chunk table", word_off, "chunks of the zone", format!("{chunks} chunks")))
    }

    /// The extent that starts at `off`, as media has it. If `off` lies in a slab, reads that slab and returns
    /// `None`.
    #[cold]
    fn read_home(&self, region: &Region, (zone, chunk): (u64, u64), off: u64) -> Result<Option<Block>> {
        let word_off = self.geometry.chunk_word_off(zone, chunk);
        let (first, class) = match ChunkWord::decode(region.load_u64(word_off)?, word_off)? {
            ChunkWord::Slab { class } => (chunk, class),
            ChunkWord::SlabRest { back } => {
                let first = chunk.checked_sub(back).ok_or_else(|| no_block(off))?;
                let first_off = self.geometry.chunk_word_off(zone, first);
                match ChunkWord::decode(region.load_u64(first_off)?, first_off)? {
                    ChunkWord::Slab { class } => (first, class),
                    _ => return Err(no_block(off)),
                }
            }
            ChunkWord::Extent { chunks } if off == self.geometry.chunk_off(zone, chunk) => {
                self.check_run(region, (zone, chunk), chunks)?;
                self.scan_zone(region, zone)?;
                let bytes = chunks * self.geometry.chunk();
                let home = Home::Extent { zone, chunk, chunks };
                return Ok(Some(Block { off, bytes, home, is_zero: false }));
            }
            _ => return Err(no_block(off)),
        };
        let shared = self.shared.lock();
        if zone >= shared.zones.len() as u64 {
            return Err(no_block(off));
        }
        self.slab_at(region, zone, first, class)?;
        Ok(None)
    }

    /// The slab that begins at this chunk, if it is known.
    #[cfg(test)]
    pub(crate) fn known_slab(&self, zone: usize, chunk: u64) -> Option<std::sync::Weak<Slab>> {
        let off = self.geometry.chunk_off(zone as u64, chunk);
        self.slabs.get(self.geometry.chunk_key(off)).map(|slab| Arc::downgrade(&slab))
    }

    /// Takes the empty slabs that no lane holds; media still names them. With `all` it reads every slab of
    /// the pool, otherwise it looks only at those that this process knows.
    pub(crate) fn take_empty_slabs(&self, region: &Region, all: bool) -> Result<Vec<Arc<Slab>>> {
        let mut shared = self.shared.lock();
        if all {
            self.read_all(&mut shared, region)?;
        }
        let mut taken = Vec::new();
        let Shared { zones, partial, stuck, .. } = &mut *shared;
        for list in partial {
            // Media does not name a slab whose blocks were never committed.
            let is_unknown = |slab: &Arc<Slab>| slab.is_empty() && !slab.is_published();
            let (mut unknown, known): (VecDeque<_>, VecDeque<_>) = list.drain(..).partition(is_unknown);
            unknown.iter().for_each(|slab| _ = stuck.remove(&slab.off));
            self.free_chunks_of(zones, unknown.make_contiguous());
            let is_spare = |slab: &Arc<Slab>| {
                slab.is_empty() && slab.is_published() && zones[slab.zone as usize].scanned
            };
            let (spare, kept): (VecDeque<_>, VecDeque<_>) = known.into_iter().partition(is_spare);
            *list = kept;
            taken.extend(spare);
        }
        Ok(taken)
    }

    /// As [`take_empty_slabs`](Self::take_empty_slabs), of a few slabs from this place on. Returns the place
    /// to go on at, if there may be more.
    pub(crate) fn take_some_empty_slabs(
        &self,
        region: &Region,
        from: SlabPlace,
    ) -> Result<(Vec<Arc<Slab>>, Option<SlabPlace>)> {
        let mut shared = self.shared.lock();
        self.read_all(&mut shared, region)?;
        let Shared { zones, partial, stuck, .. } = &mut *shared;
        let Some(list) = partial.get_mut(from.class) else { return Ok((Vec::new(), None)) };
        let (mut passed, mut taken, mut unknown) = (from.passed, Vec::new(), Vec::new());
        for _ in 0..LOOKS_PER_STEP {
            let Some(slab) = list.get(passed) else { break };
            if !slab.is_empty() || slab.is_published() && !zones[slab.zone as usize].scanned {
                passed += 1;
                continue;
            }
            // The last one takes its place, and is looked at next.
            let Some(slab) = list.swap_remove_back(passed) else { break };
            if slab.is_published() { &mut taken } else { &mut unknown }.push(slab);
            if taken.len() == TAKEN_PER_STEP {
                break;
            }
        }
        unknown.iter().for_each(|slab| _ = stuck.remove(&slab.off));
        self.free_chunks_of(zones, &unknown);
        let next = SlabPlace { passed, ..from };
        let next = if passed < list.len() { next } else { SlabPlace { class: from.class + 1, passed: 0 } };
        Ok((taken, (next.class < partial.len()).then_some(next)))
    }

    /// Reads every slab of the pool that is not known yet.
    pub(super) fn read_all(&self, shared: &mut Shared, region: &Region) -> Result<()> {
        while self.scan_one(shared, region)? {}
        self.read_unread(shared, region, usize::MAX).map(drop)
    }

    /// Reads up to `limit` slabs that are not known yet, or scans a zone for them; returns whether there may
    /// be more.
    pub(crate) fn read_some(&self, region: &Region, limit: usize) -> Result<bool> {
        let mut shared = self.shared.lock();
        let read = self.read_unread(&mut shared, region, limit)?;
        Ok(read == limit || self.scan_one(&mut shared, region)?)
    }

    /// Reads up to `limit` slabs of scanned zones; returns how many.
    fn read_unread(&self, shared: &mut Shared, region: &Region, limit: usize) -> Result<usize> {
        let mut read = 0;
        for class in 0..shared.unread.len() {
            while read < limit {
                let Some(unread) = shared.unread[class].pop() else { break };
                if let Some(slab) = self.adopt(region, unread)? {
                    shared.partial[class].push_back(slab);
                }
                read += 1;
            }
        }
        Ok(read)
    }

    /// Frees the chunks of slabs that media no longer names.
    pub(crate) fn forget_slabs(&self, slabs: &[Arc<Slab>]) {
        let mut shared = self.shared.lock();
        for slab in slabs {
            shared.stuck.remove(&slab.off);
        }
        self.free_chunks_of(&mut shared.zones, slabs);
    }

    fn free_chunks_of(&self, zones: &mut [Zone], slabs: &[Arc<Slab>]) {
        if slabs.is_empty() {
            return;
        }
        self.slabs.remove(slabs.iter().map(|slab| (&**slab, self.chunks_of(slab))));
        for slab in slabs {
            zones[slab.zone as usize].put_run(slab.chunk, slab.class.chunks);
        }
    }

    /// Gives slabs back to the partial lists, after a trim that failed.
    pub(crate) fn restore_slabs(&self, slabs: Vec<Arc<Slab>>) {
        let mut shared = self.shared.lock();
        slabs.into_iter().for_each(|slab| shared.partial[slab.class_number].push_back(slab));
    }
}

#[cold]
fn no_block(off: u64) -> Error {
    Error::corrupt("a block", off, "the start of an allocated block", "something else")
}

/// The block of a slab that starts at `off`, if media has it allocated and no other transaction is freeing
/// it.
#[inline]
fn claimed_block(region: &Region, slab: SlabRef, off: u64) -> Result<Block> {
    let index = slab.block_at(off)?;
    let bit = slab.bit(index);
    // The commit changes the word, after its fence.
    region.prefetch_for_store(bit.word_off);
    if !slab.claim(bit) {
        return Err(Error::corrupt("a block", off, "an allocated block", "a free one"));
    }
    Ok(Block::in_slab(slab, index, false))
}
