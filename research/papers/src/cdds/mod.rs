//! The CDDS B-Tree as its paper describes it: changes in place, every shift of an entry flushed by itself,
//! the version number last.
//!
//! It is what Tembo's tree (`tembo_index::VersionedTree`) is compared with: keys and values are words, nodes
//! have as many entries of the same size, and there is one thread.
//!
//! # Media layout
//! ```text
//! 0    identity | version | root of even versions | root of odd ones | 0 ...
//! 64   nodes: a line with the kind, then 28 entries of key, value, start, end, two in a line
//! ```
//! A root word is the root's offset with its level in the low 6 bits. An entry of an inner node has the
//! largest key that may be in its child, and the child. A place with start 0 is empty; an end of 0 is none.
//!
//! # Invariants
//! - I1: the entries of a node that are in the newest version have different keys, within the bounds that the
//!   node's parent sets; children are one level down, and reached once (`check`).
//! - I2: entries of [`Order::Sorted`] nodes are in the order of key and start, without empty places between
//!   them (`check`).
//! - I3: a node other than the root has more than a fifth of its places live (`check`).
//! - I4: what is in the newest version is durable, and stays while the next one is made (the crash tests).
//!
//! # Commit point
//! The version word, after everything else was flushed; the root of that version is in the same line, and
//! stored before it.
//!
//! # Recovery
//! All nodes are read: entries that begin after the newest version go, ends after it are taken back, and of
//! an entry that is there twice, because a crash interrupted a shift, one goes (`recover.rs`).
//!
//! # Source
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, sections 3.1 to 3.3, algorithms 1 to 3. Where the paper leaves something open, the cheaper way
//! is taken:
//! - D1: a flush is flushes and one fence behind them; the paper has a second `mfence` before them.
//! - D2: an entry is made invalid, written and made valid within its line, so that one flush does for it.
//! - D3: the removal of a dead entry and the insertion of a new one shift only what is between the two.
//! - D4: nodes that are in the newest version no more are used again from the next one on, found in memory
//!   and at recovery. No older version can be held.
//! - D5: the root word is chosen by the version, so that root and version change at once, without a node that
//!   leads to both roots.

mod change;
pub mod check;
pub mod counts;
mod node;
mod recover;
pub mod sides;
pub mod volatile;
pub mod wear;

use crate::mem::Mem;
use node::Entry;
pub use node::{NODE_BYTES, SLOTS};
use tembo_pmem::LINE_BYTES;

/// A node other than the root has more live entries than this (3.3.6 of the paper).
pub(crate) const LIVE_MIN: usize = SLOTS / 5;

const IDENTITY_OFF: u64 = 0;
const VERSION_OFF: u64 = 8;
const ROOTS_OFF: u64 = 16;
pub(crate) const NODES_OFF: u64 = LINE_BYTES;
const LEVEL_MASK: u64 = LINE_BYTES - 1;
/// The most levels above the leaves.
const LEVELS_MAX: usize = 30;

/// How entries are placed in nodes: the paper's two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By key and start version, for binary search.
    Sorted,
    /// Wherever there is room, for few writes.
    Unsorted,
}

/// Why a change was not made, or a tree not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CddsError {
    /// There is no room left; take more memory.
    #[error("the memory is full; make the tree in a larger one")]
    Full,
    /// The memory has no such tree.
    #[error("no CDDS tree of this order is there: the first word is {found:#x}, not {expected:#x}")]
    NotThisTree {
        /// The first word.
        found: u64,
        /// The value that was expected.
        expected: u64,
    },
    /// The memory does not hold a tree.
    #[error("the tree is damaged: {0}")]
    Damaged(String),
}

/// A node on the way to a leaf, and the place in it that leads on.
#[derive(Debug, Clone, Copy)]
struct Step {
    node: u64,
    slot: usize,
}

/// A tree of words, in memory that it has alone.
#[derive(Debug)]
pub struct PaperCdds<M> {
    mem: M,
    order: Order,
    /// The newest version.
    version: u64,
    root: u64,
    level: usize,
    /// Nodes that are in no version.
    free: Vec<u64>,
    /// Everything from here on was never a node.
    next: u64,
    /// Nodes that the version being made does not have any more.
    retired: Vec<u64>,
    /// A node has too few live entries.
    has_too_few: bool,
}

impl<M: Mem> PaperCdds<M> {
    /// Makes an empty tree in memory of zeros.
    ///
    /// # Errors
    ///
    /// [`CddsError::Full`] if there is no room for a node.
    pub fn create(mem: M, order: Order) -> Result<PaperCdds<M>, CddsError> {
        let mut tree = PaperCdds {
            mem,
            order,
            version: 0,
            root: 0,
            level: 0,
            free: Vec::new(),
            next: NODES_OFF,
            retired: Vec::new(),
            has_too_few: false,
        };
        tree.ensure_room(1)?;
        tree.root = tree.build(0, &[]);
        tree.commit();
        // The tree is there from here on.
        tree.mem.store_u64(IDENTITY_OFF, identity(order));
        tree.persist(IDENTITY_OFF, 8);
        Ok(tree)
    }

    /// Opens the tree that is there: takes back what a crash interrupted. Reads all of it.
    ///
    /// # Errors
    ///
    /// [`CddsError::NotThisTree`] and [`CddsError::Damaged`].
    pub fn open(mem: M, order: Order) -> Result<PaperCdds<M>, CddsError> {
        let (found, expected) = (mem.load_u64(IDENTITY_OFF), identity(order));
        if found != expected {
            return Err(CddsError::NotThisTree { found, expected });
        }
        let version = mem.load_u64(VERSION_OFF);
        let word = mem.load_u64(ROOTS_OFF + 8 * (version % 2));
        let (root, level) = (word & !LEVEL_MASK, (word & LEVEL_MASK) as usize);
        let mut tree = PaperCdds {
            mem,
            order,
            version,
            root,
            level,
            free: Vec::new(),
            next: NODES_OFF,
            retired: Vec::new(),
            has_too_few: false,
        };
        tree.recover()?;
        Ok(tree)
    }

    /// The memory.
    pub fn mem(&self) -> &M {
        &self.mem
    }

    /// Gives the memory back.
    pub fn into_mem(self) -> M {
        self.mem
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Levels of inner nodes.
    pub fn levels(&self) -> usize {
        self.level
    }

    /// The value of a key in the newest version (algorithm 1).
    pub fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.root;
        self.mem.prefetch(node, NODE_BYTES);
        for _ in 0..self.level {
            node = self.entry(node, self.child_slot(node, key)).value;
            self.mem.prefetch(node, NODE_BYTES);
        }
        self.find(node, key).map(|slot| self.entry(node, slot).value)
    }

    /// Puts a key (algorithm 2); returns whether it was there. Durable when this returns.
    ///
    /// # Errors
    ///
    /// [`CddsError::Full`]; nothing has changed then.
    pub fn put(&mut self, key: u64, value: u64) -> Result<bool, CddsError> {
        self.ensure_room(self.nodes_for_a_change())?;
        let (steps, leaf) = self.path_to(key);
        let old = self.find(leaf, key);
        let entry = Entry { key, value, start: self.version + 1, end: 0 };
        self.change(key, &steps, leaf, old.as_slice(), &[entry]);
        self.commit();
        Ok(old.is_some())
    }

    /// Removes a key (algorithm 3); returns whether it was there. Durable when this returns.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&mut self, key: u64) -> Result<bool, CddsError> {
        self.ensure_room(self.nodes_for_a_change())?;
        let (steps, leaf) = self.path_to(key);
        let Some(slot) = self.find(leaf, key) else { return Ok(false) };
        self.change(key, &steps, leaf, &[slot], &[]);
        self.commit();
        Ok(true)
    }

    /// All keys of the newest version with their values, in order.
    pub fn entries(&self) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        self.collect(self.root, self.level, &mut entries);
        entries
    }

    fn collect(&self, node: u64, level: usize, entries: &mut Vec<(u64, u64)>) {
        let live = self.live_entries(node);
        if level == 0 {
            entries.extend(live.iter().map(|entry| (entry.key, entry.value)));
            return;
        }
        live.iter().for_each(|entry| self.collect(entry.value, level - 1, entries));
    }

    /// The nodes from the root to a leaf's parent, and the leaf.
    fn path_to(&self, key: u64) -> (Vec<Step>, u64) {
        let mut steps = Vec::with_capacity(self.level);
        let mut node = self.root;
        self.mem.prefetch(node, NODE_BYTES);
        for _ in 0..self.level {
            let slot = self.child_slot(node, key);
            steps.push(Step { node, slot });
            node = self.entry(node, slot).value;
            self.mem.prefetch(node, NODE_BYTES);
        }
        (steps, node)
    }

    /// Nodes that a change takes at most: two for each level, two that are joined, and a root.
    fn nodes_for_a_change(&self) -> usize {
        4 * (self.level + 1) + 1
    }

    fn ensure_room(&self, nodes: usize) -> Result<(), CddsError> {
        let never_used = (self.mem.len_bytes() - self.next.min(self.mem.len_bytes())) / NODE_BYTES;
        let has_level = self.level < LEVELS_MAX;
        if has_level && never_used + self.free.len() as u64 >= nodes as u64 {
            Ok(())
        } else {
            Err(CddsError::Full)
        }
    }

    /// Makes the version durable and the newest, by one line.
    fn commit(&mut self) {
        let version = self.version + 1;
        self.mem.store_u64(ROOTS_OFF + 8 * (version % 2), self.root | self.level as u64);
        self.mem.store_u64(VERSION_OFF, version);
        self.persist(VERSION_OFF, 8);
        self.version = version;
        self.free.append(&mut self.retired);
    }

    /// The paper's flush: what was stored there is durable after it.
    fn persist(&self, off: u64, bytes: u64) {
        self.mem.flush(off, bytes);
        self.mem.fence();
    }
}

fn identity(order: Order) -> u64 {
    u64::from_le_bytes(*b"CDDSppr\0") | (order as u64 + 1) << 56
}
