//! Moves that are disturbed by another transaction before their commit: each of them makes the move give way.

use super::visit::{Findings, Moving, Spot, visit};
use super::{HeapCompaction, HeapStep};
use crate::error::{Error, Result};
use crate::retry;
use crate::{Brand, Heap, PArr, PRc, Persist};
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

/// Together with its head, an object of this type has another size than a line.
#[derive(Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Node {
    value: u64,
    words: PArr<u64>,
}

#[derive(Default, Persist)]
#[persist(crate = crate)]
#[repr(C)]
struct Root {
    nodes: PArr<PRc<Node>>,
    other: PRc<Node>,
}

/// Makes nodes, of which every sixteenth is left, and every eighth of the second half: the slabs of the first
/// are the emptiest.
fn thin<B: Brand>(heap: &Heap<B, Root>, count: usize) {
    let made = heap.write(|tx, root| {
        let nodes = tx.alloc_array(count, |_| PRc::null())?;
        for i in 0..count {
            let node = tx.alloc(Node { value: i as u64, words: PArr::null() })?;
            let words = tx.alloc_array(4, |word| word as u64)?;
            tx.link_array(node.words(), words)?;
            tx.link(nodes.at(i), node)?;
        }
        tx.link_array(root.nodes(), nodes)
    });
    made.unwrap();
    for i in (0..count).filter(|i| i % if *i < count / 2 { 16 } else { 8 } > 0) {
        heap.write(|tx, root| tx.link(tx.follow_array(root.nodes())?.at(i), None)).unwrap();
    }
    heap.collect().unwrap();
    heap.shared.give_up_slabs();
}

fn pool() -> Pool {
    let region = Region::simulated(&[0; 64 << 10], 4 << 20, None).unwrap();
    Pool::create_in(region, &Geometry::tiny()).unwrap()
}

/// The changes of others to a node, or to its array, that is about to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// A word of its array.
    Word,
    /// Its own value.
    Value,
    /// Another pointer leads to the object.
    Pointer,
    /// A handle of it.
    Handle,
    /// The object dies.
    Death,
    /// The place of the pointer to it gets another pointer for a while, and then the old one again.
    Relink,
}

fn change<B: Brand>(heap: &Heap<B, Root>, number: usize, change: Change) -> Result<()> {
    let handle = heap.write(|tx, root| {
        let place = tx.follow_array(root.nodes())?.at(number);
        let node = tx.follow(place)?;
        match change {
            Change::None => {}
            Change::Word => tx.set(tx.follow_array(node.words())?.at(2), 77)?,
            Change::Value => tx.set(node.value(), 77)?,
            Change::Pointer => tx.link(root.other(), node)?,
            Change::Handle => return tx.hold(node).map(Some),
            Change::Death => tx.link(place, None)?,
            Change::Relink => {
                let new = tx.alloc(Node { value: 5, words: PArr::null() })?;
                tx.link(place, new)?;
                tx.link(place, node)?;
            }
        }
        Ok(None)
    })?;
    // The handle is never dropped, so the node is held as long as the heap is open.
    std::mem::forget(handle);
    Ok(())
}

/// A visit of a node's owner whose transaction commits after another thread's change. Returns the moved
/// bytes, or nothing if it has given way.
fn visit_before<B: Brand>(heap: &Heap<B, Root>, of: Change, visits_node: bool) -> Option<u64> {
    let pool = heap.shared.pool.clone();
    thin(heap, 800);
    let chosen = pool.compaction().unwrap().unwrap();
    let shared = &*heap.shared;
    let (pin, met) = (pool.pin(), HashSet::default());
    let moving = Moving { shared, pin: &pin, chosen: &chosen, met: &met };
    let look = |spots: &[Spot]| -> Findings {
        retry::write(shared, |running| visit(&moving, running, spots, false)).unwrap()
    };
    // The first visit finds the array of nodes, and the second one the nodes of its first elements.
    let array: Vec<Spot> = look(&[Spot::first(shared.root)]).left;
    let nodes = look(&array).left;
    let number = (0..64).step_by(16).find(|number| {
        let off = heap
            .read(|tx, root| Ok(tx.load(tx.follow_array(root.nodes())?.at(*number))?.unwrap().object_off()));
        let off = off.unwrap();
        nodes.iter().any(|spot| spot.object == off) && chosen.has(off)
    });
    let number = number.expect("one that is to be moved");
    let spots = if visits_node { nodes } else { array };
    let moved = retry::write_unless_busy(shared, 1, &|running| {
        let found = visit(&moving, running, &spots, true)?;
        assert!(found.moved_bytes > 0);
        std::thread::scope(|scope| scope.spawn(|| change(heap, number, of)).join().expect("no panic"))?;
        Ok(found.moved_bytes)
    });
    let moved = moved.unwrap();
    drop(chosen);
    let value = heap.read(|tx, root| match tx.load(tx.follow_array(root.nodes())?.at(number))? {
        Some(node) => Ok(Some((tx.get(node.value())?, tx.get(tx.follow_array(node.words())?.at(2))?))),
        None => Ok(None),
    });
    let expected = match of {
        Change::Word => Some((number as u64, 77)),
        Change::Value => Some((77, 2)),
        Change::Death => None,
        _ => Some((number as u64, 2)),
    };
    assert_eq!(value.unwrap(), expected, "{of:?}");
    heap.check().unwrap();
    moved
}

/// [`visit_before`] in a new heap.
fn moved_before(of: Change, visits_node: bool) -> bool {
    let run = Heap::<_, Root>::with_pool(pool(), |heap| Ok(visit_before(&heap, of, visits_node)));
    run.unwrap().is_some()
}

#[test]
fn a_move_gives_way_to_changes_between_the_copy_and_its_commit() {
    assert!(moved_before(Change::None, false) && moved_before(Change::None, true));
    for change in [Change::Value, Change::Pointer, Change::Handle, Change::Death, Change::Relink] {
        assert!(!moved_before(change, false), "{change:?}");
    }
    // The node's array moves, in a visit of the node.
    for change in [Change::Word, Change::Death] {
        assert!(!moved_before(change, true), "{change:?}");
    }
}

/// A transaction has read where a node is, and writes to it when it has moved: it runs again, and writes to
/// the node's new place.
#[test]
fn a_writer_that_has_met_the_old_place_of_a_node_runs_again() {
    let runs = AtomicUsize::new(0);
    let run = Heap::<_, Root>::with_pool(pool(), |heap| {
        thin(&heap, 800);
        meet_another(&heap);
        let runs = AssertUnwindSafe((&heap, &runs));
        heap.write(|tx, root| {
            let (heap, runs) = *runs;
            let node = tx.follow(tx.follow_array(root.nodes())?.at(16))?;
            let words = tx.follow_array(node.words())?;
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                let moved = || {
                    let chosen = heap.shared.pool.compaction()?.expect("no other runs");
                    let mut walk = HeapCompaction::new(&heap.shared.pool);
                    while walk.step(&chosen)? != HeapStep::Done {}
                    Ok::<_, Error>(chosen.has(node_off(heap, 16)?))
                };
                let is_there_still =
                    std::thread::scope(|scope| scope.spawn(moved).join().expect("no panic"))?;
                assert!(!is_there_still, "it has moved");
            }
            tx.set(node.value(), 99)?;
            tx.set(words.at(3), 98)
        })?;
        let read = heap.read(|tx, root| {
            let node = tx.follow(tx.follow_array(root.nodes())?.at(16))?;
            Ok((tx.get(node.value())?, tx.get(tx.follow_array(node.words())?.at(3))?))
        });
        assert_eq!(read?, (99, 98));
        heap.check().map(drop)
    });
    run.unwrap();
    assert_eq!(runs.into_inner(), 2);
}

/// Meets another thread's commit, after which this thread's transactions keep a list of their reads for a
/// while: otherwise any commit of another would be a conflict.
fn meet_another<B: Brand>(heap: &Heap<B, Root>) {
    let runs = AtomicUsize::new(0);
    let captured = AssertUnwindSafe((heap, &runs));
    let met = heap.write(|tx, root| {
        let (heap, runs) = *captured;
        let node = tx.follow(tx.follow_array(root.nodes())?.at(0))?;
        let value = tx.get(node.value())?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::scope(|scope| {
                scope.spawn(|| change(heap, 32, Change::Word)).join().expect("no panic")
            })?;
        }
        tx.set(node.value(), value)
    });
    met.unwrap();
    assert_eq!(runs.into_inner(), 2);
}

/// Where a node is.
fn node_off<B: Brand>(heap: &Heap<B, Root>, number: usize) -> Result<u64> {
    heap.read(|tx, root| Ok(tx.follow(tx.follow_array(root.nodes())?.at(number))?.object_off()))
}

/// A walk is in an array that dies in parts: the elements that were released already are not looked at.
#[test]
fn a_walk_leaves_an_array_that_dies_in_parts() {
    let run = Heap::<_, Root>::with_pool(pool(), |heap| {
        thin(&heap, 6000);
        let pool = &heap.shared.pool;
        let chosen = pool.compaction()?.expect("no other runs");
        let (mut walk, mut steps, mut moved) = (HeapCompaction::new(pool), 0, 0);
        while let HeapStep::Moved(bytes) = walk.step(&chosen)? {
            (steps, moved) = (steps + 1, moved + bytes);
            if steps == 4 {
                heap.write(|tx, root| tx.link_array(root.nodes(), None))?;
                assert!(heap.check()?.dying > 0, "some elements are left");
            }
        }
        assert!(steps > 4 && moved > 0);
        drop((walk, chosen));
        heap.collect()?;
        heap.check().map(drop)
    });
    run.unwrap();
}
