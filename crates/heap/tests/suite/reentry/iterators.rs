//! Iterators over maps that change meanwhile.

use super::{LONG, Maps, MapsPrivateFields, pool, prove};
use tembo_heap::collections::PString;
use tembo_heap::{Heap, Obj, Result, Tx, brand};

brand!(Iterators);

type Change = for<'t> fn(&mut Tx<'t, Iterators>, Obj<'t, Iterators, Maps>) -> Result<()>;

const CHANGES: [(&str, Change); 3] = [
    ("removes", |tx, root| {
        (0..200).try_for_each(|key| {
            root.texts().remove(tx, &key)?;
            root.sorted().remove(tx, &key).map(drop)
        })
    }),
    ("clears", |tx, root| {
        root.texts().clear(tx)?;
        root.sorted().clear(tx)
    }),
    ("inserts", |tx, root| {
        (1000..1700).try_for_each(|key| {
            root.texts().insert(tx, &key, PString::new())?;
            root.sorted().insert(tx, &key, PString::new()).map(drop)
        })
    }),
];

/// An iterator went on where a nested transaction had taken the nodes away, and said that the pool is
/// damaged.
#[test]
fn iterators_end_when_their_map_changes_and_go_on_when_another_does() {
    let pool = pool();
    let heap = Heap::<Iterators, Maps>::open_pool(pool.clone()).unwrap();
    for (name, change) in CHANGES {
        heap.write(|tx, root| {
            root.texts().clear(tx)?;
            root.sorted().clear(tx)?;
            for key in 0..200 {
                root.texts().insert(tx, &key, PString::new())?.set(tx, LONG)?;
                root.sorted().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            }
            Ok(())
        })
        .unwrap();
        for is_hashed in [false, true] {
            an_iterator_ends(&heap, is_hashed, name, change);
        }
        iterators_go_on(&heap);
        prove(&heap, &pool);
    }
}

fn an_iterator_ends(heap: &Heap<Iterators, Maps>, is_hashed: bool, name: &str, change: Change) {
    let ended = heap.write::<()>(|tx, root| {
        let go_on = |i: usize| if i == 3 { heap.write(change) } else { Ok(()) };
        if is_hashed {
            for (i, entry) in root.texts().iter(tx)?.enumerate() {
                entry?.1.get(tx)?;
                go_on(i)?;
            }
        } else {
            for (i, entry) in root.sorted().iter(tx)?.enumerate() {
                entry?.1.get(tx)?;
                go_on(i)?;
            }
        }
        panic!("{name}: it did not end")
    });
    let e = ended.unwrap_err().to_string();
    assert!(e.contains("in the middle of this operation"), "{name}: {e}");
}

/// Another map is changed, and this one's values are.
fn iterators_go_on(heap: &Heap<Iterators, Maps>) {
    heap.write(|tx, root| {
        let mut seen = 0;
        for entry in root.texts().iter(tx)? {
            let key = entry?.0;
            heap.write(|tx, root| {
                root.sorted().insert(tx, &(key + 5000), PString::new())?;
                root.texts().insert(tx, &key, PString::new())?.set(tx, "another")
            })?;
            seen += 1;
        }
        assert_eq!(seen, 200);
        // One that begins after changes does not mind them, whatever comes then.
        assert_eq!(root.sorted().iter(tx)?.count(), 400);
        for entry in root.sorted().iter(tx)? {
            let key = entry?.0;
            heap.write(|tx, root| root.words().insert(tx, &key, key).map(drop))?;
        }
        Ok(())
    })
    .unwrap();
}
