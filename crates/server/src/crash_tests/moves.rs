//! The records of moves in the crash simulator: all of them are of one moment at every crash, with the
//! topology that ends some, and keys of slots that went are removed in steps that a crash does not forget.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tembo_crashsim::{FailureKind, Scenario, Simulation};
use tembo_pmem::Region;

use super::commands::Value;
use super::{Opened, audit, fault, in_a_pool, survived, text, text_of, value};
use crate::cluster::migration::{Decided, Move, Moves, Verdict};
use crate::cluster::ranges::Ranges;
use crate::cluster::slot::slot_of;
use crate::cluster::topology::{NodeId, Topology};
use crate::keyspace::cluster::prepare;

/// Keys that one step removes.
const STEP: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The slot of a key begins to go, with a number for the name of the move.
    Begin(&'static str, u8),
    Prepare,
    Decide(bool),
    Import(&'static str, u8),
    Accept(u8),
    GiveUp,
    /// A source asks about a move.
    Answer(&'static str, u8),
    Restart,
    /// Some keys of the slots that are to be removed.
    RemoveSome,
    /// The record says that the keys are removed.
    NoteRemoved(&'static str),
    /// A topology of this version that gives the slot of a key to the second node, if there is one.
    Push(u64, Option<&'static str>),
    /// A mistake: the records come in a commit of their own.
    PushInParts(u64, Option<&'static str>),
    Run(&'static str),
    Reclaim,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    moves: Moves,
    version: u64,
    keys: BTreeMap<String, Value>,
}

struct Script {
    ops: Vec<Op>,
    continuation: Vec<Op>,
}

fn id(node: u8) -> NodeId {
    NodeId::parse(&[b'a' + node; 40]).unwrap()
}

fn slots(key: &str) -> Ranges {
    let slot = slot_of(key.as_bytes());
    Ranges::new([slot..=slot])
}

fn moving(key: &str, number: u8) -> Move {
    Move { id: [b'0' + number; 40], slots: slots(key), source: id(0), target: id(1) }
}

fn topology(version: u64, key: Option<&str>) -> Topology {
    let mut own = Ranges::new([0..=16_383]);
    let (one, two) = (id(0), id(1));
    let mut second = String::from("-");
    if let Some(key) = key {
        own.subtract(&slots(key));
        second = format!("- {}", slots(key));
    }
    let first = own.to_string().replace(',', " ");
    let text = format!("{one} h 1 master - {first}\n{two} h 2 master {second}\n");
    Topology::parse(text.as_bytes(), version).unwrap()
}

/// Makes the change of the records that an operation makes, if it changes nothing else.
fn change(op: &Op, moves: &mut Moves) -> bool {
    match *op {
        Op::Begin(key, number) => moves.begin(moving(key, number)),
        Op::Prepare => moves.prepare(),
        Op::Decide(is_handed) => moves.decide(is_handed),
        Op::Import(key, number) => moves.import(moving(key, number)),
        Op::Accept(number) => drop(moves.accept(&[b'0' + number; 40])),
        Op::GiveUp => moves.give_up(),
        Op::Answer(key, number) => {
            let verdict = moves.answer(&moving(key, number), 9, (&topology(1, None), id(1)));
            assert_eq!(verdict, Verdict::Never);
        }
        Op::Restart => moves.restart(Some(id(0))),
        Op::NoteRemoved(key) => moves.note_removed(&slots(key)),
        _ => return false,
    }
    true
}

fn push(opened: &Opened, version: u64, key: Option<&str>, in_parts: bool) -> Result<(), String> {
    let mut keys = opened.keys()?;
    let topology = topology(version, key);
    let mut moves = keys.stored_moves().map_err(fault)?;
    moves.adopt(&topology, &Decided::Nothing);
    let (own, with) = (id(0), (!in_parts).then_some(&moves));
    keys.store_membership((Some(&own), Some(&topology)), with, None, [b'n'; 40], false).map_err(fault)?;
    if in_parts { keys.store_moves(&moves).map_err(fault) } else { Ok(()) }
}

fn remove_some(opened: &Opened) -> Result<(), String> {
    let mut keys = opened.keys()?;
    let moves = keys.stored_moves().map_err(fault)?;
    let Some(range) = moves.removing.as_slice().first().cloned() else { return Ok(()) };
    keys.replication.take_up(true);
    keys.remove_some_of(&range, STEP).map_err(fault)?;
    keys.commit().map_err(text)
}

impl Scenario for Script {
    type State = Opened;
    type Op = Op;
    type Model = Model;

    in_a_pool!(768 << 10);

    fn name(&self) -> String {
        "moves of slots".to_owned()
    }

    fn setup(&self, region: Region) -> Result<Opened, String> {
        let opened = Opened::create(region, 24)?;
        prepare(&opened.pool, true).map_err(text)?;
        let mut keys = opened.keys()?;
        keys.create(0).map_err(text)?;
        // The server has replicas, which are told of the records in the same commit.
        keys.store_master(None, [b'h'; 40]).map_err(fault)?;
        keys.begin_history([b'h'; 40]).map_err(fault)?;
        drop(keys);
        push(&opened, 1, None, false)?;
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, op: &Op) -> Result<(), String> {
        match *op {
            Op::RemoveSome => remove_some(opened),
            Op::Push(version, key) => push(opened, version, key, false),
            Op::PushInParts(version, key) => push(opened, version, key, true),
            Op::Run(line) => opened.run(&[line.split(' ').map(str::to_owned).collect()]),
            Op::Reclaim => opened.reclaim_all(),
            _ => {
                let mut keys = opened.keys()?;
                let mut moves = keys.stored_moves().map_err(fault)?;
                keys.replication.take_up(true);
                change(op, &mut moves);
                keys.store_moves(&moves).map_err(fault)
            }
        }
    }

    fn initial(&self) -> Model {
        Model { version: 1, ..Model::default() }
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match *op {
            Op::RemoveSome => {
                let Some(range) = model.moves.removing.as_slice().first().cloned() else { return };
                let is_there = |key: &&String| range.contains(&slot_of(key.as_bytes()));
                let gone: Vec<_> = model.keys.keys().filter(is_there).take(STEP).cloned().collect();
                gone.iter().for_each(|key| drop(model.keys.remove(key)));
            }
            Op::Push(version, key) | Op::PushInParts(version, key) => {
                model.version = version;
                model.moves.adopt(&topology(version, key), &Decided::Nothing);
            }
            Op::Run(line) => {
                let words: Vec<&str> = line.split(' ').collect();
                model.keys.insert(words[1].to_owned(), Value::String(words[2].to_owned()));
            }
            Op::Reclaim => {}
            _ => drop(change(op, &mut model.moves)),
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
        let (_, topology) = keys.stored_membership().map_err(fault)?.ok_or("no node of a cluster")?;
        let moves = keys.stored_moves().map_err(fault)?;
        let mut model =
            Model { moves, version: topology.map_or(0, |topology| topology.version), ..Model::default() };
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
    let ops = vec![
        Op::Run("SET {a}1 x"),
        Op::Run("SET {a}2 y"),
        Op::Run("SET b z"),
        Op::Begin("a", 1),
        Op::Prepare,
        Op::Decide(true),
        Op::RemoveSome,
        Op::NoteRemoved("a"),
        Op::Push(2, None),
        Op::Push(3, Some("a")),
        Op::Import("c", 2),
        Op::Run("SET {c}1 x"),
        Op::GiveUp,
        Op::RemoveSome,
        Op::NoteRemoved("c"),
        Op::Import("c", 3),
        Op::Answer("c", 3),
        Op::Import("c", 4),
        Op::Accept(4),
        Op::Begin("b", 5),
        Op::Restart,
        Op::Begin("b", 6),
        Op::Prepare,
        Op::Decide(false),
        Op::Push(4, None),
        Op::Reclaim,
    ];
    let continuation = vec![Op::Begin("b", 7), Op::Prepare, Op::Decide(true), Op::Push(9, Some("b"))];
    Script { ops, continuation }
}

#[test]
fn records_of_moves_are_of_one_moment_at_every_crash() {
    survived(Simulation::new(&scene()).limit(6).nested_limit(2).audit(audit()).run());
}

#[test]
fn a_topology_without_its_records_is_noticed() {
    let ops = vec![Op::Begin("a", 1), Op::Prepare, Op::Decide(true), Op::PushInParts(2, Some("a"))];
    let script = Script { ops, continuation: vec![Op::Push(3, None)] };
    let outcome = Simulation::new(&script).limit(6).nested_limit(2).audit(audit()).run();
    assert_eq!(outcome.expect_err("it is in two commits").kind(), FailureKind::Crash);
}
