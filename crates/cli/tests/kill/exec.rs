//! EXEC under SIGKILL: of the five commands of a transaction all have happened, or none.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number, value_of};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

const CLIENTS: usize = 4;
/// Most transactions that a client sends in one piece.
const PIPELINE: u64 = 6;

/// One client's transactions, which are numbered from 1 on. Nobody else writes its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    acknowledged: u64,
    sent: u64,
}

fn keys(client: usize) -> [String; 4] {
    ["count", "value", "odd", "last"].map(|name| format!("{name}:{client}"))
}

/// Appends the transaction with this number: five commands, in two databases.
fn write_transaction(out: &mut Vec<u8>, client: usize, number: u64) {
    let [count, value, odd, last] = keys(client);
    let text = number.to_string();
    write_request(out, [b"MULTI"]);
    write_request(out, [&b"SET"[..], value.as_bytes(), &value_of(&value, number)]);
    match number % 2 {
        1 => write_request(out, [&b"SET"[..], odd.as_bytes(), text.as_bytes()]),
        _ => write_request(out, [&b"DEL"[..], odd.as_bytes()]),
    }
    write_request(out, [&b"COPY"[..], value.as_bytes(), value.as_bytes(), b"DB", b"1", b"REPLACE"]);
    write_request(out, [&b"INCR"[..], count.as_bytes()]);
    write_request(out, [&b"GETSET"[..], last.as_bytes(), text.as_bytes()]);
    write_request(out, [b"EXEC"]);
}

impl Progress {
    /// Sends transactions until the connection breaks.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return };
        loop {
            let mut requests = Vec::new();
            for _ in 0..rng.random_range(1..=PIPELINE) {
                self.sent += 1;
                write_transaction(&mut requests, client, self.sent);
            }
            if connection.stream.write_all(&requests).is_err() {
                return;
            }
            while self.acknowledged < self.sent {
                let replies = (0..7).map(|_| connection.reply()).collect::<Result<Vec<_>, _>>();
                let Ok(replies) = replies else { return };
                let Value::Array(results) = &replies[6] else { panic!("{replies:?}") };
                let ran = results.len() == 5 && results.iter().all(|result| !result.is_error());
                assert!(ran, "{replies:?}");
                self.acknowledged += 1;
            }
        }
    }

    /// The client's keys are as one of its transactions left them, which is the last acknowledged or a later
    /// one.
    fn verify(&mut self, connection: &mut Client, client: usize, kill: u64) {
        let mut read = |database: &str, key: &str| {
            connection.call(&[b"SELECT", database.as_bytes()]).unwrap();
            connection.call(&[b"GET", key.as_bytes()]).unwrap()
        };
        let [count, value, odd, last] = keys(client);
        let shown = |value: &Value| value.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let count = shown(&read("0", &count));
        let number: u64 = count.map_or(0, |count| count.parse().unwrap());
        assert!((self.acknowledged..=self.sent).contains(&number), "kill {kill}: {number} of {self:?}");
        let text = |is: bool| is.then(|| number.to_string());
        let whole = (number > 0).then(|| value_of(&value, number));
        let half = format!("kill {kill}: half of transaction {number} of client {client}");
        for database in ["0", "1"] {
            let found = read(database, &value);
            assert!(found.as_bytes() == whole.as_deref(), "{half}: the value in database {database}");
        }
        assert_eq!(shown(&read("0", &odd)), text(number % 2 == 1), "{half}");
        assert_eq!(shown(&read("0", &last)), text(number > 0), "{half}");
        *self = Progress { acknowledged: number, sent: number };
    }
}

#[test]
fn no_exec_is_half_there_after_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b1);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("exec.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut clients = [Progress::default(); CLIENTS];
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(5..80)));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| rng.random()).collect();
        std::thread::scope(|scope| {
            for (client, (progress, seed)) in clients.iter_mut().zip(&seeds).enumerate() {
                scope.spawn(move || progress.load(addr, client, *seed));
            }
            std::thread::sleep(patience);
            server.kill();
        });
        assert_pool_is_sound(&pool, kill);
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        clients.iter_mut().enumerate().for_each(|(client, keys)| keys.verify(&mut connection, client, kill));
        server.kill();
    }
    let transactions: u64 = clients.iter().map(|progress| progress.acknowledged).sum();
    println!(
        "{kills} kills (seed {seed}, durability {durability}): {transactions} transactions, none half there"
    );
    assert!(
        transactions > 10 * kills,
        "the load was too light to mean anything: {transactions} transactions"
    );
}
