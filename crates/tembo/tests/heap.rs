//! Heaps through the public library: beside maps, and in checks.

use tembo::heap::{Error, Heap, PRc, Persist};
use tembo::{Options, PoolError};

#[derive(Persist)]
#[persist(crate = tembo::heap)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
}

#[derive(Default, Persist)]
#[persist(crate = tembo::heap)]
#[repr(C)]
struct List {
    first: PRc<Node>,
}

#[test]
fn a_heap_and_maps_share_a_pool_and_are_checked_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("both.pool");
    let mut raw = tembo::heap::Options::new();
    raw.create = true;
    Heap::<_, List>::with(&path, &raw, |heap| {
        for value in 0..3 {
            heap.write::<_, Error>(|tx, list| {
                let node = tx.alloc(Node { value, next: PRc::null() })?;
                let first = tx.load(list.first())?;
                tx.link(node.next(), first)?;
                tx.link(list.first(), node)
            })?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let pool = Options::new().open(&path).unwrap();
    pool.open_map("planets").unwrap().put("mars", "red").unwrap();
    let report = pool.check().unwrap();
    assert_eq!(report.maps, [("planets".to_owned(), 1)]);
    let heap = report.heap.expect("a heap");
    let usage: Vec<_> = heap.types.iter().map(|usage| (usage.name.as_str(), usage.objects)).collect();
    assert_eq!(usage, [("List", 1), ("Node", 3)]);
    let described = pool.describe_heap().unwrap().expect("a heap");
    assert_eq!((described.root_type.as_str(), described.generation), ("List", 1));

    // A count that is too high is found: the one of the newest node, which the root leads to.
    let region = pool.raw().region();
    let root = pool.raw().root("heap").unwrap().unwrap().off;
    let list = region.load_u64(root + 16).unwrap();
    let node = region.load_u64(list + 16).unwrap();
    region.store_u64(node + 8, 2).unwrap();
    match pool.check() {
        Err(tembo::Error::Pool(PoolError::Corrupt { what, .. })) => assert_eq!(what, "an object's counts"),
        other => panic!("{other:?}"),
    }
}
