//! Lists around every border of size, on Tembo and on a real Redis, where there is one: the replies must be
//! the same. Also those to clients that wait.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0061;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const ROUNDS: usize = 1200;

/// The lengths around which lists are, by key.
const SPANS: [usize; 5] = [3, 60, 140, 500, 1200];
/// Around the borders of a length's bytes, of a packed payload and of a chunk.
const LENGTHS: [usize; 14] = [0, 1, 4, 63, 126, 127, 128, 253, 506, 508, 510, 511, 512, 2000];
const ENDS: [&str; 3] = ["LEFT", "RIGHT", "left"];
const INDICES: [&str; 8] = ["0", "-1", "1", "x", "9223372036854775807", "-9223372036854775808", "", "127"];

struct Draw<'r> {
    random: &'r mut Random,
}

impl Draw<'_> {
    fn key(&mut self) -> (String, usize) {
        let class = self.random.below(SPANS.len());
        match self.random.below(60) {
            0 => ("string".to_owned(), 1),
            1 => ("nosuch".to_owned(), 1),
            _ => (format!("list:{class}"), SPANS[class]),
        }
    }

    fn element(&mut self) -> String {
        let number = self.random.below(40);
        let len = if self.random.below(5) == 0 { self.random.pick(&LENGTHS) } else { 2 };
        let mut text = number.to_string();
        if len == 0 {
            text.clear();
        }
        text + &"x".repeat(len.saturating_sub(2))
    }

    fn index(&mut self, span: usize) -> String {
        match self.random.below(30) {
            0 => self.random.pick(&INDICES).to_owned(),
            number => {
                let index = self.random.below(span + span / 4 + 2);
                if number % 2 == 0 { index.to_string() } else { format!("-{index}") }
            }
        }
    }

    fn command(&mut self) -> Vec<String> {
        let ((key, span), (other, _)) = (self.key(), self.key());
        let (first, second) = (self.random.pick(&ENDS).to_owned(), self.random.pick(&ENDS).to_owned());
        let (index, until, element) = (self.index(span), self.index(span), self.element());
        let count = (self.random.below(7) as i64 - 3).to_string();
        let many = |draw: &mut Self| {
            let count = [1, 1, 2, 5, span / 4 + 1][draw.random.below(5)];
            (0..count).map(|_| draw.element()).collect::<Vec<_>>()
        };
        let (name, args): (&str, Vec<String>) = match self.random.below(30) {
            0 if self.random.below(10) == 0 => ("DEL", vec![]),
            0..4 => ("RPUSH", many(self)),
            4..8 => ("LPUSH", many(self)),
            8 => (["LPUSHX", "RPUSHX"][self.random.below(2)], many(self)),
            9 => ("LPOP", if self.random.below(2) == 0 { vec![] } else { vec![index] }),
            10 => ("RPOP", if self.random.below(2) == 0 { vec![] } else { vec![count] }),
            11 => ("RPOP", vec![(span / 5).to_string()]),
            12 => ("LLEN", vec![]),
            13..15 => ("LRANGE", vec![index, until]),
            15 => ("LINDEX", vec![index]),
            16..18 => ("LSET", vec![index, element]),
            18 if self.random.below(4) == 0 => ("LTRIM", vec![index, until]),
            18 => ("LTRIM", vec![self.random.below(3).to_string(), format!("-{}", 1 + self.random.below(3))]),
            19..22 => {
                let pivot = self.element();
                ("LINSERT", vec![["BEFORE", "AFTER"][self.random.below(2)].to_owned(), pivot, element])
            }
            22 => ("LREM", vec![count, element]),
            23 => {
                let mut args = vec![element];
                for (option, value) in [("RANK", &count), ("COUNT", &until), ("MAXLEN", &index)] {
                    if self.random.below(3) == 0 {
                        args.extend([option.to_owned(), value.clone()]);
                    }
                }
                ("LPOS", args)
            }
            24 => ("LMOVE", vec![other, first, second]),
            25 => ("RPOPLPUSH", vec![other]),
            26 => return ["LMPOP", "2", &key, &other, &first, "COUNT", &count].map(str::to_owned).to_vec(),
            27 => return ["COPY", &key, &other, "REPLACE"].map(str::to_owned).to_vec(),
            28 => return ["BLPOP", &key, &other, "0.001"].map(str::to_owned).to_vec(),
            _ => return ["OBJECT", "ENCODING", &key].map(str::to_owned).to_vec(),
        };
        [vec![name.to_owned(), key], args].concat()
    }
}

fn run(client: &mut Client, commands: &[Vec<String>]) -> Vec<Value> {
    let encode = |args: &Vec<String>| request(&args.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
    commands.iter().map(|_| client.receive()).collect()
}

#[test]
fn lists_of_every_size_get_the_replies_of_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let mut server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for protocol in ["HELLO 2", "HELLO 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        for client in [&mut ours, &mut theirs] {
            client.ask(protocol);
            client.ask("SET string x");
        }
        for round in 0..ROUNDS {
            let mut draw = Draw { random: &mut random };
            let commands: Vec<_> = (0..8).map(|_| draw.command()).collect();
            let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
            for (args, (tembo, redis)) in commands.iter().zip(replies) {
                assert_eq!(
                    show(&tembo),
                    show(&redis),
                    "{SEED_VARIABLE}={seed}, {protocol}, round {round}: {}",
                    args.join(" ")
                );
            }
        }
        server.restart();
    }
    server.check();
}

/// The commands that bring a list across each border by one element or one byte at a time, each followed by
/// what tells of it.
fn border_commands() -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut run = |text: String| commands.push(text.split(' ').map(str::to_owned).collect::<Vec<_>>());
    for number in 0..700 {
        run(format!("{} many {number}", if number % 3 == 0 { "LPUSH" } else { "RPUSH" }));
        run(format!("LINDEX many {}", number / 2));
    }
    run("LRANGE many 0 -1".to_owned());
    for number in 0..700 {
        run(format!("{} many", if number % 3 == 0 { "LPOP" } else { "RPOP" }));
        run("LINDEX many -1".to_owned());
    }
    run("EXISTS many".to_owned());
    for len in (120..132).chain(245..262).chain(495..530) {
        let text = "x".repeat(len);
        for command in
            ["RPUSH k a b", "LSET k 1", "LINSERT k BEFORE a", "RPUSH k", "LPUSH k", "RPUSH k 1 2 3"]
        {
            run(if command.ends_with(|end: char| end.is_ascii_digit()) && command.starts_with("RPUSH") {
                command.to_owned()
            } else {
                format!("{command} {text}")
            });
            run("LRANGE k 0 -1".to_owned());
        }
        run(format!("LREM k 2 {text}"));
        run("LRANGE k 0 -1".to_owned());
        run("LTRIM k 1 1".to_owned());
        run("LPOP k 9".to_owned());
    }
    commands
}

#[test]
fn every_border_of_lists_is_crossed_as_in_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    for commands in border_commands().chunks(50) {
        let replies = run(&mut ours, commands).into_iter().zip(run(&mut theirs, commands));
        for (args, (tembo, redis)) in commands.iter().zip(replies) {
            assert_eq!(show(&tembo), show(&redis), "{}", args.join(" "));
        }
    }
    drop(redis);
    server.check();
}

/// The rows of the commands in the table, without its key specifications.
#[test]
fn the_table_says_of_list_commands_and_of_those_that_wait_what_redis_says() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    for name in [
        "lpush",
        "rpush",
        "lpushx",
        "rpushx",
        "lpop",
        "rpop",
        "llen",
        "lrange",
        "lindex",
        "lset",
        "ltrim",
        "linsert",
        "lrem",
        "lpos",
        "lmove",
        "rpoplpush",
        "lmpop",
        "blpop",
        "brpop",
        "blmove",
        "brpoplpush",
        "blmpop",
        "bzpopmin",
        "bzpopmax",
        "bzmpop",
    ] {
        let about = |client: &mut Client| match client.run(&[b"COMMAND", b"INFO", name.as_bytes()]) {
            Value::Array(mut infos) => match infos.pop() {
                Some(Value::Array(info)) => info[..7].iter().map(show).collect::<Vec<_>>(),
                other => panic!("{name}: {other:?}"),
            },
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(about(&mut ours), about(&mut theirs));
    }
    drop(redis);
}

/// A command that waits for one of two keys.
fn waiting_command(random: &mut Random) -> String {
    let (a, b) = (random.below(3), random.below(3));
    let end = random.pick(&["LEFT", "RIGHT"]);
    match random.below(7) {
        0 => format!("BLPOP k{a} k{b} 0"),
        1 => format!("BRPOP k{b} k{a} 0"),
        2 => format!("BLMOVE k{a} k{b} {end} LEFT 0"),
        3 => format!("BZPOPMIN k{a} k{b} 0"),
        4 => format!("BZPOPMAX k{b} k{a} 0"),
        5 => format!("BZMPOP 0 2 k{a} k{b} {} COUNT 2", random.pick(&["MIN", "MAX"])),
        _ => format!("BLMPOP 0 2 k{a} k{b} {end} COUNT 2"),
    }
}

/// Commands that give clients what they wait for.
fn serving_commands(random: &mut Random) -> Vec<String> {
    let (a, b) = (random.below(3), random.below(3));
    match random.below(6) {
        3 => vec![format!("ZADD k{a} 1 x 2 y 3 z"), format!("ZADD k{b} 4 v")],
        4 => vec!["MULTI".into(), format!("ZADD k{a} 1 x"), format!("RPUSH k{b} 2 3"), "EXEC".into()],
        5 => vec![format!("ZADD x 1 v 2 w"), format!("COPY x k{a}"), format!("ZUNIONSTORE k{b} 1 x")],
        0 => vec![format!("RPUSH k{a} 1 2 3"), format!("LPUSH k{b} 4")],
        1 => vec!["MULTI".into(), format!("RPUSH k{a} 1"), format!("RPUSH k{b} 2 3"), "EXEC".into()],
        _ => vec![format!("RPUSH x 1 2"), format!("RENAME x k{a}"), format!("LLEN k{a}")],
    }
}

/// Several clients that wait for several keys, in the same order on both servers, and get the same.
#[test]
fn clients_that_wait_get_what_they_get_from_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let mut random = Random(SEED);
    for round in 0..60 {
        let mut waiting: Vec<(String, [Client; 2])> = Vec::new();
        for _ in 0..1 + random.below(4) {
            let command = waiting_command(&mut random);
            let mut clients = [server.client(), redis.client()];
            for (client, control) in clients.iter_mut().zip([&mut ours, &mut theirs]) {
                let before = control.info("blocked_clients");
                client.send_raw(&request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>()));
                crate::support::eventually(|| control.info("blocked_clients") != before);
            }
            waiting.push((command, clients));
        }
        let commands = serving_commands(&mut random);
        let split = |text: &String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let commands: Vec<Vec<String>> = commands.iter().map(split).collect();
        let shown = |replies: Vec<Value>| replies.iter().map(show).collect::<Vec<_>>();
        let about =
            format!("round {round}, {commands:?}, {:?}", waiting.iter().map(|w| &w.0).collect::<Vec<_>>());
        assert_eq!(shown(run(&mut ours, &commands)), shown(run(&mut theirs, &commands)), "{about}");
        let rest = (0..3).flat_map(|key| [format!("LRANGE k{key} 0 -1"), format!("ZRANGE k{key} 0 -1")]);
        let rest: Vec<_> = rest.map(|text| split(&text)).collect();
        assert_eq!(shown(run(&mut ours, &rest)), shown(run(&mut theirs, &rest)), "{about}");
        assert_eq!(ours.info("blocked_clients"), theirs.info("blocked_clients"), "{about}");
        // Those who still wait are told to go on.
        for control in [&mut ours, &mut theirs] {
            control.ask("DEL k0 k1 k2");
            for command in ["RPUSH k* z z z z z z z z", "ZADD k* 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h"] {
                for key in ["0", "1", "2"] {
                    control.ask(&command.replace('*', key));
                }
                control.ask("DEL k0 k1 k2");
            }
        }
        for (command, [tembo, redis]) in &mut waiting {
            assert_eq!(show(&tembo.receive()), show(&redis.receive()), "{command}, {about}");
        }
        for control in [&mut ours, &mut theirs] {
            control.ask("DEL k0 k1 k2 x");
        }
    }
    server.check();
}
