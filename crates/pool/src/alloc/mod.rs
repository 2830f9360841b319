//! The allocator: blocks that are reserved in DRAM and published by a record.
//!
//! # Media layout
//!
//! Space is divided into zones, zones into chunks. A zone begins with its frontier and its chunk table, a
//! word per chunk: zero, a slab, a later chunk of a slab, or an extent. A slab is one to sixteen chunks of
//! equal blocks without headers, with an allocation bitmap at its start; larger blocks are extents, whole
//! chunks. One class has *tagged lines*: four lines follow one with the tags of all four, two words each, and are a group. Groups begin at multiples of their
//! length, so that a line's offset says where its tag lies. See `layout.rs` for the structs.
//!
//! # Invariants
//!
//! * I1: a block is allocated exactly if its bitmap bit is set, or its extent is named in the chunk table.
//! * I2: slabs and extents lie below their zone's frontier and do not overlap; the chunk words inside an
//!   extent, and from the frontier on, are zero.
//! * I3: no bitmap bit stands past the slab's last block.
//! * I4: allocated = reachable, after every crash. (Checked with [`Marks`](crate::Marks) by the owners of
//!   the structures.)
//! * I5: the tag of a line is memory of its block, and of no other.
//! * I7: chunks from `zero_from` on read as zero on media: that word is raised, durably, before one of them is handed out.
//!
//! `check.rs` walks I1 to I3, and of I7 that `zero_from` is past all that was handed out; it does not read unused space.
//!
//! # Commit point
//!
//! Reserving a block changes DRAM only. The record that links the block also sets its bit (or names its
//! extent, or a new slab), so allocation adds no fence, and one line. Freeing clears the bit the same way.
//!
//! # The last of the space
//!
//! Some chunks are kept for transactions that free something ([`Tx::use_kept_space`](crate::Tx::use_kept_space)), which may need a block for
//! that: a copy of a node, a place in a queue, a record that a lane has no room for. All others find the pool full, or make it longer, when
//! no more than these are left. They are kept in DRAM only, by counting what is free, so that media says nothing of them.
//!
//! # Recovery
//!
//! Nothing is done here: a record is replayed or it is not. A block whose reservation was never committed
//! is free on media. Zones are scanned, and slabs read, when the first allocation needs them, so
//! opening does not depend on the size of the pool. Which zone new chunks were last taken from is noted, without care for its
//! durability, so that the first allocation does not have to look at all of them.
//!
//! # Concurrency
//!
//! A lane allocates from slabs that it alone holds; the bits in DRAM are atomic, because others may free
//! into them. Whoever frees a block finds its slab in a table, without a lock (`table.rs`). Chunks, and the lists of partial
//! slabs, are behind one lock, taken once per slab. Two lanes can have changes of the same media word in flight only as bit
//! operations and maxima, which commute.
//!
//! Freed blocks wait in the lane's limbo (`lane.rs`) until no reader and no live record can touch them.
//!
//! # Source
//!
//! NV-heaps 3.3 (operation descriptors for allocation, per-thread caches). D1: bitmaps instead of free
//! lists, so that allocation is one idempotent bit in the caller's record instead of a descriptor with
//! barriers of its own. D2: nothing is rebuilt at open.

pub(crate) mod check;
pub(crate) mod classes;
pub(crate) mod slab;
mod table;
pub(crate) mod zone;

use crate::layout::{ChunkWord, Geometry, PmZone, TAG_BYTES, tag_off};
use crate::{Error, Result};
use classes::Classes;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use slab::{Slab, SlabRef};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use table::SlabTable;
use tembo_pmem::{Region, RegionError, offset_of};
use zone::{UnreadSlab, Zone};

/// A block that a transaction holds or freed.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub off: u64,
    pub bytes: u64,
    pub home: Home,
    /// Whether it is known to read as zero on media (I7), as it was never handed out before.
    pub is_zero: bool,
}

/// What block is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// One of at least so many bytes.
    Bytes(u64),
    /// A line with a tag.
    Tagged,
}

/// What a lane may take of the space that there is.
pub(crate) struct Room<'r> {
    /// Makes the pool longer: at least to the first length, to the second if it can be.
    pub grow: &'r dyn Fn(u64, u64) -> Result<()>,
    /// Chunks that are left for those who free something ([`Allocator::kept_chunks`]).
    pub kept_chunks: u64,
}

/// What a block is part of.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// A slab, and the number of the block in it.
    Slab(SlabRef, u64),
    Extent {
        zone: u64,
        chunk: u64,
        chunks: u64,
    },
}

impl Block {
    /// The number of the block in the slab, if it is one of its.
    pub(crate) fn index_in(&self, slab: &SlabRef) -> Option<u64> {
        match &self.home {
            Home::Slab(home, index) if home.is(slab) => Some(*index),
            _ => None,
        }
    }

    /// Where it lies: a first byte and a length, and those of its tag, if it has one.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        [(self.off, self.bytes)].into_iter().chain(self.tag_off().map(|off| (off, TAG_BYTES)))
    }

    /// Where its tag lies, if it has one.
    pub(crate) fn tag_off(&self) -> Option<u64> {
        match &self.home {
            Home::Slab(slab, _) if slab.class.is_tagged => Some(tag_off(self.off)),
            _ => None,
        }
    }

    /// Takes the claim on a block back, which then is not freed.
    pub(crate) fn unclaim(&self) {
        if let Home::Slab(slab, index) = &self.home {
            slab.unclaim(slab.bit(*index));
        }
    }

    fn in_slab(slab: SlabRef, index: u64, is_zero: bool) -> Block {
        let (off, bytes) = (slab.block_off(index), slab.class.usable_bytes());
        Block { off, bytes, home: Home::Slab(slab, index), is_zero }
    }

    /// The block of a slab with this number, which is taken.
    fn of_slab(slab: &Arc<Slab>, index: u64, is_zero: bool) -> Block {
        let counted = NonNull::new(Arc::as_ptr(slab).cast_mut()).expect("not null");
        // SAFETY: slabs come from the table. The caller took the block, so that nobody else releases it; the reference is part of the block.
        Block::in_slab(unsafe { SlabRef::new(counted) }, index, is_zero)
    }
}

/// The slabs that a lane allocates from, by class.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    current: Vec<Option<Arc<Slab>>>,
    /// Slabs that the lane is done with, but that its transaction may have to publish: two lanes must not do that at
    /// once, so that nobody else gets them before the transaction is over.
    pending: Vec<Arc<Slab>>,
}

impl Arena {
    #[inline]
    pub(crate) fn has_none_pending(&self) -> bool {
        self.pending.is_empty()
    }

    fn is_current(&self, slab: &SlabRef) -> bool {
        let current = self.current.get(slab.class_number).and_then(Option::as_ref);
        current.is_some_and(|current| std::ptr::eq(Arc::as_ptr(current), &**slab))
    }
}

/// What the allocator's lock guards.
#[derive(Debug)]
struct Shared {
    zones: Vec<Zone>,
    /// Slabs with free blocks that no lane holds, by class. The first is taken first: since it came, others may have freed more of its blocks.
    partial: Vec<VecDeque<Arc<Slab>>>,
    /// Slabs on media that nobody read yet, by class.
    unread: Vec<Vec<UnreadSlab>>,
    /// Zones from this one down are not scanned yet.
    scan_next: usize,
    /// The zone that new chunks were last taken from, and what media says of that.
    newest: usize,
    noted_newest: u64,
}

/// The allocator of a pool.
#[derive(Debug)]
pub(crate) struct Allocator {
    geometry: Geometry,
    pub(crate) classes: Classes,
    /// The slabs that this process made or read. Changed under the lock.
    slabs: SlabTable,
    shared: CachePadded<Mutex<Shared>>,
}

const NEWEST_AT: u64 = offset_of!(PmZone, newest) as u64;
const KEPT_BYTES_MAX: u64 = 2 << 20;
/// How many unread slabs are looked into before a new slab is made.
const READS_PER_MISS: usize = 8;

/// Refuses to wait for a lock that a thread of the parent process may have for ever.
fn check_process(region: &Region) -> Result<()> {
    if region.is_empty() { Err(Error::Forked) } else { Ok(()) }
}

impl Allocator {
    pub(crate) fn open(region: &Region, geometry: Geometry) -> Allocator {
        let classes = Classes::new(geometry.chunk());
        let count = geometry.zone_count(region.len());
        let zones: Vec<Zone> = (0..count).map(Zone::new).collect();
        let newest = region.load_u64(geometry.zone_off(0) + NEWEST_AT).unwrap_or(0);
        let shared = Shared {
            newest: usize::try_from(newest).unwrap_or(0).min(zones.len().saturating_sub(1)),
            noted_newest: newest,
            partial: vec![VecDeque::new(); classes.len()],
            unread: vec![Vec::new(); classes.len()],
            scan_next: zones.len(),
            zones,
        };
        let slabs = SlabTable::new(geometry.chunk_key(region.max_bytes()) + 1);
        Allocator { geometry, classes, slabs, shared: CachePadded::new(Mutex::new(shared)) }
    }

    /// The largest block there can be.
    pub(crate) fn max_block_bytes(&self) -> u64 {
        (u64::from(self.geometry.zone_chunks) - self.geometry.zone_header_chunks()) * self.geometry.chunk()
    }

    /// Chunks that are kept for transactions that free something: a 64th of the pool, and no more than 2 MiB.
    pub(crate) fn kept_chunks(&self, region: &Region) -> u64 {
        (region.len() / 64).min(KEPT_BYTES_MAX) / self.geometry.chunk()
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
            (None, Wanted::Bytes(bytes)) => return self.reserve_extent(region, bytes, room),
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
            arena.current[class] = Some(self.find_slab(region, class, room)?);
        }
    }

    fn reserve_extent(&self, region: &Region, bytes: u64, room: &Room<'_>) -> Result<Block> {
        if bytes > self.max_block_bytes() {
            return Err(Error::TooLarge { asked_bytes: bytes, max_bytes: self.max_block_bytes() });
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
        // References to a slab rely on the table (`SlabRef`), so that none takes the place of another.
        let taken = || Error::corrupt("a free chunk", off, "no slab in it", "a slab in use");
        self.slabs.insert(slab, chunks).ok_or_else(taken)
    }

    /// Reads a slab that a scan saw; `None` if it is full, held, or gone meanwhile.
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

    /// The volatile side of the slab at a chunk, read from media if it is not known yet. The caller has the lock.
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

    /// Takes consecutive chunks: used before, new, or by growing; in this order. Says whether they read as zero.
    fn take_chunks(
        &self,
        shared: &mut Shared,
        region: &Region,
        chunks: u64,
        room: &Room<'_>,
    ) -> Result<(u64, u64, bool)> {
        loop {
            if let Some(place) = self.take_used_or_new(shared, region, chunks, room.kept_chunks)? {
                return Ok(place);
            }
            if self.scan_one(shared, region)? {
                continue;
            }
            let committed = region.len();
            let (least, wanted) = self.growth(shared, chunks, room.kept_chunks, committed);
            (room.grow)(least, wanted)?;
            for zone in shared.zones.len() as u64..self.geometry.zone_count(region.len()) {
                shared.zones.push(Zone::new(zone));
            }
        }
    }

    fn take_used_or_new(
        &self,
        shared: &mut Shared,
        region: &Region,
        chunks: u64,
        kept_chunks: u64,
    ) -> Result<Option<(u64, u64, bool)>> {
        if !self.leaves(shared, region, chunks, kept_chunks)? {
            return Ok(None);
        }
        for zone in &mut shared.zones {
            if let Some(chunk) = zone.take_run(chunks) {
                let (off, bytes) =
                    (self.geometry.chunk_off(zone.number, chunk), chunks * self.geometry.chunk());
                // The run may have been given back to the file system, by this process or an earlier one.
                if let Err(e) = region.reallocate(off, bytes) {
                    zone.put_run(chunk, chunks);
                    return Err(full(bytes, &e));
                }
                return Ok(Some((zone.number, chunk, false)));
            }
        }
        let committed = region.len();
        let Shared { zones, newest, noted_newest, .. } = shared;
        // From the newest on: to look at all zones of a large pool would take long.
        for number in (*newest..zones.len()).chain(0..*newest) {
            let zone = &mut zones[number];
            let limit = self.geometry.zone_limit(zone.number, committed);
            if let Some((chunk, is_zero)) = zone.take_new(region, &self.geometry, chunks, limit)? {
                let found = zone.number;
                *newest = number;
                if found != *noted_newest {
                    *noted_newest = found;
                    region.store_u64(self.geometry.zone_off(0) + NEWEST_AT, found)?;
                }
                return Ok(Some((found, chunk, is_zero)));
            }
        }
        Ok(None)
    }

    /// Whether the chunks that would be taken leave as many as are kept, half of them beside each other; or four times as many in any pieces,
    /// where nothing of that length is left.
    fn leaves(&self, shared: &mut Shared, region: &Region, chunks: u64, kept_chunks: u64) -> Result<bool> {
        if kept_chunks == 0 {
            return Ok(true);
        }
        let committed = region.len();
        let Shared { zones, newest, .. } = shared;
        let unused = |zone: &mut Zone| {
            zone.read(region, &self.geometry)?;
            Ok(self.geometry.zone_limit(zone.number, committed).saturating_sub(zone.frontier))
        };
        // Nearly always.
        if unused(&mut zones[*newest])? >= chunks + kept_chunks {
            return Ok(true);
        }
        let unused: Vec<u64> = zones.iter_mut().map(unused).collect::<Result<_>>()?;
        let runs = || zones.iter().flat_map(|zone| zone.runs().map(|(_, length)| length));
        let pieces = || runs().chain(unused.iter().copied());
        if pieces().any(|length| length >= chunks + kept_chunks) {
            return Ok(true);
        }
        // As they are taken: the first run of those that were used, or what was not used of a zone.
        let in_order = (*newest..unused.len()).chain(0..*newest).map(|number| unused[number]);
        let Some(taken) = runs().chain(in_order).find(|length| *length >= chunks) else { return Ok(true) };
        let longest = pieces().filter(|length| *length != taken).max().unwrap_or(0);
        let has_equal = pieces().filter(|length| *length == taken).nth(1).is_some();
        let longest = longest.max(if has_equal { taken } else { taken - chunks });
        let left = pieces().sum::<u64>() - chunks;
        // Half, so that a removal that took a chunk out of the longest piece does not lock out writes into space that is freed then.
        Ok(left >= kept_chunks && longest >= kept_chunks / 2 || left >= 4 * kept_chunks)
    }

    /// Scans one more zone; false if all are.
    fn scan_one(&self, shared: &mut Shared, region: &Region) -> Result<bool> {
        while shared.scan_next > 0 {
            shared.scan_next -= 1;
            if !shared.zones[shared.scan_next].scanned {
                self.scan(shared, region, shared.scan_next)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scan(&self, shared: &mut Shared, region: &Region, zone: usize) -> Result<()> {
        let mut found = Vec::new();
        shared.zones[zone].scan(region, &self.geometry, &self.classes, &mut found)?;
        for slab in found {
            // Slabs that this process made or read already are in its lists.
            let off = self.geometry.chunk_off(slab.zone, slab.chunk);
            if !self.slabs.has(self.geometry.chunk_key(off)) {
                shared.unread[slab.class].push(slab);
            }
        }
        Ok(())
    }

    /// Scans a zone before one of its extents is freed, so that a later scan cannot take the extent for free
    /// while readers still look at it.
    fn scan_zone(&self, region: &Region, zone: u64) -> Result<()> {
        check_process(region)?;
        let mut shared = self.shared.lock();
        match shared.zones.get(zone as usize) {
            Some(z) if !z.scanned => self.scan(&mut shared, region, zone as usize),
            _ => Ok(()),
        }
    }

    /// The least length of the pool that would have room for `chunks` more, and `kept` beside them, and a length worth growing to.
    fn growth(&self, shared: &Shared, chunks: u64, kept: u64, committed: u64) -> (u64, u64) {
        let g = &self.geometry;
        let (header, zone_chunks) = (g.zone_header_chunks(), u64::from(g.zone_chunks));
        let last = shared.zones.last().map_or(0, |z| z.number);
        let frontier = shared.zones.last().map_or(header, |z| z.frontier);
        let least = if frontier + chunks + kept <= zone_chunks {
            g.chunk_off(last, frontier + chunks + kept)
        } else if header + chunks + kept <= zone_chunks {
            g.chunk_off(last + 1, header + chunks + kept)
        } else {
            g.chunk_off(last + 2, header + kept)
        };
        let step = (committed / 16).clamp(16 << 20, 1 << 30);
        let wanted = committed + step;
        (least, least.max(wanted.div_ceil(g.chunk()) * g.chunk()))
    }

    /// Lets go of a slab: it becomes partial if it has free blocks.
    fn put_slab(&self, slab: Arc<Slab>) {
        slab.let_go();
        if slab.has_free_block() && slab.hold() {
            self.shared.lock().partial[slab.class_number].push_back(slab);
        }
    }

    /// Lets go of a slab, or keeps it until the end of the transaction if that may have to publish it.
    fn shed(&self, slab: Arc<Slab>, pending: &mut Vec<Arc<Slab>>) {
        if slab.is_published() {
            self.put_slab(slab);
        } else {
            pending.push(slab);
        }
    }

    /// Lets go of a lane's slabs, in the middle of its transaction.
    pub(crate) fn put_arena(&self, arena: &mut Arena) {
        for slab in arena.current.drain(..).flatten() {
            self.shed(slab, &mut arena.pending);
        }
    }

    /// Lets go of the slabs that were kept until the end of the transaction.
    pub(crate) fn put_pending(&self, arena: &mut Arena) {
        arena.pending.drain(..).for_each(|slab| self.put_slab(slab));
    }

    /// Has what [`release`](Self::release) changes of a block's slab come.
    pub(crate) fn prefetch_for_release(&self, block: &Block) {
        if let Home::Slab(slab, index) = &block.home {
            slab.prefetch_for_release(*index);
        }
    }

    /// Makes blocks available again that nobody can look at any more. `arena` is that of the calling lane. Takes the lock only for extents,
    /// and for slabs that nobody holds: those without a free block, and those that were read for this one.
    pub(crate) fn release(&self, blocks: impl Iterator<Item = Block>, arena: Option<&Arena>) {
        // A reference leads somewhere until its block is released, and no longer but for this.
        let _slabs_stay = self.slabs.pin();
        for block in blocks {
            match &block.home {
                Home::Slab(slab, index) if arena.is_some_and(|arena| arena.is_current(slab)) => {
                    slab.release(*index)
                }
                Home::Slab(slab, index) => {
                    slab.release(*index);
                    if slab.hold() {
                        self.shared.lock().partial[slab.class_number].push_back(slab.counted());
                    }
                }
                Home::Extent { zone, chunk, chunks } => {
                    self.shared.lock().zones[*zone as usize].put_run(*chunk, *chunks);
                }
            }
        }
    }

    /// Finds the allocated block that starts at `off`, as media has it, and claims it. Takes no lock for blocks of slabs that are known.
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

    /// Has what [`find_block`](Self::find_block) will look at come, if the block is one of a slab that is known.
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

    /// The extent that starts at `off`, as media has it; or, if it lies in a slab, `None`, after that was read.
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

    /// Scans all zones.
    #[cfg(test)]
    pub(crate) fn scan_all(&self, region: &Region) -> Result<()> {
        let mut shared = self.shared.lock();
        while self.scan_one(&mut shared, region)? {}
        Ok(())
    }

    /// The slab that begins at this chunk, if it is known.
    #[cfg(test)]
    pub(crate) fn known_slab(&self, zone: usize, chunk: u64) -> Option<std::sync::Weak<Slab>> {
        let off = self.geometry.chunk_off(zone as u64, chunk);
        self.slabs.get(self.geometry.chunk_key(off)).map(|slab| Arc::downgrade(&slab))
    }

    /// Bytes in chunks that are known to be free.
    pub(crate) fn unused_bytes(&self, region: &Region) -> u64 {
        let mut shared = self.shared.lock();
        let unused = |zone: &mut Zone| {
            let limit = self.geometry.zone_limit(zone.number, region.len());
            // Of a zone that is damaged nothing can be used.
            zone.read(region, &self.geometry)
                .map_or(0, |()| zone.free_chunks + limit.saturating_sub(zone.frontier))
        };
        shared.zones.iter_mut().map(unused).sum::<u64>() * self.geometry.chunk()
    }

    /// Gives the space of free runs of at least `least_bytes` back to the file system; returns the bytes.
    pub(crate) fn punch(&self, region: &Region, least_bytes: u64) -> u64 {
        let shared = self.shared.lock();
        let runs = shared
            .zones
            .iter()
            .flat_map(|zone| zone.runs().map(|(start, chunks)| (zone.number, start, chunks)));
        runs.filter(|(_, _, chunks)| chunks * self.geometry.chunk() >= least_bytes)
            .map(|(zone, start, chunks)| {
                region.punch(self.geometry.chunk_off(zone, start), chunks * self.geometry.chunk())
            })
            .sum()
    }

    /// Takes the slabs without blocks that nobody holds; media still names them. `all` reads every slab of the
    /// pool for that, otherwise only those that this process knows are looked at.
    pub(crate) fn take_empty_slabs(&self, region: &Region, all: bool) -> Result<Vec<Arc<Slab>>> {
        let mut shared = self.shared.lock();
        while all && self.scan_one(&mut shared, region)? {}
        for class in 0..shared.unread.len() {
            while let Some(unread) = if all { shared.unread[class].pop() } else { None } {
                if let Some(slab) = self.adopt(region, unread)? {
                    shared.partial[class].push_back(slab);
                }
            }
        }
        let mut taken = Vec::new();
        let Shared { zones, partial, .. } = &mut *shared;
        for list in partial {
            // Media does not know of a slab whose blocks were never committed.
            let is_unknown = |slab: &Arc<Slab>| slab.is_empty() && !slab.is_published();
            let (mut unknown, known): (VecDeque<_>, VecDeque<_>) = list.drain(..).partition(is_unknown);
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

    /// Makes the chunks of slabs, which media no longer names, free.
    pub(crate) fn forget_slabs(&self, slabs: &[Arc<Slab>]) {
        self.free_chunks_of(&mut self.shared.lock().zones, slabs);
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

/// The error for chunks that cannot be had.
pub(crate) fn full(needed_bytes: u64, why: &RegionError) -> Error {
    Error::Full { needed_bytes, why: why.reason() }
}

#[cold]
fn no_block(off: u64) -> Error {
    Error::corrupt("a block", off, "the start of an allocated block", "something else")
}

/// The block of a slab that starts at `off`, if media has it allocated and nobody else is freeing it.
#[inline]
fn claimed_block(region: &Region, slab: SlabRef, off: u64) -> Result<Block> {
    let index = slab.block_at(off)?;
    let bit = slab.bit(index);
    // The commit changes it, after its fence.
    region.prefetch_for_store(bit.word_off);
    if !slab.claim(bit) {
        return Err(Error::corrupt("a block", off, "an allocated block", "a free one"));
    }
    Ok(Block::in_slab(slab, index, false))
}
