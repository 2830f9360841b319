//! Hashes and sets under SIGKILL, small and large: all keys of a client are as one of its commands left them,
//! the last acknowledged or a later one, and nothing is leaked.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

const CLIENTS: usize = 4;
const KEYS: u64 = 5;
const FIELDS: u64 = 90;
const PIPELINE: usize = 12;

/// The hashes and sets of a client, by database and key: each field with the number of the command that wrote
/// it. Sets have 0.
type State = BTreeMap<Key, BTreeMap<String, u64>>;

type Key = (usize, String);

/// A client's acknowledged state, and those that the commands sent since lead to.
#[derive(Debug, Default)]
struct History {
    acknowledged: State,
    sent: VecDeque<State>,
    number: u64,
    /// The selected one of the two databases.
    database: usize,
}

fn value_of(number: u64) -> Vec<u8> {
    let mut value = format!("{number};").into_bytes();
    value.resize(value.len() + (number % 40) as usize, b'v');
    value
}

fn store_union(state: &mut State, here: Key, there: &Key) {
    let mut union = state.get(&here).cloned().unwrap_or_default();
    union.extend(state.get(there).cloned().unwrap_or_default());
    state.remove(&here);
    if !union.is_empty() {
        state.insert(here, union);
    }
}

fn change_database(state: &mut State, here: &Key, target: usize) {
    let there = (target, here.1.clone());
    if !state.contains_key(&there)
        && let Some(fields) = state.remove(here)
    {
        state.insert(there, fields);
    }
}

fn remove_fields(state: &mut State, here: &Key, fields: &[String]) {
    if let Some(found) = state.get_mut(here) {
        found.retain(|field, _| !fields.contains(field));
        if found.is_empty() {
            state.remove(here);
        }
    }
}

impl History {
    /// Chooses a command, and appends its request.
    fn command(&mut self, rng: &mut Xoshiro256PlusPlus, client: usize, out: &mut Vec<u8>) {
        self.number += 1;
        let number = self.number;
        let mut state = self.sent.back().unwrap_or(&self.acknowledged).clone();
        let is_set = rng.random_range(0..3) == 0;
        let mut key = || format!("{}{client}:{}", if is_set { 's' } else { 'h' }, rng.random_range(0..KEYS));
        let (key, other) = (key(), key());
        let (here, there) = ((self.database, key.clone()), (self.database, other.clone()));
        let mut args: Vec<Vec<u8>> = Vec::new();
        let mut arg = |text: &str| args.push(text.as_bytes().to_vec());
        let count = rng.random_range(1..12);
        let fields: Vec<String> =
            (0..count).map(|_| format!("field:{}", rng.random_range(0..FIELDS))).collect();
        match rng.random_range(0..20) {
            0 => {
                ["DEL", &key].into_iter().for_each(&mut arg);
                state.remove(&here);
            }
            1 if state.contains_key(&here) && key != other => {
                ["RENAME", &key, &other].into_iter().for_each(&mut arg);
                let fields = state.remove(&here).unwrap();
                state.insert(there, fields);
            }
            2 if state.contains_key(&here) && key != other => {
                ["COPY", &key, &other, "REPLACE"].into_iter().for_each(&mut arg);
                let fields = state[&here].clone();
                state.insert(there, fields);
            }
            9 => {
                let target = 1 - self.database;
                ["MOVE", &key, &target.to_string()].into_iter().for_each(&mut arg);
                change_database(&mut state, &here, target);
            }
            3 if is_set => {
                ["SUNIONSTORE", &key, &key, &other].into_iter().for_each(&mut arg);
                store_union(&mut state, here, &there);
            }
            4..9 => {
                [if is_set { "SREM" } else { "HDEL" }, &key].into_iter().for_each(&mut arg);
                fields.iter().for_each(|field| arg(field));
                remove_fields(&mut state, &here, &fields);
            }
            _ => {
                [if is_set { "SADD" } else { "HSET" }, &key].into_iter().for_each(&mut arg);
                let found = state.entry(here).or_default();
                for field in fields {
                    args.push(field.as_bytes().to_vec());
                    if !is_set {
                        args.push(value_of(number));
                    }
                    found.insert(field, if is_set { 0 } else { number });
                }
            }
        }
        write_request(out, &args);
        self.sent.push_back(state);
    }

    /// Sends commands until the connection breaks; returns how many were acknowledged.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) -> u64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return 0 };
        self.database = rng.random_range(0..2);
        if connection.call(&[b"SELECT", self.database.to_string().as_bytes()]).is_err() {
            return 0;
        }
        let mut acknowledged = 0;
        loop {
            let mut requests = Vec::new();
            let count = rng.random_range(1..=PIPELINE);
            (0..count).for_each(|_| self.command(&mut rng, client, &mut requests));
            if connection.stream.write_all(&requests).is_err() {
                return acknowledged;
            }
            for _ in 0..count {
                match connection.reply() {
                    Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
                    Err(_) => return acknowledged,
                }
                self.acknowledged = self.sent.pop_front().expect("an acknowledged command was sent");
                acknowledged += 1;
            }
        }
    }

    /// Reads everything back.
    fn verify(&mut self, connection: &mut Client, client: usize, kill: u64) {
        let mut found = State::new();
        for database in 0..2 {
            connection.call(&[b"SELECT", database.to_string().as_bytes()]).unwrap();
            for (index, kind) in (0..KEYS).flat_map(|index| ["h", "s"].map(|kind| (index, kind))) {
                let key = format!("{kind}{client}:{index}");
                let command: &[u8] = if kind == "h" { b"HGETALL" } else { b"SMEMBERS" };
                let Value::Array(items) = connection.call(&[command, key.as_bytes()]).unwrap() else {
                    panic!("{key}: no array")
                };
                let fields = read_fields(&items, kind == "h");
                if !fields.is_empty() {
                    found.insert((database, key), fields);
                }
            }
        }
        let allowed = found == self.acknowledged || self.sent.contains(&found);
        assert!(allowed, "kill {kill}: client {client} has {found:?}, expected {self:?}");
        (self.acknowledged, self.sent) = (found, VecDeque::new());
    }
}

fn read_fields(items: &[Value], is_hash: bool) -> BTreeMap<String, u64> {
    let text = |item: &Value| String::from_utf8(item.as_bytes().unwrap().to_vec()).unwrap();
    if !is_hash {
        return items.iter().map(|item| (text(item), 0)).collect();
    }
    let pairs = items.chunks(2).map(|pair| {
        let value = text(&pair[1]);
        let number: u64 = value.split(';').next().unwrap().parse().unwrap();
        assert!(value.as_bytes() == value_of(number), "half of a value: {value}");
        (text(&pair[0]), number)
    });
    pairs.collect()
}

/// Lets the server run until all that was removed is given back; returns what is left of large collections.
pub(super) fn reclaimed(pool: &Path, durability: &str) -> tembo_server::CollectionsReport {
    for _ in 0..100 {
        let server = ServerProcess::start(pool, durability);
        std::thread::sleep(Duration::from_millis(200));
        server.kill();
        let read_only = tembo::Options::new().read_only(true).open(pool).unwrap();
        let report = tembo_server::check(&read_only).unwrap().collections;
        if report.doomed_elements + report.doomed + report.under_construction == 0 {
            return report;
        }
    }
    panic!("doomed elements are never removed");
}

#[test]
fn collections_survive_kill_9_and_leak_nothing() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b2);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("collections.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut clients: Vec<History> = (0..CLIENTS).map(|_| History::default()).collect();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(5..80)));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.random()).collect();
        acknowledged += std::thread::scope(|scope| {
            let loads: Vec<_> = (clients.iter_mut().zip(&seeds).enumerate())
                .map(|(client, (history, seed))| scope.spawn(move || history.load(addr, client, *seed)))
                .collect();
            std::thread::sleep(patience);
            server.kill();
            loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>()
        });
        assert_pool_is_sound(&pool, kill);
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        clients.iter_mut().enumerate().for_each(|(client, history)| {
            history.verify(&mut connection, client, kill);
        });
        server.kill();
    }
    let report = reclaimed(&pool, &durability);
    let large = clients.iter().flat_map(|history| history.acknowledged.values());
    let most: u64 = large.map(|fields| fields.len() as u64).sum();
    assert!(report.large > 0 && report.elements <= most, "{report:?}, {most} elements in all");
    let server = ServerProcess::start(&pool, &durability);
    Client::connect(server.addr).unwrap().call(&[b"FLUSHALL"]).unwrap();
    server.kill();
    let report = reclaimed(&pool, &durability);
    assert_eq!((report.large, report.elements), (0, 0), "FLUSHALL leaves nothing");
    println!("{kills} kills (seed {seed}, durability {durability}): {acknowledged} acknowledged commands");
    assert!(acknowledged > 10 * kills, "the load was too light to mean anything: {acknowledged} commands");
}
