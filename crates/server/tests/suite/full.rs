//! A pool that is full.

use crate::support::{Client, Fixture, show};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

fn small_pool() -> Fixture {
    Fixture::with(|_| {}, |options| options.initial_bytes(24 << 20).max_bytes(24 << 20))
}

/// Sets keys until the pool is full; returns how many it took.
fn fill(client: &mut Client, value: &[u8]) -> usize {
    for key in 0.. {
        let reply = show(&client.run(&[b"SET", format!("key:{key:08}").as_bytes(), value]));
        if reply == OOM {
            return key;
        }
        assert_eq!(reply, "+OK");
    }
    unreachable!()
}

#[test]
fn a_full_pool_refuses_writes_and_serves_reads_and_deletes() {
    let mut server = small_pool();
    let mut client = server.client();
    let value = vec![b'v'; 10_000];
    let keys = fill(&mut client, &value);
    assert!(keys > 1000, "{keys}");
    client.talk(&format!(
        "
        DBSIZE => :{keys}
        STRLEN key:00000000 => :10000
        SETRANGE key:00000000 20000 x => {OOM}
        EXISTS key:00000001 => :1
        KEYS key:00000001 => [$key:00000001]
        "
    ));
    // Half of a command is undone, and the count of deadlines is right afterwards.
    let large = vec![b'v'; 1 << 20];
    client.talk("SET due 1 PX 100000000 => +OK");
    assert_eq!(show(&client.run(&[b"MSET", b"a", b"1", b"due", b"2", b"b", &large])), OOM);
    client.talk("EXISTS a b => :0\nGET due => $1\nSET due 3 => +OK\nPTTL due => :-1\nDEL due => :1");
    for key in 0..keys / 2 {
        client.talk(&format!("DEL key:{key:08} => :1"));
    }
    for key in 0..keys / 4 {
        assert_eq!(show(&client.run(&[b"SET", format!("key:{key:08}").as_bytes(), &value])), "+OK", "{key}");
    }
    server.restart();
    let mut client = server.client();
    client.talk(&format!("DBSIZE => :{}", keys - keys / 2 + keys / 4));
    server.check();
}

#[test]
fn a_refused_write_in_a_pipeline_leaves_its_neighbours_alone() {
    let server = small_pool();
    let mut client = server.client();
    fill(&mut client, &[b'v'; 10_000]);
    client.talk("DEL key:00000000 key:00000001 key:00000002 => :3");
    let large = vec![b'v'; 1 << 20];
    client.send(&[b"SET", b"small1", b"1"]);
    client.send(&[b"SET", b"large", &large]);
    client.send(&[b"GET", b"small1"]);
    client.send(&[b"GET", b"large"]);
    client.send(&[b"INCR", b"small1"]);
    let replies: Vec<_> = (0..5).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", OOM, "$1", "nil", ":2"]);
    server.check();
}

#[test]
fn a_full_pool_can_be_flushed() {
    let server = small_pool();
    let mut client = server.client();
    let keys = fill(&mut client, &[b'v'; 1000]);
    client.talk("FLUSHALL => +OK\nDBSIZE => :0");
    let again = fill(&mut client, &[b'v'; 1000]);
    assert!(again >= keys * 9 / 10, "{again} keys after {keys}");
    server.check();
}

/// Sets keys with ever smaller values, until there is no room for the smallest either; returns how many it
/// took.
fn fill_to_the_brim(client: &mut Client) -> usize {
    let mut keys = 0;
    for bytes in [10_000, 3000, 1000, 300, 100, 30, 10, 3, 1] {
        loop {
            let reply = show(&client.run(&[b"SET", format!("key:{keys:08}").as_bytes(), &vec![b'v'; bytes]]));
            if reply == OOM {
                break;
            }
            assert_eq!(reply, "+OK");
            keys += 1;
        }
    }
    keys
}

#[test]
fn a_pool_that_is_full_to_the_brim_can_be_flushed() {
    for restarts in [false, true] {
        let mut server = small_pool();
        let mut client = server.client();
        let keys = fill_to_the_brim(&mut client);
        if restarts {
            server.restart();
            client = server.client();
        }
        client
            .talk(&format!("DBSIZE => :{keys}\nFLUSHALL => +OK\nDBSIZE => :0\nSET a 1 => +OK\nGET a => $1"));
        let again = fill_to_the_brim(&mut client);
        assert!(again >= keys * 9 / 10, "{again} keys after {keys}");
        server.check();
    }
}

#[test]
fn deletes_in_a_pipeline_succeed_in_a_pool_that_is_full_to_the_brim() {
    let mut server = small_pool();
    let keys = fill_to_the_brim(&mut server.client());
    // The reserve of the old server is gone.
    server.restart();
    let mut client = server.client();
    for chunk in (0..keys).collect::<Vec<_>>().chunks(1000) {
        for key in chunk {
            client.send(&[b"DEL", format!("key:{key:08}").as_bytes()]);
        }
        for key in chunk {
            assert_eq!(show(&client.receive()), ":1", "{key}");
        }
    }
    let again = fill_to_the_brim(&mut client);
    assert!(again >= keys * 9 / 10, "{again} keys after {keys}");
    server.check();
}

/// A pool of 16 MiB in which all keys have a deadline, so that each is in two maps.
fn fill_with_deadlines(client: &mut Client, deadline: &str, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for bytes in [20_000, 3000, 300, 30, 1] {
        loop {
            let key = format!("{prefix}:{:08}", keys.len());
            let value = vec![b'v'; 1 + keys.len() * 7 % bytes];
            let reply = show(&client.run(&[b"SET", key.as_bytes(), &value, b"PX", deadline.as_bytes()]));
            if reply == OOM {
                break;
            }
            assert_eq!(reply, "+OK");
            keys.push(key);
        }
    }
    keys
}

#[test]
fn every_command_that_gives_space_back_works_in_a_full_pool() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(1 << 20).max_bytes(16 << 20));
    let mut client = server.client();
    let mut most = 0;
    for (round, way) in [
        "DEL",
        "UNLINK",
        "GETDEL",
        "many",
        "EXPIRE",
        "PEXPIREAT",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "time",
    ]
    .into_iter()
    .enumerate()
    {
        if round % 3 == 0 {
            server.restart();
            client = server.client();
        }
        let deadline = if way == "time" { "1500" } else { "100000000" };
        let keys = fill_with_deadlines(&mut client, deadline, way);
        most = most.max(keys.len());
        assert!(keys.len() >= most / 2, "{way}: {} keys after {most}", keys.len());
        match way {
            "many" => {
                for chunk in keys.chunks(700) {
                    let args: Vec<&[u8]> =
                        [&b"DEL"[..]].into_iter().chain(chunk.iter().map(|key| key.as_bytes())).collect();
                    assert_eq!(show(&client.run(&args)), format!(":{}", chunk.len()));
                }
            }
            "FLUSHDB" | "FLUSHALL" | "FLUSHALL ASYNC" => assert_eq!(client.ask(way), "+OK"),
            "time" => {
                crate::support::eventually(|| client.ask("DBSIZE") == ":0");
            }
            _ => {
                for key in &keys {
                    let mut args = vec![way.as_bytes(), key.as_bytes()];
                    args.extend(match way {
                        "EXPIRE" => Some(&b"0"[..]),
                        "PEXPIREAT" => Some(&b"1"[..]),
                        _ => None,
                    });
                    let reply = show(&client.run(&args));
                    assert!(
                        reply == ":1" || way == "GETDEL" && reply.starts_with('$'),
                        "{way} {key}: {reply}"
                    );
                }
            }
        }
        assert_eq!(client.ask("DBSIZE"), ":0", "{way}");
        client.talk("SET a 1 => +OK\nDEL a => :1");
    }
    server.check();
}

/// LTRIM copies what it keeps where that is less than what it would remove; there was no room for that.
#[test]
fn a_long_list_is_trimmed_in_a_full_pool() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(48 << 20).max_bytes(48 << 20));
    let mut client = server.client();
    // Each has a chunk of its own: too many to be removed in place while there is room.
    let element = vec![b'e'; 600];
    let push: Vec<&[u8]> = [&b"RPUSH"[..], b"list"].into_iter().chain([&element[..]; 200]).collect();
    for round in 1..=100 {
        assert_eq!(show(&client.run(&push)), format!(":{}", 200 * round));
    }
    fill(&mut client, &[b'v'; 10_000]);
    client.talk("LTRIM list 0 9 => +OK\nLLEN list => :10");
    server.check();
}
