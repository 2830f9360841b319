//! Trees at the edge of a change of structure, and the operation that makes it.

use super::{COUNTINGS, Edit, Op, Trees, audit, key, put, remove, then};
use crate::crashes::{Script, survived};
use tembo_crashsim::{Scenario, Simulation};
use tembo_index::Counting;
use tembo_pmem::Region;

/// One step over the edge: what is there before, and how many blocks the operation gains.
struct Edge {
    name: &'static str,
    start: Vec<Edit>,
    op: Op,
    blocks: i64,
}

fn edge(name: &'static str, start: impl IntoIterator<Item = Edit>, edits: Vec<Edit>, blocks: i64) -> Edge {
    Edge { name, start: start.into_iter().collect(), op: Op::Edits(edits), blocks }
}

/// Even numbers in ascending order fill every leaf with 28, so that leaf `l` holds 56 `l` to 56 `l` + 54.
fn full_leaves(leaves: u32) -> Vec<Edit> {
    (0..leaves * 28).map(|i| put(2 * i)).collect()
}

/// 41 leaves under the left inner node, two under the right one, the last with one record: number 2352.
fn two_inner_nodes() -> Vec<Edit> {
    then(full_leaves(42), [put(2352)])
}

fn insertions() -> Vec<Edge> {
    let long = |i: u32| Edit::Put([vec![b'x'; 30], i.to_be_bytes().to_vec()].concat(), vec![7; 3]);
    let both_ends = vec![Edit::Put(vec![], vec![]), Edit::Put(vec![0xFF; 40], vec![])];
    vec![
        edge("the first record: a leaf", [], vec![put(1)], 2),
        edge("a record into a leaf with room", [put(1)], vec![put(2)], 1),
        edge("a record in place of another", [put(1), put(2)], vec![Edit::Put(key(1), vec![9; 70])], 0),
        edge(
            "a record that fills its block, with an empty value",
            [put(1)],
            vec![Edit::Put(vec![b'k'; 568], vec![])],
            1,
        ),
        edge(
            "a value in whose place one fills its block",
            [put(1)],
            vec![Edit::Put(key(1), vec![9; 640 - 16])],
            0,
        ),
        edge("a root leaf is divided in the middle", full_leaves(1), vec![put(27)], 3),
        edge("a root leaf is continued on the right", full_leaves(1), vec![put(99)], 3),
        edge("a root leaf is continued on the left", full_leaves(1).split_off(1), vec![put(56), put(0)], 4),
        edge("a leaf is divided under its parent", full_leaves(3), vec![put(57)], 2),
        edge("a parent is divided: a new root", full_leaves(42), vec![put(2352)], 4),
        edge("a parent is divided in the middle: a new root", full_leaves(42), vec![put(1001)], 4),
        edge("an inner node is divided under the root", two_inner_nodes(), vec![put(57), put(1001)], 5),
        edge("a separator that needs a block", then(both_ends, (0..26).map(long)), vec![long(99)], 4),
    ]
}

fn many(keys: impl Iterator<Item = u32>) -> Vec<Edit> {
    vec![Edit::PutMany(keys.map(key).collect(), vec![7; 3])]
}

fn runs() -> Vec<Edge> {
    let odd = |numbers: std::ops::Range<u32>| numbers.map(|i| 2 * i + 1);
    vec![
        edge("many records: leaves and a root", [], many(0..60), 60 + 3 + 1),
        edge("two records into a leaf with room", [put(1)], many([0, 2].into_iter()), 2),
        edge("records in place of others, and others", (0..8).map(put), many(0..16), 8),
        edge("a leaf is divided into three", full_leaves(1), many(odd(0..28)), 28 + 3),
        edge("a leaf is divided in two under its parent", full_leaves(3), many(odd(29..33)), 4 + 1),
        edge("leaves to the left, between and to the right", full_leaves(4), many(odd(20..60)), 40 + 4),
        edge("a parent is divided: a new root", full_leaves(42), many(odd(30..60)), 30 + 3 + 2),
        edge("an inner node is divided under the root", two_inner_nodes(), many(odd(30..60)), 30 + 3 + 1),
    ]
}

fn removals() -> Vec<Edge> {
    let thin = |numbers: std::ops::Range<u32>| numbers.map(|i| remove(2 * i));
    let few_leaves = then(two_inner_nodes(), thin(28 * 5..28 * 21));
    vec![
        edge("a record out of a leaf", [put(1), put(2)], vec![remove(1)], -1),
        edge("the last record", [put(1)], vec![remove(1)], -2),
        edge(
            "an empty leaf: its neighbour becomes the root",
            then(full_leaves(1), [put(56)]),
            vec![remove(56)],
            -3,
        ),
        edge("an empty leaf leaves its parent", then(full_leaves(2), [put(112)]), vec![remove(112)], -2),
        edge(
            "two sparse leaves are joined",
            then(full_leaves(3), thin(30..48).chain(thin(60..81))),
            vec![remove(162)],
            -2,
        ),
        edge("inner nodes share their children", two_inner_nodes(), vec![remove(2352)], -2),
        edge("inner nodes are joined, and the root goes", few_leaves, vec![remove(2352)], -4),
    ]
}

fn conditional_changes() -> Vec<Edge> {
    let (low, high) = (key(1), key(5));
    let few = || (0..8).map(put);
    vec![
        edge(
            "an insertion",
            [put(1)],
            vec![Edit::Insert(key(2), vec![7; 3]), Edit::Insert(key(1), vec![8; 3])],
            1,
        ),
        edge("an insertion that divides a leaf", full_leaves(1), vec![Edit::Insert(key(27), vec![7; 3])], 3),
        edge("a value that is made", [put(1)], vec![Edit::Extend(key(2))], 1),
        edge("a value that grows", [put(1)], vec![Edit::Extend(key(1))], 0),
        edge(
            "a value that is removed",
            [Edit::Put(key(1), vec![5; 50]), put(2)],
            vec![Edit::Extend(key(1))],
            -1,
        ),
        edge("the last record", few(), vec![Edit::PopLast], -1),
        edge("a part of a leaf", few(), vec![Edit::RemoveRange(low, high)], -4),
        edge("all of a leaf", few(), vec![Edit::RemoveRange(key(0), key(9))], -9),
        edge("a range of leaves", full_leaves(4), vec![Edit::RemoveRange(key(20), key(180))], -80 - 2),
        edge(
            "a range over inner nodes",
            two_inner_nodes(),
            vec![Edit::RemoveRange(key(20), key(2340))],
            -1160 - 43,
        ),
    ]
}

fn simulate_edges(edges: fn() -> Vec<Edge>) {
    for counting in COUNTINGS {
        simulate_edges_of(counting, edges());
    }
}

fn simulate_edges_of(counting: Counting, edges: Vec<Edge>) {
    for Edge { name, start, op, blocks } in edges {
        let continuation = vec![Op::Edits(vec![put(3), remove(0)]), Op::Edits(vec![put(101)])];
        let script = Script::new(format!("{name}; counts: {counting:?}"), vec![op], continuation);
        let scenario = Trees { counting, ..Trees::new(start, script) };
        let dry = scenario.setup(Region::simulated(&vec![0; 256 << 10], 1 << 24, None).unwrap()).unwrap();
        let before = dry.allocated_blocks();
        dry.perform(&scenario.script.ops[0]).unwrap();
        assert_eq!(dry.allocated_blocks() - before, blocks, "{name}");
        let limit = if counting == Counting::Nothing { 96 } else { 20 };
        survived(Simulation::new(&scenario).limit(limit).audit(audit(true)).run());
    }
}

#[test]
fn every_kind_of_insertion_survives_crashes() {
    simulate_edges(insertions);
}

#[test]
fn every_kind_of_run_survives_crashes() {
    simulate_edges(runs);
}

#[test]
fn every_kind_of_removal_survives_crashes() {
    simulate_edges(removals);
}

#[test]
fn every_kind_of_conditional_change_and_range_survives_crashes() {
    simulate_edges(conditional_changes);
}
