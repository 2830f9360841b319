//! Moves of blocks under a model checker: the allocator of `src/alloc` and the epochs of `tembo-sync`
//! themselves, with loom's lock and atomics in place of the processor's, so that every interleaving and
//! every value that the orderings allow is tried.
//!
//! Their surroundings are modelled. A record is a word that leads to a block; its writers have a lock, as
//! the leaf of a tree has. A move has the steps of the structures: it reserves a block, fills it, and, under
//! the lock, lets the word lead there if nobody has changed it meanwhile; the old block is retired then, and
//! waits for readers (`log/limbo.rs`). A commit is the bit on media. The table of slabs is a list, as
//! `table.rs` is atomic only for removals, which no model has. Each of a list of weakenings has to be caught.
//!
//! `LOOM_MAX_PREEMPTIONS=4 cargo test --release -p tembo-pool --test moves_protocol` is the long form.

#![allow(dead_code, unused_imports, reason = "no model needs all of the allocator")]

mod alloc;
#[expect(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../../../sync/src/epoch.rs"]
mod epoch;
#[expect(unreachable_pub, reason = "it is public in its own crate")]
#[path = "../../src/layout.rs"]
mod layout;
mod primitives;

use alloc::{Allocator, Arena, Block, Classes, CloseLimits, Room, Wanted};
use epoch::Epochs;
use layout::{ChunkWord, Geometry, SLAB_TAG, tag_off};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};
use tembo_pmem::Region;
use tembo_pool::{Error, ErrorKind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// The source is free before the word leads elsewhere.
    FreesBeforeRelinking,
    /// The source does not wait for readers.
    FreesWithoutEpoch,
    /// A reader finds the block and pins then.
    PinsLate,
    /// A move does not look whether the word is as it was.
    RelinksOverNewer,
    /// A move takes no lock.
    RelinksWithoutLock,
    /// Blocks are moved when their slabs are open again.
    OpensEarly,
    /// A slab that is given up in the middle of the run goes to a list.
    ForgetsTheRun,
    /// A slab that somebody holds can be claimed.
    HoldsWhatIsHeld,
    /// Two that claim a slab at once both get it.
    BothClaim,
    /// A lane that gives up a slab may miss a bit that was cleared before. This and the next three: one of
    /// the four sequentially consistent accesses of `let_go` is weaker.
    LetsGoWeakly,
    LooksAtBitsWeakly,
    /// A lane that clears a bit may find a slab held that was given up before.
    ReleasesWeakly,
    LooksAtHoldersWeakly,
}

thread_local! {
    // Loom runs the threads of a model on one thread.
    static MUTANT: Cell<Mutant> = const { Cell::new(Mutant::None) };
}

fn is(mutant: Mutant) -> bool {
    MUTANT.get() == mutant
}

const GEOMETRY: Geometry =
    Geometry { chunk_bytes: 4096, zone_chunks: 64, lane_count: 1, lane_bytes: 512, root_count: 1 };
/// A slab of these takes eight chunks and has 15 blocks.
const BLOCK_BYTES: u64 = 2048;
const SLAB_CHUNKS: u64 = 8;
const BLOCKS: u64 = 15;
const FULL: u64 = (1 << BLOCKS) - 1;
/// Chunks behind the last slab: too few for a run that nobody has to empty.
const UNUSED_CHUNKS: u64 = 10;

struct World {
    region: Region,
    allocator: Allocator,
    epochs: Epochs,
    word: AtomicU64,
    writers: Mutex<()>,
    /// The contents of the block with this number: loom checks that accesses are ordered.
    contents: Vec<UnsafeCell<()>>,
}

// SAFETY: the cells hold nothing, and loom checks accesses to them.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

fn slab_off(slab: u64) -> u64 {
    GEOMETRY.chunk_off(0, GEOMETRY.zone_header_chunks() + slab * SLAB_CHUNKS)
}

/// An image with slabs that have these blocks in use.
fn image(slabs: &[u64]) -> Vec<u8> {
    let class = Classes::new(GEOMETRY.chunk(), false, false).class_for(BLOCK_BYTES).unwrap();
    let header = GEOMETRY.zone_header_chunks();
    let end = header + slabs.len() as u64 * SLAB_CHUNKS;
    let mut image = vec![0; GEOMETRY.chunk_off(0, end + UNUSED_CHUNKS) as usize];
    let mut put = |off: u64, word: u64| image[off as usize..][..8].copy_from_slice(&word.to_le_bytes());
    put(GEOMETRY.zone_off(0), end);
    for (number, busy) in slabs.iter().enumerate() {
        let first = header + number as u64 * SLAB_CHUNKS;
        for back in 0..SLAB_CHUNKS {
            let word = if back == 0 { ChunkWord::Slab { class } } else { ChunkWord::SlabRest { back } };
            put(GEOMETRY.chunk_word_off(0, first + back), word.encode());
        }
        put(slab_off(number as u64), SLAB_TAG | class as u64);
        put(slab_off(number as u64) + size_of::<layout::PmSlab>() as u64, *busy);
    }
    image
}

impl World {
    /// Slabs with these blocks in use; the word leads to the first block of the last.
    fn new(image: &[u8], slabs: usize) -> Arc<World> {
        let region = Region::simulated(image, image.len() as u64, None).unwrap();
        let allocator = Allocator::open(&region, GEOMETRY, (false, false));
        while allocator.read_some(&region, usize::MAX).unwrap() {}
        let word = AtomicU64::new(block_off(slabs as u64 - 1, 0));
        Arc::new(World {
            region,
            allocator,
            epochs: Epochs::default(),
            word,
            writers: Mutex::new(()),
            contents: (0..(slabs as u64 + 1) * BLOCKS).map(|_| UnsafeCell::new(())).collect(),
        })
    }

    fn contents(&self, off: u64) -> &UnsafeCell<()> {
        let slab = (off - slab_off(0)) / (SLAB_CHUNKS * GEOMETRY.chunk());
        &self.contents[(slab * BLOCKS + (off - block_off(slab, 0)) / BLOCK_BYTES) as usize]
    }

    fn close(&self) -> Vec<Range<u64>> {
        let limits = CloseLimits { floor_bytes: 0, fixed: None };
        let spans = self.allocator.close(&self.region, limits).unwrap().unwrap();
        if is(Mutant::OpensEarly) {
            self.allocator.open_closed(&self.region);
        }
        if is(Mutant::ForgetsTheRun) {
            self.allocator.forget_run();
        }
        spans
    }

    /// A new block with contents.
    fn fill(&self, arena: &mut Arena) -> Block {
        let refuse = |bytes, _| Err(ErrorKind::TooLarge { asked_bytes: bytes, max_bytes: 0 }.into());
        let room = Room { grow: &refuse, kept_chunks: 0 };
        let block = self.allocator.reserve(&self.region, arena, Wanted::Bytes(BLOCK_BYTES), &room).unwrap();
        self.contents(block.off).with_mut(|_| ());
        block
    }

    /// Frees a block in a commit; the epoch after which no reader has it.
    fn retire(&self, block: &Block) -> u64 {
        block.commit(&self.region, false);
        self.epochs.retire(false)
    }

    fn find(&self, off: u64) -> Block {
        self.allocator.find_block(&self.region, off).unwrap()
    }

    fn release_after(&self, block: Block, epoch: u64) {
        if epoch < self.epochs.safe_before() || is(Mutant::FreesWithoutEpoch) {
            self.allocator.release([block].into_iter(), None);
        }
    }

    /// Moves the block of the record.
    fn move_record(&self, arena: &mut Arena, spans: &[Range<u64>]) {
        let old = self.word.load(Acquire);
        if !spans.iter().any(|span| span.contains(&old)) {
            return;
        }
        let new = self.fill(arena);
        assert!(!spans.iter().any(|span| span.contains(&new.off)), "moved to where it must go from");
        let source = if is(Mutant::FreesBeforeRelinking) {
            let source = self.find(old);
            let epoch = self.retire(&source);
            self.release_after(source, epoch);
            None
        } else {
            Some(old)
        };
        let writing = (!is(Mutant::RelinksWithoutLock)).then(|| self.writers.lock().unwrap());
        if self.word.load(Acquire) != old && !is(Mutant::RelinksOverNewer) {
            drop(writing);
            return self.allocator.release([new].into_iter(), Some(arena));
        }
        new.commit(&self.region, true);
        if is(Mutant::RelinksWithoutLock) {
            thread::yield_now();
        }
        self.word.store(new.off, Release);
        let retired = source.map(|off| self.find(off)).map(|block| (self.retire(&block), block));
        drop(writing);
        if let Some((epoch, block)) = retired {
            self.release_after(block, epoch);
        }
    }

    /// Gives the record another block; returns its offset.
    fn put(&self, arena: &mut Arena) -> u64 {
        let new = self.fill(arena);
        let writing = self.writers.lock().unwrap();
        let old = self.find(self.word.load(Acquire));
        new.commit(&self.region, true);
        self.word.store(new.off, Release);
        let epoch = self.retire(&old);
        drop(writing);
        self.release_after(old, epoch);
        new.off
    }

    fn read(&self) {
        let find = || self.word.load(Acquire);
        let early = is(Mutant::PinsLate).then(find);
        let pin = self.epochs.pin();
        self.contents(early.unwrap_or_else(find)).with(|_| ());
        self.epochs.unpin(pin);
    }

    /// Blocks in use on media.
    fn allocated(&self, slabs: u64) -> u32 {
        let bits = |slab| self.region.load_u64(slab_off(slab) + size_of::<layout::PmSlab>() as u64);
        (0..slabs).map(|slab| bits(slab).unwrap().count_ones()).sum()
    }
}

fn block_off(slab: u64, index: u64) -> u64 {
    let classes = Classes::new(GEOMETRY.chunk(), false, false);
    let class = classes.get(classes.class_for(BLOCK_BYTES).unwrap()).unwrap();
    assert_eq!((class.chunks, class.blocks, class.block_bytes), (SLAB_CHUNKS, BLOCKS, BLOCK_BYTES));
    class.block_off(class.first_off(slab_off(slab)), index)
}

/// Runs a model under every schedule with this many preemptions, or more if the environment asks for more.
fn explore(slabs: &'static [u64], model: impl Fn(Arc<World>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(2));
    builder.max_branches = 10_000;
    let image = image(slabs);
    builder.check(move || model(World::new(&image, slabs.len())));
}

/// A reader of a record that moves. Then another lane takes what is free in the slab that was emptied.
fn a_record_moves_under_a_reader() {
    explore(&[FULL >> 3, 1], |world| {
        let spans = world.close();
        assert_eq!(spans.len(), 1);
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read()
        });
        let (mut arena, mut other) = (Arena::default(), Arena::default());
        world.move_record(&mut arena, &spans);
        world.allocator.end_compaction();
        world.fill(&mut other);
        reader.join().unwrap();
        world.allocator.take_census(&[&arena, &other]);
    });
}

/// A writer of a record that moves: its block stays, and no other does.
fn a_record_moves_and_is_written() {
    explore(&[FULL >> 3, FULL >> 2, 1], |world| {
        let spans = world.close();
        assert_eq!(spans.len(), 1);
        let before = world.allocated(3);
        let writer = thread::spawn({
            let world = world.clone();
            move || {
                let mut arena = Arena::default();
                let off = world.put(&mut arena);
                (off, arena)
            }
        });
        let mut arena = Arena::default();
        world.move_record(&mut arena, &spans);
        let (off, other) = writer.join().unwrap();
        assert_eq!(world.word.load(Acquire), off, "a move took a write back");
        assert_eq!(world.allocated(3), before, "a block has leaked, or two have one");
        world.allocator.end_compaction();
        world.allocator.take_census(&[&arena, &other]);
    });
}

/// The blocks in use in spans.
fn busy(world: &World, spans: &[Range<u64>]) -> Vec<u64> {
    spans.iter().map(|span| world.allocator.busy_at(span.start)).collect()
}

/// Fails if a block in these spans was taken since.
fn assert_none_taken(world: &World, spans: &[Range<u64>], before: &[u64]) {
    let now = busy(world, spans);
    assert!(now.iter().zip(before).all(|(now, before)| now & !before == 0), "a closed slab was handed out");
}

/// A lane that frees a block of a slab, and two that look for one, beside a compaction that closes this
/// slab.
fn a_closed_slab_is_not_allocated_from() {
    explore(&[FULL >> 3, 0b11], |world| {
        let lanes = thread::spawn({
            let world = world.clone();
            move || {
                let mut arenas = [Arena::default(), Arena::default()];
                world.allocator.release([world.find(block_off(1, 1))].into_iter(), None);
                arenas.iter_mut().for_each(|arena| _ = world.fill(arena));
                arenas
            }
        });
        let spans = world.close();
        let before = busy(&world, &spans);
        thread::yield_now();
        assert_none_taken(&world, &spans, &before);
        world.allocator.end_compaction();
        let arenas = lanes.join().unwrap();
        world.allocator.take_census(&arenas.each_ref());
    });
}

/// A lane gives its slab up, and another one looks for slabs, while a compaction empties the run in which
/// the first slab lies.
fn a_slab_is_given_up_in_a_run_that_is_emptied() {
    explore(&[FULL >> 3, 1], |world| {
        let mut arena = Arena::default();
        let first = world.fill(&mut arena);
        assert_eq!(first.off, block_off(1, 1), "the lane has the slab at the end");
        world.allocator.miss(SLAB_CHUNKS + UNUSED_CHUNKS);
        let lane = thread::spawn({
            let world = world.clone();
            move || {
                let mut other = Arena::default();
                world.fill(&mut other);
                world.allocator.put_arena(&mut other);
                world.fill(&mut other);
                other
            }
        });
        let giving = thread::spawn({
            let world = world.clone();
            move || world.allocator.put_arena(&mut arena)
        });
        let spans = world.close();
        let before = busy(&world, &spans);
        giving.join().unwrap();
        thread::yield_now();
        assert_none_taken(&world, &spans, &before);
        world.allocator.end_compaction();
        let other = lane.join().unwrap();
        world.allocator.take_census(&[&other]);
    });
}

/// A lane gives up a full slab while a block of it is freed.
fn a_full_slab_is_given_up_while_a_block_is_freed() {
    explore(&[FULL >> 1], |world| {
        let mut arena = Arena::default();
        world.fill(&mut arena);
        let freeing = thread::spawn({
            let world = world.clone();
            move || world.allocator.release([world.find(block_off(0, 0))].into_iter(), None)
        });
        world.allocator.put_arena(&mut arena);
        freeing.join().unwrap();
        world.allocator.take_census(&[&arena]);
    });
}

/// Closed slabs are opened while a block of one is freed.
fn a_closed_slab_is_opened_while_a_block_is_freed() {
    explore(&[FULL >> 3, 0b11], |world| {
        let spans = world.close();
        assert_eq!(spans.len(), 1);
        let freeing = thread::spawn({
            let world = world.clone();
            move || world.allocator.release([world.find(block_off(1, 1))].into_iter(), None)
        });
        world.allocator.end_compaction();
        freeing.join().unwrap();
        world.allocator.take_census(&[]);
    });
}

const MODELS: [(&str, fn()); 6] = [
    ("a reader", a_record_moves_under_a_reader),
    ("a writer", a_record_moves_and_is_written),
    ("a closed slab", a_closed_slab_is_not_allocated_from),
    ("a run", a_slab_is_given_up_in_a_run_that_is_emptied),
    ("a full slab", a_full_slab_is_given_up_while_a_block_is_freed),
    ("opening", a_closed_slab_is_opened_while_a_block_is_freed),
];

#[test]
fn a_move_holds_against_readers_writers_and_other_lanes() {
    for (name, model) in MODELS {
        let start = std::time::Instant::now();
        model();
        println!("{name}: {:?}", start.elapsed());
    }
}

#[test]
fn weakenings_are_caught() {
    let mutants: [(Mutant, fn()); 13] = [
        (Mutant::FreesBeforeRelinking, a_record_moves_under_a_reader),
        (Mutant::FreesWithoutEpoch, a_record_moves_under_a_reader),
        (Mutant::PinsLate, a_record_moves_under_a_reader),
        (Mutant::RelinksOverNewer, a_record_moves_and_is_written),
        (Mutant::RelinksWithoutLock, a_record_moves_and_is_written),
        (Mutant::OpensEarly, a_closed_slab_is_not_allocated_from),
        (Mutant::ForgetsTheRun, a_slab_is_given_up_in_a_run_that_is_emptied),
        (Mutant::HoldsWhatIsHeld, a_closed_slab_is_not_allocated_from),
        (Mutant::BothClaim, a_full_slab_is_given_up_while_a_block_is_freed),
        (Mutant::LetsGoWeakly, a_full_slab_is_given_up_while_a_block_is_freed),
        (Mutant::LooksAtBitsWeakly, a_full_slab_is_given_up_while_a_block_is_freed),
        (Mutant::ReleasesWeakly, a_full_slab_is_given_up_while_a_block_is_freed),
        (Mutant::LooksAtHoldersWeakly, a_full_slab_is_given_up_while_a_block_is_freed),
    ];
    let mut missed = Vec::new();
    for (mutant, model) in mutants {
        MUTANT.set(mutant);
        if std::panic::catch_unwind(model).is_ok() {
            missed.push(mutant);
        }
    }
    MUTANT.set(Mutant::None);
    assert!(missed.is_empty(), "nothing caught {missed:?}");
}
