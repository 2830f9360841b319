//! Help for tests.

use std::sync::Mutex;
use std::thread;

/// Calls `work` with each of the items, in two threads; returns what it did not return `None` for.
pub(crate) fn in_threads<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> Option<R> + Sync) -> Vec<R> {
    let (items, found) = (Mutex::new(items.into_iter()), Mutex::new(Vec::new()));
    let next = || items.lock().unwrap().next();
    let work_off = || {
        while let Some(item) = next() {
            let outcome = work(item);
            found.lock().unwrap().extend(outcome);
        }
    };
    thread::scope(|threads| {
        threads.spawn(work_off);
        work_off();
    });
    found.into_inner().unwrap()
}

/// Random numbers from a seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % bound
    }
}
