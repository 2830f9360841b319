//! How the event loop waits: it looks again for a few microseconds before it sleeps, if that has lately been
//! enough.
//!
//! A thread that sleeps is woken by the sender, which costs the sender, and the thread, more than a short
//! request does; on a virtual machine, several times more. Under load the next request is there within
//! microseconds. When requests come less often than that, the thread sleeps at once, and an idle server uses
//! no processor.

use std::io;
use std::time::{Duration, Instant};

/// How long to look before sleeping: about as long as sleeping and being woken take.
const LOOK_MAX: Duration = Duration::from_micros(30);
/// A longer wait counts as one of this length, so that a pause is soon forgotten.
const WAIT_COUNTED_MAX: Duration = Duration::from_micros(200);
/// Pauses of the processor between two looks: under a microsecond, in which a sibling thread has the core.
const PAUSES: usize = 16;

#[derive(Debug)]
pub(crate) struct Idle {
    /// Moving average of the last waits.
    typical_wait: Duration,
    /// Whether other threads have a processor while this thread looks.
    can_look: bool,
}

impl Idle {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Idle { typical_wait: WAIT_COUNTED_MAX, can_look: processors > 1 }
    }

    /// Waits, and returns since when. `poll` gets whether it may sleep, and returns whether an event arrived.
    pub(crate) fn wait(&mut self, mut poll: impl FnMut(bool) -> io::Result<bool>) -> io::Result<Instant> {
        let began = Instant::now();
        let mut came = false;
        if self.can_look && self.typical_wait <= LOOK_MAX {
            loop {
                came = poll(false)?;
                if came || began.elapsed() >= LOOK_MAX {
                    break;
                }
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
        }
        if !came {
            poll(true)?;
        }
        self.note(began.elapsed());
        Ok(began)
    }

    fn note(&mut self, wait: Duration) {
        self.typical_wait = (self.typical_wait * 7 + wait.min(WAIT_COUNTED_MAX)) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks_before_sleeping(idle: &mut Idle, comes_at_look: usize) -> usize {
        let mut looks = 0;
        idle.wait(|may_sleep| {
            looks += usize::from(!may_sleep);
            Ok(may_sleep || looks == comes_at_look)
        })
        .unwrap();
        looks
    }

    #[test]
    fn it_looks_only_if_waits_are_short() {
        let mut idle = Idle { can_look: true, ..Idle::new() };
        assert_eq!(looks_before_sleeping(&mut idle, 1), 0, "nothing is known yet");
        (0..100).for_each(|_| idle.note(Duration::from_micros(5)));
        assert_eq!(looks_before_sleeping(&mut idle, 1), 1, "what comes at the first look ends the wait");
        assert!(looks_before_sleeping(&mut idle, usize::MAX) >= 1);
        (0..3).for_each(|_| idle.note(Duration::from_secs(1)));
        assert_eq!(looks_before_sleeping(&mut idle, 1), 0, "a few long waits, and it sleeps");
    }

    #[test]
    fn with_one_processor_it_never_looks() {
        let mut idle = Idle { can_look: false, typical_wait: Duration::ZERO };
        assert_eq!(looks_before_sleeping(&mut idle, 1), 0);
    }
}
