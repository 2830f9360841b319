//! An ordered map: a B-tree whose nodes are objects.
//!
//! The trees of the index crate have locks and recovery of their own, so that a change of theirs is committed by itself. This one is
//! changed by the heap's transactions, together with everything else that these change.
//!
//! # Media layout
//!
//! `PMap` leads to the root node. A node has up to [`KEYS`] entries in the order of their keys, each with a pointer to its value, which is
//! an object; and, unless it is a leaf, an array of one more pointers to nodes: those between its entries. The tallies (`tally.rs`) say how many entries there are, once the root is more than a
//! leaf.
//!
//! # Invariants
//!
//! - I1: keys are in strict order, those of a child between the entries that it stands between.
//! - I2: all leaves are at one depth. A node has at least one entry.
//! - I3: places of a node beyond its entries are blank (`moves.rs`).
//!
//! # Commit point
//!
//! The transaction's, as everything that it does.
//!
//! # Recovery
//!
//! The pool's alone.
//!
//! # Concurrency
//!
//! The heap's: nodes are in conflict each alone, tallies each alone. The map itself changes only with its root.
//!
//! # Source
//!
//! B-trees (Bayer and McCreight), D1: entries of inner nodes are entries of the map, so that no key is there twice: keys may have arrays of their
//! own. D2: nodes may become emptier than half before they are merged, so that removals and insertions by turns do not merge and divide.

mod edit;
mod range;

pub use range::Range;

use super::keys::OrdKey;
use super::tally::{self, Tally, TallyFields, tallies};
use crate::brand::Brand;
use crate::error::{Result, corrupt};
use crate::place::{Obj, Ref};
use crate::slots::{PArr, PRc};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use range::Path;
use std::ops::{Bound, RangeBounds};

/// Most entries of a node: odd, so that the two halves of a full one are as long.
const KEYS: usize = 15;
/// Most children.
const CHILDREN: usize = KEYS + 1;
/// A node with fewer entries takes one from its neighbour, or becomes one with it.
const LEAST: usize = KEYS / 3;
/// No path of a tree that is in order is as long.
const DEPTH: usize = 40;
/// Tallies of a map.
const TALLIES: usize = 16;

#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Node")]
#[repr(C)]
struct Node<K: Persist, V: Persist> {
    entries: u64,
    children: PArr<PRc<Node<K, V>>>,
    keys: [K; KEYS],
    values: [PRc<Held<V>>; KEYS],
}

/// A value.
#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Value")]
#[repr(C)]
struct Held<V: Persist> {
    value: V,
}

/// The place of the value of an entry that there is.
fn value_at<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
    at: usize,
) -> Result<Ref<'t, B, V>> {
    match tx.load(node.values().at(at))? {
        Some(held) => Ok(held.value()),
        None => Err(corrupt("a map's node", node.off, format!("a value {at}"), "none")),
    }
}

/// A map from `K` to `V` in the order of the keys: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PMap<K, V>>`. Keys are given by reference: `&u64` for a map with keys of
/// type `u64`, `&str` for [`PString`](super::PString).
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, collections::PMap};
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Years { inventions: PMap<u32, u64> }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = Options::new();
/// # options.create = true;
/// # Heap::<_, Years>::with(dir.path().join("years.heap"), &options, |heap| {
/// heap.write::<_, Error>(|tx, years| {
///     for year in [1947, 1837, 1801] {
///         years.inventions().insert(tx, &year, 1)?;
///     }
///     let century = years.inventions().range(tx, 1800..1900)?;
///     let century: Vec<u32> = century.map(|entry| Ok(entry?.0)).collect::<Result<_, Error>>()?;
///     assert_eq!(century, [1801, 1837]);
///     Ok(())
/// })
/// # }).unwrap();
/// ```
///
/// # Cost and conflicts
///
/// An operation goes down a tree of nodes with 5 to 15 entries each; a change writes to one node, and sometimes to its
/// neighbours and the one above. Keys lie in the nodes, and each value in an object of its own, so that a place of a value is that value's
/// until it is removed, whatever else is done to the map.
///
/// Two transactions are in conflict if one changes a value or a node that the other looks at, or, for one insertion or removal in
/// sixteen, the same count; or the object that the map is a field of. [`len`](Ref::len) is in conflict with all insertions and
/// removals.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PMap<K: OrdKey, V: Persist> {
    root: PRc<Node<K, V>>,
    tallies: PArr<Tally>,
}

impl<K: OrdKey, V: Persist> PMap<K, V> {
    /// A map of nothing, which takes no memory beside itself.
    pub const fn new() -> PMap<K, V> {
        PMap { root: PRc::null(), tallies: PArr::null() }
    }
}

impl<K: OrdKey, V: Persist> Default for PMap<K, V> {
    fn default() -> PMap<K, V> {
        PMap::new()
    }
}

type NodeObj<'t, B, K, V> = Obj<'t, B, Node<K, V>>;

/// Where a key is in a node, or where it belongs.
type Found = std::result::Result<usize, usize>;

fn entries_of<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
) -> Result<usize> {
    match tx.get(node.entries())? as usize {
        entries if entries <= KEYS => Ok(entries),
        entries => Err(corrupt("a map's node", node.off, format!("at most {KEYS} entries"), entries)),
    }
}

/// The child before the entry `at`; `None` in a leaf.
fn child<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
    at: usize,
) -> Result<Option<NodeObj<'t, B, K, V>>> {
    let Some(children) = tx.array(node.children())? else { return Ok(None) };
    let child = children.get(at).map(|slot| tx.load(slot)).transpose()?.flatten();
    match child {
        Some(child) => Ok(Some(child)),
        None => Err(corrupt("a map's node", node.off, format!("a child {at}"), "none")),
    }
}

/// Where the first entry is that is not before `key`, and whether it is that key.
#[inline]
fn search<'t, B: Brand, K: OrdKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    node: NodeObj<'t, B, K, V>,
    key: &K::Query,
) -> Result<Found> {
    K::search(tx, node.keys(), entries_of(tx, node)?, key)
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Ref<'t, B, PMap<K, V>> {
    /// Number of entries. In conflict with every insertion and removal.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        let Some(root) = tx.load(self.root())? else { return Ok(0) };
        match tx.array(self.tallies())? {
            Some(tallies) => Ok(tally::sum(tx, tallies)?.max(0) as usize),
            None => entries_of(tx, root),
        }
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(tx.load(self.root())?.is_none())
    }

    /// The place of a key's value.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn get(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<Ref<'t, B, V>>> {
        let mut next = tx.load(self.root())?;
        for _ in 0..DEPTH {
            let Some(node) = next else { return Ok(None) };
            match search(tx, node, key)? {
                Ok(at) => return value_at(tx, node, at).map(Some),
                Err(at) => next = child(tx, node, at)?,
            }
        }
        Err(self.too_deep())
    }

    #[cold]
    fn too_deep(self) -> crate::Error {
        corrupt("a map", self.off, format!("at most {DEPTH} levels"), "more")
    }

    /// Whether there is an entry with this key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn contains(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<bool> {
        Ok(self.get(tx, key)?.is_some())
    }

    /// The way to a key, or to the place in a leaf where it belongs, and whether it is there. The map is not empty.
    fn path(
        self,
        tx: &ReadTx<'t, B>,
        root: NodeObj<'t, B, K, V>,
        key: &K::Query,
    ) -> Result<(Path<'t, B, K, V>, bool)> {
        let mut path = Path::new();
        let mut node = root;
        for _ in 0..DEPTH {
            match search(tx, node, key)? {
                Ok(at) => {
                    path.push((node, at));
                    return Ok((path, true));
                }
                Err(at) => {
                    path.push((node, at));
                    match child(tx, node, at)? {
                        Some(child) => node = child,
                        None => return Ok((path, false)),
                    }
                }
            }
        }
        Err(self.too_deep())
    }

    /// The place of a key's value, which is made of `value` if there is none; else the value is given back.
    fn entry<F: FnOnce() -> V>(
        self,
        tx: &mut Tx<'t, B>,
        key: &K::Query,
        value: F,
    ) -> Result<(Ref<'t, B, V>, Option<F>)> {
        let root = match tx.load(self.root())? {
            Some(root) => root,
            None => {
                let root = tx.alloc_blank()?;
                tx.link(self.root(), root)?;
                root
            }
        };
        let (path, is_there) = self.path(tx, root, key)?;
        let Some(&(node, at)) = path.last() else { return Err(self.too_deep()) };
        if is_there {
            return Ok((value_at(tx, node, at)?, Some(value)));
        }
        let (leaf, at) = if entries_of(tx, node)? < KEYS { (node, at) } else { self.make_room(tx, &path)? };
        edit::insert_blank(tx, leaf, at)?;
        tx.put(leaf.keys().at(at), K::new(key))?;
        K::complete(tx, leaf.keys().at(at), key)?;
        let held = tx.alloc(Held { value: value() })?;
        tx.link(leaf.values().at(at), held)?;
        self.count(tx, leaf, 1)?;
        Ok((held.value(), None))
    }

    /// Counts an entry more or less, unless the root's own number is enough.
    fn count(self, tx: &mut Tx<'t, B>, leaf: NodeObj<'t, B, K, V>, by: i64) -> Result<()> {
        if tx.array(self.tallies())?.is_none() {
            return Ok(());
        }
        let tallies = tallies(tx, self.tallies())?;
        // By the leaf, so that who is in conflict about a tally is likely to be about the leaf too.
        let part = (leaf.off >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        *tx.get_mut(tallies.at(part as usize & (tallies.len() - 1)).count())? += by;
        Ok(())
    }

    /// Sets the value of a key, whether it was there or not, and returns its place. Pointers of a value that was there let go of what
    /// they led to.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); the pool's own, when it is full.
    pub fn insert(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Ref<'t, B, V>> {
        let (place, value) = self.entry(tx, key, || value)?;
        if let Some(value) = value {
            tx.put(place, value())?;
        }
        Ok(place)
    }

    /// The place of a key's value, which is made if there is none.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn get_or_insert_with(
        self,
        tx: &mut Tx<'t, B>,
        key: &K::Query,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'t, B, V>> {
        Ok(self.entry(tx, key, value)?.0)
    }

    /// Removes the entry of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn remove(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<bool> {
        let Some(root) = tx.load(self.root())? else { return Ok(false) };
        let (path, is_there) = self.path(tx, root, key)?;
        if is_there {
            self.remove_at(tx, path)?;
        }
        Ok(is_there)
    }

    /// Removes all entries. They die a bounded part with each commit, so that the size does not matter.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.link(self.root(), None)?;
        tx.link_array(self.tallies(), None)
    }

    /// The first entry: a copy of its key, and the place of its value.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn first(self, tx: &ReadTx<'t, B>) -> Result<Option<(K::Owned, Ref<'t, B, V>)>> {
        self.iter(tx)?.next().transpose()
    }

    /// The last entry: a copy of its key, and the place of its value.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn last(self, tx: &ReadTx<'t, B>) -> Result<Option<(K::Owned, Ref<'t, B, V>)>> {
        self.iter(tx)?.next_back().transpose()
    }

    /// All entries in order: copies of the keys, and the places of the values.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); so may each step.
    pub fn iter<'x>(self, tx: &'x ReadTx<'t, B>) -> Result<Range<'x, 't, B, K, V>> {
        self.range::<(Bound<&K::Query>, Bound<&K::Query>)>(tx, (Bound::Unbounded, Bound::Unbounded))
    }

    /// The entries whose keys are in a range, in order, from both ends. For keys without a size, such as `str`, the range is a pair of
    /// [`Bound`]s.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); so may each step.
    pub fn range<'x, R: RangeBounds<K::Query>>(
        self,
        tx: &'x ReadTx<'t, B>,
        range: R,
    ) -> Result<Range<'x, 't, B, K, V>> {
        Range::new(self, tx, range.start_bound(), range.end_bound())
    }
}

impl<'t, B: Brand, K: OrdKey, V: Plain> Ref<'t, B, PMap<K, V>> {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Ref::len).
    pub fn value(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<V>> {
        self.get(tx, key)?.map(|place| tx.get(place)).transpose()
    }

    /// Sets the value of a key, and returns the one that it had.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Ref::insert).
    pub fn replace(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Option<V>> {
        let (place, is_there) = self.entry(tx, key, || value)?;
        if is_there.is_none() {
            return Ok(None);
        }
        let old = tx.get(place)?;
        tx.set(place, value)?;
        Ok(Some(old))
    }

    /// Removes the entry of a key, and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Ref::insert).
    pub fn take(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<Option<V>> {
        let value = self.value(tx, key)?;
        if value.is_some() {
            self.remove(tx, key)?;
        }
        Ok(value)
    }
}
