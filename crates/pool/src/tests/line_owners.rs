//! A lane that changes a line waits until other lanes' records for it are dead (L3).

use super::{model, tiny_pool};
use crate::layout::PmLane;
use crate::{Geometry, Lane, Pool};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tembo_pmem::{LINE_BYTES, Observer, Region, ThreadTag, offset_of};

/// Reports the first flush after it was armed to the test, and delays that flush for a while.
struct Gate {
    armed: AtomicBool,
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Observer for Gate {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.reached.lock().send(()).unwrap();
            let _ = self.go_on.lock().recv_timeout(Duration::from_millis(300));
        }
    }
    fn fence(&self, _: ThreadTag) {}
}

/// A pool with lanes and a table, whose next flush can be delayed.
struct Held {
    pool: Pool,
    table: u64,
    gate: Arc<Gate>,
    reached: Receiver<()>,
    go_on: Sender<()>,
}

impl Held {
    fn new() -> Held {
        let (reached_sender, reached) = channel();
        let (go_on, go_on_receiver) = channel();
        let gate = Arc::new(Gate {
            armed: AtomicBool::new(false),
            reached: Mutex::new(reached_sender),
            go_on: Mutex::new(go_on_receiver),
        });
        let bytes = 256 << 10;
        let region = Region::simulated(&vec![0; bytes], bytes as u64, Some(gate.clone())).unwrap();
        let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
        let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
        Held { pool, table, gate, reached, go_on }
    }

    /// Lets `first` run up to its first flush, then `second` as far as it gets within the gate's patience.
    fn meanwhile(&self, first: impl FnOnce() + Send, second: impl FnOnce()) {
        self.gate.armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(first);
            self.reached.recv_timeout(Duration::from_secs(10)).unwrap();
            second();
            let _ = self.go_on.send(());
        });
    }

    fn store(&self, lane: &mut Lane, value: u64) {
        let mut tx = lane.begin();
        tx.store(self.table, value).unwrap();
        tx.commit().unwrap();
    }

    fn assert_dead(&self, lane: u32, seq: u64) {
        let retired_off = self.pool.geometry().lane_off(lane) + offset_of!(PmLane, retired) as u64;
        let retired = self.pool.region().load_u64(retired_off).unwrap();
        assert!(retired >= seq, "record {seq} of lane {lane} is live still: retired up to {retired}");
    }
}

/// A lane that overwrites another lane's entry checkpoints that lane first. Otherwise a third lane would find
/// only the new entry, and change a word for which the displaced lane still has a live record.
#[test]
fn an_owner_is_overwritten_only_when_its_record_is_dead() {
    let held = Held::new();
    // The last two of four have no columns.
    let mut lanes: Vec<Lane> = (0..4).map(|_| held.pool.lane().unwrap()).collect();
    (0..10).for_each(|i| held.store(&mut lanes[2], i));
    let number = lanes[2].number;
    let seq = held.pool.inner.log.slots[number as usize].lock().seq;
    let log = &held.pool.inner.log;
    // The last lane changes another word of the line at the same time as the third.
    held.meanwhile(
        || log.line_owners.register(log.lanes(), 3, 1, &[held.table / LINE_BYTES]).unwrap(),
        || {
            held.store(&mut lanes[0], 99);
            held.assert_dead(number, seq);
        },
    );
}

/// A lane that changes a word checkpoints the lane that changed it before, whichever parts of the table have
/// their entries.
#[test]
fn lanes_that_change_a_word_by_turns_checkpoint_each_other() {
    let pool = tiny_pool(256 << 10);
    let mut lanes: Vec<Lane> = (0..4).map(|_| pool.lane().unwrap()).collect();
    let table = model::make_table(&mut lanes[0]).unwrap();
    for (first, second) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        for (lane, value) in [(first, 1), (first, 2), (second, 3)] {
            let mut tx = lanes[lane].begin();
            tx.store(table, value).unwrap();
            tx.commit().unwrap();
        }
        let slots = &pool.inner.log.slots;
        let commits = [first, second].map(|lane| slots[lane].lock().commits);
        assert!(!slots[first].may_be_live(commits[0]), "lane {first} before {second}");
        assert!(slots[second].may_be_live(commits[1]), "lane {second} itself");
        assert!(slots[first].lock().seq < slots[second].lock().seq, "later, and numbered higher");
    }
}

/// Two threads take lanes at once, while the first lane has a live record that the table does not know.
/// Neither may begin before that record is dead.
#[test]
fn no_lane_writes_before_the_table_is_complete() {
    let held = Held::new();
    let mut first = held.pool.lane().unwrap();
    (0..10).for_each(|i| held.store(&mut first, i));
    let seq = held.pool.inner.log.slots[0].lock().seq;
    held.meanwhile(
        || drop(held.pool.lane().unwrap()),
        || {
            let mut third = held.pool.lane().unwrap();
            held.store(&mut third, 99);
            held.assert_dead(0, seq);
        },
    );
}
