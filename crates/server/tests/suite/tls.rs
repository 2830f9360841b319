//! Clients that speak TLS are served as others are.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustls::ProtocolVersion;

use crate::support::{eventually, request, show};
use crate::tls_support::{Authority, TlsFixture, direct, refusal};

#[test]
fn a_client_is_served_in_both_versions() {
    for (protocols, expected) in [
        ("", ProtocolVersion::TLSv1_3),
        ("TLSv1.3", ProtocolVersion::TLSv1_3),
        ("TLSv1.2", ProtocolVersion::TLSv1_2),
    ] {
        let tls = TlsFixture::with(|config| direct(config, "tls-protocols", protocols));
        let mut client = tls.client();
        client.talk("SET key value => +OK\nGET key => $value\nHELLO 2 SETNAME me => [$server $redis $version $7.0.15 $proto :2 $id :1 $mode $standalone $role $master $modules []]");
        assert_eq!(client.stream.conn.protocol_version(), Some(expected));
        tls.server.client().talk("GET key => $value");
        assert_eq!(client.info("tcp_port"), tls.server.address.port().to_string());
    }
}

#[test]
fn without_a_plain_port_there_is_only_tls() {
    let tls = TlsFixture::with(|config| direct(config, "port", "0"));
    assert_eq!(tls.server.address, tls.address);
    let mut client = tls.client();
    client.talk("PING => +PONG\nCONFIG GET port => [$port $0]");
    assert_eq!(client.info("tcp_port"), tls.address.port().to_string());
}

/// Larger than records, buffers and sockets: in both directions, and with a reader that is late.
#[test]
fn large_values_go_both_ways() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    let value: Vec<u8> = (0..6_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(show(&client.run(&[b"SET", b"key", &value])), "+OK");
    assert!(client.run(&[b"GET", b"key"]).as_bytes() == Some(&value[..]));
    for _ in 0..5 {
        client.send(&[b"GET", b"key"]);
    }
    tls.server.client().talk("PING => +PONG");
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..5 {
        assert!(client.receive().as_bytes() == Some(&value[..]));
    }
    client.talk("PING => +PONG");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    let requests: Vec<u8> = (0..20_000).flat_map(|_| request(&[b"INCR", b"n"])).collect();
    client.send_raw(&requests);
    for number in 1..=20_000 {
        assert_eq!(show(&client.receive()), format!(":{number}"));
    }
}

/// Every byte is an event of its own, in the handshake as well.
#[test]
fn records_may_come_byte_by_byte() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    let stream = &mut client.stream;
    while stream.conn.is_handshaking() {
        let mut records = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut records).unwrap();
        }
        for byte in &records {
            stream.sock.write_all(&[*byte]).unwrap();
        }
        if stream.conn.is_handshaking() {
            stream.conn.read_tls(&mut stream.sock).unwrap();
            stream.conn.process_new_packets().unwrap();
        }
    }
    stream.conn.writer().write_all(b"SET key value\r\nGET key\r\n").unwrap();
    let mut records = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut records).unwrap();
    }
    for byte in &records {
        stream.sock.write_all(&[*byte]).unwrap();
    }
    assert_eq!(show(&client.receive()), "+OK");
    assert_eq!(show(&client.receive()), "$value");
}

/// The server writes without having read.
#[test]
fn messages_and_the_ends_of_waits_are_sent_at_once() {
    let tls = TlsFixture::start();
    let (mut subscriber, mut waiting) = (tls.client(), tls.client());
    subscriber.talk("SUBSCRIBE channel => [$subscribe $channel :1]");
    waiting.send_raw(b"BLPOP list 0\r\n");
    let mut other = tls.server.client();
    eventually(|| other.info("blocked_clients") == "1");
    other.talk("PUBLISH channel hello => :1\nRPUSH list element => :1");
    assert_eq!(show(&subscriber.receive()), "[$message $channel $hello]");
    assert_eq!(show(&waiting.receive()), "[$list $element]");
}

/// Another part of the server lets clients in then, and answers them.
#[test]
fn a_client_is_answered_while_a_script_is_busy() {
    let tls = TlsFixture::with(|config| config.script_time = Some(Duration::from_millis(50)));
    let mut old = tls.client();
    old.talk("PING => +PONG");
    let mut busy = tls.server.client();
    busy.talk("PING => +PONG");
    busy.send(&[b"EVAL", b"while true do pcall(redis.call, 'get', 'x') end", b"0"]);
    // Clients that come after the script: one that asked before it, in the same turn, waits for its end.
    eventually(|| tls.server.client().ask("PING").starts_with("-BUSY"));
    assert!(old.ask("PING").starts_with("-BUSY"));
    let mut new = tls.client();
    assert!(new.ask("GET key").starts_with("-BUSY"));
    // Whatever is no TLS is told so, and of when the script is over.
    let mut stranger = std::net::TcpStream::connect(tls.address).unwrap();
    stranger.write_all(b"PING\r\n").unwrap();
    stranger.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let mut alert = [0; 7];
    stranger.read_exact(&mut alert).unwrap();
    assert_eq!(alert[0], 21);
    new.talk("SCRIPT KILL => +OK");
    assert!(show(&busy.receive()).contains("killed"));
    new.talk("PING => +PONG");
    old.talk("PING => +PONG");
    tls.server.log.expect("did not begin with TLS");
}

/// An end without the words of TLS could have been made by somebody in between.
#[test]
fn the_server_says_that_it_closes() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    client.send_raw(b"QUIT\r\n");
    let mut answer = Vec::new();
    client.stream.read_to_end(&mut answer).expect("a connection that ends in order");
    assert_eq!(answer, b"+OK\r\n");
}

#[test]
fn a_client_that_closes_is_gone_with_or_without_the_words_of_tls() {
    let tls = TlsFixture::start();
    let mut other = tls.server.client();
    let mut polite = tls.client();
    polite.talk("PING => +PONG");
    polite.stream.conn.send_close_notify();
    polite.stream.flush().unwrap();
    // Its socket is open, and all it does is to wait for the answer.
    eventually(|| other.info("connected_clients") == "1");
    let mut rude = tls.client();
    rude.talk("PING => +PONG");
    // The last request and the end come together.
    rude.stream.write_all(b"SET last 1\r\n").unwrap();
    rude.stream.sock.shutdown(std::net::Shutdown::Both).unwrap();
    eventually(|| other.info("connected_clients") == "1");
    other.talk("GET last => $1");
    drop(polite);
    assert!(tls.server.log.count("TLS") == 0, "{:?}", tls.server.log.lines());
}

#[test]
fn a_slow_reader_does_not_hold_others_up_and_gets_everything() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    let value = vec![b'v'; 100_000];
    client.run(&[b"SET", b"key", &value]);
    for _ in 0..100 {
        client.send(&[b"GET", b"key"]);
    }
    let mut other = tls.client();
    for _ in 0..100 {
        other.talk("PING => +PONG");
    }
    for _ in 0..100 {
        assert!(client.receive().as_bytes() == Some(&value[..]));
    }
}

#[test]
fn sessions_are_resumed_only_if_they_are_cached() {
    for (caching, expected) in [("yes", true), ("no", false)] {
        let tls = TlsFixture::with(|config| direct(config, "tls-session-caching", caching));
        let config = tls.authority.client_config(Some(&tls.identity));
        tls.client_with(config.clone()).talk("PING => +PONG");
        let mut second = tls.client_with(config);
        second.talk("PING => +PONG");
        let is_resumed = second.stream.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        assert_eq!(is_resumed, expected, "tls-session-caching {caching}");
    }
}

#[test]
fn a_certificate_is_read_again_when_it_is_set_again() {
    let tls = TlsFixture::with(|config| direct(config, "tls-session-caching", "no"));
    let mut old = tls.client();
    old.talk("PING => +PONG");
    let first = old.stream.conn.peer_certificates().unwrap()[0].clone();
    // Other files under the same names.
    let own = tls.authority.issue("localhost");
    let path = own.cert.display();
    old.talk(&format!("CONFIG SET tls-cert-file {path} tls-key-file {} => +OK", own.key.display()));
    let mut new = tls.client();
    new.talk("PING => +PONG");
    assert!(new.stream.conn.peer_certificates().unwrap()[0] != first);
    old.talk("PING => +PONG");
    // A certificate without its key is no change.
    let other = tls.authority.issue("other");
    let answer = old.ask(&format!("CONFIG SET tls-cert-file {}", other.cert.display()));
    assert!(answer.contains("Unable to update TLS configuration: the key is not that of"), "{answer}");
    let answer = old.ask("CONFIG SET timeout 7 tls-key-file /nowhere/key");
    assert!(answer.contains("/nowhere/key"), "{answer}");
    old.talk(&format!("CONFIG GET tls-cert-file timeout => [$timeout $0 $tls-cert-file ${path}]"));
    tls.client().talk("PING => +PONG");
    // Another authority is the end for clients of this one.
    let stranger = Authority::new();
    old.talk(&format!("CONFIG SET tls-ca-cert-file {} => +OK", stranger.file().display()));
    assert!(refusal(&mut tls.client()).is_some());
    old.talk("CONFIG SET tls-auth-clients no => +OK");
    tls.client().talk("PING => +PONG");
}

#[test]
fn ciphers_are_those_of_the_settings() {
    let tls = TlsFixture::with(|config| {
        direct(config, "tls-protocols", "TLSv1.2");
        direct(config, "tls-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305");
    });
    let mut client = tls.client();
    client.talk("PING => +PONG");
    let suite = client.stream.conn.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256);
    let answer = client.ask("CONFIG SET tls-protocols TLSv1.1");
    assert!(answer.contains("TLSv1.1 is broken"), "{answer}");
}

/// Settings without which a server cannot begin name what is missing.
#[test]
fn a_server_does_not_begin_with_half_of_the_settings() {
    let authority = Authority::new();
    let own = authority.issue("localhost");
    let mut config = tembo_server::Config::default();
    let expect = |config: &tembo_server::Config, part: &str| {
        let why = config.check_tls().unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    };
    config.check_tls().unwrap();
    direct(&mut config, "tls-port", "6380");
    expect(&config, "no tls-cert-file");
    direct(&mut config, "tls-cert-file", &own.cert);
    expect(&config, "no tls-key-file");
    direct(&mut config, "tls-key-file", &own.key);
    expect(&config, "tls-ca-cert-file or tls-ca-cert-dir");
    direct(&mut config, "tls-ca-cert-file", "/nowhere");
    expect(&config, "/nowhere");
    direct(&mut config, "tls-ca-cert-file", &own.key);
    expect(&config, "has no certificate");
    direct(&mut config, "tls-ca-cert-file", authority.file());
    config.check_tls().unwrap();
    direct(&mut config, "tls-ca-cert-file", "");
    let folder = tempfile::tempdir().unwrap();
    direct(&mut config, "tls-ca-cert-dir", folder.path());
    expect(&config, "openssl rehash");
    std::fs::copy(authority.file(), folder.path().join("0123abcd.0")).unwrap();
    config.check_tls().unwrap();
    direct(&mut config, "tls-key-file", &authority.issue("other").key);
    expect(&config, "the key is not that of the certificate");
}

/// A client that ends in the middle of its handshake is no reason for a warning.
#[test]
fn an_end_in_the_handshake_is_just_an_end() {
    let tls = TlsFixture::start();
    let mut client = tls.client();
    let stream = &mut client.stream;
    stream.conn.write_tls(&mut stream.sock).unwrap();
    let mut some = [0; 5];
    stream.sock.read_exact(&mut some).unwrap();
    drop(client);
    let mut other = tls.server.client();
    eventually(|| other.info("connected_clients") == "1");
    assert_eq!(tls.server.log.count("disconnected"), 0, "{:?}", tls.server.log.lines());
    let probe = std::net::TcpStream::connect(tls.address).unwrap();
    probe.set_nonblocking(true).unwrap();
    assert_eq!((&probe).read(&mut some).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn settings_are_written_into_the_file_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tembo.conf");
    let tls = TlsFixture::with(|config| config.file = Some(file.clone()));
    let mut client = tls.client();
    client.talk(
        "
        CONFIG SET tls-ciphersuites TLS_AES_128_GCM_SHA256 tls-auth-clients optional => +OK
        CONFIG SET tls-protocols 'TLSv1.3 TLSv1.2' tls-handshake-timeout 7 => +OK
        CONFIG SET tls-port 1 => -ERR CONFIG SET failed (possibly related to argument 'tls-port') - can't set immutable config
        CONFIG REWRITE => +OK
        ",
    );
    let answer = client.ask("CONFIG SET tls-key-file-pass secret");
    assert!(answer.contains("openssl pkey") && !answer.contains("secret"), "{answer}");
    let mut config = tembo_server::Config::default();
    config.read_file(&file).unwrap();
    direct(&mut config, "tls-port", "1");
    config.check_tls().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    for line in ["tls-auth-clients optional", "tls-protocols \"TLSv1.3 TLSv1.2\"", "tls-handshake-timeout 7"]
    {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
