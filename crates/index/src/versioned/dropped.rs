//! Frees a dropped map step by step: its newest version, then its named snapshots and the queues of dead
//! blocks.

use super::checker::expect;
use super::kept_list;
use super::layout::{CHUNK_BYTES, CHUNK_ITEMS, HEAD_BYTES, KEPT_BYTES, RootWord, at};
use super::node::Record;
use super::queue::{Dead, DeadKind, QueueWords, item_off};
use super::version::{check_format, load_version};
use super::view::region;
use crate::error::{Result, corrupt};
use tembo_pmem::Region;
use tembo_pool::{Marks, Tx};

/// No structure is deeper than this; a longer path on media is damage.
const DEPTH_MAX: usize = 64;

/// The blocks that a node of a dropped map still leads to.
#[derive(Debug, Default)]
pub struct Remains {
    /// Bytes of the node.
    pub(crate) bytes: u64,
    /// Offsets of records.
    pub(crate) records: Vec<u64>,
    /// Children, each with the offset of the word that leads to it.
    pub(crate) children: Vec<(u64, u64)>,
}

/// How a structure is taken apart after its map was dropped.
pub trait Dismantle {
    /// The blocks that a node of a dropped map still leads to in a version.
    fn remains(region: &Region, load: &Load<'_>, off: u64, version: u64) -> Result<Remains>;
}

/// Loads words of nodes, from media or as a transaction sees them.
pub(crate) type Load<'l> = dyn Fn(u64) -> Result<u64> + 'l;

/// Frees a part of the map; returns whether there was anything besides its head.
pub(crate) fn step<S: Dismantle>(tx: &mut Tx<'_>, header: u64) -> Result<bool> {
    let newest = load_version(region(tx), header)?.number;
    let root_off = header.saturating_add(at!(PmVersionedHead.root));
    let root = RootWord(tx.load(root_off)?);
    if !root.is_empty() {
        if free_last::<S>(tx, root.node(), newest)? {
            tx.store(root_off, 0)?;
        }
        return Ok(true);
    }
    let kept_off = header.saturating_add(at!(PmVersionedHead.kept));
    let kept = tx.load(kept_off)?;
    if kept != 0 {
        let count_off = header.saturating_add(at!(PmVersionedHead.kept_count));
        let (next, count) = (tx.load(kept.saturating_add(at!(PmVersionedKept.next)))?, tx.load(count_off)?);
        tx.store(kept_off, next)?;
        tx.store(count_off, count.saturating_sub(1))?;
        tx.free(kept)?;
        return Ok(true);
    }
    for queue in [at!(PmVersionedHead.young), at!(PmVersionedHead.old)] {
        if free_first::<S>(tx, header.saturating_add(queue))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees the last node below `top`, or `top` itself, with its records; returns whether it was `top`.
fn free_last<S: Dismantle>(tx: &mut Tx<'_>, top: u64, version: u64) -> Result<bool> {
    let (mut link, mut off) = (None, top);
    for _ in 0..DEPTH_MAX {
        let remains = S::remains(region(tx), &|at| Ok(tx.load(at)?), off, version)?;
        if let Some((at, child)) = remains.children.last() {
            (link, off) = (Some(*at), *child);
            continue;
        }
        remains.records.iter().try_for_each(|record| tx.free(*record))?;
        tx.free(off)?;
        if let Some(at) = link {
            tx.store(at, 0)?;
        }
        return Ok(link.is_none());
    }
    Err(too_deep(top))
}

/// Frees the block of a queue's first item, a part of its subtree, or a chunk; returns whether there was
/// anything.
fn free_first<S: Dismantle>(tx: &mut Tx<'_>, queue: u64) -> Result<bool> {
    let field = |at: u64| queue.saturating_add(at);
    let load = |tx: &Tx<'_>, at: u64| tx.load(field(at));
    let (first, last) = (load(tx, at!(PmVersionedQueue.first))?, load(tx, at!(PmVersionedQueue.last))?);
    if first == 0 {
        return Ok(false);
    }
    let idx = load(tx, at!(PmVersionedQueue.first_idx))?;
    let end = if first == last { load(tx, at!(PmVersionedQueue.last_idx))? } else { CHUNK_ITEMS };
    if idx > CHUNK_ITEMS || end > CHUNK_ITEMS {
        return Err(corrupt("the head of a queue", queue, "places in chunks", format!("{idx} and {end}")));
    }
    if idx < end {
        let off = item_off(first, idx);
        let [block, birth, death] = [0, 8, 16].map(|at| tx.load(off.saturating_add(at)));
        let dead = Dead::decode(off, [block?, birth?, death?])?;
        let is_gone = match dead.kind {
            DeadKind::Subtree => free_last::<S>(tx, dead.off, dead.death.saturating_sub(1))?,
            DeadKind::Record | DeadKind::Node => {
                tx.free(dead.off)?;
                true
            }
        };
        if is_gone {
            let count = load(tx, at!(PmVersionedQueue.count))?;
            tx.store(field(at!(PmVersionedQueue.first_idx)), idx + 1)?;
            tx.store(field(at!(PmVersionedQueue.count)), count.saturating_sub(1))?;
        }
        return Ok(true);
    }
    let next = if first == last { 0 } else { tx.load(first.saturating_add(at!(PmVersionedChunk.next)))? };
    tx.store(field(at!(PmVersionedQueue.first)), next)?;
    tx.store(field(at!(PmVersionedQueue.first_idx)), 0)?;
    if next == 0 {
        tx.store(field(at!(PmVersionedQueue.last)), 0)?;
        tx.store(field(at!(PmVersionedQueue.last_idx)), 0)?;
    }
    tx.free(first)?;
    Ok(true)
}

/// Proves that the rest of the map leads to each of its blocks once, and ticks them off.
pub(crate) fn check<S: Dismantle>(
    region: &Region,
    (header, format): (u64, u64),
    marks: &mut Marks,
) -> Result<()> {
    marks.reach(header, HEAD_BYTES)?;
    check_format(region, header, format)?;
    let newest = load_version(region, header)?;
    if !newest.root.is_empty() {
        reach::<S>(region, marks, newest.root.node(), newest.number, 0)?;
    }
    for kept in kept_list::load(region, header, newest.number)? {
        marks.reach(kept.off, KEPT_BYTES + kept.name.len() as u64)?;
    }
    for queue in [at!(PmVersionedHead.young), at!(PmVersionedHead.old)] {
        check_queue::<S>(region, marks, header + queue)?;
    }
    Ok(())
}

fn check_queue<S: Dismantle>(region: &Region, marks: &mut Marks, head: u64) -> Result<()> {
    let QueueWords { first: mut chunk, first_idx: mut idx, last, last_idx, count } =
        QueueWords::load(region, head)?;
    let mut items = 0;
    while chunk != 0 {
        marks.reach(chunk, CHUNK_BYTES)?;
        let end = if chunk == last { last_idx } else { CHUNK_ITEMS };
        for idx in idx..end {
            let off = item_off(chunk, idx);
            let [block, birth, death] = [0, 8, 16].map(|at| region.load_u64(off + at));
            let dead = Dead::decode(off, [block?, birth?, death?])?;
            match dead.kind {
                DeadKind::Record => {
                    marks.reach(dead.off, Record::read(region, dead.off)?.media_bytes())?;
                }
                DeadKind::Node => {
                    let remains = S::remains(region, &|at| Ok(region.load_u64(at)?), dead.off, 0)?;
                    marks.reach(dead.off, remains.bytes)?;
                }
                DeadKind::Subtree => reach::<S>(region, marks, dead.off, dead.death.saturating_sub(1), 0)?,
            }
            items += 1;
        }
        idx = 0;
        chunk = if chunk == last { 0 } else { region.load_u64(chunk + at!(PmVersionedChunk.next))? };
    }
    expect("the items of a dropped map's queue", head, count, items)
}

fn reach<S: Dismantle>(
    region: &Region,
    marks: &mut Marks,
    off: u64,
    version: u64,
    depth: usize,
) -> Result<()> {
    if depth == DEPTH_MAX {
        return Err(too_deep(off));
    }
    let remains = S::remains(region, &|at| Ok(region.load_u64(at)?), off, version)?;
    marks.reach(off, remains.bytes)?;
    for record in remains.records {
        marks.reach(record, Record::read(region, record)?.media_bytes())?;
    }
    remains.children.iter().try_for_each(|(_, child)| reach::<S>(region, marks, *child, version, depth + 1))
}

fn too_deep(off: u64) -> crate::Error {
    corrupt("a node of a dropped map", off, format!("fewer than {DEPTH_MAX} nodes below it"), "more")
}
