//! A replica of a master that a test plays, well or badly: what it asks, applies, refuses and acknowledges.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use tembo_rdb::{Element, KeyMeta, Kind, Writer};
use tembo_wire::{Limits, Parsed, RequestParser, write_request};

use crate::support::{Client, Fixture, PATIENCE, eventually};

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// A master that does what the test says.
struct FakeMaster(TcpListener);

/// One connection of a replica.
struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    /// The arguments of its PSYNC.
    psync: Vec<String>,
}

impl FakeMaster {
    /// One at a port that no other had: REPLICAOF of the same address would change nothing.
    fn new() -> Self {
        static PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
        let mut known = Vec::new();
        loop {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if PORTS.lock().unwrap().insert(listener.local_addr().unwrap().port()) {
                return FakeMaster(listener);
            }
            known.push(listener);
        }
    }

    fn make_master_of(&self, client: &mut Client) {
        let port = self.0.local_addr().unwrap().port();
        client.talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK"));
    }

    /// The next connection, up to its PSYNC.
    fn accept(&self) -> Link {
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut link = Link { stream, input: Vec::new(), psync: Vec::new() };
        loop {
            let request = link.request();
            match request[0].as_str() {
                "PING" => link.send(b"+PONG\r\n"),
                "PSYNC" => {
                    link.psync = request;
                    return link;
                }
                _ => link.send(b"+OK\r\n"),
            }
        }
    }

    /// A connection on which a whole state was sent, and acknowledged.
    fn accept_with(&self, file: &[u8], offset: u64) -> Link {
        let mut link = self.accept();
        link.send(format!("+FULLRESYNC {ID} {offset}\r\n${}\r\n", file.len()).as_bytes());
        link.send(file);
        assert_eq!(link.request(), ["REPLCONF", "ACK", &offset.to_string()]);
        link
    }
}

fn requests(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    lines.iter().for_each(|line| write_request(&mut bytes, line.split(' ').collect::<Vec<_>>()));
    bytes
}

impl Link {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends to a replica that may hang up before it has read all of it.
    fn offer(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }

    /// Sends commands, and returns how many bytes they had.
    fn commands(&mut self, lines: &[&str]) -> u64 {
        let bytes = requests(lines);
        self.send(&bytes);
        bytes.len() as u64
    }

    fn request(&mut self) -> Vec<String> {
        loop {
            // A replica that is alive says so by an empty line.
            while self.input.first() == Some(&b'\n') {
                self.input.remove(0);
            }
            let mut parser = RequestParser::new();
            if let Ok(Parsed::Request(request)) = parser.parse(&self.input, &Limits::default()) {
                let words = request.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                let consumed = request.consumed();
                self.input.drain(..consumed);
                return words;
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the replica hung up");
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    /// Waits until the replica acknowledges an offset.
    fn expect_ack(&mut self, offset: u64) {
        while self.request() != ["REPLCONF", "ACK", &offset.to_string()] {}
    }
}

/// A file with these strings in database 0.
fn file(strings: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
    writer.database(0, strings.len() as u64, 0).unwrap();
    for (key, value) in strings {
        writer.begin(key.as_bytes(), KeyMeta::default(), Kind::String, 1).unwrap();
        writer.element(Element::Text(value.as_bytes())).unwrap();
        writer.end().unwrap();
    }
    writer.finish().unwrap()
}

#[track_caller]
fn expect_error(client: &mut Client, part: &str) {
    let begun = std::time::Instant::now();
    loop {
        let text = client.ask("INFO replication");
        if text.contains("master_link_error:") && text.contains(part) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{part} is not in {text}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_stream_is_applied_and_acknowledged() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET old v => +OK");
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("k", "v"), ("n", "5")]), 1000);
    assert_eq!(link.psync, ["PSYNC", "?", "-1"]);
    eventually(|| client.info("master_link_status") == "up");
    client.talk("GET old => nil\nGET k => $v\nDBSIZE => :2");
    let sent = link.commands(&["SELECT 3", "INCRBY n 7", "MULTI", "RPUSH l a", "RPUSH l b", "EXEC"]);
    link.commands(&["REPLCONF GETACK *"]);
    link.expect_ack(1000 + sent + 37);
    client.talk("SELECT 3 => +OK\nGET n => $7\nLRANGE l 0 -1 => [$a $b]");
    let port = master.0.local_addr().unwrap().port();
    let offset = 1000 + sent + 37;
    client.talk(&format!("ROLE => [$slave $127.0.0.1 :{port} $connected :{offset}]"));
    // Within MULTI the position stays where that began.
    link.commands(&["MULTI", "RPUSH l c"]);
    drop(link);
    let mut link = master.accept();
    assert_eq!(link.psync, ["PSYNC", ID, &(offset + 1).to_string()]);
    link.send(b"+CONTINUE abcdefabcdefabcdefabcdefabcdefabcdefabcd\r\n");
    link.commands(&["MULTI", "RPUSH l c", "EXEC"]);
    eventually(|| client.ask("LRANGE l 0 -1") == "[$a $b $c]");
    assert!(client.info("master_replid").starts_with("abcdef"));
    server.check();
}

#[test]
fn a_restart_goes_on_where_the_pool_is() {
    let mut server = Fixture::start();
    let mut client = server.client();
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("n", "1")]), 50);
    let sent = link.commands(&["SELECT 9", "INCR n", "INCR n"]);
    eventually(|| client.info("slave_repl_offset") == (50 + sent).to_string());
    let sent = sent + link.commands(&["PING"]);
    eventually(|| client.info("slave_repl_offset") == (50 + sent).to_string());
    server.restart();
    let mut link = master.accept();
    assert_eq!(link.psync, ["PSYNC", ID, &(50 + sent + 1).to_string()]);
    link.send(b"+CONTINUE\r\n");
    link.commands(&["PING", "INCR n"]);
    let mut client = server.client();
    client.talk("SELECT 9 => +OK");
    eventually(|| client.ask("GET n") == "$3");
    assert!(server.report().is_replica);
}

#[test]
fn clients_of_a_replica_may_only_read() {
    let server = Fixture::start();
    let (mut client, mut waiting, mut queueing) = (server.client(), server.client(), server.client());
    waiting.send(&[b"BLPOP", b"l", b"0"]);
    queueing.talk("MULTI => +OK\nSET q v => +QUEUED");
    eventually(|| client.info("blocked_clients") == "1");
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let refused = "-READONLY You can't write against a read only replica.";
    assert!(crate::support::show(&waiting.receive()).starts_with("-UNBLOCKED "));
    assert!(queueing.ask("EXEC").starts_with("-EXECABORT "));
    let link = master.accept_with(&file(&[("k", "v")]), 0);
    eventually(|| client.info("master_link_status") == "up");
    for line in ["SET k v", "BLPOP l 1", "FLUSHALL", "MSET a 1 b 2"] {
        assert_eq!(client.ask(line), refused, "{line}");
    }
    client.talk("GET k => $v\nMULTI => +OK");
    assert_eq!(client.ask("SET k v"), refused);
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    client.talk("CONFIG SET replica-serve-stale-data no => +OK\nGET k => $v");
    drop(link.stream.shutdown(std::net::Shutdown::Both));
    drop(link);
    eventually(|| client.ask("GET k").starts_with("-MASTERDOWN "));
    client.talk("REPLICAOF NO ONE => +OK\nSET k w => +OK\nGET k => $w");
    assert_eq!(client.info("role"), "master");
    server.check();
}

/// A replica whose clock is ahead made a new counter of one that had not expired at the master.
#[test]
fn time_is_the_masters() {
    let server = Fixture::start();
    let mut client = server.client();
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[]), 0);
    link.commands(&["SELECT 0", "SET n 5 PXAT 1000", "SET m 7", "PEXPIREAT m 1000", "SET kept 1 PX 60000"]);
    eventually(|| client.ask("DBSIZE") == ":3");
    client.talk("GET n => nil\nGET m => nil\nGET kept => $1");
    link.commands(&["INCR n", "PERSIST n", "INCR m", "SET done 1"]);
    eventually(|| client.ask("GET done") == "$1");
    client.talk("GET n => $6\nGET m => nil\nDBSIZE => :4");
    link.commands(&["DEL m", "MULTI", "SET o 1", "PEXPIRE o 60000", "EXEC"]);
    eventually(|| client.ask("GET o") == "$1");
    client.talk("DBSIZE => :4");
    server.check();
}

#[test]
fn what_a_bad_master_sends_is_said_and_loses_nothing() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET old v => +OK");
    let good = file(&[("k", "v")]);
    let full = |body: &[u8]| [format!("+FULLRESYNC {ID} 7\r\n").as_bytes(), body].concat();
    let sized = |file: &[u8]| full(&[format!("${}\r\n", file.len()).as_bytes(), file].concat());
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mark = "e".repeat(40);
    for (sent, part) in [
        (b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n".to_vec(), "NOMASTERLINK"),
        (b"+CONTINUE\r\n".to_vec(), "+CONTINUE"),
        (format!("+FULLRESYNC {ID} -7\r\n").into_bytes(), "-7"),
        (format!("+FULLRESYNC {ID} 99999999999999999999\r\n").into_bytes(), "99999999999999999999"),
        (b"+FULLRESYNC short 7\r\n".to_vec(), "short"),
        (vec![b'x'; 5000], "too long"),
        (full(b"$-5\r\n"), "$-5"),
        (full(b"hello\r\n"), "hello"),
        (full(b"$EOF:short\r\n"), "$EOF:short"),
        (full(b"$99999999999999\r\nREDIS"), "closed"),
        (sized(b"no file of Redis"), "data are broken"),
        (sized(&good[..good.len() - 12]), "data are broken"),
        (sized(&damaged), "data are broken"),
        (full(format!("$EOF:{mark}\r\nREDIS0010{mark}").as_bytes()), "data are broken"),
    ] {
        let master = FakeMaster::new();
        master.make_master_of(&mut client);
        let mut link = master.accept();
        assert_eq!(link.psync, ["PSYNC", "?", "-1"]);
        link.offer(&sent);
        if part == "closed" {
            drop(link.stream.shutdown(std::net::Shutdown::Write));
        }
        expect_error(&mut client, part);
        client.talk("GET old => $v\nDBSIZE => :1");
    }
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept();
    link.send(&full(&[format!("$EOF:{mark}\r\n").as_bytes(), &good, mark.as_bytes()].concat()));
    link.expect_ack(7);
    client.talk("GET old => nil\nGET k => $v");
    server.check();
}

#[test]
fn a_command_that_cannot_be_applied_stops_the_stream_with_its_key_and_offset() {
    for (lines, expected) in [
        (&["XADD stream * f v"][..], "XADD for the key \"stream\" at offset 123 cannot be applied"),
        (&["LPUSH k v"][..], "LPUSH for the key \"k\" at offset 123 cannot be applied: WRONGTYPE"),
        (&["CONFIG SET requirepass x"][..], "CONFIG for the key \"SET\" at offset 123"),
        (&["SHUTDOWN"][..], "SHUTDOWN at offset 123"),
        (&["BLPOP l 0"][..], "BLPOP for the key \"l\" at offset 123"),
        (&["REPLICAOF NO ONE"][..], "REPLICAOF for the key \"NO\" at offset 123"),
        (&["SET k"][..], "SET for the key \"k\" at offset 123 cannot be applied: ERR wrong number"),
    ] {
        let server = Fixture::start();
        let mut client = server.client();
        let master = FakeMaster::new();
        master.make_master_of(&mut client);
        let mut link = master.accept_with(&file(&[("k", "v")]), 100);
        link.commands(&["SELECT 0"]);
        link.commands(lines);
        expect_error(&mut client, expected);
        client.talk("GET k => $v");
        assert_eq!(client.info("slave_repl_offset"), "123");
        // The same again, when it is asked for; then it goes on.
        let port = master.0.local_addr().unwrap().port();
        client.talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK Already connected to specified master"));
        let mut link = master.accept();
        assert_eq!(link.psync, ["PSYNC", ID, "124"]);
        link.send(b"+CONTINUE\r\n");
        link.commands(&["APPEND k w"]);
        eventually(|| client.ask("GET k") == "$vw");
        server.check();
    }
}

#[test]
fn a_transaction_of_which_a_part_fails_is_not_applied() {
    let server = Fixture::start();
    let mut client = server.client();
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("k", "v")]), 0);
    link.commands(&[
        "SELECT 0",
        "SET before 1",
        "MULTI",
        "SET a 1",
        "SWAPDB 0 1",
        "SELECT 1",
        "LPUSH k x",
        "EXEC",
    ]);
    expect_error(&mut client, "EXEC at offset");
    eventually(|| client.ask("GET before") == "$1");
    client.talk("GET a => nil\nGET k => $v\nDBSIZE => :2");
    server.check();
}

#[test]
fn a_broken_stream_is_read_again_from_where_the_pool_is() {
    let server = Fixture::start();
    let mut client = server.client();
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("n", "1")]), 0);
    let mut offset = link.commands(&["SELECT 0"]);
    for broken in ["*x\r\n", "*2\r\n$3\r\nGET\r\n:5\r\n", "*1\r\n$-4\r\n", "*99999999999\r\n"] {
        offset += link.commands(&["INCR n"]);
        link.send(broken.as_bytes());
        expect_error(&mut client, &format!("broken at offset {offset}"));
        link = master.accept();
        assert_eq!(link.psync, ["PSYNC", ID, &(offset + 1).to_string()]);
        link.send(b"+CONTINUE\r\n");
        eventually(|| client.info("master_link_status") == "up");
    }
    client.talk("GET n => $5");
    server.check();
}

/// More databases than there are free maps for: the old state goes first.
#[test]
fn a_state_of_very_many_databases_replaces_the_old_one() {
    let server = Fixture::start();
    let mut client = server.client();
    for database in 0..12 {
        client.talk(&format!("SELECT {database} => +OK\nSET old v => +OK\nSADD s a b c => :3"));
    }
    client.talk("SWAPDB 3 11 => +OK");
    let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
    for database in 4..14 {
        writer.database(database, 1, 0).unwrap();
        writer.begin(b"large", KeyMeta::default(), Kind::List, 300).unwrap();
        (0..300).for_each(|n| writer.element(Element::Item(format!("element {n}").as_bytes())).unwrap());
        writer.end().unwrap();
    }
    let many = writer.finish().unwrap();
    let master = FakeMaster::new();
    for (file, databases) in
        [(&many, 4..14), (&file(&[("k", "v")]), 0..1), (&many, 4..14), (&file(&[]), 0..0)]
    {
        client.ask("REPLICAOF NO ONE");
        master.make_master_of(&mut client);
        let _link = master.accept_with(file, 0);
        for database in 0..16 {
            client.talk(&format!("SELECT {database} => +OK"));
            let expected = if databases.contains(&database) { ":1" } else { ":0" };
            assert_eq!(client.ask("DBSIZE"), expected, "{database}");
        }
        eventually(|| client.info("lazyfree_pending_objects") == "0");
    }
    let report = server.report();
    assert_eq!((report.collections.large, report.collections.doomed_elements), (0, 0));
}

/// A stream that does not fit stops where it is, and goes on there once there is room.
#[test]
fn a_full_pool_keeps_its_place_in_the_stream() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(8 << 20).max_bytes(8 << 20));
    let mut client = server.client();
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("k", "v")]), 0);
    let mut lines: Vec<String> = (0..100).map(|n| format!("SET s{n} {}", "x".repeat(100_000))).collect();
    lines.insert(0, "SELECT 0".to_owned());
    link.offer(&requests(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    expect_error(&mut client, "OOM");
    let applied: usize = client.ask("DBSIZE").trim_start_matches(':').parse().unwrap();
    assert!((20..90).contains(&applied), "{applied}");
    assert_eq!(client.info("master_link_status"), "down");
    let mut link = master.accept();
    let (mut bytes, mut next) = (0u64, 0);
    while format!("{}", bytes + 1) != link.psync[2] {
        let mut request = Vec::new();
        write_request(&mut request, lines[next].split(' ').collect::<Vec<_>>());
        (bytes, next) = (bytes + request.len() as u64, next + 1);
        assert!(next <= lines.len(), "{} is no end of a command", link.psync[2]);
    }
    assert_eq!(next, applied, "k, and all but SELECT");
    link.send(b"+CONTINUE\r\n");
    link.commands(&["FLUSHALL", "SET after v"]);
    eventually(|| client.ask("GET after") == "$v");
    server.restart();
    server.client().talk("DBSIZE => :1");
    server.check();
}

/// A state that does not fit beside the old one is not taken, and the old one is as it was.
#[test]
fn a_state_that_does_not_fit_leaves_the_old_one() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(8 << 20).max_bytes(8 << 20));
    let mut client = server.client();
    let value = "x".repeat(100_000);
    (0..40).for_each(|n| drop(client.ask(&format!("SET old{n} {value}"))));
    let names: Vec<String> = (0..100).map(|n| format!("new{n}")).collect();
    let strings: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
    let large = file(&strings);
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    for _ in 0..2 {
        let mut link = master.accept();
        link.send(format!("+FULLRESYNC {ID} 7\r\n${}\r\n", large.len()).as_bytes());
        link.offer(&large);
        expect_error(&mut client, "cannot be stored");
        client.talk("DBSIZE => :40\nEXISTS old39 => :1");
    }
    client.talk("REPLICAOF NO ONE => +OK\nDEL old0 => :1\nSELECT 5 => +OK\nDBSIZE => :0\nSET k v => +OK");
    server.check();
}

/// The link to the master is closed, and goes on where it was.
#[test]
fn client_kill_closes_the_link_to_the_master() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CLIENT KILL TYPE master => :0");
    let master = FakeMaster::new();
    master.make_master_of(&mut client);
    let mut link = master.accept_with(&file(&[("k", "v")]), 50);
    let sent = link.commands(&["SELECT 0", "SET k w"]);
    eventually(|| client.info("slave_repl_offset") == (50 + sent).to_string());
    client.talk("CLIENT KILL TYPE master ID 1 => :0\nCLIENT KILL TYPE master => :1");
    let mut link = master.accept();
    assert_eq!(link.psync, ["PSYNC", ID, &(50 + sent + 1).to_string()]);
    link.send(b"+CONTINUE\r\n");
    link.commands(&["SET k x"]);
    eventually(|| client.ask("GET k") == "$x");
    server.check();
}
