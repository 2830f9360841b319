//! A transaction whose commit is under way while another lets an object die that it writes: what becomes of
//! the object's memory is safe from its record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_heap::{Error, Heap, NamedBrand, PArr, PRc, Persist, brand};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_pool::{Geometry, Pool};

/// No pointers: it is freed by the commit in which it dies.
#[derive(Persist)]
#[repr(C)]
struct Leaf {
    words: [u64; 6],
}

#[derive(Persist, Default)]
#[repr(C)]
struct Root {
    leaves: PArr<PRc<Leaf>>,
    x: PRc<Leaf>,
}

fn leaf(value: u64) -> Leaf {
    Leaf { words: [value; 6] }
}

/// Stops a thread before the first store of its next commit's record.
#[derive(Default)]
struct Stop {
    is_armed: AtomicBool,
    has_stopped: AtomicBool,
    goes_on: AtomicBool,
    thread: AtomicU64,
}

/// The first records of lanes lie below.
const LANES_END: u64 = 1 << 20;

impl Observer for Stop {
    fn store(&self, thread: ThreadTag, off: u64, _: &[u8]) {
        let is_it = u64::from(thread.0) == self.thread.load(Ordering::SeqCst) && off < LANES_END;
        if is_it && self.is_armed.swap(false, Ordering::SeqCst) {
            self.has_stopped.store(true, Ordering::SeqCst);
            wait_for(&self.goes_on);
        }
    }
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

const LEAVES: usize = 300;
const REGION_BYTES: u64 = 64 << 20;

/// Values of the leaves that are not 7.
fn not_seven<B: NamedBrand>(heap: &Heap<B, Root>) -> Vec<u64> {
    let values = heap.read(|tx, root| {
        let leaves = tx.array(root.leaves())?.unwrap();
        let value = |i| Ok(tx.get(tx.load(leaves.at(i))?.unwrap().words())?[0]);
        (0..LEAVES).map(value).collect::<Result<Vec<_>, Error>>()
    });
    values.unwrap().into_iter().filter(|value| *value != 7).collect()
}

/// Lets the first leaves be new ones of 7.
fn fill<B: NamedBrand>(heap: &Heap<B, Root>, count: usize) {
    let filled = heap.write(|tx, root| {
        let leaves = tx.array(root.leaves())?.unwrap();
        for i in 0..count {
            let leaf = tx.alloc(leaf(7))?;
            tx.link(leaves.at(i), leaf)?;
        }
        Ok(())
    });
    filled.unwrap();
}

#[test]
fn a_late_record_does_no_harm_to_what_comes_after_a_dead_object() {
    brand!(Before);
    brand!(After);
    let stop = Arc::new(Stop::default());
    let region = Region::simulated(&vec![0; 32 << 20], REGION_BYTES, Some(stop.clone())).unwrap();
    let pool = Pool::create_in(region, &Geometry::default()).unwrap();
    let heap = Heap::<Before, Root>::open_pool(pool.clone()).unwrap();
    let made = heap.write(|tx, root| {
        let leaves = tx.alloc_array(LEAVES, |_| PRc::null())?;
        tx.link_array(root.leaves(), leaves)?;
        let x = tx.alloc(leaf(1))?;
        tx.link(root.x(), x)
    });
    made.unwrap();
    // Two lanes are in use from the start: to begin with one waits for all others.
    let two = heap.write(|tx, root| {
        tx.link(root.x(), tx.load(root.x())?)?;
        tx.alloc(leaf(2))?;
        std::thread::scope(|scope| scope.spawn(|| fill(&heap, 1)).join().unwrap());
        Ok(())
    });
    two.unwrap();
    pool.trim().unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            stop.thread.store(u64::from(ThreadTag::current().0), Ordering::SeqCst);
            stop.is_armed.store(true, Ordering::SeqCst);
            let written = heap.write(|tx, root| {
                let x = tx.load(root.x())?.unwrap();
                tx.set(x.words(), [9; 6])
            });
            written.unwrap();
        });
        wait_for(&stop.has_stopped);
        heap.write(|tx, root| tx.link(root.x(), None)).unwrap();
        stop.goes_on.store(true, Ordering::SeqCst);
        late.join().unwrap();
        // This many die, so that the memory of the first is reused.
        (0..600).for_each(|_| fill(&heap, 1));
        // By the lane that has the late record.
        scope.spawn(|| fill(&heap, LEAVES)).join().unwrap();
    });
    assert_eq!(not_seven(&heap), [0; 0]);
    // Everything that was stored is there, as after kill -9.
    let words = pool.region().words(0, pool.region().len() / 8).unwrap();
    let image: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::SeqCst).to_ne_bytes()).collect();
    let pool = Pool::open_in(Region::simulated(&image, REGION_BYTES, None).unwrap()).unwrap();
    let heap = Heap::<After, Root>::open_pool(pool).unwrap();
    assert_eq!(not_seven(&heap), [0; 0], "after a crash");
}
