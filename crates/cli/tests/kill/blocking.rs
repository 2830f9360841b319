//! Queues with clients that wait, under SIGKILL: an element whose pop was acknowledged is gone, no other one
//! is lost or there twice, and one that was moved is in one of two lists.

use super::{Client, ServerProcess, assert_pool_is_sound, env_number};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::client::{Value, write_request};

/// A queue of the numbers from 1 on. One client pushes, another one waits and takes.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    push_sent: u64,
    push_acknowledged: u64,
    /// The last number that the taker got.
    taken: u64,
}

/// The numbers that were taken from the second queue.
const DONE: &str = "done";

fn number(value: &Value) -> u64 {
    std::str::from_utf8(value.as_bytes().expect("a number")).unwrap().parse().unwrap()
}

/// Pushes numbers, some at a time, until the connection breaks.
fn push(addr: SocketAddr, key: &str, queue: &mut Queue, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let Ok(mut connection) = Client::connect(addr) else { return };
    loop {
        let new = rng.random_range(1..9);
        let numbers: Vec<String> = (1..=new).map(|step| (queue.push_sent + step).to_string()).collect();
        let args: Vec<&str> = ["RPUSH", key].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        let mut request = Vec::new();
        write_request(&mut request, &args);
        queue.push_sent += new;
        if connection.stream.write_all(&request).is_err() {
            return;
        }
        match connection.reply() {
            Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
            Err(_) => return,
        }
        queue.push_acknowledged = queue.push_sent;
    }
}

/// Waits for numbers and takes them, one at a time, until the connection breaks; returns how many.
fn take(addr: SocketAddr, key: &str, taken: &mut u64) -> u64 {
    let Ok(mut connection) = Client::connect(addr) else { return 0 };
    let args: &[&[u8]] = match key {
        "moved" => &[b"BLMOVE", b"moved", DONE.as_bytes(), b"LEFT", b"RIGHT", b"0"],
        _ => &[b"BLPOP", b"popped", b"0"],
    };
    let mut count = 0;
    while let Ok(reply) = connection.call(args) {
        let got = match &reply {
            Value::Array(pair) => number(&pair[1]),
            single => number(single),
        };
        assert_eq!(got, *taken + 1, "{key}: out of order, lost or taken twice");
        *taken = got;
        count += 1;
    }
    count
}

fn list(connection: &mut Client, key: &str) -> Vec<u64> {
    let Value::Array(items) = connection.call(&[b"LRANGE", key.as_bytes(), b"0", b"-1"]).unwrap() else {
        panic!("{key} is no list")
    };
    items.iter().map(number).collect()
}

impl Queue {
    /// The numbers that are left are those from the last one that was taken, or the one after it, to the last
    /// acknowledged one, or a later one.
    fn verify(&mut self, connection: &mut Client, key: &str, kill: u64) {
        let left = list(connection, key);
        assert!(left.windows(2).all(|pair| pair[1] == pair[0] + 1), "kill {kill}: {key} has gaps");
        let (taken, last) = match (left.first(), left.last()) {
            (Some(first), Some(last)) => (first - 1, *last),
            // Then the last one that was pushed is the last one that was taken.
            _ if self.taken >= self.push_acknowledged => (self.taken, self.taken),
            _ => (self.taken + 1, self.taken + 1),
        };
        let expected = (self.taken..=self.taken + 1).contains(&taken)
            && (self.push_acknowledged..=self.push_sent).contains(&last);
        assert!(expected, "kill {kill}: {key} has the numbers from {taken} to {last}: {self:?}");
        let moved =
            if key == "moved" { connection.call(&[b"LLEN", DONE.as_bytes()]).unwrap() } else { Value::Null };
        // An empty queue does not tell whether the last number came and went; what was moved does.
        let (taken, last) = match moved {
            Value::Integer(moved) if left.is_empty() => (moved as u64, moved as u64),
            Value::Integer(moved) => {
                assert_eq!(moved as u64, taken, "kill {kill}: what was moved is in one list");
                (taken, last)
            }
            _ => (taken, last),
        };
        assert!((self.taken..=self.taken + 1).contains(&taken), "kill {kill}: {key}: {taken}: {self:?}");
        *self = Queue { push_sent: last, push_acknowledged: last, taken };
    }
}

#[test]
fn queues_with_waiting_clients_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b5);
    let durability = std::env::var("TEMBO_KILL_DURABILITY").unwrap_or_else(|_| "auto".to_owned());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool: PathBuf = directory.path().join("blocking.pool");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut queues = [Queue::default(); 2];
    let mut taken = 0;
    for kill in 0..kills {
        let server = ServerProcess::start(&pool, &durability);
        let (addr, patience) = (server.addr, Duration::from_millis(rng.random_range(10..80)));
        std::thread::scope(|scope| {
            let mut takers = Vec::new();
            for (queue, key) in queues.iter_mut().zip(["popped", "moved"]) {
                let (seed, last) = (rng.random(), queue.taken);
                takers.push(scope.spawn(move || {
                    let mut last = last;
                    (take(addr, key, &mut last), last)
                }));
                scope.spawn(move || push(addr, key, queue, seed));
            }
            std::thread::sleep(patience);
            server.kill();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
        })
        .into_iter()
        .zip(&mut queues)
        .for_each(|((count, last), queue)| {
            taken += count;
            queue.taken = last;
        });
        assert_pool_is_sound(&pool, kill);
        let server = ServerProcess::start(&pool, &durability);
        let mut connection = Client::connect(server.addr).unwrap();
        for (queue, key) in queues.iter_mut().zip(["popped", "moved"]) {
            queue.verify(&mut connection, key, kill);
        }
        server.kill();
    }
    println!("{kills} kills (seed {seed}, durability {durability}): {taken} elements taken");
    assert!(taken > 5 * kills, "the load was too light to mean anything: {taken} elements");
}
