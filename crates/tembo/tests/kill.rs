//! A program that changes maps of both kinds and a hash table, killed with SIGKILL at any moment: what was
//! acknowledged is there, batches are whole, named snapshots are what they were, nothing is leaked, and the
//! next process goes on with the same file.
//!
//! `TEMBO_KILLS=2000 cargo test --release -p tembo --test kill -- --nocapture` is the long campaign;
//! `TEMBO_KILL_SEED` repeats one.
//!
//! One thread of the program performs operations that depend on the seed and their number alone; the parent
//! performs the same on a model. Beside it threads put numbers in order into a map of their own, and one
//! collects. Each says on standard error when something is durable.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tembo::{HashTable, Map, MapOptions, Options, Pool};

/// Where the child finds its pool; only a child has it.
const PATH: &str = "TEMBO_VERSIONS_STRESS_PATH";
const SEED: &str = "TEMBO_VERSIONS_STRESS_SEED";
const FIRST: &str = "TEMBO_VERSIONS_STRESS_FIRST";
const MUTANT: &str = "TEMBO_VERSIONS_STRESS_MUTANT";
/// Threads that put numbers, and how many keys each has.
const COUNTERS: usize = 2;
const COUNTER_KEYS: u64 = 40;
const NAMES: [&str; 3] = ["a", "b", "c"];

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// How the program is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    AcknowledgesTooEarly,
    BatchesInHalves,
}

/// The structures that have versions.
#[derive(Debug, Clone, Copy)]
enum Of {
    Map,
    Table,
}

type Edits = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug, Clone)]
enum Op {
    Put(Of, Vec<u8>, Vec<u8>),
    Remove(Of, Vec<u8>),
    /// In all maps, or in the hash table; begins with clearing what has versions if that is said.
    Batch {
        of: Of,
        edits: Edits,
        clears: bool,
    },
    Keep(Of, &'static str),
    Drop(Of, &'static str),
    Rollback(Of, &'static str),
    Clear(Of),
}

impl Op {
    /// The operation of this number.
    fn of(seed: u64, number: u64) -> Op {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let key = |rng: &mut Xoshiro256PlusPlus| format!("key {:03}", rng.random_range(0..300)).into_bytes();
        let value = |rng: &mut Xoshiro256PlusPlus| {
            let bytes = [0, 8, 30, 300, 2500][rng.random_range(0..5)];
            vec![number as u8; bytes]
        };
        let of = if rng.random_ratio(1, 3) { Of::Table } else { Of::Map };
        match rng.random_range(0..40) {
            0..14 => Op::Put(of, key(&mut rng), value(&mut rng)),
            14..18 => Op::Remove(of, key(&mut rng)),
            18..35 => {
                let count = rng.random_range(1..40);
                let mut edit = || (key(&mut rng), rng.random_bool(0.7).then(|| value(&mut rng)));
                let edits = (0..count).map(|_| edit()).collect();
                Op::Batch { of, edits, clears: rng.random_bool(0.05) }
            }
            35 | 36 => Op::Keep(of, NAMES[rng.random_range(0..3)]),
            37 => Op::Drop(of, NAMES[rng.random_range(0..3)]),
            38 => Op::Rollback(of, NAMES[rng.random_range(0..3)]),
            _ if number.is_multiple_of(3) => Op::Clear(of),
            _ => Op::Put(of, key(&mut rng), value(&mut rng)),
        }
    }
}

/// The contents of a structure with versions, and of its named snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
struct Versions {
    newest: Contents,
    kept: BTreeMap<String, Contents>,
}

/// The contents of the pool.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    versioned: Versions,
    table: Versions,
    other: Contents,
    plain: Contents,
}

fn edit(contents: &mut Contents, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => _ = contents.insert(key.to_vec(), value.to_vec()),
        None => _ = contents.remove(key),
    }
}

fn record(entry: Result<tembo::Entry<'_>, tembo::Error>) -> (Vec<u8>, Vec<u8>) {
    let entry = entry.expect("it can be read");
    (entry.key().to_vec(), entry.value().to_vec())
}

impl Model {
    fn of(&mut self, of: Of) -> &mut Versions {
        match of {
            Of::Map => &mut self.versioned,
            Of::Table => &mut self.table,
        }
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Put(of, key, value) => edit(&mut self.of(*of).newest, key, Some(value)),
            Op::Remove(of, key) => edit(&mut self.of(*of).newest, key, None),
            Op::Batch { of, edits, clears } => {
                if *clears {
                    self.of(*of).newest.clear();
                }
                for (key, value) in edits {
                    edit(&mut self.of(*of).newest, key, value.as_deref());
                    if let Of::Map = of {
                        edit(&mut self.other, key, value.as_deref());
                        edit(&mut self.plain, key, value.as_deref());
                    }
                }
            }
            Op::Keep(of, name) => {
                let Versions { newest, kept } = self.of(*of);
                kept.entry((*name).to_owned()).or_insert_with(|| newest.clone());
            }
            Op::Drop(of, name) => _ = self.of(*of).kept.remove(*name),
            Op::Rollback(of, name) => {
                let Versions { newest, kept } = self.of(*of);
                if let Some(contents) = kept.get(*name) {
                    *newest = contents.clone();
                }
            }
            Op::Clear(of) => self.of(*of).newest.clear(),
        }
    }

    fn read(maps: &Maps) -> Model {
        let (map, table) = (&maps.versioned, &maps.table);
        let contents = |records: tembo::Iter<'_>| -> Contents { records.map(record).collect() };
        let names = map.snapshots().expect("it keeps versions").into_iter().map(|kept| kept.name);
        let snapshot = |name: &str| contents(map.open_snapshot(name).expect("it was listed").iter());
        let names_of_table = table.snapshots().into_iter().map(|kept| kept.name);
        let snapshot_of_table = |name: &str| -> Contents {
            table.open_snapshot(name).expect("it was listed").iter().map(record).collect()
        };
        Model {
            versioned: Versions {
                newest: contents(map.iter()),
                kept: names.map(|name| (name.clone(), snapshot(&name))).collect(),
            },
            table: Versions {
                newest: table.snapshot().iter().map(record).collect(),
                kept: names_of_table.map(|name| (name.clone(), snapshot_of_table(&name))).collect(),
            },
            other: contents(maps.other.iter()),
            plain: contents(maps.plain.iter()),
        }
    }
}

struct Maps {
    pool: Pool,
    versioned: Map,
    table: HashTable,
    other: Map,
    plain: Map,
    counters: Map,
}

impl Maps {
    fn open(path: &Path) -> Result<Maps, tembo::Error> {
        let pool = Options::new().create(true).initial_bytes(4 << 20).open(path)?;
        let map = |name: &str, versioned| pool.open_map_with(name, MapOptions::new().versioned(versioned));
        let (versioned, other) = (map("versioned", true)?, map("other", true)?);
        let (plain, counters) = (map("plain", false)?, map("counters", true)?);
        let table = pool.open_hash_table("table")?;
        Ok(Maps { pool, versioned, table, other, plain, counters })
    }

    fn perform(&self, op: &Op, mutant: Mutant) -> Result<(), tembo::Error> {
        let (map, table) = (&self.versioned, &self.table);
        match op {
            Op::Put(Of::Map, key, value) => map.put(key, value).map(drop),
            Op::Put(Of::Table, key, value) => table.put(key, value).map(drop),
            Op::Remove(Of::Map, key) => map.remove(key).map(drop),
            Op::Remove(Of::Table, key) => table.remove(key).map(drop),
            Op::Batch { of: Of::Map, edits, clears } => self.perform_batch(edits, *clears, mutant),
            Op::Batch { of: Of::Table, edits, clears } => table.batch(|batch| {
                if *clears {
                    batch.clear()?;
                }
                for (key, value) in edits {
                    match value {
                        Some(value) => batch.put(key, value)?,
                        None => batch.remove(key)?,
                    };
                }
                Ok(())
            }),
            Op::Keep(Of::Map, name) => match map.open_snapshot(name) {
                Ok(_) => Ok(()),
                Err(_) => map.snapshot()?.keep(name),
            },
            Op::Keep(Of::Table, name) => match table.open_snapshot(name) {
                Ok(_) => Ok(()),
                Err(_) => table.snapshot().keep(name),
            },
            Op::Drop(Of::Map, name) => map.drop_snapshot(name).map(drop),
            Op::Drop(Of::Table, name) => table.drop_snapshot(name).map(drop),
            Op::Rollback(Of::Map, name) => match map.open_snapshot(name) {
                Ok(snapshot) => map.rollback_to(&snapshot).map(drop),
                Err(_) => Ok(()),
            },
            Op::Rollback(Of::Table, name) => match table.open_snapshot(name) {
                Ok(snapshot) => table.rollback_to(&snapshot).map(drop),
                Err(_) => Ok(()),
            },
            Op::Clear(Of::Map) => map.clear(),
            Op::Clear(Of::Table) => table.clear(),
        }
    }

    fn perform_batch(&self, edits: &Edits, clears: bool, mutant: Mutant) -> Result<(), tembo::Error> {
        let map = &self.versioned;
        let mut batch = self.pool.batch()?;
        if clears {
            batch.clear(map)?;
        }
        for (i, (key, value)) in edits.iter().enumerate() {
            if mutant == Mutant::BatchesInHalves && i == edits.len() / 2 {
                batch.commit()?;
                std::thread::sleep(Duration::from_micros(300));
                batch = self.pool.batch()?;
            }
            // Taken back at once.
            let savepoint = batch.savepoint();
            batch.pop_last(map)?;
            batch.rollback_to(savepoint);
            for map in [map, &self.other, &self.plain] {
                match value {
                    Some(value) => batch.put(map, key, value)?,
                    None => batch.remove(map, key)?,
                };
            }
        }
        batch.commit()
    }
}

/// Says on standard error that something is durable.
fn acknowledge(line: String) {
    // One write for each line, so that lines of different threads do not mix. Nobody listens any more when
    // the parent is gone.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Runs in the child, until it is killed.
#[test]
fn stress_program() {
    let Ok(path) = std::env::var(PATH) else { return };
    let number = |name| env_number(name).expect("the parent gives a number");
    let (seed, first) = (number(SEED), number(FIRST));
    let mutant = match number(MUTANT) {
        1 => Mutant::AcknowledgesTooEarly,
        2 => Mutant::BatchesInHalves,
        _ => Mutant::None,
    };
    let maps = Maps::open(Path::new(&path)).expect("the pool opens");
    std::thread::scope(|scope| {
        for thread in 0..COUNTERS {
            let counters = &maps.counters;
            scope.spawn(move || {
                let next = highest(counters, thread).map_or(0, |number| number + 1);
                for number in next.. {
                    let key = format!("{thread} {:02}", number % COUNTER_KEYS);
                    counters.put(key, number.to_le_bytes()).expect("there is room");
                    acknowledge(format!("counter {thread} {number}\n"));
                }
            });
        }
        scope.spawn(|| {
            loop {
                let _ = maps.versioned.collect(50).expect("the pool is sound");
                let _ = maps.table.collect(50).expect("the pool is sound");
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        for number in first.. {
            if mutant == Mutant::AcknowledgesTooEarly {
                acknowledge(format!("done {number}\n"));
            }
            maps.perform(&Op::of(seed, number), mutant).expect("there is room");
            if mutant != Mutant::AcknowledgesTooEarly {
                acknowledge(format!("done {number}\n"));
            }
        }
    });
}

/// The highest number that a thread has put.
fn highest(counters: &Map, thread: usize) -> Option<u64> {
    let numbers = counters.prefix(format!("{thread} ")).map(|entry| {
        u64::from_le_bytes(entry.expect("the map can be read").value().try_into().expect("a number"))
    });
    numbers.max()
}

struct Campaign<'c> {
    path: &'c Path,
    seed: u64,
    mutant: Mutant,
    rng: Xoshiro256PlusPlus,
    model: Model,
    /// Operations that were performed on the model.
    performed: u64,
    acknowledged: u64,
}

impl Campaign<'_> {
    fn start(&self) -> Child {
        Command::new(std::env::current_exe().expect("a test knows its program"))
            .args(["--exact", "stress_program", "--nocapture", "--test-threads", "1"])
            .env(PATH, self.path)
            .env(SEED, self.seed.to_string())
            .env(FIRST, self.performed.to_string())
            .env(MUTANT, (self.mutant as u8).to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child starts")
    }

    /// Runs the program for a while, kills it, and proves what it left.
    fn kill_once(&mut self) -> Result<(), String> {
        let patience = Duration::from_millis(self.rng.random_range(5..60));
        let mut child = self.start();
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let reader = std::thread::spawn(move || said.lines().map_while(Result::ok).collect::<Vec<_>>());
        std::thread::sleep(patience);
        child.kill().expect("SIGKILL is delivered");
        child.wait().expect("the child is gone");
        let said = reader.join().expect("lines are text");
        if let Some(line) = said.iter().find(|line| line.contains("panicked")) {
            return Err(format!("the program failed: {line}"));
        }
        if !self.path.exists() {
            return if said.is_empty() { Ok(()) } else { Err("acknowledged without a pool".to_owned()) };
        }
        self.check()?;
        let maps = Maps::open(self.path).map_err(|e| e.to_string())?;
        self.compare(&maps, &said)?;
        self.compare_counters(&maps.counters, &said)
    }

    /// `tembo check`, without the program.
    fn check(&self) -> Result<(), String> {
        let pool = Options::new().read_only(true).open(self.path).map_err(|e| e.to_string())?;
        pool.check().map(drop).map_err(|e| e.to_string())
    }

    /// The maps are as after the last operation that was acknowledged, or the one after that.
    fn compare(&mut self, maps: &Maps, said: &[String]) -> Result<(), String> {
        let done = said.iter().filter_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok()).max();
        let target = done.map_or(self.performed, |last| last + 1);
        while self.performed < target {
            self.model.perform(&Op::of(self.seed, self.performed));
            self.performed += 1;
            self.acknowledged += 1;
        }
        let found = Model::read(maps);
        if found == self.model {
            return Ok(());
        }
        self.model.perform(&Op::of(self.seed, self.performed));
        self.performed += 1;
        if found == self.model {
            return Ok(());
        }
        Err(format!("the maps are neither as before nor as after operation {}", self.performed - 1))
    }

    /// Each thread's numbers are there up to the last one that was acknowledged, or the one after that.
    fn compare_counters(&mut self, counters: &Map, said: &[String]) -> Result<(), String> {
        for thread in 0..COUNTERS {
            let prefix = format!("counter {thread} ");
            let last = said.iter().filter_map(|line| line.strip_prefix(&prefix)?.parse::<u64>().ok()).max();
            let highest = highest(counters, thread);
            let is_expected = last.is_none() || (last..=last.map(|last| last + 1)).contains(&highest);
            if !is_expected {
                return Err(format!("thread {thread} acknowledged {last:?}, and has put {highest:?}"));
            }
            self.acknowledged += said.iter().filter(|line| line.starts_with(&prefix)).count() as u64;
            let Some(highest) = highest else { continue };
            for number in highest.saturating_sub(COUNTER_KEYS - 1)..=highest {
                let key = format!("{thread} {:02}", number % COUNTER_KEYS);
                let value = counters.get(key).map_err(|e| e.to_string())?;
                if value.as_deref() != Some(&number.to_le_bytes()[..]) {
                    return Err(format!("thread {thread} has lost {number}"));
                }
            }
        }
        Ok(())
    }
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Kills until something is wrong; returns how much was acknowledged.
fn campaign(kills: u64, seed: u64, mutant: Mutant) -> Result<u64, String> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("kill.pool");
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let model = Model::default();
    let mut campaign = Campaign { path: &path, seed, mutant, rng, model, performed: 0, acknowledged: 0 };
    for kill in 0..kills {
        campaign.kill_once().map_err(|e| format!("kill {kill} of seed {seed}: {e}"))?;
    }
    Ok(campaign.acknowledged)
}

#[test]
fn acknowledged_changes_and_snapshots_survive_kill_9() {
    let kills = env_number("TEMBO_KILLS").unwrap_or(20);
    let seed = env_number("TEMBO_KILL_SEED").unwrap_or(0x7e3b1);
    let acknowledged = campaign(kills, seed, Mutant::None).unwrap_or_else(|e| panic!("{e}"));
    println!("{kills} kills (seed {seed}): {acknowledged} acknowledged changes, none lost");
    assert!(acknowledged > 20 * kills, "the load was too light to mean anything: {acknowledged}");
}

#[test]
fn broken_programs_are_caught() {
    for mutant in [Mutant::AcknowledgesTooEarly, Mutant::BatchesInHalves] {
        let caught = (0..5).find_map(|seed| campaign(40, seed, mutant).err());
        println!("{mutant:?}: {}", caught.unwrap_or_else(|| panic!("{mutant:?} was not caught")));
    }
}
