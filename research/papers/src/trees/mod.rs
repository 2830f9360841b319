//! The trees of the wB+-Tree paper: the wB+-Trees themselves and the B+-Trees that they are compared with.
//!
//! One [`Tree`] type has three parameters: the memory ([`Mem`]), the kind of keys ([`KeyKind`]), and the
//! [`Scheme`], which is a layout of leaves and inner nodes with a way to change them so that a crash leaves
//! the contents before or after the change. Everything else is shared: descending, searching, scanning, bulk
//! loading, space, checking. [`all`] lists the ten solutions by name; [`Solution::visit`] calls back with the
//! scheme's type.
//!
//! | scheme | leaves | inner nodes | changes |
//! |---|---|---|---|
//! | [`Volatile`] | sorted | sorted | in place, nothing is persistent |
//! | [`BtreeLog`], [`UnsortedLog`], [`BitmapLog`] | sorted, unsorted, with bitmap | sorted | in place, undo-redo logging |
//! | [`BtreeShadow`], [`UnsortedShadow`], [`BitmapShadow`] | sorted, unsorted, with bitmap | sorted | copies, linked by a redo log |
//! | [`WbTree`] | slot+bitmap | slot+bitmap | atomic writes; splits by a redo log |
//! | [`WbTreeBitmapLeaf`] | with bitmap | slot+bitmap | the same |
//! | [`WbTreeSlotOnly`] | slot-only | slot-only | the same |
//!
//! # Media layout
//! ```text
//! 0    identity | root and levels | first leaf | log epoch | log bytes | 0 | 0 | 0
//! 64   log ([`log`])
//! ...  nodes, of 2 to 16 lines ([`packed`], [`slots`]) ->        <- key blocks ([`key`])
//! ```
//! The root word is the root's offset with the number of inner levels in its low 6 bits, so that both change
//! at once. An entry is the key's words and a value, in inner nodes a child. A node's link word is the next
//! leaf, or the leftmost child. Offsets are from the start of the memory; 0 is null.
//!
//! # Invariants
//! - I1: every node and key block is reachable exactly once, or free; no leaf but a root is empty
//!   (`check_space`, `check_node`).
//! - I2: keys are strictly ascending and inside the bounds that the separators above them set (`check_node`).
//! - I3: the links of the leaves are the leaves in the order of their keys (`check_chain`).
//! - I4: a node's header is one of its layout; slots, where valid, are the bitmap's entries in the order of
//!   their keys; the slots of inner nodes are valid (`Layout::check`, `check_node`).
//! - I5: what an atomic write or a log record makes reachable is durable before it (the crash tests).
//! - I6: what the log says is durable at its home before the log is emptied, and its home is not overwritten
//!   by stores that the log does not know before that (the crash tests).
//! - I7: the root has at least two children, if any (`check_node`).
//!
//! # Commit point
//! wB+-Trees: the store of the word with the bitmap, or with the slots of a slot-only node; for splits and
//! for the removal of a leaf the last record of the redo log. Logging: the record of the last store.
//! Shadowing: the last redo record.
//!
//! # Recovery
//! [`Tree::open`]: the log is recovered ([`log`]), the free space is worked out from what the tree reaches. A
//! wB+-Tree leaf whose slots a crash left invalid is searched by its bitmap, and repaired by the next change
//! to it.
//!
//! # Concurrency
//! One thread. The paper's trees have no more, and the comparisons are of single threads.
//!
//! # Source
//! Chen and Jin, Persistent B+-Trees in Non-Volatile Main Memory, VLDB 2015: sections 2.2, 3.1 and 3.2
//! (baselines), 4.2 to 4.6 (wB+-Trees). Where these trees differ:
//! - D1: emptied leaves are unlinked, with the inner nodes that lose their last child, and a root with one
//!   child gives way to it; the paper stops before that. A leaf that is removed costs one logged operation,
//!   and no entry moves.
//! - D2: insertion looks the key up first and does nothing if it is there; the paper does not say. It writes
//!   no word.
//! - D3: the slots and bitmap of an inner node change through the redo log of the split, not by the algorithm
//!   for leaves, so that slots of inner nodes are never invalid and the split is one atomic operation.
//! - D4: new nodes are durable before the redo log with the last record of a split is written, which takes a
//!   third fence in slot-only trees, where the paper counts two: the log may reach media before the nodes
//!   that it links.
//! - D5: shadowing makes copies durable with the fence that the paper spends on the allocation record, and
//!   logs after it, for the same reason; counts are those of the paper.
//! - D6: log records never cross a line, which leaves words unused. The paper's flush counts leave out the
//!   records that do, so here the counts are exact.
//! - D7: logging and shadowing leave home locations unflushed, as in the paper; when the log's area is used
//!   up, they are flushed and the log is emptied. The paper's counts leave this out.
//! - D8: separators of byte strings are copies, so that every key block has one owner.

pub mod bulk;
pub mod check;
pub mod inplace;
pub mod key;
pub mod log;
pub mod node;
pub mod packed;
pub mod recover;
pub mod registry;
pub mod scan;
pub mod shadow;
pub mod slots;
pub mod space;
#[cfg(test)]
mod tests;
pub mod wbtree;

pub use inplace::{BitmapLog, BtreeLog, UnsortedLog, Volatile};
pub use key::{Fixed, KeyKind, MAX_KEY_BYTES, Plain, Text};
pub use registry::{Family, Solution, Visitor, all, named};
pub use shadow::{BitmapShadow, BtreeShadow, UnsortedShadow};
pub use wbtree::{WbTree, WbTreeBitmapLeaf, WbTreeSlotOnly};

use crate::mem::Mem;
use log::{Form, Log};
use node::{Found, Item, Layout, MAX_ENTRIES, OrderedLayout, Shape};
use space::Space;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// Where things are in the first line.
pub(crate) const IDENTITY_OFF: u64 = 0;
pub(crate) const ROOT_OFF: u64 = 8;
pub(crate) const FIRST_LEAF_OFF: u64 = 16;
pub(crate) const EPOCH_OFF: u64 = 24;
pub(crate) const LOG_BYTES_OFF: u64 = 32;
pub(crate) const LOG_OFF: u64 = LINE_BYTES;

/// The bits of the root word that are the number of inner levels.
const LEVELS_MASK: u64 = LINE_BYTES - 1;
/// The most inner levels.
const MAX_LEVELS: usize = 40;

/// The sizes that a tree is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Lines of a node, 2 to 16.
    pub node_lines: u64,
    /// Bytes of the log's area, whole lines; `None` for a size that suits the scheme.
    pub log_bytes: Option<u64>,
}

impl Config {
    /// Nodes of `node_lines` lines, and a log of the usual size.
    pub fn lines(node_lines: u64) -> Config {
        Config { node_lines, log_bytes: None }
    }
}

/// Why a tree cannot be made, opened, or added to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// There is no room left; take more memory.
    #[error("the memory is full; make the tree in a larger one")]
    Full,
    /// The log's area is too small for the largest operation; choose a larger one.
    #[error(
        "the log is too small for a tree of {levels} inner levels; give it at least {needed_bytes} bytes"
    )]
    LogTooSmall {
        /// The tree's inner levels.
        levels: usize,
        /// The space that an operation may need.
        needed_bytes: u64,
    },
    /// The scheme has no nodes of this size.
    #[error("there are no {scheme} nodes of {node_lines} lines with keys of {key_words} words")]
    NodeSize {
        /// The scheme's name.
        scheme: &'static str,
        /// The lines asked for.
        node_lines: u64,
        /// Words of a key.
        key_words: usize,
    },
    /// The memory is too large to be referred to by log records.
    #[error("a memory of {bytes} bytes is more than log records can refer to")]
    MemoryTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Bulk loading got keys that are not ascending.
    #[error("the keys to load are not strictly ascending at number {number}")]
    NotAscending {
        /// How many keys came before.
        number: u64,
    },
    /// The memory has no tree of this scheme, node size and kind of keys.
    #[error("no {scheme} of this shape is there: the first word is {found:#x}, not {expected:#x}")]
    NotThisTree {
        /// The scheme's name.
        scheme: &'static str,
        /// The first word.
        found: u64,
        /// The value that was expected.
        expected: u64,
    },
    /// The memory does not hold a tree.
    #[error("the tree is damaged: {0}")]
    Damaged(String),
    /// The scheme keeps nothing through a crash.
    #[error("a volatile tree cannot be opened")]
    Volatile,
}

/// The way of an operation from the root to a leaf.
#[derive(Debug, Clone)]
pub struct Path {
    /// Inner nodes and the positions of the children that were taken, from the root.
    steps: [(u64, usize); MAX_LEVELS],
    levels: usize,
    leaf: u64,
}

impl Path {
    fn steps(&self) -> &[(u64, usize)] {
        &self.steps[..self.levels]
    }
}

/// The changes that the removal of an emptied leaf makes.
#[derive(Debug, Clone, Copy)]
pub struct Unlink {
    /// The inner node that loses a child, the lowest with another one.
    parent: u64,
    /// Its place in the path.
    depth: usize,
    /// The child's position.
    position: usize,
    /// The word that links to the leaf from the one before.
    link_off: u64,
    /// The leaf after.
    next: u64,
    /// The root word, if the parent is the root and would keep one child.
    root: Option<u64>,
}

/// The name of a scheme.
pub trait Named {
    /// Its name in figures, the paper's where it has one.
    const NAME: &'static str;
    /// Tells schemes apart on media.
    const ID: u64;
}

/// A layout of nodes with a way to change them.
pub trait Scheme: Named + Sized + 'static {
    /// Whether a crash leaves a tree.
    const PERSISTENT: bool;
    /// The form of its log.
    const LOG: Form;
    /// The log's usual size.
    const LOG_BYTES: u64;
    /// How leaves are laid out.
    type Leaf: Layout;
    /// How inner nodes are.
    type Inner: OrderedLayout;

    /// The most nodes that an operation takes: an insertion that splits all of `levels` inner levels, or a
    /// removal.
    fn max_nodes(levels: usize, is_insertion: bool) -> usize {
        if is_insertion { levels + 2 } else { 0 }
    }

    /// The most log records of an operation on a tree of `levels` inner levels with nodes of `node_words`
    /// words.
    fn max_records(node_words: u64, levels: u64) -> u64;

    /// Makes a leaf fit to be changed.
    #[doc(hidden)]
    #[inline(always)]
    fn repair<M: Mem, K: KeyKind>(mem: &M, shape: &Shape, leaf: u64) {
        let _ = (mem, shape, leaf);
    }

    /// Puts an entry into a leaf with room.
    #[doc(hidden)]
    fn insert<M: Mem, K: KeyKind>(
        tree: &mut Tree<M, K, Self>,
        path: &Path,
        found: Found,
        key: K::Stored,
        value: u64,
    );

    /// Puts an entry into a full leaf.
    #[doc(hidden)]
    fn split<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, key: K::Stored, value: u64);

    /// Takes an entry out of a leaf that keeps another, or is the root.
    #[doc(hidden)]
    fn remove<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, found: Found);

    /// Takes a leaf with its last entry out of the tree; space is given back by the caller.
    #[doc(hidden)]
    fn unlink<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, path: &Path, unlink: Unlink);

    /// Changes the value at `off`.
    #[doc(hidden)]
    fn update<M: Mem, K: KeyKind>(tree: &mut Tree<M, K, Self>, off: u64, value: u64);

    /// Gives back a node that the tree has left.
    #[doc(hidden)]
    fn give_node(space: &mut Space, node: u64) {
        space.give_node(node);
    }
}

/// A tree.
#[derive(Debug)]
pub struct Tree<M, K: KeyKind, S> {
    mem: M,
    node_bytes: u64,
    leaf: Shape,
    inner: Shape,
    log: Log,
    space: Space,
    /// The entries of a node that is being split; kept so that no operation allocates.
    items: Vec<Item<K::Stored>>,
    /// Words to be changed by a redo log.
    edits: Vec<(u64, u64)>,
    /// Copies that are not linked yet.
    fresh: Vec<u64>,
    scheme: std::marker::PhantomData<fn() -> S>,
}

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    /// The memory.
    pub fn mem(&self) -> &M {
        &self.mem
    }

    /// Gives the memory back.
    pub fn into_mem(self) -> M {
        self.mem
    }

    /// The most entries of a leaf.
    pub fn leaf_capacity(&self) -> usize {
        self.leaf.capacity
    }

    /// How many levels of inner nodes there are.
    pub fn levels(&self) -> usize {
        self.root().1
    }

    /// The root's offset, and the number of inner levels.
    #[inline(always)]
    fn root(&self) -> (u64, usize) {
        let word = self.mem.load_u64(ROOT_OFF);
        (word & !LEVELS_MASK, (word & LEVELS_MASK) as usize)
    }

    #[inline(always)]
    fn prefetch(&self, node: u64) {
        self.mem.prefetch(node, self.node_bytes);
    }

    #[inline(always)]
    fn child(&self, node: u64, position: usize) -> u64 {
        self.mem.load_u64(S::Inner::child_off::<M, K>(&self.mem, &self.inner, node, position))
    }

    /// The leaf where the probe's key is or would be.
    #[inline(always)]
    fn leaf_of(&self, probe: &K::Probe) -> u64 {
        let (mut node, levels) = self.root();
        self.prefetch(node);
        for _ in 0..levels {
            let (_, child_off) = S::Inner::child_for::<M, K>(&self.mem, &self.inner, node, probe);
            node = self.mem.load_u64(child_off);
            self.prefetch(node);
        }
        node
    }

    /// The way to that leaf.
    #[inline(always)]
    fn path_to(&self, probe: &K::Probe) -> Path {
        let (mut node, levels) = self.root();
        self.prefetch(node);
        let mut path = Path { steps: [(0, 0); MAX_LEVELS], levels, leaf: 0 };
        for step in &mut path.steps[..levels] {
            let (position, child_off) = S::Inner::child_for::<M, K>(&self.mem, &self.inner, node, probe);
            *step = (node, position);
            node = self.mem.load_u64(child_off);
            self.prefetch(node);
        }
        path.leaf = node;
        path
    }

    /// The value of a key.
    pub fn get(&self, key: K::Key<'_>) -> Option<u64> {
        let probe = K::probe(key);
        let leaf = self.leaf_of(&probe);
        let found = S::Leaf::find::<M, K>(&self.mem, &self.leaf, leaf, &probe);
        found.is_present.then(|| self.mem.load_u64(self.leaf.value::<K>(leaf, found.at)))
    }

    /// Adds a key, unless it is there; returns whether it was added. Durable when this returns.
    ///
    /// # Errors
    ///
    /// [`TreeError::Full`] and [`TreeError::LogTooSmall`]; nothing has changed then.
    pub fn insert(&mut self, key: K::Key<'_>, value: u64) -> Result<bool, TreeError> {
        let probe = K::probe(key);
        let path = self.path_to(&probe);
        S::repair::<M, K>(&self.mem, &self.leaf, path.leaf);
        let found = S::Leaf::find::<M, K>(&self.mem, &self.leaf, path.leaf, &probe);
        if found.is_present {
            return Ok(false);
        }
        self.make_room(&path, Some(&probe))?;
        let key = K::place(&self.mem, &mut self.space, &probe, S::PERSISTENT).ok_or(TreeError::Full)?;
        if S::Leaf::count(&self.mem, path.leaf) < self.leaf.capacity {
            S::insert(self, &path, found, key, value);
        } else {
            S::split(self, &path, key, value);
        }
        Ok(true)
    }

    /// Changes the value of a key that is there; returns the old one. Durable when this returns.
    ///
    /// # Errors
    ///
    /// [`TreeError::LogTooSmall`]; nothing has changed then.
    pub fn update(&mut self, key: K::Key<'_>, value: u64) -> Result<Option<u64>, TreeError> {
        let probe = K::probe(key);
        let leaf = self.leaf_of(&probe);
        let found = S::Leaf::find::<M, K>(&self.mem, &self.leaf, leaf, &probe);
        if !found.is_present {
            return Ok(None);
        }
        self.make_log_room(0)?;
        let off = self.leaf.value::<K>(leaf, found.at);
        let old = self.mem.load_u64(off);
        S::update(self, off, value);
        Ok(Some(old))
    }

    /// Takes a key out; returns its value. Durable when this returns.
    ///
    /// # Errors
    ///
    /// [`TreeError::Full`] (shadowing makes copies) and [`TreeError::LogTooSmall`]; nothing has changed then.
    pub fn remove(&mut self, key: K::Key<'_>) -> Result<Option<u64>, TreeError> {
        let probe = K::probe(key);
        let path = self.path_to(&probe);
        S::repair::<M, K>(&self.mem, &self.leaf, path.leaf);
        let found = S::Leaf::find::<M, K>(&self.mem, &self.leaf, path.leaf, &probe);
        if !found.is_present {
            return Ok(None);
        }
        self.make_room(&path, None)?;
        let entry = self.leaf.entry::<K>(path.leaf, found.at);
        let key = K::load(&self.mem, entry);
        let value = self.mem.load_u64(self.leaf.value::<K>(path.leaf, found.at));
        if path.levels > 0 && S::Leaf::count(&self.mem, path.leaf) == 1 {
            self.remove_leaf(&path);
        } else {
            S::remove(self, &path, found);
        }
        K::release(&self.mem, &mut self.space, &key);
        Ok(Some(value))
    }

    /// Logs the edits as one operation, and flushes the records.
    #[inline]
    fn log_edits(&mut self) {
        let last = self.edits.len() - 1;
        for (i, &(off, word)) in self.edits.iter().enumerate() {
            self.log.redo(&self.mem, off, word, i == last);
        }
        self.log.flush(&self.mem);
    }

    /// Makes sure that an operation, the insertion of a key or a removal, finds nodes, key blocks and log.
    #[inline]
    fn make_room(&mut self, path: &Path, inserted: Option<&K::Probe>) -> Result<(), TreeError> {
        self.make_log_room(path.levels)?;
        let nodes = S::max_nodes(path.levels, inserted.is_some());
        // A key, and its copy or another's as a separator.
        let blocks = if K::OUT_OF_LINE && inserted.is_some() { 2 } else { 0 };
        if self.space.has_room(nodes, blocks, K::max_block_bytes()) {
            return Ok(());
        }
        if self.space.holds_nodes() {
            self.checkpoint();
        }
        // Keys are seldom as long as they may be; these are what there is.
        let keys = S::Leaf::places(&self.mem, path.leaf);
        let keys = keys.iter().map(|at| K::load(&self.mem, self.leaf.entry::<K>(path.leaf, at)));
        let longest = keys.filter_map(|key| K::block(&self.mem, &key)).map(|(_, bytes)| bytes).max();
        let block_bytes = longest.unwrap_or(0).max(inserted.map_or(0, K::block_bytes));
        if self.space.has_room(nodes, blocks, block_bytes) { Ok(()) } else { Err(TreeError::Full) }
    }

    #[inline]
    fn make_log_room(&mut self, levels: usize) -> Result<(), TreeError> {
        let records = S::max_records(self.node_bytes / WORD_BYTES, levels as u64);
        if self.log.has_room(records) {
            return Ok(());
        }
        if !self.log.can_hold(records) || levels + 1 >= MAX_LEVELS {
            return Err(TreeError::LogTooSmall { levels, needed_bytes: S::LOG.bytes(records) + LINE_BYTES });
        }
        self.checkpoint();
        Ok(())
    }

    /// Makes what only the log knows durable in its place, and empties the log.
    fn checkpoint(&mut self) {
        self.log.checkpoint(&self.mem);
        self.space.release_held();
    }

    /// The word that links to the leaf of a path: the link of the leaf before, or the first leaf's.
    fn link_to(&self, path: &Path) -> u64 {
        for depth in (0..path.levels).rev() {
            let (node, position) = path.steps[depth];
            if position > 0 {
                let mut before = self.child(node, position - 1);
                for _ in depth + 1..path.levels {
                    before = self.child(before, S::Inner::count(&self.mem, before));
                }
                return self.leaf.link(before);
            }
        }
        FIRST_LEAF_OFF
    }

    /// The word that points to the node at a depth of the path; `path.levels` is the leaf's.
    fn pointer_to(&self, path: &Path, depth: usize) -> u64 {
        match depth.checked_sub(1) {
            None => ROOT_OFF,
            Some(above) => {
                let (node, position) = path.steps[above];
                S::Inner::child_off::<M, K>(&self.mem, &self.inner, node, position)
            }
        }
    }

    /// Takes the leaf of a path out of the tree, with the inner nodes that have no other child.
    fn remove_leaf(&mut self, path: &Path) {
        let has_another = |step: &(u64, usize)| S::Inner::count(&self.mem, step.0) > 0;
        let depth = path.steps().iter().rposition(has_another).expect("a root has two children");
        let (parent, position) = path.steps[depth];
        let count = S::Inner::count(&self.mem, parent);
        let mut left = None;
        let root = (depth == 0 && count == 1).then(|| {
            // The root keeps one child; if that has only one itself, it goes too, and so on.
            let (mut child, mut levels) = (self.child(parent, 1 - position), path.levels - 1);
            while levels > 0 && S::Inner::count(&self.mem, child) == 0 {
                left.get_or_insert(child);
                child = self.child(child, 0);
                levels -= 1;
            }
            child | levels as u64
        });
        let separator = S::Inner::place_of(&self.mem, parent, position.saturating_sub(1));
        let separator = K::load(&self.mem, self.inner.entry::<K>(parent, separator));
        let next = self.mem.load_u64(self.leaf.link(path.leaf));
        let link_off = self.link_to(path);
        S::unlink(self, path, Unlink { parent, depth, position, link_off, next, root });
        K::release(&self.mem, &mut self.space, &separator);
        for &(node, _) in &path.steps()[depth + 1..] {
            S::give_node(&mut self.space, node);
        }
        S::give_node(&mut self.space, path.leaf);
        if let Some(root) = root {
            S::give_node(&mut self.space, parent);
            while let Some(node) = left.filter(|node| *node != root & !LEVELS_MASK) {
                left = Some(self.child(node, 0));
                S::give_node(&mut self.space, node);
            }
        }
    }
}

/// The word that tells what is in a memory.
fn identity<K: KeyKind, S: Scheme>(config: &Config) -> u64 {
    const MARK: u64 = u64::from_le_bytes(*b"wb trees");
    let kind = K::WORDS as u64 * 2 + u64::from(K::OUT_OF_LINE);
    MARK ^ (S::ID << 48 | kind << 40 | config.node_lines << 32)
}

/// The shapes of leaves and inner nodes.
fn shapes<K: KeyKind, S: Scheme>(config: &Config) -> Result<(Shape, Shape), TreeError> {
    let node_words = (config.node_lines * LINE_BYTES / WORD_BYTES) as usize;
    let (leaf, inner) = (S::Leaf::shape(node_words, K::WORDS + 1), S::Inner::shape(node_words, K::WORDS + 1));
    let fits = (2..=16).contains(&config.node_lines) && leaf.capacity >= 3 && inner.capacity >= 3;
    let no_such = TreeError::NodeSize { scheme: S::NAME, node_lines: config.node_lines, key_words: K::WORDS };
    if fits { Ok((leaf, inner)) } else { Err(no_such) }
}

/// An empty scratch list for the entries of a node and one more.
fn scratch<T>() -> Vec<T> {
    Vec::with_capacity(MAX_ENTRIES + 2)
}
