//! The commands that Redis does not have.

use std::time::Duration;

use tembo_wire::Value;

use crate::peer::Random;
use crate::support::{Fixture, show};

#[test]
fn keys_are_counted_by_their_beginnings() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("TEMBO.COUNT * => :0\nMSET a 1 ab 2 abc 3 b 4 => +OK\nSELECT 3 => +OK\nTEMBO.COUNT * => :0");
    client.talk(
        "
        SELECT 0 => +OK
        TEMBO.COUNT * => :4
        TEMBO.COUNT a* => :3
        TEMBO.COUNT ab* => :2
        TEMBO.COUNT abcd* => :0
        TEMBO.COUNT a\\** => :0
        TEMBO.COUNT a => -ERR the pattern is to be a beginning of keys, and a * behind it
        TEMBO.COUNT a?* => -ERR the pattern is to be a beginning of keys, and a * behind it
        MULTI => +OK
        DEL ab => +QUEUED
        TEMBO.COUNT ab* => +QUEUED
        EXEC => [:1 :1]
        ",
    );
    client.run(&[b"SET", b"\xff\xff", b"v"]);
    assert_eq!(show(&client.run(&[b"TEMBO.COUNT", b"\xff*"])), ":1");
    // Against what KEYS says.
    let mut random = Random(0x7e3b_0081);
    for _ in 0..2000 {
        let key: String = (0..1 + random.below(6)).map(|_| random.pick(&['x', 'y', ':'])).collect();
        client.ask(&format!("{} {key} 1", random.pick(&["SET", "SET", "DEL"])));
    }
    for beginning in ["x", "xy", "y:", ":", "xyx", "nosuch"] {
        let Value::Array(keys) = client.run(&[b"KEYS", format!("{beginning}*").as_bytes()]) else { panic!() };
        client.talk(&format!("TEMBO.COUNT {beginning}* => :{}", keys.len()));
    }
    server.check();
}

#[test]
fn keys_are_removed_by_their_beginnings() {
    let server = Fixture::start();
    let mut client = server.client();
    for key in 0..1500 {
        client.ask(&format!("SET p:{key} v"));
        client.ask(&format!("SADD large p{key}"));
    }
    client.talk(
        "
        RENAME large p:large => +OK
        SET p:expires v EX 1000 => +OK
        SET other 1 => +OK
        WATCH p:7 other => +OK
        MULTI => +OK
        PING => +QUEUED
        ",
    );
    let mut other = server.client();
    other.talk("TEMBO.UNLINK p:* => :1502\nTEMBO.UNLINK p:* => :0\nDBSIZE => :1");
    client.talk(
        "EXEC => nil\nTEMBO.UNLINK o => -ERR the pattern is to be a beginning of keys, and a * behind it",
    );
    client.talk("SET x 1 => +OK\nTEMBO.UNLINK * => :2\nDBSIZE => :0");
    server.check();
}

#[test]
fn a_token_is_answered_once_and_again() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        TEMBO.ONCE t1 100000 INCR counter => :1
        TEMBO.ONCE t1 100000 incr counter => :1
        TEMBO.ONCE t2 100000 INCR counter => :2
        TEMBO.ONCE t1 100000 INCR other => -ERR the token is that of another command, or of another database
        GET counter => $2
        SELECT 1 => +OK
        TEMBO.ONCE t1 100000 INCR counter => -ERR the token is that of another command, or of another database
        TEMBO.ONCE t3 100000 INCR counter => :1
        SELECT 0 => +OK
        RPUSH l a b c => :3
        TEMBO.ONCE t4 100000 LPOP l 2 => [$a $b]
        TEMBO.ONCE t4 100000 LPOP l 2 => [$a $b]
        SET text x => +OK
        TEMBO.ONCE t5 100000 INCR text => -ERR value is not an integer or out of range
        SET text 5 => +OK
        TEMBO.ONCE t5 100000 INCR text => :6
        TEMBO.ONCE t5 100000 INCR text => :6
        TEMBO.ONCE t6 100000 GET text => -ERR TEMBO.ONCE runs commands that write and do not wait
        TEMBO.ONCE t6 100000 BLPOP l 0 => -ERR TEMBO.ONCE runs commands that write and do not wait
        TEMBO.ONCE t6 100000 MULTI => -ERR TEMBO.ONCE runs commands that write and do not wait
        TEMBO.ONCE t6 100000 TEMBO.ONCE t7 1 INCR x => -ERR TEMBO.ONCE runs commands that write and do not wait
        TEMBO.ONCE t6 100000 NOSUCH => -ERR unknown command in TEMBO.ONCE
        TEMBO.ONCE t6 100000 INCR => -ERR wrong number of arguments for 'incr' command
        TEMBO.ONCE t6 0 INCR x => -ERR invalid expire time in 'tembo.once' command
        TEMBO.ONCE t6 x INCR x => -ERR value is not an integer or out of range
        TEMBO.ONCE '' 100000 INCR x => -ERR a token has 1 to 512 bytes
        COMMAND GETKEYS TEMBO.ONCE t6 1 RENAME a b => [$a $b]
        COMMAND GETKEYS TEMBO.ONCE t6 1 TEMBO.ONCE t7 1 INCR x => [$x]
        ",
    );
    server.restart();
    let mut client = server.client();
    client.talk("TEMBO.ONCE t2 100000 INCR counter => :2\nGET counter => $2");
    client.ask("HELLO 3");
    client.talk(
        "
        TEMBO.ONCE t2 100000 INCR counter => -ERR the reply of this token is in the other protocol (HELLO)
        TEMBO.ONCE t8 100000 ZADD z INCR 1.5 m => ,1.5
        TEMBO.ONCE t8 100000 ZADD z INCR 1.5 m => ,1.5
        ",
    );
    server.check();
}

#[test]
fn tokens_are_part_of_a_transaction() {
    let server = Fixture::start();
    let mut client = server.client();
    let transaction = "
        MULTI => +OK
        TEMBO.ONCE a 100000 INCR x => +QUEUED
        TEMBO.ONCE b 100000 COPY x y DB 7 => +QUEUED
        TEMBO.ONCE c 100000 SWAPDB 0 9 => +QUEUED
        TEMBO.ONCE a 100000 INCR x => +QUEUED
        ";
    client.talk(transaction);
    client.talk("EXEC => [:1 :1 +OK :1]");
    client.talk(transaction);
    client.talk("EXEC => [:1 :1 +OK :1]");
    client.talk("EXISTS x => :0\nSELECT 9 => +OK\nGET x => $1\nSELECT 7 => +OK\nGET y => $1");
    // Each command has the arguments that it needs, or is refused when it runs.
    client.talk("MULTI => +OK\nTEMBO.ONCE d 1 MOVE x => +QUEUED\nTEMBO.ONCE d 1 COPY x => +QUEUED");
    let refused = client.ask("EXEC");
    assert_eq!(refused.matches("wrong number of arguments").count(), 2, "{refused}");
    server.check();
}

#[test]
fn tokens_are_forgotten_when_their_time_has_come() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("TEMBO.ONCE t 60 INCR x => :1\nTEMBO.ONCE t 60 INCR x => :1");
    for token in 0..500 {
        client.ask(&format!("TEMBO.ONCE t{token} 60 INCR y"));
    }
    std::thread::sleep(Duration::from_millis(70));
    client.talk("TEMBO.ONCE t 100000 INCR x => :2\nTEMBO.ONCE t 100000 INCR x => :2");
    // The others are removed without being asked for.
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(server.report().tokens, 1, "tokens are left");
}
