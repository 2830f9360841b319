//! The records as text, the effects that are told to a target, and topologies that end a move.

use super::copy::{Commands, Copy};
use super::filter::filter;
use super::{Decided, HANDED_MAX, Importing, Move, Moves, Sending, Verdict, is_try_again};
use crate::cluster::ranges::Ranges;
use crate::cluster::topology::{NodeId, Topology};
use crate::cluster::{Access, Cluster};
use crate::commands::registry::Registry;
use crate::random::Random;

fn id(node: usize) -> NodeId {
    NodeId::parse(format!("{node:040}").as_bytes()).unwrap()
}

fn moving(number: u8, slots: std::ops::RangeInclusive<u16>) -> Move {
    Move { id: [b'a' + number; 40], slots: Ranges::new([slots]), source: id(1), target: id(2) }
}

fn full() -> Moves {
    Moves {
        outgoing: Some((moving(0, 1..=5), Sending::Failed("no reason, but a long one".to_owned()))),
        incoming: Some((moving(1, 7..=7), Importing::Receiving)),
        handed: vec![moving(2, 9..=9), moving(3, 100..=16_383)],
        removing: Ranges::new([3..=3, 40..=50]),
    }
}

#[test]
fn records_come_back_from_their_text() {
    assert_eq!(Moves::parse(b""), Some(Moves::default()));
    assert_eq!(Moves::default().to_text(), "");
    let mut moves = full();
    for stage in [Sending::Copying, Sending::Doubt, Sending::Done, Sending::Failed(String::new())] {
        moves.outgoing = Some((moving(0, 1..=5), stage));
        assert_eq!(Moves::parse(moves.to_text().as_bytes()).as_ref(), Some(&moves), "{}", moves.to_text());
    }
    for stage in [Importing::Receiving, Importing::Done, Importing::Failed] {
        moves.incoming = Some((moving(1, 7..=7), stage));
        assert_eq!(Moves::parse(moves.to_text().as_bytes()).as_ref(), Some(&moves));
    }
}

#[test]
fn text_that_is_damaged_is_refused_or_comes_back() {
    let (sound, mut random) = (full().to_text().into_bytes(), Random::seeded(5));
    for wrong in
        ["out", "out doubt", "in x a b c 1", "removing", "removing 1 2", "handed a b c 3", "x", "\u{ff}"]
    {
        assert_eq!(Moves::parse(wrong.as_bytes()), None, "{wrong}");
    }
    let twice = [&sound[..], &sound[..]].concat();
    assert_eq!(Moves::parse(&twice), None);
    for _ in 0..5000 {
        let mut text = sound.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(text.len() as u64) as usize;
            match random.below(3) {
                0 => text[at] = random.below(256) as u8,
                1 => drop(text.remove(at)),
                _ => text.insert(at, b" -,\n09ao"[random.below(8) as usize]),
            }
        }
        if let Some(moves) = Moves::parse(&text) {
            assert_eq!(Moves::parse(moves.to_text().as_bytes()), Some(moves));
        }
    }
}

fn topology(version: u64, first: &str, second: &str, third: &str) -> Topology {
    let text = format!("{} h 1 master - {first}\n{} h 2 {second}\n{} h 3 {third}\n", id(1), id(2), id(3));
    Topology::parse(text.as_bytes(), version).unwrap()
}

#[test]
fn topologies_end_what_they_know() {
    let done = Moves { handed: vec![moving(0, 1..=5)], ..Moves::default() };
    let after = |topology: &Topology, decided: &Decided| {
        let mut moves = done.clone();
        moves.adopt(topology, decided);
        moves.handed.first().map(|moving| moving.slots.to_string())
    };
    let replica = |of: usize| format!("slave {}", id(of));
    // A topology that does not know the move, one that knows a part of it, and one that knows all of it.
    let same = topology(2, "0-100", "master -", "master -");
    assert_eq!(after(&same, &Decided::Nothing).as_deref(), Some("1-5"));
    assert_eq!(done.owner(&same, 3), Some(1));
    assert_eq!(
        after(&topology(2, "0 3-100", "master - 1-2", "master -"), &Decided::Nothing).as_deref(),
        Some("3-5")
    );
    assert_eq!(after(&topology(2, "0 6-100", "master - 1-5", "master -"), &Decided::Nothing), None);
    // The target has a master now, which has the slots in place of the target.
    let promoted = topology(2, "0-100", &replica(3), "master -");
    assert_eq!(after(&promoted, &Decided::Nothing).as_deref(), Some("1-5"));
    assert_eq!(done.owner(&promoted, 3), Some(2));
    assert_eq!(after(&topology(2, "0 6-100", &replica(3), "master - 1-5"), &Decided::Nothing), None);
    // A third owner, a decision about some slots or all, and a target that is gone.
    assert_eq!(after(&topology(2, "0 6-100", "master -", "master - 1-5"), &Decided::Nothing), None);
    let some = Decided::Slots(Ranges::new([2..=3]));
    assert_eq!(after(&same, &some).as_deref(), Some("1,4-5"));
    assert_eq!(after(&same, &Decided::Everything), None);
    let alone = Topology::parse(format!("{} h 1 master - 0-100", id(1)).as_bytes(), 2).unwrap();
    assert_eq!(after(&alone, &Decided::Nothing).as_deref(), Some("1-5"), "it may come back");
    assert_eq!(done.owner(&alone, 3), None, "nobody serves them meanwhile");
    assert_eq!(after(&alone, &Decided::Everything), None);
}

#[test]
fn topologies_decide_for_a_source_in_doubt() {
    let after = |topology: &Topology, decided: &Decided| {
        let mut moves = Moves::default();
        moves.begin(moving(0, 1..=5));
        moves.prepare();
        moves.adopt(topology, decided);
        assert!(moves.removing.is_empty() && moves.handed.is_empty(), "the keys may be the only ones");
        moves.outgoing.map(|(_, stage)| stage).unwrap()
    };
    let same = topology(2, "0-100", "master -", "master -");
    let decided = || Sending::Failed("a new topology decided".to_owned());
    assert_eq!(after(&same, &Decided::Nothing), Sending::Doubt);
    assert_eq!(after(&topology(2, "0 6-100", "master - 1-5", "master -"), &Decided::Nothing), Sending::Done);
    let failed = topology(2, "0-100", "master,fail -", "master -");
    let alone = Topology::parse(format!("{} h 1 master - 0-100", id(1)).as_bytes(), 2).unwrap();
    for lost in [&failed, &alone] {
        assert_eq!(after(lost, &Decided::Nothing), Sending::Doubt, "it may have the slots, and come back");
        assert_eq!(after(lost, &Decided::Everything), decided());
        // The keys stay here as long as the target was not to decide.
        let mut moves = Moves::default();
        moves.begin(moving(0, 1..=5));
        moves.adopt(lost, &Decided::Nothing);
        assert_eq!(moves.outgoing.map(|(_, stage)| stage), Some(decided()));
    }
    assert_eq!(after(&topology(2, "0 6-100", "master -", "master - 1-5"), &Decided::Nothing), decided());
    assert_eq!(after(&same, &Decided::Slots(Ranges::new([5..=9]))), decided());
    assert_eq!(after(&same, &Decided::Slots(Ranges::new([6..=9]))), Sending::Doubt);
    assert_eq!(after(&same, &Decided::Everything), decided());
}

/// The stream of some commands.
fn stream(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        tembo_wire::write_request(&mut bytes, line.split(' ').collect::<Vec<_>>());
    }
    bytes
}

#[test]
fn effects_of_keys_that_are_not_sent_are_left_out() {
    let registry = Registry::new();
    let told = |slots: Ranges, lines: &[&str]| {
        let (mut copy, mut out) = (Copy::new(slots.clone()), Commands::default());
        let filtered = filter(&registry, &stream(lines), &slots, &mut copy, &mut out);
        filtered.map(|()| (out.count, out.writes))
    };
    // No slots, so that all keys of them are sent; and one slot, of which nothing is sent. "b" has slot 3300.
    let (none, one) = (Ranges::default(), Ranges::new([3300..=3300]));
    let plain = ["SELECT 0", "MULTI", "SET b 1", "SET c 1", "DEL b c", "EXEC", "PING", "PUBLISH b x"];
    assert_eq!(told(none, &plain), Ok((0, 0)));
    assert_eq!(told(one.clone(), &plain), Ok((0, 0)));
    for sweeping in ["FLUSHALL", "FLUSHDB"] {
        assert_eq!(told(one.clone(), &[sweeping]), Err(format!("{sweeping} was run meanwhile")));
    }
    assert!(told(one, &["NONSENSE b"]).is_err());
}

#[test]
fn a_replica_that_takes_the_place_of_a_source_asks() {
    for (myself, is_own) in [(Some(id(1)), true), (Some(id(3)), false), (None, false)] {
        let mut moves = Moves::default();
        moves.begin(moving(0, 1..=5));
        moves.restart(myself);
        assert_eq!(moves.sending().is_none(), is_own, "{myself:?}");
        assert!(is_own || moves.sending().is_some_and(|(_, is_doubtful)| is_doubtful));
    }
}

#[test]
fn a_target_that_said_never_begins_no_import_of_the_move() {
    let (same, asked) = (topology(1, "0-100", "master -", "master -"), moving(0, 1..=5));
    let mut target = Moves::default();
    assert_eq!(target.answer(&asked, 1, (&same, id(2))), Verdict::Never);
    assert!(target.has_denied(&asked.id) && !target.has_denied(&moving(1, 1..=5).id));
    assert!(!target.accept(&asked.id));
    // A move that the target has taken, or is taking, stays.
    for stage in [Importing::Receiving, Importing::Done] {
        target.incoming = Some((moving(1, 9..=9), stage));
        assert_eq!(target.answer(&asked, 1, (&same, id(2))), Verdict::Never);
        assert_eq!(target.incoming, Some((moving(1, 9..=9), stage)));
    }
}

#[test]
fn as_many_moves_are_remembered_as_can_be_read() {
    let mut moves = Moves {
        handed: (0..HANDED_MAX as u16 - 1).map(|slot| moving(0, slot..=slot)).collect(),
        ..Moves::default()
    };
    assert!(moves.has_room());
    moves.begin(moving(1, 300..=300));
    assert!(!moves.has_room(), "that which is under way needs its place");
    moves.import(moving(2, 301..=301));
    assert!(moves.accept(&moving(2, 0..=0).id));
    moves.prepare();
    moves.decide(true);
    assert_eq!(moves.handed.len(), HANDED_MAX + 1);
    assert_eq!(Moves::parse(moves.to_text().as_bytes()), Some(moves));
}

#[test]
fn a_node_with_records_that_cannot_be_read_serves_nothing() {
    let mut cluster = Cluster::new((Some(id(1)), Some(topology(1, "0-100", "master -", "master -"))), full());
    let access = Access { from_replica: false, writes: false, is_replica: false };
    assert!(cluster.refusal(60, access).is_none());
    cluster.set_unreadable();
    assert!(cluster.refusal(60, access).is_some_and(|fault| is_try_again(&fault)));
    // A decision comes with other records.
    cluster.set_moves(Moves::default());
    assert!(cluster.refusal(60, access).is_none() && !cluster.is_unreadable());
}
