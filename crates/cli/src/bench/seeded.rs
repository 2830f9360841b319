//! `tembo bench --seeded`: the workload that outside tools crash, and the proof of what is left of it.
//!
//! The operations (see `workload`) go to one map; another map holds the seed and the number of operations
//! that were done. Both change in the same batch, so the pool always says itself which state it must be in.
//! That number is not below the number that was acknowledged on standard output.

use super::workload::{self, Change, Model};
use crate::args::Bench;
use crate::failure::{Failure, Kind, Outcome};
use crate::maps::note_unknown;
use crate::unclean;
use std::io::Write;
use std::path::Path;
use tembo::{Batch, Geometry, Map, Options, Pool, Quoted};

const DATA: &str = "seeded.data";
const POSITION: &str = "seeded.position";
/// The keys of the position map; their values are 8 bytes, little-endian.
const SEED_KEY: &[u8] = b"seed";
const DONE_KEY: &[u8] = b"done";

/// Smaller pools are divided into smaller parts.
const SMALL_POOL_BYTES: u64 = 16 << 20;

/// Runs the workload, saying after each operation how many are durable.
pub(crate) fn run(arguments: &Bench, path: &Path, options: &Options) -> Outcome {
    let bytes = arguments.pool_bytes.bytes;
    let mut options = options.clone().initial_bytes(bytes).max_bytes(bytes);
    if bytes < SMALL_POOL_BYTES {
        options = options.geometry(Geometry::tiny());
    }
    if !arguments.resume && path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(Failure::Failed(format!(
            "{path} exists already; choose another path, or add --resume to go on with the workload in it"
        )));
    }
    let pool = unclean::open(&options.create(arguments.resume).create_new(!arguments.resume), path)?;
    note_unknown(&pool)?;
    require_own(&pool, path)?;
    let workload = Workload { data: pool.open_map(DATA)?, position: pool.open_map(POSITION)? };
    let begin = workload.position(arguments.seed)?;
    let mut out = std::io::stdout().lock();
    for number in begin..arguments.ops.max(begin) {
        workload.perform(&pool, arguments.seed, number)?;
        // The whole line at once: its reader may kill this process now, and the operation counts as promised.
        writeln!(out, "acked {}", number + 1).and_then(|()| out.flush()).map_err(Failure::output)?;
    }
    Ok(())
}

/// Refuses a pool that holds anything but the workload: its maps would be mixed with the others.
fn require_own(pool: &Pool, path: &Path) -> Outcome {
    match pool.list()?.iter().find(|listed| listed.name != DATA && listed.name != POSITION) {
        None => Ok(()),
        Some(listed) => Err(Failure::Failed(format!(
            "{} is not a pool of `tembo bench --seeded`: it holds {}; choose another path",
            path.display(),
            Quoted(&listed.name)
        ))),
    }
}

/// The maps of the workload.
struct Workload {
    data: Map,
    position: Map,
}

impl Workload {
    /// How many operations the pool says were done.
    fn position(&self, seed: u64) -> Outcome<u64> {
        let Some(done) = number_at(&self.position, DONE_KEY)? else { return Ok(0) };
        match number_at(&self.position, SEED_KEY)? {
            Some(found) if found == seed => Ok(done),
            found => {
                let found = found.map_or("none".to_owned(), |seed| seed.to_string());
                let text = format!("the pool holds the workload of seed {found}, not of seed {seed}");
                Err(Failure::Store(Kind::Damaged, text))
            }
        }
    }

    fn perform(&self, pool: &Pool, seed: u64, number: u64) -> Outcome {
        let mut batch = pool.batch()?;
        for change in workload::operation(seed, number) {
            self.apply(&mut batch, &change)?;
        }
        batch.put(&self.position, SEED_KEY, &seed.to_le_bytes())?;
        batch.put(&self.position, DONE_KEY, &(number + 1).to_le_bytes())?;
        Ok(batch.commit()?)
    }

    fn apply(&self, batch: &mut Batch<'_>, change: &Change) -> Outcome {
        match change {
            Change::Put(key, value) => batch.put(&self.data, key, value).map(drop)?,
            Change::Remove(key) => batch.remove(&self.data, key).map(drop)?,
            Change::Clear => batch.clear(&self.data)?,
        }
        Ok(())
    }
}

fn number_at(map: &Map, key: &[u8]) -> Outcome<Option<u64>> {
    let Some(value) = map.get(key)? else { return Ok(None) };
    let bytes: [u8; 8] = value[..].try_into().map_err(|_| {
        let text = format!("the workload's position has {} bytes instead of 8", value.len());
        Failure::Store(Kind::Damaged, text)
    })?;
    Ok(Some(u64::from_le_bytes(bytes)))
}

/// Requires that the pool holds the state after `acknowledged` operations, or after one more: an operation
/// may be durable before its line was printed. Returns after how many.
pub(crate) fn verify(pool: &Pool, seed: u64, acknowledged: u64) -> Outcome<u64> {
    let (done, contents) = match (pool.find_map(DATA)?, pool.find_map(POSITION)?) {
        (Some(data), Some(position)) => {
            let workload = Workload { data, position };
            (workload.position(seed)?, contents(&workload.data)?)
        }
        // The maps are made before the first operation.
        _ => (0, Model::new()),
    };
    if done < acknowledged || done > acknowledged + 1 {
        let verb = if done < acknowledged {
            "lost acknowledged operations"
        } else {
            "holds operations nobody asked for"
        };
        let text = format!("the pool {verb}: {acknowledged} were acknowledged, {done} are in it");
        return Err(Failure::Store(Kind::Damaged, text));
    }
    match first_difference(&workload::model_after(seed, done), &contents) {
        None => Ok(done),
        Some(difference) => Err(Failure::Store(
            Kind::Damaged,
            format!(
                "the pool does not hold the state after its {done} operations (seed {seed}): {difference}"
            ),
        )),
    }
}

fn contents(map: &Map) -> Outcome<Model> {
    let mut contents = Model::new();
    for entry in map.iter() {
        let entry = entry?;
        contents.insert(entry.key().to_vec(), entry.value().to_vec());
    }
    Ok(contents)
}

/// The first difference, in order of keys.
fn first_difference(expected: &Model, found: &Model) -> Option<String> {
    let keys = expected.keys().chain(found.keys());
    let key = keys.filter(|key| expected.get(*key) != found.get(*key)).min()?;
    let show = |value: Option<&Vec<u8>>| {
        value.map_or("nothing".to_owned(), |v| format!("{} bytes \"{}\"", v.len(), begin(v)))
    };
    Some(format!(
        "key \"{}\": expected {}, found {}",
        begin(key),
        show(expected.get(key)),
        show(found.get(key))
    ))
}

/// The first bytes, readable.
fn begin(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 24;
    let more = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
    format!("{}{more}", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_after(directory: &tempfile::TempDir, seed: u64, operations: u64) -> Pool {
        let pool = Options::new().create(true).open(directory.path().join("a.pool")).unwrap();
        let workload =
            Workload { data: pool.open_map(DATA).unwrap(), position: pool.open_map(POSITION).unwrap() };
        for number in workload.position(seed).unwrap()..operations {
            workload.perform(&pool, seed, number).unwrap();
        }
        pool
    }

    fn message(outcome: Outcome<u64>) -> String {
        outcome.expect_err("the check passed").to_string()
    }

    #[test]
    fn the_state_after_the_acknowledged_operations_or_one_more_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        for operations in [0, 1, 100] {
            let pool = pool_after(&directory, 3, operations);
            assert_eq!(verify(&pool, 3, operations).unwrap(), operations);
            if operations > 0 {
                assert_eq!(verify(&pool, 3, operations - 1).unwrap(), operations);
            }
        }
    }

    #[test]
    fn lost_and_surplus_operations_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let pool = pool_after(&directory, 3, 10);
        assert!(message(verify(&pool, 3, 11)).contains("lost acknowledged"));
        assert!(message(verify(&pool, 3, 8)).contains("nobody asked for"));
        assert!(message(verify(&pool, 4, 10)).contains("seed 3"));
    }

    #[test]
    fn a_changed_a_lost_and_a_surplus_entry_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let pool = pool_after(&directory, 3, 20);
        let data = pool.open_map(DATA).unwrap();
        let (key, value) = workload::model_after(3, 20).pop_last().unwrap();
        data.put(&key, b"other").unwrap();
        assert!(message(verify(&pool, 3, 20)).contains("found 5 bytes \"other\""));
        data.remove(&key).unwrap();
        assert!(message(verify(&pool, 3, 20)).contains("found nothing"));
        data.put(&key, &value).unwrap();
        assert_eq!(verify(&pool, 3, 20).unwrap(), 20);
        data.put(b"surplus", b"x").unwrap();
        assert!(message(verify(&pool, 3, 20)).contains("key \"surplus\": expected nothing"));
    }

    #[test]
    fn differences_are_told_briefly() {
        let model = |entries: &[(&[u8], usize)]| {
            entries.iter().map(|(k, n)| (k.to_vec(), vec![b'x'; *n])).collect::<Model>()
        };
        assert_eq!(first_difference(&model(&[(b"a", 1)]), &model(&[(b"a", 1)])), None);
        let text = first_difference(&model(&[(b"\0", 100)]), &model(&[(b"b", 2)])).unwrap();
        assert_eq!(
            text,
            format!("key \"\\x00\": expected 100 bytes \"{}...\", found nothing", "x".repeat(24))
        );
    }
}
