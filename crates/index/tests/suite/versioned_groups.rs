//! Changes of several threads that one of them makes as one version.

use crate::structures::{Structure, check, contents, for_each_structure, new_map};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tembo_index::Error;
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

for_each_structure!(
    changes_that_wait_are_made_together,
    a_panic_is_an_error_for_those_whose_changes_went_along,
);

/// Changes that wait for a writer are one version.
fn changes_that_wait_are_made_together<S: Structure>() {
    let map = new_map::<S>();
    for round in 0..50u64 {
        let start = map.version();
        std::thread::scope(|scope| {
            map.batch(|batch| {
                for thread in 0..6u64 {
                    let map = &map;
                    scope.spawn(move || {
                        assert!(!map.put(&(6 * round + thread).to_be_bytes(), b"value").unwrap())
                    });
                }
                // They may get to the lock while it is held.
                std::thread::sleep(std::time::Duration::from_millis(20));
                batch.put(b"batch", &round.to_be_bytes()).map(drop)
            })
            .unwrap();
        });
        assert_eq!(map.len(), 6 * (round + 1) + 1);
        if map.version() == start + 2 {
            return;
        }
    }
    panic!("six changes that waited at once never became one version");
}

thread_local! {
    static MAY_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Panics in the first of the threads that may which reads the pool.
struct PanicsOnce(AtomicBool);

impl Observer for PanicsOnce {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, _: u64, _: u64) {
        assert!(!MAY_PANIC.get() || self.0.swap(true, Ordering::AcqRel), "a panic in the midst of a group");
    }
}

/// A thread that panicked as it made the changes of others, too, left them waiting for ever.
fn a_panic_is_an_error_for_those_whose_changes_went_along<S: Structure>() {
    const WRITERS: u32 = 6;
    let observer = Arc::new(PanicsOnce(AtomicBool::new(false)));
    let region = Region::simulated(&vec![0; 4 << 20], 1 << 30, Some(observer)).unwrap();
    let map = S::create(&Pool::create_in(region, &Geometry::tiny()).unwrap(), "map");
    let put = |i: u32| {
        MAY_PANIC.set(true);
        map.put(&i.to_be_bytes(), b"value")
    };
    let outcomes = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        map.batch(|_| {
            writers.extend((0..WRITERS).map(|i| scope.spawn(move || put(i))));
            // So that they wait, all of them or most.
            std::thread::sleep(Duration::from_millis(100));
            Ok(())
        })
        .unwrap();
        writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "one panicked");
    let made: Vec<u32> = (0..WRITERS).filter(|i| matches!(outcomes[*i as usize], Ok(Ok(_)))).collect();
    let abandoned = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Err(Error::Abandoned)))).count();
    assert_eq!(made.len() + abandoned + 1, WRITERS as usize, "{outcomes:?}");
    let found = contents(&map.snapshot());
    assert!(found.keys().eq(made.iter().map(|i| i.to_be_bytes().to_vec()).collect::<Vec<_>>().iter()));
    // Whoever was told so can make the change again.
    (0..WRITERS).for_each(|i| _ = put(i).unwrap());
    assert_eq!(map.len(), u64::from(WRITERS));
    check(&map);
}
