//! Clients that wait for lists and sorted sets.

use std::time::{Duration, Instant};

use tembo_wire::Value;

use crate::durability::fill;
use crate::support::{Client, Fixture, eventually, request, show};

fn words(text: &str) -> Vec<u8> {
    request(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Lets a new client wait, and returns it once it does.
fn waits(server: &Fixture, control: &mut Client, command: &str) -> Client {
    let before: usize = control.info("blocked_clients").parse().unwrap();
    let mut client = server.client();
    client.send_raw(&words(command));
    eventually(|| control.info("blocked_clients") == (before + 1).to_string());
    client
}

fn got(client: &mut Client) -> String {
    show(&client.receive())
}

#[test]
fn clients_that_wait_are_served_in_order_of_arrival() {
    let server = Fixture::start();
    let mut control = server.client();
    let mut first = waits(&server, &mut control, "BLPOP a b 0");
    let mut second = waits(&server, &mut control, "BRPOP b a 0");
    let mut third = waits(&server, &mut control, "BLMOVE a c LEFT RIGHT 0");
    let mut fourth = waits(&server, &mut control, "BLMPOP 0 2 c a RIGHT COUNT 5");
    // The element that the third moves goes on to the fourth.
    control.talk("RPUSH a 1 2 3 => :3\nEXISTS a b c => :0");
    assert_eq!(got(&mut first), "[$a $1]");
    assert_eq!(got(&mut second), "[$a $3]");
    assert_eq!(got(&mut third), "$2");
    assert_eq!(got(&mut fourth), "[$c [$2]]");
    assert_eq!(control.info("blocked_clients"), "0");
    server.check();
}

#[test]
fn the_key_that_became_ready_first_is_the_one_that_serves() {
    let server = Fixture::start();
    let mut control = server.client();
    let mut client = waits(&server, &mut control, "BLPOP a b 0");
    control.talk(
        "MULTI => +OK\nRPUSH b 1 => +QUEUED\nRPUSH a 2 => +QUEUED\nLLEN b => +QUEUED\nEXEC => [:1 :1 :1]",
    );
    assert_eq!(got(&mut client), "[$b $1]");
    // A key that is emptied in the same transaction is not ready.
    let mut client = waits(&server, &mut control, "BLPOP b 0");
    control.talk("MULTI => +OK\nRPUSH b 1 => +QUEUED\nDEL b => +QUEUED\nEXEC => [:1 :1]\nSADD b x => :1");
    control.talk("DEL b => :1\nRPUSH x 1 => :1\nRENAME x b => +OK");
    assert_eq!(got(&mut client), "[$b $1]");
    server.check();
}

#[test]
fn a_wait_ends_with_its_timeout_or_from_outside() {
    let server = Fixture::start();
    let mut control = server.client();
    let began = Instant::now();
    control.talk("BLPOP a 0.05 => nil\nBLMOVE a b LEFT LEFT 0.01 => nil");
    assert!(began.elapsed() >= Duration::from_millis(60));
    control.talk(
        "
        BLPOP a -1 => -ERR timeout is negative
        BLPOP a x => -ERR timeout is not a float or out of range
        MULTI => +OK
        BLPOP a 0 => +QUEUED
        BLMPOP 0 1 a LEFT => +QUEUED
        BRPOPLPUSH a b 0 => +QUEUED
        EXEC => [nil nil nil]
        CLIENT UNBLOCK 1 => :0
        ",
    );
    for (how, expected) in
        [("", "nil"), (" TIMEOUT", "nil"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        let mut client = server.client();
        let Value::Integer(id) = client.run(&[b"CLIENT", b"ID"]) else { panic!("no number") };
        client.send_raw(&[words("BLPOP a 0"), words("PING")].concat());
        eventually(|| control.ask(&format!("CLIENT UNBLOCK {id}{how}")) == ":1");
        assert_eq!([got(&mut client), got(&mut client)], [expected, "+PONG"]);
    }
    control.talk("RPUSH a 1 => :1\nLLEN a => :1");
    server.check();
}

#[test]
fn later_commands_of_a_client_that_waits_wait_too() {
    let server = Fixture::start();
    let mut control = server.client();
    let mut client = server.client();
    client.send_raw(&[words("BLPOP a 0"), words("RPUSH c x"), words("LLEN c")].concat());
    eventually(|| control.info("blocked_clients") == "1");
    assert!(control.ask("CLIENT LIST").contains("flags=b"));
    control.talk("EXISTS c => :0\nRPUSH a 1 => :1");
    assert_eq!([got(&mut client), got(&mut client), got(&mut client)], ["[$a $1]", ":1", ":1"]);
    server.check();
}

#[test]
fn a_client_that_goes_waits_no_longer() {
    let server = Fixture::start();
    let mut control = server.client();
    for how in 0..3 {
        let mut client = waits(&server, &mut control, "BLPOP a 0");
        match how {
            0 => drop(client),
            1 => {
                client.finish_sending();
                client.expect_closed();
            }
            _ => {
                control.ask("CLIENT KILL TYPE normal");
                client.expect_closed();
            }
        }
        eventually(|| control.info("blocked_clients") == "0");
    }
    control.talk("RPUSH a 1 => :1\nLLEN a => :1");
    server.check();
}

#[test]
fn a_target_of_another_type_ends_the_wait_and_keeps_the_element() {
    let server = Fixture::start();
    let mut control = server.client();
    control.talk("SET s x => +OK");
    let mut first = waits(&server, &mut control, "BLMOVE a s LEFT LEFT 0");
    let mut second = waits(&server, &mut control, "BLPOP a 0");
    control.talk("RPUSH a 1 => :1");
    assert_eq!(got(&mut first), "-WRONGTYPE Operation against a key holding the wrong kind of value");
    assert_eq!(got(&mut second), "[$a $1]");
    server.check();
}

#[test]
fn nobody_is_served_during_a_pause() {
    let server = Fixture::start();
    let mut control = server.client();
    let mut client = waits(&server, &mut control, "BLPOP a 0");
    control.send_raw(
        &[words("MULTI"), words("RPUSH a 1"), words("CLIENT PAUSE 200 WRITE"), words("EXEC")].concat(),
    );
    (0..4).for_each(|_| _ = control.receive());
    let began = Instant::now();
    assert_eq!(got(&mut client), "[$a $1]");
    assert!(began.elapsed() >= Duration::from_millis(100));
    server.check();
}

#[test]
fn clients_that_wait_for_sorted_sets_are_served_in_order_of_arrival() {
    let server = Fixture::start();
    let mut control = server.client();
    let mut first = waits(&server, &mut control, "BZPOPMIN a b 0");
    let mut other_type = waits(&server, &mut control, "BLPOP a 0");
    let mut second = waits(&server, &mut control, "BZPOPMAX b a 0");
    let mut third = waits(&server, &mut control, "BZMPOP 0 2 c a MIN COUNT 2");
    control.talk("ZADD a 1 x 2 y 3 z 4 v => :4\nZCARD a => :0");
    assert_eq!(got(&mut first), "[$a $x $1]");
    assert_eq!(got(&mut second), "[$a $v $4]");
    assert_eq!(got(&mut third), "[$a [[$y $2] [$z $3]]]");
    control.talk("RPUSH a 1 => :1");
    assert_eq!(got(&mut other_type), "[$a $1]");
    // In RESP3 the score is a number.
    let mut client = server.client();
    client.ask("HELLO 3");
    client.send_raw(&words("BZPOPMIN a 0"));
    eventually(|| control.info("blocked_clients") == "1");
    control.talk("ZADD a 1.5 x => :1\nBZPOPMAX a 0.01 => nil\nBZMPOP 0.01 1 a MIN => nil");
    assert_eq!(got(&mut client), "[$a $x ,1.5]");
    control.talk(
        "
        MULTI => +OK
        BZPOPMIN a 0 => +QUEUED
        ZADD a 1 x => +QUEUED
        BZPOPMAX b a 0 => +QUEUED
        BZMPOP 0 1 a MIN => +QUEUED
        EXEC => [nil :1 [$a $x $1] nil]
        BZPOPMIN a x => -ERR timeout is not a float or out of range
        BZPOPMIN a -1 => -ERR timeout is negative
        BZMPOP x 0 a MIN => -ERR numkeys should be greater than 0
        BZMPOP x 1 a MIN => -ERR timeout is not a float or out of range
        BLMPOP x 0 a LEFT => -ERR numkeys should be greater than 0
        SET s x => +OK
        BZPOPMIN a s 0 => -WRONGTYPE Operation against a key holding the wrong kind of value
        ",
    );
    server.check();
}

/// A client that waits is served in the commit of what it gets. If that commit fails, it has got nothing, and
/// waits on, in its place.
#[test]
fn a_failed_commit_leaves_a_client_that_waits_waiting() {
    let server = Fixture::with(
        |config| config.batch_words_max = Some(usize::MAX),
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    );
    let mut control = server.client();
    // They leave room for values of these sizes behind.
    for number in 0..100 {
        control.talk(&format!("ZADD z{number} 2 kept 3 more => :2\nRPUSH l{number} kept => :1"));
    }
    let keys = fill(&mut control);
    for number in 0..100 {
        control.talk(&format!("DEL z{number} l{number} => :2"));
    }
    let mut first = waits(&server, &mut control, "BZPOPMIN z 0");
    let mut second = waits(&server, &mut control, "BZMPOP 0 1 z MIN");
    let mut third = waits(&server, &mut control, "BLPOP l 0");
    // There is room for keys all over the map, one by one, but not for the record of all of them.
    let mut transaction = b"MULTI\r\nZADD z 1 lost 2 also\r\nRPUSH l lost\r\n".to_vec();
    let put: Vec<_> = (25..keys).step_by(50).take(2000).collect();
    for key in &put {
        control.talk(&format!("DEL key:{key:08} => :1"));
        transaction.extend_from_slice(format!("SET key:{key:08} v\r\n").as_bytes());
    }
    transaction.extend_from_slice(b"EXEC\r\n");
    control.send_raw(&transaction);
    let replies: Vec<_> = (0..put.len() + 4).map(|_| got(&mut control)).collect();
    let exec = replies.last().unwrap();
    assert!(exec.starts_with("-OOM"), "the commit was to fail: {}", &exec[..40]);
    assert_ne!(control.info("failed_commits"), "0");
    // All keys are tried again with the next tick, and nothing is there.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(control.info("blocked_clients"), "3");
    control.talk("EXISTS z l => :0\nZADD z 2 kept 3 more => :2\nRPUSH l kept => :1");
    assert_eq!(got(&mut first), "[$z $kept $2]");
    assert_eq!(got(&mut second), "[$z [[$more $3]]]");
    assert_eq!(got(&mut third), "[$l $kept]");
    server.check();
}
