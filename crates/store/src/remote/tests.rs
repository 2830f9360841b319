//! Messages by themselves: any bytes are an answer or an error.

use super::FRAME_BYTES_MAX;
use super::message::{KeptAs, Reply, Request, VERSION, Which};
use super::serve::may_use;
use super::wire::{Writer, receive, send};
use crate::backup::BackupSummary;
use crate::changes::Change;
use crate::check::SnapshotReport;
use crate::error::Error;
use crate::snapshot::Kept;
use crate::store::KeyVersion;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Read;
use std::ops::Bound;
use std::time::Duration;

fn requests() -> Vec<Request<'static>> {
    let key: &[u8] = b"key";
    let bounds = (Bound::Included(key), Bound::Excluded(key));
    vec![
        Request::Hello { version: VERSION, store: "bank" },
        Request::Stores,
        Request::Keyspaces,
        Request::Keyspace { name: "a", make: None },
        Request::Keyspace { name: "a", make: Some(7) },
        Request::DropKeyspace { name: "" },
        Request::Retain { keyspace: 1, retention: u64::MAX },
        Request::Open(Which::Current),
        Request::Open(Which::At(5)),
        Request::Open(Which::AtTime(6)),
        Request::Open(Which::AtName("é")),
        Request::Begin { at: Some(1), is_serializable: false },
        Request::Begin { at: None, is_serializable: true },
        Request::Close { open: 3 },
        Request::Get { open: None, keyspace: 1, key },
        Request::Get { open: Some(2), keyspace: 1, key: b"" },
        Request::Page { open: 1, keyspace: 2, bounds, is_back: true, is_first: false },
        Request::Commit { open: 1, writes: vec![(2, vec![(key, None), (b"", Some(key))]), (3, vec![])] },
        Request::Change { keyspace: 1, change: (key, Some(b"")) },
        Request::Keep { number: 1, name: Some("n") },
        Request::Keep { number: 1, name: None },
        Request::DeleteKept(KeptAs::Name("n")),
        Request::DeleteKept(KeptAs::Number(9)),
        Request::Kept,
        Request::Versions { keyspace: 1, key },
        Request::Collect { tables: 100 },
        Request::Check { open: 4 },
        Request::Changes { from: 1, to: 2, keyspace: 3, after: None },
        Request::Changes { from: 1, to: 2, keyspace: 3, after: Some(key) },
        Request::Backup { open: 1, base: None },
        Request::Backup { open: 1, base: Some(2) },
    ]
}

fn errors() -> Vec<Error> {
    let (name, keyspace) = ("n".to_owned(), "k".to_owned());
    vec![
        Error::Conflict { keyspace: keyspace.clone(), key: b"\xff".to_vec(), by: 2, snapshot: 1 },
        Error::SnapshotGone { number: 1, current: 2 },
        Error::NotRetained { number: 1, keyspace },
        Error::HistoryFull { kept_bytes: 1, max_bytes: 2 },
        Error::TransactionTooLarge { bytes: 3, max_bytes: 2 },
        Error::TransactionTooOld { age: Duration::from_millis(3), max_age: Duration::from_millis(2) },
        Error::NoSuchSnapshot { name: name.clone() },
        Error::SnapshotExists { name: name.clone() },
        Error::Name { what: "keyspace", bytes: 0, max_bytes: 40 },
        Error::Name { what: "snapshot", bytes: 50, max_bytes: 40 },
        Error::KeyspaceDropped { name: name.clone() },
        tembo_index::Error::KeyTooLong { bytes: 2, max_bytes: 1 }.into(),
        tembo_index::Error::ValueTooLong { bytes: 2, max_bytes: 1 }.into(),
        Error::Refused { why: name.clone() },
        Error::FrameTooLarge { bytes: 2, max_bytes: 1 },
        Error::NoSuchStore { name: name.clone() },
        Error::BackupOrder { why: name.clone() },
        Error::Remote { message: name, is_full: true },
    ]
}

fn replies() -> Vec<Reply> {
    let mut all: Vec<Reply> = errors().into_iter().map(Reply::Fault).collect();
    let bytes = |text: &str| text.as_bytes().to_vec();
    let change = |before: Option<&str>, after: Option<&str>| Change {
        key: b"k".to_vec(),
        before: before.map(bytes),
        after: after.map(bytes),
    };
    let kept = |name: Option<&str>| Kept { number: 4, name: name.map(str::to_owned) };
    all.extend([
        Reply::Welcome { version: VERSION, pid: 1 },
        Reply::Done,
        Reply::Flag(true),
        Reply::Number(u64::MAX),
        Reply::Names(vec!["a".to_owned(), String::new()]),
        Reply::Keyspace(None),
        Reply::Keyspace(Some((1, 2))),
        Reply::Opened { open: 1, number: 2 },
        Reply::Value(None),
        Reply::Value(Some(Vec::new())),
        Reply::Page { entries: vec![(b"k".to_vec(), b"v".to_vec())], has_more: true },
        Reply::Kept(vec![kept(None), kept(Some("n"))]),
        Reply::Versions(vec![KeyVersion { number: 1, value: None }]),
        Reply::Checked(SnapshotReport { number: 1, keyspaces: 2, not_retained: 3, keys: 4, bytes: 5 }),
        Reply::Changes { changes: vec![change(None, Some("v")), change(Some(""), None)], next: None },
        Reply::Changes { changes: Vec::new(), next: Some(b"k".to_vec()) },
        Reply::Part(b"TmBckup".to_vec()),
        Reply::BackedUp(BackupSummary { keyspaces: 1, changes: 2 }),
    ]);
    all
}

/// The bytes of every message, and whether it is a request.
fn frames() -> Vec<(Vec<u8>, bool)> {
    let requests = requests().into_iter().map(|request| (request.encode().0, true));
    requests.chain(replies().into_iter().map(|reply| (reply.encode().0, false))).collect()
}

#[test]
fn messages_arrive_as_they_were_sent() {
    for request in requests() {
        let bytes = request.encode().0;
        assert_eq!(Request::decode(&bytes).as_ref(), Ok(&request));
    }
    for reply in replies() {
        let decoded = Reply::decode(&reply.encode().0).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{reply:?}"));
    }
}

#[test]
fn an_error_without_a_type_of_its_own_keeps_its_text_and_whether_it_means_full() {
    let full = Error::HistoryFull { kept_bytes: 1, max_bytes: 1 };
    assert!(full.is_full());
    let other = Error::InUse { name: "bank".to_owned() };
    let text = other.to_string();
    let Reply::Fault(Error::Remote { message, is_full }) =
        Reply::decode(&Reply::Fault(other).encode().0).unwrap()
    else {
        panic!("another reply");
    };
    assert_eq!((message, is_full), (text, false));
}

#[test]
fn a_message_that_is_cut_short_or_too_long_is_refused() {
    for (frame, is_request) in frames() {
        let is_refused = |bytes: &[u8]| {
            if is_request { Request::decode(bytes).is_err() } else { Reply::decode(bytes).is_err() }
        };
        assert!(!is_refused(&frame));
        for length in 0..frame.len() {
            assert!(is_refused(&frame[..length]), "{length} bytes of {frame:?}");
        }
        assert!(is_refused(&[frame.as_slice(), &[0]].concat()), "a byte after {frame:?}");
    }
}

#[test]
fn random_bytes_and_changed_messages_are_answered_without_a_panic() {
    let seed = 35;
    println!("seed {seed}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let frames = frames();
    let mut understood = 0;
    for i in 0..200_000 {
        let mut bytes = if i % 2 == 0 {
            (0..rng.random_range(0..60)).map(|_| rng.random()).collect()
        } else {
            frames[rng.random_range(0..frames.len())].0.clone()
        };
        for _ in 0..rng.random_range(0..4) {
            if bytes.is_empty() {
                break;
            }
            let at = rng.random_range(0..bytes.len());
            bytes[at] = if rng.random() { rng.random() } else { [0, 1, 0x7F, 0xFF][i % 4] };
        }
        if let Ok(request) = Request::decode(&bytes) {
            understood += 1;
            // Whatever is understood is sent on in the same bytes.
            assert_eq!(request.encode().0, bytes);
        }
        if let Ok(reply) = Reply::decode(&bytes) {
            understood += 1;
            assert_eq!(reply.encode().0, bytes);
        }
    }
    assert!(understood > 10_000, "{understood}");
}

#[test]
fn a_frame_with_a_length_that_is_not_true_costs_no_memory() {
    /// Bytes without an end, which count how many were taken.
    struct Source(Vec<u8>);
    impl Read for Source {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            // A reader that made room for the whole frame would offer it here.
            assert!(buffer.len() <= 128 << 10, "room for {} bytes", buffer.len());
            let count = self.0.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }
    let lying = [&(FRAME_BYTES_MAX as u32).to_le_bytes()[..], b"few"].concat();
    assert!(matches!(receive(&mut Source(lying), FRAME_BYTES_MAX), Err(Error::Disconnected { .. })));
    let huge = u32::MAX.to_le_bytes().to_vec();
    assert!(matches!(
        receive(&mut Source(huge), FRAME_BYTES_MAX),
        Err(Error::FrameTooLarge { bytes: 0xFFFF_FFFF, .. })
    ));
    assert!(matches!(receive(&mut Source(vec![1, 0]), 10), Err(Error::Disconnected { .. })));
    assert!(matches!(receive(&mut Source(Vec::new()), 10), Ok(None)));
}

#[test]
fn a_frame_that_is_too_long_is_not_begun() {
    let mut sent = Vec::new();
    let frame = Writer(vec![0; FRAME_BYTES_MAX as usize + 1]);
    assert!(matches!(send(&mut sent, &frame), Err(Error::FrameTooLarge { .. })));
    assert!(sent.is_empty());
}

#[test]
fn the_owner_and_root_may_connect() {
    assert!(may_use(1000, 1000) && may_use(0, 1000) && may_use(0, 0));
    assert!(!may_use(1000, 0) && !may_use(1000, 1001));
}
