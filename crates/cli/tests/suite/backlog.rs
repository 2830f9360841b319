//! The backlog's file beside a pool with a journal: a kill needs nothing but it; without it, or with one of
//! other bytes, a replica takes a whole copy, and its data are the master's.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use tembo_wire::Value;

use crate::master::Node;
use crate::replica::PATIENCE;
use crate::serve::Server;

fn file_of(node: &Node) -> PathBuf {
    node.workspace.path("a.pool.backlog")
}

fn write(master: &Node, count: usize) {
    let mut client = master.client();
    for _ in 0..count {
        client.line("INCR n");
        client.line("RPUSH l some-element-of-a-list");
    }
}

fn wait_until_equal(master: &Node, replica: &Node) {
    let begun = Instant::now();
    let (mut ours, mut theirs) = (replica.client(), master.client());
    ours.wait_for("master_link_status", "up");
    while ours.info("slave_repl_offset") != theirs.info("master_repl_offset") {
        assert!(begun.elapsed() < PATIENCE, "the replica does not come to the master's offset");
    }
    for line in ["GET n", "LLEN l", "LRANGE l -3 -1"] {
        assert_eq!(ours.line(line), theirs.line(line), "{line}");
    }
}

fn start(node: &mut Node, durability: &str) {
    let line = format!("serve --listen 127.0.0.1:{} --pool a.pool --durability {durability}", node.port);
    let mut command = node.workspace.command(&line);
    node.server = Some(Server::spawn(command.stderr(Stdio::piped())));
}

/// Kills the master when it has writes that the replica lacks. Then something happens to its file, and it
/// starts with a durability. Returns how many copies it sends.
fn copies_after(master: &mut Node, replica: &mut Node, durability: &str, happens: impl FnOnce(&Node)) -> u64 {
    replica.server.take().unwrap().kill();
    write(master, 600);
    master.server.take().unwrap().kill();
    happens(master);
    start(master, durability);
    write(master, 10);
    replica.restart();
    wait_until_equal(master, replica);
    master.client().info("sync_full").parse().unwrap()
}

#[test]
fn a_backlog_that_is_gone_or_of_other_bytes_costs_a_copy_and_no_data() {
    let (mut master, mut replica) = (Node::start(), Node::start());
    master.server.take().unwrap().kill();
    start(&mut master, "relaxed");
    write(&master, 10);
    replica.follow(master.port);
    wait_until_equal(&master, &replica);
    let (one, other) = (&mut master, &mut replica);
    assert_eq!(copies_after(one, other, "relaxed", |_| {}), 0, "a kill");
    assert_eq!(copies_after(one, other, "journaled", |_| {}), 0, "another mode with a journal");
    let checks = |master: &Node, says: bool| {
        let text = master.workspace.run("check a.pool").ok().text();
        assert_eq!(text.contains("are missing; replicas that need them take a whole copy"), says, "{text}");
    };
    let removed = |master: &Node| {
        checks(master, false);
        std::fs::remove_file(file_of(master)).unwrap();
        checks(master, true);
    };
    assert_eq!(copies_after(one, other, "relaxed", removed), 1, "no file");
    let changed = |master: &Node| {
        let mut bytes = std::fs::read(file_of(master)).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file_of(master), bytes).unwrap();
        checks(master, true);
    };
    assert_eq!(copies_after(one, other, "relaxed", changed), 1, "a byte is another one");
    assert_eq!(copies_after(one, other, "page-cache", |_| {}), 1, "a mode without a journal");
    assert_eq!(copies_after(one, other, "page-cache", |_| {}), 0, "the same mode");
    // The records stay until the pool has an extent: a start that commits something else is no reason.
    one.server.take().unwrap().stop();
    start(one, "relaxed");
    one.server.take().unwrap().kill();
    checks(one, false);
    start(one, "page-cache");
    assert_eq!(copies_after(one, other, "page-cache", |_| {}), 0, "they are still there");
    assert_eq!(copies_after(one, other, "relaxed", |_| {}), 1, "with a journal again");
    assert_eq!(copies_after(one, other, "relaxed", |_| {}), 0, "a kill again");
    // Somebody's own file is left alone: the server serves, and says that it has no replicas.
    let foreign = |master: &Node| std::fs::write(file_of(master), "my notes").unwrap();
    other.server.take().unwrap().kill();
    one.server.take().unwrap().kill();
    foreign(one);
    one.restart();
    write(one, 10);
    other.restart();
    other.client().wait_for("master_link_status", "down");
    assert!(matches!(one.client().line("GET n"), Value::Bulk(_)));
    assert_eq!(std::fs::read(file_of(one)).unwrap(), b"my notes");
    std::fs::remove_file(file_of(one)).unwrap();
    one.kill();
    wait_until_equal(one, other);
    master.end();
    replica.end();
}
