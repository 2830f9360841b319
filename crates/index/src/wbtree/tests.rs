//! What only the tree's own knowledge of its media can test: shape, damage, and the words of an operation.

use super::clear::{children_left, next_doomed_off};
use super::layout::{FANOUT, LEAF_SLOTS, LeafState, SeparatorWord, TreeWord, field};
use super::node::{Inner, Leaf, Media, View};
use crate::{Result, WbTree};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Lane, Pool};

struct Bench {
    pool: Pool,
    lane: Lane,
    tree: WbTree,
}

impl Bench {
    fn new() -> Bench {
        Bench::in_region(Region::simulated(&vec![0; 1 << 20], 1 << 28, None).unwrap())
    }

    fn in_region(region: Region) -> Bench {
        let geometry = Geometry { zone_chunks: 1 << 10, lane_count: 2, ..Geometry::default() };
        let pool = Pool::create_in(region, &geometry).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let tree = WbTree::create(&mut tx, "tree").unwrap();
        tx.commit().unwrap();
        Bench { pool, lane, tree }
    }

    fn put(&mut self, key: &[u8]) {
        let mut tx = self.lane.begin();
        self.tree.put(&mut tx, key, &[b"value of ", key]).unwrap();
        tx.commit().unwrap();
    }

    fn remove(&mut self, key: &[u8]) {
        let mut tx = self.lane.begin();
        assert!(self.tree.remove(&mut tx, key).unwrap());
        tx.commit().unwrap();
    }

    fn check(&self) -> Result<()> {
        let mut marks = self.pool.marks()?;
        self.tree.check(&mut marks)?;
        marks.finish()?;
        Ok(())
    }

    fn nodes(&self) -> Nodes<'_> {
        let mut nodes = Nodes::default();
        nodes.collect(&self.tree, self.tree.root(Media(self.tree.region())).unwrap());
        nodes
    }

    fn doomed_nodes(&self) -> Nodes<'_> {
        let mut nodes = Nodes::default();
        let load = |off| TreeWord(self.pool.region().load_u64(off).unwrap());
        let mut doomed = load(self.tree.doomed_off());
        while !doomed.is_empty() {
            nodes.collect(&self.tree, doomed);
            doomed = load(next_doomed_off(doomed));
        }
        nodes
    }

    fn sites(&self) -> Vec<Site> {
        let view = Media(self.pool.region());
        let mut sites = header_sites(&self.tree);
        for nodes in [self.nodes(), self.doomed_nodes()] {
            nodes.inner.iter().for_each(|node| sites.extend(inner_sites(view, node)));
            nodes.leaves.iter().for_each(|(leaf, state)| sites.extend(leaf_sites(view, leaf, *state)));
        }
        sites
    }
}

/// All nodes of a tree.
#[derive(Default)]
struct Nodes<'m> {
    inner: Vec<Inner<'m>>,
    leaves: Vec<(Leaf, LeafState)>,
}

impl<'m> Nodes<'m> {
    fn collect(&mut self, tree: &'m WbTree, root: TreeWord) {
        let view = Media(tree.region());
        if root.is_empty() {
            return;
        }
        if root.level() == 0 {
            let leaf = Leaf::open(view.0, root.node()).unwrap();
            self.leaves.push((leaf, leaf.state(view).unwrap()));
            return;
        }
        let node = Inner::open(view.0, root.node(), root.level()).unwrap();
        for i in 0..children_left(view, &node).unwrap() {
            let child = view.load(node.child_off(i)).unwrap();
            self.collect(tree, TreeWord::new(child, root.level() - 1));
        }
        self.inner.push(node);
    }

    fn fill(&self) -> f64 {
        let entries: usize = self.leaves.iter().map(|(_, state)| state.count()).sum();
        entries as f64 / (self.leaves.len() * LEAF_SLOTS) as f64
    }
}

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

/// A tree with everything that check looks at: three levels, long separators, common bytes; or, in the list of
/// doomed trees, partly freed.
fn varied(doomed: bool) -> Bench {
    let mut bench = Bench::new();
    let mut tx = bench.lane.begin();
    for i in 0..3000u32 {
        let mixed = i.wrapping_mul(2_654_435_761);
        let key = [&[b'p'; 20][..], &[(mixed >> 24) as u8 & 3; 40], &mixed.to_be_bytes()].concat();
        let key = if i % 5 == 0 { &key[25..] } else { &key };
        bench.tree.put(&mut tx, key, &[b"some value"]).unwrap();
        if i == 500 && doomed {
            bench.tree.clear(&mut tx).unwrap();
        }
    }
    if doomed {
        bench.tree.clear(&mut tx).unwrap();
        bench.tree.reclaim(&mut tx, 60).unwrap();
        bench.tree.put(&mut tx, b"alive", &[]).unwrap();
    }
    tx.commit().unwrap();
    bench.check().unwrap();
    bench
}

/// A word, and bits of it that cannot change without the tree being wrong.
struct Site {
    what: &'static str,
    off: u64,
    mask: u64,
}

fn header_sites(tree: &WbTree) -> Vec<Site> {
    let header = tree.header_off();
    let site = |what, off, mask| Site { what, off: header + off, mask };
    vec![
        site("format", field!(PmMap.format), 1 << 48),
        site("root offset", field!(PmMap.root), 1 << 12),
        site("root level", field!(PmMap.root), 1 << 48),
        site("length", field!(PmMap.len), 1),
        site("doomed", field!(PmMap.doomed), 1 << 12),
        site("reserved", field!(PmMap.reserved) + 24, 1 << 63),
    ]
}

fn leaf_sites(view: Media<'_>, leaf: &Leaf, state: LeafState) -> Vec<Site> {
    let site = |what, off, mask| Site { what, off, mask };
    let in_leaf = |what, off, mask| site(what, leaf.off + off, mask);
    let mut sites = vec![
        in_leaf("leaf: kind", field!(PmLeaf.kind), 2),
        in_leaf("leaf: level", field!(PmLeaf.kind), 1 << 8),
        in_leaf("leaf: skip", field!(PmLeaf.kind), 1 << 46),
        in_leaf("leaf: bytes after the fingerprints", field!(PmLeaf.fingerprints) + 24, 1 << 40),
        in_leaf("leaf: reserved", field!(PmLeaf.reserved), 1),
    ];
    for slot in (0..LEAF_SLOTS).filter(|slot| state.bitmap() >> slot & 1 == 1) {
        let record = view.load(leaf.record_off(slot)).unwrap();
        let (fingerprints, shift) = leaf.fingerprint_place(slot);
        sites.push(in_leaf("leaf: a live bit", field!(PmLeaf.state), 1 << slot));
        sites.push(site("leaf: a fingerprint", fingerprints, 1 << shift << (slot % 8)));
        sites.push(site("leaf: a prefix", leaf.prefix_off(slot), 1 << slot));
        sites.push(site("leaf: a record's offset", leaf.record_off(slot), 16));
        sites.push(site("record: the key's length", record, 1));
        sites.push(site("record: the value's length", record, 1 << 52));
        sites.push(site("record: the key", record + 8, 1 << (slot % 8)));
    }
    sites
}

fn inner_sites(view: Media<'_>, node: &Inner<'_>) -> Vec<Site> {
    let site = |what, off, mask| Site { what, off: node.off + off, mask };
    let mut sites = vec![
        site("inner node: reclaimed", field!(PmInner.reclaimed), 1 << 20),
        site("inner node: kind", field!(PmInner.kind), 1),
        site("inner node: level", field!(PmInner.kind), 1 << 8),
        site("inner node: count", field!(PmInner.kind), 1 << 16),
        site("inner node: skip", field!(PmInner.kind), 1 << 46),
        site("inner node: base", field!(PmInner.kind), 1 << 56),
        site("inner node: common", field!(PmInner.common), 1 << 10),
    ];
    for i in 0..node.count() - 1 {
        sites.push(site("inner node: a prefix", field!(PmInner.prefixes) + 8 * i as u64, 1 << i));
        sites.push(site(
            "inner node: a separator's place",
            field!(PmInner.separators) + 8 * i as u64,
            1 << 4,
        ));
        if let SeparatorWord::Block(block) = node.separator_place(i).unwrap() {
            sites.push(Site { what: "separator: length", off: block, mask: 1 << 8 });
            sites.push(Site { what: "separator: bytes", off: block + 8, mask: 1 << 3 });
        }
    }
    // Of a node that is being freed, the words of children that are gone mean nothing.
    for i in 0..children_left(view, node).unwrap() {
        sites.push(site("inner node: a child", field!(PmInner.children) + 8 * i as u64, 1 << 9));
    }
    sites
}

#[test]
fn check_finds_every_kind_of_damage() {
    for bench in [varied(false), varied(true)] {
        let region = bench.pool.region();
        let sites = bench.sites();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut tried = std::collections::BTreeMap::new();
        for site in &sites {
            // Some of each kind, chosen at random: there are too many of the kinds that every record has.
            let times = tried.entry(site.what).or_insert(0);
            if *times > 10 && random.random_bool(0.98) {
                continue;
            }
            *times += 1;
            let word = region.load_u64(site.off).unwrap();
            region.store_u64(site.off, word ^ site.mask).unwrap();
            assert!(bench.check().is_err(), "{} at {:#x}, mask {:#x}", site.what, site.off, site.mask);
            region.store_u64(site.off, word).unwrap();
        }
        assert!(tried.len() >= 20, "{tried:?}");
        bench.check().unwrap();
    }
}

/// Does everything that can be done to a tree, in a transaction that is dropped; only panics count.
fn exercise(bench: &mut Bench, random: &mut Xoshiro256PlusPlus) {
    let _ = bench.check();
    let tree = &bench.tree;
    for mut walk in [tree.iter(), tree.prefix(b"pppp"), tree.range(&[b'p'; 9][..]..)] {
        while let Ok(Some(_)) = if random.random_bool(0.5) { walk.advance() } else { walk.advance_back() } {}
    }
    let mut tx = bench.lane.begin();
    for _ in 0..40 {
        let mixed = random.random_range(0..3000u32).wrapping_mul(2_654_435_761);
        let key = [&[b'p'; 20][..], &[(mixed >> 24) as u8 & 3; 40], &mixed.to_be_bytes()].concat();
        let key = &key[if random.random_bool(0.5) { 0 } else { 25 }..];
        let _ = tree.get_pinned(key);
        let _ = tree.get_in(&tx, key);
        let _ = if random.random_bool(0.3) { tree.put(&mut tx, key, &[]) } else { tree.remove(&mut tx, key) };
    }
    let _ = tree.clear(&mut tx);
    let _ = tree.reclaim(&mut tx, 20);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
    for mut bench in [varied(false), varied(true)] {
        let sites = bench.sites();
        for _ in 0..600 {
            let site = &sites[random.random_range(0..sites.len())];
            let other = sites[random.random_range(0..sites.len())].off;
            let word = bench.pool.region().load_u64(site.off).unwrap();
            let wrong = match random.random_range(0..6) {
                0 => 0,
                1 => u64::MAX,
                2 => other & !7,
                3 => bench.pool.region().load_u64(other).unwrap(),
                4 => random.random(),
                _ => word ^ 1 << random.random_range(0..64),
            };
            bench.pool.region().store_u64(site.off, wrong).unwrap();
            exercise(&mut bench, &mut random);
            bench.pool.region().store_u64(site.off, word).unwrap();
        }
        bench.check().unwrap();
    }
}
