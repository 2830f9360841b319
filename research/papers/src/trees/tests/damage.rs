//! Seeded damage: one broken promise at a time.

use crate::mem::{Mem, RealMem};
use crate::trees::node::{Layout, OrderedLayout};
use crate::trees::slots::{SLOTS_OFF, SLOTS_VALID, SlotBitmap};
use crate::trees::{
    BitmapLog, BtreeLog, BtreeShadow, Config, FIRST_LEAF_OFF, Fixed, ROOT_OFF, Scheme, Text, Tree,
    UnsortedLog, WbTree, WbTreeBitmapLeaf, WbTreeSlotOnly,
};
use tembo_pmem::Region;

/// A tree with byte strings, and one under logging.
type Texts = Tree<RealMem, Text, WbTree>;
type Logged = Tree<RealMem, Fixed<u64>, BtreeLog>;

const LINES: u64 = 2;

fn memory() -> RealMem {
    RealMem::new(Region::simulated(&vec![0; 1 << 18], 1 << 18, None).unwrap())
}

fn config() -> Config {
    Config { node_lines: LINES, log_bytes: Some(16 << 10) }
}

/// A tree of three levels.
fn tree<S: Scheme>() -> Tree<RealMem, Fixed<u64>, S> {
    let tree = Tree::bulk_load(memory(), config(), 0.7, (0..60).map(|i| (10 * i, i))).unwrap();
    assert_eq!(tree.levels(), 2, "{}", S::NAME);
    tree.check().unwrap();
    tree
}

/// Requires that `damage` is noticed, and what is said about it.
fn noticed<S: Scheme>(expected: &str, damage: impl Fn(&mut Tree<RealMem, Fixed<u64>, S>)) {
    let mut tree = tree::<S>();
    damage(&mut tree);
    let said = tree.check().expect_err(expected);
    assert!(said.contains(expected), "{}: {said:?} is not about {expected:?}", S::NAME);
}

/// The first leaf, and its parent.
fn first<S: Scheme>(tree: &Tree<RealMem, Fixed<u64>, S>) -> (u64, u64) {
    (tree.mem.load_u64(FIRST_LEAF_OFF), tree.child(tree.root().0, 0))
}

/// Damage that every layout shows.
fn common_damage<S: Scheme>() {
    noticed::<S>("cannot be a node", |tree| {
        tree.mem.store_u64(tree.inner.link(tree.root().0), 64);
    });
    noticed::<S>("levels", |tree| tree.mem.store_u64(ROOT_OFF, tree.root().0 | 63));
    noticed::<S>("in place of", |tree| tree.mem.store_u64(FIRST_LEAF_OFF, 0));
    noticed::<S>("in place of", |tree| {
        let (leaf, _) = first(tree);
        let next = tree.mem.load_u64(tree.leaf.link(leaf));
        tree.mem.store_u64(tree.leaf.link(leaf), tree.mem.load_u64(tree.leaf.link(next)));
    });
    noticed::<S>("goes on", |tree| {
        let mut leaf = first(tree).0;
        while tree.mem.load_u64(tree.leaf.link(leaf)) != 0 {
            leaf = tree.mem.load_u64(tree.leaf.link(leaf));
        }
        tree.mem.store_u64(tree.leaf.link(leaf), first(tree).0);
    });
    noticed::<S>("bounds", |tree| {
        let (_, parent) = first(tree);
        let at = S::Inner::place_of(&tree.mem, parent, 0);
        tree.mem.store_u64(tree.inner.entry::<Fixed<u64>>(parent, at), 1);
    });
    noticed::<S>("before", |tree| {
        let (_, parent) = first(tree);
        let at = S::Inner::place_of(&tree.mem, parent, 0);
        tree.mem.store_u64(tree.inner.entry::<Fixed<u64>>(parent, at), 100_000);
    });
    noticed::<S>("before", |tree| {
        let (leaf, _) = first(tree);
        let entry = |at| tree.leaf.entry::<Fixed<u64>>(leaf, at);
        tree.mem.store_u64(entry(1), tree.mem.load_u64(entry(0)));
    });
    noticed::<S>("both free and used", |tree| tree.space.give_node(first(tree).0));
    noticed::<S>("are used and", |tree| _ = tree.space.take_node());
    noticed::<S>("is lost", |tree| _ = tree.space.take_block(32));
}

/// The first leaf's first word is changed.
fn header_damage<S: Scheme>(expected: &str, header: impl Fn(u64) -> u64) {
    noticed::<S>(expected, |tree| {
        let (leaf, _) = first(tree);
        tree.mem.store_u64(leaf, header(tree.mem.load_u64(leaf)));
    });
}

#[test]
fn damage_to_any_tree_is_noticed() {
    common_damage::<BtreeLog>();
    common_damage::<UnsortedLog>();
    common_damage::<BitmapLog>();
    common_damage::<BtreeShadow>();
    common_damage::<WbTree>();
    common_damage::<WbTreeBitmapLeaf>();
    common_damage::<WbTreeSlotOnly>();
}

#[test]
fn damage_to_headers_is_noticed() {
    header_damage::<BtreeLog>("claims 8 entries", |_| 8);
    header_damage::<UnsortedLog>("claims 8 entries", |_| 8);
    header_damage::<BitmapLog>("beyond", |bitmap| bitmap | 1 << 7);
    header_damage::<WbTreeBitmapLeaf>("beyond", |bitmap| bitmap | 1 << 63);
    header_damage::<WbTree>("beyond", |bitmap| bitmap | 2 << 6);
    header_damage::<WbTree>("a bitmap of", |bitmap| bitmap & !2);
    header_damage::<WbTreeSlotOnly>("claims 8", |slots| slots & !0xFF | 8);
    header_damage::<WbTreeSlotOnly>("no place, or twice", |slots| slots & !0xFF00 | slots >> 8 & 0xFF00);
    header_damage::<WbTreeSlotOnly>("no place, or twice", |slots| slots | 0xFF00);
    header_damage::<BtreeLog>("is empty", |_| 0);
    header_damage::<BitmapLog>("is empty", |_| 0);
    header_damage::<WbTreeSlotOnly>("is empty", |_| 0);
    noticed::<WbTree>("does not repeat", |tree| {
        let (leaf, _) = first(tree);
        tree.mem.store_u64(leaf + SLOTS_OFF, tree.mem.load_u64(leaf + SLOTS_OFF) ^ 1 << 63);
    });
    noticed::<WbTree>("claims 7", |tree| {
        let (leaf, _) = first(tree);
        tree.mem.store_u64(leaf + SLOTS_OFF, 7);
    });
}

#[test]
fn damage_to_inner_nodes_is_noticed() {
    noticed::<WbTree>("invalid slots", |tree| {
        let (_, parent) = first(tree);
        tree.mem.store_u64(parent, tree.mem.load_u64(parent) & !SLOTS_VALID);
    });
    noticed::<BtreeLog>("has one child", |tree| tree.mem.store_u64(tree.root().0, 0));
    noticed::<WbTreeSlotOnly>("has one child", |tree| tree.mem.store_u64(tree.root().0, 0));
}

#[test]
fn damage_to_key_blocks_is_noticed() {
    let tree = || {
        let texts = (0..30u8).map(|i| (vec![b'k', i], 7));
        Tree::<_, Text, WbTree>::bulk_load(memory(), config(), 0.7, texts).unwrap()
    };
    let said = |damage: &dyn Fn(&Texts, u64)| {
        let tree = tree();
        tree.check().unwrap();
        let leaf = tree.mem.load_u64(FIRST_LEAF_OFF);
        damage(&tree, tree.leaf.entry::<Text>(leaf, 0));
        tree.check().unwrap_err()
    };
    assert!(said(&|tree, entry| tree.mem.store_u64(entry, 3)).contains("has a key at 0x3"));
    assert!(said(&|tree, entry| tree.mem.store_u64(entry, u64::MAX - 31)).contains("has a key at"));
    assert!(said(&|tree, entry| tree.mem.store_u64(tree.mem.load_u64(entry), 9999)).contains("bytes"));
    let shared = said(&|tree, entry| {
        let separator = tree.inner.entry::<Text>(tree.child_path().1, 0);
        let leaf = tree.mem.load_u64(tree.leaf.link(tree.child_path().0));
        _ = entry;
        tree.mem.store_u64(separator, tree.mem.load_u64(tree.leaf.entry::<Text>(leaf, 0)));
    });
    assert!(shared.contains("overlaps") || shared.contains("is lost"), "{shared}");
}

impl Texts {
    /// The first leaf and its parent.
    fn child_path(&self) -> (u64, u64) {
        let (mut node, levels) = self.root();
        for _ in 1..levels {
            node = self.child(node, 0);
        }
        (self.child(node, 0), node)
    }
}

/// A crash between the two atomic writes leaves slots invalid: searches go by the bitmap, and the next change
/// repairs.
#[test]
fn invalid_slots_are_searched_by_the_bitmap_and_repaired_by_a_change() {
    let mut tree = tree::<WbTree>();
    let (leaf, _) = first(&tree);
    let count = SlotBitmap::count(&tree.mem, leaf) as u64;
    let garble = |tree: &Tree<RealMem, Fixed<u64>, WbTree>| {
        tree.mem.store_u64(leaf, tree.mem.load_u64(leaf) & !SLOTS_VALID);
        tree.mem.store_u64(leaf + SLOTS_OFF, 0xDEAD_BEEF_DEAD_BEEF);
    };
    garble(&tree);
    tree.check().unwrap();
    for i in 0..count {
        assert_eq!((tree.get(10 * i), tree.get(10 * i + 1)), (Some(i), None));
    }
    assert_eq!(tree.scan(0, 60, |_, _, _| true), 60);
    let before = tree.mem.counts();
    assert_eq!(tree.insert(5, 7), Ok(true));
    let repaired = tree.mem.counts() - before;
    let before = tree.mem.counts();
    assert_eq!(tree.insert(6, 7), Ok(true));
    let usual = tree.mem.counts() - before;
    assert_eq!((repaired.fences, usual.fences), (5, 3), "two more, for the slots and for their bit");
    garble(&tree);
    assert_eq!(tree.remove(5), Ok(Some(7)));
    assert!(SlotBitmap::places(&tree.mem, leaf).is_sorted);
    assert_eq!(tree.entries().len(), 61);
    tree.check().unwrap();
}

#[test]
fn opening_notices_what_it_needs_to_be_whole() {
    let reopened = |damage: &dyn Fn(&Logged)| {
        let tree = tree::<BtreeLog>();
        damage(&tree);
        Tree::<_, Fixed<u64>, BtreeLog>::open(tree.into_mem(), config()).map(|tree| tree.entries().len())
    };
    assert_eq!(reopened(&|_| ()), Ok(60));
    reopened(&|tree| tree.mem.store_u64(ROOT_OFF, 64)).unwrap_err();
    reopened(&|tree| tree.mem.store_u64(super::super::LOG_BYTES_OFF, 1 << 40)).unwrap_err();
    reopened(&|tree| tree.mem.store_u64(super::super::EPOCH_OFF, 1 << 40)).unwrap_err();
    let shared = reopened(&|tree| {
        let root = tree.root().0;
        tree.mem.store_u64(tree.inner.value::<Fixed<u64>>(root, 0), tree.child(root, 0));
    });
    assert!(shared.unwrap_err().to_string().contains("twice"));
}
