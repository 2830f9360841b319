//! Replicas that a test plays, well or badly: what they are sent, told and refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Client, Fixture, PATIENCE, eventually, request, show};
use tembo_wire::{Limits, Parsed, RequestParser};

/// A connection that has asked for the stream.
pub(crate) struct Replica {
    stream: TcpStream,
    input: Vec<u8>,
    /// The bytes of the stream that were read.
    pub(crate) read: u64,
}

impl Replica {
    pub(crate) fn connect(client: &Client) -> Self {
        let stream = TcpStream::connect(client.stream.peer_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Replica { stream, input: Vec::new(), read: 0 }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&request(&words)).unwrap();
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 1 << 16];
        let count = self.stream.read(&mut chunk).unwrap_or(0);
        self.input.extend_from_slice(&chunk[..count]);
        count > 0
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                if !line.is_empty() {
                    return line;
                }
            } else if !self.fill() {
                return String::new();
            }
        }
    }

    /// Asks for a whole copy, and reads it; the id and the offset.
    pub(crate) fn copy(&mut self) -> (String, u64) {
        self.send("PSYNC ? -1");
        self.take_copy()
    }

    fn take_copy(&mut self) -> (String, u64) {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "+FULLRESYNC", "{line}");
        // Redis says so in advance, and answers empty lines meanwhile.
        let header = self.line();
        match header.trim_start_matches(['\n', '\r']).strip_prefix("$EOF:") {
            Some(mark) => loop {
                let mark = mark.as_bytes();
                if let Some(at) = self.input.windows(mark.len()).position(|part| part == mark) {
                    self.input.drain(..at + mark.len());
                    break;
                }
                assert!(self.fill());
            },
            None => {
                let header = header.trim_start_matches(['\n', '\r']);
                let len: usize = header.strip_prefix('$').unwrap().parse().unwrap();
                while self.input.len() < len {
                    assert!(self.fill());
                }
                assert!(self.input.starts_with(b"REDIS"));
                self.input.drain(..len);
            }
        }
        self.send(&format!("REPLCONF ACK {}", words[2]));
        (words[1].to_owned(), words[2].parse().unwrap())
    }

    /// The next command of the stream; none if the connection is closed.
    pub(crate) fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        loop {
            let mut parser = RequestParser::new();
            if let Ok(Parsed::Request(request)) = parser.parse(&self.input, &Limits::default()) {
                let words = request.args().map(<[u8]>::to_vec).collect();
                let consumed = request.consumed();
                self.input.drain(..consumed);
                self.read += consumed as u64;
                return Some(words);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The commands up to one, without pings.
    pub(crate) fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let words = self.next().expect("the stream ended");
            let line = words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            if line == last {
                return lines;
            }
            if line != "PING" {
                lines.push(line);
            }
        }
    }
}

/// Commands, and what replicas are told of each.
const EFFECTS: &[(&str, &[&str])] = &[
    ("SET k v", &["SELECT 0", "SET k v"]),
    ("SET k w GET", &["SET k w"]),
    ("SET k z XX EXAT 9999999999", &["SET k z PXAT 9999999999000"]),
    ("GETEX k PERSIST", &["PERSIST k"]),
    ("GETEX k PXAT 9999999999999", &["PEXPIREAT k 9999999999999"]),
    ("GETEX k", &[]),
    ("EXPIREAT k 9999999998 LT", &["PEXPIREAT k 9999999998000"]),
    ("EXPIREAT k 9999999999 LT", &[]),
    ("EXPIREAT k 5", &["DEL k"]),
    ("SET k v NX", &["SET k v NX"]),
    ("SETNX k v", &[]),
    ("GETDEL k", &["DEL k"]),
    ("INCRBYFLOAT f 1.5", &["SET f 1.5 KEEPTTL"]),
    ("HINCRBYFLOAT h a 0.5", &["HSET h a 0.5"]),
    ("SPOP s", &["SREM s only"]),
    ("SPOP s", &[]),
    ("LMPOP 2 none l LEFT COUNT 2", &["LPOP l 2"]),
    ("BRPOP l 1", &["RPOP l"]),
    ("RPUSH q a b c", &["RPUSH q a b c", "LPOP q 2"]),
    ("BLMOVE q p RIGHT LEFT 1", &["LMOVE q p RIGHT LEFT"]),
    ("ZADD z 1 a 2 b", &["ZADD z 1 a 2 b"]),
    ("BZPOPMAX z 1", &["ZPOPMAX z"]),
    // Its time has come, though it is still there.
    ("INCR x", &["MULTI", "DEL x", "INCR x", "EXEC"]),
    ("COPY x y DB 3", &["COPY x y DB 3"]),
    ("TEMBO.UNLINK y*", &[]),
    ("TEMBO.UNLINK f*", &["UNLINK f"]),
    ("TEMBO.ONCE t 1000 INCR n", &["INCR n"]),
    ("TEMBO.ONCE t 1000 INCR n", &[]),
    ("PUBLISH c m", &["PUBLISH c m"]),
    ("DEL nothing", &[]),
    ("LPUSH n a", &[]),
    ("SWAPDB 0 3", &["SWAPDB 0 3"]),
    ("FLUSHALL", &["FLUSHALL"]),
];

#[test]
fn effects_are_told_in_words_that_hold_anywhere_and_at_any_time() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "SET x 5 PX 1 => +OK\nDEBUG SET-ACTIVE-EXPIRE 0 => +OK\nSADD s only => :1\nRPUSH l a b c => :3",
    );
    let mut replica = Replica::connect(&client);
    let (id, offset) = replica.copy();
    assert_eq!((id, offset), (client.info("run_id"), 0));
    std::thread::sleep(Duration::from_millis(5));
    let mut waiting = server.client();
    waiting.send(&[b"BLMPOP", b"0", b"1", b"q", b"LEFT", b"COUNT", b"2"]);
    eventually(|| client.info("blocked_clients") == "1");
    let mut lines = vec![];
    for (line, effects) in EFFECTS {
        client.ask(line);
        lines.extend_from_slice(effects);
    }
    client.ask("SET end 1");
    assert_eq!(replica.until("SET end 1"), lines);
    assert_eq!(client.info("master_repl_offset"), replica.read.to_string());
    client.talk("SELECT 2 => +OK\nMULTI => +OK\nSET a 1 => +QUEUED\nSELECT 3 => +QUEUED\nINCR a => +QUEUED\nEXEC => [+OK +OK :1]");
    client.talk("MULTI => +OK\nSET b 1 => +QUEUED\nEXEC => [+OK]\nSET end 1 => +OK");
    let expected = ["SELECT 2", "MULTI", "SET a 1", "SELECT 3", "INCR a", "EXEC", "SET b 1"];
    assert_eq!(replica.until("SET end 1"), expected);
    server.check();
}

#[test]
fn a_replica_goes_on_where_it_was_or_gets_a_copy() {
    let mut server = Fixture::with_config(|config| config.replica.backlog_bytes = Some(4096));
    let mut client = server.client();
    let mut first = Replica::connect(&client);
    let (id, _) = first.copy();
    client.talk("SET k v => +OK\nINCR n => :1");
    first.until("INCR n");
    let offset = first.read;
    drop(first);
    client.talk("INCR n => :2");
    server.restart();
    let mut client = server.client();
    client.talk("INCR n => :3");
    let mut second = Replica::connect(&client);
    second.send("REPLCONF listening-port 7 capa eof capa psync2 capa unheard-of");
    second.send(&format!("PSYNC {id} {}", offset + 1));
    assert_eq!(second.line(), "+OK");
    assert_eq!(second.line(), format!("+CONTINUE {id}"));
    // The new process does not know what the reader has selected.
    assert_eq!(second.until("INCR n"), [""; 0]);
    assert_eq!(second.until("INCR n"), ["SELECT 0"]);
    client.talk("WAIT 1 1 => :0");
    assert_eq!(second.until("REPLCONF GETACK *"), [""; 0]);
    second.send(&format!("REPLCONF ACK {}", offset + second.read));
    eventually(|| client.ask("WAIT 1 1000") == ":1");
    assert!(client.info("slave0").starts_with("ip=127.0.0.1,port=7,state=online,offset="));
    assert!(client.ask("CLIENT LIST TYPE replica").contains("flags=S"));
    // More than is kept.
    (0..200).for_each(|_| drop(client.ask("APPEND k 0123456789")));
    assert!(client.info("repl_backlog_histlen").parse::<u64>().unwrap() < 4300);
    assert_eq!(client.ask("CLIENT KILL TYPE replica"), ":1");
    let mut third = Replica::connect(&client);
    third.send(&format!("PSYNC {id} {}", offset + 1));
    assert_eq!(third.take_copy().0, id);
    assert_eq!((client.info("sync_full"), client.info("sync_partial_ok")), ("1".to_owned(), "1".to_owned()));
    server.check();
}

#[test]
fn replicas_that_ask_for_nonsense_are_refused_or_get_a_copy() {
    let server = Fixture::start();
    let mut client = server.client();
    let unknown = "f".repeat(40);
    // A pool that never had anything, and one that has.
    let mut replica = Replica::connect(&client);
    replica.send(&format!("PSYNC {unknown} 7"));
    assert!(replica.line().starts_with("-NOMASTERLINK"));
    client.talk("SET k v => +OK");
    let (id, offset) = Replica::connect(&client).copy();
    for (line, expected) in [
        (format!("PSYNC {id} {}", offset + 2), "-NOMASTERLINK"),
        (format!("PSYNC {id} {}", i64::MAX), "-NOMASTERLINK"),
        (format!("PSYNC {id} {}", i64::MIN), "+FULLRESYNC"),
        (format!("PSYNC {id} 0"), "+FULLRESYNC"),
        (format!("PSYNC {id} x"), "-ERR"),
        (format!("PSYNC {unknown} 1"), "+FULLRESYNC"),
        ("PSYNC ? 1".to_owned(), "+FULLRESYNC"),
        ("PSYNC short -1".to_owned(), "+FULLRESYNC"),
        ("SYNC".to_owned(), "$"),
        ("REPLCONF listening-port 99999".to_owned(), "-ERR"),
        ("REPLCONF listening-port".to_owned(), "-ERR syntax error"),
        ("REPLCONF no-such-thing 1".to_owned(), "-ERR Unrecognized REPLCONF option: no-such-thing"),
        ("PSYNC".to_owned(), "-ERR wrong number"),
    ] {
        let mut replica = Replica::connect(&client);
        replica.send(&line);
        let answer = replica.line();
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    client.talk("CONFIG SET repl-refuse-ahead no => +OK");
    let mut replica = Replica::connect(&client);
    replica.send(&format!("PSYNC {id} 999"));
    assert!(replica.line().starts_with("+FULLRESYNC"));
    // Nobody acknowledges what was not sent.
    replica.send("REPLCONF ACK 99999999");
    client.talk("SET k w => +OK\nWAIT 5 1 => :0");
    server.check();
}

/// A replica that reads nothing costs no memory, harms nobody, and is let go.
#[test]
fn a_replica_that_never_reads_is_let_go() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CONFIG SET client-output-buffer-limit 'replica 20mb 0 0' => +OK");
    let mut deaf = Replica::connect(&client);
    deaf.copy();
    let mut good = Replica::connect(&client);
    good.copy();
    let good = std::thread::spawn(move || good.until("SET end 1").len());
    let value = "x".repeat(100_000);
    for n in 0..300 {
        client.talk(&format!("SET k{} {value} => +OK", n % 5));
        if n % 10 == 0 {
            let memory: u64 = client.info("mem_clients_normal").parse().unwrap();
            assert!(memory < 8 << 20, "{memory}");
        }
    }
    client.talk("SET end 1 => +OK");
    assert_eq!(good.join().unwrap(), 301);
    eventually(|| !client.ask("INFO replication").contains("slave1"));
    let report = server.report();
    assert!(report.backlog_bytes > 0, "{report:?}");
}

#[test]
fn writes_need_as_many_replicas_as_is_said() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CONFIG SET min-replicas-to-write 1 => +OK");
    let refused = "-NOREPLICAS Not enough good replicas to write.";
    assert_eq!(client.ask("SET k v"), refused);
    client.talk("GET k => nil\nCONFIG SET min-replicas-to-write 0 => +OK\nMULTI => +OK\nSET k v => +QUEUED");
    server.client().talk("CONFIG SET min-replicas-to-write 1 => +OK");
    client.talk(&format!("EXEC => -EXECABORT Transaction discarded because of: {}", &refused[1..]));
    client.talk("GET k => nil");
    let mut replica = Replica::connect(&client);
    replica.copy();
    eventually(|| client.ask("SET k v") == "+OK");
    drop(replica);
    eventually(|| client.ask("SET k v") == refused);
    server.check();
}

/// Removals work in a full pool with replicas; what they lack then is lost to the stream and not to the data.
#[test]
fn a_full_pool_can_be_emptied_with_replicas() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(8 << 20).max_bytes(8 << 20));
    let mut client = server.client();
    let mut replica = Replica::connect(&client);
    replica.copy();
    let value = "x".repeat(10_000);
    let mut count = 0;
    while client.ask(&format!("SET k{count} {value}")) == "+OK" {
        count += 1;
    }
    assert!(count > 50, "{count}");
    while client.ask(&format!("SET small{count} v")) == "+OK" {
        count += 1;
    }
    for n in 0..count {
        assert!([":1", ":0"].contains(&client.ask(&format!("DEL k{n}")).as_str()));
    }
    client.talk("SET after v => +OK");
    server.check();
}

/// After another boot without a clean stop, bytes may have been sent that the pool has lost.
#[test]
fn another_boot_has_another_id_and_the_old_one_as_second() {
    let mut server = Fixture::start();
    let mut client = server.client();
    let mut replica = Replica::connect(&client);
    let (id, _) = replica.copy();
    client.talk("SET k v => +OK");
    replica.until("SET k v");
    let offset = replica.read;
    server.restart();
    assert_eq!(server.client().info("master_replid"), id, "after a clean stop");
    server.stop();
    let pool = tembo::Options::new().open(server.folder().join("test.pool")).unwrap();
    let list = pool.open_map("db.replication").unwrap();
    assert_eq!(list.get("b").unwrap().unwrap()[0], 1);
    list.put("b", b"\x00another boot").unwrap();
    drop((list, pool));
    server.restart();
    let mut client = server.client();
    assert_ne!(client.info("master_replid"), id);
    assert_eq!(client.info("master_replid2"), id);
    assert_eq!(client.info("second_repl_offset"), (offset + 1).to_string());
    client.talk("SET k w => +OK");
    for (from, expected) in [(offset + 1, "+CONTINUE"), (offset + 2, "+FULLRESYNC")] {
        let mut replica = Replica::connect(&client);
        replica.send(&format!("PSYNC {id} {from}"));
        assert!(replica.line().starts_with(expected), "{from}");
    }
    server.check();
}

#[test]
fn a_wait_for_replicas_ends_from_outside() {
    let server = Fixture::start();
    let mut control = server.client();
    control.talk("SET k v => +OK");
    let mut replica = Replica::connect(&control);
    replica.copy();
    for (how, expected) in
        [("", ":0"), (" TIMEOUT", ":0"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        let mut client = server.client();
        let id = client.ask("CLIENT ID");
        client.ask("APPEND k v");
        client.send_raw(&[request(&[b"WAIT", b"2", b"0"]), request(&[b"PING"])].concat());
        eventually(|| control.ask(&format!("CLIENT UNBLOCK {}{how}", &id[1..])) == ":1");
        assert_eq!([show(&client.receive()), show(&client.receive())], [expected, "+PONG"]);
    }
    server.check();
}
