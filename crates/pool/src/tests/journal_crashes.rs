//! Power failures of a pool on a disk with a journal: transactions on two lanes, any subset of the sectors
//! that were not synchronised, and power failures in recovery.
//!
//! `CRASHSIM_IMAGES=1000000 cargo test -p tembo-pool journal_crashes` is the long campaign.

use super::model::{self, LINKS, Model};
use super::open;
use crate::{Geometry, Lane, Pool};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk, first_seed, wanted_images};
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, RING_MIN_BYTES, Records, recover};

const POOL_BYTES: u64 = 768 << 10;
const PLACE: JournalPlace = JournalPlace { off: POOL_BYTES, seed: 3 };
const COMMITS: usize = 250;

struct Run {
    history: History,
    /// The table after each commit.
    models: Vec<Model>,
}

fn commit(lane: &mut Lane, table: u64, model: &mut Model, rng: &mut Xoshiro256PlusPlus) {
    let mut tx = lane.begin();
    for _ in 0..rng.random_range(1..4) {
        let link = rng.random_range(0..LINKS);
        if rng.random_bool(0.3) {
            model::remove(&mut tx, table, link).unwrap();
            model.remove(&link);
            continue;
        }
        let bytes = match rng.random_range(0..40) {
            0 => rng.random_range(8200..12_000),
            1..4 => rng.random_range(700..2600),
            _ => rng.random_range(16..200),
        };
        let seed = rng.random();
        model::put(&mut tx, table, link, bytes, seed).unwrap();
        model.insert(link, (bytes, seed));
    }
    tx.commit().unwrap();
}

fn run(seed: u64, interval: Option<Duration>) -> Run {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let disk = SectorDisk::new(vec![0; (POOL_BYTES + RING_MIN_BYTES) as usize]);
    Journal::format(&disk, PLACE, RING_MIN_BYTES, RING_MIN_BYTES).unwrap();
    let journal = Journal::open(Box::new(disk.clone()), PLACE, interval).unwrap();
    let region = Region::journaled(&vec![0; POOL_BYTES as usize], POOL_BYTES, journal).unwrap();
    let mut pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let mut lanes = [pool.lane().unwrap(), pool.lane().unwrap()];
    let table = model::make_table(&mut lanes[0]).unwrap();
    pool.region().journal().unwrap().write_all_back().unwrap();
    disk.mark(0);
    let mut models = vec![Model::new()];
    while models.len() <= COMMITS {
        let mut model = models.last().unwrap().clone();
        let lane = &mut lanes[rng.random_range(0..2)];
        // Events of the disk before the commit returns may already leave the model after it.
        commit(lane, table, &mut model, &mut rng);
        models.push(model);
        if rng.random_range(0..25) == 0 {
            drop(lanes);
            if rng.random_bool(0.3) {
                // A closing: it leaves no records.
                pool.region().journal().unwrap().write_all_back().unwrap();
            }
            pool = kill_and_resume(pool, &disk, interval);
            lanes = [pool.lane().unwrap(), pool.lane().unwrap()];
            assert_eq!(&model::read(&pool).unwrap(), models.last().unwrap(), "a kill loses nothing");
        }
        let journal = pool.region().journal().unwrap();
        let promised = match rng.random_range(0..30) {
            0 => journal.make_durable().is_ok(),
            1 => journal.write_all_back().is_ok(),
            _ => interval.is_none(),
        };
        if promised {
            disk.mark(models.len() as u64 - 1);
        }
    }
    let written = |event: &DiskEvent| match event {
        DiskEvent::Write { off, bytes } if *off > PLACE.off => bytes.len() as u64,
        _ => 0,
    };
    let history = disk.history();
    let all: u64 = history.events.iter().map(written).sum();
    assert!(all > 2 * RING_MIN_BYTES, "the ring was turned");
    Run { history, models }
}

/// Ends the process, and goes on in the ring that it leaves.
fn kill_and_resume(pool: Pool, disk: &SectorDisk, interval: Option<Duration>) -> Pool {
    disk.cut_after(0);
    drop(pool);
    disk.mend();
    let records = Records::find(disk, PLACE).unwrap();
    let journal = Journal::resume(Box::new(disk.clone()), &records, interval).unwrap();
    let home = &disk.contents()[..POOL_BYTES as usize];
    Pool::open_in(Region::journaled(home, POOL_BYTES, journal).unwrap()).unwrap()
}

/// Recovers the file, with a cut at times, and opens the pool in it.
fn recover_pool(cuts: &mut PowerCuts<'_>, mut image: Vec<u8>) -> Pool {
    if cuts.chance(3) == 0 {
        image = cuts.cut_recovery(&image, |disk| recover(disk, PLACE).is_ok()).unwrap_or(image);
    }
    let disk = SectorDisk::new(image);
    recover(&disk, PLACE).unwrap();
    open(&disk.contents()[..POOL_BYTES as usize])
}

/// Tries images all along the history; returns how many it tried, or the fault of one.
fn try_images(run: &Run, wanted: u64, seed: u64) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(&run.history, seed);
    let (mut promised, mut tried) = (None, 0);
    let share = wanted as f64 / run.history.events.len() as f64;
    while let Some(event) = cuts.step() {
        if let DiskEvent::Mark(commit) = event {
            promised = Some(*commit as usize);
        }
        let Some(promised) = promised else { continue };
        let chosen = share as u64 + u64::from((cuts.chance(1 << 16) as f64) < share.fract() * 65536.0);
        for _ in 0..chosen {
            let image = cuts.image();
            let pool = recover_pool(&mut cuts, image);
            let found = model::read(&pool).map_err(|e| format!("after the promise of {promised}: {e}"))?;
            if !run.models[promised..].contains(&found) {
                return Err(format!("the table of no commit from {promised} on"));
            }
            // The recovered pool can be written to.
            let mut expected = found;
            let table = pool.roots().unwrap()[0].off;
            let mut lane = pool.lane().unwrap();
            commit(&mut lane, table, &mut expected, &mut Xoshiro256PlusPlus::seed_from_u64(tried));
            drop(lane);
            let written = model::read(&pool).map_err(|e| format!("writing after {promised}: {e}"))?;
            assert_eq!(written, expected);
            tried += 1;
        }
    }
    Ok(tried)
}

const MODES: [Option<Duration>; 2] = [None, Some(Duration::from_secs(3600))];

#[test]
fn a_power_failure_leaves_the_pool_after_a_commit_and_keeps_what_was_promised() {
    let wanted = wanted_images(1_000);
    for interval in MODES {
        let (mut tried, mut round) = (0, first_seed());
        while tried < wanted {
            let run = run(round, interval);
            tried += try_images(&run, wanted.min(20_000), round)
                .unwrap_or_else(|e| panic!("CRASHSIM_SEED={round}, {interval:?}: {e}"));
            round += 1;
        }
        println!("{interval:?}: {tried} images");
    }
}

/// The same test finds histories in which synchronisations are missing.
#[test]
fn without_its_synchronisations_a_pool_is_damaged_or_loses_commits() {
    for interval in MODES {
        let run = run(1, interval);
        let history = run.history.without_synchronisations_of(0..POOL_BYTES + RING_MIN_BYTES);
        let mutant = Run { history, models: run.models };
        // A damaged pool may be found in more than one way.
        let outcome = std::panic::catch_unwind(|| try_images(&mutant, 600, 1));
        assert!(!matches!(outcome, Ok(Ok(_))), "{interval:?}");
    }
}
