//! Passwords, sockets of the file system, and configuration files.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use std::io::{Read, Write};

use tembo_server::{Config, DebugCommands, Password};

use crate::peer::start_redis;
use crate::support::{Fixture, show};

const NOAUTH: &str = "-NOAUTH Authentication required.";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn who_does_not_know_the_password_may_do_nothing() {
    let server = Fixture::with_config(|config| config.password = Password::new("secret"));
    let mut client = server.client();
    client.talk(&format!(
        "
        GET k => {NOAUTH}
        PING => {NOAUTH}
        MULTI => {NOAUTH}
        SUBSCRIBE a => {NOAUTH}
        INFO => {NOAUTH}
        MONITOR => {NOAUTH}
        SHUTDOWN => {NOAUTH}
        GET => -ERR wrong number of arguments for 'get' command
        AUTH wrong => {WRONGPASS}
        AUTH secre => {WRONGPASS}
        AUTH secretsecret => {WRONGPASS}
        AUTH '' => {WRONGPASS}
        AUTH default wrong => {WRONGPASS}
        AUTH alice secret => {WRONGPASS}
        AUTH a b c => -ERR syntax error
        HELLO 3 AUTH default wrong => {WRONGPASS}
        PING => {NOAUTH}
        AUTH secret => +OK
        PING => +PONG
        AUTH wrong => {WRONGPASS}
        PING => +PONG
        RESET => +RESET
        PING => {NOAUTH}
        AUTH default secret => +OK
        CONFIG GET requirepass => [$requirepass $secret]
        CONFIG SET requirepass '' => +OK
        "
    ));
    let mut other = server.client();
    other.talk("PING => +PONG\nAUTH default anything => +OK");
    client.talk("CONFIG SET requirepass other => +OK\nPING => +PONG");
    other.talk("PING => +PONG");
    let mut third = server.client();
    assert!(third.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(third.ask("HELLO 3 AUTH default other").starts_with("{$server:$redis"));
    third.talk("PING => +PONG\nQUIT => +OK");
}

#[test]
fn strangers_may_not_send_much() {
    let mut redis = start_redis();
    if let Some((_, theirs)) = &mut redis {
        theirs.talk("CONFIG SET requirepass secret => +OK");
    }
    let server = Fixture::with_config(|config| config.password = Password::new("secret"));
    for bytes in [&b"*11\r\n"[..], b"*2\r\n$16385\r\n", b"*1000000000\r\n", b"*1\r\n$4\r\nPING\r\n"] {
        let answer = |client: &mut crate::support::Client| {
            client.send_raw(bytes);
            show(&client.receive())
        };
        let ours = answer(&mut server.client());
        if let Some((redis, _)) = &redis {
            assert_eq!(ours, answer(&mut redis.client()), "{}", bytes.escape_ascii());
        }
        assert!(ours.contains("unauthenticated") || ours == NOAUTH, "{ours}");
    }
    let mut client = server.client();
    client.talk("AUTH secret => +OK");
    client.send_raw(b"*11\r\n");
    (0..11).for_each(|at| client.send_raw(if at == 0 { b"$3\r\nDEL\r\n" } else { b"$1\r\nk\r\n" }));
    assert_eq!(show(&client.receive()), ":0");
}

#[test]
fn the_answers_to_passwords_are_those_of_redis() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    theirs.talk("CONFIG SET requirepass secret => +OK");
    let server = Fixture::with_config(|config| config.password = Password::new("secret"));
    let (mut ours, mut theirs) = (server.client(), redis.client());
    for words in [
        "PING",
        "NOSUCH",
        "GET",
        "HELLO",
        "HELLO 3",
        "HELLO x",
        "HELLO 4 AUTH default secret",
        "HELLO 3 AUTH default",
        "HELLO 3 AUTH default x SETNAME y",
        "AUTH x",
        "AUTH default x",
        "AUTH a b c",
        "RESET",
        "AUTH secret",
        "GET k",
        "MULTI",
        "AUTH x",
        "EXEC",
        "RESET",
        "GET k",
        "EXEC",
        "QUIT",
    ] {
        assert_eq!(ours.ask(words), theirs.ask(words), "{words}");
    }
}

#[test]
fn a_socket_of_the_file_system_has_its_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tembo.sock");
    let start = || {
        Fixture::with_config(|config| {
            (config.unix_socket, config.unix_socket_mode) = (Some(path.clone()), Some(0o620));
            config.debug_commands = DebugCommands::Local;
        })
    };
    let server = start();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o620);
    let mut client = UnixStream::connect(&path).unwrap();
    let mut ask = |words: &str, expected: &str| {
        client.write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; expected.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    };
    ask("SET k v", "+OK\r\n");
    ask("DEBUG SLEEP 0", "+OK\r\n");
    let list = server.client().ask("CLIENT LIST");
    let address = format!("addr={}:0 laddr={}:0", path.display(), path.display());
    assert!(list.contains(&address) && list.contains("flags=U"), "{list}");
    server.client().talk(&format!("CLIENT KILL ADDR {}:0 => :1", path.display()));
    drop(server);
    // Nobody listens on it any more.
    let server = start();
    UnixStream::connect(&path).unwrap();
    server.client().talk("PING => +PONG");
}

#[test]
fn settings_come_from_a_file_and_go_back_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, included) = (dir.path().join("redis.conf"), dir.path().join("more.conf"));
    let text = "# Ours\nport 0\ninclude MORE\nsave 3600 1 300 100\nrequirepass 'a b'\ntimeout 77\nenable-debug-command yes\n";
    std::fs::write(&file, text.replace("MORE", included.to_str().unwrap())).unwrap();
    std::fs::write(&included, "maxclients 77\r\nclient-output-buffer-limit pubsub 1mb 1kb 7\n").unwrap();
    let mut config = Config::default();
    config.read_file(&file).unwrap();
    assert_eq!((config.max_clients, config.tcp), (77, false));
    assert_eq!(config.output_limits.pubsub.soft_seconds, 7);
    assert_eq!((config.debug_commands, &config.password), (DebugCommands::Yes, &Password::new("a b")));
    let server = Fixture::with_config(|ours| {
        let listen = ours.listen;
        ours.read_file(&file).unwrap();
        (ours.listen, ours.tcp) = (listen, true);
    });
    let mut client = server.client();
    client.talk("AUTH 'a b' => +OK\nCONFIG GET timeout maxclients => [$maxclients $77 $timeout $77]");
    assert_eq!(client.info("config_file"), file.display().to_string());
    client.talk("CONFIG SET timeout 5 requirepass 'c \"d' loglevel warning => +OK\nCONFIG REWRITE => +OK");
    let text = std::fs::read_to_string(&file).unwrap();
    let expected = "# Ours\nport 0\ninclude MORE\nsave 3600 1 300 100\nrequirepass \"c \\\"d\"\ntimeout 5\nenable-debug-command yes\n# Added by CONFIG REWRITE\n";
    assert!(text.starts_with(&expected.replace("MORE", included.to_str().unwrap())), "{text}");
    assert!(text.contains("\nloglevel warning\n"), "{text}");
    let mut again = Config::default();
    again.read_file(&file).unwrap();
    assert_eq!(again.password, Password::new("c \"d"));
    Fixture::start().client().talk("CONFIG REWRITE => -ERR The server is running without a config file");
}

#[test]
fn debug_is_for_whom_the_configuration_says() {
    let server = Fixture::with_config(|config| config.debug_commands = DebugCommands::No);
    let mut client = server.client();
    assert!(client.ask("DEBUG SLEEP 0").starts_with("-ERR DEBUG command not allowed."));
    client.talk(
        "CONFIG SET enable-debug-command yes => -ERR CONFIG SET failed (possibly related to argument 'enable-debug-command') - can't set immutable config",
    );
}

/// Each directive that Redis 7.0 has is a setting, without meaning, or refused.
#[test]
fn every_directive_of_redis_is_known() {
    let Some((_redis, mut theirs)) = start_redis() else { return };
    let tembo_wire::Value::Array(all) = theirs.run(&[b"CONFIG", b"GET", b"*"]) else { panic!("no array") };
    let mut unknown = Vec::new();
    for pair in all.chunks(2) {
        let name = String::from_utf8(pair[0].as_bytes().unwrap().to_vec()).unwrap();
        let value = pair[1].as_bytes().unwrap();
        if let Err(why) = Config::default().take_directive(&name, value) {
            unknown.push(why);
        }
    }
    assert!(all.len() > 300, "{}", all.len());
    assert_eq!(unknown, [""; 0]);
}
