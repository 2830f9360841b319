//! CLUSTERX MIGRATE: slots with their keys to another node, while clients go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cluster_support::{RANGES, Shards, node, node_id, text};
use crate::support::{Client, Fixture, eventually};

/// The topology of three masters after 3300 has gone from the first to the second.
fn after(shards: &Shards) -> String {
    let first = shards.line(0, None, "0-3299 3301-5460");
    first + &shards.line(1, None, "3300 5461-10922") + &shards.line(2, None, RANGES[2])
}

/// A field of CLUSTER INFO.
pub(crate) fn field(client: &mut Client, name: &str) -> Option<String> {
    let info = text(&client.run(&[b"CLUSTER", b"INFO"]));
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
}

fn migrate(client: &mut Client, slots: &str, target: usize) -> String {
    client.ask(&format!("CLUSTERX MIGRATE {slots} {} SYNC 60", node_id(target)))
}

#[test]
fn a_slot_moves_with_keys_of_all_types() {
    let shards = Shards::ready(0);
    let [mut first, mut second] = [0, 1].map(|number| shards.client(number));
    let two = shards.port(1);
    // "b" has slot 3300.
    first.talk(
        "
        SET b text => +OK
        SET {b}binary '\\x00 blank' PX 10000000 => +OK
        RPUSH {b}list 1 2 3 => :3
        SADD {b}set x y => :2
        HSET {b}hash f v g w => :2
        ZADD {b}sorted 1.5 x -inf y 1e300 z => :3
        EXPIRE {b}sorted 100000 => :1
        ",
    );
    for number in 0..3000 {
        let item = format!("item {number}");
        first.send(&[b"RPUSH", b"{b}long", item.as_bytes()]);
        first.send(&[b"HSET", b"{b}wide", item.as_bytes(), b"value"]);
        first.send(&[b"SADD", b"{b}many", item.as_bytes()]);
        first.send(&[b"ZADD", b"{b}ranks", number.to_string().as_bytes(), item.as_bytes()]);
        (0..4).for_each(|_| drop(first.receive()));
    }
    let names = [
        "b",
        "{b}binary",
        "{b}list",
        "{b}set",
        "{b}hash",
        "{b}sorted",
        "{b}long",
        "{b}wide",
        "{b}many",
        "{b}ranks",
    ];
    let dumps = |client: &mut Client| {
        names.map(|name| {
            (client.ask(&format!("DEBUG DIGEST-VALUE {name}")), client.ask(&format!("PEXPIRETIME {name}")))
        })
    };
    let before = dumps(&mut first);
    assert_eq!(field(&mut first, "migrating_state"), None);
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    assert_eq!(field(&mut first, "migrating_state").as_deref(), Some("success"));
    assert_eq!(field(&mut first, "migrating_slot(s)").as_deref(), Some("3300"));
    assert_eq!(field(&mut first, "migrating_slot").as_deref(), Some("3300"));
    assert_eq!(field(&mut first, "destination_node"), Some(node_id(1)));
    assert_eq!(field(&mut second, "import_state").as_deref(), Some("success"));
    assert_eq!(dumps(&mut second), before);
    first.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{two}"));
    eventually(|| first.ask("DBSIZE") == ":0");
    // The controller tells everybody.
    shards.push(&after(&shards), 2);
    second.talk("SET b again => +OK\nDBSIZE => :10");
    first.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{two}"));
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn moves_that_make_no_sense_are_refused() {
    let shards = Shards::ready(1);
    let mut client = shards.client(0);
    let (own, two, replica, nobody) = (node_id(0), node_id(1), node_id(3), node_id(9));
    client.talk(&format!(
        "
        CLUSTERX MIGRATE 3 {own} => -ERR Can't migrate slots to myself
        CLUSTERX MIGRATE 3 {nobody} => -ERR Can't find the destination node id
        CLUSTERX MIGRATE 3 {replica} => -ERR Can't migrate slots to a slave
        CLUSTERX MIGRATE 6000 {two} => -ERR Can't migrate slot 6000 which doesn't belong to me
        CLUSTERX MIGRATE 5460-5461 {two} => -ERR Can't migrate slot 5461 which doesn't belong to me
        CLUSTERX MIGRATE 3 {two} LATER => -ERR syntax error
        CLUSTERX MIGRATE 3 {two} SYNC x => -ERR value is not an integer or out of range
        CLUSTERX MIGRATE 3 {two} SYNC -1 => -ERR timeout should not be negative
        CLUSTERX MIGRATE x {two} => -ERR Slot is out of range: \"x\" is not a slot, or not a first and a greater last slot
        CLUSTERX MIGRATE 3 x => -ERR Invalid cluster node id
        CLUSTERX MOVES x => -ERR only a master tells its moves
        CLUSTERX IMPORT COMMIT {own} => -ERR there is no such import
        CLUSTERX IMPORT READY {own} => -ERR there is no such import
        CLUSTERX IMPORT NONSENSE {own} => -ERR syntax error
        CLUSTERX IMPORT BEGIN {nobody} {two} {own} 3 => -ERR by the topology that this node has the slots are not the source's
        CLUSTERX IMPORT BEGIN {nobody} {own} {two} 3 => -ERR this is another node than the target
        CLUSTERX IMPORT ASK {nobody} {own} {two} 3 1 => -ERR this node is not of the target's shard
        "
    ));
    let mut replica = shards.client(3);
    replica.talk(&format!("CLUSTERX MIGRATE 3 {two} => -ERR Can't migrate slots: this node is not a master"));
    shards.servers.into_iter().for_each(Fixture::check);
}

/// A client that follows MOVED, and tries again as long as it has to.
struct Follower {
    clients: Vec<(u16, Client)>,
    at: usize,
    /// The longest time that a command took.
    longest: Duration,
    try_agains: u64,
}

impl Follower {
    fn new(shards: &Shards) -> Self {
        let clients = shards.servers.iter().map(|server| (server.address.port(), server.client()));
        Follower { clients: clients.collect(), at: 0, longest: Duration::ZERO, try_agains: 0 }
    }

    fn ask(&mut self, words: &str) -> String {
        let begun = std::time::Instant::now();
        loop {
            let reply = self.clients[self.at].1.ask(words);
            if let Some(place) = reply.strip_prefix("-MOVED ") {
                let port: u16 = place.rsplit(':').next().unwrap().parse().unwrap();
                self.at = self.clients.iter().position(|(other, _)| *other == port).unwrap();
            } else if reply.starts_with("-TRYAGAIN ") {
                self.try_agains += 1;
                std::thread::sleep(Duration::from_millis(1));
            } else {
                self.longest = self.longest.max(begun.elapsed());
                return reply;
            }
        }
    }
}

/// A thread that changes keys of the slot 3300 until it is told to stop; returns how often it did so.
fn write(shards: &Shards, stop: &Arc<AtomicBool>) -> JoinHandle<(u64, Follower)> {
    let (mut follower, stop) = (Follower::new(shards), stop.clone());
    std::thread::spawn(move || {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            count += 1;
            let key = count % 50;
            assert_eq!(follower.ask("INCR {b}counter"), format!(":{count}"));
            assert_eq!(follower.ask(&format!("RPUSH {{b}}log {count}")), format!(":{count}"));
            follower.ask(&format!("RENAME {{b}}at{} {{b}}at{key}", (count - 1) % 50));
            assert_eq!(follower.ask(&format!("SET {{b}}at{key} {count} PX 1000000")), "+OK");
            follower.ask(&format!(
                "EVAL 'redis.call(\"HSET\", KEYS[1], ARGV[1], 1); return 1' 1 {{b}}hash {count}"
            ));
            let popped = follower.ask(&format!("LMOVE {{b}}from{key} {{b}}to{} LEFT RIGHT", (key + 7) % 50));
            assert!(popped == "nil" || popped.starts_with('$'), "{popped}");
            follower.ask(&format!("RPUSH {{b}}from{key} {count}"));
            assert!(!follower.ask(&format!("SPOP {{b}}set{key}")).starts_with('-'));
            follower.ask(&format!("SADD {{b}}set{key} {count} {key}"));
        }
        (count, follower)
    })
}

/// Asserts that all that the writer has written is there, once.
fn expect_written(follower: &mut Follower, count: u64) {
    assert_eq!(follower.ask("GET {b}counter"), format!("${count}"));
    let all: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
    assert_eq!(follower.ask("LRANGE {b}log 0 -1"), format!("[{}]", all.join(" ")));
    assert_eq!(follower.ask("HLEN {b}hash"), format!(":{count}"));
    let lists = (0..50).flat_map(|key| [format!("LLEN {{b}}from{key}"), format!("LLEN {{b}}to{key}")]);
    let elements: u64 = lists.map(|line| follower.ask(&line)[1..].parse::<u64>().unwrap()).sum();
    assert_eq!(elements, count, "each of them was pushed once");
}

#[test]
fn a_slot_moves_to_and_fro_while_clients_write() {
    let shards = Shards::ready(0);
    let [mut first, mut second] = [0, 1].map(|number| shards.client(number));
    // Enough keys for a copy of a few turns.
    for number in 0..20_000 {
        first.send(&[b"SET", format!("{{b}}{number}").as_bytes(), &[b'v'; 100]]);
        first.send(&[b"RPUSH", b"{b}log", b"x"]);
        first.send(&[b"RPOP", b"{b}log"]);
        (0..3).for_each(|_| drop(first.receive()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write(&shards, &stop);
    for _ in 0..3 {
        assert_eq!(migrate(&mut first, "3300", 1), "+OK");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(migrate(&mut second, "3300", 0), "+OK");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    stop.store(true, Ordering::Relaxed);
    let (count, mut follower) = writer.join().unwrap();
    assert!(count > 100, "{count}");
    println!("{count} rounds, {} times TRYAGAIN, the longest {:?}", follower.try_agains, follower.longest);
    expect_written(&mut follower, count);
    for number in (0..20_000).step_by(97) {
        assert_eq!(follower.ask(&format!("STRLEN {{b}}{number}")), ":100");
    }
    eventually(|| first.ask("DBSIZE") == ":0");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn a_long_list_moves_in_pieces_while_it_grows() {
    let shards = Shards::ready(0);
    let mut first = shards.client(0);
    let all: Vec<String> = (1..=200_000).map(|number| format!("{number:08}")).collect();
    for part in all.chunks(1000) {
        let words: Vec<&[u8]> =
            [&b"RPUSH"[..], b"b"].into_iter().chain(part.iter().map(|item| item.as_bytes())).collect();
        first.run(&words);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (mut follower, stopping) = (Follower::new(&shards), stop.clone());
    let writer = std::thread::spawn(move || {
        let mut count = 200_000;
        while !stopping.load(Ordering::Relaxed) {
            count += 1;
            assert_eq!(follower.ask(&format!("RPUSH b {count:08}")), format!(":{count}"));
        }
        (count, follower)
    });
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    stop.store(true, Ordering::Relaxed);
    let (count, mut follower) = writer.join().unwrap();
    println!(
        "{} pushes, {} times TRYAGAIN, the longest {:?}",
        count - 200_000,
        follower.try_agains,
        follower.longest
    );
    let all: Vec<String> = (1..=count).map(|number| format!("${number:08}")).collect();
    assert!(follower.ask("LRANGE b 0 -1") == format!("[{}]", all.join(" ")), "another list");
    eventually(|| first.ask("DBSIZE") == ":0");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn replicas_know_of_the_move() {
    let shards = Shards::ready(2);
    let [mut first, mut second, mut third, mut fourth] = [0, 1, 3, 4].map(|number| shards.client(number));
    let two = shards.port(1);
    first.talk("SET b 1 => +OK\nSET {b}2 2 EX 1000 => +OK");
    third.talk("READONLY => +OK");
    fourth.talk("READONLY => +OK");
    eventually(|| third.ask("GET b") == "$1");
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    let moved = format!("-MOVED 3300 127.0.0.1:{two}");
    eventually(|| third.ask("GET b") == moved);
    // The move was not done before a replica of the target had all of it.
    assert_eq!(fourth.ask("GET b"), "$1");
    assert_eq!(field(&mut fourth, "import_state").as_deref(), Some("success"));
    second.talk("SET b 2 => +OK");
    eventually(|| fourth.ask("GET b") == "$2" && third.ask("DBSIZE") == ":0");
    // The target's replica takes its place, though nobody has pushed the move.
    let topology = [
        shards.line(0, None, RANGES[0]),
        shards.line(1, Some(4), ""),
        shards.line(2, None, RANGES[2]),
        shards.line(3, Some(0), ""),
        shards.line(4, None, RANGES[1]),
    ];
    shards.push(&topology.concat(), 2);
    fourth.talk("SET b 3 => +OK\nGET {b}2 => $2");
    let four = shards.port(4);
    first.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{four}"));
    second.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{four}"));
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn clients_that_wait_or_watch_are_told_where_the_slot_is() {
    let shards = Shards::ready(0);
    let [mut first, mut waiting, mut queuing, mut subscriber] = [0; 4].map(|number| shards.client(number));
    let two = shards.port(1);
    waiting.send(&[b"BLPOP", b"{b}none", b"0"]);
    queuing.talk("WATCH b => +OK\nMULTI => +OK\nSET b 1 => +QUEUED");
    subscriber.talk("SSUBSCRIBE b => [$ssubscribe $b :1]");
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    let moved = format!("MOVED 3300 127.0.0.1:{two}");
    assert_eq!(crate::support::show(&waiting.receive()), format!("-{moved}"));
    queuing.talk(&format!("EXEC => -{moved}\nGET b => -{moved}"));
    assert_eq!(crate::support::show(&subscriber.receive()), "[$sunsubscribe $b :0]");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn keys_of_slots_are_removed_in_steps() {
    let shards = Shards::ready(0);
    let mut first = shards.client(0);
    for number in 0..5000 {
        first.send(&[b"SET", format!("{{b}}{number}").as_bytes(), b"x", b"PX", b"10000000"]);
    }
    (0..5000).for_each(|_| drop(first.receive()));
    first.talk("CLUSTERX FLUSHSLOTS 3300 => +OK");
    eventually(|| !first.ask("GET {b}1").starts_with("-TRYAGAIN"));
    first.talk("GET {b}1 => nil\nDBSIZE => :0\nSET b 1 => +OK");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn a_replica_that_is_new_has_the_moves_by_the_copy() {
    let mut shards = Shards::ready(0);
    let [mut first, mut second] = [0, 1].map(|number| shards.client(number));
    first.talk("SET b 1 => +OK");
    assert_eq!(migrate(&mut first, "3300", 1), "+OK");
    // One that joins the target's shard, and one that joins the source's; nobody has pushed the move.
    shards.servers.extend([node(), node()]);
    let masters: String = (0..3).map(|number| shards.line(number, None, RANGES[number])).collect();
    shards.push(&(masters + &shards.line(3, Some(1), "") + &shards.line(4, Some(0), "")), 2);
    let [mut third, mut fourth] = [3, 4].map(|number| shards.client(number));
    let two = shards.port(1);
    third.talk("READONLY => +OK");
    fourth.talk("READONLY => +OK");
    eventually(|| third.info("master_link_status") == "up" && fourth.info("master_link_status") == "up");
    third.talk("GET b => $1");
    fourth.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{two}"));
    assert_eq!(field(&mut third, "import_state").as_deref(), Some("success"));
    assert_eq!(field(&mut fourth, "migrating_state").as_deref(), Some("success"));
    // The topology says it in the end, to replicas by their masters.
    let moved = after(&shards) + &shards.line(3, Some(1), "") + &shards.line(4, Some(0), "");
    shards.push(&moved, 3);
    second.talk("SET b 2 => +OK");
    eventually(|| third.ask("GET b") == "$2");
    fourth.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{two}"));
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn keys_of_a_slot_are_listed_up_to_the_limit_of_a_reply() {
    let shards = Shards::ready(0);
    let mut first = shards.client(0);
    for number in 0..300 {
        first.talk(&format!("SET {{b}}{number:03} 1 => +OK"));
    }
    assert_eq!(first.ask("CLUSTER GETKEYSINSLOT 3300 2"), "[${b}000 ${b}001]");
    first.talk("CONFIG SET reply-max-bytes 1024 => +OK");
    assert!(first.ask("CLUSTER GETKEYSINSLOT 3300 1000").starts_with("-ERR reply exceeds the maximum"));
    assert_eq!(first.ask("CLUSTER GETKEYSINSLOT 3300 1"), "[${b}000]");
    shards.servers.into_iter().for_each(Fixture::check);
}

/// The same keys to a replica by a whole copy, and to another node by a move; what each took. Times are shown
/// and not judged.
#[test]
fn a_move_and_a_whole_copy_are_timed() {
    let count = std::env::var("TEMBO_MOVED_KEYS").ok().and_then(|count| count.parse().ok()).unwrap_or(2000);
    for (bytes, count) in [(100, count), (16 << 10, count / 20)] {
        let mut shards = Shards::ready(0);
        let mut first = shards.client(0);
        let value = vec![b'v'; bytes];
        for number in 0..count {
            first.send(&[b"SET", format!("{{b}}{number}").as_bytes(), &value]);
            if number % 1000 == 999 {
                (0..1000).for_each(|_| drop(first.receive()));
            }
        }
        (0..count % 1000).for_each(|_| drop(first.receive()));
        shards.servers.push(node());
        let mut replica = shards.client(3);
        let masters: String = (0..3).map(|number| shards.line(number, None, RANGES[number])).collect();
        let begun = std::time::Instant::now();
        shards.push(&(masters + &shards.line(3, Some(0), "")), 2);
        eventually(|| {
            replica.ask("DBSIZE") == format!(":{count}") && replica.info("master_link_status") == "up"
        });
        let copied = begun.elapsed();
        let begun = std::time::Instant::now();
        assert_eq!(migrate(&mut first, "3300", 1), "+OK");
        let moved = begun.elapsed();
        println!("{count} values of {bytes} bytes: copied in {copied:?}, moved in {moved:?}");
        shards.servers.into_iter().for_each(Fixture::check);
    }
}
