//! One change of the tree's structure: it builds new nodes and exchanges one pointer.
//!
//! Nodes above a leaf, and leaves that are divided or joined, are never rewritten in place. A change builds
//! the new nodes in fresh blocks, stores the one word that leads to them (a child word, or the root word),
//! and retires the nodes that they replace. Readers therefore meet a node's old contents or its new ones,
//! never a mix.

use super::WbTree;
use super::items::Items;
use super::layout::{
    FANOUT, INLINE_BYTES, INNER_BYTES, LEAF_BYTES, MAX_SHARED_BYTES, NodeKind, SEPARATOR_HEAD_BYTES,
    SeparatorWord, TreeWord, field, put_word,
};
use super::locks::HeldLocks;
use super::node::{Inner, Leaf, Pending, View};
use super::search::{Goal, descend};
use super::separator::{Separator, shared_bytes};
use crate::error::{Result, corrupt};
use tembo_pmem::Region;
use tembo_pool::Tx;

/// The path from the root to a leaf: the inner nodes, and the child taken in each.
pub(crate) struct Path<'m> {
    pub(crate) tree: TreeWord,
    pub(crate) steps: Vec<(Inner<'m>, usize)>,
    pub(crate) leaf: Leaf,
}

impl<'m> Path<'m> {
    pub(crate) fn to_key(view: impl View<'m>, tree: TreeWord, key: &[u8]) -> Result<Path<'m>> {
        let mut steps = Vec::with_capacity(tree.level());
        let leaf = descend(view, tree, Goal::At(key), |node, child| steps.push((node, child)))?;
        Ok(Path { tree, steps, leaf })
    }

    /// The fences of the node at `depth` (0 is the root), which lies on the path to `key`.
    pub(crate) fn fences<'a>(
        &self,
        depth: usize,
        key: &'a [u8],
    ) -> Result<(Option<Separator<'a>>, Option<Separator<'a>>)>
    where
        'm: 'a,
    {
        let Some(above) = depth.checked_sub(1) else { return Ok((None, None)) };
        let taken = self.steps[above].1;
        Ok((self.low_fence(above, taken, key)?, self.high_fence(above, taken, key)?))
    }

    /// The fence below child `child` of the node at `depth` (0 is the root), which lies on the path to `key`.
    pub(crate) fn low_fence<'a>(
        &self,
        depth: usize,
        child: usize,
        key: &'a [u8],
    ) -> Result<Option<Separator<'a>>>
    where
        'm: 'a,
    {
        let above = self.steps[..depth].iter().map(|(node, taken)| (node, *taken)).rev();
        let fenced =
            std::iter::once((&self.steps[depth].0, child)).chain(above).find(|(_, child)| *child > 0);
        fenced.map(|(node, child)| node.separator(child - 1, key)).transpose()
    }

    /// The fence above child `child` of the node at `depth`.
    pub(crate) fn high_fence<'a>(
        &self,
        depth: usize,
        child: usize,
        key: &'a [u8],
    ) -> Result<Option<Separator<'a>>>
    where
        'm: 'a,
    {
        let above = self.steps[..depth].iter().map(|(node, taken)| (node, *taken)).rev();
        let fenced = std::iter::once((&self.steps[depth].0, child))
            .chain(above)
            .find(|(node, child)| *child + 1 < node.count());
        fenced.map(|(node, child)| node.separator(child, key)).transpose()
    }
}

/// An inner node's contents in memory, for changing it and building it anew.
pub(crate) struct InnerDraft<'a> {
    pub(crate) children: Vec<u64>,
    pub(crate) separators: Vec<Separator<'a>>,
}

impl<'a> InnerDraft<'a> {
    pub(crate) fn of<'m: 'a>(view: impl View<'m>, node: &Inner<'m>, key: &'a [u8]) -> Result<InnerDraft<'a>> {
        let count = node.count();
        let mut children = Vec::with_capacity(2 * FANOUT);
        let mut separators = Vec::with_capacity(2 * FANOUT);
        for i in 0..count {
            children.push(view.load(node.child_off(i))?);
        }
        for i in 0..count - 1 {
            separators.push(node.separator(i, key)?);
        }
        Ok(InnerDraft { children, separators })
    }

    /// The contents of this node, `between`, and the contents of the node on its right.
    pub(crate) fn joined(mut self, between: Separator<'a>, right: InnerDraft<'a>) -> InnerDraft<'a> {
        self.children.extend(right.children);
        self.separators.push(between);
        self.separators.extend(right.separators);
        self
    }

    /// The children in `range` with the separators between them.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> (&[u64], &[Separator<'a>]) {
        (&self.children[range.clone()], &self.separators[range.start..range.end - 1])
    }
}

/// A change of the structure under construction.
pub(crate) struct Edit<'m, 'o, 't> {
    pub(crate) tree: &'m WbTree,
    pub(crate) tx: &'o mut Tx<'t>,
    /// The locks that the change holds, if there are other writers.
    held: Option<&'o HeldLocks<'o>>,
    /// Blocks that the change makes unreachable. They are freed only when it is complete: until then their
    /// bytes may still be borrowed.
    retired: Vec<u64>,
}

impl<'m, 'o, 't> Edit<'m, 'o, 't> {
    pub(crate) fn new(tree: &'m WbTree, tx: &'o mut Tx<'t>, held: Option<&'o HeldLocks<'o>>) -> Self {
        Edit { tree, tx, held, retired: Vec::new() }
    }

    /// Locks a leaf until the change is committed. Called before the leaf's state is read; for a new leaf,
    /// before anything leads to it.
    pub(crate) fn lock(&self, leaf: u64) {
        if let Some(held) = self.held {
            held.lock(leaf);
        }
    }

    fn note_change(&self) {
        if let Some(held) = self.held {
            held.change_structure();
        }
    }

    /// Frees the retired blocks.
    pub(crate) fn finish(self) -> Result<()> {
        for block in self.retired {
            self.tx.free(block)?;
        }
        Ok(())
    }

    pub(crate) fn region(&self) -> &'m Region {
        self.tree.region()
    }

    pub(crate) fn view(&self) -> Pending<'m, '_> {
        self.tree.pending(self.tx)
    }

    pub(crate) fn retire(&mut self, block: u64) {
        self.retired.push(block);
    }

    /// Retires an inner node, but not the blocks of its separators: these move with the separators.
    pub(crate) fn retire_inner(&mut self, node: &Inner<'_>) -> Result<()> {
        let common = node.common_block()?;
        if common != 0 {
            self.retire(common);
        }
        self.retire_node(node.off, INNER_BYTES)
    }

    pub(crate) fn retire_leaf(&mut self, leaf: u64) -> Result<()> {
        self.retire_node(leaf, LEAF_BYTES)
    }

    /// Retires a node, and undoes the transaction's stores to it.
    ///
    /// ORDER: readers can reach the node until the word that leads to it is exchanged, which happens after
    /// those stores. Otherwise they would find intermediate values of keys, and blocks that the transaction
    /// has given back.
    pub(crate) fn retire_node(&mut self, node: u64, bytes: u64) -> Result<()> {
        for word in self.tx.logged_words(node, bytes) {
            let before = self.region().load_u64(word).map_err(tembo_pool::Error::from)?;
            self.tx.store(word, before)?;
        }
        self.retire(node);
        Ok(())
    }

    /// Builds a leaf. The space past its last entry is not written: it is not live, so no reader reads it.
    pub(crate) fn build_leaf(&mut self, items: &Items) -> Result<u64> {
        let off = self.tx.alloc(LEAF_BYTES)?;
        self.lock(off);
        let mut image = items.image();
        put_word(&mut image, field!(PmLeaf.tally), self.tree.tally_of_items(items)?);
        self.tx.write_fresh(off, &image[..items.media_bytes()])?;
        Ok(off)
    }

    fn build_separator_block(&mut self, bytes: &[u8]) -> Result<u64> {
        let off = self.tx.alloc(SEPARATOR_HEAD_BYTES + bytes.len() as u64)?;
        self.tx.write_fresh(off, &(bytes.len() as u64).to_ne_bytes())?;
        self.tx.write_fresh(off + SEPARATOR_HEAD_BYTES, bytes)?;
        Ok(off)
    }

    /// The two words of a separator in a node with this base. The separator's block is kept if the words
    /// refer to it, else retired.
    pub(crate) fn encode(&mut self, separator: &Separator<'_>, base: usize) -> Result<(u64, u64)> {
        let rest_bytes = separator.len().checked_sub(base).ok_or_else(|| {
            corrupt("a separator", separator.block, format!("at least {base} bytes"), separator.len())
        })?;
        let place = if rest_bytes <= INLINE_BYTES {
            if separator.block != 0 {
                self.retire(separator.block);
            }
            SeparatorWord::Inline(rest_bytes)
        } else if separator.block != 0 {
            SeparatorWord::Block(separator.block)
        } else {
            SeparatorWord::Block(self.build_separator_block(&separator.to_vec())?)
        };
        Ok((separator.prefix_at(base), place.encode()))
    }

    /// Builds an inner node between two fences.
    pub(crate) fn build_inner(
        &mut self,
        level: usize,
        skip: usize,
        (children, separators): (&[u64], &[Separator<'_>]),
    ) -> Result<u64> {
        debug_assert!(children.len() == separators.len() + 1 && (2..=FANOUT).contains(&children.len()));
        let base = choose_base(skip, separators);
        let mut image = [0; INNER_BYTES as usize];
        let tally = self.tree.tally_of_children(self.view(), level, children)?;
        put_word(&mut image, field!(PmInner.tally), tally);
        put_word(&mut image, field!(PmInner.kind), NodeKind::inner(level, children.len(), skip, base).0);
        if base > skip {
            let common = self.build_separator_block(&separators[0].to_vec()[..base])?;
            put_word(&mut image, field!(PmInner.common), common);
        }
        for (i, separator) in separators.iter().enumerate() {
            let (prefix, word) = self.encode(separator, base)?;
            put_word(&mut image, field!(PmInner.prefixes) + 8 * i as u64, prefix);
            put_word(&mut image, field!(PmInner.separators) + 8 * i as u64, word);
        }
        for (i, child) in children.iter().enumerate() {
            put_word(&mut image, field!(PmInner.children) + 8 * i as u64, *child);
        }
        self.write_inner(&image, children.len())
    }

    /// Writes an inner node up to its last child; no reader reads the space behind it.
    pub(crate) fn write_inner(&mut self, image: &[u8; INNER_BYTES as usize], count: usize) -> Result<u64> {
        let off = self.tx.alloc(INNER_BYTES)?;
        let bytes = field!(PmInner.children) as usize + 8 * count;
        self.tx.write_fresh(off, &image[..bytes])?;
        Ok(off)
    }

    /// Makes the word that leads to the node at `depth` of the path lead to `new`, a node of the same level.
    ///
    /// PERSIST(I5): this is the publishing store of every change of structure. `new` and all new nodes below
    /// it lie in blocks of this transaction, which the commit makes durable before it makes this store.
    pub(crate) fn replace(&mut self, path: &Path<'_>, depth: usize, new: u64) -> Result<()> {
        match depth.checked_sub(1) {
            None => self.store_root(TreeWord::new(new, path.tree.level())),
            Some(above) => {
                self.note_change();
                let (parent, child) = &path.steps[above];
                Ok(self.tx.store(parent.child_off(*child), new)?)
            }
        }
    }

    /// Exchanges the whole tree.
    pub(crate) fn store_root(&mut self, tree: TreeWord) -> Result<()> {
        self.note_change();
        self.tree.store_root(self.tx, tree)
    }

    /// The bytes that all keys between the fences of children `first` to `last` of the node at `depth` share.
    pub(crate) fn skip_between(
        path: &Path<'m>,
        depth: usize,
        first: usize,
        last: usize,
        key: &[u8],
    ) -> Result<usize> {
        let low = path.low_fence(depth, first, key)?;
        let high = path.high_fence(depth, last, key)?;
        Ok(shared_bytes(low.as_ref(), high.as_ref()))
    }
}

/// The base of a node, at which its prefixes begin: the bytes that all its keys share or, if some separators
/// would not fit into the node, the bytes that all its separators share.
fn choose_base(skip: usize, separators: &[Separator<'_>]) -> usize {
    if separators.iter().all(|s| s.len() <= skip + INLINE_BYTES) {
        return skip;
    }
    match separators {
        [first, .., last] => first.lcp(last).clamp(skip, MAX_SHARED_BYTES),
        _ => skip,
    }
}
