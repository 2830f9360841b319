//! Time that a thread has spent on a processor.

use rustix::time::{ClockId, clock_gettime};

/// A point in the calling thread's processor time. Other programs in between do not count, so that a busy
/// machine disturbs a measurement only through its caches; a thread that neither sleeps nor waits for a
/// device takes as long on a quiet machine.
#[derive(Debug, Clone, Copy)]
pub struct ThreadTime {
    ns: u64,
}

impl ThreadTime {
    /// Now.
    pub fn now() -> ThreadTime {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        ThreadTime { ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 }
    }

    /// Nanoseconds that the thread has run since.
    pub fn elapsed_ns(self) -> u64 {
        ThreadTime::now().ns - self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleeping_takes_no_processor_time_and_working_does() {
        let start = ThreadTime::now();
        std::thread::sleep(Duration::from_millis(50));
        assert!(start.elapsed_ns() < 40_000_000);
        let mut sum = 0u64;
        while start.elapsed_ns() < 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
