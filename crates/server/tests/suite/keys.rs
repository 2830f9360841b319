//! Commands on keys and databases.

use crate::support::Fixture;

#[test]
fn keys_are_removed_and_counted() {
    let server = Fixture::start();
    server.client().talk(
        "
        MSET a 1 b 2 c 3 => +OK
        EXISTS a b missing a => :3
        TOUCH a missing => :1
        DBSIZE => :3
        DEL a missing a => :1
        UNLINK b c => :2
        DBSIZE => :0
        TYPE a => +none
        SET a 1 => +OK
        TYPE a => +string
        DEL => -ERR wrong number of arguments for 'del' command
        ",
    );
}

#[test]
fn rename() {
    let server = Fixture::start();
    server.client().talk(
        "
        RENAME missing x => -ERR no such key
        RENAMENX missing x => -ERR no such key
        SET a 1 EX 100 => +OK
        SET b 2 EX 500 => +OK
        RENAME a b => +OK
        GET b => $1
        TTL b => :100
        EXISTS a => :0
        RENAME b b => +OK
        RENAMENX b b => :0
        SET c 3 => +OK
        RENAMENX b c => :0
        RENAMENX b d => :1
        TTL d => :100
        RENAME c d => +OK
        TTL d => :-1
        DBSIZE => :1
        ",
    );
}

#[test]
fn copy() {
    let server = Fixture::start();
    server.client().talk(
        "
        COPY missing x => :0
        SET a 1 EX 100 => +OK
        COPY a b => :1
        GET b => $1
        TTL b => :100
        SET a 2 => +OK
        COPY a b => :0
        COPY a b REPLACE => :1
        GET b => $2
        TTL b => :-1
        COPY a a => -ERR source and destination objects are the same
        COPY a a DB 0 => -ERR source and destination objects are the same
        COPY a a DB 5 => :1
        COPY a a DB 5 => :0
        COPY a a DB 16 => -ERR DB index is out of range
        COPY a a DB x => -ERR value is not an integer or out of range
        COPY a b NX => -ERR syntax error
        SELECT 5 => +OK
        GET a => $2
        DBSIZE => :1
        ",
    );
}

#[test]
fn databases_are_apart() {
    let mut server = Fixture::start();
    server.client().talk(
        "
        SET k zero => +OK
        SELECT 15 => +OK
        GET k => nil
        DEL k => :0
        SET k fifteen => +OK
        DBSIZE => :1
        SELECT 16 => -ERR DB index is out of range
        SELECT -1 => -ERR DB index is out of range
        SELECT x => -ERR value is not an integer or out of range
        GET k => $fifteen
        FLUSHDB => +OK
        DBSIZE => :0
        SET k again => +OK
        SELECT 0 => +OK
        GET k => $zero
        ",
    );
    server.restart();
    server.client().talk(
        "
        GET k => $zero
        SELECT 15 => +OK
        GET k => $again
        FLUSHALL => +OK
        GET k => nil
        SELECT 0 => +OK
        GET k => nil
        FLUSHALL ASYNC => +OK
        FLUSHDB SYNC => +OK
        FLUSHALL NOW => -ERR syntax error
        FLUSHDB SYNC ASYNC => -ERR syntax error
        SET k v => +OK
        GET k => $v
        ",
    );
    server.check();
}

#[test]
fn a_large_database_is_flushed_and_its_space_used_again() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(32 << 20).max_bytes(32 << 20));
    let mut client = server.client();
    let value = vec![b'x'; 1000];
    for round in 0..8 {
        for key in 0..10_000 {
            client.send(&[b"SET", format!("key:{round}:{key}").as_bytes(), &value]);
        }
        for _ in 0..10_000 {
            assert_eq!(client.receive().as_bytes(), Some(&b"OK"[..]), "round {round}");
        }
        client.talk("FLUSHALL => +OK\nDBSIZE => :0");
    }
    server.check();
}

#[test]
fn random_keys_are_spread() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("RANDOMKEY => nil\nSET only v => +OK\nRANDOMKEY => $only\nDEL only => :1");
    for key in 0..100 {
        client.ask(&format!("SET key:{key:08} v"));
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2000 {
        let key = client.ask("RANDOMKEY");
        assert!(key.starts_with("$key:000000"), "{key}");
        seen.insert(key);
    }
    assert!(seen.len() >= 95, "only {} of 100 keys in 2000 draws", seen.len());
    for key in 0..100 {
        client.ask(&format!("PEXPIRE key:{key:08} 1"));
    }
    client.talk("SET live v => +OK\nDEBUG SLEEP 0.01 => +OK\nRANDOMKEY => $live");
}

#[test]
fn object_and_memory() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SET n 12345 => +OK
        SET s text => +OK
        SET long aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa => +OK
        OBJECT ENCODING n => $int
        OBJECT ENCODING s => $embstr
        OBJECT ENCODING long => $raw
        APPEND n 6 => :6
        OBJECT ENCODING n => $raw
        INCR n => :123457
        OBJECT ENCODING n => $int
        OBJECT ENCODING missing => nil
        OBJECT REFCOUNT s => :1
        OBJECT FREQ missing => nil
        OBJECT IDLETIME s => -ERR idle time is not tracked: no maxmemory-policy of the LRU kind is selected.
        OBJECT NOSUCH s => -ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP.
        OBJECT ENCODING => -ERR wrong number of arguments for 'object|encoding' command
        OBJECT => -ERR wrong number of arguments for 'object' command
        MEMORY USAGE missing => nil
        MEMORY USAGE s SAMPLES x => -ERR value is not an integer or out of range
        MEMORY USAGE s NOSUCH 1 => -ERR syntax error
        ",
    );
    let usage = client.ask("MEMORY USAGE long SAMPLES 0");
    let bytes: i64 = usage.strip_prefix(':').unwrap().parse().unwrap();
    assert!((49..500).contains(&bytes), "{bytes}");
}
