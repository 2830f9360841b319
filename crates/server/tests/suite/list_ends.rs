//! Pushes and pops of a pipeline at the ends of lists, which share one batch and one write of the end, beside
//! commands that come between them.

use std::collections::VecDeque;

use tembo_wire::Value;

use crate::peer::Random;
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0091;
const ROUNDS: usize = 300;

/// A command of a pipeline, and its reply.
type Step = (Vec<String>, String);

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A run of commands at one end of a list, long or short, and then perhaps something else.
fn draw(random: &mut Random, lists: &mut [VecDeque<String>; 2], next: &mut usize) -> Vec<Step> {
    let number = random.below(2);
    let (key, list) = (format!("list{number}"), &mut lists[number]);
    let left = random.below(2) == 0;
    let mut steps = Vec::new();
    for _ in 0..random.below(30) {
        let popped = if random.below(2) == 0 && list.len() > 100 {
            if left { list.pop_front() } else { list.pop_back() }
        } else {
            None
        };
        let name = match (popped.is_some(), left) {
            (true, true) => "LPOP",
            (true, false) => "RPOP",
            (false, true) => "LPUSH",
            (false, false) => "RPUSH",
        };
        match popped {
            Some(element) => steps.push((words(&format!("{name} {key}")), format!("${element}"))),
            None => {
                *next += 1;
                let element = format!("{next}{}", "x".repeat(random.below(40)));
                steps.push((words(&format!("{name} {key} {element}")), format!(":{}", list.len() + 1)));
                if left { list.push_front(element) } else { list.push_back(element) }
            }
        }
    }
    steps.extend(between(random, &key, list));
    steps
}

/// A command that reads what was pushed, changes it in another way, or fails.
fn between(random: &mut Random, key: &str, list: &mut VecDeque<String>) -> Vec<Step> {
    let len = list.len();
    let one = |text: String, reply: String| vec![(words(&text), reply)];
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    match random.below(9) {
        0 => one(format!("LLEN {key}"), format!(":{len}")),
        1 if len > 0 => one(format!("LINDEX {key} -1"), format!("${}", list[len - 1])),
        2 if len > 0 => {
            list[0] = "set".to_owned();
            one(format!("LSET {key} 0 set"), "+OK".to_owned())
        }
        3 => one("LPUSH string x".to_owned(), wrong.to_owned()),
        4 => one("GET string".to_owned(), "$value".to_owned()),
        5 => {
            list.extend(["m1".to_owned(), "m2".to_owned()]);
            let replies = format!("[:{} :{}]", len + 1, len + 2);
            let queued = |element: &str| (words(&format!("RPUSH {key} {element}")), "+QUEUED".to_owned());
            let mut steps = one("MULTI".to_owned(), "+OK".to_owned());
            steps.extend([queued("m1"), queued("m2"), (words("EXEC"), replies)]);
            steps
        }
        6 if len > 150 => {
            list.drain(..40);
            one(format!("LTRIM {key} 40 -1"), "+OK".to_owned())
        }
        7 if random.below(8) == 0 => {
            list.clear();
            one(format!("DEL {key}"), format!(":{}", usize::from(len > 0)))
        }
        8 => one(format!("LPOP {key} -1"), "-ERR value is out of range, must be positive".to_owned()),
        _ => Vec::new(),
    }
}

fn run(client: &mut Client, steps: &[Step]) {
    let requests =
        steps.iter().map(|(words, _)| words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    let bytes: Vec<u8> = requests.flat_map(|words| request(&words)).collect();
    client.send_raw(&bytes);
    for (words, reply) in steps {
        assert_eq!(show(&client.receive()), *reply, "{words:?}");
    }
}

fn assert_is(client: &mut Client, key: &str, list: &VecDeque<String>) {
    let Value::Array(found) = client.run(&[b"LRANGE", key.as_bytes(), b"0", b"-1"]) else {
        panic!("no array")
    };
    let found: Vec<_> = found.iter().filter_map(Value::as_bytes).collect();
    assert_eq!(found, list.iter().map(|element| element.as_bytes()).collect::<Vec<_>>());
}

#[test]
fn pipelines_at_the_ends_of_lists_leave_what_single_commands_would() {
    let mut server = Fixture::start();
    let mut client = server.client();
    assert_eq!(client.ask("SET string value"), "+OK");
    let (mut random, mut lists, mut next) = (Random(SEED), [VecDeque::new(), VecDeque::new()], 0);
    for round in 0..ROUNDS {
        let steps: Vec<Step> = (0..4).flat_map(|_| draw(&mut random, &mut lists, &mut next)).collect();
        run(&mut client, &steps);
        if round % 20 == 0 {
            server.restart();
            client = server.client();
            (0..2).for_each(|number| assert_is(&mut client, &format!("list{number}"), &lists[number]));
        }
    }
    (0..2).for_each(|number| assert_is(&mut client, &format!("list{number}"), &lists[number]));
    server.check();
}

/// A push that is in memory changes a key that one client watches, and serves one that another waits for.
#[test]
fn a_push_at_an_end_is_a_change_for_those_who_watch() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    let fill: Vec<Step> = (1..200)
        .map(|number| (words(&format!("RPUSH list element{number}")), format!(":{number}")))
        .collect();
    run(&mut client, &fill);
    assert_eq!(other.ask("WATCH list"), "+OK");
    let pushes = [200, 201].map(|number| (words("RPUSH list more"), format!(":{number}")));
    run(&mut client, &pushes);
    assert_eq!(other.ask("MULTI"), "+OK");
    assert_eq!(other.ask("LLEN list"), "+QUEUED");
    assert_eq!(other.ask("EXEC"), "nil");
    // A move by a client that waited takes the end that is in memory.
    other.send(&[b"BLMOVE", b"nosuch", b"list", b"LEFT", b"RIGHT", b"0"]);
    while client.ask("CLIENT LIST").matches("flags=b").count() == 0 {}
    let steps = [
        (words("RPUSH list last"), ":202".to_owned()),
        (words("RPUSH list last"), ":203".to_owned()),
        (words("RPUSH nosuch moved"), ":1".to_owned()),
        (words("RPOP list"), "$moved".to_owned()),
    ];
    run(&mut client, &steps);
    assert_eq!(show(&other.receive()), "$moved");
    server.check();
}

/// In a full pool what was acknowledged is there, and pops make room.
#[test]
fn pipelines_at_the_end_of_a_list_fill_a_pool_and_empty_it() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(8 << 20).max_bytes(8 << 20));
    let mut client = server.client();
    let element = "x".repeat(100);
    let (mut pushed, mut refused) = (0, 0);
    while refused < 5 {
        let bytes: Vec<u8> =
            (0..40).flat_map(|_| request(&[b"RPUSH", b"list", element.as_bytes()])).collect();
        client.send_raw(&bytes);
        for _ in 0..40 {
            match show(&client.receive()) {
                reply if reply.starts_with(':') => pushed += 1,
                reply => {
                    assert!(reply.starts_with("-OOM"), "{reply}");
                    refused += 1;
                }
            }
        }
        assert_eq!(client.ask("LLEN list"), format!(":{pushed}"));
    }
    assert!(pushed > 20_000, "{pushed}");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.ask("LLEN list"), format!(":{pushed}"));
    for first in (0..pushed).step_by(40) {
        let count = (pushed - first).min(40);
        let bytes: Vec<u8> = (0..count).flat_map(|_| request(&[b"RPOP", b"list"])).collect();
        client.send_raw(&bytes);
        (0..count).for_each(|_| assert_eq!(show(&client.receive()), format!("${element}")));
    }
    assert_eq!(client.ask("EXISTS list"), ":0");
    server.check();
}
