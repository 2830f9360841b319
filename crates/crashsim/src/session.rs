//! A recorded run, divided into phases that say what a crash in them may leave.

use crate::rng::combine;
use crate::scenario::Scenario;
use crate::trace::{Event, Mark};
use std::ops::Range;
use std::sync::Arc;

/// A state that a crash may leave, and how to go on from it.
#[derive(Debug)]
pub(crate) struct Allowed<M> {
    pub(crate) model: Arc<M>,
    /// Indices of the operations with which to go on.
    pub(crate) next: Vec<usize>,
    /// The phase's name in reports: `before`, `after`.
    pub(crate) what: &'static str,
}

impl<M> Clone for Allowed<M> {
    fn clone(&self) -> Self {
        Allowed { model: Arc::clone(&self.model), next: self.next.clone(), what: self.what }
    }
}

impl<M> Allowed<M> {
    /// The intermediate states that a crash inside the next operation, `op`, may leave. The program then
    /// repeats `op`.
    pub(crate) fn between<S: Scenario<Model = M>>(
        &self,
        scenario: &S,
        op: &S::Op,
    ) -> impl Iterator<Item = Allowed<M>> {
        let (states, next) = (scenario.between(&self.model, op), self.next.clone());
        states.into_iter().map(move |model| Allowed {
            model: Arc::new(model),
            next: next.clone(),
            what: "in between",
        })
    }
}

/// A stretch of a trace in which crashes may leave the same states.
pub(crate) struct Phase<M> {
    /// Index of the first event after which this phase holds.
    pub(crate) start: usize,
    /// Its first event is a boundary at which the durability of something was promised.
    pub(crate) promises: bool,
    pub(crate) allowed: Arc<[Allowed<M>]>,
    /// The length of the region.
    pub(crate) region_bytes: u64,
    /// Equal for phases in which an image is judged alike.
    pub(crate) key: u64,
    /// A description of the present work, for reports.
    pub(crate) what: String,
    /// Whether crashes here are of interest.
    pub(crate) tested: bool,
    /// Whether the component may not exist yet.
    pub(crate) uncreated: bool,
}

/// A part of a sequential run: creation, recovery, an operation.
pub(crate) struct Step<M> {
    pub(crate) what: String,
    pub(crate) during: Arc<[Allowed<M>]>,
    pub(crate) after: Arc<[Allowed<M>]>,
    pub(crate) during_key: u64,
    pub(crate) after_key: u64,
    /// The region's length during the step, and after it.
    pub(crate) during_bytes: u64,
    pub(crate) after_bytes: u64,
    pub(crate) tested: bool,
    pub(crate) uncreated: bool,
}

/// A recording, with the states that crashes in it may leave.
pub(crate) struct Session<M> {
    /// The durable contents when the recording began.
    pub(crate) base: Vec<u8>,
    /// The hash of `base`, by which images of different sessions are compared.
    pub(crate) base_hash: u64,
    pub(crate) trace: Vec<Event>,
    /// One per mark, in order.
    pub(crate) phases: Vec<Phase<M>>,
    /// The names of the steps, by their numbers in marks.
    pub(crate) names: Vec<String>,
    /// The steps that are operations of the scenario.
    pub(crate) ops: Range<usize>,
    /// Whether several threads performed the steps.
    pub(crate) shared: bool,
}

impl<M> Session<M> {
    /// The length that the region has at most.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let longest = self.phases.iter().map(|p| p.region_bytes).max().unwrap_or(0);
        longest.max(self.base.len() as u64)
    }

    /// Takes a changed trace with the same marks in the same order.
    pub(crate) fn replace_trace(&mut self, trace: Vec<Event>) {
        let marks = trace.iter().enumerate().filter(|(_, e)| matches!(e, Event::Mark { .. }));
        for (phase, (event, _)) in self.phases.iter_mut().zip(marks) {
            phase.start = event + 1;
        }
        self.trace = trace;
    }
}

/// The phases of a sequential trace whose marks number `steps`.
pub(crate) fn sequential_phases<M>(trace: &[Event], steps: &[Step<M>]) -> Vec<Phase<M>> {
    let mut phases: Vec<Phase<M>> = Vec::new();
    for (event, what) in trace.iter().enumerate() {
        let Event::Mark { mark, .. } = *what else { continue };
        let (idx, ended) = match mark {
            Mark::Begin(idx) => (idx, false),
            Mark::End(idx) => (idx, true),
            Mark::Seen(_) => unreachable!("nobody else reads in a sequential run"),
        };
        let step = &steps[idx];
        let (allowed, key) =
            if ended { (&step.after, step.after_key) } else { (&step.during, step.during_key) };
        phases.push(Phase {
            start: event + 1,
            promises: ended,
            allowed: Arc::clone(allowed),
            region_bytes: if ended { step.after_bytes } else { step.during_bytes },
            key,
            what: format!("{} {}", if ended { "after" } else { "during" }, step.what),
            tested: step.tested,
            uncreated: step.uncreated && !ended,
        });
    }
    phases
}

/// The keys of a sequential run in which everything before has the key `parent`.
pub(crate) fn step_key(parent: u64, step: usize, ended: bool) -> u64 {
    combine(parent, 2 * step as u64 + u64::from(ended) + 1)
}
