//! Migrations in pools without room for them.

use super::versions::{v1, v2};
use super::{Place, versions};
use tembo_heap::{Error, Heap};

const BYTES: u64 = 1 << 20;
/// The pool may be larger by this much each time that the migration is run again.
const MORE_BYTES: u64 = 64 << 10;

fn is_full(e: &Error) -> bool {
    let text = e.to_string();
    text.contains("the pool is full") && text.contains("allow it to grow")
}

/// A heap of the first version without room for anybody else.
fn full_place() -> Place {
    let mut place = Place::new();
    place.options = place.options.clone().initial_bytes(BYTES).max_bytes(BYTES);
    let filled = Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, u32::MAX)).unwrap_err();
    assert!(is_full(&filled), "{filled}");
    place
}

/// A migration that finds no room is refused and has lost nothing. It goes on as soon as the pool may grow.
#[test]
fn a_migration_in_a_full_pool_is_refused_and_goes_on_when_there_is_room() {
    let mut place = full_place();
    let (old, objects) = (v1::read(place.pool()).unwrap(), place.prove());
    assert!(old.people.len() > 100, "{}", old.people.len());
    let (mut refusals, mut begun) = (0, 0);
    while let Err(refused) = versions::to_v2().run(&place.path, &place.options) {
        assert!(is_full(&refused), "{refused}");
        refusals += 1;
        // The heap is as it was, or half migrated, and nobody takes that for a whole one.
        match v1::read(place.pool()) {
            Ok(seen) => assert_eq!(seen, old),
            Err(unread) => {
                begun += 1;
                assert!(unread.contains("interrupted"), "{unread}");
                let unread = v2::read(place.pool()).unwrap_err();
                assert!(unread.contains("interrupted"), "{unread}");
            }
        }
        place.summary();
        place.options = place.options.clone().max_bytes(BYTES + refusals * MORE_BYTES);
        assert!(refusals < 100, "no room is enough");
    }
    assert!(refusals > 3 && begun > 3, "{begun} of {refusals} had begun");
    assert_eq!(v2::read(place.pool()).unwrap(), old);
    let count = |objects: &[(String, u64)], name: &str| {
        objects.iter().find(|(known, _)| known == name).map(|(_, n)| *n)
    };
    assert_eq!(count(&place.prove(), "Person"), count(&objects, "Person"));
}

/// Pointers are led to new objects, and old objects freed, in steps as small as the room that is left: the
/// making of new objects may be refused, and nothing after it.
#[test]
fn a_migration_needs_no_more_room_than_its_new_objects() {
    const STEP_BYTES: u64 = 4 << 10;
    let mut place = full_place();
    let image = std::fs::read(&place.path).unwrap();
    let mut run = |max_bytes: u64| {
        std::fs::write(&place.path, &image).unwrap();
        place.options = place.options.clone().max_bytes(max_bytes);
        let outcome = versions::to_v2().run(&place.path, &place.options);
        (outcome, place.summary().moved)
    };
    let (mut too_few, mut enough) = (BYTES, 8 * BYTES);
    let made = run(enough).0.unwrap();
    while enough - too_few > STEP_BYTES {
        let middle = (too_few + enough) / 2;
        match run(middle) {
            (Ok(_), moved) => {
                assert_eq!(moved, 0);
                enough = middle;
            }
            (Err(refused), moved) => {
                assert!(is_full(&refused), "{refused}");
                assert!(moved < made, "all {made} new objects are there: {refused}");
                too_few = middle;
            }
        }
    }
    assert!(too_few > BYTES, "{enough} bytes are enough, so that nothing was refused");
}
