//! Crashes while stores are restored: a store is there as a whole, or not at all, and nothing is lost.

use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Mutation, Scenario, Simulation, Target};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Error, Store};

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;
/// The stores that were restored, by name.
type Model = BTreeMap<String, Contents>;

fn text(e: impl ToString) -> String {
    e.to_string()
}

#[derive(Debug, Clone)]
enum Op {
    /// Restores a store of this name from the whole backup, and from the difference, too.
    Restore(&'static str, bool),
    /// Reads the whole backup, and a difference that is cut off.
    Fail(&'static str),
}

struct Restores {
    name: &'static str,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    whole: Vec<u8>,
    difference: Vec<u8>,
    /// The contents that they lead to.
    contents: [Contents; 2],
}

fn contents(store: &Store) -> Result<Contents, String> {
    let mut all = Contents::new();
    for name in store.keyspaces().map_err(text)? {
        let keyspace = store.find_keyspace(&name).map_err(text)?.ok_or("no keyspace")?;
        let pairs =
            store.snapshot().iter(&keyspace).map_err(text)?.collect::<Result<_, _>>().map_err(text)?;
        all.insert(name, pairs);
    }
    Ok(all)
}

impl Restores {
    fn new(name: &'static str, ops: Vec<Op>, continuation: Vec<Op>) -> Restores {
        let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
        let store = Store::open(&Pool::create_in(region, &Geometry::tiny()).unwrap(), "origin").unwrap();
        let (a, b) = (store.keyspace("a").unwrap(), store.keyspace("b").unwrap());
        for i in 0..12_u8 {
            store.put(&a, [i], vec![i; usize::from(i) * 9]).unwrap();
        }
        store.put(&b, "key", "value").unwrap();
        let (old, first) = (store.snapshot(), contents(&store).unwrap());
        let (mut whole, mut difference) = (Vec::new(), Vec::new());
        old.backup(&mut whole).unwrap();
        store.delete(&a, [3]).unwrap();
        store.put(&a, [4], "other").unwrap();
        store.drop_keyspace("b").unwrap();
        store.snapshot().backup_since(&old, &mut difference).unwrap();
        let contents = [first, contents(&store).unwrap()];
        Restores { name, ops, continuation, whole, difference, contents }
    }
}

impl Scenario for Restores {
    type State = Pool;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn region_bytes(&self) -> u64 {
        384 << 10
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<Pool, String> {
        Pool::create_in(region, &Geometry::tiny()).map_err(text)
    }

    fn recover(&self, region: Region) -> Result<Pool, String> {
        Pool::open_in(region).map_err(text)
    }

    fn region<'s>(&self, pool: &'s Pool) -> &'s Region {
        pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, pool: &mut Pool, op: &Op) -> Result<(), String> {
        match op {
            Op::Restore(name, with_difference) => {
                let streams = [&self.whole[..], &self.difference];
                let streams = &streams[..1 + usize::from(*with_difference)];
                match Store::restore(pool, name, streams.iter().copied()) {
                    // Operations are made again after a crash that they survived.
                    Ok(_) | Err(Error::StoreExists { .. }) => Ok(()),
                    Err(e) => Err(text(e)),
                }
            }
            Op::Fail(name) => {
                let cut = &self.difference[..self.difference.len() - 3];
                match Store::restore(pool, name, [&self.whole[..], cut]) {
                    Err(Error::DamagedBackup { .. }) => Ok(()),
                    other => Err(format!("expected a damaged backup, but {other:?}")),
                }
            }
        }
    }

    fn initial(&self) -> Model {
        Model::new()
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        if let Op::Restore(name, with_difference) = op {
            let contents = self.contents[usize::from(*with_difference)].clone();
            model.entry((*name).to_owned()).or_insert(contents);
        }
    }

    fn observe(&self, pool: &Pool) -> Result<Model, String> {
        let mut model = Model::new();
        for root in pool.roots().map_err(text)? {
            if root.kind == Store::ROOT_KIND && !root.name.starts_with("restoring-") {
                let store = Store::open(pool, &root.name).map_err(text)?;
                model.insert(root.name, contents(&store)?);
            }
        }
        Ok(model)
    }

    fn check(&self, pool: &Pool) -> Result<(), String> {
        let mut marks = pool.marks().map_err(text)?;
        for root in pool.roots().map_err(text)?.iter().filter(|root| root.kind == Store::ROOT_KIND) {
            Store::open(pool, &root.name).map_err(text)?.check(&mut marks).map_err(text)?;
        }
        Store::check_dropped(pool, &mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

fn restores() -> Restores {
    let ops = vec![Op::Restore("one", false), Op::Fail("two"), Op::Restore("two", true)];
    Restores::new("restores", ops, vec![Op::Fail("three"), Op::Restore("two", true)])
}

#[test]
fn restored_stores_are_whole_after_every_crash() {
    let outcome = Simulation::new(&restores()).limit(12).nested_limit(2).audit(audit()).run();
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn seeded_bugs_are_caught() {
    let short = Restores { ops: vec![Op::Restore("one", true)], continuation: Vec::new(), ..restores() };
    let simulation = Simulation::new(&short).limit(24).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}
