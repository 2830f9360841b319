//! The server as a process: its greeting, kill -9, and being stopped.

use crate::support::Workspace;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) greeting: String,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a server on a free port and reads its greeting.
    pub(crate) fn start(workspace: &Workspace, arguments: &str) -> Server {
        let mut command = workspace.command(&format!("serve --listen 127.0.0.1:0 {arguments}"));
        Server::spawn(command.stderr(Stdio::piped()))
    }

    /// Starts a server by this command and reads its greeting.
    pub(crate) fn spawn(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !greeting.contains("stop  ") {
            assert_ne!(out.read_line(&mut greeting).unwrap(), 0, "the server ended: {greeting}");
        }
        let address = greeting.lines().find_map(|line| line.trim().strip_prefix("listening")).unwrap();
        let port = address.trim().rsplit(':').next().unwrap().parse().unwrap();
        Server { child, greeting, port }
    }

    /// Sends one inline command; the reply, which is `expected.len()` bytes long.
    pub(crate) fn ask(&self, command: &str, expected: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{command}");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Has it shut down, which must succeed; what was said on standard error.
    pub(crate) fn stop(self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(b"SHUTDOWN\r\n").unwrap();
        let (code, said) = self.end();
        assert_eq!(code, Some(0), "{said}");
        said
    }

    /// Waits for the end; the exit code and what was said on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

#[test]
fn the_greeting_says_what_is_open_and_what_a_write_survives() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--durability emulated");
    let greeting = &server.greeting;
    for part in ["./tembo.pool (created)", "emulated", "survives a crash of the process", "listening"] {
        assert!(greeting.contains(part), "{part} is not in {greeting}");
    }
    assert!(greeting.lines().count() < 24, "it does not fit a screen: {greeting}");
    server.kill();
    assert_eq!(workspace.names(), ["tembo.pool"]);
}

#[test]
fn an_acknowledged_write_survives_kill_9() {
    let workspace = Workspace::new();
    for round in 0..5 {
        let server = Server::start(&workspace, "--pool a.pool");
        if round > 0 {
            server.ask("GET key", &format!("$1\r\n{}\r\n", round - 1));
        }
        server.ask(&format!("SET key {round}"), "+OK\r\n");
        server.kill();
        workspace.run("check a.pool").ok();
    }
}

#[test]
fn a_signal_or_a_client_stops_the_server_in_order() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    server.ask("SET key value", "+OK\r\n");
    let killed = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("stopped"), "{said}");

    let server = Server::start(&workspace, "--pool a.pool");
    assert!(server.greeting.contains("(opened"), "{}", server.greeting);
    server.ask("GET key", "$5\r\nvalue\r\n");
    server.ask("SHUTDOWN", "");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_pool_in_use_is_refused_with_the_name_of_its_holder() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let holder = server.child.id().to_string();
    workspace.run("serve --pool a.pool --listen 127.0.0.1:0").fails_with(&holder);
    workspace.run("check a.pool").ends_with(4, &holder);
    server.kill();
    workspace.run("check a.pool").ok();
}

#[test]
fn an_address_that_others_can_reach_is_for_those_with_a_password() {
    let workspace = Workspace::new();
    let greeting = |arguments: &str| {
        let mut command = workspace.command(&format!("serve --pool a.pool --listen 0.0.0.0:0 {arguments}"));
        let server = Server::spawn(command.stderr(Stdio::piped()));
        let greeting = server.greeting.clone();
        server.kill();
        greeting
    };
    assert!(greeting("").contains("Clients of other machines are turned away: there is no password"));
    assert!(greeting("--protected-mode no").contains("there is no password"));
    let greeting = greeting("--requirepass hunter2");
    assert!(!greeting.contains("password") && !greeting.contains("hunter2"), "{greeting}");
}

/// The file that Debian's package has, with its own values, but for a port that is free.
#[test]
fn the_configuration_of_debians_redis_starts_it() {
    let Ok(debian) = std::fs::read_to_string("/etc/redis/redis.conf") else {
        return eprintln!("skipped: there is no /etc/redis/redis.conf");
    };
    let workspace = Workspace::new();
    let file = "/etc/redis/redis.conf";
    let mut command = workspace.command(&format!("serve --config {file} --pool a.pool --listen 127.0.0.1:0"));
    let server = Server::spawn(command.stderr(Stdio::piped()));
    server.ask("CONFIG GET tcp-keepalive", "*2\r\n$13\r\ntcp-keepalive\r\n$3\r\n300\r\n");
    server.kill();
    // Its own addresses and port, if nobody has them.
    if std::net::TcpListener::bind("127.0.0.1:6379").is_err() {
        return eprintln!("skipped: port 6379 is taken");
    }
    std::fs::write(workspace.path("redis.conf"), debian).unwrap();
    let mut command = workspace.command("serve --config redis.conf --pool b.pool");
    let server = Server::spawn(command.stderr(Stdio::piped()));
    assert_eq!(server.port, 6379);
    server.ask("CONFIG GET bind", "*2\r\n$4\r\nbind\r\n$14\r\n127.0.0.1 -::1\r\n");
    server.kill();
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_its_line() {
    let workspace = Workspace::new();
    for (text, expected) in [
        ("# comment\nmaxmemroy 1gb\n", "redis.conf:2: unknown directive maxmemroy; did you mean maxmemory?"),
        (
            "user alice on >hunter2\nuser alice on",
            "redis.conf:2: Error in user declaration 'alice': Duplicate user",
        ),
        (
            "user alice on <hunter2",
            "redis.conf:1: Error loading ACL rule for the user named 'alice': The password",
        ),
        (
            "user alice on +nosuch",
            "redis.conf:1: Error loading ACL rule '+nosuch' for the user named 'alice'",
        ),
        ("port x", "redis.conf:1: port: argument couldn't be parsed into an integer"),
        ("requirepass \"hunter2", "redis.conf:1: the quotes are not balanced"),
    ] {
        std::fs::write(workspace.path("redis.conf"), text).unwrap();
        let run = workspace.run("serve --config redis.conf --pool a.pool");
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(expected) && !run.stderr.contains("hunter2"), "{run:?}");
    }
    assert!(!workspace.path("a.pool").exists());
}

#[test]
fn users_come_from_a_file() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("users.acl"), "user alice on >hunter2 ~a* +get\nuser default off\n")
        .unwrap();
    let server = Server::start(&workspace, "--pool a.pool --aclfile users.acl");
    server.ask("AUTH alice wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    server.ask("PING", "-NOAUTH Authentication required.\r\n");
    server.kill();
    std::fs::write(workspace.path("users.acl"), "user alice on\nuser bob <hunter2\n").unwrap();
    let run = workspace.run("serve --pool b.pool --aclfile users.acl");
    assert!(run.stderr.contains("users.acl:2: The password you are trying to remove"), "{run:?}");
    assert!(run.code == Some(2) && !run.stderr.contains("hunter2"), "{run:?}");
    std::fs::write(workspace.path("redis.conf"), "aclfile users.acl\nuser carl on\n").unwrap();
    let run = workspace.run("serve --pool b.pool --config redis.conf");
    assert!(run.code == Some(2) && run.stderr.contains("choose one of them"), "{run:?}");
    assert!(!workspace.path("b.pool").exists());
}

#[test]
fn a_port_in_use_is_refused_with_its_address() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let address = format!("127.0.0.1:{}", server.port);
    workspace.run(&format!("serve --pool b.pool --listen {address}")).fails_with(&address);
    server.kill();
}

/// The dump did not say what a map counts: `tembo serve` refused the pool that was loaded, by the name of its
/// map of sorted sets.
#[test]
fn a_pool_that_was_served_is_served_again_when_dumped_and_loaded() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let mut conversation = vec![
        ("SET s text".to_owned(), "+OK".to_owned()),
        ("SET e gone PX 100000000".to_owned(), "+OK".to_owned()),
        ("HSET small f v".to_owned(), ":1".to_owned()),
    ];
    for i in 0..200 {
        conversation.push((format!("HSET hash field-{i} value-{i}"), ":1".to_owned()));
        conversation.push((format!("SADD set member-{i}"), ":1".to_owned()));
        conversation.push((format!("ZADD ranks {i} member-{i}"), ":1".to_owned()));
        conversation.push((format!("RPUSH list element-{i}"), format!(":{}", i + 1)));
    }
    converse(&server, &conversation);
    let replies = [
        ("GET s", "$4\r\ntext"),
        ("GET e", "$4\r\ngone"),
        ("HGET small f", "$1\r\nv"),
        ("HLEN hash", ":200"),
        ("HGET hash field-77", "$8\r\nvalue-77"),
        ("SISMEMBER set member-199", ":1"),
        ("ZRANK ranks member-150", ":150"),
        ("ZCOUNT ranks 10 (20", ":10"),
        ("ZRANGE ranks 100 100", "*1\r\n$10\r\nmember-100"),
        ("LINDEX list 123", "$11\r\nelement-123"),
        ("LRANGE list -1 -1", "*1\r\n$11\r\nelement-199"),
        ("DBSIZE", ":7"),
    ]
    .map(|(command, reply)| (command.to_owned(), reply.to_owned()));
    converse(&server, &replies);
    server.stop();
    let dump = workspace.run("dump a.pool").ok();
    assert!(dump.text().contains("{\"counting_map\":{\"name\":\"db.ordered\",\"counts\":\"records\"}}"));
    assert!(dump.text().contains("{\"counting_map\":{\"name\":\"db.lists\",\"counts\":\"weights\"}}"));
    // As dumps were before they said it.
    let older = dump.text().lines().map(without_counting).collect::<Vec<_>>().join("\n");
    for (pool, dump) in [("b.pool", &dump.stdout[..]), ("c.pool", older.as_bytes())] {
        workspace.run_with(&format!("load {pool}"), dump).ok();
        workspace.run(&format!("check {pool}")).ok();
        let server = Server::start(&workspace, &format!("--pool {pool}"));
        converse(&server, &replies);
        server.stop();
    }
    assert_eq!(workspace.run("dump b.pool").ok().stdout, workspace.run("dump c.pool").ok().stdout);
    // A map that counts stays one, and one that counts something else is not taken for one.
    workspace.run_with("load b.pool --merge", &dump.stdout).ok();
    workspace.run_with("load b.pool --merge", older.as_bytes()).ok();
    let (records, weights) = (r#"{"name":"db0","counts":"records"}"#, r#"{"name":"db0","counts":"weights"}"#);
    assert!(dump.text().contains(records));
    let other = dump.text().replace(records, weights);
    workspace.run_with("load a.pool --merge", other.as_bytes()).fails_with("db0");
}

/// A line of a dump as it was before dumps said what maps count.
fn without_counting(line: &str) -> String {
    match line.strip_prefix("{\"counting_map\":{\"name\":").and_then(|rest| rest.split_once(',')) {
        Some((name, _)) => format!("{{\"map\":{name}}}"),
        None if line.starts_with("{\"end\"") => {
            let (counts, _) = line.split_once(",\"xxh3\"").expect("a checksum");
            format!("{counts}}}}}")
        }
        None => line.to_owned(),
    }
}

/// Sends inline commands; the replies, which are these.
fn converse(server: &Server, conversation: &[(String, String)]) {
    let requests: String = conversation.iter().map(|(request, _)| format!("{request}\r\n")).collect();
    let expected: String = conversation.iter().map(|(_, reply)| format!("{reply}\r\n")).collect();
    server.ask(requests.trim_end(), &expected);
}
