//! Keys that go when there is no memory for them.

use crate::replicas::Replica;
use crate::support::{Client, Fixture, eventually, show};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const VALUE: [u8; 1000] = [b'v'; 1000];

/// A server whose data may have 6 MiB, in a pool that is larger.
fn limited(policy: &str) -> Fixture {
    Fixture::with(
        |config| {
            config.take_directive("maxmemory", b"6mb").unwrap();
            config.take_directive("maxmemory-policy", policy.as_bytes()).unwrap();
        },
        |options| options.initial_bytes(24 << 20).max_bytes(64 << 20),
    )
}

fn set(client: &mut Client, number: usize, options: &[&[u8]]) -> String {
    let key = format!("key:{number:06}");
    let args: Vec<&[u8]> =
        [b"SET", key.as_bytes(), &VALUE].into_iter().chain(options.iter().copied()).collect();
    show(&client.run(&args))
}

fn count(client: &mut Client, numbers: std::ops::Range<usize>) -> usize {
    let keys: Vec<String> = numbers.map(|number| format!("key:{number:06}")).collect();
    let args: Vec<&[u8]> =
        [&b"EXISTS"[..]].into_iter().chain(keys.iter().map(|key| key.as_bytes())).collect();
    show(&client.run(&args))[1..].parse().unwrap()
}

fn keys(client: &mut Client) -> usize {
    client.ask("DBSIZE")[1..].parse().unwrap()
}

/// With 6 MiB for the pool's own and keys of about 1 KiB: the number that stays is near 4,000, and never far
/// above.
#[test]
fn keys_that_were_not_used_for_long_go_first() {
    let server = limited("allkeys-lru");
    let mut client = server.client();
    for number in 0..3000 {
        assert_eq!(set(&mut client, number, &[]), "+OK");
    }
    assert_eq!(keys(&mut client), 3000, "evicted below the limit");
    // The first 500 are used, and then more come.
    std::thread::sleep(std::time::Duration::from_millis(20));
    for number in 0..500 {
        client.ask(&format!("GET key:{number:06}"));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    for number in 3000..5500 {
        assert_eq!(set(&mut client, number, &[]), "+OK");
    }
    let (used, unused, new) =
        (count(&mut client, 0..500), count(&mut client, 500..3000), count(&mut client, 3000..5500));
    assert!(used > 450 && new > 2300, "{used} of 500 used ones, {new} of 2500 new ones are left");
    assert!(unused < 1500, "{unused} of 2500 unused ones are left");
    let evicted: usize = client.info("evicted_keys").parse().unwrap();
    assert_eq!(evicted + keys(&mut client), 5500);
    assert!((3400..4700).contains(&keys(&mut client)), "{}", keys(&mut client));
    assert_eq!(client.info("maxmemory"), (6 << 20).to_string());
    assert_eq!(client.info("maxmemory_policy"), "allkeys-lru");
    server.check();
}

#[test]
fn keys_that_are_used_seldom_go_first() {
    let server = limited("allkeys-lfu");
    let mut client = server.client();
    client.talk("CONFIG SET lfu-log-factor 0 => +OK");
    for number in 0..500 {
        assert_eq!(set(&mut client, number, &[]), "+OK");
        (0..5).for_each(|_| drop(client.ask(&format!("GET key:{number:06}"))));
    }
    // Each of these is newer than those, and used once.
    for number in 500..6000 {
        assert_eq!(set(&mut client, number, &[]), "+OK");
    }
    let used = count(&mut client, 0..500);
    assert!(used > 470, "{used} of 500");
    client.talk(
        "SET counted 1 => +OK\nOBJECT FREQ counted => :5\nGET counted => $1\nOBJECT FREQ counted => :6",
    );
    client
        .talk("TTL counted => :-1\nTYPE counted => +string\nEXISTS counted => :1\nOBJECT FREQ counted => :6");
    assert!(client.ask("OBJECT IDLETIME counted").contains("LFU maxmemory policy is selected"));
    server.check();
}

#[test]
fn a_volatile_policy_leaves_keys_without_a_deadline() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let server = limited(policy);
        let mut client = server.client();
        for number in 0..1000 {
            assert_eq!(set(&mut client, number, &[]), "+OK");
        }
        for number in 1000..6000 {
            let seconds = (10_000 + number).to_string();
            assert_eq!(set(&mut client, number, &[b"EX", seconds.as_bytes()]), "+OK", "{policy}");
        }
        assert_eq!(count(&mut client, 0..1000), 1000, "{policy}");
        if policy == "volatile-ttl" {
            let left = count(&mut client, 1000..2400);
            assert_eq!(left, 0, "the nearest deadlines go first");
        }
        // Nothing else may go, and writes are refused; reads and deletes are not.
        let mut number = 6000;
        while set(&mut client, number, &[]) == "+OK" {
            number += 1;
            assert!(number < 20_000, "{policy}");
        }
        assert_eq!(set(&mut client, number, &[]), OOM);
        client.talk("APPEND key:000000 x => -OOM command not allowed when used memory > 'maxmemory'.");
        client.talk("STRLEN key:000000 => :1000\nDEL key:000000 => :1");
        assert_eq!(count(&mut client, 1..1000), 999);
        client.talk("FLUSHALL => +OK");
        eventually(|| set(&mut client, 0, &[]) == "+OK");
        server.check();
    }
}

#[test]
fn at_random_any_key_may_go() {
    let server = limited("allkeys-random");
    let mut client = server.client();
    for number in 0..8000 {
        assert_eq!(set(&mut client, number, &[]), "+OK");
    }
    for quarter in 0..4 {
        let left = count(&mut client, quarter * 2000..(quarter + 1) * 2000);
        assert!((150..1900).contains(&left), "{left} of 2000 in quarter {quarter}");
    }
    server.check();
}

/// The limit may be the pool's own: a command that finds no space has keys evicted for it.
#[test]
fn in_a_full_pool_keys_go_for_those_that_come() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(24 << 20).max_bytes(24 << 20));
        let mut client = server.client();
        client.talk(&format!("CONFIG SET maxmemory-policy {policy} => +OK"));
        for round in 0..3 {
            for number in 0..30_000 {
                let value = vec![b'v'; 300 + 700 * round];
                let key = format!("key:{number:06}");
                let reply = show(&client.run(&[b"SET", key.as_bytes(), &value]));
                assert_eq!(reply, "+OK", "{policy}, round {round}, key {number}");
            }
        }
        // Collections and large values, too.
        for number in 0..200 {
            let name = format!("hash:{number}");
            for field in 0..20 {
                let field = format!("field:{field}");
                let reply = show(&client.run(&[b"HSET", name.as_bytes(), field.as_bytes(), &VALUE]));
                assert!(!reply.starts_with('-'), "{policy}: {reply}");
            }
        }
        let large = vec![b'l'; 40_000];
        assert_eq!(show(&client.run(&[b"SET", b"large", &large])), "+OK", "{policy}");
        server.restart();
        let mut client = server.client();
        client.talk(&format!("CONFIG SET maxmemory-policy {policy} => +OK"));
        assert!(keys(&mut client) > 100);
        for number in 0..10_000 {
            assert_eq!(set(&mut client, number, &[]), "+OK", "{policy}, after the restart");
        }
        server.check();
    }
}

#[test]
fn without_a_policy_writes_are_refused_beyond_maxmemory() {
    let server = limited("noeviction");
    let mut client = server.client();
    let mut number = 0;
    while set(&mut client, number, &[]) == "+OK" {
        number += 1;
    }
    assert!((3000..4700).contains(&number), "{number}");
    client.talk("GET key:000000x => nil\nDEL key:000000 => :1\nHSET h f v => -OOM command not allowed when used memory > 'maxmemory'.");
    client.talk("CONFIG SET maxmemory 8mb => +OK\nHSET h f v => :1\nCONFIG SET maxmemory 0 => +OK");
    client.talk("CONFIG GET maxmemory => [$maxmemory $67108864]");
    assert_eq!(set(&mut client, number, &[]), "+OK");
    server.check();
}

/// An eviction is a change like others: subscribers, trackers, watchers and replicas are told.
#[test]
fn an_eviction_is_told() {
    let server = limited("allkeys-lru");
    let (mut client, mut subscriber, mut watcher) = (server.client(), server.client(), server.client());
    client.talk("CONFIG SET notify-keyspace-events Ee => +OK\nSET key:watched 1 => +OK");
    subscriber.talk("SUBSCRIBE __keyevent@0__:evicted => [$subscribe $__keyevent@0__:evicted :1]");
    watcher.talk("WATCH key:watched => +OK\nMULTI => +OK\nPING => +QUEUED");
    let mut replica = Replica::connect(&client);
    replica.copy();
    std::thread::sleep(std::time::Duration::from_millis(20));
    for number in 0..9000 {
        let reply = set(&mut client, number, &[]);
        assert_eq!(reply, "+OK", "{number}: {}", show(&client.run(&[b"INFO"])).replace("\\r\\n", "\n"));
    }
    assert_eq!(watcher.ask("EXEC"), "nil", "the oldest key is still there");
    assert!(show(&subscriber.receive()).starts_with("[$message $__keyevent@0__:evicted $key:"));
    client.talk("CONFIG SET maxmemory-policy noeviction maxmemory 0 => +OK\nSET last v => +OK");
    let evicted: usize = client.info("evicted_keys").parse().unwrap();
    let commands = replica.until("SET last v");
    let deleted = commands.iter().filter(|command| command.starts_with("DEL key:")).count();
    assert!(evicted > 4000, "{evicted}");
    assert_eq!(deleted, evicted);
    server.check();
}

#[test]
fn idle_times_are_known_with_a_policy_that_goes_by_them() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK\nOBJECT IDLETIME nosuch => nil");
    assert!(client.ask("OBJECT IDLETIME k").starts_with("-ERR idle time is not tracked"));
    assert!(client.ask("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not selected"));
    client.talk("CONFIG SET maxmemory-policy volatile-lru => +OK\nSET k v => +OK\nOBJECT IDLETIME k => :0");
    let payload = client.run(&[b"DUMP", b"k"]);
    let payload = payload.as_bytes().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    client.talk("OBJECT IDLETIME k => :2\nTTL k => :-1\nOBJECT IDLETIME k => :2");
    let reply = client.run(&[b"RESTORE", b"other", b"0", payload, b"IDLETIME", b"1"]);
    assert_eq!(show(&reply), "+OK");
    client.talk("OBJECT IDLETIME other => :1\nTOUCH k => :1\nOBJECT IDLETIME k => :0");
    client.talk("CONFIG SET maxmemory-policy allkeys-lfu => +OK");
    let reply = client.run(&[b"RESTORE", b"other", b"0", payload, b"REPLACE", b"FREQ", b"77"]);
    assert_eq!(show(&reply), "+OK");
    client.talk("OBJECT FREQ other => :77");
    let wrong = client.ask("CONFIG SET maxmemory-policy allkeys-lur");
    assert!(wrong.contains("must be one of the following"), "{wrong}");
    client.talk("CONFIG GET maxmemory-policy => [$maxmemory-policy $allkeys-lfu]");
}
