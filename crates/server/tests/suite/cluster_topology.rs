//! Topologies that are pushed to nodes, what they show of them, and the roles that they give.

use tembo_server::{Config, Error, Server};
use tembo_wire::Value;

use crate::cluster_support::{RANGES, Shards, alone, node, node_id, set_nodes, text};
use crate::support::{Client, Fixture, PATIENCE, eventually, show};

/// A line of a node that does not run.
fn line(number: usize, rest: &str) -> String {
    format!("{} 10.0.0.{number} {} {rest}\n", node_id(number), 7000 + number)
}

fn three() -> String {
    let masters: String = (1..4).map(|n| line(n, &format!("master - {}", RANGES[n - 1]))).collect();
    masters + &line(4, &format!("slave {}", node_id(1))) + &line(5, &format!("slave,fail {}", node_id(1)))
}

/// A node that is the first master of [`three`].
fn member() -> Fixture {
    let server = node();
    let mut client = server.client();
    assert_eq!(client.ask(&format!("CLUSTERX SETNODEID {}", node_id(1))), "+OK");
    assert_eq!(set_nodes(&mut client, &three(), 5), "+OK");
    server
}

#[test]
fn the_topology_is_shown_in_the_words_of_redis() {
    let server = member();
    let mut client = server.client();
    let ids: Vec<String> = (0..6).map(node_id).collect();
    client.talk(&format!(
        "
        CLUSTER MYID => ${one}
        CLUSTERX MYID => ${one}
        CLUSTERX VERSION => $5
        CLUSTER SLOTS => [[:0 :5460 [$10.0.0.1 :7001 ${one} []] [$10.0.0.4 :7004 ${four} []]] \
            [:5461 :10922 [$10.0.0.2 :7002 ${two} []]] [:10923 :16383 [$10.0.0.3 :7003 ${three} []]]]
        CLUSTER LINKS => []
        CLUSTER COUNT-FAILURE-REPORTS {two} => :0
        CLUSTER COUNT-FAILURE-REPORTS x => -ERR Unknown node x
        CLUSTER REPLICAS {two} => []
        CLUSTER REPLICAS {four} => -ERR The specified node is not a master
        CLUSTER REPLICAS {zero} => -ERR Unknown node {zero}
        ",
        zero = ids[0],
        one = ids[1],
        two = ids[2],
        three = ids[3],
        four = ids[4],
    ));
    let nodes = text(&client.run(&[b"CLUSTER", b"NODES"]));
    let lines: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[0][..5], [&ids[1], "10.0.0.1:7001@17001", "myself,master", "-", "0"]);
    assert_eq!(lines[0][6..], ["5", "connected", "0-5460"]);
    assert_eq!((lines[1][2], lines[1][8]), ("master", "5461-10922"));
    assert_eq!((lines[3][2], lines[3][3], lines[3][7]), ("slave", &ids[1][..], "connected"));
    assert_eq!((lines[4][2], lines[4][7]), ("slave,fail", "disconnected"));
    let Value::Array(replicas) = client.run(&[b"CLUSTER", b"SLAVES", ids[1].as_bytes()]) else { panic!() };
    assert_eq!(replicas.len(), 2);
    assert!(text(&replicas[0]).starts_with(&format!("{} 10.0.0.4:7004@17004 slave {}", ids[4], ids[1])));
    // Each line has a name and a value, as controllers split it.
    let info = text(&client.run(&[b"CLUSTER", b"INFO"]));
    assert!(info.split("\r\n").filter(|line| !line.is_empty()).all(|line| line.split(':').count() == 2));
    for line in [
        "cluster_state:ok",
        "cluster_slots_assigned:16384",
        "cluster_known_nodes:5",
        "cluster_size:3",
        "cluster_current_epoch:5",
        "cluster_my_epoch:5",
    ] {
        assert!(info.split("\r\n").any(|other| other == line), "{line}: {info}");
    }
    let Value::Array(shards) = client.run(&[b"CLUSTER", b"SHARDS"]) else { panic!() };
    assert!(show(&shards[0]).starts_with(&format!(
        "[$slots [:0 :5460] $nodes [[$id ${} $port :7001 $ip $10.0.0.1 $endpoint $10.0.0.1 $role $master \
         $replication-offset :0 $health $online]",
        ids[1]
    )));
    assert!(show(&shards[0]).contains("$role $replica $replication-offset :0 $health $fail]"));
    server.check();
}

#[test]
fn older_and_hostile_topologies_are_refused_and_change_nothing() {
    let mut server = member();
    let mut client = server.client();
    let overlap = line(1, "master - 0-100") + &line(2, "master - 100");
    let unknown = line(1, "master -") + &line(2, &format!("slave {}", node_id(9)));
    for (topology, version, error) in [
        (three(), "4", "-ERR Invalid cluster version"),
        (three(), "-1", "-ERR Invalid cluster version"),
        (three(), "x", "-ERR Invalid version"),
        (three(), "9223372036854775808", "-ERR Invalid version"),
        (String::new(), "6", "-ERR Invalid cluster nodes info: there are no nodes"),
        (overlap, "6", "-ERR Slot is overlapped: line 2: slot 100 has an owner already"),
        (unknown, "6", "-ERR Invalid cluster nodes info: line 2: no node has the id"),
        (line(1, "master - 0-16384"), "6", "-ERR Slot is out of range"),
        (line(1, "master - 0-5") + "x", "6", "-ERR Invalid cluster nodes info: line 2: \"x\" is no id"),
    ] {
        let reply = show(&client.run(&[b"CLUSTERX", b"SETNODES", topology.as_bytes(), version.as_bytes()]));
        assert!(reply.starts_with(error), "{topology}: {reply}");
    }
    client.talk(&format!(
        "
        CLUSTERX SETNODES a 6 SOFTLY => -ERR Invalid setnodes options
        CLUSTERX SETNODES a 5 => +OK
        CLUSTERX SETNODEID short => -ERR Invalid cluster node id
        CLUSTERX SETSLOT 1 NODE {two} 5 => -ERR Invalid cluster version
        CLUSTERX SETSLOT 1 NODE {two} 7 => -ERR Invalid cluster version
        CLUSTERX SETSLOT 1 NODE {four} 6 => -ERR The node isn't a master
        CLUSTERX SETSLOT 1 NODE {nine} 6 => -ERR No this node in the cluster
        CLUSTERX SETSLOT 1 NODE short 6 => -ERR Invalid cluster node id
        CLUSTERX SETSLOT 1 MASTER {two} 6 => -ERR Invalid setslot options
        CLUSTERX SETSLOT 16384 NODE {two} 6 => -ERR Slot is out of range: \"16384\" is not a slot, or not a first and a greater last slot
        CLUSTERX SETSLOT '' NODE {two} 6 => -ERR syntax error
        CLUSTERX VERSION => $5
        MULTI => +OK
        CLUSTERX VERSION => +QUEUED
        CLUSTERX SETNODES a 6 => -ERR Command not allowed inside a transaction
        DISCARD => +OK
        ",
        two = node_id(2),
        four = node_id(4),
        nine = node_id(9),
    ));
    let nodes = |client: &mut Client| client.ask("CLUSTER SLOTS");
    let before = nodes(&mut client);
    server.restart();
    let mut client = server.client();
    assert_eq!((nodes(&mut client), client.ask("CLUSTERX VERSION")), (before, "$5".to_owned()));
    server.check();
}

#[test]
fn slots_change_hands_one_version_at_a_time() {
    let mut server = member();
    let mut client = server.client();
    client.talk(&format!(
        "CLUSTERX SETSLOT '3300 5000-5001' NODE {} 6 => +OK\nCLUSTERX VERSION => $6",
        node_id(2)
    ));
    let expected = "-MOVED 3300 10.0.0.2:7002";
    assert_eq!(client.ask("GET b"), expected);
    server.restart();
    let mut client = server.client();
    assert_eq!(client.ask("GET b"), expected);
    let nodes = text(&client.run(&[b"CLUSTER", b"NODES"]));
    assert!(nodes.contains("connected 0-3299 3301-4999 5002-5460\n"), "{nodes}");
    assert!(nodes.contains("connected 3300 5000-5001 5461-10922\n"), "{nodes}");
    server.check();
}

#[test]
fn a_topology_of_so_many_nodes_as_slots_is_taken_and_kept() {
    let mut server = node();
    let nodes: String = (0..16_384)
        .map(|n| format!("{} 10.{}.{}.1 7000 master - {n}\n", node_id(n), n / 256, n % 256))
        .collect();
    let mut client = server.client();
    assert_eq!(set_nodes(&mut client, &nodes, 1), "+OK");
    let too_many = nodes.clone() + &format!("{} 10.99.99.99 1 master -", node_id(99_999));
    assert_eq!(
        set_nodes(&mut client, &too_many, 2),
        "-ERR Invalid cluster nodes info: there are more than 16384 nodes"
    );
    server.restart();
    let mut client = server.client();
    client.talk("CLUSTERX VERSION => $1\nGET b => -MOVED 3300 10.12.228.1:7000");
    let Value::Array(slots) = client.run(&[b"CLUSTER", b"SLOTS"]) else { panic!() };
    assert_eq!(slots.len(), 16_384);
    server.check();
}

#[test]
fn a_node_finds_itself_by_its_address_once() {
    let server = alone();
    let mut client = server.client();
    assert_eq!(client.ask("CLUSTER MYID"), format!("${}", node_id(0)));
    let other = format!("{} 127.0.0.1 {} master - 0-16383", node_id(7), server.address.port());
    // It has an id, which this topology does not have.
    assert_eq!(set_nodes(&mut client, &other, 2), "+OK");
    client.talk(&format!(
        "CLUSTER MYID => ${}\nGET b => -MOVED 3300 127.0.0.1:{}",
        node_id(0),
        server.address.port()
    ));
    // FORCE finds it again, also under an older version.
    let reply = client.run(&[b"CLUSTERX", b"SETNODES", other.as_bytes(), b"1", b"FORCE"]);
    assert_eq!(show(&reply), "+OK");
    client.talk(&format!("CLUSTER MYID => ${}\nCLUSTERX VERSION => $1\nGET b => nil", node_id(7)));
    server.check();
}

#[test]
fn a_node_is_reset_when_it_is_empty() {
    let mut server = alone();
    let mut client = server.client();
    client.talk(
        "
        SET a 1 => +OK
        CLUSTER RESET => -ERR CLUSTER RESET can't be called with nodes that contain keys
        CLUSTER RESET SOFTLY => -ERR syntax error
        FLUSHALL => +OK
        CLUSTER RESET HARD => +OK
        CLUSTERX VERSION => $-1
        CLUSTER MYID => -CLUSTERDOWN The cluster is not initialized
        GET a => -CLUSTERDOWN Hash slot not served
        ",
    );
    server.restart();
    server
        .client()
        .talk("CLUSTERX VERSION => $-1\nCLUSTER INFO => -CLUSTERDOWN The cluster is not initialized");
    server.check();
}

#[test]
fn a_topology_moves_a_shard_to_its_replica() {
    let mut shards = Shards::ready(3);
    let (mut master, mut replica) = (shards.client(0), shards.client(3));
    master.talk("SET b 1 => +OK\nWAIT 1 0 => :1");
    let mut waiting = shards.client(0);
    waiting.send(&[b"BLPOP", b"{b}list", b"0"]);
    let mut subscriber = shards.client(0);
    subscriber.ask("SSUBSCRIBE {b}channel");
    eventually(|| master.info("blocked_clients") == "1");
    // The replica becomes the master, and the master its replica.
    let swapped: String = [
        shards.line(0, Some(3), ""),
        shards.line(3, None, RANGES[0]),
        shards.line(1, None, RANGES[1]),
        shards.line(2, None, RANGES[2]),
    ]
    .concat();
    assert_eq!(set_nodes(&mut replica, &swapped, 2), "+OK");
    assert_eq!(replica.info("role"), "master");
    replica.talk("SET b 2 => +OK\nGET b => $2");
    assert_eq!(set_nodes(&mut master, &swapped, 2), "+OK");
    let moved = format!("-MOVED 3300 127.0.0.1:{}", shards.port(3));
    assert_eq!(show(&waiting.receive()), moved);
    assert_eq!(master.ask("SET b 3"), moved);
    assert_eq!(master.info("role"), "slave");
    eventually(|| master.info("master_link_status") == "up");
    replica.talk("WAIT 1 0 => :1");
    master.talk("READONLY => +OK\nGET b => $2");
    // A replica has the channels of its shard.
    subscriber.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    replica.ask("SPUBLISH {b}channel hello");
    assert_eq!(show(&subscriber.receive()), "[$smessage ${b}channel $hello]");
    // Both remember it.
    for number in [0, 3] {
        shards.servers[number].restart();
    }
    let mut old = shards.client(0);
    assert_eq!((old.info("role"), old.ask("CLUSTERX VERSION")), ("slave".to_owned(), "$2".to_owned()));
    let mut new = shards.client(3);
    assert_eq!((new.info("role"), new.ask("CLUSTERX VERSION")), ("master".to_owned(), "$2".to_owned()));
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn channels_of_slots_that_went_are_left() {
    let shards = Shards::ready(0);
    let mut subscriber = shards.client(0);
    subscriber.talk("SSUBSCRIBE b => [$ssubscribe $b :1]\nSSUBSCRIBE {06S} => [$ssubscribe ${06S} :2]");
    shards.client(0).ask(&format!("CLUSTERX SETSLOT 3300 NODE {} 2", node_id(1)));
    assert_eq!(show(&subscriber.receive()), "[$sunsubscribe $b :1]");
    shards.client(0).talk("SPUBLISH {06S} x => :1\nPUBSUB SHARDCHANNELS => [${06S}]");
    assert_eq!(show(&subscriber.receive()), "[$smessage ${06S} $x]");
}

#[test]
fn a_role_that_the_topology_does_not_know_serves_nothing() {
    let shards = Shards::ready(3);
    let (mut master, mut replica) = (shards.client(0), shards.client(3));
    let one = shards.port(0);
    master.talk("SET b 1 => +OK\nWAIT 1 0 => :1");
    // Sentinel promotes before anybody pushes a topology.
    replica.talk(&format!(
        "
        SLAVEOF NO ONE => +OK
        GET b => -MOVED 3300 127.0.0.1:{one}
        SET b 2 => -MOVED 3300 127.0.0.1:{one}
        READONLY => +OK
        GET b => $1
        "
    ));
    master.talk(&format!("REPLICAOF 127.0.0.1 {} => +OK", shards.port(3)));
    let not_yet = "-CLUSTERDOWN This node has another role than the topology says";
    master.talk(&format!("GET b => {not_yet}\nSET b 2 => {not_yet}\nREADONLY => +OK\nGET b => $1"));
    let swapped = shards.line(0, Some(3), "") + &shards.line(3, None, RANGES[0]);
    for client in [&mut replica, &mut master] {
        assert_eq!(set_nodes(client, &swapped, 2), "+OK");
    }
    replica.talk("SET b 2 => +OK");
    eventually(|| master.ask("GET b") == "$2");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn a_topology_is_pushed_during_a_pause_of_writes() {
    let server = alone();
    let mut client = server.client();
    client.ask("CLIENT PAUSE 60000 WRITE");
    let line = format!("{} 127.0.0.1 {} master - 0-16383", node_id(0), server.address.port());
    assert_eq!(set_nodes(&mut client, &line, 2), "+OK");
    client.talk("CLUSTERX VERSION => $2\nCLIENT UNPAUSE => +OK");
    server.check();
}

#[test]
fn a_full_pool_takes_a_topology_with_another_role() {
    let server = Fixture::with(
        |config| (config.cluster, config.unfenced_failover) = (true, true),
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    );
    let mut client = server.client();
    let port = server.address.port();
    let line = |rest: &str| format!("{} 127.0.0.1 {port} {rest}", node_id(0));
    let all = line("master - 0-16383");
    assert_eq!(set_nodes(&mut client, &all, 1), "+OK");
    for bytes in [100_000, 1000, 10] {
        let value = "v".repeat(bytes);
        let mut number = 0;
        while client.ask(&format!("SET {bytes}:{number} {value}")) == "+OK" {
            number += 1;
        }
    }
    assert!(client.ask("SET more 1").starts_with("-OOM"));
    let other = format!("{} 127.0.0.1 1 master - 0-16383", node_id(1));
    let demoted = line(&format!("slave {}", node_id(1))) + "\n" + &other;
    for version in (2..20).step_by(2) {
        assert_eq!(set_nodes(&mut client, &demoted, version), "+OK");
        assert_eq!(client.info("role"), "slave");
        assert_eq!(set_nodes(&mut client, &all, version + 1), "+OK");
        assert_eq!(client.info("role"), "master");
    }
    client.talk("CLUSTERX FLUSHSLOTS 0-8000 => +OK\nSET more 1 => +OK");
    server.check();
}

fn open(path: &std::path::Path, cluster: bool) -> Result<Server, Error> {
    let mut config = Config::default();
    (config.cluster, config.listen) = (cluster, "127.0.0.1:0".parse().unwrap());
    Server::bind(config, tembo::Options::new().create(true).open(path).unwrap())
}

#[test]
fn a_pool_with_keys_does_not_change_its_mode() {
    let mut plain = Fixture::start();
    plain.client().talk("SET a 1 => +OK\nSELECT 3 => +OK\nRPUSH l 1 => :1");
    plain.stop();
    let path = plain.folder().join("test.pool");
    let error = open(&path, true).unwrap_err().to_string();
    assert!(error.starts_with("the pool has keys and is not that of a cluster's node: dump it"), "{error}");
    plain.restart();
    plain.client().talk("GET a => $1\nFLUSHALL => +OK");
    plain.stop();
    // Without keys it does, with what is left of large collections.
    drop(open(&path, true).unwrap());
    let error = open(&path, false).unwrap_err().to_string();
    assert!(error.contains("start the server with cluster-enabled yes"), "{error}");
    let pool = tembo::Options::new().open(&path).unwrap();
    let report = tembo_server::check(&pool).unwrap();
    assert_eq!((report.databases.len(), report.cluster), (0, Some(None)));
}

#[test]
fn a_replica_in_a_cluster_takes_no_other_database() {
    let master = Fixture::start();
    master.client().talk("SET a 1 => +OK\nSELECT 3 => +OK\nSET b 1 => +OK");
    let replica = node();
    let mut client = replica.client();
    client.ask(&format!("REPLICAOF 127.0.0.1 {}", master.address.port()));
    eventually(|| {
        client.ask("INFO replication").contains("a node of a cluster has no other database than 0")
    });
    client.talk("DBSIZE => :0");
    // Keys of database 0 come, and a SELECT of another one ends the replication.
    master.client().talk("SELECT 3 => +OK\nFLUSHDB => +OK");
    eventually(|| client.info("master_link_status") == "up");
    client.talk("DBSIZE => :1");
    master.client().talk("SELECT 3 => +OK\nSET b 1 => +OK");
    eventually(|| client.ask("INFO replication").contains("SELECT is not allowed in cluster mode"));
    replica.check();
}

/// A controller says SETNODEID before each topology. To a node that Sentinel had promoted that gave the old
/// role back, and the topology a new one: two new histories, so that the old master took a whole copy.
#[test]
fn an_id_that_is_said_again_leaves_the_role_that_sentinel_gave() {
    let server = node();
    let mut client = server.client();
    let line = |rest: &str| format!("{} 127.0.0.1 {} {rest}\n", node_id(0), server.address.port());
    let other = format!("{} 10.0.0.1 1 master - 0-16383", node_id(1));
    assert_eq!(set_nodes(&mut client, &(line(&format!("slave {}", node_id(1))) + &other), 1), "+OK");
    client.talk("REPLICAOF NO ONE => +OK");
    assert_eq!(client.ask(&format!("CLUSTERX SETNODEID {}", node_id(0))), "+OK");
    assert_eq!(client.info("role"), "master");
    server.check();
}
