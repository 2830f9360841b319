//! Transactions that are run again, fail, are nested, or are long.

use super::{NodePrivateFields, Root, RootPrivateFields, at_once, new_node, open_with};
use rand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tembo_heap::{Error, ErrorKind, Heap, brand};

#[test]
fn who_meets_others_for_the_first_time_is_run_again_once() {
    brand!(Wary);
    let open = open_with::<Wary>(0, 1000);
    let heap = AssertUnwindSafe(&open.heap);
    let attempts_until_done = || {
        let attempts = AtomicU64::new(0);
        let done = heap.write(|tx, root| {
            let numbers = tx.array(root.numbers())?.unwrap();
            let seen = tx.get(numbers.at(0))?;
            if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                // Another thread changes what this transaction has not read.
                let elsewhere = || {
                    heap.write(|tx, root| {
                        let numbers = tx.array(root.numbers())?.unwrap();
                        *tx.get_mut(numbers.at(999))? += 1;
                        Ok(())
                    })
                };
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())?;
            }
            tx.set(numbers.at(0), seen + 1)
        });
        done.unwrap();
        attempts.into_inner()
    };
    // From the second on it notes what it reads, and finds that nothing of it has changed.
    assert_eq!([(); 3].map(|()| attempts_until_done()), [2, 1, 1]);
    let numbers = heap.read(|tx, root| {
        let numbers = tx.array(root.numbers())?.unwrap();
        Ok([tx.get(numbers.at(0))?, tx.get(numbers.at(999))?])
    });
    assert_eq!(numbers.unwrap(), [3, 3]);
}

#[test]
fn panics_and_errors_change_nothing() {
    brand!(Panics);
    let open = open_with::<Panics>(3, 3);
    let heap = &open.heap;
    let before = open.check();
    let change = |ends: &(dyn Fn() -> Error + std::panic::RefUnwindSafe)| {
        heap.write::<()>(|tx, root| {
            let node = tx.alloc(new_node(5))?;
            tx.link(root.first(), node)?;
            tx.link_array(root.nodes(), None)?;
            *tx.get_mut(root.count())? += 1;
            tx.hold(node)?;
            Err(ends())
        })
    };
    assert!(matches!(&change(&|| ErrorKind::Cancelled.into()), Err(e) if e.is_cancelled()));
    let panicked = catch_unwind(|| change(&|| std::panic::resume_unwind(Box::new(7_u32))));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7_u32));
    assert_eq!(open.check(), before);
    let count = heap.read(|tx, root| {
        assert!(tx.load(root.first())?.is_none());
        tx.get(root.count())
    });
    assert_eq!(count.unwrap(), 0);
    // The transaction's records are free again, for other threads too.
    std::thread::scope(|scope| {
        scope.spawn(|| heap.write(|tx, root| tx.set(root.count(), 1)).unwrap());
    });
}

#[test]
fn a_transaction_in_another_is_a_part_of_it() {
    brand!(Outer);
    brand!(Between);
    let (open, other) = (open_with::<Outer>(1, 0), open_with::<Between>(1, 0));
    let (heap, other) = (&open.heap, &other.heap);
    let count = |heap: &Heap<Outer, Root>| heap.read(|tx, root| tx.get(root.count())).unwrap();
    let ended = heap.write::<()>(|tx, root| {
        *tx.get_mut(root.count())? += 1;
        heap.write(|tx, root| {
            *tx.get_mut(root.count())? += 10;
            Ok(())
        })?;
        assert_eq!((tx.get(root.count())?, count(heap)), (11, 11), "it sees what it does");
        Err(tx.cancel())
    });
    assert!(ended.is_err());
    assert_eq!(count(heap), 0, "ended with the outer one");
    // Also with a transaction of another heap between them.
    heap.write(|tx, root| {
        *tx.get_mut(root.count())? += 1;
        other.write(|_, _| {
            heap.write(|tx, root| {
                *tx.get_mut(root.count())? += 10;
                Ok(())
            })
        })
    })
    .unwrap();
    assert_eq!(count(heap), 11);
}

#[test]
fn a_write_in_a_read_is_refused() {
    brand!(Refused);
    let open = open_with::<Refused>(1, 1);
    let heap = &open.heap;
    type Change = fn(&Heap<Refused, Root>) -> Result<(), Error>;
    let changes: [Change; 5] = [
        |heap| heap.write(|tx, root| tx.set(root.count(), 1)),
        |heap| heap.write(|tx, _| tx.alloc(new_node(1)).map(drop)),
        |heap| heap.write(|tx, root| tx.link(root.first(), None)),
        |heap| heap.write(|tx, root| tx.link_array(root.numbers(), None)),
        |heap| {
            heap.write(|tx, root| {
                tx.hold(tx.load(tx.array(root.nodes())?.unwrap().at(0))?.unwrap()).map(drop)
            })
        },
    ];
    for change in changes {
        let refused = heap.read::<()>(|_, _| change(heap));
        assert!(matches!(&refused, Err(e) if matches!(e.kind(), ErrorKind::ReadTransaction)), "{refused:?}");
    }
    // One that changes nothing may run there.
    assert_eq!(heap.read(|_, _| heap.write(|tx, root| tx.get(root.count()))).unwrap(), 0);
    open.check();
}

/// Long transactions and short ones: none waits forever.
#[test]
fn a_long_transaction_is_committed_among_short_ones() {
    brand!(Starved);
    let open = open_with::<Starved>(16, 0);
    let heap = &open.heap;
    let is_done = AtomicBool::new(false);
    at_once(6, |thread, rng| {
        if thread > 0 {
            while !is_done.load(Ordering::Relaxed) {
                let at = rng.random_range(0..16);
                heap.write(|tx, root| {
                    let node = tx.load(tx.array(root.nodes())?.unwrap().at(at))?.unwrap();
                    *tx.get_mut(node.value())? += 1;
                    Ok(())
                })
                .unwrap();
            }
            return;
        }
        for _ in 0..20 {
            heap.write(|tx, root| {
                let mut sum = 0;
                for at in 0..16 {
                    let node = tx.load(tx.array(root.nodes())?.unwrap().at(at))?.unwrap();
                    sum += tx.get(node.value())?;
                    std::thread::sleep(Duration::from_micros(100));
                }
                tx.set(root.count(), sum)
            })
            .unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    open.check();
}
