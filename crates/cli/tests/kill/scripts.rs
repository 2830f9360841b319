//! Scripts under SIGKILL: of the fifty writes of a script all have happened, or none; of one that fails in
//! the middle, all that came before the error.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

const CLIENTS: usize = 4;
/// Most scripts that a client sends in one piece.
const PIPELINE: u64 = 4;
const WRITES: usize = 50;

/// Writes the number to fifty keys. An even number fails then, at a key that is no number, before the last
/// write of all, which nobody must ever see.
const SCRIPT: &str = "
    for i = 1, 49 do redis.call('set', KEYS[1] .. ':' .. i, ARGV[1]) end
    redis.call('rpush', KEYS[1] .. ':list', ARGV[1])
    if ARGV[1] % 2 == 0 then redis.call('incr', KEYS[1] .. ':list') redis.call('set', 'never', 1) end
    return redis.call('llen', KEYS[1] .. ':list')";

/// One client's scripts, which are numbered from 1 on. Nobody else writes its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    acknowledged: u64,
    sent: u64,
}

impl Progress {
    /// Sends scripts until the connection breaks.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return };
        let key = format!("key:{client}");
        loop {
            let mut requests = Vec::new();
            for _ in 0..rng.random_range(1..=PIPELINE) {
                self.sent += 1;
                let number = self.sent.to_string();
                write_request(&mut requests, ["EVAL", SCRIPT, "1", &key, &number]);
            }
            if connection.stream.write_all(&requests).is_err() {
                return;
            }
            while self.acknowledged < self.sent {
                let Ok(reply) = connection.reply() else { return };
                self.acknowledged += 1;
                match (&reply, self.acknowledged % 2) {
                    (Value::Error(line), 0) => assert!(line.starts_with(b"WRONGTYPE "), "{reply:?}"),
                    (Value::Integer(len), 1) => assert_eq!(*len as u64, self.acknowledged),
                    _ => panic!("{}: {reply:?}", self.acknowledged),
                }
            }
        }
    }

    /// All keys are as one script left them, which is the last acknowledged or a later one.
    fn verify(&mut self, connection: &mut Client, client: usize, kill: u64) {
        let Value::Integer(len) =
            connection.call(&[b"LLEN", format!("key:{client}:list").as_bytes()]).unwrap()
        else {
            panic!("no length")
        };
        let number = len as u64;
        assert!((self.acknowledged..=self.sent).contains(&number), "kill {kill}: {number} of {self:?}");
        let expected = (number > 0).then(|| number.to_string().into_bytes());
        for at in 1..WRITES {
            let found = connection.call(&[b"GET", format!("key:{client}:{at}").as_bytes()]).unwrap();
            let half = format!("kill {kill}: half of script {number} of client {client}, key {at}");
            assert!(found.as_bytes() == expected.as_deref(), "{half}: {found:?}");
        }
        *self = Progress { acknowledged: number, sent: number };
    }
}

#[test]
fn no_script_is_half_there_after_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b1);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("scripts.pool");
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
        assert_eq!(connection.call(&[b"EXISTS", b"never"]).unwrap(), Value::Integer(0));
        server.kill();
    }
    let scripts: u64 = clients.iter().map(|progress| progress.acknowledged).sum();
    println!("{kills} kills (seed {seed}, durability {durability}): {scripts} scripts, none half there");
    assert!(scripts > 5 * kills, "the load was too light to mean anything: {scripts} scripts");
}

/// A script that has written and does not end answers BUSY, can only be killed with its server, and leaves
/// nothing behind.
#[test]
fn nothing_of_a_script_that_ran_out_of_time_is_there_after_kill_9() {
    const ENDLESS: &str = "
        for i = 1, 49 do redis.call('set', KEYS[1] .. ':' .. i, ARGV[1]) end
        redis.call('del', 'kept')
        while true do end";
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("endless.pool");
    for kill in 0..3_u64 {
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        connection.call(&[b"CONFIG", b"SET", b"busy-reply-threshold", b"10"]).unwrap();
        assert!(
            matches!(connection.call(&[b"INCR", b"kept"]), Ok(Value::Integer(count)) if count as u64 == kill + 1)
        );
        let mut request = Vec::new();
        write_request(&mut request, ["EVAL", ENDLESS, "1", "key", "1"]);
        connection.stream.write_all(&request).unwrap();
        let is_error =
            |value: &Value, word: &[u8]| matches!(value, Value::Error(line) if line.starts_with(word));
        let mut other = Client::connect(server.addr).unwrap();
        while !is_error(&other.call(&[b"PING"]).unwrap(), b"BUSY ") {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(is_error(&other.call(&[b"SCRIPT", b"KILL"]).unwrap(), b"UNKILLABLE "));
        server.kill();
        assert_pool_is_sound(&pool, kill);
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        let kept = connection.call(&[b"GET", b"kept"]).unwrap();
        assert_eq!(kept.as_bytes(), Some((kill + 1).to_string().as_bytes()));
        assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Value::Integer(1));
        server.kill();
    }
}
