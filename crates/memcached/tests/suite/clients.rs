//! Clients, well-behaved and not.

use crate::support::{Client, Served, pool_in};
use std::process::Command;
use std::time::{Duration, Instant};
use tembo_memcached::{Accounts, Config, Error, Server};

fn served() -> (Served, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Served::start(pool_in(dir.path()), Config::default()), dir)
}

#[test]
fn a_pipeline_in_pieces_of_any_length_has_the_same_replies() {
    let (served, _dir) = served();
    let requests = b"set a 1 0 5\r\nhello\r\nget a\nset b 2 0 0 noreply\r\n\r\ngets b a\r\nms c 3 T0\r\nxyz\r\nmg c v f\r\n\
        incr a 1\r\ndelete a\r\nget a\r\n";
    let expected = "STORED\r\nVALUE a 1 5\r\nhello\r\nEND\r\nVALUE b 2 0 2\r\n\r\nVALUE a 1 5 1\r\nhello\r\nEND\r\nHD\r\n\
        VA 3 f0\r\nxyz\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nDELETED\r\nEND\r\n";
    let mut client = served.client();
    for piece_bytes in [1, 2, 3, 7, 20, 1000] {
        let reset = client.ask("flush_all\r\n");
        assert_eq!(reset, b"OK\r\n");
        for piece in requests.chunks(piece_bytes) {
            client.send(piece);
            if piece_bytes < 20 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let replies = String::from_utf8(client.ask("")).unwrap();
        // Unique numbers rise.
        let blank = |text: &str| text.replace(char::is_numeric, "#");
        let without_unique = |text: &str| blank(text).replace("##", "#").replace("##", "#");
        assert_eq!(without_unique(&replies), without_unique(expected), "in pieces of {piece_bytes}");
    }
}

#[test]
fn a_value_of_the_greatest_length_is_stored_and_a_longer_one_is_not_read_into_memory() {
    let (served, _dir) = served();
    let mut client = served.client();
    let value = vec![b'x'; 1 << 20];
    assert_eq!(client.ask([b"set a 0 0 1048576\r\n", &value[..], b"\r\n"].concat()), b"STORED\r\n");
    let got = client.ask("get a\r\n");
    assert_eq!(got.len(), "VALUE a 0 1048576\r\n".len() + value.len() + "\r\nEND\r\n".len());
    let longer = [b"set a 0 0 1048577\r\n", &value[..], b"x\r\n"].concat();
    assert_eq!(client.ask(longer), b"SERVER_ERROR object too large for cache\r\n");
    // The old value stays, and so it does when an addition is too long.
    assert_eq!(client.ask("append a 0 0 1\r\ny\r\n"), b"SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.ask("get a\r\n"), got);
    // Its length is taken by its word: what follows belongs to it.
    client.send(b"set a 0 0 9223372036854775807\r\n");
    assert_eq!(client.until(b"\r\n"), b"SERVER_ERROR object too large for cache\r\n");
    client.send(b"get a\r\nget a\r\n");
    let mut other = served.client();
    assert_eq!(other.ask("get a\r\n"), got);
}

/// A client that asks for a hundred megabytes and does not read: others are served, and it gets all of it.
#[test]
fn replies_wait_for_a_client_that_does_not_read() {
    let (served, _dir) = served();
    let mut client = served.client();
    let value = vec![b'x'; 1_000_000];
    assert_eq!(client.ask([b"set a 0 0 1000000\r\n", &value[..], b"\r\n"].concat()), b"STORED\r\n");
    let mut deaf = served.client();
    let keys = " a".repeat(100);
    deaf.send(format!("get{keys}\r\nset b 0 0 1\r\n1\r\n").as_bytes());
    let begun = Instant::now();
    for _ in 0..200 {
        assert_eq!(client.ask("get nothing\r\n"), b"END\r\n");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    // It is not served further before it reads.
    assert_eq!(client.ask("get b\r\n"), b"END\r\n");
    let all = deaf.until(b"END\r\nSTORED\r\n");
    let one = "VALUE a 0 1000000\r\n".len() + 1_000_002;
    assert_eq!(all.len(), 100 * one + "END\r\nSTORED\r\n".len());
}

#[test]
fn lines_without_an_end_and_other_protocols_end_the_connection() {
    let (served, _dir) = served();
    for (request, reply) in [
        (vec![b'x'; 3000], "CLIENT_ERROR line too long\r\n"),
        ([b"get ".to_vec(), vec![b'x'; (1 << 20) + 100]].concat(), "CLIENT_ERROR line too long\r\n"),
        ([&[0x80, 0][..], &[0; 22]].concat(), ""),
        (b"quit\r\nget a\r\n".to_vec(), ""),
    ] {
        let mut client = served.client();
        client.send(&request);
        assert_eq!(String::from_utf8_lossy(&client.rest()), reply);
    }
    let mut client = served.client();
    let many = format!("get{}\r\n", " key".repeat(100_000));
    assert_eq!(client.ask(many), b"END\r\n");
    assert_eq!(
        client.ask(format!("get {}\r\n", "k".repeat(251))),
        b"CLIENT_ERROR bad command line format\r\n"
    );
    assert_eq!(client.ask(format!("get {}\r\n", "k".repeat(250))), b"END\r\n");
}

#[test]
fn nobody_is_served_without_an_account_where_there_are_accounts() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.accounts = Some(Accounts::parse("ann:secret\n").unwrap());
    let served = Served::start(pool_in(dir.path()), config);
    for (request, reply) in [
        ("get a\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("mn\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        ("set auth 0 0 9\r\nann wrong\r\n", "CLIENT_ERROR authentication failure\r\n"),
        ("set auth 0 0 1000\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        // A line of keys may be long, but not before there is an account.
        (&format!("get {}", "k".repeat(3000)), "CLIENT_ERROR line too long\r\n"),
    ] {
        let mut client = served.client();
        client.send(request.as_bytes());
        assert_eq!(String::from_utf8(client.rest()).unwrap(), reply, "{request}");
    }
    let mut client = served.client();
    assert_eq!(client.ask("set auth 0 0 10\r\nann secret\r\nget auth\r\n"), b"STORED\r\nEND\r\n");
    let stats = client.says("stats");
    assert!(stats.contains("STAT auth_cmds 2\n") && stats.contains("STAT auth_errors 1\n"), "{stats}");
}

#[test]
fn an_address_that_others_can_reach_needs_accounts() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.listen = "0.0.0.0:0".parse().unwrap();
    let refused = Server::bind(config.clone(), pool_in(dir.path()));
    assert!(matches!(refused, Err(Error::Open { .. })));
    config.accounts = Some(Accounts::parse("ann:secret\n").unwrap());
    assert!(Server::bind(config, pool_in(&dir.path().join("."))).is_ok());
}

#[test]
fn clients_beyond_the_limit_are_told_so_and_silent_ones_are_disconnected() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    (config.max_clients, config.idle_timeout) = (2, Some(Duration::from_millis(300)));
    let served = Served::start(pool_in(dir.path()), config);
    let (mut one, mut other) = (served.client(), served.client());
    assert_eq!((one.ask(""), other.ask("")), (vec![], vec![]));
    let mut third = served.client();
    assert_eq!(third.rest(), b"ERROR Too many open connections\r\n");
    // Until their end.
    assert_eq!((one.rest(), other.rest()), (vec![], vec![]));
    assert_eq!(served.client().ask("get a\r\n"), b"END\r\n");
}

#[test]
fn numbers_begin_again_behind_the_largest_and_end_at_zero() {
    let (served, _dir) = served();
    let mut client = served.client();
    client.says("set a 0 0 20\n18446744073709551615");
    assert_eq!(client.says("incr a 1\nincr a 18446744073709551615\nincr a 3"), "0\n18446744073709551615\n2");
    assert_eq!(client.says("decr a 5\nget a"), "0\nVALUE a 0 20\n0                   \nEND");
}

#[test]
fn stats_count_what_clients_did() {
    let (served, _dir) = served();
    let mut client = served.client();
    client.ask("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nget a b c\r\nincr a 1\r\ndecr z 1\r\ndelete b\r\ndelete b\r\n");
    client.ask("touch a 0\r\ncas a 0 0 1 99\r\nx\r\nmg a\r\n");
    let stats = client.says("stats");
    for line in [
        "curr_items 1",
        "total_items 3",
        "get_hits 3",
        "get_misses 1",
        "incr_hits 1",
        "decr_misses 1",
        "delete_hits 1",
        "delete_misses 1",
        "touch_hits 1",
        "cas_badval 1",
        "curr_connections 1",
        "threads 1",
        "evictions 0",
    ] {
        assert!(stats.contains(&format!("STAT {line}\n")), "{line}: {stats}");
    }
    assert!(stats.ends_with("END"));
    assert_eq!(client.says("stats reset"), "RESET");
    assert!(client.says("stats").contains("STAT get_hits 0\n"));
    assert!(client.says("stats settings").contains("STAT item_size_max 1048576\n"));
    assert_eq!(client.says("stats nonsense"), "ERROR");
}

/// libmemcached's own test of servers, of the text protocol.
#[test]
fn memccapable_finds_every_command() {
    let (served, _dir) = served();
    let port = served.address.port().to_string();
    let run = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output();
    let Ok(output) = run else {
        eprintln!("SKIPPED: there is no memccapable on this machine (Debian: libmemcached-tools)");
        return;
    };
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("All tests passed"), "{said}");
    assert_eq!(said.matches("[pass]").count(), 27, "{said}");
}

#[test]
fn a_client_can_come_and_go_many_times() {
    let (served, _dir) = served();
    for _ in 0..2000 {
        Client::connect(served.address);
    }
    let mut client = served.client();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client.says("stats").contains("STAT curr_connections 1\n") {
        assert!(Instant::now() < deadline, "connections are kept");
    }
}

/// A web page could have its visitor's browser run commands: the head of its request was taken for unknown
/// commands, and the lines of its body were executed.
#[test]
fn other_protocols_run_no_command() {
    let (served, _dir) = served();
    let mut other = served.client();
    assert_eq!(other.ask("set kept 0 0 1\r\n1\r\n"), b"STORED\r\n");
    let body = b"set stolen 0 0 1\r\n1\r\nflush_all\r\n";
    for head in [
        &b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.0\r\n\r\n",
        b"hello\r\nHost: x\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\x80\x0b\0\0",
    ] {
        let mut stranger = served.client();
        stranger.send(&[head, body].concat());
        let answer = stranger.rest();
        assert!(answer.is_empty() || answer == b"ERROR\r\n", "{}", answer.escape_ascii());
        assert_eq!(other.says("get kept\nget stolen"), "VALUE kept 0 1\n1\nEND\nEND");
    }
}
