//! Slow and greedy clients harm nobody.

use std::time::Duration;

use crate::support::{Fixture, show};

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let server = Fixture::with_config(|config| config.output_pause_bytes = 64 << 10);
    let (mut greedy, mut other) = (server.client(), server.client());
    let value = vec![b'v'; 100_000];
    greedy.run(&[b"SET", b"k", &value]);
    // 400 MB of replies, of which none is read yet: without a limit the server would hold them all.
    greedy.send_raw(&b"GET k\r\n".repeat(4000));
    for n in 1..=200 {
        other.talk(&format!("INCR n => :{n}"));
    }
    let commands: u64 = other.info("total_commands_processed").parse().unwrap();
    assert!(commands < 1000, "{commands} commands were run, so their replies are held in memory");
    for _ in 0..4000 {
        assert_eq!(greedy.receive().as_bytes(), Some(&value[..]));
    }
    greedy.talk("PING => +PONG");
}

#[test]
fn a_client_that_never_reads_can_be_dropped() {
    let server = Fixture::start();
    let (mut greedy, mut other) = (server.client(), server.client());
    greedy.run(&[b"SET", b"k", &vec![b'v'; 1 << 20]]);
    greedy.send_raw(&b"GET k\r\n".repeat(100));
    other.talk("PING => +PONG");
    drop(greedy);
    crate::support::eventually(|| other.info("connected_clients") == "1");
}

#[test]
fn a_large_value_under_way_holds_nobody_up() {
    let server = Fixture::start();
    let (mut large, mut other) = (server.client(), server.client());
    large.send_raw(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$67108864\r\n");
    let chunk = vec![b'x'; 1 << 20];
    for n in 1..=64 {
        large.send_raw(&chunk);
        other.talk(&format!("INCR n => :{n}"));
    }
    large.send_raw(b"\r\n");
    assert_eq!(show(&large.receive()), "+OK");
    other.talk("STRLEN large => :67108864");
}

#[test]
fn an_announced_value_costs_nothing() {
    let server = Fixture::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send_raw(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$536870912\r\nstart");
    }
    let mut other = server.client();
    other.talk("PING => +PONG");
    let list = other.ask("CLIENT LIST");
    let buffered: u64 = list
        .split(' ')
        .filter_map(|field| field.strip_prefix("tot-mem="))
        .map(|bytes| bytes.parse::<u64>().unwrap())
        .sum();
    assert!(buffered < 100 << 20, "{buffered} bytes");
}

#[test]
fn replies_of_a_reader_that_pauses_are_whole() {
    let server = Fixture::with_config(|config| config.output_pause_bytes = 1);
    let mut client = server.client();
    let value: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    client.run(&[b"SET", b"k", &value]);
    client.send_raw(&b"GET k\r\nPING\r\n".repeat(30));
    for round in 0..30 {
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(client.receive().as_bytes() == Some(&value[..]));
        assert_eq!(show(&client.receive()), "+PONG");
    }
}
