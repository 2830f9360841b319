//! A scenario: a component as the simulator sees it.

use std::fmt::Debug;
use tembo_pmem::Region;

/// A component under test, a list of operations, and a model that says what they should do.
///
/// The simulator calls these from several places of a trace and expects them to be deterministic: the same
/// image must recover to the same state. Errors are messages; a panic counts as one.
pub trait Scenario: Sync {
    /// The open component. Dropping it closes it.
    type State;
    /// One operation, with its arguments.
    type Op: Debug + Sync;
    /// The component's contents as a user sees them, in an ordinary collection.
    type Model: Clone + PartialEq + Debug + Send + Sync;

    /// Names the scenario in reports.
    fn name(&self) -> String;

    /// The length of the region that [`setup`](Self::setup) is given.
    fn region_bytes(&self) -> u64 {
        256 << 10
    }

    /// Creates the component in a zeroed region and brings it to the starting state.
    fn setup(&self, region: Region) -> Result<Self::State, String>;

    /// Whether a crash during [`setup`](Self::setup) left nothing that claims to be the component. The
    /// simulator then runs `setup` again instead of `recover`.
    fn is_uncreated(&self, region: &Region) -> bool {
        let _ = region;
        false
    }

    /// Opens the component after a crash.
    fn recover(&self, region: Region) -> Result<Self::State, String>;

    /// The region in which the component lives.
    fn region<'s>(&self, state: &'s Self::State) -> &'s Region;

    /// The operations, in order.
    fn ops(&self) -> &[Self::Op];

    /// Further operations with which to go on after a crash when [`ops`](Self::ops) has no more.
    fn continuation(&self) -> &[Self::Op] {
        &[]
    }

    /// Performs an operation. When it returns, its effects are acknowledged.
    fn apply(&self, state: &mut Self::State, op: &Self::Op) -> Result<(), String>;

    /// The model of the starting state.
    fn initial(&self) -> Self::Model;

    /// Applies an operation to the model.
    fn apply_model(&self, model: &mut Self::Model, op: &Self::Op);

    /// The intermediate states that a crash inside `op` may leave, if `op` is several transactions. After
    /// such a crash, `op` is performed again.
    fn between(&self, before: &Self::Model, op: &Self::Op) -> Vec<Self::Model> {
        let _ = (before, op);
        Vec::new()
    }

    /// Reads the whole contents.
    fn observe(&self, state: &Self::State) -> Result<Self::Model, String>;

    /// Verifies every invariant that [`observe`](Self::observe) does not show: reachability, leaks, order.
    fn check(&self, state: &Self::State) -> Result<(), String>;
}

/// A scenario whose operations several threads perform at once.
///
/// Operations of different threads must commute in the model (each thread has its own keys, say): after a
/// crash, any subset of the operations in flight may have taken effect.
pub trait SharedScenario: Scenario<State: Sync> {
    /// The thread, from 0 without gaps, that performs an operation of [`ops`](Scenario::ops). A thread
    /// performs its operations in the order of the list.
    fn thread_of(&self, op: &Self::Op) -> usize;

    /// Performs an operation. A reader returns the indices in [`ops`](Scenario::ops) of the operations whose
    /// effects it saw: these must be durable.
    fn apply_shared(&self, state: &Self::State, op: &Self::Op) -> Result<Vec<usize>, String>;
}

/// The operation with index `idx` of a scenario's operations and their continuation.
pub(crate) fn op_at<S: Scenario>(scenario: &S, idx: usize) -> Option<&S::Op> {
    let ops = scenario.ops();
    ops.get(idx).or_else(|| scenario.continuation().get(idx.checked_sub(ops.len())?))
}

/// How many operations there are with the continuation.
pub(crate) fn op_count<S: Scenario>(scenario: &S) -> usize {
    scenario.ops().len() + scenario.continuation().len()
}
