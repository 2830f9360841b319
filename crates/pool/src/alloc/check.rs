//! Reading a whole pool without changing it: statistics, and the proof that allocated = reachable.

use super::classes::{Class, Classes};
use super::slab::Slab;
use super::zone::walk_chunks;
use crate::layout::{ChunkWord, Geometry, PmZone};
use crate::{Error, Result};
use std::collections::BTreeMap;
use tembo_pmem::{LINE_BYTES, Region, offset_of};

/// How the space of a pool is used, as media has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Length of the file in use.
    pub pool_bytes: u64,
    /// Bytes of allocated blocks.
    pub allocated_bytes: u64,
    /// Number of allocated blocks.
    pub allocated_blocks: u64,
    /// Bytes of slabs, allocated or not, with their heads.
    pub slab_bytes: u64,
    /// Number of slabs.
    pub slabs: u64,
    /// Number of extents.
    pub extents: u64,
    /// Bytes in chunks that are free, or were never used.
    pub free_chunk_bytes: u64,
}

/// How the space in slabs of one size is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassUsage {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Number of slabs.
    pub slabs: u64,
    /// Blocks that are allocated.
    pub allocated_blocks: u64,
    /// Free blocks, which serve allocations of this size only.
    pub free_blocks: u64,
}

impl ClassUsage {
    /// Bytes of free blocks.
    pub fn free_bytes(&self) -> u64 {
        self.free_blocks * self.block_bytes
    }
}

/// Blocks that were ticked off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// The number of the blocks.
    pub blocks: u64,
    /// The bytes of the blocks.
    pub bytes: u64,
}

/// The allocated blocks of a pool, to be ticked off one by one as they are reached.
///
/// Each block must be reached exactly once: [`reach`](Self::reach) refuses a block that is not allocated or
/// was reached before, and [`finish`](Self::finish) refuses blocks that were not reached.
#[derive(Debug)]
pub struct Marks {
    /// Slabs and extents by offset.
    units: BTreeMap<u64, Unit>,
    usage: Usage,
    reached: Reached,
}

#[derive(Debug)]
struct Unit {
    first_off: u64,
    shape: Shape,
    allocated: Vec<u64>,
    reached: Vec<u64>,
}

/// Where the blocks of a unit lie.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Slab(Class),
    /// One block, with this many bytes.
    Extent(u64),
}

impl Unit {
    fn block_off(&self, index: u64) -> u64 {
        match &self.shape {
            Shape::Slab(class) => class.block_off(self.first_off, index),
            Shape::Extent(_) => self.first_off,
        }
    }

    fn index_of(&self, off: u64) -> Option<u64> {
        match &self.shape {
            Shape::Slab(class) => class.index_of(self.first_off, off),
            Shape::Extent(_) => (off == self.first_off).then_some(0),
        }
    }

    fn usable_bytes(&self) -> u64 {
        match self.shape {
            Shape::Slab(class) => class.usable_bytes(),
            Shape::Extent(bytes) => bytes,
        }
    }

    fn is_tagged(&self) -> bool {
        matches!(self.shape, Shape::Slab(class) if class.is_tagged)
    }
}

/// An allocated block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// The offset at which the block begins.
    pub off: u64,
    /// Bytes that it has.
    pub bytes: u64,
    /// Whether it is a line with a tag ([`Tx::alloc_tagged`](crate::Tx::alloc_tagged)).
    pub is_tagged: bool,
}

impl Marks {
    /// Reads the allocator's structures and checks them. Nothing else may write meanwhile.
    pub(crate) fn read(region: &Region, geometry: &Geometry, classes: &Classes) -> Result<Marks> {
        let mut marks =
            Marks { units: BTreeMap::new(), usage: Usage::default(), reached: Reached::default() };
        let pool_bytes = region.len();
        marks.usage.pool_bytes = pool_bytes;
        for zone in 0..geometry.zone_count(pool_bytes) {
            marks.read_zone(region, geometry, classes, zone)?;
        }
        // The last zone, while it is too short to hold a chunk.
        for word_off in (geometry.zone_off(geometry.zone_count(pool_bytes))..pool_bytes).step_by(8) {
            expect_zero(region, word_off, "a zone that is not used yet")?;
        }
        Ok(marks)
    }

    fn read_zone(
        &mut self,
        region: &Region,
        geometry: &Geometry,
        classes: &Classes,
        zone: u64,
    ) -> Result<()> {
        let frontier = read_frontier(region, geometry, zone)?;
        let limit = geometry.zone_limit(zone, region.len());
        self.usage.free_chunk_bytes += (limit - frontier) * geometry.chunk();
        check_zero_from(region, geometry, zone, frontier)?;
        for unused in frontier..u64::from(geometry.zone_chunks) {
            expect_zero(region, geometry.chunk_word_off(zone, unused), "a chunk word past the frontier")?;
        }
        walk_chunks(region, geometry, classes, zone, frontier, |chunk, word| {
            let off = geometry.chunk_off(zone, chunk);
            match word {
                ChunkWord::Slab { class } => {
                    let shape = *classes.get(class).expect("walk_chunks checked the class");
                    let slab = Slab::load(region, (off, zone, chunk), class, shape)?;
                    check_rest(region, geometry, &slab)?;
                    self.add_slab(&slab, slab_bits(region, &slab)?, geometry.chunk());
                }
                ChunkWord::Extent { chunks } => {
                    for inner in chunk + 1..chunk + chunks {
                        let word_off = geometry.chunk_word_off(zone, inner);
                        expect_zero(region, word_off, "a chunk word inside an extent")?;
                    }
                    self.add_extent(off, chunks * geometry.chunk());
                }
                _ => self.usage.free_chunk_bytes += geometry.chunk(),
            }
            Ok(())
        })
    }
}

fn expect_zero(region: &Region, word_off: u64, what: &'static str) -> Result<()> {
    match region.load_u64(word_off)? {
        0 => Ok(()),
        found => Err(Error::corrupt(what, word_off, 0, found)),
    }
}

fn read_frontier(region: &Region, geometry: &Geometry, zone: u64) -> Result<u64> {
    let off = geometry.zone_off(zone) + offset_of!(PmZone, frontier) as u64;
    let (least, limit) = (geometry.zone_header_chunks(), geometry.zone_limit(zone, region.len()));
    match region.load_u64(off)? {
        0 => Ok(least),
        stored if (least..=limit).contains(&stored) => Ok(stored),
        stored => Err(Error::corrupt("a zone's frontier", off, format!("{least} to {limit}"), stored)),
    }
}

/// Checks that the chunks of a zone from `zero_from` on were never handed out (I7).
fn check_zero_from(region: &Region, geometry: &Geometry, zone: u64, frontier: u64) -> Result<()> {
    let off = geometry.zone_off(zone) + offset_of!(PmZone, zero_from) as u64;
    let zero_from = region.load_u64(off)?;
    if frontier > geometry.zone_header_chunks() && zero_from < frontier {
        let expected = format!("at least the frontier, {frontier}");
        return Err(Error::corrupt("where a zone is zero", off, expected, zero_from));
    }
    Ok(())
}

/// Checks the chunk words of a slab after its first.
fn check_rest(region: &Region, geometry: &Geometry, slab: &Slab) -> Result<()> {
    for (rest, expected) in slab.chunk_words().skip(1) {
        let off = geometry.chunk_word_off(slab.zone, rest);
        let found = region.load_u64(off)?;
        if found != expected.encode() {
            return Err(Error::corrupt("a slab's later chunk", off, expected.encode(), found));
        }
    }
    Ok(())
}

fn slab_bits(region: &Region, slab: &Slab) -> Result<Vec<u64>> {
    (0..slab.class.words() as u64).map(|word| Ok(region.load_u64(slab.off + 8 + 8 * word)?)).collect()
}

impl Marks {
    fn add_slab(&mut self, slab: &Slab, allocated: Vec<u64>, chunk_bytes: u64) {
        let blocks: u64 = allocated.iter().map(|word| u64::from(word.count_ones())).sum();
        self.usage.slabs += 1;
        self.usage.slab_bytes += slab.class.chunks * chunk_bytes;
        self.usage.allocated_blocks += blocks;
        self.usage.allocated_bytes += blocks * slab.class.block_bytes;
        let unit = Unit {
            first_off: slab.class.first_off(slab.off),
            shape: Shape::Slab(slab.class),
            reached: vec![0; allocated.len()],
            allocated,
        };
        self.units.insert(slab.off, unit);
    }

    fn add_extent(&mut self, off: u64, bytes: u64) {
        self.usage.extents += 1;
        self.usage.allocated_blocks += 1;
        self.usage.allocated_bytes += bytes;
        self.units.insert(
            off,
            Unit { first_off: off, shape: Shape::Extent(bytes), allocated: vec![1], reached: vec![0] },
        );
    }

    /// How the space is used.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The blocks that were ticked off so far.
    pub fn reached(&self) -> Reached {
        self.reached
    }

    /// How the slabs are used, by the size of their blocks, the smallest first. Sizes without slabs are left
    /// out.
    pub fn by_class(&self) -> Vec<ClassUsage> {
        let mut classes: BTreeMap<u64, ClassUsage> = BTreeMap::new();
        for unit in self.units.values() {
            let Shape::Slab(class) = unit.shape else { continue };
            let allocated: u64 = unit.allocated.iter().map(|word| u64::from(word.count_ones())).sum();
            let sum = classes.entry(class.block_bytes).or_default();
            sum.block_bytes = class.block_bytes;
            sum.slabs += 1;
            sum.allocated_blocks += allocated;
            sum.free_blocks += class.blocks - allocated;
        }
        classes.into_values().collect()
    }

    /// Ticks off the block that starts at `off` and holds at least `bytes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if there is no such allocated block, or it was
    /// reached before.
    pub fn reach(&mut self, off: u64, bytes: u64) -> Result<()> {
        self.reach_block(off, bytes, false)
    }

    /// Ticks off the tagged line at `off` ([`Tx::alloc_tagged`](crate::Tx::alloc_tagged)).
    ///
    /// # Errors
    ///
    /// As for [`reach`](Self::reach).
    pub fn reach_tagged(&mut self, off: u64) -> Result<()> {
        self.reach_block(off, LINE_BYTES, true)
    }

    fn reach_block(&mut self, off: u64, bytes: u64, is_tagged: bool) -> Result<()> {
        let refuse = |found: &str| {
            Err(Error::corrupt("a reachable block", off, "an allocated block, reached once", found))
        };
        let Some((_, unit)) = self.units.range_mut(..=off).next_back() else { return refuse("no block") };
        let Some(index) = unit.index_of(off) else { return refuse("an offset where no block starts") };
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        if unit.allocated[word] & bit == 0 {
            return refuse("a free block");
        }
        if unit.reached[word] & bit != 0 {
            return refuse("a block that was reached before");
        }
        if unit.is_tagged() != is_tagged {
            return refuse(if is_tagged { "a block without a tag" } else { "a line with a tag" });
        }
        if bytes > unit.usable_bytes() {
            return refuse("a block that is too small");
        }
        unit.reached[word] |= bit;
        self.reached.blocks += 1;
        self.reached.bytes += unit.usable_bytes();
        Ok(())
    }

    /// The blocks that have not been reached so far.
    pub fn unreached(&self) -> impl Iterator<Item = BlockInfo> {
        self.units.values().flat_map(|unit| {
            let words = unit.allocated.iter().zip(&unit.reached).enumerate();
            words.flat_map(move |(word, (allocated, reached))| {
                let left = allocated & !reached;
                let bits = (0..64).filter(move |bit| left >> bit & 1 != 0);
                bits.map(move |bit| {
                    let index = 64 * word as u64 + bit;
                    BlockInfo {
                        off: unit.block_off(index),
                        bytes: unit.usable_bytes(),
                        is_tagged: unit.is_tagged(),
                    }
                })
            })
        })
    }

    /// Ends the check.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if an allocated block was not reached.
    pub fn finish(self) -> Result<Usage> {
        for unit in self.units.values() {
            for (word, (allocated, reached)) in unit.allocated.iter().zip(&unit.reached).enumerate() {
                let leaked = allocated & !reached;
                if leaked != 0 {
                    let index = 64 * word as u64 + u64::from(leaked.trailing_zeros());
                    let off = unit.block_off(index);
                    return Err(Error::corrupt("an allocated block", off, "reachable", "a leak"));
                }
            }
        }
        Ok(self.usage)
    }
}
