//! Tests of the format: a file that was changed, cut, shortened, or put together from several is refused,
//! with the place.

use std::io::Cursor;

use tembo_rdb::{Element, KeyMeta, Kind, Writer as Rdb};
use tembo_wire::write_request;

use super::container::{Head, Writer};
use super::{BackupError, BackupKind, BackupSummary, StreamPlace, expect_chain, summary_of_end, verify};
use crate::random::Random;

fn place(id: u8, offset: u64) -> StreamPlace {
    StreamPlace { id: [id; 40], offset }
}

/// A backup with data in records of this length.
fn backup(kind: BackupKind, from: StreamPlace, to: StreamPlace, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let head = Head { kind, is_node: false, from, time_ms: 7, server: "tembo 1".to_owned() };
    let mut writer = Writer::begin(&mut out, &head).unwrap();
    writer.add(data).unwrap();
    assert_eq!(writer.end(to).unwrap(), data.len() as u64);
    out
}

fn copy(keys: usize) -> Vec<u8> {
    let mut writer = Rdb::new(Vec::new(), Default::default()).unwrap();
    writer.database(0, keys as u64, 0).unwrap();
    for key in 0..keys {
        writer.begin(format!("key {key}").as_bytes(), KeyMeta::default(), Kind::String, 1).unwrap();
        // Nothing that could be compressed.
        let hashes =
            (0..8).map(|n| xxhash_rust::xxh3::xxh3_64(&[key as u8, (key >> 8) as u8, n]).to_le_bytes());
        writer.element(Element::Text(&hashes.flatten().collect::<Vec<u8>>())).unwrap();
        writer.end().unwrap();
    }
    writer.finish().unwrap()
}

fn stream(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    lines.iter().for_each(|line| write_request(&mut out, line.split(' ').collect::<Vec<_>>()));
    out
}

fn full(keys: usize) -> Vec<u8> {
    backup(BackupKind::Full, place(b'a', 100), place(b'a', 100), &copy(keys))
}

fn incremental(from: u64, lines: &[&str]) -> Vec<u8> {
    let data = stream(lines);
    backup(BackupKind::Incremental, place(b'a', from), place(b'a', from + data.len() as u64), &data)
}

fn read(bytes: &[u8]) -> Result<BackupSummary, BackupError> {
    verify(bytes, &mut |_| {})
}

#[test]
fn a_backup_is_read_back() {
    let bytes = full(2000);
    let summary = read(&bytes).unwrap();
    assert_eq!((summary.kind, summary.keys), (BackupKind::Full, Some(2000)));
    assert_eq!((summary.from, summary.to, summary.time_ms), (place(b'a', 100), place(b'a', 100), 7));
    assert_eq!((summary.server.as_str(), summary.is_node), ("tembo 1", false));
    let end = summary_of_end(Cursor::new(&bytes)).unwrap();
    assert_eq!(end, BackupSummary { keys: None, ..summary });
    let bytes = incremental(100, &["SET a 1", "MULTI", "SET b 2", "EXEC"]);
    let summary = read(&bytes).unwrap();
    assert_eq!((summary.kind, summary.keys), (BackupKind::Incremental, None));
    assert_eq!(summary.to.offset, 100 + summary.data_bytes);
    // A backup without data.
    assert_eq!(read(&incremental(7, &[])).unwrap().to.offset, 7);
}

#[test]
fn every_cut_is_known_as_one() {
    let bytes = full(1500);
    for length in (0..300).chain((300..bytes.len()).step_by(997)).chain(bytes.len() - 200..bytes.len()) {
        match read(&bytes[..length]).unwrap_err() {
            BackupError::NotABackup => assert!(length < 8, "{length}"),
            BackupError::Cut { offset } => assert_eq!(offset, length as u64),
            other => panic!("{length}: {other}"),
        }
        assert!(summary_of_end(Cursor::new(&bytes[..length])).is_err(), "{length}");
    }
    let more = [&bytes[..], b"x"].concat();
    let error = read(&more).unwrap_err().to_string();
    assert_eq!(error, format!("at byte {}: bytes follow the end of the backup", bytes.len()));
}

#[test]
fn every_changed_byte_is_found_at_its_record() {
    let mut random = Random::new();
    let bytes = full(1500);
    let all = (0..bytes.len())
        .filter(|at| *at < 200 || *at + 200 > bytes.len() || random.next().is_multiple_of(64));
    for at in all.collect::<Vec<_>>() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (random.next() % 8);
        match read(&changed).unwrap_err() {
            BackupError::NotABackup => assert!(at < 8),
            // The record begins at most its own length before.
            BackupError::Damaged { offset, .. } => {
                assert!(offset <= at as u64 && at as u64 - offset < 65_600, "{at}")
            }
            // A length that is longer than the rest.
            BackupError::Cut { offset } => assert_eq!(offset, bytes.len() as u64, "{at}"),
            other => panic!("{at}: {other}"),
        }
    }
}

#[test]
fn records_of_other_places_and_files_are_refused() {
    let bytes = full(3000);
    let record = 5 + (64 << 10) + 8;
    let first = 8 + 5 + 60 + "tembo 1".len() + 8;
    assert!(bytes.len() > first + 2 * record);
    let (head, one, two, rest) = (
        &bytes[..first],
        &bytes[first..first + record],
        &bytes[first + record..first + 2 * record],
        &bytes[first + 2 * record..],
    );
    let place_of = |parts: &[&[u8]]| match read(&parts.concat()).unwrap_err() {
        BackupError::Damaged { offset, .. } => offset as usize,
        other => panic!("{other}"),
    };
    assert_eq!([head, one, two, rest].concat(), bytes);
    assert_eq!(place_of(&[head, two, rest]), first, "left out");
    assert_eq!(place_of(&[head, two, one, rest]), first, "in another order");
    assert_eq!(place_of(&[head, one, one, two, rest]), first + record, "twice");
    let end = &bytes[bytes.len() - 77..];
    assert_eq!(place_of(&[head, one, two, end]), first + 2 * record, "an end that is too early");
    let other = backup(BackupKind::Full, place(b'b', 100), place(b'b', 100), &copy(3000));
    assert_eq!(place_of(&[head, one, &other[first + record..]]), first + record, "of another file");
}

#[test]
fn what_is_no_stream_or_no_copy_is_refused_although_its_records_are_sound() {
    let whole = stream(&["MULTI", "SET a 1"]);
    for data in [&b"SET a 1\r\n"[..], &whole, &whole[..20]] {
        let to = place(b'a', data.len() as u64);
        let error = read(&backup(BackupKind::Incremental, place(b'a', 0), to, data)).unwrap_err();
        assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
    }
    let to = place(b'a', 1);
    let error = read(&backup(BackupKind::Incremental, place(b'a', 0), to, &stream(&["PING"]))).unwrap_err();
    assert!(error.to_string().contains("the end does not fit"), "{error}");
    let mut data = copy(3);
    data[40] ^= 1;
    let at = place(b'a', 0);
    let error = read(&backup(BackupKind::Full, at, at, &data)).unwrap_err();
    assert!(matches!(error, BackupError::Copy(_)), "{error}");
    let error = read(&backup(BackupKind::Full, at, at, &[&copy(3)[..], b"x"].concat())).unwrap_err();
    assert!(error.to_string().contains("bytes follow the end of the copy"), "{error}");
}

#[test]
fn a_later_version_is_named() {
    let mut bytes = full(1);
    bytes[13] = 2;
    let head = &bytes[8..8 + 5 + 60 + "tembo 1".len()];
    let sum = xxhash_rust::xxh3::xxh3_64(head).to_le_bytes();
    let at = 8 + head.len();
    bytes[at..at + 8].copy_from_slice(&sum);
    assert!(matches!(read(&bytes), Err(BackupError::NewerVersion(2))));
}

#[test]
fn a_chain_has_no_gap_and_one_history() {
    let summary = |bytes: &[u8]| read(bytes).unwrap();
    let (first, next) = (summary(&full(1)), summary(&incremental(100, &["SET a 1"])));
    let later = summary(&incremental(next.to.offset, &["SET a 2"]));
    expect_chain(&first, &next).unwrap();
    expect_chain(&next, &later).unwrap();
    let why = |before, next| expect_chain(before, next).unwrap_err().to_string();
    assert!(why(&first, &later).contains("is missing"));
    assert!(why(&next, &first).contains("follows none"));
    let data = stream(&["PING"]);
    let other = backup(BackupKind::Incremental, place(b'b', 100), place(b'b', 114), &data);
    let why = why(&first, &summary(&other));
    assert!(why.contains("another history"), "{why}");
}
