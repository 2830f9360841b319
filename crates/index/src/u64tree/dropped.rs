//! Freeing a dropped map step by step. Each step frees the last leaf below the last child, or an inner node
//! without children.

use super::create::U64Tree;
use super::layout::{HEADER_BYTES, INNER_KIND, LEAF_KIND, MAX_LEVEL, NODE_BYTES, SLOTS, child_off, root_off};
use crate::error::{Result, corrupt};
use tembo_pool::{Marks, Pool, Tx};

/// Frees a node; returns whether there was one.
pub(crate) fn step(tx: &mut Tx<'_>, header: u64) -> Result<bool> {
    let mut link = root_off(header);
    let mut off = tx.load(link)?;
    if off == 0 {
        return Ok(false);
    }
    for _ in 0..=MAX_LEVEL {
        match children(&|at| Ok(tx.load(at)?), off)?.last() {
            Some((at, child)) => (link, off) = (*at, *child),
            None => {
                tx.store(link, 0)?;
                tx.free(off)?;
                return Ok(true);
            }
        }
    }
    Err(too_deep(off))
}

/// The remaining children of a node, each with the offset of the word that leads to it.
fn children(load: &dyn Fn(u64) -> Result<u64>, off: u64) -> Result<Vec<(u64, u64)>> {
    match load(off)? {
        LEAF_KIND => Ok(Vec::new()),
        INNER_KIND => {
            let slots = (0..SLOTS).map(|slot| child_off(off, slot));
            let words = slots.map(|at| Ok((at, load(at)?)));
            words.filter(|child| !matches!(child, Ok((_, 0)))).collect()
        }
        kind => Err(corrupt("a node of a dropped map", off, "a leaf or an inner node", format!("{kind:#x}"))),
    }
}

fn too_deep(off: u64) -> crate::Error {
    corrupt("a node of a dropped map", off, format!("up to {MAX_LEVEL} levels"), "more")
}

impl U64Tree {
    /// Proves that the rest of a dropped map leads to each of its blocks once, and ticks them off.
    pub(crate) fn check_dropped(pool: &Pool, header: u64, marks: &mut Marks) -> Result<()> {
        marks.reach(header, HEADER_BYTES)?;
        let load = |at: u64| Ok(pool.region().load_u64(at)?);
        let root = load(root_off(header))?;
        let mut left = if root == 0 { Vec::new() } else { vec![root] };
        // Each node is reached at most once, so the loop ends.
        while let Some(off) = left.pop() {
            marks.reach(off, NODE_BYTES)?;
            left.extend(children(&load, off)?.into_iter().map(|(_, child)| child));
        }
        Ok(())
    }
}
