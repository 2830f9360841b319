//! FAILOVER: a master and its replica change places.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peer::start_redis;
use crate::replicas::Replica;
use crate::support::{Client, Fixture, eventually, show};

fn follow(replica: &mut Client, master: &Fixture) {
    assert_eq!(replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.address.port())), "+OK");
    eventually(|| replica.info("master_link_status") == "up");
}

/// Counts up until this is refused; the last number that was acknowledged.
fn write(mut client: Client, stop: &AtomicBool) -> u64 {
    let mut last = 0;
    while !stop.load(Ordering::Relaxed) {
        let reply = client.ask("INCR n");
        match reply.strip_prefix(':') {
            Some(number) => last = number.parse().unwrap(),
            None => {
                assert!(reply.starts_with("-READONLY"), "{reply}");
                break;
            }
        }
    }
    last
}

/// Has the old master and its replica change places by this command, under writes; the number of writes that
/// were acknowledged.
fn change_places(clients: &mut [Client; 2], old: usize, writer: Client, failover: &str) -> u64 {
    let new = 1 - old;
    clients[old].talk("DEL n => :0");
    let writing = std::thread::spawn(move || write(writer, &AtomicBool::new(false)));
    eventually(|| clients[old].ask("GET n") != "nil");
    eventually(|| clients[new].ask("GET n") != "nil");
    assert_eq!(clients[old].ask(failover), "+OK");
    eventually(|| clients[old].info("role") == "slave" && clients[new].info("role") == "master");
    let last = writing.join().unwrap();
    eventually(|| clients[old].info("master_link_status") == "up");
    assert_eq!(clients[new].ask("GET n"), format!("${last}"), "an acknowledged write is lost");
    assert_eq!(clients[old].info("master_failover_state"), "no-failover");
    assert_eq!(clients[old].info("master_replid"), clients[new].info("master_replid"));
    clients[new].talk("DEL n => :1");
    last
}

#[test]
fn a_master_and_its_replica_change_places_under_writes() {
    let servers = [Fixture::start(), Fixture::start()];
    let mut clients = [servers[0].client(), servers[1].client()];
    clients[0].talk("SET k v => +OK");
    follow(&mut clients[1], &servers[0]);
    let mut sum = 0;
    for turn in 0..4 {
        let (old, new) = (turn % 2, 1 - turn % 2);
        let target = match turn {
            0 => String::new(),
            _ => format!(" TO 127.0.0.1 {} TIMEOUT 60000", servers[new].address.port()),
        };
        sum += change_places(&mut clients, old, servers[old].client(), &format!("FAILOVER{target}"));
    }
    assert_eq!((clients[0].info("sync_full"), clients[1].info("sync_full")), ("1".into(), "0".into()));
    println!("{sum} writes");
    servers.into_iter().for_each(Fixture::check);
}

/// Redis takes over from this server, and hands over to it, under writes.
#[test]
fn redis_and_this_server_change_places_under_writes() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let ports = [server.address.port(), redis.port()];
    let mut clients = [server.client(), redis.client()];
    clients[0].talk("SET k v => +OK\nRPUSH l a b c => :3\nSET timed v PXAT 9999999999999 => +OK");
    theirs.talk(&format!("REPLICAOF 127.0.0.1 {} => +OK", ports[0]));
    eventually(|| theirs.info("master_link_status") == "up");
    let mut sum = 0;
    for turn in 0..6 {
        let (old, new) = (turn % 2, 1 - turn % 2);
        let writer = if old == 0 { server.client() } else { redis.client() };
        let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", ports[new]);
        sum += change_places(&mut clients, old, writer, &failover);
    }
    // On a new connection: WAIT tells the others, once, that this server was a replica.
    server.client().talk("INCR done => :1\nWAIT 1 0 => :1");
    for client in &mut clients {
        client.talk("GET k => $v\nLRANGE l 0 -1 => [$a $b $c]\nPEXPIRETIME timed => :9999999999999");
        client.talk("GET done => $1\nDBSIZE => :4");
    }
    assert_eq!((clients[0].info("sync_full"), clients[1].info("sync_full")), ("1".into(), "0".into()));
    println!("{sum} writes");
    server.check();
}

#[test]
fn a_redis_that_does_not_follow_ends_a_failover_at_its_time() {
    let Some((redis, mut theirs)) = start_redis() else { return };
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK");
    theirs.talk(&format!("REPLICAOF 127.0.0.1 {} => +OK", server.address.port()));
    eventually(|| theirs.info("master_link_status") == "up");
    let refused = client.ask(&format!("FAILOVER TO 127.0.0.1 {}", server.address.port()));
    assert_eq!(refused, "-ERR FAILOVER target HOST and PORT is not a replica.");
    // It acknowledges nothing meanwhile.
    theirs.send(&[b"DEBUG", b"SLEEP", b"2"]);
    client.talk("SET k w => +OK");
    client.talk(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 200 => +OK", redis.port()));
    client.talk("SET k x => +OK");
    assert_eq!(
        (client.info("role"), client.info("master_failover_state")),
        ("master".into(), "no-failover".into())
    );
    server.log.expect("FAILOVER was given up: no replica had everything in time");
    assert_eq!(show(&theirs.receive()), "+OK");
    eventually(|| theirs.ask("GET k") == "$x");
    assert_eq!(theirs.info("role"), "slave");
    server.check();
}

#[test]
fn a_role_that_failover_gave_survives_a_restart() {
    let mut servers = [Fixture::start(), Fixture::start()];
    let mut client = servers[0].client();
    client.talk("SET k v => +OK");
    follow(&mut servers[1].client(), &servers[0]);
    client.talk("FAILOVER => +OK");
    eventually(|| servers[0].client().info("role") == "slave");
    eventually(|| servers[0].client().info("master_link_status") == "up");
    eventually(|| servers[1].client().info("role") == "master");
    servers[0].restart();
    assert_eq!(servers[0].client().info("role"), "slave");
    servers[1].restart();
    assert_eq!(servers[1].client().info("role"), "master");
    servers.into_iter().for_each(Fixture::check);
}

#[test]
fn a_failover_ends_at_its_time_or_from_outside() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        FAILOVER => -ERR FAILOVER requires connected replicas.
        FAILOVER ABORT => -ERR No failover in progress.
        FAILOVER TIMEOUT 0 => -ERR FAILOVER timeout must be greater than 0
        FAILOVER TO h 1 FORCE => -ERR FAILOVER with force option requires both a timeout and target HOST and IP.
        FAILOVER NOW => -ERR syntax error
        SET k v => +OK
        ",
    );
    // One that never says how far it is, and does not listen.
    let mut replica = Replica::connect(&client);
    replica.send("REPLCONF listening-port 1");
    assert_eq!(replica.line(), "+OK");
    replica.copy();
    client.talk("FAILOVER TO 127.0.0.1 2 => -ERR FAILOVER target HOST and PORT is not a replica.");
    client.talk("FAILOVER TIMEOUT 100 => +OK");
    let mut writer = server.client();
    writer.send(&[b"SET", b"k", b"w"]);
    eventually(|| client.info("master_failover_state") == "no-failover");
    assert_eq!(show(&writer.receive()), "+OK");
    client.talk("FAILOVER => +OK\nFAILOVER => -ERR FAILOVER already in progress.");
    client.talk("REPLICAOF h 1 => -ERR REPLICAOF not allowed while failing over.");
    writer.send(&[b"SET", b"k", b"x"]);
    assert_eq!(client.info("master_failover_state"), "waiting-for-sync");
    // A client's pause is another one: neither ends the other.
    client
        .talk("CLIENT UNPAUSE => +OK\nGET k => $w\nCLIENT PAUSE 3600000 WRITE => +OK\nFAILOVER ABORT => +OK");
    eventually(|| client.info("master_failover_state") == "no-failover");
    client.talk("GET k => $w\nCLIENT UNPAUSE => +OK");
    assert_eq!(show(&writer.receive()), "+OK");
    // By force it is asked to take over, and cannot be reached.
    client.talk("FAILOVER TO 127.0.0.1 1 TIMEOUT 50 FORCE => +OK");
    eventually(|| client.info("master_failover_state") == "failover-in-progress");
    assert_eq!(client.info("role"), "slave");
    client.talk("FAILOVER ABORT => +OK");
    eventually(|| client.info("role") == "master");
    client.talk("SET k y => +OK");
    let alone = crate::cluster_support::alone();
    alone.client().talk("FAILOVER => -ERR FAILOVER not allowed in cluster mode.");
    server.check();
}

#[test]
fn only_a_replica_of_the_same_history_takes_over() {
    let servers = [Fixture::start(), Fixture::start()];
    let mut clients = [servers[0].client(), servers[1].client()];
    clients[0].talk("SET k v => +OK");
    let refused = clients[0].ask(&format!("PSYNC {} 1 FAILOVER", "a".repeat(40)));
    assert_eq!(refused, "-ERR PSYNC FAILOVER can't be sent to a master.");
    follow(&mut clients[1], &servers[0]);
    let refused = clients[1].ask(&format!("PSYNC {} 1 FAILOVER", "a".repeat(40)));
    assert_eq!(refused, "-ERR PSYNC FAILOVER replid must match my replid.");
    // One that has lost the end of what it had.
    let id = clients[1].info("master_replid");
    let refused = clients[1].ask(&format!("PSYNC {id} 1000000 FAILOVER"));
    assert_eq!(refused, "-ERR PSYNC FAILOVER offset must not be beyond mine.");
    clients[1].talk("FAILOVER => -ERR FAILOVER is not valid when server is a replica.");
    clients[0].talk("FAILOVER => +OK");
    eventually(|| clients[0].info("role") == "slave" && clients[0].info("master_link_status") == "up");
    // An old master whose answer was lost asks again: it must not go on as a second master.
    let (id, offset) = (clients[1].info("master_replid2"), clients[1].info("second_repl_offset"));
    let mut again = Replica::connect(&clients[1]);
    again.send(&format!("PSYNC {id} {offset} FAILOVER"));
    assert_eq!(again.line(), "+CONTINUE");
    servers.into_iter().for_each(Fixture::check);
}

/// Writes that no replica had are taken back while their server is a replica, and it is the master again when
/// WAIT is said, or goes on. Replicas that have all of the present data do not have them.
#[test]
fn wait_does_not_count_what_was_taken_back() {
    let servers = [Fixture::start(), Fixture::start()];
    let mut clients = [servers[0].client(), servers[1].client()];
    clients[0].talk("SET kept 1 => +OK");
    follow(&mut clients[1], &servers[0]);
    clients[0].talk("WAIT 1 0 => :1");
    clients[1].talk("REPLICAOF NO ONE => +OK");
    eventually(|| clients[0].info("connected_slaves") == "0");
    let [mut waiting, mut later, mut queued, mut reader] = [(); 4].map(|()| servers[0].client());
    waiting.talk("SET lost:1 1 => +OK");
    waiting.send(&[b"WAIT", b"1", b"0"]);
    later.talk("SET lost:2 1 => +OK\nWAIT 1 1 => :0");
    queued.talk("MULTI => +OK\nSET lost:3 1 => +QUEUED\nEXEC => [+OK]");
    reader.talk("EXISTS lost:1 lost:2 lost:3 => :3");
    // The other one goes further than this one has been.
    (0..100).for_each(|_| drop(clients[1].ask("INCR further")));
    follow(&mut clients[0], &servers[1]);
    let demoted =
        "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    assert_eq!(show(&waiting.receive()), demoted);
    assert!(later.ask("WAIT 1 0").starts_with("-ERR WAIT cannot be used with replica instances."));
    clients[0].talk("REPLICAOF NO ONE => +OK");
    follow(&mut clients[1], &servers[0]);
    reader.talk("EXISTS lost:1 lost:2 lost:3 => :0\nWAIT 1 0 => :1");
    // It has heard of it.
    waiting.talk("WAIT 1 0 => :1");
    let doubt = "-UNBLOCKED this server was a replica since this connection wrote";
    let refused = later.ask("WAIT 1 0");
    assert!(refused.starts_with(doubt), "{refused}");
    // A write in front does not hide it.
    queued.talk("SET k 1 => +OK");
    let refused = queued.ask("WAITAOF 0 1 0");
    assert!(refused.starts_with(doubt), "{refused}");
    for client in [&mut later, &mut queued] {
        client.talk("WAIT 1 0 => :1\nSET k 2 => +OK\nWAIT 1 0 => :1");
    }
    servers.into_iter().for_each(Fixture::check);
}

/// A server takes a connection to a replica that says little: what it was asked up to a word.
fn hear(heir: &TcpListener, word: &str, last: &str) {
    let (mut stream, _) = heir.accept().unwrap();
    let (mut heard, mut chunk) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "no {word} in {heard:?}");
        heard += &String::from_utf8_lossy(&chunk[..count]);
        if heard.contains(word) {
            return stream.write_all(last.as_bytes()).unwrap();
        }
        stream.write_all(b"+OK\r\n").unwrap();
    }
}

#[test]
fn a_master_whose_heir_was_not_heard_asks_it_until_it_refuses() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK");
    let heir = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = heir.local_addr().unwrap().port();
    let introduce = |client: &Client| {
        let mut replica = Replica::connect(client);
        replica.send(&format!("REPLCONF listening-port {port}"));
        assert_eq!(replica.line(), "+OK");
        replica.copy();
        replica
    };
    let replica = introduce(&client);
    let force = format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 50 FORCE => +OK");
    client.talk(&force);
    // It may have taken over: no error says that it has not, but one.
    hear(&heir, "FAILOVER", "");
    hear(&heir, "FAILOVER", "-BUSY a script\r\n");
    hear(&heir, "FAILOVER", "-ERR PSYNC FAILOVER can't be sent to a master.\r\n");
    assert_eq!(client.info("master_failover_state"), "failover-in-progress");
    hear(&heir, "FAILOVER", "-ERR PSYNC FAILOVER replid must match my replid.\r\n");
    eventually(|| client.info("master_failover_state") == "no-failover");
    assert_eq!(client.info("role"), "master");
    // An error in answer to the first question is a refusal.
    drop(replica);
    eventually(|| client.info("connected_slaves") == "0");
    let replica = introduce(&client);
    client.talk(&force);
    hear(&heir, "FAILOVER", "-NOPERM no\r\n");
    eventually(|| client.info("role") == "master");
    drop(replica);
    server.check();
}

/// A master that was started anew holds writes until its former replica has answered. A client's pause is
/// another one.
#[test]
fn unpause_does_not_let_writes_go_while_replicas_are_asked() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK");
    let heir = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut replica = Replica::connect(&client);
    replica.send(&format!("REPLCONF listening-port {}", heir.local_addr().unwrap().port()));
    assert_eq!(replica.line(), "+OK");
    let (id, offset) = replica.copy();
    eventually(|| client.info("slave0").contains("state=online"));
    let (mut client, mut writer) = loop {
        server.restart();
        let begun = Instant::now();
        let [mut client, mut writer] = [server.client(), server.client()];
        let (mut asking, _) = heir.accept().unwrap();
        writer.send(&[b"SET", b"k", b"lost"]);
        client.talk("CLIENT PAUSE 60000 WRITE => +OK\nCLIENT UNPAUSE => +OK\nPING => +PONG");
        let value = client.ask("GET k");
        // On a machine that is busy the time for answers may be over.
        if begun.elapsed() > Duration::from_millis(800) {
            client.talk("SET k v => +OK");
            continue;
        }
        assert_eq!((&value[..], &client.info("role")[..]), ("$v", "master"));
        let info = format!(
            "role:master\r\nmaster_replid:{}\r\nmaster_replid2:{id}\r\nmaster_repl_offset:{}\r\n",
            "a".repeat(40),
            offset + 9
        );
        asking.write_all(format!("${}\r\n{info}\r\n", info.len()).as_bytes()).unwrap();
        break (client, writer);
    };
    let refused = show(&writer.receive());
    assert!(refused.starts_with("-READONLY"), "{refused}");
    client.talk("GET k => $v");
    assert_eq!(client.info("role"), "slave");
    server.check();
}
