//! Children are added to a group of an inner node, and taken out, while it is searched:
//! `src/u64tree/group.rs` itself under a model checker, with loom's atomics in place of the processor's, so
//! that every interleaving and every value that the orderings allow is tried. Weaker orderings have to be
//! caught.
//!
//! The checker takes a thread's own load for the only one that its later store to the same word may
//! conflict with. So here the writer, who is alone, reads what it stored last beside the checked words.

#[path = "../../src/u64tree/group.rs"]
#[expect(dead_code, reason = "what needs no model: the rest of a node, and where words lie")]
mod group;

/// The atomics under `group.rs`, with weakenings.
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

use group::{Group, Leads, signed};
use loom::sync::Arc;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    LoadsRelaxed,
    StoresRelaxed,
    /// The children behind one that is taken out move up.
    MovesUp,
    /// A search is led to the next group before the child that moves there is.
    FirstTooEarly,
    /// A leaf is said to be gone before no word leads to it.
    GoneTooEarly,
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

/// A child is added to a full group, whose last child moves to the next group for that.
fn children_are_moved() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(|| {
        let groups = Arc::new([(); 2].map(|()| Group::new(|| Begins(sync::AtomicU64::new(0)))));
        let first = Arc::new(sync::AtomicU64::new(signed(100)));
        IS_WRITER.with(|is| is.set(true));
        (0..8).for_each(|at| groups[0].add(at, 10 * at as u64, 10 * at as u64, 640 * at as u64));
        groups[1].add(0, 100, 100, 6400);
        IS_WRITER.with(|is| is.set(false));
        let writer = loom::thread::spawn({
            let (groups, first) = (groups.clone(), first.clone());
            move || {
                IS_WRITER.with(|is| is.set(true));
                if is(Mutant::FirstTooEarly) {
                    first.store(signed(70), Release);
                }
                groups[0].move_last(&groups[1], &first);
                groups[0].add(7, 65, 65, 64 * 65);
            }
        });
        let find = |key| {
            let group = &groups[usize::from(first.load(Acquire) as i64 <= signed(key) as i64)];
            group.child(group.position(key)).load()
        };
        let (moved, above) = (find(75), find(105));
        assert!(moved <= 75, "75 is looked for in {moved}, which is further right");
        assert!(above <= 105, "105 is looked for in {above}");
        writer.join().unwrap();
        assert_eq!([5, 62, 67, 75, 105].map(find), [0, 60, 65, 70, 100]);
        assert_eq!([0, 1].map(|at| groups[at].separator(7)), [Some(65), None]);
        assert_eq!([0, 1, 2].map(|at| groups[1].separator(at)), [Some(70), Some(100), None]);
    });
}

/// The second of three children and then the third is taken out, and one is added where they were. A leaf
/// that has left the tree says so, and who comes there starts again.
fn children_are_taken_out() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(|| {
        let group = Arc::new(Group::new(|| Begins(sync::AtomicU64::new(0))));
        let gone = Arc::new([(); 5].map(|()| sync::AtomicU64::new(0)));
        IS_WRITER.with(|is| is.set(true));
        [0, 10, 20, 40].into_iter().enumerate().for_each(|(at, key)| group.add(at, key, key, 64 * key));
        IS_WRITER.with(|is| is.set(false));
        let writer = loom::thread::spawn({
            let (group, gone) = (group.clone(), gone.clone());
            move || {
                IS_WRITER.with(|is| is.set(true));
                let retire = |key: usize| gone[key / 10].store(1, Release);
                if is(Mutant::GoneTooEarly) {
                    retire(20);
                }
                if is(Mutant::MovesUp) {
                    group.set(2, 40, 40, 64 * 40);
                    group.set(3, u64::MAX, 0, 0);
                } else {
                    group.lead(2, 10, 64 * 10);
                }
                retire(20);
                if !is(Mutant::MovesUp) {
                    // Now the one before it, and with that what leads to it.
                    [1, 2].into_iter().for_each(|at| group.lead(at, 0, 0));
                    retire(10);
                    group.add(2, 15, 15, 64 * 15);
                    group.lead(3, 15, 64 * 15);
                }
            }
        });
        let find = |key: u64| {
            let mut last = None;
            loop {
                let found = group.child(group.position(key)).load();
                assert!(found <= key, "{key} is looked for in {found}, which is further right");
                if found % 10 != 0 || gone[found as usize / 10].load(Acquire) == 0 {
                    return found;
                }
                assert!(last != Some(found), "{key} is looked for in {found} again, which has left the tree");
                last = Some(found);
            }
        };
        let _ = (find(25), find(12), find(45));
        writer.join().unwrap();
        if !is(Mutant::MovesUp) {
            assert_eq!([5, 12, 17, 25, 45].map(find), [0, 0, 15, 15, 40]);
        }
    });
}

#[test]
fn a_search_beside_an_addition_never_comes_too_far_right() {
    children_are_added();
}

#[test]
fn a_search_beside_a_move_never_comes_too_far_right() {
    children_are_moved();
}

#[test]
fn a_search_beside_a_removal_never_comes_too_far_right_nor_again_to_what_is_gone() {
    children_are_taken_out();
}

#[test]
fn weakenings_are_caught() {
    let (added, moved, taken_out): (fn(), fn(), fn()) =
        (children_are_added, children_are_moved, children_are_taken_out);
    for (mutant, model) in [
        (Mutant::LoadsRelaxed, added),
        (Mutant::StoresRelaxed, added),
        (Mutant::LoadsRelaxed, moved),
        (Mutant::StoresRelaxed, moved),
        (Mutant::FirstTooEarly, moved),
        (Mutant::LoadsRelaxed, taken_out),
        (Mutant::StoresRelaxed, taken_out),
        (Mutant::MovesUp, taken_out),
        (Mutant::GoneTooEarly, taken_out),
    ] {
        MUTANT.set(mutant);
        let outcome = std::panic::catch_unwind(model);
        MUTANT.set(Mutant::None);
        assert!(outcome.is_err(), "nothing caught {mutant:?}");
    }
}
