//! Heaps through the public library: beside maps, and in checks.

use tembo::heap::{ErrorKind, Heap, PRc, Persist, Plain, brand};
use tembo::{Options, Pool, PoolErrorKind};

#[derive(Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct List {
    first: PRc<Node>,
}

#[test]
fn a_heap_and_maps_share_a_pool_and_are_checked_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.pool");

    Heap::<_, List>::with(&path, Options::new().create(true), |heap| {
        for value in 0..3 {
            heap.write(|tx, list| {
                let node = tx.alloc(Node { value, next: PRc::null() })?;
                let first = tx.load(list.first())?;
                tx.link(node.next(), first)?;
                tx.link(list.first(), node)
            })?;
        }
        Ok(())
    })
    .unwrap();
    let inner = tembo_pool::Pool::open(&path, &tembo_pool::Options::new()).unwrap();
    let pool = Pool::from_pool(inner.clone());
    pool.open_map("planets").unwrap().put("mars", "red").unwrap();
    let report = pool.check().unwrap();
    assert_eq!(report.maps, [("planets".to_owned(), 1)]);
    let heap = report.heap.expect("a heap");
    let usage: Vec<_> = heap.types.iter().map(|usage| (usage.name.as_str(), usage.objects)).collect();
    assert_eq!(usage, [("List", 1), ("Node", 3)]);
    let described = pool.describe_heap().unwrap().expect("a heap");
    assert_eq!((described.root_type.as_str(), described.generation), ("List", 1));

    // A count that is too high is found: the one of the newest node, which the root leads to.
    let region = inner.region();
    let root = inner.root("heap").unwrap().unwrap().off;
    let list = region.load_u64(root + 16).unwrap();
    let node = region.load_u64(list + 16).unwrap();
    region.store_u64(node + 8, 2).unwrap();
    let Err(tembo::Error::Pool(error)) = pool.check() else { panic!("it is not found") };
    assert!(matches!(error.kind(), PoolErrorKind::Corrupt { what: "an object's counts", .. }), "{error}");
}

/// Types said `#[persist(crate = tembo::heap)]`, each of them, or programs had to depend on `tembo-heap` too.
/// The derives of `tembo::heap` are the ones of a program that knows this crate alone: enums, plain types and
/// generic ones among them.
#[test]
fn a_program_needs_one_crate_and_one_kind_of_options() {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Persist, Plain)]
    #[repr(u8)]
    enum Colour {
        #[default]
        None,
        Rgb([u8; 3]),
    }
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Pair<T: Persist> {
        a: T,
        b: T,
    }
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Picture {
        colours: Pair<Colour>,
    }
    brand!(Pictures);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.pool");
    let options: tembo::heap::Options = Options::new().create(true).max_bytes(1 << 30);
    let heap = Heap::<Pictures, Picture>::open(&path, &options).unwrap();
    let red = Colour::Rgb([255, 0, 0]);
    heap.write(|tx, picture| tx.set(picture.colours().b(), red)).unwrap();
    let both = heap.read(|tx, picture| Ok((tx.get(picture.colours().a())?, tx.get(picture.colours().b())?)));
    assert_eq!(both.unwrap(), (Colour::None, red));
    drop(heap);
    assert!(options.open(&path).unwrap().check().unwrap().heap.is_some());
}

/// A program that used `tembo` alone could have maps in a pool, or a heap, but not both at a time.
/// The cause of a heap's error.
fn kind<T>(outcome: &Result<T, tembo::Error>) -> Option<&ErrorKind> {
    match outcome {
        Err(tembo::Error::Heap(error)) => Some(error.kind()),
        _ => None,
    }
}

#[test]
fn a_heap_and_maps_are_open_in_one_pool_at_once() {
    brand!(Beside);
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(dir.path().join("beside.pool")).unwrap();
    let heap = pool.open_heap::<Beside, List>().unwrap();
    let map = pool.open_map("planets").unwrap();
    let node = heap.write(|tx, list| {
        let node = tx.alloc(Node { value: 3, next: PRc::null() })?;
        tx.link(list.first(), node)
    });
    node.unwrap();
    map.put("mars", "red").unwrap();
    assert!(matches!(kind(&pool.open_heap::<Beside, List>()), Some(ErrorKind::BrandInUse { .. })));
    assert_eq!(heap.read(|tx, list| tx.get(tx.follow(list.first())?.value())).unwrap(), 3);
    let report = pool.check().unwrap();
    assert_eq!((report.maps.len(), report.heap.is_some()), (1, true));

    let maps = Options::new().create(true).open(dir.path().join("maps.pool")).unwrap();
    maps.open_map("planets").unwrap();
    drop(heap);
    let refused = maps.open_heap::<Beside, List>();
    assert!(matches!(kind(&refused), Some(ErrorKind::NotAHeap { .. })), "{refused:?}");
}

/// Errors of maps had no way into a transaction but by hand, and the other way round.
#[test]
fn errors_of_maps_and_of_heaps_become_each_other() -> Result<(), tembo::Error> {
    let dir = tempfile::tempdir().unwrap();
    let names = Options::new().create(true).open(dir.path().join("names.pool"))?.open_map("names")?;
    let put = |key: &[u8]| {
        Heap::<_, List>::with(dir.path().join("list.heap"), Options::new().create(true), |heap| {
            names.put(key, "1")?;
            heap.read(|tx, list| tx.get(tx.follow(list.first())?.value()))
        })
    };
    let refused = put(&vec![0; tembo::MAX_KEY_BYTES as usize + 1]).unwrap_err().downcast::<tembo::Error>();
    assert!(matches!(refused, Ok(tembo::Error::KeyTooLong { .. })), "{refused:?}");
    let followed: tembo::Error = put(b"a").unwrap_err().into();
    assert!(matches!(kind(&Err::<(), _>(followed)), Some(ErrorKind::NullPointer { .. })));
    Ok(())
}

tembo::heap::brand!(WithinMaps);

type Within = Heap<WithinMaps, List>;

fn push(heap: &Within, value: u64) {
    heap.write(|tx, list| {
        let node = tx.alloc(Node { value, next: PRc::null() })?;
        let first = tx.load(list.first())?;
        tx.link(node.next(), first)?;
        tx.link(list.first(), node)
    })
    .unwrap();
}

fn first(heap: &Within) -> Option<u64> {
    let value = heap.read(|tx, list| match tx.load(list.first())? {
        Some(node) => tx.get(node.value()).map(Some),
        None => Ok(None),
    });
    value.unwrap()
}

/// Transactions and batches that run inside each other never wait for themselves, and each commits by itself.
#[test]
fn transactions_of_a_heap_and_changes_of_maps_run_inside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("both.pool")).unwrap();
    let heap: Within = pool.open_heap().unwrap();
    let plain = pool.open_map("plain").unwrap();
    let versioned = pool.open_map_with("versioned", tembo::MapOptions::new().versioned(true)).unwrap();
    for map in [&plain, &versioned] {
        for commits in [true, false] {
            a_transaction_in_a_batch_commits_by_itself(&heap, &pool, map, commits);
        }
        // While a value is made.
        let changed = map.modify("modified", |_| {
            push(&heap, 20);
            Some("2")
        });
        assert!(!changed.unwrap());
        changes_of_maps_stay_when_the_transaction_around_them_is_cancelled(&heap, &pool, map);
    }
    drop(heap);
    pool.check().unwrap();
}

fn a_transaction_in_a_batch_commits_by_itself(heap: &Within, pool: &Pool, map: &tembo::Map, commits: bool) {
    let before = map.len().unwrap();
    let mut batch = pool.batch().unwrap();
    batch.put(map, format!("batch {commits}").as_bytes(), b"1").unwrap();
    push(heap, 10 + u64::from(commits));
    assert_eq!(first(heap), Some(10 + u64::from(commits)));
    if commits {
        batch.commit().unwrap();
    } else {
        drop(batch);
    }
    assert_eq!(first(heap), Some(10 + u64::from(commits)));
    assert_eq!(map.len().unwrap(), before + u64::from(commits));
}

fn changes_of_maps_stay_when_the_transaction_around_them_is_cancelled(
    heap: &Within,
    pool: &Pool,
    map: &tembo::Map,
) {
    let beside = std::panic::AssertUnwindSafe((map, pool));
    let cancelled = heap.write::<()>(|tx, list| {
        let (map, pool) = *beside;
        tx.link(list.first(), None)?;
        map.put("inside", "3").unwrap();
        let mut batch = pool.batch().unwrap();
        batch.put(map, b"batch inside", b"4").unwrap();
        batch.commit().unwrap();
        Err(tx.cancel())
    });
    assert!(matches!(&cancelled, Err(e) if e.is_cancelled()));
    assert_eq!(first(heap), Some(20));
    assert_eq!(map.get("inside").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(map.get("batch inside").unwrap().as_deref(), Some(&b"4"[..]));
}

/// The pool of an open heap was to be had twice: by its path, and as another heap.
#[test]
fn nobody_else_comes_to_the_pool_of_an_open_heap() {
    tembo::heap::brand!(Other);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.heap");
    let options = Options::new().create(true);
    let heap = Heap::<Other, List>::open(&path, &options).unwrap();
    let locked = |e: &dyn std::fmt::Display| assert!(e.to_string().contains("in use"), "{e}");
    locked(&tembo::Options::new().open(&path).unwrap_err());
    locked(&tembo::Options::new().read_only(true).open(&path).unwrap_err());
    locked(&Heap::<_, List>::with(&path, &options, |_| Ok(())).unwrap_err());
    drop(heap);
    let pool = tembo::Options::new().open(&path).unwrap();
    let _heap = pool.open_heap::<Other, List>().unwrap();
    tembo::heap::brand!(Third);
    let twice = pool.open_heap::<Third, List>();
    assert!(matches!(kind(&twice), Some(ErrorKind::InUse)), "{twice:?}");
}
