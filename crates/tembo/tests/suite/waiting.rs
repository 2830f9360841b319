//! A thread that asks for what it holds is told so, by the same error everywhere; and handles of two pools,
//! or two maps, are refused together.
//!
//! The story: such a thread waited for ever in one place and panicked in another, and a batch panicked over a
//! map of another pool.
#![forbid(unsafe_code)]

use std::sync::mpsc::channel;
use std::time::Duration;
use tembo::{Batch, Error, FixedMap, HashTable, Map, MapOptions, Options, Pool, Result};

struct Fixture {
    pool: Pool,
    plain: Map,
    versioned: Map,
    table: HashTable,
    fixed: FixedMap,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
    let plain = pool.open_map("plain").unwrap();
    let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
    let (table, fixed) = (pool.open_hash_table("table").unwrap(), pool.open_fixed_map("fixed").unwrap());
    plain.put("k", "1").unwrap();
    versioned.put("k", "1").unwrap();
    table.put("k", "1").unwrap();
    versioned.snapshot().unwrap().keep("first").unwrap();
    table.snapshot().keep("first").unwrap();
    Fixture { pool, plain, versioned, table, fixed, _dir: dir }
}

/// Does it in a thread of its own, and fails if that does not end.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits for itself"),
        _ => thread.join().unwrap(),
    }
}

type Ask = (&'static str, fn(&Fixture) -> Result<()>);

const PLAIN: [Ask; 14] = [
    ("put", |p| p.plain.put("a", "1").map(drop)),
    ("insert", |p| p.plain.insert("a", "1").map(drop)),
    ("update", |p| p.plain.update("k", "2").map(drop)),
    ("compare_and_swap", |p| p.plain.compare_and_swap("k", None, Some(b"2")).map(drop)),
    ("modify", |p| p.plain.modify("k", |_| Some("3")).map(drop)),
    ("remove", |p| p.plain.remove("a").map(drop)),
    ("pop_first", |p| p.plain.pop_first().map(drop)),
    ("pop_last", |p| p.plain.pop_last().map(drop)),
    ("remove_range", |p| p.plain.remove_range("x"..).map(drop)),
    ("clear", |p| p.plain.clear()),
    ("batch", |p| p.pool.batch().map(drop)),
    ("open_map", |p| p.pool.open_map("another").map(drop)),
    ("open_fixed_map", |p| p.pool.open_fixed_map("another fixed").map(drop)),
    ("open_hash_table", |p| p.pool.open_hash_table("another table").map(drop)),
];

const VERSIONED: [Ask; 15] = [
    ("put", |p| p.versioned.put("a", "1").map(drop)),
    ("insert", |p| p.versioned.insert("b", "1").map(drop)),
    ("update", |p| p.versioned.update("k", "2").map(drop)),
    ("compare_and_swap", |p| p.versioned.compare_and_swap("k", None, Some(b"2")).map(drop)),
    ("modify", |p| p.versioned.modify("k", |_| Some("3")).map(drop)),
    ("remove", |p| p.versioned.remove("k").map(drop)),
    ("pop_first", |p| p.versioned.pop_first().map(drop)),
    ("pop_last", |p| p.versioned.pop_last().map(drop)),
    ("remove_range", |p| p.versioned.remove_range::<&[u8]>(..).map(drop)),
    ("clear", |p| p.versioned.clear()),
    ("collect", |p| p.versioned.collect(10).map(drop)),
    ("rollback_to", |p| p.versioned.rollback_to(&p.versioned.open_snapshot("first")?).map(drop)),
    ("keep", |p| p.versioned.snapshot()?.keep("second")),
    ("drop_snapshot", |p| p.versioned.drop_snapshot("first").map(drop)),
    ("a new batch", |p| p.pool.batch()?.put(&p.versioned, b"a", b"1").map(drop)),
];

const TABLE: [Ask; 12] = [
    ("put", |p| p.table.put("a", "1").map(drop)),
    ("insert", |p| p.table.insert("b", "1").map(drop)),
    ("update", |p| p.table.update("k", "2").map(drop)),
    ("compare_and_swap", |p| p.table.compare_and_swap("k", None, Some(b"2")).map(drop)),
    ("modify", |p| p.table.modify("k", |_| Some("3")).map(drop)),
    ("remove", |p| p.table.remove("k").map(drop)),
    ("clear", |p| p.table.clear()),
    ("collect", |p| p.table.collect(10).map(drop)),
    ("rollback_to", |p| p.table.rollback_to(&p.table.open_snapshot("first")?).map(drop)),
    ("keep", |p| p.table.snapshot().keep("second")),
    ("drop_snapshot", |p| p.table.drop_snapshot("first").map(drop)),
    ("batch", |p| p.table.batch(|batch| batch.put("a", "1").map(drop))),
];

/// All of them are refused, by an error that names what is held; reads, and changes of what nobody holds, are
/// not.
fn assert_refused(fixture: &Fixture, holds: &str, asks: &[Ask]) {
    for (ask, make) in asks {
        let outcome = make(fixture);
        let Err(error @ Error::WouldWait { .. }) = &outcome else {
            panic!("{ask} under {holds}: {outcome:?}")
        };
        let text = error.to_string();
        assert!(text.contains(&format!("holds {holds}")) && text.contains("asks for"), "{ask}: {text}");
    }
    fixture.fixed.put(1, 1).unwrap();
    for map in [&fixture.plain, &fixture.versioned] {
        map.get("k").unwrap();
        map.scan::<&[u8]>(.., 10).unwrap();
        assert!(map.iter().count() < 10);
    }
    fixture.table.get("k").unwrap();
}

fn assert_made(fixture: &Fixture, asks: &[Ask]) {
    for (ask, make) in asks {
        make(fixture).unwrap_or_else(|e| panic!("{ask}: {e}"));
    }
}

#[test]
fn a_thread_with_a_batch_is_refused_what_the_batch_holds() {
    in_time(|| {
        let fixture = fixture();
        let mut batch = fixture.pool.batch().unwrap();
        batch.put(&fixture.plain, b"b", b"1").unwrap();
        assert_refused(&fixture, "a batch", &PLAIN);
        // It has not come to the map that keeps versions.
        fixture.versioned.put("c", "1").unwrap();
        fixture.table.put("c", "1").unwrap();
        batch.get(&fixture.versioned, b"k").unwrap();
        assert_refused(&fixture, "a batch", &VERSIONED);
        fixture.table.put("d", "1").unwrap();
        batch.put(&fixture.versioned, b"k", b"2").unwrap();
        batch.commit().unwrap();
        assert_eq!(fixture.versioned.get("k").unwrap().as_deref(), Some(&b"2"[..]));
        assert_made(&fixture, &PLAIN);
        assert_made(&fixture, &VERSIONED);
        fixture.pool.check().unwrap();
    });
}

#[test]
fn a_closure_is_refused_what_is_held_while_it_is_called() {
    in_time(|| {
        let fixture = fixture();
        let Fixture { plain, versioned, table, .. } = &fixture;
        let changed = plain.modify("k", |_| {
            assert_refused(&fixture, "a map, in a closure", &PLAIN);
            versioned.put("e", "1").unwrap();
            Some("1")
        });
        changed.unwrap();
        let changed = versioned.modify("k", |_| {
            assert_refused(&fixture, "the map, in a closure", &VERSIONED);
            plain.put("e", "1").unwrap();
            table.put("e", "1").unwrap();
            Some("1")
        });
        changed.unwrap();
        let changed = table.modify("k", |_| {
            assert_refused(&fixture, "the hash table, in a closure", &TABLE);
            versioned.put("f", "1").unwrap();
            Some("1")
        });
        changed.unwrap();
        let changed = table.batch(|batch| {
            batch.put("g", "1")?;
            assert_refused(&fixture, "the hash table, in a closure", &TABLE);
            plain.put("f", "1").map(drop)
        });
        changed.unwrap();
        // In a batch, and within one another.
        let mut batch = fixture.pool.batch().unwrap();
        let changed = batch.modify(plain, b"k", |_| {
            assert_refused(&fixture, "a batch", &PLAIN);
            Some("2")
        });
        changed.unwrap();
        let changed = batch.modify(versioned, b"k", |_| {
            assert_refused(&fixture, "a batch", &VERSIONED);
            assert_refused(&fixture, "a batch", &PLAIN);
            Some("2")
        });
        changed.unwrap();
        drop(batch);
        // A closure that panics holds nothing afterwards.
        let panics = || plain.modify("k", |_| -> Option<&str> { panic!("as it is told") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        for asks in [&PLAIN[..], &VERSIONED, &TABLE] {
            assert_made(&fixture, asks);
        }
        fixture.pool.check().unwrap();
    });
}

#[test]
fn other_threads_wait_as_ever() {
    in_time(|| {
        let fixture = fixture();
        let mut batch = fixture.pool.batch().unwrap();
        batch.put(&fixture.plain, b"k", b"batch").unwrap();
        batch.put(&fixture.versioned, b"k", b"batch").unwrap();
        std::thread::scope(|scope| {
            let waiting = [
                scope.spawn(|| fixture.plain.put("k", "other").map(drop)),
                scope.spawn(|| fixture.versioned.put("k", "other").map(drop)),
                scope.spawn(|| fixture.pool.batch().map(drop)),
                // A batch that has begun to be read by another thread is still this one's.
                scope.spawn(|| fixture.versioned.collect(10).map(drop)),
            ];
            std::thread::sleep(Duration::from_millis(50));
            assert!(waiting.iter().all(|thread| !thread.is_finished()));
            batch.commit().unwrap();
            waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        assert_eq!(fixture.plain.get("k").unwrap().as_deref(), Some(&b"other"[..]));
        assert_eq!(fixture.versioned.get("k").unwrap().as_deref(), Some(&b"other"[..]));
    });
}

#[test]
fn a_map_that_another_thread_brought_into_the_batch_is_the_batchs() {
    in_time(|| {
        let fixture = fixture();
        let batch = fixture.pool.batch().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| batch.get(&fixture.versioned, b"k").unwrap().map(<[u8]>::to_vec));
        });
        assert_refused(&fixture, "a batch", &VERSIONED);
        drop(batch);
        assert_made(&fixture, &VERSIONED);
    });
}

#[test]
fn a_batch_refuses_maps_of_another_pool_and_goes_on() {
    let (one, other) = (fixture(), fixture());
    let mut batch = one.pool.batch().unwrap();
    for foreign in [&other.plain, &other.versioned] {
        let refused = |outcome: Result<()>| {
            let text = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert!(
                matches!(outcome, Err(Error::ForeignMap)) && text.contains("another pool"),
                "{outcome:?}"
            );
        };
        fn done<T>(outcome: Result<T>) -> Result<()> {
            outcome.map(drop)
        }
        refused(done(batch.get(foreign, b"k")));
        refused(done(batch.len(foreign)));
        let changes: [fn(&mut Batch<'_>, &Map) -> Result<()>; 12] = [
            |b, m| b.put(m, b"k", b"1").map(drop),
            |b, m| b.put_parts(m, b"k", &[b"1"]).map(drop),
            |b, m| b.insert(m, b"k", b"1").map(drop),
            |b, m| b.update(m, b"k", b"1").map(drop),
            |b, m| b.compare_and_swap(m, b"k", None, None).map(drop),
            |b, m| b.modify(m, b"k", |_| Some("1")).map(drop),
            |b, m| b.remove(m, b"k").map(drop),
            |b, m| b.pop_first(m).map(drop),
            |b, m| b.pop_last(m).map(drop),
            |b, m| b.remove_range::<&[u8]>(m, ..).map(drop),
            |b, m| b.clear(m),
            |b, m| b.reclaim(m, 1).map(drop),
        ];
        changes.iter().for_each(|change| refused(change(&mut batch, foreign)));
        batch.prefetch(foreign, [&b"k"[..]]);
    }
    batch.put(&one.plain, b"k", b"2").unwrap();
    batch.commit().unwrap();
    assert_eq!(one.plain.get("k").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(other.plain.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    // Snapshots of one map with another: of the same pool, and of another one.
    let another = one.pool.open_map_with("another", MapOptions::new().versioned(true)).unwrap();
    let table = one.pool.open_hash_table("another table").unwrap();
    for (map, snapshot) in
        [(&one.versioned, another.snapshot().unwrap()), (&one.versioned, other.versioned.snapshot().unwrap())]
    {
        assert!(matches!(map.rollback_to(&snapshot), Err(Error::ForeignSnapshot)));
        assert!(matches!(map.snapshot().unwrap().diff(&snapshot), Err(Error::ForeignSnapshot)));
    }
    for snapshot in [table.snapshot(), other.table.snapshot()] {
        assert!(matches!(one.table.rollback_to(&snapshot), Err(Error::ForeignSnapshot)));
        assert!(matches!(one.table.snapshot().diff(&snapshot), Err(Error::ForeignSnapshot)));
    }
}
