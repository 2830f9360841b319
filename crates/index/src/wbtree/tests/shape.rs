//! The shape of the tree: how full nodes are, and where separators go.

use super::Bench;
use crate::wbtree::layout::{FANOUT, INNER_BYTES, LEAF_SLOTS, SeparatorWord};
use crate::wbtree::node::Media;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool, Writer};

#[test]
fn sequences_fill_their_leaves_and_random_keys_two_thirds() {
    let (mut up, mut down, mut random) = (Bench::new(), Bench::new(), Bench::new());
    for i in 0..20_000u32 {
        up.put(&i.to_be_bytes());
        down.put(&(20_000 - i).to_be_bytes());
        random.put(&i.wrapping_mul(2_654_435_761).to_be_bytes());
    }
    assert!(up.nodes().fill() > 0.99, "{}", up.nodes().fill());
    assert!(down.nodes().fill() > 0.99, "{}", down.nodes().fill());
    assert!(random.nodes().fill() > 0.66, "{}", random.nodes().fill());
    let inner = up.nodes().inner.len();
    assert!(inner <= 20_000 / LEAF_SLOTS / (FANOUT - 4) + 2, "{inner} inner nodes");
}

#[test]
fn removals_keep_nodes_from_thinning_out() {
    let mut bench = Bench::new();
    let key = |i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes();
    (0..20_000).for_each(|i| bench.put(&key(i)));
    let full = bench.nodes().leaves.len();
    (0..18_000).for_each(|i| bench.remove(&key(i)));
    let nodes = bench.nodes();
    assert!(nodes.leaves.len() < full / 4, "{} leaves of {full}", nodes.leaves.len());
    let root = bench.tree.root(Media(bench.tree.region())).unwrap().node();
    for node in nodes.inner.iter().filter(|node| node.off != root) {
        assert!(node.count() >= FANOUT / 4, "{} children", node.count());
    }
    bench.check().unwrap();
}

#[test]
fn long_shared_prefixes_do_not_reach_the_nodes() {
    let mut bench = Bench::new();
    for i in 0..20_000u32 {
        bench.put(
            format!("a prefix of more than thirty bytes/{:08}", i.wrapping_mul(7919) % 20_000).as_bytes(),
        );
    }
    let nodes = bench.nodes();
    assert!(nodes.inner.len() > 20);
    for node in &nodes.inner {
        for i in 0..node.count() - 1 {
            assert!(matches!(node.separator_place(i).unwrap(), SeparatorWord::Inline(_)));
        }
    }
    let decided = nodes.leaves.iter().filter(|(leaf, _)| leaf.skip() >= 35).count();
    assert!(decided + 2 >= nodes.leaves.len(), "{decided} of {} leaves", nodes.leaves.len());
    bench.check().unwrap();
}

#[test]
fn separators_that_do_not_fit_get_blocks_and_give_them_back() {
    let mut bench = Bench::new();
    // The keys of a pair share 100 bytes, and pairs share nothing, so that some separators are long.
    let key = |i: u32| {
        [vec![(i / 2 % 251) as u8; 100], (i % 2).to_be_bytes().to_vec(), i.to_be_bytes().to_vec()].concat()
    };
    (0..6000).for_each(|i| bench.put(&key(i)));
    let nodes = bench.nodes();
    let places =
        nodes.inner.iter().flat_map(|node| (0..node.count() - 1).map(|i| node.separator_place(i).unwrap()));
    assert!(places.filter(|place| matches!(place, SeparatorWord::Block(_))).count() > 10);
    bench.check().unwrap();
    (0..6000).for_each(|i| bench.remove(&key(i)));
    bench.check().unwrap();
    assert_eq!(bench.pool.marks().unwrap().usage().allocated_blocks, 1, "only the header is left");
}

#[test]
fn a_leaf_stays_sparse_where_its_parent_finds_no_room() {
    let mut bench = Bench::in_region(Region::simulated(&vec![0; 1 << 20], 2 << 20, None).unwrap());
    (0..3000u32).for_each(|i| bench.put(&i.wrapping_mul(2_654_435_761).to_be_bytes()));
    // Takes every block that a new inner node could have; leaves have blocks of another size.
    let mut ballast = Vec::new();
    let mut take_all = |bench: &mut Bench| loop {
        let mut tx = bench.lane.begin();
        // No kept space is left for removals either.
        tx.use_kept_space(tembo_pool::KeptSpace::All);
        match tx.alloc(INNER_BYTES) {
            Ok(block) => ballast.push(block),
            Err(full) => break full,
        }
        tx.commit().unwrap();
    };
    let full = take_all(&mut bench);
    assert!(full.is_full(), "{full}");
    for i in 0..2900u32 {
        bench.remove(&i.wrapping_mul(2_654_435_761).to_be_bytes());
        // The space that removals free is taken as well.
        take_all(&mut bench);
    }
    assert!(bench.nodes().fill() < 0.2, "nothing could be joined");
    let mut marks = bench.pool.marks().unwrap();
    bench.tree.check(&mut marks).unwrap();
    ballast.iter().for_each(|block| marks.reach(*block, INNER_BYTES).unwrap());
    marks.finish().unwrap();
    let mut tx = bench.lane.begin();
    ballast.iter().for_each(|block| tx.free(*block).unwrap());
    tx.commit().unwrap();
    (2900..3000u32).for_each(|i| bench.remove(&i.wrapping_mul(2_654_435_761).to_be_bytes()));
    bench.check().unwrap();
}

/// The pool is full, its leaves are so sparse that each removal changes two words, and the last record has
/// left little of its half of the lane.
#[test]
fn a_range_is_removed_in_a_full_pool_with_a_full_lane() {
    let region = Region::simulated(&vec![0; 1 << 20], 2 << 20, None).unwrap();
    let pool = Pool::create_in(region, &Geometry { lane_bytes: 4096, ..Geometry::tiny() }).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let tree = crate::WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();
    let mut bench = Bench { pool, lane, tree };
    let key = |i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes();
    (0..4000).for_each(|i| bench.put(&key(i)));
    // The first lane already has chain blocks for large records; a second one has not.
    let Bench { pool, lane: _first, tree } = bench;
    let mut ballast = Vec::new();
    let mut lane = pool.lane().unwrap();
    for bytes in [16 << 10, 4096, 1024, 256, 64, 16] {
        loop {
            let mut tx = lane.begin();
            let Ok(block) = tx.alloc(bytes) else { break };
            tx.commit().unwrap();
            ballast.push((block, bytes));
        }
    }
    // The pin keeps freed blocks from being reused.
    let pin = pool.pin();
    let mut bench = Bench { pool, lane, tree };
    (0..4000).filter(|i| i % 16 != 0).for_each(|i| bench.remove(&key(i)));
    assert!(bench.nodes().fill() < 0.1, "nothing could be joined");
    let Bench { pool, lane, tree } = bench;
    let (writer, mut transactions) = (Writer::new(lane), 0);
    let store = |words: u64| {
        let mut tx = writer.begin();
        (0..words).for_each(|i| tx.store(ballast[0].0 + 8 * i, i).unwrap());
        tx.commit()
    };
    // Only the first record of a half may be that large.
    while store(100).is_err() {
        store(1).unwrap();
    }
    let begin = || {
        transactions += 1;
        writer.begin()
    };
    assert_eq!(tree.remove_range_in_groups::<&[u8]>(.., begin).unwrap(), 250);
    assert!((250 / 26..25).contains(&transactions), "{transactions} transactions");
    assert_eq!(tree.len().unwrap(), 0);
    drop(pin);
    let mut marks = pool.marks().unwrap();
    tree.check(&mut marks).unwrap();
    ballast.iter().for_each(|(block, bytes)| marks.reach(*block, *bytes).unwrap());
    marks.finish().unwrap();
}
