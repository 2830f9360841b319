//! Damaged media: check finds it, and nothing that meets it panics.

use super::Bench;
use crate::WbTree;
use crate::wbtree::clear::children_left;
use crate::wbtree::layout::{LEAF_SLOTS, LeafState, SeparatorWord, field};
use crate::wbtree::node::{Inner, Leaf, Media, View};
use crate::wbtree::sums::Counting;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_pmem::Region;
use tembo_pool::Pool;

/// A tree with everything that `check` reads: three levels, long separators, common bytes. With `doomed` it
/// is in the list of doomed trees and partly freed.
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

impl Bench {
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

/// A word, and those of its bits whose change makes the tree wrong.
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
        site("length", field!(PmMap.lengths), 1),
        site("another part of the length", field!(PmMap.lengths) + 7 * 64, 1 << 40),
        site("beside a length", field!(PmMap.lengths) + 15 * 64 + field!(PmLength.reserved), 1 << 9),
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
        in_leaf("leaf: tally", field!(PmLeaf.tally), 1),
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
        site("inner node: tally", field!(PmInner.tally), 1 << 20),
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
    // In a node that is being freed, the words of freed children are meaningless.
    for i in 0..children_left(view, Counting::Nothing, node).unwrap() {
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
            // Tries a random sample of each kind: there are too many sites of the kinds that every record
            // has.
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

/// Does everything that can be done to a tree, in a transaction that is dropped or not; only panics count.
fn exercise(bench: &mut Bench, random: &mut Xoshiro256PlusPlus, commit: bool) {
    let _ = bench.check();
    let tree = &bench.tree;
    for mut walk in [tree.iter(), tree.prefix(b"pppp"), tree.range(&[b'p'; 9][..]..)] {
        while let Ok(Some(_)) = if random.random_bool(0.5) { walk.advance() } else { walk.advance_back() } {}
    }
    let mut cursor = tree.cursor();
    for _ in 0..200 {
        let key = [b'p'; 70];
        let _ = match random.random_range(0..40) {
            0 => cursor.seek(&key[..random.random_range(0..70)]),
            1 => cursor.seek_last(),
            2..21 => cursor.next(),
            _ => cursor.prev(),
        };
        let _ = (cursor.key().map(<[u8]>::len), cursor.value().map(<[u8]>::len));
    }
    let mut tx = bench.lane.begin();
    for _ in 0..40 {
        let mixed = random.random_range(0..3000u32).wrapping_mul(2_654_435_761);
        let key = [&[b'p'; 20][..], &[(mixed >> 24) as u8 & 3; 40], &mixed.to_be_bytes()].concat();
        let key = &key[if random.random_bool(0.5) { 0 } else { 25 }..];
        let _ = tree.get_pinned(key);
        let _ = tree.get_in(&tx, key);
        tree.prefetch(&tx, [key]);
        let _ = if random.random_bool(0.3) { tree.put(&mut tx, key, &[]) } else { tree.remove(&mut tx, key) };
        let _ = tree.modify(&mut tx, key, |old| old.is_none().then_some(b"new"));
    }
    let _ = (tree.pop_first(&mut tx), tree.pop_last(&mut tx));
    let _ = tree.remove_range(&mut tx, &[b'p'; 21][..]..);
    let _ = tree.clear(&mut tx);
    let _ = tree.reclaim(&mut tx, 1);
    if !commit {
        let _ = tree.reclaim(&mut tx, 20);
        return;
    }
    let _ = tx.commit();
    for _ in 0..20 {
        let mut tx = bench.lane.begin();
        let _ = tree.reclaim(&mut tx, 1);
        let _ = tx.commit();
    }
}

/// A value that may be found where another one should be.
fn wrong_word(region: &Region, sites: &[Site], word: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
    let other = sites[random.random_range(0..sites.len())].off;
    match random.random_range(0..6) {
        0 => 0,
        1 => u64::MAX,
        2 => other & !7,
        3 => region.load_u64(other).unwrap(),
        4 => random.random(),
        _ => word ^ 1 << random.random_range(0..64),
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(17);
    for mut bench in [varied(false), varied(true)] {
        let sites = bench.sites();
        for _ in 0..600 {
            let site = &sites[random.random_range(0..sites.len())];
            let word = bench.pool.region().load_u64(site.off).unwrap();
            let wrong = wrong_word(bench.pool.region(), &sites, word, &mut random);
            bench.pool.region().store_u64(site.off, wrong).unwrap();
            exercise(&mut bench, &mut random, false);
            bench.pool.region().store_u64(site.off, word).unwrap();
        }
        bench.check().unwrap();
    }
}

#[test]
fn going_on_with_a_damaged_tree_never_panics() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(23);
    for doomed in [false, true] {
        let Bench { pool, lane, tree } = varied(doomed);
        let sites = Bench { pool: pool.clone(), lane, tree }.sites();
        let words = (0..pool.region().len()).step_by(8).map(|off| pool.region().load_u64(off).unwrap());
        let image: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        for _ in 0..150 {
            let region = Region::simulated(&image, 1 << 28, None).unwrap();
            let site = &sites[random.random_range(0..sites.len())];
            let word = region.load_u64(site.off).unwrap();
            region.store_u64(site.off, wrong_word(&region, &sites, word, &mut random)).unwrap();
            let Ok(pool) = Pool::open_in(region) else { continue };
            let Ok(Some(tree)) = WbTree::open(&pool, "tree") else { continue };
            let mut bench = Bench { lane: pool.lane().unwrap(), pool, tree };
            (0..3).for_each(|_| exercise(&mut bench, &mut random, true));
        }
    }
}
