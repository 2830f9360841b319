//! `PHashMap` where an insertion ends half-way, and the program goes on as if that were nothing.

use super::{Place, Tested, objects, prove, turn};
use std::collections::BTreeSet;
use tembo_heap::collections::{MapKey, PHashMap};
use tembo_heap::{Brand, Heap, NamedBrand, PArr, Persist, ReadTx, Ref, Result, Tx};
use tembo_pmem::Durability;

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    reserve: PArr<u64>,
    filler: PHashMap<u64, [u8; 200]>,
    map: PHashMap<u64, u64>,
}

/// A heap that cannot grow.
fn open<B: NamedBrand>(bytes: u64) -> (Place, Heap<B, Root>) {
    let mut place = Place::new();
    (place.options.initial_bytes, place.options.max_bytes) = (bytes, Some(bytes));
    // A journal would leave another rest when the heap is full.
    place.options.region.durability = Durability::PageCache;
    let heap = place.open();
    (place, heap)
}

fn fill<B: NamedBrand>(heap: &Heap<B, Root>) {
    let fits = |key: u64| heap.write(|tx, root| root.filler().insert(tx, &key, [1; 200]).map(drop)).is_ok();
    assert!((0..1 << 20).any(|key| !fits(key)), "the heap is not full");
}

/// Fills what has become free since.
fn fill_more<B: NamedBrand>(heap: &Heap<B, Root>, from: u64) {
    let fits = |key: u64| heap.write(|tx, root| root.filler().insert(tx, &key, [2; 200]).map(drop)).is_ok();
    heap.collect().unwrap();
    assert!((from..).any(|key| !fits(key)), "the heap is not full");
}

/// Inserts keys one by one, and commits whatever comes of that, until this many have failed; returns those
/// for which it went well.
fn insert_some<B: NamedBrand>(
    heap: &Heap<B, Root>,
    keys: std::ops::Range<u64>,
    most: usize,
) -> BTreeSet<u64> {
    let mut there = BTreeSet::new();
    let mut failed = 0;
    for key in keys {
        let outcome = heap.write(|tx, root| Ok(root.map().insert(tx, &key, !key).is_ok()));
        match outcome {
            Ok(true) => drop(there.insert(key)),
            _ => failed += 1,
        }
        if failed == most {
            break;
        }
    }
    there
}

/// An insertion that found no room for the buckets that were to be divided next had noted before that they
/// were, so that those which were left undivided were no longer looked at when the map had grown.
#[test]
fn growth_that_finds_no_room_is_made_up_for_later() {
    let _turn = turn();
    let (_place, heap) = open::<Tested>(64 << 20);
    let mut there = insert_some(&heap, 0..2500, usize::MAX);
    heap.write(|tx, root| {
        let reserve = tx.alloc_array(1 << 19, |_| 0_u64)?;
        tx.link_array(root.reserve(), reserve)
    })
    .unwrap();
    fill(&heap);
    let more = insert_some(&heap, 5000..20_000, 300);
    assert!(more.len() < 14_000, "{}", more.len());
    there.extend(more);
    heap.write(|tx, root| tx.link_array(root.reserve(), None)).unwrap();
    heap.collect().unwrap();
    there.extend(insert_some(&heap, 20_000..24_000, usize::MAX));
    heap.read(|tx, root| {
        for key in 0..24_000 {
            assert_eq!(root.map().value(tx, &key)?, there.contains(&key).then_some(!key), "{key}");
        }
        assert_eq!(root.map().len(tx)?, there.len());
        assert_eq!(root.map().iter(tx)?.count(), there.len());
        Ok(())
    })
    .unwrap();
    prove(&heap);
}

#[test]
fn a_map_that_finds_no_room_for_its_first_buckets_is_empty_and_goes_on_when_there_is_some() {
    let _turn = turn();
    let (_place, heap) = open::<Tested>(8 << 20);
    fill(&heap);
    let mut there = BTreeSet::new();
    for key in 0..400 {
        there.extend(insert_some(&heap, key..key + 1, 1));
        let found = heap.read(|tx, root| {
            let all = (0..400)
                .filter_map(|key| root.map().value(tx, &key).transpose())
                .collect::<Result<Vec<_>>>()?;
            Ok((root.map().len(tx)?, all))
        });
        let (len, all) = found.unwrap();
        assert_eq!((len, all.len()), (there.len(), there.len()), "{key}");
        if key % 8 == 7 {
            // A little room.
            heap.write(|tx, root| root.filler().remove(tx, &(key * 37))).unwrap();
            heap.collect().unwrap();
        }
    }
    assert!((16..400).contains(&there.len()), "{}", there.len());
    prove(&heap);
}

/// Removals need no space, also those that make the map smaller, and the shrinking goes on when there is
/// some.
#[test]
fn a_map_is_emptied_in_a_full_heap() {
    let _turn = turn();
    let (_place, heap) = open::<Tested>(64 << 20);
    let there = insert_some(&heap, 0..60_000, usize::MAX);
    assert_eq!(there.len(), 60_000);
    fill(&heap);
    let change = |key: u64| heap.write(|tx, root| root.map().remove(tx, &key));
    for key in 0..50_000 {
        assert!(change(key).unwrap(), "{key}");
        // The space that removals give back is used up at once.
        if key % 500 == 0 {
            fill_more(&heap, (1 << 32) + (key << 20));
        }
    }
    heap.read(|tx, root| {
        assert_eq!(root.map().len(tx)?, 10_000);
        for key in 0..60_000 {
            assert_eq!(root.map().value(tx, &key)?, (key >= 50_000).then_some(!key), "{key}");
        }
        Ok(())
    })
    .unwrap();
    heap.write(|tx, root| root.filler().clear(tx)).unwrap();
    heap.collect().unwrap();
    (50_000..59_900).for_each(|key| assert!(change(key).unwrap()));
    assert_eq!(heap.read(|tx, root| Ok(root.map().iter(tx)?.count())).unwrap(), 100);
    prove(&heap);
}

/// A key that is so large that its entry is an object, and may fail when it is to be completed.
#[derive(Persist)]
#[repr(C)]
struct Failing {
    number: u64,
    rest: [u64; 3],
}

impl MapKey for Failing {
    /// The number, and whether it fails.
    type Query = (u64, bool);
    type Owned = u64;

    fn hash(query: &(u64, bool)) -> u64 {
        <u64 as MapKey>::hash(&query.0)
    }

    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        Ok(<u64 as MapKey>::hash(&tx.get(place.number())?))
    }

    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &(u64, bool)) -> Result<bool> {
        Ok(tx.get(place.number())? == query.0)
    }

    fn new(query: &(u64, bool)) -> Failing {
        Failing { number: query.0, rest: [0; 3] }
    }

    fn complete<'t, B: Brand>(tx: &mut Tx<'t, B>, _: Ref<'t, B, Self>, query: &(u64, bool)) -> Result<()> {
        if query.1 { Err(tx.cancel()) } else { Ok(()) }
    }

    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        tx.get(place.number())
    }
}

/// The entry of a key that could not be completed was linked already, in a slot of which nothing said that it
/// was there, and was lost when the bucket was divided.
#[test]
fn an_entry_whose_key_fails_leaves_nothing_behind() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<Failing, u64>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let before = objects(&heap);
    for key in 0..2000_u64 {
        heap.write(|tx, root| {
            assert!(root.map().insert(tx, &(1_000_000 + key, true), 1).is_err());
            root.map().insert(tx, &(key, false), key).map(drop)
        })
        .unwrap();
        if key % 500 == 499 {
            prove(&heap);
        }
    }
    heap.read(|tx, root| {
        assert_eq!(root.map().len(tx)?, 2000);
        assert!(!root.map().contains(tx, &(1_000_007, false))?);
        (0..2000).try_for_each(|key| {
            assert_eq!(root.map().value(tx, &(key, false))?, Some(key));
            Ok(())
        })
    })
    .unwrap();
    heap.write(|tx, root| root.map().clear(tx)).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), before);
}
