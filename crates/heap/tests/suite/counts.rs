//! The costs of transactions in fences and lines, which do not depend on the machine.

use tembo_heap::collections::PHashMap;
use tembo_heap::{Brand, Error, Heap, Options, PArr, PRc, Persist, Plain};
use tembo_pmem::{Counts, Durability, snapshot};

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Line {
    words: [u64; 8],
}

#[derive(Persist)]
#[repr(C)]
struct Node {
    line: Line,
    next: PRc<Node>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    lines: PArr<PRc<Line>>,
    first: PRc<Node>,
    count: u64,
}

const ROUNDS: u64 = 200;

/// Fences and lines per transaction, of many.
fn cost(mut transaction: impl FnMut(u64) -> Result<(), Error>) -> (f64, f64) {
    transaction(0).unwrap();
    let before = snapshot();
    (1..=ROUNDS).for_each(|round| transaction(round).unwrap());
    let Counts { fences, lines, .. } = snapshot() - before;
    (fences as f64 / ROUNDS as f64, lines as f64 / ROUNDS as f64)
}

#[test]
fn a_transaction_costs_one_fence_and_one_that_writes_nothing_none() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Emulated).create(true).count(true);
    Heap::<_, Root>::with(dir.path().join("counts.heap"), &options, |heap| {
        heap.write(|tx, root| {
            let lines = tx.alloc_array(64, |_| PRc::null())?;
            tx.link_array(root.lines(), lines)?;
            for i in 0..64 {
                let line = tx.alloc(Line { words: [0; 8] })?;
                tx.link(lines.at(i), line)?;
            }
            Ok(())
        })?;
        writing_nothing_costs_nothing(&heap);
        writing_objects_costs_one_fence(&heap);
        allocating_costs_one_fence(&heap);
        Ok(())
    })
    .unwrap();
}

fn writing_nothing_costs_nothing<B: Brand>(heap: &Heap<B, Root>) {
    let empty = cost(|_| heap.write(|_, _| Ok(())));
    assert_eq!(empty, (0.0, 0.0), "an empty transaction");
    let read = cost(|_| {
        heap.read(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made at first");
            let line = tx.load(lines.at(3))?.expect("made at first");
            tx.get(*line).map(drop)
        })
    });
    assert_eq!(read, (0.0, 0.0), "a reading transaction");
    let failed = cost(|round| {
        let outcome = heap.write::<()>(|tx, root| {
            tx.alloc(Line { words: [round; 8] })?;
            tx.set(root.count(), round)?;
            Err(tx.cancel())
        });
        assert!(matches!(&outcome, Err(e) if e.is_cancelled()));
        Ok(())
    });
    assert_eq!(failed, (0.0, 0.0), "a transaction that fails");
}

fn writing_objects_costs_one_fence<B: Brand>(heap: &Heap<B, Root>) {
    let write = |objects: u64| {
        cost(|round| {
            heap.write(|tx, root| {
                let lines = tx.array(root.lines())?.expect("made at first");
                for i in 0..objects {
                    let line = tx.load(lines.at(((round * 7 + i) % 64) as usize))?.expect("made at first");
                    tx.set(*line, Line { words: [round + 1; 8] })?;
                }
                Ok(())
            })
        })
    };
    // A record of two lines, and the object's own, which is flushed once for several records.
    let (fences, lines) = write(1);
    assert_eq!(fences, 1.0, "writing one object of 64 bytes");
    assert!(lines <= 3.0, "{lines} lines for one object of 64 bytes");
    let (fences, lines) = write(10);
    assert_eq!(fences, 1.0, "writing ten objects of 64 bytes");
    assert!(lines <= 23.0, "{lines} lines for ten objects of 64 bytes");
}

/// One, and one more now and then for a new slab.
fn allocating_costs_one_fence<B: Brand>(heap: &Heap<B, Root>) {
    let (fences, lines) = cost(|round| {
        heap.write(|tx, root| {
            let node = tx.alloc(Node { line: Line { words: [round; 8] }, next: PRc::null() })?;
            let first = tx.load(root.first())?;
            tx.link(node.next(), first)?;
            tx.link(root.first(), node)
        })
    });
    assert!(fences <= 1.02, "{fences} fences for allocating and linking");
    assert!(lines <= 6.0, "{lines} lines for allocating and linking");
    let (fences, lines) = cost(|round| {
        heap.write(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made at first");
            let line = tx.alloc(Line { words: [round; 8] })?;
            tx.link(lines.at((round % 64) as usize), line)
        })
    });
    assert!(fences <= 1.02, "{fences} fences for replacing an object by a new one");
    assert!(lines <= 6.5, "{lines} lines for replacing an object by a new one");
}

#[test]
fn a_change_of_a_small_entry_of_a_hash_map_is_one_line_and_its_record() {
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    const KEYS: u64 = 1500;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Emulated).create(true).count(true);
    Heap::<_, Root>::with(dir.path().join("counts.heap"), &options, |heap| {
        // This many, so that the map is not about to grow.
        (0..KEYS).try_for_each(|key| heap.write(|tx, root| root.map().insert(tx, &key, key).map(drop)))?;
        let key = |round: u64| round * 7 % KEYS;
        let update =
            cost(|round| heap.write(|tx, root| root.map().replace(tx, &key(round), !round).map(drop)));
        let remove = cost(|round| heap.write(|tx, root| root.map().remove(tx, &key(round)).map(drop)));
        let insert = cost(|round| heap.write(|tx, root| root.map().insert(tx, &key(round), round).map(drop)));
        let read = cost(|round| heap.read(|tx, root| root.map().value(tx, &key(round)).map(drop)));
        println!("update {update:?}, remove {remove:?}, insert {insert:?}");
        assert_eq!((update.0, remove.0, insert.0), (1.0, 1.0, 1.0), "fences");
        assert_eq!(read, (0.0, 0.0));
        // A line of the record, and the bucket, or rather less, since home lines that changed twice are
        // flushed once.
        assert!((1.9..=2.0).contains(&update.1), "{update:?}");
        // Besides, one of the sixteen lines of counts, now and then; an insertion has two lines of the
        // record, and in one of ten a bucket behind another is made.
        assert!(remove.1 < 2.4 && insert.1 < 3.7, "{remove:?} {insert:?}");
        Ok(())
    })
    .unwrap();
}
