//! Which branches a processor foresees: a predictor that combines two, as processors of the papers' years do,
//! and as the simulator of the wB+-Tree paper does.
//!
//! One half remembers for each place in a program where its branch went lately; the other one where it went
//! after the same last outcomes; a third table remembers which half is right more often.

/// Places in programs whose branches depend on data: those of the trees' searches. All other branches go the
/// same way nearly always, and are not told to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Whether a binary search goes on above the entry that it looked at.
    Above,
    /// Whether a binary search is at its end.
    Narrow,
    /// As [`Above`](Self::Above), of the search for the word of slots.
    AboveSlot,
    /// As [`Narrow`](Self::Narrow), of that search.
    NarrowSlots,
    /// Whether a look at one entry after the other has found the key.
    Equal,
    /// Whether it has run out of entries.
    Last,
}

const SITES: usize = 6;
/// Outcomes that are remembered.
const HISTORY_BITS: u32 = 16;
/// The highest count; from half of it on a branch is expected to be taken.
const MAX: u8 = 3;

/// A predictor of branches.
#[derive(Debug)]
pub(super) struct Predictor {
    by_site: [u8; SITES],
    by_history: Vec<u8>,
    prefers_history: [u8; SITES],
    history: usize,
}

impl Predictor {
    pub(super) fn new() -> Predictor {
        Predictor {
            by_site: [1; SITES],
            by_history: vec![1; 1 << HISTORY_BITS],
            prefers_history: [1; SITES],
            history: 0,
        }
    }

    /// Learns where a branch went; whether that was foreseen.
    pub(super) fn foresees(&mut self, site: Site, taken: bool) -> bool {
        let place = site as usize;
        let mask = (1 << HISTORY_BITS) - 1;
        let entry = (self.history ^ place << (HISTORY_BITS - 3)) & mask;
        let by_site = (self.by_site[place] > MAX / 2) == taken;
        let by_history = (self.by_history[entry] > MAX / 2) == taken;
        let foreseen = if self.prefers_history[place] > MAX / 2 { by_history } else { by_site };
        if by_site != by_history {
            learn(&mut self.prefers_history[place], by_history);
        }
        learn(&mut self.by_site[place], taken);
        learn(&mut self.by_history[entry], taken);
        self.history = (self.history << 1 | usize::from(taken)) & mask;
        foreseen
    }
}

fn learn(count: &mut u8, up: bool) {
    *count = if up { (*count + 1).min(MAX) } else { count.saturating_sub(1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// How many of 1000 branches are not foreseen, after many others.
    fn missed(mut taken: impl FnMut(usize) -> bool) -> usize {
        let mut predictor = Predictor::new();
        (0..100_000).for_each(|i| _ = predictor.foresees(Site::Above, taken(i)));
        (0..1000).filter(|i| !predictor.foresees(Site::Above, taken(*i))).count()
    }

    #[test]
    fn what_repeats_is_foreseen_and_chance_is_not() {
        assert_eq!(missed(|_| true), 0);
        assert_eq!(missed(|i| i % 5 == 0), 0, "a pattern shorter than the history");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let by_chance = missed(|_| random.random());
        assert!((400..600).contains(&by_chance), "{by_chance}");
        let seldom = missed(|_| random.random_ratio(1, 10));
        assert!((50..200).contains(&seldom), "{seldom}");
    }
}
