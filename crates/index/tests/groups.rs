//! Children are added to a group of an inner node while it is searched: `src/fixed/group.rs` itself under a model checker, with
//! loom's atomics in place of the processor's, so that every interleaving and every value that the orderings allow is
//! tried. Weaker orderings have to be caught.
//!
//! The checker takes a thread's own load for the only one that its later store to the same word may conflict with. So here
//! the writer, who is alone, reads what it stored last beside the checked words.

#[path = "../src/fixed/group.rs"]
#[expect(dead_code, reason = "what needs no model: the rest of a node, and where words lie")]
mod group;

/// What `group.rs` is built on, with weakenings.
mod sync {
    use super::{Mutant, is};
    pub(super) use std::sync::atomic::Ordering;

    pub(super) struct AtomicU64 {
        word: loom::sync::atomic::AtomicU64,
        last: std::sync::atomic::AtomicU64,
    }

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> AtomicU64 {
            AtomicU64 { word: loom::sync::atomic::AtomicU64::new(value), last: value.into() }
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            if super::is_writer() {
                return self.last.load(Ordering::Relaxed);
            }
            self.word.load(if is(Mutant::LoadsRelaxed) { Ordering::Relaxed } else { order })
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            self.last.store(value, Ordering::Relaxed);
            self.word.store(value, if is(Mutant::StoresRelaxed) { Ordering::Relaxed } else { order });
        }
    }
}

use group::{Group, Leads};
use loom::sync::Arc;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    LoadsRelaxed,
    StoresRelaxed,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
}

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

loom::thread_local! {
    static IS_WRITER: Cell<bool> = Cell::new(false);
}

fn is_writer() -> bool {
    IS_WRITER.with(Cell::get)
}

/// A word that leads to the child whose keys begin there. Ordered no better than it has to be.
struct Begins(sync::AtomicU64);

impl Leads for Begins {
    type To = u64;

    fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn store(&self, to: u64) {
        self.0.store(to, Relaxed);
    }
}

/// Two children are added to three.
fn children_are_added() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(|| {
        let group = Arc::new(Group::new(|| Begins(sync::AtomicU64::new(0))));
        IS_WRITER.with(|is| is.set(true));
        [0, 10, 40].into_iter().enumerate().for_each(|(at, key)| group.add(at, key, key, 64 * key));
        IS_WRITER.with(|is| is.set(false));
        let writer = loom::thread::spawn({
            let group = group.clone();
            move || {
                IS_WRITER.with(|is| is.set(true));
                group.add(2, 30, 30, 64 * 30);
                group.add(2, 20, 20, 64 * 20);
            }
        });
        let find = |key| group.child(group.position(key)).load();
        let (between, above) = (find(35), find(45));
        assert!((0..=35).contains(&between), "35 is looked for in {between}, which is further right");
        assert!((0..=45).contains(&above), "45 is looked for in {above}");
        writer.join().unwrap();
        assert_eq!([5, 15, 25, 35, 45].map(find), [0, 10, 20, 30, 40]);
        let separators = [0, 1, 2, 3, 4, 5].map(|at| group.separator(at));
        assert_eq!(separators, [Some(0), Some(10), Some(20), Some(30), Some(40), None]);
    });
}

#[test]
fn a_search_beside_an_addition_never_comes_too_far_right() {
    children_are_added();
}

#[test]
fn weakenings_are_caught() {
    for mutant in [Mutant::LoadsRelaxed, Mutant::StoresRelaxed] {
        MUTANT.set(mutant);
        let outcome = std::panic::catch_unwind(children_are_added);
        MUTANT.set(Mutant::None);
        assert!(outcome.is_err(), "nothing caught {mutant:?}");
    }
}
