//! The hand-over of slots, with all states tried: two nodes, messages between them that come late, out of
//! order or never, restarts of both nodes, and topologies that are pushed.
//!
//! The records and their changes are the real ones ([`Moves`]), and so is who serves ([`Cluster`]). The model
//! has one slot, and a number that counts the writes that were acknowledged. To the bound: two moves, two
//! writes, two restarts, and three messages on the way.

use std::collections::{HashMap, VecDeque};

use super::{Decided, Importing, Move, Moves, Sending, Verdict};
use crate::cluster::ranges::Ranges;
use crate::cluster::topology::{NodeId, Topology};
use crate::cluster::{Access, Cluster};

const SLOT: u16 = 7;
const MOVES_MAX: u8 = 2;
const WRITES_MAX: u8 = 2;
const RESTARTS_MAX: u8 = 2;
const MESSAGES_MAX: usize = 3;

/// A mistake, for the search to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// The source lets the target decide without a record of its own.
    CommitsUnprepared,
    /// A source that restarts in doubt serves again.
    DecidesByItself,
    /// A target says "never" and keeps the import.
    KeepsWhatItDenied,
    /// The source is in doubt for ever.
    NeverAsks,
    /// The source removes its keys when it lets the target decide.
    RemovesEarly,
    /// The target forgets to remove the keys of an import that failed.
    KeepsHalves,
    /// A topology that does not know of a move ends it.
    ForgetsMoves,
    /// The source lets the target decide before the target has everything.
    CommitsEarly,
    /// A source in doubt takes any newer topology for the answer.
    TakesAnyTopology,
    /// A source in doubt takes a topology without the target for the answer.
    TakesAbsence,
    /// A replica that takes the source's place fails a move of which it knows only the beginning.
    FailsWhenPromoted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Commit(u8),
    Ask(u8, u64),
    /// To the source.
    Committed(u8),
    Answered(u8, Answered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answered {
    Handed,
    Never,
    Newer,
}

/// The source's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Line {
    None,
    /// The target imports, and has received this many writes.
    Open(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: [Moves; 2],
    topologies: [u8; 2],
    /// The writes that a node's keys have; none without keys.
    keys: [Option<u8>; 2],
    line: Line,
    drains: bool,
    messages: Vec<Message>,
    written: u8,
    moves: u8,
    restarts: u8,
    /// The second node is away. If a decision was made without it, it never comes back.
    is_gone: bool,
}

/// Versions 1 and 2 give the slot to the first node, 3 to the second, 4 to the first without the second; this
/// one is as 4, and a decision.
const DECISION: u8 = 5;

struct Model {
    mutant: Mutant,
    topologies: Vec<Topology>,
    served: HashMap<(usize, Moves, u8, bool), (bool, bool)>,
}

fn id(node: usize) -> NodeId {
    NodeId::parse(format!("{node:040}").as_bytes()).unwrap()
}

fn moving(number: u8) -> Move {
    let slots = Ranges::new([SLOT..=SLOT]);
    Move { id: [b'a' + number; 40], slots, source: id(0), target: id(1) }
}

impl Model {
    fn new(mutant: Mutant) -> Self {
        let both = |first: &str, second: &str| {
            format!("{} h 1 master - {first}\n{} h 2 master - {second}\n", id(0), id(1))
        };
        let alone = || format!("{} h 1 master - 7 8", id(0));
        let texts = [both("7", "8"), both("7", "8"), both("8", "7"), alone(), alone()];
        let parsed = texts.iter().zip(1..).map(|(text, version)| Topology::parse(text.as_bytes(), version));
        Model { mutant, topologies: parsed.map(Result::unwrap).collect(), served: HashMap::new() }
    }

    fn topology(&self, number: u8) -> &Topology {
        &self.topologies[usize::from(number) - 1]
    }

    /// Whether a node serves reads, and writes.
    fn serves(&mut self, world: &World, node: usize) -> (bool, bool) {
        if node == 1 && world.is_gone {
            return (false, false);
        }
        let drains = node == 0 && world.drains;
        let key = (node, world.nodes[node].clone(), world.topologies[node], drains);
        if let Some(known) = self.served.get(&key) {
            return *known;
        }
        let topology = self.topology(world.topologies[node]).clone();
        let mut cluster = Cluster::new((Some(id(node)), Some(topology)), world.nodes[node].clone());
        cluster.set_draining(drains);
        let may = |writes| {
            let access = Access { from_replica: false, writes, is_replica: false };
            cluster.refusal(SLOT, access).is_none()
        };
        let served = (may(false), may(true));
        self.served.insert(key, served);
        served
    }

    /// All that may happen next.
    fn next(&mut self, world: &World) -> Vec<World> {
        let mut all = Vec::new();
        self.clients(world, &mut all);
        self.source(world, &mut all);
        self.target(world, &mut all);
        self.network(world, &mut all);
        self.faults(world, &mut all);
        self.controller(world, &mut all);
        all
    }

    fn clients(&mut self, world: &World, all: &mut Vec<World>) {
        for node in 0..2 {
            if world.written < WRITES_MAX && self.serves(world, node).1 {
                let mut next = world.clone();
                next.keys[node] = Some(world.keys[node].unwrap_or(0) + 1);
                next.written += 1;
                all.push(next);
            }
        }
    }

    fn source(&mut self, world: &World, all: &mut Vec<World>) {
        let has_room = world.messages.len() < MESSAGES_MAX;
        let mut next = world.clone();
        match world.nodes[0].sending() {
            None if world.moves < MOVES_MAX && self.serves(world, 0).1 && world.topologies[0] < 3 => {
                next.nodes[0].begin(moving(next.moves));
                next.moves += 1;
                all.push(next);
            }
            Some((_, false)) => match world.line {
                Line::None => {
                    self.connect(world, all);
                    next.nodes[0].fail("no connection");
                    all.push(next);
                }
                Line::Open(sent) => self.send(world, sent, all),
            },
            Some((_, true)) if has_room && self.mutant != Mutant::NeverAsks => {
                let version = self.topology(world.topologies[0]).version;
                // The source uses another connection from now on.
                next.line = Line::None;
                next.messages.push(Message::Ask(next.moves - 1, version));
                all.push(next);
            }
            _ => {}
        }
        if !world.nodes[0].removing.is_empty() {
            let mut next = world.clone();
            next.keys[0] = None;
            next.nodes[0].note_removed(&Ranges::new([SLOT..=SLOT]));
            all.push(next);
        }
    }

    fn connect(&self, world: &World, all: &mut Vec<World>) {
        let target = &world.nodes[1];
        let may = !world.is_gone
            && target.importing().is_none()
            && target.removing.is_empty()
            && !target.has_denied(&moving(world.moves - 1).id)
            && (world.keys[1].is_none() || self.mutant == Mutant::KeepsHalves)
            && self.topology(world.topologies[1]).owner(SLOT) == Some(0);
        if may {
            let mut next = world.clone();
            next.nodes[1].import(moving(next.moves - 1));
            next.line = Line::Open(next.keys[1].unwrap_or(0));
            all.push(next);
        }
    }

    fn send(&self, world: &World, sent: u8, all: &mut Vec<World>) {
        let has_all = Some(sent) == world.keys[0].or(Some(0));
        if !has_all {
            let mut next = world.clone();
            next.line = Line::Open(next.keys[0].unwrap_or(0));
            next.keys[1] = next.keys[0];
            all.push(next);
        }
        all.push(World { drains: !world.drains, ..world.clone() });
        let is_ready = has_all || self.mutant == Mutant::CommitsEarly;
        if world.drains && is_ready && world.messages.len() < MESSAGES_MAX {
            let mut next = world.clone();
            if self.mutant != Mutant::CommitsUnprepared {
                next.nodes[0].prepare();
            }
            if self.mutant == Mutant::RemovesEarly {
                next.keys[0] = None;
            }
            next.drains = false;
            next.messages.push(Message::Commit(next.moves - 1));
            all.push(next);
        }
    }

    fn target(&self, world: &World, all: &mut Vec<World>) {
        if world.is_gone {
            return;
        }
        let target = &world.nodes[1];
        if !target.removing.is_empty() {
            let mut next = world.clone();
            if self.mutant != Mutant::KeepsHalves {
                next.keys[1] = None;
            }
            next.nodes[1].note_removed(&Ranges::new([SLOT..=SLOT]));
            all.push(next);
        }
        if target.importing().is_some() && world.line == Line::None {
            let mut next = world.clone();
            next.nodes[1].give_up();
            all.push(next);
        }
    }

    /// Each message on the way arrives, or is lost.
    fn network(&self, world: &World, all: &mut Vec<World>) {
        for at in 0..world.messages.len() {
            let mut next = world.clone();
            let message = next.messages.remove(at);
            all.push(next.clone());
            let is_for_target = matches!(message, Message::Commit(_) | Message::Ask(..));
            if is_for_target && world.is_gone {
                continue;
            }
            self.deliver(message, &mut next);
            all.push(next);
        }
    }

    fn deliver(&self, message: Message, next: &mut World) {
        match message {
            Message::Commit(number) => {
                if next.nodes[1].accept(&moving(number).id) {
                    next.messages.push(Message::Committed(number));
                }
            }
            Message::Ask(number, version) => {
                let own = (self.topology(next.topologies[1]), id(1));
                let before = next.nodes[1].clone();
                let verdict = next.nodes[1].answer(&moving(number), version, own);
                if self.mutant == Mutant::KeepsWhatItDenied {
                    next.nodes[1] = before;
                }
                let answered = match verdict {
                    Verdict::Handed => Answered::Handed,
                    Verdict::Never => Answered::Never,
                    Verdict::Newer => Answered::Newer,
                };
                next.messages.push(Message::Answered(number, answered));
            }
            Message::Committed(number) | Message::Answered(number, Answered::Handed) => {
                self.decide(number, true, next);
            }
            Message::Answered(number, Answered::Never) => self.decide(number, false, next),
            Message::Answered(_, Answered::Newer) => {}
        }
    }

    fn decide(&self, number: u8, is_handed: bool, next: &mut World) {
        let source = &mut next.nodes[0];
        if self.mutant == Mutant::CommitsUnprepared && is_handed {
            source.prepare();
        }
        if source.sending().is_some_and(|(now, is_doubtful)| is_doubtful && now.id == moving(number).id) {
            source.decide(is_handed);
        }
    }

    fn faults(&self, world: &World, all: &mut Vec<World>) {
        if world.line != Line::None {
            let mut next = world.clone();
            (next.line, next.drains) = (Line::None, false);
            all.push(next.clone());
            // The source may give up.
            next.nodes[0].fail("the connection failed");
            all.push(next);
        }
        if world.restarts == RESTARTS_MAX {
            return;
        }
        for node in 0..2 {
            if node == 1 && world.is_gone {
                continue;
            }
            let mut next = world.clone();
            next.restarts += 1;
            (next.line, next.drains) = (Line::None, false);
            // A message on the way to the other node may still arrive.
            next.messages
                .retain(|message| matches!(message, Message::Commit(_) | Message::Ask(..)) == (node == 0));
            next.nodes[node].restart(Some(id(node)));
            if self.mutant == Mutant::DecidesByItself {
                next.nodes[node].decide(false);
            }
            all.push(next);
        }
        self.promote(world, all);
    }

    /// A replica takes the place of the first node, with its keys, and the records as they are, or as they
    /// were before the target was to decide.
    fn promote(&self, world: &World, all: &mut Vec<World>) {
        for is_behind in [false, true] {
            let mut next = world.clone();
            next.restarts += 1;
            (next.line, next.drains) = (Line::None, false);
            next.messages.retain(|message| matches!(message, Message::Commit(_) | Message::Ask(..)));
            if let Some((_, stage @ Sending::Doubt)) = &mut next.nodes[0].outgoing
                && is_behind
            {
                *stage = Sending::Copying;
            }
            let is_mistaken = self.mutant == Mutant::FailsWhenPromoted;
            next.nodes[0].restart(Some(id(if is_mistaken { 0 } else { 2 })));
            all.push(next);
        }
    }

    fn controller(&self, world: &World, all: &mut Vec<World>) {
        let is_done = matches!(&world.nodes[0].outgoing, Some((_, Sending::Done)));
        let is_known = world.topologies.contains(&3);
        for node in 0..2 {
            for number in 2..=DECISION {
                let may = match number {
                    2 => true,
                    3 => (is_done || is_known) && !world.is_gone,
                    // The target is declared gone only after it is gone.
                    _ => node == 0 && world.is_gone,
                };
                if may && world.topologies[node] < number && !(node == 1 && world.is_gone) {
                    let mut next = world.clone();
                    next.topologies[node] = number;
                    let topology = self.topology(number);
                    if self.mutant == Mutant::ForgetsMoves {
                        next.nodes[node].handed.clear();
                    }
                    if self.mutant == Mutant::TakesAnyTopology {
                        next.nodes[node].decide(topology.owner(SLOT) == Some(1));
                    }
                    if self.mutant == Mutant::TakesAbsence && number == 4 {
                        next.nodes[node].decide(false);
                    }
                    let is_decision = number == DECISION;
                    let decided = if is_decision { Decided::Everything } else { Decided::Nothing };
                    next.nodes[node].adopt(topology, &decided);
                    all.push(next);
                }
            }
        }
        if !world.is_gone && world.restarts < RESTARTS_MAX && !is_known {
            let mut next = world.clone();
            (next.is_gone, next.restarts) = (true, world.restarts + 1);
            (next.line, next.drains) = (Line::None, false);
            all.push(next);
        }
        if world.is_gone && world.topologies[0] < DECISION {
            let mut next = world.clone();
            next.is_gone = false;
            next.nodes[1].restart(Some(id(1)));
            all.push(next);
        }
    }

    /// The mistake that a state shows.
    fn mistake(&mut self, world: &World) -> Option<String> {
        let serves = [self.serves(world, 0), self.serves(world, 1)];
        if serves[0].1 && (serves[1].0 || serves[1].1) || serves[1].1 && serves[0].0 {
            return Some(format!("both serve: {world:?}"));
        }
        for (node, served) in serves.iter().enumerate() {
            if served.0 && world.keys[node].unwrap_or(0) != world.written && !world.is_gone {
                return Some(format!("{node} serves other keys: {world:?}"));
            }
        }
        None
    }

    /// Whether nothing is left to be done: one node serves, and nobody else has keys.
    fn has_ended(&mut self, world: &World) -> bool {
        let serves = [self.serves(world, 0).1, self.serves(world, 1).1];
        let others = (0..2).filter(|node| !serves[*node]).all(|node| world.keys[node].is_none());
        let imports = world.nodes[1].importing().is_some() && !world.is_gone;
        let is_moving = world.nodes[0].sending().is_some() || imports;
        serves.iter().filter(|is| **is).count() == 1 && (others || world.is_gone) && !is_moving
    }
}

/// Visits all states that can be reached; returns how many there are.
fn search(mutant: Mutant) -> Result<usize, String> {
    let mut model = Model::new(mutant);
    let first = World {
        nodes: [Moves::default(), Moves::default()],
        topologies: [1, 1],
        keys: [None, None],
        line: Line::None,
        drains: false,
        messages: Vec::new(),
        written: 0,
        moves: 0,
        restarts: 0,
        is_gone: false,
    };
    let mut places = HashMap::from([(first.clone(), 0_u32)]);
    let (mut queue, mut before, mut ended) = (VecDeque::from([first]), vec![Vec::new()], Vec::new());
    while let Some(world) = queue.pop_front() {
        if let Some(mistake) = model.mistake(&world) {
            return Err(mistake);
        }
        let place = places[&world];
        if model.has_ended(&world) {
            ended.push(place);
        }
        for mut next in model.next(&world) {
            next.messages.sort_unstable();
            let fresh = before.len() as u32;
            let at = *places.entry(next).or_insert_with_key(|next| {
                queue.push_back(next.clone());
                fresh
            });
            if at == fresh {
                before.push(Vec::new());
            }
            before[at as usize].push(place);
        }
    }
    // From every state, a state can be reached in which the move has ended.
    let mut can = vec![false; before.len()];
    while let Some(place) = ended.pop() {
        if !std::mem::replace(&mut can[place as usize], true) {
            ended.extend(&before[place as usize]);
        }
    }
    match can.iter().position(|can| !can) {
        None => Ok(before.len()),
        Some(stuck) => {
            let world = places.iter().find(|(_, place)| **place as usize == stuck).map(|(world, _)| world);
            Err(format!("it never ends: {world:?}"))
        }
    }
}

#[test]
fn one_node_serves_a_slot_whatever_is_lost() {
    let states = search(Mutant::None).unwrap();
    assert_eq!(states, 251_569);
}

#[test]
fn the_search_finds_mistakes() {
    for (mutant, found) in [
        (Mutant::CommitsUnprepared, "both serve"),
        (Mutant::DecidesByItself, "both serve"),
        (Mutant::KeepsWhatItDenied, "serve"),
        (Mutant::NeverAsks, "it never ends"),
        (Mutant::RemovesEarly, "serves other keys"),
        (Mutant::KeepsHalves, "it never ends"),
        (Mutant::ForgetsMoves, "serve"),
        (Mutant::CommitsEarly, "serves other keys"),
        (Mutant::TakesAnyTopology, "both serve"),
        (Mutant::TakesAbsence, "serve"),
        (Mutant::FailsWhenPromoted, "serve"),
    ] {
        let mistake = search(mutant).expect_err(&format!("{mutant:?}"));
        assert!(mistake.contains(found), "{mutant:?}: {mistake}");
    }
}

#[test]
fn an_import_is_done_once() {
    let mut target = Moves::default();
    target.import(moving(0));
    assert!(target.accept(&moving(0).id) && target.accept(&moving(0).id), "the same answer twice");
    assert!(!target.accept(&moving(1).id));
    assert_eq!(target.incoming.as_ref().map(|(_, stage)| *stage), Some(Importing::Done));
    assert_eq!(target.handed.len(), 1);
}
