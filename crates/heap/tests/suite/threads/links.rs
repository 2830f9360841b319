//! Pointers that many change at once: nothing is lost, and counts are exact.

use super::{
    NodePrivateFields, RootPrivateFields, THREADS, at_once, new_node, open, open_with, pause, rounds,
};
use rand::Rng;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_heap::brand;

#[test]
fn a_shared_list_loses_nothing() {
    brand!(Shared);
    let open = open::<Shared>();
    let heap = &open.heap;
    let popped = Mutex::new(Vec::new());
    let count = rounds(300);
    at_once(2, |thread, rng| {
        let mut mine = Vec::new();
        for i in 0..count {
            let id = thread * count + i;
            heap.write(|tx, root| {
                let node = tx.alloc(new_node(id))?;
                let first = tx.load(root.first())?;
                if let Some(first) = first {
                    tx.link_weak(first.back(), node)?;
                }
                tx.link(node.next(), first)?;
                tx.link(root.first(), node)?;
                *tx.get_mut(root.count())? += 1;
                Ok(())
            })
            .unwrap();
            if rng.random_bool(0.6) {
                let id = heap.write(|tx, root| {
                    let Some(first) = tx.load(root.first())? else { return Ok(None) };
                    let next = tx.load(first.next())?;
                    if let Some(next) = next {
                        assert_eq!(tx.upgrade(next.back())?, Some(first), "the one before");
                    }
                    tx.link(root.first(), next)?;
                    *tx.get_mut(root.count())? -= 1;
                    Ok(Some(tx.get(first.id())?))
                });
                mine.extend(id.unwrap());
            }
        }
        popped.lock().unwrap().append(&mut mine);
    });
    let mut ids = popped.into_inner().unwrap();
    let rest = heap.read(|tx, root| {
        let mut rest = Vec::new();
        let mut next = tx.load(root.first())?;
        while let Some(node) = next {
            rest.push(tx.get(node.id())?);
            next = tx.load(node.next())?;
        }
        assert_eq!(tx.get(root.count())?, rest.len() as u64);
        Ok(rest)
    });
    let rest = rest.unwrap();
    assert_eq!(open.objects(), rest.len() as u64);
    ids.extend(rest);
    ids.sort_unstable();
    assert_eq!(ids, (0..THREADS * count).collect::<Vec<_>>(), "each is in the list, or was taken out once");
}

#[test]
fn weak_pointers_lead_to_what_is_alive() {
    brand!(Racing);
    let open = open::<Racing>();
    let heap = &open.heap;
    let is_done = AtomicBool::new(false);
    let count = rounds(1500);
    at_once(4, |thread, _| {
        if thread == 0 {
            for id in 1..=count {
                heap.write(|tx, root| {
                    let (node, next) = (tx.alloc(new_node(id))?, tx.alloc(new_node(2 * id))?);
                    tx.set(node.value(), 3 * id)?;
                    tx.link(node.next(), next)?;
                    tx.link_weak(next.back(), node)?;
                    tx.link_weak(root.look(), node)?;
                    tx.link(root.first(), (id % 3 != 0).then_some(node))
                })
                .unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        }
        let mut last = 0;
        while !is_done.load(Ordering::Relaxed) {
            let seen = heap.read(|tx, root| {
                let Some(node) = tx.upgrade(root.look())? else {
                    assert!(tx.load(root.first())?.is_none(), "what is linked is alive");
                    return Ok(None);
                };
                let id = tx.get(node.id())?;
                std::thread::yield_now();
                assert_eq!(tx.load(root.first())?, Some(node), "what is alive is linked");
                let next = tx.load(node.next())?.expect("linked before");
                assert_eq!((tx.get(node.value())?, tx.get(next.id())?), (3 * id, 2 * id));
                assert_eq!(tx.upgrade(next.back())?, Some(node));
                Ok(Some(id))
            });
            if let Some(id) = seen.unwrap() {
                assert!(id >= last, "{id} after {last}");
                last = id;
            }
        }
    });
    heap.write(|tx, root| {
        tx.link(root.first(), None)?;
        tx.link_weak(root.look(), None)
    })
    .unwrap();
    assert_eq!(open.objects(), 0);
}

#[test]
fn counts_that_all_threads_change_are_exact() {
    brand!(Counted);
    let open = open_with::<Counted>(THREADS as usize, 0);
    let heap = &open.heap;
    heap.write(|tx, root| {
        let shared = tx.alloc(new_node(1000))?;
        tx.link(root.first(), shared)
    })
    .unwrap();
    let count = rounds(600);
    at_once(5, |thread, rng| {
        for _ in 0..count {
            let (kind, chance) = (rng.random_range(0..4), rng.random::<u64>());
            heap.write(|tx, root| {
                let mine = tx.load(tx.array(root.nodes())?.unwrap().at(thread as usize))?.unwrap();
                let shared = tx.load(root.first())?;
                pause(chance);
                match kind {
                    0 => tx.link(mine.next(), shared),
                    1 => tx.link(mine.next(), None),
                    2 => tx.link_weak(mine.back(), shared),
                    _ => {
                        // It is replaced, and dies when the last of the others lets go.
                        let new = tx.alloc(new_node(1001))?;
                        tx.link(root.first(), if chance.is_multiple_of(8) { Some(new) } else { shared })
                    }
                }
            })
            .unwrap();
        }
    });
    open.check();
}
