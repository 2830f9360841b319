//! Closures that make values and change the map meanwhile.

use super::{LONG, Maps, MapsPrivateFields, pool, prove};
use std::collections::BTreeSet;
use tembo_heap::collections::PString;
use tembo_heap::{Heap, Result, brand};

brand!(Closures);

fn fill(heap: &Heap<Closures, Maps>, from: u64, to: u64) {
    heap.write(|tx, root| {
        for key in from..to {
            root.words().insert(tx, &key, key)?;
            root.texts().insert(tx, &key, PString::new())?.set(tx, LONG)?;
            root.sorted().insert(tx, &key, PString::new())?.set(tx, LONG)?;
        }
        Ok(())
    })
    .unwrap();
}

fn clear(heap: &Heap<Closures, Maps>) {
    heap.write(|tx, root| {
        root.words().clear(tx)?;
        root.texts().clear(tx)?;
        root.sorted().clear(tx)
    })
    .unwrap();
}

/// A closure that changes the maps when it is asked for a value.
#[derive(Debug, Clone, Copy)]
struct Closure {
    /// The keys that are there before: as many, from 0.
    before: u64,
    /// How many it inserts, from 10,000.
    more: u64,
    /// Whether the key that is looked for is among these.
    same: bool,
    /// Whether it removes all first.
    clears: bool,
}

impl Closure {
    fn key(self) -> u64 {
        if self.same { 10_000 } else { 1_000_000 }
    }

    fn call(self, heap: &Heap<Closures, Maps>) {
        if self.clears {
            clear(heap);
        }
        fill(heap, 10_000, 10_000 + self.more);
    }

    /// Gets the key's value of each map, or else lets the closure make one.
    fn get_or_insert(self, heap: &Heap<Closures, Maps>) {
        heap.write(|tx, root| {
            let place = root.words().get_or_insert_with(tx, &self.key(), || {
                self.call(heap);
                7
            })?;
            assert_eq!(tx.get(place)?, 7);
            Ok(())
        })
        .unwrap();
        let text = || {
            self.call(heap);
            PString::new()
        };
        heap.write(|tx, root| {
            root.texts().get_or_insert_with(tx, &self.key(), text)?.set(tx, "made")?;
            Ok(())
        })
        .unwrap();
        heap.write(|tx, root| root.sorted().get_or_insert_with(tx, &self.key(), text)?.set(tx, "made"))
            .unwrap();
    }

    /// The keys of the map whose closure ran last.
    fn expected(self) -> BTreeSet<u64> {
        let mut expected: BTreeSet<u64> = (10_000..10_000 + self.more).collect();
        if !self.clears {
            expected.extend(0..self.before);
        }
        expected.insert(self.key());
        expected
    }

    /// Each key is there once, and those that have to be there are.
    fn compare(self, heap: &Heap<Closures, Maps>) {
        let expected = self.expected();
        heap.read(|tx, root| {
            let found: Vec<u64> = root.sorted().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(found, expected.iter().copied().collect::<Vec<_>>(), "{self:?}");
            let texts: Vec<u64> = root.texts().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(texts.len(), texts.iter().collect::<BTreeSet<_>>().len(), "{self:?}");
            assert_eq!(root.texts().len(tx)?, texts.len(), "{self:?}");
            let words: Vec<u64> = root.words().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            assert_eq!(words.len(), words.iter().collect::<BTreeSet<_>>().len(), "{self:?}");
            assert_eq!(root.words().len(tx)?, words.len(), "{self:?}");
            for key in &expected {
                assert!(root.sorted().contains(tx, key)?, "{self:?}: {key}");
            }
            if !self.clears {
                for key in &expected {
                    assert!(root.texts().contains(tx, key)?, "{self:?}: {key}");
                    assert!(root.words().contains(tx, key)?, "{self:?}: {key}");
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

/// A closure that fills the map was overtaken by what had been read before it ran: a table that was not the
/// map's any more was written to, entries were lost where there had been none, and the same key was there
/// twice.
#[test]
fn closures_that_make_values_may_change_the_map() {
    for before in [0_u64, 3, 5, 40, 90, 400] {
        for (more, same, clears) in
            [(1, true, false), (0, false, true), (5, false, false), (600, true, false), (600, false, true)]
        {
            let closure = Closure { before, more, same, clears };
            let pool = pool();
            let heap = Heap::<Closures, Maps>::open_pool(pool.clone()).unwrap();
            fill(&heap, 0, before);
            closure.get_or_insert(&heap);
            closure.compare(&heap);
            prove(&heap, &pool);
        }
    }
}
