//! Locks of keys in memory, for commits on several lanes at once.
//!
//! A key's lock follows from the hash of its keyspace and itself; several keys share one. A commit takes the
//! locks of all its keys in ascending order, so there is no deadlock, and keeps them until it has returned.

use crate::read_write_sets::Change;
use smallvec::SmallVec;
use std::sync::OnceLock;
use tembo_sync::{SpinLock, hash_u64, hash_u64_to_bits};

const STRIPES_BITS: u32 = 10;

/// The locks of a store's keys; made when the first commit needs them.
#[derive(Default)]
pub(crate) struct KeyLocks(OnceLock<Box<[Stripe]>>);

/// A lock in a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Stripe(SpinLock);

/// The locks of the keys of a commit.
pub(crate) struct KeysHeld<'l> {
    stripes: &'l [Stripe],
    held: SmallVec<[u32; 8]>,
}

impl KeyLocks {
    /// Waits for the locks of all keys.
    #[inline]
    pub(crate) fn lock(&self, changes: &[Change<'_>]) -> KeysHeld<'_> {
        let stripes = self.0.get_or_init(|| (0..1 << STRIPES_BITS).map(|_| Stripe::default()).collect());
        let mut held: SmallVec<[u32; 8]> =
            changes.iter().map(|change| stripe(change.keyspace.inner.id, change.key)).collect();
        held.sort_unstable();
        held.dedup();
        held.iter().for_each(|at| stripes[*at as usize].0.acquire());
        KeysHeld { stripes, held }
    }
}

impl Drop for KeysHeld<'_> {
    #[inline]
    fn drop(&mut self) {
        self.held.iter().for_each(|at| self.stripes[*at as usize].0.release());
    }
}

fn stripe(keyspace: u64, key: &[u8]) -> u32 {
    let mut hash = hash_u64(keyspace ^ (key.len() as u64) << 32);
    let (words, rest) = key.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        hash = hash_u64(hash.rotate_left(29) ^ u64::from_le_bytes(*word));
    }
    hash_u64_to_bits(hash, STRIPES_BITS) as u32
}
