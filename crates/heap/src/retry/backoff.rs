//! The wait between two attempts.

use std::time::{Duration, Instant};
use tembo_sync::hash_u64;

/// The wait of a transaction after a conflict.
pub(super) struct Backoff {
    attempts: u32,
    random: u64,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        // One of two conflicting threads should wait longer; the addresses of their stacks differ.
        let here = 0_u8;
        let random = hash_u64(&raw const here as u64) | 1;
        Backoff { attempts: 0, random }
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    #[cold]
    pub(super) fn wait(&mut self) {
        self.attempts += 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = 1_u64 << self.attempts.min(14);
        let spins = self.random % most;
        if self.attempts <= 4 {
            (0..spins).for_each(|_| std::hint::spin_loop());
            return;
        }
        let until = Instant::now() + Duration::from_nanos(spins * 20);
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }
}
