//! Bitmaps, bitfields, HyperLogLogs and places, on Tembo and on a real Redis, where there is one: the replies
//! must be the same, and so must be what is stored, byte for byte.
//!
//! Differences by design are kept out:
//!
//! - Of members at the same distance, Redis chooses by chance which ones a COUNT leaves out.
//! - A change of a bit to what it is, and a PFADD that changes nothing, leave OBJECT ENCODING as it is, where
//!   Redis gives up `int` and `embstr`.
//! - PFADD with several elements on a corrupt HyperLogLog changes nothing. Redis keeps what it has done until
//!   it finds the corruption. A run that is cut off at the end of a value is corruption; Redis reads on. No
//!   crafted sketch ends in such a run.
//! - The last digit of the distance of places that are almost opposite.

use tembo_wire::Value;

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0061;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";

type Args = Vec<Vec<u8>>;

/// The words of a text as arguments.
fn words(text: &str) -> Args {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn run(client: &mut Client, commands: &[Args]) -> Vec<Value> {
    let encode = |args: &Args| request(&args.iter().map(|arg| &arg[..]).collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(encode).collect::<Vec<u8>>());
    commands.iter().map(|_| client.receive()).collect()
}

fn shown(args: &Args) -> String {
    let show = |arg: &Vec<u8>| {
        let shown: String = arg.escape_ascii().to_string();
        if shown.len() > 100 { format!("{}... ({} bytes)", &shown[..100], arg.len()) } else { shown }
    };
    args.iter().map(show).collect::<Vec<_>>().join(" ")
}

/// The least distance, in miles, of places that are almost opposite.
const ALMOST_OPPOSITE: f64 = 12_000.0;

/// Whether two replies are equal, but for the last digit of long distances.
fn is_same(tembo: &Value, redis: &Value) -> bool {
    let distance = |value: &Value| match value {
        Value::Bulk(text) if text.contains(&b'.') => str::from_utf8(text).ok()?.parse::<f64>().ok(),
        _ => None,
    };
    match (tembo, redis) {
        (a, b) if a == b => true,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (a, b) => match (distance(a), distance(b)) {
            (Some(a), Some(b)) => a > ALMOST_OPPOSITE && (a - b).abs() < 1.5e-4,
            _ => false,
        },
    }
}

/// Long replies are compared, but not shown as a whole.
fn clipped(value: &Value) -> String {
    let text = show(value);
    text.chars().take(1000).collect()
}

/// The last commands before that name the same key.
fn recent(history: &[Args], args: &Args) -> String {
    let same = |other: &&Args| args.get(1).is_some_and(|key| other[1..].contains(key));
    let mut recent: Vec<_> = history.iter().rev().filter(same).take(12).map(shown).collect();
    recent.reverse();
    recent.join("\n")
}

/// Runs rounds of a few commands each on both servers, in both protocols.
fn compare(rounds: usize, mut draw: impl FnMut(&mut Random) -> Vec<Args>) {
    let Some((redis, _)) = start_redis() else { return };
    let mut server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for protocol in ["HELLO 2", "HELLO 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        for client in [&mut ours, &mut theirs] {
            client.ask(protocol);
            client.ask("CONFIG SET hll-sparse-max-bytes 3000");
        }
        let mut history: Vec<Args> = Vec::new();
        for round in 0..rounds {
            let commands: Vec<_> = (0..8).flat_map(|_| draw(&mut random)).collect();
            let replies = run(&mut ours, &commands).into_iter().zip(run(&mut theirs, &commands));
            for (args, (tembo, redis)) in commands.iter().zip(replies) {
                assert!(
                    is_same(&tembo, &redis),
                    "{SEED_VARIABLE}={seed}, {protocol}, round {round}: {}\n  tembo {}\n  redis {}\nbefore:\n{}",
                    shown(args),
                    clipped(&tembo),
                    clipped(&redis),
                    recent(&history, args)
                );
                history.push(args.clone());
            }
        }
        server.restart();
    }
    server.check();
}

/// Words that are wrong at most places.
const AWKWARD: &[&str] = &[
    "",
    "-1",
    "+1",
    "01",
    "1.5",
    "x",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "#",
    "#-1",
    "#x",
    "i8",
    "u64",
    "BIT",
    "byte",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "get",
    "STOREDIST",
    "COUNT",
    "any",
    "withdist",
    "asc",
    "wrong:type",
];

/// Spoils a command now and then: another word in one place, a word less, or one more.
fn spoiled(random: &mut Random, mut args: Args) -> Args {
    let word = random.pick(AWKWARD).as_bytes().to_vec();
    match random.below(60) {
        0 => args.push(word),
        1 if args.len() > 2 => {
            args.pop();
        }
        2 | 3 if args.len() > 1 => {
            let at = 1 + random.below(args.len() - 1);
            args[at] = word;
        }
        _ => {}
    }
    args
}

/// The lengths of strings, in bytes, around those that the pool and the loops treat differently.
const LENGTHS: &[usize] = &[0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 129, 511, 512, 513, 1500, 9000];

fn bitmap_key(random: &mut Random) -> String {
    format!("bits:{}", random.below(8))
}

fn bits_offset(random: &mut Random) -> usize {
    let at = random.pick(LENGTHS) * 8;
    (at + random.below(19)).saturating_sub(9)
}

/// An end of a range, in bits or in bytes.
fn range_end(random: &mut Random) -> String {
    let at = bits_offset(random) as i64;
    let at = if random.below(2) == 0 { at / 8 } else { at };
    (if random.below(3) == 0 { -at } else { at }).to_string()
}

fn filled(random: &mut Random) -> Vec<u8> {
    let len = random.pick(LENGTHS);
    match random.below(4) {
        0 => vec![0; len],
        1 => vec![0xFF; len],
        2 => random.pick(&["12", "-5", "text", "9223372036854775807"]).as_bytes().to_vec(),
        _ => (0..len).map(|_| random.below(256) as u8).collect(),
    }
}

fn integer_type(random: &mut Random) -> String {
    let width = random.pick(&[1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 33, 62, 63, 64]);
    format!("{}{width}", random.pick(&["i", "u"]))
}

fn integer(random: &mut Random) -> i64 {
    let power = 1_i64 << random.below(63);
    let near = random.below(5) as i64 - 2;
    match random.below(6) {
        0 => near,
        1 => i64::MAX - random.below(3) as i64,
        2 => i64::MIN + random.below(3) as i64,
        3 => -power + near,
        _ => power - near,
    }
}

fn bitfield_steps(random: &mut Random, writes: bool) -> String {
    let mut text = String::new();
    for _ in 0..random.below(5) {
        let kind = integer_type(random);
        let offset = match random.below(3) {
            0 => format!("#{}", random.below(80)),
            _ => bits_offset(random).to_string(),
        };
        text += &match random.below(if writes { 5 } else { 2 }) {
            0 => format!(" OVERFLOW {}", random.pick(&["WRAP", "sat", "FAIL"])),
            1 => format!(" GET {kind} {offset}"),
            2 | 3 => format!(" INCRBY {kind} {offset} {}", integer(random)),
            _ => format!(" set {kind} {offset} {}", integer(random)),
        };
    }
    text
}

fn bitmap_command(random: &mut Random) -> Args {
    let key = bitmap_key(random);
    let bit = random.below(2);
    let args = match random.below(24) {
        0 => [words(&format!("SET {key}")), vec![filled(random)]].concat(),
        1 => words(&format!("DEL {key}")),
        2..5 => words(&format!("SETBIT {key} {} {bit}", bits_offset(random))),
        5 | 6 => words(&format!("GETBIT {key} {}", bits_offset(random))),
        7 | 8 => {
            let unit = random.pick(&["", " BYTE", " bit", " BIT"]);
            words(&format!("BITCOUNT {key} {} {}{unit}", range_end(random), range_end(random)))
        }
        9 => words(&format!("BITCOUNT {key}")),
        10 | 11 => {
            let unit = random.pick(&["", " BYTE", " bit", " BIT"]);
            words(&format!("BITPOS {key} {bit} {} {}{unit}", range_end(random), range_end(random)))
        }
        12 => words(&format!("BITPOS {key} {bit} {}", range_end(random))),
        13 => words(&format!("BITPOS {key} {bit}")),
        14 | 15 => {
            let sources: String =
                (0..1 + random.below(4)).map(|_| format!(" {}", bitmap_key(random))).collect();
            words(&format!("BITOP {} {key}{sources}", random.pick(&["AND", "or", "XOR"])))
        }
        16 => words(&format!("BITOP NOT {key} {}", bitmap_key(random))),
        17 => words(&format!("BITFIELD_RO {key}{}", bitfield_steps(random, false))),
        18..21 => words(&format!("BITFIELD {key}{}", bitfield_steps(random, true))),
        21 => words(&format!("EXPIRE {key} 10000")),
        22 => words(&format!("STRLEN {key}")),
        _ => words(&format!("GET {key}")),
    };
    if args[0] == b"GET" || args[0] == b"SET" { args } else { spoiled(random, args) }
}

#[test]
fn bitmaps_and_bitfields_get_the_replies_of_redis() {
    compare(4000, |random| {
        let args = bitmap_command(random);
        // The string after each command that may have changed it.
        let at = if args[0] == b"BITOP" { 2 } else { 1 };
        match args.get(at).cloned() {
            Some(key) if args[0] != b"GET" => vec![args, vec![b"GET".to_vec(), key]],
            _ => vec![args],
        }
    });
}

/// Elements in use, by key: each size class has its own. The third and the fourth have about 3000 bytes.
const SPANS: [usize; 6] = [3, 200, 1500, 3000, 40_000, 200_000];

fn sketch_key(random: &mut Random) -> (String, usize) {
    let class = random.below(SPANS.len());
    (format!("hll:{class}"), SPANS[class])
}

/// A sketch that may be wrong: a dense one with any registers; a sparse one with long runs, or with none of
/// zeros, so that a change can join runs on either side.
fn crafted_sketch(random: &mut Random) -> Vec<u8> {
    let mut sketch = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    if random.below(12) == 0 {
        let at = random.below(sketch.len());
        sketch[at] = random.below(256) as u8;
    }
    if random.below(8) == 0 {
        sketch[4] = 0;
        let most = random.pick(&[1, 4, 64, 256]);
        // Registers of 50, 51 or 63, by fours: more than any hash gives.
        let high: [&[u8]; 3] = [b"\xB2\x2C\xCB", b"\xF3\x3C\xCF", b"\xFF\xFF\xFF"];
        let first = random.pick(&high);
        let seldom = random.below(3000) + 1;
        while sketch.len() < 12_304 {
            let high = if random.below(seldom) == 0 { random.pick(&high) } else { first };
            let any: Vec<u8> = (0..3).map(|_| random.below(most) as u8).collect();
            sketch.extend_from_slice(if most == 1 { high } else { &any });
        }
        return sketch;
    }
    if random.below(2) == 0 {
        let mut left = 16_384_usize;
        while left > 0 {
            let len = (1 + random.below(4)).min(left);
            sketch.push(0x80 | (random.below(2) << 2) as u8 | (len - 1) as u8);
            left -= len;
        }
        return sketch;
    }
    let mut left = 16_384_usize;
    while left > 0 && random.below(30) > 0 {
        let len = 1 + match random.below(6) {
            0 => left - 1,
            1 => random.below(left),
            _ => random.below(70),
        };
        let len = if random.below(200) == 0 { len } else { len.min(left) };
        match random.below(3) {
            0 if len > 64 || random.below(20) == 0 => {
                sketch.extend_from_slice(&(0x4000 | (len - 1) as u16 & 0x3FFF).to_be_bytes());
            }
            0 => sketch.push(len as u8 - 1),
            _ => sketch.push(0x80 | (random.below(32) << 2) as u8 | (len.min(4) - 1) as u8),
        }
        let run = sketch[sketch.len() - 1];
        left = left.saturating_sub(if run >= 0x80 { usize::from(run & 3) + 1 } else { len });
    }
    sketch
}

fn sketch_command(random: &mut Random) -> Args {
    let (key, span) = sketch_key(random);
    let other = sketch_key(random).0;
    let args = match random.below(22) {
        0 if random.below(6) == 0 => words(&format!("DEL {key}")),
        0..7 => {
            let count = [0, 1, 1, 3, 20, 200][random.below(6)];
            let elements: String = (0..count).map(|_| format!(" element:{}", random.below(span))).collect();
            words(&format!("PFADD {key}{elements}"))
        }
        7 | 8 => words(&format!("PFCOUNT {key}")),
        9 => words(&format!("PFCOUNT {key} {other} {}", sketch_key(random).0)),
        10 if random.below(4) == 0 => words(&format!("PFMERGE {key} {other}")),
        11 => words(&format!("PFMERGE merged:{} {key} {other}", random.below(3))),
        12 => words(&format!("GET merged:{}", random.below(3))),
        13 if random.below(4) == 0 => words(&format!("DEL merged:{}", random.below(3))),
        14 => words(&format!("PFDEBUG {} {key}", random.pick(&["ENCODING", "decode"]))),
        15 if random.below(10) == 0 => {
            words(&format!("PFDEBUG {} {key}", random.pick(&["GETREG", "TODENSE"])))
        }
        16 => {
            let limit =
                random.pick(&["0", "17", "18", "19", "40", "500", "3000", "3000", "3000", "12000", "1mb"]);
            words(&format!("CONFIG SET hll-sparse-max-bytes {limit}"))
        }
        17 => words(&format!("EXPIRE {key} 1000")),
        _ => words(&format!("GET {key}")),
    };
    if args[0].starts_with(b"PF") { spoiled(random, args) } else { args }
}

#[test]
fn hyperloglogs_get_the_replies_and_the_bytes_of_redis() {
    compare(3000, |random| vec![sketch_command(random)]);
}

#[test]
fn crafted_hyperloglogs_get_the_replies_of_redis() {
    compare(3000, |random| {
        let key = format!("crafted:{}", random.below(3));
        let args = match random.below(16) {
            0 if random.below(8) == 0 => words(&format!(
                "CONFIG SET hll-sparse-max-bytes {}",
                random.pick(&["3000", "16000", "16000"])
            )),
            0 => [words(&format!("SET {key}")), vec![crafted_sketch(random)]].concat(),
            1..9 => words(&format!("PFADD {key} {}", random.below(1_000_000))),
            9 => words(&format!("PFCOUNT {key}")),
            10 => words(&format!("PFMERGE whole {key}")),
            11 => words(&format!("PFDEBUG {} {key}", random.pick(&["DECODE", "TODENSE", "ENCODING"]))),
            _ => words(&format!("GET {key}")),
        };
        vec![args]
    });
}

/// Members in use, by key, and the places that they crowd around: each size class has its own.
const CROWDS: [Crowd; 5] = [
    Crowd { span: 4, centers: [1, 5] },
    Crowd { span: 30, centers: [7, 2] },
    Crowd { span: 127, centers: [2, 3] },
    Crowd { span: 133, centers: [0, 4] },
    Crowd { span: 900, centers: [6, 8] },
];

#[derive(Clone, Copy)]
struct Crowd {
    span: usize,
    centers: [usize; 2],
}

/// Longitudes and latitudes around which members are. The first ones are where the world has ends.
const CENTERS: &[(f64, f64)] = &[
    (179.9, 0.1),
    (-179.9, -0.1),
    (0.0, 85.0),
    (120.0, -85.0),
    (-180.0, 70.0),
    (0.0, 0.0),
    (11.2, 47.8),
    (-70.6, -33.4),
    (100.0, 66.1),
];
const EDGES: &[&str] = &[
    "0 0",
    "180 0",
    "-180 0",
    "180 85.05112878",
    "-180 -85.05112878",
    "0 85.05112878",
    "90 -85.05112878",
    "1e-9 -1e-9",
    "180.0000001 0",
    "0 85.0511288",
    "-0 0x1p3",
];

fn place_key(random: &mut Random, kind: &str) -> (String, Crowd) {
    let class = random.below(CROWDS.len());
    (format!("{kind}:{class}"), CROWDS[class])
}

fn place(random: &mut Random, crowd: Crowd, at_edges: bool) -> String {
    if at_edges && random.below(3) == 0 {
        return random.pick(EDGES).to_owned();
    }
    let (longitude, latitude) = CENTERS[random.pick(&crowd.centers)];
    // Where members are counted, no two must be in one cell.
    let spread = random.pick(if at_edges { &[0.0001, 0.01, 1.0, 20.0] } else { &[0.05, 1.0, 8.0, 20.0] });
    let mut near = |center: f64, end: f64| {
        let off = (random.below(2_000_001) as f64 / 1e6 - 1.0) * spread;
        let there = center + off;
        // A number beyond an end is moved as far to this side of it.
        if there.abs() > end { (2.0 * end - there.abs()).copysign(there) } else { there }
    };
    format!("{:.9} {:.9}", near(longitude, 180.0), near(latitude, 85.05))
}

/// A number and a unit. Cells of every size must be searched, and those that the region barely touches.
fn length(random: &mut Random) -> String {
    let number = match random.below(4) {
        0 => random.pick(&["0", "1", "10.5", "500", "9000", "20100", "1e2"]).to_owned(),
        1 | 2 => return format!("{} km", 1 + random.below(2500)),
        _ => format!("{:.3}", (1 + random.below(2000)) as f64 / 1000.0 * 10_f64.powi(random.below(5) as i32)),
    };
    format!("{number} {}", random.pick(&["m", "km", "KM", "ft", "mi", "km", "km", "mi"]))
}

fn region(random: &mut Random, crowd: Crowd, at_edges: bool) -> String {
    let from = match random.below(3) {
        0 => format!("FROMMEMBER m{}", random.below(crowd.span + 1)),
        _ => format!("FROMLONLAT {}", place(random, crowd, at_edges)),
    };
    let by = match random.below(2) {
        0 => format!("BYRADIUS {}", length(random)),
        _ => format!(
            "BYBOX {} {}",
            random.pick(&["0", "5", "70", "700", "2000", "8000", "3e4"]),
            length(random)
        ),
    };
    if random.below(2) == 0 { format!("{from} {by}") } else { format!("{by} {from}") }
}

fn add_places(random: &mut Random, key: &str, crowd: Crowd, at_edges: bool) -> Args {
    let options = random.pick(&["", "", "", " NX", " XX", " CH", " xx ch", " NX XX"]);
    let places: String = (0..[1, 2, 5, 30][random.below(4)])
        .map(|_| format!(" {} m{}", place(random, crowd, at_edges), random.below(crowd.span + 1)))
        .collect();
    words(&format!("GEOADD {key}{options}{places}"))
}

/// The options of a search that say what is shown of each place.
fn shown_of_places(random: &mut Random) -> String {
    let words = ["WITHDIST", "withhash", "WITHCOORD"];
    words.iter().filter(|_| random.below(3) == 0).map(|word| format!(" {word}")).collect()
}

/// A search by one of the commands that GEOSEARCH replaced.
fn older_search(
    random: &mut Random,
    key: &str,
    (crowd, at_edges): (Crowd, bool),
    [count, order, with]: [&str; 3],
) -> Args {
    let from = place(random, crowd, at_edges);
    let length = length(random);
    match random.below(3) {
        0 => {
            let target = place_key(random, "stored").0;
            let store = random.pick(&["STORE", "storedist"]);
            words(&format!("GEORADIUS {key} {from} {length}{count} {store} {target}"))
        }
        1 => {
            let name = random.pick(&["GEORADIUS", "GEORADIUS_RO"]);
            words(&format!("{name} {key} {from} {length}{with}{count}{order}"))
        }
        _ => {
            let name = random.pick(&["GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO"]);
            let member = random.below(crowd.span + 1);
            words(&format!("{name} {key} m{member} {length}{order}{with}{count}"))
        }
    }
}

fn place_command(random: &mut Random) -> Args {
    // Members at the edges are at the same place more often than not, and are not counted.
    let at_edges = random.below(3) == 0;
    let kind = if at_edges { "edge" } else { "geo" };
    let (key, crowd) = place_key(random, kind);
    let member = |random: &mut Random| format!("m{}", random.below(crowd.span + 1));
    let count = match random.below(4) {
        0 if !at_edges => format!(" COUNT {}", 1 + random.below(12)),
        1 => format!(" COUNT {} ANY", 1 + random.below(12)),
        _ => String::new(),
    };
    let order = random.pick(&["", "", " ASC", " desc"]);
    let with = shown_of_places(random);
    let (a, b) = (member(random), member(random));
    let args = match random.below(20) {
        0 if random.below(8) == 0 => words(&format!("DEL {key}")),
        0..5 => add_places(random, &key, crowd, at_edges),
        5 => words(&format!("GEODIST {key} {a} {b}{}", random.pick(&["", " km", " Ft", " mi", " M"]))),
        6 => words(&format!("GEOHASH {key} {a} {b}")),
        7 => words(&format!("GEOPOS {key} {a} {b}")),
        8..12 => words(&format!("GEOSEARCH {key} {}{count}{order}{with}", region(random, crowd, at_edges))),
        12 => {
            let target = place_key(random, "stored").0;
            let distances = random.pick(&["", " STOREDIST"]);
            words(&format!(
                "GEOSEARCHSTORE {target} {key} {}{count}{order}{distances}",
                region(random, crowd, at_edges)
            ))
        }
        13..16 => older_search(random, &key, (crowd, at_edges), [&count, order, &with]),
        16 => words(&format!("ZREM {key} {a}")),
        17 => words(&format!(
            "ZADD {kind}:0 {} odd",
            random.pick(&["-1", "1.5", "inf", "-inf", "1e15", "1e300", "4503599627370496"])
        )),
        18 => words(&format!("ZRANGE {} 0 -1 WITHSCORES", place_key(random, "stored").0)),
        _ => words(&format!("ZRANGE {key} 0 -1 WITHSCORES")),
    };
    let spoiled = spoiled(random, args.clone());
    // A spoiled command must not be a COUNT among equals, or make members of other names.
    let counts = spoiled.iter().any(|arg| arg.eq_ignore_ascii_case(b"COUNT"));
    if at_edges && counts || spoiled[0].starts_with(b"Z") { args } else { spoiled }
}

#[test]
fn places_get_the_replies_of_redis() {
    compare(4000, |random| vec![place_command(random)]);
}

/// The cells that a region reaches into, and their order: with so many members that there are some in each.
#[test]
fn regions_everywhere_have_the_members_that_they_have_in_redis() {
    let mut added = 0;
    let degrees =
        |random: &mut Random, end: usize| random.below(2 * end * 1_000_000) as f64 / 1e6 - end as f64;
    compare(1000, |random| {
        added += 1;
        if added <= 100 {
            let place = |n| format!(" {} {} m{added}-{n}", degrees(random, 180), degrees(random, 85));
            return vec![words(&format!("GEOADD everywhere{}", (0..50).map(place).collect::<String>()))];
        }
        let place = format!("{} {}", degrees(random, 180), degrees(random, 85));
        let length = |random: &mut Random| (30 << random.below(8)) + random.below(2000);
        let by = match random.below(3) {
            0 => format!("BYBOX {} {} km", length(random), length(random)),
            _ => format!("BYRADIUS {} km", length(random)),
        };
        let count =
            if random.below(3) == 0 { format!(" COUNT {} ANY", 1 + random.below(50)) } else { String::new() };
        vec![words(&format!("GEOSEARCH everywhere FROMLONLAT {place} {by}{count}"))]
    });
}
