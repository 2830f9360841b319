//! The same requests to this server and to memcached 1.6: equal replies.

use crate::support::{Client, Memcached, Served, pool_in};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tembo_memcached::Config;

fn number_from(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Requests with edge arguments, each tried once, in this order.
const FIXED: &[&str] = &[
    "get a",
    "set a 5 0 3\r\nabc",
    "get a",
    "gets a b a",
    "set a 4294967295 0 0\r\n",
    "get a",
    "x",
    "set a -1 0 1\r\nx",
    "set a 0 0 -1",
    "set a 0 x 1\r\nx",
    "set a 0 0 x",
    "set a 0 0",
    "set a 0 0 1 2 3",
    "set",
    "set a 0 0 3 noreply\r\nabc",
    "set a 0 0 3\r\nabcd",
    "get a",
    "get",
    "gets",
    "get  a  b",
    "GET a",
    "nonsense",
    "",
    "add a 0 0 1\r\n1",
    "add b 0 0 1\r\n1",
    "replace b 0 0 1\r\n2",
    "replace c 0 0 1\r\n2",
    "append b 7 0 2\r\n34",
    "prepend b 7 0 2\r\n01",
    "gets b",
    "append nothing 0 0 1\r\nx",
    "incr b 5",
    "incr b 18446744073709551615",
    // A shorter number is filled up with spaces by memcached, or not if one of its threads looks at the item.
    "set b 0 0 4\r\n1238",
    "get b",
    "incr b -1",
    "incr b x",
    "incr b",
    "decr b 7",
    "decr b 99999999999",
    "set b 0 0 1\r\n0",
    "get b",
    "incr nothing 1",
    "set t 0 0 3\r\nabc",
    "incr t 1",
    "set t 0 0 2\r\n1 ",
    "incr t 1",
    "set t 0 0 19\r\n9223372036854775807",
    "decr t 1",
    "set t 0 0 21\r\n000000000000000000001",
    "incr t 1",
    "cas a 0 0 1 1\r\nx",
    "cas a 0 0 1\r\nx",
    "cas nothing 0 0 1 1\r\nx",
    "cas a 0 0 1 x\r\nx",
    "delete a 0",
    "delete a 0",
    "delete a 1",
    "delete a noreply",
    "delete",
    "delete a b c",
    "touch b 0",
    "touch b 100",
    "touch nothing 1",
    "touch b x",
    "touch b",
    "gat 0 b",
    "gats 100 b nothing",
    "gat x b",
    "gat 0",
    "gat",
    "set over 0 -1 1\r\nx",
    "get over",
    "add over 0 0 1\r\ny",
    "get over",
    "verbosity 1",
    "verbosity",
    "verbosity noreply",
    "verbosity 0 noreply",
    "verbosity x",
    "verbosity 0 1",
    "verbosity 0 1 2",
    "verbosity a b noreply",
    "flush_all 0",
    "get b",
    "flush_all x",
    "flush_all noreply",
    "shutdown",
    "mg",
    "mg nothing",
    "mg nothing v",
    "mg nothing v q",
    "mg nothing k O12 q",
    "ms m 2 F5 c\r\nab",
    "mg m",
    "mg m v",
    "mg m s v f c k t O99",
    "mg m k q O1 s",
    "mg m v v",
    "mg m !",
    "ms m",
    "ms m x",
    "ms m 2 S2\r\nab",
    "ms m 1 Mx\r\na",
    "ms m 1 MSS\r\na",
    "ms m 1 ME\r\na",
    "ms m 1 MR k O5 c\r\nb",
    "ms m 1 MA\r\nc",
    "ms m 1 MP\r\na",
    "mg m v f c",
    "ms new 1 MA\r\nc",
    "mg new v t",
    "ms new 1 C1\r\nc",
    "ms nothing 1 C1\r\nc",
    "mg new c v",
    "ms new 1 q\r\ne",
    "ms new 2\r\nabc",
    "ms new 1 T-1\r\nx",
    "mg new v",
    "ms Zm9v 3 b k c\r\nbar",
    "mg foo v k",
    "mg Zm9v b v k",
    "mg Zm b v",
    "mg *** b v",
    "ma nothing",
    "ma nothing q",
    "ma count N0 J13 v c",
    "ma count v",
    "ma count D5 v t",
    "ma count MD D100 v",
    "ma count M+ v s k O3",
    "ma count Mx",
    "ma count D-1",
    "ma count q",
    "ma count q v",
    "ma count C1 v",
    "ma m",
    "md nothing",
    "md nothing q",
    "md m C1 k O1",
    "md m I T30",
    "mg m v c t",
    "mg m v c t",
    "ms m 1\r\nn",
    "mg m v",
    "md m q",
    "mg m v",
    "mg viv N30 v t c",
    "mg viv v c",
    "mg viv v N30",
    "ms viv 1 T60\r\nx",
    "mg viv R30 v",
    "mg viv R90 v",
    "mg viv R90 v",
    "mg viv T0 v t",
    "ms inv 1 c\r\n1",
    "ms inv 1 C1 I\r\n2",
    "mg inv v",
    "mg inv v",
    "ms",
    "md",
    "ma",
    "md inv !",
    "md inv q q",
    "md inv Cx",
    "ma inv !",
    "ma inv q q",
    "ms inv 1 !\r\na",
    "ms inv 1 Fx\r\na",
    "ms inv 1 Tx\r\na",
    "ms inv 1 q q\r\na",
    "mg inv Tx",
    "mg inv Rx",
    "mg inv O1234567890123456789012345678901",
    "mg inv O12345678901234567890123456789012",
    "mg inv O123456789012345678901234567890123",
    "mn",
];

/// Remaining times may differ by the second that passes between two servers.
fn comparable(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply).into_owned();
    let words = text.split(' ').map(|word| {
        let (word, end) = match word.split_once("\r\n") {
            Some((word, end)) => (word, format!("\r\n{end}")),
            None => (word, String::new()),
        };
        let is_time =
            word.strip_prefix('t').is_some_and(|time| time.parse::<u32>().is_ok_and(|time| time > 5));
        format!("{}{end}", if is_time { "t+" } else { word })
    });
    words.collect::<Vec<_>>().join(" ")
}

struct Pair {
    ours: Client,
    theirs: Client,
    _served: Served,
    _memcached: Memcached,
    _dir: tempfile::TempDir,
}

fn pair() -> Option<Pair> {
    let memcached = Memcached::start(&[])?;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(pool_in(dir.path()), Config::default());
    let (ours, theirs) = (served.client(), Client::connect(memcached.address));
    Some(Pair { ours, theirs, _served: served, _memcached: memcached, _dir: dir })
}

/// The replies to a request, if they differ.
fn difference(pair: &mut Pair, request: &[u8]) -> Option<String> {
    let (ours, theirs) = (comparable(&pair.ours.ask(request)), comparable(&pair.theirs.ask(request)));
    (ours != theirs)
        .then(|| format!("{:?}: {ours:?}, memcached {theirs:?}", String::from_utf8_lossy(request)))
}

#[test]
fn edge_arguments_are_answered_as_by_memcached() {
    let Some(mut pair) = pair() else { return };
    let differing: Vec<String> = FIXED
        .iter()
        .filter_map(|request| difference(&mut pair, format!("{request}\r\n").as_bytes()))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

fn random_request(chance: &mut SmallRng) -> Vec<u8> {
    let key = format!("key{}", chance.random_range(0..12));
    let value = match chance.random_range(0..4) {
        0 => chance.random_range(0..300_u64).to_string(),
        // Larger ones are sometimes no numbers for memcached.
        1 => i64::MAX.to_string(),
        2 => "v".repeat(chance.random_range(0..40)),
        _ => "w".repeat(chance.random_range(0..5000)),
    };
    let time = *[0, 0, 0, 1000, -1].get(chance.random_range(0..5)).unwrap();
    let unique = chance.random_range(0..400);
    let noreply = if chance.random_range(0..8) == 0 { " noreply" } else { "" };
    let mut flags = |all: &[&str]| -> String {
        let mut chosen: Vec<&str> = all.iter().filter(|_| chance.random_range(0..3) == 0).copied().collect();
        let rotation = if chosen.is_empty() { 0 } else { chance.random_range(0..chosen.len()) };
        chosen.rotate_left(rotation);
        chosen.iter().map(|flag| format!(" {flag}")).collect()
    };
    let cas = format!("C{unique}");
    let meta_get = flags(&["v", "s", "k", "c", "f", "O77", "t", "q", "T1000", "N500", "R400"]);
    let meta_set = flags(&["c", "k", "O5", "q", "T1000", "F9", &cas]);
    let mode = ["", " MS", " ME", " MA", " MP", " MR"][unique % 6];
    let meta_delete = flags(&["q", "k", "O5", &cas]);
    let meta_arithmetic = flags(&["v", "t", "c", "k", "q", "N0", "J7", "D3", "T1000", "MD"]);
    let bytes = value.len();
    // memcached fills a shorter number up with spaces, or not if one of its threads looks at the item.
    let renewed = format!("\r\nreplace {key} 1 0 4 noreply\r\n4000");
    let line = match chance.random_range(0..20) {
        0..4 => format!("set {key} {unique} {time} {bytes}{noreply}\r\n{value}"),
        4 => format!("add {key} {unique} {time} {bytes}{noreply}\r\n{value}"),
        5 => format!("replace {key} {unique} {time} {bytes}\r\n{value}"),
        6 => format!("append {key} 1 0 {bytes}{noreply}\r\n{value}"),
        7 => format!("prepend {key} 1 0 {bytes}\r\n{value}"),
        8 => format!("cas {key} {unique} {time} {bytes} {unique}{noreply}\r\n{value}"),
        9 => format!("incr {key} {unique}{noreply}{renewed}"),
        10 => format!("decr {key} {unique}{renewed}"),
        11 => format!("delete {key}{noreply}"),
        12 => format!("touch {key} {time}{noreply}"),
        13 => format!("gats {time} {key} key1"),
        14 => format!("gets {key} key1 key2 key3"),
        15 => format!("mg {key}{meta_get}"),
        16 => format!("ms {key} {bytes}{mode}{meta_set}\r\n{value}"),
        17 => format!("md {key}{meta_delete}"),
        18 => format!("ma {key}{meta_arithmetic}{renewed}"),
        _ if unique == 0 => "flush_all".to_owned(),
        _ => format!("get {key}"),
    };
    format!("{line}\r\n").into_bytes()
}

/// Seeded sequences of all commands. `MEMCACHED_REQUESTS` and `MEMCACHED_SEED` choose others.
#[test]
fn random_requests_are_answered_as_by_memcached() {
    let Some(mut pair) = pair() else { return };
    let seed = number_from("MEMCACHED_SEED", 1);
    let mut chance = SmallRng::seed_from_u64(seed);
    for count in 0..number_from("MEMCACHED_REQUESTS", 20_000) {
        let request = random_request(&mut chance);
        if let Some(difference) = difference(&mut pair, &request) {
            panic!("MEMCACHED_SEED={seed}, request {count}: {difference}");
        }
    }
}
