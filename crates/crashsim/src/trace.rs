//! The trace of a program's accesses to persistent memory: the events, and the observer that records them.

use crate::schedule::Schedule;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tembo_pmem::{Observer, ThreadTag};

/// A recorded event. Threads are numbered from 0 in the order in which they first appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A store of `bytes` (at most 8, inside one aligned word) at byte offset `off`.
    Store {
        /// The thread that stored.
        thread: u32,
        /// Byte offset in the region.
        off: u64,
        /// How many bytes of `new` were stored.
        bytes: u8,
        /// The new bytes; the rest is zero.
        new: [u8; 8],
    },
    /// The write-back of a line was started.
    Flush {
        /// The thread that flushed.
        thread: u32,
        /// Byte offset / 64.
        line: u64,
    },
    /// A thread waited for the write-backs that it had started.
    Fence {
        /// The thread that waited.
        thread: u32,
    },
    /// Not an event of the memory: where a step of the recorded session begins or ends.
    Mark {
        /// The thread that runs the step.
        thread: u32,
        /// Which boundary.
        mark: Mark,
    },
}

/// A boundary in a trace. Steps are numbered by the session that recorded them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The step was called.
    Begin(usize),
    /// The step returned: it is acknowledged, and its effects are durable from here on.
    End(usize),
    /// A reader saw the effects of the step, so they have to be durable from here on.
    Seen(usize),
}

impl Event {
    /// A store event of at most 8 bytes.
    pub(crate) fn store(thread: u32, off: u64, data: &[u8]) -> Event {
        let mut new = [0; 8];
        new[..data.len()].copy_from_slice(data);
        Event::Store { thread, off, bytes: data.len() as u8, new }
    }

    /// The thread that caused the event.
    pub fn thread(&self) -> u32 {
        match *self {
            Event::Store { thread, .. }
            | Event::Flush { thread, .. }
            | Event::Fence { thread }
            | Event::Mark { thread, .. } => thread,
        }
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Event::Store { thread, off, bytes, .. } => {
                write!(f, "store of {bytes} bytes at {off:#x} by t{thread}")
            }
            Event::Flush { thread, line } => write!(f, "flush of line {line:#x} by t{thread}"),
            Event::Fence { thread } => write!(f, "fence by t{thread}"),
            Event::Mark { mark: Mark::Begin(step), .. } => write!(f, "begin of step {step}"),
            Event::Mark { mark: Mark::End(step), .. } => write!(f, "end of step {step}"),
            Event::Mark { mark: Mark::Seen(step), .. } => write!(f, "effects of step {step} read"),
        }
    }
}

thread_local! {
    /// Whether the next store of this thread is the second half of an atomic update. The scheduler has had
    /// its turn at the update's beginning, so the store is no further scheduling point.
    static IN_UPDATE: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    tags: Vec<ThreadTag>,
}

impl Log {
    fn thread(&mut self, tag: ThreadTag) -> u32 {
        let known = self.tags.iter().position(|t| *t == tag);
        known.unwrap_or_else(|| {
            self.tags.push(tag);
            self.tags.len() - 1
        }) as u32
    }
}

/// Records the events of a simulated region, in one order over all threads.
///
/// With a [`Schedule`], the recorder also decides which thread goes on at each event; the order of the
/// trace is then the order in which the stores are performed.
pub struct Recorder {
    log: Mutex<Log>,
    schedule: Option<Arc<Schedule>>,
}

impl Recorder {
    /// An empty recorder that lets threads run as they like.
    ///
    /// Two threads that store to the same line at the same time may then be recorded in another order than
    /// the memory saw; give threads that share lines a [`Schedule`].
    pub fn new() -> Arc<Recorder> {
        Arc::new(Recorder { log: Mutex::default(), schedule: None })
    }

    /// An empty recorder under which `schedule` decides which thread runs between two events.
    pub fn scheduled(schedule: Arc<Schedule>) -> Arc<Recorder> {
        Arc::new(Recorder { log: Mutex::default(), schedule: Some(schedule) })
    }

    /// Notes a boundary at this place of the trace.
    pub fn mark(&self, mark: Mark) {
        let tag = ThreadTag::current();
        self.turn(tag);
        let mut log = self.log();
        let thread = log.thread(tag);
        log.events.push(Event::Mark { thread, mark });
    }

    /// The events so far. The recorder starts again, empty.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.log().events)
    }

    fn turn(&self, tag: ThreadTag) {
        if let Some(schedule) = &self.schedule {
            schedule.turn(tag);
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn update(&self, tag: ThreadTag) {
        self.turn(tag);
        IN_UPDATE.set(true);
    }

    fn store(&self, tag: ThreadTag, off: u64, new: &[u8]) {
        if !IN_UPDATE.replace(false) {
            self.turn(tag);
        }
        let mut log = self.log();
        let thread = log.thread(tag);
        log.events.push(Event::store(thread, off, new));
    }

    fn flush(&self, tag: ThreadTag, line: u64) {
        self.turn(tag);
        let mut log = self.log();
        let thread = log.thread(tag);
        log.events.push(Event::Flush { thread, line });
    }

    fn fence(&self, tag: ThreadTag) {
        self.turn(tag);
        let mut log = self.log();
        let thread = log.thread(tag);
        log.events.push(Event::Fence { thread });
    }
}
