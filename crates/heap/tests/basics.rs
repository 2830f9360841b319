//! Transactions on persistent objects, as programs use them.

use tembo_heap::{Error, Heap, Options, PArr, PRc, PWeak, Persist, brand};

#[derive(Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
    back: PWeak<Node>,
}

#[derive(Persist, Default)]
#[repr(C)]
struct Root {
    first: PRc<Node>,
    count: u64,
    numbers: PArr<u64>,
}

fn create() -> Options {
    let mut options = Options::new();
    options.create = true;
    options
}

#[test]
fn a_list_is_there_again_after_the_heap_was_closed() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list.heap");
    Heap::<_, Root>::with(&path, &create(), |heap| {
        for value in 0..10 {
            heap.write::<_, Error>(|tx, root| {
                let node = tx.alloc(Node { value, next: PRc::null(), back: PWeak::null() })?;
                let first = tx.load(root.first())?;
                tx.link(node.next(), first)?;
                if let Some(first) = first {
                    tx.link_weak(first.back(), node)?;
                }
                tx.link(root.first(), node)?;
                *tx.get_mut(root.count())? += 1;
                Ok(())
            })?;
        }
        Ok::<_, Error>(())
    })?;
    brand!(List);
    let heap = Heap::<List, Root>::open(&path, &create())?;
    let values = heap.read::<_, Error>(|tx, root| {
        let mut values = Vec::new();
        let mut next = tx.load(root.first())?;
        while let Some(node) = next {
            values.push(tx.get(node.value())?);
            next = tx.load(node.next())?;
            if let Some(next) = next {
                assert_eq!(tx.upgrade(next.back())?, Some(node));
            }
        }
        assert_eq!(tx.get(root.count())?, 10);
        Ok(values)
    })?;
    assert_eq!(values, (0..10).rev().collect::<Vec<u64>>());
    Ok(())
}

/// Two heaps on one pool would each know nothing of what the other's transactions own.
#[test]
fn the_heap_of_a_pool_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo_pool::Pool::open(dir.path().join("once.heap"), &create()).unwrap();
    brand!(First);
    brand!(Second);
    let first = Heap::<First, Root>::open_pool(pool.clone()).unwrap();
    assert!(matches!(Heap::<Second, Root>::open_pool(pool.clone()), Err(Error::InUse)));
    assert!(matches!(Heap::<First, Root>::open_pool(pool.clone()), Err(Error::BrandInUse { .. })));
    drop(first);
    Heap::<Second, Root>::open_pool(pool).unwrap();
}
