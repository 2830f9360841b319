//! Memory of dead objects: it is given back, and nobody reads what it holds after that.

use super::{NodePrivateFields, RootPrivateFields, new_node, open, open_with, rounds};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_heap::{Error, brand};

/// Lists of dying objects belong to sessions, and those of other threads were not gone through.
#[test]
fn collect_releases_what_other_threads_let_die() {
    brand!(Others);
    let open = open::<Others>();
    let heap = &open.heap;
    heap.write(|tx, root| {
        for id in 0..4000 {
            let node = tx.alloc(new_node(id))?;
            let first = tx.load(root.first())?;
            tx.link(node.next(), first)?;
            tx.link(root.first(), node)?;
        }
        Ok(())
    })
    .unwrap();
    let ended = heap.write::<()>(|tx, _| {
        // This thread's session is in use, so that the other gets another.
        tx.alloc(new_node(0))?;
        let heap = AssertUnwindSafe(heap);
        std::thread::scope(|scope| {
            scope.spawn(|| heap.write(|tx, root| tx.link(root.first(), None)).unwrap());
        });
        Err(tx.cancel())
    });
    assert!(matches!(&ended, Err(e) if e.is_cancelled()));
    assert_eq!(open.objects(), 0);
}

/// This many replacements free so much that its memory is used again.
const REPLACED: u64 = 400;

/// An object that a reader has found may be freed while it runs. Its memory is reused as soon as no
/// transaction can reach it any more.
#[test]
fn memory_that_is_used_again_is_not_read() {
    brand!(UsedAgain);
    let open = open_with::<UsedAgain>(0, 8);
    let heap = AssertUnwindSafe(&open.heap);
    let replace_all = |with: u64| {
        heap.write(|tx, root| {
            let numbers = tx.alloc_array(8, |_| with)?;
            tx.link_array(root.numbers(), numbers)
        })
    };
    for round in 0..20 {
        let attempts = AtomicU64::new(0);
        let seen = heap.read(|tx, root| {
            let numbers = tx.array(root.numbers())?.unwrap();
            let first = tx.get(numbers.at(0))?;
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            if attempt < 2 {
                let elsewhere = || (1..=REPLACED).try_for_each(|i| replace_all(1000 * (round + 1) + i));
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())?;
            }
            for i in 1..numbers.len() {
                assert_eq!(tx.get(numbers.at(i))?, first, "attempt {attempt}");
            }
            Ok(first)
        });
        // An attempt keeps what it has found, or finds out that it is gone.
        seen.unwrap();
        // Until the thread takes it for quiet again.
        for _ in 0..40 {
            let len = open.heap.read(|tx, root| Ok(tx.array(root.numbers())?.map(|n| n.len())));
            assert_eq!(len.unwrap(), Some(8));
        }
    }
    open.check();
}

/// Tells the others when its thread ends, however that comes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The writer pauses, so that readers trust in the clock.
#[test]
fn memory_that_is_used_again_is_not_read_by_threads_that_do_not_wait() {
    brand!(UsedAgainBeside);
    let open = open_with::<UsedAgainBeside>(0, 0);
    let is_over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _ends = Ends(&is_over);
                while !is_over.load(Ordering::Relaxed) {
                    let (len, alive) = open
                        .heap
                        .read(|tx, root| {
                            let numbers = tx.array(root.numbers())?.unwrap();
                            let sum = (0..numbers.len())
                                .try_fold(0, |sum, i| Ok::<_, Error>(sum + tx.get(numbers.at(i))?))?;
                            assert_eq!(sum, (numbers.len() * numbers.len()) as u64);
                            let first = tx.load(root.first())?;
                            let look = tx.upgrade(root.look())?;
                            assert_eq!(first, look);
                            let id = first.map(|first| tx.get(first.id())).transpose()?;
                            Ok((numbers.len() as u64, id))
                        })
                        .unwrap();
                    assert!(alive.is_none_or(|id| id == len), "{alive:?} beside {len}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..rounds(100) {
            for i in 0..REPLACED / 8 {
                let len = 1 + (round * 7 + i) % 61;
                let done = open.heap.write(|tx, root| {
                    let numbers = tx.alloc_array(len as usize, |_| len)?;
                    tx.link_array(root.numbers(), numbers)?;
                    let node = if i % 3 == 0 { None } else { Some(tx.alloc(new_node(len))?) };
                    tx.link(root.first(), node)?;
                    tx.link_weak(root.look(), node)
                });
                done.unwrap();
            }
            let enough = reads.load(Ordering::Relaxed) + 100;
            while reads.load(Ordering::Relaxed) < enough && !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    open.check();
}
