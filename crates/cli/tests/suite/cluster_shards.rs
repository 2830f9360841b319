//! Three shards of two nodes under a controller of either generation, and redis-py's cluster client over them
//! while slots move and nodes are killed with SIGKILL.
//!
//! `TEMBO_SLOTS=1000 cargo test --release -p tembo-cli --test suite -- cluster_shards --nocapture` is the
//! long campaign.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cluster_moves::{Talk, text};
use crate::controller::{Controller, Generation, SHARDS, Shards};
use crate::redis_py::python;

/// The load, in a process.
pub(crate) struct Load {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Load {
    /// Over the nodes at these ports; half of its keys are in the slots up to the last one.
    /// Something goes on until it writes.
    pub(crate) fn start(
        ports: &[u16],
        last_slot: usize,
        waits: bool,
        mut meanwhile: impl FnMut(),
    ) -> Option<Load> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis_py/shards.py");
        let mut command = Command::new(python()?);
        command.arg(script).args([ports[0].to_string(), ports.len().to_string(), last_slot.to_string()]);
        command.arg(if waits { "wait" } else { "-" }).args(ports.iter().map(u16::to_string));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = piped.spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            (out, line)
        });
        while !reading.is_finished() {
            meanwhile();
            std::thread::sleep(Duration::from_millis(5));
        }
        let (out, line) = reading.join().unwrap();
        let load = Load { out, process };
        if line != "writing\n" {
            load.fail(&line);
        }
        Some(load)
    }

    fn fail(mut self, out: &str) -> ! {
        let mut err = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        panic!("{out}\n{err}");
    }

    /// Lets it look at its keys; what it counted.
    pub(crate) fn end(mut self) -> serde_json::Value {
        let mut out = String::new();
        // One that has failed takes nothing.
        let _ = self.process.stdin.take().unwrap().write_all(b"\n");
        self.out.read_to_string(&mut out).unwrap();
        match self.process.wait().unwrap().success() {
            true => serde_json::from_str(out.lines().last().unwrap()).unwrap(),
            false => self.fail(&out),
        }
    }
}

fn ask(port: u16, words: &[&str]) -> String {
    Talk::connect(port).and_then(|mut talk| talk.ask(words)).map_or_else(String::new, |reply| text(&reply))
}

fn link_is_up(port: u16) -> bool {
    ask(port, &["INFO", "replication"]).contains("master_link_status:up")
}

/// Shards that a controller has told everything.
fn ready(generation: Generation) -> (Shards, Controller) {
    let shards = Shards::start(match generation {
        Generation::First => "cluster-allow-unfenced-failover yes",
        Generation::Later => "master-lease-mode block-write",
    });
    let mut controller = Controller::new(generation, shards.ports);
    controller.round();
    assert_eq!(controller.pushes, 6, "each node was told once");
    let ports = shards.ports;
    controller.run_until("the replicas follow", |_| ports[SHARDS..].iter().all(|port| link_is_up(*port)));
    // With leases there is one after the second heartbeat.
    controller.round();
    (shards, controller)
}

/// Keys of the slots 3300, 7365 and 14,415, one in each shard.
const KEYS: [&str; SHARDS] = ["b", "c", "zz"];

fn converse(generation: Generation) {
    let (mut shards, mut controller) = ready(generation);
    let ports = shards.ports;
    for (shard, key) in KEYS.iter().enumerate() {
        let mut talk = Talk::connect(ports[shard]).unwrap();
        assert_eq!(text(&talk.ask(&["SET", key, "1"]).unwrap()), "OK", "{key}");
        talk.ask(&["WAIT", "1", "20000"]).unwrap();
    }
    // A master dies. Its replica takes its place, and it comes back as the replica.
    shards.kill(0);
    controller.run_until("the master is replaced", |controller| controller.failovers == 1);
    controller.round();
    controller.round();
    assert_eq!(ask(ports[3], &["INCR", KEYS[0]]), "");
    assert_eq!(ask(ports[3], &["GET", KEYS[0]]), "2");
    assert_eq!(ask(ports[1], &["GET", KEYS[0]]), format!("MOVED 3300 127.0.0.1:{}", ports[3]));
    shards.restart(0);
    let refused = ask(ports[0], &["SET", KEYS[0], "lost"]);
    // It has asked the replica, which has taken its place; or it has no lease.
    assert!(refused.starts_with("CLUSTERDOWN "), "{refused}");
    controller.run_until("it follows the new master", |_| link_is_up(ports[0]));
    assert_eq!(ask(ports[3], &["GET", KEYS[0]]), "2");
    // Slots move, and the controller asks how that goes.
    let slots = if generation == Generation::First { (3300, 3300) } else { (3200, 3400) };
    assert!(controller.migrate(slots, 1));
    controller.run_until("the slots move", |controller| !controller.is_moving());
    assert_eq!(controller.owner(3300), 1);
    assert_eq!(ask(ports[3], &["GET", KEYS[0]]), format!("MOVED 3300 127.0.0.1:{}", ports[1]));
    assert_eq!(ask(ports[1], &["GET", KEYS[0]]), "2");
    // A planned change.
    controller.change_master(2);
    controller.round();
    controller.round();
    assert_eq!(ask(ports[2], &["GET", KEYS[2]]), format!("MOVED {} 127.0.0.1:{}", 14_415, ports[5]));
    assert_eq!(
        (ask(ports[5], &["INCR", KEYS[2]]), ask(ports[5], &["GET", KEYS[2]])),
        ("".into(), "2".into())
    );
    controller.run_until("the old master follows", |_| link_is_up(ports[2]));
    let version = controller.version.to_string();
    assert!(ports.iter().all(|port| ask(*port, &["CLUSTERX", "VERSION"]) == version));
    println!("{generation:?}: {} pushes, version {version}", controller.pushes);
    shards.check();
}

#[test]
fn the_first_generation_of_controllers_manages_three_shards() {
    converse(Generation::First);
}

#[test]
fn the_later_generation_of_controllers_manages_three_shards_with_leases() {
    converse(Generation::Later);
}

/// How many slots move: each of them once.
fn slots() -> usize {
    std::env::var("TEMBO_SLOTS").ok().and_then(|slots| slots.parse().ok()).unwrap_or(120)
}

const SLOTS_PER_MOVE: usize = 10;

/// Servers that are killed come back at once, and nobody takes their place: no acknowledged write is lost,
/// though no client waits for replicas.
#[test]
fn the_cluster_of_redis_py_loses_nothing_while_slots_move_and_nodes_are_killed() {
    let (mut shards, mut controller) = ready(Generation::Later);
    let load = Load::start(&shards.ports, slots() - 1, false, || controller.round());
    let Some(load) = load else { return shards.check() };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(39);
    let (mut kills, mut moves, mut tries) = (0, 0, 0);
    for first in (0..slots()).step_by(SLOTS_PER_MOVE) {
        let range = (first as u16, (first + SLOTS_PER_MOVE).min(slots()) as u16 - 1);
        let to = 1 + moves % (SHARDS - 1);
        let mut kills_left = moves % 4;
        while controller.owner(range.0) != to {
            controller.round();
            let is_done = controller.owner(range.0) == to;
            if is_done || controller.is_moving() || !controller.migrate(range, to) {
                continue;
            }
            tries += 1;
            if kills_left > 0 {
                std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
                let (source, target) = (controller.masters[0], controller.masters[to]);
                let killed = [vec![], vec![source], vec![target], vec![source, target]][moves % 4].clone();
                killed.iter().for_each(|node| shards.kill(*node));
                killed.iter().for_each(|node| shards.restart(*node));
                (kills, kills_left) = (kills + killed.len(), 0);
            }
        }
        moves += 1;
        // Clients come to rest, and find the slots.
        (0..8).for_each(|_| controller.round());
    }
    let said = load.end();
    println!("{} slots in {moves} moves, {tries} tries, {kills} kills: {said}", slots());
    assert_eq!(controller.failovers, 0);
    // A client that tries once is told of a connection that ended, of a node that is away, of slots in doubt
    // (TRYAGAIN) and of a lease that a node lacks after its start (CLUSTERDOWN): nothing else.
    let known = ["ConnectionError", "TimeoutError", "TryAgainError", "ClusterDownError", "ClusterError"];
    let errors = said["errors"].as_object().unwrap();
    assert!(errors.keys().all(|kind| known.contains(&kind.as_str())), "{said}");
    assert!(said["increments"].as_u64().unwrap() > 100, "{said}");
    shards.check();
}
