//! Damaged media: any bytes in the allocator's structures give errors, and no unsound memory.

use super::model::{self, LINKS};
use super::{image_of, set_word, tiny_pool, try_open, word};
use crate::alloc::classes::Classes;
use crate::layout::{ChunkWord, PmZone, SLAB_TAG};
use crate::{Geometry, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_pmem::{Region, offset_of};

/// A pool with slabs, an extent and free chunks, closed; as its image.
pub(super) fn small_image() -> (Vec<u8>, Geometry) {
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

/// Does everything that can be done to a pool whose structures cannot be trusted; only panics count.
fn exercise(image: &[u8]) {
    let Ok(pool) = try_open(image) else { return };
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
            let Ok(pool) = try_open(&damaged) else { continue };
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

/// An extent that overlaps a slab could free the slab's chunks while its blocks are in use or in limbo.
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
        // The extent begins inside a slab, so no walk of the chunk table finds it.
        let extent = ChunkWord::Extent { chunks: 8 }.encode();
        set_word(&mut damaged, geometry.chunk_word_off(0, slab - 1), extent);
        exercise(&damaged);
        let pool = try_open(&damaged).unwrap();
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

/// A slab begins inside an apparent extent, and overlaps the next slab, which has larger blocks.
#[test]
fn blocks_are_not_taken_from_a_slab_that_lies_over_the_one_that_is_meant() {
    let (image, geometry) = small_image();
    let classes = Classes::new(geometry.chunk(), false, false);
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
        let pool = try_open(&damaged).unwrap();
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

/// Such words would take effect when the frontier moves past them.
#[test]
fn chunk_words_past_the_frontier_are_checked() {
    let (mut image, geometry) = small_image();
    let frontier = word(&image, geometry.zone_off(0));
    set_word(&mut image, geometry.chunk_word_off(0, frontier + 5), ChunkWord::Slab { class: 1 }.encode());
    assert!(try_open(&image).unwrap().marks().is_err());
}

/// The `newest` word only says where to look first. Whatever it holds, space is found, and the word is right
/// afterwards.
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
