//! Elections and leases, exhausted: two controllers that say heartbeats, a store of elections, an old master
//! and the node that takes its place.
//!
//! The lease is the real one ([`Lease`]). Heartbeats and answers come late or never, connections are given
//! up while something is on the way, controllers stand still between any two steps, the clock of the old
//! master is as fast as that of the others or slower by a hundredth, and it is started anew, also with its
//! machine. To the bound: three connections at a time, and steps of a quarter of a lease. There is no bound
//! on time and restarts: worlds in which everything is as long ago are one.
//!
//! The new master takes writes as soon as the topology reaches it. The old one hears of no election and no
//! topology: nothing but its lease stops it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::lease::{Election, Lease};
use super::topology::NodeId;

/// Milliseconds of a tick.
const TICK: u32 = 100;
const LENGTH_TICKS: u8 = 4;
const CONNECTIONS_MAX: usize = 3;
/// Connections that controllers have not given up.
const CONTROLLERS: usize = 2;

/// A mistake, for the search to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A lease counts from the heartbeat that arrives.
    CountsFromArrival,
    /// The first heartbeat of a connection gives a lease, from its arrival on.
    FirstCounts,
    /// All of a lease is used.
    UsesAll,
    /// The lease is kept over a restart of the machine, whose clock begins anew.
    KeepsLease,
    /// A controller does not look, after an answer, whether the election is still the latest.
    DoesNotLook,
    /// A controller says the next heartbeat before it has the answer.
    Pipelines,
    /// The new master is told a tick too early.
    WaitsLess,
    /// The new master is told at once.
    DoesNotWait,
}

/// The controller's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// Nothing was said yet.
    New,
    Waits,
    Answered,
    /// The controller has checked, since the answer, that the election is the latest.
    Sure,
    /// The controller has given the connection up; a heartbeat is on the way.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Connection {
    phase: Phase,
    /// Heartbeats on their way, and an answer.
    heartbeats: u8,
    is_answered: bool,
    /// When the node got the previous heartbeat, by its clock.
    before: Option<u32>,
}

#[derive(Clone, Debug)]
struct World {
    /// The clock of the old master, and its length of a tick.
    clock: u32,
    tick: u32,
    lease: Lease,
    connections: Vec<Connection>,
    /// How many ticks ago another node was elected; no more than a lease has.
    elected: Option<u8>,
    is_told: bool,
}

/// All that matters of a world.
type Key = (u32, Duration, Vec<(Connection, Option<u32>)>, Option<u8>, bool);

impl World {
    fn key(&self) -> Key {
        let age = |before: u32| (self.clock - before).min(TICK * u32::from(LENGTH_TICKS));
        let of = |one: &Connection| (Connection { before: None, ..*one }, one.before.map(age));
        let mut connections: Vec<_> = self.connections.iter().map(of).collect();
        connections.sort_unstable();
        (self.tick, self.lease.rest(ms(self.clock)), connections, self.elected, self.is_told)
    }
}

fn myself() -> NodeId {
    NodeId::parse(&[b'a'; 40]).unwrap()
}

/// The election that the old master knows.
fn election() -> Election {
    Election { version: 1, master: myself() }
}

fn ms(count: u32) -> Duration {
    Duration::from_millis(count.into())
}

fn next(world: &World, mutant: Mutant) -> Vec<World> {
    let mut all = Vec::new();
    let with = |change: &dyn Fn(&mut World)| {
        let mut next = world.clone();
        change(&mut next);
        next
    };
    all.push(with(&|next| {
        next.clock += world.tick;
        next.elected = world.elected.map(|ago| LENGTH_TICKS.min(ago + 1));
    }));
    if world.elected.is_none() {
        all.push(with(&|next| next.elected = Some(0)));
    }
    let waits = match mutant {
        Mutant::WaitsLess => LENGTH_TICKS - 1,
        Mutant::DoesNotWait => 0,
        _ => LENGTH_TICKS,
    };
    if world.elected.is_some_and(|ago| ago >= waits) {
        all.push(with(&|next| next.is_told = true));
    }
    all.push(with(&|next| {
        next.connections.clear();
        next.clock = 0;
        if mutant != Mutant::KeepsLease {
            next.lease = Lease::new(world.lease.election());
        }
    }));
    let live = world.connections.iter().filter(|one| one.phase != Phase::Lost).count();
    if live < CONTROLLERS && world.connections.len() < CONNECTIONS_MAX {
        let one = Connection { phase: Phase::New, heartbeats: 0, is_answered: false, before: None };
        all.push(with(&|next| next.connections.push(one)));
    }
    for at in 0..world.connections.len() {
        talk(world, at, mutant, &mut all);
    }
    all
}

/// The steps of one connection.
fn talk(world: &World, at: usize, mutant: Mutant, all: &mut Vec<World>) {
    let one = world.connections[at];
    let mut step = |change: &dyn Fn(&mut Connection, &mut Lease)| {
        let mut next = world.clone();
        change(&mut next.connections[at], &mut next.lease);
        next.connections.retain(|one| one.phase != Phase::Lost || one.heartbeats > 0);
        all.push(next);
    };
    let says = |one: &mut Connection, _: &mut Lease| {
        (one.phase, one.heartbeats) = (Phase::Waits, one.heartbeats + 1);
    };
    match one.phase {
        Phase::New | Phase::Sure => step(&says),
        Phase::Waits if one.is_answered => {
            step(&|one, _| (one.phase, one.is_answered) = (Phase::Answered, false));
        }
        Phase::Waits if mutant == Mutant::Pipelines && one.heartbeats == 1 => step(&says),
        Phase::Answered if mutant == Mutant::DoesNotLook => step(&says),
        Phase::Answered if world.elected.is_none() => step(&|one, _| one.phase = Phase::Sure),
        _ => {}
    }
    if one.phase != Phase::Lost {
        step(&|one, _| (one.phase, one.is_answered) = (Phase::Lost, false));
    }
    if one.heartbeats > 0 {
        let clock = world.clock;
        step(&|one, lease| {
            let before = match mutant {
                Mutant::CountsFromArrival => one.before.map(|_| clock),
                Mutant::FirstCounts => one.before.or(Some(clock)),
                _ => one.before,
            };
            let more = if mutant == Mutant::UsesAll { TICK * u32::from(LENGTH_TICKS) / 100 } else { 0 };
            let length = ms(TICK * u32::from(LENGTH_TICKS));
            lease.take(election(), myself(), length, before.map(|before| ms(before + more)));
            (one.before, one.heartbeats) = (Some(clock), one.heartbeats - 1);
            one.is_answered = one.phase == Phase::Waits;
        });
        // The connection breaks.
        step(&|one, _| (one.phase, one.heartbeats) = (Phase::Lost, 0));
    }
}

/// Returns the number of worlds, whether the old master had a lease in any of them, and whether the new
/// master was told in any.
fn search(mutant: Mutant) -> Result<(usize, bool, bool), String> {
    let lease = Lease::new(Some(election()));
    let first =
        |tick| World { clock: 0, tick, lease, connections: Vec::new(), elected: None, is_told: false };
    let mut queue: VecDeque<World> = [TICK - 1, TICK].map(first).into();
    let mut seen: HashSet<Key> = queue.iter().map(World::key).collect();
    let (mut has_held, mut was_told) = (false, false);
    while let Some(world) = queue.pop_front() {
        let holds = world.lease.holds(ms(world.clock));
        (has_held, was_told) = (has_held | holds, was_told | world.is_told);
        if holds && world.is_told {
            return Err(format!("both take writes: {world:?}"));
        }
        for next in next(&world, mutant) {
            if seen.insert(next.key()) {
                queue.push_back(next);
            }
        }
    }
    Ok((seen.len(), has_held, was_told))
}

#[test]
fn two_masters_never_take_writes_at_the_same_time() {
    let (worlds, has_held, was_told) = search(Mutant::None).unwrap();
    assert!(has_held && was_told);
    assert_eq!(worlds, 76_567);
}

#[test]
fn the_search_finds_mistakes() {
    for mutant in [
        Mutant::CountsFromArrival,
        Mutant::FirstCounts,
        Mutant::UsesAll,
        Mutant::KeepsLease,
        Mutant::DoesNotLook,
        Mutant::Pipelines,
        Mutant::WaitsLess,
        Mutant::DoesNotWait,
    ] {
        let mistake = search(mutant).expect_err(&format!("{mutant:?}"));
        assert!(mistake.contains("both take writes"), "{mutant:?}: {mistake}");
    }
}
