//! A pool that lives for long, in small: half of it are keys and values, which are seven tenths and more of
//! it with their records and nodes; they come and go with changing lengths, and it is compacted unasked.
//!
//! `TEMBO_OPERATIONS=100000000 cargo test --release -p tembo --test suite -- ten_days --nocapture` is the
//! long form.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Instant;
use tembo::{Durability, Map, Options, Pool};

const POOL_BYTES: u64 = 64 << 20;
/// Bytes of keys and values that are alive.
const ALIVE: u64 = POOL_BYTES / 2;
/// The median length of a day's values.
const MEDIANS: [usize; 10] = [100, 600, 200, 1500, 80, 300, 1000, 150, 2500, 400];

fn new_pool(dir: &tempfile::TempDir, name: &str) -> Pool {
    let options = Options::new().durability(Durability::PageCache).create(true).initial_bytes(1 << 20);
    options.max_bytes(POOL_BYTES).open(dir.path().join(name)).unwrap()
}

fn used_bytes(pool: &Pool) -> u64 {
    let stats = pool.stats();
    stats.pool_bytes - stats.unused_bytes
}

/// Keys in no order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    vec![number as u8; bytes]
}

/// A map whose contents are as large all the time.
struct Life {
    map: Map,
    random: Xoshiro256PlusPlus,
    /// Numbers of records, and the lengths of their values.
    alive: Vec<(u64, usize)>,
    bytes: u64,
    next: u64,
    operations: u64,
}

impl Life {
    /// Puts values of about this length until enough is alive. None is refused.
    fn fill(&mut self, median: usize) {
        while self.bytes < ALIVE {
            let bytes = self.random.random_range(median / 2..median * 3 / 2);
            self.map.put(key(self.next), value(self.next, bytes)).unwrap();
            self.alive.push((self.next, bytes));
            (self.next, self.operations) = (self.next + 1, self.operations + 1);
            self.bytes += bytes as u64 + 8;
        }
    }

    fn remove_one(&mut self) {
        let at = self.random.random_range(0..self.alive.len());
        let (number, bytes) = self.alive.swap_remove(at);
        assert!(self.map.remove(key(number)).unwrap());
        self.operations += 1;
        self.bytes -= bytes as u64 + 8;
    }

    /// Replaces values of at least `longest` bytes, so that the contents are like those of the first day.
    fn shorten(&mut self, longest: usize, median: usize) {
        let (long, short) =
            std::mem::take(&mut self.alive).into_iter().partition(|(_, bytes)| *bytes >= longest);
        self.alive = short;
        let long: Vec<(u64, usize)> = long;
        for (number, bytes) in long {
            assert!(self.map.remove(key(number)).unwrap());
            self.bytes -= bytes as u64 + 8;
            self.fill(median);
        }
    }

    /// Replaces records by others of about this length; returns operations per second.
    fn day(&mut self, operations: u64, median: usize) -> f64 {
        let (started, end) = (Instant::now(), self.operations + operations);
        let before = self.operations;
        while self.operations < end {
            self.remove_one();
            self.fill(median);
        }
        (self.operations - before) as f64 / started.elapsed().as_secs_f64()
    }
}

/// The speed of the one as a share of the other's, by turns: the median of many short races over the same
/// operations.
fn compare(one: &mut Life, other: &mut Life, operations: u64) -> f64 {
    const RACES: u64 = 31;
    let race = |_| {
        let one = one.day(operations / RACES, MEDIANS[0]);
        one / other.day(operations / RACES, MEDIANS[0])
    };
    let mut ratios: Vec<f64> = (0..RACES).map(race).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// No change is refused, and in the end the pool is hardly larger than a fresh one. Its speed as a share of
/// that one's is printed only.
#[test]
fn ten_days_of_changing_lengths_leave_a_pool_as_good_as_new() {
    let operations: u64 = std::env::var("TEMBO_OPERATIONS").map_or(2_000_000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir, "old.pool");
    let map = pool.open_map("map").unwrap();
    let random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut life = Life { map, random, alive: Vec::new(), bytes: 0, next: 0, operations: 0 };
    life.fill(MEDIANS[0]);
    let day = operations / 14;
    life.day(day, MEDIANS[0]);
    let mut most = 0;
    for round in 0..12 {
        life.day(day, MEDIANS[round % MEDIANS.len()]);
        most = most.max(used_bytes(&pool));
    }
    life.day(day, MEDIANS[0]);
    life.shorten(2 * MEDIANS[0], MEDIANS[0]);
    life.day(day, MEDIANS[0]);
    let fresh_pool = new_pool(&dir, "fresh.pool");
    let fresh = fresh_pool.open_map("map").unwrap();
    life.alive
        .iter()
        .for_each(|(number, bytes)| _ = fresh.put(key(*number), value(*number, *bytes)).unwrap());
    let (now, ideal) = (used_bytes(&pool), used_bytes(&fresh_pool));
    let (random, alive, bytes) = (life.random.clone(), life.alive.clone(), life.bytes);
    let (next, operations) = (life.next, life.operations);
    let mut young = Life { map: fresh, random, alive, bytes, next, operations };
    let speed = compare(&mut life, &mut young, day);
    assert!(young.alive == life.alive);
    println!(
        "{} operations; a fresh pool is {}% full; {now} bytes, {}% of that, and {most} at most; \
         {:.2} times the speed of the fresh pool",
        life.operations,
        ideal * 100 / POOL_BYTES,
        now * 100 / ideal,
        speed
    );
    assert!(now <= ideal * 3 / 2, "{now} {ideal}");
    let is_there = |(number, bytes): &(u64, usize)| {
        *life.map.get(key(*number)).unwrap().unwrap() == value(*number, *bytes)
    };
    assert!(life.alive.iter().all(is_there));
    assert_eq!(life.map.len().unwrap(), life.alive.len() as u64);
    drop(life);
    pool.check().unwrap();
}
