//! The seeded workload: operations that depend on nothing but a seed and their number, and the state that
//! they lead to.
//!
//! The same seed gives the same operations on every machine and in every later version, so that a crash that
//! an outside tool found can be told by two numbers. That is why the generator is written out here.

use std::collections::BTreeMap;

/// How many different keys there are.
const KEYS: u64 = 200;
/// The largest value, for which no more than a few exist at a time.
const LARGE_VALUE_BYTES: u64 = 40_000;

/// The state that the operations lead to.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A change of one map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Inserts or replaces.
    Put(Vec<u8>, Vec<u8>),
    /// Removes, or does nothing if the key is absent.
    Remove(Vec<u8>),
    /// Removes everything.
    Clear,
}

impl Change {
    /// Makes the change in the model.
    pub(crate) fn apply(&self, model: &mut Model) {
        match self {
            Change::Put(key, value) => drop(model.insert(key.clone(), value.clone())),
            Change::Remove(key) => drop(model.remove(key)),
            Change::Clear => model.clear(),
        }
    }
}

/// The changes of operation `number` (from 0): durable together or not at all.
pub(crate) fn operation(seed: u64, number: u64) -> Vec<Change> {
    let mut random = Random::for_operation(seed, number);
    match random.below(100) {
        0 => vec![Change::Clear],
        1..60 => vec![put(&mut random)],
        60..85 => vec![Change::Remove(key(random.below(KEYS)))],
        _ => {
            let changes = 2 + random.below(7);
            (0..changes)
                .map(|_| if random.below(3) == 0 { remove(&mut random) } else { put(&mut random) })
                .collect()
        }
    }
}

/// The state after the first `operations` operations.
pub(crate) fn model_after(seed: u64, operations: u64) -> Model {
    let mut model = Model::new();
    for number in 0..operations {
        operation(seed, number).iter().for_each(|change| change.apply(&mut model));
    }
    model
}

fn put(random: &mut Random) -> Change {
    let key = key(random.below(KEYS));
    Change::Put(key, value(random))
}

fn remove(random: &mut Random) -> Change {
    Change::Remove(key(random.below(KEYS)))
}

/// Key `index`: the empty key, binary keys, keys that share long prefixes, and long ones.
fn key(index: u64) -> Vec<u8> {
    match index % 5 {
        _ if index == 0 => Vec::new(),
        0 => index.to_le_bytes().to_vec(),
        1 => format!("key:{index:016}").into_bytes(),
        2 => format!("a/rather/long/prefix/that/many/keys/share/{index}").into_bytes(),
        3 => vec![0xff; 1 + index as usize / 4],
        _ => format!("{index:0>300}").into_bytes(),
    }
}

/// A value of any usual length, now and then a large one; its bytes are random, so that no two are alike.
fn value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(50) {
        0 => random.below(LARGE_VALUE_BYTES),
        1..5 => 0,
        5..20 => 8,
        20..40 => random.below(128),
        _ => random.below(2048),
    };
    (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes as usize).collect()
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A stream of its own for every operation.
    fn for_operation(seed: u64, number: u64) -> Random {
        let seeded = Random::new(seed).next();
        let mut random = Random::new(seeded ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    /// The next 64 random bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`, all nearly equally likely.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use xxhash_rust::xxh3::Xxh3;

    #[test]
    fn keys_are_distinct() {
        let keys: BTreeSet<_> = (0..KEYS).map(key).collect();
        assert_eq!(keys.len() as u64, KEYS);
    }

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423_u64];
        assert_eq!(expected.map(|_| random.next()), expected);
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut sum = Xxh3::new();
        for change in (0..500).flat_map(|number| operation(7, number)) {
            let (kind, key, value) = match change {
                Change::Put(key, value) => (1, key, value),
                Change::Remove(key) => (2, key, Vec::new()),
                Change::Clear => (3, Vec::new(), Vec::new()),
            };
            sum.update(&[kind]);
            sum.update(&key);
            sum.update(&value);
        }
        assert_eq!(sum.digest(), 3_856_850_584_041_947_141);
    }

    #[test]
    fn seeds_and_numbers_give_different_operations() {
        let all: BTreeSet<String> =
            (0..100).flat_map(|s| (0..10).map(move |n| format!("{:?}", operation(s, n)))).collect();
        // Removals of the same key are alike.
        assert!(all.len() > 800, "{}", all.len());
    }

    #[test]
    fn every_kind_of_change_occurs_and_the_state_stays_small() {
        let (mut puts, mut replacing, mut removing, mut clears, mut most_bytes) = (0, 0, 0, 0, 0);
        let mut model = Model::new();
        for change in (0..5000).flat_map(|number| operation(1, number)) {
            match &change {
                Change::Put(key, _) => {
                    (puts, replacing) = (puts + 1, replacing + u64::from(model.contains_key(key)))
                }
                Change::Remove(key) => removing += u64::from(model.contains_key(key)),
                Change::Clear => clears += 1,
            }
            change.apply(&mut model);
            most_bytes = most_bytes.max(model.iter().map(|(k, v)| k.len() + v.len()).sum());
        }
        assert!(
            puts > 3000 && replacing > 500 && removing > 300 && clears > 20,
            "{puts} {replacing} {removing} {clears}"
        );
        assert!(most_bytes < 600_000, "{most_bytes} bytes do not fit a small pool comfortably");
    }
}
