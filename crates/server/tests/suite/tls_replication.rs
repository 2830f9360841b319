//! Replication over TLS: between two of these servers, and with a real Redis on either side.

use crate::peer::{Redis, start_redis};
use crate::support::{Client, Fixture, eventually};
use crate::tls_support::{Authority, Identity, TlsFixture, direct, free_port};

/// A server that reaches masters by TLS.
fn replica(authority: &Authority, identity: Option<&Identity>) -> Fixture {
    Fixture::with_config(|config| {
        direct(config, "tls-replication", "yes");
        direct(config, "tls-ca-cert-file", authority.file());
        if let Some(Identity { cert, key }) = identity {
            direct(config, "tls-client-cert-file", cert);
            direct(config, "tls-client-key-file", key);
        }
    })
}

fn expect_link(client: &mut Client) {
    eventually(|| client.info("master_link_status") == "up");
}

/// Follows, loses the link, and goes on where it was.
fn follow(master: &mut Client, replica: &mut Client, port: u16) {
    let large = "x".repeat(300_000);
    master.talk(&format!("SET before {large} => +OK"));
    replica.talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK"));
    expect_link(replica);
    master.talk(&format!("SET while {large} => +OK"));
    eventually(|| replica.ask("STRLEN while") == ":300000");
    replica.talk("STRLEN before => :300000");
    let full = master.info("sync_full");
    assert_ne!(master.ask("CLIENT KILL TYPE replica"), ":0");
    master.talk("SET after 1 => +OK");
    eventually(|| replica.ask("GET after") == "$1");
    assert_eq!((master.info("sync_full"), master.info("sync_partial_ok")), (full, "1".to_owned()));
}

#[test]
fn a_replica_follows_and_resumes_over_tls() {
    let tls = TlsFixture::start();
    let replica = replica(&tls.authority, Some(&tls.identity));
    follow(&mut tls.server.client(), &mut replica.client(), tls.address.port());
    let mut client = replica.client();
    client.talk("CONFIG GET tls-replication => [$tls-replication $yes]");
}

#[test]
fn a_replica_and_a_master_without_good_certificates_do_not_come_together() {
    let tls = TlsFixture::start();
    let port = tls.address.port();
    let others = Authority::new();
    // The replica does not believe the master.
    let suspicious = replica(&others, None);
    suspicious.client().talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK"));
    suspicious.log.expect("the link to the master is down: the connection failed");
    suspicious.log.expect("invalid peer certificate: UnknownIssuer");
    // The master does not believe the replica.
    let stranger = replica(&tls.authority, None);
    stranger.client().talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK"));
    tls.server.log.expect("it failed in the TLS handshake: peer sent no certificates");
    stranger.log.expect("the link to the master is down");
    // A replica that speaks plainly is no replica of the port of TLS.
    let plain = Fixture::start();
    plain.client().talk(&format!("REPLICAOF 127.0.0.1 {port} => +OK"));
    tls.server.log.expect("did not begin with TLS");
    assert_eq!(tls.server.client().info("connected_slaves"), "0");
}

/// A password is not told to a master whose certificate is wrong.
#[test]
fn nothing_is_sent_before_the_master_is_verified() {
    let tls = TlsFixture::with(|config| direct(config, "tls-auth-clients", "no"));
    let others = Authority::new();
    let replica = replica(&others, None);
    tls.server.client().talk("CONFIG SET loglevel debug => +OK");
    replica.client().talk(&format!(
        "CONFIG SET masterauth secret => +OK\nREPLICAOF 127.0.0.1 {} => +OK",
        tls.address.port()
    ));
    replica.log.expect("UnknownIssuer");
    let mut client = tls.server.client();
    assert!(!client.ask("INFO commandstats").contains("cmdstat_auth"));
    assert!(!client.ask("INFO commandstats").contains("cmdstat_replconf"));
}

/// A Redis that speaks TLS at a port of its own.
fn redis_with_tls(authority: &Authority) -> Option<(Redis, Client, u16)> {
    drop(start_redis()?);
    let (own, port) = (authority.issue("redis"), free_port().to_string());
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let arguments = [
        ("--tls-port", port.clone()),
        ("--tls-cert-file", path(&own.cert)),
        ("--tls-key-file", path(&own.key)),
        ("--tls-ca-cert-file", path(&authority.file())),
        ("--tls-replication", "yes".to_owned()),
        ("--repl-diskless-sync-delay", "0".to_owned()),
    ];
    let arguments: Vec<&str> = arguments.iter().flat_map(|(name, value)| [*name, value]).collect();
    let (redis, client) = Redis::start_as(|_| {}, &arguments)?;
    Some((redis, client, port.parse().unwrap()))
}

#[test]
fn a_real_master_is_followed_over_tls() {
    let authority = Authority::new();
    let Some((_redis, mut master, port)) = redis_with_tls(&authority) else { return };
    let identity = authority.issue("replica");
    let replica = replica(&authority, Some(&identity));
    follow(&mut master, &mut replica.client(), port);
}

#[test]
fn a_real_replica_follows_over_tls() {
    let tls = TlsFixture::start();
    let Some((_redis, mut replica, _)) = redis_with_tls(&tls.authority) else { return };
    follow(&mut tls.server.client(), &mut replica, tls.address.port());
}
