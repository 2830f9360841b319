//! The keys of a node of a cluster, which lie behind their slots: clients see the keys that they wrote.

use std::collections::{BTreeMap, BTreeSet};

use tembo_wire::Value;

use crate::cluster_support::{Shards, alone, node, text};
use crate::peer::Random;
use crate::support::{Client, Fixture, eventually};

/// All keys that a scan returns, with the cursors in between.
fn scan(client: &mut Client, options: &str) -> (Vec<String>, usize) {
    let (mut keys, mut cursor, mut calls) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let request = format!("SCAN {cursor} {options}");
        let words: Vec<&[u8]> = request.split_whitespace().map(str::as_bytes).collect();
        let Value::Array(reply) = client.run(&words) else { panic!("{request}") };
        let Value::Array(found) = &reply[1] else { panic!("{request}") };
        keys.extend(found.iter().map(text));
        (cursor, calls) = (text(&reply[0]), calls + 1);
        if cursor == "0" {
            return (keys, calls);
        }
    }
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

#[test]
fn keys_come_back_as_they_were_written_from_every_walk() {
    let server = alone();
    let mut client = server.client();
    let names = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let (users, tagged, others) = (names("user:", 700), names("{t}:", 300), names("zz", 200));
    let all: Vec<String> = [users.clone(), tagged.clone(), others.clone()].concat();
    for key in &all {
        client.send(&[b"SET", key.as_bytes(), key.as_bytes()]);
    }
    all.iter().for_each(|_| assert_eq!(client.receive(), Value::Simple(b"OK".to_vec())));
    for (options, expected) in [
        ("", &all),
        ("COUNT 7", &all),
        ("COUNT 100000", &all),
        ("MATCH user:* COUNT 50", &users),
        ("MATCH {t}:*", &tagged),
        ("MATCH {t}:* COUNT 1000", &tagged),
        ("MATCH zz*", &others),
        ("MATCH *", &all),
        ("MATCH none* COUNT 1000", &Vec::new()),
    ] {
        let (found, _) = scan(&mut client, options);
        assert_eq!(found.len(), expected.len(), "{options}: a key is there once");
        assert_eq!(sorted(found), sorted(expected.clone()), "{options}");
    }
    // A beginning with a hash tag is one range: three calls of 100 keys and no more.
    assert!(scan(&mut client, "MATCH {t}:* COUNT 100").1 <= 4);
    for (pattern, expected) in [("user:*", &users), ("{t}*", &tagged), ("*", &all)] {
        let Value::Array(keys) = client.run(&[b"KEYS", pattern.as_bytes()]) else { panic!("{pattern}") };
        assert_eq!(sorted(keys.iter().map(text).collect()), sorted(expected.clone()), "{pattern}");
    }
    let known: BTreeSet<String> = all.iter().cloned().collect();
    let drawn: BTreeSet<String> = (0..400).map(|_| text(&client.run(&[b"RANDOMKEY"]))).collect();
    assert!(drawn.is_subset(&known) && drawn.len() > 100, "{} keys", drawn.len());
    client.talk(
        "
        TEMBO.COUNT user:* => :700
        TEMBO.COUNT user:1* => :111
        TEMBO.COUNT {t}:* => :300
        TEMBO.COUNT {t* => :300
        TEMBO.COUNT * => :1200
        TEMBO.UNLINK user:1* => :111
        TEMBO.COUNT user:* => :589
        TEMBO.UNLINK {t}:* => :300
        DBSIZE => :789
        GET user:2 => $user:2
        GET user:1 => nil
        TEMBO.UNLINK * => :789
        DBSIZE => :0
        ",
    );
    server.check();
}

#[test]
fn a_scan_returns_what_is_there_from_its_beginning_to_its_end() {
    let server = alone();
    let mut client = server.client();
    let mut random = Random(17);
    let stays: Vec<String> = (0..400).map(|n| format!("stays:{}", n * 7919)).collect();
    stays.iter().for_each(|key| assert_eq!(client.ask(&format!("SET {key} 1")), "+OK"));
    for pattern in ["*", "stays:*"] {
        let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let words = format!("SCAN {cursor} MATCH {pattern} COUNT {}", 1 + random.below(20));
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let Value::Array(reply) = client.run(&words) else { panic!() };
            let Value::Array(keys) = &reply[1] else { panic!() };
            found.extend(keys.iter().map(text).filter(|key| stays.contains(key)));
            cursor = text(&reply[0]);
            if cursor == "0" {
                break;
            }
            for _ in 0..10 {
                let verb = if random.below(2) == 0 { "SET" } else { "GETDEL" };
                let value = if verb == "SET" { " 1" } else { "" };
                client.ask(&format!("{verb} comes:{}{value}", random.below(300)));
            }
        }
        assert_eq!(sorted(found), sorted(stays.clone()), "{pattern}");
    }
    server.check();
}

#[test]
fn slots_are_counted_listed_and_removed() {
    let server = alone();
    let mut client = server.client();
    client.talk(
        "
        CLUSTER COUNTKEYSINSLOT 3300 => :0
        MSET b 1 {b}2 1 {b}1 1 => +OK
        RPUSH {b}list a b c => :3
        SET {b}soon 1 EX 1000 => +OK
        SET c 1 => +OK
        CLUSTER COUNTKEYSINSLOT 3300 => :5
        CLUSTER GETKEYSINSLOT 3300 10 => [$b ${b}1 ${b}2 ${b}list ${b}soon]
        CLUSTER GETKEYSINSLOT 3300 2 => [$b ${b}1]
        CLUSTER GETKEYSINSLOT 3300 0 => []
        CLUSTER COUNTKEYSINSLOT 7365 => :1
        CLUSTER COUNTKEYSINSLOT 16384 => -ERR Invalid slot
        CLUSTER COUNTKEYSINSLOT -1 => -ERR Invalid slot
        CLUSTER COUNTKEYSINSLOT x => -ERR value is not an integer or out of range
        CLUSTER GETKEYSINSLOT 1 -1 => -ERR Invalid slot or number of keys
        CLUSTER GETKEYSINSLOT 16384 1 => -ERR Invalid slot or number of keys
        CLUSTERX FLUSHSLOTS => -ERR wrong number of arguments for 'clusterx|flushslots' command
        CLUSTERX FLUSHSLOTS 9-3 => -ERR Slot is out of range: \"9-3\" is not a slot, or not a first and a greater last slot
        WATCH b => +OK
        WATCH c => +OK
        MULTI => +OK
        ",
    );
    let mut other = server.client();
    other.talk(
        "CLUSTERX FLUSHSLOTS 3299-3300 1 => +OK\nDBSIZE => :1\nEXISTS b {b}list => :0\nTTL {b}soon => :-2",
    );
    // The key that it watches is gone.
    client
        .talk("GET c => +QUEUED\nEXEC => nil\nGET c => $1\nCLUSTERX FLUSHSLOTS 0-16383 => +OK\nDBSIZE => :0");
    let mut big = Vec::new();
    (0..400).for_each(|n| big.push(format!("{n:050}")));
    client.ask(&format!("RPUSH {{b}}big {}", big.join(" ")));
    client.talk("CLUSTERX FLUSHSLOTS '3300 3301-3302' => +OK\nDBSIZE => :0");
    let report = server.report();
    assert_eq!((report.collections.large, report.cluster), (0, Some(Some(1))));
}

#[test]
fn deadlines_work_behind_slots() {
    let server = alone();
    let mut client = server.client();
    for n in 0..200 {
        client.ask(&format!("SET k{n} v PX {}", 1 + n % 50));
    }
    client.talk("SET stays 1 EX 1000 => +OK");
    assert!(client.info("db0").starts_with("keys=") && client.info("db0").contains("expires="));
    eventually(|| client.ask("DBSIZE") == ":1");
    client.talk("PERSIST stays => :1\nTTL stays => :-1\nGET stays => $1");
    assert_eq!(client.info("db0"), "keys=1,expires=0");
    server.check();
}

#[test]
fn random_commands_have_the_replies_of_a_server_without_slots() {
    let (cluster, plain) = (alone(), Fixture::start());
    let (mut ours, mut theirs) = (cluster.client(), plain.client());
    let mut random = Random(42);
    let words_of = |random: &mut Random| {
        let key = format!("{{t}}{}", random.below(12));
        let other = format!("{{t}}{}", random.below(12));
        let n = random.below(50);
        match random.below(24) {
            0 => format!("SET {key} {n}"),
            1 => format!("APPEND {key} x{n}"),
            2 => format!("SET {key} {n} PXAT {}", 4_000_000_000_000_u64 + n as u64),
            3 => format!("DEL {key} {other}"),
            4 => format!("RENAME {key} {other}"),
            5 => format!("COPY {key} {other} REPLACE"),
            6 => format!("RPUSH {key} {n} {}", "e".repeat(n * 7)),
            7 => format!("LPOP {key} {n}"),
            8 => format!("SADD {key} {n} {}", "m".repeat(n * 11)),
            9 => format!("SDIFFSTORE {key} {other} {key}"),
            10 => format!("ZADD {key} {n} m{n} 1 {}", "z".repeat(n * 9)),
            11 => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            12 => format!("HSET {key} f{n} {}", "v".repeat(n * 13)),
            13 => format!("LMOVE {key} {other} LEFT RIGHT"),
            14 => format!("EXPIREAT {key} 4000000000"),
            15 => format!("PERSIST {key}"),
            16 => format!("TYPE {key}"),
            17 => format!("OBJECT ENCODING {key}"),
            18 => format!("LRANGE {key} 0 -1"),
            19 => "KEYS {t}*".to_owned(),
            20 => "SCAN 0 COUNT 1000".to_owned(),
            21 => format!("SORT {key} ALPHA LIMIT 0 5"),
            22 => "DBSIZE".to_owned(),
            _ => "DEBUG DIGEST".to_owned(),
        }
    };
    for step in 0..6000 {
        let words = if random.below(40) == 0 {
            let inner: Vec<_> = (0..4).map(|_| words_of(&mut random)).collect();
            for client in [&mut ours, &mut theirs] {
                client.ask("MULTI");
                inner.iter().for_each(|words| drop(client.ask(words)));
            }
            "EXEC".to_owned()
        } else {
            words_of(&mut random)
        };
        assert_eq!(ours.ask(&words), theirs.ask(&words), "step {step}: {words}");
    }
    plain.check();
    cluster.check();
}

#[test]
fn keys_are_evicted_behind_slots() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random", "volatile-lfu"] {
        let server = alone();
        let mut client = server.client();
        client.ask("CONFIG SET maxmemory 20mb");
        assert_eq!(client.ask(&format!("CONFIG SET maxmemory-policy {policy}")), "+OK");
        let value = "v".repeat(100_000);
        for n in 0..400 {
            let reply = client.ask(&format!("SET key{n} {value} EX {}", 1000 + n));
            assert_eq!(reply, "+OK", "{policy}, key {n}");
        }
        assert_ne!(client.info("evicted_keys"), "0", "{policy}");
        server.check();
    }
}

#[test]
fn a_file_of_redis_has_the_keys_without_slots_and_can_be_loaded_again() {
    let server = alone();
    let mut client = server.client();
    client.talk("SET a 1 => +OK\nSET b 2 => +OK\nRPUSH l a b => :2\nSET soon 1 EX 1000 => +OK\nSAVE => +OK");
    let (digest, folder) = (client.ask("DEBUG DIGEST"), server.folder().to_owned());
    let file = std::fs::read(folder.join("dump.rdb")).unwrap();
    let into = |pool: &tembo::Pool| {
        let mut reader = tembo_rdb::Reader::new(&file[..]).unwrap();
        tembo_server::import(pool, &mut reader, &mut |_| {}).unwrap();
    };
    let (mut plain, mut empty) = (Fixture::start(), node());
    plain.restart_with(into);
    empty.restart_with(into);
    assert_eq!(plain.client().ask("DEBUG DIGEST"), digest);
    assert_eq!(empty.client().ask("DEBUG DIGEST"), digest);
    plain.check();
    empty.check();
    server.check();
}

#[test]
fn the_longest_key_is_two_bytes_shorter() {
    let server = alone();
    let mut client = server.client();
    let (longest, longer) = ("k".repeat(65_526), "k".repeat(65_527));
    assert_eq!(client.ask(&format!("SET {longest} 1 EX 1000")), "+OK");
    assert_eq!(client.ask(&format!("GET {longest}")), "$1");
    assert!(client.ask(&format!("SET {longer} 1")).starts_with("-ERR"));
    assert_eq!(client.ask(&format!("GET {longer}")), "nil");
    assert_eq!(client.ask(&format!("EXISTS {}", "k".repeat(70_000))), ":0");
    server.check();
}

#[test]
fn expired_keys_and_lists_of_a_transaction_are_found_by_its_own_walks() {
    let server = alone();
    let mut client = server.client();
    client.talk(
        "
        MSET {x}1 a {x}2 b => +OK
        SET other c => +OK
        MULTI => +OK
        SET {x}3 c => +QUEUED
        DEL {x}1 => +QUEUED
        KEYS {x}* => +QUEUED
        SCAN 0 MATCH {x}* COUNT 100 => +QUEUED
        TEMBO.COUNT {x}* => +QUEUED
        EXEC => [+OK :1 [${x}2 ${x}3] [$0 [${x}2 ${x}3]] :2]
        ",
    );
    let mut counts = BTreeMap::new();
    // A key that has few neighbours is drawn seldom.
    for _ in 0..1000 {
        *counts.entry(client.ask("RANDOMKEY")).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
    server.check();
}

/// Whatever removes a key behind its slot is told to replicas with the user's key.
#[test]
fn replicas_are_told_of_keys_without_slots() {
    let shards = Shards::ready(3);
    let (mut master, mut replica) = (shards.client(0), shards.client(3));
    let digest = |client: &mut Client| (client.ask("DBSIZE"), client.ask("DEBUG DIGEST"));
    for n in 0..200 {
        // The slots 3300, 0 and 1.
        let tag = ["b", "06S", "Qi"][n % 3];
        master.ask(&format!("SET {{{tag}}}soon:{n} v PX {}", 1 + n % 40));
        master.ask(&format!("SET {{{tag}}}later:{n} v EX {}", 1000 + n));
        master.ask(&format!("RPUSH {{{tag}}}list:{} {n} {}", n % 7, "e".repeat(n)));
    }
    eventually(|| master.info("expired_keys") == "200");
    master.talk("CLUSTERX FLUSHSLOTS 1 => +OK\nTEMBO.UNLINK {b}later:1* => :36\nWAIT 1 0 => :1");
    assert_eq!(digest(&mut replica), digest(&mut master));
    assert_ne!(master.ask("DBSIZE"), ":0");
    master.talk("CLUSTERX FLUSHSLOTS 0-16383 => +OK\nWAIT 1 0 => :1\nDBSIZE => :0");
    replica.talk("DBSIZE => :0");
    // A copy, with keys that have deadlines and large lists.
    for n in 0..50 {
        master.ask(&format!("RPUSH {{b}}l{n} {}", "e".repeat(100 * n)));
        master.ask(&format!("SET {{06S}}{n} v EX 1000"));
    }
    replica.ask("REPLICAOF NO ONE");
    replica.ask("FLUSHALL");
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", shards.port(0)));
    eventually(|| digest(&mut replica) == digest(&mut master));
    shards.servers.into_iter().for_each(Fixture::check);
}
