//! Makes a failing choice of lost stores smaller.

use crate::replay::{PendingLine, Replay};

/// How many images are tried to make a failure smaller.
const TRIALS: usize = 400;

/// The failing image of a crash point, and what may be changed in it.
pub(crate) struct Shrinker<'a> {
    replay: &'a mut Replay,
    lines: &'a [PendingLine],
    /// The smallest failing choice so far; always the one that `replay` holds between calls.
    choice: &'a mut Vec<usize>,
    verdict: String,
    /// The verdict on an image; `None` if it is sound.
    trial: &'a mut dyn FnMut(&[u8]) -> Option<String>,
    trials_left: usize,
}

impl<'a> Shrinker<'a> {
    pub(crate) fn new(
        replay: &'a mut Replay,
        lines: &'a [PendingLine],
        choice: &'a mut Vec<usize>,
        verdict: String,
        trial: &'a mut dyn FnMut(&[u8]) -> Option<String>,
    ) -> Shrinker<'a> {
        Shrinker { replay, lines, choice, verdict, trial, trials_left: TRIALS }
    }

    /// Lets as many as possible of the lost stores arrive while the image still fails. Returns for each
    /// line whether the failure needs what arrived of it.
    pub(crate) fn shrink(&mut self, region_bytes: u64) -> Vec<bool> {
        for (i, line) in self.lines.iter().enumerate() {
            for &stop in line.stops.iter().rev() {
                if stop <= self.choice[i] {
                    break;
                }
                if let Some(verdict) = self.verdict_with(i, stop, region_bytes) {
                    self.set(i, stop);
                    self.verdict = verdict;
                    break;
                }
            }
        }
        let kept = |i: usize| self.choice[i] > 0;
        let kept: Vec<bool> = (0..self.lines.len()).map(kept).collect();
        let needed = |(i, kept)| kept && self.verdict_with(i, 0, region_bytes).is_none();
        kept.into_iter().enumerate().map(needed).collect()
    }

    pub(crate) fn into_verdict(self) -> String {
        self.verdict
    }

    /// The verdict when line `i` shows `stop` stores; `None` also after enough attempts.
    fn verdict_with(&mut self, i: usize, stop: usize, region_bytes: u64) -> Option<String> {
        self.trials_left = self.trials_left.checked_sub(1)?;
        let before = self.choice[i];
        self.set(i, stop);
        let verdict = (self.trial)(self.replay.durable().bytes(region_bytes));
        self.set(i, before);
        verdict
    }

    fn set(&mut self, i: usize, stop: usize) {
        let line = std::slice::from_ref(&self.lines[i]);
        self.replay.choose(line, &[self.choice[i]], &[stop]);
        self.choice[i] = stop;
    }
}
