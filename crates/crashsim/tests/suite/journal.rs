//! Power failures of a region with a journal: the file with its ring replayed is the memory as it was noted
//! at one of its fences, byte for byte, and at none before the last that was promised. The ring lies in the
//! middle of the region. Both grow.

use crate::support::{Chance, in_threads};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk, first_seed, wanted_images};
use tembo_pmem::journal::{Journal, JournalPlace, RING_MIN_BYTES, Records, read_lines, recover};
use tembo_pmem::{Domain, Region};

const MEMORY_BYTES: u64 = 24 << 10;
/// The ring doubles its capacity.
const RING_BYTES: u64 = 2 * (RING_MIN_BYTES - 8192) + 8192;
const PLACE: JournalPlace = JournalPlace { off: MEMORY_BYTES, seed: 11 };
const HOME: Range<u64> = 0..MEMORY_BYTES;
const HEADS: Range<u64> = MEMORY_BYTES..MEMORY_BYTES + 8192;
const RECORDS: Range<u64> = MEMORY_BYTES + 8192..MEMORY_BYTES + RING_BYTES;
const LINES: u64 = MEMORY_BYTES / 64;
/// The region's length with all lines in front of the ring, and its greatest.
const FIRST_BYTES: u64 = MEMORY_BYTES + RING_BYTES;
const MAX_BYTES: u64 = FIRST_BYTES + (64 << 10);
/// Fences of a run: they turn the ring several times.
const FENCES: usize = 600;

/// A history of the disk; its marks are numbers of fences that are promised to survive.
struct Run {
    history: History,
    /// The memory as noted after each fence; the first before all of them.
    images: Vec<Vec<u8>>,
    /// Whether the ring has grown.
    has_grown: bool,
}

/// How the workload is wrong, on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// Now and then a changed line is not flushed.
    Unnoted,
}

fn empty_disk() -> SectorDisk {
    let disk = SectorDisk::new(vec![0; (MEMORY_BYTES + RING_BYTES) as usize]);
    Journal::format(&disk, PLACE, RING_MIN_BYTES, RING_BYTES).unwrap();
    SectorDisk::new(disk.contents())
}

/// How fences wait.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// For the device.
    Journaled,
    /// Not at all; a fence is promised when the journal says that it is durable.
    PutOff,
    /// Not before the interval is over.
    Relaxed,
}

impl Mode {
    fn interval(self) -> Option<Duration> {
        (self == Mode::Relaxed).then_some(Duration::from_secs(3600))
    }
}

const MODES: [Mode; 3] = [Mode::Journaled, Mode::PutOff, Mode::Relaxed];

fn open(disk: &SectorDisk, mode: Mode) -> Region {
    let journal = Journal::open(Box::new(disk.clone()), PLACE, mode.interval()).unwrap();
    journal.put_off(mode == Mode::PutOff);
    let mut image = disk.contents();
    image[HEADS.start as usize..RECORDS.end as usize].fill(0);
    Region::journaled(&image, MAX_BYTES, journal).unwrap()
}

/// Goes on in the ring as a killed process left it.
fn resume(disk: &SectorDisk, mode: Mode) -> Region {
    let records = Records::find(disk, PLACE).unwrap();
    let journal = Journal::resume(Box::new(disk.clone()), &records, mode.interval()).unwrap();
    journal.put_off(mode == Mode::PutOff);
    let mut image = disk.contents();
    image[HEADS.start as usize..RECORDS.end as usize].fill(0);
    Region::journaled(&image, MAX_BYTES, journal).unwrap()
}

/// The line with this number of those that are not the ring's.
fn place(line: u64) -> u64 {
    if line < LINES { line } else { line + RING_BYTES / 64 }
}

/// Whether a file has this memory: outside the ring, and with nothing but zeros where it is longer.
fn has(file: &[u8], memory: &[u8]) -> bool {
    let (ring, is_whole) = (HEADS.start as usize..RECORDS.end as usize, file.len() >= memory.len());
    is_whole
        && file[..ring.start] == memory[..ring.start]
        && file[ring.end..memory.len()] == memory[ring.end..]
        && file[memory.len()..].iter().all(|byte| *byte == 0)
}

/// Stores at random, and flushes some of it. Returns the lines that are to be recorded.
fn store_some(region: &Region, chance: &mut Chance, bug: Bug) -> Vec<u64> {
    let mut lines = Vec::new();
    let line_count = (region.len() - RING_BYTES) / 64;
    if chance.below(4) == 0 {
        // A whole page, with what was not flushed before: it can be given back then.
        let first = place(64 * chance.below(line_count / 64));
        region.store_u64(first * 64, chance.below(1 << 30)).unwrap();
        region.flush(first * 64, 4096);
        return (first..first + 64).collect();
    }
    for _ in 0..1 + chance.below(6) {
        // Some lines are changed often, some rarely.
        let first = if chance.below(2) == 0 { chance.below(20) } else { chance.below(line_count) };
        let border = if first < LINES { LINES } else { line_count };
        let count = (1 + chance.below(12)).min(border - first);
        let first = place(first);
        for line in first..first + count {
            region.store_u64(line * 64 + 8 * chance.below(8), chance.below(1 << 30)).unwrap();
        }
        // A store that is not flushed is in memory only, until its line is flushed for another reason.
        if chance.below(4) > 0 {
            let skips = bug == Bug::Unnoted && chance.below(8) == 0;
            if !skips {
                region.flush(first * 64, count * 64);
            }
            lines.extend(first..first + count);
        }
    }
    // After the flush and before the fence.
    region.store_u64(64 * chance.below(20), chance.below(1 << 30)).unwrap();
    lines
}

/// The memory of a region, outside the ring too, as threads see it.
fn memory_of(region: &Region) -> Vec<u64> {
    region.words(0, region.len() / 8).unwrap().iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

/// Writes everything home, or gives all private pages back that can be, and checks that no load sees that.
fn move_pages(region: &Region, chance: &mut Chance) -> bool {
    let (journal, before) = (region.journal().unwrap(), memory_of(region));
    let is_durable = match chance.below(3) {
        0 => journal.write_all_back().is_ok(),
        1 => journal.give_back(0).is_err(),
        _ => journal.write_all_back().and_then(|()| journal.give_back(chance.below(20))).is_ok(),
    };
    assert!(memory_of(region) == before, "a store is lost with its page, or a page shows what it must not");
    is_durable
}

/// The memory of a region as bytes.
fn bytes_of(region: &Region) -> Vec<u8> {
    memory_of(region).into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Ends a process at any moment of a write-back, or between two, or after its device has failed; also before
/// it notes that. Returns whether the device has.
fn kill(region: Region, disk: &SectorDisk, chance: &mut Chance) -> bool {
    let journal = region.journal().unwrap();
    let way = chance.below(4);
    match way {
        0 => {}
        1 => disk.cut_after(chance.below(40) as usize),
        _ => disk.fail_synchronisation(chance.below(1 << 30), chance.below(2) == 0),
    }
    if way == 3 {
        disk.end_with_failure();
    }
    let ended = match chance.below(3) {
        _ if way == 0 => Ok(()),
        0 => journal.write_all_back(),
        _ => journal.make_durable(),
    };
    disk.mend();
    drop(region);
    way >= 2 && ended.is_err()
}

/// Stores at random, flushes some of it, and fences; with write-backs, kills and openings between.
fn run(seed: u64, mode: Mode, bug: Bug) -> Run {
    let mut chance = Chance(seed);
    let disk = empty_disk();
    let mut region = open(&disk, mode);
    let expected = if mode == Mode::Relaxed { Domain::Relaxed } else { Domain::Journaled };
    assert_eq!(region.domain(), expected);
    let mut noted = vec![0_u8; FIRST_BYTES as usize];
    let mut images = vec![noted.clone()];
    let (mut given_back_bytes, mut promised_last) = (0, 0);
    while images.len() <= FENCES {
        if chance.below(15) == 0 && region.len() < MAX_BYTES {
            region.grow(region.len() + 4096).unwrap();
            noted.resize(region.len() as usize, 0);
        }
        store_some(&region, &mut chance, bug).into_iter().for_each(|line| note(&region, &mut noted, line));
        images.push(noted.clone());
        region.fence().unwrap();
        let fence = images.len() as u64 - 1;
        let journal = region.journal().unwrap();
        let stats = journal.stats();
        given_back_bytes = given_back_bytes.max(stats.given_back_bytes);
        let promised = match chance.below(120) {
            0 | 1 => journal.make_durable().is_ok(),
            2 | 40..46 => move_pages(&region, &mut chance),
            // Records soon lie behind the old end.
            4..40 if stats.used_bytes > stats.ring_bytes / 2 => journal.grow_ring().is_err(),
            // A kill: the page cache stays, the memory and its unfenced stores do not.
            3 => {
                region = open(&disk, mode);
                let is_there = has(&disk.contents(), &noted);
                assert!(is_there || bug != Bug::None, "seed {seed}: not as noted after a kill at {fence}");
                true
            }
            46..51 => {
                let has_failed = kill(region, &disk, &mut chance);
                region = resume(&disk, mode);
                let found = bytes_of(&region);
                let at = images.iter().rposition(|image| has(&found, image));
                let least = if has_failed { promised_last } else { fence as usize };
                assert!(at >= Some(least) || bug != Bug::None, "seed {seed}: {at:?} after a kill at {fence}");
                if let Some(at) = at.filter(|at| *at < fence as usize) {
                    // The device has failed, and the page cache with it.
                    noted.clone_from(&images[at]);
                    noted.resize(region.len() as usize, 0);
                    images.push(noted.clone());
                }
                false
            }
            // A write-back has made some of them durable.
            _ => journal.durable().unwrap() == journal.end(),
        };
        if promised {
            promised_last = fence as usize;
            disk.mark(fence);
        }
    }
    assert!(given_back_bytes > 0, "pages are given back");
    end(&region, disk.history(), images)
}

fn end(region: &Region, history: History, images: Vec<Vec<u8>>) -> Run {
    let stats = region.journal_stats().unwrap();
    assert!(stats.ring_bytes > stats.used_bytes && stats.private_bytes <= region.len());
    let of_parts =
        |event: &DiskEvent| matches!(event, DiskEvent::Synchronised(range) if range.end < MAX_BYTES);
    assert!(history.events.iter().any(of_parts), "the ring is synchronised by itself");
    Run { history, images, has_grown: stats.ring_bytes > RING_MIN_BYTES }
}

/// The memory as noted has the line as it is now.
fn note(region: &Region, noted: &mut [u8], line: u64) {
    let at = (line * 64) as usize;
    for word in 0..8 {
        let value = region.load_u64((at + 8 * word) as u64).unwrap();
        noted[at + 8 * word..][..8].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Recovers an image of the device, and cuts the first attempts if chance will have it so.
fn recover_image(cuts: &mut PowerCuts<'_>, image: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut image = image;
    for attempt in 0..3 {
        let disk = SectorDisk::new(image.clone());
        let is_cut = attempt < 2 && cuts.chance(2) == 0;
        if !is_cut {
            let lines = read_lines(&disk, PLACE).map_err(|e| e.to_string())?;
            recover(&disk, PLACE).map_err(|e| e.to_string())?;
            let recovered = disk.contents();
            // Reading only finds the same.
            let mut read = image;
            for (line, content) in lines {
                read[line as usize * 64..][..64].copy_from_slice(&content);
            }
            read[HEADS.start as usize..RECORDS.end as usize].fill(0);
            return if has(&recovered, &read) {
                Ok(recovered)
            } else {
                Err("reading and recovering differ".to_owned())
            };
        }
        disk.cut_after(cuts.chance(60));
        if recover(&disk, PLACE).is_ok() {
            return Ok(disk.contents());
        }
        let history = disk.history();
        let mut again = PowerCuts::new(&history, cuts.chance(1 << 30) as u64);
        while again.step().is_some() {}
        image = again.image();
    }
    Err("recovery was not cut and did not end".to_owned())
}

/// Tries images all along the history. Returns how many.
fn try_images(run: &Run, images_wanted: u64, seed: u64) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(&run.history, seed);
    let (mut promised, mut tried) = (0, 0);
    let events = run.history.events.len();
    let (per_event, rest) = (images_wanted as usize / events, images_wanted as usize % events);
    while let Some(event) = cuts.step() {
        if let DiskEvent::Mark(fence) = event {
            promised = *fence as usize;
        }
        let one_more = usize::from(cuts.chance(events) < rest);
        for _ in 0..per_event + one_more {
            let image = cuts.image();
            let recovered = recover_image(&mut cuts, image)?;
            if !run.images[promised..].iter().any(|image| has(&recovered, image)) {
                let earlier = run.images[..promised].iter().rposition(|image| has(&recovered, image));
                return Err(match earlier {
                    Some(fence) => format!("fence {promised} was promised, and fence {fence} is there"),
                    None => format!("the memory of no fence, after the promise of {promised}"),
                });
            }
            tried += 1;
        }
    }
    Ok(tried)
}

fn seed() -> u64 {
    first_seed()
}

#[test]
fn a_power_failure_leaves_the_memory_of_a_fence_and_keeps_what_was_promised() {
    const RUNS: u64 = 4;
    let wanted = wanted_images(8_000);
    for mode in MODES {
        let (mut tried, mut round, mut has_grown) = (0, seed(), false);
        // A ring grows in most runs.
        while tried < wanted || !has_grown {
            let run = run(round, mode, Bug::None);
            has_grown |= run.has_grown;
            tried += try_images(&run, wanted.div_ceil(RUNS), round)
                .unwrap_or_else(|e| panic!("CRASHSIM_SEED={round}, {mode:?}: {e}"));
            round += 1;
        }
        println!("{mode:?}: {tried} images");
    }
}

/// Heads are synchronised by themselves only when the ring grows.
fn without_heads_of_growth(history: &History) -> History {
    let mut history = history.clone();
    history.events.retain(|event| !matches!(event, DiskEvent::Synchronised(range) if *range == HEADS));
    history
}

/// A rule, and the history of a run that breaks it.
type Broken = (&'static str, fn(&History) -> History, Bug);

/// Each rule of the journal is needed: without it some image is wrong.
#[test]
fn histories_that_break_a_rule_are_noticed() {
    const ROUNDS: u64 = 60;
    let rules: [Broken; 7] = [
        // I3 and the promise: lines go home, and fences return, before their records are on the device.
        ("records are synchronised", |h| h.without_synchronisations_of(RECORDS), Bug::None),
        // I4: a head says that lines are at home before they are.
        ("lines are synchronised", |h| h.without_synchronisations_of(HOME), Bug::None),
        // I5 and I6: space is written again, or records of a generation, before the head is on the device.
        ("heads are synchronised", |h| h.without_synchronisations_of(HEADS), Bug::None),
        // I8: records lie behind the end that the head on the device has.
        ("the head of a longer ring is synchronised", without_heads_of_growth, Bug::None),
        // I7: records have lines for which the file on the device has no place.
        ("lengths are synchronised", History::without_durable_lengths, Bug::None),
        ("acknowledged after the synchronisation", History::with_early_marks, Bug::None),
        ("changed lines are noted", History::clone, Bug::Unnoted),
    ];
    let all = MODES.into_iter().flat_map(|mode| rules.map(|rule| (mode, rule))).collect();
    let missed = in_threads(all, |(mode, (rule, break_it, bug))| {
        let noticed = (seed()..seed() + ROUNDS).find_map(|round| {
            let run = run(round, mode, bug);
            let mutant = Run { history: break_it(&run.history), ..run };
            try_images(&mutant, 8_000, round).err().map(|e| (round, e))
        });
        println!("{rule}, {mode:?}: {noticed:?}");
        noticed.is_none().then_some((rule, mode))
    });
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// A fence with more lines than a record takes: each line is old or new, and after the fence all are new.
#[test]
fn a_fence_larger_than_the_ring_is_whole_when_it_returns() {
    for mode in MODES {
        let disk = empty_disk();
        let region = open(&disk, mode);
        let turns = 8;
        for turn in 1..=turns {
            for line in 0..LINES {
                region.store_words(64 * line, &[turn; 8]).unwrap();
            }
            region.flush(0, MEMORY_BYTES);
            region.fence().unwrap();
            region.journal().unwrap().make_durable().unwrap();
            disk.mark(turn);
        }
        assert!(region.journal_stats().unwrap().stalls > 0, "the ring was full");
        let history = disk.history();
        let (mut cuts, mut promised) = (PowerCuts::new(&history, seed()), 0);
        while let Some(event) = cuts.step() {
            if let DiskEvent::Mark(turn) = event {
                promised = *turn;
            }
            for _ in 0..20 {
                let image = cuts.image();
                let recovered = recover_image(&mut cuts, image).unwrap();
                for line in recovered[..MEMORY_BYTES as usize].chunks_exact(64) {
                    let first = u64::from_ne_bytes(line[..8].try_into().unwrap());
                    assert!(line.chunks_exact(8).all(|word| word == &line[..8]), "a torn line");
                    assert!((promised..=promised + 1).contains(&first), "{first} after {promised}");
                }
            }
        }
    }
}

/// A page that equals the file while a record of it waits for its way home: given back, it would show the
/// record in place of the store after it.
#[test]
fn a_page_with_records_is_not_given_back() {
    let disk = empty_disk();
    let region = open(&disk, Mode::Relaxed);
    let journal = region.journal().unwrap();
    region.store_u64(0, 5).unwrap();
    region.persist(0, 8).unwrap();
    region.store_u64(0, 0).unwrap();
    assert_eq!(journal.give_back(0).unwrap(), 0);
    journal.write_all_back().unwrap();
    assert_eq!((region.load_u64(0).unwrap(), disk.contents()[0]), (0, 5));
    // It differs from the file now, until the store is noted and at home.
    assert_eq!(journal.give_back(0).unwrap(), 0);
    region.persist(0, 8).unwrap();
    journal.write_all_back().unwrap();
    assert_eq!((journal.give_back(0).unwrap(), region.load_u64(0).unwrap()), (1, 0));
    assert_eq!(journal.stats().private_bytes, 0);
}

/// Threads that store to lines of their own and to a shared one: once a fence has returned, a kill leaves
/// what it covered, or something newer.
#[test]
fn records_of_threads_are_in_the_order_of_their_lines_contents() {
    const THREADS: u64 = 3;
    const TURNS: u64 = 1500;
    for mode in MODES {
        let disk = empty_disk();
        let region = open(&disk, mode);
        let start = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (region, disk, start) = (&region, &disk, &start);
                scope.spawn(move || {
                    start.wait();
                    for turn in 1..=TURNS {
                        // A word of a line that all threads flush, and a line of this thread.
                        region.store_u64(8 * thread, turn).unwrap();
                        region.store_words(64 * (1 + thread), &[turn; 8]).unwrap();
                        region.flush(0, 64);
                        region.flush(64 * (1 + thread), 64);
                        region.fence().unwrap();
                        disk.mark(thread << 32 | turn);
                    }
                });
            }
        });
        let stats = region.journal_stats().unwrap();
        assert!(stats.written_bytes > 2 * stats.ring_bytes, "the ring was turned");
        drop(region);
        let history = disk.history();
        let (mut cuts, mut promised) = (PowerCuts::new(&history, seed()), [0; THREADS as usize]);
        while let Some(event) = cuts.step() {
            let DiskEvent::Mark(mark) = event else { continue };
            let (thread, turn) = (mark >> 32, mark & 0xFFFF_FFFF);
            // In one mode the device has it, in both a kill leaves it.
            let image = if mode == Mode::Journaled { cuts.image() } else { cuts.killed_image() };
            let killed = SectorDisk::new(image);
            recover(&killed, PLACE).unwrap();
            let contents = killed.contents();
            let word = |at: u64| u64::from_ne_bytes(contents[at as usize..][..8].try_into().unwrap());
            promised[thread as usize] = turn;
            for (thread, turn) in (0..).zip(promised) {
                let shared = word(8 * thread);
                assert!(shared >= turn, "{mode:?}: {shared} of thread {thread}, promised {turn}");
                let own: Vec<u64> = (0..8).map(|i| word(64 * (1 + thread) + 8 * i)).collect();
                assert!(own[0] >= turn && own.iter().all(|word| *word == own[0]), "{own:?}, promised {turn}");
            }
        }
    }
}

/// A thread that is ending has no list of notes any more: they lie in the journal, under the thread's id.
#[test]
fn a_thread_that_is_ending_records_its_own_notes_and_no_others() {
    struct AtEnd(u64, Arc<Region>, Sender<()>, Receiver<()>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.1.store_u64(64 * self.0, 7).unwrap();
            self.1.flush(64 * self.0, 8);
            self.2.send(()).unwrap();
            self.3.recv().unwrap();
            self.1.fence().unwrap();
        }
    }
    thread_local!(static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) });
    let disk = empty_disk();
    let region = Arc::new(open(&disk, Mode::Journaled));
    let start = |line: u64| {
        let (region, (flushed, has_flushed), (go, may_go)) = (region.clone(), channel(), channel());
        let thread = std::thread::spawn(move || {
            // The list of notes is made after this value, and so dropped before it.
            AT_END.set(Some(AtEnd(line, region.clone(), flushed, may_go)));
            region.persist(64 * 10, 8).unwrap();
        });
        has_flushed.recv().unwrap();
        (thread, go)
    };
    let is_recorded = |line: u64| {
        let killed = SectorDisk::new(disk.contents());
        recover(&killed, PLACE).unwrap();
        killed.contents()[64 * line as usize] == 7
    };
    let (one, other) = (start(1), start(2));
    assert!(!is_recorded(1) && !is_recorded(2));
    other.1.send(()).unwrap();
    other.0.join().unwrap();
    assert!(is_recorded(2), "a note of a thread that was ending is lost");
    assert!(!is_recorded(1), "a note of another thread was recorded");
    one.1.send(()).unwrap();
    one.0.join().unwrap();
    assert!(is_recorded(1));
}

#[test]
fn a_ring_that_makes_no_sense_is_refused_and_nothing_is_changed() {
    let disk = empty_disk();
    let region = open(&disk, Mode::Journaled);
    region.store_u64(0, 5).unwrap();
    region.persist(0, 8).unwrap();
    let good = disk.contents();
    let refused = |contents: Vec<u8>, place| {
        let disk = SectorDisk::new(contents.clone());
        let error = recover(&disk, place).unwrap_err().to_string();
        assert_eq!(disk.contents(), contents, "changed");
        error
    };
    let mut headless = good.clone();
    [0, 4096].iter().for_each(|copy| headless[HEADS.start as usize + copy + 9] ^= 1);
    assert!(refused(headless, PLACE).contains("neither copy"));
    assert!(refused(good.clone(), JournalPlace { seed: 12, ..PLACE }).contains("neither copy"));
    assert!(refused(good.clone(), JournalPlace { off: u64::MAX - 100, ..PLACE }).contains("neither copy"));
    // A file that was cut.
    let cut = good[..RECORDS.start as usize].to_vec();
    assert!(refused(cut, PLACE).contains("room"));
    // One copy of the head is enough.
    let mut one = good;
    let newer = [0, 4096].into_iter().max_by_key(|copy| one[HEADS.start as usize + copy + 8]).unwrap();
    one[HEADS.start as usize + 4096 - newer + 9] ^= 1;
    let disk = SectorDisk::new(one);
    assert_eq!(recover(&disk, PLACE).unwrap().records, 1);
    assert_eq!(disk.contents()[0], 5);
}

#[test]
fn a_device_that_fails_ends_every_promise() {
    for mode in MODES {
        let disk = empty_disk();
        let region = open(&disk, mode);
        region.store_u64(0, 5).unwrap();
        region.persist(0, 8).unwrap();
        disk.cut_after(0);
        region.store_u64(0, 6).unwrap();
        assert!(region.persist(0, 8).is_err());
        assert!(region.journal().unwrap().durable().is_err());
        disk.cut_after(1_000);
        // The device works again, but it is not known what it has.
        region.store_u64(0, 7).unwrap();
        assert!(region.persist(0, 8).is_err() && region.fence().is_err());
        assert!(region.journal().unwrap().make_durable().is_err());
    }
}

/// A file that records tell of is synchronised in front of them, and behind their writes.
#[test]
fn what_comes_before_a_synchronisation_of_records_comes_before_each() {
    let (memory, ring) = (256 << 10, RING_MIN_BYTES);
    let (disk, place) =
        (SectorDisk::new(vec![0; (memory + ring) as usize]), JournalPlace { off: memory, seed: 3 });
    Journal::format(&disk, place, ring, ring).unwrap();
    let journal = Journal::open(Box::new(disk.clone()), place, Some(Duration::from_secs(3600))).unwrap();
    let region = Region::journaled(&vec![0; memory as usize], memory, journal).unwrap();
    let journal = region.journal().unwrap();
    let marked = disk.clone();
    journal.set_before(Some(Box::new(move || marked.mark(1))));
    let begun = disk.history().events.len();
    for number in 0..5 {
        region.store_words(number * 64, &[number + 1; 8]).unwrap();
        region.persist(number * 64, 64).unwrap();
        journal.make_durable().unwrap();
    }
    let events = disk.history().events.split_off(begun);
    let synchronised = events.iter().filter(|event| matches!(event, DiskEvent::Synchronised(_))).count();
    let right = events.windows(3).filter(|three| {
        matches!(three, [DiskEvent::Write { .. }, DiskEvent::Mark(1), DiskEvent::Synchronised(_)])
    });
    assert_eq!((right.count(), synchronised), (5, 5), "{events:?}");
}
