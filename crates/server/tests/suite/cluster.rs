//! Nodes of a cluster whose topology is pushed by CLUSTERX: which commands they serve.

use crate::cluster_support::{Shards, node, node_id};
use crate::support::Fixture;

#[test]
fn a_server_without_cluster_mode_says_so() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        CLUSTER INFO => -ERR This instance has cluster support disabled
        CLUSTER KEYSLOT a => -ERR This instance has cluster support disabled
        CLUSTERX VERSION => -ERR This instance has cluster support disabled
        CLUSTERX SETNODES x 1 => -ERR This instance has cluster support disabled
        READONLY => -ERR This instance has cluster support disabled
        ASKING => -ERR This instance has cluster support disabled
        CONFIG GET cluster-enabled => [$cluster-enabled $no]
        MSET a 1 b 2 => +OK
        ",
    );
    assert_eq!(
        (client.info("cluster_enabled"), client.info("redis_mode")),
        ("0".into(), "standalone".into())
    );
    server.check();
}

#[test]
fn a_node_without_a_topology_serves_no_keys() {
    let server = node();
    let mut client = server.client();
    client.talk(
        "
        CLUSTER INFO => -CLUSTERDOWN The cluster is not initialized
        CLUSTER NODES => -CLUSTERDOWN The cluster is not initialized
        CLUSTER SLOTS => -CLUSTERDOWN The cluster is not initialized
        CLUSTER SHARDS => -CLUSTERDOWN The cluster is not initialized
        CLUSTER MYID => -CLUSTERDOWN The cluster is not initialized
        CLUSTERX VERSION => $-1
        GET a => -CLUSTERDOWN Hash slot not served
        MGET a b => -CLUSTERDOWN Hash slot not served
        EVAL 'return 1' 0 => :1
        PING => +PONG
        DBSIZE => :0
        CLUSTER KEYSLOT foo => :12182
        CLUSTER KEYSLOT {user1000}.following => :3443
        CONFIG GET cluster-enabled => [$cluster-enabled $yes]
        SELECT 0 => +OK
        SELECT 1 => -ERR SELECT is not allowed in cluster mode
        MOVE a 1 => -CLUSTERDOWN Hash slot not served
        SWAPDB 0 1 => -ERR SWAPDB is not allowed in cluster mode
        CLUSTER NONSENSE => -ERR unknown subcommand 'NONSENSE'. Try CLUSTER HELP.
        ",
    );
    assert_eq!((client.info("cluster_enabled"), client.info("redis_mode")), ("1".into(), "cluster".into()));
    assert!(client.ask("HELLO 3").contains("$mode:$cluster"));
    server.check();
}

/// Each of them was wrong once: a panic, a key in a slot that the node has not, a doubled event.
#[test]
fn odd_requests_have_an_end_and_reach_no_other_slot() {
    let shards = Shards::ready(0);
    let mut client = shards.client(0);
    client.talk(
        "
        MULTI => +OK
        CLUSTER RESET => +QUEUED
        EXEC => [-ERR the command cannot run here]
        GEOADD {b}k 1 1 m => :1
        GEORADIUS {b}k 1 1 1 m STORE {b}x STORE {a}y => -CROSSSLOT Keys in request don't hash to the same slot
        GEORADIUS {b}k 1 1 1 m STORE {b}x STORE {b}y => :1
        COMMAND GETKEYS TEMBO.ONCE t 1 TEMBO.ONCE t 1 SET k v => [$k]
        CLUSTERX FLUSHSLOTS 3300 3300 '3299-3301 3300' => +OK
        DBSIZE => :0
        ",
    );
}

#[test]
fn keys_are_served_by_their_owners_and_moved_by_the_others() {
    let shards = Shards::ready(0);
    let [mut first, mut second, mut third] = [0, 1, 2].map(|number| shards.client(number));
    let (two, three) = (shards.port(1), shards.port(2));
    // "b" has slot 3300, "c" 7365, "a" 15495.
    first.talk(&format!(
        "
        SET b 1 => +OK
        GET b => $1
        GET c => -MOVED 7365 127.0.0.1:{two}
        SET a 1 => -MOVED 15495 127.0.0.1:{three}
        MGET b {{b}}2 => [$1 nil]
        MGET b c => -CROSSSLOT Keys in request don't hash to the same slot
        MSET c 1 a 2 => -CROSSSLOT Keys in request don't hash to the same slot
        COPY b b2 => -CROSSSLOT Keys in request don't hash to the same slot
        COPY b b DB 3 => -ERR Copying to another database is not allowed in cluster mode
        TEMBO.ONCE t 1000 SET a 1 => -MOVED 15495 127.0.0.1:{three}
        TEMBO.ONCE t 1000 SET b 2 => +OK
        OBJECT ENCODING c => -MOVED 7365 127.0.0.1:{two}
        SPUBLISH c x => -MOVED 7365 127.0.0.1:{two}
        SSUBSCRIBE c => -MOVED 7365 127.0.0.1:{two}
        SSUBSCRIBE b c => -CROSSSLOT Keys in request don't hash to the same slot
        PUBLISH c x => :0
        SPUBLISH b x => :0
        READONLY => +OK
        GET c => -MOVED 7365 127.0.0.1:{two}
        READWRITE => +OK
        ASKING => +OK
        GET c => -MOVED 7365 127.0.0.1:{two}
        "
    ));
    second.talk("SET c 1 => +OK\nDBSIZE => :1");
    third.talk("SET a 1 => +OK\nDBSIZE => :1");
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn transactions_are_checked_when_queued_and_when_run() {
    let shards = Shards::ready(0);
    let mut client = shards.client(0);
    let two = shards.port(1);
    client.talk(&format!(
        "
        MULTI => +OK
        SET b 1 => +QUEUED
        SET c 1 => -MOVED 7365 127.0.0.1:{two}
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => +OK
        SET b 1 => +QUEUED
        MGET b c => -CROSSSLOT Keys in request don't hash to the same slot
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => +OK
        SET b 1 => +QUEUED
        SET {{b}}2 1 => +QUEUED
        PING => +QUEUED
        EXEC => [+OK +OK +PONG]
        WATCH c => -MOVED 7365 127.0.0.1:{two}
        MULTI => +OK
        SELECT 3 => +QUEUED
        SET b 3 => +QUEUED
        EXEC => [-ERR SELECT is not allowed in cluster mode +OK]
        MULTI => +OK
        SET b 4 => +QUEUED
        "
    ));
    // The slot goes to another node between MULTI and EXEC.
    let mut other = shards.client(0);
    other.ask(&format!("CLUSTERX SETSLOT '3300' NODE {} 2", node_id(1)));
    client.talk(&format!(
        "
        EXEC => -MOVED 3300 127.0.0.1:{two}
        EXEC => -ERR EXEC without MULTI
        "
    ));
    // Two slots in one transaction, each served here.
    client.talk(
        "
        MULTI => +OK
        SET {06S} 1 => +QUEUED
        SET {Qi} 1 => +QUEUED
        EXEC => -CROSSSLOT Keys in request don't hash to the same slot
        EXEC => -ERR EXEC without MULTI
        ",
    );
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn scripts_have_the_keys_of_one_slot_that_is_here() {
    let shards = Shards::ready(0);
    let mut client = shards.client(0);
    let two = shards.port(1);
    let not_local = "-ERR Script attempted to access a non local key in a cluster node";
    let crossing = "-ERR Script attempted to access keys that do not hash to the same slot";
    client.talk(&format!(
        "
        EVAL 'return redis.call(\"set\", KEYS[1], 1)' 1 b => +OK
        EVAL 'return redis.call(\"set\", KEYS[1], 1)' 1 c => -MOVED 7365 127.0.0.1:{two}
        EVAL 'return 1' 2 b c => -CROSSSLOT Keys in request don't hash to the same slot
        EVAL 'return redis.call(\"get\", \"b\")' 0 => $1
        "
    ));
    for (script, expected) in [
        ("EVAL 'return redis.call(\"get\", \"c\")' 0", not_local),
        ("EVAL 'return redis.call(\"get\", \"c\")' 1 b", not_local),
        ("EVAL '#!lua\nreturn redis.call(\"get\", \"{06S}\")' 1 b", crossing),
        ("EVAL '#!lua\nredis.call(\"get\", \"b\") return redis.call(\"get\", \"{06S}\")' 0", crossing),
        ("EVAL '#!lua flags=allow-cross-slot-keys\nreturn redis.call(\"get\", \"{06S}\")' 1 b", "nil"),
        ("EVAL '#!lua flags=no-cluster\nreturn 1' 1 b", "-ERR Can not run script on cluster"),
        ("EVAL 'return redis.call(\"get\", \"{06S}\")' 1 b", "nil"),
        ("EVAL 'return redis.call(\"mget\", \"b\", \"{06S}\")' 1 b", not_local),
    ] {
        let reply = client.ask(script);
        assert!(reply.starts_with(expected), "{script}: {reply}");
    }
    shards.servers.into_iter().for_each(Fixture::check);
}

#[test]
fn a_replica_serves_reads_to_those_who_said_so() {
    let shards = Shards::ready(3);
    let (one, mut master, mut replica) = (shards.port(0), shards.client(0), shards.client(3));
    assert_eq!((replica.info("role"), replica.info("master_port")), ("slave".into(), one.to_string()));
    master.talk("SET b 1 => +OK\nWAIT 1 0 => :1");
    replica.talk(&format!(
        "
        GET b => -MOVED 3300 127.0.0.1:{one}
        READONLY => +OK
        GET b => $1
        SET b 2 => -MOVED 3300 127.0.0.1:{one}
        EVAL_RO 'return redis.call(\"get\", KEYS[1])' 1 b => $1
        MULTI => +OK
        GET b => +QUEUED
        EXEC => [$1]
        MULTI => +OK
        SET b 1 => -MOVED 3300 127.0.0.1:{one}
        DISCARD => +OK
        READWRITE => +OK
        GET b => -MOVED 3300 127.0.0.1:{one}
        SSUBSCRIBE b => [$ssubscribe $b :1]
        "
    ));
    shards.servers.into_iter().for_each(Fixture::check);
}
