//! One engine, one run: what a child process does.
//!
//! The child inserts every key one by one, reads them all back, scans, and removes half of them; then it is
//! killed, and another child opens what is left and proves that exactly the acknowledged records are there.

use crate::engines::{Engine, Kind, Result, Setup};
use crate::workload::{Shape, Workload, shuffled};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use tembo_pmem::Durability;

/// The plan of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    /// How many records to insert.
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    /// How long each phase may take before it stops where it is.
    pub(crate) limit: Duration,
    /// When a write of ours is durable.
    pub(crate) durability: Durability,
}

/// How many records a scan visits.
pub(crate) const SCAN_RECORDS: usize = 100;
/// How many scans there are at most.
const SCANS: u64 = 20_000;
/// Operations between two looks at the clock.
const STRIDE: u64 = 64;
/// Distinguishes the random orders of the phases.
const LOOKUP_ORDER: u64 = 1;
const SCAN_ORDER: u64 = 2;
const REMOVE_ORDER: u64 = 3;

impl Plan {
    pub(crate) fn setup<'a>(&self, folder: &'a Path) -> Setup<'a> {
        let (key_bytes, value_bytes) = (self.shape.key_bytes(), self.shape.value_bytes());
        // Half-empty pages, superseded ones and whatever else an engine keeps.
        let capacity_bytes = 3 * self.keys * (key_bytes + value_bytes + 128) as u64 + (256 << 20);
        let capacity_bytes = capacity_bytes.next_multiple_of(1 << 21);
        Setup { folder, key_bytes, value_bytes, capacity_bytes, durability: self.durability }
    }
}

/// The cost of a phase.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) operations: u64,
    /// Wall time of an operation.
    pub(crate) ns: f64,
    /// Processor time of an operation, that of the engine's own threads included.
    pub(crate) cpu_ns: f64,
}

/// The measurements of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) settings: String,
    pub(crate) insert: Phase,
    /// How long the engine then took to settle.
    pub(crate) settle_ms: f64,
    pub(crate) lookup: Phase,
    /// Lookups in one snapshot, of engines that can.
    pub(crate) shared_lookup: Option<Phase>,
    pub(crate) scan: Phase,
    pub(crate) remove: Phase,
}

/// The findings of the child that opened the database after the kill.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reopened {
    /// From the call that opens it to the first lookup answered.
    pub(crate) open_ms: f64,
    /// How many records are there, each with its own value.
    pub(crate) records: u64,
}

/// Runs the whole plan in `folder`. The database is left open on purpose: its process is about to be killed.
pub(crate) fn measure(kind: &Kind, plan: &Plan, folder: &Path) -> Result<Measured> {
    let mut engine = (kind.open)(&plan.setup(folder))?;
    let measured = phases(engine.as_mut(), plan)?;
    std::mem::forget(engine);
    Ok(measured)
}

fn phases(engine: &mut dyn Engine, plan: &Plan) -> Result<Measured> {
    let mut workload = Workload::new(plan.shape, plan.seed);
    let insert = timed(plan.keys, plan.limit, |i| {
        let (key, value) = workload.record(i);
        engine.insert(key, value)
    })?;
    let begun = Instant::now();
    engine.settle()?;
    let settle_ms = begun.elapsed().as_secs_f64() * 1e3;

    let order = shuffled(insert.operations, plan.seed ^ LOOKUP_ORDER);
    let lookup = lookups(engine, plan, &mut workload, &order)?;
    for &index in &order[lookup.operations as usize..] {
        look_up(engine, &mut workload, index)?;
    }
    let shared_lookup = match engine.share_snapshot() {
        true => Some(lookups(engine, plan, &mut workload, &order)?),
        false => None,
    };
    let scan = scans(engine, plan, &mut workload, insert.operations)?;

    let order = shuffled(insert.operations, plan.seed ^ REMOVE_ORDER);
    let remove =
        timed(insert.operations / 2, plan.limit, |i| engine.remove(workload.key(order[i as usize].into())))?;
    Ok(Measured { settings: engine.settings(), insert, settle_ms, lookup, shared_lookup, scan, remove })
}

fn lookups(engine: &mut dyn Engine, plan: &Plan, workload: &mut Workload, order: &[u32]) -> Result<Phase> {
    timed(order.len() as u64, plan.limit, |i| look_up(engine, workload, order[i as usize]))
}

/// Looks a record up, and requires its value.
fn look_up(engine: &mut dyn Engine, workload: &mut Workload, index: u32) -> Result<()> {
    let mut right = false;
    let (key, value) = workload.record(index.into());
    let found = engine.get(key, &mut |stored| right = is_same(stored, value))?;
    if found && right {
        return Ok(());
    }
    Err(format!("record {index} {}", if found { "has another value" } else { "is lost" }).into())
}

/// Whether two values are the same. For words without a call, so that a lookup is most of what is executed.
#[inline(always)]
fn is_same(stored: &[u8], value: &[u8]) -> bool {
    match (<&[u8; 8]>::try_from(stored), <&[u8; 8]>::try_from(value)) {
        (Ok(stored), Ok(value)) => u64::from_ne_bytes(*stored) == u64::from_ne_bytes(*value),
        _ => stored == value,
    }
}

fn scans(engine: &mut dyn Engine, plan: &Plan, workload: &mut Workload, inserted: u64) -> Result<Phase> {
    let starts = shuffled(inserted, plan.seed ^ SCAN_ORDER);
    timed(SCANS.min(inserted), plan.limit, |i| {
        let mut bytes = 0;
        let from = workload.key(starts[i as usize].into());
        let met = engine.scan(from, SCAN_RECORDS, &mut |key, value| {
            bytes += usize::from(key[0]) + usize::from(value[0]);
        })?;
        black_box(bytes);
        if met == 0 { Err("a scan from a key that is there met nothing".into()) } else { Ok(()) }
    })
}

/// Opens the database that a killed process left, and requires exactly what that had acknowledged.
pub(crate) fn reopen(
    kind: &Kind,
    plan: &Plan,
    folder: &Path,
    inserted: u64,
    removed: u64,
) -> Result<Reopened> {
    let mut workload = Workload::new(plan.shape, plan.seed);
    let order = shuffled(inserted, plan.seed ^ REMOVE_ORDER);
    let (gone, left) = order.split_at(removed as usize);
    let begun = Instant::now();
    let mut engine = (kind.open)(&plan.setup(folder))?;
    match left.first() {
        Some(&index) => look_up(engine.as_mut(), &mut workload, index)?,
        None => return Err("nothing was left to be found".into()),
    }
    let open_ms = begun.elapsed().as_secs_f64() * 1e3;
    walk(engine.as_mut(), &mut workload, left)?;
    for &index in gone {
        if engine.get(workload.key(index.into()), &mut |_| ())? {
            return Err(format!("record {index} was removed and is there").into());
        }
    }
    Ok(Reopened { open_ms, records: left.len() as u64 })
}

/// Requires that the records are those of `indexes`, in order, and no others.
fn walk(engine: &mut dyn Engine, workload: &mut Workload, indexes: &[u32]) -> Result<()> {
    let mut expected: Vec<(u64, u32)> = indexes.iter().map(|&i| (workload.number(i.into()), i)).collect();
    expected.sort_unstable();
    let lowest = vec![0; workload.key(0).len()];
    let (mut at, mut wrong) = (0, None);
    engine.scan(&lowest, usize::MAX, &mut |key, value| {
        let same = expected.get(at).is_some_and(|&(_, index)| workload.record(index.into()) == (key, value));
        if !same {
            wrong.get_or_insert(at);
        }
        at += 1;
    })?;
    match wrong {
        None if at == expected.len() => Ok(()),
        None => Err(format!("{at} records where {} were acknowledged", expected.len()).into()),
        Some(place) => Err(format!("record {place} of the walk is not the one that was acknowledged").into()),
    }
}

/// Calls `operation` with 0, 1, ... up to `count` times, or until `limit` has passed.
pub(crate) fn timed(
    count: u64,
    limit: Duration,
    mut operation: impl FnMut(u64) -> Result<()>,
) -> Result<Phase> {
    let cpu_begun = cpu_time();
    let begun = Instant::now();
    let mut done = 0;
    while done < count && begun.elapsed() < limit {
        let end = count.min(done + STRIDE);
        for i in done..end {
            operation(i)?;
        }
        done = end;
    }
    let (wall, cpu) = (begun.elapsed(), cpu_time() - cpu_begun);
    let each = |time: Duration| time.as_secs_f64() * 1e9 / done.max(1) as f64;
    Ok(Phase { operations: done, ns: each(wall), cpu_ns: each(cpu) })
}

/// Processor time of this process so far, all threads together.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;
    use std::collections::BTreeMap;

    const KEYS: u64 = 1000;

    /// On tmpfs where there is one: thousands of syncs take long on a disk.
    fn folder() -> tempfile::TempDir {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() }
            .unwrap()
    }

    fn plan(shape: Shape) -> Plan {
        let limit = Duration::from_secs(600);
        Plan { shape, keys: KEYS, seed: 11, limit, durability: Durability::Emulated }
    }

    /// As a run, but closes the database where a run has its process killed.
    fn measure_and_close(kind: &Kind, plan: &Plan, folder: &Path) -> Measured {
        let mut engine = (kind.open)(&plan.setup(folder)).unwrap();
        phases(engine.as_mut(), plan).unwrap()
    }

    #[test]
    fn every_engine_keeps_what_it_acknowledged_in_every_shape() {
        for shape in [Shape::Words, Shape::Strings, Shape::Strings100, Shape::Kib] {
            let plan = plan(shape);
            let fitting =
                engines::all().into_iter().filter(|k| (k.fits)(shape.key_bytes(), shape.value_bytes()));
            for kind in fitting {
                let folder = folder();
                let measured = measure_and_close(&kind, &plan, folder.path());
                assert_eq!(
                    (measured.insert.operations, measured.remove.operations),
                    (KEYS, KEYS / 2),
                    "{}",
                    kind.name
                );
                let reopened = reopen(&kind, &plan, folder.path(), KEYS, KEYS / 2);
                assert_eq!(reopened.unwrap().records, KEYS / 2, "{}, {shape:?}", kind.name);
            }
        }
    }

    #[test]
    fn every_engine_is_an_ordered_map() {
        for shape in [Shape::Words, Shape::Strings] {
            let plan = plan(shape);
            let fits = |kind: &engines::Kind| (kind.fits)(shape.key_bytes(), shape.value_bytes());
            for kind in engines::all().into_iter().filter(fits) {
                let folder = folder();
                let mut engine = (kind.open)(&plan.setup(folder.path())).unwrap();
                let mut workload = Workload::new(shape, 5);
                let mut model = BTreeMap::new();
                let steps = shuffled(8 * 400, 9).into_iter().map(|step| u64::from(step % 400));
                for index in steps.chain(0..400) {
                    let (key, value) = workload.record(index);
                    if model.remove(key).is_some() {
                        engine.remove(key).unwrap();
                    } else {
                        engine.insert(key, value).unwrap();
                        model.insert(key.to_vec(), value.to_vec());
                    }
                    let mut stored = Vec::new();
                    engine.scan(key, 30, &mut |k, v| stored.push((k.to_vec(), v.to_vec()))).unwrap();
                    let expected = model.range(key.to_vec()..).take(30);
                    assert!(stored.iter().map(|(k, v)| (k, v)).eq(expected), "{}, {shape:?}", kind.name);
                }
                for key in std::mem::take(&mut model).into_keys() {
                    engine.remove(&key).unwrap();
                    assert!(!engine.get(&key, &mut |_| ()).unwrap(), "{}", kind.name);
                }
                assert_eq!(
                    engine.scan(&vec![0; shape.key_bytes()], 1, &mut |_, _| ()).unwrap(),
                    0,
                    "{}",
                    kind.name
                );
            }
        }
    }

    #[test]
    fn a_record_too_many_or_too_few_is_found() {
        let plan = plan(Shape::Words);
        let kind = &engines::all()[0];
        let folder = folder();
        measure_and_close(kind, &plan, folder.path());
        for (inserted, removed) in [(KEYS, KEYS / 2 - 1), (KEYS, KEYS / 2 + 1), (KEYS - 1, KEYS / 2)] {
            assert!(reopen(kind, &plan, folder.path(), inserted, removed).is_err(), "{inserted}, {removed}");
        }
    }

    #[test]
    fn a_phase_that_is_out_of_time_counts_what_it_did() {
        let phase = timed(1_000_000, Duration::from_millis(20), |_| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        });
        let phase = phase.unwrap();
        assert!(phase.operations >= STRIDE && phase.operations < 1000, "{}", phase.operations);
        assert!(phase.ns >= 1e6, "{}", phase.ns);
    }
}
