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
