//! Input that something other than a Redis client sent, and addresses that others can reach.

use crate::support::{Fixture, show};

/// A web page could have its visitor's browser run commands: the lines of an HTTP request were taken for
/// unknown commands, one by one, and then the body was executed.
#[test]
fn a_web_page_runs_no_command() {
    let server = Fixture::start();
    let mut other = server.client();
    let bodies = "SET stolen 1\r\nFLUSHALL\r\n";
    other.talk("SET kept 1 => +OK");
    for head in [
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nContent-Type: text/plain\r\n\r\n",
        "post / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "PUT /x HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "host: x\r\n",
        "*1\r\n$4\r\npost\r\n",
        "*2\r\n$5\r\nHost:\r\n$1\r\nx\r\n",
    ] {
        let mut page = server.client();
        page.send_raw([head, bodies].concat().as_bytes());
        assert_eq!(page.try_receive(), None, "{head}");
        // The same in pieces, as a network may cut it.
        let mut page = server.client();
        page.send_raw(head.as_bytes());
        page.expect_closed();
        other.talk("MGET kept stolen => [$1 nil]");
    }
}

#[test]
fn words_of_http_are_ordinary_keys_and_values() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SET POST Host: => +OK
        GET POST => $Host:
        SET / HTTP/1.1 => +OK
        GET / => $HTTP/1.1
        ",
    );
    assert!(client.ask("NOSUCH POST Host:").starts_with("-ERR unknown command"));
    client.talk("PING => +PONG");
}

/// A TLS client waited for an answer, and the server for the end of a line.
#[test]
fn tls_is_closed_at_once() {
    let server = Fixture::start();
    for hello in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\x16"] {
        let mut client = server.client();
        client.send_raw(hello);
        client.expect_closed();
    }
    let mut client = server.client();
    // Later, it may be part of a value.
    client.talk("PING => +PONG");
    assert_eq!(show(&client.run(&[b"SET", b"k", b"\x16\x03\x01"])), "+OK");
    assert_eq!(show(&client.run(&[b"\x16\x03\x01"])).find("-ERR unknown command"), Some(0));
}

/// An address of this machine that is not its loopback, if it has one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn clients_of_other_machines_are_turned_away_as_long_as_there_is_no_password() {
    let server = Fixture::with_config(|config| config.listen = "0.0.0.0:0".parse().unwrap());
    let port = server.address.port();
    let at = |ip: std::net::IpAddr| crate::support::Client::connect(std::net::SocketAddr::new(ip, port));
    let local = "127.0.0.1".parse().unwrap();
    at(local).talk("CONFIG GET bind protected-mode => [$bind $0.0.0.0 $protected-mode $yes]");
    let Some(outer) = own_address() else {
        return eprintln!("skipped: this machine has no address but the loopback");
    };
    let mut stranger = at(outer);
    let answer = show(&stranger.receive());
    assert!(answer.starts_with("-DENIED "), "{answer}");
    stranger.expect_closed();
    at(local).talk("CONFIG SET requirepass secret => +OK");
    at(outer).talk("PING => -NOAUTH Authentication required.\nAUTH secret => +OK\nPING => +PONG");
    at(local).talk("AUTH secret => +OK\nCONFIG SET requirepass '' protected-mode no => +OK");
    at(outer).talk("PING => +PONG");
}
