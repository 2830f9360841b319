//! Power failures of a region with a journal whose file gets holes, is cut at its end, and grows again:
//! outside of free space, the file with its ring replayed is the memory as it was noted at one of its fences,
//! byte for byte, and at none before the last that was promised. Lengths and holes are on the device early or
//! late.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-crashsim --test suite holes::` is the long form.

use crate::support::{Chance, in_threads};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk, first_seed, wanted_images};
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, RING_MIN_BYTES, Records, recover};

const PAGE: u64 = 4096;
/// Pages in front of the ring, which neither move nor go.
const FRONT: u64 = 2 * PAGE;
const PLACE: JournalPlace = JournalPlace { off: FRONT, seed: 13 };
const RING: Range<u64> = FRONT..FRONT + RING_MIN_BYTES;
/// The least length of the region, its first, and its greatest.
const LEAST: u64 = RING.end + 2 * PAGE;
const FIRST: u64 = LEAST + 6 * PAGE;
const MOST: u64 = FIRST + 16 * PAGE;
/// Fences of a run: they turn the ring several times.
const FENCES: usize = 500;

/// A page outside the ring.
fn page_from(chance: &mut Chance, bytes: u64) -> u64 {
    let page = chance.below((bytes - RING_MIN_BYTES) / PAGE);
    if page < FRONT / PAGE { page } else { page + RING_MIN_BYTES / PAGE }
}

/// The memory as it was noted.
#[derive(Clone)]
struct Memory {
    bytes: Vec<u8>,
    /// Lines of free space, which may have anything.
    free: BTreeSet<u64>,
}

impl Memory {
    /// Whether a file has this memory. Behind it lies the remainder of a cut, or of growth.
    fn is_in(&self, file: &[u8]) -> bool {
        let is_equal = |line: u64| {
            let at = (64 * line) as usize;
            self.free.contains(&line) || file[at..at + 64] == self.bytes[at..at + 64]
        };
        let lines = self.bytes.len() as u64 / 64;
        file.len() >= self.bytes.len() && (0..FRONT / 64).chain(RING.end / 64..lines).all(is_equal)
    }

    /// Lines have the contents that the region has.
    fn note(&mut self, region: &Region, lines: Range<u64>) {
        for line in lines {
            for word in 8 * line..8 * line + 8 {
                let at = (8 * word) as usize;
                let value = region.load_u64(8 * word).unwrap();
                self.bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
            self.free.remove(&line);
        }
    }
}

/// How the workload is wrong, on purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// A line is not flushed now and then.
    Unnoted,
    /// A hole has a page more than was freed.
    HoleInUse,
    /// A cut takes a page more than was freed.
    CutTooFar,
}

struct Run {
    history: History,
    /// The memory after each fence, hole and change of length.
    memories: Vec<Memory>,
    holes: u64,
    cuts: u64,
    growths: u64,
}

struct Workload {
    chance: Chance,
    interval: Option<Duration>,
    bug: Bug,
    disk: SectorDisk,
    memories: Vec<Memory>,
    holes: u64,
    cuts: u64,
    growths: u64,
}

impl Workload {
    fn new(seed: u64, interval: Option<Duration>, bug: Bug) -> Workload {
        let disk = SectorDisk::new(vec![0; FIRST as usize]);
        Journal::format(&disk, PLACE, RING_MIN_BYTES, RING_MIN_BYTES).unwrap();
        let disk = SectorDisk::new(disk.contents());
        let memories = vec![Memory { bytes: vec![0; FIRST as usize], free: BTreeSet::new() }];
        Workload { chance: Chance(seed), interval, bug, disk, memories, holes: 0, cuts: 0, growths: 0 }
    }

    fn last(&self) -> Memory {
        self.memories[self.memories.len() - 1].clone()
    }

    /// The region with the length that its owner has noted, whatever that of the file is.
    fn region(&self, journal: Journal) -> Region {
        let mut image = self.disk.contents();
        image.truncate(self.last().bytes.len());
        image[RING.start as usize..RING.end as usize].fill(0);
        Region::journaled(&image, MOST, journal).unwrap()
    }

    fn open(&self) -> Region {
        self.region(Journal::open(Box::new(self.disk.clone()), PLACE, self.interval).unwrap())
    }

    /// Kills the process. The next one goes on in the ring that it leaves, or recovers it.
    fn kill(&mut self, region: Region) -> Region {
        drop(region);
        let region = if self.chance.below(2) == 0 {
            self.open()
        } else {
            let records = Records::find(&self.disk, PLACE).unwrap();
            self.region(Journal::resume(Box::new(self.disk.clone()), &records, self.interval).unwrap())
        };
        let bytes: Vec<u8> =
            (0..region.len()).step_by(8).flat_map(|at| region.load_u64(at).unwrap().to_ne_bytes()).collect();
        assert!(self.last().is_in(&bytes) || self.bug != Bug::None, "a kill loses something");
        region
    }

    /// Stores some lines, and fences.
    fn commit(&mut self, region: &Region) {
        let mut memory = self.last();
        for _ in 0..1 + self.chance.below(5) {
            let first = page_from(&mut self.chance, region.len()) * PAGE / 64 + self.chance.below(64);
            let end = (first + 1 + self.chance.below(9)).min(first / 64 * 64 + 64);
            region.reallocate(first * 64, (end - first) * 64).unwrap();
            for line in first..end {
                region.store_u64(64 * line + 8 * self.chance.below(8), self.chance.below(1 << 30)).unwrap();
            }
            if self.bug != Bug::Unnoted || self.chance.below(16) > 0 {
                region.flush(64 * first, 64 * (end - first));
            }
            memory.note(region, first..end);
        }
        self.memories.push(memory);
        region.fence().unwrap();
    }

    /// Gives some pages back.
    fn punch(&mut self, region: &Region) {
        let (mut memory, first) = (self.last(), page_from(&mut self.chance, region.len()));
        let border = if first * PAGE < FRONT { FRONT } else { region.len() } / PAGE;
        let end = (first + 1 + self.chance.below(3)).min(border);
        memory.free.extend(first * PAGE / 64..end * PAGE / 64);
        self.memories.push(memory);
        let more = u64::from(self.bug == Bug::HoleInUse && end < border);
        assert!(region.punch([(first * PAGE, (end + more - first) * PAGE)]) > 0);
        self.holes += 1;
    }

    /// Makes the region shorter, and its file now or later. Returns whether it did.
    fn cut(&mut self, region: &Region) -> bool {
        let pages = (region.len() - LEAST) / PAGE;
        if pages < 2 {
            return false;
        }
        let mut memory = self.last();
        let length = LEAST + (1 + self.chance.below(pages - 1)) * PAGE;
        memory.bytes.truncate(length as usize);
        memory.free.retain(|line| 64 * line < length);
        self.memories.push(memory);
        let more = u64::from(self.bug == Bug::CutTooFar) * PAGE;
        region.shrink(length - more).unwrap();
        if self.chance.below(3) > 0 {
            assert!(region.cut_file().unwrap() > 0);
        }
        self.cuts += 1;
        true
    }

    fn grow(&mut self, region: &Region) {
        if region.len() < MOST {
            region.grow((region.len() + (1 + self.chance.below(3)) * PAGE).min(MOST)).unwrap();
            let mut memory = self.last();
            memory.bytes.resize(region.len() as usize, 0);
            self.memories.push(memory);
            self.growths += 1;
        }
    }

    fn run(mut self) -> Run {
        let mut region = self.open();
        for _ in 0..FENCES {
            let is_durable = match self.chance.below(60) {
                0..3 => {
                    self.punch(&region);
                    true
                }
                3..5 => self.cut(&region),
                5..8 => {
                    // The new length is durable, what was stored before is not.
                    self.grow(&region);
                    self.interval.is_none()
                }
                8 => {
                    region = self.kill(region);
                    false
                }
                9 => region.cut_file().is_err(),
                10 => region.journal().unwrap().write_all_back().is_ok(),
                11 => {
                    let journal = region.journal().unwrap();
                    journal.write_all_back().and_then(|()| journal.give_back(0)).is_ok()
                }
                _ => {
                    self.commit(&region);
                    self.interval.is_none()
                }
            };
            if is_durable {
                self.disk.mark(self.memories.len() as u64 - 1);
            }
            if self.bug == Bug::CutTooFar && region.len() < self.last().bytes.len() as u64 {
                // The rest of such a run has nothing to say.
                break;
            }
        }
        let Workload { disk, memories, holes, cuts, growths, .. } = self;
        Run { history: disk.history(), memories, holes, cuts, growths }
    }
}

/// Recovers an image of the device, and cuts the first attempts if chance will have it so.
fn recover_image(cuts: &mut PowerCuts<'_>, mut image: Vec<u8>) -> Result<Vec<u8>, String> {
    for _ in 0..2 {
        if cuts.chance(3) > 0 {
            break;
        }
        image = cuts.cut_recovery(&image, |disk| recover(disk, PLACE).is_ok()).unwrap_or(image);
    }
    let disk = SectorDisk::new(image);
    recover(&disk, PLACE).map_err(|e| e.to_string())?;
    Ok(disk.contents())
}

/// Tries images all along a history. Returns how many.
fn try_images(history: &History, memories: &[Memory], wanted: u64, seed: u64) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(history, seed);
    let (mut promised, mut tried, events) = (0, 0, history.events.len());
    let (each, rest) = (wanted as usize / events, wanted as usize % events);
    while let Some(event) = cuts.step() {
        if let DiskEvent::Mark(memory) = event {
            promised = *memory as usize;
        }
        for _ in 0..each + usize::from(cuts.chance(events) < rest) {
            let image = cuts.image();
            let recovered = recover_image(&mut cuts, image)?;
            if !memories[promised..].iter().any(|memory| memory.is_in(&recovered)) {
                let earlier = memories[..promised].iter().rposition(|memory| memory.is_in(&recovered));
                return Err(format!("{earlier:?} of {}, and {promised} was promised", memories.len()));
            }
            tried += 1;
        }
    }
    Ok(tried)
}

const INTERVALS: [Option<Duration>; 2] = [None, Some(Duration::from_secs(3600))];

#[test]
fn holes_and_cuts_leave_the_memory_of_a_fence_and_keep_what_was_promised() {
    const RUNS: u64 = 4;
    let wanted = wanted_images(4_000);
    for interval in INTERVALS {
        let (mut tried, mut round) = (0, first_seed());
        while tried < wanted {
            let run = Workload::new(round, interval, Bug::None).run();
            assert!(run.holes > 5 && run.cuts > 2 && run.growths > 2, "{} {}", run.holes, run.cuts);
            tried += try_images(&run.history, &run.memories, wanted.div_ceil(RUNS).min(100_000), round)
                .unwrap_or_else(|e| panic!("CRASHSIM_SEED={round}, {interval:?}: {e}"));
            round += 1;
        }
        println!("{interval:?}: {tried} images");
    }
}

/// A rule, the history of a run that breaks it, and whether fences wait in that.
type Broken = (&'static str, fn(&History) -> History, Bug, Option<Duration>);

#[test]
fn histories_that_break_a_rule_are_noticed() {
    const ROUNDS: u64 = 40;
    let [waits, lags] = INTERVALS;
    let rules: [Broken; 8] = [
        // The freed range is durably free, and no record has lines of it: with records that lag it is not
        // otherwise.
        ("a hole comes after the write-back", History::with_early_holes, Bug::None, lags),
        ("a cut comes after the write-back", History::with_early_cuts, Bug::None, lags),
        ("a cut comes after the write-back, waiting", History::with_early_cuts, Bug::None, waits),
        ("lengths are synchronised", History::without_durable_lengths, Bug::None, waits),
        ("acknowledged after the synchronisation", History::with_early_marks, Bug::None, waits),
        ("changed lines are noted", History::clone, Bug::Unnoted, waits),
        ("a hole has nothing alive", History::clone, Bug::HoleInUse, waits),
        ("a cut takes nothing alive", History::clone, Bug::CutTooFar, waits),
    ];
    let first = first_seed();
    let missed = in_threads(rules.into(), |(rule, break_it, bug, interval)| {
        let noticed = (first..first + ROUNDS).find_map(|round| {
            let run = Workload::new(round, interval, bug).run();
            try_images(&break_it(&run.history), &run.memories, 4_000, round).err().map(|e| (round, e))
        });
        println!("{rule}: {noticed:?}");
        noticed.is_none().then_some(rule)
    });
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
