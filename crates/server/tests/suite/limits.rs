//! How much one client may ask for.

use std::time::Duration;

use crate::support::{Fixture, eventually, request, show};

#[test]
fn there_is_room_for_so_many_clients() {
    let server = Fixture::with_config(|config| config.max_clients = 3);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.talk("PING => +PONG"));
    let mut rejected = server.client();
    assert_eq!(show(&rejected.receive()), "-ERR max number of clients reached");
    rejected.expect_closed();
    clients.pop();
    eventually(|| {
        let mut client = server.client();
        client.send_raw(b"PING\r\n");
        matches!(client.try_receive(), Some(reply) if show(&reply) == "+PONG")
    });
    clients[0].talk("CONFIG SET maxclients 4 => +OK");
    assert_eq!(clients[0].info("maxclients"), "4");
}

/// Connections that were opened and left kept everybody out.
#[test]
fn strangers_make_room_and_clients_do_not() {
    let server = Fixture::with_config(|config| {
        config.max_clients = 3;
        config.password = tembo_server::Password::new("secret");
    });
    let mut clients = vec![server.client()];
    clients[0].talk("AUTH secret => +OK");
    let (mut silent, mut unknown) = (server.client(), server.client());
    unknown.talk("PING => -NOAUTH Authentication required.");
    for _ in 0..2 {
        eventually(|| {
            let mut client = server.client();
            client.send_raw(b"AUTH secret\r\n");
            let is_in = matches!(client.try_receive(), Some(reply) if show(&reply) == "+OK");
            if is_in {
                clients.push(client);
            }
            is_in
        });
    }
    silent.expect_closed();
    unknown.expect_closed();
    assert!(server.log.count("made room for others") >= 2, "{:?}", server.log.lines());
    let mut rejected = server.client();
    assert_eq!(show(&rejected.receive()), "-ERR max number of clients reached");
    clients.iter_mut().for_each(|client| client.talk("PING => +PONG"));
}

#[test]
fn idle_clients_are_disconnected() {
    let server = Fixture::with_config(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    let (mut idle, mut busy) = (server.client(), server.client());
    idle.talk("PING => +PONG");
    let waiting = std::thread::spawn(move || idle.expect_closed());
    while !waiting.is_finished() {
        busy.talk("PING => +PONG");
        std::thread::sleep(Duration::from_millis(10));
    }
    waiting.join().unwrap();
    busy.talk("PING => +PONG");
}

#[test]
fn a_request_may_be_too_big() {
    let server = Fixture::with_config(|config| {
        config.limits.max_bulk_bytes = 1000;
        config.limits.max_request_bytes = 1500;
        config.limits.max_args = 10;
        config.limits.max_line_bytes = 100;
    });
    let large = [b'x'; 1001];
    for (bytes, expected) in [
        (request(&[b"SET", b"k", &large]), "-ERR Protocol error: invalid bulk length"),
        (
            request(&[b"MSET", b"k", &large[..900], b"l", &large[..900]]),
            "-ERR Protocol error: too big request",
        ),
        (request(&[&b"DEL"[..]; 11]), "-ERR Protocol error: invalid multibulk length"),
        (large.to_vec(), "-ERR Protocol error: too big inline request"),
    ] {
        let mut client = server.client();
        client.send_raw(&bytes);
        assert_eq!(show(&client.receive()), expected);
        client.expect_closed();
    }
    let mut client = server.client();
    assert_eq!(show(&client.run(&[b"SET", b"k", &large[..1000]])), "+OK");
    client.talk("APPEND k x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    client.talk("SETRANGE k 1000 x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    client.talk(
        "
        SETBIT k 7999 1 => :0
        SETBIT k 8000 1 => -ERR bit offset is not an integer or out of range
        GETBIT k 8000 => -ERR bit offset is not an integer or out of range
        BITFIELD k SET u8 8000 1 => -ERR bit offset is not an integer or out of range
        BITFIELD k GET u8 #1000 => -ERR bit offset is not an integer or out of range
        ",
    );
}

/// The table of LCS has 4 bytes for each pair of prefixes, of which a string of 99 bytes has 100.
#[test]
fn the_table_of_lcs_may_be_too_big() {
    let server = Fixture::with_config(|config| config.limits.max_bulk_bytes = 40_000);
    server.client().talk(
        "
        SETRANGE k 98 x => :99
        LCS k k LEN => :99
        APPEND k x => :100
        LCS k k => -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len
        LCS k k LEN => -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len
        SETRANGE k 9998 x => :9999
        LCS k missing => $
        LCS missing k LEN => :0
        APPEND k x => :10000
        LCS k missing => -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len
        LCS missing k LEN => -ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len
        ",
    );
}

#[test]
fn a_reply_may_be_too_big() {
    let server = Fixture::with_config(|config| config.reply_bytes_max = 10_000);
    let mut client = server.client();
    let value = [b'x'; 6000];
    client.run(&[b"SET", b"k", &value]);
    assert_eq!(client.run(&[b"GET", b"k"]).as_bytes(), Some(&value[..]));
    client.talk(
        "
        MGET k k => -ERR reply exceeds the maximum (reply-max-bytes)
        SET k v GET => $6000
        "
        .replace("$6000", &format!("${}", "x".repeat(6000)))
        .as_str(),
    );
    for key in 0..1000 {
        client.ask(&format!("SET key:{key} v"));
    }
    client.ask(&format!(
        "GEOADD g {}",
        (0..30).map(|n| format!("1 1 {n}{} ", "x".repeat(400))).collect::<String>()
    ));
    client.talk(
        "
        GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 km => -ERR the result exceeds the maximum (reply-max-bytes)
        GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 1 km => -ERR the result exceeds the maximum (reply-max-bytes)
        GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 1 km COUNT 9 ANY => :9
        ",
    );
    client.talk("KEYS * => -ERR reply exceeds the maximum (reply-max-bytes)\nPING => +PONG");
}
