//! Operations on the graph, and their meaning in a heap.

use super::{Child, ChildFields, Id, Node, NodeFields, Root, RootFields, Shape, ShapeRef, ShapeVariant};
use tembo_heap::{Arr, Brand, Error, Obj, PArr, PRc, PWeak, ReadTx, Ref, Tx};

/// The root, or the node that is this many steps down the list that begins in one of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Root,
    Nth { slot: usize, depth: usize },
}

/// Where a strong pointer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Slot(usize),
    Next(Base),
    Other(Base),
    Element(Base, usize),
    InShape(Base),
}

/// Where a weak pointer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Root(usize),
    Back(Base),
    Element(Base, usize),
    InShape(Base),
}

/// The replacement of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewShape {
    Dot,
    Link,
    Look(u32),
    /// With an array of this many elements, the first of which has this name.
    Both(usize, Id),
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A new node; `push`: what was there comes next to it.
    New {
        at: Place,
        id: Id,
        push: bool,
    },
    /// Inserts this many nodes in front, each with a weak pointer back to the one before it.
    Chain {
        at: Place,
        id: Id,
        count: u64,
    },
    /// Lets a pointer lead where another does.
    Link {
        at: Place,
        to: Place,
    },
    Unlink {
        at: Place,
    },
    /// As `Link`, of a weak pointer.
    Look {
        at: Look,
        to: Place,
    },
    Unlook {
        at: Look,
    },
    /// Lets a pointer lead where a weak one does, if that can be reached.
    Follow {
        at: Place,
        look: Look,
    },
    /// A new array; `fill`: with a new node in each element.
    List {
        base: Base,
        id: Id,
        len: usize,
        fill: bool,
    },
    /// Lets one base have the array of another.
    ShareList {
        base: Base,
        from: Base,
    },
    DropList {
        base: Base,
    },
    Numbers {
        len: usize,
        seed: u64,
    },
    Shape {
        base: Base,
        shape: NewShape,
        to: Place,
    },
    Value {
        base: Base,
        value: u32,
    },
    /// In one transaction.
    Together(Vec<Op>),
    /// In a transaction that ends with an error, or a panic.
    Aborted(Vec<Op>, bool),
    /// In another session than the operations around it.
    Second(Box<Op>),
    /// Takes a pointer away, and keeps a handle of what it led to, to the end or the next `DropHandles`.
    Keep {
        at: Place,
    },
    /// Makes this many new nodes, each with a node next to it that only handles keep alive.
    Orphans {
        id: Id,
        count: u64,
    },
    /// A node that only a handle keeps alive is linked by a node that dies in the same transaction.
    Bounce {
        id: Id,
    },
    DropHandles,
    /// Takes a pointer away, keeps the node by a handle, and lets another pointer lead to it: two
    /// transactions.
    Detour {
        at: Place,
        to: Place,
    },
    /// Adds a handle, which the model knows.
    Hold {
        at: Place,
    },
    /// Lets a pointer lead where one of those handles does.
    LinkHeld {
        at: Place,
        handle: usize,
    },
    Release {
        handle: usize,
    },
    Collect,
    /// Moves objects with one owner out of sparse slabs.
    Compact,
    Reopen,
}

type Found<'t, B, T> = Result<Option<Ref<'t, B, T>>, Error>;

pub(crate) fn node<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    slot: usize,
    depth: usize,
) -> Result<Option<Obj<'t, B, Node>>, Error> {
    let mut node = tx.load(root.slots().at(slot))?;
    for _ in 0..depth {
        let Some(at) = node else { break };
        node = tx.load(at.next())?;
    }
    Ok(node)
}

fn in_base<'t, B: Brand, T>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    base: Base,
    of_root: impl Fn(Obj<'t, B, Root>) -> Option<Ref<'t, B, T>>,
    of_node: impl Fn(Obj<'t, B, Node>) -> Ref<'t, B, T>,
) -> Found<'t, B, T> {
    Ok(match base {
        Base::Root => of_root(root),
        Base::Nth { slot, depth } => node(tx, root, slot, depth)?.map(of_node),
    })
}

fn list<'t, B: Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, Root>, base: Base) -> Found<'t, B, PArr<Child>> {
    in_base(tx, root, base, |root| Some(root.list()), |node| node.list())
}

fn shape<'t, B: Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, Root>, base: Base) -> Found<'t, B, Shape> {
    in_base(tx, root, base, |root| Some(root.shape()), |node| node.shape())
}

fn element<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    base: Base,
    index: usize,
) -> Found<'t, B, Child> {
    let Some(list) = list(tx, root, base)? else { return Ok(None) };
    Ok(tx.array(list)?.and_then(|list| list.get(index)))
}

pub(crate) fn strong<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    place: Place,
) -> Found<'t, B, PRc<Node>> {
    match place {
        Place::Slot(slot) => Ok(Some(root.slots().at(slot))),
        Place::Next(base) => in_base(tx, root, base, |_| None, |node| node.next()),
        Place::Other(base) => in_base(tx, root, base, |_| None, |node| node.other()),
        Place::Element(base, index) => Ok(element(tx, root, base, index)?.map(|child| child.node())),
        Place::InShape(base) => {
            let Some(shape) = shape(tx, root, base)? else { return Ok(None) };
            Ok(match shape.variant(tx)? {
                ShapeRef::Link(node) | ShapeRef::Both { node, .. } => Some(node),
                _ => None,
            })
        }
    }
}

fn weak<'t, B: Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, Root>, look: Look) -> Found<'t, B, PWeak<Node>> {
    match look {
        Look::Root(look) => Ok(Some(root.looks().at(look))),
        Look::Back(base) => in_base(tx, root, base, |_| None, |node| node.back()),
        Look::Element(base, index) => Ok(element(tx, root, base, index)?.map(|child| child.weak())),
        Look::InShape(base) => {
            let Some(shape) = shape(tx, root, base)? else { return Ok(None) };
            Ok(match shape.variant(tx)? {
                ShapeRef::Look { node, .. } => Some(node),
                _ => None,
            })
        }
    }
}

/// The target of a place: nothing, if there is no such place.
pub(crate) fn target<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    place: Place,
) -> Result<Option<Obj<'t, B, Node>>, Error> {
    strong(tx, root, place)?.map_or(Ok(None), |place| tx.load(place))
}

/// Performs an operation that is a part of one transaction.
pub(crate) fn perform<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    op: &Op,
) -> Result<(), Error> {
    match *op {
        Op::New { at, id, push } => new_node(tx, root, at, id, push),
        Op::Chain { at, id, count } => chain(tx, root, at, id, count),
        Op::Link { at, to } => {
            let to = target(tx, root, to)?;
            link(tx, root, at, to)
        }
        Op::Unlink { at } => link(tx, root, at, None),
        Op::Look { at, to } => {
            let to = target(tx, root, to)?;
            link_weak(tx, root, at, to)
        }
        Op::Unlook { at } => link_weak(tx, root, at, None),
        Op::Follow { at, look } => {
            let to = weak(tx, root, look)?.map_or(Ok(None), |look| tx.upgrade(look))?;
            let to = match to {
                Some(to) if reaches(tx, root, to)? => Some(to),
                _ => None,
            };
            link(tx, root, at, to)
        }
        Op::List { base, id, len, fill } => {
            if let Some(list) = list(tx, root, base)? {
                let new = new_list(tx, id, len, fill)?;
                tx.link_array(list, new)?;
            }
            Ok(())
        }
        Op::ShareList { base, from } => {
            let from = list(tx, root, from)?.map_or(Ok(None), |from| tx.array(from))?;
            link_list(tx, root, base, from)
        }
        Op::DropList { base } => link_list(tx, root, base, None),
        Op::Numbers { len, seed } => {
            let numbers = tx.alloc_array(len, |i| seed.wrapping_mul(i as u64 + 1))?;
            tx.link_array(root.numbers(), numbers)?;
            *tx.get_mut(root.count())? += 1;
            Ok(())
        }
        Op::Shape { base, shape, to } => put_shape(tx, root, base, shape, to),
        Op::Value { base, value } => set_value(tx, root, base, value),
        Op::Together(ref ops) => ops.iter().try_for_each(|op| perform(tx, root, op)),
        ref other => panic!("{other:?} is no part of a transaction"),
    }
}

fn link<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    at: Place,
    to: Option<Obj<'t, B, Node>>,
) -> Result<(), Error> {
    strong(tx, root, at)?.map_or(Ok(()), |at| tx.link(at, to))
}

fn link_weak<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    at: Look,
    to: Option<Obj<'t, B, Node>>,
) -> Result<(), Error> {
    weak(tx, root, at)?.map_or(Ok(()), |at| tx.link_weak(at, to))
}

fn link_list<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    base: Base,
    to: Option<Arr<'t, B, Child>>,
) -> Result<(), Error> {
    list(tx, root, base)?.map_or(Ok(()), |list| tx.link_array(list, to))
}

fn new_node<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    at: Place,
    id: Id,
    push: bool,
) -> Result<(), Error> {
    let Some(at) = strong(tx, root, at)? else { return Ok(()) };
    let new = tx.alloc(Node::new(id, id * 7))?;
    if push {
        let old = tx.load(at)?;
        tx.link(new.next(), old)?;
    }
    tx.link(at, new)
}

fn chain<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    at: Place,
    id: Id,
    count: u64,
) -> Result<(), Error> {
    let Some(at) = strong(tx, root, at)? else { return Ok(()) };
    for id in id..id + count {
        let new = tx.alloc(Node::new(id, id * 7))?;
        let old = tx.load(at)?;
        tx.link(new.next(), old)?;
        if let Some(old) = old {
            tx.link_weak(old.back(), new)?;
        }
        tx.link(at, new)?;
    }
    Ok(())
}

fn put_shape<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    base: Base,
    new: NewShape,
    to: Place,
) -> Result<(), Error> {
    let to = target(tx, root, to)?;
    let Some(place) = shape(tx, root, base)? else { return Ok(()) };
    let value = match new {
        NewShape::Dot => Shape::Dot,
        NewShape::Link => Shape::Link(PRc::null()),
        NewShape::Look(times) => Shape::Look { times, node: PWeak::null() },
        NewShape::Both(..) => Shape::Both { list: PArr::null(), node: PRc::null() },
    };
    tx.put(place, value)?;
    match (place.variant(tx)?, new) {
        (ShapeRef::Link(node), _) => tx.link(node, to),
        (ShapeRef::Look { node, .. }, _) => tx.link_weak(node, to),
        (ShapeRef::Both { list, node }, NewShape::Both(len, id)) => {
            tx.link(node, to)?;
            let new = new_list(tx, id, len, true)?;
            tx.link_array(list, new)
        }
        _ => Ok(()),
    }
}

fn set_value<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    base: Base,
    value: u32,
) -> Result<(), Error> {
    match base {
        Base::Root => tx.set(root.count(), value.into()),
        Base::Nth { slot, depth } => {
            node(tx, root, slot, depth)?.map_or(Ok(()), |node| tx.set(node.value(), value))
        }
    }
}

fn new_list<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    id: Id,
    len: usize,
    fill: bool,
) -> Result<tembo_heap::Arr<'t, B, Child>, Error> {
    let list =
        tx.alloc_array(len, |i| Child { id: id + i as u64, node: PRc::null(), weak: PWeak::null() })?;
    for i in (0..len).filter(|_| fill) {
        let new = tx.alloc(Node::new(id + i as u64, i as u64))?;
        tx.link(list.at(i).node(), new)?;
        tx.link_weak(list.at((i + 1) % len).weak(), new)?;
    }
    Ok(list)
}

/// Whether strong pointers lead from the root to the node.
fn reaches<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    node: Obj<'t, B, Node>,
) -> Result<bool, Error> {
    let id = Id::from(tx.get(node.id())?);
    Ok(super::model::read(tx, root, &[])?.nodes.contains_key(&id))
}
