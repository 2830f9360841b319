//! The conversations of kvrocks-controller with its nodes, of both generations: its questions, in its words,
//! and the parts of the replies that it reads.

use std::collections::BTreeMap;

use crate::cluster_support::{Shards, node_id, text};
use crate::support::{Client, Fixture, eventually, show};

/// A reply of lines, as controllers split it.
fn fields(client: &mut Client, request: &[&[u8]]) -> BTreeMap<String, String> {
    let reply = text(&client.run(request));
    let lines = reply.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The version that a probe finds, or what it says.
fn probe(client: &mut Client) -> Result<i64, String> {
    let reply = client.run(&[b"CLUSTER", b"INFO"]);
    let Some(info) = reply.as_bytes().filter(|_| !show(&reply).starts_with('-')) else {
        return Err(show(&reply));
    };
    let info = String::from_utf8_lossy(info).into_owned();
    let lines: Vec<_> = info.split("\r\n").filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().all(|line| line.matches(':').count() == 1), "{info}");
    let version = lines.iter().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    Ok(version.expect("there is an epoch").parse().unwrap())
}

/// Gives a node its id and a topology, in the words of one generation.
fn push(client: &mut Client, number: usize, topology: &str, version: i64, is_later: bool) {
    let [id, nodes] = if is_later { ["SETNODEID", "SETNODES"] } else { ["setnodeid", "setnodes"] };
    let word = if is_later { "CLUSTERX" } else { "clusterx" };
    let set = [word.as_bytes(), id.as_bytes(), node_id(number).as_bytes()].map(<[u8]>::to_vec);
    assert_eq!(show(&client.run(&set.each_ref().map(|arg| &arg[..]))), "+OK");
    let version = version.to_string();
    let reply = client.run(&[word.as_bytes(), nodes.as_bytes(), topology.as_bytes(), version.as_bytes()]);
    assert_eq!(show(&reply), "+OK");
}

/// A shard of a master and two replicas; the master's number.
fn topology(shards: &Shards, master: usize) -> String {
    let line = |number| match number == master {
        true => shards.line(number, None, "0-16383"),
        false => shards.line(number, Some(master), ""),
    };
    // The controllers have no line end behind the last line.
    (0..3).map(line).collect::<String>().trim_end().to_owned()
}

fn begin(is_later: bool) -> Shards {
    let shards = Shards::start(3, 0);
    let nodes = topology(&shards, 0);
    for number in 0..3 {
        let mut client = shards.client(number);
        let found = probe(&mut client).unwrap_err();
        assert!(found.contains("CLUSTERDOWN The cluster is not initialized"), "{found}");
        push(&mut client, number, &nodes, 1, is_later);
        assert_eq!(probe(&mut client), Ok(1));
    }
    for number in [1, 2] {
        eventually(|| fields(&mut shards.client(number), &[b"INFO"])["master_link_status"] == "up");
    }
    shards
}

/// The master has died: the replica with the highest offset takes its place.
#[test]
fn the_first_generation_elects_by_the_offset_of_replicas() {
    let mut shards = begin(false);
    shards.client(0).talk("SET a 1 => +OK\nWAIT 2 0 => :2");
    shards.servers[0].stop();
    let offset = |number| -> u64 {
        let info = fields(&mut shards.client(number), &[b"INFO"]);
        assert_eq!((&info["role"][..], &info["sequence"]), ("slave", &info["slave_repl_offset"]));
        info["slave_repl_offset"].parse().unwrap()
    };
    let elected = if offset(2) > offset(1) { 2 } else { 1 };
    let nodes = topology(&shards, elected);
    for number in [1, 2] {
        push(&mut shards.client(number), number, &nodes, 2, false);
    }
    shards.client(elected).talk("GET a => $1\nSET a 2 => +OK");
    // It comes back, and the next probe finds that it is behind.
    shards.servers[0].restart();
    let mut old = shards.client(0);
    assert_eq!(probe(&mut old), Ok(1));
    let nodes = topology(&shards, elected);
    push(&mut old, 0, &nodes, 3, false);
    assert_eq!(fields(&mut old, &[b"INFO"])["role"], "slave");
    old.ask("READONLY");
    eventually(|| old.ask("GET a") == "$2");
    shards.servers.into_iter().for_each(Fixture::check);
}

/// A planned change of the master: writes wait until the new one has all.
#[test]
fn the_later_generation_pauses_writes_while_a_master_changes() {
    let shards = begin(true);
    let (mut old, mut new) = (shards.client(0), shards.client(1));
    old.ask("SET a 1");
    assert_eq!(old.ask("CLIENT PAUSE 500 WRITE"), "+OK");
    let goal = fields(&mut old, &[b"INFO", b"replication"])["master_repl_offset"].clone();
    eventually(|| {
        let info = fields(&mut new, &[b"INFO", b"replication"]);
        info["role"] == "slave" && info["master_link_status"] == "up" && info["slave_repl_offset"] == goal
    });
    let nodes = topology(&shards, 1);
    for number in 0..3 {
        push(&mut shards.client(number), number, &nodes, 2, true);
    }
    assert_eq!(old.ask("CLIENT UNPAUSE"), "+OK");
    assert_eq!(old.ask("SET a 2"), format!("-MOVED 15495 127.0.0.1:{}", shards.port(1)));
    new.talk("GET a => $1\nSET a 2 => +OK");
    // A controller that knows less adopts what a node has.
    let adopted = text(&new.run(&[b"CLUSTER", b"NODES"]));
    for line in adopted.lines() {
        let parts: Vec<_> = line.split(' ').collect();
        assert!(parts.len() >= 8 && parts[1].contains('@') && parts[6] == "2", "{line}");
        assert_eq!(parts[2].contains("master"), parts.get(8) == Some(&"0-16383"), "{line}");
    }
    // A node is taken out of the cluster.
    new.talk("FLUSHALL => +OK\nCLUSTER RESET HARD => +OK");
    assert!(probe(&mut new).unwrap_err().contains("CLUSTERDOWN The cluster is not initialized"));
    shards.servers.into_iter().for_each(Fixture::check);
}
