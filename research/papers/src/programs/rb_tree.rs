//! RBTree: looks for an integer in a red-black tree; inserts it if it is not there, and removes it otherwise.
//!
//! Nodes know their parents, by weak pointers in the heap. The algorithm is the textbook's (Cormen et al.,
//! chapter 13), written once, over [`Nodes`], for a heap and for ordinary memory.

use super::{Fault, Program, Random, arena::Arena, choose_key, halves, lock};
use std::sync::Mutex;
use tembo_heap::{Brand, Heap, Obj, PRc, PWeak, Persist, Tx};

/// One of the two sides of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// Nodes, wherever they are.
trait Nodes {
    type Node: Copy + PartialEq;

    fn top(&self) -> Result<Option<Self::Node>, Fault>;
    fn set_top(&mut self, node: Option<Self::Node>) -> Result<(), Fault>;
    fn key(&self, node: Self::Node) -> Result<u64, Fault>;
    fn set_key(&mut self, node: Self::Node, key: u64) -> Result<(), Fault>;
    fn is_red(&self, node: Self::Node) -> Result<bool, Fault>;
    fn set_red(&mut self, node: Self::Node, is_red: bool) -> Result<(), Fault>;
    fn child(&self, node: Self::Node, side: Side) -> Result<Option<Self::Node>, Fault>;
    fn set_child(&mut self, node: Self::Node, side: Side, child: Option<Self::Node>) -> Result<(), Fault>;
    fn parent(&self, node: Self::Node) -> Result<Option<Self::Node>, Fault>;
    fn set_parent(&mut self, node: Self::Node, parent: Option<Self::Node>) -> Result<(), Fault>;
    /// A red node without relatives.
    fn make(&mut self, key: u64) -> Result<Self::Node, Fault>;
    /// Nothing uses the node any more.
    fn release(&mut self, node: Self::Node) -> Result<(), Fault>;

    /// Whether there is a red node; none counts as black.
    fn is_red_node(&self, node: Option<Self::Node>) -> Result<bool, Fault> {
        node.map_or(Ok(false), |node| self.is_red(node))
    }

    /// The side of the parent that a node is on.
    fn side_of(&self, parent: Self::Node, node: Self::Node) -> Result<Side, Fault> {
        Ok(if self.child(parent, Side::Left)? == Some(node) { Side::Left } else { Side::Right })
    }

    /// Puts a node, or none, in the place of another.
    fn replace(&mut self, old: Self::Node, new: Option<Self::Node>) -> Result<(), Fault> {
        let parent = self.parent(old)?;
        match parent {
            Some(parent) => {
                let side = self.side_of(parent, old)?;
                self.set_child(parent, side, new)?;
            }
            None => self.set_top(new)?,
        }
        match new {
            Some(new) => self.set_parent(new, parent),
            None => Ok(()),
        }
    }

    /// Lets a node change places with its child on the other side, and go down on this one.
    fn rotate(&mut self, node: Self::Node, side: Side) -> Result<(), Fault> {
        let Some(up) = self.child(node, side.other())? else { return Ok(()) };
        let between = self.child(up, side)?;
        self.set_child(node, side.other(), between)?;
        if let Some(between) = between {
            self.set_parent(between, Some(node))?;
        }
        self.replace(node, Some(up))?;
        self.set_child(up, side, Some(node))?;
        self.set_parent(node, Some(up))
    }
}

/// Inserts a key if it is not there, and removes it otherwise.
fn toggle<S: Nodes>(nodes: &mut S, key: u64) -> Result<(), Fault> {
    let mut parent = None;
    let mut next = nodes.top()?;
    while let Some(node) = next {
        let there = nodes.key(node)?;
        if there == key {
            return remove(nodes, node);
        }
        let side = if key < there { Side::Left } else { Side::Right };
        parent = Some((node, side));
        next = nodes.child(node, side)?;
    }
    let node = nodes.make(key)?;
    match parent {
        Some((parent, side)) => {
            nodes.set_child(parent, side, Some(node))?;
            nodes.set_parent(node, Some(parent))?;
        }
        None => nodes.set_top(Some(node))?,
    }
    mend_red(nodes, node)
}

/// Mends the tree where a red node may have a red parent.
fn mend_red<S: Nodes>(nodes: &mut S, mut node: S::Node) -> Result<(), Fault> {
    while let Some(mut parent) = nodes.parent(node)? {
        if !nodes.is_red(parent)? {
            return Ok(());
        }
        let Some(grandparent) = nodes.parent(parent)? else { break };
        let side = nodes.side_of(grandparent, parent)?;
        let uncle = nodes.child(grandparent, side.other())?;
        if let Some(uncle) = uncle
            && nodes.is_red(uncle)?
        {
            nodes.set_red(parent, false)?;
            nodes.set_red(uncle, false)?;
            nodes.set_red(grandparent, true)?;
            node = grandparent;
            continue;
        }
        if nodes.side_of(parent, node)? != side {
            nodes.rotate(parent, side)?;
            parent = node;
        }
        nodes.set_red(parent, false)?;
        nodes.set_red(grandparent, true)?;
        return nodes.rotate(grandparent, side.other());
    }
    let top = nodes.top()?;
    match top {
        Some(top) if nodes.is_red(top)? => nodes.set_red(top, false),
        _ => Ok(()),
    }
}

fn remove<S: Nodes>(nodes: &mut S, node: S::Node) -> Result<(), Fault> {
    // A node with two children takes the next key, and the node of that, which has at most one child, is
    // removed.
    let mut gone = node;
    if nodes.child(node, Side::Left)?.is_some()
        && let Some(right) = nodes.child(node, Side::Right)?
    {
        gone = right;
        while let Some(left) = nodes.child(gone, Side::Left)? {
            gone = left;
        }
        let key = nodes.key(gone)?;
        nodes.set_key(node, key)?;
    }
    let child = match nodes.child(gone, Side::Left)? {
        Some(left) => Some(left),
        None => nodes.child(gone, Side::Right)?,
    };
    let parent = match nodes.parent(gone)? {
        Some(parent) => Some((parent, nodes.side_of(parent, gone)?)),
        None => None,
    };
    let was_black = !nodes.is_red(gone)?;
    nodes.replace(gone, child)?;
    nodes.release(gone)?;
    match child {
        Some(child) if was_black && nodes.is_red(child)? => nodes.set_red(child, false),
        _ if was_black => mend_black(nodes, parent),
        _ => Ok(()),
    }
}

/// Mends the tree where the ways through one side of a node have a black node too few.
fn mend_black<S: Nodes>(nodes: &mut S, mut at: Option<(S::Node, Side)>) -> Result<(), Fault> {
    while let Some((parent, side)) = at {
        let Some(mut sibling) = nodes.child(parent, side.other())? else {
            return Err("a black node has no sibling".into());
        };
        if nodes.is_red(sibling)? {
            nodes.set_red(sibling, false)?;
            nodes.set_red(parent, true)?;
            nodes.rotate(parent, side)?;
            sibling = nodes.child(parent, side.other())?.ok_or("a black node has no sibling")?;
        }
        let (near, far) = (nodes.child(sibling, side)?, nodes.child(sibling, side.other())?);
        let far_is_red = nodes.is_red_node(far)?;
        if !far_is_red && !nodes.is_red_node(near)? {
            nodes.set_red(sibling, true)?;
            if nodes.is_red(parent)? {
                return nodes.set_red(parent, false);
            }
            at = match nodes.parent(parent)? {
                Some(above) => Some((above, nodes.side_of(above, parent)?)),
                None => None,
            };
            continue;
        }
        if !far_is_red {
            near.into_iter().try_for_each(|near| nodes.set_red(near, false))?;
            nodes.set_red(sibling, true)?;
            nodes.rotate(sibling, side.other())?;
            sibling = nodes.child(parent, side.other())?.ok_or("a black node has no sibling")?;
        }
        let parent_is_red = nodes.is_red(parent)?;
        nodes.set_red(sibling, parent_is_red)?;
        nodes.set_red(parent, false)?;
        if let Some(far) = nodes.child(sibling, side.other())? {
            nodes.set_red(far, false)?;
        }
        return nodes.rotate(parent, side);
    }
    Ok(())
}

/// All keys, in order; an error if the tree is none.
fn walk<S: Nodes>(nodes: &S) -> Result<Vec<u64>, Fault> {
    let mut keys = Vec::new();
    if let Some(top) = nodes.top()? {
        if nodes.is_red(top)? || nodes.parent(top)?.is_some() {
            return Err("the top is red or has a parent".into());
        }
        walk_node(nodes, top, &mut keys)?;
    }
    match keys.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(format!("the key {} comes after {}", pair[1], pair[0]).into()),
        None => Ok(keys),
    }
}

/// How many black nodes there are on every way down from a node.
fn walk_node<S: Nodes>(nodes: &S, node: S::Node, keys: &mut Vec<u64>) -> Result<usize, Fault> {
    let is_red = nodes.is_red(node)?;
    let mut below = [0; 2];
    for (below, side) in below.iter_mut().zip([Side::Left, Side::Right]) {
        if side == Side::Right {
            keys.push(nodes.key(node)?);
        }
        let Some(child) = nodes.child(node, side)? else { continue };
        if nodes.parent(child)? != Some(node) {
            return Err("a child has another parent".into());
        }
        if is_red && nodes.is_red(child)? {
            return Err("a red node has a red child".into());
        }
        *below = walk_node(nodes, child, keys)?;
    }
    if below[0] != below[1] {
        return Err(format!("ways down have {} and {} black nodes", below[0], below[1]).into());
    }
    Ok(below[0] + usize::from(!is_red))
}

/// A node in the heap.
#[derive(Persist)]
#[repr(C)]
struct Node {
    key: u64,
    is_red: u64,
    left: PRc<Node>,
    right: PRc<Node>,
    parent: PWeak<Node>,
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

    fn top(&self) -> Result<Option<Self::Node>, Fault> {
        Ok(self.tx.load(self.root.top())?)
    }

    fn set_top(&mut self, node: Option<Self::Node>) -> Result<(), Fault> {
        if let Some(node) = node {
            self.tx.link_weak(node.parent(), None)?;
        }
        Ok(self.tx.link(self.root.top(), node)?)
    }

    fn key(&self, node: Self::Node) -> Result<u64, Fault> {
        Ok(self.tx.get(node.key())?)
    }

    fn set_key(&mut self, node: Self::Node, key: u64) -> Result<(), Fault> {
        Ok(self.tx.set(node.key(), key)?)
    }

    fn is_red(&self, node: Self::Node) -> Result<bool, Fault> {
        Ok(self.tx.get(node.is_red())? != 0)
    }

    fn set_red(&mut self, node: Self::Node, is_red: bool) -> Result<(), Fault> {
        Ok(self.tx.set(node.is_red(), u64::from(is_red))?)
    }

    fn child(&self, node: Self::Node, side: Side) -> Result<Option<Self::Node>, Fault> {
        Ok(self.tx.load(if side == Side::Left { node.left() } else { node.right() })?)
    }

    fn set_child(&mut self, node: Self::Node, side: Side, child: Option<Self::Node>) -> Result<(), Fault> {
        Ok(self.tx.link(if side == Side::Left { node.left() } else { node.right() }, child)?)
    }

    fn parent(&self, node: Self::Node) -> Result<Option<Self::Node>, Fault> {
        Ok(self.tx.upgrade(node.parent())?)
    }

    fn set_parent(&mut self, node: Self::Node, parent: Option<Self::Node>) -> Result<(), Fault> {
        Ok(self.tx.link_weak(node.parent(), parent)?)
    }

    fn make(&mut self, key: u64) -> Result<Self::Node, Fault> {
        let (left, right, parent) = Default::default();
        Ok(self.tx.alloc(Node { key, is_red: 1, left, right, parent })?)
    }

    /// It dies by itself, but where there are no counts.
    fn release(&mut self, node: Self::Node) -> Result<(), Fault> {
        Ok(self.tx.delete_by_hand(node)?)
    }
}

/// The program on a heap.
pub(super) struct RbTree<B: Brand> {
    heap: Heap<B, Root>,
    keys: u64,
}

impl<B: Brand> RbTree<B> {
    /// Opens the tree, or makes one with every second key: as many as there are on average later.
    pub(super) fn open(heap: Heap<B, Root>, keys: u64) -> Result<Self, Fault> {
        let is_new = heap.read(|tx, root| Ok(tx.load(root.top())?.is_none()))?;
        let tree = RbTree { heap, keys };
        if is_new {
            halves(keys).try_for_each(|key| tree.toggle(key))?;
        }
        Ok(tree)
    }

    fn toggle(&self, key: u64) -> Result<(), Fault> {
        self.heap.try_write(|tx, root| toggle(&mut InHeap { tx, root }, key))
    }
}

impl<B: Brand> Program for RbTree<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        (0..operations).try_for_each(|_| self.toggle(choose_key(random, self.keys)))
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        self.heap.try_write(|tx, root| walk(&InHeap { tx, root }))
    }
}

/// A node in ordinary memory.
struct NodeInDram {
    key: u64,
    is_red: bool,
    children: [Option<u32>; 2],
    parent: Option<u32>,
}

/// The nodes of a tree in ordinary memory.
#[derive(Default)]
struct InMemory {
    nodes: Arena<NodeInDram>,
    top: Option<u32>,
}

impl Nodes for InMemory {
    type Node = u32;

    fn top(&self) -> Result<Option<u32>, Fault> {
        Ok(self.top)
    }

    fn set_top(&mut self, node: Option<u32>) -> Result<(), Fault> {
        self.top = node;
        Ok(())
    }

    fn key(&self, node: u32) -> Result<u64, Fault> {
        Ok(self.nodes[node].key)
    }

    fn set_key(&mut self, node: u32, key: u64) -> Result<(), Fault> {
        self.nodes[node].key = key;
        Ok(())
    }

    fn is_red(&self, node: u32) -> Result<bool, Fault> {
        Ok(self.nodes[node].is_red)
    }

    fn set_red(&mut self, node: u32, is_red: bool) -> Result<(), Fault> {
        self.nodes[node].is_red = is_red;
        Ok(())
    }

    fn child(&self, node: u32, side: Side) -> Result<Option<u32>, Fault> {
        Ok(self.nodes[node].children[side as usize])
    }

    fn set_child(&mut self, node: u32, side: Side, child: Option<u32>) -> Result<(), Fault> {
        self.nodes[node].children[side as usize] = child;
        Ok(())
    }

    fn parent(&self, node: u32) -> Result<Option<u32>, Fault> {
        Ok(self.nodes[node].parent)
    }

    fn set_parent(&mut self, node: u32, parent: Option<u32>) -> Result<(), Fault> {
        self.nodes[node].parent = parent;
        Ok(())
    }

    fn make(&mut self, key: u64) -> Result<u32, Fault> {
        Ok(self.nodes.make(NodeInDram { key, is_red: true, children: [None; 2], parent: None }))
    }

    fn release(&mut self, node: u32) -> Result<(), Fault> {
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
