//! SWAPDB.

use crate::support::{Fixture, eventually, request, show};

#[test]
fn two_databases_get_each_others_keys() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SWAPDB 0 1 => +OK
        SET a 0 => +OK
        EXPIRE a 1000 => :1
        SWAPDB 0 5 => +OK
        EXISTS a => :0
        SET b 0 => +OK
        SELECT 5 => +OK
        GET a => $0
        SWAPDB 0 x => -ERR invalid second DB index
        SWAPDB 99999999999 x => -ERR invalid first DB index
        SWAPDB 0 16 => -ERR DB index is out of range
        SWAPDB -1 0 => -ERR DB index is out of range
        SWAPDB 0 => -ERR wrong number of arguments for 'swapdb' command
        ",
    );
    // Large collections go with their keys, and are given up with them.
    for member in 0..300 {
        client.send(&[b"SADD", b"large", format!("member {member}").as_bytes()]);
        client.receive();
    }
    client.talk("SWAPDB 5 0 => +OK\nEXISTS b => :1\nSELECT 0 => +OK\nSCARD large => :300");
    server.restart();
    let mut client = server.client();
    client.talk("SCARD large => :300\nGET a => $0\nEXISTS b => :0\nDBSIZE => :2");
    assert!(client.ask("INFO keyspace").contains("db0:keys=2,expires=1\\r\\ndb5:keys=1,expires=0"));
    client.talk("MOVE large 5 => :1\nSWAPDB 5 0 => +OK\nSISMEMBER large 'member 7' => :1\nFLUSHDB => +OK");
    client.talk("SET c 1 => +OK\nSELECT 5 => +OK\nGET a => $0\nDBSIZE => :1");
    server.check();
}

#[test]
fn those_who_watch_or_wait_are_told_of_a_change_of_places() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    let mut watch = |client: &mut crate::support::Client, key: &str, expected: &str| {
        client.talk(&format!("WATCH {key} => +OK\nMULTI => +OK\nPING => +QUEUED"));
        other.talk("SWAPDB 0 1 => +OK\nSWAPDB 1 0 => +OK");
        assert_eq!(client.ask("EXEC"), expected);
    };
    client.talk("SET here 1 => +OK\nSELECT 1 => +OK\nSET there 1 => +OK\nSELECT 0 => +OK");
    watch(&mut client, "here", "nil");
    watch(&mut client, "there", "nil");
    watch(&mut client, "nowhere", "[+PONG]");
    // Lists of the other database serve those who wait for them.
    client.send_raw(&request(&[b"BLPOP", b"list", b"0"]));
    let mut other = server.client();
    eventually(|| other.info("blocked_clients") == "1");
    other.talk("SELECT 1 => +OK\nRPUSH list x y => :2\nSWAPDB 1 0 => +OK");
    assert_eq!(show(&client.receive()), "[$list $x]");
    client.talk("LRANGE list 0 -1 => [$y]\nEXISTS there => :1");
    server.check();
}

#[test]
fn a_transaction_sees_the_places_that_it_changes() {
    let server = Fixture::start();
    server.client().talk(
        "
        SET a 0 => +OK
        MULTI => +OK
        SET b 0 => +QUEUED
        SWAPDB 0 3 => +QUEUED
        KEYS * => +QUEUED
        SET c 3 => +QUEUED
        KEYS * => +QUEUED
        SWAPDB 0 3 => +QUEUED
        DEL a => +QUEUED
        KEYS * => +QUEUED
        EXEC => [+OK +OK [] +OK [$c] +OK :1 [$b]]
        SELECT 3 => +OK
        KEYS * => [$c]
        ",
    );
    server.check();
}
