//! The actions of a thread, and the model of their results.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const THREADS: usize = 3;
pub(crate) const SLOTS: usize = 4;
pub(crate) const LOOKS: usize = 2;
/// Nodes that all threads have pointers to.
pub(crate) const FRIENDS: usize = 3;
pub(crate) const ACCOUNTS: usize = 6;

/// Names a node: the thread and the number of the operation that made it, and which of its nodes it is.
pub(crate) type Id = u64;

pub(crate) fn id_of(thread: usize, number: u64, which: u64) -> Id {
    (thread as u64) << 56 | number << 16 | which
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// A new node; `push`: what was there comes next to it.
    New {
        slot: usize,
        push: bool,
    },
    Link {
        slot: usize,
        from: usize,
    },
    Unlink {
        slot: usize,
    },
    /// From a node to an older one, so that there are no circles.
    Other {
        of: usize,
        to: usize,
    },
    Look {
        look: usize,
        slot: usize,
    },
    /// To where a weak pointer leads, if another slot leads there too.
    Follow {
        look: usize,
        slot: usize,
    },
    /// Takes a pointer away, and keeps a handle of what it led to.
    Keep {
        slot: usize,
    },
    /// Lets a pointer lead to what the oldest handle keeps.
    Restore {
        slot: usize,
    },
    DropHandle,
    /// A list of this many nodes; the one before dies.
    Chain {
        len: u64,
    },
    /// A binary tree of this many levels, the same.
    Tree {
        levels: u32,
    },
    /// An array of this many nodes, the same.
    Array {
        len: u64,
    },
    PushNumbers {
        count: u64,
    },
    PopNumbers {
        count: u64,
    },
    PushNode {
        slot: usize,
    },
    RemoveNode {
        at: u64,
    },
    ClearNodes,
    Text {
        len: usize,
    },
    Name {
        key: u64,
        slot: usize,
    },
    Unname {
        key: u64,
    },
    /// Keys of the map that threads share.
    Insert {
        from: u64,
        count: u64,
    },
    Remove {
        from: u64,
        count: u64,
    },
    InOrder {
        from: u64,
        count: u64,
    },
    OutOfOrder {
        from: u64,
        count: u64,
    },
    Transfer {
        from: usize,
        to: usize,
        amount: i64,
    },
    Befriend {
        friend: usize,
    },
    ReplaceFriend {
        friend: usize,
    },
}

/// The operation that a thread performs as its `number`th.
pub(crate) fn op(seed: u64, thread: usize, number: u64) -> Op {
    let mixed = seed ^ id_of(thread, number, 0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(mixed);
    let (slot, other) = (rng.random_range(0..SLOTS), rng.random_range(0..SLOTS));
    let (look, friend) = (rng.random_range(0..LOOKS), rng.random_range(0..FRIENDS));
    match rng.random_range(0..64) {
        0..6 => Op::New { slot, push: rng.random_ratio(1, 3) },
        6..8 => Op::Link { slot, from: other },
        8..11 => Op::Unlink { slot },
        11..13 => Op::Other { of: slot, to: other },
        13..16 => Op::Look { look, slot },
        16..18 => Op::Follow { look, slot },
        18..22 => Op::Keep { slot },
        22..24 => Op::Restore { slot },
        24..26 => Op::DropHandle,
        26..28 => Op::Chain { len: rng.random_range(0..400) },
        28 if rng.random() => Op::Tree { levels: rng.random_range(0..8) },
        28 => Op::Array { len: rng.random_range(0..700) },
        29..32 => Op::PushNumbers { count: rng.random_range(1..30) },
        32..34 => Op::PopNumbers { count: rng.random_range(1..70) },
        34..37 => Op::PushNode { slot },
        37..39 => Op::RemoveNode { at: rng.random() },
        39 if rng.random_ratio(1, 4) => Op::ClearNodes,
        39..42 => Op::Text { len: rng.random_range(0..50) },
        42..45 => Op::Name { key: rng.random_range(0..30), slot },
        45..47 => Op::Unname { key: rng.random_range(0..30) },
        47..51 => Op::Insert { from: rng.random_range(0..300), count: rng.random_range(1..25) },
        51..53 => Op::Remove { from: rng.random_range(0..300), count: rng.random_range(1..60) },
        53..56 => Op::InOrder { from: rng.random_range(0..100), count: rng.random_range(1..10) },
        56..58 => Op::OutOfOrder { from: rng.random_range(0..100), count: rng.random_range(1..25) },
        58..60 => {
            let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
            Op::Transfer { from, to, amount: rng.random_range(1..100) }
        }
        60..62 => Op::Befriend { friend },
        _ => Op::ReplaceFriend { friend },
    }
}

/// The text of an operation.
pub(crate) fn text_of(number: u64, len: usize) -> String {
    (0..len as u64).map(|i| char::from(b'a' + ((number + i) % 26) as u8)).collect()
}

pub(crate) fn key_name(key: u64) -> String {
    // Some of them are longer than what lies in a field.
    "name ".repeat(1 + key as usize % 5) + &key.to_string()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeModel {
    pub next: Option<Id>,
    pub other: Option<Id>,
}

/// The part of the heap of one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plot {
    pub done: u64,
    pub slots: [Option<Id>; SLOTS],
    pub looks: [Option<Id>; LOOKS],
    pub nodes: BTreeMap<Id, NodeModel>,
    /// The first of a list, and its length.
    pub chain: Option<(Id, u64)>,
    /// The root of a tree, and its levels.
    pub tree: Option<(Id, u32)>,
    /// The first node of an array, and its length.
    pub array: Option<(Id, u64)>,
    pub numbers: Vec<u64>,
    pub list: Vec<Option<Id>>,
    pub text: String,
    pub names: BTreeMap<String, Option<Id>>,
    /// The thread's keys in the shared collections.
    pub by_key: BTreeMap<u64, u64>,
    pub in_order: BTreeMap<u64, Id>,
    /// The objects that the process holds.
    pub held: VecDeque<Id>,
}

impl Plot {
    /// Performs the next operation.
    pub(crate) fn perform(&mut self, seed: u64, thread: usize) {
        self.done += 1;
        let (number, op) = (self.done, op(seed, thread, self.done));
        let id = |which| id_of(thread, number, which);
        match op {
            Op::New { slot, push } => {
                let next = self.slots[slot].filter(|_| push);
                self.nodes.insert(id(0), NodeModel { next, other: None });
                self.slots[slot] = Some(id(0));
            }
            Op::Link { slot, from } => self.slots[slot] = self.slots[from],
            Op::Unlink { slot } => self.slots[slot] = None,
            Op::Other { of, to } => {
                if let (Some(of), Some(to)) = (self.slots[of], self.slots[to])
                    && to < of
                {
                    self.nodes.get_mut(&of).expect("a slot leads there").other = Some(to);
                }
            }
            Op::Look { look, slot } => self.looks[look] = self.slots[slot],
            Op::Follow { look, slot } => {
                let to = self.looks[look].filter(|to| self.slots.contains(&Some(*to)));
                self.slots[slot] = to;
            }
            Op::Keep { slot } => self.held.extend(self.slots[slot].take()),
            Op::Restore { slot } => {
                if let Some(held) = self.held.pop_front() {
                    self.slots[slot] = Some(held);
                }
            }
            Op::DropHandle => drop(self.held.pop_front()),
            Op::Chain { len } => self.chain = (len > 0).then(|| (id(0), len)),
            Op::Tree { levels } => self.tree = (levels > 0).then(|| (id(0), levels)),
            Op::Array { len } => self.array = (len > 0).then(|| (id(0), len)),
            Op::PushNumbers { count } => self.numbers.extend((0..count).map(id)),
            Op::PopNumbers { count } => {
                self.numbers.truncate(self.numbers.len().saturating_sub(count as usize));
            }
            Op::PushNode { slot } => self.list.push(self.slots[slot]),
            Op::RemoveNode { at } => {
                if !self.list.is_empty() {
                    self.list.remove((at % self.list.len() as u64) as usize);
                }
            }
            Op::ClearNodes => self.list.clear(),
            Op::Text { len } => self.text = text_of(number, len),
            Op::Name { key, slot } => drop(self.names.insert(key_name(key), self.slots[slot])),
            Op::Unname { key } => drop(self.names.remove(&key_name(key))),
            Op::Insert { from, count } => self.by_key.extend((from..from + count).map(|key| (key, id(key)))),
            Op::Remove { from, count } => self.by_key.retain(|key, _| !(from..from + count).contains(key)),
            Op::InOrder { from, count } => {
                self.in_order.extend((from..from + count).map(|key| (key, id(key))));
            }
            Op::OutOfOrder { from, count } => {
                self.in_order.retain(|key, _| !(from..from + count).contains(key));
            }
            Op::Transfer { .. } | Op::Befriend { .. } | Op::ReplaceFriend { .. } => {}
        }
        self.prune();
    }

    /// The process is gone, and its handles with it.
    pub(crate) fn lose_handles(&mut self) {
        self.held.clear();
        self.prune();
    }

    /// Forgets what nothing keeps alive.
    fn prune(&mut self) {
        let mut next: Vec<Id> = self.slots.iter().flatten().copied().collect();
        next.extend(self.list.iter().chain(self.names.values()).flatten());
        next.extend(&self.held);
        let mut alive = BTreeSet::new();
        while let Some(id) = next.pop() {
            if alive.insert(id) {
                let node = &self.nodes[&id];
                next.extend(node.next.into_iter().chain(node.other));
            }
        }
        self.nodes.retain(|id, _| alive.contains(id));
        self.looks.iter_mut().for_each(|look| *look = look.filter(|id| alive.contains(id)));
    }
}
