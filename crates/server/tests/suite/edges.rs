//! Every command with arguments at the edge, on Tembo and on a real Redis, where there is one: the replies
//! must be the same.
//!
//! Each command is tried with random arguments out of a list of awkward ones, in RESP2, in RESP3 and as
//! inline commands. The known differences stand in [`treatment`], and in `docs/guide/server.md`.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

/// The seed of the random arguments, unless the environment gives another.
const SEED: u64 = 0x7e3b_0004;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
/// How often each command is tried in each way of sending.
const TRIES: usize = 50;

const KEYS: &[&[u8]] = &[b"k0", b"k1", b"k2", b"", b"k\0", b"a b"];
const ARGUMENTS: &[&[u8]] = &[
    b"",
    b"0",
    b"1",
    b"-1",
    b"00",
    b"-0",
    b"+1",
    b" 1",
    b"1 ",
    b"1.5",
    b".5",
    b"-2.",
    b"1e3",
    b"0x10",
    b"0X1p-2",
    b"0x",
    b"nan",
    b"inf",
    b"-INF",
    b"infinity",
    b"10000000000000000000",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"4294967296",
    b"2147483648",
    b"1\0",
    b"\0",
    b"a\0b",
    b"a b",
    b"\t",
    b"x'y\"z",
    b"\r\n-ERR forged\r\n",
    b"\xff\xfe",
    b"*",
    b"[",
    b"\\",
    b"k?",
    b"NX",
    b"xx",
    b"gt",
    b"LT",
    b"EX",
    b"px",
    b"EXAT",
    b"pxat",
    b"KEEPTTL",
    b"get",
    b"GET",
    b"set",
    b"PERSIST",
    b"DB",
    b"replace",
    b"ABSTTL",
    b"idletime",
    b"FREQ",
    b"MATCH",
    b"count",
    b"TYPE",
    b"string",
    b"hash",
    b"WITHVALUES",
    b"LIMIT",
    b"BYSCORE",
    b"bylex",
    b"rev",
    b"WITHSCORES",
    b"weights",
    b"AGGREGATE",
    b"max",
    b"INCR",
    b"ch",
    b"[a",
    b"(1",
    b"+",
    b"-",
    b"SAMPLES",
    b"ASYNC",
    b"sync",
    b"SETNAME",
    b"AUTH",
    b"default",
    b"yes",
    b"FILTERBY",
    b"ACLCAT",
    b"pattern",
    b"ID",
    b"LEN",
    b"BIT",
    b"byte",
    b"AND",
    b"not",
    b"u8",
    b"i64",
    b"#1",
    b"OVERFLOW",
    b"sat",
    b"INCRBY",
    b"ENCODING",
    b"decode",
    b"km",
    b"FROMMEMBER",
    b"fromlonlat",
    b"BYRADIUS",
    b"bybox",
    b"store",
    b"STOREDIST",
    b"any",
    b"desc",
    b"WITHDIST",
    b"normal",
    b"timeout",
    b"maxclients",
    b"proto-max-bulk-len",
    b"tcp-keepalive",
    b"databases",
    b"1kb",
    b"nosuch",
    b"no\0such",
    b"IDX",
    b"MINMATCHLEN",
    b"WITHMATCHLEN",
];

/// How a reply is compared.
#[derive(PartialEq)]
enum Treatment {
    Exact,
    /// Success says something of the server.
    Errors,
    /// A time, or how long until then.
    Time,
    /// A float beyond what 80 bits hold exactly.
    Float,
    /// Elements in any order.
    Unordered,
    Skip,
}

fn treatment(args: &[Vec<u8>]) -> Treatment {
    let name = args[0].to_ascii_lowercase();
    let sub = args.get(1).map(|arg| arg.to_ascii_lowercase()).unwrap_or_default();
    let word = |index: usize| args.get(index).map(Vec::as_slice).unwrap_or_default();
    match (&name[..], &sub[..]) {
        (b"slowlog", b"get" | b"len")
        | (b"latency", b"latest" | b"history" | b"doctor" | b"graph" | b"histogram") => Treatment::Errors,
        // `tracking.rs` compares it: a client that tracks gets messages between replies.
        (b"client", b"tracking") => Treatment::Skip,
        (b"lolwut", _) => Treatment::Errors,
        (b"memory", b"stats" | b"doctor" | b"malloc-stats")
        | (b"acl", b"genpass" | b"log" | b"cat" | b"help") => Treatment::Errors,
        (b"client", b"reply" | b"pause") => Treatment::Skip,
        // Subscribers: `pubsub.rs` compares them.
        (b"subscribe" | b"psubscribe" | b"ssubscribe", _) => Treatment::Skip,
        (b"unsubscribe" | b"punsubscribe" | b"sunsubscribe", _) if args.len() > 2 => Treatment::Skip,
        // Redis does not have them.
        _ if name.starts_with(b"tembo.") || name == b"clusterx" || name == b"waitaof" => Treatment::Skip,
        // They would end the connection or the server, or wait.
        (b"shutdown" | b"quit" | b"debug" | b"reset" | b"monitor", _) => Treatment::Skip,
        // Saves of the other server take time, and a replica refuses most of what follows.
        (b"save" | b"bgsave" | b"lastsave" | b"replicaof" | b"slaveof", _) => Treatment::Skip,
        // They make a replica of the connection, or wait for one.
        (b"psync" | b"sync" | b"replconf" | b"wait", _) => Treatment::Skip,
        (b"blpop" | b"brpop" | b"blmove" | b"brpoplpush" | b"blmpop", _)
        | (b"bzpopmin" | b"bzpopmax" | b"bzmpop", _) => Treatment::Skip,
        (b"client", b"kill" | b"setinfo" | b"no-evict") | (b"script", b"debug") => Treatment::Skip,
        (
            b"client" | b"object" | b"memory" | b"config" | b"command" | b"function" | b"module" | b"script"
            | b"pubsub" | b"slowlog" | b"latency",
            b"help",
        ) => Treatment::Errors,
        // The two keep different facts about a key: docs/guide/server.md.
        (b"object", b"freq" | b"idletime" | b"encoding" | b"refcount") => Treatment::Skip,
        (b"memory", b"usage") | (b"config", b"get") | (b"client", b"list" | b"info" | b"id") => {
            Treatment::Errors
        }
        (b"command", b"" | b"count" | b"docs" | b"info" | b"list") => Treatment::Errors,
        // A command that there is only in Redis.
        (b"command", b"getkeys" | b"getkeysandflags") if word(2).eq_ignore_ascii_case(b"sync") => {
            Treatment::Skip
        }
        // When expired keys are removed differs.
        (b"info" | b"time" | b"randomkey" | b"hello" | b"keys" | b"dbsize", _) => Treatment::Errors,
        (b"scan", b"0") => Treatment::Errors,
        // The order of elements may differ: `dump.rs` compares them.
        (b"dump", _) => Treatment::Errors,
        (b"scan", _) => Treatment::Skip,
        (b"ttl" | b"pttl" | b"expiretime" | b"pexpiretime", _) => Treatment::Time,
        (b"incrbyfloat" | b"hincrbyfloat", _) => Treatment::Float,
        (b"hscan" | b"sscan" | b"zscan", _) if !matches!(word(2), b"" | b"0") => Treatment::Skip,
        // It takes minutes in Redis.
        (b"pfselftest", _) if args.len() == 1 => Treatment::Skip,
        // Chance; and SPOP would leave different sets.
        (b"hrandfield" | b"srandmember" | b"zrandmember", _) => Treatment::Errors,
        (b"spop", _) => Treatment::Skip,
        (b"smembers" | b"sinter" | b"sunion" | b"sdiff" | b"sscan", _) => Treatment::Unordered,
        _ => Treatment::Exact,
    }
}

fn is_same(treatment: &Treatment, tembo: &Value, redis: &Value) -> bool {
    let number = |value: &Value| std::str::from_utf8(value.as_bytes()?).ok()?.parse::<f64>().ok();
    match treatment {
        Treatment::Errors if !redis.is_error() => !tembo.is_error(),
        Treatment::Time => match (tembo, redis) {
            (Value::Integer(a), Value::Integer(b)) if *a > 0 && *b > 0 => a.abs_diff(*b) <= 20_000,
            _ => tembo == redis,
        },
        Treatment::Float => match (number(tembo), number(redis)) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-15 * a.abs(),
            _ => tembo == redis,
        },
        Treatment::Unordered => sorted(tembo) == sorted(redis),
        _ => tembo == redis,
    }
}

/// A reply as text, with the elements of arrays and sets in order.
fn sorted(value: &Value) -> String {
    match value {
        Value::Array(items) | Value::Set(items) => {
            let mut items: Vec<_> = items.iter().map(sorted).collect();
            items.sort();
            format!("{}[{}]", if matches!(value, Value::Set(_)) { "~" } else { "" }, items.join(" "))
        }
        value => show(value),
    }
}

/// The names of all commands and subcommands, as words.
fn commands(client: &mut Client) -> Vec<Vec<Vec<u8>>> {
    let Value::Array(names) = client.run(&[b"COMMAND", b"LIST"]) else { panic!("no list") };
    let words =
        |name: Value| name.as_bytes().unwrap().split(|&byte| byte == b'|').map(<[u8]>::to_vec).collect();
    names.into_iter().map(words).collect()
}

fn arguments(random: &mut Random, command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut args = command.to_vec();
    for word in &mut args {
        if random.below(2) == 0 {
            word.make_ascii_uppercase();
        }
    }
    for at in 0..random.below(6) {
        let is_key = at == 0 && random.below(4) > 0 || random.below(4) == 0;
        args.push(random.pick(if is_key { KEYS } else { ARGUMENTS }).to_vec());
    }
    // Times that come during the test would let the two differ.
    let sets_time = command[0].windows(4).any(|part| part == b"expi" || part == b"etex" || part == b"sete");
    if sets_time || command[0] == b"set" {
        args.iter_mut()
            .filter(|arg| ["1", "0X1p-2"].iter().any(|word| word.as_bytes() == &arg[..]))
            .for_each(|arg| {
                *arg = b"100000".to_vec();
            });
    }
    args
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Resp2,
    Resp3,
    Inline,
}

fn encoded(way: Way, args: &[Vec<u8>]) -> Vec<u8> {
    if way != Way::Inline {
        return request(&args.iter().map(|arg| &arg[..]).collect::<Vec<_>>());
    }
    let quoted = |arg: &Vec<u8>| arg.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let words: Vec<_> = args.iter().map(|arg| format!("\"{}\"", quoted(arg))).collect();
    format!("{}\r\n", words.join(" ")).into_bytes()
}

#[test]
fn arguments_at_the_edge_get_the_replies_of_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let server = Fixture::start();
    let commands = commands(&mut server.client());
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let (mut differences, mut compared) = (Vec::new(), 0);
    for way in [Way::Resp2, Way::Resp3, Way::Inline] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        if way == Way::Resp3 {
            ours.ask("HELLO 3");
            theirs.ask("HELLO 3");
        }
        for attempt in 0..TRIES {
            for command in &commands {
                let mut args = arguments(&mut random, command);
                let mut kind = treatment(&args);
                if kind == Treatment::Skip || command[0] == b"hello" && args.len() > 1 && args[1] == b"0x10" {
                    continue;
                }
                if attempt == 0 {
                    // Once as it is, and without its last word.
                    args.truncate(command.len());
                    kind = treatment(&args);
                }
                let bytes = encoded(way, &args);
                ours.send_raw(&bytes);
                theirs.send_raw(&bytes);
                let (tembo, redis) = (ours.receive(), theirs.receive());
                compared += 1;
                if !is_same(&kind, &tembo, &redis) {
                    let shown: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                    differences.push(format!(
                        "{way:?} {shown:?}\n  tembo {}\n  redis {}",
                        show(&tembo),
                        show(&redis)
                    ));
                }
            }
            for client in [&mut ours, &mut theirs] {
                client.ask("DISCARD");
                client.ask("UNWATCH");
                client.ask("SELECT 0");
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
    differences.truncate(60);
    assert!(differences.is_empty(), "{SEED_VARIABLE}={seed}:\n{}", differences.join("\n"));
    server.check();
}
