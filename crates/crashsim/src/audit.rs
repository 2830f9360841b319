//! The audit of an operation: missing and useless flushes and fences, judged from its trace alone.

use crate::replay::{Flushed, Pending, Replay};
use crate::session::Session;
use crate::trace::{Event, Mark};
use std::ops::Range;
use tembo_pmem::LINE_BYTES;

/// The rules that every operation's trace is held against.
///
/// A crash shows that an order is wrong; these rules also find what a crash happens to forgive, and work
/// done for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    flushed_within: Option<usize>,
    fenced_within: Option<usize>,
    idle_flush: bool,
    idle_fence: bool,
    exempt: Vec<Range<u64>>,
}

impl Audit {
    /// At the end of an operation all its stores are flushed and fenced; no flush finds its line clean, no
    /// fence finds nothing flushed.
    pub fn strict() -> Audit {
        Audit {
            flushed_within: Some(0),
            fenced_within: Some(0),
            idle_flush: true,
            idle_fence: true,
            exempt: Vec::new(),
        }
    }

    /// No rules.
    pub fn off() -> Audit {
        Audit {
            flushed_within: None,
            fenced_within: None,
            idle_flush: false,
            idle_fence: false,
            exempt: Vec::new(),
        }
    }

    /// A store must have been flushed by the end of the `ops`-th operation after the one that made it
    /// (0: by the end of its own); `None` lifts the rule.
    pub fn flushed_within(self, ops: Option<usize>) -> Audit {
        Audit { flushed_within: ops, ..self }
    }

    /// A store must be durable by the end of the `ops`-th operation after the one that made it; `None` lifts
    /// the rule.
    pub fn fenced_within(self, ops: Option<usize>) -> Audit {
        Audit { fenced_within: ops, ..self }
    }

    /// Whether a flush may find nothing to write back.
    pub fn allow_idle_flush(self, allow: bool) -> Audit {
        Audit { idle_flush: !allow, ..self }
    }

    /// Whether a fence may find nothing to wait for.
    pub fn allow_idle_fence(self, allow: bool) -> Audit {
        Audit { idle_fence: !allow, ..self }
    }

    /// Takes byte offsets out of the rules: words on media whose contents mean nothing after a crash.
    pub fn exempt(mut self, range: Range<u64>) -> Audit {
        self.exempt.push(range);
        self
    }

    fn is_exempt(&self, off: u64) -> bool {
        self.exempt.iter().any(|r| r.contains(&off))
    }

    fn is_exempt_line(&self, line: u64) -> bool {
        let bytes = line * LINE_BYTES..(line + 1) * LINE_BYTES;
        self.exempt.iter().any(|r| r.start < bytes.end && bytes.start < r.end)
    }
}

/// Goes through a session; the messages of the broken rules, in order of the events.
pub(crate) fn violations<M>(session: &Session<M>, rules: &Audit) -> Vec<String> {
    let mut auditor = Auditor {
        session,
        rules,
        replay: Replay::new(&session.base, 0, session.capacity_bytes()),
        running: Vec::new(),
        ends: Vec::new(),
        first: None,
        found: Vec::new(),
    };
    for (event, what) in session.trace.iter().enumerate() {
        auditor.event(event, what);
    }
    auditor.found
}

struct Auditor<'a, M> {
    session: &'a Session<M>,
    rules: &'a Audit,
    replay: Replay,
    /// The steps that have begun and not ended, with their threads.
    running: Vec<(u32, usize)>,
    /// The operations that have ended, as thread and event.
    ends: Vec<(u32, usize)>,
    /// The event at which the first operation began.
    first: Option<usize>,
    found: Vec<String>,
}

impl<M> Auditor<'_, M> {
    fn event(&mut self, event: usize, what: &Event) {
        match *what {
            Event::Flush { thread, line } => {
                let flushed = self.replay.flush(event, thread, line);
                if flushed != Flushed::Dirty && self.rules.idle_flush && !self.rules.is_exempt_line(line) {
                    let why = match flushed {
                        Flushed::Again => "was flushed before by this thread, with no store since",
                        _ => "had no store that was not durable",
                    };
                    self.report(thread, || {
                        format!("event {event} flushes line {line:#x} in vain: the line {why}")
                    });
                }
            }
            Event::Fence { thread } => {
                if self.replay.fence(thread) == 0 && self.rules.idle_fence {
                    self.report(thread, || {
                        format!(
                            "event {event} is a fence of a thread that has flushed nothing since its last"
                        )
                    });
                }
            }
            Event::Mark { thread, mark: Mark::Begin(step) } => {
                self.running.push((thread, step));
                if self.session.ops.contains(&step) {
                    self.first.get_or_insert(event);
                }
            }
            Event::Mark { thread, mark: Mark::End(step) } => {
                if self.session.ops.contains(&step) {
                    self.ends.push((thread, event));
                    self.leftovers(thread);
                }
                self.running.retain(|(_, running)| *running != step);
            }
            Event::Store { .. } | Event::Mark { .. } => self.replay.step(event, what),
        }
    }

    /// Adds a message if `thread` is in an operation, whose name it puts first.
    fn report(&mut self, thread: u32, message: impl FnOnce() -> String) {
        let mut running = self.running.iter().rev();
        let step = running.find(|(t, _)| !self.session.shared || *t == thread);
        if let Some((_, step)) = step.filter(|(_, s)| self.session.ops.contains(s)) {
            self.found.push(format!("{}: {}", self.session.names[*step], message()));
        }
    }

    /// Reports stores that should be flushed or durable now that an operation of `thread` has ended.
    fn leftovers(&mut self, thread: u32) {
        let unflushed = self.first_leftover(thread, self.rules.flushed_within, false);
        let undurable = self.first_leftover(thread, self.rules.fenced_within, true);
        if let Some(store) = unflushed {
            self.report(thread, || {
                format!("ended with a store to {:#x} (event {}) that nobody flushed", store.off, store.event)
            });
        } else if let Some(store) = undurable {
            self.report(thread, || {
                let (off, event) = (store.off, store.event);
                format!("ended with a store to {off:#x} (event {event}) that no fence made durable")
            });
        }
    }

    fn first_leftover(&self, thread: u32, within: Option<usize>, even_flushed: bool) -> Option<Pending> {
        let (within, first) = (within?, self.first?);
        let mut ends = self.ends.iter().rev().filter(|(t, _)| !self.session.shared || *t == thread);
        let deadline = ends.nth(within)?.1;
        let overdue = self.replay.not_durable().filter(|(store, flushed)| {
            (even_flushed || !flushed)
                && (first..deadline).contains(&store.event)
                && (!self.session.shared || store.thread == thread)
                && !self.rules.is_exempt(store.off)
        });
        overdue.map(|(store, _)| *store).min_by_key(|store| store.event)
    }
}
