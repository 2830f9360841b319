//! Transactions inside transactions of the same heap.

use tembo_heap::{Error, Heap, Options, PRc, Persist};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    spare: PRc<u64>,
}

fn with_heap(body: impl for<'h> FnOnce(Heap<tembo_heap::Scoped<'h>, Root>) -> Result<(), Error>) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new();
    options.create = true;
    Heap::<_, Root>::with(dir.path().join("nesting.heap"), &options, body).unwrap();
}

fn count<B: tembo_heap::Brand>(heap: &Heap<B, Root>) -> Result<u64, Error> {
    heap.read(|tx, root| tx.get(root.count()))
}

/// The changes of the inner one stayed, although it had failed and said that it changes nothing then.
#[test]
fn a_nested_transaction_that_fails_takes_the_outer_one_with_it() {
    with_heap(|heap| {
        let outcome = heap.write::<_, Error>(|_, _| {
            let inner = heap.write::<(), Error>(|tx, root| {
                tx.set(root.count(), 5)?;
                Err(tx.cancel())
            });
            assert!(matches!(inner, Err(Error::Cancelled)));
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::NestedFailed)));
        assert_eq!(count(&heap)?, 0);
        let outcome = heap.write::<_, Error>(|tx, root| {
            tx.set(root.count(), 6)?;
            let inner = std::panic::catch_unwind(|| heap.write::<(), Error>(|_, _| panic!("on purpose")));
            assert!(inner.is_err());
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::NestedFailed)));
        assert_eq!(count(&heap)?, 0);
        // One that reads changes nothing, so that its error is the outer one's to judge.
        heap.write::<_, Error>(|tx, root| {
            tx.set(root.count(), 7)?;
            let inner = heap.read::<(), Error>(|_, _| Err(Error::Cancelled));
            assert!(matches!(inner, Err(Error::Cancelled)));
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
        heap.write::<_, Error>(|tx, root| {
            let mut borrowed = tx.get_mut(root.count())?;
            *borrowed += 1;
            let inner = heap.write::<_, Error>(|tx, root| tx.set(root.count(), 100));
            assert!(matches!(inner, Err(Error::Borrowed)));
            drop(borrowed);
            heap.write::<_, Error>(|tx, root| {
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
        let outcome = heap.read::<(), Error>(|_, _| heap.write(|tx, root| tx.set(root.count(), 1)));
        assert!(matches!(outcome, Err(Error::ReadTransaction)));
        heap.read::<_, Error>(|tx, root| {
            let nested = heap.write::<_, Error>(|tx, root| tx.get(root.count()))?;
            assert_eq!((nested, heap.read::<_, Error>(|tx, root| tx.get(root.count()))?), (0, 0));
            assert_eq!(tx.get(root.count())?, 0);
            Ok(())
        })
    });
}

/// What lasts of transactions in each other's heaps is what each of them has committed; and no panic leaves anything behind that the next one
/// would find.
#[test]
fn transactions_of_other_heaps_are_their_own() {
    with_heap(|outer| {
        with_heap(|inner| {
            let outcome = outer.write::<(), Error>(|tx, root| {
                tx.set(root.count(), 1)?;
                inner.write::<_, Error>(|tx, root| {
                    let both = outer.read::<_, Error>(|tx, root| tx.get(root.count()))?;
                    tx.set(root.count(), 10 + both)
                })?;
                assert_eq!(count(&inner)?, 11);
                Err(tx.cancel())
            });
            assert!(matches!(outcome, Err(Error::Cancelled)));
            assert_eq!((count(&outer)?, count(&inner)?), (0, 11));
            // More often than there are lanes.
            for _ in 0..1000 {
                let panicked = std::panic::catch_unwind(|| {
                    outer.write::<_, Error>(|tx, root| {
                        tx.set(root.count(), 2)?;
                        inner.write::<(), Error>(|tx, root| {
                            tx.set(root.count(), 3)?;
                            std::panic::resume_unwind(Box::new("on purpose"))
                        })
                    })
                });
                assert!(panicked.is_err());
            }
            outer.write::<_, Error>(|tx, root| tx.set(root.count(), 4))?;
            inner.write::<_, Error>(|tx, root| tx.set(root.count(), 5))?;
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
                        heap.write::<_, Error>(|tx, root| {
                            let before = heap.read::<_, Error>(|tx, root| tx.get(root.count()))?;
                            tx.set(root.count(), before + 1)?;
                            heap.write::<_, Error>(|tx, root| {
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
