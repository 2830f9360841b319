//! Hashes and sets: what their commands answer, and what becomes of large ones.

use crate::support::{Client, Fixture, eventually, show};

/// Lets `key` be a hash of this many fields, `f0` and so on.
fn fill_hash(client: &mut Client, key: &str, fields: usize) {
    for first in (0..fields).step_by(500) {
        let words: Vec<_> =
            (first..fields.min(first + 500)).map(|field| format!("f{field} value:{field}")).collect();
        let reply = client.ask(&format!("HSET {key} {}", words.join(" ")));
        assert_eq!(reply, format!(":{}", words.len()));
    }
}

#[test]
fn hashes_answer_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        HSET h b 1 a 2 => :2
        HSET h b 3 c 4 => :1
        HGETALL h => [$b $3 $a $2 $c $4]
        HKEYS h => [$b $a $c]
        HVALS h => [$3 $2 $4]
        HGET h a => $2
        HGET h x => nil
        HMGET h a x c => [$2 nil $4]
        HLEN h => :3
        HSTRLEN h a => :1
        HEXISTS h a => :1
        HSETNX h a 9 => :0
        HSETNX h d 9 => :1
        HINCRBY h d 5 => :14
        HINCRBYFLOAT h d 0.5 => $14.5
        HINCRBY h d 1 => -ERR hash value is not an integer
        HDEL h a b x => :2
        HGETALL h => [$c $4 $d $14.5]
        TYPE h => +hash
        OBJECT ENCODING h => $listpack
        CONFIG SET hash-max-listpack-entries 1 => +OK
        HSET h c 4 => :0
        OBJECT ENCODING h => $hashtable
        CONFIG SET hash-max-listpack-entries 512 => +OK
        GET h => -WRONGTYPE Operation against a key holding the wrong kind of value
        HSET h odd => -ERR wrong number of arguments for 'hset' command
        SET s 1 => +OK
        HGET s f => -WRONGTYPE Operation against a key holding the wrong kind of value
        HDEL h c d => :2
        EXISTS h => :0
        HGETALL h => []
        HSCAN h 0 => [$0 []]
        HELLO 2 => [$server $redis $version $7.0.15 $proto :2 $id :1 $mode $standalone $role $master $modules []]
        ",
    );
    server.check();
}

#[test]
fn sets_answer_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SADD s 3 1 2 1 => :3
        OBJECT ENCODING s => $intset
        SADD s x => :1
        OBJECT ENCODING s => $hashtable
        SCARD s => :4
        SISMEMBER s x => :1
        SMISMEMBER s x y 1 => [:1 :0 :1]
        SREM s x y => :1
        SADD t 2 3 4 => :3
        SINTERCARD 2 s t => :2
        COMMAND GETKEYS SINTERCARD 2 s t LIMIT 1 => [$s $t]
        COMMAND GETKEYS SINTERCARD 3 s t => -ERR Invalid arguments specified for command
        SINTERSTORE u s t => :2
        SUNIONSTORE u s t => :4
        SDIFFSTORE u s t => :1
        SMEMBERS u => [$1]
        SDIFFSTORE u s s => :0
        EXISTS u => :0
        SMOVE s t 1 => :1
        SMOVE s t 1 => :0
        SCARD t => :4
        SPOP nosuch => nil
        SPOP nosuch 3 => []
        SRANDMEMBER nosuch => nil
        SET string 1 => +OK
        SADD string x => -WRONGTYPE Operation against a key holding the wrong kind of value
        SINTERSTORE string s t => :2
        TYPE string => +set
        ",
    );
    let popped = client.ask("SPOP t 2");
    assert_eq!(popped.matches('$').count(), 2, "{popped}");
    client.talk("SCARD t => :2");
    server.check();
}

#[test]
fn a_large_hash_is_scanned_to_its_end_by_cursors_that_survive_a_restart() {
    let mut server = Fixture::start();
    let mut client = server.client();
    fill_hash(&mut client, "h", 1000);
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), std::collections::HashSet::new(), 0);
    loop {
        let reply = client.ask(&format!("HSCAN h {cursor} COUNT 50"));
        let words: Vec<_> = reply.split([' ', '[', ']']).filter(|word| !word.is_empty()).collect();
        cursor = words[0][1..].to_owned();
        seen.extend(words[1..].chunks(2).map(|pair| pair[0].to_owned()));
        calls += 1;
        if cursor == "0" {
            break;
        }
        if calls == 7 {
            server.restart();
            client = server.client();
        }
    }
    assert_eq!((seen.len(), calls), (1000, 20));
    server.check();
}

#[test]
fn large_collections_are_replaced_renamed_copied_and_expire() {
    let mut server = Fixture::start();
    let mut client = server.client();
    for key in ["a", "b", "c", "e"] {
        fill_hash(&mut client, key, 2000);
    }
    client.talk(
        "
        DEL a => :1
        SET b string => +OK
        RENAME c d => +OK
        HLEN d => :2000
        PEXPIRE d 1 => :1
        COPY e f => :1
        HSET f f0 other => :0
        HGET e f0 => $value:0
        COPY e e DB 3 => :1
        ",
    );
    eventually(|| client.ask("DBSIZE") == ":3");
    client.talk("FLUSHDB => +OK\nDBSIZE => :0\nSELECT 3 => +OK\nHLEN e => :2000");
    server.restart();
    server.client().talk("SELECT 3 => +OK\nHLEN e => :2000\nFLUSHALL => +OK\nHLEN e => :0");
    server.check();
}

#[test]
fn large_collections_move_to_another_database_with_their_elements() {
    let mut server = Fixture::start();
    let mut client = server.client();
    for key in ["a", "b"] {
        fill_hash(&mut client, key, 2000);
    }
    client.talk(
        "
        PEXPIRE b 100000000 => :1
        MOVE a 3 => :1
        MULTI => +OK
        MOVE b 9 => +QUEUED
        HSET b f0 fresh => +QUEUED
        EXEC => [:1 :1]
        MOVE b 9 => :0
        FLUSHDB => +OK
        SELECT 9 => +OK
        HLEN b => :2000
        HGET b f1999 => $value:1999
        PERSIST b => :1
        SELECT 3 => +OK
        HSET a f0 changed => :0
        MOVE a 9 => :1
        EXISTS a => :0
        FLUSHDB => +OK
        ",
    );
    server.restart();
    let mut client = server.client();
    client.talk("SELECT 9 => +OK\nHLEN a => :2000\nHGET a f0 => $changed\nDEL a => :1\nHLEN b => :2000");
    server.check();
}

/// A digest depends on the elements, and not on their order or on how they are kept.
#[test]
fn digests_and_encodings_of_collections_are_those_of_their_elements() {
    let server = Fixture::start();
    let mut client = server.client();
    fill_hash(&mut client, "h", 300);
    client.talk(
        "COPY h i => :1\nHSET x a 1 b 2 => :2\nHSET y b 2 a 1 => :2\nSADD s a b => :2\nSADD t b a => :2",
    );
    // A large hash of two fields.
    let fields: Vec<_> = (0..300).map(|field| format!("f{field}")).collect();
    client.talk(&format!("COPY h z => :1\nHSET z a 1 b 2 => :2\nHDEL z {} => :300", fields.join(" ")));
    let digest = |client: &mut Client, key| client.ask(&format!("DEBUG DIGEST-VALUE {key}"));
    for (key, same) in [("h", "i"), ("x", "y"), ("x", "z"), ("s", "t")] {
        assert_eq!(digest(&mut client, key), digest(&mut client, same), "{key} {same}");
    }
    let different = ["h", "x", "s"].map(|key| digest(&mut client, key));
    assert!(different.iter().collect::<std::collections::HashSet<_>>().len() == 3, "{different:?}");
    let all = client.ask("DEBUG DIGEST");
    client.talk("HSET h f7 other => :0");
    assert_ne!(client.ask("DEBUG DIGEST"), all, "elements of large hashes count");
    client.talk("HSET h f7 value:7 => :0");
    assert_eq!(client.ask("DEBUG DIGEST"), all);
    let object = client.ask("DEBUG OBJECT h");
    assert!(object.contains("encoding:hashtable") || object.contains("encoding:listpack"), "{object}");
    server.check();
}

/// Each round adds ten thousand elements. `used_memory` counts slabs, which stay reserved, but are used
/// again.
#[test]
fn removed_large_collections_give_their_space_back() {
    let server = Fixture::start();
    let mut client = server.client();
    let mut used = Vec::new();
    for round in 0..8 {
        ["a", "b", "c", "d", "e"].iter().for_each(|key| fill_hash(&mut client, key, 2000));
        used.push(client.info("used_memory").parse::<u64>().unwrap());
        client.talk(if round % 2 == 0 { "FLUSHALL => +OK" } else { "DEL a b c d e => :5" });
        // Each turn of the loop gives a part back.
        (0..400).for_each(|_| client.talk("PING => +PONG"));
    }
    assert!(used[7] < used[1] + 300_000, "{used:?}");
    server.check();
}

#[test]
fn large_collections_can_be_removed_from_a_full_pool() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(24 << 20).max_bytes(24 << 20));
    let mut client = server.client();
    let value = vec![b'v'; 1000];
    let mut hashes = 0;
    'fill: for hash in 0.. {
        for field in 0..50 {
            let (key, field) = (format!("h:{hash}"), format!("f:{field}"));
            let reply = show(&client.run(&[b"HSET", key.as_bytes(), field.as_bytes(), &value]));
            if reply != ":1" {
                assert!(reply.starts_with("-OOM"), "{reply}");
                hashes = hash;
                break 'fill;
            }
        }
    }
    assert!(hashes > 100, "{hashes}");
    // Small ones take the rest.
    while client.ask("INCR count").starts_with(':')
        && show(&client.run(&[b"APPEND", b"rest", &[b'r'; 4000]])).starts_with(':')
    {}
    for hash in 0..hashes {
        client.talk(&format!("DEL h:{hash} => :1"));
    }
    eventually(|| show(&client.run(&[b"SET", b"large", &vec![b'x'; 8 << 20]])) == "+OK");
    server.check();
}

#[test]
fn transactions_and_watches_see_changes_of_elements() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    fill_hash(&mut client, "h", 300);
    client.talk("WATCH h => +OK");
    other.talk("HSET h f1 changed => :0");
    client.talk("MULTI => +OK\nHLEN h => +QUEUED\nEXEC => nil");
    client.talk(
        "
        MULTI => +OK
        HSET h new 1 => +QUEUED
        HLEN h => +QUEUED
        HDEL h new f1 f2 => +QUEUED
        HLEN h => +QUEUED
        INCR h => +QUEUED
        DEL h => +QUEUED
        HGETALL h => +QUEUED
        HSET h a 1 => +QUEUED
        EXEC => [:1 :301 :3 :298 -WRONGTYPE Operation against a key holding the wrong kind of value :1 [] :1]
        HGETALL h => [$a $1]
        ",
    );
    server.check();
}
