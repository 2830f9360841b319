//! Recorded operations.

use std::time::Instant;

/// Nanoseconds since the beginning of a run.
pub(crate) type Time = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// An element at the end of a list.
    Append(u64),
    /// All elements of a list.
    List(Vec<u64>),
    Set(u64),
    Get(Option<u64>),
}

impl Op {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Op::Append(_) | Op::Set(_))
    }

    pub(crate) fn is_of_list(&self) -> bool {
        matches!(self, Op::Append(_) | Op::List(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// WAIT has counted the replicas that were asked for. Of a read: with a write behind it in one EXEC.
    Acknowledged,
    /// The node said that it does not do it.
    Refused,
    /// It may have happened, or may happen later, or not at all.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) client: usize,
    pub(crate) key: String,
    pub(crate) op: Op,
    /// The node that was asked.
    pub(crate) node: usize,
    pub(crate) began: Time,
    /// When the node said that a write is done, before any replica has it.
    pub(crate) answered: Option<Time>,
    pub(crate) ended: Time,
    pub(crate) outcome: Outcome,
}

impl Event {
    /// When it had happened at the latest, if it has happened.
    pub(crate) fn last(&self) -> Time {
        if self.outcome == Outcome::Acknowledged { self.ended } else { Time::MAX }
    }

    /// The values that an acknowledged reading shows.
    pub(crate) fn shown(&self) -> Vec<u64> {
        match &self.op {
            Op::List(found) => found.clone(),
            Op::Get(found) => found.iter().copied().collect(),
            Op::Append(_) | Op::Set(_) => Vec::new(),
        }
    }
}

/// The node that may take writes from a moment on, until the next one may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) node: usize,
    pub(crate) from: Time,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
    /// In the order of time.
    pub(crate) terms: Vec<Term>,
    /// The last reading of each key, acknowledged, when nothing else was under way.
    pub(crate) last: Vec<Event>,
}

impl History {
    /// With the readings at the end.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().chain(&self.last)
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.events.iter().filter(|event| event.outcome == outcome).count()
    }
}

/// The clock of a run.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        self.0.elapsed().as_nanos() as Time
    }
}
