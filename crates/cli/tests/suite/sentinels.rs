//! Masters that end: what three Sentinels see of one that is started again at once, how long one that stays
//! away is missed, and what one finds that comes back later.
//!
//! Times are printed, not judged. The long campaign has `TEMBO_KILLS=100 TEMBO_FAILOVERS=20` before
//! `cargo test --release -p tembo-cli --test suite -- sentinels --nocapture`.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tembo_wire::Value;

use crate::master::{Node, Writing, kills, wait_until_equal};
use crate::replica::{Client, Master, PATIENCE};
use crate::support::Workspace;

const DOWN_AFTER_MS: u64 = 3000;

/// Three Sentinels of Redis that watch one master.
struct Sentinels {
    processes: Vec<Child>,
    logs: Vec<PathBuf>,
    ports: Vec<u16>,
    _workspace: Workspace,
}

impl Sentinels {
    fn start(master: u16, replicas: usize) -> Option<Sentinels> {
        Sentinels::start_with(master, replicas, DOWN_AFTER_MS)
    }

    fn start_with(master: u16, replicas: usize, down_after_ms: u64) -> Option<Sentinels> {
        let workspace = Workspace::new();
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let (mut processes, mut logs) = (Vec::new(), Vec::new());
        for port in ports {
            let (file, log) =
                (workspace.path(&format!("{port}.conf")), workspace.path(&format!("{port}.log")));
            let lines = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds m {down_after_ms}\nsentinel failover-timeout m 20000\n"
            );
            std::fs::write(&file, lines).unwrap();
            let output = std::fs::File::create(&log).unwrap();
            let mut command = Command::new("redis-server");
            match command.arg(&file).arg("--sentinel").stdout(output).stderr(Stdio::null()).spawn() {
                Ok(process) => processes.push(process),
                Err(_) => {
                    eprintln!("skipped: redis-server cannot be run here");
                    return None;
                }
            }
            logs.push(log);
        }
        let sentinels = Sentinels { processes, logs, ports: ports.to_vec(), _workspace: workspace };
        sentinels.wait_for(&format!("slaves={replicas},sentinels=3"));
        Some(sentinels)
    }

    /// Waits until all of them have this in the line of the master.
    fn wait_for(&self, part: &str) {
        let begun = Instant::now();
        let has =
            |port: &u16| Client::connect(*port).is_some_and(|mut one| one.info("master0").contains(part));
        while !self.ports.iter().all(has) {
            assert!(begun.elapsed() < PATIENCE, "no {part}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How often something happened to the master, by their logs.
    fn count(&self, event: &str) -> usize {
        let logs = self.logs.iter().map(|log| std::fs::read_to_string(log).unwrap());
        logs.map(|log| log.matches(&format!("{event} master")).count()).sum()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(|process| drop((process.kill(), process.wait())));
        if std::thread::panicking() {
            self.logs.iter().for_each(|log| eprintln!("{}", std::fs::read_to_string(log).unwrap()));
        }
    }
}

/// The reply to a write of a server that may be away, or of another role.
fn write(port: u16) -> Option<Value> {
    let mut client = Client::connect(port)?;
    client.stream.write_all(b"SET written 1\r\n").ok()?;
    client.try_receive()
}

fn is_ok(reply: &Option<Value>) -> bool {
    reply.as_ref().is_some_and(|reply| !reply.is_error())
}

fn until_written(ports: &[u16]) -> Duration {
    let begun = Instant::now();
    while !ports.iter().any(|port| is_ok(&write(*port))) {
        assert!(begun.elapsed() < PATIENCE, "nobody takes writes");
        std::thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

/// The median and the greatest.
fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!("median {:.1?}, at most {:.1?}", times[times.len() / 2], times[times.len() - 1])
}

/// A supervised master is killed under load: it is back before a Sentinel misses it.
#[test]
fn sentinels_do_not_see_a_master_that_is_started_again() {
    let mut nodes: Vec<Node> = (0..2).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    nodes[1].follow(nodes[0].port);
    let Some(sentinels) = Sentinels::start(nodes[0].port, 1) else { return };
    let writing = Writing::start(nodes[0].port, 7);
    let (mut times, count) = (Vec::new(), kills(4));
    for kill in 0..count {
        std::thread::sleep(Duration::from_millis(400 + 37 * (kill % 10)));
        nodes[0].server.take().unwrap().kill();
        let begun = Instant::now();
        nodes[0].restart();
        until_written(&[nodes[0].port]);
        times.push(begun.elapsed());
    }
    let commands = writing.end();
    wait_until_equal(&mut nodes[0].client(), &mut nodes[1].client());
    let events = ["+sdown", "+odown", "+try-failover"].map(|event| sentinels.count(event));
    println!("{count} kills under {commands} commands: a write after {}; events {events:?}", shown(times));
    assert_eq!(events, [0, 0, 0], "with down-after {DOWN_AFTER_MS} ms");
    drop(sentinels);
    nodes.into_iter().for_each(Node::end);
}

/// A supervised master and its replica, of either kind, for a comparison.
enum Pair {
    Tembo([Node; 2]),
    Redis([Master; 2]),
}

impl Pair {
    fn tembo() -> Pair {
        let nodes = [Node::start(), Node::start()];
        nodes[0].client().line("SET before 1");
        nodes[1].follow(nodes[0].port);
        Pair::Tembo(nodes)
    }

    /// Without persistence, as in a cache: it comes back empty.
    fn redis(workspace: &Workspace) -> Option<Pair> {
        let start = |name| Master::start(Path::new("redis-server"), &workspace.path(name), &[]);
        let servers = [start("first")?, start("second")?];
        let port = servers[0].port;
        servers[1].client().line(&format!("REPLICAOF 127.0.0.1 {port}"));
        Some(Pair::Redis(servers))
    }

    fn ports(&self) -> [u16; 2] {
        match self {
            Pair::Tembo([first, second]) => [first.port, second.port],
            Pair::Redis([first, second]) => [first.port, second.port],
        }
    }

    fn kill_and_start(&mut self) {
        match self {
            Pair::Tembo([first, _]) => {
                first.server.take().unwrap().kill();
                first.restart();
            }
            Pair::Redis([first, _]) => first.restart(),
        }
    }
}

/// The port that takes writes.
fn writable(ports: &[u16]) -> u16 {
    until_written(ports);
    ports.iter().copied().find(|port| is_ok(&write(*port))).unwrap_or(ports[0])
}

/// Kills the master, and starts it again at once, until Sentinels replace it. Prints what they saw, and how
/// many of the keys that WAIT had counted are there; returns whether all are. `None` if there is nothing to
/// run.
fn count_events(mut pair: Pair, down_after_ms: u64) -> Option<bool> {
    let (ports, is_redis) = (pair.ports(), matches!(pair, Pair::Redis(_)));
    let sentinels = Sentinels::start_with(ports[0], 1, down_after_ms)?;
    let (mut times, mut counted, mut kept) = (Vec::new(), 0, 0);
    for kill in 0..kills(2) {
        std::thread::sleep(Duration::from_millis(700 + 37 * (kill % 10)));
        if sentinels.count("+switch-master") > 0 {
            break;
        }
        let mut client = Client::connect(ports[0]).unwrap();
        client.line(&format!("SET kept:{kill} 1"));
        let is_counted = client.line("WAIT 1 20000") == Value::Integer(1);
        let begun = Instant::now();
        pair.kill_and_start();
        until_written(&ports);
        times.push(begun.elapsed());
        let exists = Client::connect(writable(&ports))?.line(&format!("EXISTS kept:{kill}"));
        assert!(is_redis || is_counted, "the replica has no stream");
        counted += u64::from(is_counted);
        kept += u64::from(is_counted && exists == Value::Integer(1));
    }
    let events = ["+sdown", "+odown", "+switch-master"].map(|event| sentinels.count(event));
    let (name, count) = (if is_redis { "Redis, which comes back empty" } else { "Tembo" }, times.len());
    println!(
        "down-after {down_after_ms} ms, {name}: {count} kills, a write after {}; +sdown, +odown, +switch-master \
         {events:?}; {kept} of {counted} keys kept",
        shown(times)
    );
    drop(sentinels);
    if let Pair::Tembo(nodes) = pair {
        nodes.into_iter().for_each(Node::end);
    }
    Some(kept == counted)
}

/// Sentinels that are quicker to miss a master, and one that comes back without its data. Events are printed;
/// those of Redis are its own.
#[test]
fn sentinels_that_wait_for_a_second_or_two_beside_redis() {
    for down_after_ms in [1000, 2000] {
        let Some(has_all) = count_events(Pair::tembo(), down_after_ms) else { return };
        assert!(has_all, "a write that WAIT has counted is lost");
        let directory = Workspace::new();
        if let Some(redis) = Pair::redis(&directory) {
            count_events(redis, down_after_ms);
        }
    }
}

/// A master stays away. When it comes back it takes no write, and has what the new master has.
#[test]
fn sentinels_replace_a_master_that_stays_away() {
    let runs = std::env::var("TEMBO_FAILOVERS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let (mut times, mut full) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let mut nodes: Vec<Node> = (0..3).map(|_| Node::start()).collect();
        nodes[0].client().line("SET before 1");
        (1..3).for_each(|replica| nodes[replica].follow(nodes[0].port));
        let Some(sentinels) = Sentinels::start(nodes[0].port, 2) else { return };
        let mut client = nodes[0].client();
        for number in 0..100 {
            client.line(&format!("RPUSH acknowledged {number}"));
        }
        assert_eq!(client.line("WAIT 2 20000"), Value::Integer(2));
        std::thread::sleep(Duration::from_millis(173 * (run % 6)));
        nodes[0].server.take().unwrap().kill();
        times.push(until_written(&[nodes[1].port, nodes[2].port]));
        sentinels.wait_for("slaves=2");
        let master = if is_ok(&write(nodes[1].port)) { 1 } else { 2 };
        assert_eq!(nodes[master].client().line("LLEN acknowledged"), Value::Integer(100));
        nodes[0].restart();
        // Not after Sentinel has told it: it has asked before it answers.
        let refused = write(nodes[0].port).unwrap();
        assert!(refused.is_error(), "the old master took a write: {refused:?}");
        nodes[master].client().line("SET last 1");
        wait_until_equal(&mut nodes[master].client(), &mut nodes[0].client());
        full.push(nodes[master].full());
        drop(sentinels);
        nodes.into_iter().for_each(Node::end);
    }
    println!("{runs} failovers: a write after {}; whole copies for old masters {full:?}", shown(times));
}

#[test]
fn a_master_that_was_down_follows_the_replica_that_took_its_place() {
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    (1..3).for_each(|replica| nodes[replica].follow(nodes[0].port));
    nodes[0].server.take().unwrap().kill();
    nodes[1].client().line("REPLICAOF NO ONE");
    nodes[2].follow(nodes[1].port);
    nodes[1].client().line("INCR promoted");
    nodes[0].restart();
    let refused = write(nodes[0].port).unwrap();
    assert!(refused.is_error(), "it took a write: {refused:?}");
    wait_until_equal(&mut nodes[1].client(), &mut nodes[0].client());
    assert_eq!(nodes[1].full(), 0, "it took a whole copy");
    // Its place is durable, and a replica asks nobody.
    nodes[0].kill();
    nodes[0].wait_for_role("slave");
    // The new master ends, too, and the one that it hears of is away: it goes by the other's word.
    nodes[1].client().line("WAIT 2 20000");
    nodes[1].server.take().unwrap().kill();
    nodes[0].client().line("REPLICAOF NO ONE");
    nodes[2].follow(nodes[0].port);
    nodes[0].client().line("INCR promoted");
    nodes[1].restart();
    assert!(write(nodes[1].port).unwrap().is_error());
    wait_until_equal(&mut nodes[0].client(), &mut nodes[1].client());
    assert_eq!(nodes[1].client().line("GET promoted").as_bytes(), Some(&b"2"[..]));
    nodes.into_iter().for_each(Node::end);
}

/// A master that is killed again before its replica had the stream again asks the same one.
#[test]
fn a_master_that_was_killed_twice_follows_the_replica_that_took_its_place() {
    let mut nodes: Vec<Node> = (0..2).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    nodes[1].follow(nodes[0].port);
    let process = nodes[1].server.as_ref().unwrap().child.id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    signal("-STOP");
    // While it asks, and after it has asked in vain and taken a write, which is lost.
    for is_patient in [false, true] {
        nodes[0].server.take().unwrap().kill();
        nodes[0].restart();
        if is_patient {
            assert!(is_ok(&write(nodes[0].port)));
        }
    }
    nodes[0].server.take().unwrap().kill();
    signal("-CONT");
    nodes[1].client().line("REPLICAOF NO ONE");
    nodes[1].client().line("INCR promoted");
    nodes[0].restart();
    let refused = write(nodes[0].port).unwrap();
    assert!(refused.is_error(), "it took a write: {refused:?}");
    wait_until_equal(&mut nodes[1].client(), &mut nodes[0].client());
    assert_eq!(nodes[0].client().line("GET written"), Value::Null);
    nodes.into_iter().for_each(Node::end);
}

/// A copy that was made for other reasons is nobody's heir: it left while the master ran.
#[test]
fn a_replica_that_left_is_not_followed() {
    let mut nodes: Vec<Node> = (0..2).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    nodes[1].follow(nodes[0].port);
    nodes[1].client().line("REPLICAOF NO ONE");
    let begun = Instant::now();
    while nodes[0].client().info("connected_slaves") != "0" {
        assert!(begun.elapsed() < PATIENCE);
    }
    nodes[0].kill();
    assert!(is_ok(&write(nodes[0].port)));
    assert_eq!(nodes[0].client().info("role"), "master");
    nodes.into_iter().for_each(Node::end);
}

/// Replicas that are away, or stand still, keep a master from its writes for a second at most.
#[test]
fn replicas_that_do_not_answer_are_not_waited_for_long() {
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    (1..3).for_each(|replica| nodes[replica].follow(nodes[0].port));
    nodes[1].server.take().unwrap().kill();
    let stopped = nodes[2].server.as_ref().unwrap().child.id().to_string();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &stopped]).status().unwrap().success());
    signal("-STOP");
    nodes[0].server.take().unwrap().kill();
    nodes[0].restart();
    let begun = Instant::now();
    assert!(is_ok(&write(nodes[0].port)));
    println!("a write after {:?}", begun.elapsed());
    signal("-CONT");
    nodes[1].restart();
    nodes[2].client().wait_for("master_link_status", "up");
    nodes.into_iter().for_each(Node::end);
}

/// An old master told its replica signs of life that did not arrive, and no write: it goes back, and takes no
/// whole copy. With a write that the new master has not it takes one.
#[test]
fn a_tail_without_writes_is_rewound() {
    for writes in [false, true] {
        let mut nodes: Vec<Node> = (0..2).map(|_| Node::start()).collect();
        nodes[0].client().line("SET before 1");
        nodes[1].follow(nodes[0].port);
        let mut old = nodes[0].client();
        old.line("SET last 1");
        assert_eq!(old.line("WAIT 1 20000"), Value::Integer(1));
        let stopped = nodes[1].server.as_ref().unwrap().child.id().to_string();
        let signal =
            |name: &str| assert!(Command::new("kill").args([name, &stopped]).status().unwrap().success());
        signal("-STOP");
        let offset = old.info("master_repl_offset");
        old.line("CONFIG SET repl-ping-replica-period 1");
        old.line("PUBLISH c message");
        if writes {
            old.line("SET lost 1");
        }
        old.line("WAIT 1 1500");
        assert_ne!(old.info("master_repl_offset"), offset);
        // The bytes on their way to the replica go with it; the master does not see it leave.
        nodes[0].server.take().unwrap().kill();
        nodes[1].server.take().unwrap().kill();
        nodes[1].restart();
        nodes[1].client().line("REPLICAOF NO ONE");
        nodes[1].client().line("INCR promoted");
        nodes[0].restart();
        wait_until_equal(&mut nodes[1].client(), &mut nodes[0].client());
        assert_eq!(nodes[1].full(), u64::from(writes));
        let mut old = nodes[0].client();
        assert_eq!(old.line("GET promoted").as_bytes(), Some(&b"1"[..]));
        assert_eq!(old.line("GET lost"), Value::Null);
        nodes.into_iter().for_each(Node::end);
    }
}
