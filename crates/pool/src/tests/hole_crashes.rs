//! Power failures of a pool on a disk whose file gets holes, is cut at its end, and grows: the journal is a
//! block of the pool, as in a file. Holes and lengths are on the device early or late; the recovery of the
//! ring is cut.
//!
//! `CRASHSIM_IMAGES=300000 cargo test --release -p tembo-pool hole_crashes` is the long form.

use super::model::{self, LINKS, Model};
use super::{image_of, tiny_options};
use crate::alloc::CutRule;
use crate::file::header::seed_of;
use crate::{Geometry, Lane, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk, first_seed, wanted_images};
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, RING_MIN_BYTES, Records, recover};

const FIRST_BYTES: u64 = 256 << 10;
/// The third zone begins in front of that.
const MOST_BYTES: u64 = 5 << 18;
const STEPS: usize = 140;
/// Runs of free chunks that are given back.
const HOLE_BYTES: u64 = 8 << 10;

/// How the workload is wrong, on purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// The file is cut in front of the last block.
    CutTooFar,
    /// A chunk in use is given back with the free ones in front of it.
    HoleInUse,
}

struct Run {
    history: History,
    place: JournalPlace,
    /// The table after each commit.
    models: Vec<Model>,
    /// Holes, cuts and growths.
    counts: [usize; 3],
}

struct Workload {
    rng: Xoshiro256PlusPlus,
    interval: Option<Duration>,
    bug: Bug,
    disk: SectorDisk,
    place: JournalPlace,
    table: u64,
    models: Vec<Model>,
}

/// A pool with a journal, whose ring is formatted, and a table.
fn new_disk() -> (SectorDisk, JournalPlace, u64) {
    let region = Region::simulated(&vec![0; FIRST_BYTES as usize], FIRST_BYTES, None).unwrap();
    // Lanes are long enough for the records of the test, so that they hold no space.
    let geometry = Geometry { lane_bytes: 16 << 10, zone_chunks: 1 << 7, ..Geometry::tiny() };
    let pool = Pool::create_in(region, &geometry).unwrap();
    pool.add_journal(&tiny_options().journal_bytes(RING_MIN_BYTES)).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let place = JournalPlace { off: pool.journal_off().unwrap().unwrap(), seed: seed_of(pool.uuid()) };
    let disk = SectorDisk::new(image_of(&pool));
    Journal::format(&disk, place, RING_MIN_BYTES, RING_MIN_BYTES).unwrap();
    (SectorDisk::new(disk.contents()), place, table)
}

fn edit(lane: &mut Lane, table: u64, model: &mut Model, rng: &mut Xoshiro256PlusPlus) {
    let mut tx = lane.begin();
    for _ in 0..rng.random_range(1..4) {
        let link = rng.random_range(0..LINKS);
        if rng.random_bool(0.4) {
            model::remove(&mut tx, table, link).unwrap();
            model.remove(&link);
            continue;
        }
        let bytes = match rng.random_range(0..12) {
            0..3 => rng.random_range(9_000..30_000),
            3 => rng.random_range(700..2600),
            _ => rng.random_range(16..200),
        };
        let seed = rng.random();
        model::put(&mut tx, table, link, bytes, seed).unwrap();
        model.insert(link, (bytes, seed));
    }
    tx.commit().unwrap();
}

impl Workload {
    fn new(seed: u64, interval: Option<Duration>, bug: Bug) -> Workload {
        let (disk, place, table) = new_disk();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Workload { rng, interval, bug, disk, place, table, models: vec![Model::new()] }
    }

    /// Opens the pool, and cuts its file to its length, as the opening of a file does.
    fn open(&self, journal: Journal) -> Pool {
        let region = Region::journaled(&self.disk.contents(), MOST_BYTES, journal).unwrap();
        let pool = Pool::open_in(region).unwrap();
        pool.region().cut_file().unwrap();
        pool.set_min_bytes(0);
        pool
    }

    fn kill(&self, pool: Pool) -> Pool {
        self.disk.cut_after(0);
        drop(pool);
        self.disk.mend();
        let records = Records::find(&self.disk, self.place).unwrap();
        let resumed = Journal::resume(Box::new(self.disk.clone()), &records, self.interval).unwrap();
        let pool = self.open(resumed);
        let found = model::read(&pool).unwrap();
        assert_eq!(&found, self.models.last().unwrap(), "a kill loses nothing");
        pool
    }

    /// Removes the blocks of most links, so that there are holes, and the end is free.
    fn empty(&mut self, lane: &mut Lane) {
        let mut model = self.models.last().unwrap().clone();
        let (kept, mut tx) = (self.rng.random_range(0..LINKS), lane.begin());
        for link in (0..LINKS).filter(|link| link % 8 != kept % 8) {
            model::remove(&mut tx, self.table, link).unwrap();
            model.remove(&link);
        }
        tx.commit().unwrap();
        self.models.push(model);
    }

    /// Gives free runs back. Returns whether there were any.
    fn punch(&self, pool: &Pool) -> bool {
        let punched = pool.trim_runs(HOLE_BYTES).unwrap();
        if self.bug == Bug::HoleInUse
            && let Some(link) = self.models.last().unwrap().iter().find(|(_, (bytes, _))| *bytes > 9_000)
        {
            let off = pool.region().load_u64(self.table + 8 * link.0).unwrap();
            return pool.region().punch([(off.next_multiple_of(4096), 4096)]) > 0;
        }
        punched > 0
    }

    /// Gives the free end up. Returns whether there is one.
    fn cut(&self, pool: &Pool) -> bool {
        pool.trim_runs(u64::MAX).unwrap();
        if self.bug != Bug::CutTooFar {
            return pool.cut(1, 0).unwrap() > 0;
        }
        let rule = CutRule { floor_bytes: 0, slack_bytes: 0, least_bytes: 1, most_bytes: u64::MAX };
        let cut = pool.inner.log.while_quiet(|| {
            pool.inner.alloc.cut(pool.region(), rule, |length| {
                let too_far = length - 8192;
                pool.inner.commit_length(too_far)?;
                Ok(pool.region().shrink(too_far)?)
            })
        });
        cut.unwrap()
    }

    fn run(mut self) -> Run {
        let mut pool =
            self.open(Journal::open(Box::new(self.disk.clone()), self.place, self.interval).unwrap());
        let (mut lanes, mut counts) = (vec![pool.lane().unwrap(), pool.lane().unwrap()], [0; 3]);
        self.disk.mark(0);
        for _ in 0..STEPS {
            let (lane, before) = (self.rng.random_range(0..2), pool.region().len());
            let promised = match self.rng.random_range(0..40) {
                0 => {
                    lanes.clear();
                    pool = self.kill(pool);
                    lanes = vec![pool.lane().unwrap(), pool.lane().unwrap()];
                    false
                }
                1 => pool.journal().unwrap().write_all_back().is_ok(),
                2..6 => {
                    self.empty(&mut lanes[lane]);
                    let way = self.rng.random_range(0..4);
                    let (is_punched, is_cut) = (way > 0 && self.punch(&pool), way < 3 && self.cut(&pool));
                    counts[0] += usize::from(is_punched);
                    counts[1] += usize::from(is_cut);
                    is_punched || is_cut || self.interval.is_none()
                }
                _ => {
                    let mut model = self.models.last().unwrap().clone();
                    edit(&mut lanes[lane], self.table, &mut model, &mut self.rng);
                    self.models.push(model);
                    self.interval.is_none()
                }
            };
            counts[2] += usize::from(pool.region().len() > before);
            if promised {
                self.disk.mark(self.models.len() as u64 - 1);
            }
            if self.bug == Bug::CutTooFar && counts[1] > 0 {
                // The rest of such a run has nothing to say.
                break;
            }
        }
        Run { history: self.disk.history(), place: self.place, models: self.models, counts }
    }
}

/// Recovers the file, with a cut at times, and opens the pool in it.
fn recover_pool(run: &Run, cuts: &mut PowerCuts<'_>, mut image: Vec<u8>) -> Result<Pool, String> {
    if cuts.chance(3) == 0 {
        image = cuts.cut_recovery(&image, |disk| recover(disk, run.place).is_ok()).unwrap_or(image);
    }
    let disk = SectorDisk::new(image);
    recover(&disk, run.place).map_err(|e| e.to_string())?;
    let region = Region::simulated(&disk.contents(), MOST_BYTES, None).map_err(|e| e.to_string())?;
    Pool::open_in(region).map_err(|e| e.to_string())
}

/// Tries images all along the history; returns how many it tried, or the fault of one.
fn try_images(run: &Run, history: &History, wanted: u64, seed: u64) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(history, seed);
    let (mut promised, mut tried, events) = (None, 0, history.events.len());
    let (each, rest) = (wanted as usize / events, wanted as usize % events);
    while let Some(event) = cuts.step() {
        if let DiskEvent::Mark(commit) = event {
            promised = Some(*commit as usize);
        }
        let Some(promised) = promised else { continue };
        for _ in 0..each + usize::from(cuts.chance(events) < rest) {
            let image = cuts.image();
            let at = |e: &dyn std::fmt::Display| format!("after the promise of {promised}: {e}");
            let pool = recover_pool(run, &mut cuts, image).map_err(|e| at(&e))?;
            let mut expected = model::read(&pool).map_err(|e| at(&e))?;
            if !run.models[promised..].contains(&expected) {
                return Err(format!("the table of no commit from {promised} on"));
            }
            // The recovered pool can be written to, and grows.
            let table = pool.roots().unwrap()[0].off;
            let mut lane = pool.lane().unwrap();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(tried);
            (0..3).for_each(|_| edit(&mut lane, table, &mut expected, &mut rng));
            drop(lane);
            let written = model::read(&pool).map_err(|e| format!("writing after {promised}: {e}"))?;
            assert_eq!(written, expected);
            tried += 1;
        }
    }
    Ok(tried)
}

const INTERVALS: [Option<Duration>; 2] = [None, Some(Duration::from_secs(3600))];

#[test]
fn a_pool_with_holes_and_cuts_is_as_after_a_commit_and_keeps_what_was_promised() {
    const RUNS: u64 = 3;
    let wanted = wanted_images(300);
    for interval in INTERVALS {
        let (mut tried, mut round) = (0, first_seed());
        while tried < wanted {
            let run = Workload::new(round, interval, Bug::None).run();
            assert!(run.counts.iter().all(|count| *count > 0), "{:?}", run.counts);
            tried += try_images(&run, &run.history, wanted.div_ceil(RUNS).min(20_000), round)
                .unwrap_or_else(|e| panic!("CRASHSIM_SEED={round}, {interval:?}: {e}"));
            round += 1;
        }
        println!("{interval:?}: {tried} images");
    }
}

/// A rule, the history of a run that breaks it, and whether fences wait in that.
type Broken = (&'static str, fn(&History) -> History, Bug, Option<Duration>);

#[test]
fn histories_that_break_a_rule_of_holes_and_cuts_are_noticed() {
    let [waits, lags] = INTERVALS;
    let rules: [Broken; 5] = [
        ("a hole comes after the commits that freed it", History::with_early_holes, Bug::None, lags),
        ("a cut comes after the shorter length", History::with_early_cuts, Bug::None, waits),
        ("lengths are synchronised", History::without_durable_lengths, Bug::None, waits),
        ("a cut takes nothing alive", History::clone, Bug::CutTooFar, waits),
        ("a hole has nothing alive", History::clone, Bug::HoleInUse, waits),
    ];
    let mut missed = Vec::new();
    for (rule, break_it, bug, interval) in rules {
        let noticed = (1..20).any(|round| {
            // A damaged pool may be found in more than one way.
            let outcome = std::panic::catch_unwind(|| {
                let run = Workload::new(round, interval, bug).run();
                try_images(&run, &break_it(&run.history), 400, round)
            });
            println!("{rule}: {outcome:?}");
            !matches!(outcome, Ok(Ok(_)))
        });
        missed.extend((!noticed).then_some(rule));
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
