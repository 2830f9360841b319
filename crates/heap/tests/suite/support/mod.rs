//! Shared parts of the crash tests and the model test: a graph of objects with every kind of pointer,
//! operations on it, and its model in ordinary memory.

pub(crate) mod model;
pub(crate) mod ops;
pub(crate) mod random;
pub(crate) mod store;

pub(crate) use model::Model;
pub(crate) use ops::{Base, Look, Op, Place};
pub(crate) use random::Random;
pub(crate) use store::Store;

use tembo_heap::{PArr, PRc, PWeak, Persist};

/// The name of a node and, of an array, its first element.
pub(crate) type Id = u64;

pub(crate) const SLOTS: usize = 5;
pub(crate) const LOOKS: usize = 3;

/// A value of 64 bytes, which has a line for itself. (The root and the arrays here have not.)
#[derive(Persist)]
#[repr(C)]
pub(crate) struct Node {
    pub id: u32,
    pub value: u32,
    pub next: PRc<Node>,
    pub other: PRc<Node>,
    pub back: PWeak<Node>,
    pub list: PArr<Child>,
    pub shape: Shape,
}

impl Node {
    pub(crate) fn new(id: Id, value: u64) -> Node {
        let (id, value) = (id as u32, value as u32);
        let (next, other, back) = (PRc::null(), PRc::null(), PWeak::null());
        Node { id, value, next, other, back, list: PArr::null(), shape: Shape::Dot }
    }
}

/// An element of an array.
#[derive(Persist)]
#[repr(C)]
pub(crate) struct Child {
    pub id: u64,
    pub node: PRc<Node>,
    pub weak: PWeak<Node>,
}

#[derive(Default, Persist)]
#[repr(u32)]
pub(crate) enum Shape {
    #[default]
    Dot,
    Link(PRc<Node>),
    Look {
        times: u32,
        node: PWeak<Node>,
    },
    Both {
        list: PArr<Child>,
        node: PRc<Node>,
    },
}

#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Root {
    pub slots: [PRc<Node>; SLOTS],
    pub looks: [PWeak<Node>; LOOKS],
    pub list: PArr<Child>,
    pub numbers: PArr<u64>,
    pub shape: Shape,
    pub count: u64,
}

/// The message of an error.
pub(crate) fn text(e: impl ToString) -> String {
    e.to_string()
}
