//! Ownership and versions under a model checker: `stm/orec.rs` and `stm/clock.rs` themselves, with loom's
//! atomics in place of the processor's, so that it tries every interleaving and every value that the
//! orderings allow.
//!
//! The rest is modelled: reads, writes and commits with the steps of `stm/validate.rs`, `tx/read.rs` and
//! `counts/commit.rs` in their order, on two words. The test has to catch each of a list of weakenings.
//!
//! `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-heap --test threads_protocol` is the long form.

#[path = "../../src/stm/clock.rs"]
mod clock;
mod models;
#[path = "../../src/stm/orec.rs"]
mod orec;
mod sync;
mod tx;

use crate::models::MODELS;
use std::cell::Cell;
use std::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    LoadsRelaxed,
    ReleasesRelaxed,
    ClockRelaxed,
    /// Nothing orders the loads of places before the second look at the record. (Loads with acquire would do,
    /// and so would the fence alone.)
    NoOrderOfLoads,
    /// A commit does not say that it is going to store.
    NoMark,
    /// It says so only after it has validated.
    MarksLate,
    /// It does not validate what was read.
    NoValidation,
    /// It validates versions, and not whether somebody is storing.
    IgnoresMarks,
    /// A reader does not look at the record again.
    LooksOnce,
    /// A reader takes what is newer than its clock.
    TakesNewer,
    /// A writer owns what has changed since its clock.
    OwnsNewer,
    /// A commit owns all that was written but the last.
    OwnsNotAll,
    /// It marks only what was owned before it began.
    OwnsAfterMarking,
    /// It becomes the owner of what it has written only after it has validated.
    OwnsLate,
    /// A read of what the transaction has written, and does not own yet, gives what was there before.
    ForgetsOwn,
    /// A read by a record of which the transaction has written something, and does not own it yet, is not
    /// noted.
    NotesNoneOfWritten,
    /// A transaction whose clock nobody advanced validates nothing, although it was read before.
    ExtendsBlindly,
    /// Every transaction thinks that it began in quiet.
    AlwaysQuiet,
    /// In quiet, nobody looks at the clock.
    NeverLooksAtClock,
    /// A commit says that it stores only after it has advanced the clock.
    SaysLate,
    /// It says that it has stored before it has.
    SaysEarly,
    /// A transaction that advances its clock goes on as if it were quiet.
    StaysQuiet,
    /// One that knows not what it has read goes on when the clock moves.
    TrustsForever,
    /// A commit that leaves the clock as it is does not wait for its marks to be visible.
    SharesUnfenced,
    /// Nor does who ends sharing look at who is storing only after the others can know.
    EndsUnfenced,
    /// Loads of the clock and of records are not in one order for all.
    LoadsOutOfOrder,
    /// A transaction that meets a version newer than its clock does not raise the clock.
    NeverRaises,
    /// A transaction takes the clock for one that every commit advances.
    NeverSeesSharing,
    /// A commit before which the clock did not move validates nothing, although others leave it as it is.
    ValidatesByClock,
}

/// Those that only matter where commits leave the clock as it is.
const SHARING: [Mutant; 6] = [
    Mutant::SharesUnfenced,
    Mutant::EndsUnfenced,
    Mutant::LoadsOutOfOrder,
    Mutant::NeverRaises,
    Mutant::NeverSeesSharing,
    Mutant::ValidatesByClock,
];

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
    static WAY: Cell<Way> = const { Cell::new(WAYS[0]) };
}

/// A way in which transactions run.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// They look at the clock in place of records as long as they meet nobody.
    quiet: bool,
    /// They keep no list of what they read as long as that is so.
    trusting: bool,
    /// They own what they write at once, rather than in their commits.
    early: bool,
    sharing: Sharing,
}

/// When commits leave the clock as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sharing {
    #[default]
    Never,
    Always,
    /// From when the main thread begins its transactions.
    Begun,
    /// Until then, if that can be had.
    Ended,
    /// The same, and commits that have met others begin it again.
    Changing,
}

const ALONE: Way = Way { quiet: false, trusting: false, early: false, sharing: Sharing::Never };

const WAYS: [Way; 10] = [
    ALONE,
    Way { quiet: true, ..ALONE },
    Way { quiet: true, trusting: true, ..ALONE },
    Way { early: true, ..ALONE },
    Way { quiet: true, early: true, ..ALONE },
    Way { sharing: Sharing::Always, ..ALONE },
    Way { early: true, sharing: Sharing::Always, ..ALONE },
    Way { quiet: true, trusting: true, sharing: Sharing::Begun, ..ALONE },
    Way { quiet: true, trusting: true, sharing: Sharing::Ended, ..ALONE },
    Way { quiet: true, early: true, sharing: Sharing::Changing, ..ALONE },
];

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

#[test]
fn the_protocol_holds_under_every_interleaving() {
    for way in WAYS {
        WAY.set(way);
        for (name, model) in MODELS {
            let start = std::time::Instant::now();
            model();
            println!("{name}, {way:?}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn weakenings_are_caught() {
    all_are_caught(&[
        Mutant::LoadsRelaxed,
        Mutant::ReleasesRelaxed,
        Mutant::ClockRelaxed,
        Mutant::NoOrderOfLoads,
        Mutant::NoMark,
        Mutant::MarksLate,
        Mutant::NoValidation,
        Mutant::IgnoresMarks,
        Mutant::LooksOnce,
        Mutant::TakesNewer,
        Mutant::OwnsNewer,
        Mutant::OwnsNotAll,
        Mutant::OwnsAfterMarking,
        Mutant::OwnsLate,
        Mutant::ForgetsOwn,
        Mutant::NotesNoneOfWritten,
        Mutant::ExtendsBlindly,
        Mutant::AlwaysQuiet,
        Mutant::NeverLooksAtClock,
        Mutant::SaysLate,
        Mutant::SaysEarly,
        Mutant::StaysQuiet,
        Mutant::TrustsForever,
    ]);
}

#[test]
fn weakenings_of_sharing_are_caught() {
    all_are_caught(&SHARING);
}

/// Two threads take one after the other: the checker runs all threads of a model on the one that asks it.
fn all_are_caught(mutants: &[Mutant]) {
    let (next, missed) = (Mutex::new(mutants.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap().next().copied();
    let work_off = || {
        while let Some(mutant) = take() {
            let caught = caught_by(mutant);
            println!("{mutant:?}: {}", caught.unwrap_or("missed"));
            missed.lock().unwrap().extend(caught.is_none().then_some(mutant));
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(work_off);
        work_off();
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "nothing caught {missed:?}");
}

/// The first model that fails with a weakening.
fn caught_by(mutant: Mutant) -> Option<&'static str> {
    MUTANT.set(mutant);
    let of_sharing = SHARING.contains(&mutant);
    let ways = || WAYS.into_iter().rev().filter(|way| (way.sharing != Sharing::Never) == of_sharing);
    let is_caught = |model: &fn()| {
        ways().any(|way| {
            WAY.set(way);
            std::panic::catch_unwind(model).is_err()
        })
    };
    let caught = MODELS.iter().find(|(_, model)| is_caught(model));
    MUTANT.set(Mutant::None);
    caught.map(|(name, _)| *name)
}
