//! Files of older and other programs are read: they are put together by hand, byte by byte.

use tembo_rdb::{Kind, Problem, Unread};

use crate::model::{Contents, Owned, Value, read_file};

/// A file of version `version` with these bytes between header and end.
fn file(version: &str, body: &[u8]) -> Vec<u8> {
    let has_checksum = version.starts_with("VALKEY") || version >= "REDIS0005";
    let end: &[u8] = if has_checksum { b"\xff\0\0\0\0\0\0\0\0" } else { b"\xff" };
    [version.as_bytes(), b"\xfe\0", body, end].concat()
}

/// The value of the key `k`, of this type and these bytes, in a file of this version.
fn value_in(version: &str, type_byte: u8, bytes: &[u8]) -> Value {
    let body = [&[type_byte][..], b"\x01k", bytes].concat();
    let contents = read_file(&file(version, &body)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(contents.keys[0].1, b"k");
    contents.only()
}

/// Bytes as a string of the format.
fn string(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 64);
    [&[bytes.len() as u8][..], bytes].concat()
}

fn items(kind: Kind, items: &[&str]) -> Value {
    Value::new(kind, items.iter().map(|item| Owned::Item(item.as_bytes().to_vec())).collect())
}

fn fields(fields: &[(&str, &str, Option<i64>)]) -> Value {
    let owned = |&(field, value, deadline): &(&str, &str, Option<i64>)| {
        Owned::Field(field.as_bytes().to_vec(), value.as_bytes().to_vec(), deadline)
    };
    Value::new(Kind::Hash, fields.iter().map(owned).collect())
}

fn scored(members: &[(&str, f64)]) -> Value {
    let owned = |&(member, score): &(&str, f64)| Owned::Scored(member.as_bytes().to_vec(), score.to_bits());
    Value::new(Kind::SortedSet, members.iter().map(owned).collect())
}

#[test]
fn strings_of_every_encoding_are_read() {
    let text = |text: &[u8]| Value::new(Kind::String, vec![Owned::Text(text.to_vec())]);
    for (bytes, expected) in [
        (&b"\x05hello"[..], &b"hello"[..]),
        (b"\x40\x05hello", b"hello"),
        (b"\x80\0\0\0\x05hello", b"hello"),
        (b"\x81\0\0\0\0\0\0\0\x05hello", b"hello"),
        (b"\0", b""),
        (b"\xc0\x85", b"-123"),
        (b"\xc1\x39\x30", b"12345"),
        (b"\xc2\x15\xcd\x5b\x07", b"123456789"),
        (b"\xc2\xff\xff\xff\xff", b"-1"),
        // LZF: one byte, then a copy of 9 at distance 1.
        (b"\xc3\x05\x0a\x00a\xe0\x00\x00", b"aaaaaaaaaa"),
    ] {
        assert_eq!(value_in("REDIS0001", 0, bytes), text(expected), "{bytes:?}");
    }
}

#[test]
fn plain_values_of_the_first_versions_are_read() {
    let three = b"\x03\x01a\xc0\x05\x02bc";
    assert_eq!(value_in("REDIS0001", 1, three), items(Kind::List, &["a", "5", "bc"]));
    assert_eq!(value_in("REDIS0001", 2, three), items(Kind::Set, &["a", "5", "bc"]));
    assert_eq!(
        value_in("REDIS0001", 4, b"\x02\x01f\x01v\x01g\xc0\x07"),
        fields(&[("f", "v", None), ("g", "7", None)])
    );
    // Scores as text, and the bytes that stand for the infinite ones.
    assert_eq!(
        value_in("REDIS0002", 3, b"\x04\x01a\x031.5\x01b\xfe\x01c\xff\x01d\x02-3"),
        scored(&[("a", 1.5), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY), ("d", -3.0)])
    );
    let binary = [&b"\x01\x01a"[..], &0.1f64.to_le_bytes()].concat();
    assert_eq!(value_in("REDIS0008", 5, &binary), scored(&[("a", 0.1)]));
}

#[test]
fn zipmaps_are_read() {
    // The second value has two bytes of room behind it; the third is longer than 253 bytes.
    let small = b"\x02\x01f\x01\0v\x02gg\x03\x02abc..\xff";
    assert_eq!(value_in("REDIS0003", 9, &string(small)), fields(&[("f", "v", None), ("gg", "abc", None)]));
    let long = "x".repeat(300);
    let blob = [b"\x01\x01f\xfe\x2c\x01\0\0\0", long.as_bytes(), b"\xff"].concat();
    let len = [0x40 | (blob.len() >> 8) as u8, blob.len() as u8];
    assert_eq!(value_in("REDIS0003", 9, &[&len[..], &blob].concat()), fields(&[("f", &long, None)]));
}

/// A ziplist of entries that are given as data without the length of the one before.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut before, mut tail) = (Vec::new(), 0, 10);
    for entry in entries {
        tail = 10 + body.len();
        body.push(before);
        body.extend_from_slice(entry);
        before = 1 + entry.len() as u8;
    }
    let len = (10 + body.len() + 1) as u32;
    let header =
        [&len.to_le_bytes()[..], &(tail as u32).to_le_bytes(), &(entries.len() as u16).to_le_bytes()];
    [&header.concat()[..], &body, b"\xff"].concat()
}

#[test]
fn ziplists_are_read() {
    let numbers = ziplist(&[
        b"\xf1",
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x00\x80",
        b"\xf0\x00\x00\x80",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
        b"\x03abc",
        b"\x40\x02de",
        b"\x80\0\0\0\x01f",
    ]);
    let bytes = [&[0x40, numbers.len() as u8][..], &numbers].concat();
    let expected = items(
        Kind::List,
        &["0", "12", "-128", "-32768", "-8388608", "-2147483648", "-9223372036854775808", "abc", "de", "f"],
    );
    assert_eq!(value_in("REDIS0006", 10, &bytes), expected);
    // The same twice in a quicklist.
    let quicklist = [&[2][..], &bytes, &bytes].concat();
    assert_eq!(value_in("REDIS0007", 14, &quicklist).elements.len(), 20);
    let pairs = ziplist(&[b"\x01f", b"\xf3", b"\x01g", b"\x031.5"]);
    assert_eq!(value_in("REDIS0006", 13, &string(&pairs)), fields(&[("f", "2", None), ("g", "1.5", None)]));
    assert_eq!(value_in("REDIS0006", 12, &string(&pairs)), scored(&[("f", 2.0), ("g", 1.5)]));
    // An old ziplist may use five bytes for the length of a short entry before.
    let wide = b"\x14\0\0\0\x0c\0\0\0\x02\0\0\xf2\xfe\x02\0\0\0\x01a\xff";
    assert_eq!(wide.len(), 0x14);
    assert_eq!(value_in("REDIS0006", 10, &string(wide)), items(Kind::List, &["1", "a"]));
}

#[test]
fn intsets_of_every_width_are_read() {
    assert_eq!(
        value_in("REDIS0006", 11, &string(b"\x02\0\0\0\x02\0\0\0\xff\xff\x07\0")),
        items(Kind::Set, &["-1", "7"])
    );
    let wide = [&b"\x08\0\0\0\x01\0\0\0"[..], &i64::MIN.to_le_bytes()].concat();
    assert_eq!(value_in("REDIS0006", 11, &string(&wide)), items(Kind::Set, &["-9223372036854775808"]));
}

#[test]
fn listpacks_and_their_containers_are_read() {
    let pack = b"\x0f\0\0\0\x03\0\x01\x01\x81a\x02\xc0\x85\x02\xff";
    let values = ["1", "a", "133"];
    assert_eq!(pack.len(), 0x0f);
    assert_eq!(value_in("REDIS0011", 20, &string(pack)), items(Kind::Set, &values));
    let quicklist = [&b"\x02\x02"[..], &string(pack), b"\x01\x05plain"].concat();
    assert_eq!(value_in("REDIS0010", 18, &quicklist), items(Kind::List, &["1", "a", "133", "plain"]));
    // An odd number of strings is no hash.
    let error = read_file(&file("REDIS0010", &[b"\x10\x01k", &string(pack)[..]].concat())).unwrap_err();
    assert_eq!((error.key(), error.offset()), (Some(&b"k"[..]), 14));
    assert!(matches!(error.problem(), Problem::Malformed { format: "listpack", .. }), "{error}");
}

#[test]
fn hashes_with_deadlines_of_fields_are_read() {
    let deadline = 1_900_000_000_000i64;
    let plain = [&b"\x02\x01f\x01v"[..], &deadline.to_le_bytes(), b"\x01g\x01w", &[0xff; 8]].concat();
    let expected = fields(&[("f", "v", Some(deadline)), ("g", "w", None)]);
    assert_eq!(value_in("VALKEY080", 22, &plain), expected);
    let metadata = [&deadline.to_le_bytes()[..], b"\x02\x01\x01f\x01v\0\x01g\x01w"].concat();
    assert_eq!(value_in("REDIS0012", 24, &metadata), expected);
    // A number that other programs use otherwise is nothing that is known.
    let error = read_file(&file("REDIS0012", b"\x16\x01k\0")).unwrap_err();
    assert!(matches!(error.problem(), Problem::UnknownType(22)), "{error}");
}

#[test]
fn instructions_around_keys_are_read() {
    let body = [
        &b"\xfa\x09redis-ver\x055.0.0"[..],
        b"\xfb\x05\x01",
        b"\xfd\x00\xca\x9a\x3b\xf8\x07\x00\x01a\x01x",
        b"\xfc\x00\x10\x00\x00\x00\x01\x00\x00\xf9\xc8\x00\x01b\x01y",
        b"\xf4\x01\x02\x03",
        b"\xfe\x0f\x00\x01c\x01z",
        b"\xf5\x04code",
        b"\xf6\x01n\x03LUA\x01\x04desc\x04code",
    ]
    .concat();
    let contents = read_file(&file("REDIS0009", &body)).unwrap();
    assert_eq!(contents.aux[&b"redis-ver"[..]], b"5.0.0");
    let meta = |key| contents.value(key).meta;
    assert_eq!((meta("a").deadline_ms, meta("a").idle_s), (Some(1_000_000_000_000), Some(7)));
    assert_eq!((meta("b").deadline_ms, meta("b").frequency), (Some(0x0100_0000_1000), Some(0xc8)));
    assert_eq!((meta("c").deadline_ms, contents.keys[2].0), (None, 15));
    assert_eq!(contents.functions, [b"code"]);
    assert_eq!(
        contents.others,
        ["Database(0)", "Sizes { keys: 5, deadlines: 1 }", "Slots", "Database(15)", "OldFunction"]
    );
}

/// Streams of each form, and a module's value, under the keys `1`, `2`, `3` and `m`.
pub(crate) fn unread_values() -> Vec<u8> {
    let entries = b"\x01\x10aaaaaaaabbbbbbbb\x05nodes\x07\x01\x02";
    let more = b"\x01\x01\x03\x04\x09";
    let consumer = |times: &[u8]| [&b"\x01\x04name"[..], times, b"\x01aaaaaaaabbbbbbbb"].concat();
    let pending = b"\x01aaaaaaaabbbbbbbbtttttttt\x05";
    let group = |last: &[u8], times: &[u8]| [&b"\x01\x05group"[..], last, pending, &consumer(times)].concat();
    [
        &b"\x0f\x011"[..],
        entries,
        &group(b"\x01\x02", &[b't'; 8]),
        b"\x13\x012",
        entries,
        more,
        &group(b"\x01\x02\x03", &[b't'; 8]),
        b"\x15\x013",
        entries,
        more,
        &group(b"\x01\x02\x03", &[b't'; 16]),
        b"\x07\x01m\x81\x45\x1d\xbb\x9d\xf1\x8f\x20\x01\x02\x05\x01\x07\x03abcd\x04abcdefgh\x05\x03str\0",
    ]
    .concat()
}

#[test]
fn streams_and_modules_are_skipped_and_named() {
    let aux = b"\xf7\x81\x45\x1d\xbb\x9d\xf1\x8f\x20\x01\x02\x01\x05\x03str\0";
    let body = [&unread_values()[..], aux, b"\0\x05after\x01x"].concat();
    let contents: Contents = read_file(&file("REDIS0011", &body)).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&[u8]> = contents.skipped.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names, [b"1", b"2", b"3", b"m"]);
    assert!(contents.skipped[..3].iter().all(|(_, what)| *what == Unread::Stream));
    let Unread::Module(module) = contents.skipped[3].1 else { panic!("{:?}", contents.skipped[3]) };
    assert_eq!(module.to_string(), "RR27nfGPI");
    assert_eq!(contents.value("after").elements.len(), 1);
    let error = read_file(&file("REDIS0009", b"\x06\x01k\0")).unwrap_err();
    assert!(matches!(error.problem(), Problem::OldModule), "{error}");
}

#[test]
fn other_files_are_told_what_they_are() {
    for bytes in [&b""[..], b"REDIS", b"REDISabcd", b"{\"tembo_dump\":1}", b"VALKEY08x"] {
        let error = read_file(bytes).unwrap_err();
        assert!(matches!(error.problem(), Problem::NotRdb), "{error}");
    }
    for bytes in [&b"REDIS0013"[..], b"REDIS0000", b"VALKEY081", b"REDIS0080"] {
        let error = read_file(bytes).unwrap_err();
        assert!(matches!(error.problem(), Problem::UnknownVersion(_)), "{error}");
    }
}
