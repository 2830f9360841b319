//! Tembo's map beside other embedded storage engines: the same keys, the same run, equal durability, one
//! table.
//!
//! [`engines`] has a file for each; [`workload`] the keys; [`measure`] what one run is; [`supervise`] runs
//! engines by turns in processes of their own; [`report`] prints. `research/peers.md` says what is compared
//! and how. [`cold`], [`written`], [`rings`] and [`memory`] are about ordinary disks; [`heap`] compares heaps
//! of objects, `programs` draws a figure of programs, [`cdds`] one of the CDDS tree.

mod cdds;
mod cold;
mod disk;
#[cfg(peer = "leveldb")]
mod echo;
mod engines;
mod group;
#[cfg(peer = "pmemobj")]
mod heap;
#[cfg(peer = "lmdb")]
mod held;
#[cfg(peer = "leveldb")]
mod master;
mod measure;
mod memory;
#[cfg(all(peer = "pmemobj", peer = "bdb"))]
mod programs;
mod report;
mod rings;
mod supervise;
mod workload;
mod written;

use clap::{Args, Parser, Subcommand};
use engines::{Kind, Result};
use measure::Plan;
use report::Comparison;
use rustix::fs::statfs;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use supervise::Answer;
use tembo_pmem::Durability;
use workload::Shape;

/// Tembo's map beside other embedded storage engines, at equal durability.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    options: CompareOptions,
}

#[derive(Args)]
struct CompareOptions {
    /// Records to insert
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Rounds by turns; medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds after which a phase stops where it is
    #[arg(long, default_value_t = 20)]
    limit_s: u64,
    /// The kinds of keys and values
    #[arg(long, value_delimiter = ',', default_value = "words")]
    shapes: Vec<Shape>,
    /// Run only these engines (see --list); ours run, too, unless one of them is named
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// When a write of ours is durable; the others always sync
    #[arg(long, default_value = "emulated")]
    durability: Durability,
    /// Where the databases are made, on tmpfs by default, and removed again
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Write everything that was measured to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Name the engines and say which are missing
    #[arg(long)]
    list: bool,
}

#[derive(Subcommand)]
enum Task {
    /// The heap of objects beside libpmemobj's (research/heap-costs.md)
    #[cfg(peer = "pmemobj")]
    Heap(heap::HeapOptions),
    /// The programs of the NV-heaps paper beside Berkeley DB and libpmemobj: its Figure 7 (research/figures)
    #[cfg(all(peer = "pmemobj", peer = "bdb"))]
    Programs(programs::ProgramOptions),
    /// The CDDS tree beside Berkeley DB and others: Figure 7 of its paper (research/figures)
    Cdds(cdds::CddsOptions),
    /// The store beside LevelDB and volatile ordered maps: Figures 3 and 4 of Echo's paper (research/figures)
    #[cfg(peer = "leveldb")]
    Echo(echo::EchoOptions),
    /// Random lookups in a database larger than the memory of a control group
    Cold(cold::ColdOptions),
    /// Bytes that go to a disk for each byte that is put, all engines synchronised in intervals (with
    /// --durability relaxed). Counts what the device is given, so that the machine has to be quiet. What an
    /// engine puts off beyond its closing, as compactions, is not counted
    Written(written::WrittenOptions),
    /// Journals of 16 to 1,023 MiB: bytes to a disk, times of puts, openings after kill -9
    /// (research/figures). Counts what the device is given, so that the machine has to be quiet
    Rings(rings::RingOptions),
    /// Memory, private and page cache, of a pool on a disk under random puts: relaxed beside page-cache, in
    /// control groups (root)
    Memory(memory::MemoryOptions),
    /// Bytes that a held snapshot costs for each overwritten value, beside LMDB and redb, and reads of the
    /// past
    #[cfg(peer = "lmdb")]
    Held(held::HeldOptions),
    /// A database of `cold`, filled or read
    #[command(hide = true)]
    ChildCold(cold::ColdChild),
    /// An engine of `written`
    #[command(hide = true)]
    ChildWritten(written::WrittenChild),
    /// A pool of `rings`, filled or opened
    #[command(hide = true)]
    ChildRings(rings::RingChild),
    /// A pool of `memory`
    #[command(hide = true)]
    ChildMemory(memory::MemoryChild),
    /// A part of the figure of the CDDS tree in a process of its own
    #[command(hide = true)]
    ChildCdds(cdds::CddsChild),
    /// A part of the comparison of heaps in a process of its own
    #[cfg(peer = "pmemobj")]
    #[command(hide = true)]
    ChildHeap {
        #[command(subcommand)]
        child: heap::HeapChild,
    },
    /// One run of one engine; prints a line and waits to be killed
    #[command(hide = true)]
    ChildMeasure(ChildPlan),
    /// Opens what a killed run left; prints a line
    #[command(hide = true)]
    ChildReopen {
        #[command(flatten)]
        plan: ChildPlan,
        inserted: u64,
        removed: u64,
    },
}

#[derive(Args)]
struct ChildPlan {
    engine: String,
    shape: Shape,
    keys: u64,
    seed: u64,
    limit_s: u64,
    durability: Durability,
    folder: PathBuf,
}

impl ChildPlan {
    fn plan(&self) -> Plan {
        let ChildPlan { shape, keys, seed, durability, .. } = *self;
        Plan { shape, keys, seed, limit: Duration::from_secs(self.limit_s), durability }
    }

    fn kind(&self) -> Result<Kind> {
        let found = engines::all().into_iter().find(|kind| kind.id == self.engine);
        found.ok_or_else(|| format!("no engine is called {}", self.engine).into())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.task {
        #[cfg(peer = "pmemobj")]
        Some(Task::Heap(options)) => heap::compare(&cli.options.folder, options),
        #[cfg(all(peer = "pmemobj", peer = "bdb"))]
        Some(Task::Programs(options)) => programs::draw(options),
        Some(Task::Cdds(options)) => cdds::draw(options),
        #[cfg(peer = "leveldb")]
        Some(Task::Echo(options)) => echo::draw(options),
        #[cfg(peer = "lmdb")]
        Some(Task::Held(options)) => held::compare(&cli.options.folder, options),
        Some(Task::Cold(options)) => cold::compare(&cli.options.folder, cli.options.durability, options),
        Some(Task::Written(options)) => written::compare(cli.options.durability, options),
        Some(Task::Rings(options)) => rings::draw(options),
        Some(Task::Memory(options)) => memory::compare(options),
        Some(Task::ChildCold(child)) => answer(cold::child(child)),
        Some(Task::ChildWritten(child)) => answer(written::child(child)),
        Some(Task::ChildRings(child)) => answer(rings::child(child)),
        Some(Task::ChildMemory(child)) => answer(memory::child(child)),
        Some(Task::ChildCdds(child)) => answer(cdds::child(child)),
        #[cfg(peer = "pmemobj")]
        Some(Task::ChildHeap { child }) => heap::child(child),
        Some(Task::ChildMeasure(child)) => {
            answer(child.kind().and_then(|kind| measure::measure(&kind, &child.plan(), &child.folder)))
        }
        Some(Task::ChildReopen { plan: child, inserted, removed }) => {
            let reopen =
                |kind: Kind| measure::reopen(&kind, &child.plan(), &child.folder, *inserted, *removed);
            answer(child.kind().and_then(reopen))
        }
        None if cli.options.list => list(),
        None => compare(&cli.options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tembo-bench-peers: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a child's answer, and waits until this process is killed or its parent is gone.
fn answer<T: Serialize>(result: Result<T>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&Answer::from(result))?)?;
    output.flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn list() -> Result<()> {
    for kind in engines::all() {
        println!("{:12} {} {}", kind.id, kind.name, (kind.version)());
    }
    report_missing();
    Ok(())
}

fn report_missing() {
    for package in engines::missing() {
        println!("missing: {package} was not installed when this program was built");
    }
}

/// The engines that were asked for.
fn chosen(options: &CompareOptions) -> Result<Vec<Kind>> {
    let all = engines::all();
    for wanted in &options.engines {
        if !all.iter().any(|kind| kind.id == wanted) {
            let missing = engines::missing().join(", ");
            return Err(format!("no engine is called {wanted}; see --list (not installed: {missing})").into());
        }
    }
    let names_ours = all.iter().any(|kind| kind.is_ours && options.engines.iter().any(|id| id == kind.id));
    let wanted = |kind: &Kind| {
        (kind.is_ours && !names_ours)
            || options.engines.is_empty()
            || options.engines.iter().any(|id| id == kind.id)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn compare(options: &CompareOptions) -> Result<()> {
    let mut kinds = chosen(options)?;
    let machine = Machine::describe(&options.folder)?;
    println!("{}", machine.render());
    report_missing();
    println!("{}", report::legend());
    let mut comparisons = Vec::new();
    for &shape in &options.shapes {
        let (fitting, others): (Vec<Kind>, Vec<Kind>) =
            kinds.into_iter().partition(|kind| (kind.fits)(shape.key_bytes(), shape.value_bytes()));
        for kind in &others {
            println!("{} has no {}.", kind.name, shape.describe());
        }
        let plan = Plan {
            shape,
            keys: options.keys,
            seed: options.seed,
            limit: Duration::from_secs(options.limit_s),
            durability: options.durability,
        };
        let rows = supervise::compare(&fitting, &plan, options.rounds, &options.folder)?;
        let comparison = Comparison::new(&plan, options.rounds, rows);
        println!("{}", comparison.render());
        comparisons.push(comparison);
        kinds = fitting.into_iter().chain(others).collect();
    }
    println!("Load average (1, 5, 15 minutes) at the end: {}.", load());
    if let Some(path) = &options.json {
        #[derive(Serialize)]
        struct Everything<'a> {
            machine: &'a Machine,
            load_at_end: String,
            comparisons: &'a [Comparison],
        }
        let everything = Everything { machine: &machine, load_at_end: load(), comparisons: &comparisons };
        std::fs::write(path, serde_json::to_string_pretty(&everything)?)?;
    }
    Ok(())
}

/// Where it was measured.
#[derive(Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    folder: PathBuf,
    is_tmpfs: bool,
    load_at_start: String,
}

const TMPFS: u64 = 0x0102_1994;

impl Machine {
    fn describe(folder: &Path) -> Result<Machine> {
        let processors = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Machine {
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism()?.into(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            folder: folder.to_owned(),
            is_tmpfs: u64::try_from(statfs(folder)?.f_type) == Ok(TMPFS),
            load_at_start: load(),
        })
    }

    fn render(&self) -> String {
        let place = match self.is_tmpfs {
            true => "on tmpfs, where a sync costs what the software costs",
            false => {
                "NOT on tmpfs, so that syncs cost what the device costs and flushed lines do not reach it"
            }
        };
        format!(
            "Machine: {}, {} cores, Linux {}; databases in {}, {place}; load average (1, 5, 15 minutes) at the start: {}.\n",
            self.processor,
            self.cores,
            self.kernel,
            self.folder.display(),
            self.load_at_start
        )
    }
}

/// The load averages of this machine.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(", ")
}
