//! Which nodes and key blocks are free: volatile, and after a crash rebuilt from what the tree reaches.
//!
//! Nodes are taken from the low end of the space and key blocks from the high end; freed ones are kept in
//! lists. Taking and giving back touches no persistent memory, as in the paper, whose costs leave allocation
//! out; only the shadowing solutions pay for making each allocation durable, since the paper charges them for
//! that (`Log::note_allocation`).

use tembo_pmem::LINE_BYTES;

/// Key blocks are multiples of this, so that a key of 20 bytes with its length never crosses a line.
const BLOCK_BYTES: u64 = 32;
/// Sizes of key blocks, in multiples.
const BLOCK_CLASSES: usize = 10;

/// The free space of a tree.
#[derive(Debug)]
pub struct Space {
    base: u64,
    node_bytes: u64,
    /// Above the nodes ever taken.
    next: u64,
    /// Below the key blocks ever taken.
    low: u64,
    end: u64,
    free_nodes: Vec<u64>,
    /// Nodes that were given back and that the log may still write to.
    held_nodes: Vec<u64>,
    free_blocks: [Vec<u64>; BLOCK_CLASSES],
}

impl Space {
    /// All of `base..end` is free.
    pub(crate) fn new(base: u64, node_bytes: u64, end: u64) -> Space {
        let base = base.next_multiple_of(LINE_BYTES);
        let end = end / LINE_BYTES * LINE_BYTES;
        Space {
            base,
            node_bytes,
            next: base,
            low: end.max(base),
            end,
            free_nodes: Vec::new(),
            held_nodes: Vec::new(),
            free_blocks: Default::default(),
        }
    }

    /// Whether `nodes` nodes and `blocks` key blocks of at most `block_bytes` can be taken.
    #[inline]
    pub(crate) fn has_room(&self, nodes: usize, blocks: u64, block_bytes: u64) -> bool {
        let fresh_nodes = nodes.saturating_sub(self.free_nodes.len()) as u64;
        let mut wanted = fresh_nodes * self.node_bytes;
        if blocks > 0 {
            // Every free block of the size or more serves at least once.
            let class = block_bytes.div_ceil(BLOCK_BYTES);
            let free: usize = self.free_blocks[class as usize..].iter().map(Vec::len).sum();
            wanted += blocks.saturating_sub(free as u64) * class * BLOCK_BYTES;
        }
        wanted <= self.low - self.next
    }

    /// Takes a node. The caller has asked for [room](Self::has_room).
    #[inline]
    pub(crate) fn take_node(&mut self) -> u64 {
        if let Some(node) = self.free_nodes.pop() {
            return node;
        }
        assert!(self.node_bytes <= self.low - self.next, "no room was asked for");
        self.next += self.node_bytes;
        self.next - self.node_bytes
    }

    /// Gives a node back, to be taken again at once.
    pub(crate) fn give_node(&mut self, node: u64) {
        self.free_nodes.push(node);
    }

    /// Gives a node back, to be taken again after [`release_held`](Self::release_held).
    pub(crate) fn hold_node(&mut self, node: u64) {
        self.held_nodes.push(node);
    }

    /// Whether nodes are held.
    pub(crate) fn holds_nodes(&self) -> bool {
        !self.held_nodes.is_empty()
    }

    /// Nothing writes to held nodes any more.
    pub(crate) fn release_held(&mut self) {
        self.free_nodes.append(&mut self.held_nodes);
    }

    /// Takes a block of `bytes` bytes, `None` if there is no room.
    pub(crate) fn take_block(&mut self, bytes: u64) -> Option<u64> {
        let class = bytes.div_ceil(BLOCK_BYTES) as usize;
        for larger in class..BLOCK_CLASSES {
            if let Some(block) = self.free_blocks[larger].pop() {
                if larger > class {
                    self.free_blocks[larger - class].push(block + class as u64 * BLOCK_BYTES);
                }
                return Some(block);
            }
        }
        let bytes = class as u64 * BLOCK_BYTES;
        if bytes > self.low - self.next {
            return None;
        }
        self.low -= bytes;
        Some(self.low)
    }

    /// Gives a block back.
    pub(crate) fn give_block(&mut self, block: u64, bytes: u64) {
        self.free_blocks[bytes.div_ceil(BLOCK_BYTES) as usize].push(block);
    }

    /// Whether `node` is where a node can be.
    pub(crate) fn is_node(&self, node: u64) -> bool {
        node >= self.base
            && (node - self.base).is_multiple_of(self.node_bytes)
            && node.checked_add(self.node_bytes).is_some_and(|end| end <= self.end)
    }

    /// Whether a block of `bytes` bytes can be at `block`.
    pub(crate) fn is_block(&self, block: u64, bytes: u64) -> bool {
        block >= self.base
            && block.is_multiple_of(BLOCK_BYTES)
            && (bytes.div_ceil(BLOCK_BYTES) as usize) < BLOCK_CLASSES
            && block.checked_add(bytes).is_some_and(|end| end <= self.end)
    }

    /// Everything is free but the given nodes and key blocks (offset and length).
    ///
    /// # Errors
    ///
    /// The damage, if a node or block is used twice or lies at an impossible place.
    pub(crate) fn rebuild(&mut self, mut nodes: Vec<u64>, mut blocks: Vec<(u64, u64)>) -> Result<(), String> {
        nodes.sort_unstable();
        blocks.sort_unstable();
        let (mut free_nodes, mut free_blocks) = (Vec::new(), <[Vec<u64>; BLOCK_CLASSES]>::default());
        let mut next = self.base;
        for &node in &nodes {
            if !self.is_node(node) || node < next {
                return Err(format!("node {node:#x} is no node, or is used twice"));
            }
            free_nodes.extend((next..node).step_by(self.node_bytes as usize));
            next = node + self.node_bytes;
        }
        let low = blocks.first().map_or(self.end, |(block, _)| *block);
        let mut at = low;
        for &(block, bytes) in &blocks {
            if !self.is_block(block, bytes) || block < at || block < next {
                return Err(format!("key block {block:#x} is no block, or is used twice"));
            }
            give_range(&mut free_blocks, at, block);
            at = block + bytes.next_multiple_of(BLOCK_BYTES);
        }
        give_range(&mut free_blocks, at, self.end);
        (self.next, self.low) = (next, low);
        (self.free_nodes, self.free_blocks) = (free_nodes, free_blocks);
        self.held_nodes.clear();
        Ok(())
    }

    /// Proves that what is not free is exactly the given nodes and key blocks.
    ///
    /// # Errors
    ///
    /// The node or block that is lost, or both free and used.
    pub(crate) fn check(&self, mut nodes: Vec<u64>, blocks: &[(u64, u64)]) -> Result<(), String> {
        let used = nodes.len();
        nodes.extend(self.free_nodes.iter().chain(&self.held_nodes));
        let known = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() != known {
            return Err("a node is both free and used, or twice one of them".to_owned());
        }
        let taken = (self.next - self.base) / self.node_bytes;
        if taken != known as u64 || nodes.iter().any(|node| !self.is_node(*node)) {
            return Err(format!("of {taken} nodes {used} are used and {} free", known - used));
        }
        let mut ranges: Vec<(u64, u64)> =
            blocks.iter().map(|(block, bytes)| (*block, bytes.next_multiple_of(BLOCK_BYTES))).collect();
        for (class, free) in self.free_blocks.iter().enumerate() {
            ranges.extend(free.iter().map(|block| (*block, class as u64 * BLOCK_BYTES)));
        }
        ranges.sort_unstable();
        let mut at = self.low;
        for (block, bytes) in ranges {
            if block != at {
                return Err(format!(
                    "key space at {at:#x} is lost or overlaps (the next block is at {block:#x})"
                ));
            }
            at += bytes;
        }
        if at != self.end {
            return Err(format!("key space from {at:#x} to the end is lost"));
        }
        Ok(())
    }
}

/// Adds the blocks of a free range.
fn give_range(free: &mut [Vec<u64>; BLOCK_CLASSES], mut at: u64, end: u64) {
    while at < end {
        let class = ((end - at) / BLOCK_BYTES).min(BLOCK_CLASSES as u64 - 1);
        free[class as usize].push(at);
        at += class * BLOCK_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_taken_again() {
        let mut space = Space::new(100, 128, 4096);
        let (a, b) = (space.take_node(), space.take_node());
        assert_eq!((a, b), (128, 256));
        space.give_node(a);
        assert_eq!(space.take_node(), a);
        space.hold_node(b);
        assert_eq!(space.take_node(), 384);
        space.release_held();
        assert_eq!(space.take_node(), b);
        let block = space.take_block(100).unwrap();
        space.give_block(block, 100);
        assert_eq!(space.take_block(40), Some(block), "the front of a larger free block");
        assert_eq!(space.take_block(64), Some(block + 64), "and its rest");
        assert_eq!(space.check(vec![a, b, 384], &[(block, 40), (block + 64, 64)]), Ok(()));
    }

    #[test]
    fn lost_and_doubly_used_space_is_noticed() {
        let mut space = Space::new(0, 128, 4096);
        let nodes = vec![space.take_node(), space.take_node()];
        let block = space.take_block(32).unwrap();
        space.check(nodes.clone(), &[(block, 32)]).unwrap();
        assert!(space.check(nodes[..1].to_vec(), &[(block, 32)]).unwrap_err().contains("nodes"));
        assert!(space.check(nodes.clone(), &[]).unwrap_err().contains("lost"));
        space.give_node(0);
        assert!(space.check(nodes, &[(block, 32)]).unwrap_err().contains("both"));
    }

    #[test]
    fn rebuilding_finds_the_gaps() {
        let mut space = Space::new(0, 128, 4096);
        space.rebuild(vec![256, 128], vec![(4008, 40), (3200, 33)]).unwrap_err();
        space.rebuild(vec![256, 128], vec![(4032, 40), (3200, 33)]).unwrap();
        space.check(vec![128, 256], &[(3200, 33), (4032, 40)]).unwrap();
        assert_eq!((space.take_node(), space.take_node()), (0, 384));
        assert!(space.rebuild(vec![128, 128], vec![]).is_err());
        assert!(!space.has_room(100, 0, 0) && space.has_room(2, 1, 32));
    }
}
