//! Comparisons and hashes of keys that change the map, and an order that contradicts itself.

use super::{Evil, LONG, Maps, MapsPrivateFields, arm, disarm, pool, prove};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use tembo_heap::collections::{PMap, PString};
use tembo_heap::{Heap, Obj, Persist, Plain, Result, Tx, brand};

brand!(Hooks);
type HookHeap = Arc<Heap<Hooks, Maps>>;

/// The action of a key's code in the middle: changes of the map that is being searched.
const MEDDLINGS: [fn(&Heap<Hooks, Maps>, u64); 4] = [
    // It grows.
    |heap, _| {
        let _ = heap.write(|tx, root| {
            for key in 100_000..100_200 {
                root.evil().insert(tx, &Evil { number: key }, PString::new())?;
                root.large().insert(tx, &key, PString::new())?;
                root.small().insert(tx, &key, key)?;
                root.ordered().insert(tx, &key, key)?;
            }
            Ok(())
        });
    },
    // The same key comes.
    |heap, key| {
        let _ = heap.write(|tx, root| {
            root.evil().insert(tx, &Evil { number: key }, PString::new())?.set(tx, LONG)?;
            root.large().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            root.small().insert(tx, &key, key)?;
            root.ordered().insert(tx, &key, key)?;
            Ok(())
        });
    },
    // It goes, with its neighbours.
    |heap, key| {
        let _ = heap.write(|tx, root| {
            for key in key.saturating_sub(20)..key + 20 {
                root.evil().remove(tx, &Evil { number: key })?;
                root.large().remove(tx, &key)?;
                root.small().remove(tx, &key)?;
                root.ordered().remove(tx, &key)?;
            }
            Ok(())
        });
    },
    // All go.
    |heap, _| {
        let _ = heap.write(|tx, root| {
            root.evil().clear(tx)?;
            root.large().clear(tx)?;
            root.small().clear(tx)?;
            root.ordered().clear(tx)
        });
    },
];

type Op = for<'t> fn(&mut Tx<'t, Hooks>, Obj<'t, Hooks, Maps>, u64) -> Result<()>;

const OPS: [(&str, Op); 14] = [
    ("evil insert", |tx, root, key| root.evil().insert(tx, &Evil { number: key }, PString::new()).map(drop)),
    ("evil remove", |tx, root, key| root.evil().remove(tx, &Evil { number: key }).map(drop)),
    ("evil get or insert", |tx, root, key| {
        root.evil().get_or_insert_with(tx, &Evil { number: key }, PString::new)?.set(tx, LONG)
    }),
    ("evil get", |tx, root, key| root.evil().contains(tx, &Evil { number: key }).map(drop)),
    ("evil range", |tx, root, key| {
        let keys = Evil { number: key }..Evil { number: key + 50 };
        root.evil().range(tx, keys)?.try_for_each(|entry| entry.map(drop))
    }),
    ("large insert", |tx, root, key| root.large().insert(tx, &key, PString::new()).map(drop)),
    ("large remove", |tx, root, key| root.large().remove(tx, &key).map(drop)),
    ("large get or insert", |tx, root, key| {
        root.large().get_or_insert_with(tx, &key, PString::new)?.set(tx, LONG)
    }),
    ("large get", |tx, root, key| root.large().contains(tx, &key).map(drop)),
    ("small insert", |tx, root, key| root.small().insert(tx, &key, key).map(drop)),
    ("small replace", |tx, root, key| root.small().replace(tx, &key, key).map(drop)),
    ("small take", |tx, root, key| root.small().take(tx, &key).map(drop)),
    ("ordered insert", |tx, root, key| root.ordered().replace(tx, &key, key).map(drop)),
    ("ordered remove", |tx, root, key| root.ordered().take(tx, &key).map(drop)),
];

/// A comparison or a hash that changes the map: places that were found before were written to after.
#[test]
fn keys_whose_own_code_changes_the_map_leave_it_sound() {
    let mut met = 0;
    for entries in [0_u64, 31, 127, 300] {
        for (name, op) in OPS {
            for meddling in MEDDLINGS {
                for after in [0, 1, 4, 20] {
                    for key in [entries / 2, entries + 5] {
                        met += usize::from(meddle((entries, name, after, key), op, meddling));
                    }
                }
            }
            assert!(!disarm());
        }
    }
    assert!(met > 300, "the keys were called {met} times only");
}

fn meddle(what: (u64, &str, usize, u64), op: Op, meddling: fn(&Heap<Hooks, Maps>, u64)) -> bool {
    let (entries, _, after, key) = what;
    let pool = pool();
    let heap: HookHeap = Arc::new(Heap::open_pool(pool.clone()).unwrap());
    heap.write(|tx, root| {
        for key in 0..entries {
            root.evil().insert(tx, &Evil { number: key }, PString::new())?.set(tx, LONG)?;
            root.large().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            root.small().insert(tx, &key, key)?;
            root.ordered().insert(tx, &key, key)?;
        }
        Ok(())
    })
    .unwrap();
    let meddler = heap.clone();
    arm(after, move || meddling(&meddler, key));
    // The error is not returned, so that all changes are committed.
    let outcome = heap.write(|tx, root| Ok(op(tx, root, key)));
    let met = !disarm();
    match outcome.unwrap() {
        Ok(()) => {}
        Err(e) => assert!(e.to_string().contains("in the middle of this operation"), "{what:?}: {e}"),
    }
    let what = format!("{what:?}");
    agree(&heap, &what);
    go_on(&heap, &what);
    agree(&heap, &what);
    prove(&heap, &pool);
    met
}

/// The maps go on.
fn go_on(heap: &Heap<Hooks, Maps>, what: &str) {
    for key in 500..560 {
        let more = heap.write(|tx, root| OPS.iter().try_for_each(|(_, op)| op(tx, root, key)));
        more.unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Iterators show the entries that are counted, found, and in order.
fn agree(heap: &Heap<Hooks, Maps>, what: &str) {
    heap.read(|tx, root| {
        let evil: Vec<Evil> = root.evil().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        assert!(evil.is_sorted_by(|a, b| a.number < b.number), "{what}: {evil:?}");
        assert_eq!(root.evil().len(tx)?, evil.len(), "{what}");
        for key in &evil {
            assert!(root.evil().contains(tx, key)?, "{what}: {key:?}");
        }
        let ordered: Vec<u64> = root.ordered().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        assert!(ordered.is_sorted_by(|a, b| a < b), "{what}: {ordered:?}");
        let large: Vec<u64> = root.large().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        assert_eq!(large.iter().collect::<BTreeSet<_>>().len(), large.len(), "{what}: twice");
        assert_eq!(root.large().len(tx)?, large.len(), "{what}");
        let small: Vec<u64> = root.small().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        assert_eq!(small.iter().collect::<BTreeSet<_>>().len(), small.len(), "{what}: twice");
        assert_eq!(root.small().len(tx)?, small.len(), "{what}");
        for key in &large {
            assert!(root.large().contains(tx, key)?, "{what}: {key}");
        }
        for key in &small {
            assert!(root.small().contains(tx, key)?, "{what}: {key}");
        }
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Keys in no order at all were divided and removed where they were not, and the pool was said to be damaged.
#[test]
fn an_order_that_contradicts_itself_is_called_that() {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Persist, Plain)]
    #[repr(C)]
    struct Wild {
        number: u64,
    }
    thread_local!(static RANDOM: Cell<u64> = const { Cell::new(1) });
    fn random() -> u64 {
        RANDOM.set(
            RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407),
        );
        RANDOM.get() >> 33
    }
    impl PartialOrd for Wild {
        fn partial_cmp(&self, other: &Wild) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Wild {
        fn cmp(&self, other: &Wild) -> Ordering {
            if random().is_multiple_of(5) { Ordering::Less } else { self.number.cmp(&other.number) }
        }
    }
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PMap<Wild, PString>,
    }
    brand!(Wilds);
    let pool = pool();
    let heap = Heap::<Wilds, Root>::open_pool(pool.clone()).unwrap();
    let mut told = 0;
    for round in 0..30_000_u64 {
        let key = Wild { number: random() % 3000 };
        let removes = round % 8000 > 5000;
        let outcome = heap.write(|tx, root| {
            Ok(match removes {
                true => root.map().remove(tx, &key).map(drop),
                false => root.map().insert(tx, &key, PString::new()).and_then(|text| text.set(tx, LONG)),
            })
        });
        if let Err(e) = outcome.unwrap() {
            assert!(e.to_string().contains("order of the keys"), "{e}");
            assert!(e.to_string().contains("Wild"), "{e}");
            told += 1;
        }
        if round % 1000 == 999 {
            heap.read(|tx, root| {
                let keys = root.map().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
                assert_eq!(keys.len(), root.map().len(tx)?);
                root.map().range(tx, key..)?.try_for_each(|entry| entry.map(drop))
            })
            .unwrap();
            prove(&heap, &pool);
        }
    }
    assert!(told > 20, "{told}");
}
