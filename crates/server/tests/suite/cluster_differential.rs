//! Slots and refusals beside a real Redis in cluster mode, where there is one.

use crate::cluster_support::{node, node_id, set_nodes};
use crate::peer::{Random, Redis};
use crate::support::{Client, Fixture, eventually};

/// Templates of commands: K, L and M are keys, C and D channels.
const COMMANDS: &[&str] = &[
    "GET K",
    "SET K 1",
    "MGET K L",
    "MGET K L M",
    "MSET K 1 L 2",
    "DEL K L",
    "EXISTS K L M",
    "RENAME K L",
    "COPY K L",
    "BITOP AND K L M",
    "PFCOUNT K L",
    "PFMERGE K L M",
    "RPUSH K 1",
    "LMOVE K L LEFT RIGHT",
    "BLPOP K L 0.001",
    "BLMPOP 0.001 2 K L LEFT",
    "LMPOP 2 K L LEFT",
    "SINTERCARD 2 K L",
    "SDIFFSTORE K L M",
    "SMOVE K L 1",
    "ZADD K 1 a",
    "ZUNIONSTORE K 2 L M",
    "ZUNION 2 K L",
    "ZMPOP 1 K MIN",
    "ZRANGESTORE K L 0 -1",
    "GEOADD K 1 1 a",
    "GEOSEARCHSTORE K L FROMLONLAT 1 1 BYRADIUS 1 m",
    "GEORADIUS K 1 1 1 m STORE L",
    "SORT K",
    "SORT K STORE L",
    "SORT K BY w_* STORE L",
    "SORT K GET #",
    "SORT_RO K BY nosort",
    "OBJECT ENCODING K",
    "TYPE K",
    "TTL K",
    "WATCH K L",
    "UNWATCH",
    "DUMP K",
    "LCS K L",
    "EVAL 'return 1' 1 K",
    "EVAL 'return 1' 2 K L",
    "EVAL 'return 1' 0",
    "EVAL 'return 1' x K",
    "EVAL 'return 1' 9 K",
    "EVAL 'return redis.pcall(\"get\",ARGV[1])' 1 K L",
    "EVAL 'return redis.pcall(\"mget\",ARGV[1],ARGV[2])' 0 K L",
    "EVAL 'redis.pcall(\"get\",ARGV[1]) return redis.pcall(\"get\",ARGV[2])' 0 K L",
    "EVAL '#!lua\nreturn redis.pcall(\"get\",ARGV[1])' 1 K L",
    "EVAL '#!lua\nredis.pcall(\"get\",ARGV[1]) return redis.pcall(\"get\",ARGV[2])' 0 K L",
    "EVAL '#!lua flags=allow-cross-slot-keys\nreturn redis.pcall(\"get\",ARGV[1])' 1 K L",
    "EVAL '#!lua flags=no-cluster\nreturn 1' 1 K",
    "EVAL_RO 'return redis.pcall(\"get\",KEYS[1])' 1 K",
    "EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 K",
    "SPUBLISH K m",
    "PUBLISH K m",
    "PING",
    "MSET K 1 L",
    "GET",
    "ZUNION 9 K L",
    "SELECT 1",
    "SELECT 0",
    "MOVE K 1",
    "SWAPDB 0 1",
    "COPY K K DB 1",
    "READONLY",
    "READWRITE",
    "ASKING",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "CLUSTER KEYSLOT K",
    "CLUSTER COUNTKEYSINSLOT K",
    "CLUSTER COUNTKEYSINSLOT 20000",
    "CLUSTER GETKEYSINSLOT 20000 1",
    "CLUSTER GETKEYSINSLOT 1 -1",
    "CLUSTER COUNTKEYSINSLOT 3300",
    "CLUSTER COUNT-FAILURE-REPORTS K",
    "CLUSTER REPLICAS K",
];

/// Two nodes of Redis that know each other: the first has half of the slots, the second a quarter.
fn two_of_redis() -> Option<([Redis; 2], Client)> {
    let ((first, mut client), (second, mut other)) = (Redis::start_node()?, Redis::start_node()?);
    assert_eq!(client.ask("CLUSTER ADDSLOTSRANGE 0 8191"), "+OK");
    assert_eq!(other.ask("CLUSTER ADDSLOTSRANGE 8192 12287"), "+OK");
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", second.port(), second.bus_port());
    assert_eq!(client.ask(&meet), "+OK");
    eventually(|| {
        let info = client.ask("CLUSTER INFO");
        info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:12288")
    });
    Some(([first, second], client))
}

/// A node of Tembo with the slots of the first, which knows the second.
fn like(second: &Redis) -> Fixture {
    let server = node();
    let port = server.address.port();
    let topology = format!(
        "{} 127.0.0.1 {port} master - 0-8191\n{} 127.0.0.1 {} master - 8192-12287",
        node_id(1),
        node_id(2),
        second.port()
    );
    assert_eq!(set_nodes(&mut server.client(), &topology, 1), "+OK");
    server
}

/// A key of few, most with a hash tag.
fn key(random: &mut Random) -> String {
    let tag = random.pick(&["b", "c", "a", "06S", "Qi", "foo", "bar", "hello"]);
    match random.below(4) {
        0 => tag.to_owned(),
        1 => format!("{{{tag}}}{}", random.below(3)),
        2 => format!("x{{{tag}}}"),
        _ => format!("{{{tag}}}{{b}}"),
    }
}

#[test]
fn slots_of_keys_are_those_of_redis() {
    let Some((_redis, mut theirs)) = Redis::start_node() else { return };
    let server = node();
    let mut ours = server.client();
    let mut random = Random(3);
    for _ in 0..3000 {
        let len = random.below(20);
        let bytes: Vec<u8> = (0..len).map(|_| random.pick(b"{}{}{}ab\0\xff ")).collect();
        let both = [&mut ours, &mut theirs].map(|client| client.run(&[b"CLUSTER", b"KEYSLOT", &bytes]));
        assert_eq!(both[0], both[1], "{}", bytes.escape_ascii());
    }
}

#[test]
fn commands_are_refused_as_redis_refuses_them() {
    let Some(([_first, second], mut theirs)) = two_of_redis() else { return };
    let server = like(&second);
    let mut ours = server.client();
    let mut random = Random(5);
    let (mut refused, mut moved, mut crossing) = (0, 0, 0);
    for step in 0..12_000 {
        let template = random.pick(COMMANDS);
        let one = key(&mut random);
        // Often all keys have one slot.
        let same = random.below(2) == 0;
        let mut next = || if same { one.clone() } else { key(&mut random) };
        let (two, three) = (next(), next());
        let words: Vec<String> = template
            .split(' ')
            .map(|word| match word {
                "K" => one.clone(),
                "L" => two.clone(),
                "M" => three.clone(),
                word => word.to_owned(),
            })
            .collect();
        let words = words.join(" ");
        let (tembo, redis) = (ours.ask(&words), theirs.ask(&words));
        let is_refusal = |reply: &str| {
            ["-MOVED", "-CROSSSLOT", "-CLUSTERDOWN", "-EXECABORT", "-ASK"]
                .iter()
                .any(|it| reply.starts_with(it))
                || ["luster mode", "non local key", "same slot"].iter().any(|it| reply.contains(it))
        };
        if is_refusal(&tembo) || is_refusal(&redis) || template.starts_with("CLUSTER") {
            // The texts of errors within scripts end with the name of the script.
            let cut = |reply: &str| reply.split(" script:").next().unwrap_or_default().to_owned();
            // Commands queued before a refusal are not kept, and their keys are not looked at again.
            let is_discarded = words == "EXEC" && tembo.starts_with("-EXECABORT") && is_refusal(&redis);
            assert!(is_discarded || cut(&tembo) == cut(&redis), "step {step}: {words}: {tembo}, and {redis}");
            refused += 1;
            moved += u32::from(tembo.starts_with("-MOVED"));
            crossing += u32::from(tembo.starts_with("-CROSSSLOT"));
        }
    }
    assert!(refused > 3000 && moved > 500 && crossing > 500, "{refused} refusals, {moved}, {crossing}");
    server.check();
}
