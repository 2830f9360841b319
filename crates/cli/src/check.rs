//! `tembo check`: proves that a pool is undamaged, and that it holds what was acknowledged.

use crate::args::{Check, Place};
use crate::bench::seeded;
use crate::failure::{Failure, Kind, Outcome};
use crate::report::{Lines, print, print_json};
use crate::served::advise;
use crate::size::human_bytes;
use crate::store::{SnapshotSeen, check_snapshot};
use serde::Serialize;
use std::time::Instant;
use tembo::heap::Summary;
use tembo::store::Report;
use tembo::{CheckReport, Ending, Options};

/// The findings of a check.
#[derive(Debug, Serialize)]
struct Verdict {
    path: String,
    ok: bool,
    /// How the last use for writing ended, if that could be read.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "ending_name")]
    last_use: Option<Ending>,
    /// The damage, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Which kind of failure that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    seen: Option<Seen>,
    /// The snapshot, if one was asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    snapshot: Option<SnapshotSeen>,
    /// How many operations of the seeded workload the pool holds, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    seeded_operations: Option<u64>,
    /// The bytes of the replication's stream that the file beside the pool lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_backlog_bytes: Option<u64>,
}

fn ending_name<S: serde::Serializer>(ending: &Option<Ending>, serializer: S) -> Result<S::Ok, S::Error> {
    ending.map(Ending::name).serialize(serializer)
}

/// The checked structures.
#[derive(Debug, Serialize)]
struct Seen {
    /// Maps of all kinds.
    maps: usize,
    /// Entries of the newest versions.
    entries: u64,
    /// Named snapshots, each read as a whole.
    snapshots: usize,
    /// Dropped maps that still hold space.
    #[serde(skip_serializing_if = "is_zero")]
    dropped_maps: u64,
    /// Dropped stores that still hold space.
    #[serde(skip_serializing_if = "is_zero")]
    dropped_stores: u64,
    /// Stores, their keys, and the versions of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<StoresSeen>,
    /// Live objects of the heap, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<HeapSeen>,
    /// Allocated blocks, each reachable exactly once.
    blocks: u64,
    allocated_bytes: u64,
    pool_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The checked stores.
#[derive(Debug, Default, Serialize)]
struct StoresSeen {
    stores: usize,
    keyspaces: u64,
    keys: u64,
    versions: u64,
}

impl StoresSeen {
    /// `None` of a pool that has no store.
    fn of(reports: &[(String, Report)]) -> Option<StoresSeen> {
        let mut all = StoresSeen { stores: reports.len(), ..StoresSeen::default() };
        for (_, report) in reports {
            all.keyspaces += report.keyspaces;
            all.keys += report.keys;
            all.versions += report.versions;
        }
        (!reports.is_empty()).then_some(all)
    }

    fn text(&self) -> String {
        let StoresSeen { stores, keyspaces, keys, versions } = self;
        format!("{stores}, with {versions} versions of {keys} keys in {keyspaces} keyspaces")
    }
}

/// The checked objects of a heap.
#[derive(Debug, Serialize)]
struct HeapSeen {
    objects: u64,
    /// Dead objects that are not released yet, objects that only handles kept alive, and objects that only
    /// weak pointers reach.
    dying: u64,
    orphans: u64,
    shells: u64,
    types: Vec<TypeSeen>,
}

/// Objects of one type.
#[derive(Debug, Serialize)]
struct TypeSeen {
    name: String,
    objects: u64,
    arrays: u64,
    bytes: u64,
}

impl HeapSeen {
    fn of(summary: Summary) -> HeapSeen {
        let types = summary.types.into_iter().map(|usage| TypeSeen {
            name: usage.name,
            objects: usage.objects,
            arrays: usage.arrays,
            bytes: usage.bytes,
        });
        let types: Vec<TypeSeen> = types.collect();
        HeapSeen {
            objects: types.iter().map(|usage| usage.objects + usage.arrays).sum(),
            dying: summary.dying,
            orphans: summary.orphans,
            shells: summary.shells,
            types,
        }
    }

    /// Adds names and values for people.
    fn add_to(&self, lines: &mut Lines) {
        lines.add("objects", self.objects);
        if self.dying + self.orphans + self.shells > 0 {
            let left = format!("{} dying, {} orphans, {} shells", self.dying, self.orphans, self.shells);
            lines.add("to release", left);
        }
        for usage in self.types.iter().filter(|usage| usage.objects + usage.arrays > 0) {
            let bytes = human_bytes(usage.bytes);
            let what = match (usage.objects, usage.arrays) {
                (objects, 0) => format!("{objects} {}", usage.name),
                (0, arrays) => format!("{arrays} arrays of {}", usage.name),
                (objects, arrays) => format!("{objects} {0}, {arrays} arrays of {0}", usage.name),
            };
            lines.add("", format!("{what}: {bytes}"));
        }
    }
}

/// Checks, and prints the verdict that was asked for.
pub(crate) fn run(arguments: &Check) -> Outcome {
    let begun = Instant::now();
    let mut verdict = Verdict {
        path: arguments.pool.display().to_string(),
        ok: false,
        last_use: None,
        kind: None,
        error: None,
        seen: None,
        snapshot: None,
        seeded_operations: None,
        missing_backlog_bytes: None,
    };
    let code = match check(arguments, &mut verdict) {
        Ok(()) => {
            verdict.ok = true;
            0
        }
        Err(failure) => {
            verdict.error = Some(failure.about(Some(&arguments.pool)));
            verdict.kind = Some(failure.kind());
            failure.kind().check_code()
        }
    };
    let printed = if arguments.json {
        print_json(&verdict)
    } else {
        print(&verdict.text(begun.elapsed().as_secs_f64()))
    };
    match printed {
        // A reader that went away before the verdict, as `head` does, may still want the exit code.
        Err(Failure::OutputClosed) | Ok(()) if code != 0 => Err(Failure::Answered(code)),
        printed => printed,
    }
}

fn check(arguments: &Check, verdict: &mut Verdict) -> Outcome {
    if arguments.expect_seeded == Some(0) && arguments.pool.symlink_metadata().is_err() {
        // Creation is atomic: a crash inside it leaves no pool, and nothing was acknowledged before.
        verdict.seeded_operations = Some(0);
        return Ok(());
    }
    if let Some(at) = &arguments.snapshot {
        let (pool, store) = (arguments.pool.clone(), arguments.store.clone());
        verdict.snapshot = Some(check_snapshot(&Place { pool, store, accept_unclean: false }, at)?);
        return Ok(());
    }
    let opened = Options::new().open_to_inspect(&arguments.pool);
    let pool = opened.map_err(|e| advise(&arguments.pool, Failure::from(e)))?;
    verdict.last_use = Some(pool.last_ending());
    let (report, unproved) = match pool.check() {
        Ok(report) => (report, None),
        Err(tembo::Error::Unproved { report }) => {
            (CheckReport::clone(&report), Some(tembo::Error::Unproved { report }))
        }
        Err(error) => return Err(error.into()),
    };
    verdict.seen = Some(Seen::of(report));
    check_server(&pool, verdict)?;
    check_memcached(&pool)?;
    if let Some(acknowledged) = arguments.expect_seeded {
        verdict.seeded_operations = Some(seeded::verify(&pool, arguments.seed, acknowledged)?);
    }
    unproved.map_or(Ok(()), |error| Err(error.into()))
}

/// Checks the databases of the server, if the pool has them.
fn check_server(pool: &tembo::Pool, verdict: &mut Verdict) -> Outcome {
    let is_served = pool.find_map(tembo_server::COLLECTIONS_MAP)?.is_some()
        || pool.find_map(tembo_server::REPLICATION_MAP)?.is_some()
        || pool.find_map(tembo_server::CLUSTER_MAP)?.is_some();
    if !is_served {
        return Ok(());
    }
    match tembo_server::check(pool) {
        Ok(found) => {
            verdict.missing_backlog_bytes = Some(found.missing_backlog_bytes).filter(|bytes| *bytes > 0);
            Ok(())
        }
        Err(tembo_server::CheckError::Pool(error)) => Err(error.into()),
        Err(damage) => Err(Failure::Store(Kind::Damaged, damage.to_string())),
    }
}

/// Checks the items of the memcached server, if the pool has any.
fn check_memcached(pool: &tembo::Pool) -> Outcome {
    match tembo_memcached::check(pool) {
        Ok(_) => Ok(()),
        Err(tembo_memcached::Error::Pool(error)) => Err(error.into()),
        Err(damage) => Err(Failure::Store(Kind::Damaged, damage.to_string())),
    }
}

impl Seen {
    fn of(report: CheckReport) -> Seen {
        let versioned =
            || report.versioned_maps.iter().chain(&report.hash_tables).map(|(_, versions)| versions);
        let flat = report.maps.iter().chain(&report.fixed_maps).map(|(_, entries)| *entries);
        Seen {
            maps: report.maps.len() + versioned().count() + report.fixed_maps.len(),
            entries: flat.chain(versioned().map(|versions| versions.length)).sum(),
            snapshots: versioned().map(|versions| versions.kept.len()).sum(),
            dropped_maps: report.dropped_maps,
            dropped_stores: report.dropped_stores,
            stores: StoresSeen::of(&report.stores),
            heap: report.heap.map(HeapSeen::of),
            blocks: report.usage.allocated_blocks,
            allocated_bytes: report.usage.allocated_bytes,
            pool_bytes: report.usage.pool_bytes,
        }
    }
}

impl Verdict {
    fn text(&self, seconds: f64) -> String {
        let mut lines = Lines::default();
        let unclean = self.last_use.filter(|ending| ending.is_unclean());
        if let Some(ending) = unclean {
            lines.add("last use", ending.meaning());
        }
        if let Some(seen) = &self.seen {
            lines.add("maps", seen.maps).add("entries", seen.entries);
            if seen.snapshots > 0 {
                lines.add("snapshots", seen.snapshots);
            }
            if seen.dropped_maps > 0 {
                lines.add("dropped", format!("{} maps, whose space is coming back", seen.dropped_maps));
            }
            if seen.dropped_stores > 0 {
                lines.add("dropped", format!("{} stores, whose space is to come back", seen.dropped_stores));
            }
            if let Some(stores) = &seen.stores {
                lines.add("stores", stores.text());
            }
            lines.add("blocks", seen.blocks).add(
                "in use",
                format!("{} of {}", human_bytes(seen.allocated_bytes), human_bytes(seen.pool_bytes)),
            );
        }
        if let Some(heap) = self.seen.as_ref().and_then(|seen| seen.heap.as_ref()) {
            heap.add_to(&mut lines);
        }
        if let Some(snapshot) = &self.snapshot {
            snapshot.lines().into_iter().for_each(|(name, value)| _ = lines.add(name, value));
        }
        if let Some(operations) = self.seeded_operations {
            lines.add("seeded", format!("the state after {operations} operations"));
        }
        if let Some(bytes) = self.missing_backlog_bytes {
            let missing =
                format!("{} are missing; replicas that need them take a whole copy", human_bytes(bytes));
            lines.add("backlog", missing);
        }
        match &self.error {
            None if unclean.is_some() => {
                format!(
                    "{}: its structure is undamaged; its values are not proved\n{}",
                    self.path,
                    lines.text()
                )
            }
            None => {
                lines.add("took", format!("{seconds:.2} s"));
                let what = if self.snapshot.is_some() { "the snapshot is " } else { "" };
                format!("{}: {what}undamaged\n{}", self.path, lines.text())
            }
            Some(error) => format!("{error}\n{}", lines.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(error: Option<&str>) -> Verdict {
        Verdict {
            path: "a.pool".to_owned(),
            ok: error.is_none(),
            last_use: Some(Ending::Closed),
            kind: error.map(|_| Kind::Damaged),
            error: error.map(str::to_owned),
            seen: Some(Seen {
                maps: 2,
                entries: 7,
                snapshots: 0,
                dropped_maps: 0,
                dropped_stores: 0,
                stores: None,
                heap: None,
                blocks: 9,
                allocated_bytes: 2048,
                pool_bytes: 4096,
            }),
            snapshot: None,
            seeded_operations: None,
            missing_backlog_bytes: None,
        }
    }

    #[test]
    fn people_read_the_verdict_first() {
        assert!(verdict(None).text(0.5).starts_with("a.pool: undamaged\n  maps     2\n"));
        let text = verdict(Some("a.pool: the pool is damaged")).text(0.5);
        assert!(
            text.starts_with("a.pool: the pool is damaged\n  maps     2\n") && !text.contains("took"),
            "{text}"
        );
    }

    #[test]
    fn programs_read_ok_and_the_error() {
        let json = serde_json::to_value(verdict(Some("bad"))).unwrap();
        assert_eq!(
            (&json["ok"], &json["error"], &json["entries"]),
            (&false.into(), &"bad".into(), &7.into())
        );
        let json = serde_json::to_value(verdict(None)).unwrap();
        assert_eq!(json.get("error"), None);
        assert_eq!(json.get("seeded_operations"), None);
    }
}
