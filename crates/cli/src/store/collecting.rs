//! Giving the space back that nobody needs in the stores of a pool.

use crate::failure::Outcome;
use crate::progress::Progress;
use std::time::{Duration, Instant};
use tembo::Pool;
use tembo::store::Store;

/// Keys that are looked at between two looks at the clock.
const KEYS: usize = 1000;
/// How long a command that writes into a store goes on collecting there.
const DUE_MAX: Duration = Duration::from_millis(50);

/// Collects in a store that a command has changed, for a bounded time.
pub(super) fn collect_due(store: &Store) {
    let begun = Instant::now();
    // The command has done its work; an error of collecting is met again, and reported, by later commands.
    while store.collect(KEYS).unwrap_or(false) && begun.elapsed() < DUE_MAX {}
}

/// Collects everything that nobody needs in the stores of a pool, and frees dropped structures.
pub(crate) fn collect_all(pool: &Pool) -> Outcome {
    let mut progress = Progress::new("collecting", None);
    for name in pool.store_names()? {
        let Some(store) = pool.find_store(&name)? else { continue };
        while store.collect(KEYS)? {
            progress.advance(KEYS as u64);
        }
    }
    while pool.reclaim_dropped(KEYS)? {
        progress.advance(KEYS as u64);
    }
    Ok(())
}
