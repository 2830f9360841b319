//! Power failures of a pool on a disk with a journal, with every kind of map and a store in it: any subset of
//! the sectors that were not synchronised.
//!
//! `CRASHSIM_IMAGES=100000 cargo test --release -p tembo-server --lib power` is the long form.

use std::collections::BTreeMap;
use std::time::Duration;

use tembo::MapOptions;
use tembo_crashsim::{DiskEvent, History, PowerCuts, SectorDisk};
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, recover};
use tembo_pool::{Geometry, Pool};

const POOL_BYTES: u64 = 4 << 20;
const RING_BYTES: u64 = 256 << 10;
const PLACE: JournalPlace = JournalPlace { off: POOL_BYTES, seed: 7 };
const COMMITS: usize = 300;
const KINDS: u64 = 5;

/// Kind and key, and the value.
type Model = BTreeMap<(u64, u64), Vec<u8>>;

struct Run {
    history: History,
    /// The contents after each commit.
    models: Vec<Model>,
}

struct Structures {
    pool: tembo::Pool,
    plain: tembo::Map,
    versioned: tembo::Map,
    table: tembo::HashTable,
    fixed: tembo::FixedMap,
    store: tembo::store::Store,
    keyspace: tembo::store::Keyspace,
}

impl Structures {
    fn open(pool: Pool) -> tembo::Result<Structures> {
        let pool = tembo::Pool::from_pool(pool);
        let store = pool.open_store("s")?;
        Ok(Structures {
            plain: pool.open_map("plain")?,
            versioned: pool.open_map_with("versioned", MapOptions::new().versioned(true))?,
            table: pool.open_hash_table("table")?,
            fixed: pool.open_fixed_map("fixed")?,
            keyspace: store.keyspace("k")?,
            store,
            pool,
        })
    }

    fn put(&self, kind: u64, key: u64, value: &[u8]) -> tembo::Result<()> {
        let name = key.to_be_bytes();
        match kind {
            0 => self.plain.put(name, value).map(drop),
            1 => self.versioned.put(name, value).map(drop),
            2 => self.table.put(name, value).map(drop),
            3 => self.fixed.put(key, value.len() as u64).map(drop),
            _ => Ok(self.store.put(&self.keyspace, name, value).map(|_| ())?),
        }
    }

    fn remove(&self, kind: u64, key: u64) -> tembo::Result<()> {
        let name = key.to_be_bytes();
        match kind {
            0 => self.plain.remove(name).map(drop),
            1 => self.versioned.remove(name).map(drop),
            2 => self.table.remove(name).map(drop),
            3 => self.fixed.remove(key).map(drop),
            _ => Ok(self.store.delete(&self.keyspace, name).map(|_| ())?),
        }
    }

    fn get(&self, kind: u64, key: u64) -> tembo::Result<Option<Vec<u8>>> {
        let name = key.to_be_bytes();
        Ok(match kind {
            0 => self.plain.get(name)?.map(|value| value.to_vec()),
            1 => self.versioned.get(name)?.map(|value| value.to_vec()),
            2 => self.table.get(name)?.map(|value| value.to_vec()),
            3 => self.fixed.get(key)?.map(|length| vec![0; length as usize]),
            _ => self.store.get(&self.keyspace, name)?,
        })
    }

    fn read(&self) -> tembo::Result<Model> {
        let mut model = Model::new();
        for (kind, key) in (0..KINDS).flat_map(|kind| (0..KEYS).map(move |key| (kind, key))) {
            if let Some(value) = self.get(kind, key)? {
                model.insert((kind, key), value);
            }
        }
        Ok(model)
    }
}

const KEYS: u64 = 60;

fn run(seed: u64, interval: Option<Duration>) -> Run {
    let mut chance = crate::random::Random::seeded(seed);
    let disk = SectorDisk::new(vec![0; (POOL_BYTES + RING_BYTES) as usize]);
    Journal::format(&disk, PLACE, RING_BYTES, RING_BYTES).unwrap();
    let journal = Journal::open(Box::new(disk.clone()), PLACE, interval).unwrap();
    let region = Region::journaled(&vec![0; POOL_BYTES as usize], POOL_BYTES, journal).unwrap();
    let low = Pool::create_in(region, &Geometry { lane_count: 16, ..Geometry::tiny() }).unwrap();
    let structures = Structures::open(low.clone()).unwrap();
    structures.pool.make_durable().unwrap();
    disk.mark(0);
    let mut models = vec![Model::new()];
    while models.len() <= COMMITS {
        let mut model = models.last().unwrap().clone();
        let (kind, key) = (chance.below(KINDS), chance.below(KEYS));
        if chance.below(4) == 0 {
            structures.remove(kind, key).unwrap();
            model.remove(&(kind, key));
        } else {
            let bytes = if chance.below(10) == 0 { 900 + chance.below(2000) } else { 1 + chance.below(90) };
            let filler = if kind == 3 { 0 } else { chance.below(256) as u8 };
            let value = vec![filler; bytes as usize];
            structures.put(kind, key, &value).unwrap();
            model.insert((kind, key), value);
        }
        models.push(model);
        let promised = match chance.below(30) {
            0 => structures.pool.make_durable().is_ok(),
            1 => low.journal().unwrap().write_all_back().is_ok(),
            _ => interval.is_none(),
        };
        if promised {
            disk.mark(models.len() as u64 - 1);
        }
    }
    Run { history: disk.history(), models }
}

fn try_images(run: &Run, wanted: u64, seed: u64) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(&run.history, seed);
    let (mut promised, mut tried) = (None, 0);
    let share = (run.history.events.len() as u64 / wanted).max(1) as usize;
    while let Some(event) = cuts.step() {
        if let DiskEvent::Mark(commit) = event {
            promised = Some(*commit as usize);
        }
        let Some(promised) = promised.filter(|_| cuts.chance(share) == 0) else { continue };
        let disk = SectorDisk::new(cuts.image());
        recover(&disk, PLACE).map_err(|e| e.to_string())?;
        let home = &disk.contents()[..POOL_BYTES as usize];
        let region = Region::simulated(home, POOL_BYTES, None).map_err(|e| e.to_string())?;
        let at = |e: &dyn std::fmt::Display| format!("after the promise of {promised}: {e}");
        let low = Pool::open_in(region).map_err(|e| at(&e))?;
        let structures = Structures::open(low).map_err(|e| at(&e))?;
        structures.pool.check().map_err(|e| at(&e))?;
        let found = structures.read().map_err(|e| at(&e))?;
        if !run.models[promised..].contains(&found) {
            return Err(format!("the contents of no commit from {promised} on"));
        }
        // The recovered pool can be written to.
        (0..KINDS).try_for_each(|kind| structures.put(kind, 1, b"more")).map_err(|e| at(&e))?;
        tried += 1;
    }
    Ok(tried)
}

const MODES: [Option<Duration>; 2] = [None, Some(Duration::from_secs(3600))];

#[test]
fn a_power_failure_leaves_every_structure_after_a_commit_and_keeps_what_was_promised() {
    let wanted = std::env::var("CRASHSIM_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    for interval in MODES {
        let (mut tried, mut round) = (0, 1);
        while tried < wanted {
            let run = run(round, interval);
            tried += try_images(&run, wanted.min(2000), round)
                .unwrap_or_else(|e| panic!("round {round}, {interval:?}: {e}"));
            round += 1;
        }
        println!("{interval:?}: {tried} images");
    }
}

/// The structure is damaged or loses commits if records, or lines at home, are not synchronised.
#[test]
fn without_its_synchronisations_a_structure_is_damaged_or_loses_commits() {
    for part in [PLACE.off + 8192..PLACE.off + RING_BYTES, 0..PLACE.off] {
        let noticed = (1..20).any(|round| {
            let run = run(round, None);
            let history = run.history.without_synchronisations_of(part.clone());
            try_images(&Run { history, models: run.models }, 300, round).is_err()
        });
        assert!(noticed, "not noticed: {part:?}");
    }
}
