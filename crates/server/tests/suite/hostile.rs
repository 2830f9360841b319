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

#[test]
fn an_address_that_others_can_reach_has_to_be_asked_for() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
        let mut config = tembo_server::Config::default();
        config.listen = address.parse().unwrap();
        let error = tembo_server::Server::bind(config, pool).unwrap_err();
        assert!(matches!(error, tembo_server::Error::Exposed { .. }), "{error}");
    }
    let server = Fixture::with_config(|config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.protected_mode = false;
    });
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    let mut client = crate::support::Client::connect(local);
    client.talk("CONFIG GET bind protected-mode => [$bind $0.0.0.0 $protected-mode $no]");
    Fixture::start()
        .client()
        .talk("CONFIG GET bind protected-mode => [$bind $127.0.0.1 $protected-mode $yes]");
}
