//! String commands.

use crate::support::{Fixture, show};

#[test]
fn get_and_set() {
    let server = Fixture::start();
    server.client().talk(
        "
        GET k => nil
        SET k value => +OK
        get k => $value
        SET k '' => +OK
        GET k => $
        STRLEN k => :0
        STRLEN missing => :0
        SET k value EX => -ERR syntax error
        SET k value EX 1 PX 1 => -ERR syntax error
        SET k value NX XX => -ERR syntax error
        SET k value KEEPTTL EX 1 => -ERR syntax error
        SET k value PERSIST => -ERR syntax error
        SET k value EX 0 => -ERR invalid expire time in 'set' command
        SET k value EX -1 => -ERR invalid expire time in 'set' command
        SET k value EX 9223372036854775 => -ERR invalid expire time in 'set' command
        SET k value PX 9223372036854775807 => -ERR invalid expire time in 'set' command
        SET k value EX x => -ERR value is not an integer or out of range
        GET => -ERR wrong number of arguments for 'get' command
        SET k => -ERR wrong number of arguments for 'set' command
        GET k => $
        ",
    );
}

#[test]
fn set_on_conditions() {
    let server = Fixture::start();
    server.client().talk(
        "
        SET k v XX => nil
        GET k => nil
        SET k v1 NX => +OK
        SET k v2 NX => nil
        GET k => $v1
        SET k v2 XX => +OK
        SET k v3 GET => $v2
        SET k v4 XX GET => $v3
        SET k v5 NX GET => $v4
        GET k => $v4
        SET new v NX GET => nil
        GET new => $v
        SET missing v XX GET => nil
        GET missing => nil
        SETNX k v6 => :0
        SETNX k2 v6 => :1
        GET k2 => $v6
        GETSET k v7 => $v4
        GETSET k3 v => nil
        GET k => $v7
        ",
    );
}

#[test]
fn set_with_ttl() {
    let server = Fixture::start();
    server.client().talk(
        "
        SET k v EX 100 => +OK
        TTL k => :100
        SET k v2 KEEPTTL => +OK
        TTL k => :100
        SET k v3 => +OK
        TTL k => :-1
        SET k v PX 100000 => +OK
        TTL k => :100
        SET k v EXAT 33177117420 => +OK
        EXPIRETIME k => :33177117420
        SET k v PXAT 33177117420123 => +OK
        PEXPIRETIME k => :33177117420123
        SET k v PXAT 1 => +OK
        GET k => nil
        SETEX k 100 v => +OK
        TTL k => :100
        GETSET k v => $v
        TTL k => :-1
        PSETEX k 100000 v => +OK
        TTL k => :100
        SETEX k 0 v => -ERR invalid expire time in 'setex' command
        PSETEX k -5 v => -ERR invalid expire time in 'psetex' command
        SETEX k x v => -ERR value is not an integer or out of range
        SET other v KEEPTTL => +OK
        TTL other => :-1
        ",
    );
}

#[test]
fn getdel_and_getex() {
    let server = Fixture::start();
    server.client().talk(
        "
        GETDEL k => nil
        SET k v EX 100 => +OK
        GETDEL k => $v
        EXISTS k => :0
        GETEX k EX 10 => nil
        SET k v => +OK
        GETEX k => $v
        TTL k => :-1
        GETEX k EX 100 => $v
        TTL k => :100
        GETEX k => $v
        TTL k => :100
        GETEX k PERSIST => $v
        TTL k => :-1
        GETEX k PXAT 33177117420123 => $v
        PEXPIRETIME k => :33177117420123
        GETEX k PERSIST EX 10 => -ERR syntax error
        GETEX k NX => -ERR syntax error
        GETEX k EX 0 => -ERR invalid expire time in 'getex' command
        GETEX k PXAT 1 => $v
        EXISTS k => :0
        ",
    );
}

#[test]
fn several_keys_at_once() {
    let server = Fixture::start();
    server.client().talk(
        "
        MSET a 1 b 2 => +OK
        MGET a missing b a => [$1 nil $2 $1]
        MSET a 1 b => -ERR wrong number of arguments for 'mset' command
        MSETNX c 3 a 4 => :0
        GET c => nil
        MSETNX c 3 d 4 => :1
        MGET c d => [$3 $4]
        MSETNX x 1 x 2 => :1
        GET x => $2
        MSETNX a => -ERR wrong number of arguments for 'msetnx' command
        MSETNX a 1 b => -ERR wrong number of arguments for 'msetnx' command
        MSET d 1 d 2 => +OK
        GET d => $2
        MGET => -ERR wrong number of arguments for 'mget' command
        ",
    );
}

#[test]
fn parts_of_strings() {
    let server = Fixture::start();
    server.client().talk(
        "
        APPEND k Hello => :5
        APPEND k ' World' => :11
        GET k => $Hello World
        GETRANGE k 0 4 => $Hello
        GETRANGE k -5 -1 => $World
        SUBSTR k 0 -1 => $Hello World
        GETRANGE k 5 3 => $
        GETRANGE missing 0 -1 => $
        GETRANGE k x 1 => -ERR value is not an integer or out of range
        SETRANGE k 6 Redis => :11
        GET k => $Hello Redis
        SETRANGE k 12 ! => :13
        GET k => $Hello Redis\\x00!
        SETRANGE missing 0 '' => :0
        EXISTS missing => :0
        SETRANGE padded 2 x => :3
        GET padded => $\\x00\\x00x
        SETRANGE k -1 x => -ERR offset is out of range
        SETRANGE k 536870912 x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        SETRANGE k 9223372036854775807 x => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        EXPIRE k 100 => :1
        APPEND k . => :14
        SETRANGE k 0 J => :14
        TTL k => :100
        ",
    );
}

#[test]
fn common_subsequences() {
    let server = Fixture::start();
    server.client().talk(
        "
        LCS a b => $
        LCS a b LEN => :0
        MSET a ohmytext b mynewtext => +OK
        LCS a b => $mytext
        lcs b a => $mytext
        LCS a b LEN => :6
        LCS a b len LEN => :6
        LCS a a => $ohmytext
        LCS a b IDX => [$matches [[[:4 :7] [:5 :8]] [[:2 :3] [:0 :1]]] $len :6]
        LCS a b IDX MINMATCHLEN 4 => [$matches [[[:4 :7] [:5 :8]]] $len :6]
        LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN => [$matches [[[:4 :7] [:5 :8] :4]] $len :6]
        LCS a missing IDX => [$matches [] $len :0]
        LCS a b MINMATCHLEN 4 WITHMATCHLEN => $mytext
        LCS a b IDX LEN => -ERR If you want both the length and indexes, please just use IDX.
        LCS a b MINMATCHLEN => -ERR syntax error
        LCS a b MINMATCHLEN x => -ERR value is not an integer or out of range
        LCS a missing => $
        LCS missing a LEN => :0
        MSET c ab d ba => +OK
        LCS c d => $b
        LCS d c => $a
        SET e '' => +OK
        LCS a e => $
        SETRANGE f 1 z => :2
        SETRANGE g 2 z => :3
        LCS f g => $\\x00z
        SET h v PXAT 1 => +OK
        LCS a h LEN => :0
        LCS a b NOSUCH => -ERR syntax error
        LCS a b LEN x => -ERR syntax error
        LCS => -ERR wrong number of arguments for 'lcs' command
        LCS a => -ERR wrong number of arguments for 'lcs' command
        COMMAND GETKEYS LCS a b LEN => [$a $b]
        ",
    );
}

#[test]
fn counters() {
    let server = Fixture::start();
    server.client().talk(
        "
        INCR n => :1
        INCRBY n 41 => :42
        DECR n => :41
        DECRBY n 50 => :-9
        GET n => $-9
        INCRBY n x => -ERR value is not an integer or out of range
        SET n 9223372036854775807 => +OK
        INCR n => -ERR increment or decrement would overflow
        GET n => $9223372036854775807
        SET n -9223372036854775808 => +OK
        DECR n => -ERR increment or decrement would overflow
        DECRBY n -9223372036854775808 => -ERR decrement would overflow
        SET n 01 => +OK
        INCR n => -ERR value is not an integer or out of range
        SET n ' 1' => +OK
        INCR n => -ERR value is not an integer or out of range
        SET n 5 EX 100 => +OK
        INCR n => :6
        TTL n => :100
        INCRBYFLOAT f 10.5 => $10.5
        INCRBYFLOAT f 0.1 => $10.6
        INCRBYFLOAT f -5.6 => $5
        INCRBYFLOAT f 5.0e3 => $5005
        INCRBYFLOAT f x => -ERR value is not a valid float
        INCRBYFLOAT f inf => -ERR increment would produce NaN or Infinity
        SET f text => +OK
        INCRBYFLOAT f 1 => -ERR value is not a valid float
        INCR f => -ERR value is not an integer or out of range
        ",
    );
}

#[test]
fn keys_and_values_are_any_bytes() {
    let server = Fixture::start();
    let mut client = server.client();
    let every_byte: Vec<u8> = (0..=255).collect();
    for key in [&b""[..], b"\0", b"\r\n", b"$5\r\n", &every_byte, &[0xff; 65_528]] {
        for value in [&b""[..], b"\0\0", b"+OK\r\n", &every_byte, &[7; 100_000]] {
            assert_eq!(show(&client.run(&[b"SET", key, value])), "+OK");
            assert_eq!(client.run(&[b"GET", key]).as_bytes(), Some(value));
        }
    }
    assert_eq!(client.ask("DBSIZE"), ":6");
}

#[test]
fn a_key_may_be_too_long() {
    let server = Fixture::start();
    let mut client = server.client();
    let key = vec![b'k'; 65_529];
    let refused = "-ERR key exceeds the maximum of 65528 bytes";
    assert_eq!(show(&client.run(&[b"SET", &key, b"v"])), refused);
    assert_eq!(show(&client.run(&[b"INCR", &key])), refused);
    assert_eq!(show(&client.run(&[b"GET", &key])), "nil");
    assert_eq!(show(&client.run(&[b"DEL", &key])), ":0");
    assert_eq!(show(&client.run(&[b"MSET", b"a", b"1", &key, b"2"])), refused);
    assert_eq!(client.ask("EXISTS a"), ":0", "a refused command leaves nothing");
}
