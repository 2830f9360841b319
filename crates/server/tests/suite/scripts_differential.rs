//! Scripts on Tembo and on a real Redis, where there is one: the replies must be the same, in both protocols.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, show};

/// The seed of the random scripts, unless the environment gives another.
const SEED: u64 = 0x7e3b_0040;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const SCRIPTS: usize = 4000;

/// A script on each line.
const EDGES: &str = include_str!("scripts.txt");

const KEYS: &[&str] = &[
    "RPUSH klist b a c",
    "HSET khash f v",
    "SADD kset m",
    "ZADD kzset 1.5 m",
    "GEOADD kgeo 13.36 38.11 m",
    "SET kfloat 1.25",
];

/// A reply without the addresses of values.
fn shown(value: &Value) -> String {
    let text = show(value);
    let mut parts = text.split("0x");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str("0x");
        shown.push_str(part.trim_start_matches(|character: char| character.is_ascii_hexdigit()));
    }
    shown
}

fn both(tembo: &mut Client, redis: &mut Client, words: &[&[u8]], differences: &mut Vec<String>) {
    let (ours, theirs) = (shown(&tembo.run(words)), shown(&redis.run(words)));
    if ours != theirs {
        let text: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        differences.push(format!("{}\n  tembo {ours}\n  redis {theirs}", text.join(" ")));
    }
}

#[test]
fn scripts_get_the_replies_of_redis() {
    let Some((_redis, mut redis)) = start_redis() else { return };
    let server = Fixture::start();
    let mut tembo = server.client();
    let mut differences = Vec::new();
    for protocol in ["2", "3"] {
        for client in [&mut tembo, &mut redis] {
            client.ask(&format!("HELLO {protocol}"));
            client.ask("FLUSHALL");
            KEYS.iter().for_each(|line| drop(client.ask(line)));
        }
        for script in EDGES.lines() {
            // The file has no line ends and zeros within a script: those are escapes of Lua.
            let words = [&b"EVAL"[..], script.as_bytes(), b"1", b"k", b"a", b"b"];
            both(&mut tembo, &mut redis, &words, &mut differences);
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    server.check();
}

/// Values of Lua.
const VALUES: &[&str] = &[
    "nil",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "42",
    "1.5",
    "-0.25",
    "1e10",
    "2^31",
    "2^53",
    "''",
    "'a'",
    "'10'",
    "'x y'",
    "{}",
    "{1,2,3}",
    "{1,{2,'b'}}",
    "{a=1}",
    "{'x',nil,'z'}",
    "{ok='S'}",
    "{err='E x'}",
    "KEYS",
    "ARGV",
    "ARGV[1]",
    "cjson.null",
    "{{},{{}}}",
    "'\\0\\255'",
    "'\\n\"'",
];

/// Expressions: V is a value, C a call of a command.
const EXPRESSIONS: &[&str] = &[
    "V",
    "V",
    "C",
    "C",
    "C",
    "{V,V}",
    "{C,C}",
    "tostring(C)",
    "type(C)",
    "#tostring(V)",
    "cjson.encode(V)",
    "cjson.encode({V,V})",
    "cjson.decode(cjson.encode(V))",
    "cmsgpack.pack(V)",
    "cmsgpack.pack({V,V})",
    "cmsgpack.unpack(cmsgpack.pack(V))",
    "{cmsgpack.unpack(cmsgpack.pack(V,V))}",
    "struct.pack('>IhB',V,V,V)",
    "struct.pack('s',V)",
    "{struct.unpack('>IhB',struct.pack('>IhB',V,1,V))}",
    "bit.band(V,V)",
    "bit.tohex(V)",
    "bit.bxor(V,V)",
    "bit.arshift(V,3)",
    "string.format('%s|%s',tostring(V),V)",
    "string.format('%d',V)",
    "string.format('%q',V)",
    "string.rep(V,3)",
    "string.find(V,V)",
    "string.gsub(V,'%w','<%0>')",
    "string.sub(V,2)",
    "V == V",
    "V .. V",
    "V + V",
    "V < V",
    "not V",
    "V and V or V",
    "redis.sha1hex(V)",
    "redis.status_reply(V)",
    "redis.error_reply(V)",
    "{pcall(redis.call,V)}",
    "{pcall(error,V)}",
    "tonumber(V)",
    "math.floor(V)",
    "math.random(V)",
    "table.concat(V,',')",
    "unpack(V)",
    "select('#',V,V)",
    "next(V)",
    "ipairs(V)",
    "string.upper(V)",
    "string.byte(V)",
];

/// Commands, as the arguments of `redis.call`.
const COMMANDS: &[&str] = &[
    "'get','K'",
    "'set','K',V",
    "'incr','K'",
    "'append','K',V",
    "'del','K'",
    "'lpush','K',V,V",
    "'rpop','K'",
    "'lrange','K',0,-1",
    "'hset','K','f',V",
    "'hgetall','K'",
    "'hget','K','f'",
    "'sadd','K',V",
    "'smembers','K'",
    "'scard','K'",
    "'zadd','K',V,'m'",
    "'zscore','K','m'",
    "'zrange','K',0,-1,'withscores'",
    "'type','K'",
    "'exists','K'",
    "'strlen','K'",
    "'mget','K','K'",
    "'getset','K',V",
    "'ttl','K'",
    "'expire','K',V",
    "'persist','K'",
    "'rename','K','K'",
    "'dbsize'",
    "'ping'",
    "'echo',V",
    "'nosuch'",
    "'get'",
    "'select',V",
    "'setrange','K',1,V",
    "'incrbyfloat','K',V",
    "'llen','K'",
    "'lindex','K',0",
    "'setnx','K',V",
    "'getdel','K'",
    "'bitcount','K'",
    "'pfadd','K',V",
    "'pfcount','K'",
    "'copy','K','K'",
    "'unlink','K','K'",
    "'subscribe','x'",
    "'multi'",
];

/// Statements: E is an expression.
const STATEMENTS: &[&str] = &[
    "local x = E",
    "C",
    "C",
    "C",
    "if E then C else C end",
    "for i = 1, 3 do C end",
    "local t = {E} t[2] = E",
    "pcall(function() C C error(V) end)",
    "if V then error(tostring(E)) end",
    "local a, b = E, E",
    "redis.setresp(3)",
    "redis.setresp(2)",
    "local r = P if type(r) == 'table' and r.err then C end",
    "local co = coroutine.wrap(function() return E end) co()",
    "do return E end",
    "for k, v in ipairs({V,V}) do C end",
    "local s = '' for w in ('a b c'):gmatch('%a') do s = s .. w end",
];

/// A random script. It raises texts only: an error whose table has no `err` ends Redis.
fn script(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(4) {
        text.push_str(random.pick(STATEMENTS));
        text.push(' ');
        if text.starts_with("do return") || text.contains(" do return") {
            break;
        }
    }
    text.push_str(random.pick(&[
        "return E",
        "return E",
        "return {E,E}",
        "error(tostring(E))",
        "return redis.pcall(A)",
        "",
    ]));
    // Each round of replacements has fewer letters to replace.
    for (letter, choices) in
        [("E", EXPRESSIONS), ("C", &["redis.call(A)", "redis.call(A)", "redis.pcall(A)"][..])]
    {
        text = replaced(&text, letter, choices, random);
    }
    text = replaced(&text, "P", &["redis.pcall(A)"], random);
    text = replaced(&text, "A", COMMANDS, random);
    text = replaced(&text, "K", &["k1", "k2", "k3"], random);
    replaced(&text, "V", VALUES, random)
}

/// A text in which each letter that stands alone is one of the choices.
fn replaced(text: &str, letter: &str, choices: &[&str], random: &mut Random) -> String {
    let mut out = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        let is_alone = !before.is_alphanumeric() && !after.is_alphanumeric();
        if letter.starts_with(character) && is_alone {
            out.push_str(random.pick(choices));
        } else {
            out.push(character);
        }
        before = character;
    }
    out
}

/// Shows the last script if a server ends.
struct Last<'a>(&'a str);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last script: {}", self.0);
        }
    }
}

#[test]
fn random_scripts_get_the_replies_of_redis() {
    let Some((_redis, mut redis)) = start_redis() else { return };
    let server = Fixture::start();
    let mut tembo = server.client();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let mut differences = Vec::new();
    for at in 0..SCRIPTS {
        let script = script(&mut random);
        let _last = Last(&script);
        if at % 50 == 0 {
            let hello = if random.below(2) == 0 { "HELLO 2" } else { "HELLO 3" };
            for client in [&mut tembo, &mut redis] {
                client.ask(hello);
                client.ask("FLUSHALL");
            }
        }
        both(
            &mut tembo,
            &mut redis,
            &[b"EVAL", script.as_bytes(), b"1", b"k1", b"a", b"7"],
            &mut differences,
        );
        for key in ["k1", "k2", "k3"] {
            both(&mut tembo, &mut redis, &[b"DUMP", key.as_bytes()], &mut Vec::new());
            both(&mut tembo, &mut redis, &[b"TYPE", key.as_bytes()], &mut differences);
        }
        if differences.len() >= 10 {
            break;
        }
    }
    assert!(differences.is_empty(), "{SEED_VARIABLE}={seed}:\n{}", differences.join("\n"));
    server.check();
}
