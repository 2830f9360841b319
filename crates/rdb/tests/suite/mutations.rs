//! Damaged files are refused, with a place, and never cost more memory than they have bytes.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_rdb::{Encodings, KeyMeta, Kind, Problem, Reader};

use crate::model::{Contents, Owned, Value, payload, read, read_file};
use crate::properties;

/// Everything that is written, and a bit of everything that is only read.
fn file() -> Vec<u8> {
    let mut contents = Contents::default();
    let item = |n: usize| format!("item {}", n * n).into_bytes();
    let mut add = |key: &str, kind, elements: Vec<Owned>| {
        let mut value = Value::new(kind, elements);
        value.meta = KeyMeta { deadline_ms: Some(1 << 41), ..KeyMeta::default() };
        contents.keys.push((0, key.as_bytes().to_vec(), value));
    };
    add("string", Kind::String, vec![Owned::Text(b"all of a string".to_vec())]);
    add("long string", Kind::String, vec![Owned::Text(b"all of a string ".repeat(30))]);
    add("integer", Kind::String, vec![Owned::Text(b"70000".to_vec())]);
    add("list", Kind::List, (0..40).map(|n| Owned::Item(item(n))).collect());
    add("set", Kind::Set, (0..20).map(|n| Owned::Item(item(n))).collect());
    add("integers", Kind::Set, (0..20i32).map(|n| Owned::Item(n.to_string().into_bytes())).collect());
    add("hash", Kind::Hash, (0..20).map(|n| Owned::Field(item(n), item(n + 1), None)).collect());
    add("large hash", Kind::Hash, (0..200).map(|n| Owned::Field(item(n), item(n + 1), None)).collect());
    let scored = |n: usize| Owned::Scored(item(n), (n as f64 / 3.0).to_bits());
    add("sorted set", Kind::SortedSet, (0..20).map(scored).collect());
    add("large sorted set", Kind::SortedSet, (0..150).map(scored).collect());
    let mut file = contents.write(Encodings { compress: false, ..Encodings::default() });
    file.truncate(file.len() - 9);
    file.extend(crate::fixtures::unread_values());
    file.push(0xff);
    file.extend([0; 8]);
    file
}

/// Changes some bytes, or takes some away, or puts some in.
fn mutate(random: &mut Xoshiro256PlusPlus, file: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..bytes.len());
        let byte = *[0, 1, 0x7f, 0x80, 0x81, 0xc3, 0xfe, 0xff, random.random()]
            .get(random.random_range(0..9))
            .unwrap();
        match random.random_range(0..5) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, byte),
            2 => drop(bytes.remove(at)),
            3 => bytes[at] ^= 1 << random.random_range(0..8),
            _ => bytes[at] = byte,
        }
        if bytes.len() < 2 {
            break;
        }
    }
    bytes
}

#[test]
fn two_thousand_damaged_files_are_refused_or_read_to_their_end() {
    let file = file();
    let whole = read_file(&file).unwrap();
    assert!(!whole.is_checked && whole.skipped.len() == 4, "{:?}", whole.skipped);
    let mut refused = 0;
    for seed in 0..2000 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let damaged = mutate(&mut random, &file);
        let outcome = std::panic::catch_unwind(|| {
            properties::files(&damaged);
            properties::rewritten(&damaged);
            read_file(&damaged).map_err(|error| error.to_string())
        });
        match outcome.unwrap_or_else(|_| panic!("seed {seed}")) {
            Ok(_) => {}
            Err(text) => {
                assert!(text.starts_with("at byte "), "seed {seed}: {text}");
                refused += 1;
            }
        }
    }
    // The others changed a string, which is as good as another without a checksum.
    assert!(refused > 700, "{refused} of 2000");
}

#[test]
fn a_checksum_finds_every_change() {
    let mut contents = read_file(&file()).unwrap();
    contents.skipped.clear();
    let file = contents.write(Encodings::default());
    for seed in 0..500 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let damaged = mutate(&mut random, &file);
        if damaged != file && !damaged.starts_with(&file) && !damaged.ends_with(&[0; 8]) {
            let refused = read_file(&damaged);
            assert!(refused.is_err(), "seed {seed}");
        }
    }
    let mut summed = file.clone();
    let last = summed.len() - 1;
    summed[last] ^= 1;
    let error = read_file(&summed).unwrap_err();
    assert!(matches!(error.problem(), Problem::Checksum { .. }), "{error}");
}

#[test]
fn payloads_with_a_changed_byte_are_refused() {
    let value = Value::new(Kind::List, (0..30).map(|n| Owned::Item(vec![b'x'; n])).collect());
    let payload = payload(&value, &Encodings::default());
    for at in 0..payload.len() {
        for bit in 0..8 {
            let mut damaged = payload.clone();
            damaged[at] ^= 1 << bit;
            assert!(Reader::payload(&damaged).is_err());
        }
    }
    for len in 0..payload.len() {
        assert!(Reader::payload(&payload[..len]).is_err());
    }
}

/// A length of 2^60 bytes would end the process if it were believed.
#[test]
fn announced_lengths_are_not_believed() {
    let huge = [&[0x81][..], &(1u64 << 60).to_be_bytes()].concat();
    let compressed = [&[0xc3, 3][..], &huge, &[0, b'x', 0]].concat();
    for type_byte in [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21] {
        for value in [&huge, &compressed, &[&[1][..], &huge].concat(), &[&[1, 2][..], &huge].concat()] {
            let file = [b"REDIS0012", &[type_byte][..], b"\x03key", value].concat();
            let mut reader = Reader::new(&file[..]).unwrap();
            reader.set_string_bytes_max(u64::MAX);
            let error = read(Ok(reader)).unwrap_err();
            assert!(error.offset() <= file.len() as u64, "{error}");
        }
    }
    let file = [b"REDIS0012\0\x03key", &huge[..]].concat();
    let error = read_file(&file).unwrap_err();
    assert!(matches!(error.problem(), Problem::TooLong { .. }), "{error}");
}
