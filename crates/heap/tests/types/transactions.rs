//! Heaps, handles, and what is done in transactions.

use crate::{File, Node, NodeFields, Root, RootPrivateFields, with_heap};
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_heap::{ErrorKind, Handle, Heap, Obj, ReadTx, Ref, Result, Scoped, Tx, brand};

#[test]
fn two_heaps_are_open_at_once() {
    let (a, b) = (File::new(), File::new());
    Heap::<Scoped, Root>::with(&a.path, &a.options, |a| {
        Heap::<Scoped, Root>::with(&b.path, &b.options, |b| {
            let key = a.write(|tx_a, root_a| {
                tx_a.set(root_a.count(), 7)?;
                let count = tx_a.get(root_a.count())?;
                let key = b.write(|tx_b, root_b| {
                    let node = tx_b.alloc(Node::new(count))?;
                    tx_b.link(root_b.first(), node)?;
                    tx_b.get(node.key())
                })?;
                let node = tx_a.alloc(Node::new(key))?;
                tx_a.link(root_a.first(), node)?;
                tx_a.get(node.key())
            })?;
            assert_eq!(key, 7);
            Ok(())
        })
    })
    .unwrap();
}

brand!(Books);
brand!(Readers);

/// Heaps in a struct without lifetimes.
struct Library {
    books: Heap<Books, Root>,
    readers: Heap<Readers, Root>,
}

#[test]
fn heaps_with_names_are_open_at_once() {
    let (books, readers) = (File::new(), File::new());
    let library = Library {
        books: Heap::open(&books.path, &books.options).unwrap(),
        readers: Heap::open(&readers.path, &readers.options).unwrap(),
    };
    let other = Heap::<Books, Root>::open(&readers.path, &readers.options);
    assert!(matches!(&other, Err(e) if matches!(e.kind(), ErrorKind::BrandInUse { .. })));
    library.books.write(|tx, root| tx.set(root.count(), 3)).unwrap();
    let books = library.books.read(|tx, root| tx.get(root.count())).unwrap();
    library.readers.write(|tx, root| tx.set(root.count(), books)).unwrap();
    assert_eq!(library.readers.read(|tx, root| tx.get(root.count())).unwrap(), 3);
}

brand!(Held);

#[test]
fn handles_keep_objects_for_later_transactions() {
    let file = File::new();
    let heap = Heap::<Held, Root>::open(&file.path, &file.options).unwrap();
    let kept: Handle<Held, Node> = heap
        .write(|tx, _| {
            let node = tx.alloc(Node::new(8))?;
            tx.hold(node)
        })
        .unwrap();
    heap.write(|tx, root| {
        let node = tx.enter(&kept)?;
        assert_eq!(tx.get(node.key())?, 8);
        tx.link(root.first(), node)
    })
    .unwrap();
}

brand!(Sent);

#[test]
fn handles_are_sent_to_other_threads() {
    let file = File::new();
    let heap = Heap::<Sent, Root>::open(&file.path, &file.options).unwrap();
    let kept = heap.write(|tx, _| {
        let node = tx.alloc(Node::new(8))?;
        tx.hold(node)
    });
    let kept = kept.unwrap();
    let key = std::thread::scope(|scope| {
        let heap = &heap;
        let key = scope.spawn(move || {
            heap.write(|tx, _| {
                let node = tx.enter(&kept)?;
                tx.get(node.key())
            })
        });
        key.join().unwrap()
    });
    assert_eq!(key.unwrap(), 8);
}

#[test]
fn a_token_is_lent_to_functions() {
    with_heap::<Root>(|heap| {
        fn add<'t, B: tembo_heap::Brand>(tx: &mut Tx<'t, B>, place: Ref<'t, B, u64>) -> Result<()> {
            *tx.get_mut(place)? += 1;
            Ok(())
        }
        fn look<'t, B: tembo_heap::Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, Root>) -> Result<u64> {
            tx.get(root.count())
        }
        heap.write(|tx, root| {
            add(tx, root.count())?;
            add(tx, root.count())?;
            assert_eq!(look(tx, root)?, 2);
            Ok(())
        })
    });
}

#[test]
fn a_transaction_in_a_transaction_is_part_of_it() {
    with_heap::<Root>(|heap| {
        let outer = heap.write(|tx, root| {
            heap.write(|tx, root| tx.set(root.count(), 5))?;
            assert_eq!(tx.get(root.count())?, 5);
            Err::<(), _>(tx.cancel())
        });
        assert!(matches!(&outer, Err(e) if e.is_cancelled()));
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 0);
        Ok(())
    });
}

#[test]
fn a_transaction_that_reads_sees_what_was_written() {
    with_heap::<Root>(|heap| {
        heap.write(|tx, root| tx.set(root.count(), 1))?;
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 1);
        Ok(())
    });
}

#[test]
fn results_leave_a_transaction_by_value() {
    with_heap::<Root>(|heap| {
        let attempts = AtomicU64::new(0);
        let seen = heap.write(|tx, root| {
            attempts.fetch_add(1, Ordering::Relaxed);
            let mut seen = Vec::new();
            for key in 0..3 {
                *tx.get_mut(root.count())? += key;
                seen.push(tx.get(root.count())?);
            }
            Ok(seen)
        })?;
        assert_eq!((seen, attempts.into_inner()), (vec![0, 1, 3], 1));
        Ok(())
    });
}

#[test]
fn a_heap_says_how_large_and_how_sound_it_is() {
    with_heap::<u64>(|heap| {
        heap.write(|tx, root| tx.set(*root, 5))?;
        let (summary, stats) = (heap.check()?, heap.stats());
        assert_eq!((summary.types[0].objects, summary.dying), (1, 0));
        assert!(stats.pool_bytes <= stats.max_bytes && stats.unused_bytes < stats.pool_bytes, "{stats:?}");
        assert!(heap.left_behind().is_none());
        Ok(())
    });
}
