//! Running a transaction again as long as it conflicts.

use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// The number of attempts, and the longest pause between two.
const ATTEMPTS_MAX: u32 = 1000;
const BACK_OFF_MAX: Duration = Duration::from_millis(5);

/// Runs a transaction, which returns its value and the outcome of its commit, until it does not conflict.
pub(crate) fn retry<T>(mut run: impl FnMut() -> Result<(T, Result<u64>)>) -> Result<(T, u64)> {
    let start = Instant::now();
    for attempt in 1.. {
        let (value, outcome) = run()?;
        match outcome {
            Ok(number) => return Ok((value, number)),
            Err(e) if e.is_conflict() && attempt < ATTEMPTS_MAX => pause(attempt),
            Err(e) if e.is_conflict() => {
                return Err(Error::Contended {
                    attempts: attempt,
                    within: start.elapsed(),
                    last: Box::new(e),
                });
            }
            Err(e) => return Err(e),
        }
    }
    unreachable!("the last attempt returns")
}

/// Waits before the next attempt: not at all at first, then up to 5 ms.
fn pause(attempt: u32) {
    if attempt < 4 {
        return std::thread::yield_now();
    }
    // Threads that conflicted with each other do not wait for the same time.
    let spread = tembo_sync::thread_number() as u32 % 7 + 1;
    let time = Duration::from_micros(u64::from(spread) << attempt.min(12));
    std::thread::sleep(time.min(BACK_OFF_MAX));
}
