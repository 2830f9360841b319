//! TEMBO.ONCE under SIGKILL: a command that is sent again until it is answered has run once.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

const CLIENTS: usize = 4;
/// Most commands that a client sends in one piece.
const PIPELINE: u64 = 12;

/// One client's increments of its own counter, which are numbered from 1 on.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    answered: u64,
    /// Those that were sent again: they may have run before.
    repeated: u64,
    sent: u64,
}

fn write_increment(out: &mut Vec<u8>, client: usize, number: u64) {
    let (token, counter) = (format!("token:{client}:{number}"), format!("counter:{client}"));
    write_request(out, [&b"TEMBO.ONCE"[..], token.as_bytes(), b"3600000", b"INCR", counter.as_bytes()]);
}

impl Progress {
    /// Sends increments until the connection breaks; first those that were not answered.
    fn load(&mut self, addr: SocketAddr, client: usize, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = Client::connect(addr) else { return };
        loop {
            let mut requests = Vec::new();
            let until = self.answered + rng.random_range(1..=PIPELINE);
            for number in self.answered + 1..=until {
                write_increment(&mut requests, client, number);
                self.repeated += u64::from(number <= self.sent);
            }
            // One that was answered is answered again.
            let again = rng.random_range(0..=self.answered);
            if again > 0 {
                write_increment(&mut requests, client, again);
            }
            self.sent = self.sent.max(until);
            if connection.stream.write_all(&requests).is_err() {
                return;
            }
            while self.answered < until {
                let Ok(reply) = connection.reply() else { return };
                self.answered += 1;
                assert_eq!(reply, Value::Integer(self.answered as i64), "client {client}: {self:?}");
            }
            if again > 0 {
                let Ok(reply) = connection.reply() else { return };
                assert_eq!(reply, Value::Integer(again as i64), "client {client}: {self:?}, once more");
            }
        }
    }

    /// The counter has been changed by each increment that was answered, and by none twice.
    fn verify(&self, connection: &mut Client, client: usize, kill: u64) {
        let counter = connection.call(&[b"GET", format!("counter:{client}").as_bytes()]).unwrap();
        let number = counter.as_bytes().map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap());
        assert!((self.answered..=self.sent).contains(&number), "kill {kill}: {number} of {self:?}");
    }
}

#[test]
fn a_counter_is_exact_after_retries_through_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b7);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("once.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut clients = [Progress::default(); CLIENTS];
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(5..60)));
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
        clients.iter().enumerate().for_each(|(client, its)| its.verify(&mut connection, client, kill));
        server.kill();
    }
    let (answered, repeated) =
        clients.iter().fold((0, 0), |(a, r), progress| (a + progress.answered, r + progress.repeated));
    println!(
        "{kills} kills (seed {seed}, durability {durability}): {answered} increments, {repeated} of them sent again"
    );
    assert!(answered > 10 * kills && repeated > kills, "the load was too light: {answered}, {repeated}");
}
