//! Expiry: on access, in the background, across restarts.

use crate::support::{Fixture, eventually};

#[test]
fn expire_and_ttl() {
    let server = Fixture::start();
    server.client().talk(
        "
        TTL k => :-2
        PTTL k => :-2
        EXPIRETIME k => :-2
        EXPIRE k 10 => :0
        SET k v => +OK
        TTL k => :-1
        PEXPIRETIME k => :-1
        PERSIST k => :0
        EXPIRE k 100 => :1
        TTL k => :100
        PEXPIRE k 200000 => :1
        TTL k => :200
        EXPIREAT k 33177117420 => :1
        EXPIRETIME k => :33177117420
        PEXPIREAT k 33177117420999 => :1
        PEXPIRETIME k => :33177117420999
        EXPIRETIME k => :33177117421
        GET k => $v
        PERSIST k => :1
        TTL k => :-1
        PERSIST missing => :0
        EXPIRE k x => -ERR value is not an integer or out of range
        EXPIRE k 9223372036854775807 => -ERR invalid expire time in 'expire' command
        EXPIRE k -9223372036854775808 => -ERR invalid expire time in 'expire' command
        PEXPIRE k 9223372036854775807 => -ERR invalid expire time in 'pexpire' command
        EXPIRE k 10 NOSUCH => -ERR Unsupported option NOSUCH
        EXPIRE k 0 => :1
        EXISTS k => :0
        SET k v => +OK
        EXPIRE k -1 => :1
        EXISTS k => :0
        SET k v => +OK
        EXPIREAT k 1 => :1
        DBSIZE => :0
        ",
    );
}

#[test]
fn expire_on_conditions() {
    let server = Fixture::start();
    server.client().talk(
        "
        SET k v => +OK
        EXPIRE k 100 XX => :0
        EXPIRE k 100 GT => :0
        EXPIRE k 100 LT => :1
        TTL k => :100
        EXPIRE k 200 NX => :0
        EXPIRE k 200 LT => :0
        EXPIRE k 50 GT => :0
        EXPIRE k 200 GT => :1
        EXPIRE k 150 XX LT => :1
        TTL k => :150
        PERSIST k => :1
        EXPIRE k 60 NX => :1
        TTL k => :60
        EXPIRE k 10 NX XX => -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE k 10 NX GT => -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE k 10 GT LT => -ERR GT and LT options at the same time are not compatible
        TTL k => :60
        ",
    );
}

#[test]
fn an_expired_key_is_gone_for_every_command_at_once() {
    // No key is removed in the background, so that all this meets the expired entry.
    let server = Fixture::with_config(|config| config.expire_per_turn = 0);
    let mut client = server.client();
    let expired = |client: &mut crate::support::Client| {
        client.talk("SET k old PX 5 => +OK\nDEBUG SLEEP 0.02 => +OK");
        assert_eq!(client.info("expired_keys"), "0");
    };
    for conversation in [
        "GET k => nil",
        "EXISTS k => :0",
        "TTL k => :-2",
        "TYPE k => +none",
        "STRLEN k => :0",
        "MGET k => [nil]",
        "DEL k => :0",
        "GETDEL k => nil",
        "GETEX k => nil",
        "GETSET k v => nil",
        "PERSIST k => :0",
        "EXPIRE k 100 => :0",
        "SETNX k v => :1",
        "SET k v XX => nil",
        "SET k v GET => nil",
        "SET k v KEEPTTL => +OK\nTTL k => :-1",
        "INCR k => :1\nTTL k => :-1",
        "INCRBYFLOAT k 1.5 => $1.5\nTTL k => :-1",
        "APPEND k new => :3\nTTL k => :-1",
        "SETRANGE k 1 x => :2",
        "RENAME k x => -ERR no such key",
        "COPY k x => :0",
        "KEYS * => []",
        "SCAN 0 => [$0 []]",
        "RANDOMKEY => nil",
        "OBJECT ENCODING k => nil",
        "MSETNX k v => :1",
    ] {
        expired(&mut client);
        client.talk(conversation);
        client.talk("FLUSHALL => +OK");
    }
    client.talk("SET a 1 => +OK");
    expired(&mut client);
    client.talk("RENAMENX a k => :1\nTTL k => :-1\nCOPY k k2 => :1");
    server.check();
}

#[test]
fn expired_keys_are_removed_in_the_background() {
    let server = Fixture::start();
    let mut client = server.client();
    for key in 0..1000 {
        client.send(&[b"SET", format!("k{key}").as_bytes(), b"v", b"PX", b"1"]);
        client.receive();
    }
    client.talk("SET stays v EX 1000 => +OK\nSET stays2 v => +OK\nSELECT 3 => +OK\nSET k v PX 1 => +OK");
    eventually(|| client.ask("DBSIZE") == ":0");
    client.talk("SELECT 0 => +OK");
    eventually(|| client.ask("DBSIZE") == ":2");
    assert_eq!(client.info("expired_keys"), "1001");
    assert_eq!(client.info("db0"), "keys=2,expires=1");
    server.check();
}

#[test]
fn deadlines_survive_a_restart() {
    let mut server = Fixture::start();
    server.client().talk(
        "
        SET soon v PX 1 => +OK
        SET late v PXAT 33177117420123 => +OK
        SET never v => +OK
        ",
    );
    server.restart();
    let mut client = server.client();
    client.talk(
        "
        DEBUG SLEEP 0.01 => +OK
        GET soon => nil
        PEXPIRETIME late => :33177117420123
        TTL never => :-1
        ",
    );
    eventually(|| client.ask("DBSIZE") == ":2");
    server.check();
}

#[test]
fn the_list_of_deadlines_follows_every_change() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SET a v EX 100 => +OK
        SET b v EX 100 => +OK
        SET c v EX 100 => +OK
        SET d v EX 100 => +OK
        SET e v EX 100 => +OK
        SET a v EX 200 => +OK
        EXPIRE a 300 => :1
        SET b v => +OK
        DEL c => :1
        RENAME d f => +OK
        PERSIST e => :1
        APPEND f x => :2
        ",
    );
    assert_eq!(client.info("db0"), "keys=4,expires=2");
    client.talk("FLUSHDB => +OK\nSET a v => +OK");
    assert_eq!(client.info("db0"), "keys=1,expires=0");
}
