//! Notes of the uses of keys.

use crate::eviction::access::Accesses;

/// Notes that a key is used.
#[inline(always)]
pub(super) fn touch(accesses: &mut Option<Box<Accesses>>, database: usize, key: &[u8]) {
    if let Some(accesses) = accesses {
        accesses.touch(database, key);
    }
}

/// Notes that a key has got a value, and whether clients see a new key in it.
#[inline(always)]
pub(super) fn note_put(
    accesses: &mut Option<Box<Accesses>>,
    (database, key): (usize, &[u8]),
    is_created: bool,
) {
    match accesses {
        Some(accesses) if is_created => accesses.create(database, key),
        accesses => touch(accesses, database, key),
    }
}
