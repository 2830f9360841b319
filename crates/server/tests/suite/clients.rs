//! CLIENT: replies that are not wanted, and pauses.

use std::time::{Duration, Instant};

use crate::support::{Fixture, show};

#[test]
fn replies_are_turned_off_and_on() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(
        b"SET a 1\r\nCLIENT REPLY SKIP\r\nSET b 2\r\nGET b\r\nCLIENT REPLY OFF\r\nSET c 3\r\nGET c\r\nNOSUCH\r\nCLIENT REPLY ON\r\n\
          GET c\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nGET a\r\nPING\r\nCLIENT REPLY x\r\n",
    );
    let replies: Vec<_> = (0..6).map(|_| show(&client.receive())).collect();
    assert_eq!(replies, ["+OK", "$2", "+OK", "$3", "+PONG", "-ERR syntax error"]);
    client.send_raw(b"CLIENT REPLY OFF\r\nMULTI\r\nSET d 4\r\nEXEC\r\nKEYS *\r\nRESET\r\nGET d\r\n");
    assert_eq!(show(&client.receive()), "+RESET");
    assert_eq!(show(&client.receive()), "$4");
    client.send_raw(b"HELLO 3\r\nSUBSCRIBE a\r\nCLIENT REPLY OFF\r\nPUBLISH a hello\r\nPING\r\n");
    client.receive();
    assert_eq!(show(&client.receive()), ">$subscribe $a :1");
    assert_eq!(show(&client.receive()), ">$message $a $hello", "messages come in any case");
    server.check();
}

#[test]
fn a_pause_keeps_commands_waiting() {
    let server = Fixture::start();
    let (mut writer, mut reader, mut third) = (server.client(), server.client(), server.client());
    writer.talk("SET k v => +OK\nCLIENT PAUSE 60000 WRITE => +OK\nGET k => $v");
    writer.send_raw(b"SET k w\r\nGET k\r\n");
    third.send_raw(b"MULTI\r\nSET k x\r\nEXEC\r\n");
    assert_eq!(show(&third.receive()), "+OK");
    assert_eq!(show(&third.receive()), "+QUEUED");
    std::thread::sleep(Duration::from_millis(300));
    reader.talk("GET k => $v\nCLIENT UNPAUSE => +OK");
    assert_eq!(show(&writer.receive()), "+OK");
    assert_eq!(show(&third.receive()), "[+OK]");
    writer.receive();
    let since = Instant::now();
    reader.talk("CLIENT PAUSE 300 => +OK\nPING => +PONG");
    assert!(since.elapsed() >= Duration::from_millis(300), "all commands wait");
    // A pause that is over before anybody has waited.
    writer.send_raw(b"CLIENT PAUSE 60000 WRITE\r\nGET k\r\nCLIENT UNPAUSE\r\nSET k y\r\n");
    writer.receive();
    writer.receive();
    assert_eq!([show(&writer.receive()), show(&writer.receive())], ["+OK", "+OK"]);
}

#[test]
fn debug_has_what_suites_use() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SET k v EX 100 => +OK
        SET 'a b' 1 => +OK
        DEBUG OBJECT nosuch => -ERR no such key
        DEBUG CHANGE-REPL-ID => +OK
        DEBUG RELOAD => +OK
        DEBUG SET-ACTIVE-EXPIRE 0 => +OK
        SET gone v PX 1 => +OK
        ",
    );
    assert!(client.ask("DEBUG OBJECT k").contains(" encoding:embstr "));
    std::thread::sleep(Duration::from_millis(300));
    client.talk("GET gone => nil\nDBSIZE => :3\nDEBUG SET-ACTIVE-EXPIRE 1 => +OK");
    crate::support::eventually(|| client.ask("DBSIZE") == ":2");
    let (digest, value) = (client.ask("DEBUG DIGEST"), client.ask("DEBUG DIGEST-VALUE k nosuch"));
    assert_eq!(digest.len(), 41);
    assert!(value.ends_with("+0000000000000000000000000000000000000000]") && value.len() > 80, "{value}");
    client.talk("MULTI => +OK\nSET x y => +QUEUED\nDEBUG DIGEST => +QUEUED");
    let inside = client.ask("EXEC");
    assert_ne!(client.ask("DEBUG DIGEST"), digest);
    assert!(inside.contains(&client.ask("DEBUG DIGEST")), "a transaction sees its own changes");
    client.talk("DEL x => :1");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.talk("PERSIST k => :1");
    assert_ne!(client.ask("DEBUG DIGEST"), digest, "deadlines count");
    let stats = client.ask("MEMORY STATS");
    assert!(stats.contains("$keys.count :2"), "{stats}");
    assert!(client.ask("MEMORY DOCTOR").starts_with("$The pool uses "));
}
