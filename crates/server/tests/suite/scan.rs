//! SCAN and KEYS.

use std::collections::BTreeSet;

use tembo_wire::Value;

use crate::support::{Client, Fixture, show};

fn fill(client: &mut Client, keys: usize) {
    for key in 0..keys {
        client.send(&[b"SET", format!("key:{key:06}").as_bytes(), b"v"]);
        client.receive();
    }
}

/// One call of SCAN: the next cursor and the keys.
fn scan(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    let reply = {
        let words = format!("SCAN {cursor} {options}");
        let args: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        client.run(&args)
    };
    let Value::Array(parts) = &reply else { panic!("{reply:?}") };
    let [Value::Bulk(next), Value::Array(keys)] = &parts[..] else { panic!("{reply:?}") };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let keys = keys.iter().map(|key| text(key.as_bytes().unwrap())).collect();
    (text(next), keys)
}

/// All keys that a whole scan returns.
fn scan_all(client: &mut Client, options: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let (next, keys) = scan(client, &cursor, options);
        all.extend(keys);
        if next == "0" {
            return all;
        }
        cursor = next;
    }
}

#[test]
fn a_scan_returns_every_key_once() {
    let server = Fixture::start();
    let mut client = server.client();
    fill(&mut client, 1000);
    for options in ["", "COUNT 1", "COUNT 7", "COUNT 100", "COUNT 1000", "COUNT 1000000"] {
        let all = scan_all(&mut client, options);
        assert_eq!(all.len(), 1000, "{options}");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 1000, "{options}");
    }
}

#[test]
fn ten_thousand_scans_open_at_once_all_finish() {
    let server = Fixture::start();
    let mut client = server.client();
    fill(&mut client, 30);
    let mut open: Vec<_> = (0..10_000).map(|_| scan(&mut client, "0", "COUNT 12")).collect();
    for round in 0..2 {
        for (cursor, keys) in &mut open {
            let (next, more) = scan(&mut client, cursor, "COUNT 12");
            keys.extend(more);
            *cursor = next;
            assert_eq!(cursor == "0", round == 1);
        }
    }
    assert!(open.iter().all(|(_, keys)| keys.iter().collect::<BTreeSet<_>>().len() == 30));
}

/// Cursors were positions that the server kept in memory: 65,536 of them, until it stopped.
#[test]
fn any_number_of_scans_is_open_while_keys_change_and_across_a_restart() {
    const SCANS: usize = 10_000;
    let mut server = Fixture::start();
    let mut client = server.client();
    // Keys that differ early, late, by their ends, and by bytes that text has not.
    let name = |key: usize| match key % 4 {
        0 => format!("key:{key:012}"),
        1 => format!("a long beginning that many keys have in common:{key:06}"),
        2 => "\u{1}".repeat(key / 4 + 1),
        _ => format!("{:016x}", (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    let is_kept = |key: usize| !key.is_multiple_of(3);
    let set = |client: &mut Client, key: usize| {
        client.run(&[b"SET", name(key).as_bytes(), b"v"]);
    };
    (0..1200).for_each(|key| set(&mut client, key));
    let mut open: Vec<_> = (0..SCANS).map(|nth| ("0".to_owned(), Vec::new(), 7 + nth % 350)).collect();
    let (mut round, mut still) = (0, SCANS);
    while still > 0 {
        for (nth, (cursor, seen, count)) in open.iter_mut().enumerate() {
            if cursor == "0" && round > 0 {
                continue;
            }
            let (next, keys) = scan(&mut client, cursor, &format!("COUNT {count}"));
            seen.extend(keys);
            still -= usize::from(next == "0");
            *cursor = next;
            // Others come and go all the time, those at which scans stand among them.
            let (key, other) = (3 * (nth * 7 % 400), 3 * (nth * 13 % 400));
            if nth % 8 == 0 {
                client.run(&[b"DEL", name(key).as_bytes()]);
                set(&mut client, other);
            }
        }
        // Scans of the shortest steps would take long; they go on in larger ones.
        open.iter_mut().for_each(|(_, _, count)| *count *= 2);
        round += 1;
        if round < 3 {
            drop(client);
            server.restart();
            client = server.client();
        }
    }
    let kept: Vec<_> = (0..1200).filter(|key| is_kept(*key)).map(name).collect();
    for (_, seen, _) in &open {
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "a key came twice");
        assert!(kept.iter().all(|key| distinct.contains(key)));
    }
    drop(client);
    server.check();
}

/// In a full pool no beginning of keys gets a name. A scan goes on to the next place that needs none.
#[test]
fn a_scan_ends_in_a_full_pool() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(12 << 20).max_bytes(12 << 20));
    let mut client = server.client();
    let mut keys = 0;
    for bytes in [100_000, 1000, 100, 50, 30, 20, 10, 0] {
        for beginning in ["a long beginning of a long name that many keys have:", "a beginning:", "b"] {
            loop {
                let name = format!("{beginning}{keys:06}");
                if client.run(&[b"SET", name.as_bytes(), &vec![b'v'; bytes]]).is_error() {
                    break;
                }
                keys += 1;
            }
        }
    }
    let all = scan_all(&mut client, "COUNT 3");
    assert_eq!(all.len(), keys);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), keys);
    // Hundreds of places needed a name, and there was room for a few.
    let named = server.report().scan_prefixes;
    assert!(named < 10, "there was room for {named} names");
}

#[test]
fn a_scan_finds_what_is_there_all_the_time() {
    let server = Fixture::start();
    let mut client = server.client();
    fill(&mut client, 500);
    let (mut seen, mut cursor, mut step) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        let (next, keys) = scan(&mut client, &cursor, "COUNT 10");
        seen.extend(keys);
        // Keys come and go everywhere, the one at which the scan stands among them.
        client.ask(&format!("DEL key:{:06}", (step * 10 + 9) % 500));
        client.ask(&format!("SET key:{:06}x v", step * 37 % 500));
        step += 1;
        if next == "0" {
            break;
        }
        cursor = next;
    }
    for key in (0..500).filter(|key| key % 10 != 9) {
        assert!(seen.contains(&format!("key:{key:06}")), "{key}");
    }
}

#[test]
fn a_scan_filters() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("MSET user:1 a user:2 b use c userx d item:1 e => +OK");
    assert_eq!(scan_all(&mut client, "MATCH user:*"), ["user:1", "user:2"]);
    assert_eq!(scan_all(&mut client, "MATCH *1 COUNT 1"), ["item:1", "user:1"]);
    assert_eq!(scan_all(&mut client, "MATCH use COUNT 1"), ["use"]);
    assert_eq!(scan_all(&mut client, "TYPE string").len(), 5);
    assert_eq!(scan_all(&mut client, "TYPE hash").len(), 0);
    assert_eq!(scan_all(&mut client, "MATCH nosuch*").len(), 0);
    client.talk(
        "
        SCAN x => -ERR invalid cursor
        SCAN -1 => -ERR invalid cursor
        SCAN 12345 => -ERR invalid cursor
        SCAN 0 COUNT 0 => -ERR syntax error
        SCAN 0 COUNT x => -ERR value is not an integer or out of range
        SCAN 0 COUNT => -ERR syntax error
        SCAN 0 NOSUCH 1 => -ERR syntax error
        ",
    );
}

#[test]
fn a_step_of_a_scan_can_be_repeated() {
    let server = Fixture::start();
    let mut client = server.client();
    fill(&mut client, 50);
    let (first, _) = scan(&mut client, "0", "");
    let (second, keys) = scan(&mut client, &first, "");
    assert_ne!(first, second);
    assert_eq!(scan(&mut client, &first, "").1, keys);
}

#[test]
fn a_scan_sees_the_writes_before_it_in_the_same_batch() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(b"SET a 1\r\nSET b 2\r\nKEYS *\r\nDEL a\r\nSCAN 0\r\nRANDOMKEY\r\nDBSIZE\r\n");
    let replies: Vec<_> = (0..7).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", "+OK", "[$a $b]", ":1", "[$0 [$b]]", "$b", ":1"]);
}

#[test]
fn keys_match_patterns() {
    let server = Fixture::start();
    server.client().talk(
        "
        KEYS * => []
        MSET hello 1 hallo 2 hxllo 3 h*llo 4 hllo 5 => +OK
        KEYS h?llo => [$h*llo $hallo $hello $hxllo]
        KEYS h[ae]llo => [$hallo $hello]
        KEYS h[^e]llo => [$h*llo $hallo $hxllo]
        KEYS h\\*llo => [$h*llo]
        KEYS h*llo => [$h*llo $hallo $hello $hllo $hxllo]
        KEYS hello => [$hello]
        KEYS HELLO => []
        SELECT 2 => +OK
        KEYS * => []
        ",
    );
}

#[test]
fn many_keys_come_in_several_turns_and_others_are_served_meanwhile() {
    let server = Fixture::start();
    let mut client = server.client();
    for chunk in 0..30 {
        let keys: Vec<_> = (0..1000).map(|key| format!("key:{:06}", chunk * 1000 + key)).collect();
        let mut args: Vec<&[u8]> = vec![b"MSET"];
        args.extend(keys.iter().flat_map(|key| [key.as_bytes(), b"v"]));
        assert_eq!(show(&client.run(&args)), "+OK");
    }
    // The commands after KEYS in the pipeline wait for it.
    client.send_raw(b"KEYS *\r\nDEL key:000000\r\nKEYS *\r\nPING\r\n");
    let mut other = server.client();
    other.talk("GET key:029999 => $v");
    for expected in [30_000, 29_999] {
        let Value::Array(keys) = client.receive() else { panic!("no array") };
        assert_eq!(keys.len(), expected);
        let names: Vec<_> = keys.iter().map(|key| key.as_bytes().unwrap()).collect();
        assert!(names.is_sorted());
        if expected == 30_000 {
            assert_eq!(show(&client.receive()), ":1");
        }
    }
    assert_eq!(show(&client.receive()), "+PONG");
}
