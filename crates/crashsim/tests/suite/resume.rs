//! Rings that a process left in certain moments, and another one resumes.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::time::Duration;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk};
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, Medium as _, RING_MIN_BYTES, Records, recover};

const MEMORY_BYTES: u64 = 256 << 10;
const PLACE: JournalPlace = JournalPlace { off: MEMORY_BYTES, seed: 11 };
const NO_SYNCHRONISATION: Option<Duration> = Some(Duration::from_secs(3600));

fn region_over(disk: &SectorDisk, journal: Journal) -> Region {
    Region::journaled(&disk.contents()[..MEMORY_BYTES as usize], MEMORY_BYTES, journal).unwrap()
}

/// A region with an empty ring.
fn new() -> (SectorDisk, Region) {
    let disk = SectorDisk::new(vec![0; (MEMORY_BYTES + RING_MIN_BYTES) as usize]);
    Journal::format(&disk, PLACE, RING_MIN_BYTES, RING_MIN_BYTES).unwrap();
    let disk = SectorDisk::new(disk.contents());
    let journal = Journal::open(Box::new(disk.clone()), PLACE, NO_SYNCHRONISATION).unwrap();
    let region = region_over(&disk, journal);
    (disk, region)
}

fn resume(disk: &SectorDisk) -> Region {
    let records = Records::find(disk, PLACE).unwrap();
    region_over(disk, Journal::resume(Box::new(disk.clone()), &records, NO_SYNCHRONISATION).unwrap())
}

/// Lines of a record that lies in two or three sectors, and of one that takes a tenth of the ring.
const FEW: u64 = 15;
const MANY: u64 = 90;

/// Stores the number in a place of its own, of several sectors, and fences.
fn fence(region: &Region, lines: u64, number: u64) {
    let off = number * lines * 64;
    region.store_words(off, &vec![number + 1; lines as usize * 8]).unwrap();
    region.persist(off, lines * 64).unwrap();
}

/// The numbers that are there: each as a whole, or not at all.
fn numbers(memory: &[u8], lines: u64) -> Vec<u64> {
    let is_there = |number: &u64| {
        let off = (number * lines * 64) as usize;
        let words = memory[off..off + lines as usize * 64].as_chunks::<8>().0;
        let first = u64::from_le_bytes(words[0]);
        assert!(words.iter().all(|word| *word == words[0]) && (first == 0 || first == number + 1));
        first != 0
    };
    (0..MEMORY_BYTES / (lines * 64)).filter(is_there).collect()
}

fn recovered(image: Vec<u8>, lines: u64) -> Vec<u64> {
    let disk = SectorDisk::new(image);
    recover(&disk, PLACE).unwrap();
    numbers(&disk.contents()[..MEMORY_BYTES as usize], lines)
}

/// I6: the page cache has dropped a record, and whole ones lie behind the hole. A record of the same length
/// is written into it: none of those behind it comes back.
#[test]
fn records_behind_a_hole_do_not_come_back_when_a_new_one_fills_it() {
    let mut has_met_a_hole = false;
    for seed in 0..400 {
        let (disk, region) = new();
        (0..6).for_each(|number| fence(&region, FEW, number));
        disk.fail_synchronisation(seed, true);
        disk.end_with_failure();
        assert!(region.journal().unwrap().make_durable().is_err());
        drop(region);
        disk.mend();
        let region = resume(&disk);
        let mut expected = recovered(disk.contents(), FEW);
        assert_eq!(expected, (0..expected.len() as u64).collect::<Vec<_>>());
        has_met_a_hole |= expected.len() < 4;
        for number in [20, 21] {
            fence(&region, FEW, number);
            expected.push(number);
            assert_eq!(recovered(disk.contents(), FEW), expected, "seed {seed}");
        }
        // Again and again.
        drop(region);
        let region = resume(&disk);
        fence(&region, FEW, 22);
        drop(region);
        fence(&resume(&disk), FEW, 23);
        expected.extend([22, 23]);
        assert_eq!(recovered(disk.contents(), FEW), expected, "seed {seed}");
    }
    assert!(has_met_a_hole, "no hole, so that this shows nothing");
}

/// I5: a process is killed between the writing of a head and its synchronisation. The next one writes records
/// where those before the new tail were; the power fails while the device may have the old head.
#[test]
fn a_head_that_was_found_is_on_the_device_before_anything_relies_on_it() {
    let mut tried = 0;
    for operations in 0.. {
        let (disk, region) = new();
        (0..8).for_each(|number| fence(&region, MANY, number));
        region.journal().unwrap().make_durable().unwrap();
        disk.cut_after(operations);
        let is_whole = region.journal().unwrap().write_all_back().is_ok();
        disk.mend();
        drop(region);
        let region = resume(&disk);
        disk.mark(0);
        (8..16)
            .take_while(|_| {
                let stats = region.journal_stats().unwrap();
                stats.ring_bytes - stats.used_bytes > 8192
            })
            .for_each(|number| fence(&region, MANY, number));
        let history = disk.history();
        let mut cuts = PowerCuts::new(&history, operations as u64);
        while cuts.step().is_some() {}
        for _ in 0..40 {
            let found = recovered(cuts.image(), MANY);
            assert!(found.starts_with(&[0, 1, 2, 3, 4, 5, 6, 7]), "cut after {operations}: {found:?}");
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
            tried += 1;
        }
        if is_whole {
            break;
        }
    }
    println!("{tried} images");
}

/// A process that learns of the failure says so: the next one recovers, and writes everything again.
#[test]
fn a_ring_whose_device_was_known_to_fail_is_not_resumed() {
    let (disk, region) = new();
    fence(&region, FEW, 0);
    disk.fail_synchronisation(1, false);
    assert!(region.journal().unwrap().make_durable().is_err());
    drop(region);
    let before = disk.history().events.len();
    let region = resume(&disk);
    assert_eq!(region.journal_stats().unwrap().used_bytes, 0, "it was resumed");
    assert!(disk.history().events.len() > before + 4);
    drop(region);
    let history = disk.history();
    let mut cuts = PowerCuts::new(&history, 1);
    while cuts.step().is_some() {}
    assert!((0..20).all(|_| recovered(cuts.image(), FEW) == [0]));
    // Its own head says nothing of that.
    let region = resume(&disk);
    fence(&region, FEW, 1);
    assert!(region.journal_stats().unwrap().used_bytes > 0);
}

/// A ring without records in a file that is on no device yet: one that was closed, and then copied.
fn closed_copy() -> SectorDisk {
    let (disk, region) = new();
    (0..6).for_each(|number| fence(&region, FEW, number));
    region.journal().unwrap().write_all_back().unwrap();
    drop(region);
    let copy = SectorDisk::new(vec![0; disk.contents().len()]);
    copy.write(0, &disk.contents()).unwrap();
    copy
}

/// The images after a resumption of that file, in which a word is stored and shown at home. Returns how many
/// are wrong: numbers are lost, or some are there that were stored behind the word, and the word is not.
fn wrong_images_after_a_closing(records_the_word: bool, changed: fn(History) -> History) -> usize {
    const WORD_OFF: u64 = MEMORY_BYTES - 64;
    let disk = closed_copy();
    let region = resume(&disk);
    disk.mark(0);
    region.store_u64(WORD_OFF, 1).unwrap();
    if records_the_word {
        region.persist(WORD_OFF, 8).unwrap();
    }
    region.show_at_home(WORD_OFF).unwrap();
    (6..10).for_each(|number| fence(&region, FEW, number));
    let history = changed(disk.history());
    let mut cuts = PowerCuts::new(&history, 3);
    let (mut is_promised, mut wrong, mut words) = (false, 0, BTreeSet::new());
    while let Some(event) = cuts.step() {
        is_promised |= matches!(event, DiskEvent::Mark(_));
        for _ in 0..if is_promised { 60 } else { 0 } {
            let disk = SectorDisk::new(cuts.image());
            if recover(&disk, PLACE).is_err() {
                wrong += 1;
                continue;
            }
            let memory = &disk.contents()[..MEMORY_BYTES as usize];
            let found = catch_unwind(|| numbers(&memory[..WORD_OFF as usize], FEW)).unwrap_or_default();
            let is_prefix = found == (0..found.len() as u64).collect::<Vec<_>>();
            let word = memory[WORD_OFF as usize];
            words.insert((word, found.len()));
            wrong += usize::from(!is_prefix || found.len() < 6 || (found.len() > 6 && word == 0));
        }
    }
    if records_the_word && wrong == 0 {
        // In front of its record, and without it.
        assert!(words.contains(&(0, 6)) && words.contains(&(1, 6)) && words.contains(&(1, 10)), "{words:?}");
    }
    wrong
}

#[test]
fn a_closed_file_is_on_the_device_when_its_ring_is_resumed_and_a_word_comes_before_all_else() {
    assert_eq!(wrong_images_after_a_closing(true, |history| history), 0);
}

/// The same test finds a resumption that does not synchronise the file, and a word without a record.
#[test]
fn without_its_synchronisation_or_its_record_a_closed_file_is_damaged() {
    let unsynchronised = |history: History| history.without_synchronisations_of(0..u64::MAX);
    assert!(wrong_images_after_a_closing(true, unsynchronised) > 0);
    assert!(wrong_images_after_a_closing(false, |history| history) > 0);
}
