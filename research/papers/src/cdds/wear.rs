//! How a skewed load of updates wears the memory under the trees that are compared.

use super::counts::load;
use super::sides::SideKind;
use crate::nvm::{Cost, Listener, Model, Params, WearSummary};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use tembo_goals::Error;
use tembo_pmem::Region;

/// The skew of the load, as YCSB has it.
pub const THETA: f64 = 0.99;

/// The wear of the memory by updates.
#[derive(Debug, Clone, Copy)]
pub struct Worn {
    /// How often lines were written.
    pub wear: WearSummary,
    /// The cost of all of it.
    pub cost: Cost,
}

/// Puts `keys` keys and then updates keys that a Zipf distribution chooses, in the model.
///
/// # Errors
///
/// When the parameters have no such memory, or there is no room.
pub fn wear(
    kind: SideKind,
    keys: usize,
    updates: usize,
    seed: u64,
    params: &Params,
    medium: &str,
) -> Result<Worn, Error> {
    let bytes = SideKind::room(keys);
    let listener = Arc::new(Listener::new(Model::new(params, medium)?, &[]));
    let mut side =
        kind.create(Region::simulated(&vec![0; bytes as usize], bytes, Some(listener.clone()))?)?;
    let keys = load(&mut *side, keys, seed)?;
    let zipf = Zipf::new(keys.len(), THETA);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    // The keys are in random order, so that the popular ones are anywhere.
    let changes: Vec<(u64, u64)> =
        (0..updates as u64).map(|value| (keys[zipf.draw(&mut random)], value)).collect();
    listener.measure();
    side.put(&changes)?;
    let (cost, wear) = listener.finish();
    Ok(Worn { wear, cost })
}

/// Ranks below a number, the first ones most often.
#[derive(Debug)]
struct Zipf {
    /// For each rank how probable it or a lower one is.
    up_to: Vec<f64>,
}

impl Zipf {
    fn new(count: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-theta);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|share| *share /= sum);
        Zipf { up_to }
    }

    fn draw(&self, random: &mut impl Rng) -> usize {
        let chosen: f64 = random.random();
        self.up_to.partition_point(|share| *share < chosen).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_ranks_come_as_often_as_they_should() {
        let zipf = Zipf::new(1000, THETA);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random)] += 1);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        for rank in [1, 2, 10] {
            let expected = 100_000.0 * f64::from(rank).powf(-THETA) / sum;
            let found = f64::from(counts[rank as usize - 1]);
            assert!((found / expected - 1.0).abs() < 0.1, "rank {rank}: {found} {expected}");
        }
    }

    /// The version word is in one line, which every change of the paper's tree writes; ours has its in a
    /// record.
    #[test]
    fn the_papers_tree_writes_one_line_with_each_update() {
        let worn = |kind| wear(kind, 2000, 3000, 7, &Params::wbtree(), "pcm").unwrap().wear;
        assert_eq!(worn(SideKind::PaperSorted).max, 3000);
        let tembo = worn(SideKind::Tembo);
        assert!(tembo.max < 3000 / 4, "{tembo:?}");
    }
}
