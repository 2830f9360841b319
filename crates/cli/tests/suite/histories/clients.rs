//! Clients that record what they do. Each has connections of its own, through its own links, and its own
//! guess at who the master is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_wire::Value;

use super::record::{Clock, Event, Op, Outcome};
use super::shard::{From, Links};
use crate::cluster_moves::Talk;

/// A reply that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_millis(400);
const WAIT_MS: &str = "150";
/// One of this many writes is let be for a while, at most this long.
const HESITATES_EACH: u32 = 200;
const HESITATION: Duration = Duration::from_secs(2);
/// Keys of one slot, so that a reading and a write are one EXEC.
const LISTS: u64 = 3;
const REGISTERS: u64 = 3;
const FENCE: &str = "{h}fence";

/// The facts that all clients share.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) links: Arc<Links>,
    pub(crate) nodes: usize,
    /// The replicas that WAIT is to count.
    pub(crate) copies: usize,
    pub(crate) clock: Clock,
    /// The values that were given to writes.
    pub(crate) values: Arc<AtomicU64>,
    /// How many operations were acknowledged.
    pub(crate) acknowledged: Arc<AtomicU64>,
}

pub(crate) fn list(number: u64) -> String {
    format!("{{h}}list{number}")
}

pub(crate) fn register(number: u64) -> String {
    format!("{{h}}register{number}")
}

/// All keys.
pub(crate) fn keys() -> Vec<String> {
    (0..LISTS).map(list).chain((0..REGISTERS).map(register)).collect()
}

pub(crate) struct Client {
    number: usize,
    means: Means,
    talks: Vec<Option<Talk>>,
    /// The node that it takes for the master.
    pub(crate) at: usize,
    /// How long it lets a write be before it says WAIT: the node may have lost its place, and have it again.
    pub(crate) hesitation: Option<Duration>,
    pub(crate) events: Vec<Event>,
}

/// The replies to an operation.
#[derive(Debug, Default)]
struct Replies {
    /// The answer to a write.
    is_refused: bool,
    answered: Option<u64>,
    /// The answer to a reading.
    found: Option<Value>,
    copies: usize,
}

impl Client {
    pub(crate) fn new(number: usize, means: &Means) -> Client {
        let talks = (0..means.nodes).map(|_| None).collect();
        Client { number, means: means.clone(), talks, at: 0, hesitation: None, events: Vec::new() }
    }

    /// A write of a new value.
    pub(crate) fn write(&mut self, key: &str) -> Outcome {
        let value = 1 + self.means.values.fetch_add(1, Ordering::Relaxed);
        let op = if key.contains("list") { Op::Append(value) } else { Op::Set(value) };
        self.perform(key, op)
    }

    /// A reading, which is acknowledged as writes are.
    pub(crate) fn read(&mut self, key: &str) -> Outcome {
        let op = if key.contains("list") { Op::List(Vec::new()) } else { Op::Get(None) };
        self.perform(key, op)
    }

    /// Performs an operation at the node that it takes for the master, and records it. After anything but
    /// success it takes another one for the master.
    fn perform(&mut self, key: &str, mut op: Op) -> Outcome {
        let node = self.at;
        if self.talks[node].is_none() {
            let port = self.means.links.link(From::Client(self.number), node).port;
            self.talks[node] = Talk::connect(port).inspect(|talk| talk.set_patience(PATIENCE));
        }
        let Some(mut talk) = self.talks[node].take() else {
            self.at = (node + 1) % self.means.nodes;
            return Outcome::Refused;
        };
        let mut replies = Replies::default();
        let began = self.means.clock.now();
        let is_whole = self.exchange(&mut talk, key, &op, &mut replies).is_some();
        let ended = self.means.clock.now();
        let outcome = match &replies {
            Replies { is_refused: true, .. } => Outcome::Refused,
            Replies { copies, .. } if is_whole && *copies >= self.means.copies => Outcome::Acknowledged,
            _ => Outcome::Unknown,
        };
        if let Some(found) = replies.found.filter(|_| outcome == Outcome::Acknowledged) {
            op = read_op(&op, &found);
        }
        if is_whole {
            self.talks[node] = Some(talk);
        }
        match outcome {
            Outcome::Acknowledged => _ = self.means.acknowledged.fetch_add(1, Ordering::Relaxed),
            _ => self.at = (node + 1) % self.means.nodes,
        }
        let (client, key, answered) = (self.number, key.to_owned(), replies.answered);
        self.events.push(Event { client, key, op, node, began, answered, ended, outcome });
        outcome
    }

    /// Sends an operation with its WAIT, and takes the replies. None: the connection ended before the last.
    fn exchange(&self, talk: &mut Talk, key: &str, op: &Op, replies: &mut Replies) -> Option<()> {
        let copies = self.means.copies.to_string();
        let wait = &["WAIT", &copies, WAIT_MS][..];
        match op {
            Op::Append(value) | Op::Set(value) => {
                let word = if op.is_of_list() { "RPUSH" } else { "SET" };
                let (value, both) = (value.to_string(), self.hesitation.is_none());
                let commands = [&[word, key, &value][..], wait];
                talk.send(&commands[..if both { 2 } else { 1 }])?;
                let said = talk.receive()?;
                replies.is_refused = said.is_error();
                replies.answered = (!said.is_error()).then(|| self.means.clock.now());
                if let Some(hesitation) = self.hesitation {
                    std::thread::sleep(hesitation);
                    talk.send(&commands[1..])?;
                }
            }
            Op::List(_) | Op::Get(_) => {
                let read = if op.is_of_list() { &["LRANGE", key, "0", "-1"][..] } else { &["GET", key] };
                talk.send(&[&["MULTI"], read, &["INCR", FENCE], &["EXEC"], wait])?;
                for _ in 0..3 {
                    talk.receive()?;
                }
                match talk.receive()? {
                    Value::Array(mut both) => replies.found = Some(both.swap_remove(0)),
                    _ => replies.is_refused = true,
                }
            }
        }
        if let Value::Integer(count) = talk.receive()? {
            replies.copies = usize::try_from(count).unwrap_or(0);
        }
        Some(())
    }
}

fn number(value: &Value) -> u64 {
    let text = value.as_bytes().map(String::from_utf8_lossy);
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no value of a write: {value:?}"))
}

/// A reading with what it found.
fn read_op(op: &Op, found: &Value) -> Op {
    match (op, found) {
        (Op::List(_), Value::Array(elements)) => Op::List(elements.iter().map(number).collect()),
        (Op::Get(_), Value::Null) => Op::Get(None),
        (Op::Get(_), value) => Op::Get(Some(number(value))),
        _ => panic!("no list: {found:?}"),
    }
}

/// Clients at work in threads.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Event>>>,
}

impl Load {
    pub(crate) fn start(clients: usize, means: &Means, seed: u64) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |number: usize| {
            let (mut client, stop) = (Client::new(number, means), stop.clone());
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | number as u64);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let key = match random.random_range(0..2) {
                        0 => list(random.random_range(0..LISTS)),
                        _ => register(random.random_range(0..REGISTERS)),
                    };
                    let hesitates = random.random_ratio(1, HESITATES_EACH);
                    let most = HESITATION.as_micros() as u64;
                    client.hesitation =
                        hesitates.then(|| Duration::from_micros(random.random_range(0..most)));
                    let outcome = match random.random_range(0..10) {
                        0..7 => client.write(&key),
                        _ => client.read(&key),
                    };
                    // Those that are refused do not make others wait.
                    let most = if outcome == Outcome::Acknowledged { 4000 } else { 20_000 };
                    std::thread::sleep(Duration::from_micros(random.random_range(0..most)));
                }
                client.events
            })
        };
        let threads = (0..clients).map(start).collect();
        Load { stop, threads }
    }

    /// Ends; all that they did.
    pub(crate) fn end(self) -> Vec<Event> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client fails")).collect()
    }
}
