//! Goes through a session's crash points and tries the images that each allows.

use crate::choices::Choices;
use crate::config::Config;
use crate::mutation::{Mutant, Target};
use crate::replay::{PendingLine, Replay};
use crate::report::Report;
use crate::rng::{Rng, combine};
use crate::scenario::Scenario;
use crate::session::{Phase, Session};
use crate::shrink::Shrinker;
use crate::story::{CrashStory, Failure, FailureKind};
use crate::trace::{Event, Mark};
use crate::trial::try_image;
use std::collections::HashSet;

/// Which part of the outermost session is gone through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Events before this one are replayed only.
    pub(crate) from_event: usize,
    /// Events from this one on are left out.
    pub(crate) to_event: usize,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

impl Share {
    pub(crate) const WHOLE: Share = Share { from_event: 0, to_event: usize::MAX, worker: 0, workers: 1 };

    /// Whether crash points of the phase with this index are this worker's.
    fn covers(&self, phase_idx: usize) -> bool {
        phase_idx / 2 % self.workers == self.worker
    }
}

/// The state of a search through a session and the sessions nested in it.
pub(crate) struct Explorer<'a, S: Scenario> {
    scenario: &'a S,
    config: &'a Config,
    /// A mutation of recovery's stores, flushes and fences, if one is being tried.
    mutant: Option<Mutant>,
    /// The images that were tried in the current outermost phase: hash of the image, and key of its
    /// judgement.
    tried: HashSet<(u64, u64)>,
    rng: Rng,
    /// Images tried per depth.
    images: Vec<u64>,
    pub(crate) report: Report,
    /// How often the mutation could be applied.
    pub(crate) mutated: u64,
}

/// A crash point: the place in the trace, and what may arrive.
struct Point<'p, M> {
    session: &'p Session<M>,
    phase: &'p Phase<M>,
    /// Index of the first event that has not taken effect.
    event: usize,
    lines: Vec<PendingLine>,
}

impl<'a, S: Scenario> Explorer<'a, S> {
    pub(crate) fn new(scenario: &'a S, config: &'a Config, mutant: Option<Mutant>) -> Explorer<'a, S> {
        Explorer {
            scenario,
            config,
            mutant: mutant.filter(|m| m.target == Target::Recovery),
            tried: HashSet::new(),
            rng: Rng::new(combine(config.seed, 0x6e65_7374)),
            images: vec![0; config.depth + 1],
            report: Report::default(),
            mutated: 0,
        }
    }

    /// Tries the crashes of a session that `depth` crashes precede.
    pub(crate) fn session(
        &mut self,
        session: &Session<S::Model>,
        depth: usize,
        share: Share,
    ) -> Result<(), Box<Failure>> {
        let mut replay = Replay::new(&session.base, session.base_hash, session.capacity_bytes());
        let mut phase_idx = None;
        for event in 0..=session.trace.len().min(share.to_event) {
            let next = phase_idx.map_or(0, |i: usize| i + 1);
            let entered = session.phases.get(next).is_some_and(|p| p.start <= event);
            if entered {
                phase_idx = Some(next);
                if depth == 0 {
                    self.tried.clear();
                }
            }
            let phase = phase_idx.map(|i| (i, &session.phases[i]));
            let mine = |i| event >= share.from_event && share.covers(i);
            if let Some((i, phase)) = phase
                && phase.tested
                && mine(i)
                && is_crash_point(session, event, entered && phase.promises)
            {
                self.report.points += 1;
                let point = Point { session, phase, event, lines: replay.pending() };
                self.point(&mut replay, &point, depth)?;
            }
            if let Some(what) = session.trace.get(event) {
                replay.step(event, what);
            }
        }
        Ok(())
    }

    fn point(
        &mut self,
        replay: &mut Replay,
        point: &Point<'_, S::Model>,
        depth: usize,
    ) -> Result<(), Box<Failure>> {
        let limit = if depth == 0 { self.config.limit } else { self.config.nested_limit };
        let seed = combine(self.config.seed, combine(point.phase.key, point.event as u64));
        let mut choices = Choices::new(&point.lines, limit, seed);
        self.report.exhaustive_points += u64::from(choices.is_exhaustive());
        let mut current = vec![0; point.lines.len()];
        let mut wanted = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && choices.next(&mut wanted) {
            replay.choose(&point.lines, &current, &wanted);
            std::mem::swap(&mut current, &mut wanted);
            if self.tried.insert((replay.durable().hash(), point.phase.key)) {
                outcome = self.image(replay, point, &mut current, depth);
            }
        }
        replay.choose(&point.lines, &current, &vec![0; point.lines.len()]);
        outcome
    }

    /// Tries the image that `replay` holds, and crashes after it. On failure `choice` may have changed.
    fn image(
        &mut self,
        replay: &mut Replay,
        point: &Point<'_, S::Model>,
        choice: &mut Vec<usize>,
        depth: usize,
    ) -> Result<(), Box<Failure>> {
        self.report.images += 1;
        self.report.nested_images += u64::from(depth > 0);
        self.images[depth] += 1;
        let hash = replay.durable().hash();
        let record = self.wants_nested(depth).then_some(hash);
        let image = replay.durable().bytes(point.phase.region_bytes);
        match try_image(self.scenario, self.config, image, point.phase, record) {
            Err(verdict) => {
                let mut trial =
                    |image: &[u8]| try_image(self.scenario, self.config, image, point.phase, None).err();
                let mut shrinker = Shrinker::new(replay, &point.lines, choice, verdict, &mut trial);
                let needed = shrinker.shrink(point.phase.region_bytes);
                let verdict = shrinker.into_verdict();
                let image = replay.durable().bytes(point.phase.region_bytes);
                let failure = Failure::new(FailureKind::Crash, &self.scenario.name(), self.config, verdict);
                Err(failure.of_image(image).after_crash(point.story(choice, Some(&needed))))
            }
            Ok(Some(nested)) => {
                let outcome = self.nested(nested, depth + 1);
                outcome.map_err(|failure| failure.after_crash(point.story(choice, None)))
            }
            Ok(None) => Ok(()),
        }
    }

    /// Whether the number of nested images is behind its share.
    fn wants_nested(&self, depth: usize) -> bool {
        depth < self.config.depth
            && self.images[depth + 1] * 100 <= self.images[depth] * self.config.nested_percent
    }

    fn nested(&mut self, mut session: Session<S::Model>, depth: usize) -> Result<(), Box<Failure>> {
        let end = |e: &Event| matches!(e, Event::Mark { mark: Mark::End(0), .. });
        let recovery = session.trace.iter().position(end).unwrap_or(session.trace.len());
        let wrote = session.trace[..recovery].iter().any(|e| matches!(e, Event::Store { .. }));
        // A recovery that had nothing to do is of less interest; the operations after it still are.
        if !wrote && self.rng.below(4) != 0 {
            return Ok(());
        }
        if let Some(mutant) = &self.mutant
            && let Some(mutated) = mutant.apply(&session, 0..recovery)
        {
            self.mutated += 1;
            session.replace_trace(mutated.trace);
        }
        self.report.nested_sessions += 1;
        self.session(&session, depth, Share::WHOLE)
    }
}

impl<M> Point<'_, M> {
    fn story(&self, choice: &[usize], needed: Option<&[bool]>) -> CrashStory {
        CrashStory::new(&self.phase.what, &self.session.trace, self.event, &self.lines, choice, needed)
    }
}

/// Crashes are tried before each flush and fence, where something was promised, and at the end.
fn is_crash_point<M>(session: &Session<M>, event: usize, promised: bool) -> bool {
    match session.trace.get(event) {
        Some(Event::Flush { .. } | Event::Fence { .. }) | None => true,
        Some(Event::Store { .. } | Event::Mark { .. }) => promised,
    }
}
