//! Crashes: every flush and fence of transactions, of the allocator, of several lanes and of recovery itself.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test -p tembo-pool crash` is the long campaign.

use super::model::{self, LINKS, Model};
use crate::layout::{COMMITTED_BITS, PAGE_BYTES, PmHeader, unseal};
use crate::{Geometry, Lane, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target, campaign};
use tembo_pmem::{CUT_MARK, LINE_BYTES, Region, offset_of};

/// A change of one link of the table.
#[derive(Debug, Clone)]
enum Edit {
    Put {
        link: u64,
        bytes: u64,
        seed: u64,
    },
    Remove {
        link: u64,
    },
    /// A change of a tagged line, if there is one.
    Change {
        link: u64,
        seed: u64,
    },
    /// A change of a tagged line's tag.
    Turn {
        link: u64,
    },
}

/// A transaction on one of two lanes.
#[derive(Debug, Clone)]
enum Op {
    Commit {
        lane: usize,
        edits: Vec<Edit>,
    },
    /// Edits that are rolled back to a savepoint, an edit that is not, then a commit.
    Partly {
        lane: usize,
        undone: Vec<Edit>,
        kept: Edit,
    },
    Abort {
        lane: usize,
        edits: Vec<Edit>,
    },
    Trim,
    /// The free end goes.
    Cut,
}

impl Edit {
    fn link(&self) -> u64 {
        match self {
            Edit::Put { link, .. }
            | Edit::Remove { link }
            | Edit::Change { link, .. }
            | Edit::Turn { link } => *link,
        }
    }
}

struct State {
    pool: Pool,
    table: u64,
    lanes: Vec<Lane>,
}

struct Transactions {
    seed: u64,
    geometry: Geometry,
    bytes: u64,
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

fn random_edit(rng: &mut Xoshiro256PlusPlus, links: u64, large: bool) -> Edit {
    let link = rng.random_range(0..links);
    if rng.random_bool(0.35) {
        return Edit::Remove { link };
    }
    if rng.random_bool(0.3) {
        return Edit::Turn { link };
    }
    if rng.random_bool(0.3) {
        // An odd seed, with which the block stays a tagged line.
        return Edit::Change { link, seed: rng.random::<u64>() | 1 };
    }
    let bytes = match rng.random_range(0..12) {
        0 if large => rng.random_range(8200..20_000),
        1 => rng.random_range(700..2600),
        _ => rng.random_range(16..200),
    };
    Edit::Put { link, bytes, seed: rng.random() }
}

impl Transactions {
    /// Random operations. `messy` ones include rollbacks, in part or whole, blocks that are allocated and
    /// freed in one transaction, and trims.
    fn new(seed: u64, lanes: usize, count: usize, messy: bool) -> Transactions {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Few links make neighbours and reuse likely; many make several slabs.
        let links = rng.random_range(2..LINKS);
        let large = rng.random_bool(0.5);
        let mut op = |most: usize| {
            let lane = rng.random_range(0..lanes);
            let count = rng.random_range(1..=most);
            let kind = rng.random_range(0..10);
            let mut edits = |n: usize| {
                let mut edits: Vec<Edit> = (0..n).map(|_| random_edit(&mut rng, links, large)).collect();
                if !messy {
                    edits.sort_by_key(Edit::link);
                    edits.dedup_by_key(|edit| edit.link());
                }
                edits
            };
            match kind {
                0 if messy => Op::Abort { lane, edits: edits(count) },
                1 if messy => Op::Partly { lane, undone: edits(count), kept: edits(1).remove(0) },
                2 if messy => [Op::Trim, Op::Cut][count % 2].clone(),
                _ => Op::Commit { lane, edits: edits(count) },
            }
        };
        let ops = (0..count).map(|i| op(if i % 4 == 0 { 24 } else { 3 })).collect();
        let continuation = (0..3).map(|_| op(3)).collect();
        // Lanes are so short that records end at every place of a half, and many transactions switch halves.
        let lane_bytes = [512, 1024, 2048][(seed % 3) as usize];
        let geometry = Geometry { lane_bytes, ..Geometry::tiny() };
        Transactions { seed, geometry, bytes: 384 << 10, ops, continuation }
    }
}

fn apply_edit(tx: &mut crate::Tx, table: u64, edit: &Edit) -> crate::Result<()> {
    match *edit {
        Edit::Put { link, bytes, seed } => model::put(tx, table, link, bytes, seed),
        Edit::Remove { link } => model::remove(tx, table, link),
        Edit::Change { link, seed } => model::change(tx, table, link, seed),
        Edit::Turn { link } => model::turn(tx, table, link),
    }
}

fn apply_to_model(model: &mut Model, edit: &Edit) {
    match *edit {
        Edit::Put { link, bytes, seed } => _ = model.insert(link, (bytes.max(16), seed)),
        Edit::Remove { link } => _ = model.remove(&link),
        Edit::Change { link, seed } => {
            let line = model.get_mut(&link).filter(|(bytes, seed)| model::is_tagged(*bytes, *seed));
            line.into_iter().for_each(|(bytes, old)| (*bytes, *old) = (*bytes & !model::TURNED, seed));
        }
        Edit::Turn { link } => {
            let line = model.get_mut(&link).filter(|(bytes, seed)| model::is_tagged(*bytes, *seed));
            line.into_iter().for_each(|(bytes, _)| *bytes ^= model::TURNED);
        }
    }
}

impl State {
    fn new(pool: Pool) -> crate::Result<State> {
        let mut lanes = vec![pool.lane()?, pool.lane()?];
        let table = match pool.root("table")? {
            Some(root) => root.off,
            None => model::make_table(&mut lanes[0])?,
        };
        Ok(State { pool, table, lanes })
    }

    fn run(&mut self, lane: usize, edits: &[Edit], undone: &[Edit], commit: bool) -> crate::Result<()> {
        let mut tx = self.lanes[lane].begin();
        let before = tx.savepoint();
        undone.iter().try_for_each(|edit| apply_edit(&mut tx, self.table, edit))?;
        tx.rollback_to(before);
        edits.iter().try_for_each(|edit| apply_edit(&mut tx, self.table, edit))?;
        if commit { tx.commit() } else { Ok(()) }
    }
}

fn trim_in_steps(pool: &Pool) -> crate::Result<()> {
    let mut next = Some(pool.begin_trim()?);
    while let Some(place) = next {
        (_, next) = pool.trim_step(None, place)?;
    }
    Ok(())
}

/// Fails if the file of this image was cut although its header still has the length from before.
fn refuse_short_file(region: &Region) -> Result<(), String> {
    let committed = region.load_u64(offset_of!(PmHeader, committed) as u64).map_err(|e| e.to_string())?;
    let bytes = unseal(committed, COMMITTED_BITS).unwrap_or(0) * PAGE_BYTES;
    let is_cut = |page: &u64| region.load_u64(*page) == Ok(CUT_MARK);
    match (0..bytes.min(region.len())).step_by(PAGE_BYTES as usize).find(is_cut) {
        Some(page) => Err(format!("the file ends at {page:#x}, in front of the pool's end at {bytes:#x}")),
        None => Ok(()),
    }
}

impl Scenario for Transactions {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        format!("transactions, seed {}", self.seed)
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let pool = Pool::create_in(region, &self.geometry).map_err(|e| e.to_string())?;
        State::new(pool).map_err(|e| e.to_string())
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        refuse_short_file(&region)?;
        Pool::open_in(region).and_then(State::new).map_err(|e| e.to_string())
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
        match op {
            Op::Commit { lane, edits } => state.run(*lane, edits, &[], true),
            Op::Partly { lane, undone, kept } => state.run(*lane, std::slice::from_ref(kept), undone, true),
            Op::Abort { lane, edits } => state.run(*lane, edits, &[], false),
            Op::Trim => trim_in_steps(&state.pool),
            Op::Cut => {
                let pool = &state.pool;
                pool.trim().and_then(|_| pool.cut_by(1, 0, 16 << 10)).and_then(|_| pool.cut(1, 0)).map(drop)
            }
        }
        .map_err(|e| e.to_string())
    }

    fn initial(&self) -> Model {
        Model::new()
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Commit { edits, .. } => edits.iter().for_each(|edit| apply_to_model(model, edit)),
            Op::Partly { kept, .. } => apply_to_model(model, kept),
            Op::Abort { .. } | Op::Trim | Op::Cut => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        model::read(&state.pool).map_err(|e| e.to_string())
    }

    /// `observe` reads everything through the marks, so only the allocator's own view is left to check.
    fn check(&self, state: &State) -> Result<(), String> {
        state.pool.marks().map(drop).map_err(|e| e.to_string())
    }
}

/// The commit that switches halves flushes and fences home stores. With several lanes it may come late; until
/// then the records stand for the homes. The writes of a rolled-back operation to its own memory are never
/// flushed. A lane that checkpoints another flushes lines again, and its fence may leave nothing for the
/// next.
fn audit(lanes: usize, messy: bool, geometry: &Geometry) -> Audit {
    let records = (geometry.half_bytes() / LINE_BYTES) as usize;
    let flushed_within = if messy || lanes > 1 { None } else { Some(records) };
    Audit::strict()
        .flushed_within(flushed_within)
        .fenced_within(flushed_within)
        .allow_idle_flush(messy || lanes > 1)
        .allow_idle_fence(lanes > 1)
}

fn simulate(images: u64, lanes: usize, limit: usize) {
    let report = campaign(images, |seed| {
        let messy = seed % 2 == 0;
        let scenario = Transactions::new(seed, lanes, 8, messy);
        Simulation::new(&scenario)
            .seed(seed)
            .limit(limit)
            .audit(audit(lanes, messy, &scenario.geometry))
            .run()
    });
    match report {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn one_lane_survives_crashes() {
    simulate(50_000, 1, 96);
}

#[test]
fn two_lanes_survive_crashes() {
    simulate(50_000, 2, 96);
}

/// The record that allocated a line covers its first tag, so the record must be dead before the tag changes.
#[test]
fn tags_that_another_lane_changes_survive_crashes() {
    let mut scenario = Transactions::new(2, 2, 0, false);
    let commit = |lane, edit| Op::Commit { lane, edits: vec![edit] };
    let put = |link| commit(0, Edit::Put { link, bytes: 40, seed: link });
    scenario.ops = (1..4).flat_map(|link| [put(link), commit(1, Edit::Turn { link })]).collect();
    scenario.ops.push(commit(0, Edit::Turn { link: 2 }));
    let simulation = Simulation::new(&scenario).limit(256).audit(audit(2, false, &scenario.geometry));
    let report = simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
}

#[test]
fn creation_survives_crashes() {
    let scenario = Transactions { ops: vec![], ..Transactions::new(1, 1, 0, false) };
    let simulation =
        Simulation::new(&scenario).crash_setup(true).limit(4096).audit(audit(2, false, &scenario.geometry));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn seeded_bugs_are_caught() {
    let mut scenario = Transactions::new(3, 1, 0, false);
    scenario.bytes = 128 << 10;
    // Two records to a half.
    scenario.geometry.lane_bytes = 768;
    // The creation of the table and the first put share a half. No record stores a link that a live record of
    // the other half also stores, and whose replay would repair it.
    let puts = [(1, 40), (2, 100), (3, 24), (1, 30), (4, 50), (2, 20), (3, 70)];
    let put = |(link, bytes)| Op::Commit { lane: 0, edits: vec![Edit::Put { link, bytes, seed: bytes }] };
    scenario.ops = puts.into_iter().map(put).collect();
    let simulation = Simulation::new(&scenario).limit(64).depth(0).continue_ops(1).audit(audit(
        1,
        false,
        &scenario.geometry,
    ));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let report =
        simulation.mutants(Target::Operations, &Mutation::ALL).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    // No commit relies on the order or the atomicity of single stores: the checksum vouches for the record,
    // and the record for its home words. Torn and swapped stores must therefore be harmless.
    let (harmless, harmful): (Vec<_>, Vec<_>) =
        Mutation::ALL.into_iter().partition(|m| matches!(m, Mutation::TearStore | Mutation::SwapStores));
    let frontier_line = format!("flush of line {:#x} ", scenario.geometry.zone_off(0) / 64);
    report.assert_all_caught_but(&harmful, |survivor| {
        let what = &survivor.what;
        // Home lines are in the zone. Mutants of records, which are in lanes, must not be excused.
        let in_lanes = (0..scenario.geometry.zone_off(0) / LINE_BYTES)
            .any(|line| what.contains(&format!("flush of line {line:#x} ")));
        if what.contains("operation 7 of 7") && what.contains("flush of line") && !in_lanes {
            return Some("the home lines of records that are still live when the operations end");
        }
        let is_flushed_again = what.contains(&frontier_line) && !what.contains("operation 1 of 7");
        is_flushed_again.then_some("the line is flushed again before its record dies")
    });
    assert!(harmless.iter().flat_map(|m| report.of(*m)).all(|outcome| outcome.caught_by.is_none()));
}

/// Puts that fill the pool's beginning and end, removals, cuts, and growth again.
fn cuts() -> Transactions {
    let mut scenario = Transactions::new(5, 2, 0, false);
    let commit = |lane, edits| Op::Commit { lane, edits };
    let put = |link, bytes| Edit::Put { link, bytes, seed: link + bytes };
    let remove = |link| Edit::Remove { link };
    scenario.ops = vec![
        commit(0, vec![put(1, 40), put(2, 700), put(3, 9000)]),
        commit(1, vec![put(4, 400), put(5, 2000)]),
        commit(0, vec![remove(3)]),
        commit(1, vec![remove(4), remove(5)]),
        Op::Cut,
        commit(0, vec![put(3, 9000), put(4, 1500)]),
        commit(1, vec![remove(3), put(5, 50)]),
        Op::Cut,
        commit(1, vec![put(4, 300)]),
    ];
    scenario.continuation = vec![commit(0, vec![put(6, 1000)]), Op::Cut, commit(1, vec![remove(2)])];
    scenario
}

#[test]
fn cuts_survive_crashes() {
    let scenario = cuts();
    let simulation = Simulation::new(&scenario).limit(16).audit(audit(2, true, &scenario.geometry));
    let report = simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    let mut state = scenario.setup(Region::simulated(&vec![0; 384 << 10], 1 << 20, None).unwrap()).unwrap();
    let mut lengths = Vec::new();
    for op in &scenario.ops {
        scenario.apply(&mut state, op).unwrap();
        lengths.push(state.pool.region().len());
    }
    assert!(lengths[4] < lengths[0] && lengths[5] > lengths[4] && lengths[7] < lengths[5], "{lengths:?}");
}

/// One cut, with all possible images at each of its steps.
#[test]
fn a_cut_survives_a_crash_at_each_of_its_steps() {
    let mut scenario = Transactions::new(5, 1, 0, false);
    let commit = |edit| Op::Commit { lane: 0, edits: vec![edit] };
    let put = |link, bytes| commit(Edit::Put { link, bytes, seed: link + bytes });
    scenario.ops = vec![put(1, 40), put(3, 9000), commit(Edit::Remove { link: 3 }), Op::Cut, put(1, 50)];
    scenario.continuation = vec![put(6, 100)];
    let audit = audit(2, true, &scenario.geometry);
    let simulation = Simulation::new(&scenario).limit(1024).depth(0).audit(audit);
    let report = simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
}
