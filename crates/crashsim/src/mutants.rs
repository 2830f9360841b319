//! Tries every mutant of a session and tells which were noticed.

use crate::audit::violations;
use crate::config::Config;
use crate::exploration::{Explorer, Share};
use crate::mutation::{Mutant, Mutated, Mutation, Target};
use crate::scenario::Scenario;
use crate::session::Session;
use crate::story::FailureKind;
use crate::trace::{Event, Mark};
use std::ops::Range;

/// The fate of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutantOutcome {
    /// Its class.
    pub mutation: Mutation,
    /// Whose trace was changed.
    pub target: Target,
    /// The number of the place among those where a mutation of this class is possible, in the order of the
    /// trace.
    pub place: usize,
    /// The event that was changed and the step that it belongs to.
    pub what: String,
    /// The kind of failure that caught it; `None` for a survivor.
    pub caught_by: Option<FailureKind>,
    /// The verdict, or for a survivor the number of attempts.
    pub verdict: String,
}

/// The fates of all mutants of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MutantReport {
    /// In order of class and place.
    pub outcomes: Vec<MutantOutcome>,
    /// How many places were left out because of the limit.
    pub untried: usize,
}

/// A mutant may show itself when a later operation reuses what it left behind; crashes are tried in this
/// many steps after its own.
const HORIZON_STEPS: usize = 4;

impl MutantReport {
    /// The outcomes of one class.
    pub fn of(&self, mutation: Mutation) -> impl Iterator<Item = &MutantOutcome> {
        self.outcomes.iter().filter(move |o| o.mutation == mutation)
    }

    /// The mutants that nothing noticed.
    pub fn survivors(&self) -> impl Iterator<Item = &MutantOutcome> {
        self.outcomes.iter().filter(|o| o.caught_by.is_none())
    }

    /// Requires of each class that it has instances and that every one was caught.
    ///
    /// # Panics
    ///
    /// With the survivors, if there are any.
    pub fn assert_all_caught(&self, mutations: &[Mutation]) {
        self.assert_all_caught_but(mutations, |_| None);
    }

    /// As [`assert_all_caught`](Self::assert_all_caught), except for those that `excuse` knows a reason
    /// for, which is printed.
    ///
    /// # Panics
    ///
    /// With the survivors, if there are any without an excuse.
    pub fn assert_all_caught_but(
        &self,
        mutations: &[Mutation],
        excuse: impl Fn(&MutantOutcome) -> Option<&'static str>,
    ) {
        let mut unexcused = String::new();
        for &mutation in mutations {
            assert!(self.of(mutation).next().is_some(), "no place for {mutation:?}:\n{self}");
            for survivor in self.of(mutation).filter(|o| o.caught_by.is_none()) {
                match excuse(survivor) {
                    Some(reason) => println!("{survivor}: {reason}"),
                    None => unexcused.push_str(&format!("{survivor}\n")),
                }
            }
        }
        assert!(unexcused.is_empty(), "mutants survived:\n{unexcused}{self}");
    }

    /// Requires of each class that at least one instance was caught.
    ///
    /// # Panics
    ///
    /// With the report, if none was.
    pub fn assert_some_caught(&self, mutations: &[Mutation]) {
        for &mutation in mutations {
            let caught = self.of(mutation).any(|o| o.caught_by.is_some());
            assert!(caught, "no instance of {mutation:?} was caught:\n{self}");
        }
    }
}

impl std::fmt::Display for MutantOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mutation, place, what) = (self.mutation, self.place, &self.what);
        match self.caught_by {
            Some(kind) => write!(f, "{mutation:?} {place}, {what}: caught ({kind:?})"),
            None => write!(f, "{mutation:?} {place}, {what}: survived {}", self.verdict),
        }
    }
}

impl std::fmt::Display for MutantReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for mutation in Mutation::ALL {
            let (mut all, mut audit, mut crash) = (0, 0, 0);
            for outcome in self.of(mutation) {
                all += 1;
                audit += usize::from(outcome.caught_by == Some(FailureKind::Audit));
                crash += usize::from(outcome.caught_by == Some(FailureKind::Crash));
            }
            if all > 0 {
                let left = all - audit - crash;
                writeln!(
                    f,
                    "{mutation:?}: {all} mutants, {audit} caught by the audit, {crash} by a crash, {left} survived"
                )?;
            }
        }
        if self.untried > 0 {
            writeln!(f, "{} places not tried", self.untried)?;
        }
        Ok(())
    }
}

/// Tries all instances of the classes, one at a time.
pub(crate) fn try_mutants<S: Scenario>(
    scenario: &S,
    config: &Config,
    mut session: Session<S::Model>,
    target: Target,
    mutations: &[Mutation],
) -> MutantReport {
    let mut report = MutantReport::default();
    for &mutation in mutations {
        // Recovery depends on the image, so the number of its places is not known beforehand.
        let places = match target {
            Target::Operations => mutation.count(&session, operations(&session)),
            Target::Recovery => config.mutant_limit,
        };
        let tried = places.min(config.mutant_limit);
        report.untried += places - tried;
        for i in 0..tried {
            let mutant = Mutant { mutation, target, place: i * places / tried };
            let outcome = match target {
                Target::Operations => try_operations(scenario, config, &mut session, mutant),
                Target::Recovery => try_recovery(scenario, config, &session, mutant),
            };
            match outcome {
                Some(outcome) => report.outcomes.push(outcome),
                None => break,
            }
        }
    }
    report
}

/// `None` when there is no such place.
fn try_operations<S: Scenario>(
    scenario: &S,
    config: &Config,
    session: &mut Session<S::Model>,
    mutant: Mutant,
) -> Option<MutantOutcome> {
    let Mutated { trace, event, what } = mutant.apply(session, operations(session))?;
    let step = step_of(session, event).to_owned();
    let original = session.trace.clone();
    session.replace_trace(trace);
    let outcome = match violations(session, &config.audit).first() {
        Some(broken) => Err((FailureKind::Audit, broken.clone())),
        None => {
            let mut explorer = Explorer::new(scenario, config, None);
            let share = Share { from_event: event, to_event: horizon(session, event), ..Share::WHOLE };
            match explorer.session(session, 0, share) {
                Err(failure) => Err((failure.kind(), failure.verdict().to_owned())),
                Ok(()) => Ok(format!("{} images", explorer.report.images)),
            }
        }
    };
    session.replace_trace(original);
    Some(judged(mutant, format!("{what} of {step}"), outcome))
}

/// The event at which the steps end in which a change of `event` is looked for.
fn horizon<M>(session: &Session<M>, event: usize) -> usize {
    let later = session.trace.iter().enumerate().skip(event);
    let mut ends = later.filter(|(_, e)| matches!(e, Event::Mark { mark: Mark::End(_), .. }));
    ends.nth(HORIZON_STEPS).map_or(session.trace.len(), |(i, _)| i + 1)
}

/// `None` when no recovery had such a place.
fn try_recovery<S: Scenario>(
    scenario: &S,
    config: &Config,
    session: &Session<S::Model>,
    mutant: Mutant,
) -> Option<MutantOutcome> {
    let mut explorer = Explorer::new(scenario, config, Some(mutant));
    let outcome = match explorer.session(session, 0, Share::WHOLE) {
        Err(failure) => Err((failure.kind(), failure.verdict().to_owned())),
        Ok(()) => Ok(format!("{} images, {} mutated recoveries", explorer.report.images, explorer.mutated)),
    };
    (explorer.mutated > 0).then(|| judged(mutant, "recovery".to_owned(), outcome))
}

fn judged(mutant: Mutant, what: String, outcome: Result<String, (FailureKind, String)>) -> MutantOutcome {
    let (caught_by, verdict) = match outcome {
        Ok(effort) => (None, effort),
        Err((kind, verdict)) => (Some(kind), verdict),
    };
    let Mutant { mutation, target, place } = mutant;
    MutantOutcome { mutation, target, place, what, caught_by, verdict }
}

/// The events of the operations, without creation and closing.
fn operations<M>(session: &Session<M>) -> Range<usize> {
    let place = |wanted: Mark| {
        session.trace.iter().position(|e| matches!(e, Event::Mark { mark, .. } if *mark == wanted))
    };
    let start = place(Mark::End(0)).unwrap_or(0);
    let end = place(Mark::Begin(session.ops.end)).unwrap_or(session.trace.len());
    start..end
}

/// The name of the step in which an event lies.
fn step_of<M>(session: &Session<M>, event: usize) -> &str {
    let begun = session.trace[..event].iter().rev().find_map(|e| match e {
        Event::Mark { mark: Mark::Begin(step), .. } => Some(*step),
        _ => None,
    });
    begun.map_or("", |step| &session.names[step])
}
