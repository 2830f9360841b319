//! Tests of features: an earlier build must notice them, and this one must notice those of a later build.

use super::{model, tiny_options};
use crate::file::features::set;
use crate::layout::ChunkWord;
use crate::{ErrorKind, Feature, Options, Pool};
use std::fs;
use std::path::Path;
use tembo_pmem::Region;
use xxhash_rust::xxh3::xxh3_64;

/// A bit of each group: the pool itself, roots, size classes.
const POOL_BIT: u64 = 1 << 15;
const ROOT_BIT: u64 = 1 << 23;
const CLASS_BIT: u64 = 1 << 31;

fn read_only() -> Options {
    Options { read_only: true, ..Options::default() }
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

/// The images of a closed pool from before and after a feature was enabled.
fn before_and_after(path: &Path) -> (Vec<u8>, Vec<u8>) {
    drop(Pool::open(path, &tiny_options()).unwrap());
    let before = fs::read(path).unwrap();
    let pool = Pool::open(path, &Options::default()).unwrap();
    assert!(!pool.has(Feature::Dropped));
    pool.enable(Feature::Dropped).unwrap();
    assert!(pool.has(Feature::Dropped));
    pool.enable(Feature::Dropped).unwrap();
    drop(pool);
    (before, fs::read(path).unwrap())
}

#[test]
fn a_feature_is_where_every_build_looks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let (before, after) = before_and_after(&path);
    assert_eq!((word(&before, 16), word(&before, 320)), (Feature::Opening.bit(), 0), "as it was made");
    let both = Feature::Opening.bit() | Feature::Dropped.bit();
    assert_eq!(word(&after, 16), both, "what builds from before look at");
    assert_eq!(word(&after, 120), xxh3_64(&after[..120]), "under a checksum that they find right");
    let pool = Pool::open(&path, &Options::default()).unwrap();
    assert!(pool.has(Feature::Dropped));
    assert!(
        matches!(Pool::open(&path, &read_only()).map(drop), Err(e) if matches!(e.kind(), ErrorKind::Locked { .. }))
    );
    drop(pool);
    let reader = Pool::open(&path, &read_only()).unwrap();
    assert!(matches!(reader.enable(Feature::Dropped), Err(e) if matches!(e.kind(), ErrorKind::ReadOnly)));
}

#[test]
fn every_crash_while_a_feature_is_added_leaves_a_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let (before, after) = before_and_after(&path);
    let mut image = before.clone();
    // The words are changed in the order in which they become durable.
    for (at, has_it) in [(usize::MAX, false), (320, true), (120, true), (16, true)] {
        if at != usize::MAX {
            image[at..at + 8].copy_from_slice(&after[at..at + 8]);
        }
        fs::write(&path, &image).unwrap();
        assert_eq!(Pool::open(&path, &read_only()).unwrap().has(Feature::Dropped), has_it, "{at}");
        assert!(fs::read(&path).unwrap() == image, "reading changes nothing");
        drop(Pool::open(&path, &Options::default()).unwrap());
        let expected = if has_it { &after } else { &before };
        assert!(fs::read(&path).unwrap() == *expected, "{at}: opening completes it");
    }
    // No other mixture is accepted.
    let mut mixed = before;
    mixed[120..128].copy_from_slice(&after[120..128]);
    fs::write(&path, &mixed).unwrap();
    assert!(
        matches!(Pool::open(&path, &read_only()), Err(e) if matches!(e.kind(), ErrorKind::HeaderDamaged { .. }))
    );
}

/// Builds that do not know the `opening` word call it damage. A file whose build did not announce the word is
/// opened, and announces it from then on.
#[test]
fn the_word_of_the_opening_is_announced_before_it_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    drop(Pool::open(&path, &tiny_options()).unwrap());
    let mut image = fs::read(&path).unwrap();
    for opening in [0, word(&image, 256)] {
        image[256..264].copy_from_slice(&opening.to_le_bytes());
        image[16..24].fill(0);
        image[320..328].fill(0);
        let sum = xxh3_64(&image[..120]);
        image[120..128].copy_from_slice(&sum.to_le_bytes());
        fs::write(&path, &image).unwrap();
        drop(Pool::open(&path, &read_only()).unwrap());
        assert!(fs::read(&path).unwrap() == image, "reading changes nothing");
        drop(Pool::open(&path, &Options::default()).unwrap());
        let after = fs::read(&path).unwrap();
        assert_eq!(word(&after, 16), Feature::Opening.bit());
        assert_eq!(word(&after, 120), xxh3_64(&after[..120]));
        assert_ne!(word(&after, 256), 0);
    }
}

/// A pool from before the fine size classes is opened, announces them before it has the first block of one,
/// and keeps its blocks.
#[test]
fn fine_size_classes_are_announced_before_they_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let options = Options { geometry: Some(crate::Geometry::default()), ..Options::default() };
    let options = options.durability(tembo_pmem::Durability::PageCache);
    drop(Pool::open(&path, &Options { create: true, ..options.clone() }).unwrap());
    let classes = Feature::FineClasses.bit() | Feature::WideClasses.bit();
    let both = Feature::Opening.bit() | classes;
    let mut image = fs::read(&path).unwrap();
    assert_eq!(word(&image, 16), both, "as it was made");
    image[16..24].copy_from_slice(&Feature::Opening.bit().to_le_bytes());
    let sum = xxh3_64(&image[..120]);
    image[120..128].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &image).unwrap();
    let reader = Pool::open(&path, &read_only()).unwrap();
    assert!(!reader.has(Feature::FineClasses) && !reader.has(Feature::WideClasses));
    drop(reader);
    assert!(fs::read(&path).unwrap() == image, "reading changes nothing");
    for _ in 0..2 {
        let pool = Pool::open(&path, &options).unwrap();
        assert_eq!(word(&fs::read(&path).unwrap(), 320) & both, both, "before anything is allocated");
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let block = tx.alloc_zeroed(1034).unwrap();
        let wide = tx.alloc_zeroed(40_000).unwrap();
        tx.remove_root("one").unwrap();
        tx.set_root("one", 1, block).unwrap();
        tx.commit().unwrap();
        drop(lane);
        let bytes: Vec<u64> = pool.marks().unwrap().unreached().map(|block| block.bytes).collect();
        assert!(wide > 0 && bytes.contains(&40_896), "{bytes:?}");
        assert!(bytes.iter().all(|bytes| [1056, 40_896].contains(bytes)), "{bytes:?}");
    }
}

/// A build that met a size class of a later one called the pool damaged, and ignored any other new thing.
#[test]
fn what_is_unknown_is_told_by_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let with = |features: u64| {
        let _ = fs::remove_file(&path);
        let pool = Pool::open(&path, &tiny_options()).unwrap();
        let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        model::put(&mut tx, table, 3, 100, 5).unwrap();
        tx.commit().unwrap();
        drop(lane);
        if features != 0 {
            set(pool.region(), features).unwrap();
        }
        drop(pool);
    };
    let refused = |options: &Options, bits: u64, what: &str| {
        let error = Pool::open(&path, options).map(drop).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnknownFeatures { unknown } if *unknown == bits),
            "{error}"
        );
        assert!(error.to_string().contains(what) && error.to_string().contains("newer Tembo"), "{error}");
    };
    with(POOL_BIT);
    refused(&read_only(), POOL_BIT, "has structures that");
    refused(&Options::default(), POOL_BIT, "has structures that");

    with(ROOT_BIT | Feature::Dropped.bit());
    for options in [read_only(), Options::default()] {
        let pool = Pool::open(&path, &options).unwrap();
        assert_eq!((pool.unknown_features(), model::read(&pool).unwrap().len()), (ROOT_BIT, 1));
        pool.marks().unwrap();
    }

    with(CLASS_BIT);
    refused(&Options::default(), CLASS_BIT, "size classes");
    let pool = Pool::open(&path, &read_only()).unwrap();
    assert_eq!(model::read(&pool).unwrap().len(), 1, "what is known can be read");
    pool.marks().unwrap();
    let geometry = *pool.geometry();
    drop(pool);

    let word_off = geometry.chunk_word_off(0, geometry.zone_header_chunks()) as usize;
    for features in [CLASS_BIT, 0] {
        with(features);
        let mut image = fs::read(&path).unwrap();
        let beyond = ChunkWord::Slab { class: 200 }.encode();
        image[word_off..word_off + 8].copy_from_slice(&beyond.to_le_bytes());
        fs::write(&path, &image).unwrap();
        let error = Pool::open(&path, &read_only()).unwrap().marks().map(drop).unwrap_err();
        match features {
            0 => assert!(error.is_corrupt(), "{error}"),
            _ => assert!(matches!(error.kind(), ErrorKind::UnknownClass { class: 200, .. }), "{error}"),
        }
    }
}

#[test]
fn names_that_are_too_long_or_too_many_are_refused_in_few_words() {
    let region = Region::simulated(&vec![0; 256 << 10], 256 << 10, None).unwrap();
    let pool = Pool::create_in(region, &crate::Geometry::tiny()).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc_zeroed(64).unwrap();
    let error = tx.set_root(&"é".repeat(300), 1, block).unwrap_err().to_string();
    assert!(error.len() < 200 && error.contains("600") && error.contains("1 to 40 bytes"), "{error}");
    for i in 0..pool.geometry().root_count {
        tx.set_root(&format!("root {i}"), 1, block).unwrap();
    }
    let error = tx.set_root("one more", 1, block).unwrap_err().to_string();
    assert!(
        error.contains("names for 8") && error.contains("drop a map") && error.contains("root_count"),
        "{error}"
    );
    assert!(tx.remove_root("root 3").unwrap());
    tx.set_root("one more", 1, block).unwrap();
}
