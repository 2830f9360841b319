//! Moves of slots to a node whose port speaks TLS.

use crate::cluster_support::{node_id, set_nodes};
use crate::support::{Fixture, eventually};
use crate::tls_support::{TlsFixture, direct};

/// A source that reaches the target as its directives say, in a topology with the target's port of TLS.
fn source(target: &TlsFixture, speaks_tls: bool) -> Fixture {
    let source = Fixture::with_config(|config| {
        config.cluster = true;
        if speaks_tls {
            direct(config, "tls-replication", "yes");
            direct(config, "tls-ca-cert-file", target.authority.file());
            direct(config, "tls-client-cert-file", &target.identity.cert);
            direct(config, "tls-client-key-file", &target.identity.key);
        }
    });
    let lines = [(source.address.port(), "0-16383"), (target.address.port(), "")];
    let line = |(number, (port, slots)): (usize, (u16, &str))| {
        format!("{} 127.0.0.1 {port} master - {slots}\n", node_id(number))
    };
    let topology: String = lines.into_iter().enumerate().map(line).collect();
    for (number, server) in [&source, &target.server].into_iter().enumerate() {
        let mut client = server.client();
        client.talk(&format!("CLUSTERX SETNODEID {} => +OK", node_id(number)));
        assert_eq!(set_nodes(&mut client, &topology, 1), "+OK");
    }
    source
}

#[test]
fn a_slot_moves_over_tls() {
    let target = TlsFixture::with(|config| config.cluster = true);
    let source = source(&target, true);
    let (mut from, mut to) = (source.client(), target.server.client());
    from.talk("SET b 1 => +OK");
    // More than a record of TLS, and than a read.
    let large = "x".repeat(300_000);
    from.talk(&format!("SET {{b}}large {large} => +OK"));
    (0..3000).for_each(|number| from.talk(&format!("SET {{b}}{number} {number} => +OK")));
    from.talk(&format!("CLUSTERX MIGRATE 3300 {} SYNC 60 => +OK", node_id(1)));
    from.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{}", target.address.port()));
    to.talk("GET b => $1\nSTRLEN {b}large => :300000\nGET {b}2999 => $2999\nDBSIZE => :3002");
    eventually(|| from.ask("DBSIZE") == ":0");
    source.check();
    target.server.check();
}

/// Nothing is lost, and no key is told, where the source speaks plainly to that port.
#[test]
fn a_slot_stays_where_the_target_is_not_understood() {
    let target = TlsFixture::with(|config| config.cluster = true);
    let source = source(&target, false);
    let mut from = source.client();
    from.talk("SET b 1 => +OK");
    let answer = from.ask(&format!("CLUSTERX MIGRATE 3300 {} SYNC 60", node_id(1)));
    assert!(answer.starts_with("-ERR"), "{answer}");
    target.server.log.expect("did not begin with TLS");
    from.talk("GET b => $1\nSET b 2 => +OK");
    target.server.client().talk("DBSIZE => :0");
}
