//! Compaction of heaps: objects with one owner move, also between other transactions, and nothing else does.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_heap::collections::{PBox, PBytes, PHashMap, PMap, PString, PVec};
use tembo_heap::{Heap, HeapCompaction, HeapStep, NamedBrand, PArr, PRc, PWeak, Persist, brand};
use tembo_pmem::{Durability, Region};
use tembo_pool::{Compaction, Geometry, Options, Pool};

/// With its head, half a slab's worth of 32 are few enough to be moved.
#[derive(Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
    text: PString,
    words: PArr<u64>,
}

impl Node {
    fn new(value: u64) -> Node {
        Node { value, next: PRc::null(), text: PString::new(), words: PArr::null() }
    }
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    nodes: PVec<PRc<Node>>,
    shared: PRc<Node>,
    weak: PWeak<Node>,
    list: PRc<Node>,
}

fn small_pool() -> Pool {
    let region = Region::simulated(&[0; 64 << 10], 8 << 20, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// Makes nodes, each with a text, of which every eighth stays.
fn thin<B: NamedBrand>(heap: &Heap<B, Root>, count: u64) {
    for first in (0..count).step_by(8) {
        let made = heap.write(|tx, root| {
            for value in first..first + 8 {
                let node = tx.alloc(Node::new(value))?;
                node.text().set(tx, &format!("the text of the node {value}"))?;
                let words = tx.alloc_array(5, |i| value + i as u64)?;
                tx.link_array(node.words(), words)?;
                root.nodes().push_link(tx, node)?;
            }
            Ok(())
        });
        made.unwrap();
    }
    let gone = |value: u64| !value.is_multiple_of(8);
    for value in (0..count).filter(|value| gone(*value)) {
        heap.write(|tx, root| tx.link(root.nodes().at(tx, value as usize)?, None)).unwrap();
    }
    heap.collect().unwrap();
}

fn chosen(pool: &Pool) -> Compaction {
    pool.recall_slabs();
    pool.compaction().unwrap().unwrap()
}

/// Every eighth node, with its text.
fn assert_thinned<B: NamedBrand>(heap: &Heap<B, Root>, is_there: impl Fn(u64) -> bool) {
    let count = heap.read(|tx, root| root.nodes().len(tx)).unwrap() as u64;
    for value in 0..count {
        let read = heap.read(|tx, root| {
            let Some(node) = tx.load(root.nodes().at(tx, value as usize)?)? else { return Ok(None) };
            let words = tx.array(node.words())?.expect("made with it");
            let words: Result<Vec<u64>, _> = (0..words.len()).map(|i| tx.get(words.at(i))).collect();
            Ok(Some((tx.get(node.value())?, node.text().get(tx)?, words?)))
        });
        let words = (0..5).map(|i| value + i).collect();
        let expected = is_there(value).then(|| (value, format!("the text of the node {value}"), words));
        assert_eq!(read.unwrap(), expected, "{value}");
    }
}

/// Runs a walk to its end; returns the bytes that it has moved.
fn walk(pool: &Pool, chosen: &Compaction, mut between: impl FnMut(usize)) -> u64 {
    let (mut walk, mut moved) = (HeapCompaction::new(pool), 0);
    for step in 0.. {
        match walk.step(chosen).unwrap() {
            HeapStep::Moved(bytes) => moved += bytes,
            _ => break,
        }
        between(step);
    }
    moved
}

/// The space of removed objects is free for others, and a second compaction finds nothing to do.
#[test]
fn a_thinned_heap_becomes_dense_and_stays_as_it_is() {
    brand!(Dense);
    let pool = small_pool();
    let heap = Heap::<Dense, Root>::open_pool(pool.clone()).unwrap();
    thin(&heap, 4000);
    let before = pool.marks().unwrap().usage().slab_bytes;
    let gained = heap.compact().unwrap();
    let after = pool.marks().unwrap().usage();
    println!(
        "{before} bytes of slabs, then {}, of which {} are in use",
        after.slab_bytes, after.allocated_bytes
    );
    assert!(gained > before / 2 && after.slab_bytes < before / 3, "{gained} {before} {after:?}");
    assert_thinned(&heap, |value: u64| value.is_multiple_of(8));
    heap.check().unwrap();
    assert_eq!(heap.compact().unwrap(), 0);
    assert!(chosen(&pool).is_empty());
}

/// Shared objects, targets of weak pointers, and held ones stay; what they own moves.
#[test]
fn shared_objects_stay_and_what_they_own_moves() {
    brand!(Shared);
    let pool = small_pool();
    let heap = Heap::<Shared, Root>::open_pool(pool.clone()).unwrap();
    thin(&heap, 1600);
    let chosen = chosen(&pool);
    let place_of = |number: usize| {
        let place = heap.read(|tx, root| {
            let node = tx.load(root.nodes().at(tx, number)?)?.expect("it is there");
            Ok(format!("{node:?}"))
        });
        u64::from_str_radix(place.unwrap().split("0x").nth(1).unwrap(), 16).unwrap()
    };
    // Those that are to be moved; the head precedes the value.
    let numbers: Vec<usize> =
        (0..1600).step_by(8).filter(|number| chosen.has(place_of(*number) - 16)).take(5).collect();
    let held = heap.write(|tx, root| {
        let node = |number: usize| Ok(tx.load(root.nodes().at(tx, numbers[number])?)?.expect("it is there"));
        let nodes: Vec<_> = (0..3).map(node).collect::<Result<_, tembo_heap::Error>>()?;
        tx.link(root.shared(), nodes[0])?;
        tx.link_weak(root.weak(), nodes[1])?;
        tx.hold(nodes[2])
    });
    let held = held.unwrap();
    let places = || numbers.iter().map(|number| place_of(*number)).collect::<Vec<_>>();
    let before = places();
    assert!(walk(&pool, &chosen, |_| {}) > 10_000);
    drop(chosen);
    let after = places();
    assert_eq!(before[..3], after[..3]);
    assert!(before[3] != after[3] && before[4] != after[4], "{before:?} {after:?}");
    // The root and two of the nodes. Nothing in the file says that a handle leads to the third.
    let fixed_bytes = heap.check().unwrap().fixed_bytes;
    assert!((2 * 72 + 1..400).contains(&fixed_bytes), "{fixed_bytes}");
    let value = heap.read(|tx, _| {
        let held = tx.enter(&held)?;
        tx.get(held.value())
    });
    assert_eq!(value.unwrap(), numbers[2] as u64);
    assert_thinned(&heap, |value: u64| value.is_multiple_of(8));
    heap.check().unwrap();
}

/// A walk has seen nodes that are gone when it comes to them: those that died at once, and the elements of an
/// array that died in part. What they owned is free.
#[test]
fn a_walk_passes_over_what_has_died_since() {
    brand!(Passed);
    let pool = small_pool();
    let heap = Heap::<Passed, Root>::open_pool(pool.clone()).unwrap();
    thin(&heap, 4000);
    let chosen = chosen(&pool);
    let mut dead = Vec::new();
    let moved = walk(&pool, &chosen, |step| {
        for value in [step * 8, 2000 + step * 8, 3992 - step * 8] {
            if value < 4000 {
                heap.write(|tx, root| tx.link(root.nodes().at(tx, value)?, None)).unwrap();
                dead.push(value as u64);
            }
        }
    });
    assert!(moved > 10_000 && dead.len() > 10, "{moved} {dead:?}");
    assert_thinned(&heap, |value: u64| value.is_multiple_of(8) && !dead.contains(&value));
    heap.check().unwrap();
    // All at once, with the arrays of the vector.
    drop(chosen);
    let mut steps = 0;
    thin(&heap, 4000);
    let chosen = self::chosen(&pool);
    walk(&pool, &chosen, |step| {
        steps += 1;
        if step == 2 {
            heap.write(|tx, root| root.nodes().clear(tx)).unwrap();
        }
    });
    assert!(steps > 2);
    heap.collect().unwrap();
    heap.check().unwrap();
}

/// A heap that nobody has open moves too, and a program that opens the heap meanwhile gets it.
#[test]
fn a_heap_that_is_closed_is_compacted() {
    brand!(Closed);
    let pool = small_pool();
    let heap = Heap::<Closed, Root>::open_pool(pool.clone()).unwrap();
    thin(&heap, 1600);
    drop(heap);
    let chosen = chosen(&pool);
    let moved = walk(&pool, &chosen, |step| {
        if step == 1 {
            let heap = Heap::<Closed, Root>::open_pool(pool.clone()).unwrap();
            heap.write(|tx, root| tx.link(root.nodes().at(tx, 0)?, None)).unwrap();
        }
    });
    drop(chosen);
    assert!(moved > 10_000, "{moved}");
    let opening = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while opening.load(Ordering::Relaxed) {
                if let Some(chosen) = pool.compaction().unwrap() {
                    walk(&pool, &chosen, |_| {});
                }
            }
        });
        for _ in 0..200 {
            drop(Heap::<Closed, Root>::open_pool(pool.clone()).unwrap());
        }
        opening.store(false, Ordering::Relaxed);
    });
    let heap = Heap::<Closed, Root>::open_pool(pool.clone()).unwrap();
    assert_thinned(&heap, |value: u64| value.is_multiple_of(8) && value > 0);
    heap.check().unwrap();
}

/// One account in a box: its elements conflict with each other, and with its moves.
#[derive(Default, Persist)]
#[repr(C)]
struct Account {
    money: PArr<u64>,
    owner: PBytes,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Bank {
    accounts: PVec<PBox<Account>>,
    sorted: PMap<u64, PBytes>,
    hashed: PHashMap<u64, PBytes>,
    shared: PVec<PRc<Node>>,
}

const ACCOUNTS: usize = 300;
const POCKETS: usize = 12;

/// Moves money between pockets of accounts, renews accounts, and changes maps in a range of its own.
struct Clerk<'h, B: NamedBrand> {
    heap: &'h Heap<B, Bank>,
    random: Xoshiro256PlusPlus,
    first: u64,
    model: BTreeMap<u64, Vec<u8>>,
}

impl<B: NamedBrand> Clerk<'_, B> {
    fn transfer(&mut self) {
        let mut place = || (self.random.random_range(0..ACCOUNTS), self.random.random_range(0..POCKETS));
        let ((from, from_pocket), (to, to_pocket)) = (place(), place());
        let heap = self.heap;
        let moved = heap.write(|tx, bank| {
            let from = bank.accounts().at(tx, from)?.open(tx)?.expect("an account");
            let to = bank.accounts().at(tx, to)?.open(tx)?.expect("an account");
            let (from, to) = (tx.follow_array(from.money())?, tx.follow_array(to.money())?);
            let taken = tx.get(from.at(from_pocket))?.min(3);
            let left = tx.get(from.at(from_pocket))? - taken;
            tx.set(from.at(from_pocket), left)?;
            let sum = tx.get(to.at(to_pocket))? + taken;
            tx.set(to.at(to_pocket), sum)
        });
        moved.unwrap();
    }

    /// Writes to a pocket without having read it.
    fn renew(&mut self) {
        let (at, len) = (self.random.random_range(0..ACCOUNTS), self.random.random_range(0..200));
        let renewed = self.heap.write(|tx, bank| {
            let place = bank.accounts().at(tx, at)?;
            let account = place.open(tx)?.expect("an account");
            account.owner().set(tx, &vec![at as u8; len])?;
            let old = tx.follow_array(account.money())?;
            let money: Vec<u64> = (0..POCKETS).map(|i| tx.get(old.at(i))).collect::<Result<_, _>>()?;
            let new = tx.alloc_array(POCKETS, |i| money[i])?;
            tx.link_array(account.money(), new)
        });
        renewed.unwrap();
    }

    fn change_maps(&mut self) {
        let (key, len) = (self.first + self.random.random_range(0..2000), self.random.random_range(0..300));
        if self.random.random_bool(0.5) {
            let value = vec![key as u8; len];
            let put = self.heap.write(|tx, bank| {
                bank.sorted().insert(tx, &key, PBytes::new())?.set(tx, &value)?;
                bank.hashed().insert(tx, &key, PBytes::new())?.set(tx, &value)
            });
            put.unwrap();
            self.model.insert(key, value);
        } else {
            let removed = self
                .heap
                .write(|tx, bank| Ok((bank.sorted().remove(tx, &key)?, bank.hashed().remove(tx, &key)?)));
            let was_there = self.model.remove(&key).is_some();
            assert_eq!(removed.unwrap(), (was_there, was_there));
        }
    }

    /// Adds a pointer to a node that had one, or takes all away.
    fn share(&mut self) {
        let at = self.random.random_range(0..64);
        let (other, value) = (64 + self.random.random_range(0..64), self.random.random());
        let shared = self.heap.write(|tx, bank| {
            let (at, other) = (bank.shared().at(tx, at)?, bank.shared().at(tx, other)?);
            match tx.load(at)? {
                Some(node) if value % 2 == 0 => tx.link(other, node),
                Some(_) => tx.link(at, None),
                None => {
                    let node = tx.alloc(Node::new(value))?;
                    node.text().set(tx, &format!("a node with the value {value}"))?;
                    tx.link(at, node)
                }
            }
        });
        shared.unwrap();
    }
}

fn total<B: NamedBrand>(heap: &Heap<B, Bank>) -> u64 {
    let sum = heap.read(|tx, bank| {
        let mut sum = 0;
        for at in 0..ACCOUNTS {
            let account = bank.accounts().at(tx, at)?.open(tx)?.expect("an account");
            let money = tx.follow_array(account.money())?;
            for pocket in 0..POCKETS {
                sum += tx.get(money.at(pocket))?;
            }
        }
        Ok(sum)
    });
    sum.unwrap()
}

fn open_bank<B: NamedBrand>(heap: &Heap<B, Bank>) {
    for _ in 0..ACCOUNTS {
        let made = heap.write(|tx, bank| {
            let account = bank.accounts().push(tx, PBox::empty())?.fill(tx, Account::default())?;
            let money = tx.alloc_array(POCKETS, |_| 100)?;
            tx.link_array(account.money(), money)
        });
        made.unwrap();
    }
    heap.write(|tx, bank| (0..128).try_for_each(|_| bank.shared().push(tx, PRc::null()).map(drop))).unwrap();
}

/// Threads change accounts, maps and shared nodes, and others read, while everything moves.
#[test]
fn moves_go_on_beside_readers_and_writers() {
    brand!(Busy);
    let changes: u64 = std::env::var("TEMBO_MOVES").map_or(6_000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).initial_bytes(1 << 20).max_bytes(256 << 20);
    let pool = Pool::open(dir.path().join("bank"), &options.durability(Durability::PageCache)).unwrap();
    let heap = &Heap::<Busy, Bank>::open_pool(pool.clone()).unwrap();
    open_bank(heap);
    let (left, moved, rounds) = (AtomicU64::new(2), AtomicU64::new(0), AtomicU64::new(0));
    let models: Vec<BTreeMap<u64, Vec<u8>>> = std::thread::scope(|scope| {
        let clerks: Vec<_> = (0..2u64)
            .map(|number| {
                let left = &left;
                scope.spawn(move || {
                    let random = Xoshiro256PlusPlus::seed_from_u64(number);
                    let mut clerk = Clerk { heap, random, first: number << 32, model: BTreeMap::new() };
                    for _ in 0..changes {
                        clerk.transfer();
                        clerk.renew();
                        clerk.change_maps();
                        clerk.share();
                    }
                    left.fetch_sub(1, Ordering::Relaxed);
                    clerk.model
                })
            })
            .collect();
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                assert_eq!(total(heap), (ACCOUNTS * POCKETS * 100) as u64);
            }
        });
        while left.load(Ordering::Relaxed) > 0 {
            // Small lanes hold slabs, too: all that are sparse are to be moved.
            if let Some(chosen) = pool.compaction().unwrap() {
                moved.fetch_add(walk(&pool, &chosen, |_| {}), Ordering::Relaxed);
                rounds.fetch_add(1, Ordering::Relaxed);
                pool.recall_slabs();
                chosen.complete().unwrap();
                pool.trim().unwrap();
            }
        }
        clerks.into_iter().map(|clerk| clerk.join().unwrap()).collect()
    });
    println!("{moved:?} bytes were moved in {rounds:?} walks");
    assert!(moved.into_inner() > 100_000);
    assert_eq!(total(heap), (ACCOUNTS * POCKETS * 100) as u64);
    for (key, value) in models.into_iter().flatten() {
        let found = heap.read(|tx, bank| {
            let sorted = bank.sorted().get(tx, &key)?.map(|found| found.get(tx)).transpose()?;
            let hashed = bank.hashed().get(tx, &key)?.map(|found| found.get(tx)).transpose()?;
            Ok((sorted, hashed))
        });
        assert_eq!(found.unwrap(), (Some(value.clone()), Some(value)), "{key}");
    }
    heap.collect().unwrap();
    heap.check().unwrap();
}
