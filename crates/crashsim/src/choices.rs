//! Which prefixes a crash shows: all combinations where they are few, else extremes and samples.

use crate::replay::PendingLine;
use crate::rng::Rng;

/// Goes through the combinations of one crash point.
///
/// A combination gives, for each pending line, how many of its stores arrived.
pub(crate) struct Choices<'a> {
    lines: &'a [PendingLine],
    way: Way,
}

enum Way {
    /// Every combination, counted in mixed radix; the digits index `stops`.
    All {
        digits: Vec<usize>,
        done: bool,
    },
    Some {
        extremes: std::vec::IntoIter<Vec<usize>>,
        samples_left: usize,
        rng: Rng,
    },
}

impl<'a> Choices<'a> {
    /// At most `limit` combinations (at least the two outermost).
    pub(crate) fn new(lines: &'a [PendingLine], limit: usize, seed: u64) -> Choices<'a> {
        let number = lines.iter().try_fold(1_usize, |n, l| n.checked_mul(l.stops.len()));
        let way = match number {
            Some(number) if number <= limit => Way::All { digits: vec![0; lines.len()], done: false },
            _ => sampled(lines, limit, Rng::new(seed)),
        };
        Choices { lines, way }
    }

    /// Whether every combination is visited.
    pub(crate) fn is_exhaustive(&self) -> bool {
        matches!(self.way, Way::All { .. })
    }

    /// Writes the next combination to `choice`; false when there is none.
    pub(crate) fn next(&mut self, choice: &mut Vec<usize>) -> bool {
        match &mut self.way {
            Way::All { digits, done } => {
                if *done {
                    return false;
                }
                choice.clear();
                choice.extend(digits.iter().zip(self.lines).map(|(d, l)| l.stops[*d]));
                *done = !count_up(digits, self.lines);
                true
            }
            Way::Some { extremes, samples_left, rng } => {
                if let Some(extreme) = extremes.next() {
                    *choice = extreme;
                    return true;
                }
                let more = *samples_left > 0;
                *samples_left = samples_left.saturating_sub(1);
                if more {
                    sample(self.lines, rng, choice);
                }
                more
            }
        }
    }
}

/// Advances the digits; false when they have all returned to zero.
fn count_up(digits: &mut [usize], lines: &[PendingLine]) -> bool {
    for (digit, line) in digits.iter_mut().zip(lines) {
        *digit += 1;
        if *digit < line.stops.len() {
            return true;
        }
        *digit = 0;
    }
    false
}

fn sampled(lines: &[PendingLine], limit: usize, mut rng: Rng) -> Way {
    let mut extremes = extremes(lines);
    // The outermost two are always visited; of the others, a random choice where the limit is short.
    for i in (3..extremes.len()).rev() {
        extremes.swap(i, 2 + rng.below(i - 1));
    }
    extremes.truncate(limit.max(2));
    let samples_left = limit.saturating_sub(extremes.len());
    Way::Some { extremes: extremes.into_iter(), samples_left, rng }
}

/// The extreme choices: no store arrives, all arrive, or one line stops at one of its prefixes while all
/// other lines have none of their stores or all.
fn extremes(lines: &[PendingLine]) -> Vec<Vec<usize>> {
    let none = vec![0; lines.len()];
    let full: Vec<usize> = lines.iter().map(|l| l.stores.len()).collect();
    let mut all = vec![none.clone(), full.clone()];
    for (i, line) in lines.iter().enumerate() {
        for &stop in &line.stops {
            for others in [&none, &full] {
                let mut choice = others.clone();
                choice[i] = stop;
                all.push(choice);
            }
        }
    }
    all
}

/// A random combination; how many lines arrive whole differs from sample to sample.
fn sample(lines: &[PendingLine], rng: &mut Rng, choice: &mut Vec<usize>) {
    let whole_in_8 = rng.below(8);
    choice.clear();
    choice.extend(lines.iter().map(|line| {
        if rng.below(8) < whole_in_8 {
            line.stores.len()
        } else if rng.below(2) == 0 {
            0
        } else {
            line.stops[rng.below(line.stops.len())]
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Replay;
    use std::collections::HashSet;

    fn two_lines() -> Vec<PendingLine> {
        let mut replay = Replay::new(&[0; 256], 0, 256);
        for (event, off) in [0, 8, 16, 64, 72].into_iter().enumerate() {
            replay.store(event, 0, off, &[1; 8]);
        }
        replay.pending()
    }

    fn visit(lines: &[PendingLine], limit: usize, seed: u64) -> Vec<Vec<usize>> {
        let mut choices = Choices::new(lines, limit, seed);
        let mut all = Vec::new();
        let mut choice = Vec::new();
        while choices.next(&mut choice) {
            all.push(choice.clone());
        }
        all
    }

    #[test]
    fn few_combinations_are_all_visited_once() {
        let lines = two_lines();
        assert!(Choices::new(&lines, 12, 1).is_exhaustive());
        let all = visit(&lines, 12, 1);
        assert_eq!(all.len(), 4 * 3);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 12);
    }

    #[test]
    fn many_combinations_are_sampled_with_the_extremes_first_and_the_same_for_a_seed() {
        let lines = two_lines();
        let some = visit(&lines, 11, 7);
        assert_eq!(some.len(), 11);
        assert_eq!(some[..2], [vec![0, 0], vec![3, 2]]);
        assert_eq!(some, visit(&lines, 11, 7));
        assert_ne!(some, visit(&lines, 11, 8));
    }

    #[test]
    fn no_pending_line_means_one_image() {
        assert_eq!(visit(&[], 100, 1), vec![Vec::<usize>::new()]);
    }
}
