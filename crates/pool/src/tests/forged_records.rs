//! Damaged and forged records: recovery replays none that is impossible, and its work is bounded.

use super::damage::small_image;
use super::{image_of, model, set_word, tiny_pool, try_open, word};
use crate::layout::{MAX_SEQ, PmEntry, PmHeader, PmLane, PmRecord, WATERMARK_BITS, seal};
use crate::{Geometry, Options, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;
use tembo_pmem::{LINE_BYTES, offset_of, size_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Puts a record to an offset, with a checksum that matches.
fn forge(image: &mut [u8], off: u64, (seq, counts, chain): (u64, u64, u64), payload: &[u8]) {
    let uuid: [u8; 16] = image[32..48].try_into().unwrap();
    let seed = uuid::Uuid::from_bytes(uuid).as_u64_pair().0;
    let fixed: Vec<u8> = [seq, counts, chain].iter().flat_map(|word| word.to_le_bytes()).collect();
    let sum = xxh3_64_with_seed(payload, xxh3_64_with_seed(&fixed, seed));
    let head: Vec<u8> =
        [seq << 3 | 7, sum, counts, chain].iter().flat_map(|word| word.to_le_bytes()).collect();
    let payload_off = if chain == 0 { off as usize + head.len() } else { chain as usize };
    image[payload_off..][..payload.len()].copy_from_slice(payload);
    image[off as usize..][..head.len()].copy_from_slice(&head);
}

/// Records that share one payload, each almost half as large as the pool: recovery must not hold them all in
/// memory.
#[test]
fn records_larger_than_the_pool_are_refused() {
    let pool = tiny_pool(2 << 20);
    let geometry = *pool.geometry();
    let (mut image, first) = (image_of(&pool), geometry.chunk_off(0, 10));
    let entries = (2 << 20) * 2 / 5 / size_of::<PmEntry>() as u64;
    let payload: Vec<u8> = (0..entries).flat_map(|_| [first.to_le_bytes(), [7; 8]]).flatten().collect();
    for lane in 0..geometry.lane_count {
        for record in 0..geometry.half_bytes() / LINE_BYTES {
            let off = geometry.half_off(lane, 0) + record * LINE_BYTES;
            forge(&mut image, off, (record + 1, entries, first), &payload);
        }
        match try_open(&image) {
            // Only the first two of a half may be chained.
            Ok(pool) => assert_eq!((lane, pool.recovery().records_replayed), (0, 2)),
            Err(e) => assert!(lane > 0 && e.is_corrupt(), "lane {lane}: {e}"),
        }
    }
}

/// Complete records with arbitrary contents.
#[test]
fn forged_records_do_no_harm() {
    let pool = tiny_pool(256 << 10);
    model::make_table(&mut pool.lane().unwrap()).unwrap();
    let (image, geometry) = (image_of(&pool), *pool.geometry());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut opened = 0;
    for _ in 0..2000 {
        let mut damaged = image.clone();
        let mut seq = 1;
        for _ in 0..rng.random_range(1..6) {
            let (lane, half) = (rng.random_range(0..geometry.lane_count), rng.random_range(0..2));
            let mut off = geometry.half_off(lane, half);
            for _ in 0..rng.random_range(1..4) {
                let (entries, covers) = (rng.random_range(0..4), rng.random_range(0..3));
                let mut payload = Vec::new();
                let anywhere = |rng: &mut Xoshiro256PlusPlus| match rng.random_range(0..16) {
                    0 => rng.random(),
                    1 => geometry.half_off(rng.random_range(0..geometry.lane_count), 0),
                    2 => image.len() as u64 - 8,
                    _ => geometry.chunk_off(0, 1) + 8 * rng.random_range(0..20_000),
                };
                for _ in 0..entries {
                    payload.extend((anywhere(&mut rng) & !7 | rng.random_range(0..4)).to_le_bytes());
                    payload.extend((rng.random::<u64>() >> rng.random_range(0..64)).to_le_bytes());
                }
                for _ in 0..covers {
                    payload.extend((anywhere(&mut rng) << 16 | rng.random_range(0..0x1_0000)).to_le_bytes());
                }
                payload.resize(payload.len() + if covers > 0 { 8 } else { 0 }, 3);
                let chain = if rng.random_bool(0.3) { 8 * rng.random_range(3000..8000) } else { 0 };
                seq += rng.random_range(0..3);
                forge(&mut damaged, off, (seq, entries | covers << 32, chain), &payload);
                let inline_bytes = if chain == 0 { payload.len() as u64 } else { 0 };
                off += (size_of::<PmRecord>() as u64 + inline_bytes).next_multiple_of(LINE_BYTES);
            }
        }
        let Ok(pool) = try_open(&damaged) else { continue };
        opened += 1;
        let _ = pool.marks().map(|marks| marks.finish());
        let Ok(mut lane) = pool.lane() else { continue };
        for bytes in [40, 300, 9000] {
            let mut tx = lane.begin();
            let _ = tx.alloc(bytes).and_then(|block| tx.store(block, 1));
            let _ = tx.commit();
        }
        // The replayed records are dead.
        drop(lane);
        let again = try_open(&image_of(&pool)).unwrap();
        assert!(again.recovery().records_replayed <= 3, "{:?}", again.recovery());
    }
    assert!(opened > 100, "only {opened} of the images could be opened");
}

/// Puts a record to the start of a lane, with a checksum that matches.
fn forge_first(image: &mut [u8], geometry: &Geometry, lane: u32, seq: u64, entries: &[(u64, u64)]) {
    let words = entries.iter().flat_map(|(target, operand)| [target, operand]);
    let payload: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(payload.len(), entries.len() * size_of::<PmEntry>());
    forge(image, geometry.half_off(lane, 0), (seq, entries.len() as u64, 0), &payload);
}

fn watermark_of(image: &[u8]) -> u64 {
    word(image, offset_of!(PmHeader, watermark) as u64) & ((1 << WATERMARK_BITS) - 1)
}

/// A record is checked in full before any of its changes is made: a refused pool stays unchanged.
#[test]
fn a_record_with_impossible_targets_is_refused_and_nothing_of_it_done() {
    let (image, geometry) = small_image();
    let good = geometry.chunk_off(0, 20);
    let seq = watermark_of(&image) + 1000;
    let mut fine = image.clone();
    forge_first(&mut fine, &geometry, 1, seq, &[(good, 77)]);
    assert_eq!(try_open(&fine).unwrap().region().load_u64(good).unwrap(), 77, "the forgery is good");
    for bad in [u64::MAX - 7, image.len() as u64, 0, 128, 192, geometry.half_off(0, 0), good | 5] {
        let mut damaged = image.clone();
        forge_first(&mut damaged, &geometry, 1, seq, &[(good, 77), (bad, 78)]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("damaged.pool");
        std::fs::write(&path, &damaged).unwrap();
        let error = Pool::open(&path, &Options::default()).unwrap_err();
        assert!(error.is_corrupt(), "{bad:#x}: {error}");
        assert!(std::fs::read(&path).unwrap() == damaged, "{bad:#x}: the file was changed");
    }
}

/// Damage may claim the last sequence number there is. Later ones have to be refused, not wrapped around.
#[test]
fn sequence_numbers_end_with_an_error() {
    let (image, _) = small_image();
    let mut damaged = image;
    let watermark_off = offset_of!(PmHeader, watermark) as u64;
    set_word(&mut damaged, watermark_off, seal(MAX_SEQ - 2, WATERMARK_BITS));
    let pool = try_open(&damaged).unwrap();
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
    let again = try_open(&image_of(&pool)).unwrap();
    model::read(&again).unwrap();
}

/// `retired` has no check of its own. Garbage in it must not make the records that come later dead.
#[test]
fn a_lane_retired_too_far_is_noticed() {
    let (image, geometry) = small_image();
    let retired_off = geometry.lane_off(0) + offset_of!(PmLane, retired) as u64;
    let mut damaged = image.clone();
    set_word(&mut damaged, retired_off, u64::MAX);
    assert!(matches!(try_open(&damaged), Err(e) if e.is_corrupt()));
    set_word(&mut damaged, retired_off, watermark_of(&image) + 5000);
    let pool = try_open(&damaged).unwrap();
    let table = pool.root("table").unwrap().unwrap().off;
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, 0, 77, 3).unwrap();
    tx.commit().unwrap();
    let reopened = try_open(&image_of(&pool)).unwrap();
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
    // The headers of later zones are overwritten too, so the pool may be refused.
    let _ = try_open(&image);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
