//! The server's messages to its operator on standard error.

use crate::serve::Server;
use crate::support::Workspace;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Part of every key, value and name that these tests send. It must never be logged.
const SECRET: &str = "hunter2";

/// Its number on Linux.
const SIGBUS: i32 = 7;

/// A server whose standard error is a file.
struct Logged {
    server: Server,
    workspace: Workspace,
}

impl Logged {
    fn start(arguments: &str) -> Logged {
        Logged::with(arguments, |_| {})
    }

    fn with(arguments: &str, change: impl FnOnce(&mut Command)) -> Logged {
        let workspace = Workspace::new();
        std::fs::write(workspace.path("redis.conf"), "enable-debug-command local\n").unwrap();
        let own = "--listen 127.0.0.1:0 --pool a.pool --config redis.conf";
        let mut command = workspace.command(&format!("serve {own} {arguments}"));
        command.env_remove("JOURNAL_STREAM").stderr(File::create(workspace.path("log")).unwrap());
        change(&mut command);
        Logged { server: Server::spawn(&mut command), workspace }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.workspace.path("log")).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends this and waits for the first bytes of an answer, or the end.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = [0; 64];
        // An end by a reset is an end.
        let _ = stream.read(&mut answer);
        stream
    }

    /// The line that has this in it, once it is there.
    #[track_caller]
    fn line(&self, part: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let text = self.text();
            if let Some(line) = text.lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no {part:?} in the log:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn count(&self, part: &str) -> usize {
        self.text().lines().filter(|line| line.contains(part)).count()
    }

    /// Waits for the end, which has to be that one.
    #[track_caller]
    fn ends_by_bus_error(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = self.server.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the server goes on: {}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.signal(), Some(SIGBUS), "{}", self.text());
    }

    fn end(self) {
        let text = self.text();
        self.server.kill();
        assert!(!text.contains(SECRET), "a user's data is logged:\n{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

/// Nothing was logged but start and stop: a refused, evicted, hostile or idle client, and a full pool, left
/// no trace.
#[test]
fn whoever_is_refused_or_disconnected_is_named_with_the_cause() {
    let logged = Logged::start("--maxclients 3");
    let refused = {
        let _three: Vec<_> = (0..3).map(|_| logged.send(b"PING\r\n")).collect();
        logged.send(b"PING\r\n").local_addr().unwrap()
    };
    let line = logged.line("there are 3 clients (maxclients)");
    assert!(line.contains(&refused.to_string()) && line.contains(" warning: "), "{line}");

    let eventually_send = |bytes: &[u8]| loop {
        // Until the three are gone.
        let mut stream = logged.connect();
        stream.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        if stream.read_exact(&mut answer).is_ok() && &answer == b"+PONG\r\n" {
            stream.write_all(bytes).unwrap();
            return stream;
        }
    };
    let peer = eventually_send(format!("*1\r\n{SECRET}\r\n").as_bytes()).local_addr().unwrap();
    let line = logged.line("Protocol error: expected '$', got 'h'");
    assert!(line.contains(&format!("at {peer}")) && line.contains(" notice: "), "{line}");

    eventually_send(format!("POST /{SECRET} HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n").as_bytes());
    assert!(logged.line("it sent a line of HTTP").contains(" warning: "));
    logged.send(b"\x16\x03\x01\x00\xa5\x01");
    assert!(logged.line("it began with TLS").contains(" warning: "));

    let mut other = eventually_send(b"");
    let mut ask = |request: &str| {
        other.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 5];
        other.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n", "{request}");
    };
    ask(&format!("CLIENT SETNAME {SECRET}\r\n"));
    let value = SECRET.repeat(20_000);
    ask(&format!("*3\r\n$3\r\nSET\r\n$7\r\n{SECRET}\r\n${}\r\n{value}\r\n", value.len()));
    ask("CONFIG SET client-output-buffer-limit 'normal 8mb 0 0'\r\n");
    let _slow = eventually_send(format!("GET {SECRET}\r\n").repeat(400).as_bytes());
    assert!(logged.line("(client-output-buffer-limit)").contains("8388608 are allowed"));

    ask("CONFIG SET client-output-buffer-limit 'normal 0 0 0' maxmemory-clients 8mb\r\n");
    let _large = eventually_send(format!("GET {SECRET}\r\n").repeat(400).as_bytes());
    assert!(logged.line("(maxmemory-clients)").contains("8388608 are allowed"));

    ask("DEBUG SLEEP 0.4\r\n");
    assert!(logged.line("a turn of the event loop took 4").contains("debug"));

    ask("CONFIG SET timeout 1\r\n");
    assert!(logged.line("(timeout)").contains(&format!("at {}", other.local_addr().unwrap())));
    logged.end();
}

#[test]
fn a_storm_of_messages_is_cut_and_counted() {
    let logged = Logged::start("");
    for _ in 0..200 {
        logged.send(b"*x\r\n");
    }
    logged.line("more messages about protocol errors were not logged");
    let logged_now = logged.count("Protocol error: invalid multibulk length");
    assert!((5..=50).contains(&logged_now), "{logged_now} of 200:\n{}", logged.text());
    logged.end();
}

#[test]
fn the_level_is_chosen_at_the_start_and_changed_later() {
    let logged = Logged::start("--log-level warning");
    logged.send(b"*x\r\n");
    logged.send(b"CONFIG SET loglevel verbose\r\n");
    logged.line("verbose: client 2 at 127.0.0.1:");
    logged.send(b"*x\r\n");
    logged.line("notice: client 3 at 127.0.0.1:");
    assert_eq!(logged.count("client 1 "), 0, "{}", logged.text());
    let line = logged.line("verbose: ");
    let (time, _) = line.split_once(' ').unwrap();
    assert!(time.len() > 19 && time.ends_with('Z') && &time[10..11] == "T", "{line}");
    logged.end();
}

#[test]
fn a_full_pool_is_logged_once_and_again_when_it_has_room() {
    let logged = Logged::start("--max-bytes 16M");
    let value = SECRET.repeat(10_000);
    let set = |key: usize| {
        let key = format!("{SECRET}{key:05}");
        format!("*3\r\n$3\r\nSET\r\n$12\r\n{key}\r\n${}\r\n{value}\r\n", value.len())
    };
    let mut client = logged.connect();
    let mut answer = [0; 4096];
    for key in 0..400 {
        client.write_all(set(key).as_bytes()).unwrap();
        assert_ne!(client.read(&mut answer).unwrap(), 0);
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("-OOM command not allowed when used memory > 'maxmemory'."), "{answer}");
    assert!(logged.line("the pool is full").contains(" warning: "));
    client.write_all(b"FLUSHALL\r\n").unwrap();
    assert!(logged.line("the pool has room again").contains(" notice: "));
    assert_eq!(logged.count("the pool is full"), 1, "{}", logged.text());
    logged.end();
}

/// On a full disk, or at a limit of the process, the answer was that the memory used is more than
/// 'maxmemory', which was 0.
#[test]
fn a_pool_that_cannot_grow_is_not_said_to_have_reached_its_maximum() {
    let workspace = Workspace::new();
    let mut command = Command::new("sh");
    // In blocks of 512 bytes: 80 MiB.
    let script = "ulimit -f 163840; exec \"$0\" serve --listen 127.0.0.1:0 --pool a.pool";
    command.args(["-c", script, env!("CARGO_BIN_EXE_tembo")]).current_dir(workspace.path("."));
    let server = Server::spawn(command.stderr(File::create(workspace.path("log")).unwrap()));
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = [0; 4096];
    let value = "v".repeat(1 << 20);
    let mut length = 0;
    for key in 0..100 {
        let set = format!("*3\r\n$3\r\nSET\r\n$3\r\n{key:03}\r\n${}\r\n{value}\r\n", value.len());
        client.write_all(set.as_bytes()).unwrap();
        length = client.read(&mut answer).unwrap();
    }
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(answer.starts_with("-OOM the pool cannot grow: ") && answer.contains("ulimit -f"), "{answer}");
    server.kill();
    let log = std::fs::read_to_string(workspace.path("log")).unwrap();
    assert!(log.contains("the pool is full") && log.contains("ulimit -f"), "{log}");
}

#[test]
fn a_damaged_value_is_logged_with_the_command_that_met_it() {
    let mut logged = Logged::start("");
    logged.send(b"SET k v\r\n");
    logged.server.kill();
    let pool = tembo::Options::new().open(logged.workspace.path("a.pool")).unwrap();
    for name in pool.map_names().unwrap() {
        pool.open_map(&name).unwrap().put(b"k", [0xff; 20]).unwrap();
    }
    drop(pool);
    let mut command = logged.workspace.command("serve --listen 127.0.0.1:0 --pool a.pool");
    logged.server = Server::spawn(command.stderr(File::create(logged.workspace.path("log")).unwrap()));
    logged.send(b"GET k\r\n");
    let line = logged.line("the stored value is damaged");
    assert!(line.contains(" warning: get failed: "), "{line}");
    logged.end();
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let announce = |own: bool| {
        move |command: &mut Command| {
            let workspace = command.get_current_dir().unwrap().to_owned();
            let log = std::fs::metadata(workspace.join("log")).unwrap();
            let inode = if own { log.ino() } else { log.ino() + 1 };
            command.env("JOURNAL_STREAM", format!("{}:{inode}", log.dev()));
        }
    };
    let logged = Logged::with("", announce(true));
    logged.send(b"*x\r\n");
    assert!(logged.line("Protocol error").starts_with("<5>client 1 at 127.0.0.1:"));
    logged.send(b"POST / HTTP/1.1\r\n\r\n");
    assert!(logged.line("HTTP").starts_with("<4>client 2 at 127.0.0.1:"));
    logged.end();
    // The announcement is of another stream, which this one was redirected from.
    let logged = Logged::with("", announce(false));
    logged.send(b"*x\r\n");
    assert!(!logged.line("Protocol error").starts_with('<'));
    logged.end();
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let workspace = Workspace::new();
    let mut command = workspace.command("serve --listen 127.0.0.1:0 --pool a.pool --log-level debug");
    let mut server = Server::spawn(command.stderr(Stdio::piped()));
    drop(server.child.stderr.take());
    let logged = Logged { server, workspace };
    for _ in 0..3 {
        logged.send(b"*x\r\n");
    }
    let mut client = logged.connect();
    client.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    logged.server.kill();
}

/// A port of the greeting.
fn port_of(logged: &Logged, name: &str) -> u16 {
    let greeting = &logged.server.greeting;
    let line = greeting.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name} in {greeting}"));
    // That of metrics has a path behind it.
    let port = line.rsplit(':').next().unwrap().split('/').next().unwrap();
    port.trim().parse().unwrap()
}

/// Sends this to a port, and waits for the end of the connection.
fn intrude(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // An end by a reset is an end.
    let _ = stream.read_to_end(&mut answer);
    // The port of metrics answers with a status of HTTP.
    let most = if answer.starts_with(b"HTTP/1.1 400 ") { 256 } else { 64 };
    assert!(answer.len() < most, "{}", answer.escape_ascii());
}

#[test]
fn a_request_of_another_protocol_is_refused_and_logged_at_every_port() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let logged = Logged::start(&format!(
        "--tls-port {free} --tls-cert-file {} --tls-key-file {} --tls-auth-clients no --memcached 127.0.0.1:0 \
         --metrics 127.0.0.1:0",
        cert.display(),
        key.display()
    ));
    let [tls, memcached, metrics] = ["tls", "memcached", "metrics"].map(|name| port_of(&logged, name));
    let http = b"GET / HTTP/1.1\r\nHost: hunter2\r\n\r\n";
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let redis = b"*2\r\n$3\r\nGET\r\n$7\r\nhunter2\r\n";
    let cases: [(u16, &[u8], &str); 12] = [
        (logged.server.port, http, "it sent a line of HTTP. A web page"),
        (logged.server.port, hello, "began with TLS, which is not spoken here"),
        (tls, http, "did not begin with TLS, which is spoken at this port"),
        (tls, redis, "did not begin with TLS"),
        (tls, b"get hunter2\r\n", "did not begin with TLS"),
        (memcached, http, "is disconnected: it sent a line of HTTP"),
        (memcached, hello, "is disconnected: it speaks TLS"),
        (memcached, redis, "is disconnected: it speaks the protocol of Redis"),
        (memcached, &[0x80; 24], "is disconnected: it speaks the binary protocol"),
        (metrics, hello, "is refused at the port of metrics: it did not send HTTP"),
        (metrics, redis, "is refused at the port of metrics"),
        (metrics, b"get hunter2\r\n", "is refused at the port of metrics"),
    ];
    for (port, bytes, part) in cases {
        intrude(port, bytes);
        let line = logged.line(part);
        assert!(line.contains(" warning: ") && line.contains("127.0.0.1:"), "{line}");
        logged.server.ask("PING", "+PONG\r\n");
        // The limit of messages is one of a second.
        std::thread::sleep(Duration::from_millis(250));
    }
    logged.end();
}

/// A name with a line end could have forged messages.
#[test]
fn a_message_is_one_line_whatever_clients_send() {
    let logged = Logged::start("");
    let forged = "x\r\n2026-01-01T00:00:00.000000Z warning: forged\n\u{1b}[31m";
    let text = format!("redis.log(redis.LOG_WARNING, '{}')", forged.escape_default());
    let master = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    logged.send(&request(&["CONFIG", "SET", "loglevel", "debug", "requirepass", "p"]));
    let words: [&[&str]; 10] = [
        &["AUTH", forged, forged],
        &["AUTH", "p"],
        &["ACL", "SETUSER", forged, "on", ">p", "~*", "+@all"],
        &["CLIENT", "SETNAME", forged],
        &["EVAL", &text, "0"],
        &[forged, forged],
        &["SET", forged, forged],
        &["CONFIG", "SET", "tls-cert-file", forged],
        &["REPLICAOF", forged, "1"],
        &["REPLICAOF", "127.0.0.1", &master.local_addr().unwrap().port().to_string()],
    ];
    let all: Vec<u8> = words.iter().flat_map(|words| request(words)).collect();
    let _client = logged.send(&all);
    let (mut link, _) = master.accept().unwrap();
    link.write_all(format!("-{}\r\n", forged.replace('\n', "\r")).as_bytes()).unwrap();
    for part in ["gave a wrong password", "a script: x", "the master answered PING with"] {
        logged.line(part);
    }
    for line in logged.text().lines() {
        let is_one = line.starts_with("20") && !line.starts_with("2026-01-01T00:00:00.000000Z");
        assert!(is_one && !line.contains('\u{1b}'), "{line}");
    }
    logged.end();
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    tembo_wire::client::write_request(&mut bytes, words);
    bytes
}

#[test]
fn a_line_of_json_is_an_object_with_the_parts_of_the_event() {
    let logged = Logged::start("--log-format json --log-level verbose");
    logged.send(b"*x\r\n");
    logged.send(format!("POST /{SECRET} HTTP/1.1\r\n\r\n").as_bytes());
    let line = logged.line("it sent a line of HTTP");
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    let field =
        |name: &str| object[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
    assert_eq!((field("level"), field("kind")), ("warning".to_owned(), "security".to_owned()));
    assert_eq!(field("target"), "tembo_server");
    assert!(field("message").starts_with("client 2 at 127.0.0.1:"), "{line}");
    // 2026-11-26T16:33:46.123456Z
    let time = field("time");
    assert!(time.len() == 27 && time.ends_with('Z') && &time[19..20] == ".", "{time}");
    let text = logged.text();
    assert!(text.lines().count() > 3, "{text}");
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(object.is_object());
    }
    logged.send(b"SHUTDOWN\r\n");
    let line = logged.line("every acknowledged write is in");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["level"], "notice");
}

/// A name with line ends in it could have made lines of its own.
#[test]
fn a_path_with_line_ends_makes_no_lines_of_its_own() {
    let name = "a\n{\"level\":\"warning\"}\n.pool";
    for (format, expected) in [("json", "a\\n{\\\"level\\\""), ("text", "every acknowledged")] {
        let workspace = Workspace::new();
        let mut command =
            workspace.command(&format!("serve --listen 127.0.0.1:0 --log-format {format} --pool"));
        command.arg(name).stderr(File::create(workspace.path("log")).unwrap());
        let server = Server::spawn(&mut command);
        server.ask("SHUTDOWN", "");
        let code = { server }.child.wait().unwrap().code();
        assert_eq!(code, Some(0));
        let log = std::fs::read_to_string(workspace.path("log")).unwrap();
        assert!(log.contains(expected), "{log}");
        if format == "json" {
            assert_eq!(log.lines().count(), 1, "{log}");
        }
    }
}

#[test]
fn the_format_is_a_directive_too_and_logfmt_is_refused_with_the_others() {
    let workspace = Workspace::new();
    let serve = |format: &str| {
        std::fs::write(workspace.path("conf"), format!("log-format {format}\n")).unwrap();
        workspace.run("serve --listen 127.0.0.1:0 --pool a.pool --config conf --metrics 0.0.0.0:1")
    };
    serve("logfmt").ends_with(2, "logfmt is not written here; there are text and json");
    serve("xml").ends_with(2, "argument must be 'text' or 'json'");
    // Both are taken: the next mistake is told.
    serve("legacy").ends_with(2, "--metrics-public");
    serve("JSON").ends_with(2, "--metrics-public");
    workspace.run("serve --log-format logfmt").ends_with(2, "there are text and json");
}

/// The signal may be sent, too. It ends the server as without our handler, and no pool is named. The handler
/// of Rust's library takes the first one for a fault that will come again.
#[test]
fn a_bus_error_that_is_sent_names_no_pool() {
    let mut logged = Logged::start("");
    let pid = logged.server.child.id().to_string();
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-BUS", &pid]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(200));
    }
    logged.ends_by_bus_error();
    assert_eq!(logged.count("cannot be read"), 0, "{}", logged.text());
}

/// A page that cannot be had: the process ends, and says which file it was. The device is a file that becomes
/// shorter, for which the kernel sends the same signal.
#[test]
fn the_message_of_a_bus_error_names_the_pool() {
    for durability in ["page-cache", "journaled", "relaxed"] {
        let mut logged = Logged::start(&format!("--durability {durability}"));
        let value = "v".repeat(1_000);
        let mut stream = logged.connect();
        for number in 0..3_000 {
            write!(stream, "SET key:{number} {value}\r\n").unwrap();
        }
        stream.write_all(b"ECHO all\r\n").unwrap();
        let mut answers = Vec::new();
        while !answers.ends_with(b"all\r\n") {
            let mut buffer = [0; 4_096];
            let count = stream.read(&mut buffer).unwrap();
            answers.extend_from_slice(&buffer[..count]);
        }
        let file = File::options().write(true).open(logged.workspace.path("a.pool")).unwrap();
        file.set_len(4_096).unwrap();
        // The server may end before it reads the last ones.
        for number in 0..3_000 {
            if write!(stream, "GET key:{number}\r\n").is_err() {
                break;
            }
        }
        logged.ends_by_bus_error();
        let line = logged.line("cannot be read or written");
        assert!(line.starts_with("tembo: a page of a.pool cannot"), "{line}");
        assert!(line.ends_with("is so."), "{line}");
    }
}
