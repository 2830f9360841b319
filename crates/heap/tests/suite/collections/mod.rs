//! Collections against those of the standard library: random changes, several to a transaction, some taken
//! back, the heap closed and opened again, and checked; and in damaged heaps (`damage`).

mod damage;
mod exact;
mod hash;
mod hash_full;
mod ordered;
mod text;
mod threads;
mod vec;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt::Debug;
use std::panic::RefUnwindSafe;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_heap::{Brand, Error, Heap, NamedBrand, Obj, Options, Persist, Tx, brand};

brand!(pub(crate) Tested);

/// One heap with the brand is open at a time; with a brand for each test there would be as much code of each.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is gone when this is.
struct Place {
    path: PathBuf,
    options: Options,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().create(true).max_bytes(1 << 30);
        Place { path: directory.path().join("collections.heap"), options, _directory: directory }
    }

    fn open<B: NamedBrand, R: Persist + Default>(&self) -> Heap<B, R> {
        Heap::open(&self.path, &self.options).unwrap()
    }
}

/// Every pointer is valid, every count exact, and nothing is leaked.
fn prove<B: Brand, R: Persist>(heap: &Heap<B, R>) {
    heap.collect().unwrap();
    let summary = heap.check().unwrap();
    assert_eq!((summary.dying, summary.orphans), (0, 0));
}

/// Objects and arrays that there are of all types.
fn objects<B: Brand, R: Persist>(heap: &Heap<B, R>) -> u64 {
    heap.collect().unwrap();
    let summary = heap.check().unwrap();
    summary.types.iter().map(|usage| usage.objects + usage.arrays).sum()
}

/// Random numbers, from a seed that is printed when the test fails.
fn random(name: &str) -> Xoshiro256PlusPlus {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("{name}: SEED={seed}");
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// How many batches of changes there are, and how many changes one has at most.
type Batches = (usize, usize);

/// Runs batches of random changes on a collection and on its model: each batch in a transaction, some of
/// which are cancelled.
///
/// `change` makes one change and says what came of it; so does `model`.
fn compare<B, R, M, Op, Out>(
    name: &str,
    (rounds, most): Batches,
    start: M,
    op: impl Fn(&mut Xoshiro256PlusPlus, &M) -> Op,
    model: impl Fn(&mut M, &Op) -> Out,
    change: impl for<'t> Fn(&mut Tx<'t, B>, Obj<'t, B, R>, &Op) -> Result<Out, Error> + RefUnwindSafe,
    same: impl Fn(&Heap<B, R>, &M),
) where
    B: NamedBrand,
    R: Persist + Default,
    M: Clone,
    Op: Debug + RefUnwindSafe,
    Out: PartialEq + Debug,
{
    let mut random = random(name);
    let place = Place::new();
    let mut heap = place.open::<B, R>();
    let mut state = start;
    for round in 0..rounds {
        let mut next = state.clone();
        let (mut ops, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..random.random_range(1..=most) {
            let op = op(&mut random, &next);
            expected.push(model(&mut next, &op));
            ops.push(op);
        }
        let is_cancelled = random.random_ratio(1, 8);
        let outcome = heap.write(|tx, root| {
            let mut outcome = Vec::new();
            for op in &ops {
                outcome.push(change(tx, root, op)?);
            }
            if is_cancelled { Err(tx.cancel()) } else { Ok(outcome) }
        });
        match outcome {
            Ok(outcome) => {
                assert_eq!(outcome, expected, "after {ops:?}");
                state = next;
            }
            Err(e) if is_cancelled && e.is_cancelled() => {}
            Err(e) => panic!("{e} in {ops:?}"),
        }
        if round % 16 == 0 {
            same(&heap, &state);
        }
        if round % 64 == 0 {
            prove(&heap);
            if random.random() {
                drop(heap);
                heap = place.open();
                same(&heap, &state);
            }
        }
    }
    same(&heap, &state);
    prove(&heap);
}
