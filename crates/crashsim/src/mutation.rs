//! Bug classes, seeded into a recorded trace: is the simulator able to notice them?

use crate::session::Session;
use crate::trace::Event;
use std::collections::HashSet;
use std::ops::Range;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

/// A class of bugs in the use of stores, flushes and fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutation {
    /// A line is not flushed.
    DropFlush,
    /// The flush is aimed at the next line.
    ShiftFlush,
    /// The flush of a range of several lines leaves out the last.
    ShortenFlush,
    /// The flush comes after the fence that should have covered it.
    DelayFlush,
    /// A fence is missing.
    DropFence,
    /// The fence is executed by another thread than the one that flushed.
    ForeignFence,
    /// The first store after a fence, a commit flag perhaps, is performed before it.
    HoistStore,
    /// A word is stored as two halves.
    TearStore,
    /// Two neighbouring stores to different words of a line are performed in the other order.
    SwapStores,
}

impl Mutation {
    /// Every class.
    pub const ALL: [Mutation; 9] = [
        Mutation::DropFlush,
        Mutation::ShiftFlush,
        Mutation::ShortenFlush,
        Mutation::DelayFlush,
        Mutation::DropFence,
        Mutation::ForeignFence,
        Mutation::HoistStore,
        Mutation::TearStore,
        Mutation::SwapStores,
    ];

    /// The classes each of whose instances hurts code that flushes and fences nothing in vain. Of the others,
    /// instances may be harmless: data that nothing refers to yet may be torn.
    pub const ALWAYS_HARMFUL: [Mutation; 6] = [
        Mutation::DropFlush,
        Mutation::ShiftFlush,
        Mutation::ShortenFlush,
        Mutation::DelayFlush,
        Mutation::DropFence,
        Mutation::ForeignFence,
    ];
}

/// Whose trace is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The trace of the operations.
    Operations,
    /// The trace of a recovery after a crash.
    Recovery,
}

/// One instance of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) mutation: Mutation,
    pub(crate) target: Target,
    /// Which of the places where the class applies, in order of the trace.
    pub(crate) place: usize,
}

/// A changed trace.
pub(crate) struct Mutated {
    pub(crate) trace: Vec<Event>,
    /// The first event that is not as it was.
    pub(crate) event: usize,
    /// The event that was aimed at, for reports.
    pub(crate) what: String,
}

/// The thread of a fence that was taken from its own thread: no thread that runs.
const NOBODY: u32 = u32::MAX;

impl Mutation {
    /// How many places the class has among the events of `range`.
    pub(crate) fn count<M>(self, session: &Session<M>, range: Range<usize>) -> usize {
        places(self, session, range).len()
    }
}

impl Mutant {
    /// Applies to the events of `range`; `None` when the class has fewer places there.
    pub(crate) fn apply<M>(&self, session: &Session<M>, range: Range<usize>) -> Option<Mutated> {
        let events = &session.trace;
        let event = *places(self.mutation, session, range).get(self.place)?;
        let mut trace = events.clone();
        let mut first = event;
        match self.mutation {
            Mutation::DropFlush | Mutation::ShortenFlush | Mutation::DropFence => {
                trace.remove(event);
            }
            Mutation::ShiftFlush => {
                if let Event::Flush { line, .. } = &mut trace[event] {
                    *line += 1;
                }
            }
            Mutation::ForeignFence => trace[event] = Event::Fence { thread: NOBODY },
            Mutation::DelayFlush => {
                let flush = trace.remove(event);
                let fence = next_of_thread(&trace, event, flush.thread(), is_fence)?;
                trace.insert(fence + 1, flush);
            }
            Mutation::HoistStore => {
                let store = trace.remove(event);
                first = previous_fence(&trace, event, store.thread())?;
                trace.insert(first, store);
            }
            Mutation::TearStore => {
                if let Event::Store { thread, off, new, .. } = trace[event] {
                    trace[event] = Event::store(thread, off, &new[..4]);
                    trace.insert(event + 1, Event::store(thread, off + 4, &new[4..]));
                }
            }
            Mutation::SwapStores => {
                let other = next_of_thread(&trace, event + 1, trace[event].thread(), |_| true)?;
                trace.swap(event, other);
            }
        }
        Some(Mutated { trace, event: first, what: format!("event {event} ({})", events[event]) })
    }
}

fn is_fence(event: &Event) -> bool {
    matches!(event, Event::Fence { .. })
}

/// The first event of `thread` from `from` on that `wanted` accepts.
fn next_of_thread(
    trace: &[Event],
    from: usize,
    thread: u32,
    wanted: impl Fn(&Event) -> bool,
) -> Option<usize> {
    let found = trace[from..].iter().position(|e| e.thread() == thread && wanted(e));
    found.map(|i| from + i)
}

/// The last fence of `thread` before `before`, if no boundary of a step lies between.
fn previous_fence(trace: &[Event], before: usize, thread: u32) -> Option<usize> {
    let mut mine = trace[..before].iter().enumerate().rev().filter(|(_, e)| e.thread() == thread);
    let found = mine.find(|(_, e)| matches!(e, Event::Fence { .. } | Event::Mark { .. }));
    found.filter(|(_, e)| is_fence(e)).map(|(i, _)| i)
}

/// Where in the trace a class applies: indices of events in `range`. Places at which a change could not make
/// a difference, since the stores in question write what was there before, are left out.
fn places<M>(mutation: Mutation, session: &Session<M>, range: Range<usize>) -> Vec<usize> {
    let trace = &session.trace[..range.end];
    let effects = effects(session, range.end);
    let changes = |i: usize| effects[i] != Effect::None;
    let next_of = |i: usize| next_of_thread(trace, i + 1, trace[i].thread(), |_| true);
    let previous_of = |i: usize| (0..i).rev().find(|p| trace[*p].thread() == trace[i].thread());
    let applies = |i: &usize| {
        let i = *i;
        match (mutation, trace[i]) {
            (Mutation::DropFlush | Mutation::ShiftFlush, Event::Flush { .. }) => changes(i),
            (Mutation::DelayFlush, Event::Flush { thread, .. }) => {
                changes(i) && next_of_thread(trace, i + 1, thread, is_fence).is_some()
            }
            (Mutation::ShortenFlush, Event::Flush { thread, line }) => {
                let flushes = |at: Option<usize>, wanted: Option<u64>| {
                    at.zip(wanted).is_some_and(|(at, line)| trace[at] == Event::Flush { thread, line })
                };
                let ends_run = !flushes(next_of(i), Some(line + 1));
                changes(i) && flushes(previous_of(i), line.checked_sub(1)) && ends_run
            }
            (Mutation::DropFence | Mutation::ForeignFence, Event::Fence { .. }) => true,
            (Mutation::HoistStore, Event::Store { .. }) => {
                changes(i) && previous_of(i).is_some_and(|p| is_fence(&trace[p]))
            }
            (Mutation::TearStore, Event::Store { .. }) => effects[i] == Effect::BothHalves,
            (Mutation::SwapStores, Event::Store { off, .. }) => {
                let other = next_of(i).filter(|n| changes(i) && changes(*n));
                matches!(other.map(|n| trace[n]), Some(Event::Store { off: other, .. })
                    if off / LINE_BYTES == other / LINE_BYTES && off / WORD_BYTES != other / WORD_BYTES)
            }
            _ => false,
        }
    };
    range.filter(applies).collect()
}

/// The effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// No effect: a store of the value that the word had, or a flush of a line with nothing but such stores.
    None,
    Some,
    /// Both halves of a word.
    BothHalves,
}

/// The effects of the events before `end`.
fn effects<M>(session: &Session<M>, end: usize) -> Vec<Effect> {
    let mut memory = session.base.clone();
    let mut changed_lines = HashSet::new();
    let effect = |event: &Event| match *event {
        Event::Store { off, bytes, ref new, .. } => {
            let effect = store(&mut memory, off as usize, &new[..bytes as usize]);
            if effect != Effect::None {
                changed_lines.insert(off / LINE_BYTES);
            }
            effect
        }
        Event::Flush { line, .. } if changed_lines.remove(&line) => Effect::Some,
        _ => Effect::None,
    };
    session.trace[..end].iter().map(effect).collect()
}

fn store(memory: &mut Vec<u8>, at: usize, new: &[u8]) -> Effect {
    memory.resize(memory.len().max(at + new.len()), 0);
    let old = &mut memory[at..at + new.len()];
    let (lower, upper) = new.split_at(new.len() / 2);
    let changed = (*lower != old[..lower.len()], *upper != old[lower.len()..]);
    old.copy_from_slice(new);
    match changed {
        (true, true) if new.len() as u64 == WORD_BYTES => Effect::BothHalves,
        (false, false) => Effect::None,
        _ => Effect::Some,
    }
}
