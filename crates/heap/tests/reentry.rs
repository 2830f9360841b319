//! Programs whose own code runs in the middle of an operation: closures, comparisons and hashes of keys,
//! iterators, and tokens of outer transactions that inner ones get hold of. Whatever they do there, the heap
//! stays sound, and nobody is told that the pool is damaged.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use tembo_heap::collections::{MapKey, OrdKey, PBox, PHashMap, PMap, PString, PVec};
use tembo_heap::{
    Brand, Error, ErrorKind, GenLock, Heap, Obj, PArr, PRc, PWeak, Persist, Plain, ReadTx, Ref, Result, Tx,
    brand,
};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

fn pool() -> Pool {
    let region = Region::simulated(&[0; 256 << 10], 4 << 20, None).unwrap();
    Pool::create_in(region, &Geometry::small()).unwrap()
}

/// Every pointer is valid, every count exact, and nothing is leaked.
fn prove<B: Brand, R: Persist>(heap: &Heap<B, R>, pool: &Pool) {
    heap.collect().unwrap();
    let mut marks = pool.marks().unwrap();
    let summary = tembo_heap::check(pool, &mut marks).unwrap();
    assert_eq!((summary.dying, summary.orphans), (0, 0));
    marks.finish().unwrap();
}

thread_local! {
    /// The behaviour of keys when they are compared or hashed, and the number of calls before it starts.
    static HOOK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

fn arm(after: usize, hook: impl FnOnce() + 'static) {
    LEFT.set(after);
    HOOK.set(Some(Box::new(hook)));
}

/// Whether the hook was there still.
fn disarm() -> bool {
    HOOK.take().is_some()
}

fn called_back() {
    if LEFT.get() > 0 {
        LEFT.set(LEFT.get() - 1);
    } else if let Some(hook) = HOOK.take() {
        hook();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist, Plain)]
#[repr(C)]
struct Evil {
    number: u64,
}

impl PartialOrd for Evil {
    fn partial_cmp(&self, other: &Evil) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Evil {
    fn cmp(&self, other: &Evil) -> Ordering {
        called_back();
        self.number.cmp(&other.number)
    }
}

/// A key with methods of its own, so large that entries are objects; `Small` lies in the bucket.
macro_rules! evil_key {
    ($name:ident, $words:expr) => {
        #[derive(Persist)]
        #[repr(C)]
        struct $name {
            number: u64,
            rest: [u64; $words],
        }

        impl MapKey for $name {
            type Query = u64;
            type Owned = u64;

            fn hash(query: &u64) -> u64 {
                called_back();
                <u64 as MapKey>::hash(query)
            }

            fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
                let number = tx.get(place.number())?;
                called_back();
                Ok(<u64 as MapKey>::hash(&number))
            }

            fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &u64) -> Result<bool> {
                called_back();
                Ok(tx.get(place.number())? == *query)
            }

            fn new(query: &u64) -> $name {
                called_back();
                $name { number: *query, rest: [*query; $words] }
            }

            fn complete<'t, B: Brand>(_: &mut Tx<'t, B>, _: Ref<'t, B, Self>, _: &u64) -> Result<()> {
                called_back();
                Ok(())
            }

            fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
                tx.get(place.number())
            }
        }

        impl OrdKey for $name {
            fn compare<'t, B: Brand>(
                tx: &ReadTx<'t, B>,
                place: Ref<'t, B, Self>,
                query: &u64,
            ) -> Result<Ordering> {
                let number = tx.get(place.number())?;
                called_back();
                Ok(number.cmp(query))
            }
        }
    };
}
evil_key!(Large, 6);
evil_key!(Small, 0);

#[derive(Default, Persist)]
#[repr(C)]
struct Maps {
    words: PHashMap<u64, u64>,
    texts: PHashMap<u64, PString>,
    sorted: PMap<u64, PString>,
    evil: PMap<Evil, PString>,
    large: PHashMap<Large, PString>,
    small: PHashMap<Small, u64>,
    ordered: PMap<Large, u64>,
}

const LONG: &str = "a text that is too long to lie in its field";

brand!(Closures);

fn fill(heap: &Heap<Closures, Maps>, from: u64, to: u64) {
    heap.write(|tx, root| {
        for key in from..to {
            root.words().insert(tx, &key, key)?;
            root.texts().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            root.sorted().insert(tx, &key, PString::new())?.set(tx, LONG)?;
        }
        Ok(())
    })
    .unwrap();
}

fn clear(heap: &Heap<Closures, Maps>) {
    heap.write(|tx, root| {
        root.words().clear(tx)?;
        root.texts().clear(tx)?;
        root.sorted().clear(tx)
    })
    .unwrap();
}

/// A closure that changes the maps when it is asked for a value.
#[derive(Debug, Clone, Copy)]
struct Closure {
    /// The keys that are there before: as many, from 0.
    before: u64,
    /// How many it inserts, from 10,000.
    more: u64,
    /// Whether the key that is looked for is among these.
    same: bool,
    /// Whether it removes all first.
    clears: bool,
}

impl Closure {
    fn key(self) -> u64 {
        if self.same { 10_000 } else { 1_000_000 }
    }

    fn call(self, heap: &Heap<Closures, Maps>) {
        if self.clears {
            clear(heap);
        }
        fill(heap, 10_000, 10_000 + self.more);
    }

    /// Gets the key's value of each map, or else lets the closure make one.
    fn get_or_insert(self, heap: &Heap<Closures, Maps>) {
        heap.write(|tx, root| {
            let place = root.words().get_or_insert_with(tx, &self.key(), || {
                self.call(heap);
                7
            })?;
            assert_eq!(tx.get(place)?, 7);
            Ok(())
        })
        .unwrap();
        let text = || {
            self.call(heap);
            PString::new()
        };
        heap.write(|tx, root| {
            root.texts().get_or_insert_with(tx, &self.key(), text)?.set(tx, "made")?;
            Ok(())
        })
        .unwrap();
        heap.write(|tx, root| root.sorted().get_or_insert_with(tx, &self.key(), text)?.set(tx, "made"))
            .unwrap();
    }

    /// The keys of the map whose closure ran last.
    fn expected(self) -> BTreeSet<u64> {
        let mut expected: BTreeSet<u64> = (10_000..10_000 + self.more).collect();
        if !self.clears {
            expected.extend(0..self.before);
        }
        expected.insert(self.key());
        expected
    }

    /// Each key is there once, and those that have to be there are.
    fn compare(self, heap: &Heap<Closures, Maps>) {
        let expected = self.expected();
        heap.read(|tx, root| {
            let found: Vec<u64> = root.sorted().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(found, expected.iter().copied().collect::<Vec<_>>(), "{self:?}");
            let texts: Vec<u64> = root.texts().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(texts.len(), texts.iter().collect::<BTreeSet<_>>().len(), "{self:?}");
            assert_eq!(root.texts().len(tx)?, texts.len(), "{self:?}");
            let words: Vec<u64> = root.words().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(words.len(), words.iter().collect::<BTreeSet<_>>().len(), "{self:?}");
            assert_eq!(root.words().len(tx)?, words.len(), "{self:?}");
            for key in &expected {
                assert!(root.sorted().contains(tx, key)?, "{self:?}: {key}");
            }
            if !self.clears {
                for key in &expected {
                    assert!(root.texts().contains(tx, key)?, "{self:?}: {key}");
                    assert!(root.words().contains(tx, key)?, "{self:?}: {key}");
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

/// A closure that fills the map was overtaken by what had been read before it ran: a table that was not the
/// map's any more was written to, entries were lost where there had been none, and the same key was there
/// twice.
#[test]
fn closures_that_make_values_may_change_the_map() {
    for before in [0_u64, 3, 5, 40, 90, 400] {
        for (more, same, clears) in
            [(1, true, false), (0, false, true), (5, false, false), (600, true, false), (600, false, true)]
        {
            let closure = Closure { before, more, same, clears };
            let pool = pool();
            let heap = Heap::<Closures, Maps>::open_pool(pool.clone()).unwrap();
            fill(&heap, 0, before);
            closure.get_or_insert(&heap);
            closure.compare(&heap);
            prove(&heap, &pool);
        }
    }
}

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

brand!(Iterators);

type Change = for<'t> fn(&mut Tx<'t, Iterators>, Obj<'t, Iterators, Maps>) -> Result<()>;

const CHANGES: [(&str, Change); 3] = [
    ("removes", |tx, root| {
        (0..200).try_for_each(|key| {
            root.texts().remove(tx, &key)?;
            root.sorted().remove(tx, &key).map(drop)
        })
    }),
    ("clears", |tx, root| {
        root.texts().clear(tx)?;
        root.sorted().clear(tx)
    }),
    ("inserts", |tx, root| {
        (1000..1700).try_for_each(|key| {
            root.texts().insert(tx, &key, PString::new())?;
            root.sorted().insert(tx, &key, PString::new()).map(drop)
        })
    }),
];

/// An iterator went on where a nested transaction had taken the nodes away, and said that the pool is
/// damaged.
#[test]
fn iterators_end_when_their_map_changes_and_go_on_when_another_does() {
    let pool = pool();
    let heap = Heap::<Iterators, Maps>::open_pool(pool.clone()).unwrap();
    for (name, change) in CHANGES {
        heap.write(|tx, root| {
            root.texts().clear(tx)?;
            root.sorted().clear(tx)?;
            for key in 0..200 {
                root.texts().insert(tx, &key, PString::new())?.set(tx, LONG)?;
                root.sorted().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            }
            Ok(())
        })
        .unwrap();
        for is_hashed in [false, true] {
            an_iterator_ends(&heap, is_hashed, name, change);
        }
        iterators_go_on(&heap);
        prove(&heap, &pool);
    }
}

fn an_iterator_ends(heap: &Heap<Iterators, Maps>, is_hashed: bool, name: &str, change: Change) {
    let ended = heap.write::<()>(|tx, root| {
        let go_on = |i: usize| if i == 3 { heap.write(change) } else { Ok(()) };
        if is_hashed {
            for (i, entry) in root.texts().iter(tx)?.enumerate() {
                entry?.1.get(tx)?;
                go_on(i)?;
            }
        } else {
            for (i, entry) in root.sorted().iter(tx)?.enumerate() {
                entry?.1.get(tx)?;
                go_on(i)?;
            }
        }
        panic!("{name}: it did not end")
    });
    let e = ended.unwrap_err().to_string();
    assert!(e.contains("in the middle of this operation"), "{name}: {e}");
}

/// Another map is changed, and this one's values are.
fn iterators_go_on(heap: &Heap<Iterators, Maps>) {
    heap.write(|tx, root| {
        let mut seen = 0;
        for entry in root.texts().iter(tx)? {
            let key = entry?.0;
            heap.write(|tx, root| {
                root.sorted().insert(tx, &(key + 5000), PString::new())?;
                root.texts().insert(tx, &key, PString::new())?.set(tx, "another")
            })?;
            seen += 1;
        }
        assert_eq!(seen, 200);
        // One that begins after changes does not mind them, whatever comes then.
        assert_eq!(root.sorted().iter(tx)?.count(), 400);
        for entry in root.sorted().iter(tx)? {
            let key = entry?.0;
            heap.write(|tx, root| root.words().insert(tx, &key, key).map(drop))?;
        }
        Ok(())
    })
    .unwrap();
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

#[derive(Default, Persist)]
#[repr(u64)]
enum Either {
    #[default]
    Nothing,
    Number(u64),
    Link(PRc<u64>),
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    either: Either,
    link: PRc<u64>,
    weak: PWeak<u64>,
    array: PArr<u64>,
    text: PString,
    list: PVec<PRc<u64>>,
    map: PHashMap<u64, u64>,
    sorted: PMap<u64, u64>,
    own: PBox<u64>,
    lock: GenLock,
}

fn is_refused<T>(outcome: Result<T>) {
    match outcome {
        Ok(_) => panic!("the outer token worked"),
        Err(e) => assert!(e.to_string().contains("runs inside this one"), "{e}"),
    }
}

fn with_root(body: impl for<'h> FnOnce(&Heap<tembo_heap::Scoped<'h>, Root>)) {
    let pool = pool();
    Heap::<_, Root>::with_pool(pool.clone(), |heap| {
        heap.write(|tx, root| {
            let object = tx.alloc(5)?;
            tx.link(root.link(), object)?;
            tx.link_weak(root.weak(), object)?;
            let array = tx.alloc_array(3, |i| i as u64)?;
            tx.link_array(root.array(), array)?;
            root.text().set(tx, LONG)?;
            root.list().push_link(tx, object)?;
            root.map().insert(tx, &1, 1)?;
            root.sorted().insert(tx, &1, 1)?;
            tx.put(root.either(), Either::Number(3))
        })?;
        body(&heap);
        prove(&heap, &pool);
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// The outer token, which came through a mutex, put a pointer where the inner transaction had a number
/// borrowed; the borrow then wrote its number over the pointer.
#[test]
fn an_outer_token_cannot_retype_what_an_inner_transaction_has_borrowed() {
    with_root(|heap| {
        heap.write(|tx, root| {
            let outer = AssertUnwindSafe((Mutex::new(tx), root));
            heap.write(|tx, root| {
                let EitherRef::Number(number) = root.either().variant(tx)? else { panic!("a number") };
                let mut borrowed = tx.get_mut(number)?;
                *borrowed = 0xDEAD_0000;
                let (token, outer_root) = &*outer;
                is_refused(token.lock().unwrap().put(outer_root.either(), Either::Link(PRc::null())));
                drop(borrowed);
                assert_eq!(tx.get(number)?, 0xDEAD_0000);
                Ok(())
            })?;
            // And the other way round: the inner one retypes, and the outer one's place is refused.
            let (token, root) = &*outer;
            let tx = &mut **token.lock().unwrap();
            let EitherRef::Number(number) = root.either().variant(tx)? else { panic!("a number") };
            heap.write(|tx, root| tx.put(root.either(), Either::Link(PRc::null())))?;
            assert!(
                matches!(&tx.set(number, 0xDEAD_0000), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant))
            );
            assert!(
                matches!(&tx.get_mut(number).map(drop), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant))
            );
            Ok(())
        })
        .unwrap();
        heap.read(|tx, root| {
            let EitherRef::Link(link) = root.either().variant(tx)? else { panic!("a pointer") };
            assert_eq!(tx.load(link)?, None);
            Ok(())
        })
        .unwrap();
    });
}

/// Everything that a token can do.
fn use_token<'t, B: Brand>(tx: &mut Tx<'t, B>, root: Obj<'t, B, Root>, is_inside: bool) {
    macro_rules! each {
        ($($use:expr;)*) => {$(
            let outcome: Result<()> = $use.map(drop);
            if is_inside { is_refused(outcome) } else { outcome.unwrap() }
        )*};
    }
    let object = tx.alloc(1_u64);
    if is_inside {
        is_refused(object.map(drop));
    }
    each! {
        tx.get(root.count());
        tx.load(root.link());
        tx.upgrade(root.weak());
        tx.array(root.array());
        root.either().variant(tx);
        tx.set(root.count(), 1);
        tx.get_mut(root.count());
        tx.put(root.either(), Either::Number(4));
        tx.link(root.link(), None);
        tx.link_weak(root.weak(), None);
        tx.link_array(root.array(), None);
        tx.alloc_array(2, |_| 0_u64);
        root.text().get(tx);
        root.text().set(tx, "changed");
        root.list().len(tx);
        root.list().push(tx, PRc::null());
        root.list().pop(tx);
        root.map().len(tx);
        root.map().value(tx, &1);
        root.map().insert(tx, &2, 2);
        root.map().remove(tx, &2);
        root.map().get_or_insert_with(tx, &3, || 3);
        root.sorted().value(tx, &1);
        root.sorted().insert(tx, &2, 2);
        root.sorted().remove(tx, &2);
        root.own().fill(tx, 3);
        root.own().open(tx);
        root.own().empty(tx);
        root.lock().try_lock(tx);
    }
}

/// A token that an inner transaction has got hold of worked: its changes were lost, and transactions that
/// read saw them.
#[test]
fn an_outer_token_does_nothing_while_an_inner_transaction_runs() {
    with_root(|heap| {
        heap.write(|tx, root| {
            let fresh = tx.alloc(8)?;
            tx.link(root.link(), fresh)?;
            let handle = tx.hold(fresh)?;
            let outer = AssertUnwindSafe((RefCell::new(tx), root));
            let attack = || {
                let (token, root) = &*outer;
                let tx = &mut **token.borrow_mut();
                use_token(tx, *root, true);
                is_refused(tx.get(*fresh));
                is_refused(tx.set(*fresh, 9));
                is_refused(tx.swap(*fresh, root.count()));
                is_refused(tx.hold(fresh).map(drop));
                is_refused(tx.alloc_array(1, |_| 0_u64).map(drop));
                is_refused(root.map().iter(tx).map(drop));
                is_refused(root.sorted().iter(tx).map(drop));
            };
            heap.write(|tx, root| {
                attack();
                tx.set(root.count(), 20)?;
                attack();
                // Two levels deep, and the one in the middle is an outer one too.
                let middle = AssertUnwindSafe((Mutex::new(tx), root));
                heap.read(|tx, root| {
                    assert_eq!(tx.get(root.count())?, 20);
                    attack();
                    let (token, outer_root) = &*middle;
                    let token = &mut **token.lock().unwrap();
                    is_refused(token.set(outer_root.count(), 21));
                    is_refused(token.get(outer_root.count()));
                    assert_eq!(tx.get(root.count())?, 20);
                    Ok(())
                })?;
                let (token, root) = &*middle;
                token.lock().unwrap().set(root.count(), 22)
            })?;
            heap.read(|tx, root| {
                assert_eq!(tx.get(root.count())?, 22);
                attack();
                assert_eq!(tx.get(root.count())?, 22);
                Ok(())
            })?;
            // It is over, and the token is as good as ever.
            let (token, root) = &*outer;
            let tx = &mut **token.borrow_mut();
            assert_eq!((tx.get(root.count())?, tx.get(*fresh)?), (22, 8));
            use_token(tx, *root, false);
            assert!(matches!(&tx.enter(&handle), Err(e) if e.is_cancelled()));
            Ok(())
        })
        .unwrap();
    });
}

/// A token in a channel, one of a transaction that reads, and a handle entered by it.
#[test]
fn tokens_in_channels_and_of_transactions_that_read_are_refused_as_well() {
    with_root(|heap| {
        let handle = heap
            .write(|tx, root| {
                let object = tx.load(root.link())?.expect("linked");
                tx.hold(object)
            })
            .unwrap();
        heap.read(|tx, root| {
            let (sender, receiver) = std::sync::mpsc::channel();
            sender.send((tx, root)).unwrap();
            let receiver = AssertUnwindSafe(receiver);
            heap.read(|_, _| {
                let (tx, root) = receiver.recv().unwrap();
                is_refused(tx.get(root.count()));
                is_refused(tx.load(root.link()).map(drop));
                is_refused(tx.enter(&handle).map(drop));
                is_refused(tx.upgrade(root.weak()).map(drop));
                is_refused(root.map().value(tx, &1));
                drop(format!("{tx:?}"));
                Ok(())
            })?;
            tx.get(root.count())?;
            tx.enter(&handle)?;
            Ok(())
        })
        .unwrap();
    });
}

/// The state of an inner transaction was not given back when it panicked.
#[test]
fn an_outer_token_works_again_after_an_inner_panic_and_its_transaction_fails() {
    with_root(|heap| {
        for nests in [1, 2] {
            let outcome = heap.write(|tx, root| {
                tx.set(root.count(), 50)?;
                let inner = std::panic::catch_unwind(|| {
                    heap.write::<()>(|tx, root| {
                        let mut borrowed = tx.get_mut(root.count())?;
                        *borrowed = 60;
                        if nests == 2 {
                            drop(borrowed);
                            return heap.write(|tx, root| {
                                let _borrowed = tx.get_mut(root.count())?;
                                std::panic::resume_unwind(Box::new("on purpose"))
                            });
                        }
                        std::panic::resume_unwind(Box::new("on purpose"))
                    })
                });
                assert!(inner.is_err());
                assert_eq!(tx.get(root.count())?, 60);
                use_token(tx, root, false);
                // Nothing is borrowed any more.
                heap.write(|tx, root| tx.set(root.count(), 61))?;
                assert_eq!(tx.get(root.count())?, 61);
                Ok(())
            });
            assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)), "{outcome:?}");
            let count = heap.read(|tx, root| tx.get(root.count())).unwrap();
            assert_eq!(count, 0);
        }
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
            heap.read::<()>(|_, _| heap.read(|_, _| std::panic::resume_unwind(Box::new("on purpose"))))
        }));
        assert!(caught.is_err());
        heap.write(|tx, root| tx.set(root.count(), 1)).unwrap();
    });
}

/// A transaction of another heap has nothing of this one's, so that this one's token works in it; as a part
/// of it comes again, it does not.
#[test]
fn transactions_of_other_heaps_leave_a_token_as_it_is() {
    with_root(|heap| {
        with_root(|other| {
            heap.write(|tx, root| {
                let outer = AssertUnwindSafe((RefCell::new(tx), root));
                other.write(|_, _| {
                    let (token, root) = &*outer;
                    token.borrow_mut().set(root.count(), 31)?;
                    heap.write(|tx, inner_root| {
                        let (token, root) = &*outer;
                        is_refused(token.borrow_mut().set(root.count(), 32));
                        assert_eq!(tx.get(inner_root.count())?, 31);
                        tx.set(inner_root.count(), 33)
                    })?;
                    assert_eq!(token.borrow_mut().get(root.count())?, 33);
                    Ok(())
                })
            })
            .unwrap();
            assert_eq!(heap.read(|tx, root| tx.get(root.count())).unwrap(), 33);
        });
    });
}

/// It waited for what its own transaction had.
#[test]
fn nothing_is_collected_inside_a_transaction() {
    with_root(|heap| {
        heap.write(|tx, root| {
            root.list().clear(tx)?;
            let e = heap.collect().unwrap_err().to_string();
            assert!(e.contains("runs inside one"), "{e}");
            Ok(())
        })
        .unwrap();
        heap.collect().unwrap();
    });
}

/// Two threads that nest transactions of two heaps, each the other way round, waited for each other: the one
/// that was alone in a heap for the turn in the other.
#[test]
fn two_heaps_nested_both_ways_end() {
    with_root(|one| {
        with_root(|other| {
            const EACH: u64 = 60;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            one.write(|tx, root| {
                                *tx.get_mut(root.count())? += 1;
                                std::thread::yield_now();
                                other.write(|tx, root| {
                                    *tx.get_mut(root.count())? += 1;
                                    Ok(())
                                })
                            })
                            .unwrap();
                        }
                    });
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            other
                                .write(|tx, root| {
                                    *tx.get_mut(root.count())? += 1;
                                    std::thread::yield_now();
                                    one.write(|tx, root| {
                                        *tx.get_mut(root.count())? += 1;
                                        Ok(())
                                    })
                                })
                                .unwrap();
                        }
                    });
                }
            });
            // An inner one is committed by itself, also where the outer one is made again.
            assert!(one.read(|tx, root| tx.get(root.count())).unwrap() >= 4 * EACH);
            assert!(other.read(|tx, root| tx.get(root.count())).unwrap() >= 4 * EACH);
        });
    });
}
