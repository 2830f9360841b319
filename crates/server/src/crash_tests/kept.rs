//! Replaced data in the crash simulator: at every crash they are in a database or kept, and never both or
//! neither; they come back whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use tembo_crashsim::{FailureKind, Scenario, Simulation};
use tembo_pmem::Region;

use super::commands::Value;
use super::replica::{arrive, arrived};
use super::{Opened, audit, fault, in_a_pool, survived, text, text_of, value};
use crate::keyspace::format::DATABASES;

const GRACE: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug)]
enum Op {
    /// A command in a database.
    Run(usize, &'static str),
    /// Commands as an EXEC.
    Exec(&'static [&'static str]),
    /// A whole new state in these databases.
    Arrive(Vec<usize>),
    /// The oldest state is given up.
    GiveUp,
    Reclaim,
    /// A mistake: FLUSHALL writes the record of the data that it keeps one commit later.
    Late,
}

type Keys = BTreeMap<(usize, String), Value>;

#[derive(Clone, Debug, Default)]
struct Kept {
    is_all: bool,
    databases: BTreeSet<usize>,
    keys: Keys,
}

#[derive(Clone, Debug, Default)]
struct Model {
    keys: Keys,
    kept: Vec<Kept>,
}

impl PartialEq for Model {
    /// Only the names of kept data are compared; their values are compared when they come back.
    fn eq(&self, other: &Self) -> bool {
        let names = |kept: &Kept| (kept.databases.clone(), kept.keys.keys().cloned().collect::<Vec<_>>());
        self.keys == other.keys && self.kept.iter().map(names).eq(other.kept.iter().map(names))
    }
}

impl Model {
    fn take(&mut self, is_meant: impl Fn(usize) -> bool) -> Keys {
        let (taken, left) =
            std::mem::take(&mut self.keys).into_iter().partition(|((database, _), _)| is_meant(*database));
        self.keys = left;
        taken
    }

    fn keep(&mut self, is_all: bool, keys: Keys) {
        if !keys.is_empty() {
            let databases = keys.keys().map(|(database, _)| *database).collect();
            self.kept.push(Kept { is_all, databases, keys });
        }
    }

    fn run(&mut self, database: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "SET" => {
                _ = self.keys.insert((database, words[1].to_owned()), Value::String(words[2].to_owned()))
            }
            "RPUSH" => {
                let key = (database, words[1].to_owned());
                let list = self.keys.entry(key).or_insert(Value::List(Vec::new()));
                let Value::List(items) = list else { panic!("no list") };
                items.extend(words[2..].iter().map(|word| (*word).to_owned()));
            }
            "FLUSHALL" => {
                let keys = self.take(|_| true);
                self.keep(true, keys);
            }
            "FLUSHDB" => {
                let keys = self.take(|other| other == database);
                self.keep(false, keys);
            }
            "TEMBO.UNFLUSH" => {
                let state = self.kept.pop().unwrap();
                let present = self.take(|database| state.is_all || state.databases.contains(&database));
                self.keys.extend(state.keys);
                let others = std::mem::take(&mut self.kept);
                self.keep(state.is_all, present);
                self.kept.extend(others);
            }
            other => panic!("{other}"),
        }
    }
}

struct Script {
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn late(opened: &Opened) -> Result<(), String> {
    let mut keys = opened.keys()?;
    keys.keeping.grace_ms = GRACE.as_millis() as u64;
    keys.keeping.keeps_late = true;
    keys.flush(0..DATABASES).map_err(fault)?;
    keys.commit().map_err(text)?;
    keys.keeping.keeps_late = false;
    keys.write_kept().map_err(fault)?;
    keys.commit().map_err(text)
}

impl Scenario for Script {
    type State = Opened;
    type Op = Op;
    type Model = Model;

    in_a_pool!(768 << 10);

    fn name(&self) -> String {
        "replaced data".to_owned()
    }

    fn setup(&self, region: Region) -> Result<Opened, String> {
        let opened = Opened::create(region, 48)?;
        opened.server.borrow_mut().config.flush_grace = GRACE;
        let mut keys = opened.keys()?;
        (0..6).try_for_each(|database| keys.create(database)).map_err(text)?;
        drop(keys);
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, op: &Op) -> Result<(), String> {
        opened.server.borrow_mut().config.flush_grace = GRACE;
        match op {
            Op::Run(database, line) => opened.run(&[words(&format!("SELECT {database}")), words(line)]),
            Op::Exec(lines) => {
                let lines = ["MULTI"].iter().chain(lines.iter()).chain(&["EXEC"]);
                opened.run(&lines.map(|line| words(line)).collect::<Vec<_>>())
            }
            Op::Arrive(databases) => {
                let mut keys = opened.keys()?;
                keys.keeping.grace_ms = GRACE.as_millis() as u64;
                arrive(&mut keys, databases, 1, true)
            }
            Op::GiveUp => opened.keys()?.give_up_kept().map_err(fault),
            Op::Reclaim => opened.reclaim_all(),
            Op::Late => late(opened),
        }
    }

    fn initial(&self) -> Model {
        Model::default()
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Run(database, line) => model.run(*database, line),
            Op::Exec(lines) => lines.iter().for_each(|line| model.run(0, line)),
            Op::Late => model.run(0, "FLUSHALL"),
            Op::Arrive(databases) => {
                let keys = model.take(|_| true);
                model.keep(true, keys);
                model.keys = arrived(databases, 1);
            }
            Op::GiveUp => _ = model.kept.remove(0),
            Op::Reclaim => {}
        }
    }

    fn observe(&self, opened: &Opened) -> Result<Model, String> {
        let mut keys = opened.keys()?;
        let mut names = Vec::new();
        for database in 0..DATABASES {
            let visit = |key: &[u8], _| {
                names.push((database, key.to_vec()));
                ControlFlow::Continue(())
            };
            keys.walk(database, Bound::Unbounded, visit).map_err(fault)?;
        }
        let mut model = Model::default();
        for (database, key) in names {
            if let Some((found, _)) = value(&mut keys, database, &key)? {
                model.keys.insert((database, text_of(&key)), found);
            }
        }
        for (is_all, places) in keys.kept_names().map_err(text)? {
            let mut kept = Kept { is_all, ..Kept::default() };
            for (database, names) in places {
                kept.databases.insert(database);
                let nothing = || Value::String(String::new());
                kept.keys.extend(names.iter().map(|name| ((database, text_of(name)), nothing())));
            }
            model.kept.push(kept);
        }
        Ok(model)
    }

    fn check(&self, opened: &Opened) -> Result<(), String> {
        opened.check().map(drop)
    }
}

const LONG: &str = "RPUSH l aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb \
    ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc \
    ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd \
    eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

pub(super) fn scene() -> impl Scenario {
    let ops = vec![
        Op::Run(0, "SET a 1"),
        Op::Run(0, LONG),
        Op::Run(1, "SET b 1"),
        Op::Run(0, "FLUSHALL"),
        Op::Run(0, "SET a 2"),
        Op::Exec(&["FLUSHDB", "SET c 3"]),
        Op::Run(0, "TEMBO.UNFLUSH"),
        // The first write to a database whose maps are kept.
        Op::Run(5, "SET d 4"),
        Op::Arrive(vec![0, 2]),
        Op::Run(0, "TEMBO.UNFLUSH"),
        Op::GiveUp,
        Op::Reclaim,
        Op::Run(0, "FLUSHALL"),
        Op::GiveUp,
        Op::Reclaim,
    ];
    let continuation =
        vec![Op::Run(0, "SET z 1"), Op::Run(0, "FLUSHALL"), Op::Run(0, "TEMBO.UNFLUSH"), Op::Reclaim];
    Script { ops, continuation }
}

#[test]
fn what_is_replaced_is_kept_or_there_at_every_crash() {
    survived(Simulation::new(&scene()).limit(6).nested_limit(2).audit(audit()).run());
}

#[test]
fn data_that_are_kept_late_are_found() {
    let ops = vec![Op::Run(0, "SET a 1"), Op::Run(1, LONG), Op::Late];
    let script = Script { ops, continuation: vec![Op::Reclaim] };
    let failure = Simulation::new(&script).limit(6).audit(audit()).run().expect_err("it is not noticed");
    assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
}
