//! Readers beside commits, under a model checker: `src/active.rs` and `src/sequence.rs` themselves, with
//! loom's atomics in place of the processor's, so that every interleaving and every value that the orderings
//! allow is tried.
//!
//! A commit writes a cell. Loom tells when two uses of a cell are not ordered: a reader that uses what is not
//! committed yet, or what is being collected. Each of a list of weakenings has to be caught.
//! `LOOM_MAX_PREEMPTIONS=3 cargo test --release -p tembo-store --test model` is the long form.

#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../src/active.rs"]
mod active;
#[path = "../src/sequence.rs"]
mod sequence;

/// The primitives under both, with weakenings.
mod primitives {
    use super::{Mutant, is};
    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::AtomicUsize;
    pub(crate) use std::sync::atomic::Ordering;

    pub(crate) const SLOTS: usize = 2;

    pub(crate) fn fence(order: Ordering) {
        if !is(Mutant::NoFence) {
            atomic::fence(order);
        }
    }

    pub(crate) fn back_off(_: u32) {
        loom::thread::yield_now();
    }

    pub(crate) fn thread_number() -> usize {
        0
    }

    pub(crate) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> AtomicU64 {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            // A lane stores what is neither zero nor empty only to announce its commit.
            let announces = order == Ordering::Release && value != 0 && value != u64::MAX;
            match () {
                () if is(Mutant::AnnouncesNothing) && announces => {}
                () if is(Mutant::EndsUnordered) && value == 0 => self.0.store(value, Ordering::Relaxed),
                () => self.0.store(value, order),
            }
        }

        pub(crate) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(old, new, order, failure)
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(old, new, order, failure)
        }

        pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_max(value, order)
        }

        pub(crate) fn fetch_min(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_min(value, order)
        }
    }

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

use active::{Active, Registration};
use loom::cell::UnsafeCell;
use std::cell::Cell;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// Neither readers nor those who ask what is needed order their stores before their loads.
    NoFence,
    /// A lane does not say that it is committing: numbers are published over a gap.
    AnnouncesNothing,
    /// A lane ends its commit without a release.
    EndsUnordered,
    /// A reader leaves before it has read.
    LeavesEarly,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
}

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

/// The cell that a commit has written.
struct Written(UnsafeCell<()>);

// SAFETY: nothing is ever read or written there; loom checks that accesses are ordered.
unsafe impl Sync for Written {}
// SAFETY: as above.
unsafe impl Send for Written {}

/// The number before the first commit.
const BEGIN: u64 = 10;

/// Versions of a key, each of another commit; the first is that of `BEGIN`.
struct Shared {
    active: Arc<Active>,
    versions: [Written; 4],
}

impl Shared {
    fn new() -> Arc<Shared> {
        let versions = [(); 4].map(|()| Written(UnsafeCell::new(())));
        Arc::new(Shared { active: Arc::new(Active::new(BEGIN, 2, [])), versions })
    }

    fn version(&self, number: u64) -> &UnsafeCell<()> {
        &self.versions[(number - BEGIN) as usize].0
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

/// A lane commits two versions of a key, and collects those that nobody needs; a reader reads the one of its
/// snapshot.
fn a_reader_beside_a_lane_that_collects() {
    explore(|| {
        let shared = Shared::new();
        let lane = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let mut next_to_collect = BEGIN;
                for _ in 0..2 {
                    let number = shared.active.sequence.next_alone(0);
                    shared.version(number).with_mut(|_| ());
                    shared.active.sequence.publish_alone(number);
                    let needed = shared.active.needed();
                    while next_to_collect < number && !needed.has(next_to_collect, next_to_collect + 1) {
                        shared.version(next_to_collect).with_mut(|_| ());
                        next_to_collect += 1;
                    }
                }
            })
        };
        let registration = Registration::current(&shared.active);
        let number = registration.number;
        if is(Mutant::LeavesEarly) {
            drop(registration);
            shared.version(number).with(|_| ());
        } else {
            shared.version(number).with(|_| ());
            drop(registration);
        }
        lane.join().unwrap();
    });
}

/// Two lanes commit at once; a reader reads all that its snapshot has.
fn a_reader_beside_two_lanes() {
    explore(|| {
        let shared = Shared::new();
        let lanes = [0, 1].map(|lane| {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let sequence = &shared.active.sequence;
                let in_flight = sequence.take(lane, 0);
                let number = in_flight.number;
                shared.version(number).with_mut(|_| ());
                drop(in_flight);
                sequence.wait_until_visible(number);
                assert!(sequence.current() >= number, "a commit that has returned is seen");
            })
        });
        let current = shared.active.current();
        (BEGIN..=current).for_each(|number| shared.version(number).with(|_| ()));
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
        assert_eq!(shared.active.current(), BEGIN + 2);
    });
}

#[test]
fn readers_see_what_is_committed_and_not_collected() {
    a_reader_beside_a_lane_that_collects();
    a_reader_beside_two_lanes();
}

#[test]
fn weakenings_are_caught() {
    let models: [(Mutant, fn()); 4] = [
        (Mutant::NoFence, a_reader_beside_a_lane_that_collects),
        (Mutant::LeavesEarly, a_reader_beside_a_lane_that_collects),
        (Mutant::AnnouncesNothing, a_reader_beside_two_lanes),
        (Mutant::EndsUnordered, a_reader_beside_two_lanes),
    ];
    for (mutant, model) in models {
        MUTANT.set(mutant);
        let outcome = std::panic::catch_unwind(model);
        MUTANT.set(Mutant::None);
        assert!(outcome.is_err(), "nothing caught {mutant:?}");
    }
}
