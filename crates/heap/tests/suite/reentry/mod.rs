//! Programs whose own code runs in the middle of an operation: closures, comparisons and hashes of keys,
//! iterators, and tokens of outer transactions that inner ones get hold of. Whatever they do there, the heap
//! stays sound, and nobody is told that the pool is damaged.

mod closures;
mod iterators;
mod keys;
mod tokens;

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use tembo_heap::collections::{MapKey, OrdKey, PHashMap, PMap, PString};
use tembo_heap::{Brand, Heap, Persist, Plain, ReadTx, Ref, Result, Tx};
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
