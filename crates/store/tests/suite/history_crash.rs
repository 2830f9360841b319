//! Crashes in the middle of what the log of commits, budgets, and drops of stores write.

use std::collections::{BTreeMap, HashMap};
use tembo_crashsim::{Audit as Rules, Failure, Mutation, Report, Scenario, Simulation, Target};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Audit, Error, Keyspace, Retention, Store};

fn text(e: impl ToString) -> String {
    e.to_string()
}

fn rules() -> Rules {
    Rules::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn read(store: &Store, keyspace: &Keyspace) -> Result<Contents, String> {
    let entries = store.snapshot().iter(keyspace).map_err(text)?;
    entries.collect::<Result<_, _>>().map_err(text)
}

/// Entries that the log is to keep, at least.
const LOGGED: usize = 5;

#[derive(Debug, Clone)]
enum LogOp {
    /// The keys that get a value, or lose it.
    Commit(Vec<(u8, bool)>),
    Audit(bool),
    Collect,
}

struct LogScript {
    ops: Vec<LogOp>,
    continuation: Vec<LogOp>,
}

/// The contents, and the last entries of the log, if there is one.
#[derive(Debug, Clone, Default, PartialEq)]
struct Logged {
    current: Contents,
    log: Option<Vec<Vec<(Vec<u8>, bool)>>>,
}

struct LogState {
    pool: Pool,
    store: Store,
    keyspace: Keyspace,
}

impl LogState {
    fn new(pool: Pool) -> Result<LogState, String> {
        let store = Store::open(&pool, "store").map_err(text)?;
        let keyspace = store.keyspace("k").map_err(text)?;
        Ok(LogState { pool, store, keyspace })
    }
}

impl Scenario for LogScript {
    type State = LogState;
    type Op = LogOp;
    type Model = Logged;

    fn name(&self) -> String {
        "log".to_owned()
    }

    fn region_bytes(&self) -> u64 {
        384 << 10
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<LogState, String> {
        LogState::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)
    }

    fn recover(&self, region: Region) -> Result<LogState, String> {
        LogState::new(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s LogState) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[LogOp] {
        &self.ops
    }

    fn continuation(&self) -> &[LogOp] {
        &self.continuation
    }

    fn apply(&self, state: &mut LogState, op: &LogOp) -> Result<(), String> {
        let LogState { store, keyspace, .. } = state;
        match op {
            LogOp::Commit(keys) => {
                let mut tx = store.begin();
                for (key, is_put) in keys {
                    if *is_put {
                        tx.put(keyspace, [*key], [*key; 20]).map_err(text)?;
                    } else {
                        tx.delete(keyspace, [*key]).map_err(text)?;
                    }
                }
                tx.commit().map(drop).map_err(text)
            }
            LogOp::Audit(true) => store.set_audit(Audit::Commits(LOGGED as u64)).map_err(text),
            LogOp::Audit(false) => store.set_audit(Audit::Off).map_err(text),
            LogOp::Collect => store.collect(10).map(drop).map_err(text),
        }
    }

    fn initial(&self) -> Logged {
        Logged::default()
    }

    fn apply_model(&self, model: &mut Logged, op: &LogOp) {
        match op {
            LogOp::Commit(keys) => {
                let mut entry = Vec::new();
                for (key, is_put) in keys {
                    if *is_put {
                        model.current.insert(vec![*key], vec![*key; 20]);
                    } else if model.current.remove(&vec![*key]).is_none() {
                        continue;
                    }
                    entry.push((vec![*key], !is_put));
                }
                if let Some(log) = model.log.as_mut().filter(|_| !entry.is_empty()) {
                    log.push(entry);
                    let past = log.len().saturating_sub(LOGGED);
                    log.drain(..past);
                }
            }
            LogOp::Audit(true) => _ = model.log.get_or_insert_default(),
            LogOp::Audit(false) => model.log = None,
            LogOp::Collect => {}
        }
    }

    fn observe(&self, state: &LogState) -> Result<Logged, String> {
        let LogState { store, keyspace, .. } = state;
        let mut entries = Vec::new();
        for commit in store.log(..) {
            let keys = commit.map_err(text)?.keys.into_iter();
            entries.push(keys.map(|one| (one.key, one.is_deleted)).collect());
        }
        let past = entries.len().saturating_sub(LOGGED);
        entries.drain(..past);
        let log = if store.audit_policy() == Audit::Off { None } else { Some(entries) };
        Ok(Logged { current: read(store, keyspace)?, log })
    }

    fn check(&self, state: &LogState) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

/// The log is switched on, grows beyond what it keeps, is trimmed, switched off and on.
fn logs() -> LogScript {
    let put = |keys: &[u8]| LogOp::Commit(keys.iter().map(|key| (*key, true)).collect());
    let mut ops =
        vec![put(&[1, 2]), LogOp::Audit(true), put(&[2, 3]), LogOp::Commit(vec![(1, false), (9, false)])];
    ops.extend((0..12u8).map(|i| put(&[i % 5, 10 + i])));
    ops.extend([LogOp::Collect, put(&[1]), LogOp::Audit(false), LogOp::Collect, put(&[7]), LogOp::Collect]);
    ops.extend([LogOp::Audit(true), put(&[1]), LogOp::Commit(vec![(1, false)]), LogOp::Collect]);
    let continuation =
        vec![put(&[1, 40]), LogOp::Audit(true), put(&[2]), LogOp::Audit(false), LogOp::Collect];
    LogScript { ops, continuation }
}

#[test]
fn the_log_has_every_commit_after_every_crash() {
    survived(Simulation::new(&logs()).limit(20).audit(rules()).run());
}

#[test]
fn seeded_bugs_in_logged_commits_are_caught() {
    let all = logs();
    let short = LogScript { ops: all.ops[..9].to_vec(), ..all };
    let simulation = Simulation::new(&short).limit(48).depth(0).continue_ops(1).audit(rules());
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}

#[derive(Debug, Clone)]
enum DropOp {
    Open(&'static str),
    Keyspace(&'static str, &'static str),
    Put(&'static str, &'static str, u8),
    Keep(&'static str),
    Audit(&'static str),
    DropKeyspace(&'static str, &'static str),
    Drop(&'static str),
    Reclaim(usize),
}

struct DropScript {
    ops: Vec<DropOp>,
    continuation: Vec<DropOp>,
}

struct DropState {
    pool: Pool,
    stores: HashMap<String, Store>,
}

const STORES: [&str; 3] = ["first", "second", "third"];

impl DropState {
    fn new(pool: Pool) -> Result<DropState, String> {
        let mut state = DropState { pool, stores: HashMap::new() };
        for name in STORES {
            if state.pool.root(name).map_err(text)?.is_some() {
                state.open(name)?;
            }
        }
        Ok(state)
    }

    fn open(&mut self, name: &str) -> Result<&Store, String> {
        if !self.stores.contains_key(name) {
            self.stores.insert(name.to_owned(), Store::open(&self.pool, name).map_err(text)?);
        }
        Ok(&self.stores[name])
    }

    fn keyspace(&self, store: &str, name: &str) -> Result<Option<(&Store, Keyspace)>, String> {
        let Some(store) = self.stores.get(store) else { return Ok(None) };
        let keyspace = store.find_keyspace(name).map_err(text)?;
        Ok(keyspace.map(|keyspace| (store, keyspace)))
    }
}

fn value(i: u8) -> Vec<u8> {
    vec![i; usize::from(i) * 3]
}

impl Scenario for DropScript {
    type State = DropState;
    type Op = DropOp;
    type Model = BTreeMap<String, BTreeMap<String, Contents>>;

    fn name(&self) -> String {
        "drops".to_owned()
    }

    fn region_bytes(&self) -> u64 {
        512 << 10
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<DropState, String> {
        let mut state = DropState::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        state.open(STORES[0])?;
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<DropState, String> {
        DropState::new(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s DropState) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[DropOp] {
        &self.ops
    }

    fn continuation(&self) -> &[DropOp] {
        &self.continuation
    }

    fn apply(&self, state: &mut DropState, op: &DropOp) -> Result<(), String> {
        match op {
            DropOp::Open(name) => state.open(name).map(drop),
            DropOp::Keyspace(store, name) => match state.stores.get(*store) {
                Some(store) => store.keyspace_with(name, Retention::All).map(drop).map_err(text),
                None => Ok(()),
            },
            DropOp::Put(store, keyspace, i) => match state.keyspace(store, keyspace)? {
                Some((store, keyspace)) => store.put(&keyspace, [i % 3], value(*i)).map(drop).map_err(text),
                None => Ok(()),
            },
            DropOp::Keep(store) => match state.stores.get(*store) {
                Some(store) => store.keep_number(store.snapshot().number()).map(drop).map_err(text),
                None => Ok(()),
            },
            DropOp::Audit(store) => match state.stores.get(*store) {
                Some(store) => store.set_audit(Audit::Commits(10)).map_err(text),
                None => Ok(()),
            },
            DropOp::DropKeyspace(store, name) => match state.stores.get(*store) {
                Some(store) => store.drop_keyspace(name).map(drop).map_err(text),
                None => Ok(()),
            },
            DropOp::Drop(name) => {
                state.stores.remove(*name);
                Store::drop(&state.pool, name).map(drop).map_err(text)
            }
            DropOp::Reclaim(steps) => Store::reclaim_dropped(&state.pool, *steps).map(drop).map_err(text),
        }
    }

    fn initial(&self) -> Self::Model {
        [(STORES[0].to_owned(), BTreeMap::new())].into()
    }

    fn apply_model(&self, model: &mut Self::Model, op: &DropOp) {
        match op {
            DropOp::Open(name) => _ = model.entry((*name).to_owned()).or_default(),
            DropOp::Keyspace(store, name) => {
                model.get_mut(*store).map(|store| store.entry((*name).to_owned()).or_default());
            }
            DropOp::Put(store, keyspace, i) => {
                if let Some(contents) = model.get_mut(*store).and_then(|store| store.get_mut(*keyspace)) {
                    contents.insert(vec![i % 3], value(*i));
                }
            }
            DropOp::DropKeyspace(store, name) => _ = model.get_mut(*store).map(|store| store.remove(*name)),
            DropOp::Drop(name) => _ = model.remove(*name),
            DropOp::Keep(_) | DropOp::Audit(_) | DropOp::Reclaim(_) => {}
        }
    }

    fn observe(&self, state: &DropState) -> Result<Self::Model, String> {
        let mut all = BTreeMap::new();
        for (name, store) in &state.stores {
            let mut keyspaces = BTreeMap::new();
            for name in store.keyspaces().map_err(text)? {
                let keyspace = store.find_keyspace(&name).map_err(text)?.ok_or("no keyspace")?;
                keyspaces.insert(name, read(store, &keyspace)?);
            }
            all.insert(name.clone(), keyspaces);
        }
        Ok(all)
    }

    fn check(&self, state: &DropState) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        for store in state.stores.values() {
            store.check(&mut marks).map_err(text)?;
        }
        Store::check_dropped(&state.pool, &mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}

/// Two stores are dropped, one with everything in it, while the first one lives.
fn drops() -> DropScript {
    let mut ops =
        vec![DropOp::Keyspace("first", "k"), DropOp::Open("second"), DropOp::Keyspace("second", "k")];
    ops.extend([DropOp::Audit("second"), DropOp::Keyspace("second", "l"), DropOp::Open("third")]);
    ops.extend((1..12).map(|i| DropOp::Put("second", if i % 3 == 0 { "l" } else { "k" }, i)));
    ops.extend([DropOp::Keep("second"), DropOp::Put("first", "k", 9), DropOp::DropKeyspace("second", "l")]);
    ops.extend([DropOp::Drop("third"), DropOp::Drop("second"), DropOp::Reclaim(1), DropOp::Reclaim(1)]);
    ops.extend([
        DropOp::Put("first", "k", 10),
        DropOp::Open("second"),
        DropOp::Reclaim(3),
        DropOp::Reclaim(5),
    ]);
    ops.extend([DropOp::Drop("second"), DropOp::Reclaim(100), DropOp::Put("first", "k", 11)]);
    let continuation = vec![
        DropOp::Put("first", "k", 8),
        DropOp::Drop("second"),
        DropOp::Reclaim(2),
        DropOp::Open("second"),
        DropOp::Reclaim(200),
    ];
    DropScript { ops, continuation }
}

#[test]
fn dropped_stores_leave_nothing_behind_after_every_crash() {
    survived(Simulation::new(&drops()).limit(16).audit(rules()).run());
}

/// A keyspace with a budget. The numbers of commits are known from the versions.
struct Budget {
    ops: Vec<Vec<u8>>,
}

impl Scenario for Budget {
    type State = LogState;
    type Op = Vec<u8>;
    type Model = Contents;

    fn name(&self) -> String {
        "budget".to_owned()
    }

    fn region_bytes(&self) -> u64 {
        384 << 10
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<LogState, String> {
        let pool = Pool::create_in(region, &Geometry::tiny()).map_err(text)?;
        let store = Store::open(&pool, "store").map_err(text)?;
        store.keyspace_with("k", Retention::Within(400)).map_err(text)?;
        drop(store);
        LogState::new(pool)
    }

    fn recover(&self, region: Region) -> Result<LogState, String> {
        LogState::new(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s LogState) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Vec<u8>] {
        &self.ops
    }

    fn continuation(&self) -> &[Vec<u8>] {
        &self.ops[..4]
    }

    fn apply(&self, state: &mut LogState, op: &Vec<u8>) -> Result<(), String> {
        let LogState { store, keyspace, .. } = state;
        let count = store.get(keyspace, "count").map_err(text)?.map_or(0, |count| count[0]);
        let mut tx = store.begin();
        tx.put(keyspace, "count", vec![count + 1; 9]).map_err(text)?;
        for key in op {
            tx.put(keyspace, [*key], vec![count + 1; 9]).map_err(text)?;
        }
        tx.commit().map(drop).map_err(text)
    }

    fn initial(&self) -> Contents {
        Contents::new()
    }

    fn apply_model(&self, model: &mut Contents, op: &Vec<u8>) {
        let count = model.get(b"count".as_slice()).map_or(0, |count| count[0]) + 1;
        model.insert(b"count".to_vec(), vec![count; 9]);
        op.iter().for_each(|key| _ = model.insert(vec![*key], vec![count; 9]));
    }

    fn observe(&self, state: &LogState) -> Result<Contents, String> {
        read(&state.store, &state.keyspace)
    }

    /// Each snapshot that can be read is whole: all of its keys have the newest value up to its count that
    /// any later snapshot leads to.
    fn check(&self, state: &LogState) -> Result<(), String> {
        let LogState { store, keyspace, pool } = state;
        let mut marks = pool.marks().map_err(text)?;
        store.check(&mut marks).map_err(text)?;
        marks.finish().map_err(text)?;
        let versions = store.versions(keyspace, "count").map_err(text)?;
        if let Some(first) = versions.last().filter(|first| first.value.as_ref().is_some_and(|c| c[0] > 1)) {
            // Something was given up, so the snapshot before it is not whole.
            match store.at(first.number - 1).map_err(text)?.get(keyspace, "count") {
                Err(Error::NotRetained { .. }) => {}
                other => return Err(format!("a snapshot that was cut off reads {other:?}")),
            }
        }
        for version in versions {
            let at = store.at(version.number).map_err(text)?;
            let count = match at.get(keyspace, "count") {
                Err(Error::NotRetained { .. }) => continue,
                found => found.map_err(text)?.ok_or("a commit without a count")?[0],
            };
            let mut expected = Contents::new();
            // After a crash the operations begin anew; a count says which have gone before only up to there.
            for (i, op) in self.ops.iter().enumerate().take(usize::from(count)) {
                let i = i as u8 + 1;
                expected.insert(b"count".to_vec(), vec![i; 9]);
                op.iter().for_each(|key| _ = expected.insert(vec![*key], vec![i; 9]));
            }
            let found: Contents = at.iter(keyspace).map_err(text)?.collect::<Result<_, _>>().map_err(text)?;
            if usize::from(count) <= self.ops.len() && found.keys().ne(expected.keys()) {
                return Err(format!("the snapshot of count {count} has the keys {:?}", found.keys()));
            }
            if found.values().any(|value| value[0] > count) {
                return Err(format!("the snapshot of count {count} has a later value"));
            }
        }
        Ok(())
    }
}

#[test]
fn a_snapshot_that_a_budget_cuts_off_is_never_read_in_part() {
    let ops = (0..24u8).map(|i| vec![i % 4, 10 + i % 3]).collect();
    survived(Simulation::new(&Budget { ops }).limit(12).audit(rules()).run());
}
