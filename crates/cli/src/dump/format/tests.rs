use super::*;

fn read(dump: &[u8]) -> Result<Vec<Item>, ReadError> {
    let mut reader = Reader::new(dump)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next()? {
        items.push(item);
    }
    Ok(items)
}

fn write(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out).unwrap();
    for item in items {
        match item {
            Item::Map(name) => writer.map(name).unwrap(),
            Item::CountingMap { name, counting } => writer.counting_map(name, *counting).unwrap(),
            Item::FixedMap(name) => writer.fixed_map(name).unwrap(),
            Item::VersionedMap(name) => writer.versioned_map(name).unwrap(),
            Item::HashTable(name) => writer.hash_table(name).unwrap(),
            Item::LeftOut { name, what } => writer.left_out(name, what).unwrap(),
            Item::FixedEntry { key, value } => writer.fixed_entry(*key, *value).unwrap(),
            Item::Entry { key, value } => writer.entry(key, value).unwrap(),
        }
    }
    writer.finish().unwrap();
    out
}

fn sample() -> Vec<Item> {
    let entry = |key: &[u8], value: &[u8]| Item::Entry { key: key.to_vec(), value: value.to_vec() };
    vec![
        Item::LeftOut { name: "future".into(), what: "of another kind".into() },
        Item::Map("empty".into()),
        Item::Map("päck \"quoted\"\n".into()),
        entry(b"", b""),
        entry(b"a\nb", &[0, 1, 2, 255]),
        entry(&[0xff; 40], "é".repeat(1000).as_bytes()),
        Item::CountingMap { name: "ranked".into(), counting: Counting::Records },
        entry(b"k", b"v"),
        Item::CountingMap { name: "weighed".into(), counting: Counting::Weights },
        entry(b"k", b"1234"),
        Item::FixedMap("numbers".into()),
        Item::FixedEntry { key: 0, value: 0 },
        Item::FixedEntry { key: u64::MAX, value: 1 },
        Item::VersionedMap("stock".into()),
        entry(b"k", b"v"),
        Item::HashTable("sessions".into()),
        entry(b"k", b"v"),
        Item::Map("".into()),
        entry(b"k", b"v"),
    ]
}

fn message(dump: &[u8]) -> String {
    read(dump).expect_err("the dump was accepted").to_string()
}

#[test]
fn a_dump_comes_back_and_is_the_same_when_written_again() {
    let dump = write(&sample());
    assert_eq!(read(&dump).unwrap(), sample());
    assert_eq!(write(&read(&dump).unwrap()), dump);
    assert_eq!(read(&write(&[])).unwrap(), []);
}

#[test]
fn the_format_is_the_documented_one() {
    let document = include_str!("../../../../../docs/guide/dump.md");
    let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let apple = Item::Entry { key: b"apple".to_vec(), value: b"120".to_vec() };
    let binary = Item::Entry { key: vec![0xff, 0], value: Vec::new() };
    let square = Item::FixedEntry { key: 12, value: 144 };
    let pears = Item::Entry { key: b"pears".to_vec(), value: b"12".to_vec() };
    let first = Item::Entry { key: b"anna".to_vec(), value: b"17".to_vec() };
    let session = Item::Entry { key: b"4711".to_vec(), value: b"logged in".to_vec() };
    let items = [
        Item::Map("prices".into()),
        apple,
        binary,
        Item::CountingMap { name: "ranks".into(), counting: Counting::Records },
        first,
        Item::HashTable("sessions".into()),
        session,
        Item::FixedMap("squares".into()),
        square,
        Item::VersionedMap("stock".into()),
        pears,
    ];
    assert_eq!(String::from_utf8(write(&items)).unwrap(), example);
    assert_eq!(read(example.as_bytes()).unwrap(), items);
}

#[test]
fn a_dump_cut_anywhere_is_refused() {
    let dump = write(&sample());
    for bytes in 0..dump.len() - 1 {
        assert!(read(&dump[..bytes]).is_err(), "cut to {bytes} of {} bytes", dump.len());
    }
    // Only the final line end may be missing.
    assert!(read(&dump[..dump.len() - 1]).is_ok());
}

#[test]
fn any_changed_byte_is_noticed() {
    let dump = write(&sample());
    let last_line = dump[..dump.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for at in 0..last_line {
        let mut changed = dump.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn an_edited_dump_is_read_when_the_checksum_is_left_out() {
    let dump = b"{\"tembo_dump\": 1}\r\n\r\n{\"map\": \"m\"}\n{\"value\": \"v\", \"key\": {\"base64\": \"aw==\"}}\n\n\
                 {\"end\": {\"maps\": 1, \"entries\": 1}}\n\n";
    let entry = Item::Entry { key: b"k".to_vec(), value: b"v".to_vec() };
    assert_eq!(read(dump).unwrap(), [Item::Map("m".into()), entry]);
}

#[test]
fn every_wrong_line_is_named() {
    let cases = [
        ("{\"key\":\"k\",\"value\":\"v\"}", "line 2 of the dump: an entry before the first map"),
        ("{\"tembo_dump\":1}", "line 2 of the dump: a second header"),
        ("{\"map\":\"m\"}\n{\"key\":\"k\"}", "line 3 of the dump: a line is one of"),
        ("{\"map\":\"m\",\"key\":\"k\",\"value\":\"v\"}", "line 2 of the dump: a line is one of"),
        ("{}", "line 2 of the dump: a line is one of"),
        ("{\"map\":\"m\",\"fixed_map\":\"m\"}", "line 2 of the dump: a line is one of"),
        ("{\"fixed_map\":\"m\",\"versioned_map\":\"m\"}", "line 2 of the dump: a line is one of"),
        ("{\"hash_table\":\"m\",\"map\":\"m\"}", "line 2 of the dump: a line is one of"),
        ("{\"map\":\"m\",\"map\":\"n\"}", "line 2 of the dump: duplicate field"),
        ("{\"mop\":\"m\"}", "line 2 of the dump: unknown field `mop`"),
        ("{\"map\":\"m\"", "line 2 of the dump: EOF while parsing an object at column 10"),
        ("{\"map\":\"m\"} x", "line 2 of the dump: trailing characters"),
        ("{\"map\":\"m\"}", "cut short: it ends after line 2"),
        ("{\"end\":{\"maps\":0,\"entries\":1}}", "it has 0 maps and 0 entries, its last line says 0 and 1"),
        ("{\"end\":{\"maps\":0,\"entries\":0,\"xxh3\":\"0\"}}", "remove \"xxh3\""),
        ("{\"end\":{\"maps\":0,\"entries\":0}}\n{\"map\":\"m\"}", "line 3 of the dump: the dump goes on"),
    ];
    for (rest, expected) in cases {
        let text = message(format!("{{\"tembo_dump\":1}}\n{rest}").as_bytes());
        assert!(text.contains(expected), "{rest}: {text}");
    }
}

#[test]
fn entries_of_a_fixed_map_are_numbers_in_digits() {
    for wrong in ["", "+1", "-1", "1.0", " 1", "x", "18446744073709551616"] {
        for entry in
            [format!("\"key\":\"{wrong}\",\"value\":\"1\""), format!("\"key\":\"1\",\"value\":\"{wrong}\"")]
        {
            let text =
                message(format!("{{\"tembo_dump\":1}}\n{{\"fixed_map\":\"m\"}}\n{{{entry}}}").as_bytes());
            assert!(text.contains("line 3 of the dump: in a fixed map"), "{wrong:?}: {text}");
        }
    }
}

/// Some editors save a file with a byte order mark at its start.
#[test]
fn a_mark_at_the_start_is_no_part_of_a_dump() {
    let dump = write(&sample());
    assert_eq!(read(&[b"\xef\xbb\xbf", &dump[..]].concat()).unwrap(), sample());
}

/// A message has no bound if it repeats in full a piece of the input that is wrong.
#[test]
fn messages_quote_the_start_of_what_is_long() {
    let long = "x".repeat(1 << 20);
    for rest in [
        format!("{{\"{long}\":1}}"),
        format!("{{\"map\":\"m\"}}\n{{\"key\":\"k\",\"value\":{{\"{long}\":1}}}}"),
        format!("{{\"map\":1,\"key\":\"{long}\"}}"),
        format!("{{\"tembo_dump\":\"{long}\"}}"),
        format!("{{\"end\":{{\"maps\":0,\"entries\":0,\"xxh3\":\"{long}\"}}}}"),
    ] {
        let text = message(format!("{{\"tembo_dump\":1}}\n{rest}").as_bytes());
        assert!(text.len() < 400, "{} bytes: {}", text.len(), &text[..400]);
    }
}

#[test]
fn what_is_no_dump_is_called_so() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "there is nothing in it"),
        (b"\n", "there is nothing in it"),
        (b"TEMBOPM\n\0\0", "it is a pool, which has a dump made by `tembo dump`"),
        (b"{\"map\":\"m\"}\n", r#"it begins with "{\"map\":\"m\"}""#),
        (b"{\"tembo_dump\":0}\n", r#"it begins with "{\"tembo_dump\":0}""#),
        (b"\xff", r#"it begins with "\\xff""#),
        (b"\xff\xfe{\0", "it is text in UTF-16, to be saved as UTF-8"),
        (b"\x1f\x8b\x08", "it is compressed with gzip, to be read through gunzip"),
        (&[b'x'; 1 << 20], r#"it begins with "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"..."#),
    ];
    for (dump, expected) in cases {
        let found = message(dump);
        assert_eq!(
            found,
            format!("this is not a dump: {expected}; the first line of a dump is {{\"tembo_dump\":1}}")
        );
    }
    assert!(message(b"{\"tembo_dump\":2}\n").contains("format version 2"));
}
