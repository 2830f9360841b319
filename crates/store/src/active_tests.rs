//! Which snapshots are needed, by one thread. `tests/model.rs` has several.

use crate::active::{Active, Slot};
use crate::primitives::SLOTS;

#[test]
fn a_version_is_needed_while_a_snapshot_lies_between_it_and_the_next() {
    let active = Active::new(10, 1, [3]);
    let slot = active.register(6);
    let needed = active.needed();
    let has = |number, next| needed.has(number, next);
    assert!(has(3, 4) && has(1, 4) && has(5, 7) && has(6, 7) && has(9, 11) && has(10, 11));
    assert!(!has(1, 3) && !has(4, 6) && !has(7, 10) && !has(7, 8));
    assert!(has(11, 12), "whatever comes later may be read");
    assert_eq!((needed.first(), needed.first_read()), (3, 6));
    active.release(slot, 6);
    active.forget(3);
    assert!(!active.needed().has(6, 7) && !active.needed().has(3, 4));
}

#[test]
fn the_oldest_snapshots_are_revoked_and_kept_ones_are_not() {
    let active = Active::new(10, 1, [3]);
    let slots = [3, 4, 6].map(|number| active.register(number));
    assert_eq!(active.needed().first_read(), 3);
    assert!(active.revoke_oldest() && !active.is_revoked(3), "it is kept");
    assert_eq!(active.needed().first_read(), 4);
    assert!(active.revoke_oldest() && active.is_revoked(4) && !active.is_revoked(6));
    assert!(!active.needed().is_among(4) && active.needed().is_among(3));
    active.raise_floor(100);
    assert!(active.is_revoked(6) && !active.is_revoked(10), "the current one stays");
    assert!(!active.revoke_oldest());
    active.forget(3);
    assert!(active.is_revoked(3));
    slots.iter().zip([3, 4, 6]).for_each(|(slot, number)| active.release(*slot, number));
}

#[test]
fn more_snapshots_than_slots_are_registered_all_the_same() {
    let active = Active::new(1000, 1, []);
    let slots: Vec<Slot> = (0..SLOTS as u64 + 3).map(|number| active.register(number)).collect();
    assert_eq!(slots.iter().filter(|slot| **slot == Slot::InMore).count(), 3);
    assert_eq!(active.needed().numbers().len(), SLOTS + 4);
    slots.iter().zip(0..).for_each(|(slot, number)| active.release(*slot, number));
    assert_eq!(active.needed().numbers(), [1000]);
}
