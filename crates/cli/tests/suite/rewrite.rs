//! `tembo compact --into`: a fresh pool with everything, or none.

use crate::support::Workspace;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tembo::heap::collections::{PHashMap, PString};
use tembo::heap::{PArr, PRc, PWeak, Persist};
use tembo::store::{Audit, Kept, KeyVersion, Retention};
use tembo::{Counting, Durability, MapOptions, Options, Pool};

tembo::heap::brand!(Rewritten);

/// A value of a line, which has its head elsewhere.
#[derive(Persist)]
#[repr(C)]
struct Line {
    words: [u64; 6],
    next: PRc<Line>,
    first: PWeak<Line>,
}

#[derive(Default, Persist)]
#[repr(u64)]
enum Extra {
    #[default]
    None,
    Lines(PArr<PRc<Line>>),
}

/// Held while a heap is open: a process can open one heap of a brand at a time.
static BRAND: Mutex<()> = Mutex::new(());

fn take_brand() -> MutexGuard<'static, ()> {
    BRAND.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    numbers: PArr<u64>,
    first: PRc<Line>,
    dead: PWeak<Line>,
    extra: Extra,
    names: PHashMap<PString, u64>,
}

/// A ring of lines, one of which an array leads to, too; weak pointers to living and to dead ones; numbers,
/// and names.
fn fill_heap(pool: &Pool) {
    let _brand = take_brand();
    let heap = pool.open_heap::<Rewritten, Root>().unwrap();
    let made = heap.write(|tx, root| {
        let line = |i: u64| Line { words: [i; 6], next: PRc::null(), first: PWeak::null() };
        let first = tx.alloc(line(0))?;
        tx.link(root.first(), first)?;
        let mut last = first;
        for i in 1..300 {
            let next = tx.alloc(line(i))?;
            tx.link_weak(next.first(), first)?;
            tx.link(last.next(), next)?;
            last = next;
        }
        tx.link(last.next(), first)?;
        let lines = tx.alloc_array(3, |_| PRc::null())?;
        tx.link(lines.at(0), last)?;
        tx.link(lines.at(2), last)?;
        tx.put(root.extra(), Extra::Lines(PArr::null()))?;
        match root.extra().variant(tx)? {
            ExtraRef::Lines(place) => tx.link_array(place, lines)?,
            ExtraRef::None => unreachable!("set above"),
        }
        let numbers = tx.alloc_array(5000, |i| i as u64)?;
        tx.link_array(root.numbers(), numbers)?;
        let dies = tx.alloc(line(1000))?;
        tx.link(lines.at(1), dies)?;
        tx.link_weak(root.dead(), dies)
    });
    made.unwrap();
    for i in 0..500u64 {
        let key = format!("the name with the number {i}");
        heap.write(|tx, root| root.names().insert(tx, &key, i).map(drop)).unwrap();
    }
    // A shell stays for the weak pointer, and half of the names leave holes.
    let died = heap.write(|tx, root| match root.extra().variant(tx)? {
        ExtraRef::Lines(place) => tx.link(tx.follow_array(place)?.at(1), None),
        ExtraRef::None => unreachable!("set above"),
    });
    died.unwrap();
    for i in (0..500u64).step_by(2) {
        let key = format!("the name with the number {i}");
        assert!(heap.write(|tx, root| root.names().remove(tx, &key)).unwrap());
    }
}

/// All that a program reads of that heap.
fn assert_heap(pool: &Pool) {
    let _brand = take_brand();
    let heap = pool.open_heap::<Rewritten, Root>().unwrap();
    let read = heap.read(|tx, root| {
        let first = tx.follow(root.first())?;
        let (mut line, mut sum) = (first, 0);
        loop {
            sum += tx.get(line.words().at(5))?;
            let next = tx.follow(line.next())?;
            if next == first {
                break;
            }
            assert_eq!(tx.upgrade(next.first())?, Some(first));
            line = next;
        }
        match root.extra().variant(tx)? {
            ExtraRef::Lines(place) => {
                let lines = tx.follow_array(place)?;
                assert_eq!(tx.load(lines.at(0))?, Some(line));
                assert_eq!(tx.load(lines.at(2))?, Some(line));
                assert_eq!(tx.load(lines.at(1))?, None);
            }
            ExtraRef::None => panic!("another variant"),
        }
        assert!(tx.upgrade(root.dead())?.is_none());
        let numbers = tx.follow_array(root.numbers())?;
        for i in 0..numbers.len() {
            assert_eq!(tx.get(numbers.at(i))?, i as u64);
        }
        for i in 0..500u64 {
            let key = format!("the name with the number {i}");
            assert_eq!(root.names().value(tx, &key)?, (i % 2 == 1).then_some(i));
        }
        Ok(sum)
    });
    assert_eq!(read.unwrap(), (0..300).sum::<u64>());
    // It is a heap like any other.
    heap.write(|tx, root| tx.link(root.first(), None)).unwrap();
    heap.collect().unwrap();
}

/// A store of whose keys some have many versions, some few, and some are gone, with snapshots by name and by
/// number, a log, and a keyspace that was dropped.
fn fill_history(pool: &Pool) {
    let store = pool.open_store("history").unwrap();
    store.set_audit(Audit::Commits(500)).unwrap();
    let gone = store.keyspace("gone").unwrap();
    store.put(&gone, "key", "value").unwrap();
    assert!(store.drop_keyspace("gone").unwrap());
    let all = store.keyspace_with("all", Retention::All).unwrap();
    let few = store.keyspace("few").unwrap();
    for round in 0..20u32 {
        for i in 0..40u32 {
            let len = [0, 5, 8, 30, 300][(round + i) as usize % 5];
            if i % 8 == 0 || round % (1 + i % 5) == 0 {
                store.put(&all, i.to_be_bytes(), vec![round as u8; len]).unwrap();
            }
            if (round + i).is_multiple_of(7) {
                store.delete(&all, i.to_be_bytes()).unwrap();
                store.delete(&few, i.to_be_bytes()).unwrap();
            } else {
                store.put(&few, i.to_be_bytes(), vec![round as u8; len]).unwrap();
            }
        }
        match round {
            3 => store.keep(store.snapshot().number(), "third").unwrap(),
            7 => assert!(store.keep_number(store.snapshot().number()).unwrap()),
            11 => store.keep(store.snapshot().number(), "eleventh").unwrap(),
            _ => {}
        }
    }
}

/// All that a program can learn of that store, but for versions and entries of the log that nobody
/// needs: the copy has none.
type History = (u64, Vec<Kept>, Vec<Vec<KeyVersion>>, Vec<Vec<(Vec<u8>, Vec<u8>)>>, usize);

fn history(path: &Path) -> History {
    let pool = Options::new().read_only(true).open(path).unwrap();
    let store = pool.find_store("history").unwrap().unwrap();
    let keyspaces = ["all", "few"].map(|name| store.find_keyspace(name).unwrap().unwrap());
    assert_eq!(keyspaces[0].retention(), Retention::All);
    assert_eq!(store.audit_policy(), Audit::Commits(500));
    let versions = (0..40u32).map(|i| store.versions(&keyspaces[0], i.to_be_bytes()).unwrap()).collect();
    let kept = store.kept().unwrap();
    let mut contents = Vec::new();
    for number in kept.iter().map(|kept| kept.number).chain([store.snapshot().number()]) {
        let snapshot = store.at(number).unwrap();
        for keyspace in &keyspaces {
            contents.push(snapshot.iter(keyspace).unwrap().collect::<Result<Vec<_>, _>>().unwrap());
        }
    }
    (store.snapshot().number(), kept, versions, contents, store.log(..).count().min(500))
}

/// A structure of every kind but a heap, with snapshots where there can be some, history, and holes.
fn fill(path: &Path) {
    let options = Options::new().create(true).initial_bytes(1 << 20).durability(Durability::PageCache);
    let pool = options.root_count(200).open(path).unwrap();
    let map = pool.open_map("map").unwrap();
    (0..80_000u32).for_each(|i| _ = map.put(i.to_be_bytes(), vec![i as u8; 30 + i as usize % 90]).unwrap());
    (0..80_000u32).filter(|i| i % 32 > 0).for_each(|i| assert!(map.remove(i.to_be_bytes()).unwrap()));
    let large = pool.open_map("large").unwrap();
    (0..5u32).for_each(|i| _ = large.put(i.to_be_bytes(), vec![i as u8; 700_000]).unwrap());
    let counting = MapOptions::new().counting(Counting::Records);
    let counting = pool.open_map_with("counting", counting).unwrap();
    (0..100u32).for_each(|i| _ = counting.put(i.to_be_bytes(), b"counted").unwrap());
    let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
    let table = pool.open_hash_table("table").unwrap();
    for round in 0..3u32 {
        for i in 0..300u32 {
            versioned.put(i.to_be_bytes(), [round as u8; 40]).unwrap();
            table.put(i.to_be_bytes(), [round as u8; 20]).unwrap();
        }
        versioned.remove((round * 7).to_be_bytes()).unwrap();
        table.remove((round * 5).to_be_bytes()).unwrap();
        if round < 2 {
            // The names are in another order than the versions.
            versioned.snapshot().unwrap().keep(["second", "first"][round as usize]).unwrap();
            table.snapshot().keep(["second", "first"][round as usize]).unwrap();
        }
    }
    let fixed = pool.open_fixed_map("fixed").unwrap();
    (0..1000).for_each(|i| _ = fixed.put(i * i, i).unwrap());
    pool.open_map("empty").unwrap();
    let store = pool.open_store("store").unwrap();
    let keyspace = store.keyspace("words").unwrap();
    for i in 0..200u32 {
        let mut transaction = store.begin();
        transaction.put(&keyspace, i.to_be_bytes(), [i as u8; 50]).unwrap();
        transaction.commit().unwrap();
    }
    fill_history(&pool);
}

/// The contents of all snapshots of the structures that have some.
fn snapshots(path: &Path) -> Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)> {
    let pool = Options::new().read_only(true).open(path).unwrap();
    let map = pool.find_map("versioned").unwrap().unwrap();
    let table = pool.find_hash_table("table").unwrap().unwrap();
    let mut found = Vec::new();
    for name in ["first", "second"] {
        let snapshot = map.open_snapshot(name).unwrap();
        let entries = snapshot.iter().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())));
        found.push((format!("map {name}"), entries.collect::<Result<_, _>>().unwrap()));
        let snapshot = table.open_snapshot(name).unwrap();
        let entries = snapshot.iter().map(|entry| entry.map(|e| (e.key().to_vec(), e.value().to_vec())));
        let mut entries: Vec<_> = entries.collect::<Result<_, _>>().unwrap();
        entries.sort();
        found.push((format!("table {name}"), entries));
    }
    found
}

/// The dump without the hash of everything, and in an order that does not depend on the pool.
fn dump(workspace: &Workspace, pool: &str) -> Vec<String> {
    let text = workspace.run(&format!("dump {pool}")).ok().text();
    let mut lines: Vec<String> =
        text.lines().filter(|line| !line.contains("xxh3")).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_new_pool_has_everything_without_the_holes() {
    let workspace = Workspace::new();
    let (old, new) = (workspace.path("old.pool"), workspace.path("new.pool"));
    fill(&old);
    let before = std::fs::read(&old).unwrap();
    let compact = "compact old.pool --into new.pool --durability page-cache --json";
    let report = workspace.run(compact).ok().json();
    assert!(std::fs::read(&old).unwrap() == before, "the source has changed");
    let length = new.metadata().unwrap().len();
    assert!(report["pool_bytes"].as_u64() == Some(length) && length < before.len() as u64 / 2, "{report}");
    assert!(report["structures"] == 9 && report["entries"].as_u64() > Some(4000), "{report}");
    assert_eq!(dump(&workspace, "old.pool"), dump(&workspace, "new.pool"));
    assert_eq!(snapshots(&old), snapshots(&new));
    assert_eq!(history(&old), history(&new));
    let scan = |pool: &str| workspace.run(&format!("store scan {pool} words --store store")).ok().text();
    assert_eq!(scan("old.pool"), scan("new.pool"));
    workspace.run("check new.pool").ok();
    let pool = Options::new().open(&new).unwrap();
    assert_eq!(pool.root_count(), 200);
    assert_eq!(pool.find_map("counting").unwrap().unwrap().counting(), Counting::Records);
    // It is a pool like any other.
    pool.find_map("map").unwrap().unwrap().put(b"more", vec![1; 100_000]).unwrap();
    drop(pool);
    workspace.run("check new.pool").ok();
    assert!(workspace.run("compact old.pool --into other.pool").ok().text().contains("which were"));
}

#[test]
fn what_cannot_be_copied_is_refused_and_nothing_is_made() {
    let workspace = Workspace::new();
    let new = workspace.path("new.pool");
    let refuse = |arguments: &str, why: &str| {
        workspace.run(arguments).ends_with(1, why);
        assert!(!new.exists(), "{arguments}");
    };
    refuse("compact none.pool --into new.pool", "none.pool");
    fill(&workspace.path("old.pool"));
    std::fs::write(workspace.path("there"), "something").unwrap();
    refuse("compact old.pool --into there", "there exists already");
    assert_eq!(std::fs::read(workspace.path("there")).unwrap(), b"something");
    refuse("compact old.pool --into nowhere/new.pool", "nowhere");
    workspace.run("compact old.pool --into new.pool --min-bytes 1MiB").ends_with(2, "--min-bytes");
    let pool = Options::new().open(workspace.path("old.pool")).unwrap();
    refuse("compact old.pool --into new.pool", "old.pool");
    drop(pool);
}

/// Heaps are copied with the objects that several pointers share, beside maps and stores.
#[test]
fn a_heap_is_rewritten_with_its_shared_objects() {
    let workspace = Workspace::new();
    let (old, new) = (workspace.path("old.pool"), workspace.path("new.pool"));
    let options = Options::new().create(true).initial_bytes(1 << 20).durability(Durability::PageCache);
    let pool = options.open(&old).unwrap();
    fill_heap(&pool);
    fill_history(&pool);
    pool.open_map("map").unwrap().put("key", "value").unwrap();
    drop(pool);
    let before = std::fs::read(&old).unwrap();
    let report = workspace.run("compact old.pool --into new.pool --durability page-cache --json").ok().json();
    assert!(std::fs::read(&old).unwrap() == before, "the source has changed");
    println!("{report}");
    assert!(report["structures"] == 3, "{report}");
    workspace.run("check new.pool").ok();
    assert_eq!(history(&old), history(&new));
    for path in [&new, &old] {
        let pool = Options::new().open(path).unwrap();
        assert_eq!(&*pool.find_map("map").unwrap().unwrap().get("key").unwrap().unwrap(), b"value");
        assert_heap(&pool);
    }
    for pool in ["old.pool", "new.pool"] {
        workspace.run(&format!("check {pool}")).ok();
    }
}

#[test]
fn a_rewriting_that_is_killed_leaves_the_source_and_no_target() {
    let workspace = Workspace::new();
    let (old, new) = (workspace.path("old.pool"), workspace.path("new.pool"));
    fill(&old);
    let before = std::fs::read(&old).unwrap();
    // As where the file system makes no files without a name, and a process that was killed.
    std::fs::write(workspace.path("new.pool.unfinished"), "left").unwrap();
    let mut finished = 0;
    for round in 0..12u64 {
        let mut command = workspace.command("compact old.pool --into new.pool");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(3000 + round * 15_000));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(std::fs::read(&old).unwrap() == before, "the source has changed");
        if new.exists() {
            finished += 1;
            workspace.run("check new.pool").ok();
            assert_eq!(snapshots(&old), snapshots(&new));
            assert_eq!(history(&old), history(&new));
            std::fs::remove_file(&new).unwrap();
        }
    }
    println!("{finished} of 12 ended before the kill");
    workspace.run("compact old.pool --into new.pool").ok();
    assert_eq!(dump(&workspace, "old.pool"), dump(&workspace, "new.pool"));
}

/// `tembo info --space` accounts for every byte of the file, and a rewriting leaves few of them in holes.
#[test]
fn the_space_of_a_pool_is_told_by_structure_and_by_size() {
    let workspace = Workspace::new();
    fill(&workspace.path("old.pool"));
    workspace.run("compact old.pool --into new.pool").ok();
    let space = |pool: &str| {
        let info = workspace.run(&format!("info {pool} --space --json")).ok().json();
        let length = workspace.path(pool).metadata().unwrap().len();
        let number = |name: &str| info["space"][name].as_u64().unwrap();
        let sum = ["allocated_bytes", "hole_bytes", "slab_overhead_bytes", "free_bytes"].map(number);
        // The header, the lanes and the zone's table take the rest.
        let rest = length - sum.iter().sum::<u64>();
        assert!((1 << 20..2 << 20).contains(&rest), "{rest} bytes of {pool}: {info}");
        let of = |list: &str, name: &str| {
            let list = info["space"][list].as_array().unwrap().iter();
            list.map(|each| each[name].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(of("structures", "bytes"), number("allocated_bytes"), "{info}");
        assert_eq!(of("classes", "hole_bytes"), number("hole_bytes"));
        assert_eq!(info["space"]["held_by"].as_array().unwrap().len(), 7, "{info}");
        (number("allocated_bytes"), number("hole_bytes"))
    };
    let (old, new) = (space("old.pool"), space("new.pool"));
    assert!(old.1 > old.0 / 5 && new.1 < old.1 / 3, "{old:?} {new:?}");
    let text = workspace.run("info old.pool --space").ok().text();
    assert!(text.contains("in holes") && text.contains("snapshot first of table holds"), "{text}");
    assert!(!workspace.run("info old.pool").ok().text().contains("in holes"));
}
