//! Crashes at every flush and fence of migrations, and of those that go on with them.

use super::versions::{self, Seen, v1, v2};
use std::sync::Mutex;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target};
use tembo_heap::{Heap, check};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

/// A heap of the first version that becomes one of the second: whatever happens, it says the same.
struct Migrating {
    people: u32,
    said: Mutex<Seen>,
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

fn prove(pool: &Pool) -> Result<(), String> {
    let mut marks = pool.marks().map_err(text)?;
    check(pool, &mut marks).map_err(text)?;
    marks.finish().map_err(text).map(drop)
}

impl Scenario for Migrating {
    type State = Pool;
    type Op = ();
    type Model = Seen;

    fn name(&self) -> String {
        "a migration".to_owned()
    }

    fn region_bytes(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, region: Region) -> Result<Pool, String> {
        let pool = Pool::create_in(region, &Geometry::tiny()).map_err(text)?;
        Heap::with_pool(pool.clone(), |heap| v1::fill(&heap, self.people)).map_err(text)?;
        *self.said.lock().unwrap() = v1::read(pool.clone())?;
        Ok(pool)
    }

    fn is_uncreated(&self, _: &Region) -> bool {
        false
    }

    /// Goes on with what was interrupted. What was not begun stays as it is.
    fn recover(&self, region: Region) -> Result<Pool, String> {
        let pool = Pool::open_in(region).map_err(text)?;
        prove(&pool)?;
        if v1::read(pool.clone()).is_err() {
            versions::to_v2().run_in(pool.clone()).map_err(text)?;
        }
        Ok(pool)
    }

    fn region<'s>(&self, state: &'s Pool) -> &'s Region {
        state.region()
    }

    fn ops(&self) -> &[()] {
        &[()]
    }

    fn continuation(&self) -> &[()] {
        &[()]
    }

    fn apply(&self, pool: &mut Pool, (): &()) -> Result<(), String> {
        versions::to_v2().run_in(pool.clone()).map_err(text).map(drop)
    }

    fn initial(&self) -> Seen {
        self.said.lock().unwrap().clone()
    }

    fn apply_model(&self, _: &mut Seen, (): &()) {}

    fn observe(&self, pool: &Pool) -> Result<Seen, String> {
        v1::read(pool.clone()).or_else(|_| v2::read(pool.clone()))
    }

    fn check(&self, pool: &Pool) -> Result<(), String> {
        prove(pool)
    }
}

fn migrating(people: u32) -> Migrating {
    Migrating { people, said: Mutex::default() }
}

fn audit() -> Audit {
    let late = Audit::strict().flushed_within(None).fenced_within(None);
    late.allow_idle_flush(true).allow_idle_fence(true)
}

/// The transactions that a migration makes are many, so that of each crash point only some images are tried.
#[test]
fn migrations_survive_crashes() {
    let scenario = migrating(4);
    let simulation =
        Simulation::new(&scenario).audit(audit()).workers(1).continue_ops(1).limit(12).nested_limit(3);
    println!("{}", simulation.run().unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn seeded_bugs_of_migrations_are_caught() {
    let scenario = migrating(2);
    let simulation =
        Simulation::new(&scenario).audit(Audit::off()).workers(1).continue_ops(0).limit(8).depth(0);
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &[Mutation::DropFence]);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&[Mutation::DropFence]);
}
