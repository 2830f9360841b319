//! Moves of slots at the limits: a full pool at either end, and a replica that takes the place of one end in
//! the middle.

use crate::cluster_moves::field;
use crate::cluster_moves_lost::{Answers, DOUBTFUL, Target, line, source_id};
use crate::cluster_support::{node, node_id, set_nodes};
use crate::support::{Client, Fixture, eventually};

/// Fills a pool with keys of one slot; returns how many there are.
fn fill(client: &mut Client, tag: &str) -> usize {
    let mut count = 0;
    for bytes in [30_000, 1000, 10] {
        let value = "v".repeat(bytes);
        while client.ask(&format!("SET {{{tag}}}{count} {value}")) == "+OK" {
            count += 1;
        }
    }
    count
}

#[test]
fn a_full_pool_gives_its_slots_away_and_gets_none() {
    let small = Fixture::with(
        |config| config.cluster = true,
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    );
    let large = node();
    let topology = line(0, small.address.port(), "0-16383") + &line(1, large.address.port(), "");
    let [mut first, mut second] = [&small, &large].map(Fixture::client);
    for client in [&mut first, &mut second] {
        assert_eq!(set_nodes(client, &topology, 1), "+OK");
    }
    let moved = fill(&mut first, "b");
    let migrate = |client: &mut Client, target: usize| {
        client.ask(&format!("CLUSTERX MIGRATE 3300 {} SYNC 60", node_id(target)))
    };
    assert_eq!(migrate(&mut first, 1), "+OK");
    eventually(|| first.ask("DBSIZE") == ":0");
    assert_eq!(second.ask("DBSIZE"), format!(":{moved}"));
    // The pool has room again, and no more than that.
    let count = fill(&mut first, "c");
    assert!(migrate(&mut second, 0).starts_with("-ERR the slots were not moved: the target answered: OOM"));
    second.talk("EXISTS {b}0 => :1\nSET {b}0 1 => +OK");
    eventually(|| first.ask("DBSIZE") == format!(":{count}"));
    eventually(|| first.ask("SET {c}0 1") == "+OK");
    small.check();
    large.check();
}

#[test]
fn a_replica_of_a_source_in_doubt_is_in_doubt_too_and_asks() {
    let target = Target::start(Answers { data: Some("+OK"), ask: Some("+newer"), ..Answers::default() });
    let [master, replica] = [node(), node()];
    let ports = [&master, &replica].map(|server| server.address.port());
    let topology = |first: &str, second: &str| {
        let lines = [(0, ports[0], first), (2, ports[1], second)];
        let lines = lines.map(|(id, port, rest)| format!("{} 127.0.0.1 {port} {rest}\n", node_id(id)));
        lines.concat() + &line(1, target.port(), "")
    };
    let before = topology("master - 0-16383", &format!("slave {}", node_id(0)));
    let [mut first, mut second] = [&master, &replica].map(Fixture::client);
    for client in [&mut first, &mut second] {
        assert_eq!(set_nodes(client, &before, 1), "+OK");
    }
    eventually(|| second.info("master_link_status") == "up");
    first.talk("SET b 1 => +OK");
    assert_eq!(first.ask(&format!("CLUSTERX MIGRATE 3300 {}", node_id(1))), "+OK");
    eventually(|| target.asked() > 0);
    second.talk("READONLY => +OK");
    eventually(|| second.ask("GET b") == DOUBTFUL);
    // The master dies, and the replica takes its place.
    drop(first);
    master.check();
    let after = topology(&format!("slave {}", node_id(2)), "master - 0-16383");
    assert_eq!(set_nodes(&mut second, &after, 2), "+OK");
    let asked = target.asked();
    eventually(|| target.asked() > asked);
    second.talk(&format!("SET b 2 => {DOUBTFUL}\nSET c 1 => +OK"));
    target.set(|answers| answers.ask = Some("+never"));
    eventually(|| field(&mut second, "migrating_state").as_deref() == Some("fail"));
    second.talk("GET b => $1\nSET b 2 => +OK");
    replica.check();
}

#[test]
fn a_replica_that_takes_the_place_of_a_target_gives_the_import_up() {
    let [master, replica] = [node(), node()];
    let ports = [&master, &replica].map(|server| server.address.port());
    let topology = |first: &str, second: &str| {
        let lines = [(1, ports[0], first), (2, ports[1], second)];
        let lines = lines.map(|(id, port, rest)| format!("{} 127.0.0.1 {port} {rest}\n", node_id(id)));
        line(0, 1, "0-16383") + &lines.concat()
    };
    let before = topology("master -", &format!("slave {}", node_id(1)));
    let [mut first, mut second] = [&master, &replica].map(Fixture::client);
    for client in [&mut first, &mut second] {
        assert_eq!(set_nodes(client, &before, 1), "+OK");
    }
    eventually(|| second.info("master_link_status") == "up");
    let id = source_id(1);
    let begin = format!("CLUSTERX IMPORT BEGIN {id} {} {} 3300", node_id(0), node_id(1));
    first.talk(&format!("{begin} => +OK\nSET b 1 => +OK\nSET {{b}}2 1 => +OK"));
    eventually(|| second.ask("DBSIZE") == ":2");
    let after = topology(&format!("slave {}", node_id(2)), "master -");
    assert_eq!(set_nodes(&mut second, &after, 2), "+OK");
    eventually(|| second.ask("DBSIZE") == ":0");
    let asked = format!("CLUSTERX IMPORT ASK {id} {} {} 3300 2", node_id(0), node_id(1));
    second.talk(&format!("{asked} => +never"));
    assert_eq!(field(&mut second, "import_state").as_deref(), Some("error"));
    // The one that was the target, too, once it follows.
    assert_eq!(set_nodes(&mut first, &after, 2), "+OK");
    let mut first = master.client();
    eventually(|| first.ask("DBSIZE") == ":0");
    master.check();
    replica.check();
}

#[test]
fn a_target_waits_for_a_replica_of_the_topology_that_is_not_connected() {
    let server = node();
    let topology = |role: &str| {
        let own = line(1, server.address.port(), "");
        line(0, 1, "0-16383") + &own + &format!("{} 127.0.0.1 2 {role} {}\n", node_id(2), node_id(1))
    };
    let mut source = server.client();
    assert_eq!(set_nodes(&mut source, &topology("slave"), 1), "+OK");
    let id = source_id(1);
    let begin = format!("CLUSTERX IMPORT BEGIN {id} {} {} 3300", node_id(0), node_id(1));
    source.talk(&format!("{begin} => +OK\nSET b 1 => +OK\nCLUSTERX IMPORT READY {id} => :0"));
    // One that has failed is not waited for.
    assert_eq!(set_nodes(&mut server.client(), &topology("slave,fail"), 2), "+OK");
    source.talk(&format!("CLUSTERX IMPORT READY {id} => :1\nCLUSTERX IMPORT COMMIT {id} => :1"));
    server.check();
}

#[test]
fn keys_that_come_are_not_evicted() {
    let server = node();
    let mut client = server.client();
    let topology = line(0, 1, "0-3300") + &line(1, server.address.port(), "3301-16383");
    assert_eq!(set_nodes(&mut client, &topology, 1), "+OK");
    client.talk("SET c 1 => +OK");
    let mut source = server.client();
    let (id, nodes) = (source_id(1), [node_id(0), node_id(1)].join(" "));
    assert_eq!(source.ask(&format!("CLUSTERX IMPORT BEGIN {id} {nodes} 3300")), "+OK");
    for key in 0..50 {
        assert_eq!(source.ask(&format!("SET {{b}}{key} {}", "x".repeat(1000))), "+OK");
    }
    client.talk("CONFIG SET maxmemory-policy allkeys-random => +OK\nCONFIG SET maxmemory 1 => +OK");
    // The other one goes, and then none.
    eventually(|| source.ask("SET {b}0 1").starts_with("-OOM") && client.ask("DBSIZE") == ":50");
    client.talk("CONFIG SET maxmemory 0 => +OK");
    source.talk(&format!("CLUSTERX IMPORT COMMIT {id} => :1\nDBSIZE => :50"));
    server.check();
}
