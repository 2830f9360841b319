//! Clients that ask for too much: the server's own memory stays within bounds, and others are served. Memory
//! is what the process has beside its pool (`RssAnon`), looked at every few milliseconds. Times are not
//! asserted.

use crate::serve::Server;
use crate::support::Workspace;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tembo_wire::client::{ReplyParser, Value, write_request};

const MIB: u64 = 1 << 20;

struct Client {
    stream: TcpStream,
    parser: ReplyParser,
    unread: Vec<u8>,
}

impl Client {
    fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Client { stream, parser: ReplyParser::default(), unread: Vec::new() }
    }

    fn reply(&mut self) -> Value {
        loop {
            let decoded = self.parser.parse(&self.unread).expect("a well-formed reply");
            self.unread.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return value;
            }
            let mut buffer = [0; 64 << 10];
            let got = match self.stream.read(&mut buffer) {
                // A process that was stopped for a while finds its waiting interrupted.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                got => got.expect("a reply"),
            };
            assert_ne!(got, 0, "the server hung up");
            self.unread.extend_from_slice(&buffer[..got]);
        }
    }

    fn send(&mut self, words: &[impl AsRef<[u8]>]) {
        let mut request = Vec::new();
        write_request(&mut request, words);
        self.stream.write_all(&request).unwrap();
    }

    fn call(&mut self, line: &str) -> Value {
        self.send(&line.split(' ').collect::<Vec<_>>());
        self.reply()
    }

    fn count(&mut self, line: &str) -> i64 {
        match self.call(line) {
            Value::Integer(count) => count,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// A field of INFO.
    fn info(&mut self, field: &str) -> u64 {
        let info = self.call("INFO everything");
        let text = String::from_utf8_lossy(info.as_bytes().expect("a text")).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {field} in {text}")).trim().parse().unwrap()
    }
}

/// The memory of the server beside its pool.
fn anonymous_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line of its memory");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

struct SetAtEnd<'d>(&'d AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while another client is served; returns by how much the server's memory grew meanwhile, at
/// most, and how often the other one was served.
fn watched<T>(server: &Server, body: impl FnOnce() -> T) -> (T, u64, u64) {
    let before = anonymous_bytes(server);
    let longest = AtomicU64::new(0);
    let (done, most, served) = (AtomicBool::new(false), AtomicU64::new(before), AtomicU64::new(0));
    let outcome = std::thread::scope(|scope| {
        // Also if the body panics.
        let _ends = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_bytes(server), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        scope.spawn(|| {
            let mut other = Client::connect(server);
            other.call("CLIENT NO-EVICT on");
            while !done.load(Ordering::Relaxed) {
                let sent = Instant::now();
                assert!(!other.call("INCR other").is_error());
                longest.fetch_max(sent.elapsed().as_millis() as u64, Ordering::Relaxed);
                served.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        body()
    });
    println!("the other client waited for {} ms at most", longest.into_inner());
    (outcome, most.into_inner() - before, served.into_inner())
}

fn start(workspace: &Workspace) -> Server {
    let mut command = workspace.command("serve --listen 127.0.0.1:0 --pool a.pool");
    Server::spawn(command.stderr(Stdio::null()))
}

/// Gives a sorted set this many members, a thousand at a time.
fn fill(client: &mut Client, key: &str, members: u64) {
    for part in (0..members).step_by(1000) {
        let numbers = part..(part + 1000).min(members);
        let words = numbers.flat_map(|number| [number.to_string(), format!("member:{number:08}")]);
        let words: Vec<String> = ["ZADD".to_owned(), key.to_owned()].into_iter().chain(words).collect();
        client.send(&words);
        assert!(!client.reply().is_error());
    }
}

/// A large result was one record of the log, as long as all of it.
#[test]
fn a_large_result_is_stored_in_parts() {
    let workspace = Workspace::new();
    let server = start(&workspace);
    let mut client = Client::connect(&server);
    let members = 300_000;
    fill(&mut client, "large", members);
    let mut bytes_of = |line: &str, expected: i64, parts_min: u64| {
        let commits = client.info("commits");
        let (count, most, _) = watched(&server, || client.count(line));
        assert_eq!(count, expected, "{line}");
        let parts = client.info("commits") - commits;
        println!("{line}: {parts} commits, {} KiB", most >> 10);
        assert!(parts > parts_min, "{line}: {parts} commits");
        most
    };
    // The copy holds nothing but a part; the union holds its result, of 40 to 100 bytes a member.
    let copied = bytes_of("COPY large copy", 1, 20);
    assert!(copied < 64 * MIB, "{copied} bytes");
    let united = bytes_of("ZUNIONSTORE union 2 large copy", members as i64, 20);
    assert!(united < 64 * MIB + 200 * members, "{united} bytes");
    let ranged = bytes_of("ZRANGESTORE range large 0 -2", members as i64 - 1, 20);
    assert!(ranged < 64 * MIB + 200 * members, "{ranged} bytes");
    // All but a few are removed, and the few copied.
    let removed = bytes_of(&format!("ZREMRANGEBYRANK copy 1 {}", members - 2), members as i64 - 2, 0);
    assert!(removed < 64 * MIB + 200 * members, "{removed} bytes");
    assert_eq!(client.count("ZCARD copy"), 2);
    server.kill();
    workspace.run("check a.pool").ok();
}

#[test]
fn a_command_of_a_million_arguments_takes_memory_in_proportion() {
    let workspace = Workspace::new();
    let server = start(&workspace);
    let mut client = Client::connect(&server);
    let count = (1 << 20) - 2;
    let members = (0..count).map(|number| format!("m{number}"));
    for command in ["SADD", "RPUSH"] {
        let key = command.to_lowercase();
        let words: Vec<String> = [command.to_owned(), key].into_iter().chain(members.clone()).collect();
        let mut request = Vec::new();
        write_request(&mut request, &words);
        let (reply, most, served) = watched(&server, || {
            client.stream.write_all(&request).unwrap();
            client.reply()
        });
        assert_eq!(reply, Value::Integer(count as i64), "{command}");
        println!("{command}: a request of {} KiB, {} KiB, {served} others", request.len() >> 10, most >> 10);
        assert!(most < 8 * request.len() as u64 + 64 * MIB, "{command}: {most} bytes for {}", request.len());
        assert!(served > 0);
    }
    // One argument more is none at all.
    let mut other = Client::connect(&server);
    let mut request = format!("*{}\r\n", (1 << 20) + 1).into_bytes();
    request.extend_from_slice(b"$4\r\nSADD\r\n");
    other.stream.write_all(&request).unwrap();
    assert!(other.reply().is_error());
    server.kill();
    workspace.run("check a.pool").ok();
}

#[test]
fn the_queue_of_a_transaction_is_within_its_limit() {
    let workspace = Workspace::new();
    let server = start(&workspace);
    let mut client = Client::connect(&server);
    client.call("CONFIG SET client-query-buffer-limit 16mb");
    let mut request = Vec::new();
    (0..1000)
        .for_each(|number| write_request(&mut request, ["SET".to_owned(), format!("k{number}"), "v".into()]));
    let (refused, most, served) = watched(&server, || {
        assert_eq!(client.call("MULTI"), Value::Simple("OK".into()));
        for round in 0..2000 {
            client.stream.write_all(&request).unwrap();
            let refused = (0..1000).filter(|_| client.reply().is_error()).count();
            if refused > 0 {
                return round * 1000 + (1000 - refused);
            }
        }
        panic!("two million commands were queued");
    });
    println!("{refused} commands were queued, with {} KiB", most >> 10);
    assert!(refused > 10_000 && most < 64 * MIB && served > 0, "{refused} commands, {most} bytes, {served}");
    assert!(client.call("EXEC").is_error());
    assert_eq!(client.call("EXISTS k0"), Value::Integer(0));
    server.kill();
}

/// Each push wakes the next client, as often as there are clients.
#[test]
fn a_chain_of_clients_that_wait_ends() {
    const CLIENTS: usize = 1000;
    let workspace = Workspace::new();
    let server = start(&workspace);
    let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server)).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&["BLMOVE", &format!("q{number}"), &format!("q{}", number + 1), "LEFT", "RIGHT", "0"]);
    }
    let mut client = Client::connect(&server);
    while client.info("blocked_clients") < CLIENTS as u64 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (count, most, _) = watched(&server, || client.count("RPUSH q0 element"));
    assert_eq!(count, 1);
    assert!(most < 16 * MIB, "{most} bytes");
    for waiting in &mut waiting {
        assert_eq!(waiting.reply().as_bytes(), Some(&b"element"[..]));
    }
    assert_eq!(client.count(&format!("LLEN q{CLIENTS}")), 1);
    assert_eq!(client.info("blocked_clients"), 0);
    // Within EXEC nobody waits, whatever is nested.
    assert_eq!(client.call("MULTI"), Value::Simple("OK".into()));
    for _ in 0..CLIENTS {
        client.call("BLPOP nothing 0");
    }
    let Value::Array(replies) = client.call("EXEC") else { panic!("no array") };
    assert!(replies.len() == CLIENTS && replies.iter().all(|reply| *reply == Value::Null));
    server.kill();
    workspace.run("check a.pool").ok();
}

/// How many files this process may open, once it has raised its limit as far as it may. The server is a child
/// and inherits it.
fn raised_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Subscribers that do not read: 2,000, or as many as `TEMBO_SUBSCRIBERS` says, 10,000 in the long form. What
/// the system's sockets hold for them comes on top, some 100 KiB each.
#[test]
fn thousands_of_deaf_subscribers_take_bounded_memory() {
    let wanted = std::env::var("TEMBO_SUBSCRIBERS").map_or(2000, |text| text.parse().expect("a number"));
    let allowed = raised_files().map_or(usize::MAX, |files| (files as usize).saturating_sub(200));
    let count: usize = wanted.min(allowed);
    if count < wanted {
        eprintln!("{count} subscribers, and not {wanted}: this process may open no more files");
    }
    let workspace = Workspace::new();
    let server = start(&workspace);
    let mut client = Client::connect(&server);
    // Silent ones fit, and not what is sent to them.
    let limit = 64 * MIB * (count as u64).div_ceil(2000);
    let settings = format!("CONFIG SET maxmemory-clients {limit} maxclients {}", count + 100);
    assert!(!client.call(&settings).is_error());
    // Those with the most memory are disconnected, and each subscriber may have less than who publishes.
    assert!(!client.call("CLIENT NO-EVICT on").is_error());
    let mut subscribers = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
        subscribers.push(stream);
        subscribers.last_mut().unwrap().write_all(b"SUBSCRIBE channel\r\n").unwrap();
    }
    while client.count("PUBLISH channel hello") < count as i64 {
        assert_eq!(client.info("evicted_clients"), 0, "silent subscribers do not fit");
        std::thread::sleep(Duration::from_millis(20));
    }
    let message = format!("PUBLISH channel {}", "m".repeat(10_000));
    let mut most_counted = 0;
    let ((), most, served) = watched(&server, || {
        for _ in 0..150 {
            assert!(!client.call(&message).is_error());
            most_counted = most_counted.max(client.info("mem_clients_normal"));
        }
    });
    let evicted = client.info("evicted_clients");
    println!(
        "{count} subscribers: {} MiB counted, {} MiB in all, {evicted} disconnected, {served} others",
        most_counted >> 20,
        most >> 20
    );
    assert!(evicted > 0, "the messages fitted into the sockets");
    assert!(most < limit + 128 * MIB + 4096 * count as u64, "{most} bytes");
    assert!(served > 0);
    server.kill();
}
