//! Every acknowledged write is durable; a write that cannot be made durable is not acknowledged.

use crate::support::{Client, Fixture, eventually, show};

#[test]
fn acknowledged_writes_are_there_after_a_restart() {
    let mut server = Fixture::start();
    let mut client = server.client();
    for n in 0..1000 {
        client.talk(&format!("SET k{n} v{n} => +OK"));
    }
    for n in (0..1000).step_by(3) {
        client.talk(&format!("DEL k{n} => :1"));
    }
    server.restart();
    let mut client = server.client();
    for n in 0..1000 {
        let expected = if n % 3 == 0 { "nil".to_owned() } else { format!("$v{n}") };
        client.talk(&format!("GET k{n} => {expected}"));
    }
    server.check();
}

/// A batch that is not committed in time finds no room for its record in a full pool. Then all of it is taken
/// back, and every client that had a part in it hears that.
#[test]
fn a_failed_commit_turns_the_replies_it_held_into_errors() {
    let server = Fixture::with(
        |config| config.batch_words_max = Some(usize::MAX),
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    );
    let mut client = server.client();
    let keys = fill(&mut client);
    // There is room for keys all over the map, one by one, but not for the record of all of them. (That of
    // removals would find some.)
    let mut pipeline = b"PING\r\nSELECT 0\r\nGET key:00000000\r\n".to_vec();
    let put: Vec<_> = (25..keys).step_by(50).take(2000).collect();
    for key in &put {
        client.talk(&format!("DEL key:{key:08} => :1"));
        pipeline.extend_from_slice(format!("SET key:{key:08} v\r\n").as_bytes());
    }
    pipeline.extend_from_slice(b"ECHO end\r\nCLIENT SETNAME me\r\nSTRLEN key:00000001\r\n");
    client.send_raw(&pipeline);
    assert_eq!(show(&client.receive()), "+PONG");
    assert_eq!(show(&client.receive()), "+OK");
    assert_eq!(show(&client.receive()), "$v");
    let replies: Vec<_> = put.iter().map(|_| show(&client.receive())).collect();
    let failed = replies.iter().filter(|reply| reply.starts_with("-OOM")).count();
    let done = replies.iter().filter(|reply| *reply == "+OK").count();
    assert_eq!(failed + done, put.len());
    assert!(failed > 0, "the commit was to fail");
    assert_eq!(show(&client.receive()), "$end");
    assert_eq!(show(&client.receive()), "+OK");
    client.receive();
    client.talk(&format!("DBSIZE => :{}\nCLIENT GETNAME => $me", keys - failed));
    for (key, reply) in put.iter().zip(replies) {
        let expected = if reply == "+OK" { ":1" } else { ":0" };
        client.talk(&format!("EXISTS key:{key:08} => {expected}"));
    }
    assert_ne!(client.info("failed_commits"), "0");
    client.talk("DEL key:00000000 => :1");
    server.check();
}

/// Sets small keys until the pool has no room for another; returns their number.
pub(crate) fn fill(client: &mut Client) -> usize {
    let mut keys = 0;
    for step in [500, 1] {
        loop {
            let names: Vec<_> = (keys..keys + step).map(|key| format!("key:{key:08}")).collect();
            let mut args: Vec<&[u8]> = vec![b"MSET"];
            args.extend(names.iter().flat_map(|name| [name.as_bytes(), b"v"]));
            if client.run(&args).is_error() {
                break;
            }
            keys += step;
        }
    }
    keys
}

#[test]
fn many_clients_write_at_once_and_nothing_is_lost() {
    let mut server = Fixture::start();
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = server.client();
            std::thread::spawn(move || {
                for n in 0..300 {
                    client.send(&[b"SET", format!("k:{number}:{n}").as_bytes(), b"v"]);
                    client.send(&[b"INCR", b"total"]);
                }
                (0..600).for_each(|_| assert!(!client.receive().is_error()));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.restart();
    server.client().talk("GET total => $2400\nDBSIZE => :2401");
    server.check();
}

const SLOW: tembo::Durability = tembo::Durability::Relaxed { interval_ms: 60_000 };

fn with_durability(durability: tembo::Durability) -> Fixture {
    Fixture::with(|_| {}, |options| options.durability(durability).journal_bytes(1 << 20))
}

/// The device would have it half a minute later without being asked.
#[test]
fn waitaof_makes_the_writes_before_it_durable() {
    let server = with_durability(SLOW);
    let mut client = server.client();
    client.talk("SET k v => +OK");
    assert_ne!(client.info("journal_behind_bytes"), "0");
    client.talk("WAITAOF 0 0 0 => [:0 :0]\nMULTI => +OK\nWAITAOF 1 0 0 => +QUEUED\nEXEC => [[:0 :0]]");
    client.talk("WAITAOF 1 0 10000 => [:1 :0]");
    assert_eq!(client.info("journal_behind_bytes"), "0");
    client.talk("WAITAOF 1 1 1 => [:1 :0]\nMULTI => +OK\nWAITAOF 1 0 0 => +QUEUED\nEXEC => [[:1 :0]]");
    // Within EXEC, what is written in the same turn is not even committed.
    client.send_raw(b"SET k u\r\nMULTI\r\nWAITAOF 1 0 0\r\nEXEC\r\n");
    let replies: Vec<_> = (0..4).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", "+OK", "+QUEUED", "[[:0 :0]]"]);
    client.talk("WAITAOF 1 0 10000 => [:1 :0]");
    client.talk("MULTI => +OK\nSET k u => +QUEUED\nWAITAOF 1 0 0 => +QUEUED\nEXEC => [+OK [:0 :0]]");
    // In one turn with what it waits for, and before what comes behind it.
    client.send_raw(b"SET k w\r\nWAITAOF 1 0 10000\r\nSET k x\r\nGET k\r\n");
    let replies: Vec<_> = (0..4).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", "[:1 :0]", "+OK", "$x"]);
    for line in [
        "WAITAOF 2 0 0 => -ERR value is out of range, must be between 0 and 1",
        "WAITAOF 1 -1 0 => -ERR value is out of range, must be positive",
        "WAITAOF 1 0 -1 => -ERR timeout is negative",
        "WAITAOF x 0 0 => -ERR value is not an integer or out of range",
        "WAITAOF 0 0 x => -ERR timeout is not an integer or out of range",
    ] {
        client.talk(line);
    }
    server.check();
    // Here a write is acknowledged when it is durable, and there it never is.
    let never = "-ERR WAITAOF cannot be used when numlocal is set but the durability is page-cache";
    for (durability, replies) in [
        (tembo::Durability::Journaled, ["[:1 :0]", "[:1 :0]"]),
        (tembo::Durability::PageCache, ["[:0 :0]", never]),
    ] {
        let server = with_durability(durability);
        let mut client = server.client();
        client.talk(&format!("SET k v => +OK\nWAITAOF 0 0 1 => {}", replies[0]));
        assert!(client.ask("WAITAOF 1 0 10000").starts_with(replies[1]), "{durability:?}");
        server.check();
    }
}

/// Replicas say how far their devices are; one that has none never counts.
#[test]
fn waitaof_counts_the_devices_of_replicas() {
    let durabilities = [SLOW, tembo::Durability::Journaled, tembo::Durability::PageCache];
    let master = with_durability(tembo::Durability::PageCache);
    let mut client = master.client();
    let replicas = durabilities.map(with_durability);
    for replica in &replicas {
        replica.client().talk(&format!("REPLICAOF 127.0.0.1 {} => +OK", master.address.port()));
    }
    client.talk("SET k v => +OK");
    eventually(|| client.ask("WAIT 3 1000") == ":3");
    client
        .talk("SET k w => +OK\nWAITAOF 0 2 10000 => [:0 :2]\nWAITAOF 0 3 300 => [:0 :2]\nWAIT 3 10000 => :3");
    let refused = replicas[0].client().ask("WAITAOF 0 0 0");
    assert!(refused.starts_with("-ERR WAITAOF cannot be used with replica instances."), "{refused}");
}
