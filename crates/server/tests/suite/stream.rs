//! The stream of effects beside Redis's own, for the same commands.
//!
//! The differences that there may be, which [`normal`] takes away:
//!
//! - Redis removes a key by UNLINK or DEL as its settings say; it is DEL here.
//! - Times that count from now on differ by milliseconds.
//! - LTRIM that trims nothing is told here.
//!
//! Others are not in the commands below: Redis adds the NX, XX, GT or LT of EXPIRE to its PEXPIREAT, RESTORE
//! has REPLACE here always, and a key whose time has come is told in one MULTI with the command that names
//! it.
//!
//! The long form has `TEMBO_COMMANDS=100000`; `TEMBO_STREAM_SEED` chooses other commands.

use crate::peer::{Random, start_redis};
use crate::replicas::Replica;
use crate::support::Fixture;

/// Forms of commands; K is a key, V a value.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K V EX 1000",
    "SET K V PX 1000000",
    "SET K V KEEPTTL",
    "SET K V NX",
    "SETEX K 1000 V",
    "PSETEX K 1000000 V",
    "GETSET K V",
    "GETDEL K",
    "GETEX K EX 1000",
    "GETEX K PERSIST",
    "INCR K",
    "INCRBYFLOAT K 0.5",
    "APPEND K V",
    "SETRANGE K 3 V",
    "SETBIT K 7 1",
    "MSET K V K V",
    "MSETNX K V K V",
    "DEL K K",
    "UNLINK K",
    "EXPIRE K 1000",
    "PEXPIREAT K 9999999999999",
    "EXPIREAT K 1",
    "PERSIST K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "MOVE K 1",
    "LPUSH K V V",
    "RPUSHX K V",
    "LPOP K",
    "RPOP K 2",
    "LMPOP 2 K K LEFT COUNT 2",
    "LMOVE K K LEFT RIGHT",
    "RPOPLPUSH K K",
    "BLPOP K K 0.001",
    "BRPOPLPUSH K K 0.001",
    "BLMOVE K K RIGHT LEFT 0.001",
    "LSET K 0 V",
    "LREM K 0 V",
    "LTRIM K 0 2",
    "LINSERT K BEFORE V V",
    "SADD K V V",
    "SREM K V",
    "SPOP K 1000",
    "SMOVE K K V",
    "SUNIONSTORE K K K",
    "SDIFFSTORE K K K",
    "HSET K f V g V",
    "HSETNX K f V",
    "HDEL K f",
    "HINCRBY K n 2",
    "HINCRBYFLOAT K n 0.5",
    "ZADD K 1 V 2 V",
    "ZADD K XX CH 5 V",
    "ZINCRBY K 2 V",
    "ZREM K V",
    "ZPOPMIN K",
    "ZMPOP 1 K MAX COUNT 2",
    "BZPOPMIN K 0.001",
    "ZUNIONSTORE K 2 K K",
    "ZRANGESTORE K K 0 1",
    "ZREMRANGEBYRANK K 0 0",
    "PFADD K V",
    "PFMERGE K K",
    "GEOADD K 1 2 V",
    "BITOP NOT K K",
    "BITFIELD K INCRBY u8 0 1",
    "SORT K ALPHA STORE K",
    "PUBLISH channel V",
    "SPUBLISH channel V",
    "SELECT 0",
    "SELECT 1",
    "MULTI",
    "EXEC",
    "GET K",
    "TYPE K",
];

/// Effects that only one side tells, since nothing changes.
const KNOWN: &[&str] = &["LTRIM"];

/// A line without what may differ.
fn normal(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    for word in &mut words {
        let is_soon = word.parse::<i64>().is_ok_and(|number| (0..2_000_000).contains(&(number - now)));
        if is_soon && word.len() >= 13 {
            *word = "soon".to_owned();
        }
    }
    let name = words[0].to_ascii_uppercase();
    words[0] = if name == "UNLINK" { "DEL".to_owned() } else { name };
    words.join(" ").replace(" pxat ", " PXAT ").replace(" keepttl", " KEEPTTL")
}

/// The effects of each command, which is followed by a message: each with its database.
fn segments(lines: Vec<String>) -> Vec<Vec<String>> {
    let (mut segments, mut segment, mut database) = (Vec::new(), Vec::new(), String::new());
    for line in lines {
        match line.split_once(' ') {
            Some(("SELECT", number)) => database = number.to_owned(),
            Some((_, message)) if message.starts_with("mark ") => segments.push(std::mem::take(&mut segment)),
            // Redis tells signs of life like commands, with a database.
            _ if line.eq_ignore_ascii_case("PING") => {}
            _ => segment.push(format!("{database}: {}", normal(&line))),
        }
    }
    segments
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

#[test]
fn the_stream_is_that_of_redis() {
    let Some((_redis, mut theirs)) = start_redis() else { return };
    theirs.talk("CONFIG SET repl-diskless-sync-delay 0 => +OK");
    let server = Fixture::start();
    let mut ours = server.client();
    for client in [&mut ours, &mut theirs] {
        // The replicas say nothing until the end.
        client.talk("CONFIG SET repl-timeout 3600 => +OK");
    }
    let (mut our_replica, mut their_replica) = (Replica::connect(&ours), Replica::connect(&theirs));
    our_replica.copy();
    their_replica.copy();
    let (commands, seed) = (number("TEMBO_COMMANDS", 10_000), number("TEMBO_STREAM_SEED", 20_261_126));
    let mut random = Random(seed);
    let mut sent = Vec::new();
    for number in 0..commands {
        let template = random.pick(TEMPLATES);
        let words = template.split(' ').map(|word| match word {
            "K" => format!("k{}", random.below(12)),
            "V" => format!("{}", random.below(9)),
            word => word.to_owned(),
        });
        let line = words.collect::<Vec<_>>().join(" ");
        for client in [&mut ours, &mut theirs] {
            client.ask(&line);
            client.ask(&format!("PUBLISH mark {number}"));
        }
        sent.push(line);
    }
    for client in [&mut ours, &mut theirs] {
        client.ask("DISCARD");
        client.ask("SELECT 0");
        client.ask("SET end 1");
    }
    let ours = segments(our_replica.until("SET end 1"));
    let theirs = segments(their_replica.until("SET end 1"));
    assert_eq!(ours.len(), theirs.len());
    let (mut differences, mut equal) = (Vec::new(), 0);
    for (our, their) in ours.iter().zip(&theirs) {
        let name = |line: &String| line.split(' ').nth(1).unwrap_or_default().to_owned();
        let first = our.iter().chain(their).map(name).find(|name| name != "MULTI" && name != "EXEC");
        match our == their {
            true => equal += usize::from(!our.is_empty()),
            false if first.as_ref().is_some_and(|name| KNOWN.contains(&name.as_str())) => {}
            false => differences.push(format!("{our:?}, and Redis {their:?}")),
        }
    }
    assert!(differences.is_empty(), "{} differences: {differences:#?}", differences.len());
    println!("seed {seed}: {commands} commands, {equal} with equal effects");
    assert!(equal > sent.len() * 3 / 10, "{equal} of {} commands have effects", sent.len());
    server.check();
}
