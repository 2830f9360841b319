//! The epochs under a model checker: `src/epoch.rs` itself, with loom's atomics in place of the processor's,
//! so that every interleaving and every value that the orderings allow is tried.
//!
//! Readers pin, take the object that a word leads to, and look at it. A writer lets the word lead to another
//! object, retires the old one, and uses it again as soon as the epochs say that nobody looks at it any more.
//! Loom tells when that use and a look are not ordered.
//!
//! The model assumes these guarantees of the system and the processor:
//!
//! * `membarrier` interrupts every thread between two of its accesses, where it passes a barrier, and returns
//!   when all have. Here, a reader looks before each access whether it was asked to.
//! * A locked instruction that was made by `pin` is a barrier, or is followed by one. Here it is followed by
//!   one.
//! * A store that one other thread has seen is seen by all. Loom does not know that, so that the load of the
//!   flag of brief pins is followed by a barrier here, if it acquires. The store to the pin's slot comes
//!   after that.
//!
//! Each of a list of weakenings has to be caught. `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-sync
//! --test epochs` is the long form.

#[expect(clippy::modulo_one, reason = "one slot is enough here")]
#[expect(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../src/epoch.rs"]
mod epoch;

/// The primitives under `epoch.rs`, with weakenings.
mod primitives {
    use super::{Mutant, Setting, is};
    use loom::sync::atomic;
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::{Ordering, compiler_fence};

    pub(crate) const SLOTS: usize = 1;
    pub(crate) const THREADS: usize = 2;

    /// A reader's word: whether it has to pass a barrier.
    const ABSENT: u64 = 0;
    const PRESENT: u64 = 1;
    const ASKED: u64 = 2;

    loom::lazy_static! {
        static ref BARRIERS: atomic::AtomicU64 = atomic::AtomicU64::new(0);
        static ref READERS: [atomic::AtomicU64; THREADS] = [atomic::AtomicU64::new(ABSENT), atomic::AtomicU64::new(ABSENT)];
    }
    loom::thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS);
    }

    /// Loom tries all orders of accesses to a word, but not of barriers by themselves.
    fn barrier() {
        BARRIERS.fetch_add(0, Ordering::Relaxed);
        atomic::fence(Ordering::SeqCst);
    }

    /// Runs a reader with this number.
    pub(crate) fn spawn(number: usize, read: impl Fn() + 'static) -> loom::thread::JoinHandle<()> {
        READERS[number].swap(PRESENT, Ordering::Relaxed);
        loom::thread::spawn(move || {
            NUMBER.with(|cell| cell.set(number));
            read();
            READERS[number].swap(ABSENT, Ordering::AcqRel);
        })
    }

    /// The place between two accesses where a reader may be interrupted.
    pub(crate) fn interrupt() {
        if !Setting::get().heavy_fences {
            return;
        }
        if let Some(word) = READERS.get(thread_number())
            && word.fetch_add(0, Ordering::Relaxed) == ASKED
        {
            barrier();
            word.swap(PRESENT, Ordering::AcqRel);
        }
    }

    pub(crate) fn has_heavy_fence() -> bool {
        Setting::get().heavy_fences
    }

    pub(crate) fn heavy_fence() {
        if is(Mutant::NoRemoteBarrier) {
            return;
        }
        barrier();
        for word in READERS.iter() {
            let _ = word.compare_exchange(PRESENT, ASKED, Ordering::AcqRel, Ordering::Acquire);
        }
        for word in READERS.iter() {
            while word.fetch_add(0, Ordering::AcqRel) == ASKED {
                loom::thread::yield_now();
            }
        }
        barrier();
    }

    pub(crate) fn first_slot() -> usize {
        0
    }

    pub(crate) fn thread_number() -> usize {
        NUMBER.with(Cell::get)
    }

    pub(crate) fn known_thread_number() -> usize {
        thread_number()
    }

    fn is_reader() -> bool {
        thread_number() < THREADS
    }

    pub(crate) fn fence(order: Ordering) {
        let dropped = if is_reader() { Mutant::NoFenceOfBriefPins } else { Mutant::NoFenceOfReclaimer };
        if !is(dropped) {
            assert_eq!(order, Ordering::SeqCst);
            barrier();
        }
    }

    pub(crate) fn fence_after_exchange() {
        if !is(Mutant::NoFenceOfPins) {
            barrier();
        }
    }

    pub(crate) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> AtomicU64 {
            AtomicU64(atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            interrupt();
            let is_scan = order == Ordering::SeqCst && !is_reader();
            if is_scan && is(Mutant::SeesNoSlot) {
                return 0;
            }
            let is_epoch = order != Ordering::Relaxed && is_reader();
            let is_weak = is_scan && is(Mutant::ScansRelaxed) || is_epoch && is(Mutant::PinsRelaxed);
            self.0.load(if is_weak { Ordering::Relaxed } else { order })
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            interrupt();
            let is_weak = if is_reader() { is(Mutant::UnpinsRelaxed) } else { is(Mutant::RetiresRelaxed) };
            self.0.store(value, if is_weak { Ordering::Relaxed } else { order });
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            interrupt();
            self.0.fetch_add(value, if is(Mutant::RetiresRelaxed) { Ordering::Relaxed } else { order })
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

    pub(crate) struct AtomicBool(atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> AtomicBool {
            AtomicBool(atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            interrupt();
            let value = self.0.load(order);
            if order == Ordering::Acquire && !is(Mutant::FlagRelaxed) {
                barrier();
            }
            value
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            interrupt();
            if !is(Mutant::RaisesNoFlag) {
                self.0.store(value, order);
            }
        }
    }

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            interrupt();
            self.0.lock().unwrap()
        }
    }
}

use epoch::{Epochs, PinSlot};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// A pin is not visible before what follows it is loaded.
    NoFenceOfPins,
    NoFenceOfBriefPins,
    NoRemoteBarrier,
    /// The unlinking is not visible before the slots are read.
    NoFenceOfReclaimer,
    /// A pin of a new epoch need not see what was unlinked in the old one.
    PinsRelaxed,
    RetiresRelaxed,
    /// A slot may be seen empty before its reader is done.
    UnpinsRelaxed,
    ScansRelaxed,
    SeesNoSlot,
    /// A thread that finds the flag of brief pins set does its later loads first.
    FlagRelaxed,
    RaisesNoFlag,
    /// Readers load the word that leads to the object before they pin.
    PinsLate,
    /// The reference to the block changes after the commit, and the block does not wait from then on.
    UnlinkedBefore,
}

/// The settings of a run of the model.
#[derive(Clone, Copy)]
struct Setting {
    mutant: Mutant,
    heavy_fences: bool,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static SETTING: Cell<Setting> = const { Cell::new(Setting { mutant: Mutant::None, heavy_fences: false }) };
}

impl Setting {
    fn get() -> Setting {
        SETTING.get()
    }
}

fn is(mutant: Mutant) -> bool {
    Setting::get().mutant == mutant
}

/// The memory that readers look at and the writer reuses.
struct Object(UnsafeCell<()>);

// SAFETY: nothing is ever read or written there; loom checks that accesses are ordered.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn look(&self) {
        primitives::interrupt();
        self.0.with(|_| ());
    }

    fn use_again(&self) {
        self.0.with_mut(|_| ());
    }
}

struct World {
    epochs: Epochs,
    /// Which object is in reach.
    current: AtomicU64,
    objects: [Object; 2],
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            epochs: Epochs::default(),
            current: AtomicU64::new(0),
            objects: [Object(UnsafeCell::new(())), Object(UnsafeCell::new(()))],
        })
    }

    /// Lets readers find the other object.
    fn unlink(&self) {
        self.objects[1].use_again();
        self.current.store(1, Release);
    }

    /// Uses the first object again if what was retired at this epoch has no readers left.
    fn try_to_use_again(&self, retired: u64) {
        if retired < self.epochs.safe_before() {
            self.objects[0].use_again();
        }
    }

    fn read(&self, pin: fn(&Epochs) -> PinSlot<'_>) {
        let find = || {
            primitives::interrupt();
            self.current.load(Acquire)
        };
        let early = is(Mutant::PinsLate).then(find);
        let place = pin(&self.epochs);
        let found = early.unwrap_or_else(find);
        self.objects[found as usize].look();
        self.epochs.unpin(place);
    }
}

/// Runs a model under every schedule with this many preemptions, or more if the environment asks for more.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.check(model);
}

/// A writer that replaces an object, beside readers of which each does `read` with its pins.
fn replace(preemptions: usize, readers: usize, alone: bool, read: fn(&World)) {
    explore(preemptions, move || {
        let world = World::new();
        let readers: Vec<_> = (0..readers)
            .map(|number| {
                let world = world.clone();
                primitives::spawn(number, move || read(&world))
            })
            .collect();
        world.unlink();
        let retired = world.epochs.retire(alone);
        world.try_to_use_again(retired);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(retired < world.epochs.safe_before(), "nobody holds it any more");
        world.objects[0].use_again();
    });
}

fn a_reader_with_a_pin() {
    replace(5, 1, true, |world| world.read(Epochs::pin));
}

fn a_reader_with_a_brief_pin() {
    replace(5, 1, false, |world| world.read(Epochs::pin_briefly));
}

fn a_reader_with_two_brief_pins() {
    replace(5, 1, true, |world| {
        world.read(Epochs::pin_briefly);
        world.read(Epochs::pin_briefly);
    });
}

/// The second pin finds no slot.
fn a_reader_with_more_pins_than_slots() {
    replace(5, 1, false, |world| {
        world.read(|epochs| {
            let (first, second) = (epochs.pin(), epochs.pin());
            assert!(matches!(second, PinSlot::Overflow(_)));
            epochs.unpin(first);
            second
        });
    });
}

/// Either may be the one that tells reclaimers of brief pins.
fn two_readers_with_brief_pins() {
    replace(3, 2, true, |world| world.read(Epochs::pin_briefly));
}

/// As `Lane::defer_frees_to_current_epoch`: the block is retired by the commit, and what leads to it in
/// memory is changed later.
fn a_block_that_is_unlinked_after_the_commit() {
    explore(4, || {
        let world = World::new();
        let reader = primitives::spawn(0, {
            let world = world.clone();
            move || world.read(Epochs::pin_briefly)
        });
        let pin = world.epochs.pin();
        let committed = world.epochs.retire(false);
        world.try_to_use_again(committed);
        world.unlink();
        let unlinked = world.epochs.retire(false);
        world.epochs.unpin(pin);
        world.try_to_use_again(if is(Mutant::UnlinkedBefore) { committed } else { unlinked });
        reader.join().unwrap();
    });
}

const MODELS: [(&str, fn()); 6] = [
    ("a pin", a_reader_with_a_pin),
    ("a brief pin", a_reader_with_a_brief_pin),
    ("two brief pins", a_reader_with_two_brief_pins),
    ("more pins than slots", a_reader_with_more_pins_than_slots),
    ("two readers with brief pins", two_readers_with_brief_pins),
    ("unlinked after the commit", a_block_that_is_unlinked_after_the_commit),
];

#[test]
fn nothing_is_used_again_that_a_pin_from_before_its_unlinking_holds() {
    for (name, model) in MODELS {
        for heavy_fences in [false, true] {
            SETTING.set(Setting { mutant: Mutant::None, heavy_fences });
            let start = std::time::Instant::now();
            model();
            println!("{name}, remote barriers: {heavy_fences}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn weakenings_are_caught() {
    let mutants: [(Mutant, bool, fn()); 15] = [
        (Mutant::NoFenceOfPins, false, a_reader_with_a_pin),
        (Mutant::NoFenceOfBriefPins, true, a_reader_with_a_brief_pin),
        (Mutant::NoRemoteBarrier, true, a_reader_with_a_brief_pin),
        (Mutant::NoFenceOfReclaimer, false, a_reader_with_a_pin),
        (Mutant::NoFenceOfReclaimer, true, a_reader_with_a_brief_pin),
        (Mutant::PinsRelaxed, true, a_reader_with_a_brief_pin),
        (Mutant::RetiresRelaxed, true, a_reader_with_two_brief_pins),
        (Mutant::RetiresRelaxed, true, a_reader_with_a_brief_pin),
        (Mutant::UnpinsRelaxed, false, a_reader_with_a_pin),
        (Mutant::ScansRelaxed, false, a_reader_with_a_brief_pin),
        (Mutant::SeesNoSlot, false, a_reader_with_a_pin),
        (Mutant::FlagRelaxed, true, two_readers_with_brief_pins),
        (Mutant::RaisesNoFlag, true, a_reader_with_a_brief_pin),
        (Mutant::PinsLate, true, a_reader_with_a_brief_pin),
        (Mutant::UnlinkedBefore, true, a_block_that_is_unlinked_after_the_commit),
    ];
    let mut missed = Vec::new();
    for (mutant, heavy_fences, model) in mutants {
        SETTING.set(Setting { mutant, heavy_fences });
        if std::panic::catch_unwind(model).is_ok() {
            missed.push((mutant, heavy_fences));
        }
    }
    assert!(missed.is_empty(), "nothing caught {missed:?}");
}
