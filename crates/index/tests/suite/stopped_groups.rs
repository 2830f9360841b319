//! A child is added to a group of an inner node, and another moves to the next group for that, by a writer
//! that is stopped behind each of its stores in turn, while a reader looks for what was there:
//! `src/u64tree/group.rs` itself, with stores that tell. `groups.rs` is about what readers see of a writer
//! that is not stopped.

#[path = "../../src/u64tree/group.rs"]
#[allow(clippy::duplicate_mod, reason = "`groups.rs` has it over the atomics of a model checker")]
#[expect(dead_code, reason = "what needs no test: the rest of a node, and where words lie")]
mod group;

mod sync {
    pub(super) use std::sync::atomic::Ordering;

    pub(super) struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> AtomicU64 {
            AtomicU64(value.into())
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
            super::look();
        }
    }
}

use group::{Group, Leads, signed};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

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

struct Node {
    groups: [Group<Begins>; 2],
    /// The first separator of the second group.
    first: sync::AtomicU64,
}

static NODE: OnceLock<Node> = OnceLock::new();
thread_local! {
    static LOOKS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Every child that was there before is found.
fn look() {
    let Some(looks) = LOOKS.get() else { return };
    LOOKS.set(Some(looks + 1));
    let node = NODE.get().unwrap();
    for child in (0..8).map(|i| 10 * i).chain([100]) {
        let group = &node.groups[usize::from(node.first.load(Relaxed) as i64 <= signed(child) as i64)];
        assert_eq!(group.child(group.position(child)).load(), child, "at store {looks}");
    }
}

/// A reader that comes to the left of an existing child may find no link that leads on yet, and would wait
/// for the writer.
#[test]
fn a_search_finds_what_was_there_wherever_the_writer_is_stopped() {
    let groups = [(); 2].map(|()| Group::new(|| Begins(sync::AtomicU64::new(0))));
    (0..8).for_each(|at| groups[0].add(at, 10 * at as u64, 10 * at as u64, 640 * at as u64));
    groups[1].add(0, 100, 100, 6400);
    let Node { groups, first } =
        NODE.get_or_init(|| Node { groups, first: sync::AtomicU64::new(signed(100)) });
    LOOKS.set(Some(0));
    groups[0].move_last(&groups[1], first);
    groups[0].add(3, 25, 25, 64 * 25);
    assert!(LOOKS.take().is_some_and(|looks| looks > 10));
}
