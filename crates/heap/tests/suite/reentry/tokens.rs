//! Tokens of outer transactions that inner ones get hold of, and nested transactions of several heaps.

use super::{LONG, pool, prove};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use tembo_heap::collections::{PBox, PHashMap, PMap, PString, PVec};
use tembo_heap::{Brand, Error, ErrorKind, GenLock, Heap, Obj, PArr, PRc, PWeak, Persist, Result, Tx};

#[derive(Default, Persist)]
#[repr(u64)]
enum Either {
    #[default]
    Nothing,
    Number(u64),
    Link(PRc<u64>),
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    either: Either,
    link: PRc<u64>,
    weak: PWeak<u64>,
    array: PArr<u64>,
    text: PString,
    list: PVec<PRc<u64>>,
    map: PHashMap<u64, u64>,
    sorted: PMap<u64, u64>,
    own: PBox<u64>,
    lock: GenLock,
}

fn is_refused<T>(outcome: Result<T>) {
    match outcome {
        Ok(_) => panic!("the outer token worked"),
        Err(e) => assert!(e.to_string().contains("runs inside this one"), "{e}"),
    }
}

fn with_root(body: impl for<'h> FnOnce(&Heap<tembo_heap::Scoped<'h>, Root>)) {
    let pool = pool();
    Heap::<_, Root>::with_pool(pool.clone(), |heap| {
        heap.write(|tx, root| {
            let object = tx.alloc(5)?;
            tx.link(root.link(), object)?;
            tx.link_weak(root.weak(), object)?;
            let array = tx.alloc_array(3, |i| i as u64)?;
            tx.link_array(root.array(), array)?;
            root.text().set(tx, LONG)?;
            root.list().push_link(tx, object)?;
            root.map().insert(tx, &1, 1)?;
            root.sorted().insert(tx, &1, 1)?;
            tx.put(root.either(), Either::Number(3))
        })?;
        body(&heap);
        prove(&heap, &pool);
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// The outer token, which came through a mutex, put a pointer where the inner transaction had a number
/// borrowed; the borrow then wrote its number over the pointer.
#[test]
fn an_outer_token_cannot_retype_what_an_inner_transaction_has_borrowed() {
    with_root(|heap| {
        heap.write(|tx, root| {
            let outer = AssertUnwindSafe((Mutex::new(tx), root));
            heap.write(|tx, root| {
                let EitherRef::Number(number) = root.either().variant(tx)? else { panic!("a number") };
                let mut borrowed = tx.get_mut(number)?;
                *borrowed = 0xDEAD_0000;
                let (token, outer_root) = &*outer;
                is_refused(token.lock().unwrap().put(outer_root.either(), Either::Link(PRc::null())));
                drop(borrowed);
                assert_eq!(tx.get(number)?, 0xDEAD_0000);
                Ok(())
            })?;
            // And the other way round: the inner one retypes, and the outer one's place is refused.
            let (token, root) = &*outer;
            let tx = &mut **token.lock().unwrap();
            let EitherRef::Number(number) = root.either().variant(tx)? else { panic!("a number") };
            heap.write(|tx, root| tx.put(root.either(), Either::Link(PRc::null())))?;
            assert!(
                matches!(&tx.set(number, 0xDEAD_0000), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant))
            );
            assert!(
                matches!(&tx.get_mut(number).map(drop), Err(e) if matches!(e.kind(), ErrorKind::StaleVariant))
            );
            Ok(())
        })
        .unwrap();
        heap.read(|tx, root| {
            let EitherRef::Link(link) = root.either().variant(tx)? else { panic!("a pointer") };
            assert_eq!(tx.load(link)?, None);
            Ok(())
        })
        .unwrap();
    });
}

/// Everything that a token can do.
fn use_token<'t, B: Brand>(tx: &mut Tx<'t, B>, root: Obj<'t, B, Root>, is_inside: bool) {
    macro_rules! each {
        ($($use:expr;)*) => {$(
            let outcome: Result<()> = $use.map(drop);
            if is_inside { is_refused(outcome) } else { outcome.unwrap() }
        )*};
    }
    let object = tx.alloc(1_u64);
    if is_inside {
        is_refused(object.map(drop));
    }
    each! {
        tx.get(root.count());
        tx.load(root.link());
        tx.upgrade(root.weak());
        tx.array(root.array());
        root.either().variant(tx);
        tx.set(root.count(), 1);
        tx.get_mut(root.count());
        tx.put(root.either(), Either::Number(4));
        tx.link(root.link(), None);
        tx.link_weak(root.weak(), None);
        tx.link_array(root.array(), None);
        tx.alloc_array(2, |_| 0_u64);
        root.text().get(tx);
        root.text().set(tx, "changed");
        root.list().len(tx);
        root.list().push(tx, PRc::null());
        root.list().pop(tx);
        root.map().len(tx);
        root.map().value(tx, &1);
        root.map().insert(tx, &2, 2);
        root.map().remove(tx, &2);
        root.map().get_or_insert_with(tx, &3, || 3);
        root.sorted().value(tx, &1);
        root.sorted().insert(tx, &2, 2);
        root.sorted().remove(tx, &2);
        root.own().fill(tx, 3);
        root.own().open(tx);
        root.own().empty(tx);
        root.lock().try_lock(tx);
    }
}

/// A token that an inner transaction has got hold of worked: its changes were lost, and transactions that
/// read saw them.
#[test]
fn an_outer_token_does_nothing_while_an_inner_transaction_runs() {
    with_root(|heap| {
        heap.write(|tx, root| {
            let fresh = tx.alloc(8)?;
            tx.link(root.link(), fresh)?;
            let handle = tx.hold(fresh)?;
            let outer = AssertUnwindSafe((RefCell::new(tx), root));
            let attack = || {
                let (token, root) = &*outer;
                let tx = &mut **token.borrow_mut();
                use_token(tx, *root, true);
                is_refused(tx.get(*fresh));
                is_refused(tx.set(*fresh, 9));
                is_refused(tx.swap(*fresh, root.count()));
                is_refused(tx.hold(fresh).map(drop));
                is_refused(tx.alloc_array(1, |_| 0_u64).map(drop));
                is_refused(root.map().iter(tx).map(drop));
                is_refused(root.sorted().iter(tx).map(drop));
            };
            heap.write(|tx, root| {
                attack();
                tx.set(root.count(), 20)?;
                attack();
                // Two levels deep, and the one in the middle is an outer one too.
                let middle = AssertUnwindSafe((Mutex::new(tx), root));
                heap.read(|tx, root| {
                    assert_eq!(tx.get(root.count())?, 20);
                    attack();
                    let (token, outer_root) = &*middle;
                    let token = &mut **token.lock().unwrap();
                    is_refused(token.set(outer_root.count(), 21));
                    is_refused(token.get(outer_root.count()));
                    assert_eq!(tx.get(root.count())?, 20);
                    Ok(())
                })?;
                let (token, root) = &*middle;
                token.lock().unwrap().set(root.count(), 22)
            })?;
            heap.read(|tx, root| {
                assert_eq!(tx.get(root.count())?, 22);
                attack();
                assert_eq!(tx.get(root.count())?, 22);
                Ok(())
            })?;
            // It is over, and the token is as good as ever.
            let (token, root) = &*outer;
            let tx = &mut **token.borrow_mut();
            assert_eq!((tx.get(root.count())?, tx.get(*fresh)?), (22, 8));
            use_token(tx, *root, false);
            assert!(matches!(&tx.enter(&handle), Err(e) if e.is_cancelled()));
            Ok(())
        })
        .unwrap();
    });
}

/// A token in a channel, one of a transaction that reads, and a handle entered by it.
#[test]
fn tokens_in_channels_and_of_transactions_that_read_are_refused_as_well() {
    with_root(|heap| {
        let handle = heap
            .write(|tx, root| {
                let object = tx.load(root.link())?.expect("linked");
                tx.hold(object)
            })
            .unwrap();
        heap.read(|tx, root| {
            let (sender, receiver) = std::sync::mpsc::channel();
            sender.send((tx, root)).unwrap();
            let receiver = AssertUnwindSafe(receiver);
            heap.read(|_, _| {
                let (tx, root) = receiver.recv().unwrap();
                is_refused(tx.get(root.count()));
                is_refused(tx.load(root.link()).map(drop));
                is_refused(tx.enter(&handle).map(drop));
                is_refused(tx.upgrade(root.weak()).map(drop));
                is_refused(root.map().value(tx, &1));
                drop(format!("{tx:?}"));
                Ok(())
            })?;
            tx.get(root.count())?;
            tx.enter(&handle)?;
            Ok(())
        })
        .unwrap();
    });
}

/// The state of an inner transaction was not given back when it panicked.
#[test]
fn an_outer_token_works_again_after_an_inner_panic_and_its_transaction_fails() {
    with_root(|heap| {
        for nests in [1, 2] {
            let outcome = heap.write(|tx, root| {
                tx.set(root.count(), 50)?;
                let inner = std::panic::catch_unwind(|| {
                    heap.write::<()>(|tx, root| {
                        let mut borrowed = tx.get_mut(root.count())?;
                        *borrowed = 60;
                        if nests == 2 {
                            drop(borrowed);
                            return heap.write(|tx, root| {
                                let _borrowed = tx.get_mut(root.count())?;
                                std::panic::resume_unwind(Box::new("on purpose"))
                            });
                        }
                        std::panic::resume_unwind(Box::new("on purpose"))
                    })
                });
                assert!(inner.is_err());
                assert_eq!(tx.get(root.count())?, 60);
                use_token(tx, root, false);
                // Nothing is borrowed any more.
                heap.write(|tx, root| tx.set(root.count(), 61))?;
                assert_eq!(tx.get(root.count())?, 61);
                Ok(())
            });
            assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::NestedFailed)), "{outcome:?}");
            let count = heap.read(|tx, root| tx.get(root.count())).unwrap();
            assert_eq!(count, 0);
        }
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
            heap.read::<()>(|_, _| heap.read(|_, _| std::panic::resume_unwind(Box::new("on purpose"))))
        }));
        assert!(caught.is_err());
        heap.write(|tx, root| tx.set(root.count(), 1)).unwrap();
    });
}

/// A transaction of another heap has nothing of this one's, so that this one's token works in it; as a part
/// of it comes again, it does not.
#[test]
fn transactions_of_other_heaps_leave_a_token_as_it_is() {
    with_root(|heap| {
        with_root(|other| {
            heap.write(|tx, root| {
                let outer = AssertUnwindSafe((RefCell::new(tx), root));
                other.write(|_, _| {
                    let (token, root) = &*outer;
                    token.borrow_mut().set(root.count(), 31)?;
                    heap.write(|tx, inner_root| {
                        let (token, root) = &*outer;
                        is_refused(token.borrow_mut().set(root.count(), 32));
                        assert_eq!(tx.get(inner_root.count())?, 31);
                        tx.set(inner_root.count(), 33)
                    })?;
                    assert_eq!(token.borrow_mut().get(root.count())?, 33);
                    Ok(())
                })
            })
            .unwrap();
            assert_eq!(heap.read(|tx, root| tx.get(root.count())).unwrap(), 33);
        });
    });
}

/// It waited for what its own transaction had.
#[test]
fn nothing_is_collected_inside_a_transaction() {
    with_root(|heap| {
        heap.write(|tx, root| {
            root.list().clear(tx)?;
            let e = heap.collect().unwrap_err().to_string();
            assert!(e.contains("runs inside one"), "{e}");
            Ok(())
        })
        .unwrap();
        heap.collect().unwrap();
    });
}

/// Two threads that nest transactions of two heaps, each the other way round, waited for each other: the one
/// that was alone in a heap for the turn in the other.
#[test]
fn two_heaps_nested_both_ways_end() {
    with_root(|one| {
        with_root(|other| {
            const EACH: u64 = 60;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            one.write(|tx, root| {
                                *tx.get_mut(root.count())? += 1;
                                std::thread::yield_now();
                                other.write(|tx, root| {
                                    *tx.get_mut(root.count())? += 1;
                                    Ok(())
                                })
                            })
                            .unwrap();
                        }
                    });
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            other
                                .write(|tx, root| {
                                    *tx.get_mut(root.count())? += 1;
                                    std::thread::yield_now();
                                    one.write(|tx, root| {
                                        *tx.get_mut(root.count())? += 1;
                                        Ok(())
                                    })
                                })
                                .unwrap();
                        }
                    });
                }
            });
            // An inner one is committed by itself, also where the outer one is made again.
            assert!(one.read(|tx, root| tx.get(root.count())).unwrap() >= 4 * EACH);
            assert!(other.read(|tx, root| tx.get(root.count())).unwrap() >= 4 * EACH);
        });
    });
}
