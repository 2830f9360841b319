//! Every part of a heap once, in few steps and without a file: what Miri can run (docs/testing.md).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tembo_heap::collections::{PHashMap, PMap, PString, PVec};
use tembo_heap::{Brand, Error, Handle, Heap, NamedBrand, PArr, PRc, PWeak, Persist, Plain, brand};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

/// Bytes between its fields are nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Persist, Plain)]
#[repr(C)]
struct Gap {
    small: u8,
    large: u64,
}

impl Gap {
    fn new(number: u64) -> Gap {
        Gap { small: number as u8 % 7, large: number }
    }
}

/// Bytes behind its fields are nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Persist, Plain)]
#[repr(C)]
struct Tail {
    large: u64,
    small: u16,
}

impl Tail {
    fn new(number: u64) -> Tail {
        Tail { large: 2 * number, small: number as u16 / 3 }
    }
}

/// Half a word and a byte.
#[derive(Debug, Clone, Copy, PartialEq, Persist, Plain)]
#[repr(C)]
struct Short {
    number: u32,
    flag: bool,
}

/// Has a line for itself, and its head elsewhere.
#[derive(Persist)]
#[repr(C)]
struct Node {
    short: Short,
    next: PRc<Node>,
    back: PWeak<Node>,
    kind: Kind,
    again: [u64; 3],
}

const _: () = assert!(size_of::<Node>() == 64);

#[derive(Default, Persist)]
#[repr(u8)]
enum Kind {
    #[default]
    Empty,
    Small(u16),
    Link {
        flag: bool,
        to: PWeak<Node>,
    },
}

/// Little enough that looking at all of it takes Miri little time.
const MAX_BYTES: u64 = if cfg!(miri) { 256 << 10 } else { 2 << 20 };

fn pool() -> Pool {
    let region = Region::simulated(&[0; 64 << 10], MAX_BYTES, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// A heap opened from the image of a crash at this moment that loses nothing.
fn again(pool: Pool) -> Pool {
    let words = pool.region().words(0, pool.region().len() / 8).unwrap();
    let image: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    drop(pool);
    Pool::open_in(Region::simulated(bytemuck::cast_slice(&image), MAX_BYTES, None).unwrap()).unwrap()
}

/// Every pointer is valid, every count exact, and nothing is leaked.
fn prove<B: Brand, R: Persist>(heap: &Heap<B, R>) {
    heap.collect().unwrap();
    let summary = heap.check().unwrap();
    assert_eq!((summary.dying, summary.orphans), (0, 0));
}

/// Closes the heap, and opens it again in what would be left after a crash.
fn reopen<B: NamedBrand, R: Persist + Default>(heap: Heap<B, R>, pool: Pool) -> Heap<B, R> {
    prove(&heap);
    drop(heap);
    Heap::open_pool(again(pool)).unwrap()
}

/// The bytes that are nobody's were hashed and compared with the others, and were what memory held there:
/// programs that were not optimised did not find such keys.
#[test]
fn keys_with_gaps_are_found() {
    brand!(Keys);
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        list: PVec<Gap>,
        hashed: PHashMap<Gap, Tail>,
    }
    let heap = Heap::<Keys, Root>::open_pool(pool()).unwrap();
    const COUNT: u64 = if cfg!(miri) { 20 } else { 200 };
    for number in 0..COUNT {
        heap.write(|tx, root| {
            assert_eq!(root.hashed().replace(tx, &Gap::new(number), Tail::new(number))?, None);
            root.list().push(tx, Gap::new(number)).map(drop)
        })
        .unwrap();
    }
    heap.read(|tx, root| {
        let keys: Vec<Gap> = (0..COUNT).map(Gap::new).collect();
        assert_eq!(root.list().to_vec(tx)?, keys);
        for key in &keys {
            assert_eq!(root.hashed().value(tx, key)?, Some(Tail::new(key.large)), "{key:?}");
        }
        Ok(())
    })
    .unwrap();
    for number in (0..COUNT).step_by(2) {
        let taken = heap.write(|tx, root| {
            root.list().swap_remove(tx, 0)?;
            root.hashed().take(tx, &Gap::new(number))
        });
        assert_eq!(taken.unwrap(), Some(Tail::new(number)));
    }
    prove(&heap);
}

#[test]
fn ordered_keys_with_gaps_are_found() {
    brand!(Ordered);
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        ordered: PMap<Gap, Tail>,
    }
    let heap = Heap::<Ordered, Root>::open_pool(pool()).unwrap();
    // More than a node has room for.
    let mut keys: Vec<Gap> = (0..if cfg!(miri) { 40 } else { 400 }).map(Gap::new).collect();
    for part in keys.chunks(8) {
        heap.write(|tx, root| {
            part.iter().try_for_each(|key| root.ordered().insert(tx, key, Tail::new(key.large)).map(drop))
        })
        .unwrap();
    }
    keys.sort_unstable();
    heap.read(|tx, root| {
        for (entry, key) in root.ordered().iter(tx)?.zip(&keys) {
            let (found, place) = entry?;
            assert_eq!((found, tx.get(place)?), (*key, Tail::new(key.large)));
        }
        Ok(())
    })
    .unwrap();
    for part in keys.chunks(8) {
        heap.write(|tx, root| {
            part.iter().try_for_each(|key| {
                assert_eq!(root.ordered().take(tx, key)?, Some(Tail::new(key.large)));
                Ok(())
            })
        })
        .unwrap();
    }
    prove(&heap);
}

brand!(Objects);

#[derive(Default, Persist)]
#[repr(C)]
struct Linked {
    first: PRc<Node>,
    numbers: PArr<u16>,
    shape: Kind,
}

/// Pushes nodes onto a list, the last first, and cancels as many transactions in between.
fn push_six_nodes(heap: &Heap<Objects, Linked>) {
    for number in 0..6 {
        heap.write(|tx, root| {
            let short = Short { number, flag: number % 2 == 0 };
            let kind = if number == 3 { Kind::Small(9) } else { Kind::Empty };
            let again = [u64::from(number); 3];
            let node = tx.alloc(Node { short, next: PRc::null(), back: PWeak::null(), kind, again })?;
            let first = tx.load(root.first())?;
            tx.link(node.next(), first)?;
            if let Some(first) = first {
                tx.link_weak(first.back(), node)?;
            }
            tx.link(root.first(), node)?;
            let numbers = tx.alloc_array(5, |i| i as u16 * number as u16)?;
            tx.link_array(root.numbers(), numbers)
        })
        .unwrap();
        let failed = heap.write::<()>(|tx, root| {
            let first = tx.load(root.first())?.expect("linked above");
            tx.set(first.short(), Short { number: 77, flag: true })?;
            tx.link(root.first(), None)?;
            tx.put(root.shape(), Kind::Small(5))?;
            Err(tx.cancel())
        });
        assert!(failed.is_err());
    }
}

/// Unlinks the list, of which all but the first node lives on with a handle.
fn unlink_and_hold_the_second(heap: &Heap<Objects, Linked>) -> Handle<Objects, Node> {
    heap.write(|tx, root| {
        let first = tx.load(root.first())?.expect("there are six");
        let second = tx.load(first.next())?.expect("there are six");
        tx.put(first.kind(), Kind::Link { flag: true, to: PWeak::null() })?;
        let KindRef::Link { to, flag } = first.kind().variant(tx)? else { panic!("put above") };
        assert!(tx.get(flag)?);
        tx.link_weak(to, second)?;
        assert_eq!(tx.upgrade(second.back())?, Some(first));
        let second = tx.hold(second)?;
        tx.link(root.first(), None)?;
        Ok(second)
    })
    .unwrap()
}

#[test]
fn objects_pointers_and_arrays_are_as_they_were_left() {
    let pool = pool();
    let heap = Heap::<Objects, Linked>::open_pool(pool.clone()).unwrap();
    push_six_nodes(&heap);
    let heap = reopen(heap, pool);
    let held = unlink_and_hold_the_second(&heap);
    heap.collect().unwrap();
    heap.read(|tx, root| {
        let mut numbers = Vec::new();
        let mut next = Some(tx.enter(&held)?);
        assert_eq!(tx.upgrade(next.expect("held").back())?, None, "it died");
        while let Some(node) = next {
            let short = tx.get(node.short())?;
            assert_eq!(tx.get(node.again())?, [u64::from(short.number); 3]);
            numbers.push(short);
            next = tx.load(node.next())?;
        }
        assert_eq!(numbers, [4, 3, 2, 1, 0].map(|number| Short { number, flag: number % 2 == 0 }));
        let numbers = tx.array(root.numbers())?.expect("linked above");
        let numbers: Result<Vec<u16>, Error> = (0..numbers.len()).map(|i| tx.get(numbers.at(i))).collect();
        assert_eq!(numbers?, [0, 5, 10, 15, 20]);
        Ok(())
    })
    .unwrap();
    drop(held);
    prove(&heap);
}

#[test]
fn texts_of_all_lengths_are_kept() {
    brand!(Texts);
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        texts: PHashMap<PString, PString>,
    }
    let heap = Heap::<Texts, Root>::open_pool(pool()).unwrap();
    let mut model = BTreeMap::new();
    const COUNT: usize = if cfg!(miri) { 12 } else { 60 };
    for length in (0..COUNT).chain([9, 3]) {
        let (key, text) = ("k".repeat(length % 23), "t".repeat(3 * length));
        heap.write(|tx, root| {
            let place = root.texts().get_or_insert_with(tx, &key, PString::new)?;
            place.set(tx, &text)
        })
        .unwrap();
        model.insert(key, text);
    }
    heap.read(|tx, root| {
        assert_eq!(root.texts().len(tx)?, model.len());
        for (key, text) in &model {
            let place = root.texts().get(tx, key)?.expect("it was put there");
            assert!(place.is(tx, text)? && place.get(tx)? == *text);
        }
        Ok(())
    })
    .unwrap();
    heap.write(|tx, root| root.texts().clear(tx)).unwrap();
    prove(&heap);
}

/// Two threads add, one looks: what is added to the maps is added to the sum, always.
#[test]
fn threads_see_whole_transactions() {
    brand!(Threads);
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        shorts: PHashMap<u32, u8>,
        sum: u64,
    }
    const ROUNDS: u32 = if cfg!(miri) { 12 } else { 400 };
    let heap = Heap::<Threads, Root>::open_pool(pool()).unwrap();
    let write = |me: u32| {
        for round in 0..ROUNDS {
            heap.write(|tx, root| {
                let key = round % 5 * 2 + me;
                let old = root.shorts().value(tx, &key)?.unwrap_or(0);
                root.shorts().replace(tx, &key, old.wrapping_add(1))?;
                let sum = tx.get(root.sum())?;
                tx.set(root.sum(), if old == u8::MAX { sum - u64::from(old) } else { sum + 1 })
            })
            .unwrap();
        }
    };
    let look = || {
        for _ in 0..ROUNDS {
            let (sum, parts) = heap
                .read(|tx, root| {
                    let parts = (0..10).map(|key| Ok(root.shorts().value(tx, &key)?.map_or(0, u64::from)));
                    Ok((tx.get(root.sum())?, parts.sum::<Result<u64, Error>>()?))
                })
                .unwrap();
            assert_eq!(sum, parts);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        scope.spawn(look);
    });
    prove(&heap);
}
