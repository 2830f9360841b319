//! Runs a scenario without crashes and records it.

use crate::config::Config;
use crate::replay::Replay;
use crate::rng::combine;
use crate::scenario::{Scenario, SharedScenario};
use crate::schedule::Schedule;
use crate::session::{Allowed, Phase, Session, Step, sequential_phases, step_key};
use crate::story::{Failure, FailureKind, compare, short_debug};
use crate::trace::{Event, Mark, Recorder};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tembo_pmem::{Region, WORD_BYTES};

/// Calls code under test; a panic becomes an error.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("(no message)")))
    })
}

/// Compares contents with a model.
pub(crate) fn expect<S: Scenario>(scenario: &S, state: &S::State, model: &S::Model) -> Result<(), String> {
    guarded(|| scenario.check(state)).map_err(|e| format!("check: {e}"))?;
    let observed = guarded(|| scenario.observe(state)).map_err(|e| format!("observe: {e}"))?;
    if observed == *model { Ok(()) } else { Err(compare(&observed, &[("the model", model)])) }
}

/// The trace so far, and what memory should hold according to it.
struct Tape {
    recorder: Arc<Recorder>,
    trace: Vec<Event>,
    replay: Replay,
}

impl Tape {
    fn new(recorder: Arc<Recorder>, region_bytes: u64) -> Tape {
        Tape {
            recorder,
            trace: Vec::new(),
            replay: Replay::new(&vec![0; region_bytes as usize], 0, region_bytes),
        }
    }

    fn pull(&mut self) {
        for event in self.recorder.take() {
            self.replay.step(self.trace.len(), &event);
            self.trace.push(event);
        }
    }

    /// Verifies that every change of the region was recorded.
    fn verify(&mut self, region: &Region) -> Result<(), String> {
        self.pull();
        let recorded = self.replay.volatile();
        let mut words = recorded.all().chunks_exact(WORD_BYTES as usize);
        for off in (0..region.len() & !(WORD_BYTES - 1)).step_by(WORD_BYTES as usize) {
            let expected = words.next().and_then(|w| w.try_into().ok()).map_or(0, u64::from_le_bytes);
            let found = region.load_u64(off).map_err(|e| e.to_string())?;
            if found != expected {
                return Err(format!(
                    "the word at {off:#x} is {found:#x}, but the recorded stores make it {expected:#x}"
                ));
            }
        }
        Ok(())
    }
}

/// The parts that both kinds of run share.
struct Run<'a, S: Scenario> {
    scenario: &'a S,
    config: &'a Config,
    tape: Tape,
    names: Vec<String>,
    lengths: Vec<u64>,
}

impl<'a, S: Scenario> Run<'a, S> {
    fn new(scenario: &'a S, config: &'a Config, recorder: Arc<Recorder>) -> Run<'a, S> {
        let tape = Tape::new(recorder, scenario.region_bytes());
        Run { scenario, config, tape, names: names(scenario), lengths: Vec::new() }
    }

    fn fail(&self, step: usize, verdict: String) -> Box<Failure> {
        let verdict = format!("{}: {verdict}", self.names[step]);
        Failure::new(FailureKind::Run, &self.scenario.name(), self.config, verdict)
    }

    /// Brings up the component, as step 0.
    fn setup(&mut self) -> Result<S::State, Box<Failure>> {
        let zeros = vec![0; self.scenario.region_bytes() as usize];
        let region = Region::simulated(&zeros, self.config.max_bytes, Some(self.tape.recorder.clone()))
            .map_err(|e| self.fail(0, e.to_string()))?;
        self.tape.recorder.mark(Mark::Begin(0));
        let state = guarded(|| self.scenario.setup(region)).map_err(|e| self.fail(0, e))?;
        self.tape.recorder.mark(Mark::End(0));
        self.check_step(0, &state, &self.scenario.initial())?;
        Ok(state)
    }

    /// Checks after a step that the contents are those of the model, and that nothing changed unrecorded.
    fn check_step(&mut self, step: usize, state: &S::State, model: &S::Model) -> Result<(), Box<Failure>> {
        let region = self.scenario.region(state);
        self.lengths.push(region.len());
        self.tape.verify(region).map_err(|verdict| {
            let verdict = format!("{}: {verdict}", self.names[step]);
            Failure::new(FailureKind::Unrecorded, &self.scenario.name(), self.config, verdict)
        })?;
        expect(self.scenario, state, model).map_err(|e| self.fail(step, e))
    }

    /// Drops the state, as the last step.
    fn close(&mut self, state: S::State) {
        let step = self.names.len() - 1;
        self.tape.recorder.mark(Mark::Begin(step));
        drop(state);
        self.tape.recorder.mark(Mark::End(step));
        self.tape.pull();
        self.lengths.push(self.lengths.last().copied().unwrap_or(0));
    }

    fn session(self, phases: Vec<Phase<S::Model>>, shared: bool) -> Session<S::Model> {
        Session {
            base: vec![0; self.scenario.region_bytes() as usize],
            base_hash: 0,
            trace: self.tape.trace,
            phases,
            ops: 1..self.names.len() - 1,
            names: self.names,
            shared,
        }
    }
}

/// Creation, the operations, closing.
fn names<S: Scenario>(scenario: &S) -> Vec<String> {
    let ops = scenario.ops();
    let named = ops.iter().enumerate();
    std::iter::once("creation".to_owned())
        .chain(named.map(|(i, op)| format!("operation {} of {}, {}", i + 1, ops.len(), short_debug(op))))
        .chain(std::iter::once("closing".to_owned()))
        .collect()
}

/// Runs the operations one after the other.
pub(crate) fn sequential<S: Scenario>(
    scenario: &S,
    config: &Config,
) -> Result<Session<S::Model>, Box<Failure>> {
    let mut run = Run::new(scenario, config, Recorder::new());
    let mut state = run.setup()?;
    let mut models = vec![scenario.initial()];
    for (i, op) in scenario.ops().iter().enumerate() {
        run.tape.recorder.mark(Mark::Begin(i + 1));
        guarded(|| scenario.apply(&mut state, op)).map_err(|e| run.fail(i + 1, e))?;
        run.tape.recorder.mark(Mark::End(i + 1));
        let mut model = models[i].clone();
        scenario.apply_model(&mut model, op);
        run.check_step(i + 1, &state, &model)?;
        models.push(model);
    }
    run.close(state);
    let phases = sequential_phases(&run.tape.trace, &steps(&run, models));
    Ok(run.session(phases, false))
}

fn steps<S: Scenario>(run: &Run<'_, S>, models: Vec<S::Model>) -> Vec<Step<S::Model>> {
    let config = run.config;
    let ops = run.scenario.ops();
    let end = crate::scenario::op_count(run.scenario);
    let states: Vec<Allowed<S::Model>> = models
        .into_iter()
        .enumerate()
        .map(|(i, model)| Allowed {
            model: Arc::new(model),
            next: (i..end.min(i + config.continue_ops)).collect(),
            what: "before",
        })
        .collect();
    let after = |i: usize| Allowed { what: "after", ..states[i].clone() };
    let step = |idx: usize, during: Vec<Allowed<S::Model>>, ended: usize| Step {
        what: run.names[idx].clone(),
        during: during.into(),
        after: Arc::new([after(ended)]),
        during_key: step_key(0, idx, false),
        after_key: step_key(0, idx, true),
        // A step may make the region shorter; until it does, images are as long as it was.
        during_bytes: run.lengths[idx].max(run.lengths[idx.saturating_sub(1)]),
        after_bytes: run.lengths[idx],
        tested: idx > 0 || config.crash_setup,
        uncreated: idx == 0,
    };
    let mut steps = vec![step(0, vec![after(0)], 0)];
    for (i, op) in ops.iter().enumerate() {
        let between = states[i].between(run.scenario, op);
        let during = [states[i].clone(), after(i + 1)].into_iter().chain(between).collect();
        steps.push(step(i + 1, during, i + 1));
    }
    steps.push(step(ops.len() + 1, vec![after(ops.len())], ops.len()));
    steps
}

/// Runs each thread's operations on a thread of its own, interleaved as the seed says.
pub(crate) fn shared<S: SharedScenario>(
    scenario: &S,
    config: &Config,
) -> Result<Session<S::Model>, Box<Failure>> {
    let ops = scenario.ops();
    let threads = ops.iter().map(|op| scenario.thread_of(op) + 1).max().unwrap_or(0);
    let schedule = Schedule::new(threads, config.seed);
    let mut run = Run::new(scenario, config, Recorder::scheduled(schedule.clone()));
    let state = run.setup()?;
    let outcomes: Vec<Result<(), (usize, String)>> = std::thread::scope(|scope| {
        let (state, recorder, schedule) = (&state, &run.tape.recorder, &schedule);
        let spawn = |thread| scope.spawn(move || perform(scenario, thread, state, recorder, schedule));
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        let joined = handles.into_iter().map(|h| h.join());
        joined.map(|r| r.unwrap_or_else(|_| Err((0, "a thread panicked".to_owned())))).collect()
    });
    for outcome in outcomes {
        outcome.map_err(|(step, e)| run.fail(step, e))?;
    }
    let mut model = scenario.initial();
    ops.iter().for_each(|op| scenario.apply_model(&mut model, op));
    run.lengths.resize(ops.len().max(1), scenario.region(&state).len());
    run.check_step(ops.len(), &state, &model)?;
    run.close(state);
    let phases = shared_phases(scenario, config, &run.tape.trace, &run.names, &run.lengths);
    Ok(run.session(phases, true))
}

/// The work of one thread; an error says in which step.
fn perform<S: SharedScenario>(
    scenario: &S,
    thread: usize,
    state: &S::State,
    recorder: &Recorder,
    schedule: &Schedule,
) -> Result<(), (usize, String)> {
    let _turn_taker = schedule.join(thread);
    for (i, op) in scenario.ops().iter().enumerate().filter(|(_, op)| scenario.thread_of(op) == thread) {
        recorder.mark(Mark::Begin(i + 1));
        let seen = guarded(|| scenario.apply_shared(state, op)).map_err(|e| (i + 1, e))?;
        seen.iter().for_each(|idx| recorder.mark(Mark::Seen(idx + 1)));
        recorder.mark(Mark::End(i + 1));
    }
    Ok(())
}

/// How far a shared run has come.
struct Progress<'a, S: SharedScenario> {
    scenario: &'a S,
    config: &'a Config,
    /// The contents with all finished operations.
    finished: S::Model,
    done: Vec<bool>,
    seen: Vec<bool>,
    in_flight: Vec<usize>,
}

impl<S: SharedScenario> Progress<'_, S> {
    /// Any subset of the operations in flight may have taken effect, those that were seen must have.
    fn allowed(&self) -> Arc<[Allowed<S::Model>]> {
        let mut all: Vec<Allowed<S::Model>> = Vec::new();
        for subset in 0_usize..1 << self.in_flight.len() {
            let taken = |i: usize| subset >> i & 1 == 1;
            if self.in_flight.iter().enumerate().any(|(i, op)| self.seen[*op] && !taken(i)) {
                continue;
            }
            let mut model = self.finished.clone();
            let mut done = self.done.clone();
            for (_, &op) in self.in_flight.iter().enumerate().filter(|(i, _)| taken(*i)) {
                self.scenario.apply_model(&mut model, &self.scenario.ops()[op]);
                done[op] = true;
            }
            if all.iter().all(|a| *a.model != model) {
                all.push(Allowed {
                    model: Arc::new(model),
                    next: self.next(&done),
                    what: "a subset of those in flight",
                });
            }
        }
        all.into()
    }

    /// The first operations that each thread has not done.
    fn next(&self, done: &[bool]) -> Vec<usize> {
        let mut threads = Vec::new();
        let ops = self.scenario.ops().iter().enumerate().filter(|(i, _)| !done[*i]);
        let first_of_thread = ops.filter(|(_, op)| {
            let thread = self.scenario.thread_of(op);
            let first = !threads.contains(&thread);
            threads.push(thread);
            first
        });
        let firsts = first_of_thread.map(|(i, _)| i);
        let continuation = self.scenario.ops().len()..crate::scenario::op_count(self.scenario);
        firsts.chain(continuation).take(self.config.continue_ops).collect()
    }

    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Begin(step) => self.in_flight.push(step - 1),
            Mark::Seen(step) => self.seen[step - 1] = true,
            Mark::End(step) => {
                self.in_flight.retain(|op| *op != step - 1);
                self.done[step - 1] = true;
                self.scenario.apply_model(&mut self.finished, &self.scenario.ops()[step - 1]);
            }
        }
    }

    fn what(&self, names: &[String]) -> String {
        let running: Vec<&str> = self.in_flight.iter().map(|op| names[op + 1].as_str()).collect();
        if running.is_empty() {
            "between operations".to_owned()
        } else {
            format!("during {}", running.join(" and "))
        }
    }
}

fn shared_phases<S: SharedScenario>(
    scenario: &S,
    config: &Config,
    trace: &[Event],
    names: &[String],
    lengths: &[u64],
) -> Vec<Phase<S::Model>> {
    let count = scenario.ops().len();
    let mut progress = Progress {
        scenario,
        config,
        finished: scenario.initial(),
        done: vec![false; count],
        seen: vec![false; count],
        in_flight: Vec::new(),
    };
    let mut phases = Vec::new();
    for (event, what) in trace.iter().enumerate() {
        let Event::Mark { mark, .. } = *what else { continue };
        let (Mark::Begin(step) | Mark::End(step) | Mark::Seen(step)) = mark;
        let is_op = (1..=count).contains(&step);
        if is_op {
            progress.mark(mark);
        }
        phases.push(Phase {
            start: event + 1,
            promises: !matches!(mark, Mark::Begin(_)),
            allowed: progress.allowed(),
            region_bytes: lengths.iter().copied().max().unwrap_or(0),
            key: combine(1, phases.len() as u64),
            what: if is_op { progress.what(names) } else { format!("during {}", names[step]) },
            tested: step > 0 || config.crash_setup,
            uncreated: step == 0 && matches!(mark, Mark::Begin(_)),
        });
    }
    phases
}
