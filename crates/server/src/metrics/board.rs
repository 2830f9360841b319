//! Where the event loop and the endpoint meet.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::Waker;

use super::family::Family;

/// The age up to which figures are answered again. Gathering them costs the event loop about a millisecond.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Whether clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// The pool is being opened.
    Opening,
    /// Clients are served.
    Serving,
    /// Clients are refused until the whole state of a master has arrived.
    Synchronising,
    /// Clients are refused because the master cannot be reached.
    MasterDown,
    /// The server ends.
    Stopping,
}

impl Readiness {
    const ALL: [Readiness; 5] = [
        Readiness::Opening,
        Readiness::Serving,
        Readiness::Synchronising,
        Readiness::MasterDown,
        Readiness::Stopping,
    ];

    /// The text for a probe.
    pub(super) fn text(self) -> &'static str {
        match self {
            Readiness::Opening => "not ready: the pool is being opened\n",
            Readiness::Serving => "ready\n",
            Readiness::Synchronising => {
                "not ready: the master's state is being received, and replica-serve-stale-data is no\n"
            }
            Readiness::MasterDown => {
                "not ready: the link with the master is down, and replica-serve-stale-data is no\n"
            }
            Readiness::Stopping => "not ready: the server is stopping\n",
        }
    }
}

/// The figures that were gathered last.
#[derive(Debug)]
struct Figures {
    families: Arc<Vec<Family>>,
    /// How many were gathered before.
    number: u64,
    gathered: Instant,
}

/// Shared by the event loop and the endpoint.
#[derive(Debug)]
pub(crate) struct Board {
    /// Figures are asked for.
    wanted: AtomicBool,
    figures: Mutex<Figures>,
    readiness: AtomicU8,
    /// The time when the loop last began a turn, in milliseconds since `began`; 0: it has not begun.
    beat_ms: AtomicU64,
    began: Instant,
    pub(super) stuck_after: Duration,
    /// Wakes the endpoint.
    waker: Waker,
    has_to_stop: AtomicBool,
}

impl Board {
    pub(super) fn new(waker: Waker, stuck_after: Duration) -> Self {
        Board {
            wanted: AtomicBool::new(false),
            figures: Mutex::new(Figures { families: Arc::default(), number: 0, gathered: Instant::now() }),
            readiness: AtomicU8::new(Readiness::Opening as u8),
            beat_ms: AtomicU64::new(0),
            began: Instant::now(),
            stuck_after,
            waker,
            has_to_stop: AtomicBool::new(false),
        }
    }

    /// Notes that the loop begins a turn, or makes progress in one.
    pub(crate) fn beat(&self, readiness: Readiness) {
        self.beat_ms.store(self.began.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        self.note(readiness);
    }

    pub(crate) fn note(&self, readiness: Readiness) {
        self.readiness.store(readiness as u8, Ordering::Relaxed);
    }

    pub(super) fn readiness(&self) -> Readiness {
        Readiness::ALL[usize::from(self.readiness.load(Ordering::Relaxed))]
    }

    /// The time since the loop last began a turn, or showed progress in a long one. 0 before the loop begins,
    /// since opening a pool that must be checked may take any time.
    pub(super) fn silence(&self) -> Duration {
        match self.beat_ms.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            ms => self.began.elapsed().saturating_sub(Duration::from_millis(ms)),
        }
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Asks the loop for figures.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, families: Vec<Family>) {
        {
            let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
            figures.families = Arc::new(families);
            figures.number += 1;
            figures.gathered = Instant::now();
            self.wanted.store(false, Ordering::Relaxed);
        }
        // Without the wake-up the endpoint looks again soon.
        let _ = self.waker.wake();
    }

    /// The latest figures, and how many were published.
    pub(super) fn figures(&self) -> (Arc<Vec<Family>>, u64) {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        (figures.families.clone(), figures.number)
    }

    /// Whether the latest figures are new enough for everybody.
    pub(super) fn is_fresh(&self) -> bool {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.number > 0 && figures.gathered.elapsed() < FRESH_FOR
    }

    pub(super) fn stop(&self) {
        self.has_to_stop.store(true, Ordering::Relaxed);
        let _ = self.waker.wake();
    }

    pub(super) fn has_to_stop(&self) -> bool {
        self.has_to_stop.load(Ordering::Relaxed)
    }
}
