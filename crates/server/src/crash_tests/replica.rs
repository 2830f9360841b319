//! A replica in the crash simulator: its data and its position in the stream are of one moment at every
//! crash, and a new state arrives whole or not at all.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tembo_crashsim::{Scenario, Simulation};
use tembo_pmem::Region;
use tembo_rdb::{Element, KeyMeta, Kind, Reader, Writer};
use tembo_wire::write_request;

use super::commands::Value;
use super::{Opened, audit, fault, in_a_pool, survived, text, text_of, value};
use crate::executor::Executor;
use crate::import::survey;
use crate::keyspace::Keyspace;
use crate::keyspace::format::DATABASES;
use crate::keyspace::history::{Master, Position};
use crate::replica::applied_stream::AppliedStream;
use crate::replica::load::Loading;

const ID: [u8; 40] = [b'b'; 40];

#[derive(Clone, Debug)]
enum Op {
    /// Commands of the stream, which end in one commit.
    Stream(Vec<&'static str>),
    /// A new state with this many keys in each of these databases, each with a list of several chunks.
    Arrive(Vec<usize>, usize),
    /// A whole state arrives, and is given up before it is complete.
    GiveUp(Vec<usize>, usize),
    /// The server becomes a master.
    Promote,
    /// All that was given up is given back.
    Reclaim,
}

/// The keys with their values, and the position.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    keys: BTreeMap<(usize, String), Value>,
    position: Option<(char, u64, u8)>,
}

struct Script {
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

fn file(databases: &[usize], keys: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
    for &database in databases {
        writer.database(database as u64, 1, 0).unwrap();
        for key in 0..keys {
            writer.begin(format!("s{key}").as_bytes(), KeyMeta::default(), Kind::String, 1).unwrap();
            writer.element(Element::Text(format!("{database}").as_bytes())).unwrap();
            writer.end().unwrap();
            writer.begin(format!("l{key}").as_bytes(), KeyMeta::default(), Kind::List, 12).unwrap();
            (0..12).for_each(|n| writer.element(Element::Item(&[b'a' + n; 60])).unwrap());
            writer.end().unwrap();
        }
    }
    writer.finish().unwrap()
}

fn failure(failure: crate::replica::handshake::Failure) -> String {
    failure.why
}

fn stream(opened: &Opened, lines: &[&str]) -> Result<(), String> {
    let mut server = opened.server.borrow_mut();
    let mut executor = Executor::new(opened.keys()?, &mut server);
    executor.batch_words_max = usize::MAX;
    let nobody = "127.0.0.1:1".parse().expect("an address");
    let mut stream = AppliedStream::new(&executor, nobody, nobody);
    for line in lines {
        write_request(&mut stream.input, line.split(' ').collect::<Vec<_>>());
    }
    executor.apply(&mut stream).map_err(failure)?;
    executor.commit_batch(None);
    Ok(())
}

pub(super) fn arrive(
    keys: &mut Keyspace<'_>,
    databases: &[usize],
    count: usize,
    completes: bool,
) -> Result<(), String> {
    let bytes = file(databases, count);
    let survey = survey(&mut Reader::new(&bytes[..]).map_err(text)?, &mut |_| {}).map_err(text)?;
    let position = Position { id: ID, offset: 1000, database: 0 };
    let encodings = crate::Config::default().encodings;
    let loading = Loading::begin(keys, (&bytes[..], &survey), position, encodings);
    let mut loading = loading.map_err(failure)?.0;
    while !loading.step().map_err(failure)? {}
    if completes {
        return loading.complete(keys).map_err(failure);
    }
    drop(loading);
    keys.give_up_arrival().map_err(fault)
}

/// The keys of a new state.
pub(super) fn arrived(databases: &[usize], count: usize) -> BTreeMap<(usize, String), Value> {
    let mut keys = BTreeMap::new();
    for &database in databases {
        for key in 0..count {
            let text = Value::String(database.to_string());
            let items = (0..12).map(|n| text_of(&[b'a' + n; 60])).collect();
            keys.insert((database, format!("s{key}")), text);
            keys.insert((database, format!("l{key}")), Value::List(items));
        }
    }
    keys
}

impl Model {
    fn stream(&mut self, lines: &[&str]) {
        let mut database = self.position.map_or(0, |(_, _, database)| database);
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let mut bytes = Vec::new();
            write_request(&mut bytes, &words);
            let key = || (usize::from(database), words[1].to_owned());
            match words[0] {
                "SELECT" => database = words[1].parse().unwrap(),
                "SET" => drop(self.keys.insert(key(), Value::String(words[2].to_owned()))),
                "DEL" => drop(self.keys.remove(&key())),
                "INCR" => {
                    let value = self.keys.entry(key()).or_insert(Value::String("0".to_owned()));
                    let Value::String(text) = value else { panic!("no number") };
                    *text = (text.parse::<u64>().unwrap() + 1).to_string();
                }
                "RPUSH" => {
                    let value = self.keys.entry(key()).or_insert(Value::List(Vec::new()));
                    let Value::List(items) = value else { panic!("no list") };
                    items.push(words[2].to_owned());
                }
                _ => {}
            }
            if let Some((_, offset, selected)) = &mut self.position {
                (*offset, *selected) = (*offset + bytes.len() as u64, database);
            }
        }
    }

    fn arrive(&mut self, databases: &[usize], count: usize) {
        self.keys = arrived(databases, count);
        self.position = Some(('b', 1000, 0));
    }
}

impl Scenario for Script {
    type State = Opened;
    type Op = Op;
    type Model = Model;

    in_a_pool!(768 << 10);

    fn name(&self) -> String {
        "a replica".to_owned()
    }

    fn setup(&self, region: Region) -> Result<Opened, String> {
        let opened = Opened::create(region, 24)?;
        let mut keys = Keyspace::open(&opened.pool).map_err(text)?;
        (0..2).try_for_each(|database| keys.create(database)).map_err(text)?;
        keys.store_master(Some(&Master { host: "h".to_owned(), port: 1 }), ID).map_err(fault)?;
        arrive(&mut keys, &[0, 3], 1, true)?;
        drop(keys);
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, op: &Op) -> Result<(), String> {
        match op {
            Op::Stream(lines) => stream(opened, lines),
            Op::Arrive(databases, count) => arrive(&mut opened.keys()?, databases, *count, true),
            Op::GiveUp(databases, count) => arrive(&mut opened.keys()?, databases, *count, false),
            Op::Promote => opened.keys()?.store_master(None, [b'c'; 40]).map_err(fault),
            Op::Reclaim => opened.reclaim_all(),
        }
    }

    fn initial(&self) -> Model {
        let mut model = Model::default();
        model.arrive(&[0, 3], 1);
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Stream(lines) => model.stream(lines),
            Op::Arrive(databases, count) => model.arrive(databases, *count),
            Op::Promote => {
                model.position = model.position.map(|(_, offset, database)| ('c', offset, database))
            }
            Op::GiveUp(..) | Op::Reclaim => {}
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
        let position = keys.replication.position;
        let position = position.map(|at| (char::from(at.id[0]), at.offset, at.database));
        let mut model = Model { position, ..Model::default() };
        for (database, key) in names {
            if let Some((found, _)) = value(&mut keys, database, &key)? {
                model.keys.insert((database, text_of(&key)), found);
            }
        }
        Ok(model)
    }

    fn check(&self, opened: &Opened) -> Result<(), String> {
        opened.check().map(drop)
    }
}

pub(super) fn scene() -> impl Scenario {
    let ops = vec![
        Op::Stream(vec!["SELECT 0", "INCR n", "INCR n", "RPUSH l0 x"]),
        Op::Stream(vec!["SELECT 1", "SET t v", "SELECT 3", "DEL l0"]),
        Op::Stream(vec!["MULTI", "INCR n", "SELECT 0", "INCR n", "EXEC", "PING"]),
        // The new state arrives beside the old one; one database has to find other maps.
        Op::Arrive(vec![0, 2], 2),
        Op::Stream(vec!["SELECT 2", "DEL l1", "INCR n"]),
        Op::Reclaim,
        Op::GiveUp(vec![0, 1, 5], 2),
        Op::Arrive(vec![], 0),
        Op::Stream(vec!["INCR n"]),
        Op::Promote,
    ];
    Script { ops, continuation: vec![Op::Arrive(vec![2], 1), Op::Reclaim] }
}

#[test]
fn data_and_position_are_of_one_moment_at_every_crash() {
    survived(Simulation::new(&scene()).limit(6).nested_limit(2).audit(audit()).run());
}
