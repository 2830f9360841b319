//! DUMP and RESTORE: payloads that are Redis's own, values that survive the way from server to server, and
//! payloads that are none.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, show};

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    match client.run(&[b"DUMP", key.as_bytes()]) {
        Value::Bulk(payload) => payload,
        other => panic!("{key}: {}", show(&other)),
    }
}

fn restore(client: &mut Client, key: &str, ttl: &str, payload: &[u8], options: &[&str]) -> String {
    let mut args = vec![&b"RESTORE"[..], key.as_bytes(), ttl.as_bytes(), payload];
    args.extend(options.iter().map(|option| option.as_bytes()));
    show(&client.run(&args))
}

/// The checksum of payloads, bit by bit.
fn checksum(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 })
    })
}

/// Whether payloads of this value are Redis's byte for byte.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// They are.
    Same,
    /// In one of the two servers the order of elements is that of a hash.
    Hashed,
}

/// Fills a server with values of every type and encoding; returns the keys.
fn fill(client: &mut Client) -> Vec<(String, Order)> {
    let mut keys = Vec::new();
    let mut add = |command: &str, key: &str, items: Vec<Vec<u8>>, order: Order| {
        for part in items.chunks(500) {
            let mut args = vec![command.as_bytes(), key.as_bytes()];
            args.extend(part.iter().map(Vec::as_slice));
            let reply = client.run(&args);
            assert!(!reply.is_error(), "{key}: {}", show(&reply));
        }
        keys.push((key.to_owned(), order));
    };
    let (same, hashed) = (Order::Same, Order::Hashed);
    for (n, text) in ["", "v", "0", "-1", "127", "-32769", "2147483648", "9223372036854775807", "007"]
        .into_iter()
        .chain(["a text of some length, that repeats: a text of some length, that repeats"])
        .enumerate()
    {
        add("SET", &format!("string:{n}"), vec![text.as_bytes().to_vec()], same);
    }
    let long: Vec<u8> = (0..50_000).map(|n| b"all the leaves are brown"[n * n / 3 % 24]).collect();
    add("SET", "string:long", vec![long], same);
    let numbers = |count: i64, step: i64| (0..count).map(move |n| (n * step).to_string().into_bytes());
    let texts = |count: usize| (0..count).map(move |n| format!("element {}", n * 31 % count).into_bytes());
    add("RPUSH", "list:one", vec![b"1".to_vec()], same);
    add("RPUSH", "list:small", texts(20).chain(numbers(20, 1000)).collect(), same);
    add("LPUSH", "list:reversed", texts(20).collect(), same);
    add("RPUSH", "list:large", texts(4000).chain([vec![b'x'; 9000], vec![b'y'; 3]]).collect(), same);
    add("SADD", "set:16", numbers(40, 3).collect(), same);
    add("SADD", "set:32", numbers(300, 100_000).collect(), same);
    add("SADD", "set:64", numbers(300, -(1 << 40)).collect(), same);
    add("SADD", "set:one", vec![b"text".to_vec()], same);
    add("SADD", "set:texts", texts(30).collect(), hashed);
    add("SADD", "set:large", texts(3000).collect(), hashed);
    let fields = |count| texts(count).zip(numbers(count as i64, 7)).flat_map(|(field, value)| [field, value]);
    add("HSET", "hash:small", fields(20).collect(), same);
    add("HSET", "hash:middle", fields(100).collect(), hashed);
    add("HSET", "hash:large", fields(1000).collect(), hashed);
    add("HSET", "hash:long", vec![b"f".to_vec(), vec![b'v'; 100]], same);
    let scores = ["1", "-2.5", "0.1", "inf", "-inf", "1e17", "3.0000000000000004", "1e-7", "1e300"];
    let scored =
        |count| texts(count).enumerate().flat_map(move |(n, text)| [scores[n % 9].as_bytes().to_vec(), text]);
    add("ZADD", "zset:small", scored(20).collect(), same);
    add("ZADD", "zset:middle", scored(100).collect(), same);
    add("ZADD", "zset:large", scored(1000).collect(), same);
    keys
}

/// Asserts that two keys have equal values.
#[track_caller]
fn assert_equal(client: &mut Client, key: &str, other: &str) {
    let Value::Array(digests) = client.run(&[b"DEBUG", b"DIGEST-VALUE", key.as_bytes(), other.as_bytes()])
    else {
        panic!("no digests");
    };
    assert_eq!(digests[0], digests[1], "{key} and {other}");
}

#[test]
fn values_of_every_type_are_restored() {
    let mut server = Fixture::start();
    let mut client = server.client();
    let keys = fill(&mut client);
    for (key, _) in &keys {
        let payload = dump(&mut client, key);
        assert_eq!(restore(&mut client, "copy", "0", &payload, &["REPLACE"]), "+OK", "{key}");
        assert_equal(&mut client, key, "copy");
        let encoding = client.ask(&format!("OBJECT ENCODING {key}"));
        assert_eq!(client.ask("OBJECT ENCODING copy"), encoding, "{key}");
        assert_eq!(restore(&mut client, &format!("second:{key}"), "0", &payload, &[]), "+OK", "{key}");
    }
    server.restart();
    let mut client = server.client();
    for (key, _) in &keys {
        assert_equal(&mut client, key, &format!("second:{key}"));
    }
    server.check();
}

#[test]
fn options_and_errors_are_those_of_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK\nRPUSH l a b => :2\nDUMP none => nil\nDUMP => -ERR wrong number of arguments for 'dump' command");
    let payload = dump(&mut client, "k");
    let mut check = |key: &str, ttl: &str, options: &[&str], expected: &str| {
        assert_eq!(restore(&mut client, key, ttl, &payload, options), expected, "{key} {ttl} {options:?}");
    };
    let busy = "-BUSYKEY Target key name already exists.";
    check("k", "0", &[], busy);
    check("k", "x", &[], busy);
    check("l", "0", &["REPLACE"], "+OK");
    check("n", "-1", &[], "-ERR Invalid TTL value, must be >= 0");
    check("n", "x", &[], "-ERR value is not an integer or out of range");
    check("n", "0", &["FOO"], "-ERR syntax error");
    check("n", "0", &["IDLETIME"], "-ERR syntax error");
    check("n", "0", &["IDLETIME", "-1"], "-ERR Invalid IDLETIME value, must be >= 0");
    check("n", "0", &["IDLETIME", "5", "FREQ", "5"], "-ERR syntax error");
    check("n", "0", &["FREQ", "256"], "-ERR Invalid FREQ value, must be >= 0 and <= 255");
    check("n", "0", &["IDLETIME", "5"], "+OK");
    check("n", "0", &["FREQ", "5", "replace"], "+OK");
    check("n", "100000", &["REPLACE"], "+OK");
    check("a", "9999999999999", &["ABSTTL"], "+OK");
    // Deadlines that have passed.
    check("gone", "1000", &["ABSTTL"], "+OK");
    check("l", "1000", &["ABSTTL", "REPLACE"], "+OK");
    check("l", "9223372036854775807", &[], "+OK");
    client.talk(
        "GET n => $v\nPEXPIRETIME a => :9999999999999\nEXISTS gone l => :0\nTYPE a => +string\nPERSIST n => :1",
    );
    for junk in [&b""[..], b"junk", &payload[2..], &[&payload[..], b"x"].concat()] {
        let expected = "-ERR DUMP payload version or checksum are wrong";
        assert_eq!(restore(&mut client, "n", "0", junk, &["REPLACE"]), expected);
    }
    let of = |body: &[u8]| [body, &checksum(body).to_le_bytes()].concat();
    assert_eq!(of(&payload[..payload.len() - 8]), payload, "the checksum of this test");
    for body in
        [&b"\x00\x05abc\x0a\x00"[..], b"\x63\x0a\x00", b"\x04\x00\x0a\x00", b"\x02\x02\x01a\x01a\x0a\x00"]
    {
        assert_eq!(
            restore(&mut client, "n", "0", &of(body), &["REPLACE"]),
            "-ERR Bad data format",
            "{body:?}"
        );
    }
    client.talk("GET n => $v");
    // One that Valkey 9 writes, whose fields have deadlines of their own.
    let field = [&b"\x16\x01\x01f\x01v"[..], &(1u64 << 41).to_le_bytes(), b"\x50\x00"].concat();
    let expected = "-ERR deadlines of fields are not supported";
    assert_eq!(restore(&mut client, "h", "0", &of(&field), &[]), expected);
    client.talk("MULTI => +OK\nDUMP k => +QUEUED\nDISCARD => +OK\nDBSIZE => :3");
    server.check();
}

#[test]
fn payloads_are_those_of_redis_and_go_both_ways() {
    let Some((_redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let keys = fill(&mut ours);
    fill(&mut theirs);
    for (key, order) in keys {
        let (our_payload, their_payload) = (dump(&mut ours, &key), dump(&mut theirs, &key));
        assert!(order == Order::Hashed || our_payload == their_payload, "{key}: the payloads differ");
        assert_eq!(restore(&mut theirs, "copy", "0", &our_payload, &["REPLACE"]), "+OK", "{key}");
        assert_equal(&mut theirs, &key, "copy");
        assert_eq!(restore(&mut ours, "copy", "0", &their_payload, &["REPLACE"]), "+OK", "{key}");
        assert_equal(&mut ours, &key, "copy");
        let encoding = format!("OBJECT ENCODING {key}");
        assert_eq!(ours.ask("OBJECT ENCODING copy"), theirs.ask(&encoding), "{key}");
    }
    server.check();
}

#[test]
fn a_restore_tells_what_it_tells_in_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut ours = server.client();
    let mut told = [Vec::new(), Vec::new()];
    let ears = [server.client(), redis.client()];
    for ((client, mut ear), told) in [&mut ours, &mut theirs].into_iter().zip(ears).zip(&mut told) {
        client.talk("SET k v => +OK\nCONFIG SET notify-keyspace-events KEAmn => +OK");
        ear.talk("PSUBSCRIBE __keyevent* => [$psubscribe $__keyevent* :1]");
        let payload = dump(client, "k");
        for (key, ttl, options) in [
            ("n", "0", &[][..]),
            ("n", "0", &[]),
            ("n", "0", &["REPLACE"]),
            ("n", "100000", &["REPLACE"]),
            ("n", "1", &["ABSTTL", "REPLACE"]),
            ("m", "1", &["ABSTTL"]),
        ] {
            restore(client, key, ttl, &payload, options);
        }
        client.talk("DUMP none => nil\nSET last v => +OK");
        while told.last().is_none_or(|text: &String| !text.contains("$last")) {
            told.push(show(&ear.receive()));
        }
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn damaged_payloads_are_refused() {
    let server = Fixture::start();
    let mut client = server.client();
    let keys = fill(&mut client);
    let mut random = Random(39);
    let mut refused = 0;
    for round in 0..1500 {
        let key = &keys[random.below(keys.len())].0;
        let mut payload = dump(&mut client, key);
        payload.truncate(payload.len() - 8);
        for _ in 0..1 + random.below(3) {
            let at = random.below(payload.len().min(300));
            match random.below(3) {
                0 => payload[at] ^= 1 << random.below(8),
                1 => payload[at] = random.pick(&[0, 0x80, 0x81, 0xc3, 0xff]),
                _ => drop(payload.remove(at)),
            }
        }
        if payload.len() < 3 {
            continue;
        }
        let footer = payload.len() - 2;
        payload[footer..].copy_from_slice(&[10, 0]);
        payload.extend(checksum(&payload).to_le_bytes());
        let reply = restore(&mut client, "damaged", "0", &payload, &["REPLACE"]);
        let is_known = reply == "+OK"
            || reply == "-ERR Bad data format"
            || reply.starts_with("-ERR string exceeds maximum allowed size")
            || reply == "-ERR deadlines of fields are not supported";
        assert!(is_known, "round {round}, {key}: {reply}");
        refused += usize::from(reply != "+OK");
    }
    assert!(refused > 300, "{refused}");
    client.talk("PING => +PONG");
    server.check();
}
