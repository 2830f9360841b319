//! Crashes while several threads write, each with lanes and links of its own, and hand slabs to each other.

use super::model::{self, Model};
use crate::{Geometry, Lane, Pool, Result};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_crashsim::{Audit, Report, Scenario, SharedScenario, Simulation, campaign};
use tembo_pmem::Region;

/// A step of a thread on the table, or on its lane.
#[derive(Debug, Clone)]
enum Step {
    Put {
        link: u64,
        bytes: u64,
    },
    Remove {
        link: u64,
    },
    /// Gives the lane back; the next step takes one again.
    LetGo,
}

#[derive(Debug, Clone)]
struct Op {
    thread: usize,
    steps: Vec<Step>,
}

/// Threads that each have lanes and links of their own; the links share lines.
struct Threads {
    name: &'static str,
    threads: usize,
    /// Performed in the setup, by the first thread's lane.
    before: Vec<Step>,
    ops: Vec<Op>,
}

struct State {
    pool: Pool,
    table: u64,
    lanes: Vec<Mutex<Option<Lane>>>,
}

impl State {
    fn new(pool: Pool, threads: usize) -> Result<State> {
        let mut first = pool.lane()?;
        let table = match pool.root("table")? {
            Some(root) => root.off,
            None => model::make_table(&mut first)?,
        };
        let mut lanes = vec![Mutex::new(Some(first))];
        lanes.resize_with(threads, Mutex::default);
        Ok(State { pool, table, lanes })
    }

    fn perform(&self, thread: usize, steps: &[Step]) -> Result<()> {
        let mut slot = self.lanes[thread].lock();
        if slot.is_none() {
            *slot = Some(self.pool.lane()?);
        }
        let Some(lane) = slot.as_mut() else { return Ok(()) };
        let mut tx = lane.begin();
        for step in steps {
            match *step {
                Step::Put { link, bytes } => model::put(&mut tx, self.table, link, bytes, bytes)?,
                Step::Remove { link } => model::remove(&mut tx, self.table, link)?,
                Step::LetGo => {}
            }
        }
        tx.commit()?;
        if steps.iter().any(|step| matches!(step, Step::LetGo)) {
            *slot = None;
        }
        Ok(())
    }
}

fn apply_steps(model: &mut Model, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Put { link, bytes } => _ = model.insert(link, (bytes, bytes)),
            Step::Remove { link } => _ = model.remove(&link),
            Step::LetGo => {}
        }
    }
}

impl Scenario for Threads {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn region_bytes(&self) -> u64 {
        256 << 10
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let pool = Pool::create_in(region, &Geometry::tiny()).map_err(|e| e.to_string())?;
        let state = State::new(pool, self.threads).map_err(|e| e.to_string())?;
        for step in &self.before {
            state.perform(0, std::slice::from_ref(step)).map_err(|e| e.to_string())?;
        }
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        Pool::open_in(region).and_then(|pool| State::new(pool, self.threads)).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op.thread, &op.steps).map_err(|e| e.to_string())
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        apply_steps(&mut model, &self.before);
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        apply_steps(model, &op.steps);
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        model::read(&state.pool).map_err(|e| e.to_string())
    }

    fn check(&self, state: &State) -> Result<(), String> {
        state.pool.marks().map(drop).map_err(|e| e.to_string())
    }
}

impl SharedScenario for Threads {
    fn thread_of(&self, op: &Op) -> usize {
        op.thread
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        state.perform(op.thread, &op.steps).map(|()| Vec::new()).map_err(|e| e.to_string())
    }
}

fn put(link: u64, bytes: u64) -> Step {
    Step::Put { link, bytes }
}

/// Records cover the heads of the slabs that they publish. A lane that allocates from such a slab, after
/// another lane has given it up, changes the bitmap in that head: the other lane's record must be dead before
/// that.
#[test]
fn a_lane_is_checkpointed_before_others_use_a_slab_that_it_let_go() {
    let op = |thread, steps| Op { thread, steps };
    let scenario = Threads {
        name: "a slab handed over",
        threads: 2,
        before: vec![],
        ops: vec![
            // The second lane is taken first, so that the slab's publication has an owner.
            op(1, vec![put(40, 300)]),
            op(0, vec![put(0, 64), Step::LetGo]),
            op(1, vec![put(32, 64)]),
            op(1, vec![put(33, 64)]),
        ],
    };
    Simulation::new(&scenario)
        .limit(2048)
        .depth(0)
        .audit(Audit::off())
        .run()
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Three threads with random transactions on links of their own, whose words, bitmap words and chunk words
/// share lines, and which let go of their lanes now and then.
fn random_threads(seed: u64) -> Threads {
    const THREADS: u64 = 3;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut op = |thread: u64, most: usize| {
        let count = rng.random_range(1..=most);
        let mut steps = Vec::new();
        for _ in 0..count {
            // Neighbouring links belong to different threads.
            let link = thread + THREADS * rng.random_range(0..5);
            let bytes = match rng.random_range(0..8) {
                0 => rng.random_range(2000..6000),
                _ => rng.random_range(16..120),
            };
            let step = if rng.random_bool(0.3) { Step::Remove { link } } else { put(link, bytes) };
            steps.push(step);
        }
        if rng.random_bool(0.2) {
            steps.push(Step::LetGo);
        }
        Op { thread: thread as usize, steps }
    };
    let before = vec![put(0, 40), put(1, 50), put(5, 60)];
    let ops = (0..9).map(|i| op(i % THREADS, if i < 3 { 8 } else { 3 })).collect();
    Threads { name: "threads", threads: THREADS as usize, before, ops }
}

#[test]
fn threads_that_write_at_once_survive_crashes() {
    let report = campaign(12_000, |seed| -> Result<Report, _> {
        Simulation::new(&random_threads(seed)).limit(24).depth(1).audit(Audit::off()).seed(seed).run_shared()
    });
    match report {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}
