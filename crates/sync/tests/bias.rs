//! Biases under a model checker: `src/bias.rs` itself, with loom's atomics in place of the processor's, so
//! that every interleaving and every value that the orderings allow is tried.
//!
//! Threads take a lock and use what it guards. Loom tells when two uses are not ordered.
//!
//! The model assumes the guarantee of the system: `membarrier` interrupts every thread between two of its
//! accesses, where it passes a barrier, and returns when all have. Here, a thread checks before each access
//! whether it was asked to.
//!
//! Each of a list of weakenings has to be caught. `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-sync
//! --test bias` is the long form.

#[expect(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../src/bias.rs"]
mod bias;

/// The primitives under `bias.rs`, with weakenings.
mod primitives {
    use super::{Mutant, has_barriers, is};
    use loom::sync::atomic;
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::{Ordering, compiler_fence};

    pub(crate) const THREADS: usize = 5;

    /// A thread's word: whether it has to pass a barrier.
    const ABSENT: u64 = 0;
    const PRESENT: u64 = 1;
    const ASKED: u64 = 2;

    loom::lazy_static! {
        static ref BARRIERS: atomic::AtomicU64 = atomic::AtomicU64::new(0);
        static ref WORDS: [atomic::AtomicU64; THREADS] = [const { ABSENT }; THREADS].map(atomic::AtomicU64::new);
    }
    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS);
    }

    /// Loom tries all orders of accesses to a word, but not of barriers by themselves.
    fn barrier() {
        BARRIERS.fetch_add(0, Ordering::Relaxed);
        atomic::fence(Ordering::SeqCst);
    }

    /// Runs a thread with this number.
    pub(crate) fn spawn(number: usize, body: impl Fn() + 'static) -> loom::thread::JoinHandle<()> {
        WORDS[number].swap(PRESENT, Ordering::Relaxed);
        loom::thread::spawn(move || {
            NUMBER.with(|cell| cell.set(number));
            body();
            WORDS[number].swap(ABSENT, Ordering::AcqRel);
        })
    }

    /// The place between two accesses where a thread may be interrupted.
    fn interrupt() {
        if has_barriers()
            && let Some(word) = WORDS.get(thread_number())
            && word.fetch_add(0, Ordering::Relaxed) == ASKED
        {
            barrier();
            word.swap(PRESENT, Ordering::AcqRel);
        }
    }

    pub(crate) fn has_heavy_fence() -> bool {
        has_barriers()
    }

    pub(crate) fn heavy_fence() {
        if is(Mutant::NoRemoteBarrier) {
            return;
        }
        barrier();
        let others = || WORDS.iter().enumerate().filter(|(number, _)| *number != thread_number());
        for (_, word) in others() {
            let _ = word.compare_exchange(PRESENT, ASKED, Ordering::AcqRel, Ordering::Acquire);
        }
        for (_, word) in others() {
            while word.fetch_add(0, Ordering::AcqRel) == ASKED {
                loom::thread::yield_now();
            }
        }
        barrier();
    }

    pub(crate) fn thread_number() -> usize {
        NUMBER.with(Cell::get)
    }

    pub(crate) fn back_off(_: u32) {
        interrupt();
        loom::thread::yield_now();
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> AtomicU64 {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            interrupt();
            let found = self.0.load(order);
            // Numbers of locks are small, those of holders are not.
            let is_wait = order == Ordering::Acquire && found < super::FIRST as u64;
            if is_wait && is(Mutant::WaitsForNobody) { 0 } else { found }
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            interrupt();
            self.0.store(value, order);
        }

        pub(crate) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            order: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            interrupt();
            self.0.compare_exchange(old, new, order, failure)
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            interrupt();
            loop {
                // A waiting thread can be interrupted.
                if let Ok(guard) = self.0.try_lock() {
                    return guard;
                }
                back_off(0);
            }
        }
    }
}

use bias::Bias;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use primitives::AtomicU64;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    NoRemoteBarrier,
    /// The holder does not say that it has a lock.
    EntersSilently,
    /// The thread that revokes the bias does not wait for the holder.
    WaitsForNobody,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
    static HAS_BARRIERS: Cell<bool> = const { Cell::new(true) };
}

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

fn has_barriers() -> bool {
    HAS_BARRIERS.get()
}

/// The number of the first thread: more than locks that a thread has.
const FIRST: usize = 3;

/// The data that a lock guards.
struct Guarded(UnsafeCell<()>);

// SAFETY: nothing is ever read or written there; loom checks that accesses are ordered.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

struct Shared {
    bias: Bias,
    locks: [AtomicU64; 2],
    guarded: [Guarded; 2],
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            bias: Bias::default(),
            locks: [0, 0].map(AtomicU64::new),
            guarded: [(); 2].map(|()| Guarded(UnsafeCell::new(()))),
        })
    }

    /// Uses what a lock guards, and runs the rest, under it.
    fn with_lock(&self, number: usize, rest: impl FnOnce()) {
        let (lock, guarded) = (&self.locks[number], &self.guarded[number].0);
        let is_biased = self.bias.enter();
        if is_biased && is(Mutant::EntersSilently) {
            self.bias.leave();
        }
        if is_biased {
            assert_eq!(lock.load(Relaxed), 0, "the holder of the bias is alone");
            lock.store(1, Relaxed);
        } else {
            while lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
                primitives::back_off(0);
            }
        }
        guarded.with_mut(|_| ());
        rest();
        lock.store(0, Release);
        if is_biased && !is(Mutant::EntersSilently) {
            self.bias.leave();
        }
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

/// A thread takes a lock twice, and another once.
fn two_threads_take_turns() {
    explore(|| {
        let shared = Shared::new();
        let threads = [(FIRST, 2), (FIRST + 1, 1)].map(|(number, times)| {
            let shared = shared.clone();
            primitives::spawn(number, move || (0..times).for_each(|_| shared.with_lock(0, || ())))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.bias.is_shared(), "nobody has the bias when a second thread has had a lock");
    });
}

/// A thread takes a lock while it has another, and another thread takes the second.
fn a_holder_takes_another_lock() {
    explore(|| {
        let shared = Shared::new();
        let holder = {
            let shared = shared.clone();
            primitives::spawn(FIRST, move || shared.with_lock(0, || shared.with_lock(1, || ())))
        };
        let other = {
            let shared = shared.clone();
            primitives::spawn(FIRST + 1, move || shared.with_lock(1, || ()))
        };
        holder.join().unwrap();
        other.join().unwrap();
    });
}

const MODELS: [(&str, fn()); 2] = [
    ("two threads take turns", two_threads_take_turns),
    ("a holder takes another lock", a_holder_takes_another_lock),
];

#[test]
fn no_two_threads_have_one_lock() {
    for (name, model) in MODELS {
        for has_barriers in [true, false] {
            HAS_BARRIERS.set(has_barriers);
            let start = std::time::Instant::now();
            model();
            println!("{name}, remote barriers: {has_barriers}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn weakenings_are_caught() {
    HAS_BARRIERS.set(true);
    for mutant in [Mutant::NoRemoteBarrier, Mutant::EntersSilently, Mutant::WaitsForNobody] {
        MUTANT.set(mutant);
        let outcome = std::panic::catch_unwind(two_threads_take_turns);
        MUTANT.set(Mutant::None);
        assert!(outcome.is_err(), "nothing caught {mutant:?}");
    }
}
