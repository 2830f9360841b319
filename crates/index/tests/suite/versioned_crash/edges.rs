//! Maps at the edge of a change of structure, and the operations that make it.

use super::{Edit, Op};
use crate::structures::{SEED, equal_hash_key, near_hash_key};

pub(super) fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

pub(super) fn put(i: u32) -> Edit {
    Edit::Put(key(i), format!("value of {i}").into_bytes())
}

pub(super) fn small(i: u32) -> Edit {
    Edit::Put(i.to_be_bytes().to_vec(), vec![7; i as usize % 9])
}

pub(super) fn remove(i: u32) -> Edit {
    Edit::Remove(key(i))
}

pub(super) fn puts(numbers: impl IntoIterator<Item = u32>) -> Op {
    Op::Batch(numbers.into_iter().map(put).collect())
}

pub(super) fn removes(numbers: impl IntoIterator<Item = u32>) -> Op {
    Op::Batch(numbers.into_iter().map(remove).collect())
}

/// One step over the edge: what is there before, and how many blocks the operation gains.
pub(super) struct Edge {
    pub(super) name: &'static str,
    pub(super) start: Vec<Op>,
    pub(super) op: Op,
    pub(super) blocks: i64,
}

fn edge(name: &'static str, start: Vec<Op>, op: Op, blocks: i64) -> Edge {
    Edge { name, start, op, blocks }
}

/// Keys that come in order leave 19 in each leaf but the last. Blocks that died before the operation have
/// been freed, so that it frees nothing; blocks that die in it are still there, in a queue.
pub(super) fn tree_edges() -> Vec<Edge> {
    let one = |edit| Op::One(edit);
    let evens = (0..28).map(|i| 2 * i);
    vec![
        edge("the first record: a leaf", vec![], one(put(1)), 2),
        edge("an entry without a record", vec![one(put(1))], one(small(5)), 0),
        edge("a record that fills its block", vec![one(put(1))], one(Edit::Put(vec![b'k'; 568], vec![])), 1),
        edge("an entry without a record in place of another", vec![one(small(5))], one(small(5)), 0),
        // The first record that dies gets the queue its chunk.
        edge("a record in place of another", vec![puts([1, 2])], one(put(2)), 2),
        edge("a record in place of a dead one", vec![puts([1, 2]), one(put(2))], one(put(1)), 1),
        edge("a record leaves a leaf", vec![puts([1, 2]), one(put(1))], one(remove(2)), 0),
        edge("the last record leaves", vec![one(put(1)), one(put(1))], one(remove(1)), 0),
        // The record, two leaves, a root, and a chunk for the old leaf.
        edge("a root leaf is divided", vec![puts(0..28)], one(put(28)), 5),
        edge("a root leaf is divided in the middle", vec![puts(evens)], one(put(27)), 5),
        edge(
            "a leaf full of dead entries becomes one",
            vec![puts(0..14), Op::Hold, puts(0..14), Op::Hold],
            one(put(3)),
            2,
        ),
        // The record, two leaves, and a chunk.
        edge("a leaf is divided under its parent", vec![puts(0..66)], one(put(66)), 4),
        edge(
            "two leaves are joined, and the root goes",
            vec![puts(0..29), removes(0..13)],
            one(remove(13)),
            1,
        ),
        edge(
            "two leaves share their entries, one of three",
            vec![puts(0..48), removes(0..13)],
            one(remove(13)),
            2,
        ),
        edge("two leaves are joined to one", vec![puts(0..48), removes(29..42)], one(remove(42)), 1),
        edge("two leaves share their entries", vec![puts(0..44), removes(0..13)], one(remove(13)), 2),
        // The blocks stay, but for a chunk: they are freed later.
        edge("a tree of one leaf is cleared", vec![puts(0..20)], Op::Clear, 1),
        edge("a tree of two levels is cleared", vec![puts(0..90), puts(0..5)], Op::Clear, 0),
        edge("a cleared tree is cleared again", vec![puts(0..30), Op::Clear, puts(0..30)], Op::Clear, 0),
        // How many is not the point: more than one node of each level.
        edge("two levels come at once", vec![puts(0..10)], puts(10..320), 0),
        edge("two levels go at once", vec![puts(0..320)], removes(0..310), 0),
    ]
}

/// The blocks that die in an operation are still there afterwards, in a queue: each node on the way, and
/// the record.
pub(super) fn hash_edges() -> Vec<Edge> {
    let one = |edit| Op::One(edit);
    let equal = |i| Edit::Put(equal_hash_key(i), b"equal".to_vec());
    let not_equal = |i| Edit::Remove(equal_hash_key(i));
    let equals = |count| Op::Batch((0..count).map(equal).collect());
    let near = |i| Edit::Put(near_hash_key(i), b"near".to_vec());
    let not_near = |i| Edit::Remove(near_hash_key(i));
    let way = near_depth();
    vec![
        edge("the first record: a root", vec![], one(put(1)), 2),
        // The old root, which is the first to die and gets the queue its chunk.
        edge("an entry without a record", vec![one(put(1))], one(small(5)), 2),
        edge("an entry without a record in place of another", vec![one(small(5))], one(small(5)), 2),
        edge("a record in place of another", vec![puts([1, 2])], one(put(2)), 3),
        edge("a record leaves", vec![puts([1, 2])], one(remove(2)), 2),
        // The new root is no node.
        edge("the last record leaves", vec![one(put(1)), one(put(1))], one(remove(1)), 0),
        edge("the last record comes again", vec![one(put(1)), one(remove(1))], one(put(1)), 2),
        // A record, a root, 15 nodes on the way, and one for both; the old root dies, and has its chunk.
        edge("two keys of one hash", vec![one(equal(1))], one(equal(2)), 1 + 17 + 1),
        // The same without the record of the one that goes; nodes and record stay in the queue.
        edge("one of two keys of one hash is left", vec![equals(2)], one(not_equal(1)), 1 + 1),
        edge("one of three keys of one hash goes", vec![equals(3)], one(not_equal(1)), 17 + 1),
        edge("a third key of one hash", vec![equals(2)], one(equal(2)), 1 + 17 + 1),
        edge("a key of one hash in place of another", vec![equals(2)], one(equal(1)), 1 + 17 + 1),
        edge("two keys part far below the root", vec![one(near(0))], one(near(1)), way + 1),
        edge("two keys far below the root become one", vec![one(near(0)), one(near(1))], one(not_near(1)), 0),
        // The blocks stay, but for a chunk: they are freed later.
        edge("a table of one node is cleared", vec![puts(0..5)], Op::Clear, 1),
        edge("a table of two levels is cleared", vec![puts(0..90), puts(0..5)], Op::Clear, 0),
        edge("a cleared table is cleared again", vec![puts(0..30), Op::Clear, puts(0..30)], Op::Clear, 0),
        edge("a table of one hash is cleared", vec![equals(3)], Op::Clear, 1),
        // How many is not the point: nodes of three levels.
        edge("three levels come at once", vec![puts(0..10)], puts(10..320), 0),
        edge("three levels go at once", vec![puts(0..320)], removes(0..310), 0),
    ]
}

/// How many nodes are on the way to where the first two near keys part.
fn near_depth() -> i64 {
    let hash = |i| xxhash_rust::xxh3::xxh3_64_with_seed(&near_hash_key(i), SEED);
    i64::from((hash(0) ^ hash(1)).leading_zeros() / 4 + 1)
}
