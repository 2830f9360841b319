//! Transactions inside transactions of the same heap.

use tembo_heap::{Error, ErrorKind, Heap, Options, PRc, Persist};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    spare: PRc<u64>,
}

fn with_heap(body: impl for<'h> FnOnce(Heap<tembo_heap::Scoped<'h>, Root>) -> Result<(), Error>) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true);
    Heap::<_, Root>::with(dir.path().join("nesting.heap"), &options, body).unwrap();
}

fn count<B: tembo_heap::Brand>(heap: &Heap<B, Root>) -> Result<u64, Error> {
    heap.read(|tx, root| tx.get(root.count()))
}

/// The changes of the inner one stayed, although it had failed and said that it changes nothing then.
#[test]
fn a_nested_transaction_that_fails_takes_the_outer_one_with_it() {
    with_heap(|heap| {
        let outcome = heap.write(|_, _| {
            let inner = heap.write::<()>(|tx, root| {
                tx.set(root.count(), 5)?;
                Err(tx.cancel())
            });
            assert!(matches!(&inner, Err(e) if e.is_cancelled()));
            Ok(())
        });
        assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)));
        assert_eq!(count(&heap)?, 0);
        let outcome = heap.write(|tx, root| {
            tx.set(root.count(), 6)?;
            let inner = std::panic::catch_unwind(|| heap.write::<()>(|_, _| panic!("on purpose")));
            assert!(inner.is_err());
            Ok(())
        });
        assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)));
        assert_eq!(count(&heap)?, 0);
        // One that reads changes nothing, so that its error is the outer one's to judge.
        heap.write(|tx, root| {
            tx.set(root.count(), 7)?;
            let inner = heap.read::<()>(|_, _| Err(ErrorKind::Cancelled.into()));
            assert!(matches!(&inner, Err(e) if e.is_cancelled()));
            Ok(())
        })?;
        assert_eq!(count(&heap)?, 7);
        Ok(())
    });
}

/// The value that was borrowed outside was written over what the nested transaction had stored there.
#[test]
fn nothing_is_nested_while_a_value_is_borrowed_mutably() {
    with_heap(|heap| {
        heap.write(|tx, root| {
            let mut borrowed = tx.get_mut(root.count())?;
            *borrowed += 1;
            let inner = heap.write(|tx, root| tx.set(root.count(), 100));
            assert!(matches!(&inner, Err(e) if matches!(e.kind(), ErrorKind::Borrowed)));
            drop(borrowed);
            heap.write(|tx, root| {
                *tx.get_mut(root.count())? += 10;
                Ok(())
            })
        })?;
        assert_eq!(count(&heap)?, 11);
        Ok(())
    });
}

#[test]
fn nothing_is_written_in_a_transaction_that_reads() {
    with_heap(|heap| {
        let outcome = heap.read::<()>(|_, _| heap.write(|tx, root| tx.set(root.count(), 1)));
        assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::ReadTransaction)));
        heap.read(|tx, root| {
            let nested = heap.write(|tx, root| tx.get(root.count()))?;
            assert_eq!((nested, heap.read(|tx, root| tx.get(root.count()))?), (0, 0));
            assert_eq!(tx.get(root.count())?, 0);
            Ok(())
        })
    });
}

/// Transactions in each other's heaps leave exactly what each of them has committed, and no panic leaves
/// anything that a later one finds.
#[test]
fn transactions_of_other_heaps_are_their_own() {
    with_heap(|outer| {
        with_heap(|inner| {
            let outcome = outer.write::<()>(|tx, root| {
                tx.set(root.count(), 1)?;
                inner.write(|tx, root| {
                    let both = outer.read(|tx, root| tx.get(root.count()))?;
                    tx.set(root.count(), 10 + both)
                })?;
                assert_eq!(count(&inner)?, 11);
                Err(tx.cancel())
            });
            assert!(matches!(&outcome, Err(e) if e.is_cancelled()));
            assert_eq!((count(&outer)?, count(&inner)?), (0, 11));
            // More often than there are lanes.
            for _ in 0..1000 {
                let panicked = std::panic::catch_unwind(|| {
                    outer.write(|tx, root| {
                        tx.set(root.count(), 2)?;
                        inner.write::<()>(|tx, root| {
                            tx.set(root.count(), 3)?;
                            std::panic::resume_unwind(Box::new("on purpose"))
                        })
                    })
                });
                assert!(panicked.is_err());
            }
            outer.write(|tx, root| tx.set(root.count(), 4))?;
            inner.write(|tx, root| tx.set(root.count(), 5))?;
            assert_eq!((count(&outer)?, count(&inner)?), (4, 5));
            Ok(())
        });
        Ok(())
    });
}

/// Attempts are repeated with all that is nested in them.
#[test]
fn nested_transactions_of_threads_that_meet_are_lost_by_none() {
    const EACH: u64 = 2000;
    with_heap(|heap| {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        heap.write(|tx, root| {
                            let before = heap.read(|tx, root| tx.get(root.count()))?;
                            tx.set(root.count(), before + 1)?;
                            heap.write(|tx, root| {
                                assert_eq!(tx.get(root.count())?, before + 1);
                                tx.set(root.count(), before + 2)
                            })
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(count(&heap)?, 3 * 2 * EACH);
        Ok(())
    });
}

/// The one between forgot that, and the outer one committed what the inner one had changed.
#[test]
fn a_transaction_that_fails_two_levels_deep_takes_all_with_it() {
    with_heap(|heap| {
        let outcome = heap.write(|_, _| {
            heap.write(|_, _| {
                let inner = heap.write::<()>(|tx, root| {
                    tx.set(root.count(), 5)?;
                    Err(tx.cancel())
                });
                assert!(matches!(&inner, Err(e) if e.is_cancelled()));
                Ok(())
            })
        });
        assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)));
        assert_eq!(count(&heap)?, 0);
        Ok(())
    });
}

/// A thread keeps what its transactions need from one to the next.
#[test]
fn no_transaction_leaves_anything_to_the_next() {
    with_heap(|heap| {
        let increment = || {
            heap.write(|tx, root| {
                let count = tx.get(root.count())?;
                heap.write(|tx, root| tx.set(root.count(), count + 1))?;
                tx.get(root.count())
            })
        };
        let mut expected = 0;
        let mut is_next = || {
            expected += 1;
            assert_eq!((increment()?, count(&heap)?), (expected, expected));
            Ok(())
        };
        is_next()?;
        // Nested ones that fail in one that reads.
        heap.read(|_, _| {
            let inner = heap.write::<()>(|tx, root| tx.set(root.count(), 100));
            assert!(matches!(&inner, Err(e) if matches!(e.kind(), ErrorKind::ReadTransaction)));
            let inner = heap.write::<()>(|tx, _| Err(tx.cancel()));
            assert!(matches!(&inner, Err(e) if e.is_cancelled()));
            Ok(())
        })?;
        is_next()?;
        let panicked = std::panic::catch_unwind(|| {
            heap.read::<()>(|_, _| std::panic::resume_unwind(Box::new("on purpose")))
        });
        assert!(panicked.is_err());
        is_next()?;
        // A borrow that is never given back.
        heap.write(|tx, root| {
            std::mem::forget(tx.get_mut(root.count())?);
            Ok(())
        })?;
        is_next()?;
        let cancelled = heap.write::<()>(|tx, root| {
            tx.set(root.count(), 100)?;
            let spare = tx.alloc(100)?;
            tx.link(root.spare(), spare)?;
            Err(tx.cancel())
        });
        assert!(matches!(&cancelled, Err(e) if e.is_cancelled()));
        is_next()?;
        // The written value is read from its place afterwards.
        heap.write(|tx, root| {
            let spare = tx.alloc(7)?;
            tx.link(root.spare(), spare)
        })?;
        let spare = heap.read(|tx, root| tx.load(root.spare())?.map(|spare| tx.get(*spare)).transpose());
        assert_eq!(spare?, Some(7));
        is_next()
    });
}

/// Heaps that come one after the other, at the same clock, and perhaps in the same memory.
#[test]
fn a_heap_is_not_taken_for_one_that_was_closed() {
    for i in 0..20 {
        with_heap(|heap| {
            assert_eq!(count(&heap)?, 0);
            heap.write(|tx, root| tx.set(root.count(), i))?;
            with_heap(|other| {
                assert_eq!((count(&other)?, count(&heap)?), (0, i));
                other.write(|tx, root| tx.set(root.count(), 100 + i))?;
                assert_eq!((count(&other)?, count(&heap)?), (100 + i, i));
                Ok(())
            });
            assert_eq!(count(&heap)?, i);
            Ok(())
        });
    }
}

/// Runs a transaction of its own when it is dropped.
struct Noting<'h, B: tembo_heap::Brand>(&'h Heap<B, Root>);

impl<B: tembo_heap::Brand> Drop for Noting<'_, B> {
    fn drop(&mut self) {
        increment(self.0).expect("a transaction of its own");
    }
}

fn increment<B: tembo_heap::Brand>(heap: &Heap<B, Root>) -> Result<(), Error> {
    heap.write(|tx, root| {
        let count = tx.get(root.count())?;
        tx.set(root.count(), count + 1)
    })
}

/// So that the next transaction of this thread finds that others commit, too.
fn increment_elsewhere<B: tembo_heap::Brand>(heap: &Heap<B, Root>) {
    std::thread::scope(|scope| scope.spawn(|| increment(heap)).join().unwrap()).unwrap();
}

/// The result of a body is dropped when its attempt ends, and does not outlive an attempt that is not
/// committed.
#[test]
fn what_is_dropped_with_a_failed_attempt_runs_transactions_of_its_own() {
    for others in [false, true] {
        with_heap(|heap| {
            let heap = std::panic::AssertUnwindSafe(heap);
            increment(&heap)?;
            if others {
                increment_elsewhere(&heap);
            }
            let before = count(&heap)?;
            let outcome = heap.write(|_, _| {
                let inner = heap.write::<()>(|tx, _| Err(tx.cancel()));
                assert!(matches!(&inner, Err(e) if e.is_cancelled()));
                Ok(Noting(&heap))
            });
            assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)));
            assert_eq!(count(&heap)?, before + 1);
            // An attempt that has to be made again.
            let attempts = std::sync::atomic::AtomicU64::new(0);
            let attempts = std::panic::AssertUnwindSafe(&attempts);
            let done = heap.write(|tx, root| {
                let count = tx.get(root.count())?;
                let mut noting = None;
                if attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                    increment_elsewhere(&heap);
                    noting = Some(Noting(&heap));
                }
                tx.set(root.count(), count + 1)?;
                Ok(noting)
            });
            assert!(done?.is_none());
            assert_eq!((attempts.load(std::sync::atomic::Ordering::Relaxed), count(&heap)?), (2, before + 4));
            Ok(())
        });
    }
}
