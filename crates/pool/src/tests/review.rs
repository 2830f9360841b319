//! What once went wrong, or nearly: lanes that hand slabs to each other, threads that write at once, careless
//! callers, and media that says anything.

use super::model::{self, LINKS, Model};
use super::{image_of, tiny_options, tiny_pool};
use crate::alloc::classes::Classes;
use crate::layout::{
    ChunkWord, MAX_SEQ, PmEntry, PmHeader, PmLane, PmRecord, PmZone, SLAB_TAG, WATERMARK_BITS, seal,
};
use crate::{Error, Geometry, Lane, Options, Pool, Result};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tembo_crashsim::{Audit, Report, Scenario, SharedScenario, Simulation, campaign};
use tembo_pmem::{LINE_BYTES, Observer, Region, ThreadTag, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a thread does to the table, or to its lane.
#[derive(Debug, Clone)]
enum Step {
    Put {
        link: u64,
        bytes: u64,
    },
    Remove {
        link: u64,
    },
    /// Gives the lane back; the next step takes one again.
    LetGo,
}

#[derive(Debug, Clone)]
struct Op {
    thread: usize,
    steps: Vec<Step>,
}

/// Threads that each have lanes and links of their own; the links share lines.
struct Threads {
    name: &'static str,
    threads: usize,
    /// Performed in the setup, by the first thread's lane.
    before: Vec<Step>,
    ops: Vec<Op>,
}

struct State {
    pool: Pool,
    table: u64,
    lanes: Vec<Mutex<Option<Lane>>>,
}

impl State {
    fn new(pool: Pool, threads: usize) -> Result<State> {
        let mut first = pool.lane()?;
        let table = match pool.root("table")? {
            Some(root) => root.off,
            None => model::make_table(&mut first)?,
        };
        let mut lanes = vec![Mutex::new(Some(first))];
        lanes.resize_with(threads, Mutex::default);
        Ok(State { pool, table, lanes })
    }

    fn perform(&self, thread: usize, steps: &[Step]) -> Result<()> {
        let mut slot = self.lanes[thread].lock();
        if slot.is_none() {
            *slot = Some(self.pool.lane()?);
        }
        let Some(lane) = slot.as_mut() else { return Ok(()) };
        let mut tx = lane.begin();
        for step in steps {
            match *step {
                Step::Put { link, bytes } => model::put(&mut tx, self.table, link, bytes, bytes)?,
                Step::Remove { link } => model::remove(&mut tx, self.table, link)?,
                Step::LetGo => {}
            }
        }
        tx.commit()?;
        if steps.iter().any(|step| matches!(step, Step::LetGo)) {
            *slot = None;
        }
        Ok(())
    }
}

fn apply_steps(model: &mut Model, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Put { link, bytes } => _ = model.insert(link, (bytes, bytes)),
            Step::Remove { link } => _ = model.remove(&link),
            Step::LetGo => {}
        }
    }
}

impl Scenario for Threads {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn region_bytes(&self) -> u64 {
        256 << 10
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let pool = Pool::create_in(region, &Geometry::tiny()).map_err(|e| e.to_string())?;
        let state = State::new(pool, self.threads).map_err(|e| e.to_string())?;
        for step in &self.before {
            state.perform(0, std::slice::from_ref(step)).map_err(|e| e.to_string())?;
        }
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        Pool::open_in(region).and_then(|pool| State::new(pool, self.threads)).map_err(|e| e.to_string())
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        state.perform(op.thread, &op.steps).map_err(|e| e.to_string())
    }

    fn initial(&self) -> Model {
        let mut model = Model::new();
        apply_steps(&mut model, &self.before);
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        apply_steps(model, &op.steps);
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        model::read(&state.pool).map_err(|e| e.to_string())
    }

    fn check(&self, state: &State) -> Result<(), String> {
        state.pool.marks().map(drop).map_err(|e| e.to_string())
    }
}

impl SharedScenario for Threads {
    fn thread_of(&self, op: &Op) -> usize {
        op.thread
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        state.perform(op.thread, &op.steps).map(|()| Vec::new()).map_err(|e| e.to_string())
    }
}

fn put(link: u64, bytes: u64) -> Step {
    Step::Put { link, bytes }
}

/// Records cover the heads of the slabs that they publish. A lane that allocates from such a slab, which another
/// lane let go, changes the bitmap in that head: it has to see the other's record dead first.
#[test]
fn a_slab_let_go_right_after_it_was_published_is_settled_before_others_use_it() {
    let op = |thread, steps| Op { thread, steps };
    let scenario = Threads {
        name: "a slab handed over",
        threads: 2,
        before: vec![],
        ops: vec![
            // The second lane is taken first, so that the slab's publication is found by touch.
            op(1, vec![put(40, 300)]),
            op(0, vec![put(0, 64), Step::LetGo]),
            op(1, vec![put(32, 64)]),
            op(1, vec![put(33, 64)]),
        ],
    };
    Simulation::new(&scenario)
        .limit(2048)
        .depth(0)
        .audit(Audit::off())
        .run()
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Three threads with random transactions on links of their own, whose words, bitmap words and chunk words share
/// lines, and which let go of their lanes now and then.
fn random_threads(seed: u64) -> Threads {
    const THREADS: u64 = 3;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut op = |thread: u64, most: usize| {
        let count = rng.random_range(1..=most);
        let mut steps = Vec::new();
        for _ in 0..count {
            // Neighbouring links belong to different threads.
            let link = thread + THREADS * rng.random_range(0..5);
            let bytes = match rng.random_range(0..8) {
                0 => rng.random_range(2000..6000),
                _ => rng.random_range(16..120),
            };
            let step = if rng.random_bool(0.3) { Step::Remove { link } } else { put(link, bytes) };
            steps.push(step);
        }
        if rng.random_bool(0.2) {
            steps.push(Step::LetGo);
        }
        Op { thread: thread as usize, steps }
    };
    let before = vec![put(0, 40), put(1, 50), put(5, 60)];
    let ops = (0..9).map(|i| op(i % THREADS, if i < 3 { 8 } else { 3 })).collect();
    Threads { name: "threads", threads: THREADS as usize, before, ops }
}

#[test]
fn threads_that_write_at_once_survive_crashes() {
    let report = campaign(12_000, |seed| -> Result<Report, _> {
        Simulation::new(&random_threads(seed)).limit(24).depth(1).audit(Audit::off()).seed(seed).run_shared()
    });
    match report {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Tells a test of the first flush after it was armed, and waits a while before letting it go on.
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

/// A pool whose first flush from now on can be held up, with lanes and a table.
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

/// A lane that takes another's place in the touch table settles it first: who comes meanwhile would find only the
/// new name there, and change a word for which the displaced lane still has a live record.
#[test]
fn a_lane_leaves_the_touch_table_only_when_it_is_settled() {
    let held = Held::new();
    // The last two of four have no columns.
    let mut lanes: Vec<Lane> = (0..4).map(|_| held.pool.lane().unwrap()).collect();
    (0..10).for_each(|i| held.store(&mut lanes[2], i));
    let number = lanes[2].number;
    let seq = held.pool.inner.lanes[number as usize].lock().seq;
    let inner = &held.pool.inner;
    // The last lane changed another word of the line, at the same time as the third changed its own.
    held.meanwhile(
        || inner.touches.register(inner, 3, 1, &[held.table / LINE_BYTES]).unwrap(),
        || {
            held.store(&mut lanes[0], 99);
            held.assert_dead(number, seq);
        },
    );
}

/// Who changes a word has the lane settled that did so before, whichever part of the touch table tells of the two.
#[test]
fn lanes_that_change_a_word_by_turns_settle_each_other() {
    let pool = tiny_pool(256 << 10);
    let mut lanes: Vec<Lane> = (0..4).map(|_| pool.lane().unwrap()).collect();
    let table = model::make_table(&mut lanes[0]).unwrap();
    for (first, second) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        for (lane, value) in [(first, 1), (first, 2), (second, 3)] {
            let mut tx = lanes[lane].begin();
            tx.store(table, value).unwrap();
            tx.commit().unwrap();
        }
        let slots = &pool.inner.lanes;
        let commits = [first, second].map(|lane| slots[lane].lock().commits);
        assert!(!slots[first].may_be_live(commits[0]), "lane {first} before {second}");
        assert!(slots[second].may_be_live(commits[1]), "lane {second} itself");
        assert!(slots[first].lock().seq < slots[second].lock().seq, "later, and numbered higher");
    }
}

/// Two threads take lanes at once, while the first lane has a live record that the touch table does not know. Neither
/// may begin before that record is dead.
#[test]
fn nobody_writes_before_the_touch_table_is_complete() {
    let held = Held::new();
    let mut first = held.pool.lane().unwrap();
    (0..10).for_each(|i| held.store(&mut first, i));
    let seq = held.pool.inner.lanes[0].lock().seq;
    held.meanwhile(
        || drop(held.pool.lane().unwrap()),
        || {
            let mut third = held.pool.lane().unwrap();
            held.store(&mut third, 99);
            held.assert_dead(0, seq);
        },
    );
}

// Careless callers.

#[test]
fn writes_at_impossible_offsets_are_refused() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    for off in [u64::MAX, u64::MAX - 3, 1 << 63, 0, block + 63, block + 64] {
        assert!(tx.write_fresh(off, &[1; 8]).is_err(), "{off:#x}");
        assert!(tx.free(off).is_err(), "{off:#x}");
        assert!(off == block + 64 || tx.store(off, 1).is_err(), "{off:#x}");
    }
}

#[test]
fn what_ends_with_its_block_may_have_an_empty_last_part() {
    // An empty part at the end of a block was refused, as if it lay in other memory, and that was called damage of the pool.
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    for bytes in [16, 64, 80, 576, 1024, 4096, 32 << 10, 64 << 10, 128 << 10] {
        let mut tx = lane.begin();
        let block = tx.alloc(bytes).unwrap();
        tx.write_fresh(block, &[]).unwrap();
        tx.write_fresh(block, &vec![7; bytes as usize]).unwrap();
        tx.write_fresh(block + bytes, &[]).unwrap();
        tx.write_fresh_words(block + bytes, &[], &[]).unwrap();
        tx.write_fresh_words(block + bytes - 16, &[1, 2], &[]).unwrap();
        tx.write_fresh_words(block + bytes - 16, &[], &[1, 2]).unwrap();
        for off in [block - 8, block + bytes - 8, block + bytes] {
            let refused = [tx.write_fresh(off, &[1; 16]), tx.write_fresh_words(off, &[1], &[2])];
            assert!(
                refused.iter().all(|outcome| matches!(outcome, Err(Error::Internal { .. }))),
                "{bytes}, {off:#x}: {refused:?}"
            );
        }
        let uneven = tx.write_fresh_words(block + 4, &[1], &[]).unwrap_err();
        assert!(uneven.to_string().contains("bug of the program, not damage"), "{uneven}");
        tx.roll_back();
    }
}

#[test]
fn the_header_and_the_lanes_are_not_to_be_stored_to() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let geometry = *pool.geometry();
    for off in [0, 128, 192, geometry.lanes_off(), geometry.half_off(1, 0), geometry.lane_off(4) - 8] {
        assert!(matches!(tx.store(off, 1), Err(Error::Corrupt { .. })), "{off:#x}");
    }
    tx.set_root("a name", 1, 2).unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_savepoint_that_is_gone_already_changes_nothing() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let first = tx.savepoint();
    let block = tx.alloc(64).unwrap();
    tx.store(block, 1).unwrap();
    let second = tx.savepoint();
    tx.rollback_to(first);
    tx.rollback_to(second);
    tx.commit().unwrap();
    assert_eq!(pool.marks().unwrap().usage().allocated_blocks, 0);
}

#[test]
fn a_transaction_that_was_leaked_is_taken_back_by_the_next() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    tx.store(table, block).unwrap();
    std::mem::forget(tx);
    let tx = lane.begin();
    assert_eq!(tx.load(table).unwrap(), 0);
    tx.commit().unwrap();
    drop(lane);
    assert!(model::read(&pool).unwrap().is_empty());
}

/// Two lanes that free one block break their contract; memory must stay sound all the same, and one be refused.
#[test]
fn a_block_is_freed_by_one_lane_only() {
    let pool = tiny_pool(256 << 10);
    let (mut a, mut b) = (pool.lane().unwrap(), pool.lane().unwrap());
    let table = model::make_table(&mut a).unwrap();
    let mut tx = a.begin();
    model::put(&mut tx, table, 0, 300, 1).unwrap();
    tx.commit().unwrap();
    let block = pool.region().load_u64(table).unwrap();
    let mut first = a.begin();
    let mut second = b.begin();
    first.free(block).unwrap();
    assert!(matches!(second.free(block), Err(Error::Corrupt { .. })));
    assert!(matches!(first.free(block), Err(Error::Corrupt { .. })));
    drop(first);
    // The first took it back.
    second.free(block).unwrap();
    second.store(table, 0).unwrap();
    second.commit().unwrap();
    drop((a, b));
    assert!(model::read(&pool).unwrap().is_empty());
}

#[test]
fn absurd_sizes_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.pool");
    for initial_bytes in [u64::MAX, u64::MAX - 5000, 1 << 62] {
        let options = Options { initial_bytes, ..tiny_options() };
        assert!(Pool::open(&path, &options).is_err(), "{initial_bytes}");
    }
    let options = Options { max_bytes: Some(u64::MAX), ..tiny_options() };
    let pool = Pool::open(&path, &options).unwrap();
    let mut lane = pool.lane().unwrap();
    assert!(matches!(lane.begin().alloc(u64::MAX), Err(Error::TooLarge { .. })));
}

/// Records as large as the largest block are not refused for want of a larger one.
#[test]
fn a_record_may_be_as_large_as_a_block() {
    let pool = tiny_pool(6 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(1 << 20).unwrap();
    tx.set_root("block", 1, block).unwrap();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    for word in 0..(1 << 20) / 16 + 100 {
        tx.store(block + 8 * word, word).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(pool.region().load_u64(block + 800).unwrap(), 100);
}

// Media that says anything.

/// A pool with slabs, an extent and free chunks, closed; as its image.
fn small_image() -> (Vec<u8>, Geometry) {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    for link in 0..LINKS / 2 {
        let mut tx = lane.begin();
        let bytes = [40, 900, 3000, 12_000][link as usize % 4];
        model::put(&mut tx, table, link, bytes, link).unwrap();
        tx.commit().unwrap();
    }
    let geometry = *pool.geometry();
    pool.inner.reclaim_all().unwrap();
    let image = image_of(&pool);
    (image, geometry)
}

fn open_image(image: &[u8]) -> Result<Pool> {
    Pool::open_in(Region::simulated(image, image.len() as u64, None).unwrap())
}

fn word(image: &[u8], off: u64) -> u64 {
    u64::from_le_bytes(image[off as usize..][..8].try_into().unwrap())
}

fn set_word(image: &mut [u8], off: u64, value: u64) {
    image[off as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Does everything that can be done to a pool whose structures cannot be trusted; only panics count.
fn exercise(image: &[u8]) {
    let Ok(pool) = open_image(image) else { return };
    let _ = pool.marks().map(|marks| marks.finish());
    let (Ok(Some(root)), Ok(mut lane)) = (pool.root("table"), pool.lane()) else { return };
    for round in 0..3 {
        for link in 0..LINKS {
            let mut tx = lane.begin();
            let done = match (link + round) % 3 {
                0 => model::remove(&mut tx, root.off, link),
                1 => model::put(&mut tx, root.off, link, 16 + 977 * link % 15_000, link),
                _ => (0..3).try_for_each(|i| model::put(&mut tx, root.off, (link + i) % LINKS, 90, i)),
            };
            if done.is_ok() {
                let _ = tx.commit();
            }
        }
        let _ = pool.trim();
    }
    let _ = pool.stats();
    drop(lane);
    let _ = pool.marks();
}

#[test]
fn extents_that_lead_outside_their_zone_are_refused() {
    let (image, geometry) = small_image();
    let zone_chunks = u64::from(geometry.zone_chunks);
    for chunks in [1, 100, zone_chunks, 1 << 30, (1 << 52) - 1, 1 << 52, (1 << 56) - 1] {
        for chunk in 0..16 {
            let mut damaged = image.clone();
            set_word(&mut damaged, geometry.chunk_word_off(0, chunk), ChunkWord::Extent { chunks }.encode());
            exercise(&damaged);
            let Ok(pool) = open_image(&damaged) else { continue };
            let mut lane = pool.lane().unwrap();
            for target in [chunk, chunk + 1] {
                let mut tx = lane.begin();
                if tx.free(geometry.chunk_off(0, target)).is_ok() {
                    tx.commit().unwrap();
                }
            }
            pool.inner.reclaim_all().unwrap();
            let mut tx = lane.begin();
            for _ in 0..20 {
                let Ok(block) = tx.alloc(12_000) else { break };
                let blocks =
                    geometry.chunk_off(0, geometry.zone_header_chunks())..pool.region().len() - 12_000;
                assert!(blocks.contains(&block), "chunk {chunk}, {chunks} chunks: a block at {block:#x}");
                tx.write_fresh(block, &[1; 12_000]).unwrap();
            }
        }
    }
}

/// An extent that lies over a slab makes the slab's chunks free while its blocks are in use, or wait for readers.
#[test]
fn chunks_of_a_slab_in_use_are_not_given_out_again() {
    let (image, geometry) = small_image();
    let limit = geometry.zone_limit(0, image.len() as u64);
    let kind = |chunk: u64| word(&image, geometry.chunk_word_off(0, chunk)) & 0xFF;
    let over: Vec<u64> = (1..limit).filter(|chunk| kind(*chunk) == 1 && kind(*chunk - 1) == 2).collect();
    assert!(!over.is_empty(), "no slab follows another of several chunks");
    let mut tried = 0;
    for slab in over {
        let mut damaged = image.clone();
        // In the middle of one slab, so that no walk of the table meets it.
        let extent = ChunkWord::Extent { chunks: 8 }.encode();
        set_word(&mut damaged, geometry.chunk_word_off(0, slab - 1), extent);
        exercise(&damaged);
        let pool = open_image(&damaged).unwrap();
        let table = pool.root("table").unwrap().unwrap().off;
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        if tx.free(geometry.chunk_off(0, slab - 1)).is_err() {
            continue;
        }
        tx.commit().unwrap();
        pool.inner.reclaim_all().unwrap();
        let pin = pool.pin();
        for link in 0..LINKS / 2 {
            let mut tx = lane.begin();
            let _ = model::remove(&mut tx, table, link).and_then(|()| tx.commit());
        }
        let Some(known) = pool.inner.alloc.known_slab(0, slab) else { continue };
        for bytes in [100, 64, 80, 16, 200, 2000, 300, 500, 1500, 112] {
            let mut tx = lane.begin();
            let _ = tx.alloc(bytes);
            let _ = tx.commit();
        }
        let after = pool.inner.alloc.known_slab(0, slab);
        let is_same = after.is_some_and(|after| after.ptr_eq(&known));
        assert!(is_same, "another slab took the place of one whose blocks wait for readers");
        tried += 1;
        drop(pin);
        pool.inner.reclaim_all().unwrap();
    }
    assert!(tried > 0, "no slab had blocks that were freed");
}

/// A slab that begins in what looks like an extent, and lies over the next slab, which has larger blocks.
#[test]
fn blocks_are_not_taken_from_a_slab_that_lies_over_the_one_that_is_meant() {
    let (image, geometry) = small_image();
    let classes = Classes::new(geometry.chunk());
    let limit = geometry.zone_limit(0, image.len() as u64);
    let table_word = |image: &[u8], chunk: u64| {
        let off = geometry.chunk_word_off(0, chunk);
        ChunkWord::decode(word(image, off), off).unwrap()
    };
    let small = (0..).find(|number| classes.get(*number).unwrap().chunks == 2).unwrap();
    let small_bytes = classes.get(small).unwrap().block_bytes;
    let mut tried = 0;
    for chunk in 1..limit - 1 {
        let (ChunkWord::Slab { class }, ChunkWord::SlabRest { back }) =
            (table_word(&image, chunk), table_word(&image, chunk - 1))
        else {
            continue;
        };
        let bytes = classes.get(class).unwrap().block_bytes;
        if bytes <= small_bytes {
            continue;
        }
        let mut damaged = image.clone();
        let extent = ChunkWord::Extent { chunks: back + 1 };
        set_word(&mut damaged, geometry.chunk_word_off(0, chunk - 1 - back), extent.encode());
        set_word(
            &mut damaged,
            geometry.chunk_word_off(0, chunk - 1),
            ChunkWord::Slab { class: small }.encode(),
        );
        let head = geometry.chunk_off(0, chunk - 1);
        set_word(&mut damaged, head, SLAB_TAG | small as u64);
        set_word(&mut damaged, head + 8, 1);
        let pool = open_image(&damaged).unwrap();
        let mut lane = pool.lane().unwrap();
        pool.inner.alloc.scan_all(pool.region()).unwrap();
        let mut tx = lane.begin();
        tx.free(head + classes.get(small).unwrap().head_bytes).unwrap();
        let mut blocks: Vec<u64> = (0..64).filter_map(|_| tx.alloc(bytes).ok()).collect();
        blocks.sort_unstable();
        assert!(!blocks.is_empty() && blocks.windows(2).all(|pair| pair[1] - pair[0] >= bytes), "{blocks:?}");
        tried += 1;
    }
    assert!(tried > 0, "no slab with large blocks follows one of several chunks");
}

#[test]
fn any_bytes_in_the_chunk_table_and_the_slabs_do_no_harm() {
    let (image, geometry) = small_image();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    for _ in 0..1500 {
        let mut damaged = image.clone();
        for _ in 0..rng.random_range(1..6) {
            let off = match rng.random_range(0..5) {
                0 => geometry.zone_off(0),
                1 => geometry.chunk_word_off(0, rng.random_range(0..60)),
                2 => geometry.chunk_off(0, rng.random_range(0..60)) + 8 * rng.random_range(0..4),
                3 => geometry.roots_off() + 8 * rng.random_range(0..64),
                _ => 8 * rng.random_range(0..image.len() as u64 / 8),
            };
            let value = match rng.random_range(0..5) {
                0 => rng.random_range(0..4) | rng.random_range(0..64) << 8,
                1 => u64::MAX - rng.random_range(0..100),
                2 => word(&image, off) ^ 1 << rng.random_range(0..64),
                3 => geometry.chunk_off(0, rng.random_range(0..80)) + 16 * rng.random_range(0..200),
                _ => rng.random(),
            };
            set_word(&mut damaged, off, value);
        }
        exercise(&damaged);
    }
}

/// They would come to light when the frontier moves past them.
#[test]
fn chunk_words_past_the_frontier_are_checked() {
    let (mut image, geometry) = small_image();
    let frontier = word(&image, geometry.zone_off(0));
    set_word(&mut image, geometry.chunk_word_off(0, frontier + 5), ChunkWord::Slab { class: 1 }.encode());
    assert!(open_image(&image).unwrap().marks().is_err());
}

/// Writes a record to the start of a lane, with a checksum that matches.
fn forge(image: &mut [u8], geometry: &Geometry, lane: u32, seq: u64, entries: &[(u64, u64)]) {
    let mut payload = Vec::new();
    for (target, operand) in entries {
        payload.extend_from_slice(&target.to_le_bytes());
        payload.extend_from_slice(&operand.to_le_bytes());
    }
    assert_eq!(payload.len(), entries.len() * size_of::<PmEntry>());
    let uuid: [u8; 16] = image[32..48].try_into().unwrap();
    let seed = uuid::Uuid::from_bytes(uuid).as_u64_pair().0;
    let head = [seq, entries.len() as u64, 0];
    let fixed: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = xxh3_64_with_seed(&payload, xxh3_64_with_seed(&fixed, seed));
    let off = geometry.half_off(lane, 0);
    for (i, value) in [seq << 3 | 7, sum, entries.len() as u64, 0].into_iter().enumerate() {
        set_word(image, off + 8 * i as u64, value);
    }
    image[off as usize + size_of::<PmRecord>()..][..payload.len()].copy_from_slice(&payload);
}

fn watermark_of(image: &[u8]) -> u64 {
    word(image, offset_of!(PmHeader, watermark) as u64) & ((1 << WATERMARK_BITS) - 1)
}

/// A record is checked in full before anything of it is done: a pool that is refused stays as it was.
#[test]
fn a_record_with_impossible_targets_is_refused_and_nothing_of_it_done() {
    let (image, geometry) = small_image();
    let good = geometry.chunk_off(0, 20);
    let seq = watermark_of(&image) + 1000;
    let mut fine = image.clone();
    forge(&mut fine, &geometry, 1, seq, &[(good, 77)]);
    assert_eq!(open_image(&fine).unwrap().region().load_u64(good).unwrap(), 77, "the forgery is good");
    for bad in [u64::MAX - 7, image.len() as u64, 0, 128, 192, geometry.half_off(0, 0), good | 5] {
        let mut damaged = image.clone();
        forge(&mut damaged, &geometry, 1, seq, &[(good, 77), (bad, 78)]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("damaged.pool");
        std::fs::write(&path, &damaged).unwrap();
        let error = Pool::open(&path, &Options::default()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{bad:#x}: {error}");
        assert!(std::fs::read(&path).unwrap() == damaged, "{bad:#x}: the file was changed");
    }
}

/// Damage may claim the last sequence number there is. What comes after has to be refused, not wrapped around.
#[test]
fn sequence_numbers_end_with_an_error() {
    let (image, _) = small_image();
    let mut damaged = image;
    let watermark_off = offset_of!(PmHeader, watermark) as u64;
    set_word(&mut damaged, watermark_off, seal(MAX_SEQ - 2, WATERMARK_BITS));
    let pool = open_image(&damaged).unwrap();
    let table = pool.root("table").unwrap().unwrap().off;
    let mut lane = pool.lane().unwrap();
    let mut outcomes = Vec::new();
    for link in 0..4 {
        let mut tx = lane.begin();
        model::put(&mut tx, table, link, 60, 1).unwrap();
        outcomes.push(tx.commit().is_ok());
    }
    assert_eq!(outcomes, [true, false, false, false]);
    drop(lane);
    let again = open_image(&image_of(&pool)).unwrap();
    model::read(&again).unwrap();
}

/// `retired` has no check of its own. Garbage in it must not make the records that come later dead.
#[test]
fn a_lane_retired_too_far_is_noticed() {
    let (image, geometry) = small_image();
    let retired_off = geometry.lane_off(0) + offset_of!(PmLane, retired) as u64;
    let mut damaged = image.clone();
    set_word(&mut damaged, retired_off, u64::MAX);
    assert!(matches!(open_image(&damaged), Err(Error::Corrupt { .. })));
    set_word(&mut damaged, retired_off, watermark_of(&image) + 5000);
    let pool = open_image(&damaged).unwrap();
    let table = pool.root("table").unwrap().unwrap().off;
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, 0, 77, 3).unwrap();
    tx.commit().unwrap();
    let reopened = open_image(&image_of(&pool)).unwrap();
    assert_eq!(reopened.recovery().records_replayed, 1, "the new record is live");
}

/// A record's covers are read to sum them. Counts in a damaged record must not make that take forever.
#[test]
fn covers_without_end_are_not_summed() {
    let bytes = 8 << 20;
    let pool = tiny_pool(bytes);
    let geometry = *pool.geometry();
    let mut image = image_of(&pool);
    drop(pool);
    let from = geometry.chunk_off(0, 10);
    let covers = (bytes as u64 - from) / 8;
    for i in 0..covers {
        set_word(&mut image, from + 8 * i, from << 16 | 0xFFFF);
    }
    for lane in 0..geometry.lane_count {
        for half in 0..2 {
            let off = geometry.half_off(lane, half);
            for (i, value) in [5 << 3 | 7, 6, covers << 32, from].into_iter().enumerate() {
                set_word(&mut image, off + 8 * i as u64, value);
            }
        }
    }
    let start = std::time::Instant::now();
    // The headers of later zones are overwritten too, so that the pool may well be refused.
    let _ = open_image(&image);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// What a commit that failed has noted of slabs is not looked at by the next one, which may do nothing with blocks: they may be gone by then.
#[test]
fn a_commit_that_failed_leaves_no_slabs_behind() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let _other = pool.lane().unwrap();
    let mut tx = lane.begin();
    let extent = tx.alloc(5 * 4096).unwrap();
    tx.set_root("extent", 1, extent).unwrap();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    tx.alloc(64).unwrap();
    (0..2).for_each(|_| tx.free(extent).unwrap());
    assert!(tx.commit().unwrap_err().to_string().contains("freed twice"));
    assert!(lane.work.new_slabs.is_empty());
    let mut tx = lane.begin();
    tx.store_words(extent, &[1; 8]).unwrap();
    tx.commit().unwrap();
    assert_eq!(pool.region().load_u64(extent + 56).unwrap(), 1);
    pool.marks().unwrap();
}

/// Where new space was last taken from is only where to look first: whatever it says, there is space, and it says the truth afterwards.
#[test]
fn the_newest_zone_is_noted_and_not_relied_on() {
    let geometry = Geometry { zone_chunks: 16, ..Geometry::tiny() };
    let newest_off = geometry.zone_off(0) + offset_of!(PmZone, newest) as u64;
    let bytes = geometry.zone_off(3) + 16 * 4096;
    let region = Region::simulated(&vec![0; bytes as usize], bytes, None).unwrap();
    let pool = Pool::create_in(region, &geometry).unwrap();
    let take = |pool: &Pool| {
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let block = tx.alloc(6 * 4096).unwrap();
        let name = format!("block {:x}", block / 4096);
        tx.set_root(&name, 1, block).unwrap();
        tx.commit().unwrap();
        (block - geometry.zone_off(0)) / (geometry.zone_off(1) - geometry.zone_off(0))
    };
    let newest = |pool: &Pool| pool.region().load_u64(newest_off).unwrap();
    for zone in [0, 0, 1] {
        assert_eq!((take(&pool), newest(&pool)), (zone, zone));
    }
    // Two of these fit into a zone.
    for (noted, found) in [(1, 1), (0, 1), (2, 2), (3, 3), (4, 3), (u64::MAX, 3)] {
        pool.region().store_u64(newest_off, noted).unwrap();
        let pool = {
            let image = image_of(&pool);
            Pool::open_in(Region::simulated(&image, image.len() as u64, None).unwrap()).unwrap()
        };
        assert_eq!((take(&pool), newest(&pool)), (found, found), "noted: {noted}");
        pool.marks().unwrap();
    }
}
