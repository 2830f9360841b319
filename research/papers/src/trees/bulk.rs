//! Making trees: empty ones, and from sorted entries.

use super::key::KeyKind;
use super::log::{Log, MAX_MEM_BYTES};
use super::node::{Item, Layout, NOWHERE, Shape, build};
use super::space::Space;
use super::{
    Config, EPOCH_OFF, FIRST_LEAF_OFF, IDENTITY_OFF, LOG_BYTES_OFF, LOG_OFF, ROOT_OFF, Scheme, Tree,
    TreeError, identity, scratch, shapes,
};
use crate::mem::Mem;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// A node that was built, with the smallest key below it.
type Built<S> = (S, u64);

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    /// An empty tree in a memory of zeros.
    ///
    /// # Errors
    ///
    /// [`TreeError`] if the scheme has no such nodes, or the memory is too small or too large.
    pub fn create(mem: M, config: Config) -> Result<Self, TreeError> {
        Tree::bulk_load(mem, config, 1.0, std::iter::empty())
    }

    /// A tree of ascending entries in a memory of zeros, each node filled with the share `fill` of what it
    /// could hold, rounded down.
    ///
    /// # Errors
    ///
    /// [`TreeError`] if the scheme has no such nodes, the memory is too small or too large, or the keys do
    /// not ascend.
    pub fn bulk_load(
        mem: M,
        config: Config,
        fill: f64,
        entries: impl IntoIterator<Item = (K::Owned, u64)>,
    ) -> Result<Self, TreeError> {
        let log_bytes = config.log_bytes.unwrap_or(S::LOG_BYTES).next_multiple_of(LINE_BYTES);
        let mut tree = Tree::attach(mem, config, log_bytes)?;
        let leaves = tree.load_leaves(fill, entries)?;
        let first = leaves[0].1;
        let (mut nodes, mut levels) = (leaves, 0);
        while nodes.len() > 1 {
            nodes = tree.load_inner(fill, &nodes)?;
            levels += 1;
        }
        tree.mem.store_u64(ROOT_OFF, nodes[0].1 | levels);
        tree.mem.store_u64(FIRST_LEAF_OFF, first);
        tree.mem.store_u64(LOG_BYTES_OFF, log_bytes);
        tree.log.create(&tree.mem);
        if S::PERSISTENT {
            tree.mem.flush(0, LINE_BYTES);
            // PERSIST(I5): the whole tree, before the word that says that there is one.
            tree.mem.fence();
        }
        tree.mem.store_u64(IDENTITY_OFF, identity::<K, S>(&config));
        if S::PERSISTENT {
            tree.mem.flush(IDENTITY_OFF, WORD_BYTES);
            // PERSIST(I5): that word, before the first operation is acknowledged.
            tree.mem.fence();
        }
        Ok(tree)
    }

    /// The volatile side of a tree.
    pub(crate) fn attach(mem: M, config: Config, log_bytes: u64) -> Result<Self, TreeError> {
        let (leaf, inner) = shapes::<K, S>(&config)?;
        let bytes = mem.len_bytes();
        if bytes > MAX_MEM_BYTES {
            return Err(TreeError::MemoryTooLarge { bytes });
        }
        let node_bytes = config.node_lines * LINE_BYTES;
        if LOG_OFF + log_bytes + node_bytes > bytes {
            return Err(TreeError::Full);
        }
        Ok(Tree {
            log: Log::new(S::LOG, EPOCH_OFF, LOG_OFF, log_bytes),
            space: Space::new(LOG_OFF + log_bytes, node_bytes, bytes),
            mem,
            node_bytes,
            leaf,
            inner,
            items: scratch(),
            edits: scratch(),
            fresh: scratch(),
            scheme: std::marker::PhantomData,
        })
    }

    fn take_node(&mut self) -> Result<u64, TreeError> {
        if self.space.has_room(1, 0, 0) { Ok(self.space.take_node()) } else { Err(TreeError::Full) }
    }

    /// Builds a node, flushed but not fenced.
    fn load_node<L: Layout>(&self, shape: &Shape, node: u64, items: &[Item<K::Stored>], link: u64) {
        build::<K, L>(shape, node, items, link, |off, word| self.mem.store_u64(off, word));
        if S::PERSISTENT {
            self.mem.flush(node, shape.used_bytes::<K>(items.len()));
        }
    }

    /// Builds the chain of leaves.
    fn load_leaves(
        &mut self,
        fill: f64,
        entries: impl IntoIterator<Item = (K::Owned, u64)>,
    ) -> Result<Vec<Built<K::Stored>>, TreeError> {
        let per_leaf = filled(self.leaf.capacity, fill);
        let mut built: Vec<Built<K::Stored>> = Vec::new();
        let (mut items, mut node) = (std::mem::take(&mut self.items), self.take_node()?);
        let mut last: Option<K::Stored> = None;
        for (number, (key, value)) in entries.into_iter().enumerate() {
            let key = K::place(&self.mem, &mut self.space, &K::probe(K::key(&key)), S::PERSISTENT)
                .ok_or(TreeError::Full)?;
            if last.is_some_and(|last| K::compare_stored(&self.mem, &last, &key).is_ge()) {
                return Err(TreeError::NotAscending { number: number as u64 });
            }
            last = Some(key);
            if items.len() == per_leaf {
                let next = self.take_node()?;
                self.load_node::<S::Leaf>(&self.leaf, node, &items, next);
                built.push((items[0].key, node));
                items.clear();
                node = next;
            }
            items.push(Item { key, value, at: NOWHERE });
        }
        self.load_node::<S::Leaf>(&self.leaf, node, &items, 0);
        built.push((items.first().map_or_else(K::Stored::default, |item| item.key), node));
        items.clear();
        self.items = items;
        Ok(built)
    }

    /// Builds the level above `below`.
    fn load_inner(
        &mut self,
        fill: f64,
        below: &[Built<K::Stored>],
    ) -> Result<Vec<Built<K::Stored>>, TreeError> {
        let mut built = Vec::new();
        let mut items = std::mem::take(&mut self.items);
        for children in below.chunks(filled(self.inner.capacity, fill) + 1) {
            let node = self.take_node()?;
            for (key, child) in &children[1..] {
                let key = K::copy(&self.mem, &mut self.space, key, S::PERSISTENT).ok_or(TreeError::Full)?;
                items.push(Item { key, value: *child, at: NOWHERE });
            }
            self.load_node::<S::Inner>(&self.inner, node, &items, children[0].1);
            built.push((children[0].0, node));
            items.clear();
        }
        self.items = items;
        Ok(built)
    }
}

/// How many of `capacity` entries make the share `fill`.
fn filled(capacity: usize, fill: f64) -> usize {
    ((capacity as f64 * fill) as usize).clamp(1, capacity)
}
