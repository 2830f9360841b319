//! Migrations in pools without room for them.

use super::versions::{v1, v2};
use super::{Place, versions};
use tembo_heap::Heap;

const BYTES: u64 = 1 << 20;
/// By so much the pool may be larger each time that the migration is run again.
const MORE_BYTES: u64 = 64 << 10;

/// A migration that finds no room is refused and has lost nothing. It goes on where it was as soon as the pool may grow.
#[test]
fn a_migration_in_a_full_pool_is_refused_and_goes_on_when_there_is_room() {
    let mut place = Place::new();
    place.options = place.options.clone().initial_bytes(BYTES).max_bytes(BYTES);
    let is_full = |text: &str| text.contains("the pool is full") && text.contains("allow it to grow");
    let filled = Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, u32::MAX)).unwrap_err();
    assert!(is_full(&filled.to_string()), "{filled}");
    let (old, objects) = (v1::read(place.pool()).unwrap(), place.prove());
    assert!(old.people.len() > 100, "{}", old.people.len());
    let (mut refusals, mut begun) = (0, 0);
    while let Err(refused) = versions::to_v2().run(&place.path, &place.options) {
        assert!(is_full(&refused.to_string()), "{refused}");
        refusals += 1;
        // It is as it was, or half migrated, and nobody takes that for a whole one. All pointers and blocks are accounted for.
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
