//! A node of a cluster in the crash simulator: its id, its topology and its role are of one moment at every
//! crash, and slots are removed whole or not at all.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tembo_crashsim::{Scenario, Simulation};
use tembo_pmem::Region;

use super::commands::Value;
use super::{Opened, audit, fault, in_a_pool, survived, text, text_of, value};
use crate::cluster::Cluster;
use crate::cluster::lease::Election;
use crate::cluster::migration::Moves;
use crate::cluster::slot::slot_of;
use crate::cluster::topology::{NodeId, Topology};
use crate::keyspace::cluster::{NewRole, prepare};
use crate::keyspace::history::Master;

#[derive(Clone, Debug)]
enum Op {
    /// The node gets a topology of this version, in which it is the replica of another one or a master.
    Push(u64, bool),
    /// A topology comes by force, in which the node is a master: the election is forgotten.
    Force(u64),
    /// The node hears of an election.
    Elect(u64),
    /// The id, the topology and the election are forgotten.
    Reset,
    /// Commands, which end in one commit.
    Run(Vec<&'static str>),
    /// All keys of the slot of this key are removed.
    Flush(&'static str),
    /// All that was given up is given back.
    Reclaim,
}

/// The id, the version and the text of the topology, that of the election, the master, the first letter of
/// the name of the history, and the keys with their values.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    id: Option<String>,
    topology: Option<(u64, String)>,
    election: Option<u64>,
    master: Option<u16>,
    history: Option<char>,
    keys: BTreeMap<String, Value>,
}

struct Script {
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

/// An id of a node, or of a history.
fn id(letter: u64) -> [u8; 40] {
    [b'a' + letter as u8; 40]
}

fn topology(version: u64, is_replica: bool) -> Topology {
    let (one, two) = (NodeId::parse(&id(1)).unwrap(), NodeId::parse(&id(2)).unwrap());
    let text = match is_replica {
        true => format!("{one} h{version} 1 slave {two}\n{two} h 2 master - 0-16383\n"),
        false => format!("{one} h{version} 1 master - 0-16383\n{two} h 2 slave {one}\n"),
    };
    Topology::parse(text.as_bytes(), version).unwrap()
}

fn push(opened: &Opened, version: u64, is_replica: bool, is_forced: bool) -> Result<(), String> {
    let mut keys = opened.keys()?;
    let next = Cluster::new((NodeId::parse(&id(1)), Some(topology(version, is_replica))), Moves::default());
    let role = next.role();
    let membership = (next.id.as_ref(), next.topology.as_ref());
    keys.store_membership(membership, None, role.as_ref(), id(version), is_forced).map_err(fault)
}

impl Scenario for Script {
    type State = Opened;
    type Op = Op;
    type Model = Model;

    in_a_pool!(768 << 10);

    fn name(&self) -> String {
        "a node of a cluster".to_owned()
    }

    fn setup(&self, region: Region) -> Result<Opened, String> {
        let opened = Opened::create(region, 24)?;
        prepare(&opened.pool, true).map_err(text)?;
        let mut keys = opened.keys()?;
        keys.create(0).map_err(text)?;
        // The server has had replicas, so that a promotion gives its history a new name.
        keys.store_master(None, id(0)).map_err(fault)?;
        keys.begin_history(id(0)).map_err(fault)?;
        drop(keys);
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, op: &Op) -> Result<(), String> {
        match op {
            Op::Push(version, is_replica) => push(opened, *version, *is_replica, false),
            Op::Force(version) => push(opened, *version, false, true),
            Op::Elect(version) => {
                let election = Election { version: *version, master: NodeId::parse(&id(2)).unwrap() };
                opened.keys()?.store_election(&election).map_err(fault)
            }
            Op::Reset => {
                let mut keys = opened.keys()?;
                keys.store_membership((None, None), None, Some(&NewRole::Master), id(20), false)
                    .map_err(fault)
            }
            Op::Run(lines) => {
                let words = |line: &&str| line.split(' ').map(str::to_owned).collect();
                opened.run(&lines.iter().map(words).collect::<Vec<_>>())
            }
            Op::Flush(key) => {
                let mut keys = opened.keys()?;
                let slot = slot_of(key.as_bytes());
                keys.remove_slots(&[slot..=slot]).map_err(fault)?;
                keys.commit().map_err(text)
            }
            Op::Reclaim => opened.reclaim_all(),
        }
    }

    fn initial(&self) -> Model {
        Model { history: Some('a'), ..Model::default() }
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Force(version) => {
                self.apply_model(model, &Op::Push(*version, false));
                model.election = None;
            }
            Op::Push(version, is_replica) => {
                let text = topology(*version, *is_replica).to_text();
                (model.id, model.topology) = (Some(text_of(&id(1))), Some((*version, text)));
                if model.master.is_some() && !is_replica {
                    model.history = Some(char::from(id(*version)[0]));
                }
                model.master = is_replica.then_some(2);
            }
            Op::Reset => {
                if model.master.is_some() {
                    model.history = Some(char::from(id(20)[0]));
                }
                (model.id, model.topology, model.master, model.election) = (None, None, None, None);
            }
            Op::Elect(version) => model.election = Some(*version),
            Op::Run(lines) => {
                for line in lines {
                    let words: Vec<&str> = line.split(' ').collect();
                    let key = words[1].to_owned();
                    match words[0] {
                        "SET" => model.keys.insert(key, Value::String(words[2].to_owned())),
                        "RPUSH" => {
                            let items = words[2..].iter().map(|item| (*item).to_owned()).collect();
                            model.keys.insert(key, Value::List(items))
                        }
                        _ => model.keys.remove(&key),
                    };
                }
            }
            Op::Flush(key) => {
                let slot = slot_of(key.as_bytes());
                model.keys.retain(|key, _| slot_of(key.as_bytes()) != slot);
            }
            Op::Reclaim => {}
        }
    }

    fn observe(&self, opened: &Opened) -> Result<Model, String> {
        let mut keys = opened.keys()?;
        let (mut places, layout) = (Vec::new(), keys.layout());
        let visit = |place: &[u8], _| {
            places.push(layout.key(place).to_vec());
            ControlFlow::Continue(())
        };
        keys.walk(0, Bound::Unbounded, visit).map_err(fault)?;
        let (id, topology) = keys.stored_membership().map_err(fault)?.ok_or("no node of a cluster")?;
        let (_, master) = keys.stored_master().map_err(fault)?;
        let mut model = Model {
            id: id.map(|id| text_of(id.as_bytes())),
            topology: topology.map(|topology| (topology.version, topology.to_text())),
            election: keys.stored_election().map_err(fault)?.map(|election| election.version),
            master: master.map(|Master { port, .. }| port),
            history: keys.replication.position.map(|position| char::from(position.id[0])),
            ..Model::default()
        };
        for key in places {
            if let Some((found, _)) = value(&mut keys, 0, &key)? {
                model.keys.insert(text_of(&key), found);
            }
        }
        Ok(model)
    }

    fn check(&self, opened: &Opened) -> Result<(), String> {
        opened.check().map(drop)
    }
}

pub(super) fn scene() -> impl Scenario {
    let long = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    let list: &'static str = Box::leak(format!("RPUSH {{a}}l{}", format!(" {long}").repeat(12)).into());
    let ops = vec![
        Op::Push(1, false),
        Op::Run(vec!["SET {a}1 x", "SET b y"]),
        // Built in parts, with several commits.
        Op::Run(vec![list]),
        Op::Elect(7),
        Op::Push(2, true),
        Op::Elect(8),
        Op::Push(3, true),
        Op::Push(4, false),
        Op::Force(4),
        Op::Elect(8),
        Op::Run(vec!["SET {a}2 x PX 1000", "SET c z"]),
        Op::Flush("a"),
        Op::Reclaim,
        Op::Run(vec!["SET {a}1 x", "DEL b"]),
        Op::Push(5, true),
        Op::Reset,
    ];
    Script { ops, continuation: vec![Op::Push(6, true), Op::Elect(9), Op::Flush("c"), Op::Reclaim] }
}

#[test]
fn topology_and_role_are_of_one_moment_at_every_crash() {
    survived(Simulation::new(&scene()).limit(6).nested_limit(2).audit(audit()).run());
}
