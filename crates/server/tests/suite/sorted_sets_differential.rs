//! Sorted sets around every border of size, on Tembo and on a real Redis, where there is one: the replies
//! must be the same, but for an order that is chance.
//!
//! The borders are Redis's (128 members, 64 bytes) and those of the pool: the longest packed payload, lengths
//! of one and of two bytes, the longest member that a key of the pool holds as a whole. A score of -0 is
//! taken
//! for 0, as Redis shows it as one or the other, by the encoding.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0052;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const ROUNDS: usize = 2500;

/// Member numbers in use, by key: each size class has its own.
const SPANS: [usize; 6] = [4, 23, 30, 127, 133, 600];
const LENGTHS: [usize; 9] = [1, 10, 63, 64, 65, 127, 128, 511, 512];
const SCORES: &[&str] = &[
    "0",
    "1",
    "1",
    "2",
    "2.5",
    "-1",
    "-2.25",
    "0.1",
    "1e5",
    "1e-7",
    "3.14159",
    "123456789012",
    "inf",
    "-inf",
];
const WEIGHTS: &[&str] = &["1", "0", "2", "-1", "0.5", "inf"];

struct Draw<'r> {
    random: &'r mut Random,
}

impl Draw<'_> {
    fn key(&mut self, kind: &str) -> (String, usize) {
        let class = self.random.below(SPANS.len());
        (format!("{kind}:{class}"), SPANS[class])
    }

    /// A member. One that is longer than the index's limit differs from others in its first bytes.
    fn member(&mut self, span: usize) -> String {
        let number = self.random.below(span);
        let mut member = format!("m{number}");
        if self.random.below(12) == 0 {
            let long = if number.is_multiple_of(2) { 513 } else { 1500 };
            let len = if self.random.below(4) == 0 { long } else { self.random.pick(&LENGTHS) };
            (member.len()..len).for_each(|_| member.push('x'));
        }
        member
    }

    fn score(&mut self, flat: bool) -> String {
        match self.random.below(4) {
            _ if flat => "0".to_owned(),
            0 => self.random.below(100_000).to_string(),
            1 => format!("{}.{}", self.random.below(50), self.random.below(100_000)),
            _ => self.random.pick(SCORES).to_owned(),
        }
    }

    fn score_end(&mut self) -> String {
        let score = self.score(false);
        if self.random.below(3) == 0 { format!("({score}") } else { score }
    }

    fn name_end(&mut self, span: usize) -> String {
        match self.random.below(8) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2..5 => format!("({}", self.member(span)),
            _ => format!("[{}", self.member(span)),
        }
    }

    fn rank(&mut self, span: usize) -> String {
        (self.random.below(2 * span + 4) as i64 - span as i64 - 2).to_string()
    }

    /// Two ends, in the order that gives something more often than not, and the option for it.
    fn range(&mut self, by: usize, span: usize) -> [String; 2] {
        match by {
            0 => [self.rank(span), self.rank(span)],
            1 => [self.score_end(), self.score_end()],
            _ => [self.name_end(span), self.name_end(span)],
        }
    }

    fn limit(&mut self) -> String {
        match self.random.below(3) {
            0 => format!(" LIMIT {} {}", self.random.below(20) as i64 - 1, self.random.below(20) as i64 - 1),
            _ => String::new(),
        }
    }

    fn option(&mut self, words: &[&str]) -> String {
        if self.random.below(2) == 0 { format!(" {}", self.random.pick(words)) } else { String::new() }
    }

    fn add(&mut self, key: &str, span: usize, flat: bool) -> String {
        let count = [1, 1, 2, 5, 40][self.random.below(5)];
        let options = match self.random.below(3) {
            0 => self.option(&["NX", "XX", "GT", "LT", "CH", "XX CH", "GT CH", "XX LT", "NX CH"]),
            _ => String::new(),
        };
        let pairs: String =
            (0..count).map(|_| format!(" {} {}", self.score(flat), self.member(span))).collect();
        format!("ZADD {key}{options}{pairs}")
    }

    fn ranged(&mut self, key: &str, span: usize, flat: bool) -> String {
        let by = if flat { 2 } else { self.random.below(2) };
        let [a, b] = self.range(by, span);
        let scores = if by < 2 { self.option(&["WITHSCORES"]) } else { String::new() };
        let limit = if by > 0 { self.limit() } else { String::new() };
        let names = [
            ["ZRANGE", "ZRANGE", "ZREVRANGE"],
            ["ZRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE"],
            ["ZRANGE", "ZRANGEBYLEX", "ZREVRANGEBYLEX"],
        ];
        match self.random.below(6) {
            0 => format!("{} {key} {a} {b}", ["ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREMRANGEBYLEX"][by]),
            1 if by > 0 => format!("{} {key} {a} {b}", ["", "ZCOUNT", "ZLEXCOUNT"][by]),
            2 => {
                let target = self.key(if flat { "flat" } else { "zset" }).0;
                format!("ZRANGESTORE {target} {key} {a} {b}{}{limit}", ["", " BYSCORE", " BYLEX"][by])
            }
            3 => {
                let reversed = self.option(&["REV"]);
                format!("ZRANGE {key} {a} {b}{}{reversed}{limit}{scores}", ["", " BYSCORE", " BYLEX"][by])
            }
            _ => format!("{} {key} {a} {b}{limit}{scores}", self.random.pick(&names[by][1..])),
        }
    }

    fn combined(&mut self) -> String {
        let count = 1 + self.random.below(3);
        let keys: String = (0..count)
            .map(|_| {
                let kind = self.random.pick(&["zset", "zset", "set", "flat"]);
                format!(" {}", self.key(kind).0)
            })
            .collect();
        let weights: String = (0..count).map(|_| format!(" {}", self.random.pick(WEIGHTS))).collect();
        let weights = if self.random.below(3) == 0 { format!(" WEIGHTS{weights}") } else { String::new() };
        let aggregate = self.option(&["AGGREGATE SUM", "AGGREGATE MIN", "AGGREGATE MAX"]);
        let scores = self.option(&["WITHSCORES"]);
        let target = self.key("zset").0;
        match self.random.below(7) {
            0 => format!("ZUNION {count}{keys}{weights}{aggregate}{scores}"),
            1 => format!("ZINTER {count}{keys}{weights}{aggregate}{scores}"),
            2 => format!("ZDIFF {count}{keys}{scores}"),
            3 => format!("ZINTERCARD {count}{keys}{}", self.option(&["LIMIT 3", "LIMIT 0"])),
            4 => format!("ZUNIONSTORE {target} {count}{keys}{weights}{aggregate}"),
            5 => format!("ZINTERSTORE {target} {count}{keys}{weights}{aggregate}"),
            _ => format!("ZDIFFSTORE {target} {count}{keys}"),
        }
    }

    fn command(&mut self) -> String {
        let flat = self.random.below(4) == 0;
        let (key, span) = self.key(if flat { "flat" } else { "zset" });
        let member = self.member(span);
        match self.random.below(25) {
            0 if self.random.below(8) == 0 => format!("DEL {key}"),
            0..8 => self.add(&key, span, flat),
            8 => format!("ZREM {key} {member} {} {}", self.member(span), self.member(span)),
            9 if !flat => format!("ZINCRBY {key} {} {member}", self.score(false)),
            9 => format!("ZCARD {key}"),
            10 => format!("ZMSCORE {key} {member} {}", self.member(span)),
            11 => format!("{} {key} {member}", self.random.pick(&["ZRANK", "ZREVRANK", "ZSCORE"])),
            12..17 => self.ranged(&key, span, flat),
            17 => {
                let name = self.random.pick(&["ZPOPMIN", "ZPOPMAX"]);
                format!("{name} {key}{}", self.option(&["1", "3", "0"]))
            }
            18 => {
                let options = self.option(&["COUNT 1", "COUNT 4"]);
                format!("ZMPOP 2 {key} {} {}{options}", self.key("zset").0, self.random.pick(&["MIN", "max"]))
            }
            19 => format!("OBJECT ENCODING {key}"),
            24 => {
                let other = self.key("zset").0;
                match self.random.below(3) {
                    0 => format!("BZPOPMIN {other} {key} 0.001"),
                    1 => format!("BZPOPMAX {other} {key} 0.001"),
                    _ => format!("BZMPOP 0.001 2 {key} {other} max COUNT 3"),
                }
            }
            20 if self.random.below(3) == 0 => format!("COPY {key} {} REPLACE", self.key("zset").0),
            20 => format!("SADD {} {member}", self.key("set").0),
            _ => self.combined(),
        }
    }
}

/// The reply, where a score of -0 is 0. No member is called that.
fn shown(value: &Value) -> String {
    let mut text = show(value);
    for (mark, end) in [("$", " "), ("$", "]"), (",", " "), (",", "]")] {
        text = text.replace(&format!("{mark}-0{end}"), &format!("{mark}0{end}"));
    }
    if text == "$-0" || text == ",-0" { text.replace('-', "") } else { text }
}

fn run(client: &mut Client, commands: &[String]) -> Vec<Value> {
    let encode = |words: &String| request(&words.split(' ').map(|word| word.as_bytes()).collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
    commands.iter().map(|_| client.receive()).collect()
}

#[test]
fn sorted_sets_of_every_size_get_the_replies_of_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let mut server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for protocol in ["HELLO 2", "HELLO 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        ours.ask(protocol);
        theirs.ask(protocol);
        for round in 0..ROUNDS {
            let mut draw = Draw { random: &mut random };
            let commands: Vec<_> = (0..8).map(|_| draw.command()).collect();
            let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
            for (command, (tembo, redis)) in commands.iter().zip(replies) {
                assert_eq!(
                    shown(&tembo),
                    shown(&redis),
                    "{SEED_VARIABLE}={seed}, {protocol}, round {round}: {command}"
                );
            }
        }
        server.restart();
    }
    server.check();
}

/// Each border, from below and from above, on sorted sets of their own.
fn border_commands() -> Vec<String> {
    let mut commands = Vec::new();
    for count in (1..60).chain(125..132) {
        let key = format!("count:{count}");
        (0..count).for_each(|number| commands.push(format!("ZADD {key} {} member{number}", number % 7)));
        commands.extend([
            format!("OBJECT ENCODING {key}"),
            format!("ZRANGE {key} 0 -1 WITHSCORES"),
            format!("ZREVRANGEBYSCORE {key} 5 (1 LIMIT 1 30"),
            format!("ZRANK {key} member5"),
            format!("ZADD {key} CH 3 member0 9 member1"),
            format!("ZRANGE {key} 0 -1 REV"),
            format!("ZREMRANGEBYRANK {key} 1 -2"),
            format!("ZRANGE {key} 0 -1 WITHSCORES"),
        ]);
    }
    for len in (60..70).chain(120..135).chain(485..530) {
        let (text, key) = ("x".repeat(len), format!("length:{len}"));
        commands.extend([
            format!("ZADD {key} 1 {text} 1 a 1 y"),
            format!("OBJECT ENCODING {key}"),
            format!("ZRANGEBYLEX {key} [{text} +"),
            format!("ZRANGEBYLEX {key} - ({text}"),
            format!("ZLEXCOUNT {key} ({text} [z"),
            format!("ZINCRBY {key} 0.5 {text}"),
            format!("ZRANK {key} {text}"),
            format!("ZREM {key} {text}"),
            format!("ZRANGE {key} 0 -1 WITHSCORES"),
            format!("ZPOPMAX {key} 2"),
            format!("EXISTS {key}"),
        ]);
    }
    commands
}

#[test]
fn every_border_of_a_sorted_set_is_crossed_as_in_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let server = Fixture::start();
    for protocol in ["HELLO 2", "HELLO 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        for client in [&mut ours, &mut theirs] {
            client.ask(protocol);
            client.ask("FLUSHALL");
        }
        for commands in border_commands().chunks(50) {
            let replies = run(&mut ours, commands).into_iter().zip(run(&mut theirs, commands));
            for (command, (tembo, redis)) in commands.iter().zip(replies) {
                assert_eq!(show(&tembo), show(&redis), "{command}");
            }
        }
    }
    server.check();
}
