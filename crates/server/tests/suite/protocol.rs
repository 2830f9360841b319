//! Bytes on the wire: pieces, pipelines, inline commands, errors, ends.

use crate::support::{Fixture, request, show};

#[test]
fn requests_arrive_in_pieces() {
    let server = Fixture::start();
    let mut client = server.client();
    let bytes = [request(&[b"SET", b"key", b"some value"]), request(&[b"GET", b"key"])].concat();
    for byte in bytes {
        client.send_raw(&[byte]);
    }
    assert_eq!(show(&client.receive()), "+OK");
    assert_eq!(show(&client.receive()), "$some value");
}

#[test]
fn requests_are_cut_anywhere() {
    let server = Fixture::start();
    let mut client = server.client();
    let value = vec![b'x'; 500];
    let bytes =
        [request(&[b"SET", b"a", &value]), b"INCR n\r\n".to_vec(), request(&[b"STRLEN", b"a"])].concat();
    for cut in (1..bytes.len()).step_by(7) {
        client.send_raw(&bytes[..cut]);
        std::thread::sleep(std::time::Duration::from_micros(200));
        client.send_raw(&bytes[cut..]);
        assert_eq!(show(&client.receive()), "+OK");
        assert!(show(&client.receive()).starts_with(':'));
        assert_eq!(show(&client.receive()), ":500");
    }
}

#[test]
fn pipelines_are_answered_in_order() {
    let server = Fixture::start();
    let mut client = server.client();
    let requests: Vec<u8> = (0..10_000).flat_map(|n| request(&[b"ECHO", n.to_string().as_bytes()])).collect();
    let mut sender = client.stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &requests).unwrap());
    for n in 0..10_000 {
        assert_eq!(show(&client.receive()), format!("${n}"));
    }
    thread.join().unwrap();
}

#[test]
fn a_pipeline_sees_its_own_writes() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(
        b"SET k 1\r\nGET k\r\nINCR k\r\nGET k\r\nDEL k\r\nGET k\r\nSELECT 3\r\nSET k x\r\nGET k\r\n",
    );
    let replies: Vec<_> = (0..9).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", "$1", ":2", "$2", ":1", "nil", "+OK", "+OK", "$x"]);
}

#[test]
fn inline_commands() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(b"\r\n\nPING\nSET  k  \"a\\r\\nb\"\r\nGET k\r\n*0\r\n*-1\r\nPING\r\n");
    let replies: Vec<_> = (0..4).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+PONG", "+OK", "$a\\r\\nb", "+PONG"]);
}

#[test]
fn protocol_errors_close_the_connection() {
    let server = Fixture::start();
    for (bytes, expected) in [
        (&b"*1\r\nPING\r\n"[..], "-ERR Protocol error: expected '$', got 'P'"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"SET k \"\r\n", "-ERR Protocol error: unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send_raw(b"PING\r\n");
        assert_eq!(show(&client.receive()), "+PONG");
        client.send_raw(bytes);
        assert_eq!(show(&client.receive()), expected);
        client.expect_closed();
    }
    server.client().talk("PING => +PONG");
}

#[test]
fn what_precedes_a_protocol_error_is_done_and_answered() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(b"SET k v\r\n*x\r\nSET k never\r\n");
    assert_eq!(show(&client.receive()), "+OK");
    assert!(show(&client.receive()).starts_with("-ERR Protocol error"));
    client.expect_closed();
    server.client().talk("GET k => $v");
}

#[test]
fn a_half_closed_client_gets_its_replies() {
    let server = Fixture::start();
    let mut client = server.client();
    let value = vec![b'v'; 3 << 20];
    client.send(&[b"SET", b"k", &value]);
    assert_eq!(show(&client.receive()), "+OK");
    for _ in 0..5 {
        client.send(&[b"GET", b"k"]);
    }
    client.send_raw(b"PING\r\nSET half ");
    client.finish_sending();
    for _ in 0..5 {
        assert_eq!(client.receive().as_bytes(), Some(&value[..]));
    }
    assert_eq!(show(&client.receive()), "+PONG");
    client.expect_closed();
    server.client().talk("EXISTS half => :0");
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = Fixture::start();
    let mut stays = server.client();
    for _ in 0..100 {
        let mut client = server.client();
        client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhalf");
        drop(client);
    }
    crate::support::eventually(|| stays.info("connected_clients") == "1");
    stays.talk("EXISTS k => :0");
}

#[test]
fn a_large_value_comes_and_goes() {
    let server = Fixture::start();
    let mut client = server.client();
    let value: Vec<u8> = (0..20 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(show(&client.run(&[b"SET", b"k", &value])), "+OK");
    assert!(client.run(&[b"GET", b"k"]).as_bytes() == Some(&value[..]));
    client.talk("STRLEN k => :20971520\nGETRANGE k 0 0 => $\\x00");
    server.check();
}
