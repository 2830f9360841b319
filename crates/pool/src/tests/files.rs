//! Files that are not whole pools: each is refused with its own error and left as it was.

use super::{model, tiny_options};
use crate::file::opening::{self, OPENING_OFF};
use crate::{Ending, Error, ErrorKind, Options, Pool};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn new_pool(dir: &Path) -> (PathBuf, Vec<u8>) {
    let path = dir.join("a.pool");
    let pool = Pool::open(&path, &tiny_options()).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, 3, 100, 5).unwrap();
    tx.commit().unwrap();
    drop((lane, pool));
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Opens a file with these contents, in both modes, and asserts that it is not changed.
fn refusal(path: &Path, contents: &[u8]) -> Error {
    fs::write(path, contents).unwrap();
    let read_only = Options { read_only: true, ..Options::default() };
    let error = Pool::open(path, &Options::default()).expect_err("a damaged pool was opened");
    let also = Pool::open(path, &read_only).expect_err("a damaged pool was opened for reading");
    assert_eq!(error.to_string(), also.to_string());
    assert!(fs::read(path).unwrap() == contents, "the file was changed: {error}");
    error
}

#[test]
fn a_pool_can_be_closed_copied_renamed_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = new_pool(dir.path());
    let copy = dir.path().join("copy.pool");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&path, dir.path().join("other.pool")).unwrap();
    for name in ["copy.pool", "other.pool"] {
        let pool = Pool::open(dir.path().join(name), &Options::default()).unwrap();
        assert_eq!(model::read(&pool).unwrap(), [(3, (100, 5))].into());
        assert_eq!(pool.recovery(), crate::Recovery::default(), "a closed pool has nothing to recover");
    }
    assert_eq!(fs::read(&copy).unwrap(), bytes, "opening and closing writes nothing");
}

#[test]
fn truncation_at_any_length_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = new_pool(dir.path());
    let mut lengths: Vec<usize> = (0..300).chain((4000..4200).step_by(7)).collect();
    lengths.extend((4096..bytes.len()).step_by(9973));
    lengths.push(bytes.len() - 1);
    for length in lengths {
        let error = refusal(&path, &bytes[..length]);
        match (length, error.kind()) {
            (0, ErrorKind::Empty) => {}
            (1.., ErrorKind::Truncated { found_bytes, .. }) => assert_eq!(*found_bytes, length as u64),
            _ => panic!("{length} bytes: {error}"),
        }
    }
}

#[test]
fn every_flipped_header_byte_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = new_pool(dir.path());
    for at in 0..4096 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = refusal(&path, &damaged);
        match (at, error.kind()) {
            (0..8, ErrorKind::NotAPool { .. }) | (8.., ErrorKind::HeaderDamaged { .. }) => {}
            _ => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn other_kinds_of_files_get_their_own_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = new_pool(dir.path());
    let resummed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut other = bytes.clone();
        change(&mut other);
        let sum = xxhash_rust::xxh3::xxh3_64(&other[..120]);
        other[120..128].copy_from_slice(&sum.to_le_bytes());
        other
    };
    let newer = refusal(&path, &resummed(&|b| b[8] = 9));
    assert!(matches!(newer.kind(), ErrorKind::NewerVersion { found: 9, known: 1 }), "{newer}");
    let features = refusal(&path, &resummed(&|b| b[17] = 1));
    assert!(matches!(features.kind(), ErrorKind::UnknownFeatures { unknown: 256 }), "{features}");
    let foreign = refusal(&path, &resummed(&|b| b[12..16].reverse()));
    assert!(matches!(foreign.kind(), ErrorKind::ForeignByteOrder), "{foreign}");
    let geometry = refusal(&path, &resummed(&|b| b[48] = 1));
    assert!(matches!(geometry.kind(), ErrorKind::HeaderDamaged { .. }), "{geometry}");
    let text = refusal(&path, b"#!/bin/sh\necho this is no pool\n");
    assert!(matches!(text.kind(), ErrorKind::NotAPool { .. }), "{text}");
    let directory = Pool::open(dir.path(), &tiny_options()).unwrap_err();
    assert!(matches!(directory.kind(), ErrorKind::NotAFile { found: "a directory", .. }), "{directory}");
    let missing = Pool::open(dir.path().join("none"), &Options::default()).unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::NotFound { .. }), "{missing}");
    let nowhere = Pool::open(dir.path().join("none/such/dir"), &tiny_options()).unwrap_err();
    assert!(matches!(nowhere.kind(), ErrorKind::NoDirectory { exists: false, .. }), "{nowhere}");
    fs::write(&path, &bytes).unwrap();
    let taken = Pool::open(&path, &Options { create_new: true, ..tiny_options() }).unwrap_err();
    assert!(matches!(taken.kind(), ErrorKind::AlreadyExists { .. }), "{taken}");
}

/// For a dangling link, one error said "exists already", and another "there is no pool; create it".
#[test]
fn a_link_that_leads_nowhere_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link");
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    for options in [Options::default(), tiny_options(), Options { create_new: true, ..tiny_options() }] {
        let error = Pool::open(&path, &options).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::DanglingLink { target, .. } if target.as_os_str() == "nowhere"),
            "{error}"
        );
    }
    fs::write(dir.path().join("file"), b"").unwrap();
    let error = Pool::open(dir.path().join("file/a.pool"), &tiny_options()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoDirectory { exists: true, .. }), "{error}");
}

#[test]
fn a_pool_is_made_in_a_file_that_has_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = (tempfile::tempfile_in(dir.path()).unwrap(), dir.path().join("later"));
    let pool = Pool::create_in_file(&file, &path, &tiny_options()).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let off = tx.alloc_zeroed(64).unwrap();
    tx.set_root("root", 7, off).unwrap();
    tx.commit().unwrap();
    drop((lane, pool));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
    fs::write(&path, bytes).unwrap();
    let pool = Pool::open(&path, &Options::default()).unwrap();
    assert_eq!(pool.root("root").unwrap().map(|root| root.kind), Some(7));
}

#[test]
fn a_file_without_permission_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = new_pool(dir.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match Pool::open(&path, &Options::default()) {
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}"),
        // The superuser may open it all the same.
        Ok(_) => assert!(rustix::process::geteuid().is_root()),
    }
}

#[test]
fn a_pool_in_use_is_locked_and_the_holder_named() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = new_pool(dir.path());
    let writer = Pool::open(&path, &Options::default()).unwrap();
    let error = Pool::open(&path, &Options::default()).unwrap_err();
    let ErrorKind::Locked { holder, .. } = error.kind() else { panic!("{error}") };
    assert!(holder.contains(&std::process::id().to_string()), "{error}");
    drop(writer);
    let read_only = Options { read_only: true, ..Options::default() };
    let readers = [Pool::open(&path, &read_only).unwrap(), Pool::open(&path, &read_only).unwrap()];
    assert!(
        matches!(Pool::open(&path, &Options::default()), Err(e) if matches!(e.kind(), ErrorKind::Locked { .. }))
    );
    assert!(matches!(readers[0].lane(), Err(e) if matches!(e.kind(), ErrorKind::ReadOnly)));
}

#[test]
fn opening_for_reading_recovers_in_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crashed.pool");
    let pool = Pool::open(&path, &tiny_options()).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, 1, 50, 9).unwrap();
    tx.commit().unwrap();
    let crashed = fs::read(&path).unwrap();
    drop((lane, pool));
    fs::write(&path, &crashed).unwrap();
    let reader = Pool::open(&path, &Options { read_only: true, ..Options::default() }).unwrap();
    assert!(reader.recovery().records_replayed > 0);
    assert_eq!(model::read(&reader).unwrap(), [(1, (50, 9))].into());
    drop(reader);
    assert!(fs::read(&path).unwrap() == crashed, "reading changed the file");
}

/// Writes the image of a pool in use, as a stopped machine would leave it at best, with the `opening` word of
/// another boot or another file.
fn write_open_image(path: &Path, boots: u64, files: u64) -> Vec<u8> {
    let pool = Pool::open(path, &tiny_options()).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, 1, 50, 9).unwrap();
    tx.commit().unwrap();
    let mut image = fs::read(path).unwrap();
    drop((lane, pool));
    let word = image[OPENING_OFF as usize..][..8].try_into().unwrap();
    let moved = opening::moved(u64::from_le_bytes(word), boots, files);
    image[OPENING_OFF as usize..][..8].copy_from_slice(&moved.to_le_bytes());
    fs::write(path, &image).unwrap();
    image
}

/// A machine that stops leaves pages of different ages of a pool in the page cache. Such damaged pools, and
/// copies of pools in use, were opened and served.
#[test]
fn a_pool_that_was_open_in_another_boot_or_copied_meanwhile_is_refused() {
    for (boots, files, expected) in
        [(1, 0, Ending::OtherBoot), (0, 1, Ending::Copy), (3, 3, Ending::OtherBoot)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let image = write_open_image(&path, boots, files);
        let error = refusal(&path, &image);
        let ErrorKind::Unclean { ending, .. } = error.kind() else { panic!("{error}") };
        // Nothing in a directory in memory outlives a boot, so that it can only be a copy.
        assert!(*ending == expected || *ending == Ending::Copy, "{error}");
        assert!(error.to_string().contains("accept_unclean"), "{error}");
        let accepting = Options { accept_unclean: true, ..Options::default() };
        let reader = Pool::open(&path, &Options { read_only: true, ..accepting.clone() }).unwrap();
        assert!(reader.last_ending().is_unclean());
        drop(reader);
        assert!(fs::read(&path).unwrap() == image, "reading changed the file");
        let pool = Pool::open(&path, &accepting).unwrap();
        assert_eq!(model::read(&pool).unwrap(), [(1, (50, 9))].into());
        drop(pool);
        let again = Pool::open(&path, &Options::default()).unwrap();
        assert_eq!(again.last_ending(), Ending::Closed);
    }
}

#[test]
fn a_pool_says_that_it_is_open_from_before_its_first_store_until_all_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (path, closed) = new_pool(dir.path());
    let pool = Pool::open(&path, &Options::default()).unwrap();
    assert_eq!(pool.last_ending(), Ending::Closed);
    let open = fs::read(&path).unwrap();
    let differing: Vec<usize> = (0..open.len()).filter(|at| open[*at] != closed[*at]).collect();
    let word = OPENING_OFF as usize..OPENING_OFF as usize + 8;
    assert!(!differing.is_empty() && differing.iter().all(|at| word.contains(at)), "{differing:?}");
    drop(pool);
    assert!(fs::read(&path).unwrap() == closed, "closing says so again");
    // The state after kill -9.
    fs::write(&path, &open).unwrap();
    assert_eq!(Pool::open(&path, &Options::default()).unwrap().last_ending(), Ending::Killed);
}

#[test]
fn a_pool_from_before_there_was_the_word_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut bytes) = new_pool(dir.path());
    bytes[OPENING_OFF as usize..][..8].fill(0);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(Pool::open(&path, &Options::default()).unwrap().last_ending(), Ending::Unknown);
    assert_eq!(Pool::open(&path, &Options::default()).unwrap().last_ending(), Ending::Closed);
}

#[test]
fn a_file_longer_than_its_pool_grows_into_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut bytes) = new_pool(dir.path());
    bytes.extend(std::iter::repeat_n(0xEE, 5000));
    fs::write(&path, &bytes).unwrap();
    let pool = Pool::open(&path, &Options::default()).unwrap();
    let table = pool.root("table").unwrap().unwrap().off;
    let mut lane = pool.lane().unwrap();
    for link in 0..model::LINKS {
        let mut tx = lane.begin();
        model::put(&mut tx, table, link, 20_000, link).unwrap();
        tx.commit().unwrap();
    }
    assert!(pool.region().len() > bytes.len() as u64, "the pool grew");
    assert_eq!(model::read(&pool).unwrap().len() as u64, model::LINKS);
}

#[test]
fn a_pool_at_its_maximum_is_full_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.pool");
    let options = Options { max_bytes: Some(512 << 10), ..tiny_options() };
    let pool = Pool::open(&path, &options).unwrap();
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    let mut stored = 0;
    let full = loop {
        let mut tx = lane.begin();
        match model::put(&mut tx, table, stored, 20_000, stored) {
            Ok(()) => tx.commit().unwrap(),
            Err(e) => break e,
        }
        stored += 1;
    };
    assert!(full.is_full(), "{full}");
    assert_eq!(model::read(&pool).unwrap().len() as u64, stored);
    for round in 0..50 {
        let mut tx = lane.begin();
        model::remove(&mut tx, table, round % stored).unwrap();
        tx.commit().unwrap();
        let mut tx = lane.begin();
        model::put(&mut tx, table, round % stored, 20_000, round).unwrap();
        tx.commit().unwrap();
    }
    assert!(matches!(model_too_large(&mut lane).kind(), ErrorKind::TooLarge { .. }));
}

fn model_too_large(lane: &mut crate::Lane) -> Error {
    lane.begin().alloc(1 << 40).unwrap_err()
}
