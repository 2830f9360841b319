//! The command table, as clients see it: what a real Redis, where there is one, says of the same commands.

use std::collections::{BTreeMap, BTreeSet};

use tembo_wire::Value;

use crate::peer::start_redis;
use crate::support::{Client, Fixture, show};

/// Rows that differ from those of Redis 7.0, and why.
const DIFFERENCES: &[(&str, &str)] = &[];

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap()).into_owned()
}

/// The names of all commands and subcommands.
fn names(client: &mut Client, filter: &str) -> BTreeSet<String> {
    let words: Vec<_> = format!("COMMAND LIST {filter}").split_whitespace().map(str::to_owned).collect();
    match client.run(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()) {
        Value::Array(names) | Value::Set(names) => names.iter().map(text).collect(),
        other => panic!("{other:?}"),
    }
}

/// A value with the elements of its sets in order.
fn ordered(value: &Value) -> String {
    match value {
        Value::Set(items) => {
            let mut items: Vec<_> = items.iter().map(ordered).collect();
            items.sort();
            format!("({})", items.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(ordered).collect::<Vec<_>>().join(" ")),
        Value::Map(pairs) => {
            let pairs = pairs.iter().filter(|(name, _)| show(name) != "$notes");
            let pairs: Vec<_> =
                pairs.map(|(name, value)| format!("{}={}", show(name), ordered(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        value => show(value),
    }
}

/// The parts of what COMMAND INFO says of a command.
fn info(client: &mut Client, name: &str) -> Vec<String> {
    let Value::Array(mut infos) = client.run(&[b"COMMAND", b"INFO", name.as_bytes()]) else { panic!() };
    match infos.pop() {
        Some(Value::Array(info)) => info[1..9].iter().map(ordered).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

/// The arguments that COMMAND DOCS tells of, by command and subcommand.
fn arguments(docs: &Value, found: &mut BTreeMap<String, String>) {
    let Value::Map(commands) = docs else { panic!("{docs:?}") };
    for (name, docs) in commands {
        let Value::Map(docs) = docs else { panic!("{docs:?}") };
        let part = |wanted: &str| docs.iter().find(|(name, _)| text(name) == wanted).map(|(_, value)| value);
        found.insert(text(name), part("arguments").map_or_else(String::new, ordered));
        for wanted in ["since", "group"] {
            found.insert(format!("{} {wanted}", text(name)), part(wanted).map_or_else(String::new, ordered));
        }
        if let Some(subcommands) = part("subcommands") {
            arguments(subcommands, found);
        }
    }
}

/// The arguments and groups of COMMAND DOCS that differ.
fn differences_of_docs(ours: &mut Client, theirs: &mut Client) -> Vec<String> {
    let [mut tembo, mut redis] = [BTreeMap::new(), BTreeMap::new()];
    arguments(&ours.run(&[b"COMMAND", b"DOCS"]), &mut tembo);
    arguments(&theirs.run(&[b"COMMAND", b"DOCS"]), &mut redis);
    let differs = |name: &String, tembo: &String| redis.get(name).filter(|redis| *redis != tembo).cloned();
    let pairs = tembo.iter().filter_map(|(name, tembo)| Some((name, tembo, differs(name, tembo)?)));
    pairs.map(|(name, tembo, redis)| format!("{name}: {tembo}, and {redis}")).collect()
}

/// The commands among `common` that a filter of COMMAND LIST gives on one side only.
fn differences_of_list(
    ours: &mut Client,
    theirs: &mut Client,
    filter: &str,
    common: &BTreeSet<String>,
) -> Vec<String> {
    let [tembo, redis] = [ours, theirs]
        .map(|client| names(client, filter).intersection(common).cloned().collect::<BTreeSet<_>>());
    tembo.symmetric_difference(&redis).map(|name| format!("{name} {filter}")).collect()
}

const CATEGORIES: &str = "keyspace read write set sortedset list hash string bitmap geo stream pubsub admin fast \
    slow blocking dangerous connection transaction scripting";

#[test]
fn the_table_says_what_redis_says() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    ours.ask("HELLO 3");
    theirs.ask("HELLO 3");
    let common: BTreeSet<_> = names(&mut ours, "").intersection(&names(&mut theirs, "")).cloned().collect();
    assert!(common.len() > 200, "{} commands", common.len());
    let mut differences = BTreeSet::new();
    for name in &common {
        const PARTS: [&str; 8] = ["arity", "flags", "first", "last", "step", "categories", "tips", "keys"];
        let both = info(&mut ours, name).into_iter().zip(info(&mut theirs, name));
        for (part, (tembo, redis)) in PARTS.into_iter().zip(both) {
            if tembo != redis {
                differences.insert(format!("{name} {part}: {tembo}, and {redis}"));
            }
        }
    }
    differences.extend(differences_of_docs(&mut ours, &mut theirs));
    for category in CATEGORIES.split(' ') {
        let filter = format!("FILTERBY ACLCAT {category}");
        differences.extend(differences_of_list(&mut ours, &mut theirs, &filter, &common));
    }
    for pattern in ["*pop*", "x*", "client|*", "[a-f]*", "GET*"] {
        let filter = format!("FILTERBY PATTERN {pattern}");
        let found = differences_of_list(&mut ours, &mut theirs, &filter, &common);
        assert!(found.is_empty(), "{found:?}");
    }
    let is_known = |text: &&String| DIFFERENCES.iter().any(|(known, _)| text.starts_with(known));
    let unknown: Vec<_> = differences.iter().filter(|text| !is_known(text)).collect();
    assert!(unknown.is_empty(), "{} differences:\n{unknown:#?}", unknown.len());
    let is_there = |known: &str| differences.iter().any(|text| text.starts_with(known));
    let gone: Vec<_> = DIFFERENCES.iter().filter(|(known, _)| !is_there(known)).collect();
    assert!(gone.is_empty(), "these are as in Redis now: {gone:?}");
    drop(redis);
}

/// Requests with keys at all the places where commands have them.
const WITH_KEYS: &[&str] = &[
    "GET a",
    "SET a 1",
    "SET a 1 GET",
    "SET a 1 EX 5 GET",
    "SETNX a 1",
    "MSET a 1 b 2",
    "MSETNX a 1 b 2",
    "MGET a b c",
    "GETSET a 1",
    "GETDEL a",
    "GETEX a EX 1",
    "APPEND a x",
    "INCR a",
    "INCRBYFLOAT a 1",
    "SETRANGE a 0 x",
    "LCS a b",
    "GETRANGE a 0 1",
    "STRLEN a",
    "SETEX a 1 x",
    "PSETEX a 1 x",
    "SUBSTR a 0 1",
    "DEL a b",
    "UNLINK a",
    "EXISTS a b",
    "TOUCH a",
    "TYPE a",
    "RENAME a b",
    "RENAMENX a b",
    "COPY a b",
    "MOVE a 1",
    "EXPIRE a 1",
    "PERSIST a",
    "TTL a",
    "OBJECT ENCODING a",
    "MEMORY USAGE a",
    "SORT a BY x STORE b",
    "SORT a",
    "SORT_RO a BY x",
    "WATCH a b",
    "HSET a f v",
    "HGET a f",
    "HDEL a f",
    "HGETALL a",
    "HINCRBY a f 1",
    "HLEN a",
    "HEXISTS a f",
    "HSETNX a f v",
    "HRANDFIELD a",
    "HSCAN a 0",
    "HSTRLEN a f",
    "HMSET a f v",
    "HMGET a f",
    "HKEYS a",
    "HVALS a",
    "SADD a x",
    "SREM a x",
    "SMOVE a b x",
    "SPOP a",
    "SCARD a",
    "SISMEMBER a x",
    "SMISMEMBER a x",
    "SMEMBERS a",
    "SINTER a b",
    "SINTERSTORE a b c",
    "SINTERCARD 2 a b",
    "SUNION a b",
    "SUNIONSTORE a b c",
    "SDIFF a b",
    "SDIFFSTORE a b c",
    "SRANDMEMBER a",
    "SSCAN a 0",
    "LPUSH a x",
    "RPUSH a x",
    "LPUSHX a x",
    "LPOP a",
    "RPOP a",
    "LLEN a",
    "LRANGE a 0 1",
    "LINDEX a 0",
    "LSET a 0 x",
    "LTRIM a 0 1",
    "LINSERT a BEFORE x y",
    "LREM a 0 x",
    "LPOS a x",
    "LMOVE a b LEFT LEFT",
    "RPOPLPUSH a b",
    "LMPOP 2 a b LEFT",
    "BLPOP a b 0",
    "BRPOP a b 0",
    "BLMOVE a b LEFT LEFT 0",
    "BRPOPLPUSH a b 0",
    "BLMPOP 0 2 a b LEFT",
    "BLMPOP 0 3 a b LEFT",
    "BLMPOP 0 9 a b LEFT",
    "ZADD a 1 x",
    "ZINCRBY a 1 x",
    "ZREM a x",
    "ZSCORE a x",
    "ZMSCORE a x",
    "ZCARD a",
    "ZRANK a x",
    "ZREVRANK a x",
    "ZCOUNT a 0 1",
    "ZLEXCOUNT a - +",
    "ZRANGE a 0 1",
    "ZRANGESTORE a b 0 1",
    "ZREVRANGE a 0 1",
    "ZRANGEBYSCORE a 0 1",
    "ZREMRANGEBYRANK a 0 1",
    "ZREMRANGEBYSCORE a 0 1",
    "ZREMRANGEBYLEX a - +",
    "ZPOPMIN a",
    "ZPOPMAX a",
    "ZMPOP 2 a b MIN",
    "BZPOPMIN a b 0",
    "BZPOPMAX a b 0",
    "BZMPOP 0 2 a b MIN",
    "ZRANDMEMBER a",
    "ZUNION 2 a b",
    "ZUNIONSTORE a 2 b c",
    "ZINTER 2 a b",
    "ZINTERSTORE a 2 b c",
    "ZINTERCARD 2 a b",
    "ZDIFF 2 a b",
    "ZDIFFSTORE a 2 b c",
    "ZSCAN a 0",
    "ZUNION 0 a",
    "ZUNION x a",
    "PING",
    "GET",
    "NOSUCH a",
    "SCAN 0",
    "PUBLISH a b",
    "EVAL x 0",
    "CONFIG GET a",
    "OBJECT NOSUCH a",
    "OBJECT HELP",
];

#[test]
fn keys_and_their_flags_are_those_that_redis_tells() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    ours.ask("HELLO 3");
    theirs.ask("HELLO 3");
    let mut wrong = Vec::new();
    for name in ["GETKEYS", "GETKEYSANDFLAGS"] {
        for request in WITH_KEYS.iter().filter(|request| !request.starts_with("EVAL")) {
            let words: Vec<_> = ["COMMAND", name].into_iter().chain(request.split(' ')).collect();
            let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
            let (tembo, redis) = (ordered(&ours.run(&words)), ordered(&theirs.run(&words)));
            if tembo != redis {
                wrong.push(format!("{name} {request}: {tembo}, and {redis}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{wrong:#?}", wrong.len());
    drop(redis);
}
