//! Whole copies of many keys of all types, between Tembo and Redis or Valkey, both ways, beside writes.
//!
//! The long form is `TEMBO_KEYS=1000000 cargo test -p tembo-cli --test suite -- copies:: --nocapture
//! --test-threads 1`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tembo_wire::{Value, write_request};

use crate::master::{Node, Writing, wait_until_equal};
use crate::replica::{Client, Master, valkey};
use crate::support::Workspace;

/// A failing test waits for this long and a millisecond for each key.
const PATIENCE: Duration = Duration::from_secs(60);
/// As many keys are written before their replies are read.
const BATCH: u64 = 1000;

/// How many keys there are: whole batches in either database.
fn keys() -> u64 {
    let wanted = std::env::var("TEMBO_KEYS").ok().and_then(|count| count.parse::<u64>().ok());
    wanted.unwrap_or(6000).next_multiple_of(2 * BATCH)
}

/// The commands that make a key: of each type, small and large in the encodings of Redis, some with a time.
fn commands(n: u64) -> Vec<Vec<String>> {
    let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // One of each kind in 10,000 keys is large.
    let len = if n % 10_000 < 12 { 600 } else { 1 + n / 12 % 5 };
    let many = |first: &str, one: &dyn Fn(u64) -> String| {
        words((0..len).fold(first.to_owned(), |line, at| line + " " + &one(at)))
    };
    let key = format!("key:{n}");
    let make = match n % 12 {
        0 => words(format!("SET {key} {n}")),
        1 => words(format!("SET {key} {}", "value".repeat(len as usize))),
        2 => many(&format!("RPUSH {key}"), &|at| format!("item-{}", n + at)),
        3 => many(&format!("SADD {key}"), &|at| format!("{}", n + at)),
        4 => many(&format!("SADD {key}"), &|at| format!("member-{}", n + at)),
        5 => many(&format!("HSET {key}"), &|at| format!("field-{at} {n}")),
        6 => many(&format!("ZADD {key}"), &|at| format!("{}.5 member-{at}", n + at)),
        7 => many(&format!("PFADD {key}"), &|at| format!("{}", n * 7 + at)),
        8 => words(format!("SETBIT {key} {} 1", n % 5000)),
        9 => many(&format!("GEOADD {key}"), &|at| format!("{}.25 {}.5 place-{at}", at % 170, n % 80)),
        10 => many(&format!("RPUSH {key}"), &|at| "long".repeat(20 * (1 + at as usize % 3))),
        _ => words(format!("HSET {key} field {}", "v".repeat(100))),
    };
    let mut all = vec![make];
    if (n / 12).is_multiple_of(5) {
        all.push(words(format!("PEXPIREAT {key} {}", 4_000_000_000_000 + n)));
    }
    all
}

/// Databases that the writes beside the copy leave alone.
const DATABASES: [u64; 2] = [1, 3];

/// Writes the keys, half of them into each database.
fn fill(client: &mut Client, keys: u64) {
    for first in (0..keys).step_by(BATCH as usize) {
        let database = DATABASES[usize::from(first >= keys / 2)];
        let mut lines = vec![vec!["SELECT".to_owned(), database.to_string()]];
        lines.extend((first..first + BATCH).flat_map(commands));
        let mut request = Vec::new();
        lines.iter().for_each(|line| write_request(&mut request, line));
        client.stream.write_all(&request).unwrap();
        for line in &lines {
            let reply = client.receive();
            assert!(!reply.is_error(), "{line:?}: {reply:?}");
        }
    }
    client.line("SELECT 0");
}

fn wait_for_link(replica: &mut Client, keys: u64) -> Duration {
    let begun = Instant::now();
    while replica.info("master_link_status") != "up" {
        let error = replica.info("master_link_error");
        assert!(begun.elapsed() < PATIENCE + Duration::from_millis(keys), "no copy: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// A copy of all keys, and what is written meanwhile; one server's data are the other's.
fn copy(program: &Path, tembo_leads: bool) {
    let workspace = Workspace::new();
    let options = ["--repl-backlog-size", "256mb", "--client-output-buffer-limit", "replica", "0", "0", "0"];
    let Some(other) = Master::start(program, &workspace.path("other"), &options) else { return };
    let node = Node::start();
    node.client().line("CONFIG SET repl-backlog-size 64mb");
    let (tembo, others) = (node.client().patient(), other.client().patient());
    let (port, mut master, mut replica) = match tembo_leads {
        true => (node.port, tembo, others),
        false => (other.port, others, tembo),
    };
    let keys = keys();
    let begun = Instant::now();
    fill(&mut master, keys);
    let filled = begun.elapsed();
    let writing = Writing::start(port, 23);
    replica.line(&format!("REPLICAOF 127.0.0.1 {port}"));
    let copied = wait_for_link(&mut replica, keys);
    let count = writing.end();
    // Keys of a short life end, by the word of the master.
    std::thread::sleep(Duration::from_millis(1500));
    master.line("SET last v");
    wait_until_equal(&mut master, &mut replica);
    for database in DATABASES {
        replica.line(&format!("SELECT {database}"));
        assert_eq!(replica.line("DBSIZE"), Value::Integer(keys as i64 / 2), "{database}");
    }
    let mut theirs = other.client().patient();
    assert_eq!(node.digest(&other), theirs.line("DEBUG DIGEST"), "the data differ");
    assert_eq!(master.info("sync_full"), "1");
    println!(
        "{} {} Tembo: {keys} keys, written in {filled:.1?}, copied in {copied:.1?} beside {count} commands",
        program.file_name().unwrap_or_default().display(),
        if tembo_leads { "follows" } else { "leads" },
    );
    node.end();
}

fn copy_of_valkey(tembo_leads: bool) {
    match valkey() {
        Some(program) => copy(&program, tembo_leads),
        None => eprintln!("skipped: there is no valkey-server"),
    }
}

#[test]
fn redis_has_a_copy_of_tembo() {
    copy(Path::new("redis-server"), true);
}

#[test]
fn tembo_has_a_copy_of_redis() {
    copy(Path::new("redis-server"), false);
}

#[test]
fn valkey_has_a_copy_of_tembo() {
    copy_of_valkey(true);
}

#[test]
fn tembo_has_a_copy_of_valkey() {
    copy_of_valkey(false);
}
