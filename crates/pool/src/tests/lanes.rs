//! Records that follow one another in a lane: what earlier ones leave there, and what a crash makes of that.

use super::model::{self, LINKS, Model};
use super::{image_of, tiny_pool};
use crate::layout::{PmEntry, PmRecord};
use crate::{Error, Geometry, Lane, Pool, Result, Tx};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, Barrier};
use tembo_crashsim::{Audit, Scenario, Simulation, campaign};
use tembo_pmem::{LINE_BYTES, Observer, Region, ThreadTag, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// More words than a record of the tiny geometry has room for.
const MANY: u64 = 40;

fn try_open(image: &[u8]) -> Result<Pool> {
    Pool::open_in(Region::simulated(image, image.len() as u64, None).unwrap())
}

fn open(image: &[u8]) -> Pool {
    try_open(image).unwrap()
}

fn word(image: &[u8], off: u64) -> u64 {
    u64::from_le_bytes(image[off as usize..][..8].try_into().unwrap())
}

/// A pool that was just opened after a crash, and the offset of a block of words in it.
fn pool_with_words() -> (Pool, u64) {
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let words = tx.alloc(2048).unwrap();
    tx.write_fresh(words, &[0; 2048]).unwrap();
    tx.set_root("words", 1, words).unwrap();
    tx.commit().unwrap();
    drop(lane);
    (open(&image_of(&pool)), words)
}

/// Stores a value to this many words, from `off` on.
fn store(lane: &mut Lane, off: u64, count: u64, value: u64) {
    let mut tx = lane.begin();
    (0..count).for_each(|i| tx.store(off + 8 * i, value).unwrap());
    tx.commit().unwrap();
}

#[test]
fn a_lane_can_be_spared_while_less_than_half_of_them_are_in_use() {
    let pool = tiny_pool(1 << 20);
    let used: Vec<Lane> = (0..2).map(|_| pool.spare_lane().unwrap().unwrap()).collect();
    assert!(pool.spare_lane().unwrap().is_none(), "two of four are in use");
    let others = [pool.lane().unwrap(), pool.lane().unwrap()];
    assert!(matches!(pool.lane(), Err(Error::NoLane { lanes: 4 })));
    assert!(pool.spare_lane().unwrap().is_none());
    drop((used, others));
    assert!(pool.spare_lane().unwrap().is_some());
}

/// In a full pool, where a payload that does not fit into a half has no other place: after records of all lengths, one
/// of so many words.
#[test]
fn what_fits_into_a_half_finds_room_behind_any_other_record_in_a_full_pool() {
    for (lane_bytes, small) in [(2048, 6), (16 << 10, 60)] {
        let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
        let pool = Pool::create_in(region, &Geometry { lane_bytes, ..Geometry::tiny() }).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut blocks = Vec::new();
        for bytes in [16 << 10, 4096, 1024, 256, 64, 16] {
            loop {
                let mut tx = lane.begin();
                let Ok(block) = tx.alloc(bytes) else { break };
                tx.commit().unwrap();
                blocks.push(block);
            }
        }
        let mut store = |words: u64| {
            let mut tx = lane.begin();
            // Words of a line that are stored one after another would share an entry.
            (0..words).for_each(|i| tx.store(blocks[0] + 64 * (i % 69) + 8 * (i / 69), words).unwrap());
            tx.commit()
        };
        let (mut fitted, mut refused) = (0, 0);
        for words in small + 1..u64::from(lane_bytes) / 30 {
            // What follows each.
            for next in [small, 1, words, words] {
                match store(words) {
                    Ok(()) if refused == 0 => fitted += 1,
                    Ok(()) => panic!("{words} words find room, fewer did not"),
                    Err(Error::Full { .. }) => refused += 1,
                    Err(e) => panic!("{e}"),
                }
                if next <= small {
                    store(next).unwrap();
                }
            }
            [small, 1].into_iter().for_each(|words| store(words).unwrap());
        }
        assert!(fitted > 160 && refused > 20, "{fitted} fitted, {refused} refused");
    }
}

/// The second record of a half is chained, and of its head and payload only the head arrives. Later the payload is
/// written to the same place after all, by a lane that does the same again. That must not bring the first one to life: it would
/// be replayed over what came after the second.
#[test]
fn a_chained_record_that_did_not_arrive_is_not_completed_by_a_later_one() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    store(&mut lane, words + 1024, 1, 1);
    let mut torn = image_of(&pool);
    store(&mut lane, words, MANY, 2);
    let complete = image_of(&pool);
    let head = |lane| pool.geometry().half_off(lane, 0);
    let line = (head(0) + LINE_BYTES) as usize..(head(0) + 2 * LINE_BYTES) as usize;
    torn[line.clone()].copy_from_slice(&complete[line.clone()]);

    let again = open(&torn);
    let (_idle, mut lane) = (again.lane().unwrap(), again.lane().unwrap());
    store(&mut lane, words, MANY, 2);
    let chain_of = |image: &[u8], head: u64| word(image, head + offset_of!(PmRecord, chain) as u64);
    let chain = chain_of(&torn, line.start as u64);
    assert!(chain != 0 && chain == chain_of(&image_of(&again), head(1)), "not the place that it should be");
    store(&mut lane, words, 1, 3);
    // In the other half: now the home of the value 3 is durable, and its record dead.
    store(&mut lane, words + 1024, MANY, 4);
    store(&mut lane, words + 1024, 1, 5);
    let reopened = open(&image_of(&again));
    assert_eq!(reopened.region().load_u64(words).unwrap(), 3);
}

/// What is left of earlier records after the last one is neither replayed nor counted.
#[test]
fn what_is_left_of_earlier_records_is_not_counted() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    for commit in 0..40 {
        store(&mut lane, words + 8 * (commit % 3), 1, commit);
        let recovery = open(&image_of(&pool)).recovery();
        assert!((1..=8).contains(&recovery.records_replayed), "commit {commit}: {recovery:?}");
        assert_eq!(recovery.records_discarded, 0, "commit {commit}");
    }
}

/// Words that users store lie in records, at the start of lines too, where a shorter record is followed by what is left
/// of a longer one. Whoever knows the pool's identity can store words that look like a record.
#[test]
fn words_that_users_store_are_no_records() {
    let pool = tiny_pool(2 << 20);
    let seed = pool.uuid().as_u64_pair().0;
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let words = tx.alloc(2048).unwrap();
    tx.write_fresh(words, &[0; 2048]).unwrap();
    let block = tx.alloc(1 << 20).unwrap();
    let (seq, counts) = (words + 16, words + 24);
    let payload: Vec<u8> =
        (0..counts).flat_map(|_| [words.to_le_bytes(), 666u64.to_le_bytes()]).flatten().collect();
    tx.write_fresh(block, &payload).unwrap();
    tx.commit().unwrap();
    for seq_found in [seq, seq >> 3] {
        let fixed: Vec<u8> = [seq_found, counts, block].iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = xxh3_64_with_seed(&payload, xxh3_64_with_seed(&fixed, seed));
        for _ in 0..9 {
            let mut tx = lane.begin();
            for (off, value) in [(words + 8, 1), (words + 32, 2), (seq, sum), (counts, block)] {
                tx.store(off, value).unwrap();
            }
            tx.commit().unwrap();
        }
        for _ in 0..8 {
            store(&mut lane, words + 8, 1, 1);
            assert_eq!(open(&image_of(&pool)).region().load_u64(words).unwrap(), 0);
        }
    }
}

/// Frees 40 blocks in one transaction; returns how many wait in limbo then.
fn free_40(pool: &Pool, lane: &mut Lane, words: u64) -> u64 {
    free(pool, lane, words, 40)
}

/// The same of so many blocks.
fn free(pool: &Pool, lane: &mut Lane, words: u64, count: u64) -> u64 {
    let mut tx = lane.begin();
    let blocks: Vec<u64> = (0..count).map(|_| tx.alloc(64).unwrap()).collect();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    blocks.iter().for_each(|block| tx.free(*block).unwrap());
    tx.commit().unwrap();
    let waiting = pool.limbo_bytes() / 64;
    // These switch, so that the record of the frees dies.
    (0..4).for_each(|value| store(lane, words, MANY, value));
    waiting
}

/// When limbo is looked through, what dead records freed comes back, and what live ones freed does not (L2).
#[test]
fn blocks_that_live_records_freed_stay_in_limbo() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    assert_eq!([(); 4].map(|()| free_40(&pool, &mut lane, words)), [40; 4]);
}

/// A look at limbo costs a barrier of all threads. One that a reader made fruitless is not repeated at each commit; what it finds leaves in
/// parts.
#[test]
fn limbo_is_not_looked_through_again_before_it_has_grown() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    let reader = pool.pin();
    assert_eq!([(); 2].map(|()| free_40(&pool, &mut lane, words)), [40, 80]);
    drop(reader);
    assert_eq!([(); 3].map(|()| free_40(&pool, &mut lane, words)), [120, 80, 40]);
}

/// What readers have kept in limbo leaves it soon, also if little is freed afterwards.
#[test]
fn a_backlog_leaves_limbo_with_few_commits() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    let reader = pool.pin();
    let waiting = [(); 25].map(|()| free_40(&pool, &mut lane, words));
    assert_eq!(waiting[24], 1000);
    drop(reader);
    let waiting = [(); 100].map(|()| free(&pool, &mut lane, words, 1));
    assert!(waiting[99] < 100, "{waiting:?}");
    let left = waiting.iter().position(|waiting| *waiting < 100).unwrap();
    let asked = waiting.iter().position(|waiting| *waiting < 1000).unwrap();
    assert!(left - asked <= 15, "{waiting:?}");
}

/// What is known of readers says nothing of blocks that were freed afterwards.
#[test]
fn what_is_freed_after_a_look_at_limbo_waits_for_readers_who_came_before() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    // Nobody reads, and limbo is looked through, but for what the last frees have put there.
    (0..4).for_each(|_| _ = free_40(&pool, &mut lane, words));
    let left = pool.limbo_bytes() / 64;
    let reader = pool.pin();
    let waiting = [(); 6].map(|()| free_40(&pool, &mut lane, words));
    assert!(left < 200 && waiting[5] >= 240, "{left} {waiting:?}");
    drop(reader);
    let waiting = [(); 6].map(|()| free_40(&pool, &mut lane, words));
    assert!(waiting[5] < 200, "{waiting:?}");
}

/// Takes its time for each store, so that others come between what a thread reads and what it stores then.
struct Slow;

impl Observer for Slow {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {
        (0..if cfg!(miri) { 1 } else { 100 }).for_each(|_| std::hint::spin_loop());
    }
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
}

/// Lanes that free blocks of the same words of bitmaps at the same time lose no bit, whether a commit changes one word or many.
#[test]
fn bits_of_one_word_that_several_lanes_change_at_once_are_all_there() {
    const LANES: usize = 3;
    let region = Region::simulated(&vec![0; 4 << 20], 4 << 20, Some(Arc::new(Slow))).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let mut lanes: Vec<Lane> = (0..LANES).map(|_| pool.lane().unwrap()).collect();
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let (count, each) = if round % 2 == 0 { (60, 1) } else { (64 * 60, 640) };
        let mut tx = lanes[0].begin();
        let blocks: Vec<u64> = (0..count).map(|_| tx.alloc(16).unwrap()).collect();
        tx.commit().unwrap();
        let start = Barrier::new(LANES);
        std::thread::scope(|scope| {
            for (number, lane) in lanes.iter_mut().enumerate() {
                let (pool, start) = (&pool, &start);
                let own: Vec<u64> = blocks.iter().skip(number).step_by(LANES).copied().collect();
                scope.spawn(move || {
                    start.wait();
                    for some in own.chunks(each) {
                        let _pin = pool.pin();
                        let mut tx = lane.begin();
                        some.iter().for_each(|off| tx.free(*off).unwrap());
                        tx.commit().unwrap();
                    }
                });
            }
        });
        pool.marks().unwrap().finish().unwrap();
        pool.inner.reclaim_all().unwrap();
    }
    open(&image_of(&pool)).marks().unwrap().finish().unwrap();
}

/// As above, where one lane sets bits of a word and another clears some. (Looked at after each round: a later store to the word would make up for a
/// lost one.)
#[test]
fn bits_of_one_word_that_lanes_set_and_clear_at_once_are_all_there() {
    let region = Region::simulated(&vec![0; 4 << 20], 4 << 20, Some(Arc::new(Slow))).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let (mut setter, mut clearer) = (pool.lane().unwrap(), pool.lane().unwrap());
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut tx = setter.begin();
        let first: Vec<u64> = (0..20).map(|_| tx.alloc(16).unwrap()).collect();
        tx.commit().unwrap();
        let start = Barrier::new(2);
        let mut kept = Vec::new();
        std::thread::scope(|scope| {
            let (pool, start, clearer) = (&pool, &start, &mut clearer);
            scope.spawn(move || {
                start.wait();
                for off in first {
                    let _pin = pool.pin();
                    let mut tx = clearer.begin();
                    tx.free(off).unwrap();
                    tx.commit().unwrap();
                }
            });
            start.wait();
            for _ in 0..20 {
                let _pin = pool.pin();
                let mut tx = setter.begin();
                kept.push(tx.alloc(16).unwrap());
                tx.commit().unwrap();
            }
        });
        let mut marks = pool.marks().unwrap();
        kept.iter().for_each(|off| marks.reach(*off, 16).unwrap());
        marks.finish().unwrap();
        let mut tx = setter.begin();
        kept.iter().for_each(|off| tx.free(*off).unwrap());
        tx.commit().unwrap();
        pool.inner.reclaim_all().unwrap();
    }
}

/// Allocates blocks of so many bytes, each in a commit of its own, until there is no more room.
fn fill(pool: &Pool, lane: &mut Lane, bytes: u64) -> Vec<u64> {
    std::iter::from_fn(|| {
        let _pin = pool.pin();
        let mut tx = lane.begin();
        match tx.alloc(bytes) {
            Ok(off) => {
                tx.commit().unwrap();
                Some(off)
            }
            Err(Error::Full { .. }) => None,
            Err(e) => panic!("{e}"),
        }
    })
    .collect()
}

/// In a full pool, what a commit has freed is to be had by who begins after it, whoever pins by then.
#[test]
fn what_is_freed_in_a_full_pool_is_had_by_the_next() {
    for (bytes, beside) in [64, 1000, 40_000].into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let pool = tiny_pool(1 << 20);
        let mut lane = pool.lane().unwrap();
        let _claim = beside.then(|| pool.claim(4096).unwrap());
        let mut blocks = fill(&pool, &mut lane, bytes);
        for _ in 0..20 {
            {
                let _pin = pool.pin();
                let mut tx = lane.begin();
                tx.free(blocks.pop().unwrap()).unwrap();
                tx.commit().unwrap();
            }
            let _pin = pool.pin();
            let mut tx = lane.begin();
            blocks.push(tx.alloc(bytes).unwrap());
            tx.commit().unwrap();
        }
    }
}

/// The same where the lane that has freed it does nothing else, and another asks.
#[test]
fn what_a_lane_that_idles_has_freed_in_a_full_pool_is_had_by_another() {
    let pool = tiny_pool(1 << 20);
    let (mut idle, mut lane) = (pool.lane().unwrap(), pool.lane().unwrap());
    let blocks = fill(&pool, &mut idle, 40_000);
    let mut tx = idle.begin();
    tx.free(blocks[0]).unwrap();
    tx.commit().unwrap();
    for _ in 0..3 {
        let _pin = pool.pin();
        let mut tx = lane.begin();
        tx.alloc(40_000).unwrap();
    }
}

/// Entries, covers and their sum leave the mark of a head to heads, wherever their lines begin.
#[test]
fn only_heads_are_marked_as_heads() {
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    let lanes = pool.geometry().lane_off(0)..pool.geometry().lane_off(1);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
    for _ in 0..1500 {
        let before = image_of(&pool);
        let mut tx = lane.begin();
        for _ in 0..rng.random_range(1..5) {
            let bytes = rng.random_range(16..300);
            model::put(&mut tx, table, rng.random_range(0..LINKS), bytes, rng.random()).unwrap();
        }
        tx.commit().unwrap();
        let after = image_of(&pool);
        let lines = lanes.clone().step_by(LINE_BYTES as usize);
        let written = lines.filter(|line| {
            let line = *line as usize..(line + LINE_BYTES) as usize;
            before[line.clone()] != after[line]
        });
        assert_eq!(written.filter(|line| word(&after, *line) & 7 == 7).count(), 1);
    }
}

// Crashes of lanes that mostly store words: where each transaction allocates, as in `crash.rs`, the words of the bitmaps
// make lanes settle each other all the time.

const WORDS: u64 = 96;

#[derive(Debug, Clone)]
enum Op {
    /// Stores a value to some words; an even one by line, here and below.
    Store { lane: usize, words: Vec<u64>, value: u64 },
    /// As `Store`, to so many that the record is chained.
    Fill { lane: usize, from: u64, value: u64 },
    /// Links new blocks.
    Put { lane: usize, links: Vec<u64>, bytes: u64 },
    /// Frees the blocks of many links, so that limbo is looked through.
    Clear { lane: usize },
}

struct State {
    pool: Pool,
    table: u64,
    lanes: Vec<Lane>,
    /// Has all space that is left.
    hoard: Option<Tx<'static>>,
}

struct Words {
    seed: u64,
    lanes: usize,
    /// Whether there is no room for payloads outside of the lanes.
    is_full: bool,
    geometry: Geometry,
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

impl Words {
    /// In a full pool, only what fits into a half, but hardly beside another in the shortest.
    fn new(seed: u64, is_full: bool) -> Words {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let lanes = rng.random_range(1..=3);
        // One lane does most of the work, so that it is ahead of the others, or behind.
        let busy = rng.random_range(0..lanes);
        let few = if is_full { 4 } else { rng.random_range(1..=6) };
        let kinds = if is_full { 10 } else { 16 };
        let mut op = |_| {
            let lane = if rng.random_bool(0.6) { busy } else { rng.random_range(0..lanes) };
            let value = rng.random_range(1..1 << 40);
            match rng.random_range(0..kinds) {
                0..10 => {
                    let words = (0..rng.random_range(1..=few)).map(|_| rng.random_range(0..WORDS)).collect();
                    Op::Store { lane, words, value }
                }
                10..13 => Op::Fill { lane, from: rng.random_range(0..WORDS - MANY), value },
                13 => Op::Clear { lane },
                _ => {
                    let links = (0..rng.random_range(1..5)).map(|_| rng.random_range(0..LINKS)).collect();
                    Op::Put { lane, links, bytes: [24, 60, 200, 1100][rng.random_range(0..4)] }
                }
            }
        };
        let ops = (0..16).map(&mut op).collect();
        let continuation = (0..4).map(op).collect();
        // Halves of 3 to 7 lines.
        let geometry = Geometry { lane_bytes: 512 + 128 * (seed % 5) as u32, ..Geometry::tiny() };
        Words { seed, lanes, is_full, geometry, ops, continuation }
    }

    fn state(&self, pool: Pool) -> Result<State> {
        let mut lanes = (0..self.lanes).map(|_| pool.lane()).collect::<Result<Vec<_>>>()?;
        if let Some(root) = pool.root("table")? {
            let hoard = self.hoard(&pool)?;
            return Ok(State { pool, table: root.off, lanes, hoard });
        }
        let mut tx = lanes[0].begin();
        let bytes = 8 * (LINKS + WORDS);
        let table = tx.alloc(bytes)?;
        tx.write_fresh(table, &vec![0; bytes as usize])?;
        tx.set_root("table", 7, table)?;
        tx.commit()?;
        // Some limbo, which the next frees make enough to be looked through.
        for lane in &mut lanes {
            for _ in 0..if self.is_full { 0 } else { 2 * (self.seed % 2) } {
                let mut tx = lane.begin();
                (0..28).try_for_each(|link| model::put(&mut tx, table, link, 40, 1))?;
                tx.commit()?;
                clear(lane, table)?;
            }
        }
        let hoard = self.hoard(&pool)?;
        Ok(State { pool, table, lanes, hoard })
    }

    /// Takes all space, if the pool is to be full.
    fn hoard(&self, pool: &Pool) -> Result<Option<Tx<'static>>> {
        if !self.is_full {
            return Ok(None);
        }
        let mut tx = pool.lane()?.into_tx();
        for bytes in (4..26).rev().map(|shift| 1 << shift) {
            while tx.alloc(bytes).is_ok() {}
        }
        Ok(Some(tx))
    }
}

fn clear(lane: &mut Lane, table: u64) -> Result<()> {
    let mut tx = lane.begin();
    (0..LINKS).try_for_each(|link| model::remove(&mut tx, table, link))?;
    tx.commit()
}

impl Scenario for Words {
    type State = State;
    type Op = Op;
    type Model = (Model, Vec<u64>);

    fn name(&self) -> String {
        format!("words, seed {}", self.seed)
    }

    fn region_bytes(&self) -> u64 {
        384 << 10
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        Pool::create_in(region, &self.geometry).and_then(|pool| self.state(pool)).map_err(|e| e.to_string())
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        Pool::open_in(region).and_then(|pool| self.state(pool)).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        let State { table, lanes, .. } = state;
        let words_off = *table + 8 * LINKS;
        let done = match op {
            Op::Store { lane, words, value } => {
                let mut tx = lanes[*lane].begin();
                let by_line = value % 2 == 0;
                let mut store =
                    |off| if by_line { tx.store_words(off, &[*value]) } else { tx.store(off, *value) };
                words.iter().try_for_each(|word| store(words_off + 8 * word)).and_then(|()| tx.commit())
            }
            Op::Fill { lane, from, value } if value % 2 == 0 => {
                let mut tx = lanes[*lane].begin();
                tx.store_words(words_off + 8 * from, &[*value; MANY as usize]).and_then(|()| tx.commit())
            }
            Op::Fill { lane, from, value } => {
                store(&mut lanes[*lane], words_off + 8 * from, MANY, *value);
                Ok(())
            }
            Op::Put { lane, links, bytes } => {
                let mut tx = lanes[*lane].begin();
                links
                    .iter()
                    .try_for_each(|link| model::put(&mut tx, *table, *link, *bytes, *link))
                    .and_then(|()| tx.commit())
            }
            Op::Clear { lane } => clear(&mut lanes[*lane], *table),
        };
        done.map_err(|e| e.to_string())
    }

    fn initial(&self) -> (Model, Vec<u64>) {
        (Model::new(), vec![0; WORDS as usize])
    }

    fn apply_model(&self, (links, words): &mut (Model, Vec<u64>), op: &Op) {
        match op {
            Op::Store { words: stored, value, .. } => {
                stored.iter().for_each(|word| words[*word as usize] = *value)
            }
            Op::Fill { from, value, .. } => words[*from as usize..][..MANY as usize].fill(*value),
            Op::Put { links: put, bytes, .. } => {
                put.iter().for_each(|link| _ = links.insert(*link, (*bytes, *link)))
            }
            Op::Clear { .. } => links.clear(),
        }
    }

    fn observe(&self, state: &State) -> Result<(Model, Vec<u64>), String> {
        let links = model::read(&state.pool).map_err(|e| e.to_string())?;
        let word = |word| state.pool.region().load_u64(state.table + 8 * (LINKS + word));
        let words = (0..WORDS).map(word).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        Ok((links, words))
    }

    fn check(&self, state: &State) -> Result<(), String> {
        debug_assert_eq!(state.hoard.is_some(), self.is_full);
        state.pool.marks().map(drop).map_err(|e| e.to_string())
    }
}

#[test]
fn lanes_that_store_words_survive_crashes() {
    simulate(100_000, false);
}

/// Where a record finds no room behind the first of a half, one that changes nothing comes between.
#[test]
fn lanes_that_store_words_survive_crashes_in_a_full_pool() {
    simulate(2_000, true);
}

fn simulate(images: u64, is_full: bool) {
    // Many different histories rather than many images of each.
    let report = campaign(images, |seed| {
        let (limit, depth) = if seed % 8 == 7 { (16, 1) } else { (3, 0) };
        Simulation::new(&Words::new(seed, is_full))
            .seed(seed)
            .limit(limit)
            .depth(depth)
            .audit(Audit::off())
            .run()
    });
    match report {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

// Media that says anything.

/// Puts a record to an offset, with a checksum that matches.
fn forge(image: &mut [u8], off: u64, (seq, counts, chain): (u64, u64, u64), payload: &[u8]) {
    let uuid: [u8; 16] = image[32..48].try_into().unwrap();
    let seed = uuid::Uuid::from_bytes(uuid).as_u64_pair().0;
    let fixed: Vec<u8> = [seq, counts, chain].iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = xxh3_64_with_seed(payload, xxh3_64_with_seed(&fixed, seed));
    let head: Vec<u8> =
        [seq << 3 | 7, sum, counts, chain].iter().flat_map(|word| word.to_le_bytes()).collect();
    let payload_off = if chain == 0 { off as usize + head.len() } else { chain as usize };
    image[payload_off..][..payload.len()].copy_from_slice(payload);
    image[off as usize..][..head.len()].copy_from_slice(&head);
}

/// Records that share one payload, each almost half as large as the pool: recovery must not hold them all in memory.
#[test]
fn records_larger_than_the_pool_are_refused() {
    let pool = tiny_pool(2 << 20);
    let geometry = *pool.geometry();
    let (mut image, first) = (image_of(&pool), geometry.chunk_off(0, 10));
    let entries = (2 << 20) * 2 / 5 / size_of::<PmEntry>() as u64;
    let payload: Vec<u8> = (0..entries).flat_map(|_| [first.to_le_bytes(), [7; 8]]).flatten().collect();
    for lane in 0..geometry.lane_count {
        for record in 0..geometry.half_bytes() / LINE_BYTES {
            let off = geometry.half_off(lane, 0) + record * LINE_BYTES;
            forge(&mut image, off, (record + 1, entries, first), &payload);
        }
        match try_open(&image) {
            // Only the first two of a half may be chained.
            Ok(pool) => assert_eq!((lane, pool.recovery().records_replayed), (0, 2)),
            Err(e) => assert!(lane > 0 && matches!(e, Error::Corrupt { .. }), "lane {lane}: {e}"),
        }
    }
}

/// Records that are complete and name anything at all.
#[test]
fn forged_records_do_no_harm() {
    let pool = tiny_pool(256 << 10);
    model::make_table(&mut pool.lane().unwrap()).unwrap();
    let (image, geometry) = (image_of(&pool), *pool.geometry());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut opened = 0;
    for _ in 0..2000 {
        let mut damaged = image.clone();
        let mut seq = 1;
        for _ in 0..rng.random_range(1..6) {
            let (lane, half) = (rng.random_range(0..geometry.lane_count), rng.random_range(0..2));
            let mut off = geometry.half_off(lane, half);
            for _ in 0..rng.random_range(1..4) {
                let (entries, covers) = (rng.random_range(0..4), rng.random_range(0..3));
                let mut payload = Vec::new();
                let anywhere = |rng: &mut Xoshiro256PlusPlus| match rng.random_range(0..16) {
                    0 => rng.random(),
                    1 => geometry.half_off(rng.random_range(0..geometry.lane_count), 0),
                    2 => image.len() as u64 - 8,
                    _ => geometry.chunk_off(0, 1) + 8 * rng.random_range(0..20_000),
                };
                for _ in 0..entries {
                    payload.extend((anywhere(&mut rng) & !7 | rng.random_range(0..4)).to_le_bytes());
                    payload.extend((rng.random::<u64>() >> rng.random_range(0..64)).to_le_bytes());
                }
                for _ in 0..covers {
                    payload.extend((anywhere(&mut rng) << 16 | rng.random_range(0..0x1_0000)).to_le_bytes());
                }
                payload.resize(payload.len() + if covers > 0 { 8 } else { 0 }, 3);
                let chain = if rng.random_bool(0.3) { 8 * rng.random_range(3000..8000) } else { 0 };
                seq += rng.random_range(0..3);
                forge(&mut damaged, off, (seq, entries | covers << 32, chain), &payload);
                let inline_bytes = if chain == 0 { payload.len() as u64 } else { 0 };
                off += (size_of::<PmRecord>() as u64 + inline_bytes).next_multiple_of(LINE_BYTES);
            }
        }
        let Ok(pool) = try_open(&damaged) else { continue };
        opened += 1;
        let _ = pool.marks().map(|marks| marks.finish());
        let Ok(mut lane) = pool.lane() else { continue };
        for bytes in [40, 300, 9000] {
            let mut tx = lane.begin();
            let _ = tx.alloc(bytes).and_then(|block| tx.store(block, 1));
            let _ = tx.commit();
        }
        // What was replayed is dead.
        drop(lane);
        let again = try_open(&image_of(&pool)).unwrap();
        assert!(again.recovery().records_replayed <= 3, "{:?}", again.recovery());
    }
    assert!(opened > 100, "only {opened} of the images could be opened");
}

/// A reader that came after the commit, but before what leads to the block in memory was changed, still finds it.
#[test]
fn a_block_that_was_unlinked_late_waits_for_readers_from_before_that() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    tx.set_root("block", 1, block).unwrap();
    tx.commit().unwrap();
    let writer = pool.pin();
    let mut tx = lane.begin();
    tx.remove_root("block").unwrap();
    tx.free(block).unwrap();
    tx.commit().unwrap();
    let reader = pool.pin();
    lane.unlinked_only_now();
    drop(writer);
    pool.inner.reclaim_all().unwrap();
    assert_eq!(pool.limbo_bytes(), 64, "the reader may look at it");
    drop(reader);
    pool.inner.reclaim_all().unwrap();
    assert_eq!(pool.limbo_bytes(), 0);
}

/// A transaction that began before a block was freed may store to it, and be committed after that.
#[test]
fn a_block_that_was_stored_to_while_it_was_freed_waits_for_that_record() {
    let pool = tiny_pool(256 << 10);
    let (mut writer, mut freer) = (pool.lane().unwrap(), pool.lane().unwrap());
    let mut tx = writer.begin();
    let block = tx.alloc(64).unwrap();
    tx.write_fresh(block, &[1; 64]).unwrap();
    tx.commit().unwrap();
    let pin = pool.pin();
    let mut late = writer.begin();
    late.store(block, 7).unwrap();
    let mut tx = freer.begin();
    tx.free(block).unwrap();
    tx.commit().unwrap();
    late.commit().unwrap();
    pool.inner.lanes[freer.number as usize].reclaim(&pool.inner).unwrap();
    assert_eq!(pool.limbo_bytes(), 64, "it is not over");
    drop(pin);
    pool.inner.lanes[freer.number as usize].reclaim(&pool.inner).unwrap();
    assert_eq!(pool.limbo_bytes(), 0);
    // The lane that has the late record gets the block again.
    let mut tx = writer.begin();
    let again: Vec<u64> = (0..64).map(|_| tx.alloc(64).unwrap()).take_while(|off| *off != block).collect();
    assert!(again.len() < 64, "it is handed out again");
    tx.write_fresh(block, &[2; 64]).unwrap();
    tx.commit().unwrap();
    assert_eq!(word(&image_of(&open(&image_of(&pool))), block), 0x0202_0202_0202_0202);
}
