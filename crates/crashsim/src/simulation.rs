//! The entry points: one simulation, a campaign of many, and mutants.

use crate::audit::{Audit, violations};
use crate::config::{Config, first_seed, wanted_images};
use crate::exploration::{Explorer, Share};
use crate::mutants::{MutantReport, try_mutants};
use crate::mutation::{Mutation, Target};
use crate::record;
use crate::report::Report;
use crate::rng::combine;
use crate::scenario::{Scenario, SharedScenario};
use crate::session::Session;
use crate::story::{Failure, FailureKind};

/// How many broken rules a story lists.
const SHOWN_VIOLATIONS: usize = 8;

/// A scenario with the settings under which it is simulated.
///
/// The environment comes before the settings of the code: see the crate's documentation.
#[derive(Debug, Clone)]
#[must_use = "nothing is simulated before `run`"]
pub struct Simulation<'a, S> {
    scenario: &'a S,
    config: Config,
}

impl<'a, S: Scenario> Simulation<'a, S> {
    /// The default settings: strict audit, 512 images per crash point, up to two further crashes in
    /// recovery and in the operations after it.
    pub fn new(scenario: &'a S) -> Simulation<'a, S> {
        Simulation { scenario, config: Config::new() }
    }

    /// The seed of samples and schedules.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Crash points with more possible images than this are sampled.
    pub fn limit(mut self, images: usize) -> Self {
        self.config.set_limit(images);
        self
    }

    /// As [`limit`](Self::limit), for crashes after a crash.
    pub fn nested_limit(mut self, images: usize) -> Self {
        self.config.nested_limit = images;
        self
    }

    /// How many crashes may hit recovery and the operations after it, one after the other (default 2).
    pub fn depth(mut self, crashes: usize) -> Self {
        self.config.depth = crashes;
        self
    }

    /// How many images are tried after a second crash, in percent of those after the first (default 50),
    /// and so on for each further crash.
    pub fn nested_percent(mut self, percent: u64) -> Self {
        self.config.nested_percent = percent;
        self
    }

    /// How many operations are performed after each recovery (default 2).
    pub fn continue_ops(mut self, ops: usize) -> Self {
        self.config.continue_ops = ops;
        self
    }

    /// Whether crashes hit the creation too (default no).
    pub fn crash_setup(mut self, crash: bool) -> Self {
        self.config.crash_setup = crash;
        self
    }

    /// The rules for single operations (default [`Audit::strict`]).
    pub fn audit(mut self, audit: Audit) -> Self {
        self.config.audit = audit;
        self
    }

    /// How many threads try images (default 1).
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.set_workers(workers);
        self
    }

    /// How many places of each class of mutants are tried, spread evenly over the trace (default 64).
    /// `CRASHSIM_MUTANTS` comes before this.
    pub fn mutant_limit(mut self, places: usize) -> Self {
        self.config.set_mutant_limit(places);
        self
    }

    /// The length up to which a region may grow (default 64 MiB).
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.config.max_bytes = bytes;
        self
    }

    /// Performs the operations one after the other and tries the crashes.
    ///
    /// # Errors
    ///
    /// The first failure, as small as it could be made.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        let session = record::sequential(self.scenario, &self.config)?;
        self.judge(&session)
    }

    /// Seeds each class of `mutations` into the trace of `target`, one place at a time, and sees whether the
    /// audit or a crash in the same operation or the next few shows it.
    ///
    /// # Errors
    ///
    /// A failure without any mutation.
    pub fn mutants(&self, target: Target, mutations: &[Mutation]) -> Result<MutantReport, Box<Failure>> {
        let session = record::sequential(self.scenario, &self.config)?;
        Ok(try_mutants(self.scenario, &self.config, session, target, mutations))
    }

    fn judge(&self, session: &Session<S::Model>) -> Result<Report, Box<Failure>> {
        let broken = violations(session, &self.config.audit);
        if !broken.is_empty() {
            return Err(self.audit_failure(&broken));
        }
        let config = self.config.of_share();
        self.crash(session, &config).map_err(|failure| self.shallower(session, &config, failure))
    }

    /// Tries the crashes of a session, on several threads if asked to.
    fn crash(&self, session: &Session<S::Model>, config: &Config) -> Result<Report, Box<Failure>> {
        let workers = config.workers;
        let work = |worker| {
            let share = Share { worker, workers, ..Share::WHOLE };
            let mut explorer = Explorer::new(self.scenario, config, None);
            explorer.session(session, 0, share).map(|()| explorer.report)
        };
        let outcomes: Vec<Result<Report, Box<Failure>>> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|w| scope.spawn(move || work(w))).collect();
            let first = work(0);
            let joined =
                others.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            std::iter::once(first).chain(joined).collect()
        });
        let mut report = Report { rounds: 1, ..Report::default() };
        for outcome in outcomes {
            report += outcome?;
        }
        Ok(report)
    }

    /// A failure with fewer crashes than `failure`, if the session has one.
    fn shallower(&self, session: &Session<S::Model>, config: &Config, failure: Box<Failure>) -> Box<Failure> {
        let depths = 0..failure.crashes().saturating_sub(1);
        let mut found =
            depths.filter_map(|depth| self.crash(session, &Config { depth, ..config.clone() }).err());
        found.next().unwrap_or(failure)
    }

    fn audit_failure(&self, broken: &[String]) -> Box<Failure> {
        let mut verdict = broken[..broken.len().min(SHOWN_VIOLATIONS)].join("\n");
        if broken.len() > SHOWN_VIOLATIONS {
            verdict.push_str(&format!("\nand {} more", broken.len() - SHOWN_VIOLATIONS));
        }
        Failure::new(FailureKind::Audit, &self.scenario.name(), &self.config, verdict)
    }
}

impl<S: SharedScenario> Simulation<'_, S> {
    /// Performs each thread's operations on a thread of its own, interleaved as the seed says, and tries
    /// the crashes.
    ///
    /// # Errors
    ///
    /// The first failure, as small as it could be made.
    pub fn run_shared(&self) -> Result<Report, Box<Failure>> {
        let session = record::shared(self.scenario, &self.config)?;
        self.judge(&session)
    }

    /// As [`mutants`](Self::mutants), for threads that run at once.
    ///
    /// # Errors
    ///
    /// A failure without any mutation.
    pub fn mutants_shared(&self, mutations: &[Mutation]) -> Result<MutantReport, Box<Failure>> {
        let session = record::shared(self.scenario, &self.config)?;
        Ok(try_mutants(self.scenario, &self.config, session, Target::Operations, mutations))
    }
}

/// Calls `round` with one seed after the other until `images` images have been tried, or as many as
/// `CRASHSIM_IMAGES` says. The first seed is `CRASHSIM_SEED`, so that a failing round can be repeated.
///
/// # Errors
///
/// The first failure of a round.
///
/// # Panics
///
/// If a round tries no image, since the campaign would not end.
pub fn campaign(
    images: u64,
    mut round: impl FnMut(u64) -> Result<Report, Box<Failure>>,
) -> Result<Report, Box<Failure>> {
    let wanted = wanted_images(images);
    let mut total = Report::default();
    let mut seed = first_seed();
    while total.images < wanted {
        let report = round(seed)?;
        assert!(report.images > 0, "a round of the campaign tried no image");
        total += report;
        seed = combine(seed, 1);
    }
    Ok(total)
}
