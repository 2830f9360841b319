//! Private pages of a mapped file with a journal, given back while threads store to them: no store is lost.

use crate::journal::JournalPlace;
use crate::{Access, Durability, Region, RegionOptions};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MEMORY_BYTES: u64 = 1 << 20;
const RING_BYTES: u64 = 1 << 20;
const PLACE: JournalPlace = JournalPlace { off: MEMORY_BYTES, seed: 5 };
const PAGE_BYTES: u64 = 4096;

/// A region over a new file, with an empty journal.
fn mapped(private_bytes_max: Option<u64>) -> Region {
    let file = tempfile::tempfile().unwrap();
    let bytes = MEMORY_BYTES + RING_BYTES;
    Region::allocate_new_file(&file, bytes, &RegionOptions::default()).unwrap();
    let options = |durability| RegionOptions {
        durability,
        private_bytes_max,
        journal: Some(PLACE),
        ..RegionOptions::default()
    };
    let map = |file: File, durability| {
        Region::map_file(file, bytes, &options(durability), Access::ReadWrite).unwrap()
    };
    let without = map(file.try_clone().unwrap(), Durability::PageCache);
    without.format_journal(PLACE, RING_BYTES, RING_BYTES).unwrap();
    drop(without);
    map(file, Durability::Relaxed { interval_ms: 50 })
}

/// Threads raise words of their own in pages that they share, and hold locks there that are never noted;
/// another one gives pages back all the time. Each thread sees its own last store, and so does the end.
#[test]
fn a_store_is_never_lost_with_its_page() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 60;
    /// On a busy machine it takes longer until a page is given back.
    const ROUNDS_MAX: u64 = 100 * ROUNDS;
    const PAGES: u64 = 24;
    let region = mapped(None);
    let (done, given_back) = (AtomicU64::new(0), AtomicU64::new(0));
    let made = [const { AtomicU64::new(0) }; THREADS as usize];
    let place = |page: u64, thread: u64, kind: u64| page * PAGE_BYTES + 512 * kind + 8 * thread;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, done, given_back) = (&region, &done, &given_back);
            let made = &made[thread as usize];
            scope.spawn(move || {
                let is_over =
                    |round| round > ROUNDS_MAX || round > ROUNDS && given_back.load(Ordering::Relaxed) > 0;
                for round in (1..).take_while(|&round| !is_over(round)) {
                    for page in 0..PAGES {
                        for kind in 0..6 {
                            let off = place(page, thread, kind);
                            assert_eq!(region.load_u64(off).unwrap(), round - 1, "{page} {thread} {kind}");
                            store(region, kind, off, round);
                            let lock = place(page, thread, 6);
                            store(region, kind, lock, 1);
                            assert_eq!(region.load_u64(lock).unwrap(), 1, "a lock is lost");
                            region.store_u64(lock, 0).unwrap();
                        }
                        region.flush(page * PAGE_BYTES, PAGE_BYTES);
                    }
                    region.fence().unwrap();
                    made.store(round, Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let journal = region.journal().unwrap();
        while done.load(Ordering::Relaxed) < THREADS {
            journal.write_all_back().unwrap();
            given_back.fetch_add(journal.give_back(0).unwrap(), Ordering::Relaxed);
        }
    });
    for (page, thread, kind) in
        (0..PAGES).flat_map(|page| (0..THREADS).flat_map(move |t| (0..6).map(move |kind| (page, t, kind))))
    {
        let made = made[thread as usize].load(Ordering::Relaxed);
        assert_eq!(region.load_u64(place(page, thread, kind)).unwrap(), made, "{page} {thread} {kind}");
    }
    assert!(given_back.into_inner() > 0, "no page was given back, so that this shows nothing");
}

/// Each way to store a word.
fn store(region: &Region, kind: u64, off: u64, value: u64) {
    let (line, word) = (off & !63, (off % 64 / 8) as usize);
    match kind {
        0 => region.store_u64(off, value).unwrap(),
        1 => region.store_words(off, &[value]).unwrap(),
        2 => region.line_stores().store_in_any_order(line, 1 << word, &[value; 8]).unwrap(),
        3 => region.writable_line(line).unwrap().store(word, value),
        4 => drop(region.raise_u64(off, value).unwrap()),
        // SAFETY: the word is this thread's alone.
        _ => unsafe { region.write(off, &value.to_ne_bytes()).unwrap() },
    }
}

/// The thread of the journal keeps to the limit by itself, also when nothing fills the ring, and pages that
/// were given back are read from the file again.
#[test]
fn private_pages_stay_about_their_limit() {
    const LIMIT_BYTES: u64 = 64 * PAGE_BYTES;
    let region = mapped(Some(LIMIT_BYTES));
    let stop = AtomicBool::new(false);
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        rounds += 1;
        for page in 0..MEMORY_BYTES / PAGE_BYTES {
            region.store_u64(page * PAGE_BYTES, rounds).unwrap();
            region.persist(page * PAGE_BYTES, 8).unwrap();
        }
        let stats = region.journal_stats().unwrap();
        assert_eq!(stats.private_bytes_max, LIMIT_BYTES);
        stop.store(stats.given_back_bytes > MEMORY_BYTES, Ordering::Relaxed);
        assert!(rounds < 100_000, "{stats:?}");
    }
    for page in 0..MEMORY_BYTES / PAGE_BYTES {
        assert_eq!(region.load_u64(page * PAGE_BYTES).unwrap(), rounds);
    }
    let begun = std::time::Instant::now();
    while region.journal_stats().unwrap().private_bytes > LIMIT_BYTES {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", region.journal_stats());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
