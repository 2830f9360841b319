//! Slots move between real processes under load, and one of them, or both, are killed with SIGKILL: each
//! slot has one owner, and no key is lost or there twice.
//!
//! `TEMBO_KILLS=200 cargo test --release -p tembo-cli --test suite -- cluster_moves --nocapture` is the long
//! campaign.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

use crate::serve::Server;
use crate::support::Workspace;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Keys that nobody changes, and the slots that move.
const KEYS: usize = 8000;
const SLOTS: &str = "0-8191";
const WRITERS: usize = 3;

/// A connection that may end.
pub(crate) struct Talk {
    stream: TcpStream,
    parser: ReplyParser,
    input: Vec<u8>,
}

impl Talk {
    pub(crate) fn connect(port: u16) -> Option<Talk> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Talk { stream, parser: ReplyParser::new(ReplyLimits::default()), input: Vec::new() })
    }

    /// How long a reply is waited for.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a timeout");
    }

    pub(crate) fn receive(&mut self) -> Option<Value> {
        loop {
            let decoded = self.parser.parse(&self.input).ok()?;
            self.input.drain(..decoded.consumed);
            if decoded.value.is_some() {
                return decoded.value;
            }
            let mut chunk = [0; 1 << 16];
            let count = self.stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Option<Value> {
        self.send(&[words])?;
        self.receive()
    }

    /// Sends commands in one piece, each of which gets a reply.
    pub(crate) fn send(&mut self, commands: &[&[&str]]) -> Option<()> {
        let mut request = Vec::new();
        commands.iter().for_each(|words| write_request(&mut request, *words));
        self.stream.write_all(&request).ok()
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Error(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// A client of both nodes.
struct Router {
    ports: [u16; 2],
    talks: [Option<Talk>; 2],
    at: usize,
    /// The longest time that a node said TRYAGAIN without a kill.
    longest: Duration,
}

impl Router {
    fn new(ports: [u16; 2]) -> Self {
        Router { ports, talks: [None, None], at: 0, longest: Duration::ZERO }
    }

    /// The reply of the owner. None: the connection ended, and the command may have run.
    fn once(&mut self, words: &[&str]) -> Option<Value> {
        let (begun, mut hopped) = (Instant::now(), 0);
        loop {
            assert!(begun.elapsed() < PATIENCE, "{words:?} was not served");
            if self.talks[self.at].is_none() {
                self.talks[self.at] = Talk::connect(self.ports[self.at]);
                if self.talks[self.at].is_none() {
                    // It is being restarted, or the other one knows.
                    std::thread::sleep(Duration::from_millis(2));
                    hopped += 1;
                    self.at = hopped % 2;
                    continue;
                }
            }
            let reply = self.talks[self.at].as_mut().and_then(|talk| talk.ask(words));
            let Some(reply) = reply else {
                self.talks[self.at] = None;
                return None;
            };
            let said = if reply.is_error() { text(&reply) } else { String::new() };
            if said.starts_with("MOVED ") {
                let port: u16 = said.rsplit(':').next().unwrap().parse().unwrap();
                self.at = self.ports.iter().position(|other| *other == port).unwrap();
            } else if said.starts_with("TRYAGAIN ") {
                std::thread::sleep(Duration::from_millis(1));
                self.longest = self.longest.max(begun.elapsed());
            } else {
                assert!(!reply.is_error(), "{words:?}: {said}");
                return Some(reply);
            }
        }
    }

    /// As [`once`](Self::once), for commands that may run twice.
    fn ask(&mut self, words: &[&str]) -> Value {
        loop {
            if let Some(reply) = self.once(words) {
                return reply;
            }
        }
    }
}

/// The keys of one writer, and what it knows of them.
struct Written {
    /// The least and the greatest value of the counter.
    counter: (i64, i64),
    /// The elements of the list, and whether each was acknowledged.
    list: Vec<(String, bool)>,
}

fn write(number: usize, ports: [u16; 2], stop: Arc<AtomicBool>) -> JoinHandle<(Written, Router)> {
    std::thread::spawn(move || {
        let mut router = Router::new(ports);
        let mut written = Written { counter: (0, 0), list: Vec::new() };
        // All have slots that move: 3300, and others below 8192.
        let tag = ["b", "c", "bar"][number % 3];
        let (counter, list) = (format!("{{{tag}}}count{number}"), format!("{{{tag}}}list{number}"));
        while !stop.load(Ordering::Relaxed) {
            match router.once(&["INCR", &counter]) {
                Some(Value::Integer(now)) => {
                    let (least, most) = written.counter;
                    assert!((least + 1..=most + 1).contains(&now), "{now}, and it was {least} to {most}");
                    written.counter = (now, now);
                }
                Some(other) => panic!("{other:?}"),
                None => written.counter.1 += 1,
            }
            let element = written.list.len().to_string();
            let is_acknowledged = router.once(&["RPUSH", &list, &element]).is_some();
            written.list.push((element, is_acknowledged));
            let key = format!("{{{tag}}}changing{}", written.list.len() % 20);
            router.once(&["SET", &key, &"x".repeat(written.list.len() % 3000), "PX", "10000000"]);
        }
        (written, router)
    })
}

fn expect_written(number: usize, written: &Written, router: &mut Router) {
    let tag = ["b", "c", "bar"][number % 3];
    let (counter, list) = (format!("{{{tag}}}count{number}"), format!("{{{tag}}}list{number}"));
    let found: i64 = text(&router.ask(&["GET", &counter])).parse().unwrap_or(0);
    assert!((written.counter.0..=written.counter.1).contains(&found), "{found}: {:?}", written.counter);
    let Value::Array(elements) = router.ask(&["LRANGE", &list, "0", "-1"]) else { panic!("a list") };
    let mut sent = written.list.iter();
    for element in elements.iter().map(text) {
        let is_it = sent.by_ref().find(|(sent, is_acknowledged)| *sent == element || *is_acknowledged);
        assert_eq!(is_it.map(|(sent, _)| sent), Some(&element), "an element is lost, or there twice");
    }
    assert!(sent.all(|(_, is_acknowledged)| !is_acknowledged), "the last elements are lost");
}

struct Nodes {
    workspace: Workspace,
    ports: [u16; 2],
    servers: [Option<Server>; 2],
}

fn id(node: usize) -> String {
    format!("{node:040}")
}

impl Nodes {
    fn start() -> Self {
        let workspace = Workspace::new();
        std::fs::write(workspace.path("node.conf"), "cluster-enabled yes\n").unwrap();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|listener| listener.local_addr().unwrap().port());
        let mut nodes = Nodes { workspace, ports, servers: [None, None] };
        (0..2).for_each(|node| nodes.restart(node));
        nodes
    }

    fn restart(&mut self, node: usize) {
        let port = self.ports[node];
        let line = format!("serve --listen 127.0.0.1:{port} --pool node{node}.pool --config node.conf");
        self.servers[node] = Some(Server::spawn(self.workspace.command(&line).stderr(Stdio::null())));
    }

    fn kill(&mut self, node: usize) {
        self.servers[node].take().expect("it runs").kill();
    }

    fn ask(&self, node: usize, words: &[&str]) -> String {
        let mut talk = Talk::connect(self.ports[node]).expect("it runs");
        match talk.ask(words).expect("it answers") {
            Value::Integer(number) => number.to_string(),
            other => text(&other),
        }
    }

    /// The topology in which a node has the slots that move. The second one has the rest.
    fn push(&self, owner: usize, version: usize) {
        let line = |node: usize| {
            let moving = if node == owner { SLOTS } else { "" };
            let rest = if node == 1 { "8192-16383" } else { "" };
            format!("{} 127.0.0.1 {} master - {moving} {rest}\n", id(node), self.ports[node])
        };
        let topology = line(0) + &line(1);
        for node in 0..2 {
            let pushed = self.ask(node, &["CLUSTERX", "SETNODES", &topology, &version.to_string()]);
            assert_eq!(pushed, "OK");
        }
    }

    fn field(&self, node: usize, name: &str) -> String {
        let info = self.ask(node, &["CLUSTER", "INFO"]);
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// The owner of a slot that moves: exactly one.
    fn owner(&self) -> usize {
        let begun = Instant::now();
        loop {
            let said = [0, 1].map(|node| self.ask(node, &["EXISTS", "b"]));
            assert!(begun.elapsed() < PATIENCE, "nobody serves, or both do: {said:?}");
            let serves = said.each_ref().map(|said| !said.contains(' '));
            assert_ne!(serves, [true, true], "both serve");
            match serves {
                [true, false] if said[1].starts_with("MOVED") => return 0,
                [false, true] if said[0].starts_with("MOVED") => return 1,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits until all keys that move are at one node.
    fn expect_keys_once(&self, owner: usize) {
        let begun = Instant::now();
        let count =
            |node: usize, slot: u16| self.ask(node, &["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
        // Some of the slots of the keys that nobody changes.
        let mut left: Vec<u16> = (0..8192).step_by(401).collect();
        while let Some(slot) = left.last() {
            assert!(begun.elapsed() < PATIENCE, "slot {slot} has keys at both nodes");
            match count(1 - owner, *slot).as_str() {
                "0" => drop(left.pop()),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn kills() -> usize {
    std::env::var("TEMBO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12)
}

/// Keys that are the same for ever, in all slots that move.
fn fill(ports: [u16; 2]) {
    let mut router = Router::new(ports);
    for number in 0..KEYS {
        router.ask(&["SET", &format!("fixed{number}"), &format!("value {number}")]);
    }
}

fn expect_filled(router: &mut Router) {
    for number in 0..KEYS {
        let value = text(&router.ask(&["GET", &format!("fixed{number}")]));
        assert_eq!(value, format!("value {number}"));
    }
}

#[test]
fn kill_9_of_either_side_leaves_one_owner_and_every_key_once() {
    let mut nodes = Nodes::start();
    let (mut owner, mut version) = (0, 1);
    nodes.push(owner, version);
    fill(nodes.ports);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS).map(|number| write(number, nodes.ports, stop.clone())).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(39);
    let (mut successes, mut longest_move) = (0, Duration::from_millis(300));
    for round in 0..kills() {
        let (source, target) = (owner, 1 - owner);
        let begun = Instant::now();
        assert_eq!(nodes.ask(source, &["CLUSTERX", "MIGRATE", SLOTS, &id(target)]), "OK");
        if round % 4 == 3 {
            // One that nobody disturbs, so that the times of kills fall into its length.
            while nodes.field(source, "migrating_state") == "start" {
                std::thread::sleep(Duration::from_millis(5));
            }
            longest_move = begun.elapsed();
        } else {
            std::thread::sleep(longest_move.mul_f64(random.random_range(0.0..1.1)));
            let killed = [vec![source], vec![target], vec![source, target]][round % 4].clone();
            killed.iter().for_each(|node| nodes.kill(*node));
            killed.iter().for_each(|node| nodes.restart(*node));
        }
        let state = || nodes.field(source, "migrating_state");
        while state() == "start" {
            assert!(begun.elapsed() < PATIENCE, "round {round} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        owner = nodes.owner();
        assert_eq!(state() == "success", owner == target, "round {round}");
        successes += usize::from(owner == target);
        if random.random_range(0..2) == 0 {
            version += 1;
            nodes.push(owner, version);
            assert_eq!(nodes.owner(), owner);
        }
        nodes.expect_keys_once(owner);
    }
    stop.store(true, Ordering::Relaxed);
    let mut router = Router::new(nodes.ports);
    let mut longest = Duration::ZERO;
    for (number, writer) in writers.into_iter().enumerate() {
        let (written, its) = writer.join().unwrap();
        expect_written(number, &written, &mut router);
        println!("writer {number}: {} elements, {:?}", written.list.len(), written.counter);
        longest = longest.max(its.longest);
    }
    expect_filled(&mut router);
    println!(
        "{} kills, {successes} moves, an undisturbed one took {longest_move:?}, longest wait {longest:?}",
        kills()
    );
    (0..2).for_each(|node| nodes.kill(node));
    (0..2).for_each(|node| drop(nodes.workspace.run(&format!("check node{node}.pool")).ok()));
}

#[test]
fn the_cluster_of_redis_py_follows_slots_that_move() {
    let Some(python) = crate::redis_py::python() else { return };
    let mut nodes = Nodes::start();
    nodes.push(0, 1);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis_py/moving.py");
    let run = std::process::Command::new(python)
        .arg(script)
        .args(nodes.ports.map(|port| port.to_string()))
        .args([id(0), id(1), SLOTS.to_owned()])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    println!("{out}");
    (0..2).for_each(|node| nodes.kill(node));
    (0..2).for_each(|node| drop(nodes.workspace.run(&format!("check node{node}.pool")).ok()));
}
