//! Users on Tembo and on a real Redis, where there is one: the same rules get the same answers, are told in
//! the same words, and allow the same commands.
//!
//! Differences by design are kept out:
//!
//! - Redis tells single commands in the order of its table, which is another one in each run: the words of a
//!   line are compared in order.
//! - Commands that only one of them has, and selectors within selectors.

use std::collections::BTreeSet;

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_00ac;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";

type Args = Vec<Vec<u8>>;

fn args(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn words(text: &str) -> Args {
    args(&text.split(' ').collect::<Vec<_>>())
}

fn run(client: &mut Client, commands: &[Args]) -> Vec<Value> {
    let encode = |args: &Args| request(&args.iter().map(|arg| &arg[..]).collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
    commands.iter().map(|_| client.receive()).collect()
}

/// A reply, with the words of each of its texts in order.
fn in_order(value: &Value) -> String {
    let sorted = |text: String| {
        let is_common = |word: &&str| {
            let name = &word[1.min(word.len())..];
            !["tembo.", "clusterx", "client|setinfo", "waitaof"].iter().any(|own| name.starts_with(own))
        };
        // Parentheses are at other words, then.
        let text = text.replace('(', " ( ").replace(')', " ) ");
        let mut words: Vec<_> = text.split(' ').filter(is_common).collect();
        words.sort_unstable();
        words.join(" ")
    };
    match value {
        Value::Bulk(_) => sorted(show(value)),
        Value::Array(values) | Value::Set(values) => {
            format!("[{}]", values.iter().map(in_order).collect::<Vec<_>>().join(", "))
        }
        Value::Map(pairs) => {
            let show = |(name, value): &(Value, Value)| format!("{}={}", show(name), in_order(value));
            format!("{{{}}}", pairs.iter().map(show).collect::<Vec<_>>().join(", "))
        }
        value => show(value),
    }
}

const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "all",
    "ALL",
    "nosuch",
    "",
];

const COMMANDS: &[&str] = &[
    "get",
    "SET",
    "del",
    "mget",
    "client",
    "client|id",
    "Client|Kill",
    "config|get",
    "config",
    "select",
    "debug",
    "xadd",
    "xgroup",
    "xgroup|create",
    "sort",
    "eval",
    "publish",
    "subscribe",
    "flushall",
    "acl",
    "acl|whoami",
    "ping",
    "auth",
    "hset",
    "zadd",
    "lpush",
    "object|encoding",
    "object",
    "cluster|info",
    "command",
    "nosuch",
    "client|nosuch",
    "select|0",
    "select|1",
    "debug|sleep",
    "get|x",
    "client|id|x",
    "get|",
    "",
    "|",
    "a|b|c",
];

const PATTERNS: &[&str] =
    &["a*", "*", "b?", "[ab]*", "k:{1}", "", "x", "**", "a\\*", "%", "(", ")", "é", "a b", "~", "\"q"];

const HASHES: &[&str] = &[
    "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940",
    "148DE9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940",
    "148de9",
    "",
];

const PLAIN: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "clearselectors",
    "sanitize-payload",
    "skip-sanitize-payload",
    "On",
    "RESET",
    "foo",
    "",
    "+",
    "-",
    "@read",
    "nopasss",
];

/// A rule of a selector.
fn selector_rule(random: &mut Random) -> String {
    match random.below(10) {
        0..=2 => format!("{}@{}", random.pick(&["+", "-"]), random.pick(CATEGORIES)),
        3..=5 => format!("{}{}", random.pick(&["+", "-"]), random.pick(COMMANDS)),
        6 => format!("~{}", random.pick(PATTERNS)),
        7 => format!(
            "%{}{}{}",
            random.pick(&["R", "W", "RW", "WR", "r", "w", "RR", "", "X"]),
            random.pick(&["~", "~", "~", "~", "~", ""]),
            random.pick(PATTERNS)
        ),
        8 => format!("&{}", random.pick(PATTERNS)),
        _ => random.pick(PLAIN).to_owned(),
    }
}

/// Words of a rule: one, but for some selectors.
fn rule(random: &mut Random) -> Vec<String> {
    let secret = random.pick(&["p", "q", "", "a b"]);
    match random.below(20) {
        0 => vec![format!("{}{secret}", random.pick(&[">", "<"]))],
        1 => vec![format!("{}{}", random.pick(&["#", "!"]), random.pick(HASHES))],
        2 => {
            let rules: Vec<_> = (0..random.below(4)).map(|_| selector_rule(random)).collect();
            vec![format!("({})", rules.join(" "))]
        }
        3 => {
            let mut rules: Vec<_> = (0..1 + random.below(3)).map(|_| selector_rule(random)).collect();
            rules[0].insert(0, '(');
            if random.below(8) > 0 {
                rules.push(")".to_owned());
            }
            rules
        }
        _ => vec![selector_rule(random)],
    }
}

/// Rules with quotes between parentheses are split in another way by Redis, and of parentheses within others
/// it forgets the outer ones, which is refused here.
fn is_comparable(rules: &[String]) -> bool {
    let mut is_open = false;
    for rule in rules {
        if is_open && rule.starts_with('(') {
            return false;
        }
        is_open = (is_open || rule.starts_with('(')) && !rule.ends_with(')');
    }
    let has_selector = rules.iter().any(|rule| rule.starts_with('('));
    !has_selector
        || !rules.iter().any(|rule| rule.contains('"') || rule.contains('\u{e9}') || rule.ends_with("~("))
}

fn setuser(random: &mut Random, user: &str) -> Args {
    loop {
        let rules: Vec<_> = (0..1 + random.below(4)).flat_map(|_| rule(random)).collect();
        if is_comparable(&rules) {
            let rules: Vec<_> = rules.iter().map(|rule| &rule[..]).collect();
            return args(&[&["ACL", "SETUSER", user], &rules[..]].concat());
        }
    }
}

fn setuser_of_any(random: &mut Random) -> Args {
    let user = random.pick(&["u", "v"]);
    setuser(random, user)
}

const ASKED: &[&str] = &[
    "get a1",
    "get b1",
    "get x",
    "set a1 x",
    "set b1 x get",
    "mget a1 b1 x",
    "mset a1 1 x 2",
    "del a1 b1",
    "exists a1 zz",
    "copy a1 b1",
    "rename a1 x",
    "sort a1 store x",
    "sort a1 by w_* get # store b1",
    "sort_ro a1",
    "zunionstore a1 2 b1 x",
    "zunion 2 a1 b1",
    "zdiffstore x 1 a1",
    "lmpop 2 a1 b1 left",
    "blpop a1 b1 0",
    "blmove a1 b1 left left 0",
    "smove a1 b1 m",
    "pfcount a1 b1",
    "pfmerge a1 x",
    "bitop and a1 b1",
    "bitfield a1 get u8 0",
    "bitfield a1 set u8 0 1",
    "georadius a1 0 0 1 m store b1",
    "georadius a1 0 0 1 m store x storedist b1",
    "geosearchstore a1 b1 frommember m byradius 1 m",
    "eval return 2 a1 b1",
    "eval return 0",
    "evalsha_ro x 1 a1",
    "object encoding a1",
    "memory usage b1",
    "watch a1 x",
    "publish a1 m",
    "publish x m",
    "spublish b1 m",
    "subscribe a1 b1",
    "ssubscribe x",
    "psubscribe a*",
    "psubscribe *",
    "psubscribe b1",
    "unsubscribe x",
    "punsubscribe x",
    "client id",
    "client kill x",
    "client list",
    "config get x",
    "config set a b",
    "config",
    "select 0",
    "select 1",
    "debug sleep 0",
    "auth x",
    "hello",
    "ping",
    "ping x",
    "flushall",
    "acl whoami",
    "acl list",
    "multi",
    "exec",
    "xnosuch",
    "get",
    "client nosuch",
    "command",
    "command count",
    "keys *",
    "scan 0",
    "info",
    "wait 0 0",
    "replicaof no one",
    "tembo",
    "hset a1 f v",
    "hget x f",
    "lpush b1 v",
    "zadd a1 1 m",
    "append a1 x",
    "type x",
    "ttl a1",
    "dump a1",
    "lcs a1 b1",
    "sintercard 2 a1 b1",
    "quit",
    "reset",
];

/// Commands that run as the user of the connection.
const RUN: &[&str] = &[
    "ACL WHOAMI",
    "GET a1",
    "GET x",
    "SET a1 v",
    "MGET a1 x",
    "PUBLISH a1 m",
    "PING",
    "CLIENT ID2",
    "SELECT 0",
    "ECHO x",
    "SORT a1 BY w_*",
    "SORT a1 GET #",
    "MULTI",
    "EXEC",
    "DISCARD",
    "AUTH u p",
    "AUTH u q",
    "AUTH v p",
    "AUTH nobody p",
    "AUTH default x",
    "AUTH x",
    "RESET",
    "EXISTS a1",
    "DEL x",
    "OBJECT ENCODING x",
    "CONFIG GET acllog-max-len",
    "HELLO 2 AUTH nobody x",
    "ACL LOG RESET",
    "TYPE a1",
    "EVAL return(redis.pcall('get','x')) 0",
    "EVAL return(redis.acl_check_cmd('set','a1','x')) 0",
    "EVAL return(redis.pcall('publish','x','x')) 0",
];

#[test]
fn rules_are_those_of_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for protocol in ["HELLO 2", "HELLO 3"] {
        ours.ask(protocol);
        theirs.ask(protocol);
        let mut history: Vec<String> = Vec::new();
        for round in 0..300 {
            let user = random.pick(&["u", "v"]);
            let mut commands =
                vec![setuser(&mut random, user), words(&format!("ACL GETUSER {user}")), words("ACL LIST")];
            for _ in 0..12 {
                commands.push(words(&format!("ACL DRYRUN {user} {}", random.pick(ASKED))));
            }
            if round % 50 == 49 {
                commands.push(words("ACL DELUSER u v nobody"));
                commands.push(words("ACL USERS"));
            }
            let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
            for (args, (tembo, redis)) in commands.iter().zip(replies) {
                let shown =
                    args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
                let (tembo, redis) = (in_order(&tembo), in_order(&redis));
                let before = &history[history.len().saturating_sub(6)..];
                assert_eq!(
                    tembo, redis,
                    "{SEED_VARIABLE}={seed}, {protocol}, round {round}: {shown}\nbefore: {before:#?}"
                );
                if shown.starts_with("ACL SETUSER") {
                    history.push(shown);
                }
            }
        }
    }
    drop(redis);
    server.check();
}

#[test]
fn users_may_do_the_same() {
    let Some((redis, mut their_admin)) = start_redis() else { return };
    let server = Fixture::start();
    let mut our_admin = server.client();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed ^ 1);
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for admin in [&mut our_admin, &mut their_admin] {
        admin.talk("ACL SETUSER u on >p ~a* &a* +@all => +OK\nACL SETUSER v on nopass => +OK");
        admin.ask("SET a1 v");
    }
    for round in 0..400 {
        let change = setuser_of_any(&mut random);
        let (a, b) = (
            run(&mut our_admin, std::slice::from_ref(&change)),
            run(&mut their_admin, std::slice::from_ref(&change)),
        );
        assert_eq!(a, b, "{SEED_VARIABLE}={seed}, round {round}: {change:?}");
        if round % 4 == 0 {
            let open = words("ACL SETUSER u on >p ~a* &a* +@all -publish");
            run(&mut our_admin, std::slice::from_ref(&open));
            run(&mut their_admin, &[open]);
        }
        let commands: Vec<Args> = (0..6).map(|_| words(random.pick(RUN))).collect();
        let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
        for (args, (tembo, redis)) in commands.iter().zip(replies) {
            let shown = args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(show(&tembo), show(&redis), "{SEED_VARIABLE}={seed}, round {round}: {shown}");
        }
    }
    let [tembo, redis] = [&mut our_admin, &mut their_admin].map(denials);
    assert_eq!(tembo, redis, "{SEED_VARIABLE}={seed}");
    server.check();
}

/// The log of denials without times and clients.
fn denials(admin: &mut Client) -> Vec<String> {
    let Value::Array(entries) = admin.run(&[b"ACL", b"LOG", b"100"]) else { panic!() };
    let entry = |entry: &Value| match entry {
        Value::Array(fields) => fields[..10].iter().map(show).collect::<Vec<_>>().join(" "),
        other => panic!("{other:?}"),
    };
    entries.iter().map(entry).collect()
}

/// ACL CAT lists what Redis lists, of the commands that both have.
#[test]
fn categories_are_those_of_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let names = |client: &mut Client, words: &str| -> BTreeSet<String> {
        let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        let Value::Array(names) = client.run(&words) else { panic!() };
        names.iter().map(show).collect()
    };
    assert_eq!(ours.ask("ACL CAT"), theirs.ask("ACL CAT"));
    let common: BTreeSet<_> =
        names(&mut ours, "COMMAND LIST").intersection(&names(&mut theirs, "COMMAND LIST")).cloned().collect();
    let Value::Array(categories) = ours.run(&[b"ACL", b"CAT"]) else { panic!() };
    for category in &categories {
        let words = format!("ACL CAT {}", String::from_utf8_lossy(category.as_bytes().unwrap()));
        let both = [&mut ours, &mut theirs]
            .map(|client| names(client, &words).intersection(&common).cloned().collect::<BTreeSet<_>>());
        assert_eq!(both[0], both[1], "{words}");
    }
    drop(redis);
}
