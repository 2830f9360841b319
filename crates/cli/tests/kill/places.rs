//! SWAPDB and SCAN under SIGKILL: databases change places with the rest of their transaction, and a scan that
//! was begun before goes on to its end.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

/// Most transactions that are sent in one piece.
const PIPELINE: u64 = 6;
/// Groups of keys whose names begin alike, so that a scan that stops within one names its beginning.
const GROUPS: u64 = 800;
const KEYS_PER_GROUP: u64 = 3;

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

fn words(client: &mut Client, words: &str) -> std::io::Result<Value> {
    client.call(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Transactions that are numbered from 1 on: each adds to a set in database 1, which then changes places with
/// database 2, and counts itself in database 0.
#[derive(Debug, Default)]
struct Swaps {
    acknowledged: u64,
    sent: u64,
}

impl Swaps {
    fn load(&mut self, addr: SocketAddr, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return };
        loop {
            let mut requests = Vec::new();
            for _ in 0..rng.random_range(1..=PIPELINE) {
                self.sent += 1;
                let member = format!("member {:060}", self.sent);
                write_request(&mut requests, [b"MULTI"]);
                write_request(&mut requests, [&b"SELECT"[..], b"1"]);
                write_request(&mut requests, [&b"SADD"[..], b"members", member.as_bytes()]);
                write_request(&mut requests, [&b"SWAPDB"[..], b"1", b"2"]);
                write_request(&mut requests, [&b"SELECT"[..], b"0"]);
                write_request(&mut requests, [&b"INCR"[..], b"swaps"]);
                write_request(&mut requests, [b"EXEC"]);
            }
            if connection.stream.write_all(&requests).is_err() {
                return;
            }
            while self.acknowledged < self.sent {
                let Ok(replies) = (0..7).map(|_| connection.reply()).collect::<Result<Vec<_>, _>>() else {
                    return;
                };
                let Value::Array(results) = &replies[6] else { panic!("{replies:?}") };
                assert!(results.len() == 5 && !results.iter().any(Value::is_error), "{replies:?}");
                self.acknowledged += 1;
            }
        }
    }

    /// The databases are as one of the transactions left them.
    fn verify(&mut self, connection: &mut Client, kill: u64) {
        let number = text(&words(connection, "GET swaps").unwrap()).parse().unwrap_or(0);
        assert!((self.acknowledged..=self.sent).contains(&number), "kill {kill}: {number} of {self:?}");
        // The one that was first has the odd members, and is second after an odd number of changes.
        for (home, count) in [("first", number.div_ceil(2)), ("second", number / 2)] {
            let database = if (home == "first") == (number % 2 == 0) { "1" } else { "2" };
            words(connection, &format!("SELECT {database}")).unwrap();
            let found = text(&words(connection, "GET home").unwrap());
            assert_eq!(found, home, "kill {kill}, database {database} after {number} changes");
            let members = words(connection, "SCARD members").unwrap();
            assert_eq!(members, Value::Integer(count as i64), "kill {kill}, {home} after {number} changes");
        }
        *self = Swaps { acknowledged: number, sent: number };
    }
}

/// A scan of all keys of a database that stay, over and over.
#[derive(Debug)]
struct Scan {
    cursor: String,
    seen: BTreeSet<String>,
    finished: u64,
    /// Servers that a scan was begun on and finished on another.
    survived: u64,
    is_resumed: bool,
}

impl Scan {
    fn load(&mut self, addr: SocketAddr, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return };
        if words(&mut connection, "SELECT 3").is_err() {
            return;
        }
        self.is_resumed = self.cursor != "0";
        loop {
            let count = rng.random_range(1..20);
            let Ok(reply) = words(&mut connection, &format!("SCAN {} COUNT {count}", self.cursor)) else {
                return;
            };
            let Value::Array(parts) = &reply else { panic!("{self:?}: {reply:?}") };
            let Value::Array(keys) = &parts[1] else { panic!("{reply:?}") };
            for key in keys {
                assert!(self.seen.insert(text(key)), "{} comes twice", text(key));
            }
            self.cursor = text(&parts[0]);
            if self.cursor == "0" {
                assert_eq!(self.seen.len() as u64, GROUPS * KEYS_PER_GROUP, "keys are missing");
                self.seen.clear();
                self.finished += 1;
                self.survived += u64::from(std::mem::take(&mut self.is_resumed));
            }
        }
    }
}

/// The names of the databases that change places, and the keys that are scanned.
fn prepare(pool: &Path, durability: &str) {
    let server = ServerProcess::start(pool, durability);
    let mut connection = Client::connect(server.addr).unwrap();
    for line in ["SELECT 1", "SET home first", "SELECT 2", "SET home second", "SELECT 3"] {
        words(&mut connection, line).unwrap();
    }
    for group in 0..GROUPS {
        let keys = (0..KEYS_PER_GROUP).map(|key| format!("k{group:04}/{key} v"));
        words(&mut connection, &format!("MSET {}", keys.collect::<Vec<_>>().join(" "))).unwrap();
    }
    server.kill();
}

#[test]
fn databases_change_places_whole_and_scans_go_on_after_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b9);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("places.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    prepare(&pool, &durability);
    let (mut swaps, cursor) = (Swaps::default(), "0".to_owned());
    let mut scan = Scan { cursor, seen: BTreeSet::new(), finished: 0, survived: 0, is_resumed: false };
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(5..80)));
        let seeds: [u64; 2] = [rng.random(), rng.random()];
        let (swaps, scan) = (&mut swaps, &mut scan);
        std::thread::scope(|scope| {
            scope.spawn(|| swaps.load(addr, seeds[0]));
            scope.spawn(|| scan.load(addr, seeds[1]));
            std::thread::sleep(patience);
            server.kill();
        });
        assert_pool_is_sound(&pool, kill);
        let server = ServerProcess::start(&pool, &durability);
        swaps.verify(&mut Client::connect(server.addr).unwrap(), kill);
        server.kill();
    }
    let (changes, Scan { finished, survived, .. }) = (swaps.acknowledged, scan);
    println!(
        "{kills} kills (seed {seed}, durability {durability}): {changes} changes of places, {finished} scans, \
         {survived} of them across a kill"
    );
    assert!(changes > 10 * kills && survived > kills / 8, "the load was too light: {changes}, {survived}");
}
