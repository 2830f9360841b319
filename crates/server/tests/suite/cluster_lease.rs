//! Fencing: a master that its controller does not reach takes no writes, and no replica takes the place of a
//! master that may still take some.

use crate::cluster_support::{alone, node_id, set_nodes};
use crate::support::{Client, Fixture, eventually, show};

const EXPIRED: &str = "-CLUSTERDOWN master lease expired";

/// A heartbeat with a long lease.
fn beat(client: &mut Client, master: usize, version: u64) -> String {
    client.ask(&format!("CLUSTERX HEARTBEAT {} 60000 {version}", node_id(master)))
}

fn renew(client: &mut Client, version: u64) {
    for _ in 0..2 {
        let said = beat(client, 0, version);
        assert!(said.starts_with("$sequence:") && said.contains("role:master"), "{said}");
    }
}

#[track_caller]
fn expect_fenced(client: &mut Client) {
    for write in [
        "SET a 2",
        "DEL a",
        "EVAL return\u{a0}redis.call('SET','a','2') 1 a",
        "CLUSTERX FLUSHSLOTS 0-16383",
        "FLUSHALL",
        "CLUSTERX MIGRATE 5 0000000000000000000000000000000000000009",
    ] {
        let words: Vec<_> = write.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
        let reply = show(&client.run(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()));
        assert!(reply.contains(&EXPIRED[1..]), "{write}: {reply}");
    }
    client.talk("MULTI => +OK");
    assert!(client.ask("SET a 2").starts_with(EXPIRED));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
}

#[test]
fn a_master_takes_writes_with_a_lease_only() {
    let server = alone();
    let mut client = server.client();
    client.talk("SET a 1 => +OK\nCONFIG SET master-lease-mode block-write => +OK");
    expect_fenced(&mut client);
    client.talk("GET a => $1\nPUBLISH c m => :0\nCONFIG SET loglevel notice => +OK");
    let mut controller = server.client();
    beat(&mut controller, 0, 3);
    expect_fenced(&mut client);
    // Another connection has heard no answer to that one.
    beat(&mut server.client(), 0, 3);
    expect_fenced(&mut client);
    beat(&mut controller, 0, 3);
    client.talk("SET a 2 => +OK\nMULTI => +OK\nINCR a => +QUEUED\nEXEC => [:3]");
    let info = client.ask("CLUSTER INFO");
    assert!(info.contains("election_version:3") && !info.contains("master_lease_ms:0"), "{info}");
    // Another election, of another master: what is queued is discarded.
    client.talk("MULTI => +OK\nINCR a => +QUEUED");
    assert!(beat(&mut controller, 1, 4).contains("role:master"));
    let discarded = client.ask("EXEC");
    assert!(discarded.starts_with("-EXECABORT Transaction discarded because of: CLUSTERDOWN"), "{discarded}");
    expect_fenced(&mut client);
    assert!(client.ask("CLUSTER INFO").contains("master_lease_ms:0"));
    client.talk("GET a => $3\nCONFIG SET master-lease-mode disabled => +OK\nINCR a => :4");
    server.check();
}

#[test]
fn a_lease_runs_out() {
    let server = alone();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    let short = format!("CLUSTERX HEARTBEAT {} 300 1", node_id(0));
    // However slow the machine is, a write comes in time at last.
    eventually(|| {
        client.ask(&short);
        client.ask(&short);
        client.ask("SET a 1") == "+OK"
    });
    eventually(|| client.ask("SET a 2").starts_with(EXPIRED));
    client.talk("CLUSTERX VERSION => $1");
    server.check();
}

/// A script decides when it begins, and is whole; the next one of an EXEC decides for itself.
#[test]
fn a_lease_that_runs_out_in_a_script_ends_behind_it() {
    let server = alone();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    let short = format!("CLUSTERX HEARTBEAT {} 300 1", node_id(0));
    // It stands between two writes until the lease has run out.
    let script = b"redis.call('SET', KEYS[1], ARGV[1]) local function now() local time = redis.call('TIME') \
        return time[1] * 1000 + time[2] / 1000 end local begun = now() repeat until now() > begun + 400 \
        return redis.call('SET', KEYS[2], ARGV[1])";
    let run = |client: &mut Client, value: &[u8]| {
        client.send(&[b"EVAL", script, b"2", b"{a}1", b"{a}2", value]);
    };
    eventually(|| {
        client.ask(&short);
        client.ask(&short);
        run(&mut client, b"1");
        show(&client.receive()) == "+OK"
    });
    assert!(client.ask("SET {a}1 2").starts_with(EXPIRED));
    client.talk("GET {a}1 => $1\nGET {a}2 => $1");
    eventually(|| {
        client.ask(&short);
        client.ask(&short);
        client.talk("MULTI => +OK");
        for value in [b"2", b"3"] {
            run(&mut client, value);
            client.receive();
        }
        let both = client.ask("EXEC");
        // On a machine that is busy the first one may come too late.
        both.starts_with("[+OK -") && both.contains(&EXPIRED[1..])
    });
    client.talk("GET {a}1 => $2\nGET {a}2 => $2");
    server.check();
}

#[test]
fn a_restart_ends_a_lease_and_keeps_the_election() {
    let mut server = alone();
    server.client().talk("CONFIG SET master-lease-mode block-write => +OK");
    renew(&mut server.client(), 7);
    server.client().talk("SET a 1 => +OK");
    server.restart();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    expect_fenced(&mut client);
    assert!(beat(&mut client, 0, 6).starts_with("-ERR election version mismatch: 6 is older than 7"));
    assert!(beat(&mut client, 1, 7).starts_with("-ERR election version mismatch: it chose another master"));
    // An election that was wrong, or lost by its controller, is forgotten by force, with the lease.
    let line = format!("{} 127.0.0.1 {} master - 0-16383", node_id(0), server.address.port());
    let forced = client.run(&[b"CLUSTERX", b"SETNODES", line.as_bytes(), b"1", b"FORCE"]);
    assert_eq!(show(&forced), "+OK");
    expect_fenced(&mut client);
    server.restart();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    renew(&mut client, 6);
    client.talk("SET a 1 => +OK");
    assert!(beat(&mut client, 0, 5).starts_with("-ERR election version mismatch: 5 is older than 6"));
    server.restart();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    beat(&mut client, 0, 5);
    expect_fenced(&mut client);
    // A refused one does not count as the one before.
    beat(&mut client, 0, 7);
    expect_fenced(&mut client);
    beat(&mut client, 0, 7);
    client.talk("SET a 2 => +OK\nFLUSHALL => +OK\nCLUSTER RESET => +OK");
    assert_eq!(beat(&mut client, 0, 1), "-CLUSTERDOWN The cluster is not initialized");
    let line = format!("{} 127.0.0.1 {} master - 0-16383", node_id(0), server.address.port());
    assert_eq!(set_nodes(&mut client, &line, 1), "+OK");
    renew(&mut client, 1);
    server.check();
}

#[test]
fn no_key_expires_without_a_lease() {
    let server = alone();
    let mut client = server.client();
    client.talk("CONFIG SET master-lease-mode block-write => +OK");
    renew(&mut client, 1);
    client.talk("SET a 1 PX 1 => +OK");
    // It may be gone already.
    client.talk("DEBUG SET-ACTIVE-EXPIRE 0 => +OK\nSET b 1 PX 1 => +OK");
    beat(&mut client, 1, 2);
    client.talk("DEBUG SET-ACTIVE-EXPIRE 1 => +OK");
    std::thread::sleep(std::time::Duration::from_millis(400));
    client.talk("GET b => nil\nCLUSTER COUNTKEYSINSLOT 3300 => :1");
    renew(&mut client, 3);
    eventually(|| client.ask("DBSIZE") == ":0");
    server.check();
}

#[test]
fn bad_heartbeats_are_refused() {
    let server = alone();
    let (mut client, id) = (server.client(), node_id(0));
    client.talk(&format!(
        "
        CLUSTERX HEARTBEAT short 1 1 => -ERR Invalid cluster node id
        CLUSTERX HEARTBEAT {id} 0 1 => -ERR a lease has from 1 ms to a day
        CLUSTERX HEARTBEAT {id} 86400001 1 => -ERR a lease has from 1 ms to a day
        CLUSTERX HEARTBEAT {id} x 1 => -ERR value is not an integer or out of range
        CLUSTERX HEARTBEAT {id} 1 -1 => -ERR Invalid election version
        CONFIG SET master-lease-mode x => -ERR CONFIG SET failed (possibly related to argument 'master-lease-mode') - argument must be 'disabled' or 'block-write'
        "
    ));
    assert!(client.ask(&format!("CLUSTERX HEARTBEAT {id} 1")).starts_with("-ERR wrong number of arguments"));
    let plain = Fixture::start();
    let refused = plain.client().ask(&format!("CLUSTERX HEARTBEAT {id} 1 1"));
    assert_eq!(refused, "-ERR This instance has cluster support disabled");
    // There are no controllers of servers that are no nodes.
    plain.client().talk("CONFIG SET master-lease-mode block-write => +OK\nSET a 1 => +OK");
    server.check();
}

/// A replica whose master may still take writes does not take its place unasked.
#[test]
fn a_failover_without_fencing_is_refused() {
    let server = Fixture::with_config(|config| config.cluster = true);
    let mut client = server.client();
    let (one, two) = (node_id(1), node_id(2));
    let port = server.address.port();
    let topology =
        |own: &str, other: &str| format!("{one} 127.0.0.1 {port} {own}\n{two} 10.0.0.1 1 {other}\n");
    let replica = topology(&format!("slave {two}"), "master - 0-16383");
    let master = topology("master - 0-16383", &format!("slave {one}"));
    assert_eq!(set_nodes(&mut client, &replica, 1), "+OK");
    let refused = set_nodes(&mut client, &master, 2);
    assert!(refused.starts_with("-ERR failover without fencing"), "{refused}");
    for name in ["master-lease-mode", "min-replicas-to-write", "cluster-allow-unfenced-failover", "FORCE"] {
        assert!(refused.contains(name), "{refused}");
    }
    // Sentinel promotes it; the slots do not follow.
    client.talk("REPLICAOF NO ONE => +OK\nCLUSTERX VERSION => $1");
    assert_eq!(set_nodes(&mut client, &master, 2), refused);
    // A master without slots is nobody's heir.
    assert_eq!(set_nodes(&mut client, &topology("master -", "master - 0-16383"), 3), "+OK");
    let mut version = 3;
    for [set, unset] in [
        ["master-lease-mode block-write", "master-lease-mode disabled"],
        ["min-replicas-to-write 1", "min-replicas-to-write 0"],
        ["cluster-allow-unfenced-failover yes", "cluster-allow-unfenced-failover no"],
    ] {
        assert_eq!(set_nodes(&mut client, &replica, version + 1), "+OK");
        assert_eq!(set_nodes(&mut client, &master, version + 2), refused);
        client.ask(&format!("CONFIG SET {set}"));
        assert_eq!(set_nodes(&mut client, &master, version + 2), "+OK");
        client.ask(&format!("CONFIG SET {unset}"));
        version += 2;
    }
    assert_eq!(set_nodes(&mut client, &replica, version + 1), "+OK");
    let words = [&b"CLUSTERX"[..], b"SETNODES", master.as_bytes(), b"50", b"FORCE"];
    assert_eq!(show(&client.run(&words)), "+OK");
    server.check();
}
