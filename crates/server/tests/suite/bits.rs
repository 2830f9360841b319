//! Bitmaps, bitfields, HyperLogLogs and places: conversations, and what the comparison with Redis cannot
//! show.

use crate::peer::Random;
use crate::support::{Fixture, show};

#[test]
fn bits_of_strings_are_set_counted_and_found() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        SETBIT k 7 1 => :0
        SETBIT k 7 1 => :1
        GET k => $\\x01
        OBJECT ENCODING k => $raw
        SETBIT k 20 1 => :0
        STRLEN k => :3
        GETBIT k 20 => :1
        GETBIT k 1000 => :0
        GETBIT missing 0 => :0
        BITCOUNT k => :2
        BITCOUNT k 1 -1 => :1
        BITCOUNT k 0 7 BIT => :1
        BITCOUNT k 8 19 BIT => :0
        BITCOUNT missing x y z => :0
        BITCOUNT k 0 => -ERR syntax error
        BITPOS k 1 => :7
        BITPOS k 1 1 => :20
        BITPOS k 0 => :0
        BITPOS k 1 8 19 BIT => :-1
        BITPOS k 2 => -ERR The bit argument must be 1 or 0.
        SET ones '\u{7f}' => +OK
        BITPOS ones 0 => :0
        BITPOS ones 0 0 -1 => :0
        SETBIT ones 0 1 => :0
        BITPOS ones 0 => :8
        BITPOS ones 0 0 -1 => :-1
        BITPOS missing 0 => :0
        BITPOS missing 1 => :-1
        BITOP AND d k ones => :3
        BITOP OR d k missing => :3
        BITOP NOT d ones => :1
        BITOP NOT d k ones => -ERR BITOP NOT must be called with a single source key.
        BITOP XOR d missing missing => :0
        EXISTS d => :0
        SETBIT k 4294967296 1 => -ERR bit offset is not an integer or out of range
        SETBIT k 1 2 => -ERR bit is not an integer or out of range
        HSET h f v => :1
        SETBIT h 1 1 => -WRONGTYPE Operation against a key holding the wrong kind of value
        EXPIRE k 1000 => :1
        SETBIT k 0 1 => :0
        TTL k => :1000
        ",
    );
    server.restart();
    server.client().talk("GETBIT k 0 => :1\nBITCOUNT k => :3");
    server.check();
}

#[test]
fn integers_of_any_width_are_read_set_and_added_to() {
    let server = Fixture::start();
    server.client().talk(
        "
        BITFIELD k SET u8 0 255 GET u8 0 GET u4 4 GET i8 0 => [:0 :255 :15 :-1]
        BITFIELD k INCRBY u8 0 1 => [:0]
        BITFIELD k OVERFLOW SAT INCRBY u2 100 5 INCRBY u2 102 -5 => [:3 :0]
        BITFIELD k OVERFLOW FAIL INCRBY u2 100 1 => [nil]
        BITFIELD k SET i5 #2 -16 GET i5 #2 => [:0 :-16]
        BITFIELD k INCRBY i5 #2 -1 => [:15]
        BITFIELD k OVERFLOW SAT SET i8 200 -9223372036854775808 GET i8 200 => [:0 :127]
        BITFIELD k GET u64 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
        BITFIELD k => []
        BITFIELD k GET u8 => -ERR syntax error
        BITFIELD k OVERFLOW x => -ERR Invalid OVERFLOW type specified
        BITFIELD_RO k GET u8 0 => [:0]
        BITFIELD_RO k SET u8 0 1 => -ERR BITFIELD_RO only supports the GET subcommand
        BITFIELD missing GET u8 0 => [:0]
        EXISTS missing => :0
        BITFIELD grown OVERFLOW FAIL SET u8 0 256 => [nil]
        STRLEN grown => :1
        ",
    );
    server.check();
}

#[test]
fn hyperloglogs_estimate_and_are_merged() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        PFADD h a b c d e f g => :1
        PFADD h a => :0
        PFCOUNT h => :7
        PFDEBUG ENCODING h => +sparse
        PFADD empty => :1
        PFADD empty => :0
        PFCOUNT empty missing => :0
        PFADD g x => :1
        PFCOUNT h g => :8
        PFMERGE m h g => +OK
        PFCOUNT m => :8
        PFDEBUG TODENSE m => :1
        PFDEBUG TODENSE m => :0
        PFDEBUG DECODE m => -ERR HLL encoding is not sparse
        PFCOUNT m => :8
        STRLEN m => :12304
        PFMERGE g m => +OK
        PFDEBUG ENCODING g => +dense
        PFDEBUG nosuch g => -ERR Unknown PFDEBUG subcommand 'nosuch'
        PFDEBUG GETREG missing => -ERR The specified key does not exist
        PFSELFTEST => +OK
        SET s HYLL => +OK
        PFADD s x => -WRONGTYPE Key is not a valid HyperLogLog string value.
        PFCOUNT s h => -WRONGTYPE Key is not a valid HyperLogLog string value.
        ",
    );
    server.check();
}

#[test]
fn hyperloglogs_keep_their_estimate() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        PFADD h a b c d e f g => :1
        PFCOUNT h => :7
        PFDEBUG ENCODING h => +sparse
        CONFIG GET hll-sparse-max-bytes => [$hll-sparse-max-bytes $3000]
        CONFIG SET hll-sparse-max-bytes 20 => +OK
        PFADD h more of them => :1
        PFDEBUG ENCODING h => +dense
        WATCH h => +OK
        PFCOUNT h => :10
        MULTI => +OK
        PING => +QUEUED
        EXEC => nil
        ",
    );
    let before = client.run(&[b"GET", b"h"]);
    server.restart();
    client = server.client();
    assert_eq!(client.run(&[b"GET", b"h"]), before);
    // The estimate that is kept is the reply, whatever the registers say.
    let mut bytes = before.as_bytes().unwrap().to_vec();
    bytes[8] = 77;
    client.run(&[b"SET", b"h", &bytes]);
    client.talk("PFCOUNT h => :77");
    bytes[4] = 1;
    client.run(&[b"SET", b"corrupt", &bytes]);
    client.talk(
        "
        PFCOUNT corrupt h => -INVALIDOBJ Corrupted HLL object detected
        PFMERGE d corrupt => -INVALIDOBJ Corrupted HLL object detected
        PFDEBUG TODENSE corrupt => -INVALIDOBJ Corrupted HLL object detected
        EXISTS d => :0
        ",
    );
    server.check();
}

/// PFCOUNT reads, though it writes its estimate where there is room.
#[test]
fn estimates_are_given_in_a_full_pool() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(16 << 20).max_bytes(16 << 20));
    let mut client = server.client();
    client.talk("PFADD h a b c => :1\nPFDEBUG TODENSE h => :1");
    let value = vec![b'v'; 64 << 10];
    let mut number = 0;
    for len in [64 << 10, 1 << 10, 32] {
        while show(&client.run(&[b"SET", number.to_string().as_bytes(), &value[..len]])) == "+OK" {
            number += 1;
        }
    }
    client.talk("PFCOUNT h => :3\nPFCOUNT h => :3\nMULTI => +OK\nPFCOUNT h => +QUEUED\nEXEC => [:3]");
    let refused = client.ask("PFADD h d e f");
    assert!(refused.starts_with("-OOM"), "{refused}");
    client.talk("FLUSHALL => +OK\nPFCOUNT h => :0");
    server.check();
}

#[test]
fn places_are_added_found_and_stored() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania => :2
        ZSCORE Sicily Palermo => $3479099956230698
        GEODIST Sicily Palermo Catania => $166274.1516
        GEODIST Sicily Palermo Catania mi => $103.3182
        GEODIST Sicily Palermo nobody => nil
        GEODIST Sicily Palermo Catania foot => -ERR unsupported unit provided. please use M, KM, FT, MI
        GEOHASH Sicily Palermo nobody => [$sqc8b49rny0 nil]
        GEOPOS Sicily Catania nobody => [[$15.08726745843887329 $37.50266842333162032] nil]
        GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC => [$Catania $Palermo]
        GEOSEARCH Sicily FROMMEMBER Palermo BYBOX 1 1 m WITHDIST WITHHASH => [[$Palermo $0.0000 :3479099956230698]]
        GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 => [$Catania]
        GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ANY => -ERR the ANY argument requires COUNT argument
        geoSearch Sicily FROMLONLAT 15 37 ASC ASC ASC => -ERR exactly one of BYRADIUS and BYBOX can be specified for geoSearch
        GEOSEARCH Sicily FROMMEMBER x BYRADIUS 1 m => -ERR could not decode requested zset member
        GEOSEARCH missing FROMMEMBER x BYRADIUS 1 m => []
        GEOSEARCHSTORE near Sicily FROMLONLAT 15 37 BYRADIUS 100 km STOREDIST => :1
        ZRANGE near 0 -1 WITHSCORES => [$Catania $56.441257870158204]
        GEORADIUS Sicily 15 37 200 km STORE near => :2
        GEOPOS near Palermo => [[$13.36138933897018433 $38.11555639549629859]]
        GEORADIUSBYMEMBER Sicily Palermo 1 km WITHCOORD STORE x => -ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options
        GEORADIUS_RO Sicily 15 37 200 km STORE near => -ERR syntax error
        GEOADD Sicily NX 0 0 Palermo => :0
        GEOADD Sicily XX CH 0 0 Palermo 1 1 nobody => :1
        GEOADD Sicily NX XX 0 0 Palermo => -ERR syntax error
        GEOADD Sicily 181 0 x => -ERR invalid longitude,latitude pair 181.000000,0.000000
        GEOADD Sicily 0 86 x => -ERR invalid longitude,latitude pair 0.000000,86.000000
        COMMAND GETKEYS GEORADIUS a 1 1 1 m STORE b => [$a $b]
        ",
    );
    client.ask("HELLO 3");
    client.send_raw(b"GEOPOS Sicily Catania\r\n");
    // The text of a double, which no client's number shows.
    let expected = b"*1\r\n*2\r\n,15.08726745843887329\r\n,37.50266842333162032\r\n";
    let mut reply = vec![0; expected.len()];
    std::io::Read::read_exact(&mut client.stream, &mut reply).unwrap();
    assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string());
    server.restart();
    server.client().talk("GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 1 ft => [$Palermo]");
    server.check();
}

/// Places on both sides of the date line, and at a pole's end of the world. They are found as in Redis, whose
/// bounds do not go round: not all that are near.
#[test]
fn places_at_the_ends_of_the_world_are_kept() {
    let server = Fixture::start();
    server.client().talk(
        "
        GEOADD g 180 85.05112878 ne -180 -85.05112878 sw 180 0 e -180 0 w => :4
        GEODIST g e w => $0.2983
        GEOPOS g ne => [[$180 $85.0511287799999991]]
        GEOHASH g ne sw => [$bp05b5048p0 $00bh0hbj200]
        GEOSEARCH g FROMMEMBER w BYRADIUS 1 km => [$w]
        ",
    );
    server.check();
}

/// Arguments and values that nobody means well: each gets a reply, and the pool stays sound.
/// Commands that take hostile arguments.
const HOSTILE_NAMES: &str = "\
    SETBIT GETBIT BITCOUNT BITPOS BITOP BITFIELD BITFIELD_RO PFADD PFCOUNT PFMERGE PFDEBUG GEOADD \
    GEODIST GEOHASH GEOPOS GEOSEARCH GEOSEARCHSTORE GEORADIUS GEORADIUSBYMEMBER ZADD SET APPEND SETRANGE \
    DEL";

/// Hostile arguments; an empty one is the last.
const HOSTILE_WORDS: &str = "\
    0 1 -1 7 63 64 4095 9223372036854775807 -9223372036854775808 #0 #9223372036854775807 u1 u63 u64 i1 \
    i64 i65 GET SET INCRBY OVERFLOW SAT FAIL WRAP BIT BYTE AND OR XOR NOT GETREG DECODE TODENSE ENCODING \
    nan inf -inf 1e308 -1e308 1e-320 180 -180 85.05112878 -85.05112878 0.0000001 m km ft mi FROMMEMBER \
    FROMLONLAT BYRADIUS BYBOX COUNT ANY ASC DESC STORE STOREDIST WITHDIST WITHHASH WITHCOORD CH NX a b \
    k0 k1 k2 k3 HYLL \u{ff} \0 ";

/// Well formed as far as the places of arguments go, so that more than the parser is reached.
const HOSTILE_TEMPLATES: &[&str] = &[
    "BITFIELD K GET W W SET W W W INCRBY W W W",
    "GEOSEARCH K FROMLONLAT W W BYBOX W W km WITHDIST WITHCOORD WITHHASH",
    "GEOSEARCH K FROMMEMBER W BYRADIUS W mi COUNT W ANY DESC",
    "GEOSEARCHSTORE K K FROMLONLAT W W BYRADIUS W km STOREDIST",
    "GEOADD K W W W W W W",
    "ZADD K W W W W",
    "GEODIST K W W W",
    "PFCOUNT K K K",
    "PFMERGE K K K",
    "BITOP W K K K",
];

/// A HyperLogLog of chance, or something close to one.
fn hostile_sketch(random: &mut Random) -> Vec<u8> {
    let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    (0..random.below(30)).for_each(|_| bytes.push(random.below(256) as u8));
    if random.below(4) == 0 {
        bytes[random.below(5)] = random.below(3) as u8;
        bytes.resize(12_304, 0xFF);
    }
    bytes
}

fn hostile_command(random: &mut Random, names: &[&str], words: &[&str]) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = match random.below(3) {
        0 => std::iter::once(random.pick(names))
            .chain((0..random.below(9)).map(|_| "W"))
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        _ => random.pick(HOSTILE_TEMPLATES).split(' ').map(|word| word.as_bytes().to_vec()).collect(),
    };
    for arg in &mut args {
        match &arg[..] {
            b"K" => *arg = format!("k{}", random.below(4)).into_bytes(),
            b"W" if random.below(40) == 0 => *arg = hostile_sketch(random),
            b"W" => *arg = random.pick(words).as_bytes().to_vec(),
            _ => {}
        }
    }
    if random.below(25) == 0 {
        let key = format!("k{}", random.below(4)).into_bytes();
        args = vec![b"SET".to_vec(), key, hostile_sketch(random)];
    }
    args
}

#[test]
fn hostile_arguments_and_values_get_replies() {
    let server = Fixture::with_config(|config| {
        config.limits.max_bulk_bytes = 1 << 20;
        config.hll_sparse_bytes = 60;
    });
    let mut client = server.client();
    let mut random = Random(0x7e3b_0062);
    let names: Vec<&str> = HOSTILE_NAMES.split(' ').collect();
    let words: Vec<&str> = HOSTILE_WORDS.split(' ').collect();
    for _ in 0..12_000 {
        let args = hostile_command(&mut random, &names, &words);
        client.run(&args.iter().map(|arg| &arg[..]).collect::<Vec<_>>());
    }
    client.talk("PING => +PONG");
    server.check();
}
