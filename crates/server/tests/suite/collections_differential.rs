//! Hashes and sets around every border of size, on Tembo and on a real Redis, where there is one: the replies
//! must be the same, but for an order that is chance.
//!
//! The borders are Redis's (512 fields, 64 bytes, 512 integers) and those of the pool: the longest packed
//! payload, lengths of one and of two bytes, the longest field that a key of the pool holds.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0051;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const ROUNDS: usize = 2500;

/// Field numbers in use, by key: each size class has its own.
const SPANS: [usize; 6] = [4, 30, 40, 129, 513, 600];
const LENGTHS: [usize; 12] = [0, 1, 10, 12, 63, 64, 65, 127, 128, 511, 513, 1500];

fn text(random: &mut Random, number: usize, letter: char) -> Vec<u8> {
    let len = if random.below(6) == 0 { random.pick(&LENGTHS) } else { 10 };
    let mut text = format!("{letter}{number}").into_bytes();
    // The same number has the same text more often than not.
    if random.below(4) == 0 && len > text.len() {
        text.resize(len, b'x');
    }
    text
}

struct Draw<'r> {
    random: &'r mut Random,
}

impl Draw<'_> {
    fn key(&mut self, kind: &str) -> (Vec<u8>, usize) {
        let class = self.random.below(SPANS.len());
        (format!("{kind}:{class}").into_bytes(), SPANS[class])
    }

    fn field(&mut self, span: usize) -> Vec<u8> {
        let number = self.random.below(span);
        text(self.random, number, 'f')
    }

    fn member(&mut self, span: usize) -> Vec<u8> {
        let number = self.random.below(span);
        if self.random.below(30) == 0 {
            text(self.random, number, 'm')
        } else {
            number.to_string().into_bytes()
        }
    }

    fn hash_command(&mut self) -> Vec<Vec<u8>> {
        let (key, span) = self.key("hash");
        let count = [1, 1, 2, 5, 40][self.random.below(5)];
        let fields: Vec<_> = (0..count).map(|_| self.field(span)).collect();
        let (name, args): (&str, Vec<Vec<u8>>) = match self.random.below(18) {
            0 if self.random.below(8) == 0 => ("DEL", vec![]),
            0..6 => {
                let pairs = fields.into_iter().flat_map(|field| {
                    let number = self.random.below(1000);
                    [field, text(self.random, number, 'v')]
                });
                ("HSET", pairs.collect())
            }
            6..9 => ("HDEL", fields),
            9 => ("HMGET", fields),
            10 => ("HGETALL", vec![]),
            11 => ("HLEN", vec![]),
            12 => ("HINCRBY", vec![b"counter".to_vec(), b"7".to_vec()]),
            13 => ("HSETNX", vec![fields[0].clone(), b"1".to_vec()]),
            14 => ("HSTRLEN", vec![fields[0].clone()]),
            15 => ("HVALS", vec![]),
            16 => {
                let (other, _) = self.key("hash");
                return vec![b"COPY".to_vec(), key, other, b"REPLACE".to_vec()];
            }
            _ => return vec![b"OBJECT".to_vec(), b"ENCODING".to_vec(), key],
        };
        [vec![name.as_bytes().to_vec(), key], args].concat()
    }

    fn set_command(&mut self) -> Vec<Vec<u8>> {
        let (key, span) = self.key("set");
        let count = [1, 1, 2, 5, 40][self.random.below(5)];
        let members: Vec<_> = (0..count).map(|_| self.member(span)).collect();
        let (other, third) = (self.key("set").0, self.key("set").0);
        let (name, args): (&str, Vec<Vec<u8>>) = match self.random.below(18) {
            0 if self.random.below(8) == 0 => ("DEL", vec![]),
            0..6 => ("SADD", members),
            6..8 => ("SREM", members),
            8 => ("SMEMBERS", vec![]),
            9 => ("SCARD", vec![]),
            10 => ("SMISMEMBER", members),
            11 => ("SMOVE", vec![other, members[0].clone()]),
            12 => ("SINTER", vec![other, third]),
            13 => ("SUNION", vec![other]),
            14 => ("SDIFF", vec![other, third]),
            15 => match self.random.below(3) {
                0 => ("SINTERSTORE", vec![other, third]),
                1 => ("SUNIONSTORE", vec![other, third]),
                _ => ("SDIFFSTORE", vec![other, third]),
            },
            16 => {
                let args: &[&[u8]] = &[b"SINTERCARD", b"2", &key, &other, b"LIMIT", b"5"];
                return args.iter().map(|arg| arg.to_vec()).collect();
            }
            _ => return vec![b"OBJECT".to_vec(), b"ENCODING".to_vec(), key],
        };
        [vec![name.as_bytes().to_vec(), key], args].concat()
    }
}

/// The reply without the order that is chance.
fn comparable(args: &[Vec<u8>], reply: Value) -> Value {
    let sorted = |mut items: Vec<Value>| {
        items.sort_by_key(show);
        items
    };
    match (&args[0][..], reply) {
        (b"HGETALL", Value::Array(items)) => {
            Value::Array(sorted(items.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect()))
        }
        (b"HGETALL", Value::Map(mut pairs)) => {
            pairs.sort_by_key(|(field, _)| show(field));
            Value::Map(pairs)
        }
        (b"HVALS" | b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF", Value::Array(items)) => {
            Value::Array(sorted(items))
        }
        (b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF", Value::Set(items)) => Value::Set(sorted(items)),
        (_, reply) => reply,
    }
}

fn run(client: &mut Client, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
    let encode = |args: &Vec<Vec<u8>>| request(&args.iter().map(|arg| &arg[..]).collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
    commands.iter().map(|args| comparable(args, client.receive())).collect()
}

#[test]
fn collections_of_every_size_get_the_replies_of_redis() {
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
            let commands: Vec<_> = (0..8)
                .map(|_| if draw.random.below(2) == 0 { draw.hash_command() } else { draw.set_command() })
                .collect();
            let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
            for (args, (tembo, redis)) in commands.iter().zip(replies) {
                let shown: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                assert_eq!(
                    show(&tembo),
                    show(&redis),
                    "{SEED_VARIABLE}={seed}, {protocol}, round {round}: {}",
                    shown.join(" ")
                );
            }
        }
        server.restart();
    }
    server.check();
}

#[test]
fn small_hashes_keep_the_order_of_insertion_as_in_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let mut random = Random(SEED);
    for _ in 0..2000 {
        let field = random.below(12);
        let command = match random.below(8) {
            0..5 => format!("HSET h {field} {}", random.below(1000)),
            5 => format!("HDEL h {field}"),
            6 => format!("HINCRBY h {field} 3"),
            _ => "HGETALL h".to_owned(),
        };
        assert_eq!(ours.ask(&command), theirs.ask(&command), "{command}");
    }
    drop(redis);
    server.check();
}

/// The commands that bring a collection across each border by one element or one byte at a time, and those
/// that tell of it.
fn border_commands() -> Vec<Vec<Vec<u8>>> {
    let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut run = |args: &[&[u8]]| commands.push(args.iter().map(|arg| arg.to_vec()).collect());
    for number in 0..520 {
        let field = number.to_string();
        run(&[b"HSET", b"many", field.as_bytes(), b"v"]);
        run(&[b"OBJECT", b"ENCODING", b"many"]);
    }
    for number in 0..520 {
        run(&[b"SADD", b"integers", number.to_string().as_bytes()]);
        run(&[b"OBJECT", b"ENCODING", b"integers"]);
    }
    for key in [&b"integers"[..], b"many"] {
        let remove: &[u8] = if key == b"many" { b"HDEL" } else { b"SREM" };
        (0..130).for_each(|number| run(&[remove, key, number.to_string().as_bytes()]));
        run(&[b"OBJECT", b"ENCODING", key]);
    }
    // 64 bytes are Redis's border, 127 and 128 that of a length of two bytes, about 500 that of a packed
    // payload, 512 that of a field in a key.
    for len in (60..70).chain(120..135).chain(485..530) {
        let (text, key) = (vec![b'x'; len], format!("length:{len}"));
        for (kind, field, value) in [("f", &text[..], &b"v"[..]), ("v", b"f", &text), ("b", &text, &text)] {
            let key = format!("{key}:{kind}");
            let key = key.as_bytes();
            run(&[b"HSET", key, field, value]);
            run(&[b"OBJECT", b"ENCODING", key]);
            run(&[b"HSET", key, b"other", b"1"]);
            run(&[b"HGET", key, field]);
            run(&[b"HDEL", key, b"other"]);
            run(&[b"HGETALL", key]);
            run(&[b"HSTRLEN", key, field]);
        }
        run(&[b"SADD", key.as_bytes(), &text, b"1"]);
        run(&[b"SISMEMBER", key.as_bytes(), &text]);
        run(&[b"SREM", key.as_bytes(), b"1"]);
        run(&[b"SMEMBERS", key.as_bytes()]);
        run(&[b"SREM", key.as_bytes(), &text]);
        run(&[b"EXISTS", key.as_bytes()]);
    }
    commands
}

#[test]
fn every_border_is_crossed_as_in_redis() {
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
            for (args, (tembo, redis)) in commands.iter().zip(replies) {
                let shown: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
                assert_eq!(show(&tembo), show(&redis), "{}", shown.join(" "));
            }
        }
    }
    server.check();
}
