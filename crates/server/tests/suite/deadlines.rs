//! INFO counts the keys that have a deadline, whatever becomes of the commands that change them.

use crate::peer::Random;
use crate::support::{Client, Fixture, PAYLOAD_OF_SET, PAYLOAD_OF_STRING, eventually, show};

const KEYS: usize = 12;

/// One command; some of them fail, before or after a change.
fn command(random: &mut Random) -> String {
    let mut key = || format!("key:{}", random.below(KEYS));
    let (key, other) = (key(), key());
    match random.below(26) {
        0 => format!("SET {key} v EX 1000"),
        1 => format!("SET {key} v"),
        2 => format!("SET {key} v KEEPTTL"),
        3 => format!("EXPIRE {key} 2000"),
        4 => format!("EXPIRE {key} -1"),
        5 => format!("PERSIST {key}"),
        6 => format!("DEL {key} {other}"),
        7 => format!("RENAME {key} {other}"),
        8 => format!("COPY {key} {other} REPLACE"),
        9 => format!("GETEX {key} EX 3000"),
        10 => format!("GETDEL {key}"),
        11 => format!("MSET {key} a {other} b"),
        12 => format!("INCR {key}"),
        13 => format!("SETRANGE {key} 600000000 x"),
        14 => format!("APPEND {key} x"),
        15 => format!("HSET {key} f v g w"),
        16 => format!("HDEL {key} f g"),
        17 => format!("SUNIONSTORE {key} {key} {other}"),
        18 => format!("SETBIT {key} 5000000000 1"),
        19 => format!("BITOP OR {key} {key} {other}"),
        20 => format!("PFADD {key} v"),
        21 => format!("GEOADD {key} 1 1 v"),
        22 => format!("RESTORE {key} 1000000 '{PAYLOAD_OF_STRING}' REPLACE"),
        23 => format!("RESTORE {key} 0 '{PAYLOAD_OF_SET}' REPLACE"),
        24 => format!("RESTORE {key} 1000000 '{PAYLOAD_OF_SET}'"),
        _ => format!("SETEX {key} 1000 v"),
    }
}

/// Asserts that INFO counts as many keys with a deadline as there are.
#[track_caller]
fn assert_counted(client: &mut Client) {
    let keys: Vec<_> = (0..KEYS).map(|key| format!("key:{key}")).collect();
    let has_deadline = |key: &&String| !client.ask(&format!("TTL {key}")).starts_with(":-");
    let with_deadline = keys.iter().filter(has_deadline).count();
    let text = show(&client.run(&[b"INFO", b"keyspace"]));
    let counted = text.split("expires=").nth(1).map_or("0", |rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        &rest[..end]
    });
    assert_eq!(counted, with_deadline.to_string(), "{text}");
}

#[test]
fn keys_with_a_deadline_are_counted() {
    let mut server = Fixture::start();
    let mut client = server.client();
    let mut random = Random(5);
    for round in 0..400 {
        match random.below(10) {
            0 => {
                client.ask("MULTI");
                (0..random.below(5)).for_each(|_| drop(client.ask(&command(&mut random))));
                client.ask(random.pick(&["EXEC", "EXEC", "DISCARD", "NOSUCH"]));
                client.ask("DISCARD");
            }
            1 if random.below(4) == 0 => assert_eq!(client.ask("FLUSHALL"), "+OK"),
            _ => drop(client.ask(&command(&mut random))),
        }
        if random.below(4) == 0 {
            assert_counted(&mut client);
        }
        if round % 150 == 149 {
            server.restart();
            client = server.client();
        }
    }
    client.talk("FLUSHALL => +OK\nSET key:0 v EX 1000 => +OK\nSET key:1 v PX 5 => +OK");
    eventually(|| client.ask("DBSIZE") == ":1");
    assert_counted(&mut client);
    server.check();
}
