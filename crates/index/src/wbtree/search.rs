//! The descent to a leaf, and the search within it.

use super::WbTree;
use super::layout::{LeafState, MAX_HEIGHT, SeparatorWord, TreeWord};
use super::locks::HeldLocks;
use super::node::{
    Inner, Leaf, Media, Pending, Record, View, after, ask_for_node, matches, prefetch_node, separator_bytes,
};
use crate::error::{Result, corrupt};
use crate::key_prefix::{fingerprint, prefix8};
use std::cmp::Ordering;
use tembo_pool::Tx;

/// The leaf that a search looks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'k> {
    /// The leftmost leaf.
    First,
    /// The rightmost leaf.
    Last,
    /// The leaf to which a key belongs.
    At(&'k [u8]),
    /// The leaf to which the keys just below a key belong.
    Below(&'k [u8]),
}

impl<'k> Goal<'k> {
    /// A key that begins with the bytes that the keys of each node on the path share. On the path to the
    /// first or last leaf no node has two fences, so its keys share no bytes, and this is empty.
    pub(crate) fn key(self) -> &'k [u8] {
        match self {
            Goal::First | Goal::Last => &[],
            Goal::At(key) | Goal::Below(key) => key,
        }
    }
}

/// Descends to the leaf. Calls `visit` with every inner node and the child taken in it.
#[inline(always)]
pub(crate) fn descend<'m>(
    view: impl View<'m>,
    tree: TreeWord,
    goal: Goal<'_>,
    visit: impl FnMut(Inner<'m>, usize),
) -> Result<Leaf> {
    let off = descend_to(view, tree, goal, visit)?;
    Leaf::open(view.region(), off)
}

/// As [`descend`], but only prefetches the leaf, and returns its offset.
#[inline(always)]
pub(crate) fn descend_to<'m>(
    view: impl View<'m>,
    tree: TreeWord,
    goal: Goal<'_>,
    mut visit: impl FnMut(Inner<'m>, usize),
) -> Result<u64> {
    let region = view.region();
    let (mut off, mut level) = (tree.node(), tree.level());
    if level > MAX_HEIGHT {
        return Err(corrupt("the root of a tree", off, "a level up to 32", level));
    }
    prefetch_node(region, off, level);
    while level > 0 {
        let node = Inner::open(region, off, level)?;
        let child = match goal {
            Goal::First => 0,
            Goal::Last => node.count() - 1,
            Goal::At(key) => locate(view, &node, key, |separator| separator.is_le())?,
            Goal::Below(key) => locate(view, &node, key, |separator| separator.is_lt())?,
        };
        visit(node, child);
        off = view.load(node.child_off(child))?;
        level -= 1;
        prefetch_node(region, off, level);
    }
    Ok(off)
}

/// Descends with several keys at once, each with the root in front, and prefetches all that the descents
/// touch: the keys wait for a level of nodes together, and once more for the child words in them. Returns
/// the leaves, which are asked for and not there yet, with their keys; without those on whose way there is
/// damage.
pub(crate) fn descend_together<'p, 'k, 'm>(
    view: impl View<'m>,
    tree: TreeWord,
    mut places: &'p mut [(u64, &'k [u8])],
) -> &'p mut [(u64, &'k [u8])] {
    let region = view.region();
    prefetch_node(region, tree.node(), tree.level());
    let levels = if tree.level() > MAX_HEIGHT { 0..0 } else { 0..tree.level() };
    for level in levels.rev() {
        places = advance(places, |off, key| {
            let node = Inner::open(region, off, level + 1)?;
            let word = node.child_off(locate(view, &node, key, |separator| separator.is_le())?);
            region.prefetch(word);
            Ok(word)
        });
        places = advance(places, |word, _| {
            let child = view.load(word)?;
            ask_for_node(region, child, level);
            Ok(child)
        });
    }
    places
}

/// Replaces each offset by what `step` makes of it, and leaves out those for which it fails.
#[inline(always)]
fn advance<'p, 'k>(
    places: &'p mut [(u64, &'k [u8])],
    mut step: impl FnMut(u64, &'k [u8]) -> Result<u64>,
) -> &'p mut [(u64, &'k [u8])] {
    let mut kept = 0;
    for i in 0..places.len() {
        let (off, key) = places[i];
        if let Ok(next) = step(off, key) {
            places[kept] = (next, key);
            kept += 1;
        }
    }
    &mut places[..kept]
}

/// The number of separators of a node to the left of `key`. `is_left` decides by a separator's order relative
/// to the key.
#[inline(always)]
fn locate<'m>(
    view: impl View<'m>,
    node: &Inner<'m>,
    key: &[u8],
    is_left: impl Fn(Ordering) -> bool,
) -> Result<usize> {
    let (skip, base) = (node.kind.skip(), node.kind.base());
    if base > skip {
        let common = &node.common()?[skip..];
        let part = after(key, skip, node.off)?;
        match part[..part.len().min(common.len())].cmp(common) {
            Ordering::Less => return Ok(0),
            Ordering::Greater => return Ok(node.count() - 1),
            Ordering::Equal => {}
        }
    }
    let rest = after(key, base, node.off)?;
    let prefix = prefix8(rest);
    let mut left = node.count_up_to(prefix);
    // Separators with the same prefix, if any, are the last ones counted.
    while left > 0 && node.prefix(left - 1) == prefix {
        if is_left(compare_tied(view, node, left - 1, key, rest)?) {
            break;
        }
        left -= 1;
    }
    Ok(left)
}

/// The order of separator `i` relative to `key`, when their prefixes are equal. `rest` is the key after the
/// node's base.
#[cold]
fn compare_tied<'m>(
    view: impl View<'m>,
    node: &Inner<'m>,
    i: usize,
    key: &[u8],
    rest: &[u8],
) -> Result<Ordering> {
    match node.separator_place(i)? {
        // Both are padded with zeros to the same 8 bytes, so the shorter one is smaller.
        SeparatorWord::Inline(bytes) => Ok(bytes.cmp(&rest.len())),
        SeparatorWord::Block(block) => Ok(separator_bytes(view.region(), block)?.cmp(key)),
    }
}

/// A key, with values that are computed from it once.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) fingerprint: u8,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(key: &'k [u8]) -> Probe<'k> {
        Probe { key, fingerprint: fingerprint(key) }
    }
}

/// Looks for a key in a leaf as the transaction sees it.
#[inline(always)]
pub(crate) fn find_pending<'m>(
    view: Pending<'m, '_>,
    leaf: &Leaf,
    probe: Probe<'_>,
) -> Result<(LeafState, Option<Found<'m>>)> {
    let state = leaf.state(view)?;
    let media = Media(view.region);
    // If the state is that of media, the transaction has added and removed nothing in this leaf.
    let found = if leaf.state(media)? == state {
        find(view, media, leaf, state, probe)
    } else {
        find(view, view, leaf, state, probe)
    };
    Ok((state, found?))
}

/// The place of a key, as the transaction sees it: its entry, or the leaf to which it belongs.
#[derive(Clone, Copy)]
pub(crate) struct TreePosition<'m> {
    pub(crate) tree: TreeWord,
    /// The leaf with its state; `None` in an empty tree.
    pub(crate) leaf: Option<(Leaf, LeafState)>,
    pub(crate) found: Option<Found<'m>>,
    /// The locks that the change holds, if there are other writers.
    pub(crate) held: Option<&'m HeldLocks<'m>>,
}

impl WbTree {
    #[inline(always)]
    pub(crate) fn find_place(&self, tx: &Tx<'_>, probe: Probe<'_>) -> Result<TreePosition<'_>> {
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(TreePosition { tree, leaf: None, found: None, held: None });
        }
        let leaf = descend(view, tree, Goal::At(probe.key), |_, _| ())?;
        let (state, found) = find_pending(view, &leaf, probe)?;
        Ok(TreePosition { tree, leaf: Some((leaf, state)), found, held: None })
    }
}

/// An entry found in a leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'m> {
    pub(crate) slot: usize,
    pub(crate) record: u64,
    pub(crate) entry: Record<'m>,
}

/// Looks for a key among the entries that are live in `state`. Loads the record words through `view`, and
/// words that change only together with the state through `keys`.
#[inline(always)]
pub(crate) fn find<'m>(
    view: impl View<'m>,
    keys: impl View<'m>,
    leaf: &Leaf,
    state: LeafState,
    probe: Probe<'_>,
) -> Result<Option<Found<'m>>> {
    let candidates = matches(leaf.fingerprints(keys)?, probe.fingerprint) & state.bitmap();
    find_matching(view, keys, leaf, candidates, probe)
}

/// As [`find`], among the live entries whose fingerprints are the key's.
#[inline(always)]
pub(crate) fn find_matching<'m>(
    view: impl View<'m>,
    keys: impl View<'m>,
    leaf: &Leaf,
    mut candidates: u32,
    probe: Probe<'_>,
) -> Result<Option<Found<'m>>> {
    if candidates == 0 {
        return Ok(None);
    }
    let prefix = leaf.prefix_of(probe.key)?;
    while candidates != 0 {
        let slot = candidates.trailing_zeros() as usize;
        if keys.load(leaf.prefix_off(slot))? == prefix {
            let record = view.load(leaf.record_off(slot))?;
            let entry = Record::read(view.region(), record)?;
            if entry.key == probe.key {
                return Ok(Some(Found { slot, record, entry }));
            }
        }
        candidates &= candidates - 1;
    }
    Ok(None)
}

/// The offset of a key's probable record; the record itself is not read.
pub(crate) fn likely_record<'m>(view: impl View<'m>, leaf: &Leaf, key: &[u8]) -> Result<Option<u64>> {
    let live = leaf.state(view)?.bitmap();
    let candidates = matches(leaf.fingerprints(view)?, fingerprint(key)) & live;
    if candidates == 0 {
        return Ok(None);
    }
    Ok(Some(view.load(leaf.record_off(candidates.trailing_zeros() as usize))?))
}
