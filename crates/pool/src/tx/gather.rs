//! Gathers the work of a commit from the writes of its transaction: changes of home words, lines to flush and
//! to own, and the record.

use super::bits::{BitChange, add_bit, freed_twice, merge_bits};
use super::slabs::write_slab_heads;
use super::write_set::{Gathered, WriteSet};
use crate::Result;
use crate::alloc::{Block, Home};
use crate::layout::{ChunkWord, Geometry, TAG_BYTES};
use crate::log::image::RecordImage;
use crate::log::record::{COVER_MAX_BYTES, Change, Cover};
use tembo_pmem::{LINE_BYTES, Region};

/// Up to this many home lines are kept as they come; a longer list is freed of duplicates.
const UNSORTED_MAX: usize = 16;

/// Gathers the changes of home words that are not the transaction's own stores: bitmap bits, chunk words and
/// frontiers. Gathers the lines of all changed words as well.
#[inline]
pub(super) fn gather_homes(writes: &mut WriteSet, geometry: &Geometry, only_stores: bool) -> Result<()> {
    writes.gathered.clear();
    if !only_stores {
        gather_other_homes(writes, geometry)?;
    }
    writes.gathered.home_lines.extend(writes.lines.iter().map(|line| line.off / LINE_BYTES));
    Ok(())
}

/// The homes that are not words stored by line.
fn gather_other_homes(writes: &mut WriteSet, geometry: &Geometry) -> Result<()> {
    let WriteSet { steps, gathered, .. } = &mut *writes;
    for (off, _) in steps.redo_words() {
        let line = off / LINE_BYTES;
        if gathered.home_lines.last() != Some(&line) {
            gathered.home_lines.push(line);
        }
    }
    gather_allocated(writes, geometry);
    gather_freed(writes, geometry)?;
    let Gathered { bits, homes, home_lines, .. } = &mut writes.gathered;
    merge_bits(bits)?;
    for (off, _) in homes {
        home_lines.push(*off / LINE_BYTES);
    }
    for change in bits {
        home_lines.push(change.place.word_off / LINE_BYTES);
    }
    Ok(())
}

#[inline(always)]
fn gather_allocated(writes: &mut WriteSet, geometry: &Geometry) {
    let WriteSet { fresh, gathered, .. } = writes;
    let Gathered { bits, homes, new_slabs, .. } = gathered;
    for fresh in fresh.kept() {
        match &fresh.block.home {
            Home::Slab(slab, index) => {
                if slab.is_published() {
                    add_bit(bits, BitChange { place: slab.bit(*index), set: true, slab: *slab });
                } else if !new_slabs.iter().rev().any(|s| s.is(slab)) {
                    new_slabs.push(*slab);
                }
            }
            Home::Extent { zone, chunk, chunks } => {
                let word = ChunkWord::Extent { chunks: *chunks }.encode();
                homes.push((geometry.chunk_word_off(*zone, *chunk), Change::Store(word)));
                homes.push((geometry.zone_off(*zone), Change::Max(chunk + chunks)));
            }
        }
    }
    for slab in new_slabs {
        for (chunk, word) in slab.chunk_words() {
            homes.push((geometry.chunk_word_off(slab.zone, chunk), Change::Store(word.encode())));
        }
        let end = slab.chunk + slab.class.chunks;
        homes.push((geometry.zone_off(slab.zone), Change::Max(end)));
    }
}

#[inline(always)]
fn gather_freed(writes: &mut WriteSet, geometry: &Geometry) -> Result<()> {
    let WriteSet { freed, gathered, .. } = writes;
    for (i, block) in freed.iter().enumerate() {
        match &block.home {
            Home::Slab(slab, index) => {
                let change = BitChange { place: slab.bit(*index), set: false, slab: *slab };
                add_bit(&mut gathered.bits, change);
            }
            Home::Extent { zone, chunk, .. } => {
                if freed[..i].iter().any(|other| other.off == block.off) {
                    return Err(freed_twice(block.off));
                }
                gathered.homes.push((geometry.chunk_word_off(*zone, *chunk), Change::Store(0)));
            }
        }
    }
    Ok(())
}

/// Writes the heads of new slabs, and gathers the lines of new data that are not flushed yet. Returns the
/// number of bytes of new data.
pub(super) fn gather_fresh_lines(writes: &mut WriteSet, region: &Region) -> Result<u64> {
    write_slab_heads(region, writes)?;
    if region.domain().keeps_program_order() {
        return Ok(0);
    }
    let WriteSet { fresh, gathered, .. } = writes;
    let Gathered { fresh_lines, new_slabs, .. } = gathered;
    let mut bytes = 0;
    let add = |lines: &mut Vec<u64>, (start, end): (u64, u64)| {
        let mut line = start / LINE_BYTES;
        while line * LINE_BYTES < end && start < end {
            lines.push(line);
            line += 1;
        }
    };
    for fresh in fresh.kept() {
        add(fresh_lines, fresh.unflushed);
        bytes += fresh.written.1 - fresh.written.0;
        if let Some(tag_off) = fresh.block.tag_off() {
            fresh_lines.push(tag_off / LINE_BYTES);
            bytes += TAG_BYTES;
        }
    }
    for slab in &*new_slabs {
        let head_bytes = 8 + 8 * slab.class.words() as u64;
        add(fresh_lines, (slab.off, slab.off + head_bytes));
        bytes += head_bytes;
    }
    if fresh.len() + new_slabs.len() > 1 {
        fresh_lines.sort_unstable();
        fresh_lines.dedup();
    }
    Ok(bytes)
}

pub(super) fn build_image(writes: &WriteSet, image: &mut RecordImage, with_covers: bool) {
    let gathered = &writes.gathered;
    image.clear();
    gathered.homes.iter().for_each(|(off, change)| image.entry(*off, *change));
    gathered.bits.iter().map(BitChange::entry).for_each(|(off, change)| image.entry(off, change));
    // Any order is correct. With the last word first, the words that trees store fill the record's lines
    // best.
    image.stores(writes.steps.redo_words().rev(), &writes.lines);
    if !with_covers {
        return;
    }
    cover_blocks(writes, image);
    let tags = writes.fresh.kept().filter_map(|f| f.block.tag_off());
    tags.for_each(|off| image.cover(Cover { off, bytes: TAG_BYTES }));
    for slab in &gathered.new_slabs {
        image.cover(Cover { off: slab.off, bytes: 8 + 8 * slab.class.words() as u64 });
    }
}

/// Covers the new data of all blocks. Neighbours, of which one ends where the next begins, share a cover.
#[inline(always)]
fn cover_blocks(writes: &WriteSet, image: &mut RecordImage) {
    let mut add = |(start, end): (u64, u64)| {
        for off in (start..end).step_by(COVER_MAX_BYTES as usize) {
            image.cover(Cover { off, bytes: COVER_MAX_BYTES.min(end - off) });
        }
    };
    let mut run = (0, 0);
    for fresh in writes.fresh.kept().filter(|f| f.written.0 < f.written.1) {
        if fresh.written.0 == run.1 {
            run.1 = fresh.written.1;
        } else {
            add(std::mem::replace(&mut run, fresh.written));
        }
    }
    add(run);
}

/// Gathers the lines that the record changes or covers, and those of the blocks that it frees. A line may
/// appear more than once.
pub(super) fn gather_owned_lines(writes: &mut WriteSet) {
    let WriteSet { fresh, freed, gathered, .. } = writes;
    let Gathered { owned_lines: owned, home_lines, new_slabs, .. } = gathered;
    owned.clear();
    owned.extend_from_slice(home_lines);
    if owned.len() > UNSORTED_MAX {
        owned.sort_unstable();
        owned.dedup();
    }
    // Blocks do not overlap. Neighbours may share a line.
    let mut add = |off: u64, bytes: u64| {
        let (first, end) = (off / LINE_BYTES, (off + bytes).div_ceil(LINE_BYTES));
        let is_there = owned.last() == Some(&first);
        owned.extend(first + u64::from(is_there)..end);
    };
    // Only the covered part of new blocks is in the record. (No live record of another lane has a word of a
    // free block: L2.)
    let covered = fresh.kept().filter(|f| f.written.0 < f.written.1);
    covered.for_each(|f| add(f.written.0, f.written.1 - f.written.0));
    let tags = fresh.kept().filter_map(|f| f.block.tag_off());
    tags.for_each(|off| add(off, TAG_BYTES));
    freed.iter().flat_map(Block::spans).for_each(|(off, bytes)| add(off, bytes));
    // A new slab's head is covered, and every lane that uses the slab later changes it.
    new_slabs.iter().for_each(|slab| add(slab.off, 8 + 8 * slab.class.words() as u64));
}
