//! An ordered map: a B-tree whose nodes are objects.
//!
//! The trees of the index crate have their own locks and recovery, and commit their own changes. This one is
//! changed by the heap's transactions, together with everything else that they change.
//!
//! # Media layout
//!
//! `PMap` leads to the root: a leaf, or an inner node. A node has up to [`SLOTS`] entries, each a key and its
//! value, in slots, and an [`Order`] of the slots (`sorted.rs`). An inner node also has pointers to children,
//! one more than entries: the first leads to the child before all entries, and each further one to the child
//! after the entry in the slot of the same number. The children of a node are all leaves, or all inner nodes.
//!
//! # Invariants
//!
//! - I1: keys are in strict order, those of a child between the entries around it.
//! - I2: all leaves have the same depth. A node has at least one entry.
//! - I3: pointers to children are null where there are no entries.
//! - I4: pointers in slots without an entry are null (`value_move.rs`), or were linked by a program through a
//!   place that it kept for too long.
//!
//! # Commit point
//!
//! The transaction's.
//!
//! # Recovery
//!
//! The pool's alone.
//!
//! # Concurrency
//!
//! The heap's. Each node conflicts separately. The map itself changes only with its root.
//!
//! # Source
//!
//! B-trees (Bayer and McCreight). D1: the entries of inner nodes are entries of the map, so no key is stored
//! twice; keys may have arrays of their own. D2: a node may become less than half full before it is merged,
//! so alternating insertions and removals do not divide and merge nodes in turn. D3: entries do not move;
//! bytes hold their order, as the permutation words of Masstree do, so an insertion changes two lines. D4:
//! there is no total count of entries, which would cost one more line for each insertion.

mod edit;
pub(super) mod range;

use super::keys::OrdKey;
use super::sorted::{Found, Order, SLOTS, Sorted};
use crate::error::{ErrorKind, Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::{Obj, Ref};
use crate::objects::slots::PRc;
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use std::marker::PhantomData;
use std::mem::offset_of;

/// The most children.
const CHILDREN: usize = SLOTS + 1;
/// A node with fewer entries than this takes one from its neighbour, or is merged with it.
const LEAST: usize = SLOTS / 3;
/// Bytes of a node that are prefetched before a search.
const FETCHED: usize = 1024;
/// A path of this length is damage.
const DEPTH: usize = 20;

#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Entry")]
#[repr(C)]
struct Entry<K: Persist, V: Persist> {
    key: K,
    value: V,
}

#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Leaf")]
#[repr(C)]
struct Leaf<K: Persist, V: Persist> {
    order: Order,
    slots: [Entry<K, V>; SLOTS],
}

#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Inner")]
#[repr(C)]
struct Inner<K: Persist, V: Persist> {
    own: Leaf<K, V>,
    children: Children<K, V>,
}

#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PMap::Children")]
#[repr(u64)]
#[expect(dead_code, reason = "nodes are made of bytes")]
enum Children<K: Persist, V: Persist> {
    Leaves([PRc<Leaf<K, V>>; CHILDREN]),
    Inners([PRc<Inner<K, V>>; CHILDREN]),
}

/// The kind of a node: the tags of [`Children`]. It is a whole word, so that copying it with its neighbours
/// does not wait for a partial store.
type Kind = u64;
const LEAF: Kind = 0;
const INNER: Kind = 1;

/// The nodes from the root down. The last step names the entry, those before it the child that was taken.
type Path<'t, B, K, V> = Vec<(Node<'t, B, K, V>, usize)>;

/// An ordered map from `K` to `V`: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PMap<K, V>>`. Keys are given by reference: `&u64` for a
/// map with keys of type `u64`, `&str` for [`PString`](super::PString).
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, collections::PMap};
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Years { inventions: PMap<u32, u64> }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = Options::new().create(true);
/// # Heap::<_, Years>::with(dir.path().join("years.heap"), &options, |heap| {
/// heap.write(|tx, years| {
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
/// An operation descends a tree of nodes with 10 to 31 entries each. A change writes to two lines of one
/// node, and sometimes to its neighbours and the node above. Keys and values lie in the nodes, so large
/// values should be in a [`PBox`](super::PBox).
///
/// Two transactions conflict if one changes a node that the other reads, or the object of which the map is a
/// field. [`len`](Ref::len) reads all nodes, and conflicts with all insertions and removals.
///
/// # Places
///
/// The place of a value is valid until an entry is inserted or removed. Afterwards another entry may be
/// there, or none.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PMap<K: OrdKey, V: Persist> {
    /// The root, if it is a leaf.
    leaf: PRc<Leaf<K, V>>,
    /// The root, if it is an inner node.
    inner: PRc<Inner<K, V>>,
}

impl<K: OrdKey, V: Persist> PMap<K, V> {
    /// An empty map, which takes no memory besides itself.
    pub const fn new() -> PMap<K, V> {
        PMap { leaf: PRc::null(), inner: PRc::null() }
    }
}

impl<K: OrdKey, V: Persist> Default for PMap<K, V> {
    fn default() -> PMap<K, V> {
        PMap::new()
    }
}

/// A node, of either kind.
struct Node<'t, B: Brand, K: Persist, V: Persist> {
    /// Its entries, which are the start of an inner node.
    own: Ref<'t, B, Leaf<K, V>>,
    kind: Kind,
}

impl<B: Brand, K: Persist, V: Persist> Copy for Node<'_, B, K, V> {}
impl<B: Brand, K: Persist, V: Persist> Clone for Node<'_, B, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Node<'t, B, K, V> {
    #[inline(always)]
    fn is_inner(self) -> bool {
        self.kind != LEAF
    }

    /// Bytes of a node.
    #[inline(always)]
    fn bytes(is_inner: bool) -> usize {
        if is_inner { size_of::<Inner<K, V>>() } else { size_of::<Leaf<K, V>>() }
    }

    /// The child that the pointer at `off` leads to.
    #[inline(always)]
    fn at(tx: &ReadTx<'t, B>, off: u64, kind: Kind) -> Self {
        // Only one of the two kinds may be a line of its own.
        let own = if kind == LEAF { *tx.object(off) } else { tx.object::<Inner<K, V>>(off).part(0) };
        Node { own, kind }
    }

    #[inline(always)]
    fn keys(self) -> Sorted<'t, B, K> {
        Sorted {
            order: self.own.order(),
            entry_bytes: size_of::<Entry<K, V>>(),
            children_off: self.is_inner().then_some(offset_of!(Inner<K, V>, children)),
            keys: PhantomData,
        }
    }

    fn order(self, tx: &ReadTx<'t, B>) -> Result<Order> {
        self.keys().order(tx)
    }

    #[inline(always)]
    fn entry(self, slot: usize) -> Ref<'t, B, Entry<K, V>> {
        self.own.slots().at(slot)
    }

    /// The pointer to a child of type `T`.
    fn child_slot<T: Persist>(self, index: usize) -> Ref<'t, B, PRc<T>> {
        assert!(self.is_inner() && index < CHILDREN, "a pointer {index} of a node");
        self.own.part((offset_of!(Inner<K, V>, children) + 8 + 8 * index) as u64)
    }

    /// The kind of the children.
    fn children_kind(self) -> Ref<'t, B, u64> {
        self.own.part(offset_of!(Inner<K, V>, children) as u64)
    }

    /// The child that a search in this node leads to.
    #[inline(always)]
    fn next(self, tx: &ReadTx<'t, B>, found: &Found) -> Result<Self> {
        if found.child == 0 || found.children_kind > INNER {
            return Err(self.keys().damage());
        }
        Ok(Node::at(tx, found.child, found.children_kind))
    }

    /// The child before the entry `at`; `None` in a leaf.
    fn child(self, tx: &ReadTx<'t, B>, at: usize) -> Result<Option<Self>> {
        if !self.is_inner() {
            return Ok(None);
        }
        let order = self.order(tx)?;
        let kind = tx.get(self.children_kind())?;
        let child = order.child(at);
        let own = match kind {
            LEAF => tx.load(self.child_slot::<Leaf<K, V>>(child))?.map(|child| *child),
            INNER => tx.load(self.child_slot::<Inner<K, V>>(child))?.map(|child| child.part(0)),
            _ => None,
        };
        match own.filter(|_| at <= order.len()) {
            Some(own) => Ok(Some(Node { own, kind })),
            None => Err(self.keys().damage()),
        }
    }

    /// The entry `at` in the order.
    fn entry_at(self, tx: &ReadTx<'t, B>, at: usize) -> Result<Ref<'t, B, Entry<K, V>>> {
        let order = self.order(tx)?;
        if at < order.len() { Ok(self.entry(order.slot(at))) } else { Err(self.keys().damage()) }
    }

    fn as_object<T: Persist>(self) -> Obj<'t, B, T> {
        Obj::new(self.own.off, self.own.key)
    }
}

impl<'t, B: Brand, K: OrdKey, V: Persist> Ref<'t, B, PMap<K, V>> {
    /// The number of entries. Reads every node, so its time grows with their number, and it conflicts with
    /// every insertion and removal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        let Some(root) = self.root(tx)? else { return Ok(0) };
        self.count(tx, root, 0)
    }

    /// Number of entries below a node.
    fn count(self, tx: &ReadTx<'t, B>, node: Node<'t, B, K, V>, depth: usize) -> Result<usize> {
        if depth == DEPTH {
            return Err(self.too_deep());
        }
        let entries = node.order(tx)?.len();
        if !node.is_inner() {
            return Ok(entries);
        }
        (0..=entries).try_fold(entries, |sum, at| {
            let child = node.child(tx, at)?.ok_or_else(|| node.keys().damage())?;
            Ok(sum + self.count(tx, child, depth + 1)?)
        })
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(self.root(tx)?.is_none())
    }

    #[inline(always)]
    fn root(self, tx: &ReadTx<'t, B>) -> Result<Option<Node<'t, B, K, V>>> {
        tx.check_stamp(self.stamp)?;
        let mut roots = [0; 2];
        tx.read_words(self.key, self.leaf().off, &mut roots)?;
        Ok(match roots {
            [0, 0] => None,
            [0, inner] => Some(Node::at(tx, inner, INNER)),
            [leaf, _] => Some(Node::at(tx, leaf, LEAF)),
        })
    }

    fn set_root(self, tx: &mut Tx<'t, B>, root: Option<Node<'t, B, K, V>>) -> Result<()> {
        let (leaf, inner) = (root.filter(|node| !node.is_inner()), root.filter(|node| node.is_inner()));
        tx.link(self.leaf(), leaf.map(Node::as_object))?;
        tx.link(self.inner(), inner.map(Node::as_object))
    }

    /// Descends to a key, or to the leaf where it belongs.
    #[inline]
    fn find(
        self,
        tx: &ReadTx<'t, B>,
        root: Node<'t, B, K, V>,
        key: &K::Query,
    ) -> Result<(Node<'t, B, K, V>, Found)> {
        let begun = tx.writers_begun();
        let found = self.search(tx, root, key);
        // If a comparison has changed the heap, the result must be dropped, even an error of damage.
        tx.check_undisturbed(begun)?;
        found
    }

    #[inline(always)]
    fn search(
        self,
        tx: &ReadTx<'t, B>,
        root: Node<'t, B, K, V>,
        key: &K::Query,
    ) -> Result<(Node<'t, B, K, V>, Found)> {
        let mut node = root;
        for _ in 0..DEPTH {
            let found = K::find(tx, node.keys(), key)?;
            if found.is_there() || !node.is_inner() {
                return Ok((node, found));
            }
            node = node.next(tx, &found)?;
            tx.fetch_bytes(node.own.off, Node::<B, K, V>::bytes(node.is_inner()).min(FETCHED) as u64);
        }
        Err(self.too_deep())
    }

    /// The place of a key's value.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    #[inline]
    pub fn get(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<Ref<'t, B, V>>> {
        let Some(root) = self.root(tx)? else { return Ok(None) };
        let (node, found) = self.find(tx, root, key)?;
        Ok(found.is_there().then(|| node.entry(found.order.slot(found.at)).value()))
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

    /// The path to a key, or to the position in a leaf where it belongs, and whether the key exists.
    fn path(
        self,
        tx: &ReadTx<'t, B>,
        root: Node<'t, B, K, V>,
        key: &K::Query,
    ) -> Result<(Path<'t, B, K, V>, bool)> {
        let begun = tx.writers_begun();
        let path = self.search_path(tx, root, key);
        tx.check_undisturbed(begun)?;
        path
    }

    fn search_path(
        self,
        tx: &ReadTx<'t, B>,
        root: Node<'t, B, K, V>,
        key: &K::Query,
    ) -> Result<(Path<'t, B, K, V>, bool)> {
        let mut path = Path::new();
        let mut node = root;
        for _ in 0..DEPTH {
            let found = K::find(tx, node.keys(), key)?;
            path.push((node, found.at));
            if found.is_there() || !node.is_inner() {
                return Ok((path, found.is_there()));
            }
            node = node.next(tx, &found)?;
        }
        Err(self.too_deep())
    }

    /// Inserts this value if the key has none; otherwise returns it.
    #[inline]
    fn entry(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<(Ref<'t, B, V>, Option<V>)> {
        let root = match self.root(tx)? {
            Some(root) => root,
            None => self.begin(tx)?,
        };
        let (mut node, found) = self.find(tx, root, key)?;
        let Found { mut order, mut at, .. } = found;
        if found.is_there() {
            return Ok((node.entry(order.slot(at)).value(), Some(value)));
        }
        tx.note_reshaped(root.own.off)?;
        if order.is_full() {
            let path = self.path_to(tx, root, key, (node, at))?;
            (node, at) = self.make_room(tx, root, path)?;
            order = node.order(tx)?;
        }
        let old = order;
        let entry = node.entry(order.insert(at));
        let begun = tx.writers_begun();
        let new = Entry { key: K::new(key), value };
        tx.check_undisturbed(begun)?;
        tx.put(entry, new)?;
        // The order changes last: if there is no room for the rest of the key, the slot stays free.
        K::complete(tx, entry.key(), key)?;
        tx.check_undisturbed(begun)?;
        node.keys().set_order(tx, &old, &order)?;
        Ok((entry.value(), None))
    }

    /// The path to the place where a search for a key has ended. Fails if this search ends elsewhere: the
    /// order of the keys then contradicts itself.
    #[cold]
    fn path_to(
        self,
        tx: &ReadTx<'t, B>,
        root: Node<'t, B, K, V>,
        key: &K::Query,
        end: (Node<'t, B, K, V>, usize),
    ) -> Result<Path<'t, B, K, V>> {
        let (path, _) = self.path(tx, root, key)?;
        match path.last() {
            Some((node, at)) if node.own.off == end.0.own.off && *at == end.1 => Ok(path),
            _ => Err(ErrorKind::KeyOrder { key: K::name() }.into()),
        }
    }

    #[cold]
    fn begin(self, tx: &mut Tx<'t, B>) -> Result<Node<'t, B, K, V>> {
        let root = edit::alloc(tx, false, &edit::blank::<K, V>(false, Order::of_first(0)))?;
        self.set_root(tx, Some(root))?;
        Ok(root)
    }

    /// Sets the value of a key, present or not, and returns its place. The pointers of an old value are
    /// released.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); the pool's own, when it is full.
    pub fn insert(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Ref<'t, B, V>> {
        let (place, value) = self.entry(tx, key, value)?;
        if let Some(value) = value {
            tx.put(place, value)?;
        }
        Ok(place)
    }

    /// The place of a key's value; inserts the result of `value` if the key is absent. `value` may run
    /// transactions of its own, which become part of this one. If they give the key a value, it is replaced.
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
        match self.get(tx, key)? {
            Some(place) => Ok(place),
            // The insertion searches again, because `value` may have changed the map.
            None => self.insert(tx, key, value()),
        }
    }

    /// Removes the entry of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn remove(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<bool> {
        let Some(root) = self.root(tx)? else { return Ok(false) };
        let (node, found) = self.find(tx, root, key)?;
        let Found { mut order, at, .. } = found;
        if !found.is_there() {
            return Ok(false);
        }
        tx.note_reshaped(root.own.off)?;
        if node.is_inner() || order.len() <= LEAST {
            let path = self.path_to(tx, root, key, (node, at))?;
            self.remove_at(tx, path)?;
            return Ok(true);
        }
        let old = order;
        tx.clear_value(node.entry(order.remove(at)))?;
        node.keys().set_order(tx, &old, &order)?;
        Ok(true)
    }

    /// Removes all entries. Each commit releases a bounded part of them, so the cost does not depend on the
    /// size.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        if let Some(root) = self.root(tx)? {
            tx.note_reshaped(root.own.off)?;
        }
        self.set_root(tx, None)
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
        let (place, unused) = self.entry(tx, key, value)?;
        if unused.is_none() {
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
