//! Files and payloads that real servers write, and what they make of ours.
//!
//! Where there is no redis-server these tests pass without a comparison, and say so. With a `valkey-server`
//! on the path its files are read, too.

use std::collections::BTreeSet;
use std::process::Command;

use tembo_rdb::{Element, Encodings, Event, Kind, Reader, Unread, Writer};

use crate::model::{Contents, Owned, payload, read_file, read_payload};
use crate::peer::Peer;

/// Strings of all the forms that strings take.
fn strings() -> Vec<Vec<u8>> {
    let mut strings: Vec<Vec<u8>> = [0i64, 1, -1, 12, 13, 127, 128, -128, -129, 4095, 4096, -4096, -4097]
        .into_iter()
        .chain([15, 23, 31].into_iter().flat_map(|bits| {
            let edge = 1i64 << bits;
            [edge - 1, edge, -edge, -edge - 1]
        }))
        .chain([i64::MAX, i64::MIN])
        .map(|integer| integer.to_string().into_bytes())
        .collect();
    strings.extend(["", "007", "-0", "1.5", "text", "\0\u{ff}\r\n"].map(|text| text.as_bytes().to_vec()));
    for len in [20, 21, 44, 45, 63, 64, 65, 300, 5000, 20_000] {
        strings.push(vec![b'a'; len]);
        // Text that compresses a little, and noise that does not.
        strings.push((0..len).map(|n| b"the quick brown fox jumps"[(n * n + n / 7) % 25]).collect());
        strings.push((0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8).collect());
    }
    strings
}

/// Fills the server with values of every type and encoding.
fn fill(peer: &mut Peer) {
    for (n, string) in strings().iter().enumerate() {
        peer.call(&[&b"SET"[..], format!("string:{n}").as_bytes(), string]);
    }
    let mut add = |command: &str, key: &str, items: Vec<Vec<u8>>| {
        for part in items.chunks(500) {
            let head = [command.as_bytes().to_vec(), key.as_bytes().to_vec()];
            peer.call(&[&head[..], part].concat());
        }
    };
    let texts = |count: usize| (0..count).map(move |n| format!("element {}", n * 7919 % count).into_bytes());
    add("RPUSH", "list:small", strings()[..30].to_vec());
    add("RPUSH", "list:one", vec![b"x".to_vec()]);
    add("RPUSH", "list:nodes", texts(3000).chain(strings()).collect());
    add("SADD", "set:16", (-50..50).map(|n: i32| n.to_string().into_bytes()).collect());
    add("SADD", "set:32", (0..50).map(|n: i64| (n * 100_000).to_string().into_bytes()).collect());
    add("SADD", "set:64", (0..50).map(|n: i64| (n << 40).to_string().into_bytes()).collect());
    add("SADD", "set:texts", texts(20).collect());
    add("SADD", "set:large", texts(2000).collect());
    add("SADD", "set:integers", (0..2000).map(|n: i32| n.to_string().into_bytes()).collect());
    let fields = |count| texts(count).flat_map(|text| [text.clone(), [&text[..], b" of a hash"].concat()]);
    add("HSET", "hash:small", fields(60).collect());
    add("HSET", "hash:numbers", strings()[..20].iter().flat_map(|s| [s.clone(), s.clone()]).collect());
    add("HSET", "hash:long", vec![b"f".to_vec(), vec![b'v'; 100], b"g".to_vec(), b"w".to_vec()]);
    add("HSET", "hash:large", fields(1000).collect());
    let scores = ["1", "-2.5", "0.1", "inf", "-inf", "1e17", "-0", "3.0000000000000004", "1e-7", "1e300"];
    let scores = scores.map(|score| score.as_bytes().to_vec());
    let scored = |count| texts(count).enumerate().flat_map(|(n, text)| [scores[n % 10].clone(), text]);
    add("ZADD", "zset:small", scored(60).collect());
    add("ZADD", "zset:large", scored(1000).collect());
    add("ZADD", "zset:long", vec![b"1".to_vec(), vec![b'm'; 100], b"2".to_vec(), b"n".to_vec()]);
    for line in [
        "DEBUG QUICKLIST-PACKED-THRESHOLD 100b",
        "PEXPIREAT string:3 1999999999999",
        "PEXPIREAT hash:large 1999999999998",
        "SELECT 9",
        "SET elsewhere value",
        "SELECT 0",
    ] {
        peer.try_call(&line.split(' ').collect::<Vec<_>>());
    }
    peer.call(&[&b"RPUSH"[..], b"list:plain", b"a", &[b'p'; 200], b"b", &[b'q'; 150]]);
    peer.try_call(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", "1g"]);
}

/// Adds values that are never read: a stream with a group, and a library of functions.
fn fill_unread(peer: &mut Peer) {
    for line in [
        "XADD stream 1-1 field value",
        "XADD stream 2-1 field value2",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
    ] {
        peer.line(line);
    }
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    peer.call(&["FUNCTION", "LOAD", library]);
}

/// Compares what was read with the server's own answers, and collects the encodings.
fn compare(peer: &mut Peer, contents: &Contents) -> BTreeSet<String> {
    let mut encodings = BTreeSet::new();
    for (database, key, value) in &contents.keys {
        peer.line(&format!("SELECT {database}"));
        let name = String::from_utf8_lossy(key).into_owned();
        let encoding = peer.bytes(&[&b"OBJECT"[..], b"ENCODING", &key[..]]);
        encodings.insert(format!("{} {}", value.kind.name(), String::from_utf8_lossy(&encoding)));
        let deadline = match peer.call(&[b"PEXPIRETIME".as_slice(), &key[..]]) {
            tembo_wire::Value::Integer(-1) => None,
            tembo_wire::Value::Integer(deadline) => Some(deadline),
            other => panic!("{other:?}"),
        };
        assert_eq!(value.meta.deadline_ms, deadline, "{name}");
        let elements: Vec<Vec<u8>> = match value.kind {
            Kind::String => vec![peer.bytes(&[b"GET".as_slice(), &key[..]])],
            Kind::List => peer.strings(&[b"LRANGE".as_slice(), &key[..], b"0", b"-1"]),
            Kind::Set => peer.strings(&[b"SMEMBERS".as_slice(), &key[..]]),
            Kind::Hash => peer.strings(&[b"HGETALL".as_slice(), &key[..]]),
            Kind::SortedSet => peer.strings(&[b"ZRANGE".as_slice(), &key[..], b"0", b"-1", b"WITHSCORES"]),
        };
        let mut expected: Vec<Owned> = match value.kind {
            Kind::String => elements.into_iter().map(Owned::Text).collect(),
            Kind::List | Kind::Set => elements.into_iter().map(Owned::Item).collect(),
            Kind::Hash => {
                elements.chunks(2).map(|pair| Owned::Field(pair[0].clone(), pair[1].clone(), None)).collect()
            }
            Kind::SortedSet => elements
                .chunks(2)
                .map(|pair| {
                    let score: f64 = String::from_utf8_lossy(&pair[1]).parse().unwrap();
                    Owned::Scored(pair[0].clone(), score.to_bits())
                })
                .collect(),
        };
        if value.kind != Kind::List {
            expected.sort();
        }
        // A packed sorted set has no negative zero.
        let sorted = value.sorted().into_iter().map(|element| match element {
            Owned::Scored(member, bits) if f64::from_bits(bits) == 0.0 => Owned::Scored(member, 0),
            other => other,
        });
        let expected = expected.into_iter().map(|element| match element {
            Owned::Scored(member, bits) if f64::from_bits(bits) == 0.0 => Owned::Scored(member, 0),
            other => other,
        });
        assert!(sorted.eq(expected), "{name} is another one");
    }
    encodings
}

fn count_keys(peer: &mut Peer) -> usize {
    let text = peer.bytes(&["INFO", "keyspace"]);
    let text = String::from_utf8_lossy(&text).into_owned();
    let counts =
        text.lines().filter_map(|line| line.split_once("keys=")?.1.split(',').next()?.parse::<usize>().ok());
    counts.sum()
}

const OF_REDIS_7_0: [&str; 10] = [
    "hash hashtable",
    "hash listpack",
    "list quicklist",
    "set hashtable",
    "set intset",
    "string embstr",
    "string int",
    "string raw",
    "zset listpack",
    "zset skiplist",
];

#[test]
fn files_of_redis_are_read() {
    let Some(mut peer) = Peer::start("redis-server") else { return };
    let is_comparable = peer.is_comparable();
    fill(&mut peer);
    fill_unread(&mut peer);
    for settings in [
        "rdbcompression yes",
        "list-compress-depth 1",
        "rdbcompression no",
        "maxmemory-policy allkeys-lru",
        "maxmemory-policy allkeys-lfu",
    ] {
        peer.line(&format!("CONFIG SET {settings}"));
        let file = peer.save();
        let contents = read_file(&file).unwrap_or_else(|error| panic!("{settings}: {error}"));
        assert!(contents.is_checked);
        assert!(contents.aux.contains_key(&b"redis-ver"[..]));
        assert_eq!(contents.skipped, [(b"stream".to_vec(), Unread::Stream)]);
        assert_eq!(contents.functions.len(), 1);
        assert_eq!(contents.keys.len() + 1, count_keys(&mut peer));
        let meta = contents.value("list:one").meta;
        assert_eq!(meta.idle_s.is_some(), settings.ends_with("lru"));
        assert_eq!(meta.frequency.is_some(), settings.ends_with("lfu"));
        let encodings = compare(&mut peer, &contents);
        if is_comparable {
            assert!(encodings.iter().eq(OF_REDIS_7_0.iter()), "{encodings:?}");
        }
    }
}

#[test]
fn files_of_valkey_are_read() {
    let Some(mut peer) = Peer::start("valkey-server") else { return };
    fill(&mut peer);
    fill_unread(&mut peer);
    let has_deadlines_of_fields =
        !peer.try_call(&["HEXPIRE", "hash:small", "1000000", "FIELDS", "1", "element 0"]).is_error();
    let file = peer.save();
    let contents = read_file(&file).unwrap_or_else(|error| panic!("{error}"));
    assert!(contents.is_checked && contents.aux.contains_key(&b"valkey-ver"[..]));
    assert_eq!(contents.skipped, [(b"stream".to_vec(), Unread::Stream)]);
    assert_eq!(contents.keys.len() + 1, count_keys(&mut peer));
    let mut without = contents.clone();
    let mut deadlines = 0;
    for (_, _, value) in &mut without.keys {
        for element in &mut value.elements {
            if let Owned::Field(_, _, deadline) = element {
                deadlines += usize::from(deadline.take().is_some());
            }
        }
    }
    assert_eq!(deadlines, usize::from(has_deadlines_of_fields));
    let encodings = compare(&mut peer, &without);
    assert!(encodings.contains("set listpack"), "{encodings:?}");
}

/// The thresholds of the server.
fn encodings_of(peer: &mut Peer) -> Encodings {
    let mut get = |name: &str| -> u64 {
        let answer = peer.strings(&["CONFIG", "GET", name]);
        String::from_utf8_lossy(&answer[1]).parse().unwrap()
    };
    Encodings {
        hash_entries: get("hash-max-listpack-entries"),
        hash_bytes: get("hash-max-listpack-value") as usize,
        sorted_set_entries: get("zset-max-listpack-entries"),
        sorted_set_bytes: get("zset-max-listpack-value") as usize,
        set_integers: get("set-max-intset-entries"),
        ..Encodings::default()
    }
}

/// Whether a value lies in a hash table, whose order differs from run to run.
fn is_hashed(peer: &mut Peer, key: &[u8]) -> bool {
    peer.bytes(&[&b"OBJECT"[..], b"ENCODING", key]) == b"hashtable"
}

#[test]
fn payloads_are_those_of_redis() {
    let Some(mut peer) = Peer::start("redis-server") else { return };
    if !peer.is_comparable() {
        return;
    }
    assert_eq!(encodings_of(&mut peer), Encodings::default(), "the defaults are those of Redis 7.0");
    fill(&mut peer);
    let contents = read_file(&peer.save()).unwrap();
    let mut equal = 0;
    for (_, key, value) in contents.keys.iter().filter(|(database, ..)| *database == 0) {
        let name = String::from_utf8_lossy(key);
        let theirs = peer.bytes(&[b"DUMP".as_slice(), &key[..]]);
        let read = read_payload(&theirs).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.elements, value.elements, "{name}");
        let ours = payload(value, &Encodings::default());
        // A list with plain nodes is written without.
        if name != "list:plain" {
            assert!(ours == theirs, "{name}: the payload differs");
            equal += 1;
        }
        // Redis takes ours for the same value.
        let deadline = value.meta.deadline_ms.unwrap_or(0).to_string();
        peer.call(&[&b"RESTORE"[..], b"copy", deadline.as_bytes(), &ours, b"REPLACE", b"ABSTTL"]);
        if !is_hashed(&mut peer, key) && name != "list:plain" {
            assert!(peer.bytes(&["DUMP", "copy"]) == theirs, "{name}: it is another one after RESTORE");
        }
        let digests = peer.call(&[&b"DEBUG"[..], b"DIGEST-VALUE", &key[..], b"copy"]);
        let tembo_wire::Value::Array(digests) = digests else { panic!("{digests:?}") };
        assert_eq!(digests[0], digests[1], "{name}");
    }
    assert!(equal > 70, "{equal}");
}

#[test]
fn redis_loads_what_is_written() {
    let Some(mut peer) = Peer::start("redis-server") else { return };
    if !peer.is_comparable() {
        return;
    }
    fill(&mut peer);
    let contents = read_file(&peer.save()).unwrap();
    let dumps = |peer: &mut Peer| -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys = contents.keys.iter().map(|(database, key, _)| {
            peer.line(&format!("SELECT {database}"));
            let is_list_of_plain_nodes = &key[..] == b"list:plain";
            match is_hashed(peer, key) || is_list_of_plain_nodes {
                false => (key.clone(), peer.bytes(&[b"DUMP".as_slice(), &key[..]])),
                true => (
                    key.clone(),
                    format!("{:?}", peer.call(&[&b"DEBUG"[..], b"DIGEST-VALUE", &key[..]])).into(),
                ),
            }
        });
        keys.collect()
    };
    let (before, count) = (dumps(&mut peer), count_keys(&mut peer));
    for encodings in [
        Encodings::default(),
        // Nothing is packed: lists, sets, hashes and sorted sets as they come.
        Encodings {
            hash_entries: 0,
            sorted_set_entries: 0,
            set_integers: 0,
            list_bytes: 0,
            compress: false,
            ..Encodings::default()
        },
    ] {
        std::fs::write(peer.file(), contents.write(encodings)).unwrap();
        let checked = Command::new("redis-check-rdb").arg(peer.file()).output();
        match checked {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => eprintln!("skipped: redis-check-rdb cannot be run here ({error})"),
        }
        peer.line("DEBUG RELOAD NOSAVE");
        assert_eq!(count_keys(&mut peer), count);
        compare_dumps(&dumps(&mut peer), &before);
        assert_eq!(peer.line("SELECT 0"), tembo_wire::Value::Simple(b"OK".to_vec()));
    }
    // A server that starts with our file.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("dump.rdb"), contents.write(Encodings::default())).unwrap();
    let mut other = Peer::start_on("redis-server", directory).unwrap();
    while other.try_call(&["PING"]).is_error() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(count_keys(&mut other), count);
    compare_dumps(&dumps(&mut other), &before);
}

fn compare_dumps(ours: &[(Vec<u8>, Vec<u8>)], theirs: &[(Vec<u8>, Vec<u8>)]) {
    assert_eq!(ours.len(), theirs.len());
    for ((key, ours), (_, theirs)) in ours.iter().zip(theirs) {
        assert!(ours == theirs, "{} is another one", String::from_utf8_lossy(key));
    }
}

/// A value of any size passes through, element by element.
#[test]
fn a_large_value_is_never_whole_in_memory() {
    let count = 200_000u64;
    let mut writer = Writer::new(Vec::new(), Encodings::default()).unwrap();
    writer.begin(b"k", Default::default(), Kind::Hash, count).unwrap();
    for n in 0..count {
        let field = n.to_string();
        writer.element(Element::Field { field: field.as_bytes(), value: b"v", deadline_ms: None }).unwrap();
    }
    writer.end().unwrap();
    let file = writer.finish().unwrap();
    let (mut reader, mut seen) = (Reader::new(&file[..]).unwrap(), 0);
    while let Some(event) = reader.next().unwrap() {
        match event {
            Event::Key(key) => assert_eq!(key.count, Some(count)),
            Event::Element(_) => seen += 1,
            _ => {}
        }
    }
    assert_eq!(seen, count);
}
