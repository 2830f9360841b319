//! The graph in ordinary memory: what can be reached, and nothing else.

use super::ops::{Base, Look, NewShape, Op, Place};
use super::{
    Child, ChildFields, Id, LOOKS, Node, NodeFields, Root, RootFields, SLOTS, Shape, ShapeRef, ShapeVariant,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tembo_heap::{Arr, Brand, Error, Obj, PArr, PRc, PWeak, ReadTx, Ref};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ShapeModel {
    #[default]
    Dot,
    Link(Option<Id>),
    Look(u32, Option<Id>),
    Both(Option<Id>, Option<Id>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeModel {
    pub value: u64,
    pub next: Option<Id>,
    pub other: Option<Id>,
    pub back: Option<Id>,
    pub list: Option<Id>,
    pub shape: ShapeModel,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChildModel {
    pub node: Option<Id>,
    pub weak: Option<Id>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub slots: [Option<Id>; SLOTS],
    pub looks: [Option<Id>; LOOKS],
    pub numbers: Option<Vec<u64>>,
    pub count: u64,
    /// The root's list and shape.
    pub root: NodeModel,
    pub nodes: BTreeMap<Id, NodeModel>,
    pub lists: BTreeMap<Id, Vec<ChildModel>>,
    /// Objects that handles keep alive.
    pub held: Vec<Id>,
}

impl ShapeModel {
    fn strong(&self) -> Option<Id> {
        match *self {
            ShapeModel::Link(node) | ShapeModel::Both(_, node) => node,
            _ => None,
        }
    }

    fn list(&self) -> Option<Id> {
        if let ShapeModel::Both(list, _) = *self { list } else { None }
    }
}

impl Model {
    pub(crate) fn base(&mut self, base: Base) -> Option<&mut NodeModel> {
        match base {
            Base::Root => Some(&mut self.root),
            Base::Nth { slot, depth } => {
                let mut at = self.slots[slot]?;
                for _ in 0..depth {
                    at = self.nodes[&at].next?;
                }
                self.nodes.get_mut(&at)
            }
        }
    }

    /// As in the heap, whose root has no such fields.
    fn node_base(&mut self, base: Base) -> Option<&mut NodeModel> {
        if base == Base::Root { None } else { self.base(base) }
    }

    fn element(&mut self, base: Base, index: usize) -> Option<&mut ChildModel> {
        let list = self.base(base)?.list?;
        self.lists.get_mut(&list)?.get_mut(index)
    }

    pub(crate) fn strong(&mut self, place: Place) -> Option<&mut Option<Id>> {
        match place {
            Place::Slot(slot) => Some(&mut self.slots[slot]),
            Place::Next(base) => Some(&mut self.node_base(base)?.next),
            Place::Other(base) => Some(&mut self.node_base(base)?.other),
            Place::Element(base, index) => Some(&mut self.element(base, index)?.node),
            Place::InShape(base) => match &mut self.base(base)?.shape {
                ShapeModel::Link(node) | ShapeModel::Both(_, node) => Some(node),
                _ => None,
            },
        }
    }

    pub(crate) fn weak(&mut self, look: Look) -> Option<&mut Option<Id>> {
        match look {
            Look::Root(look) => Some(&mut self.looks[look]),
            Look::Back(base) => Some(&mut self.node_base(base)?.back),
            Look::Element(base, index) => Some(&mut self.element(base, index)?.weak),
            Look::InShape(base) => match &mut self.base(base)?.shape {
                ShapeModel::Look(_, node) => Some(node),
                _ => None,
            },
        }
    }

    /// The target of a place.
    pub(crate) fn target(&mut self, place: Place) -> Option<Id> {
        *self.strong(place)?
    }

    fn set(&mut self, place: Place, to: Option<Id>) {
        if let Some(at) = self.strong(place) {
            *at = to;
        }
    }

    fn set_weak(&mut self, look: Look, to: Option<Id>) {
        if let Some(at) = self.weak(look) {
            *at = to;
        }
    }

    fn set_list(&mut self, base: Base, to: Option<Id>) {
        if let Some(base) = self.base(base) {
            base.list = to;
        }
    }

    fn new_node(&mut self, id: Id, value: u64) {
        self.nodes.insert(id, NodeModel { value, ..NodeModel::default() });
    }

    fn new_list(&mut self, id: Id, len: usize, fill: bool) {
        let mut list = vec![ChildModel::default(); len];
        for i in (0..len).filter(|_| fill) {
            self.new_node(id + i as u64, i as u64);
            list[i].node = Some(id + i as u64);
            list[(i + 1) % len].weak = Some(id + i as u64);
        }
        self.lists.insert(id, list);
    }

    /// The nodes and arrays that strong pointers lead to.
    pub(crate) fn reachable(
        &self,
        from: impl IntoIterator<Item = Id>,
        with_root: bool,
    ) -> (Vec<Id>, Vec<Id>) {
        let mut nodes: BTreeMap<Id, ()> = BTreeMap::new();
        let mut lists: BTreeMap<Id, ()> = BTreeMap::new();
        let mut next: Vec<Id> = from.into_iter().collect();
        let mut next_lists = Vec::new();
        if with_root {
            next.extend(self.slots.iter().flatten());
            next.extend(self.root.shape.strong());
            next_lists.extend(self.root.list.into_iter().chain(self.root.shape.list()));
        }
        loop {
            if let Some(list) = next_lists.pop() {
                if lists.insert(list, ()).is_none() {
                    next.extend(self.lists[&list].iter().filter_map(|child| child.node));
                }
            } else if let Some(id) = next.pop() {
                if nodes.insert(id, ()).is_none() {
                    let node = &self.nodes[&id];
                    next.extend([node.next, node.other, node.shape.strong()].into_iter().flatten());
                    next_lists.extend(node.list.into_iter().chain(node.shape.list()));
                }
            } else {
                return (nodes.into_keys().collect(), lists.into_keys().collect());
            }
        }
    }

    /// Whether strong pointers make a circle.
    pub(crate) fn has_circle(&self) -> bool {
        // Nodes nothing more leads to are taken away, until there are none.
        let strong = |node: &NodeModel| -> Vec<Id> {
            let lists = node.list.into_iter().chain(node.shape.list());
            let children = lists.flat_map(|list| self.lists[&list].iter().filter_map(|child| child.node));
            children.chain([node.next, node.other, node.shape.strong()].into_iter().flatten()).collect()
        };
        let edges: BTreeMap<Id, Vec<Id>> = self.nodes.iter().map(|(id, node)| (*id, strong(node))).collect();
        let mut counts: BTreeMap<Id, usize> = self.nodes.keys().map(|id| (*id, 0)).collect();
        edges.values().flatten().for_each(|id| *counts.get_mut(id).expect("a node") += 1);
        let mut free: Vec<Id> = counts.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
        let mut gone = 0;
        while let Some(id) = free.pop() {
            gone += 1;
            for to in &edges[&id] {
                let count = counts.get_mut(to).expect("a node");
                *count -= 1;
                if *count == 0 {
                    free.push(*to);
                }
            }
        }
        gone < self.nodes.len()
    }

    /// Forgets what nothing keeps alive.
    pub(crate) fn prune(&mut self) {
        let (nodes, lists) = self.reachable(self.held.iter().copied(), true);
        self.nodes.retain(|id, _| nodes.binary_search(id).is_ok());
        self.lists.retain(|id, _| lists.binary_search(id).is_ok());
        let clear = |weak: &mut Option<Id>| *weak = weak.filter(|id| nodes.binary_search(id).is_ok());
        let clear_shape = |shape: &mut ShapeModel| {
            if let ShapeModel::Look(_, node) = shape {
                clear(node);
            }
        };
        self.looks.iter_mut().for_each(clear);
        clear_shape(&mut self.root.shape);
        for node in self.nodes.values_mut() {
            clear(&mut node.back);
            clear_shape(&mut node.shape);
        }
        self.lists.values_mut().flatten().for_each(|child| clear(&mut child.weak));
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match *op {
            Op::New { at, id, push } => {
                if let Some(old) = self.strong(at).copied() {
                    self.new_node(id, id * 7);
                    self.nodes.entry(id).and_modify(|node| node.next = old.filter(|_| push));
                    self.set(at, Some(id));
                }
            }
            Op::Chain { at, id, count } => self.chain(at, id, count),
            Op::Link { at, to } => {
                let to = self.target(to);
                self.set(at, to);
            }
            Op::Unlink { at } | Op::Keep { at } => self.set(at, None),
            Op::Look { at, to } => {
                let to = self.target(to);
                self.set_weak(at, to);
            }
            Op::Unlook { at } => self.set_weak(at, None),
            Op::Follow { at, look } => {
                let to = self.weak(look).and_then(|look| *look);
                let (reachable, _) = self.reachable([], true);
                self.set(at, to.filter(|to| reachable.binary_search(to).is_ok()));
            }
            Op::List { base, id, len, fill } => {
                if self.base(base).is_some() {
                    self.new_list(id, len, fill);
                    self.set_list(base, Some(id));
                }
            }
            Op::ShareList { base, from } => {
                let list = self.base(from).and_then(|from| from.list);
                self.set_list(base, list);
            }
            Op::DropList { base } => self.set_list(base, None),
            Op::Numbers { len, seed } => {
                self.numbers = Some((0..len).map(|i| seed.wrapping_mul(i as u64 + 1)).collect());
                self.count += 1;
            }
            Op::Shape { base, shape, to } => self.put_shape(base, shape, to),
            Op::Value { base: Base::Root, value } => self.count = value.into(),
            Op::Value { base, value } => {
                if let Some(node) = self.base(base) {
                    node.value = value.into();
                }
            }
            Op::Together(ref ops) => ops.iter().for_each(|op| self.apply_part(op)),
            Op::Second(ref op) => self.apply(op),
            Op::Detour { at, to } => self.detour(at, to),
            Op::Hold { .. } | Op::LinkHeld { .. } | Op::Release { .. } | Op::Reopen => self.apply_to_held(op),
            Op::Aborted(..) | Op::Orphans { .. } | Op::Bounce { .. } | Op::DropHandles => {}
            Op::Collect | Op::Compact => {}
        }
        self.prune();
    }

    fn chain(&mut self, at: Place, id: Id, count: u64) {
        for id in id..id + count {
            let Some(old) = self.strong(at).copied() else { break };
            self.new_node(id, id * 7);
            self.nodes.entry(id).and_modify(|node| node.next = old);
            if let Some(old) = old {
                self.nodes.entry(old).and_modify(|node| node.back = Some(id));
            }
            self.set(at, Some(id));
        }
    }

    fn put_shape(&mut self, base: Base, shape: NewShape, to: Place) {
        let to = self.target(to);
        if self.base(base).is_some() {
            let shape = match shape {
                NewShape::Dot => ShapeModel::Dot,
                NewShape::Link => ShapeModel::Link(to),
                NewShape::Look(times) => ShapeModel::Look(times, to),
                NewShape::Both(len, id) => {
                    self.new_list(id, len, true);
                    ShapeModel::Both(Some(id), to)
                }
            };
            self.base(base).expect("it is there").shape = shape;
        }
    }

    /// A node moves in two transactions, between which nothing but a handle leads to it.
    fn detour(&mut self, at: Place, to: Place) {
        let moved = self.target(at);
        self.set(at, None);
        // In the second transaction what was reached through the node that moved is gone.
        if moved.is_some() && self.strong_after_prune(to, moved) {
            self.set(to, moved);
        }
    }

    /// Operations on handles.
    fn apply_to_held(&mut self, op: &Op) {
        match *op {
            Op::Hold { at } => {
                let held = self.target(at);
                self.held.extend(held);
            }
            Op::LinkHeld { at, handle } => {
                if let Some(to) = self.held.get(handle).copied() {
                    self.set(at, Some(to));
                }
            }
            Op::Release { handle } => {
                if handle < self.held.len() {
                    self.held.remove(handle);
                }
            }
            Op::Reopen => self.held.clear(),
            ref other => unreachable!("{other:?} is of no handle"),
        }
    }

    fn strong_after_prune(&mut self, place: Place, moved: Option<Id>) -> bool {
        self.held.extend(moved);
        self.prune();
        moved.inspect(|_| _ = self.held.pop());
        self.strong(place).is_some()
    }

    /// Within a transaction, in which nothing dies.
    pub(crate) fn apply_part(&mut self, op: &Op) {
        let keep: Vec<Id> = self.nodes.keys().copied().collect();
        let held = std::mem::replace(&mut self.held, keep);
        self.apply(op);
        self.held = held;
    }
}

/// Where a weak pointer was found.
enum Found {
    Look(usize),
    RootShape,
    Back(Id),
    Shape(Id),
    Child(Id, usize),
}

struct Walk<'w, 't, B: Brand> {
    tx: &'w ReadTx<'t, B>,
    nodes: Vec<(Id, Obj<'t, B, Node>)>,
    lists: Vec<(Id, Arr<'t, B, Child>)>,
    weak: Vec<(Found, Ref<'t, B, PWeak<Node>>)>,
    model: Model,
}

impl<'t, B: Brand> Walk<'_, 't, B> {
    fn node(&mut self, node: Obj<'t, B, Node>) -> Result<Id, Error> {
        let id = Id::from(self.tx.get(node.id())?);
        if let Entry::Vacant(entry) = self.model.nodes.entry(id) {
            entry.insert(NodeModel::default());
            self.nodes.push((id, node));
        }
        Ok(id)
    }

    fn strong(&mut self, place: Ref<'t, B, PRc<Node>>) -> Result<Option<Id>, Error> {
        self.tx.load(place)?.map(|node| self.node(node)).transpose()
    }

    fn list(&mut self, place: Ref<'t, B, PArr<Child>>) -> Result<Option<Id>, Error> {
        let Some(list) = self.tx.array(place)? else { return Ok(None) };
        let id = self.tx.get(list.at(0).id())?;
        if let Entry::Vacant(entry) = self.model.lists.entry(id) {
            entry.insert(vec![ChildModel::default(); list.len()]);
            self.lists.push((id, list));
        }
        Ok(Some(id))
    }

    fn shape(&mut self, place: Ref<'t, B, Shape>, found: Found) -> Result<ShapeModel, Error> {
        Ok(match place.variant(self.tx)? {
            ShapeRef::Dot => ShapeModel::Dot,
            ShapeRef::Link(node) => ShapeModel::Link(self.strong(node)?),
            ShapeRef::Look { times, node } => {
                self.weak.push((found, node));
                ShapeModel::Look(self.tx.get(times)?, None)
            }
            ShapeRef::Both { list, node } => ShapeModel::Both(self.list(list)?, self.strong(node)?),
        })
    }

    fn walk(&mut self) -> Result<(), Error> {
        loop {
            if let Some((id, node)) = self.nodes.pop() {
                self.weak.push((Found::Back(id), node.back()));
                let read = NodeModel {
                    value: self.tx.get(node.value())?.into(),
                    next: self.strong(node.next())?,
                    other: self.strong(node.other())?,
                    back: None,
                    list: self.list(node.list())?,
                    shape: self.shape(node.shape(), Found::Shape(id))?,
                };
                self.model.nodes.insert(id, read);
            } else if let Some((id, list)) = self.lists.pop() {
                for i in 0..list.len() {
                    let child = list.at(i);
                    self.weak.push((Found::Child(id, i), child.weak()));
                    let node = self.strong(child.node())?;
                    self.model.lists.get_mut(&id).expect("it was found")[i].node = node;
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Weak pointers, of which those to what cannot be reached are as good as null.
    fn look(&mut self) -> Result<(), Error> {
        for (found, place) in std::mem::take(&mut self.weak) {
            let Some(node) = self.tx.upgrade(place)? else { continue };
            let id = Some(Id::from(self.tx.get(node.id())?)).filter(|id| self.model.nodes.contains_key(id));
            let set = |shape: &mut ShapeModel| {
                if let ShapeModel::Look(_, node) = shape {
                    *node = id;
                }
            };
            let Model { looks, root, nodes, lists, .. } = &mut self.model;
            match found {
                Found::Look(i) => looks[i] = id,
                Found::RootShape => set(&mut root.shape),
                Found::Back(of) => nodes.get_mut(&of).expect("it was found").back = id,
                Found::Shape(of) => set(&mut nodes.get_mut(&of).expect("it was found").shape),
                Found::Child(of, i) => lists.get_mut(&of).expect("it was found")[i].weak = id,
            }
        }
        Ok(())
    }
}

/// Reads the graph that can be reached from the root, and from these nodes.
pub(crate) fn read<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    held: &[Obj<'t, B, Node>],
) -> Result<Model, Error> {
    let mut walk = Walk { tx, nodes: vec![], lists: vec![], weak: vec![], model: Model::default() };
    for i in 0..SLOTS {
        walk.model.slots[i] = walk.strong(root.slots().at(i))?;
    }
    for i in 0..LOOKS {
        walk.weak.push((Found::Look(i), root.looks().at(i)));
    }
    walk.model.root.list = walk.list(root.list())?;
    walk.model.root.shape = walk.shape(root.shape(), Found::RootShape)?;
    for node in held {
        let id = walk.node(*node)?;
        walk.model.held.push(id);
    }
    walk.walk()?;
    walk.look()?;
    let mut model = walk.model;
    if let Some(numbers) = tx.array(root.numbers())? {
        let read = (0..numbers.len()).map(|i| tx.get(numbers.at(i)));
        model.numbers = Some(read.collect::<Result<_, _>>()?);
    }
    model.count = tx.get(root.count())?;
    Ok(model)
}
