//! Crashes in the middle of commits, of keeping and deleting snapshots, and of collecting.

use std::collections::BTreeMap;
use tembo_crashsim::{Audit, Failure, Mutation, Report, Scenario, Simulation, Target};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Snapshot, Store};

const KEYSPACES: [&str; 2] = ["accounts", "journal"];

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn text(e: impl ToString) -> String {
    e.to_string()
}

/// A write: keyspace, key, and the length of the value, or none.
type Write = (usize, u64, Option<usize>);

#[derive(Debug, Clone)]
enum Op {
    Commit(Vec<Write>),
    /// A transaction that is begun before, and conflicts with, the one that is committed in it.
    Conflict(Write),
    Keep(&'static str),
    DeleteKept(&'static str),
    Collect(usize),
    /// Drops a keyspace and makes an empty one of its name.
    Renew(usize),
    /// A reader opens a snapshot, or closes the one that it has.
    Read(bool),
}

/// The current contents, and those of the kept snapshots.
#[derive(Debug, Clone, PartialEq, Default)]
struct Model {
    current: Contents,
    kept: BTreeMap<String, Contents>,
}

struct State {
    pool: Pool,
    store: Store,
    reader: Option<Snapshot>,
}

struct Script {
    name: &'static str,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    bytes: u64,
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:03}").into_bytes()
}

fn value((keyspace, i, len): Write) -> Option<Vec<u8>> {
    len.map(|len| vec![(keyspace as u8) << 6 | (i + len as u64) as u8; len])
}

fn read(snapshot: &Snapshot, store: &Store) -> Result<Contents, String> {
    let mut all = Contents::new();
    for name in store.keyspaces().map_err(text)? {
        let keyspace = store.find_keyspace(&name).map_err(text)?.ok_or("no keyspace")?;
        let entries = snapshot.iter(&keyspace).map_err(text)?;
        let entries: BTreeMap<_, _> = entries.collect::<Result<_, _>>().map_err(text)?;
        for (key, value) in &entries {
            if snapshot.get(&keyspace, key).map_err(text)?.as_ref() != Some(value) {
                return Err(format!("{name}: a walk and a lookup differ"));
            }
        }
        all.insert(name, entries);
    }
    Ok(all)
}

impl State {
    fn new(pool: Pool) -> Result<State, String> {
        Ok(State { store: Store::open(&pool, "store").map_err(text)?, pool, reader: None })
    }

    fn commit(&self, writes: &[Write]) -> Result<(), String> {
        let mut tx = self.store.begin();
        for write in writes {
            let keyspace = self.store.keyspace(KEYSPACES[write.0]).map_err(text)?;
            match value(*write) {
                Some(value) => tx.put(&keyspace, key(write.1), value).map_err(text)?,
                None => tx.delete(&keyspace, key(write.1)).map_err(text)?,
            }
        }
        tx.commit().map(drop).map_err(text)
    }
}

fn apply_write(contents: &mut Contents, write: Write) {
    let keyspace = contents.get_mut(KEYSPACES[write.0]).unwrap();
    match value(write) {
        Some(value) => _ = keyspace.insert(key(write.1), value),
        None => _ = keyspace.remove(&key(write.1)),
    }
}

impl Scenario for Script {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let state = State::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        for name in KEYSPACES {
            state.store.keyspace(name).map_err(text)?;
        }
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        let state = State::new(Pool::open_in(region).map_err(text)?)?;
        for name in KEYSPACES {
            state.store.keyspace(name).map_err(text)?;
        }
        Ok(state)
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
        let store = &state.store;
        match op {
            Op::Commit(writes) => state.commit(writes),
            Op::Conflict(write) => {
                let keyspace = store.keyspace(KEYSPACES[write.0]).map_err(text)?;
                let mut late = store.begin();
                late.put(&keyspace, key(write.1), "late").map_err(text)?;
                late.put(&keyspace, "beside it", "late").map_err(text)?;
                state.commit(&[*write])?;
                match late.commit() {
                    Err(e) if e.is_conflict() => Ok(()),
                    other => Err(format!("no conflict, but {other:?}")),
                }
            }
            Op::Keep(name) => match store.keep(store.snapshot().number(), name) {
                Err(tembo_store::Error::SnapshotExists { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::DeleteKept(name) => match store.delete_kept(name) {
                Err(tembo_store::Error::NoSuchSnapshot { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::Renew(keyspace) => {
                store.drop_keyspace(KEYSPACES[*keyspace]).map_err(text)?;
                store.keyspace(KEYSPACES[*keyspace]).map(drop).map_err(text)
            }
            Op::Collect(tables) => store.collect(*tables).map(drop).map_err(text),
            Op::Read(open) => {
                state.reader = open.then(|| store.snapshot());
                Ok(())
            }
        }
    }

    fn initial(&self) -> Model {
        let current = KEYSPACES.map(|name| (name.to_owned(), BTreeMap::new())).into();
        Model { current, kept: BTreeMap::new() }
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Commit(writes) => writes.iter().for_each(|write| apply_write(&mut model.current, *write)),
            Op::Conflict(write) => apply_write(&mut model.current, *write),
            Op::Keep(name) => _ = model.kept.entry((*name).to_owned()).or_insert(model.current.clone()),
            Op::DeleteKept(name) => _ = model.kept.remove(*name),
            Op::Renew(keyspace) => {
                let name = KEYSPACES[*keyspace];
                let all = std::iter::once(&mut model.current).chain(model.kept.values_mut());
                all.for_each(|contents| _ = contents.insert(name.to_owned(), BTreeMap::new()));
            }
            Op::Collect(_) | Op::Read(_) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut kept = BTreeMap::new();
        for one in state.store.kept().map_err(text)? {
            let name = one.name.ok_or("a snapshot without a name")?;
            kept.insert(name.clone(), read(&state.store.at_name(&name).map_err(text)?, &state.store)?);
        }
        Ok(Model { current: read(&state.store.snapshot(), &state.store)?, kept })
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

/// Versions until vectors are made and made again, of short and of long values, with all that keeps and
/// collects them.
fn histories() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let mut ops = vec![
        commit(&[(0, 1, Some(3)), (1, 1, Some(100)), (0, 2, Some(8))]),
        Op::Keep("first"),
        commit(&[(0, 1, Some(40)), (0, 3, Some(0))]),
        Op::Conflict((0, 2, Some(9))),
        Op::Read(true),
        commit(&[(0, 1, None), (1, 2, Some(5))]),
        commit(&[(0, 1, Some(7))]),
        Op::Keep("second"),
        commit(&[(0, 1, Some(50))]),
        commit(&[(0, 1, Some(51)), (0, 2, None)]),
        Op::Read(false),
        Op::Collect(3),
    ];
    ops.extend((0..6).map(|i| commit(&[(0, 1, Some(20 + i)), (1, 2, Some(60 + i))])));
    ops.extend([
        Op::DeleteKept("first"),
        Op::Collect(2),
        Op::Collect(100),
        commit(&[(0, 2, Some(3000))]),
        Op::DeleteKept("second"),
        commit(&[(0, 1, None), (0, 3, None), (1, 1, None)]),
        Op::Collect(100),
        Op::Collect(100),
    ]);
    let continuation = vec![
        commit(&[(0, 9, Some(30)), (0, 1, Some(6))]),
        Op::Keep("after"),
        commit(&[(0, 9, None)]),
        Op::Collect(100),
        Op::DeleteKept("after"),
        Op::Collect(100),
    ];
    Script { name: "histories", ops, continuation, bytes: 256 << 10 }
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn histories_survive_every_crash() {
    survived(Simulation::new(&histories()).limit(24).audit(audit()).run());
}

/// Indexes with several nodes, and transactions of many keys.
fn many_keys() -> Script {
    let all = |range: std::ops::Range<u64>, len: usize| {
        Op::Commit(range.map(|i| (i as usize % 2, i, Some(len + i as usize % 9))).collect())
    };
    let ops = vec![
        all(0..40, 5),
        Op::Keep("forty"),
        all(30..75, 12),
        Op::Commit((10..60).map(|i| (i as usize % 2, i, None)).collect()),
        Op::DeleteKept("forty"),
        Op::Keep("before the drop"),
        Op::Renew(1),
        Op::Collect(7),
        Op::Collect(30),
        Op::Collect(1000),
    ];
    Script { name: "many keys", ops, continuation: vec![all(0..5, 1), Op::Collect(1000)], bytes: 384 << 10 }
}

#[test]
fn transactions_of_many_keys_survive_every_crash() {
    survived(Simulation::new(&many_keys()).limit(12).nested_limit(4).audit(audit()).run());
}

#[test]
fn seeded_bugs_are_caught() {
    let simulation_of = histories();
    let short = Script { ops: simulation_of.ops[..8].to_vec(), ..simulation_of };
    let simulation = Simulation::new(&short).limit(48).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}
