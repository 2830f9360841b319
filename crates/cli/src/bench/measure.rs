//! Measures maps side by side.
//!
//! Every round measures every subject, so that a disturbance of the machine meets all of them, and the median
//! of the rounds counts. The sum of all values found is compared, so that the compiler cannot remove a
//! lookup, and a map that loses records does not seem fast. Counts of words, lines and fences are from a
//! separate run, because counting takes time.

use super::engine::{Engine, KEY_BYTES, Key, PoolMap, StandardMap};
use super::workload::Random;
use crate::args::Bench;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::unfinished::Passing;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use tembo::{Durability, MapOptions};

/// Entries that become durable together in the phase that measures that.
const GROUP: usize = 32;
/// Entries of the run that counts.
const COUNTED_ENTRIES: usize = 100_000;

/// The results of all phases.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(super) entries: usize,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) rounds: u64,
    /// The maps; the others are compared with the first.
    pub(super) subjects: Vec<String>,
    pub(super) phases: Vec<PhaseResult>,
    pub(super) counts: Vec<CountResult>,
}

/// The medians of one phase.
#[derive(Debug, Serialize)]
pub(crate) struct PhaseResult {
    pub(super) phase: &'static str,
    /// Per operation, in the order of the subjects.
    pub(super) ns: Vec<f64>,
    /// Times of the first subject.
    pub(super) ratio: Vec<f64>,
}

/// The cost of one phase per operation, the same on every machine.
#[derive(Debug, Serialize)]
pub(crate) struct CountResult {
    pub(super) phase: &'static str,
    pub(super) fences: f64,
    pub(super) lines: f64,
    pub(super) words: f64,
}

/// The entries in random order, and another order to visit them in.
struct Workset {
    entries: Vec<(Key, u64)>,
    visits: Vec<u32>,
    sum: u64,
}

/// A part of the measurement: its name, whether it changes the map, and what is done.
struct Phase {
    name: &'static str,
    changes: bool,
    run: fn(&mut dyn Engine, &Workset) -> Outcome,
}

const PHASES: &[Phase] = &[
    Phase { name: "insert", changes: true, run: insert },
    Phase { name: "lookup", changes: false, run: lookup },
    Phase { name: "scan", changes: false, run: scan },
    Phase { name: "replace", changes: true, run: replace },
    Phase { name: "remove", changes: true, run: remove },
    Phase { name: "insert, 32 together", changes: true, run: insert_together },
];

/// Measures what the arguments ask for.
pub(super) fn run(arguments: &Bench) -> Outcome<Results> {
    let entries = usize::try_from(arguments.entries).ok().filter(|n| *n <= u32::MAX as usize);
    let entries = entries.ok_or_else(|| Failure::Usage("--entries is at most 4294967295".to_owned()))?;
    let workset = Workset::new(arguments.seed, entries);
    let directory = temporary_directory(arguments.dir.as_deref())?;
    // A signal that ends the process does not drop anything.
    let _passing = Passing::directory(directory.path());
    let durabilities = match arguments.choices.durability {
        Durability::Auto => vec![Durability::PageCache, Durability::Emulated],
        chosen => vec![chosen],
    };
    let subjects: Vec<Option<Durability>> =
        [None].into_iter().chain(durabilities.iter().copied().map(Some)).collect();

    let mut progress =
        Progress::new("measuring", Some(arguments.rounds * subjects.len() as u64 * PHASES.len() as u64));
    let mut times = vec![vec![Vec::new(); subjects.len()]; PHASES.len()];
    for _ in 0..arguments.rounds {
        for (subject, durability) in subjects.iter().enumerate() {
            let pool_path = directory.path().join("bench.pool");
            let kind = MapOptions::new().versioned(arguments.versioned);
            let mut engine: Box<dyn Engine> = match durability {
                None => Box::new(StandardMap::default()),
                Some(durability) => {
                    Box::new(PoolMap::create(&pool_path, &arguments.choices, *durability, kind, false)?)
                }
            };
            for (phase, times) in PHASES.iter().zip(&mut times) {
                let begun = Instant::now();
                (phase.run)(&mut *engine, &workset)?;
                times[subject].push(begun.elapsed().as_nanos() as f64 / entries as f64);
                progress.show();
            }
            drop(engine);
            remove_pool(&pool_path)?;
        }
    }
    let counted = Workset::new(arguments.seed, entries.min(COUNTED_ENTRIES));
    let counts = count(arguments, directory.path(), durabilities[0], &counted)?;
    let name = |subject: &Option<Durability>| match subject {
        None => "BTreeMap".to_owned(),
        Some(durability) if arguments.versioned => format!("{durability}, versioned"),
        Some(durability) => durability.to_string(),
    };
    Ok(Results {
        entries,
        key_bytes: KEY_BYTES,
        value_bytes: size_of::<u64>(),
        rounds: arguments.rounds,
        subjects: subjects.iter().map(name).collect(),
        phases: PHASES.iter().zip(times).map(|(phase, times)| summarise(phase.name, times)).collect(),
        counts,
    })
}

fn temporary_directory(parent: Option<&Path>) -> Outcome<tempfile::TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let doing = format!("making a directory in {}", parent.display());
    tempfile::Builder::new().prefix("tembo-bench-").tempdir_in(parent).map_err(Failure::during(doing))
}

fn remove_pool(path: &Path) -> Outcome {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::during(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

fn count(
    arguments: &Bench,
    directory: &Path,
    durability: Durability,
    workset: &Workset,
) -> Outcome<Vec<CountResult>> {
    let path = directory.join("count.pool");
    let mut engine = PoolMap::create(
        &path,
        &arguments.choices,
        durability,
        MapOptions::new().versioned(arguments.versioned),
        true,
    )?;
    let mut results = Vec::new();
    for phase in PHASES {
        let before = tembo::snapshot();
        (phase.run)(&mut engine, workset)?;
        let spent = tembo::snapshot() - before;
        if phase.changes {
            let each = |total: u64| total as f64 / workset.entries.len() as f64;
            results.push(CountResult {
                phase: phase.name,
                fences: each(spent.fences),
                lines: each(spent.lines),
                words: each(spent.words),
            });
        }
    }
    Ok(results)
}

fn summarise(phase: &'static str, times: Vec<Vec<f64>>) -> PhaseResult {
    let ns: Vec<f64> = times.into_iter().map(median).collect();
    let ratio = ns.iter().map(|time| time / ns[0]).collect();
    PhaseResult { phase, ns, ratio }
}

/// The middle value, or the mean of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

impl Workset {
    fn new(seed: u64, entries: usize) -> Workset {
        let mut random = Random::new(seed);
        let entries: Vec<(Key, u64)> =
            (0..entries as u64).map(|index| (random_key(&mut random, index), index)).collect();
        let mut visits: Vec<u32> = (0..entries.len() as u32).collect();
        for last in (1..visits.len()).rev() {
            visits.swap(last, random.below(last as u64 + 1) as usize);
        }
        let sum = entries.iter().map(|(_, value)| value).sum();
        Workset { entries, visits, sum }
    }
}

/// Random bytes and then the index, so that no two keys are equal.
fn random_key(random: &mut Random, index: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&random.next().to_be_bytes());
    key[8..12].copy_from_slice(&random.next().to_be_bytes()[..4]);
    key[12..].copy_from_slice(&index.to_be_bytes());
    key
}

fn insert(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    workset.entries.iter().try_for_each(|(key, value)| engine.put(key, *value))
}

fn insert_together(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    workset.entries.chunks(GROUP).try_for_each(|group| engine.put_together(group))
}

fn lookup(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    let mut sum = 0_u64;
    for visit in &workset.visits {
        sum = sum.wrapping_add(engine.get(&workset.entries[*visit as usize].0)?.unwrap_or(u64::MAX));
    }
    agree("lookups", sum, workset.sum)
}

fn scan(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    agree("a scan", engine.scan()?, workset.sum)
}

fn replace(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    workset.visits.iter().try_for_each(|visit| {
        let (key, value) = &workset.entries[*visit as usize];
        engine.put(key, !*value)
    })
}

fn remove(engine: &mut dyn Engine, workset: &Workset) -> Outcome {
    let mut removed = 0;
    for visit in &workset.visits {
        removed += u64::from(engine.remove(&workset.entries[*visit as usize].0)?);
    }
    agree("removals", removed, workset.entries.len() as u64)
}

fn agree(what: &str, found: u64, expected: u64) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{what} found other entries than were inserted (sum {found}, not {expected})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PoolChoices;

    #[test]
    fn the_median_is_not_moved_by_an_outlier() {
        assert_eq!(median(vec![3.0, 1.0, 900.0]), 3.0);
        assert_eq!(median(vec![4.0, 2.0]), 3.0);
    }

    #[test]
    fn ratios_are_relative_to_the_first_subject() {
        let result = summarise("insert", vec![vec![2.0], vec![3.0, 5.0, 4.0]]);
        assert_eq!((result.ns, result.ratio), (vec![2.0, 4.0], vec![1.0, 2.0]));
    }

    #[test]
    fn visits_are_a_permutation() {
        let workset = Workset::new(1, 1000);
        let mut visits = workset.visits.clone();
        assert!(visits.iter().enumerate().filter(|(at, v)| *at as u32 == **v).count() < 50);
        visits.sort_unstable();
        assert!(visits.into_iter().eq(0..1000));
        assert_eq!(workset.sum, 999 * 1000 / 2);
    }

    #[test]
    fn every_phase_works_on_both_maps_and_notices_a_forgetful_one() {
        struct Forgetful(StandardMap);
        impl Engine for Forgetful {
            fn put(&mut self, key: &Key, value: u64) -> Outcome {
                if value == 500 { Ok(()) } else { self.0.put(key, value) }
            }
            fn put_together(&mut self, entries: &[(Key, u64)]) -> Outcome {
                self.0.put_together(entries)
            }
            fn get(&self, key: &Key) -> Outcome<Option<u64>> {
                self.0.get(key)
            }
            fn remove(&mut self, key: &Key) -> Outcome<bool> {
                self.0.remove(key)
            }
            fn scan(&self) -> Outcome<u64> {
                self.0.scan()
            }
        }
        let workset = Workset::new(1, 1000);
        let directory = tempfile::tempdir().unwrap();
        let choices = PoolChoices {
            durability: Durability::Auto,
            journal_bytes: None,
            private_bytes_max: None,
            flush: None,
            no_non_temporal: false,
            prefault: false,
            huge_pages: false,
            accept_unclean: false,
        };
        let path = directory.path().join("a.pool");
        let pool = PoolMap::create(&path, &choices, Durability::PageCache, MapOptions::new(), false).unwrap();
        let mut engines: [Box<dyn Engine>; 2] = [Box::new(StandardMap::default()), Box::new(pool)];
        for engine in &mut engines {
            PHASES.iter().for_each(|phase| (phase.run)(&mut **engine, &workset).unwrap());
        }
        let mut forgetful = Forgetful(StandardMap::default());
        insert(&mut forgetful, &workset).unwrap();
        for phase in [lookup, scan, remove] {
            assert!(phase(&mut forgetful, &workset).is_err());
        }
    }
}
