//! The workload: trees of random keys, and random operations on them.

use rand::seq::{SliceRandom, index};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes of a string key, as in the papers.
pub const STRING_BYTES: usize = 20;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A lookup of a present key.
    Search,
    /// An insertion of an absent key.
    Insert,
    /// A removal of a present key.
    Delete,
}

impl Operation {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Search => "search",
            Operation::Insert => "insert",
            Operation::Delete => "delete",
        }
    }
}

/// An operation on trees loaded in a certain way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The operation.
    pub operation: Operation,
    /// How full the nodes are before, in percent.
    pub fill_percent: u32,
}

impl Case {
    /// The papers' cases, in the order of their figures' panels.
    pub const ALL: [Case; 4] = [
        Case { operation: Operation::Search, fill_percent: 70 },
        Case { operation: Operation::Insert, fill_percent: 70 },
        Case { operation: Operation::Delete, fill_percent: 70 },
        Case { operation: Operation::Insert, fill_percent: 100 },
    ];

    /// Its name in figures.
    pub fn name(self) -> String {
        let nodes =
            if self.fill_percent == 100 { "full".to_owned() } else { format!("{}% full", self.fill_percent) };
        format!("{}, nodes {nodes}", self.operation.name())
    }

    /// The fill as a share.
    pub fn fill(self) -> f64 {
        f64::from(self.fill_percent) / 100.0
    }
}

/// A kind of keys that can be made at random.
pub trait RandomKey: Ord + Clone {
    /// One of them.
    fn random(random: &mut Xoshiro256PlusPlus) -> Self;
}

impl RandomKey for u64 {
    fn random(random: &mut Xoshiro256PlusPlus) -> u64 {
        random.random()
    }
}

/// Strings of 20 letters and digits.
impl RandomKey for Vec<u8> {
    fn random(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        (0..STRING_BYTES).map(|_| ALPHABET[random.random_range(0..ALPHABET.len())]).collect()
    }
}

/// Keys to load a tree with, and others.
#[derive(Debug)]
pub struct Keys<K> {
    /// Ascending.
    pub loaded: Vec<K>,
    /// As many as operations, in random order, none of them loaded.
    absent: Vec<K>,
    /// As many loaded ones, in random order, each once.
    present: Vec<K>,
}

impl<K: RandomKey> Keys<K> {
    /// `loaded` keys and the keys of `operations` operations of each kind; the same for the same seed.
    ///
    /// # Panics
    ///
    /// When there are more operations than keys to delete.
    pub fn new(loaded: usize, operations: usize, seed: u64) -> Keys<K> {
        assert!(operations <= loaded, "each operation deletes another key");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut all: Vec<K> = Vec::new();
        while all.len() < loaded + operations {
            let missing = loaded + operations - all.len();
            all.extend((0..missing).map(|_| K::random(&mut random)));
            all.sort_unstable();
            all.dedup();
        }
        let mut is_absent = vec![false; all.len()];
        for at in index::sample(&mut random, all.len(), operations) {
            is_absent[at] = true;
        }
        let mut keys = Keys { loaded: Vec::with_capacity(loaded), absent: Vec::new(), present: Vec::new() };
        for (key, absent) in all.into_iter().zip(is_absent) {
            if absent { keys.absent.push(key) } else { keys.loaded.push(key) }
        }
        keys.absent.shuffle(&mut random);
        let chosen = index::sample(&mut random, loaded, operations);
        keys.present = chosen.iter().map(|at| keys.loaded[at].clone()).collect();
        keys
    }

    /// The keys to do the operation with.
    pub fn of(&self, operation: Operation) -> &[K] {
        match operation {
            Operation::Insert => &self.absent,
            Operation::Search | Operation::Delete => &self.present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn distinct<K: Ord>(keys: &[K]) -> usize {
        keys.iter().collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn keys_are_where_operations_expect_them() {
        let keys: Keys<u64> = Keys::new(1000, 100, 7);
        assert_eq!((keys.loaded.len(), distinct(&keys.loaded)), (1000, 1000));
        assert!(keys.loaded.is_sorted());
        for operation in [Operation::Search, Operation::Delete, Operation::Insert] {
            let chosen = keys.of(operation);
            assert_eq!((chosen.len(), distinct(chosen)), (100, 100), "{}", operation.name());
            let there = chosen.iter().filter(|key| keys.loaded.binary_search(key).is_ok()).count();
            assert_eq!(there, if operation == Operation::Insert { 0 } else { 100 });
            assert!(!chosen.is_sorted());
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_keys_and_another_makes_others() {
        let keys = |seed| Keys::<Vec<u8>>::new(50, 5, seed);
        assert_eq!(keys(1).loaded, keys(1).loaded);
        assert_eq!(keys(1).of(Operation::Insert), keys(1).of(Operation::Insert));
        assert_ne!(keys(1).loaded, keys(2).loaded);
        assert!(keys(1).loaded.iter().all(|key| key.len() == STRING_BYTES));
    }
}
