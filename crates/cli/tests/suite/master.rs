//! The server as a master: of a real Redis, of Valkey, and of Tembo, in trees, under writes, with kill -9 of
//! each of them in the middle.

use crate::replica::{Client, Master, PATIENCE, Random, command, valkey};
use crate::serve::Server;
use crate::support::Workspace;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tembo_wire::{Value, write_request};

/// A server of Tembo that comes back at its port.
pub(crate) struct Node {
    pub(crate) workspace: Workspace,
    pub(crate) server: Option<Server>,
    pub(crate) port: u16,
    /// The copies that it has sent in the lives before.
    full: u64,
}

impl Node {
    pub(crate) fn start() -> Node {
        let workspace = Workspace::new();
        let server = Server::start(&workspace, "--pool a.pool --log-level notice");
        Node { port: server.port, server: Some(server), workspace, full: 0 }
    }

    pub(crate) fn client(&self) -> Client {
        let begun = Instant::now();
        loop {
            if let Some(client) = Client::connect(self.port) {
                return client;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }

    /// The copies that it has sent.
    pub(crate) fn full(&self) -> u64 {
        self.full + self.client().info("sync_full").parse::<u64>().unwrap()
    }

    /// Waits for a role, with a connection of its own each time: Sentinel closes those that there are.
    pub(crate) fn wait_for_role(&self, role: &str) {
        let begun = Instant::now();
        loop {
            let mut client = self.client();
            let sent = std::io::Write::write_all(&mut client.stream, b"ROLE\r\n");
            let reply = sent.ok().and_then(|()| client.try_receive());
            if let Some(Value::Array(parts)) = &reply
                && parts[0].as_bytes() == Some(role.as_bytes())
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "it is no {role}: {reply:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.full = self.full();
        self.server.take().unwrap().kill();
        self.restart();
    }

    pub(crate) fn restart(&mut self) {
        let line = format!("serve --listen 127.0.0.1:{} --pool a.pool --log-level notice", self.port);
        let mut command = self.workspace.command(&line);
        self.server = Some(Server::spawn(command.stderr(Stdio::piped())));
    }

    pub(crate) fn follow(&self, port: u16) {
        self.client().line(&format!("REPLICAOF 127.0.0.1 {port}"));
        self.client().wait_for("master_link_status", "up");
    }

    /// The digest of its data, which a real Redis computes.
    pub(crate) fn digest(&self, redis: &Master) -> Value {
        self.client().patient().line("SAVE");
        redis.digest_of(&self.workspace.path("dump.rdb"))
    }

    pub(crate) fn end(mut self) {
        self.server.take().unwrap().kill();
        self.workspace.run("check a.pool").ok();
    }
}

/// Writes to a server that may be killed at any time, and comes back.
pub(crate) struct Writing {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writing {
    pub(crate) fn start(port: u16, seed: u64) -> Writing {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut random = Random(seed);
            let mut client = None;
            while !stopped.load(Ordering::Relaxed) {
                client = client.or_else(|| Client::connect(port));
                let Some(mut connected) = client.take() else { continue };
                let count = write_some(&mut connected, &mut random);
                counted.fetch_add(count.unwrap_or(0), Ordering::Relaxed);
                client = count.map(|_| connected);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        Writing { stop, count, thread }
    }

    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.count.load(Ordering::Relaxed)
    }
}

/// Some commands; how many, or none if the server went away.
fn write_some(client: &mut Client, random: &mut Random) -> Option<u64> {
    let mut lines = Vec::new();
    for _ in 0..20 {
        match random.below(12) {
            0 => {
                lines.push("MULTI".to_owned());
                lines.extend((0..random.below(5)).map(|_| command(random)).collect::<Vec<_>>());
                lines.push("EXEC".to_owned());
            }
            1 => lines.push(format!("SELECT {}", random.below(4) * 5)),
            _ => lines.push(command(random)),
        }
    }
    match random.below(400) {
        0 | 1 => lines.push("SWAPDB 0 5".to_owned()),
        2 => lines.push("FLUSHDB".to_owned()),
        3 => lines.push("TEMBO.UNLINK l:1*".to_owned()),
        _ => {}
    }
    let mut request = Vec::new();
    lines.iter().for_each(|line| write_request(&mut request, line.split(' ').collect::<Vec<_>>()));
    std::io::Write::write_all(&mut client.stream, &request).ok()?;
    lines.iter().try_for_each(|_| client.try_receive().map(drop))?;
    Some(lines.len() as u64)
}

pub(crate) fn fill(client: &mut Client) {
    let mut request = Vec::new();
    for n in 0..20_000 {
        write_request(&mut request, ["SET", &format!("many:{n}"), &n.to_string()]);
    }
    for n in 0..3000 {
        write_request(&mut request, ["ZADD", "large:zset", &n.to_string(), &format!("member:{n}")]);
        write_request(&mut request, ["RPUSH", "large:list", &n.to_string()]);
    }
    std::io::Write::write_all(&mut client.stream, &request).unwrap();
    (0..26_000).for_each(|_| drop(client.receive()));
}

/// Waits until a replica has all that its master has.
#[track_caller]
pub(crate) fn wait_until_equal(master: &mut Client, replica: &mut Client) {
    replica.wait_for("master_link_status", "up");
    let begun = Instant::now();
    while replica.info("slave_repl_offset") != master.info("master_repl_offset") {
        let (theirs, ours) = (master.info("master_repl_offset"), replica.info("slave_repl_offset"));
        assert!(begun.elapsed() < PATIENCE, "the replica is at {ours}, the master at {theirs}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(replica.info("master_replid"), master.info("master_replid"));
}

pub(crate) fn kills(default: u64) -> u64 {
    std::env::var("TEMBO_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// A replica of another make follows, over kills of the master, and has equal data.
fn lead(program: &Path, kills: u64) {
    let mut node = Node::start();
    let directory = node.workspace.path("replica");
    let Some(replica) = Master::start(program, &directory, &[]) else { return };
    let mut theirs = replica.client();
    theirs.line("SET old v");
    fill(&mut node.client());
    let writing = Writing::start(node.port, 5);
    theirs.line(&format!("REPLICAOF 127.0.0.1 {}", node.port));
    theirs.wait_for("master_link_status", "up");
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(150 + 50 * (kill % 8)));
        node.kill();
        theirs.wait_for("master_link_status", "up");
    }
    let count = writing.end();
    // Keys of a short life end, by the word of the master.
    std::thread::sleep(Duration::from_millis(1500));
    let mut ours = node.client();
    ours.line("SET last v");
    assert_eq!(ours.line("WAIT 1 10000"), Value::Integer(1));
    wait_until_equal(&mut ours, &mut theirs);
    assert_eq!(node.digest(&replica), theirs.line("DEBUG DIGEST"), "the data differ");
    assert_eq!(node.full(), 1, "a restart took a whole copy");
    eprintln!("{count} commands, {kills} kills, offset {}", ours.info("master_repl_offset"));
    node.end();
}

#[test]
fn redis_as_a_replica_is_equal_after_kills_of_the_master() {
    lead(Path::new("redis-server"), kills(6));
}

#[test]
fn valkey_as_a_replica_is_equal_after_kills_of_the_master() {
    match valkey() {
        Some(program) => lead(&program, kills(3)),
        None => eprintln!("skipped: there is no valkey-server"),
    }
}

/// A tree of three levels, of which each is killed.
#[test]
fn a_tree_is_equal_after_kills_of_each_of_its_servers() {
    let directory = Workspace::new();
    let Some(redis) = Master::start(Path::new("redis-server"), &directory.path("redis"), &[]) else { return };
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start()).collect();
    fill(&mut nodes[0].client());
    let writing = Writing::start(nodes[0].port, 11);
    nodes[1].follow(nodes[0].port);
    nodes[2].follow(nodes[1].port);
    let mut random = Random(3);
    for _ in 0..kills(8) {
        std::thread::sleep(Duration::from_millis(100 + random.below(300)));
        let killed = random.below(3) as usize;
        nodes[killed].kill();
        nodes[1..].iter().for_each(|node| node.client().wait_for("master_link_status", "up"));
    }
    let count = writing.end();
    std::thread::sleep(Duration::from_millis(1500));
    nodes[0].client().line("SET last v");
    for replica in 1..3 {
        wait_until_equal(&mut nodes[0].client(), &mut nodes[replica].client());
    }
    let full: Vec<u64> = nodes.iter().map(Node::full).collect();
    assert_eq!(full, [1, 1, 0], "a restart took a whole copy");
    let digest = nodes[0].digest(&redis);
    assert_eq!(nodes[1].digest(&redis), digest);
    assert_eq!(nodes[2].digest(&redis), digest);
    // The middle is promoted: its replica goes on, under the new id; the old master follows it, too.
    nodes[1].client().line("REPLICAOF NO ONE");
    nodes[1].client().line("INCR promoted");
    nodes[0].follow(nodes[1].port);
    for replica in [0, 2] {
        wait_until_equal(&mut nodes[1].client(), &mut nodes[replica].client());
        assert_eq!(nodes[replica].client().line("GET promoted").as_bytes(), Some(&b"1"[..]));
    }
    let full: Vec<u64> = nodes.iter().map(Node::full).collect();
    assert_eq!(full, [1, 1, 0], "a promotion took a whole copy");
    eprintln!("{count} commands");
    nodes.into_iter().for_each(Node::end);
}

/// A Sentinel of Redis, in a process. A test that fails shows its log.
struct Sentinel {
    process: std::process::Child,
    port: u16,
    log: std::path::PathBuf,
}

/// The time without an answer after which Sentinel takes a server for down. Sentinel asks each second at
/// most, and counts from the moment at which it makes its connection: with one second it takes the new master
/// for down before it has asked it once, and promotes the old one again.
const DOWN_AFTER: Duration = Duration::from_secs(2);

impl Sentinel {
    fn start(workspace: &Workspace, master: u16) -> Option<Sentinel> {
        // Not of the ports that the system gives to clients.
        let port = 30_000 + (std::process::id() as u16 % 2000);
        let file = workspace.path("sentinel.conf");
        let lines = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds m {}\nsentinel failover-timeout m 10000\n",
            DOWN_AFTER.as_millis()
        );
        std::fs::write(&file, lines).unwrap();
        let mut command = std::process::Command::new("redis-server");
        let log = workspace.path("sentinel.log");
        let output = std::fs::File::create(&log).unwrap();
        command.arg(&file).arg("--sentinel").stdout(output).stderr(Stdio::null());
        match command.spawn() {
            Ok(process) => Some(Sentinel { process, port, log }),
            Err(_) => {
                eprintln!("skipped: redis-server cannot be run here");
                None
            }
        }
    }

    fn wait_for(&self, field: &str, value: &str) {
        let begun = Instant::now();
        loop {
            if let Some(mut client) = Client::connect(self.port)
                && client.info("master0").split(',').any(|part| part == format!("{field}={value}"))
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no {field}={value}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// A master dies; a stock Sentinel promotes its replica, and makes a replica of the old master, which goes on
/// where it was.
#[test]
fn a_sentinel_of_redis_fails_over() {
    let mut nodes: Vec<Node> = (0..2).map(|_| Node::start()).collect();
    nodes[0].client().line("SET before 1");
    nodes[1].follow(nodes[0].port);
    let Some(sentinel) = Sentinel::start(&nodes[0].workspace, nodes[0].port) else { return };
    sentinel.wait_for("slaves", "1");
    sentinel.wait_for("status", "ok");
    nodes[0].client().line("SET last 1");
    assert_eq!(nodes[0].client().line("WAIT 1 10000"), Value::Integer(1));
    nodes[0].server.take().unwrap().kill();
    let begun = Instant::now();
    nodes[1].wait_for_role("master");
    let taken = begun.elapsed().as_millis();
    eprintln!("the replica is master after {taken} ms, with down-after {}", DOWN_AFTER.as_millis());
    nodes[1].client().line("INCR promoted");
    nodes[0].restart();
    nodes[0].wait_for_role("slave");
    // The connections that Sentinel closes are closed.
    std::thread::sleep(Duration::from_millis(500));
    let (mut master, mut replica) = (nodes[1].client(), nodes[0].client());
    wait_until_equal(&mut master, &mut replica);
    assert_eq!(replica.line("GET promoted").as_bytes(), Some(&b"1"[..]));
    assert_eq!(replica.line("GET last").as_bytes(), Some(&b"1"[..]));
    assert_eq!(nodes[1].full(), 0, "the old master took a whole copy");
    drop(sentinel);
    nodes.into_iter().for_each(Node::end);
}
