//! Those who are refused are told of in the log, and others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Client, PATIENCE, eventually, show};
use crate::tls_support::{Authority, TlsFixture, direct, refusal};

#[test]
fn a_client_without_a_good_certificate_is_refused() {
    let tls = TlsFixture::start();
    let mut other = tls.client();
    other.talk("PING => +PONG");
    let others = Authority::new();
    let stranger = others.issue("client");
    let expired = tls.authority.issue_expired("expired");
    for (identity, part) in [
        (None, "peer sent no certificates"),
        (Some(&stranger), "invalid peer certificate: UnknownIssuer"),
        (Some(&expired), "invalid peer certificate: certificate expired"),
    ] {
        let mut client = tls.client_with(tls.authority.client_config(identity));
        assert!(refusal(&mut client).is_some(), "{part}");
        tls.server.log.expect(&format!("is disconnected: it failed in the TLS handshake: {part}"));
        other.talk("PING => +PONG");
    }
}

#[test]
fn a_certificate_may_be_optional() {
    let tls = TlsFixture::with(|config| direct(config, "tls-auth-clients", "optional"));
    tls.client_with(tls.authority.client_config(None)).talk("PING => +PONG");
    tls.client().talk("PING => +PONG");
    let others = Authority::new();
    let stranger = others.issue("client");
    assert!(refusal(&mut tls.client_with(tls.authority.client_config(Some(&stranger)))).is_some());
    let tls = TlsFixture::with(|config| direct(config, "tls-auth-clients", "no"));
    tls.client_with(tls.authority.client_config(Some(&stranger))).talk("PING => +PONG");
}

/// Its client refuses it: the server hears an alert.
#[test]
fn a_client_that_refuses_the_server_is_told_of() {
    let tls = TlsFixture::start();
    let other = Authority::new();
    assert!(refusal(&mut tls.client_with(other.client_config(None))).unwrap().contains("UnknownIssuer"));
    tls.server.log.expect("received fatal alert");
    tls.client().talk("PING => +PONG");
}

#[test]
fn other_protocols_are_refused_at_the_port_of_tls() {
    let tls = TlsFixture::start();
    let mut other = tls.client();
    for bytes in ["PING\r\n", "*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "get k\r\n", "\0"]
    {
        let mut stream = TcpStream::connect(tls.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        // One byte can still be the beginning of a record.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // An alert, or nothing; an end by a reset is an end.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        other.talk("PING => +PONG");
    }
    tls.server.log.expect("did not begin with TLS, which is spoken at this port");
}

#[test]
fn tls_is_refused_at_the_plain_port() {
    let tls = TlsFixture::start();
    let mut client = crate::tls_support::connect(tls.server.address, tls.authority.client_config(None));
    assert!(refusal(&mut client).is_some());
    tls.server.log.expect("began with TLS, which is not spoken here");
    tls.server.client().talk("PING => +PONG");
}

/// Redis's limits hold inside TLS as well.
#[test]
fn a_stranger_may_send_little() {
    let tls = TlsFixture::start();
    tls.server.client().talk("CONFIG SET requirepass secret => +OK");
    for (bytes, expected) in [
        (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length"),
        (&b"*1\r\n$16385\r\n"[..], "-ERR Protocol error: unauthenticated bulk length"),
    ] {
        for client in [&mut tls.client() as &mut dyn Stranger, &mut tls.server.client()] {
            assert_eq!(client.send_and_receive(bytes), expected);
        }
    }
    let mut client = tls.client();
    client.talk("PING => -NOAUTH Authentication required.");
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS"));
    tls.server.log.expect("gave a wrong password");
    client.talk("AUTH secret => +OK\nPING => +PONG");
}

trait Stranger {
    fn send_and_receive(&mut self, bytes: &[u8]) -> String;
}

impl<S: Read + Write> Stranger for Client<S> {
    fn send_and_receive(&mut self, bytes: &[u8]) -> String {
        self.send_raw(bytes);
        let reply = show(&self.receive());
        self.expect_closed();
        reply
    }
}

/// A handshake that never ends has a time.
#[test]
fn a_handshake_takes_no_longer_than_it_may() {
    let tls = TlsFixture::with(|config| direct(config, "tls-handshake-timeout", "1"));
    let begun = Instant::now();
    let mut silent = TcpStream::connect(tls.address).unwrap();
    let mut slow = tls.client().stream.sock;
    slow.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut done = tls.client();
    done.talk("PING => +PONG");
    for stream in [&mut silent, &mut slow] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was disconnected too early");
    tls.server.log.expect("its TLS handshake takes too long (tls-handshake-timeout)");
    // One that is done may be silent.
    done.talk("PING => +PONG");
}

/// Messages of a handshake can be long, and are counted.
#[test]
fn a_handshake_is_no_longer_than_it_may() {
    let tls = TlsFixture::start();
    let mut stream = TcpStream::connect(tls.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A ClientHello that claims 16 MiB, in records of 16 KiB.
    let mut record = vec![22, 3, 1, 64, 0, 1, 255, 255, 255];
    record.resize(5 + (16 << 10), 0);
    let mut sent = 0;
    while sent < 1 << 20 && stream.write_all(&record).is_ok() {
        sent += record.len();
        record[5..9].fill(0);
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    tls.server.log.expect("TLS handshake");
    tls.client().talk("PING => +PONG");
}

/// Half-open connections: 500, or as many as `TEMBO_HALF_OPEN` says, 10,000 in the long form.
#[test]
fn half_open_connections_do_not_keep_others_out() {
    let wanted = std::env::var("TEMBO_HALF_OPEN").map_or(500, |text| text.parse().expect("a number"));
    let tls = TlsFixture::with(|config| config.max_clients = wanted / 2);
    let mut half_open = Vec::new();
    for number in 0..wanted {
        let mut stream = TcpStream::connect(tls.address).unwrap();
        if number % 2 == 0 {
            // The beginning of a handshake.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1]);
        }
        half_open.push(stream);
        if number % 100 == 0 {
            tls.client().talk("PING => +PONG");
        }
    }
    tls.client().talk("PING => +PONG\nSET key value => +OK");
    let mut plain = tls.server.client();
    plain.talk("GET key => $value");
    let clients: usize = plain.info("connected_clients").parse().unwrap();
    assert!(clients <= wanted / 2, "{clients} clients");
    tls.server.log.expect("made room");
    drop(half_open);
    eventually(|| plain.info("connected_clients") == "1");
}
