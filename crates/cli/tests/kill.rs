//! Real processes, killed with SIGKILL under load: every acknowledged write is there, whole, and nothing else
//! is.
//!
//! `TEMBO_KILLS=500 cargo test --release -p tembo-cli --test kill -- --nocapture` is the long campaign;
//! `TEMBO_KILL_SEED` repeats one, `TEMBO_KILL_DURABILITY` names the domain.
#![forbid(unsafe_code)]

#[path = "kill/blocking.rs"]
mod blocking;
#[path = "kill/collections.rs"]
mod collections;
#[path = "kill/exec.rs"]
mod exec;
#[path = "kill/once.rs"]
mod once;
#[path = "kill/ordered.rs"]
mod ordered;
#[path = "kill/places.rs"]
mod places;
#[path = "kill/scripts.rs"]
mod scripts;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tembo_wire::client::{ReplyParser, Value, write_request};

const CLIENTS: usize = 6;
const KEYS: u64 = 60;
const PIPELINE: usize = 24;

/// The possible contents of a key: nothing, or the value of a write with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Written(u64),
}

/// A key's last acknowledged state and those that were sent after it.
#[derive(Debug, Clone)]
struct History {
    acknowledged: State,
    sent: VecDeque<State>,
}

/// The keys of one client. Nobody else writes them.
#[derive(Debug, Default)]
struct Keys {
    histories: BTreeMap<String, History>,
    next: u64,
}

/// The bytes that write number `number` gives to a key: they name both, and every byte is known.
fn value_of(key: &str, number: u64) -> Vec<u8> {
    let mut value = format!("{key}={number};").into_bytes();
    let bytes = value.len() + (number.wrapping_mul(2_654_435_761) % 1500) as usize;
    while value.len() < bytes {
        value.push((number as usize + value.len() * 7) as u8);
    }
    value
}

fn read_state(key: &str, value: &Value) -> State {
    let Some(bytes) = value.as_bytes() else {
        assert_eq!(*value, Value::Null, "{key}");
        return State::Absent;
    };
    if key.starts_with('n') {
        return State::Written(std::str::from_utf8(bytes).unwrap().parse().unwrap());
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    let number = text.split(['=', ';']).nth(1).and_then(|n| n.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{key} holds a value that nobody wrote: {text:?}"));
    assert!(bytes == value_of(key, number), "{key} holds half of write {number}");
    State::Written(number)
}

struct Client {
    stream: TcpStream,
    parser: ReplyParser,
    unread: Vec<u8>,
}

impl Client {
    fn connect(addr: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Client { stream, parser: ReplyParser::default(), unread: Vec::new() })
    }

    fn reply(&mut self) -> std::io::Result<Value> {
        loop {
            let decoded = self.parser.parse(&self.unread).expect("a well-formed reply");
            self.unread.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return Ok(value);
            }
            let mut buffer = [0; 16 << 10];
            let got = self.stream.read(&mut buffer)?;
            if got == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend_from_slice(&buffer[..got]);
        }
    }

    fn call(&mut self, args: &[&[u8]]) -> std::io::Result<Value> {
        let mut request = Vec::new();
        write_request(&mut request, args);
        self.stream.write_all(&request)?;
        self.reply()
    }
}

/// A write that was sent: the keys it changes, each to a new state.
type Sent = Vec<(String, State)>;

impl Keys {
    fn history(&mut self, key: &str) -> &mut History {
        let new = || History { acknowledged: State::Absent, sent: VecDeque::new() };
        self.histories.entry(key.to_owned()).or_insert_with(new)
    }

    fn latest(&mut self, key: &str) -> State {
        let history = self.history(key);
        history.sent.back().copied().unwrap_or(history.acknowledged)
    }

    /// Chooses a random write and appends its request.
    fn write(&mut self, rng: &mut Xoshiro256PlusPlus, client: usize, out: &mut Vec<u8>) -> Sent {
        self.next += 1;
        let number = self.next;
        let index = rng.random_range(0..KEYS);
        let sent: Sent = match rng.random_range(0..10) {
            0 => {
                let keys = [format!("a{client}:{index}"), format!("b{client}:{index}")];
                let values = keys.clone().map(|key| value_of(&key, number));
                let args = [b"MSET", keys[0].as_bytes(), &values[0], keys[1].as_bytes(), &values[1]];
                write_request(out, args);
                keys.into_iter().map(|key| (key, State::Written(number))).collect()
            }
            1 => {
                let key = format!("k{client}:{index}");
                write_request(out, [b"DEL", key.as_bytes()]);
                vec![(key, State::Absent)]
            }
            2 => {
                let key = format!("n{client}:{}", index % 5);
                write_request(out, [b"INCR", key.as_bytes()]);
                let before = match self.latest(&key) {
                    State::Absent => 0,
                    State::Written(n) => n,
                };
                vec![(key, State::Written(before + 1))]
            }
            _ => {
                let key = format!("k{client}:{index}");
                write_request(out, [b"SET", key.as_bytes(), &value_of(&key, number)]);
                vec![(key, State::Written(number))]
            }
        };
        for (key, state) in &sent {
            self.history(key).sent.push_back(*state);
        }
        sent
    }

    fn acknowledge(&mut self, sent: &Sent) {
        for (key, _) in sent {
            let history = self.history(key);
            history.acknowledged = history.sent.pop_front().expect("an acknowledged write was sent");
        }
    }

    /// Writes until the connection breaks; returns how many writes were acknowledged.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) -> u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return 0 };
        let mut acknowledged = 0;
        loop {
            let mut requests = Vec::new();
            let count = rng.random_range(1..=PIPELINE);
            let sent: Vec<Sent> = (0..count).map(|_| self.write(&mut rng, client, &mut requests)).collect();
            if connection.stream.write_all(&requests).is_err() {
                return acknowledged;
            }
            for write in &sent {
                match connection.reply() {
                    Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
                    Err(_) => return acknowledged,
                }
                self.acknowledge(write);
                acknowledged += 1;
            }
        }
    }

    /// Reads everything back: each key holds its last acknowledged state or one sent after it.
    fn verify(&mut self, connection: &mut Client, client: usize, kill: u64) {
        let mut found = BTreeMap::new();
        for (key, history) in &mut self.histories {
            let value = connection.call(&[b"GET", key.as_bytes()]).unwrap();
            let state = read_state(key, &value);
            let allowed = state == history.acknowledged || history.sent.contains(&state);
            assert!(allowed, "kill {kill}: {key} is {state:?}, expected {history:?}");
            *history = History { acknowledged: state, sent: VecDeque::new() };
            found.insert(key.clone(), state);
        }
        for index in 0..KEYS {
            let pair =
                [format!("a{client}:{index}"), format!("b{client}:{index}")].map(|k| found.get(&k).copied());
            assert_eq!(pair[0], pair[1], "kill {kill}: half an MSET of client {client}, pair {index}");
        }
    }
}

struct ServerProcess {
    child: Child,
    addr: SocketAddr,
}

impl ServerProcess {
    fn start(pool: &Path, durability: &str) -> ServerProcess {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tembo"))
            .args(["serve", "--listen", "127.0.0.1:0", "--durability", durability, "--pool"])
            .arg(pool)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let addr = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            if line.contains("listening") {
                let addr = line.split_whitespace().last().unwrap();
                break addr.parse().unwrap_or_else(|_| panic!("an address in {line:?}"));
            }
        };
        // The rest of the greeting is read so that the server can finish writing it.
        std::thread::spawn(move || lines.for_each(drop));
        ServerProcess { child, addr }
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL is delivered");
        self.child.wait().expect("the server is gone");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_pool_is_sound(pool: &Path, kill: u64) {
    let before = std::fs::read(pool).unwrap();
    let check = Command::new(env!("CARGO_BIN_EXE_tembo")).arg("check").arg(pool).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "kill {kill}: tembo check says: {said}");
    let read_only = tembo::Options::new().read_only(true).open(pool).unwrap();
    tembo_server::check(&read_only).unwrap_or_else(|e| panic!("kill {kill}: the databases: {e}"));
    drop(read_only);
    assert!(std::fs::read(pool).unwrap() == before, "kill {kill}: checking wrote to the pool");
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "page-cache".to_owned());
    kill_and_verify(kills, &durability);
}

/// The newest state of the pool is in its journal, and nowhere else.
#[test]
fn acknowledged_writes_in_a_journal_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    ["relaxed=200ms", "journaled"].iter().for_each(|durability| kill_and_verify(kills / 2, durability));
}

fn kill_and_verify(kills: u64, durability: &str) {
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b0);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("kill.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut clients: Vec<Keys> = (0..CLIENTS).map(|_| Keys::default()).collect();
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(5..120)));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.random()).collect();
        acknowledged += std::thread::scope(|scope| {
            let loads: Vec<_> = (clients.iter_mut().zip(&seeds).enumerate())
                .map(|(client, (keys, seed))| scope.spawn(move || keys.load(addr, client, *seed)))
                .collect();
            std::thread::sleep(patience);
            server.kill();
            loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>()
        });
        assert_pool_is_sound(&pool, kill);
        let begun = Instant::now();
        let server = ServerProcess::start(&pool, durability);
        let mut connection = Client::connect(server.addr).unwrap();
        connection.call(&[b"GET", b"k0:0"]).unwrap();
        slowest = slowest.max(begun.elapsed());
        clients.iter_mut().enumerate().for_each(|(client, keys)| keys.verify(&mut connection, client, kill));
        server.kill();
    }
    println!(
        "{kills} kills (seed {seed}, durability {durability}): {acknowledged} acknowledged writes, none lost; \
         slowest start to first answer {} ms",
        slowest.as_millis()
    );
    assert!(acknowledged > 20 * kills, "the load was too light to mean anything: {acknowledged} writes");
}
