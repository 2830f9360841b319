//! Crashes of lanes that mostly store words. In `crash.rs` each transaction allocates, and the shared bitmap
//! words make lanes checkpoint each other all the time.

use super::lanes::{MANY, store};
use super::model::{self, LINKS, Model};
use crate::{Geometry, Lane, Pool, Result, Tx};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_crashsim::{Audit, Scenario, Simulation, campaign};
use tembo_pmem::Region;

const WORDS: u64 = 96;

#[derive(Debug, Clone)]
enum Op {
    /// Stores a value to some words. Here and below, even values are stored by line.
    Store { lane: usize, words: Vec<u64>, value: u64 },
    /// As `Store`, to enough words that the record is chained.
    Fill { lane: usize, from: u64, value: u64 },
    /// Links new blocks.
    Put { lane: usize, links: Vec<u64>, bytes: u64 },
    /// Frees the blocks of many links, so that commits look for blocks that may leave limbo.
    Clear { lane: usize },
}

struct State {
    pool: Pool,
    table: u64,
    lanes: Vec<Lane>,
    /// An open transaction that has reserved all free space.
    hoard: Option<Tx<'static>>,
}

struct Words {
    seed: u64,
    lanes: usize,
    /// Whether there is no room outside of the lanes for payloads.
    is_full: bool,
    geometry: Geometry,
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

impl Words {
    /// Random steps. In a full pool, a record fits into half of a lane, but in the shortest lanes two records
    /// hardly do.
    fn new(seed: u64, is_full: bool) -> Words {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let lanes = rng.random_range(1..=3);
        // One lane does most of the work, so its numbers run ahead of the others' or lag behind.
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
        // Some blocks in limbo: the next frees make them enough for a look.
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

    /// Reserves all free space, if the pool has to be full.
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
                let mut store = |off| {
                    if by_line { tx.lines().store_words(off, &[*value]) } else { tx.store(off, *value) }
                };
                words.iter().try_for_each(|word| store(words_off + 8 * word)).and_then(|()| tx.commit())
            }
            Op::Fill { lane, from, value } if value % 2 == 0 => {
                let mut tx = lanes[*lane].begin();
                tx.lines()
                    .store_words(words_off + 8 * from, &[*value; MANY as usize])
                    .and_then(|()| tx.commit())
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

/// If a record finds no room after the first of a half, an empty record is put in between.
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
