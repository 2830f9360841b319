//! What a commit has to do, worked out from what its transaction did: changes of home words, lines to flush, and the record.

use super::slabs::{BitChange, freed_twice, merge_bits, write_slab_head};
use super::{TxWork, redo_words};
use crate::Result;
use crate::alloc::{Block, Home};
use crate::layout::{ChunkWord, TAG_BYTES};
use crate::log::record::{COVER_MAX_BYTES, Change, Cover, RecordImage};
use crate::pool::PoolInner;
use tembo_pmem::LINE_BYTES;

/// As many home lines are registered as they come; of more, each is once.
const UNSORTED_MAX: usize = 16;

/// Works out every change of a home word that the record has to make, besides the transaction's own stores: bits, chunk words and
/// frontiers; and the lines of all of them.
#[inline]
pub(super) fn collect_homes(work: &mut TxWork, inner: &PoolInner, only_stores: bool) -> Result<()> {
    work.homes.clear();
    work.bits.clear();
    work.new_slabs.clear();
    work.lines.clear();
    work.touched.clear();
    work.home_lines.clear();
    if !only_stores {
        collect_other_homes(work, inner)?;
    }
    work.home_lines.extend(work.stored_lines.iter().map(|line| line.off / LINE_BYTES));
    Ok(())
}

/// What of the homes is not words stored by line.
fn collect_other_homes(work: &mut TxWork, inner: &PoolInner) -> Result<()> {
    for (off, _) in redo_words(&work.steps) {
        let line = off / LINE_BYTES;
        if work.home_lines.last() != Some(&line) {
            work.home_lines.push(line);
        }
    }
    for fresh in work.fresh.iter().filter(|f| !f.cancelled) {
        match &fresh.block.home {
            Home::Slab(slab, index) => {
                if slab.is_published() {
                    work.bits.push(BitChange { place: slab.bit(*index), set: true, slab: *slab });
                } else if !work.new_slabs.iter().rev().any(|s| s.is(slab)) {
                    work.new_slabs.push(*slab);
                }
            }
            Home::Extent { zone, chunk, chunks } => {
                let word = ChunkWord::Extent { chunks: *chunks }.encode();
                work.homes.push((inner.geometry.chunk_word_off(*zone, *chunk), Change::Store(word)));
                work.homes.push((inner.geometry.zone_off(*zone), Change::Max(chunk + chunks)));
            }
        }
    }
    for slab in &work.new_slabs {
        for (chunk, word) in slab.chunk_words() {
            work.homes.push((inner.geometry.chunk_word_off(slab.zone, chunk), Change::Store(word.encode())));
        }
        let end = slab.chunk + slab.class.chunks;
        work.homes.push((inner.geometry.zone_off(slab.zone), Change::Max(end)));
    }
    for (i, block) in work.freed.iter().enumerate() {
        match &block.home {
            Home::Slab(slab, index) => {
                work.bits.push(BitChange { place: slab.bit(*index), set: false, slab: *slab });
            }
            Home::Extent { zone, chunk, .. } => {
                if work.freed[..i].iter().any(|other| other.off == block.off) {
                    return Err(freed_twice(block.off));
                }
                work.homes.push((inner.geometry.chunk_word_off(*zone, *chunk), Change::Store(0)));
            }
        }
    }
    merge_bits(&mut work.bits)?;
    for (off, _) in &work.homes {
        work.home_lines.push(off / LINE_BYTES);
    }
    for change in &work.bits {
        work.home_lines.push(change.place.word_off / LINE_BYTES);
    }
    Ok(())
}

/// Writes the heads of new slabs, and collects the lines of new data that were not flushed yet; returns how many
/// bytes of new data there are.
pub(super) fn collect_fresh_lines(work: &mut TxWork, inner: &PoolInner) -> Result<u64> {
    for slab in &work.new_slabs {
        write_slab_head(inner, work, slab)?;
    }
    if inner.region.domain().keeps_program_order() {
        return Ok(0);
    }
    let mut bytes = 0;
    let add = |lines: &mut Vec<u64>, (start, end): (u64, u64)| {
        let mut line = start / LINE_BYTES;
        while line * LINE_BYTES < end && start < end {
            lines.push(line);
            line += 1;
        }
    };
    for fresh in work.fresh.iter().filter(|f| !f.cancelled) {
        add(&mut work.lines, fresh.unflushed);
        bytes += fresh.written.1 - fresh.written.0;
        if let Some(tag_off) = fresh.block.tag_off() {
            work.lines.push(tag_off / LINE_BYTES);
            bytes += TAG_BYTES;
        }
    }
    for slab in &work.new_slabs {
        let head_bytes = 8 + 8 * slab.class.words() as u64;
        add(&mut work.lines, (slab.off, slab.off + head_bytes));
        bytes += head_bytes;
    }
    if work.fresh.len() + work.new_slabs.len() > 1 {
        work.lines.sort_unstable();
        work.lines.dedup();
    }
    Ok(bytes)
}

pub(super) fn build_image(work: &TxWork, image: &mut RecordImage, with_covers: bool) {
    image.clear();
    work.homes.iter().for_each(|(off, change)| image.entry(*off, *change));
    work.bits.iter().map(BitChange::entry).for_each(|(off, change)| image.entry(off, change));
    // In whatever order: with the last first, the words that trees store fill the record's lines best.
    image.stores(redo_words(&work.steps).rev(), &work.stored_lines);
    if !with_covers {
        return;
    }
    for fresh in work.fresh.iter().filter(|f| !f.cancelled && f.written.0 < f.written.1) {
        let (start, end) = fresh.written;
        for off in (start..end).step_by(COVER_MAX_BYTES as usize) {
            image.cover(Cover { off, bytes: COVER_MAX_BYTES.min(end - off) });
        }
    }
    let tags = work.fresh.iter().filter(|f| !f.cancelled).filter_map(|f| f.block.tag_off());
    tags.for_each(|off| image.cover(Cover { off, bytes: TAG_BYTES }));
    for slab in &work.new_slabs {
        image.cover(Cover { off: slab.off, bytes: 8 + 8 * slab.class.words() as u64 });
    }
}

/// The lines that the record changes or covers, and those of the blocks that it frees; some of them perhaps more than once.
pub(super) fn collect_touched_lines(work: &mut TxWork) {
    let TxWork { touched, home_lines, fresh, freed, new_slabs, .. } = work;
    touched.clear();
    touched.extend_from_slice(home_lines);
    if touched.len() > UNSORTED_MAX {
        touched.sort_unstable();
        touched.dedup();
    }
    // Blocks do not overlap. Those that lie beside each other may share a line.
    let mut add = |off: u64, bytes: u64| {
        let (first, end) = (off / LINE_BYTES, (off + bytes).div_ceil(LINE_BYTES));
        let is_there = touched.last() == Some(&first);
        touched.extend(first + u64::from(is_there)..end);
    };
    // Of new blocks, what the record covers: nothing of the rest is in it. (No live record of another lane has a word of a block that is free: L2.)
    let covered = fresh.iter().filter(|f| !f.cancelled && f.written.0 < f.written.1);
    covered.for_each(|f| add(f.written.0, f.written.1 - f.written.0));
    let tags = fresh.iter().filter(|f| !f.cancelled).filter_map(|f| f.block.tag_off());
    tags.for_each(|off| add(off, TAG_BYTES));
    freed.iter().flat_map(Block::spans).for_each(|(off, bytes)| add(off, bytes));
    // A new slab's head is covered, and every lane that uses the slab later changes it.
    new_slabs.iter().for_each(|slab| add(slab.off, 8 + 8 * slab.class.words() as u64));
}
