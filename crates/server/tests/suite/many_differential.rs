//! Commands of very many elements, on Tembo, which puts them in the order of its records, and on a real
//! Redis, where there is one: the replies must be the same, and what the collections then have.

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture};

const SEED: u64 = 0x7e3b_0077;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const ROUNDS: usize = 60;

/// Elements to draw from, by key: some commands name elements twice, and find few or most of them there.
const SPANS: [usize; 3] = [300, 2_000, 50_000];
const OPTIONS: [&str; 10] = ["", "", "", "CH ", "NX ", "XX ", "GT ", "LT CH ", "XX GT CH ", "NX CH "];

struct Draw<'r> {
    random: &'r mut Random,
}

impl Draw<'_> {
    /// An element; some are as long as an index's limit, and some longer.
    fn element(&mut self, span: usize, numbers_only: bool) -> String {
        let number = self.random.below(span);
        match number % 50 {
            _ if numbers_only => number.to_string(),
            0 => format!("{number:x<512}"),
            1 => format!("{number:x<600}"),
            _ => format!("e{number}"),
        }
    }

    fn command(&mut self) -> String {
        let (class, count) = (self.random.below(SPANS.len()), 250 + self.random.below(500));
        let kind = self.random.below(4);
        let (span, mut words) = (SPANS[class], String::new());
        for _ in 0..count {
            let element = self.element(span, kind == 1);
            let value = self.random.below(9);
            words += &match kind {
                0 | 1 => format!(" {element}"),
                2 => format!(" {element} {value}"),
                _ => format!(" {value} {element}"),
            };
        }
        match kind {
            0 => format!("SADD set:{class}{words}"),
            1 => format!("SADD numbers:{class}{words}"),
            2 => format!("HSET hash:{class}{words}"),
            _ => format!("ZADD zset:{class} {}{}", self.random.pick(&OPTIONS), words.trim_start()),
        }
    }
}

/// The collection of a command as a client finds it, in an order that is not chance.
fn contents(client: &mut Client, command: &str) -> Vec<String> {
    let key = command.split(' ').nth(1).expect("a key");
    let read = match &command[..1] {
        "S" => format!("SORT {key} ALPHA"),
        "H" => format!("HGETALL {key}"),
        _ => format!("ZRANGE {key} 0 -1 WITHSCORES"),
    };
    let answer = client.ask(&read);
    let mut words: Vec<_> = answer.trim_matches(['[', ']']).split(' ').map(str::to_owned).collect();
    if command.starts_with('H') {
        words = words.chunks(2).map(|pair| pair.join(" ")).collect();
        words.sort();
    }
    words.push(client.ask(&format!("OBJECT ENCODING {key}")));
    words
}

#[test]
fn commands_of_very_many_elements_do_what_those_of_redis_do() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let mut server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for half in 0..2 {
        let mut ours = server.client();
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.ask("CONFIG SET set-max-intset-entries 600"), "+OK");
        }
        for round in half * ROUNDS..(half + 1) * ROUNDS {
            let command = Draw { random: &mut random }.command();
            let what = format!("{SEED_VARIABLE}={seed}, round {round}: {}", &command[..60]);
            assert_eq!(ours.ask(&command), theirs.ask(&command), "{what}");
            assert!(contents(&mut ours, &command) == contents(&mut theirs, &command), "{what}");
            if round % 16 == 15 {
                let key = command.split(' ').nth(1).expect("a key");
                assert_eq!(ours.ask(&format!("DEL {key}")), theirs.ask(&format!("DEL {key}")), "{what}");
            }
        }
        server.restart();
    }
    server.check();
    drop(redis);
}
