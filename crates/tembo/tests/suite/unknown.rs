//! A structure that a version does not know is named, and neither skipped nor called damage.
//!
//! With a root of an unknown kind `info` did not list it, a dump left it out in silence, and `check` called
//! its blocks leaks.

mod raw;

use raw::RawStore;
use tembo::heap::Persist;
use tembo::{Error, MapOptions, Options, Pool};

const FUTURE_KIND: u32 = u32::from_le_bytes(*b"NEW1");

tembo::heap::brand!(Main);
tembo::heap::brand!(Beside);

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    number: u64,
}

/// Gives a block a name, as a later version might.
fn name_a_block(pool: &RawStore, name: &str, kind: u32) {
    let mut lane = pool.raw().lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc_zeroed(100).unwrap();
    tx.set_root(name, kind, block).unwrap();
    tx.commit().unwrap();
}

fn maps(pool: &Pool) {
    pool.open_map("plain").unwrap().put("a", "1").unwrap();
    pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap().put("b", "2").unwrap();
    pool.open_hash_table("hash").unwrap().put("c", "3").unwrap();
    pool.open_fixed_map("fixed").unwrap().put(4, 5).unwrap();
}

fn names(pool: &Pool) -> Vec<(String, &'static str)> {
    pool.list().unwrap().into_iter().map(|listed| (listed.name, listed.kind.in_words())).collect()
}

#[test]
fn a_root_of_an_unknown_kind_is_named_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = RawStore::open(&path, &Options::new().create(true));
    maps(&pool);
    pool.check().unwrap();
    name_a_block(&pool, "future", FUTURE_KIND);
    name_a_block(&pool, "odd", 7);
    let expected = [
        ("fixed", "fixed map"),
        ("future", "unknown"),
        ("hash", "hash table"),
        ("odd", "unknown"),
        ("plain", "map"),
        ("versioned", "map with versions"),
    ];
    assert_eq!(names(&pool), expected.map(|(name, kind)| (name.to_owned(), kind)));
    let unknown = pool.unknown().unwrap();
    assert_eq!((unknown.len(), unknown[0].kind, unknown[0].format), (2, FUTURE_KIND, None));
    assert_eq!(
        unknown[0].to_string(),
        "\"future\" is of the kind `NEW1`, which this program does not know; use a newer Tembo"
    );
    assert!(unknown[1].to_string().contains("the kind 0x7,"), "{}", unknown[1]);

    let refused = [
        pool.find_map("future").map(drop),
        pool.open_map("future").map(drop),
        pool.find_fixed_map("future").map(drop),
        pool.open_fixed_map("future").map(drop),
        pool.find_hash_table("future").map(drop),
        pool.open_hash_table("future").map(drop),
        pool.drop_map("future").map(drop),
    ];
    for error in refused {
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::Unknown(unknown) if unknown.name == "future"), "{error}");
    }
    assert_eq!(pool.map_names().unwrap(), ["plain", "versioned"]);

    let error = pool.check().unwrap_err();
    let Error::Unproved { report } = &error else { panic!("{error}") };
    assert_eq!((report.unreached_blocks, report.unknown.len()), (2, 2));
    assert_eq!(report.maps, [("plain".to_owned(), 1)]);
    let text = error.to_string();
    assert!(text.contains("future") && text.contains("newer Tembo") && !text.contains("damaged"), "{text}");
    // Real damage is still found.
    let plain = pool.raw().root("plain").unwrap().unwrap().off;
    pool.raw().region().store_u64(plain + 8, 64).unwrap();
    assert!(matches!(pool.check(), Err(Error::Pool(e)) if e.is_corrupt()));
}

/// The heap of an earlier format was "no heap", and nothing beside it could be read.
#[test]
fn a_heap_of_another_format_is_named_and_the_maps_beside_it_are_read() {
    for (magic, format, advice) in [
        (b"TMBHEAP1", 1, "the Tembo that made it"),
        (b"TMBHEAM2", 2, "the Tembo that made it"),
        (b"TMBHEAP4", 4, "newer Tembo"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let pool = RawStore::open(&path, &Options::new().create(true));
        drop(tembo::heap::Heap::<Main, Root>::open_pool(pool.raw().clone()).unwrap());
        maps(&pool);
        assert!(names(&pool).contains(&("heap".to_owned(), "heap")));
        pool.check().unwrap();
        let heap = pool.raw().root("heap").unwrap().unwrap().off;
        pool.raw().region().store_u64(heap, u64::from_le_bytes(*magic)).unwrap();

        let unknown = pool.unknown().unwrap();
        assert_eq!((unknown.len(), unknown[0].format), (1, Some(("heap", format, 3))));
        assert!(unknown[0].is_heap() && unknown[0].to_string().contains(advice), "{}", unknown[0]);
        let opened = tembo::heap::Heap::<Main, Root>::open_pool(pool.raw().clone()).map(drop).unwrap_err();
        let told = pool.describe_heap().unwrap_err().to_string();
        for text in [opened.to_string(), told] {
            assert!(text.contains(&format!("format {format}")) && text.contains("format 3"), "{text}");
            assert!(text.contains(advice) && !text.contains("no heap"), "{text}");
        }
        assert_eq!(pool.find_map("plain").unwrap().unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(pool.find_fixed_map("fixed").unwrap().unwrap().get(4).unwrap(), Some(5));
        assert!(matches!(pool.check(), Err(Error::Unproved { .. })));
        assert!(pool.drop_map("plain").unwrap(), "what is known can be changed");
        // Any other beginning is damage.
        pool.raw().region().store_u64(heap, u64::from_le_bytes(*b"TMBHEAPx")).unwrap();
        assert!(matches!(pool.list(), Err(Error::Pool(e)) if e.is_corrupt()));
    }
}

#[test]
fn maps_of_other_formats_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let pool = RawStore::open(dir.path().join("a.pool"), &Options::new().create(true));
    maps(&pool);
    // The newest format of a plain map is that of one that counts.
    for (name, change, by) in [("plain", 2, 1), ("versioned", -1, -1), ("hash", 1, 1), ("fixed", 1, 1)] {
        let head = pool.raw().root(name).unwrap().unwrap().off;
        let word = pool.raw().region().load_u64(head).unwrap();
        let mut bytes = word.to_le_bytes();
        bytes[6] = bytes[6].wrapping_add_signed(change);
        pool.raw().region().store_u64(head, u64::from_le_bytes(bytes)).unwrap();
        let unknown = pool.unknown().unwrap();
        let (_, found, supported) = unknown[0].format.unwrap();
        assert_eq!(found, supported.wrapping_add_signed(by.into()), "{name}");
        let advice = if by > 0 { "newer Tembo" } else { "the Tembo that made it" };
        let opened = match name {
            "hash" => pool.open_hash_table(name).map(drop),
            "fixed" => pool.open_fixed_map(name).map(drop),
            _ => pool.open_map(name).map(drop),
        };
        let text = opened.unwrap_err().to_string();
        assert!(text.contains(advice) && text.contains("of format"), "{name}: {text}");
        assert!(matches!(pool.check(), Err(Error::Unproved { .. })), "{name}");
        pool.raw().region().store_u64(head, word).unwrap();
        pool.check().unwrap();
        // Another byte is damage.
        pool.raw().region().store_u64(head, word ^ 1).unwrap();
        assert!(matches!(pool.list(), Err(Error::Pool(e)) if e.is_corrupt()), "{name}");
        pool.raw().region().store_u64(head, word).unwrap();
    }
}

/// The search for lost objects of a heap takes all blocks that nothing leads to for objects: maps, dropped
/// maps and what is unknown are not.
#[test]
fn a_heap_is_checked_beside_maps_and_what_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let pool = RawStore::open(dir.path().join("a.pool"), &Options::new().create(true));
    drop(tembo::heap::Heap::<Beside, Root>::open_pool(pool.raw().clone()).unwrap());
    for name in ["after", "zebra"] {
        let map = pool.open_map(name).unwrap();
        (0..60).for_each(|i| _ = map.put(format!("key {i}"), "value").unwrap());
    }
    pool.drop_map("zebra").unwrap();
    assert!(pool.check().unwrap().heap.is_some());
    // A block that looks like an object of the heap: of type 0, and somebody leads to it.
    let mut lane = pool.raw().lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc_zeroed(100).unwrap();
    tx.store(block + 8, 1).unwrap();
    tx.set_root("future", FUTURE_KIND, block).unwrap();
    tx.commit().unwrap();
    let error = pool.check().unwrap_err();
    let Error::Unproved { report } = &error else { panic!("{error}") };
    assert_eq!((report.unreached_blocks, report.heap.is_some()), (1, true));
}
