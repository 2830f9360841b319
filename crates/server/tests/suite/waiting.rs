//! Clients that wait for lists.

use std::time::{Duration, Instant};

use tembo_wire::Value;

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
