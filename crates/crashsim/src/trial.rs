//! One image: recover, check, compare, go on, check, compare.

use crate::config::Config;
use crate::record::guarded;
use crate::rng::combine;
use crate::scenario::{Scenario, op_at};
use crate::session::{Allowed, Phase, Session, Step, sequential_phases, step_key};
use crate::story::{compare, short_debug};
use crate::trace::{Mark, Recorder};
use std::cell::Cell;
use std::sync::{Arc, Once};
use tembo_pmem::Region;

/// A state that came up after a crash.
struct Recovered<S: Scenario> {
    state: S::State,
    /// Which of the allowed states it is.
    allowed_idx: usize,
    region_bytes: u64,
}

/// The work after a crash, for a nested session.
struct Afterwards<M> {
    steps: Vec<Step<M>>,
    names: Vec<String>,
}

/// Tries `image` as what a crash in `phase` left. With `record`, also returns the recording of recovery and
/// of the operations after it, in which further crashes can be tried; `hash` is the image's.
///
/// # Errors
///
/// The verdict of the component or the oracle.
pub(crate) fn try_image<S: Scenario>(
    scenario: &S,
    config: &Config,
    image: &[u8],
    phase: &Phase<S::Model>,
    record: Option<u64>,
) -> Result<Option<Session<S::Model>>, String> {
    let recorder = record.map(|_| Recorder::new());
    let mark = |mark| {
        if let Some(recorder) = &recorder {
            recorder.mark(mark);
        }
    };
    let _quiet = Quiet::begin();
    mark(Mark::Begin(0));
    let recovered = recover(scenario, config, image, phase, recorder.as_ref())?;
    mark(Mark::End(0));
    let allowed = &phase.allowed[recovered.allowed_idx];
    let mut afterwards = Afterwards::new(phase, recovered.allowed_idx, recovered.region_bytes);
    let mut state = recovered.state;
    let mut model = (*allowed.model).clone();
    for (i, &idx) in allowed.next.iter().enumerate() {
        let Some(op) = op_at(scenario, idx) else { break };
        mark(Mark::Begin(i + 1));
        guarded(|| scenario.apply(&mut state, op))
            .map_err(|e| format!("after recovery to `{}`, {} failed: {e}", allowed.what, short_debug(op)))?;
        mark(Mark::End(i + 1));
        scenario.apply_model(&mut model, op);
        if record.is_some() {
            let rest = allowed.next[i + 1..].to_vec();
            afterwards.push(scenario, op, &model, rest, scenario.region(&state).len());
        }
    }
    if !allowed.next.is_empty() {
        crate::record::expect(scenario, &state, &model).map_err(|e| {
            format!("after recovery to `{}` and {} more operations: {e}", allowed.what, allowed.next.len())
        })?;
    }
    guarded(|| {
        drop(state);
        Ok(())
    })
    .map_err(|e| format!("closing after recovery: {e}"))?;
    Ok(recorder.zip(record).map(|(recorder, hash)| afterwards.session(image, hash, &recorder)))
}

fn recover<S: Scenario>(
    scenario: &S,
    config: &Config,
    image: &[u8],
    phase: &Phase<S::Model>,
    recorder: Option<&Arc<Recorder>>,
) -> Result<Recovered<S>, String> {
    let observer = recorder.map(|r| r.clone() as Arc<dyn tembo_pmem::Observer>);
    let region = Region::simulated(image, config.max_bytes, observer).map_err(|e| e.to_string())?;
    let state = if phase.uncreated && scenario.is_uncreated(&region) {
        guarded(|| scenario.setup(region)).map_err(|e| format!("creation after a crash in it: {e}"))?
    } else {
        guarded(|| scenario.recover(region)).map_err(|e| format!("recovery: {e}"))?
    };
    guarded(|| scenario.check(&state)).map_err(|e| format!("check after recovery: {e}"))?;
    let observed =
        guarded(|| scenario.observe(&state)).map_err(|e| format!("reading after recovery: {e}"))?;
    let allowed_idx = phase.allowed.iter().position(|a| *a.model == observed).ok_or_else(|| {
        let expected: Vec<(&str, &S::Model)> = phase.allowed.iter().map(|a| (a.what, &*a.model)).collect();
        compare(&observed, &expected)
    })?;
    let region_bytes = scenario.region(&state).len();
    Ok(Recovered { state, allowed_idx, region_bytes })
}

impl<M> Afterwards<M> {
    fn new(phase: &Phase<M>, allowed_idx: usize, region_bytes: u64) -> Afterwards<M> {
        let recovered = Allowed { what: "what recovery showed", ..phase.allowed[allowed_idx].clone() };
        let step = Step {
            what: "recovery".to_owned(),
            during: Arc::clone(&phase.allowed),
            after: Arc::new([recovered]),
            // The same judgement as in the phase that crashed, hence the same key.
            during_key: phase.key,
            after_key: combine(phase.key, allowed_idx as u64),
            during_bytes: region_bytes,
            after_bytes: region_bytes,
            tested: true,
            uncreated: phase.uncreated,
        };
        Afterwards { steps: vec![step], names: vec!["recovery".to_owned()] }
    }

    fn push<S: Scenario<Model = M>>(
        &mut self,
        scenario: &S,
        op: &S::Op,
        model: &M,
        next: Vec<usize>,
        region_bytes: u64,
    ) where
        M: Clone,
    {
        let idx = self.steps.len();
        let Some(last) = self.steps.last() else { return };
        let before = Allowed { what: "before", ..last.after[0].clone() };
        let after = Allowed { model: Arc::new(model.clone()), next, what: "after" };
        let what = format!("operation {} after recovery", short_debug(op));
        let parent = last.after_key;
        self.names.push(what.clone());
        self.steps.push(Step {
            what,
            during: [before.clone(), after.clone()].into_iter().chain(before.between(scenario, op)).collect(),
            after: Arc::new([after]),
            during_key: step_key(parent, idx, false),
            after_key: step_key(parent, idx, true),
            during_bytes: region_bytes.max(last.after_bytes),
            after_bytes: region_bytes,
            tested: true,
            uncreated: false,
        });
    }

    fn session(self, image: &[u8], hash: u64, recorder: &Recorder) -> Session<M> {
        let trace = recorder.take();
        let phases = sequential_phases(&trace, &self.steps);
        Session {
            base: image.to_vec(),
            base_hash: hash,
            trace,
            phases,
            ops: 1..self.names.len(),
            names: self.names,
            shared: false,
        }
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, panics of this thread print nothing: they are caught and told in the story.
pub(crate) struct Quiet {
    before: bool,
}

impl Quiet {
    pub(crate) fn begin() -> Quiet {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !QUIET.get() {
                    print(info);
                }
            }));
        });
        Quiet { before: QUIET.replace(true) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(self.before);
    }
}
