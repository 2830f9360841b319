//! Lists: what their commands answer, and what becomes of large ones.

use crate::support::{Client, Fixture, eventually};

/// Lets `key` be a list of this many elements, `e0` and so on.
fn fill(client: &mut Client, key: &str, elements: usize) {
    for first in (0..elements).step_by(500) {
        let words: Vec<_> = (first..elements.min(first + 500)).map(|number| format!("e{number}")).collect();
        let reply = client.ask(&format!("RPUSH {key} {}", words.join(" ")));
        assert_eq!(reply, format!(":{}", first + words.len()));
    }
}

#[test]
fn elements_of_lists_are_found_set_and_removed_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        RPUSH l c d => :2
        LPUSH l b a => :4
        LRANGE l 0 -1 => [$a $b $c $d]
        LRANGE l -3 2 => [$b $c]
        LRANGE l 3 1 => []
        LLEN l => :4
        LINDEX l -1 => $d
        LINDEX l 4 => nil
        LSET l 1 B => +OK
        LSET l 4 x => -ERR index out of range
        LSET nosuch 0 x => -ERR no such key
        LINSERT l BEFORE c x => :5
        LINSERT l AFTER d y => :6
        LINSERT l AFTER nosuch y => :-1
        LINSERT nosuch AFTER a y => :0
        LINSERT l BESIDE a y => -ERR syntax error
        LRANGE l 0 -1 => [$a $B $x $c $d $y]
        RPUSH l a x a => :9
        LPOS l a => :0
        LPOS l a RANK -1 => :8
        LPOS l a COUNT 0 => [:0 :6 :8]
        LPOS l a RANK -2 COUNT 2 => [:6 :0]
        LPOS l a RANK 2 MAXLEN 5 => nil
        LPOS l nosuch COUNT 1 => []
        LREM l 1 a => :1
        LREM l -1 x => :1
        LREM l 0 a => :2
        LRANGE l 0 -1 => [$B $x $c $d $y]
        ",
    );
    server.check();
}

#[test]
fn lists_are_trimmed_moved_and_popped_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        RPUSH l B x c d y => :5
        LTRIM l 1 -2 => +OK
        LRANGE l 0 -1 => [$x $c $d]
        LMOVE l m LEFT RIGHT => $x
        RPOPLPUSH l m => $d
        RPOPLPUSH m m => $x
        LRANGE m 0 -1 => [$x $d]
        LPOP m => $x
        RPOP m 5 => [$d]
        EXISTS m => :0
        LPOP m => nil
        LPOP m 1 => nil
        RPOP l 0 => []
        LPUSHX m a => :0
        RPUSHX l z => :2
        LMPOP 2 m l RIGHT COUNT 5 => [$l [$z $c]]
        LMPOP 2 m l RIGHT => nil
        RPUSH l a => :1
        TYPE l => +list
        OBJECT ENCODING l => $quicklist
        GET l => -WRONGTYPE Operation against a key holding the wrong kind of value
        SADD s x => :1
        LPUSH s x => -WRONGTYPE Operation against a key holding the wrong kind of value
        LMOVE l s LEFT LEFT => -WRONGTYPE Operation against a key holding the wrong kind of value
        LRANGE l 0 -1 => [$a]
        COMMAND GETKEYS BLMPOP 0 2 a b LEFT => [$a $b]
        COMMAND GETKEYS BLPOP a b 0 => [$a $b]
        SCAN 0 TYPE list => [$0 [$l]]
        LTRIM l 5 1 => +OK
        EXISTS l => :0
        ",
    );
    server.check();
}

#[test]
fn large_lists_are_replaced_renamed_copied_and_expire() {
    let mut server = Fixture::start();
    let mut client = server.client();
    for key in ["a", "b", "c", "e"] {
        fill(&mut client, key, 3000);
    }
    client.talk(
        "
        DEL a => :1
        SET b string => +OK
        RENAME c d => +OK
        LINDEX d 1500 => $e1500
        PEXPIRE d 1 => :1
        COPY e f => :1
        LSET f 700 other => +OK
        LINDEX e 700 => $e700
        LRANGE f 699 701 => [$e699 $other $e701]
        MOVE e 3 => :1
        ",
    );
    eventually(|| client.ask("DBSIZE") == ":2");
    client.talk(
        "COPY f g => :1\nLTRIM f 1 0 => +OK\nLTRIM g 1000 1001 => +OK\nLRANGE g 0 -1 => [$e1000 $e1001]",
    );
    client.talk("FLUSHDB => +OK\nDBSIZE => :0\nSELECT 3 => +OK\nLLEN e => :3000");
    server.restart();
    server.client().talk("SELECT 3 => +OK\nLRANGE e 2998 -1 => [$e2998 $e2999]");
    server.check();
}

#[test]
fn the_digest_of_a_list_depends_on_the_order_only() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("RPUSH a x y => :2\nRPUSH b y x => :2\nLPUSH c y x => :2");
    let mut digest = |key: &str| client.ask(&format!("DEBUG DIGEST-VALUE {key}"));
    let (a, b, c) = (digest("a"), digest("b"), digest("c"));
    assert!(a != b && a == c, "{a} {b} {c}");
}
