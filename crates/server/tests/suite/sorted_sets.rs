//! Sorted sets: what their commands answer, and what becomes of large ones.

use crate::support::{Client, Fixture, eventually};

/// Lets `key` be a sorted set of this many members, `m0` with the score 0 and so on.
fn fill(client: &mut Client, key: &str, members: usize) {
    for first in (0..members).step_by(500) {
        let words: Vec<_> =
            (first..members.min(first + 500)).map(|member| format!("{member} m{member}")).collect();
        let reply = client.ask(&format!("ZADD {key} {}", words.join(" ")));
        assert_eq!(reply, format!(":{}", words.len()));
    }
}

#[test]
fn members_and_scores_answer_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        ZADD z 3 c 1 a 2 b => :3
        ZADD z 2 c 1 a => :0
        ZRANGE z 0 -1 WITHSCORES => [$a $1 $b $2 $c $2]
        ZADD z NX 9 a 0.1 d => :1
        ZSCORE z d => $0.10000000000000001
        ZADD z XX CH 5 a 5 e => :1
        ZADD z GT CH 4 a 6 b => :1
        ZADD z LT 7 a => :0
        ZADD z INCR 1.5 a => $6.5
        ZADD z NX INCR 1.5 a => nil
        ZADD z NX XX 1 a => -ERR XX and NX options at the same time are not compatible
        ZADD z x a => -ERR value is not a valid float
        ZADD z 1 => -ERR wrong number of arguments for 'zadd' command
        ZADD z 1 a 2 => -ERR syntax error
        ZADD z inf i => :1
        ZINCRBY z -inf i => -ERR resulting score is not a number (NaN)
        ZINCRBY z -1 b => $5
        ZMSCORE z a x b => [$6.5 nil $5]
        ZCARD z => :5
        ZRANK z c => :1
        ZREVRANK z c => :3
        ZRANK z x => nil
        ZCOUNT z 2 (6.5 => :2
        ZCOUNT z x 2 => -ERR min or max is not a float
        ZRANGE z (2 +inf BYSCORE LIMIT 1 2 => [$a $i]
        ZRANGE z +inf 5 BYSCORE REV => [$i $a $b]
        ZREVRANGEBYSCORE z 6.5 2 WITHSCORES LIMIT 0 1 => [$a $6.5]
        ZREVRANGE z 0 1 => [$i $a]
        ZRANGESTORE y z 1 2 => :2
        ZRANGE y 0 -1 => [$c $b]
        ZREMRANGEBYSCORE z 6 10 => :1
        ZREMRANGEBYRANK z -1 -1 => :1
        ZREM z d x => :1
        ZPOPMIN z => [$c $2]
        ZPOPMAX z 5 => [$b $5]
        EXISTS z => :0
        ZPOPMIN z => []
        ",
    );
    server.check();
}

#[test]
fn ranges_of_names_and_encodings_answer_as_in_redis() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        ZADD y 2 c 5 b => :2
        ZADD l 0 a 0 b 0 c 0 d => :4
        ZRANGEBYLEX l [b (d => [$b $c]
        ZREVRANGEBYLEX l + [c => [$d $c]
        ZLEXCOUNT l - (c => :2
        ZREMRANGEBYLEX l [a (c => :2
        ZMPOP 2 z l MAX COUNT 5 => [$l [[$d $0] [$c $0]]]
        ZMPOP 2 z l MIN => nil
        TYPE y => +zset
        OBJECT ENCODING y => $listpack
        CONFIG SET zset-max-listpack-entries 2 => +OK
        ZADD y 1 e => :1
        OBJECT ENCODING y => $skiplist
        GET y => -WRONGTYPE Operation against a key holding the wrong kind of value
        SADD s x => :1
        ZADD s 1 x => -WRONGTYPE Operation against a key holding the wrong kind of value
        SCAN 0 TYPE zset => [$0 [$y]]
        ZSCAN y 0 MATCH e => [$0 [$e $1]]
        ",
    );
    server.check();
}

#[test]
fn unions_intersections_and_differences_answer_as_in_redis() {
    let server = Fixture::start();
    server.client().talk(
        "
        ZADD a 1 x 2 y 3 z => :3
        ZADD b 10 y 20 z 30 w => :3
        SADD s y v => :2
        ZUNION 2 a b WITHSCORES => [$x $1 $y $12 $z $23 $w $30]
        ZUNION 2 a b WEIGHTS 2 -1 AGGREGATE MIN WITHSCORES => [$w $-30 $z $-20 $y $-10 $x $2]
        ZINTER 3 a b s WITHSCORES => [$y $13]
        ZINTERCARD 2 a b LIMIT 1 => :1
        ZDIFF 2 a s WITHSCORES => [$x $1 $z $3]
        ZUNIONSTORE u 2 a s AGGREGATE MAX => :4
        ZRANGE u 0 -1 WITHSCORES => [$v $1 $x $1 $y $2 $z $3]
        ZINTERSTORE u 2 a missing => :0
        EXISTS u => :0
        ZDIFFSTORE a 2 a b => :1
        ZRANGE a 0 -1 => [$x]
        ZUNION 0 a => -ERR at least 1 input key is needed for 'zunion' command
        ZUNION 3 a b => -ERR syntax error
        COMMAND GETKEYS ZUNIONSTORE u 2 a b WEIGHTS 1 2 => [$u $a $b]
        COMMAND GETKEYS ZUNION 2 a b => [$a $b]
        ",
    );
    server.check();
}

#[test]
fn large_sorted_sets_are_walked_ranked_and_scanned_to_their_ends() {
    let mut server = Fixture::start();
    let mut client = server.client();
    fill(&mut client, "z", 3000);
    client.talk(
        "
        ZRANK z m1234 => :1234
        ZREVRANK z m1234 => :1765
        ZRANGE z 1500 1502 => [$m1500 $m1501 $m1502]
        ZREVRANGE z 1500 1502 => [$m1499 $m1498 $m1497]
        ZCOUNT z (100 200 => :100
        ZADD z 0.5 m2999 => :0
        ZRANK z m2999 => :1
        ZREMRANGEBYRANK z 10 2000 => :1991
        ZRANGE z 8 11 => [$m7 $m8 $m2000 $m2001]
        ",
    );
    server.restart();
    client = server.client();
    let (mut cursor, mut seen) = ("0".to_owned(), std::collections::HashSet::new());
    loop {
        let reply = client.ask(&format!("ZSCAN z {cursor} COUNT 100"));
        let words: Vec<_> = reply.split([' ', '[', ']']).filter(|word| !word.is_empty()).collect();
        cursor = words[0][1..].to_owned();
        seen.extend(words[1..].chunks(2).map(|pair| pair[0].to_owned()));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1009);
    server.check();
}

#[test]
fn large_sorted_sets_are_replaced_renamed_copied_moved_and_expire() {
    let mut server = Fixture::start();
    let mut client = server.client();
    for key in ["a", "b", "c", "e"] {
        fill(&mut client, key, 1000);
    }
    client.talk(
        "
        DEL a => :1
        SET b string => +OK
        RENAME c d => +OK
        ZRANK d m999 => :999
        PEXPIRE d 1 => :1
        COPY e f => :1
        ZADD f 2000 m0 => :0
        ZRANGE e 0 0 => [$m0]
        ZRANGE f 0 0 => [$m1]
        MOVE e 3 => :1
        MULTI => +OK
        ZADD f 5 new => +QUEUED
        ZRANK f new => +QUEUED
        ZREM f new => +QUEUED
        EXEC => [:1 :5 :1]
        ",
    );
    eventually(|| client.ask("DBSIZE") == ":2");
    server.restart();
    client = server.client();
    client.talk("SELECT 3 => +OK\nZRANK e m500 => :500\nFLUSHALL => +OK\nZCARD e => :0");
    (0..100).for_each(|_| client.talk("PING => +PONG"));
    server.check();
}
