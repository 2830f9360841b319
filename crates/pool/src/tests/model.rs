//! Random transactions against a model: a table of links to blocks with a known pattern.

use super::{image_of, tiny_pool};
use crate::{Error, ErrorKind, Lane, Pool, Result, Tx, tag_off};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_pmem::{LINE_BYTES, Region};

/// Links in the table.
pub(super) const LINKS: u64 = 48;
const KIND: u32 = 7;

/// The expected contents of the table: link to (length, pattern seed).
pub(super) type Model = BTreeMap<u64, (u64, u64)>;

fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let mut data = [bytes.to_le_bytes(), seed.to_le_bytes()].concat();
    data.extend((16..bytes).map(|i| (i.wrapping_mul(31) ^ seed) as u8));
    data.truncate(bytes.max(16) as usize);
    data
}

pub(super) fn make_table(lane: &mut Lane) -> Result<u64> {
    let mut tx = lane.begin();
    let table = tx.alloc(LINKS * 8)?;
    tx.write_fresh(table, &[0; LINKS as usize * 8])?;
    tx.set_root("table", KIND, table)?;
    tx.commit()?;
    Ok(table)
}

/// The offset of a link. In a damaged image the table may be anywhere.
fn link_off(table: u64, link: u64) -> u64 {
    table.saturating_add(8 * link)
}

/// Marks a link that leads to a tagged line, as most blocks of at most a line are.
const TAGGED: u64 = 1;

/// The tag of a line whose pattern has this seed.
fn tag_of(seed: u64) -> [u64; 2] {
    [seed, !seed]
}

/// Links a new block, in place of the old one if there is one.
pub(super) fn put(tx: &mut Tx, table: u64, link: u64, bytes: u64, seed: u64) -> Result<()> {
    let old = tx.load(link_off(table, link))?;
    let is_tagged = is_tagged(bytes, seed);
    let block = if is_tagged { tx.alloc_tagged([seed, 0])? } else { tx.alloc(bytes.max(16))? };
    tx.write_fresh(block, &pattern(bytes, seed))?;
    if is_tagged {
        tx.set_tag_word(block, 1, tag_of(seed)[1])?;
    }
    tx.store(link_off(table, link), block | if is_tagged { TAGGED } else { 0 })?;
    free(tx, old)
}

/// Whether a block of this length and pattern is a tagged line.
pub(super) fn is_tagged(bytes: u64, seed: u64) -> bool {
    bytes & !TURNED <= LINE_BYTES && !seed.is_multiple_of(4)
}

/// A flag in the length of a link's block: the words of its tag are exchanged.
pub(super) const TURNED: u64 = 1 << 63;

/// Exchanges the words of the tag, if the link leads to a tagged line.
pub(super) fn turn(tx: &mut Tx, table: u64, link: u64) -> Result<()> {
    let word = tx.load(link_off(table, link))?;
    if word & TAGGED == 0 {
        return Ok(());
    }
    let tag = tag_off(word & !TAGGED);
    let turned = [tx.load(tag + 8)?, tx.load(tag)?];
    set_tag(tx, word & !TAGGED, turned)
}

/// Sets the tag of a line: by the record, unless the transaction has allocated it.
fn set_tag(tx: &mut Tx, block: u64, tag: [u64; 2]) -> Result<()> {
    if tx.set_tag_word(block, 0, tag[0]).is_ok() {
        return tx.set_tag_word(block, 1, tag[1]);
    }
    (tag_off(block)..).step_by(8).zip(tag).try_for_each(|(off, word)| tx.store(off, word))
}

/// Changes pattern and tag in place, if the link leads to a tagged line.
pub(super) fn change(tx: &mut Tx, table: u64, link: u64, seed: u64) -> Result<()> {
    let word = tx.load(link_off(table, link))?;
    if word & TAGGED == 0 {
        return Ok(());
    }
    let block = word & !TAGGED;
    let mut data = pattern(tx.load(block)?, seed);
    data.resize(data.len().next_multiple_of(8), 0);
    let words = data.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    (block..).step_by(8).zip(words).try_for_each(|(off, word)| tx.store(off, word))?;
    set_tag(tx, block, tag_of(seed))
}

pub(super) fn remove(tx: &mut Tx, table: u64, link: u64) -> Result<()> {
    let old = tx.load(link_off(table, link))?;
    tx.store(link_off(table, link), 0)?;
    free(tx, old)
}

fn free(tx: &mut Tx, link: u64) -> Result<()> {
    if link != 0 { tx.free(link & !TAGGED) } else { Ok(()) }
}

/// Reads the table back, and proves that exactly its blocks are allocated.
pub(super) fn read(pool: &Pool) -> Result<Model> {
    let mut model = Model::new();
    let mut marks = pool.marks()?;
    if let Some(root) = pool.root("table")? {
        marks.reach(root.off, LINKS * 8)?;
        for link in 0..LINKS {
            let word = pool.region().load_u64(root.off + 8 * link)?;
            if word == 0 {
                continue;
            }
            let block = word & !TAGGED;
            let (bytes, seed) = (pool.region().load_u64(block)?, pool.region().load_u64(block + 8)?);
            let mut turned = 0;
            if word & TAGGED != 0 {
                marks.reach_tagged(block)?;
                let at = |word: u64| pool.region().load_u64(tag_off(block) + 8 * word);
                if [at(1)?, at(0)?] == tag_of(seed) {
                    turned = TURNED;
                } else if [at(0)?, at(1)?] != tag_of(seed) {
                    return Err(Error::corrupt("a line's tag", block, "intact", "damaged"));
                }
            } else {
                marks.reach(block, bytes)?;
            }
            // SAFETY: the tests that use this write from one thread only.
            let found = unsafe { pool.region().bytes(block, bytes.max(16))? };
            if found != pattern(bytes, seed) {
                return Err(Error::corrupt("a block's pattern", block, "intact", "damaged"));
            }
            model.insert(link, (bytes | turned, seed));
        }
    }
    marks.finish()?;
    Ok(model)
}

#[test]
fn random_transactions_match_the_model_through_reopening() {
    for seed in 0..20 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pool = tiny_pool(2 << 20);
        let table = make_table(&mut pool.lane().unwrap()).unwrap();
        let mut model = Model::new();
        for _ in 0..12 {
            let mut lane = pool.lane().unwrap();
            for _ in 0..100 {
                step(&mut rng, &mut lane, table, &mut model);
            }
            drop(lane);
            assert_eq!(read(&pool).unwrap(), model, "seed {seed}");
            let image = image_of(&pool);
            pool = Pool::open_in(Region::simulated(&image, image.len() as u64, None).unwrap()).unwrap();
            assert_eq!(read(&pool).unwrap(), model, "seed {seed}, reopened");
        }
    }
}

/// One random transaction: a few puts and removes with savepoints, committed or aborted.
fn step(rng: &mut Xoshiro256PlusPlus, lane: &mut Lane, table: u64, model: &mut Model) {
    let mut tx = lane.begin();
    let mut next = model.clone();
    for _ in 0..rng.random_range(1..40) {
        let link = rng.random_range(0..LINKS);
        let before = (tx.savepoint(), next.clone());
        let bytes = match rng.random_range(0..20) {
            0 => rng.random_range(8 << 10..40 << 10),
            1..4 => rng.random_range(512..4096),
            _ => rng.random_range(16..300),
        };
        let seed = rng.random();
        let done = if rng.random_bool(0.4) {
            next.remove(&link);
            remove(&mut tx, table, link)
        } else {
            next.insert(link, (bytes, seed));
            put(&mut tx, table, link, bytes, seed)
        };
        match done {
            Ok(()) if rng.random_bool(0.9) => {}
            Err(e) if !e.is_full() => panic!("{e}"),
            _ => {
                tx.rollback_to(before.0);
                next = before.1;
            }
        }
    }
    if rng.random_bool(0.9) {
        match tx.commit() {
            Ok(()) => *model = next,
            Err(e) if e.is_full() => {}
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn tags_are_theirs_who_have_the_lines() {
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    let tag = |off: u64| [0, 8].map(|at| pool.region().load_u64(tag_off(off) + at).unwrap());
    let mut tx = lane.begin();
    let lines: Vec<u64> = (0..9).map(|i| tx.alloc_tagged([i, 7]).unwrap()).collect();
    let plain = tx.alloc(64).unwrap();
    assert!(lines.iter().all(|off| off.is_multiple_of(LINE_BYTES)));
    assert!(matches!(tx.set_tag_word(plain, 0, 1), Err(e) if matches!(e.kind(), ErrorKind::Internal { .. })));
    assert!(
        matches!(tx.set_tag_word(lines[0] + 8, 0, 1), Err(e) if matches!(e.kind(), ErrorKind::Internal { .. }))
    );
    tx.set_tag_word(lines[1], 1, 8).unwrap();
    tx.free(lines[2]).unwrap();
    tx.commit().unwrap();
    assert_eq!((tag(lines[0]), tag(lines[1]), tag(lines[8])), ([0, 7], [1, 8], [8, 7]));
    // Tags of older lines are changed as all other words.
    let mut tx = lane.begin();
    assert!(
        matches!(tx.set_tag_word(lines[0], 0, 1), Err(e) if matches!(e.kind(), ErrorKind::Internal { .. }))
    );
    tx.lines().store_words(tag_off(lines[0]) + 8, &[9]).unwrap();
    tx.free(lines[8]).unwrap();
    tx.commit().unwrap();
    assert_eq!(tag(lines[0]), [0, 9]);
    // A check tells lines with tags from others.
    let mut marks = pool.marks().unwrap();
    assert_eq!(marks.unreached().filter(|block| block.is_tagged).count(), 7);
    assert!(marks.reach(lines[0], 64).is_err() && marks.reach_tagged(plain).is_err());
    assert!(marks.reach_tagged(lines[2]).is_err() && marks.reach_tagged(lines[8]).is_err());
    let kept = [&lines[..2], &lines[3..8]].concat();
    kept.iter().for_each(|off| marks.reach_tagged(*off).unwrap());
    marks.reach(plain, 64).unwrap();
    assert_eq!(marks.finish().unwrap().allocated_bytes, 7 * 80 + 64);
    // A tag that is taken back is free.
    let mut tx = lane.begin();
    let before = tx.savepoint();
    let line = tx.alloc_tagged([1, 2]).unwrap();
    tx.rollback_to(before);
    let again = tx.alloc_tagged([3, 4]).unwrap();
    assert_eq!(again, line);
    drop(tx);
    assert_eq!(pool.marks().unwrap().usage().allocated_blocks, 8);
}

/// A block of some kind, and its length.
fn allocate(tx: &mut Tx, number: u64) -> (u64, u64) {
    match number % 5 {
        0 => (tx.alloc_tagged([number, 0]).unwrap(), LINE_BYTES),
        1 => (tx.alloc(48).unwrap(), 48),
        2 => (tx.alloc_words(24).unwrap(), 24),
        3 => (tx.alloc(512).unwrap(), 512),
        _ if number % 25 == 4 => (tx.alloc(200_000).unwrap(), 200_000),
        _ => (tx.alloc(32).unwrap(), 32),
    }
}

/// Beyond a few blocks the transaction keeps an index: each block has to be found there, from its first word
/// to its last, and none that was taken back.
#[test]
fn a_large_transaction_finds_its_blocks_and_no_others() {
    let pool = tiny_pool(16 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let kept: Vec<_> = (0..150).map(|number| allocate(&mut tx, number)).collect();
    for round in 0..4 {
        let before = tx.savepoint();
        // Where the blocks of one round were, there are others in the next.
        let more: Vec<_> = (0..200).map(|number| allocate(&mut tx, number * (round + 2))).collect();
        for (off, bytes) in kept.iter().chain(&more) {
            for word in [*off, off + bytes - 8] {
                tx.store(word, word ^ round).unwrap();
                assert_eq!(pool.region().load_u64(word).unwrap(), word ^ round, "not stored in place");
            }
        }
        tx.rollback_to(before);
        for (off, _) in &more {
            assert!(tx.write_fresh(*off, &[0; 8]).is_err(), "a block that was taken back");
        }
    }
    for (off, _) in kept.iter().step_by(3) {
        tx.free(*off).unwrap();
        assert!(tx.free(*off).is_err(), "freed twice");
    }
    tx.commit().unwrap();
    let blocks = kept.len() - kept.len().div_ceil(3);
    assert_eq!(pool.marks().unwrap().usage().allocated_blocks, blocks as u64);
}

#[test]
fn several_lanes_share_a_pool() {
    let pool = tiny_pool(4 << 20);
    let table = make_table(&mut pool.lane().unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut lane = pool.lane().unwrap();
                for round in 0..2000 {
                    let mut tx = lane.begin();
                    let link = thread * (LINKS / 3) + round % (LINKS / 3);
                    put(&mut tx, table, link, 16 + round % 700, round).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    let live = read(&pool).unwrap();
    assert_eq!(live.len() as u64, LINKS);
    let image = image_of(&pool);
    let reopened = Pool::open_in(Region::simulated(&image, image.len() as u64, None).unwrap()).unwrap();
    assert_eq!(read(&reopened).unwrap(), live);
}

#[test]
fn space_of_all_sizes_comes_back() {
    let pool = tiny_pool(1 << 20);
    let table = make_table(&mut pool.lane().unwrap()).unwrap();
    let mut lane = pool.lane().unwrap();
    // Ten rounds over the whole pool, each with other sizes: a round needs the space of the round before it.
    for round in 0..10u64 {
        let bytes = [40, 900, 12 << 10, 300, 20 << 10, 5000, 64, 3000, 150, 1500][round as usize];
        let mut live = 0;
        for link in 0..LINKS {
            let mut tx = lane.begin();
            match put(&mut tx, table, link, bytes, round) {
                Ok(()) => tx.commit().unwrap(),
                Err(e) if e.is_full() => break,
                Err(e) => panic!("{e}"),
            }
            live += 1;
        }
        assert!(
            live * bytes > 300 << 10 || live == LINKS,
            "round {round}: only {live} blocks of {bytes} bytes"
        );
        for link in 0..LINKS {
            let mut tx = lane.begin();
            remove(&mut tx, table, link).unwrap();
            tx.commit().unwrap();
        }
    }
    assert!(read(&pool).unwrap().is_empty());
}

#[test]
fn blocks_of_many_new_slabs_are_allocated_by_one_transaction() {
    for count in [3_u64, 16, 17, 400] {
        let pool = tiny_pool(4 << 20);
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let blocks: Vec<u64> =
            (0..count).map(|i| tx.alloc([40, 300, 1000][i as usize % 3]).unwrap()).collect();
        // Given back at once, in a slab that others keep.
        blocks.iter().step_by(4).for_each(|block| tx.free(*block).unwrap());
        let kept = || blocks.iter().enumerate().filter(|(i, _)| i % 4 != 0).map(|(_, block)| *block);
        kept().for_each(|block| tx.write_fresh(block, &block.to_le_bytes()).unwrap());
        tx.set_root("last", KIND, kept().next_back().unwrap()).unwrap();
        tx.commit().unwrap();
        let expected = kept().count() as u64;
        assert_eq!(pool.marks().unwrap().usage().allocated_blocks, expected);
        let image = image_of(&pool);
        let opened = Pool::open_in(Region::simulated(&image, 4 << 20, None).unwrap()).unwrap();
        assert_eq!(opened.marks().unwrap().usage().allocated_blocks, expected);
        // The process that made the blocks can free each of them, once.
        let mut tx = lane.begin();
        kept().for_each(|block| tx.free(block).unwrap());
        tx.commit().unwrap();
        assert_eq!(pool.marks().unwrap().usage().allocated_blocks, 0);
    }
}
