//! Handles that other threads use and drop.

use super::{Node, NodePrivateFields, Root, RootPrivateFields, THREADS, at_once, new_node, open, rounds};
use rand::Rng;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, mpsc};
use tembo_heap::{Handle, Heap, brand};

brand!(Handed);

/// A new node, which a weak pointer sees, and which is linked or not.
fn make_held(heap: &Heap<Handed, Root>, id: u64, linked: bool) -> Handle<Handed, Node> {
    let handle = heap.write(|tx, root| {
        let node = tx.alloc(new_node(id))?;
        let other = tx.alloc(new_node(0))?;
        tx.link(node.next(), other)?;
        tx.link_weak(root.look(), node)?;
        if linked {
            tx.link(root.first(), node)?;
        }
        tx.hold(node)
    });
    handle.unwrap()
}

/// Uses and drops a handle, before, inside or after a transaction; `ids` ends the nodes' numbers.
fn use_handle(heap: &Heap<Handed, Root>, handle: Handle<Handed, Node>, way: u32, ids: u64) {
    match way {
        0 => drop(handle),
        1 => {
            // The last handle is dropped inside of the transaction that links what it holds.
            let handle = Mutex::new(Some(handle));
            heap.write(|tx, root| {
                let handle = handle.lock().unwrap().take();
                let Some(handle) = handle else { return Ok(()) };
                let node = tx.enter(&handle)?;
                drop(handle);
                std::thread::yield_now();
                tx.link(root.first(), node)
            })
            .unwrap();
        }
        2 => {
            let again = heap.write(|tx, root| {
                let node = tx.enter(&handle)?;
                tx.link(root.first(), node)?;
                tx.hold(node)
            });
            drop(handle);
            drop(again.unwrap());
        }
        _ => {
            let id = heap.write(|tx, root| {
                let node = tx.enter(&handle)?;
                assert!(tx.load(node.next())?.is_some());
                tx.link(root.first(), None)?;
                tx.get(node.id())
            });
            assert!(id.unwrap() < ids);
        }
    }
}

#[test]
fn handles_go_to_other_threads_and_are_dropped_there() {
    let open = open::<Handed>();
    let heap = &open.heap;
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Handle<Handed, Node>>()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    let count = rounds(300);
    at_once(3, |thread, rng| {
        let senders = senders.clone();
        let receiver = receivers[thread as usize].lock().unwrap();
        for i in 0..count {
            let linked = rng.random_bool(0.3);
            let handle = make_held(heap, thread * count + i, linked);
            let to = rng.random_range(0..THREADS) as usize;
            senders[to].send(handle).unwrap();
            while let Ok(handle) = receiver.try_recv() {
                use_handle(heap, handle, rng.random_range(0..4), THREADS * count);
                if let Some(node) = heap
                    .write(|tx, root| match tx.upgrade(root.look())? {
                        Some(node) => Ok(Some((tx.get(node.id())?, tx.hold(node)?))),
                        None => Ok(None),
                    })
                    .unwrap()
                {
                    assert!(node.0 < THREADS * count);
                }
            }
        }
    });
    drop((senders, receivers));
    heap.write(|tx, root| tx.link(root.first(), None)).unwrap();
    assert_eq!((open.objects(), open.check().orphans), (0, 0), "nothing keeps them alive");
}

/// A transaction went on with the object of a handle that was dropped meanwhile, and linked it although it
/// had been freed.
#[test]
fn what_dies_with_its_handle_is_not_linked() {
    brand!(Dropped);
    let open = open::<Dropped>();
    let heap = &open.heap;
    let handle = heap.write(|tx, _| {
        let node = tx.alloc(new_node(1))?;
        tx.hold(node)
    });
    let handle = Mutex::new(Some(handle.unwrap()));
    let linked = heap.write(|tx, root| {
        let Some(handle) = handle.lock().unwrap().take() else { return Ok(false) };
        let node = tx.enter(&handle)?;
        drop(handle);
        let heap = AssertUnwindSafe(heap);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The next commit releases it, and another object takes its place.
                for _ in 0..3 {
                    heap.write(|tx, _| tx.alloc(new_node(2)).map(drop)).unwrap();
                    heap.collect().unwrap();
                }
            });
        });
        tx.link(root.first(), node)?;
        Ok(true)
    });
    assert!(!linked.unwrap(), "it was run again, without the handle");
    assert_eq!(open.objects(), 0);
}
