//! Recorded operations of clients on a shard whose nodes are killed, stopped and parted from each other while
//! a controller changes the master: what WAIT has acknowledged is linearizable, key by key, and there at the
//! end, and with leases no node takes a write in the term of another.
//!
//! ```text
//!   shard       real processes, and a link from everybody to each of them, which can be cut: bytes wait, or
//!               connections end (`proxy`)
//!   keeper      the controller, with the rules of one that is a single process
//!   nemesis     what is done to them, by a seed
//!   clients     appends to lists, writes of registers, and readings, each with WAIT
//!   record      what they were told, and when
//!   checker     what must be so; mutants: each kind of anomaly is noticed, and an exhaustive search agrees
//!   published   published checkers for the same histories
//!   schedules   fixed ones: without leases, with a controller that does not wait, with too few replicas
//! ```
//!
//! # What is acknowledged
//!
//! A write is acknowledged when WAIT has counted all replicas of the shard, so that any of them may become
//! the master, and the keeper takes any. A reading by itself promises nothing: an old master answers, and a
//! write that no replica has may be seen and lost. Acknowledged readings are in an EXEC with a write, and
//! WAIT behind that. Everything that is not refused, and not acknowledged, may have happened or not.
//!
//! `TEMBO_HISTORIES=100 cargo test --release -p tembo-cli --test suite -- histories --nocapture` is the long
//! form; `TEMBO_HISTORY_SEED` chooses the first seed. A seed has the same steps and operations again, and not
//! the same times.

mod checker;
mod clients;
mod keeper;
mod mutants;
mod nemesis;
mod published;
mod record;
mod schedules;
mod shard;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tembo_wire::Value;

use clients::{Client, Load, Means};
use keeper::Keeper;
use nemesis::Nemesis;
use published::Porcupine;
use record::{Clock, Event, History, Outcome};
use shard::{CLIENTS, Links, Shard};

use crate::cluster_moves::PATIENCE;

const LEASES: &str = "master-lease-mode block-write";
/// Steps that are recorded in one history.
const STEPS: usize = 6;
/// Operations that are acknowledged between two steps.
const BETWEEN: u64 = 40;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A shard whose replicas follow, its keeper, and what clients need.
fn ready(nodes: usize, lines: &str, waits: bool) -> (Shard, Arc<Links>, Keeper, Means) {
    let (shard, links) = Shard::start(nodes, lines);
    let (links, clock) = (Arc::new(links), Clock::start());
    let keeper = Keeper::start(&links, &shard.ports, clock, waits);
    let (values, acknowledged) = Default::default();
    let copies = nodes - 1;
    let means = Means { links: links.clone(), nodes, copies, clock, values, acknowledged };
    let mut first = Client::new(0, &means);
    let begun = Instant::now();
    // A reading, so that all begins with nothing.
    while first.read(&clients::list(0)) != Outcome::Acknowledged {
        assert!(begun.elapsed() < PATIENCE, "the replicas do not follow: {:?}", first.events.last());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    (shard, links, keeper, means)
}

/// The readings of all keys, and proof that the replicas have the same.
fn read_last(nemesis: &Nemesis, means: &Means) -> Vec<Event> {
    let mut client = Client::new(0, means);
    let read = |key: &String| {
        nemesis.wait_for("no reading is acknowledged", || client.read(key) == Outcome::Acknowledged);
        client.events.pop().expect("the last one")
    };
    let last = clients::keys().iter().map(read).collect();
    let shown = |node: usize| -> Option<Vec<Value>> {
        let mut talk = nemesis.shard.talk(node);
        talk.ask(&["READONLY"])?;
        let read = |key: &String| match key.contains("list") {
            true => talk.ask(&["LRANGE", key, "0", "-1"]),
            false => talk.ask(&["GET", key]),
        };
        clients::keys().iter().map(read).collect()
    };
    for node in 0..means.nodes {
        nemesis.wait_for("a replica has something else", || shown(node) == shown(nemesis.keeper.master()));
    }
    last
}

/// Records one history.
fn record(seed: u64, nodes: usize) -> (History, Vec<nemesis::Step>, usize) {
    let (shard, links, keeper, means) = ready(nodes, LEASES, true);
    let mut nemesis = Nemesis::new(seed, shard, links, keeper);
    let load = Load::start(CLIENTS, &means, seed);
    for _ in 0..STEPS {
        let goal = means.acknowledged.load(Ordering::Relaxed) + BETWEEN;
        let is_reached = || means.acknowledged.load(Ordering::Relaxed) >= goal;
        nemesis.wait_for("nothing is acknowledged", is_reached);
        nemesis.step();
    }
    let events = load.end();
    let last = read_last(&nemesis, &means);
    let Nemesis { shard, keeper, steps, kills, .. } = nemesis;
    let history = History { events, terms: keeper.end(), last };
    shard.check();
    (history, steps, kills)
}

fn campaign(nodes: usize) {
    let rounds = env_number("TEMBO_HISTORIES").unwrap_or(1);
    let first = env_number("TEMBO_HISTORY_SEED").unwrap_or(0x5EED);
    let porcupine = Porcupine::build();
    let (mut counts, mut all_steps, mut all_kills, mut terms) = ([0; 3], Vec::new(), 0, 0);
    for seed in first..first + rounds {
        println!("TEMBO_HISTORY_SEED={seed}, {nodes} nodes");
        let (history, steps, kills) = record(seed, nodes);
        println!("{steps:?}");
        checker::check(&history).unwrap_or_else(|anomaly| panic!("seed {seed}, {steps:?}: {anomaly}"));
        assert_eq!(published::anomalies(&history), [""; 0], "seed {seed}, {steps:?}");
        assert!(
            porcupine.as_ref().is_none_or(|porcupine| porcupine.accepts(&history)),
            "seed {seed}, {steps:?}"
        );
        for (count, outcome) in
            counts.iter_mut().zip([Outcome::Acknowledged, Outcome::Refused, Outcome::Unknown])
        {
            *count += history.count(outcome);
        }
        (all_kills, terms) = (all_kills + kills, terms + history.terms.len());
        all_steps.extend(steps);
    }
    let [acknowledged, refused, unknown] = counts;
    println!(
        "{rounds} histories of {nodes} nodes, {} steps, {all_kills} kills, {terms} terms: {acknowledged} operations \
         acknowledged, {refused} refused, {unknown} unknown",
        all_steps.len()
    );
    assert!(acknowledged as u64 > rounds * BETWEEN * STEPS as u64, "too light a load to mean anything");
}

#[test]
fn a_master_and_a_replica_keep_what_wait_has_acknowledged() {
    campaign(2);
}

#[test]
fn a_master_and_two_replicas_keep_what_wait_has_acknowledged() {
    campaign(3);
}
