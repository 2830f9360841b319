//! Figure 7 of the CDDS paper: keys are put, got and deleted in Tembo's trees, in Berkeley DB and in other
//! engines, durably and without durability. Drawn by the figure runner of `research/papers`.

use crate::engines::{self, Engine, Kind, Result, Setup as EngineSetup};
use crate::supervise::ask_in_place;
use crate::workload::{Shape, Workload, shuffled};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tembo_bench::figures::{Drawing, Error, Figure, Setup};
use tembo_bench::nvm::Params;
use tembo_bench::plot::{Kind as PanelKind, Panel, Series};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_pmem::Durability;

/// The arguments of `cdds`.
#[derive(clap::Args)]
pub(crate) struct CddsOptions {
    /// Draw small, to find out whether everything works
    #[arg(long)]
    quick: bool,
    /// Where the figures are written
    #[arg(long, default_value = "figures")]
    out: PathBuf,
    /// Draw only the one with values of so many bytes
    #[arg(long, value_parser = ["2048", "1024"])]
    value_bytes: Option<String>,
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

/// One run of one engine in a process of its own.
#[derive(clap::Args)]
pub(crate) struct CddsChild {
    engine: String,
    shape: Shape,
    keys: u64,
    seed: u64,
    folder: PathBuf,
}

const FIGURES: [Figure; 2] = [
    Figure::new(
        "cdds-figure-7",
        "Figure 7 of CDDS: put, get and delete beside Berkeley DB and others, values of 2 KiB",
        steps,
        |setup, progress| measure(Shape::Tuples, setup, progress),
    ),
    Figure::new("cdds-figure-7-kib", "Figure 7 of CDDS with values of 1 KiB", steps, |setup, progress| {
        measure(Shape::TuplesKib, setup, progress)
    }),
];

const OURS: &str = "tembo-cdds";
/// With small pages puts are faster, with large ones gets and deletes; ours is compared with the better one
/// of each.
const BERKELEY: [&str; 2] = ["bdb", "bdb-large"];
const OURS_VOLATILE: &str = "tembo-cdds-volatile";
const BERKELEY_VOLATILE: &str = "bdb-volatile";
/// Engines that acknowledge what is durable, in the order of the figure.
const DURABLE: [&str; 8] = [OURS, "tembo", BERKELEY[0], BERKELEY[1], "lmdb", "leveldb", "rocksdb", "floor"];
const VOLATILE: [&str; 2] = [OURS_VOLATILE, BERKELEY_VOLATILE];

/// The operations, and how many times as fast as Berkeley DB ours should be, durable beside durable.
///
/// Puts after everything was deleted find memory that the engine has touched before; the first puts also pay
/// for fresh pages.
const OPERATIONS: [(&str, f64); 4] = [("put", 5.0), ("get", 4.0), ("delete", 15.0), ("put again", 5.0)];

/// One of this many operations is timed by itself.
const SAMPLED: u64 = 8;
/// Distinguishes the random orders.
const GET_ORDER: u64 = 1;
const DELETE_ORDER: u64 = 2;
const PUT_ORDER: u64 = 3;

/// The cost of an operation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Times {
    mean_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
}

/// The measurements of a child, for each of [`OPERATIONS`].
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    settings: String,
    times: [Times; 4],
}

/// Draws the figures.
pub(crate) fn draw(options: &CddsOptions) -> Result<()> {
    let CddsOptions { quick, seed, .. } = *options;
    let setup = Setup { quick, seed, params: Params::wbtree(), medium: "pcm".to_owned() };
    let wanted =
        |place: usize| options.value_bytes.as_deref().is_none_or(|bytes| bytes == ["2048", "1024"][place]);
    for (_, figure) in FIGURES.iter().enumerate().filter(|(place, _)| wanted(*place)) {
        let files = figure.draw(&setup, &options.out)?;
        // The header has the goals.
        let csv = std::fs::read_to_string(&files[0])?;
        csv.lines().filter(|line| line.starts_with('#')).for_each(|line| println!("{line}"));
        println!("{} and {}", files[0].display(), files[1].display());
    }
    Ok(())
}

fn keys(setup: &Setup) -> u64 {
    if setup.quick { 2_000 } else { 300_000 }
}

fn rounds(setup: &Setup) -> usize {
    if setup.quick { 1 } else { 3 }
}

fn steps(setup: &Setup) -> u64 {
    (rounds(setup) * kinds().len()) as u64
}

/// The engines of the figure that this program was built with.
fn kinds() -> Vec<Kind> {
    let mut all: Vec<Kind> = engines::all();
    all.extend(engines::others());
    let wanted = DURABLE.iter().chain(&VOLATILE);
    wanted.filter_map(|id| all.iter().position(|kind| kind.id == *id).map(|at| all.swap_remove(at))).collect()
}

fn is_durable(id: &str) -> bool {
    DURABLE.contains(&id)
}

/// An engine's medians.
struct Row {
    kind: Kind,
    settings: String,
    times: [Times; 4],
}

fn measure(shape: Shape, setup: &Setup, progress: &Progress) -> std::result::Result<Drawing, Error> {
    let mut runs: Vec<(Kind, Vec<Measured>)> = kinds().into_iter().map(|kind| (kind, Vec::new())).collect();
    for round in 1..=rounds(setup) {
        for (kind, runs) in &mut runs {
            progress.doing(format!("round {round}: {}", kind.name));
            runs.push(run(kind, shape, setup).map_err(|e| format!("{}: {e}", kind.name))?);
            progress.step();
        }
    }
    let rows: Vec<Row> = runs.into_iter().map(|(kind, runs)| Row::of(kind, &runs)).collect();
    let mut table = Table::new(&[
        "engine",
        "durable",
        "operation",
        "ns",
        "p50_ns",
        "p99_ns",
        "operations_per_s",
        "to_tembo",
    ]);
    for row in &rows {
        let ours = ours_beside(&rows, row.kind.id);
        for (at, (operation, _)) in OPERATIONS.iter().enumerate() {
            let times = row.times[at];
            table.add(vec![
                row.kind.name.to_owned(),
                is_durable(row.kind.id).to_string(),
                (*operation).to_owned(),
                number(times.mean_ns),
                number(times.p50_ns),
                number(times.p99_ns),
                number(1e9 / times.mean_ns),
                number(times.mean_ns / ours[at].mean_ns),
            ]);
        }
    }
    Ok(Drawing { table, panels: panels(&rows), notes: notes(shape, setup, &rows) })
}

impl Row {
    fn of(kind: Kind, runs: &[Measured]) -> Row {
        let times = std::array::from_fn(|at| {
            let middle = |choose: fn(&Times) -> f64| {
                let mut values: Vec<f64> = runs.iter().map(|run| choose(&run.times[at])).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            Times {
                mean_ns: middle(|t| t.mean_ns),
                p50_ns: middle(|t| t.p50_ns),
                p99_ns: middle(|t| t.p99_ns),
            }
        });
        Row { kind, settings: runs[0].settings.clone(), times }
    }
}

fn times_of(rows: &[Row], id: &str) -> Option<[Times; 4]> {
    rows.iter().find(|row| row.kind.id == id).map(|row| row.times)
}

/// The times that an engine is compared with: those of our tree, with the same durability.
fn ours_beside(rows: &[Row], id: &str) -> [Times; 4] {
    let ours = if is_durable(id) { OURS } else { OURS_VOLATILE };
    times_of(rows, ours).expect("ours always runs")
}

fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |title: &str, y_label: &str, choose: fn(&Times) -> f64| Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        categories: OPERATIONS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series: rows
            .iter()
            .map(|row| Series {
                name: row.kind.name.to_owned(),
                values: row.times.iter().map(|times| Some(choose(times))).collect(),
            })
            .collect(),
        kind: PanelKind::Bars,
        log: true,
    };
    vec![
        panel("Throughput", "operations per second", |times| 1e9 / times.mean_ns),
        panel("Latency, 99 of 100 operations take less", "ns", |times| times.p99_ns),
    ]
}

fn notes(shape: Shape, setup: &Setup, rows: &[Row]) -> Vec<String> {
    let mut notes = vec![format!(
        "{}: {} random keys put, got, deleted and put again one by one, each time in another order; medians of {} rounds by turns; \
         wall time; a get reads a byte of each line of the value",
        shape.describe(),
        keys(setup),
        rounds(setup)
    )];
    let pairs = [("durable", OURS, &BERKELEY[..]), ("volatile", OURS_VOLATILE, &[BERKELEY_VOLATILE])];
    for (how, ours, theirs) in pairs {
        let theirs: Vec<_> = theirs.iter().filter_map(|id| times_of(rows, id)).collect();
        let (Some(ours), false) = (times_of(rows, ours), theirs.is_empty()) else { continue };
        let ratios = OPERATIONS.iter().enumerate().map(|(at, (operation, goal))| {
            let best = theirs.iter().map(|times| times[at].mean_ns).fold(f64::INFINITY, f64::min);
            let ratio = best / ours[at].mean_ns;
            let verdict = match how {
                "durable" if ratio >= *goal => format!(" (goal {goal}: met)"),
                "durable" => format!(" (goal {goal}: MISSED)"),
                _ => String::new(),
            };
            format!("{operation} {} times as fast{verdict}", number(ratio))
        });
        notes.push(format!(
            "beside Berkeley DB at its best, {how}: {}",
            ratios.collect::<Vec<_>>().join(", ")
        ));
    }
    notes.extend(
        rows.iter().map(|row| format!("{} {}: {}", row.kind.name, (row.kind.version)(), row.settings)),
    );
    notes
}

fn run(kind: &Kind, shape: Shape, setup: &Setup) -> Result<Measured> {
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
    let shape = serde_json::to_string(&shape)?;
    let arguments = [kind.id, shape.trim_matches('"'), &keys(setup).to_string(), &setup.seed.to_string()];
    ask_in_place(Command::new(std::env::current_exe()?).arg("child-cdds").args(arguments).arg(folder.path()))
}

/// Runs in a child.
pub(crate) fn child(child: &CddsChild) -> Result<impl Serialize + use<>> {
    let kind = kinds().into_iter().find(|kind| kind.id == child.engine);
    let kind = kind.ok_or_else(|| format!("no engine is called {}", child.engine))?;
    let (key_bytes, value_bytes) = (child.shape.key_bytes(), child.shape.value_bytes());
    let capacity_bytes =
        (3 * child.keys * (key_bytes + value_bytes + 128) as u64 + (256 << 20)).next_multiple_of(1 << 21);
    let durability = Durability::Emulated;
    let setup = EngineSetup { folder: &child.folder, key_bytes, value_bytes, capacity_bytes, durability };
    let mut engine = (kind.open)(&setup)?;
    let measured = phases(engine.as_mut(), child)?;
    std::mem::forget(engine);
    Ok(measured)
}

fn phases(engine: &mut dyn Engine, child: &CddsChild) -> Result<Measured> {
    let mut workload = Workload::new(child.shape, child.seed);
    let values = Workload::new(child.shape, child.seed);
    let put = timed(child.keys, |i| engine.insert(workload.key(i), values.part(i)))?;
    engine.settle()?;
    let order = shuffled(child.keys, child.seed ^ GET_ORDER);
    let get = timed(child.keys, |i| {
        let index = u64::from(order[i as usize]);
        let mut first = 0;
        let found = engine.get(workload.key(index), &mut |value| {
            first = value[0];
            black_box(value.iter().step_by(64).fold(0u8, |sum, byte| sum ^ byte));
        })?;
        if found && first == values.part(index)[0] {
            Ok(())
        } else {
            Err(format!("record {index} is wrong").into())
        }
    })?;
    for index in order.iter().step_by(50).map(|index| u64::from(*index)) {
        let mut right = false;
        engine.get(workload.key(index), &mut |value| right = value == values.part(index))?;
        if !right {
            return Err(format!("record {index} has another value").into());
        }
    }
    let order = shuffled(child.keys, child.seed ^ DELETE_ORDER);
    let delete = timed(child.keys, |i| engine.remove(workload.key(order[i as usize].into())))?;
    if engine.scan(&vec![0; child.shape.key_bytes()], 1, &mut |_, _| ())? != 0 {
        return Err("something is left after all was deleted".into());
    }
    let order = shuffled(child.keys, child.seed ^ PUT_ORDER);
    let again = timed(child.keys, |i| {
        let index = u64::from(order[i as usize]);
        engine.insert(workload.key(index), values.part(index))
    })?;
    Ok(Measured { settings: engine.settings(), times: [put, get, delete, again] })
}

fn timed(count: u64, mut operation: impl FnMut(u64) -> Result<()>) -> Result<Times> {
    let mut samples = Vec::with_capacity((count / SAMPLED) as usize + 1);
    let begun = Instant::now();
    for i in 0..count {
        if i % SAMPLED == 0 {
            let begun = Instant::now();
            operation(i)?;
            samples.push(begun.elapsed().as_nanos() as f64);
        } else {
            operation(i)?;
        }
    }
    let mean_ns = begun.elapsed().as_secs_f64() * 1e9 / count as f64;
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[((samples.len() as f64 * share) as usize).min(samples.len() - 1)];
    Ok(Times { mean_ns, p50_ns: at(0.5), p99_ns: at(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every engine of the figure does the whole run; that values are right and that nothing is left is part
    /// of it.
    #[test]
    fn every_engine_runs() {
        for kind in kinds() {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let child = CddsChild {
                engine: kind.id.to_owned(),
                shape: Shape::Tuples,
                keys: 500,
                seed: 3,
                folder: folder.path().to_owned(),
            };
            let setup = EngineSetup {
                folder: folder.path(),
                key_bytes: 25,
                value_bytes: 2048,
                capacity_bytes: 64 << 20,
                durability: Durability::Emulated,
            };
            let mut engine = (kind.open)(&setup).unwrap();
            let measured = phases(engine.as_mut(), &child).unwrap();
            assert!(measured.times.iter().all(|times| times.mean_ns > 0.0), "{}", kind.name);
        }
    }

    #[test]
    fn ours_run_beside_berkeley_db() {
        let ids: Vec<&str> = kinds().iter().map(|kind| kind.id).collect();
        assert!(ids.contains(&OURS) && ids.contains(&OURS_VOLATILE), "{ids:?}");
    }
}
