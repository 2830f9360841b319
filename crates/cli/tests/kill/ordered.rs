//! Lists and sorted sets under SIGKILL, small and large, alone and several in an EXEC: all keys of a client
//! are as one of its commands left them, the last acknowledged or a later one, and nothing is leaked.

use super::collections::reclaimed;
use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

const CLIENTS: usize = 3;
const KEYS: u64 = 3;
const PIPELINE: usize = 10;
/// Members of the set that is copied in parts: more words than one part has.
const LARGE: u64 = 2500;

#[derive(Clone, Debug, PartialEq)]
enum Contents {
    List(Vec<String>),
    Sorted(BTreeMap<String, i64>),
}

type State = BTreeMap<String, Contents>;

/// A client's acknowledged state, and those that the commands sent since lead to, each with the number of its
/// replies.
#[derive(Debug, Default)]
struct History {
    acknowledged: State,
    sent: VecDeque<(State, usize)>,
    /// The commands that were sent last, for messages.
    last: VecDeque<Vec<Vec<String>>>,
    number: u64,
}

fn is_empty(contents: &Contents) -> bool {
    match contents {
        Contents::List(list) => list.is_empty(),
        Contents::Sorted(set) => set.is_empty(),
    }
}

fn list_of<'s>(state: &'s mut State, key: &str) -> &'s mut Vec<String> {
    match state.entry(key.to_owned()).or_insert(Contents::List(Vec::new())) {
        Contents::List(list) => list,
        Contents::Sorted(_) => panic!("{key} is a sorted set"),
    }
}

fn sorted_of<'s>(state: &'s mut State, key: &str) -> &'s mut BTreeMap<String, i64> {
    match state.entry(key.to_owned()).or_insert(Contents::Sorted(BTreeMap::new())) {
        Contents::Sorted(set) => set,
        Contents::List(_) => panic!("{key} is a list"),
    }
}

/// The members of a sorted set in order.
fn in_order(set: &BTreeMap<String, i64>) -> Vec<String> {
    let mut members: Vec<_> = set.iter().map(|(member, score)| (*score, member.clone())).collect();
    members.sort();
    members.into_iter().map(|(_, member)| member).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// ZUNIONSTORE of two sorted sets in place of the first, or DEL of it where its scores have become large.
fn union_stored(state: &mut State, key: &str, other: &str) -> Vec<String> {
    let mut union = sorted_of(state, key).clone();
    let theirs = sorted_of(state, other).clone();
    theirs.into_iter().for_each(|(member, score)| *union.entry(member).or_default() += score);
    if union.values().any(|score| score.abs() > 1 << 40) {
        // Scores stay small, so that they are whole.
        state.remove(key);
        return words(&["DEL", key]);
    }
    *sorted_of(state, key) = union;
    words(&["ZUNIONSTORE", key, "2", key, other])
}

impl History {
    /// A text of some length that no other command uses.
    fn element(&mut self, rng: &mut Xoshiro256PlusPlus) -> String {
        self.number += 1;
        format!("{}:{}", self.number, "e".repeat(rng.random_range(0..90)))
    }

    /// Chooses a command and does it to the state.
    fn command(&mut self, rng: &mut Xoshiro256PlusPlus, client: usize, state: &mut State) -> Vec<String> {
        let is_list = rng.random();
        let letter = if is_list { 'l' } else { 'z' };
        let [key, other] = [(); 2].map(|()| format!("{letter}{client}:{}", rng.random_range(0..KEYS)));
        let command = match rng.random_range(0..20) {
            0 => {
                state.remove(&key);
                words(&["DEL", &key])
            }
            1 if state.contains_key(&key) && key != other => {
                let contents = state.remove(&key).expect("it is there");
                state.insert(other.clone(), contents);
                words(&["RENAME", &key, &other])
            }
            2 if state.contains_key(&key) && key != other => {
                state.insert(other.clone(), state[&key].clone());
                words(&["COPY", &key, &other, "REPLACE"])
            }
            _ if is_list => self.of_list(rng, state, &key, &other),
            _ => self.of_sorted(rng, state, &key, &other),
        };
        state.retain(|_, contents| !is_empty(contents));
        command
    }

    fn of_list(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
        state: &mut State,
        key: &str,
        other: &str,
    ) -> Vec<String> {
        let new: Vec<String> = (0..rng.random_range(1..12)).map(|_| self.element(rng)).collect();
        let list = list_of(state, key);
        let len = list.len();
        match rng.random_range(0..10) {
            0 if len > 0 => {
                let (left, count) = (rng.random(), rng.random_range(1..6));
                let count = len.min(count);
                list.drain(if left { 0..count } else { len - count..len });
                words(&[if left { "LPOP" } else { "RPOP" }, key, &count.to_string()])
            }
            1 if len > 0 => {
                let from = rng.random_range(0..len);
                let to = from + rng.random_range(0..60);
                list.truncate(to + 1);
                list.drain(..from);
                words(&["LTRIM", key, &from.to_string(), &to.to_string()])
            }
            2 if len > 0 => {
                let index = rng.random_range(0..len);
                list[index] = new[0].clone();
                words(&["LSET", key, &index.to_string(), &new[0]])
            }
            3 if len > 0 => {
                let index = rng.random_range(0..len);
                let pivot = list[index].clone();
                // A copy may have brought the same element again.
                let first = list.iter().position(|element| *element == pivot).expect("it is there");
                list.insert(first, new[0].clone());
                words(&["LINSERT", key, "BEFORE", &pivot, &new[0]])
            }
            4 if len > 0 => {
                let moved = list.remove(0);
                list_of(state, other).push(moved);
                words(&["LMOVE", key, other, "LEFT", "RIGHT"])
            }
            choice => {
                let left = choice % 2 == 0;
                for element in &new {
                    list.insert(if left { 0 } else { list.len() }, element.clone());
                }
                words(&[&[if left { "LPUSH" } else { "RPUSH" }, key][..], &refs(&new)].concat())
            }
        }
    }

    fn of_sorted(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
        state: &mut State,
        key: &str,
        other: &str,
    ) -> Vec<String> {
        let member = |rng: &mut Xoshiro256PlusPlus| {
            let number = rng.random_range(0..60);
            format!("member:{number}{}", "m".repeat(number % 30))
        };
        let members: Vec<String> = (0..rng.random_range(1..12)).map(|_| member(rng)).collect();
        match rng.random_range(0..10) {
            0 => {
                sorted_of(state, key).retain(|member, _| !members.contains(member));
                words(&[&["ZREM", key][..], &refs(&members)].concat())
            }
            1 => {
                let set = sorted_of(state, key);
                let from = rng.random_range(0..9);
                let to = from + rng.random_range(0..9);
                in_order(set).iter().skip(from).take(to + 1 - from).for_each(|member| _ = set.remove(member));
                words(&["ZREMRANGEBYRANK", key, &from.to_string(), &to.to_string()])
            }
            2 => {
                let set = sorted_of(state, key);
                in_order(set).iter().take(3).for_each(|member| _ = set.remove(member));
                words(&["ZPOPMIN", key, "3"])
            }
            3 => {
                *sorted_of(state, key).entry(members[0].clone()).or_default() += 5;
                words(&["ZINCRBY", key, "5", &members[0]])
            }
            4 => union_stored(state, key, other),
            5 => {
                let set = sorted_of(state, other).clone();
                let kept = in_order(&set).into_iter().take(20).map(|member| (member.clone(), set[&member]));
                let kept = kept.collect();
                state.insert(key.to_owned(), Contents::Sorted(kept));
                words(&["ZRANGESTORE", key, other, "0", "19"])
            }
            _ => {
                let mut args = words(&["ZADD", key]);
                for member in members {
                    let score = rng.random_range(-9..10);
                    args.extend([score.to_string(), member.clone()]);
                    sorted_of(state, key).insert(member, score);
                }
                args
            }
        }
    }

    /// Chooses a command, or an EXEC of several, and appends the requests.
    fn unit(&mut self, rng: &mut Xoshiro256PlusPlus, client: usize, out: &mut Vec<u8>) {
        let mut state = self.sent.back().map_or(&self.acknowledged, |(state, _)| state).clone();
        let count = if rng.random_range(0..4) == 0 { rng.random_range(2..6) } else { 1 };
        let commands: Vec<_> = (0..count).map(|_| self.command(rng, client, &mut state)).collect();
        if count > 1 {
            write_request(out, [b"MULTI"]);
        }
        commands.iter().for_each(|command| write_request(out, command));
        if count > 1 {
            write_request(out, [b"EXEC"]);
        }
        self.sent.push_back((state, if count > 1 { count + 2 } else { 1 }));
        self.last.push_back(commands);
    }

    /// Sends commands until the connection breaks; returns how many were acknowledged.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) -> u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return 0 };
        let mut acknowledged = 0;
        self.last.clear();
        loop {
            let mut requests = Vec::new();
            (0..rng.random_range(1..=PIPELINE)).for_each(|_| self.unit(&mut rng, client, &mut requests));
            if connection.stream.write_all(&requests).is_err() {
                return acknowledged;
            }
            while let Some((_, replies)) = self.sent.front() {
                for _ in 0..*replies {
                    match connection.reply() {
                        Ok(Value::Array(results)) => {
                            let failed = results.iter().position(Value::is_error);
                            let commands = self.last.front();
                            assert!(
                                failed.is_none(),
                                "{failed:?}: {results:?} of {commands:?} on {:?}",
                                self.acknowledged
                            );
                        }
                        Ok(reply) => assert!(!reply.is_error(), "{reply:?} of {:?}", self.last.front()),
                        Err(_) => return acknowledged,
                    }
                }
                self.last.pop_front();
                (self.acknowledged, _) = self.sent.pop_front().expect("it is there");
                acknowledged += 1;
            }
        }
    }

    /// Reads everything back.
    fn verify(&mut self, connection: &mut Client, client: usize, kill: u64) {
        let mut found = State::new();
        for index in 0..KEYS {
            let (list, set) = (format!("l{client}:{index}"), format!("z{client}:{index}"));
            let elements = texts(&connection.call(&[b"LRANGE", list.as_bytes(), b"0", b"-1"]).unwrap());
            found.insert(list, Contents::List(elements));
            let pairs =
                texts(&connection.call(&[b"ZRANGE", set.as_bytes(), b"0", b"-1", b"WITHSCORES"]).unwrap());
            let pairs =
                pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().expect("a whole score")));
            let members: BTreeMap<_, _> = pairs.collect();
            let ranks = texts(&connection.call(&[b"ZRANGE", set.as_bytes(), b"0", b"-1"]).unwrap());
            assert_eq!(ranks, in_order(&members), "kill {kill}: the order of {set}");
            found.insert(set, Contents::Sorted(members));
        }
        found.retain(|_, contents| !is_empty(contents));
        let allowed = found == self.acknowledged || self.sent.iter().any(|(state, _)| *state == found);
        assert!(allowed, "kill {kill}: client {client} has {found:?}, expected {self:?}");
        (self.acknowledged, self.sent) = (found, VecDeque::new());
    }
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn texts(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("no array: {reply:?}") };
    items.iter().map(|item| String::from_utf8(item.as_bytes().expect("a text").to_vec()).unwrap()).collect()
}

/// Copies, unites and removes a large sorted set until the connection breaks; returns how often.
fn build(addr: SocketAddr) -> u64 {
    let Ok(mut connection) = Client::connect(addr) else { return 0 };
    let mut call = |line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        connection.call(&args)
    };
    let mut built = 0;
    loop {
        for line in ["COPY large copy REPLACE", "ZUNIONSTORE union 2 large copy", "DEL copy", "DEL union"] {
            match call(line) {
                Ok(reply) => assert!(!reply.is_error(), "{line}: {reply:?}"),
                Err(_) => return built,
            }
            // The others are served too.
            std::thread::sleep(Duration::from_millis(5));
        }
        built += 1;
    }
}

#[test]
fn lists_and_sorted_sets_survive_kill_9_and_leak_nothing() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b4);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("ordered.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut clients: Vec<History> = (0..CLIENTS).map(|_| History::default()).collect();
    let (mut acknowledged, mut built, mut unfinished) = (0, 0, 0);
    let server = ServerProcess::start(&pool, &durability);
    let members = (0..LARGE).flat_map(|number| [number.to_string(), format!("member:{number}")]);
    let command: Vec<String> = words(&["ZADD", "large"]).into_iter().chain(members).collect();
    let args: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
    let added = Client::connect(server.addr).unwrap().call(&args).unwrap();
    assert_eq!(added, Value::Integer(LARGE as i64));
    server.kill();
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(30..250)));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.random()).collect();
        std::thread::scope(|scope| {
            let loads: Vec<_> = (clients.iter_mut().zip(&seeds).enumerate())
                .map(|(client, (history, seed))| scope.spawn(move || history.load(addr, client, *seed)))
                .collect();
            let builder = scope.spawn(move || build(addr));
            std::thread::sleep(patience);
            server.kill();
            acknowledged += loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>();
            built += builder.join().unwrap();
        });
        assert_pool_is_sound(&pool, kill);
        let read_only = tembo::Options::new().read_only(true).open(&pool).unwrap();
        unfinished += tembo_server::check(&read_only).unwrap().collections.under_construction;
        drop(read_only);
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        clients.iter_mut().enumerate().for_each(|(client, history)| {
            history.verify(&mut connection, client, kill);
        });
        for key in ["large", "copy", "union"] {
            let members = connection.call(&[b"ZCARD", key.as_bytes()]).unwrap();
            let whole = [Value::Integer(0), Value::Integer(LARGE as i64)].contains(&members);
            assert!(whole, "kill {kill}: {key} has {members:?}");
        }
        server.kill();
    }
    let server = ServerProcess::start(&pool, &durability);
    Client::connect(server.addr).unwrap().call(&[b"FLUSHALL"]).unwrap();
    server.kill();
    let report = reclaimed(&pool, &durability);
    assert_eq!((report.large, report.elements), (0, 0), "FLUSHALL leaves nothing");
    println!(
        "{kills} kills (seed {seed}, durability {durability}): {acknowledged} acknowledged units, {built} rounds of \
         copies in parts, {unfinished} of which a kill cut off"
    );
    assert!(acknowledged > 2 * kills, "the load was too light to mean anything: {acknowledged} units");
}
