//! Publish and subscribe: the replies, who gets what and when, and what it may cost.

use std::time::Duration;

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, eventually, request, show};

/// The seed of the random commands, unless the environment gives another.
const SEED: u64 = 0x7e3b_0036;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";

/// The next `count` replies or messages.
#[track_caller]
fn next(client: &mut Client, count: usize) -> Vec<String> {
    (0..count).map(|_| show(&client.receive())).collect()
}

#[test]
fn subscribers_get_what_is_published() {
    let server = Fixture::start();
    let (mut alice, mut bob, mut carol) = (server.client(), server.client(), server.client());
    alice.send(&[b"SUBSCRIBE", b"news", b"weather"]);
    assert_eq!(next(&mut alice, 2), ["[$subscribe $news :1]", "[$subscribe $weather :2]"]);
    bob.talk("HELLO 3 => {$server:$redis $version:$7.0.15 $proto::3 $id::2 $mode:$standalone $role:$master $modules:[]}");
    bob.talk("PSUBSCRIBE n?ws => >$psubscribe $n?ws :1\nSSUBSCRIBE news => >$ssubscribe $news :1");
    carol.talk(
        "
        PUBLISH news 'it rains' => :2
        PUBLISH nosuch x => :0
        SPUBLISH news shard => :1
        SPUBLISH weather x => :0
        PUBSUB CHANNELS w* => [$weather]
        PUBSUB NUMSUB news nosuch => [$news :1 $nosuch :0]
        PUBSUB NUMPAT => :1
        PUBSUB SHARDCHANNELS => [$news]
        PUBSUB SHARDNUMSUB news weather => [$news :1 $weather :0]
        PUBSUB CHANNELS a b => -ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.
        ",
    );
    assert_eq!(next(&mut alice, 1), ["[$message $news $it rains]"]);
    assert_eq!(next(&mut bob, 2), [">$pmessage $n?ws $news $it rains", ">$smessage $news $shard"]);
    for (field, expected) in
        [("pubsub_channels", "2"), ("pubsub_patterns", "1"), ("pubsubshard_channels", "1")]
    {
        assert_eq!(carol.info(field), expected, "{field}");
    }
    let list = carol.ask("CLIENT LIST TYPE pubsub");
    assert!(
        list.contains("flags=P db=0 sub=2 psub=0 ssub=0") && list.contains("sub=0 psub=1 ssub=1"),
        "{list}"
    );
    assert!(!carol.ask("CLIENT LIST TYPE normal").contains("flags=P"));
    carol.talk("CLIENT KILL TYPE pubsub => :2\nPUBLISH news x => :0\nPUBSUB NUMPAT => :0");
    assert_eq!(carol.info("pubsub_channels"), "0");
}

#[test]
fn a_subscriber_that_speaks_resp2_may_only_change_its_subscriptions() {
    let server = Fixture::start();
    let mut client = server.client();
    let only = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    client.talk(&format!(
        "
        UNSUBSCRIBE => [$unsubscribe nil :0]
        SUBSCRIBE a => [$subscribe $a :1]
        SUBSCRIBE a => [$subscribe $a :1]
        GET k => -ERR Can't execute 'get': {only}
        CLIENT ID => -ERR Can't execute 'client|id': {only}
        MULTI => -ERR Can't execute 'multi': {only}
        PUBLISH a x => -ERR Can't execute 'publish': {only}
        PING => [$pong $]
        PING hello => [$pong $hello]
        PSUBSCRIBE p* => [$psubscribe $p* :2]
        SSUBSCRIBE s => [$ssubscribe $s :1]
        PUNSUBSCRIBE nosuch => [$punsubscribe $nosuch :2]
        PUNSUBSCRIBE => [$punsubscribe $p* :1]
        UNSUBSCRIBE a => [$unsubscribe $a :0]
        GET k => -ERR Can't execute 'get': {only}
        SUNSUBSCRIBE => [$sunsubscribe $s :0]
        GET k => nil
        SUBSCRIBE a => [$subscribe $a :1]
        RESET => +RESET
        GET k => nil
        PUBSUB NUMSUB a => [$a :0]
        MULTI => +OK
        SUBSCRIBE b => +QUEUED
        PUBLISH b x => +QUEUED
        GET k => +QUEUED
        EXEC => [[$subscribe $b :1] :1 nil]
        "
    ));
    assert_eq!(next(&mut client, 1), ["[$message $b $x]"], "after the commit");
    client.talk(&format!("GET k => -ERR Can't execute 'get': {only}\nQUIT => +OK"));
    client.expect_closed();
}

#[test]
fn who_gives_up_first_gets_what_is_on_its_way() {
    let server = Fixture::start();
    let mut client = server.client();
    client.ask("HELLO 3");
    client.send_raw(b"SUBSCRIBE a\r\nSET k v\r\nPUBLISH a 1\r\nUNSUBSCRIBE a\r\nPUBLISH a 2\r\nSUBSCRIBE a\r\nPUBLISH a 3\r\n");
    assert_eq!(
        next(&mut client, 9),
        [
            ">$subscribe $a :1",
            "+OK",
            ":1",
            ">$message $a $1",
            ">$unsubscribe $a :0",
            ":0",
            ">$subscribe $a :1",
            ":1",
            ">$message $a $3",
        ]
    );
    client.send_raw(b"PUBLISH a 4\r\nMULTI\r\nUNSUBSCRIBE\r\nEXEC\r\n");
    let rest = next(&mut client, 5);
    assert_eq!(rest, [":1", "+OK", "+QUEUED", ">$message $a $4", "[>$unsubscribe $a :0]"]);
}

/// A message that tells of writes must not arrive if they did not happen.
#[test]
fn messages_of_a_failed_commit_are_dropped() {
    let server = Fixture::with(
        |config| config.batch_words_max = Some(usize::MAX),
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    );
    let (mut subscriber, mut client) = (server.client(), server.client());
    subscriber.talk("PSUBSCRIBE * => [$psubscribe $* :1]");
    let mut keys = 0;
    for step in [500, 1] {
        loop {
            let names: Vec<_> = (keys..keys + step).map(|key| format!("key:{key:08}")).collect();
            let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
            if client.run(&std::iter::once(&b"MSET"[..]).chain(pairs).collect::<Vec<_>>()).is_error() {
                break;
            }
            keys += step;
        }
    }
    let mut transaction = b"PUBLISH first x\r\nMULTI\r\n".to_vec();
    // There is room for keys all over the map, one by one, but not for the record of all of them.
    let put: Vec<_> = (25..keys).step_by(50).take(2000).collect();
    for key in &put {
        client.talk(&format!("DEL key:{key:08} => :1"));
        transaction.extend_from_slice(format!("SET key:{key:08} v\r\n").as_bytes());
    }
    transaction.extend_from_slice(b"PUBLISH done all\r\nEXEC\r\n");
    client.send_raw(&transaction);
    let replies = next(&mut client, put.len() + 4);
    let exec = &replies[put.len() + 3];
    assert!(exec.starts_with("-OOM"), "the commit was to fail: {}", &exec[..40]);
    assert_eq!(replies[0], ":1");
    client.talk("PUBLISH next x => :1");
    assert_eq!(next(&mut subscriber, 2), ["[$pmessage $* $first $x]", "[$pmessage $* $next $x]"]);
    server.check();
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected_at_its_limit() {
    let server = Fixture::with_config(|config| {
        config.output_limits.pubsub.hard_bytes = 4 << 20;
        config.output_limits.normal.hard_bytes = 0;
    });
    let (mut deaf, mut client) = (server.client(), server.client());
    deaf.talk("SUBSCRIBE a => [$subscribe $a :1]");
    let message = vec![b'm'; 100_000];
    eventually(|| show(&client.run(&[b"PUBLISH", b"a", &message])) == ":0");
    assert_eq!(client.info("client_output_buffer_limit_disconnections"), "1");
    eventually(|| client.info("connected_clients") == "1");
    client.talk("CONFIG SET client-output-buffer-limit 'pubsub 0 1000 1' => +OK");
    let mut deaf = server.client();
    deaf.talk("SUBSCRIBE a => [$subscribe $a :1]");
    // More than its socket takes, and then silence.
    (0..100).for_each(|_| drop(client.run(&[b"PUBLISH", b"a", &message])));
    eventually(|| client.info("client_output_buffer_limit_disconnections") == "2");
}

/// Many subscribers that do not read, and a publisher that does not stop: a message is in memory once.
#[test]
fn many_deaf_subscribers_take_bounded_memory() {
    let server = Fixture::with_config(|config| {
        config.client_memory = tembo_server::ClientMemory::Bytes(64 << 20);
    });
    let mut deaf: Vec<_> = (0..100).map(|_| server.client()).collect();
    for client in &mut deaf {
        client.talk("SUBSCRIBE a => [$subscribe $a :1]");
    }
    let (mut publisher, mut other) = (server.client(), server.client());
    let before: u64 = other.info("used_memory_rss").parse().unwrap();
    let message = vec![b'm'; 10_000];
    let mut most = 0;
    for _ in 0..1500 {
        publisher.run(&[b"PUBLISH", b"a", &message]);
        most = most.max(other.info("mem_clients_normal").parse::<u64>().unwrap());
    }
    // A round may go beyond the limit by what it delivers.
    assert!(most <= (64 << 20) + (32 << 20), "{most}");
    let after: u64 = other.info("used_memory_rss").parse().unwrap();
    assert!(after < before + (300 << 20), "{before} {after}");
    assert_ne!(other.info("evicted_clients"), "0");
    other.talk("PING => +PONG");
}

#[test]
fn a_long_message_is_shared_and_keeps_its_place() {
    let server = Fixture::start();
    let mut subscribers: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut subscribers {
        client.talk("SUBSCRIBE a => [$subscribe $a :1]");
    }
    let mut publisher = server.client();
    let (long, longer) = (vec![b'l'; 200_000], vec![b'L'; 3_000_000]);
    for message in [&b"first"[..], &long, b"between", &longer, b"last"] {
        publisher.send(&[b"PUBLISH", b"a", message]);
    }
    (0..5).for_each(|_| assert_eq!(show(&publisher.receive()), ":20"));
    for client in &mut subscribers {
        for message in [&b"first"[..], &long, b"between", &longer, b"last"] {
            let Value::Array(parts) = client.receive() else { panic!("no message") };
            assert!(parts[2].as_bytes() == Some(message));
        }
    }
}

#[test]
fn all_commands_are_shown_to_who_monitors() {
    let server = Fixture::start();
    let (mut watcher, mut client) = (server.client(), server.client());
    watcher.talk("MONITOR => +OK\nGET k => -ERR Replica can't interact with the keyspace\nPING => +PONG");
    assert!(show(&watcher.receive()).ends_with("\"PING\""));
    client.talk("SET k 'a b' => +OK\nMULTI => +OK\nINCR n => +QUEUED\nEXEC => [:1]");
    client.ask("NOSUCH");
    client.ask("AUTH secret");
    client.ask("HELLO 2 AUTH default secret");
    client.talk("CONFIG GET nosuch => []\nSELECT 3 => +OK");
    let lines = next(&mut watcher, 7);
    let expected = [
        " \"SET\" \"k\" \"a b\"",
        " \"MULTI\"",
        " \"INCR\" \"n\"",
        " \"EXEC\"",
        " \"AUTH\" \"(redacted)\"",
        " \"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\"",
        " \"SELECT\" \"3\"",
    ];
    for (line, end) in lines.iter().zip(expected) {
        assert!(line.starts_with('+') && line.ends_with(end), "{line}");
    }
    assert!(client.ask("CLIENT LIST").contains("flags=O"));
    watcher.talk("RESET => +RESET\nGET n => $1");
}

/// Templates: C is a channel, P a pattern.
const TEMPLATES: &[&str] = &[
    "SUBSCRIBE C",
    "SUBSCRIBE C C",
    "PSUBSCRIBE P",
    "PSUBSCRIBE P C",
    "SSUBSCRIBE C",
    "UNSUBSCRIBE C",
    "UNSUBSCRIBE C C",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE P",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE C",
    "SUNSUBSCRIBE",
    "PUBLISH C hello",
    "PUBLISH C 1",
    "PUBLISH C ''",
    "SPUBLISH C hello",
    "PUBSUB CHANNELS",
    "PUBSUB CHANNELS P",
    "PUBSUB NUMSUB C C",
    "PUBSUB NUMPAT",
    "PUBSUB SHARDCHANNELS",
    "PUBSUB SHARDNUMSUB C",
    "GET C",
    "PING",
    "PING C",
    "RESET",
    "HELLO 3",
    "SELECT 1",
    "PUBLISH C",
    "SUBSCRIBE",
];

/// All that a client has got, up to the reply to a PING that shows the end. What a client publishes to
/// itself comes before the reply in Redis, and here after it, so the order is lost.
fn drain(client: &mut Client, marker: &str) -> Vec<String> {
    let mut got = Vec::new();
    for marker in [marker.to_owned(), format!("{marker}:again")] {
        client.send(&[b"PING", marker.as_bytes()]);
        loop {
            let shown = show(&client.receive());
            if shown.contains(&marker) {
                break;
            }
            got.push(shown);
        }
    }
    got.sort();
    got
}

#[test]
fn random_subscriptions_get_what_they_get_from_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let mut ours: Vec<_> = (0..3).map(|_| server.client()).collect();
    let mut theirs: Vec<_> = (0..3).map(|_| redis.client()).collect();
    for step in 0..1500 {
        let template = random.pick(TEMPLATES);
        let words: Vec<String> = template
            .split(' ')
            .map(|word| match word {
                "C" => random.pick(&["a", "b", "ab", "c*"]).to_owned(),
                "P" => random.pick(&["*", "a*", "?", "[ab]", "c\\*"]).to_owned(),
                "''" => String::new(),
                word => word.to_owned(),
            })
            .collect();
        let at = random.below(3);
        let args: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        ours[at].send(&args);
        theirs[at].send(&args);
        let marker = format!("marker{step}");
        // The one that asked first: then everything is published.
        for index in [at, (at + 1) % 3, (at + 2) % 3] {
            let mut both = [&mut ours[index], &mut theirs[index]].map(|client| drain(client, &marker));
            for got in &mut both {
                got.iter_mut().filter(|shown| shown.contains("$proto")).for_each(|shown| shown.clear());
                if template.starts_with("PUBSUB") {
                    got.iter_mut().for_each(|shown| {
                        let mut words: Vec<_> =
                            shown.trim_matches(['[', ']']).split(' ').map(str::to_owned).collect();
                        words.sort();
                        *shown = words.join(" ");
                    });
                }
            }
            // All of a kind at once: the counts come in another order of names.
            if words.len() == 1 && template.ends_with("UNSUBSCRIBE") {
                both = both.map(|got| vec![got.len().to_string()]);
            }
            assert_eq!(
                both[0], both[1],
                "{SEED_VARIABLE}={seed}, step {step}: {words:?}, client {index} of {at}"
            );
        }
    }
    server.check();
}

#[test]
fn others_are_served_while_a_message_goes_to_many() {
    let server = Fixture::start();
    let mut subscribers: Vec<_> = (0..1500).map(|_| server.client()).collect();
    for client in &mut subscribers {
        client.talk("SUBSCRIBE a => [$subscribe $a :1]");
    }
    let (mut publisher, mut other) = (server.client(), server.client());
    publisher.send_raw(&request(&[b"PUBLISH", b"a", b"m"]).repeat(20));
    let turns: u64 = other.info("event_loop_turns").parse().unwrap();
    (0..20).for_each(|_| assert_eq!(show(&publisher.receive()), ":1500"));
    for client in &mut subscribers {
        assert_eq!(next(client, 20), vec!["[$message $a $m]"; 20]);
    }
    let took = other.info("event_loop_turns").parse::<u64>().unwrap() - turns;
    assert!(took >= 20 * 1500 / 512, "{took} turns");
    std::thread::sleep(Duration::from_millis(1));
}
