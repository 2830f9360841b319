//! The campaign of operations at random.

use super::{COUNTINGS, Edit, Op, Trees, audit, key};
use crate::crashes::{Script, survived};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_crashsim::{Simulation, campaign};

/// Keys of a family that a seed chooses: short, long, with shared prefixes, some of them long separators.
fn random_key(rng: &mut Xoshiro256PlusPlus, family: u32, range: u32) -> Vec<u8> {
    let number = rng.random_range(0..range);
    match family {
        0 => key(number),
        1 => [vec![b'x'; 40], number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat(),
        2 => {
            [vec![(number % 7) as u8; 30], (number % 3).to_be_bytes().to_vec(), number.to_be_bytes().to_vec()]
                .concat()
        }
        _ => number.to_be_bytes()[3 - (number % 4) as usize..].to_vec(),
    }
}

impl Trees {
    fn random(seed: u64) -> Trees {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let family = rng.random_range(0..4);
        let range = [20, 80, 300, 2000][rng.random_range(0..4)];
        let inclination = rng.random_range(0.2..0.8);
        let mut edits = |most: usize| -> Vec<Edit> {
            (0..rng.random_range(1..=most))
                .map(|_| {
                    let key = random_key(&mut rng, family, range);
                    match rng.random_range(0..60) {
                        0 => return Edit::RemoveRange(key, random_key(&mut rng, family, range)),
                        1 => return Edit::PopLast,
                        2..5 => return Edit::Extend(key),
                        5..8 => return Edit::Insert(key, vec![7; 20]),
                        8..10 => {
                            let more = rng.random_range(0..30);
                            let mut keys: Vec<_> =
                                (0..more).map(|_| random_key(&mut rng, family, range)).collect();
                            if more % 3 > 0 {
                                keys.sort();
                            }
                            return Edit::PutMany(keys, vec![9; more % 20]);
                        }
                        _ => {}
                    }
                    let bytes = if rng.random_bool(0.05) { 900 } else { rng.random_range(0..60) };
                    if rng.random_bool(inclination) {
                        Edit::Put(key, vec![bytes as u8; bytes])
                    } else {
                        Edit::Remove(key)
                    }
                })
                .collect()
        };
        let start = (0..range).flat_map(|_| edits(1)).collect();
        let ops: Vec<Op> = (0..8)
            .map(|i| match (seed + i * 5) % 23 {
                0 => Op::Clear,
                1 => Op::Reclaim(2),
                2 => Op::ClearBetween(edits(5), edits(5)),
                3 => Op::Abort(edits(30)),
                4 => Op::Partly { undone: edits(30), kept: edits(3) },
                5..8 => Op::Edits(edits(40)),
                8 => Op::Compact,
                _ => Op::Edits(edits(1)),
            })
            .collect();
        let continuation = (0..3).map(|_| Op::Edits(edits(3))).collect();
        let name = format!("random operations, seed {seed}");
        let script = Script { bytes: 384 << 10, ..Script::new(name, ops, continuation) };
        // Half of them count nothing.
        let counting = COUNTINGS[(seed / 23 % 4).saturating_sub(1) as usize];
        Trees { script, start, clear_after_start: seed.is_multiple_of(7), counting }
    }
}

#[test]
fn campaign_of_random_operations() {
    survived(campaign(30_000, |seed| {
        let tree = Trees::random(seed);
        Simulation::new(&tree).seed(seed).limit(10).nested_limit(6).depth(1).audit(audit(true)).run()
    }));
}
