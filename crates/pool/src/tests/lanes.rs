//! Successive records of a lane: remains of earlier ones, and crashes between them.

use super::model::{self, LINKS};
use super::{image_of, open, tiny_pool, word};
use crate::layout::PmRecord;
use crate::{Geometry, Lane, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_pmem::{LINE_BYTES, Region, offset_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// More words than a record of the tiny geometry has room for.
pub(super) const MANY: u64 = 40;

/// A pool that was just opened after a crash, and the offset of a block of words in it.
pub(super) fn pool_with_words() -> (Pool, u64) {
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let words = tx.alloc(2048).unwrap();
    tx.write_fresh(words, &[0; 2048]).unwrap();
    tx.set_root("words", 1, words).unwrap();
    tx.commit().unwrap();
    drop(lane);
    (open(&image_of(&pool)), words)
}

/// Stores a value to this many words, from `off` on.
pub(super) fn store(lane: &mut Lane, off: u64, count: u64, value: u64) {
    let mut tx = lane.begin();
    (0..count).for_each(|i| tx.store(off + 8 * i, value).unwrap());
    tx.commit().unwrap();
}

/// In a full pool, a payload that does not fit into a half has no other place. Records of all lengths follow
/// records of all lengths.
#[test]
fn what_fits_into_a_half_finds_room_behind_any_other_record_in_a_full_pool() {
    for (lane_bytes, small) in [(2048, 6), (16 << 10, 60)] {
        let region = Region::simulated(&vec![0; 1 << 20], 1 << 20, None).unwrap();
        let pool = Pool::create_in(region, &Geometry { lane_bytes, ..Geometry::tiny() }).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut blocks = Vec::new();
        for bytes in [16 << 10, 4096, 1024, 256, 64, 16] {
            loop {
                let mut tx = lane.begin();
                let Ok(block) = tx.alloc(bytes) else { break };
                tx.commit().unwrap();
                blocks.push(block);
            }
        }
        let mut store = |words: u64| {
            let mut tx = lane.begin();
            // Words of a line that are stored one after another would share an entry.
            (0..words).for_each(|i| tx.store(blocks[0] + 64 * (i % 69) + 8 * (i / 69), words).unwrap());
            tx.commit()
        };
        let (mut fitted, mut refused) = (0, 0);
        for words in small + 1..u64::from(lane_bytes) / 30 {
            // Records that follow each.
            for next in [small, 1, words, words] {
                match store(words) {
                    Ok(()) if refused == 0 => fitted += 1,
                    Ok(()) => panic!("{words} words find room, fewer did not"),
                    Err(e) if e.is_full() => refused += 1,
                    Err(e) => panic!("{e}"),
                }
                if next <= small {
                    store(next).unwrap();
                }
            }
            [small, 1].into_iter().for_each(|words| store(words).unwrap());
        }
        assert!(fitted > 160 && refused > 20, "{fitted} fitted, {refused} refused");
    }
}

/// The second record of a half is chained, and only its head arrives, not its payload. Later a lane that does
/// the same again writes the payload to the same place. This must not complete the first record: it would be
/// replayed over later changes.
#[test]
fn a_chained_record_that_did_not_arrive_is_not_completed_by_a_later_one() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    store(&mut lane, words + 1024, 1, 1);
    let mut torn = image_of(&pool);
    store(&mut lane, words, MANY, 2);
    let complete = image_of(&pool);
    let head = |lane| pool.geometry().half_off(lane, 0);
    let line = (head(0) + LINE_BYTES) as usize..(head(0) + 2 * LINE_BYTES) as usize;
    torn[line.clone()].copy_from_slice(&complete[line.clone()]);

    let again = open(&torn);
    let (_idle, mut lane) = (again.lane().unwrap(), again.lane().unwrap());
    store(&mut lane, words, MANY, 2);
    let chain_of = |image: &[u8], head: u64| word(image, head + offset_of!(PmRecord, chain) as u64);
    let chain = chain_of(&torn, line.start as u64);
    assert!(chain != 0 && chain == chain_of(&image_of(&again), head(1)), "not the place that it should be");
    store(&mut lane, words, 1, 3);
    // This record goes to the other half: now the home of value 3 is durable, and its record dead.
    store(&mut lane, words + 1024, MANY, 4);
    store(&mut lane, words + 1024, 1, 5);
    let reopened = open(&image_of(&again));
    assert_eq!(reopened.region().load_u64(words).unwrap(), 3);
}

/// Remains of earlier records after the last one are neither replayed nor counted.
#[test]
fn remains_of_earlier_records_are_not_counted() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    for commit in 0..40 {
        store(&mut lane, words + 8 * (commit % 3), 1, commit);
        let recovery = open(&image_of(&pool)).recovery();
        assert!((1..=8).contains(&recovery.records_replayed), "commit {commit}: {recovery:?}");
        assert_eq!(recovery.records_discarded, 0, "commit {commit}");
    }
}

/// Words that users store lie in records, even at the start of lines, and remains of a long record may follow
/// a shorter one. A user who knows the pool's identity can store words that look like a record.
#[test]
fn words_that_users_store_are_no_records() {
    let pool = tiny_pool(2 << 20);
    let seed = pool.uuid().as_u64_pair().0;
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let words = tx.alloc(2048).unwrap();
    tx.write_fresh(words, &[0; 2048]).unwrap();
    let block = tx.alloc(1 << 20).unwrap();
    let (seq, counts) = (words + 16, words + 24);
    let payload: Vec<u8> =
        (0..counts).flat_map(|_| [words.to_le_bytes(), 666u64.to_le_bytes()]).flatten().collect();
    tx.write_fresh(block, &payload).unwrap();
    tx.commit().unwrap();
    for seq_found in [seq, seq >> 3] {
        let fixed: Vec<u8> = [seq_found, counts, block].iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = xxh3_64_with_seed(&payload, xxh3_64_with_seed(&fixed, seed));
        for _ in 0..9 {
            let mut tx = lane.begin();
            for (off, value) in [(words + 8, 1), (words + 32, 2), (seq, sum), (counts, block)] {
                tx.store(off, value).unwrap();
            }
            tx.commit().unwrap();
        }
        for _ in 0..8 {
            store(&mut lane, words + 8, 1, 1);
            assert_eq!(open(&image_of(&pool)).region().load_u64(words).unwrap(), 0);
        }
    }
}

/// No line of entries, covers or their sum begins with the mark of a head.
#[test]
fn only_heads_are_marked_as_heads() {
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    let lanes = pool.geometry().lane_off(0)..pool.geometry().lane_off(1);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
    for _ in 0..1500 {
        let before = image_of(&pool);
        let mut tx = lane.begin();
        for _ in 0..rng.random_range(1..5) {
            let bytes = rng.random_range(16..300);
            model::put(&mut tx, table, rng.random_range(0..LINKS), bytes, rng.random()).unwrap();
        }
        tx.commit().unwrap();
        let after = image_of(&pool);
        let lines = lanes.clone().step_by(LINE_BYTES as usize);
        let written = lines.filter(|line| {
            let line = *line as usize..(line + LINE_BYTES) as usize;
            before[line.clone()] != after[line]
        });
        assert_eq!(written.filter(|line| word(&after, *line) & 7 == 7).count(), 1);
    }
}
