//! BTree: looks for an integer in a B-tree; inserts it if it is not there, and removes it otherwise.
//!
//! The algorithm is written once, over [`Nodes`], and runs on a heap and in ordinary memory. A change goes
//! down to a leaf, notes its way, and mends what became too full or too empty on the way back, so that most
//! changes write to one leaf.

use super::{Fault, Program, Random, arena::Arena, choose_key, halves, lock, not_there};
use std::sync::Mutex;
use tembo_heap::{Brand, Heap, Obj, PRc, Persist, Plain, Tx};

/// Keys of a node, at most: with its children and its head it takes 256 bytes.
const MAX: usize = 14;
/// Keys of a node other than the root, at least. Less than half, so that nodes are not divided and joined
/// again and again.
const MIN: usize = 5;

/// The keys of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
pub(super) struct Keys {
    len: u32,
    is_leaf: u32,
    keys: [u64; MAX],
}

impl Keys {
    fn new(is_leaf: bool, keys: &[u64]) -> Keys {
        let mut all = Keys { len: keys.len() as u32, is_leaf: u32::from(is_leaf), keys: [0; MAX] };
        all.keys[..keys.len()].copy_from_slice(keys);
        all
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn is_leaf(&self) -> bool {
        self.is_leaf != 0
    }

    fn get(&self) -> &[u64] {
        &self.keys[..self.len()]
    }

    /// Where a key is, or where it belongs.
    fn find(&self, key: u64) -> Result<usize, usize> {
        let at = self.get().iter().take_while(|other| **other < key).count();
        if self.get().get(at) == Some(&key) { Ok(at) } else { Err(at) }
    }

    fn insert(&mut self, at: usize, key: u64) {
        let len = self.len();
        self.keys.copy_within(at..len, at + 1);
        self.keys[at] = key;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> u64 {
        let (key, len) = (self.keys[at], self.len());
        self.keys.copy_within(at + 1..len, at);
        self.len -= 1;
        key
    }
}

/// Nodes, wherever they are.
trait Nodes {
    type Node: Copy;

    fn top(&self) -> Result<Self::Node, Fault>;
    /// Makes a node the top of the tree, and says which one nothing uses any more.
    fn set_top(&mut self, node: Self::Node, unused: Option<Self::Node>) -> Result<(), Fault>;
    fn keys(&self, node: Self::Node) -> Result<Keys, Fault>;
    fn set_keys(&mut self, node: Self::Node, keys: Keys) -> Result<(), Fault>;
    /// The child at an index where there is one.
    fn child(&self, node: Self::Node, at: usize) -> Result<Self::Node, Fault>;
    fn set_child(&mut self, node: Self::Node, at: usize, child: Self::Node) -> Result<(), Fault>;
    /// Exchanges two children, either of which may be none.
    fn swap(&mut self, a: (Self::Node, usize), b: (Self::Node, usize)) -> Result<(), Fault>;
    /// A node without children.
    fn make(&mut self, keys: Keys) -> Result<Self::Node, Fault>;
    /// Nothing uses the node any more; the child of this node that it was is none after this.
    fn release(&mut self, parent: (Self::Node, usize), node: Self::Node) -> Result<(), Fault>;
}

/// The way to a node: its ancestors, and which of their children is next.
type Way<N> = Vec<(N, usize)>;

/// Inserts a key if it is not there, and removes it otherwise.
fn toggle<S: Nodes>(nodes: &mut S, key: u64) -> Result<(), Fault> {
    let mut way = Vec::with_capacity(16);
    let mut node = nodes.top()?;
    loop {
        let keys = nodes.keys(node)?;
        match keys.find(key) {
            Ok(at) => return remove(nodes, way, node, keys, at),
            Err(at) if keys.is_leaf() => return insert(nodes, way, node, keys, at, key),
            Err(at) => {
                way.push((node, at));
                node = nodes.child(node, at)?;
            }
        }
    }
}

/// Inserts a key into a leaf.
fn insert<S: Nodes>(
    nodes: &mut S,
    mut way: Way<S::Node>,
    mut node: S::Node,
    mut keys: Keys,
    mut at: usize,
    mut key: u64,
) -> Result<(), Fault> {
    // The node to be inserted to the right of the key.
    let mut child: Option<S::Node> = None;
    while keys.len() == MAX {
        let (middle, right) = split(nodes, node, &mut keys)?;
        if at <= keys.len() {
            put(nodes, node, keys, at, key, child)?;
        } else {
            let right_keys = nodes.keys(right)?;
            put(nodes, right, right_keys, at - keys.len() - 1, key, child)?;
        }
        (key, child) = (middle, Some(right));
        let Some(parent) = way.pop() else {
            let top = nodes.make(Keys::new(false, &[key]))?;
            nodes.set_child(top, 0, node)?;
            nodes.set_child(top, 1, right)?;
            return nodes.set_top(top, None);
        };
        (node, at) = parent;
        keys = nodes.keys(node)?;
    }
    put(nodes, node, keys, at, key, child)
}

/// Puts a key, and the child to the right of it, into a node that has room.
fn put<S: Nodes>(
    nodes: &mut S,
    node: S::Node,
    mut keys: Keys,
    at: usize,
    key: u64,
    child: Option<S::Node>,
) -> Result<(), Fault> {
    if let Some(child) = child {
        for i in (at + 1..=keys.len()).rev() {
            nodes.swap((node, i), (node, i + 1))?;
        }
        nodes.set_child(node, at + 1, child)?;
    }
    keys.insert(at, key);
    nodes.set_keys(node, keys)
}

/// Divides a full node, whose own keys are left to be written; the key between, and the node to the right.
fn split<S: Nodes>(nodes: &mut S, node: S::Node, keys: &mut Keys) -> Result<(u64, S::Node), Fault> {
    const MIDDLE: usize = MAX / 2;
    let middle = keys.keys[MIDDLE];
    let right = nodes.make(Keys::new(keys.is_leaf(), &keys.keys[MIDDLE + 1..]))?;
    if !keys.is_leaf() {
        for i in MIDDLE + 1..=MAX {
            nodes.swap((node, i), (right, i - MIDDLE - 1))?;
        }
    }
    keys.len = MIDDLE as u32;
    nodes.set_keys(node, *keys)?;
    Ok((middle, right))
}

/// Removes the key at an index of a node.
fn remove<S: Nodes>(
    nodes: &mut S,
    mut way: Way<S::Node>,
    node: S::Node,
    mut keys: Keys,
    at: usize,
) -> Result<(), Fault> {
    if keys.is_leaf() {
        keys.remove(at);
        nodes.set_keys(node, keys)?;
        return refill(nodes, way, keys.len());
    }
    // The next key takes its place.
    way.push((node, at + 1));
    let mut leaf = nodes.child(node, at + 1)?;
    let mut leaf_keys = nodes.keys(leaf)?;
    while !leaf_keys.is_leaf() {
        way.push((leaf, 0));
        leaf = nodes.child(leaf, 0)?;
        leaf_keys = nodes.keys(leaf)?;
    }
    keys.keys[at] = leaf_keys.remove(0);
    nodes.set_keys(node, keys)?;
    nodes.set_keys(leaf, leaf_keys)?;
    refill(nodes, way, leaf_keys.len())
}

/// Mends the node that the way leads to, which has `len` keys, if these are too few, and then those above it.
fn refill<S: Nodes>(nodes: &mut S, mut way: Way<S::Node>, mut len: usize) -> Result<(), Fault> {
    while len < MIN {
        let Some((parent, at)) = way.pop() else { return Ok(()) };
        let mut parent_keys = nodes.keys(parent)?;
        // The pair of children of which one is too small.
        let left_at = at.saturating_sub(1);
        let left = nodes.child(parent, left_at)?;
        let right = nodes.child(parent, left_at + 1)?;
        let (mut left_keys, mut right_keys) = (nodes.keys(left)?, nodes.keys(right)?);
        let between = parent_keys.keys[left_at];
        if left_keys.len() + right_keys.len() < MAX {
            join(nodes, (left, left_keys), (right, right_keys), between)?;
            nodes.release((parent, left_at + 1), right)?;
            for i in left_at + 1..parent_keys.len() {
                nodes.swap((parent, i), (parent, i + 1))?;
            }
            parent_keys.remove(left_at);
            nodes.set_keys(parent, parent_keys)?;
            len = parent_keys.len();
            if way.is_empty() && len == 0 {
                return nodes.set_top(left, Some(parent));
            }
            continue;
        }
        if left_keys.len() > right_keys.len() {
            right_keys.insert(0, between);
            if !right_keys.is_leaf() {
                for i in (0..right_keys.len()).rev() {
                    nodes.swap((right, i), (right, i + 1))?;
                }
                nodes.swap((left, left_keys.len()), (right, 0))?;
            }
            parent_keys.keys[left_at] = left_keys.remove(left_keys.len() - 1);
        } else {
            left_keys.insert(left_keys.len(), between);
            if !left_keys.is_leaf() {
                nodes.swap((right, 0), (left, left_keys.len()))?;
                for i in 0..right_keys.len() {
                    nodes.swap((right, i), (right, i + 1))?;
                }
            }
            parent_keys.keys[left_at] = right_keys.remove(0);
        }
        nodes.set_keys(left, left_keys)?;
        nodes.set_keys(right, right_keys)?;
        return nodes.set_keys(parent, parent_keys);
    }
    Ok(())
}

/// Moves everything of `right` to `left`, behind the key `between`.
fn join<S: Nodes>(
    nodes: &mut S,
    (left, mut left_keys): (S::Node, Keys),
    (right, right_keys): (S::Node, Keys),
    between: u64,
) -> Result<(), Fault> {
    left_keys.insert(left_keys.len(), between);
    let moved_to = left_keys.len();
    right_keys.get().iter().for_each(|key| left_keys.insert(left_keys.len(), *key));
    if !right_keys.is_leaf() {
        for i in 0..=right_keys.len() {
            nodes.swap((right, i), (left, moved_to + i))?;
        }
    }
    nodes.set_keys(left, left_keys)
}

/// All keys, in order; an error if the tree is none.
fn walk<S: Nodes>(nodes: &S) -> Result<Vec<u64>, Fault> {
    let mut keys = Vec::new();
    walk_node(nodes, nodes.top()?, true, &mut keys)?;
    match keys.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(Fault::from(format!("the key {} comes after {}", pair[1], pair[0]))),
        None => Ok(keys),
    }
}

/// How many levels there are below a node.
fn walk_node<S: Nodes>(nodes: &S, node: S::Node, is_top: bool, all: &mut Vec<u64>) -> Result<usize, Fault> {
    let keys = nodes.keys(node)?;
    if keys.len() > MAX || keys.len() < if is_top { 0 } else { MIN } {
        return Err(Fault::from(format!("a node has {} keys", keys.len())));
    }
    if keys.is_leaf() {
        all.extend(keys.get());
        return Ok(0);
    }
    let mut levels = None;
    for at in 0..=keys.len() {
        let below = walk_node(nodes, nodes.child(node, at)?, false, all)?;
        if *levels.get_or_insert(below) != below {
            return Err(Fault::from("leaves are at different depths"));
        }
        all.extend(keys.get().get(at));
    }
    Ok(levels.unwrap_or(0) + 1)
}

/// A node in the heap.
#[derive(Persist)]
#[repr(C)]
struct Node {
    keys: Keys,
    children: [PRc<Node>; MAX + 1],
}

/// The root object of the program's heap.
#[derive(Default, Persist)]
#[repr(C)]
pub(super) struct Root {
    top: PRc<Node>,
}

/// The nodes of a heap in a transaction.
struct InHeap<'a, 't, B: Brand> {
    tx: &'a mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
}

impl<'t, B: Brand> Nodes for InHeap<'_, 't, B> {
    type Node = Obj<'t, B, Node>;

    fn top(&self) -> Result<Self::Node, Fault> {
        self.tx.load(self.root.top())?.ok_or_else(not_there)
    }

    fn set_top(&mut self, node: Self::Node, unused: Option<Self::Node>) -> Result<(), Fault> {
        self.tx.link(self.root.top(), node)?;
        unused.into_iter().try_for_each(|node| Ok(self.tx.delete_by_hand(node)?))
    }

    fn keys(&self, node: Self::Node) -> Result<Keys, Fault> {
        Ok(self.tx.get(node.keys())?)
    }

    fn set_keys(&mut self, node: Self::Node, keys: Keys) -> Result<(), Fault> {
        Ok(self.tx.set(node.keys(), keys)?)
    }

    fn child(&self, node: Self::Node, at: usize) -> Result<Self::Node, Fault> {
        self.tx.load(node.children().at(at))?.ok_or_else(not_there)
    }

    fn set_child(&mut self, node: Self::Node, at: usize, child: Self::Node) -> Result<(), Fault> {
        Ok(self.tx.link(node.children().at(at), child)?)
    }

    fn swap(&mut self, (a, i): (Self::Node, usize), (b, j): (Self::Node, usize)) -> Result<(), Fault> {
        Ok(self.tx.swap(a.children().at(i), b.children().at(j))?)
    }

    fn make(&mut self, keys: Keys) -> Result<Self::Node, Fault> {
        Ok(self.tx.alloc(Node { keys, children: Default::default() })?)
    }

    fn release(&mut self, (parent, at): (Self::Node, usize), node: Self::Node) -> Result<(), Fault> {
        self.tx.link(parent.children().at(at), None)?;
        Ok(self.tx.delete_by_hand(node)?)
    }
}

/// The program on a heap.
pub(super) struct BTree<B: Brand> {
    heap: Heap<B, Root>,
    keys: u64,
}

impl<B: Brand> BTree<B> {
    /// Opens the tree, or makes one with every second key: as many as there are on average later.
    pub(super) fn open(heap: Heap<B, Root>, keys: u64) -> Result<Self, Fault> {
        let is_new = heap.write(|tx, root| {
            let is_new = tx.load(root.top())?.is_none();
            if is_new {
                let top = InHeap { tx, root }.make(Keys::new(true, &[]))?;
                tx.link(root.top(), top)?;
            }
            Ok(is_new)
        })?;
        let tree = BTree { heap, keys };
        if is_new {
            halves(keys).try_for_each(|key| tree.toggle(key))?;
        }
        Ok(tree)
    }

    fn toggle(&self, key: u64) -> Result<(), Fault> {
        self.heap.try_write(|tx, root| toggle(&mut InHeap { tx, root }, key))
    }
}

impl<B: Brand> Program for BTree<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        (0..operations).try_for_each(|_| self.toggle(choose_key(random, self.keys)))
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        self.heap.try_write(|tx, root| walk(&InHeap { tx, root }))
    }
}

/// A node in ordinary memory.
struct PlainNode {
    keys: Keys,
    children: [Option<u32>; MAX + 1],
}

/// The nodes of a tree in ordinary memory.
#[derive(Default)]
struct InMemory {
    nodes: Arena<PlainNode>,
    top: u32,
}

impl Nodes for InMemory {
    type Node = u32;

    fn top(&self) -> Result<u32, Fault> {
        Ok(self.top)
    }

    fn set_top(&mut self, node: u32, unused: Option<u32>) -> Result<(), Fault> {
        self.top = node;
        unused.into_iter().for_each(|node| self.nodes.free(node));
        Ok(())
    }

    fn keys(&self, node: u32) -> Result<Keys, Fault> {
        Ok(self.nodes[node].keys)
    }

    fn set_keys(&mut self, node: u32, keys: Keys) -> Result<(), Fault> {
        self.nodes[node].keys = keys;
        Ok(())
    }

    fn child(&self, node: u32, at: usize) -> Result<u32, Fault> {
        self.nodes[node].children[at].ok_or_else(not_there)
    }

    fn set_child(&mut self, node: u32, at: usize, child: u32) -> Result<(), Fault> {
        self.nodes[node].children[at] = Some(child);
        Ok(())
    }

    fn swap(&mut self, (a, i): (u32, usize), (b, j): (u32, usize)) -> Result<(), Fault> {
        let in_a = self.nodes[a].children[i];
        let in_b = std::mem::replace(&mut self.nodes[b].children[j], in_a);
        self.nodes[a].children[i] = in_b;
        Ok(())
    }

    fn make(&mut self, keys: Keys) -> Result<u32, Fault> {
        Ok(self.nodes.make(PlainNode { keys, children: Default::default() }))
    }

    fn release(&mut self, (parent, at): (u32, usize), node: u32) -> Result<(), Fault> {
        self.nodes[parent].children[at] = None;
        self.nodes.free(node);
        Ok(())
    }
}

/// The program in ordinary memory.
pub(super) struct InDram {
    nodes: Mutex<InMemory>,
    keys: u64,
}

impl InDram {
    pub(super) fn new(keys: u64) -> Result<InDram, Fault> {
        let mut nodes = InMemory::default();
        nodes.top = nodes.make(Keys::new(true, &[]))?;
        halves(keys).try_for_each(|key| toggle(&mut nodes, key))?;
        Ok(InDram { nodes: Mutex::new(nodes), keys })
    }
}

impl Program for InDram {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut nodes = lock(&self.nodes);
        (0..operations).try_for_each(|_| toggle(&mut *nodes, choose_key(random, self.keys)))
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        walk(&*lock(&self.nodes))
    }
}
