//! Slow and greedy clients do not harm others.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{Client, Fixture, eventually, request, show};

/// A client that sent 200,000 GETs before it read a reply hung for ever: the server did not read from it
/// until it took its replies, which it did not until it had sent everything.
#[test]
fn a_client_that_reads_late_is_served_and_the_memory_comes_back() {
    let server = Fixture::start();
    let (mut late, mut other) = (server.client(), server.client());
    let value = vec![b'v'; 1000];
    late.run(&[b"SET", b"k", &value]);
    late.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    // 2.8 MB of requests, which no socket holds, for 100 MB of replies.
    late.send_raw(&request(&[b"GET", b"k"]).repeat(100_000));
    eventually(|| other.info("keyspace_hits") == "100000");
    let held: u64 = other.info("mem_clients_normal").parse().unwrap();
    assert!((80_000_000..110_000_000).contains(&held), "{held} bytes for 100 MB less what the sockets hold");
    let line = client_line(&mut other, "cmd=get");
    assert!(field(&line, "oll") > 0 && field(&line, "omem") > 80_000_000, "{line}");
    assert_eq!(field(&line, "obl"), 0, "{line}");
    assert!((field(&line, "omem")..held).contains(&field(&line, "tot-mem")), "{line}");
    for _ in 0..100_000 {
        assert_eq!(late.receive().as_bytes(), Some(&value[..]));
    }
    late.talk("PING => +PONG");
    let held: u64 = other.info("mem_clients_normal").parse().unwrap();
    assert!(held < 300_000, "{held} bytes are held for two clients that have all their replies");
    let line = client_line(&mut other, "cmd=ping");
    assert_eq!((field(&line, "oll"), field(&line, "omem")), (0, 0), "{line}");
}

/// The line of CLIENT LIST that has this in it.
fn client_line(client: &mut Client, part: &str) -> String {
    let list = client.ask("CLIENT LIST");
    let lines = list.trim_start_matches('$').split("\\n");
    lines
        .into_iter()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in {list}"))
        .to_owned()
}

/// A number in a line of CLIENT LIST.
fn field(line: &str, name: &str) -> u64 {
    let value = line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {line}")).parse().unwrap()
}

#[test]
fn a_giant_pipeline_is_done_in_turns_with_others() {
    let server = Fixture::start();
    let (mut greedy, mut other) = (server.client(), server.client());
    greedy.run(&[b"SET", b"k", &vec![b'v'; 100_000]]);
    // 400 MB of replies, of which a turn makes half a MiB: six commands, and never the thousands that
    // one read brings.
    greedy.send_raw(&b"GET k\r\n".repeat(4000));
    let (mut before, mut most) = (0, 0);
    for n in 1..=200 {
        other.talk(&format!("INCR n => :{n}"));
        let hits: u64 = other.info("keyspace_hits").parse().unwrap();
        // Two replies to the other client are three turns of the greedy one at least, and few more.
        most = most.max(hits - before);
        before = hits;
    }
    assert!(most < 1000, "{most} commands of one client were run while another had two");
    let turns: u64 = other.info("event_loop_turns").parse().unwrap();
    let commands: u64 = other.info("total_commands_processed").parse().unwrap();
    assert!(commands < 20 * turns + 4096, "{commands} commands in {turns} turns");
}

/// Reads until the connection ends; returns how many bytes came.
fn drain(client: &mut Client) -> usize {
    let mut chunk = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match client.stream.read(&mut chunk) {
            Ok(0) | Err(_) => return bytes,
            Ok(len) => bytes += len,
        }
    }
}

#[test]
fn a_slow_reader_is_disconnected_at_the_hard_limit() {
    let server = Fixture::start();
    let (mut slow, mut other) = (server.client(), server.client());
    other.talk("CONFIG SET client-output-buffer-limit 'normal 8mb 0 0' => +OK");
    slow.run(&[b"SET", b"k", &vec![b'v'; 100_000]]);
    // A reader that keeps up may have any number of replies.
    for _ in 0..500 {
        slow.send_raw(b"GET k\r\n");
        slow.receive();
    }
    slow.send_raw(&b"GET k\r\n".repeat(1000));
    eventually(|| other.info("client_output_buffer_limit_disconnections") == "1");
    eventually(|| other.info("connected_clients") == "1");
    assert!(drain(&mut slow) < 20_000_000, "less than was asked for");
    let held: u64 = other.info("mem_clients_normal").parse().unwrap();
    assert!(held < 300_000, "{held}");
    other.talk("CONFIG RESETSTAT => +OK");
    assert_eq!(other.info("client_output_buffer_limit_disconnections"), "0");
}

#[test]
fn a_slow_reader_is_disconnected_after_the_soft_limits_time_and_a_reader_that_comes_back_is_not() {
    let server = Fixture::start();
    let (mut slow, mut pauses, mut other) = (server.client(), server.client(), server.client());
    other.talk("CONFIG SET client-output-buffer-limit 'normal 0 1mb 2' => +OK");
    other.run(&[b"SET", b"k", &vec![b'v'; 100_000]]);
    slow.send_raw(&b"GET k\r\n".repeat(300));
    pauses.send_raw(&b"GET k\r\n".repeat(300));
    for _ in 0..300 {
        pauses.receive();
    }
    // It has nothing more to ask for, so that only the clock can find it.
    eventually(|| other.info("client_output_buffer_limit_disconnections") == "1");
    drain(&mut slow);
    pauses.talk("PING => +PONG");
    assert_eq!(other.info("client_output_buffer_limit_disconnections"), "1");
}

#[test]
fn the_largest_clients_are_evicted_first_and_exempt_ones_never() {
    let server = Fixture::start();
    let (mut small, mut large, mut exempt) = (server.client(), server.client(), server.client());
    let mut other = server.client();
    exempt.talk("CLIENT NO-EVICT ON => +OK");
    other.run(&[b"SET", b"k", &vec![b'v'; 100_000]]);
    other.talk("CONFIG SET maxmemory-clients 0 => +OK");
    for (client, count) in [(&mut small, 200), (&mut large, 600), (&mut exempt, 900)] {
        client.send_raw(&b"GET k\r\n".repeat(count));
    }
    eventually(|| other.info("keyspace_hits") == "1700");
    assert_eq!(other.info("evicted_clients"), "0");
    // Without the large one this is enough.
    other.talk("CONFIG SET maxmemory-clients 120mb => +OK");
    eventually(|| other.info("evicted_clients") == "1");
    drain(&mut large);
    other.talk("CONFIG SET maxmemory-clients 1% => +OK\nPING => +PONG");
    (0..200).for_each(|_| assert_eq!(small.receive().as_bytes().map(<[u8]>::len), Some(100_000)));
    (0..900).for_each(|_| assert_eq!(exempt.receive().as_bytes().map(<[u8]>::len), Some(100_000)));
    assert_eq!(other.info("evicted_clients"), "1");
}

/// Requests count as replies do: a client with a large one under way has its buffer.
#[test]
fn a_client_with_a_large_request_under_way_can_be_evicted() {
    let server = Fixture::start();
    let (mut large, mut other) = (server.client(), server.client());
    other.talk("CONFIG SET maxmemory-clients 8mb => +OK");
    let mut request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\n".to_vec();
    request.resize(32 << 20, b'v');
    let mut sender = large.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&request));
    eventually(|| other.info("evicted_clients") == "1");
    drop(sending.join().unwrap());
    drain(&mut large);
    other.talk("EXISTS k => :0");
}

#[test]
fn a_client_that_never_reads_can_be_dropped() {
    let server = Fixture::start();
    let (mut greedy, mut other) = (server.client(), server.client());
    greedy.run(&[b"SET", b"k", &vec![b'v'; 1 << 20]]);
    greedy.send_raw(&b"GET k\r\n".repeat(100));
    other.talk("PING => +PONG");
    drop(greedy);
    eventually(|| other.info("connected_clients") == "1");
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
    let server = Fixture::with_config(|config| config.turn_reply_bytes = 1);
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
