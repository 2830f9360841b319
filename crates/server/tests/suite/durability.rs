//! Every acknowledged write is durable; a write that cannot be made durable is not acknowledged.

use crate::support::{Client, Fixture, show};

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
