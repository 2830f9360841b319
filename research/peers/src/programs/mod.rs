//! Figure 7 of the NV-heaps paper: its programs on Tembo's heap, on Berkeley DB and on libpmemobj, every
//! operation a transaction that is durable when it returns. Drawn by the figure runner of `research/papers`,
//! which also has the programs.

mod native;

use crate::engines::{self, Result, Setup as EngineSetup};
use crate::heap::Table as PmemobjTable;
use native::{Access, Database};
use std::path::Path;
use tembo_bench::figures::{Drawing, Error, Figure, Setup};
use tembo_bench::nvm::Params;
use tembo_bench::plot::{self, Panel, Series};
use tembo_bench::programs::places::{MEDIA, Prepared, slower, temporary};
use tembo_bench::programs::{
    Fault, Kind, Load, Program, Random, Size, choose_entries, choose_key, halves, in_dram, on_layer, rate,
    rate_alone,
};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_heap::Layer;
use tembo_pmem::Durability;

/// The arguments of `programs`.
#[derive(clap::Args)]
pub(crate) struct ProgramOptions {
    /// Draw small, to find out whether everything works
    #[arg(long)]
    quick: bool,
    /// Where the figure is written
    #[arg(long, default_value = "figures")]
    out: std::path::PathBuf,
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

const FIGURE: Figure = Figure::new(
    "nv-heaps-figure-7",
    "Figure 7 of NV-heaps: its programs beside other systems",
    |_| KINDS.len() as u64 * (7 + MEDIA.len() as u64),
    measure,
);

/// The programs that all of the systems have.
const KINDS: [Kind; 3] = [Kind::Sps, Kind::BTree, Kind::HashTable];

const THREADS: [usize; 2] = [1, 2];
const BERKELEY: &str = "Berkeley DB";
const PMEMOBJ: &str = "libpmemobj";
const OURS: &str = "tembo, this machine";
const DRAM: &str = "ordinary memory, not durable";

/// Draws the figure.
pub(crate) fn draw(options: &ProgramOptions) -> Result<()> {
    // Also for this process, which has not used the library yet.
    if std::env::var_os("PMEM_IS_PMEM_FORCE").is_none_or(|value| value != "1") {
        return crate::heap::again_with_lines_flushed();
    }
    let ProgramOptions { quick, seed, .. } = *options;
    let setup = Setup { quick, seed, params: Params::nv_heaps(), medium: "pcm".to_owned() };
    for file in FIGURE.draw(&setup, &options.out)? {
        println!("{}", file.display());
    }
    Ok(())
}

fn size(setup: &Setup) -> Size {
    if setup.quick {
        return Size::quick(setup.seed);
    }
    Size { entries: 1 << 20, keys: 1_000_000, ..Size::full(setup.seed) }
}

fn load(setup: &Setup, operations: usize) -> Load {
    match setup.quick {
        true => Load { operations: operations / 100, rounds: 1, seed: setup.seed },
        false => Load { operations, rounds: 5, seed: setup.seed },
    }
}

fn measure(setup: &Setup, progress: &Progress) -> std::result::Result<Drawing, Error> {
    let mut table = Table::new(&["program", "system", "threads", "operations_per_s", "tembo_to_it"]);
    let mut rates: Vec<(Kind, String, usize, f64)> = Vec::new();
    for kind in KINDS {
        let mut note = |system: &str, threads, rate| rates.push((kind, system.to_owned(), threads, rate));
        let doing = |system: &str, threads: usize| {
            progress.doing(format!("{}, {system}, {threads} threads", kind.name()));
            progress.step();
        };
        for threads in THREADS {
            doing(BERKELEY, threads);
            note(BERKELEY, threads, berkeley_db(kind, setup, threads)?);
            doing(OURS, threads);
            note(OURS, threads, tembo(kind, setup, threads, Layer::ConcurrentTx)?);
        }
        doing(PMEMOBJ, 1);
        note(PMEMOBJ, 1, pmemobj(kind, setup)?);
        doing(DRAM, 1);
        note(DRAM, 1, rate(&*in_dram(kind, &size(setup))?, 1, &load(setup, 100_000))?);
        let added = Prepared::new(kind, &size(setup))?.added_ns(
            &setup.params,
            load(setup, 10_000).operations,
            |medium| doing(medium, 1),
        )?;
        doing("tembo without durability", 1);
        for threads in THREADS {
            let volatile = tembo(kind, setup, threads, Layer::NoDur)?;
            for ((name, _), added) in MEDIA.into_iter().zip(added) {
                note(&format!("tembo, {name}"), threads, slower(volatile, threads, added));
            }
        }
    }
    let ours = |kind: Kind, threads: usize| {
        let found = rates.iter().find(|row| (row.0, row.1.as_str(), row.2) == (kind, OURS, threads));
        found.map_or(f64::NAN, |row| row.3)
    };
    for (kind, system, threads, rate) in &rates {
        let cells = [kind.name(), system, &threads.to_string(), &number(*rate)];
        let ratio = number(ours(*kind, *threads) / rate);
        table.add(cells.into_iter().map(str::to_owned).chain([ratio]).collect());
    }
    let panels = THREADS.map(|threads| panel(threads, &rates)).to_vec();
    Ok(Drawing { table, panels, notes: notes(setup, &ours, &rates) })
}

fn panel(threads: usize, rates: &[(Kind, String, usize, f64)]) -> Panel {
    let mut names: Vec<&str> = Vec::new();
    for (_, system, of, _) in rates {
        if *of == threads && !names.contains(&system.as_str()) {
            names.push(system);
        }
    }
    let series = names.into_iter().map(|name| Series {
        name: name.to_owned(),
        values: KINDS
            .iter()
            .map(|kind| {
                rates
                    .iter()
                    .find(|row| (row.0, row.1.as_str(), row.2) == (*kind, name, threads))
                    .map(|row| row.3)
            })
            .collect(),
    });
    Panel {
        title: format!("Operations per second, {threads} thread{}", if threads == 1 { "" } else { "s" }),
        x_label: String::new(),
        y_label: "operations per second".to_owned(),
        categories: KINDS.map(|kind| kind.name().to_owned()).to_vec(),
        series: series.collect(),
        kind: plot::Kind::Bars,
        log: true,
    }
}

fn notes(
    setup: &Setup,
    ours: &impl Fn(Kind, usize) -> f64,
    rates: &[(Kind, String, usize, f64)],
) -> Vec<String> {
    let means = THREADS.map(|threads| {
        let theirs = rates.iter().filter(|row| row.1 == BERKELEY && row.2 == threads);
        let ratios: Vec<f64> = theirs.map(|row| ours(row.0, threads) / row.3).collect();
        format!("{} ({threads})", number(ratios.iter().sum::<f64>() / ratios.len() as f64))
    });
    vec![
        size(setup).note(),
        format!("tembo to Berkeley DB, mean of the programs (threads): {}", means.join(", ")),
        "Berkeley DB 5.3 on tmpfs: queue, B-tree and hash access methods; a transaction for each operation, the log synced at each commit; \
         DB_PRIVATE, 2 GiB cache, 1 MiB log buffer, locking and DB_THREAD with two threads only"
            .to_owned(),
        "libpmemobj 1.12, one thread: PMEM_IS_PMEM_FORCE=1, entries of 64 bytes in the array; tembo: lines flushed, fences waited for"
            .to_owned(),
        "tembo, DRAM, STTM and PCM: without durability on this machine, and what the model adds".to_owned(),
    ]
}

fn tembo(kind: Kind, setup: &Setup, threads: usize, layer: Layer) -> std::result::Result<f64, Fault> {
    on_layer(kind, &size(setup), temporary(Durability::Emulated)?, layer, |program| {
        rate(program, threads, &load(setup, 100_000))
    })
}

/// A program on Berkeley DB.
struct OnBerkeleyDb {
    kind: Kind,
    size: Size,
    database: Database,
}

impl Program for OnBerkeleyDb {
    fn run(&self, operations: usize, random: &mut Random) -> std::result::Result<(), Fault> {
        (0..operations).try_for_each(|_| match self.kind {
            Kind::Sps => self.database.swap(choose_entries(random, self.size.entries)),
            _ => self.database.toggle(choose_key(random, self.size.keys)),
        })
    }

    fn state(&self) -> std::result::Result<Vec<u64>, Fault> {
        let mut state = Vec::new();
        if self.kind == Kind::Sps {
            for entry in 0..self.size.entries as u64 {
                state.extend(self.database.get(entry)?);
            }
            return Ok(state);
        }
        for key in 0..self.size.keys {
            // Keys are big-endian in the database.
            if self.database.get(key.swap_bytes())?.is_some() {
                state.push(key);
            }
        }
        Ok(state)
    }
}

fn berkeley_db(kind: Kind, setup: &Setup, threads: usize) -> std::result::Result<f64, Fault> {
    let size = size(setup);
    let folder = tempfile::Builder::new().prefix("tembo-programs-").tempdir_in(folder())?;
    let (access, items): (Access, Vec<u64>) = match kind {
        Kind::Sps => (Access::Array, (0..size.entries as u64).collect()),
        Kind::HashTable => (Access::Hash, halves(size.keys).map(u64::swap_bytes).collect()),
        _ => (Access::BTree, halves(size.keys).map(u64::swap_bytes).collect()),
    };
    let database = Database::open(folder.path(), access, threads)?;
    database.load(&items)?;
    database.settle()?;
    let program = OnBerkeleyDb { kind, size, database };
    let load = load(setup, 20_000);
    let rate_of_theirs = rate(&program, threads, &load)?;
    if threads == 1 {
        let twin = in_dram(kind, &size)?;
        rate(&*twin, 1, &load)?;
        if twin.state()? != program.state()? {
            return Err(format!("{} on Berkeley DB ends in another state", kind.name()).into());
        }
    }
    Ok(rate_of_theirs)
}

fn folder() -> &'static Path {
    Path::new("/dev/shm")
}

/// A program on libpmemobj, with one thread.
fn pmemobj(kind: Kind, setup: &Setup) -> std::result::Result<f64, Fault> {
    let size = size(setup);
    let folder = tempfile::Builder::new().prefix("tembo-programs-").tempdir_in(folder())?;
    let load = load(setup, 100_000);
    if kind == Kind::BTree {
        let all = engines::all();
        let found = all.iter().find(|engine| engine.id == "libpmemobj").ok_or("libpmemobj is not there")?;
        let setup = EngineSetup {
            folder: folder.path(),
            key_bytes: 8,
            value_bytes: 8,
            capacity_bytes: 1 << 30,
            durability: tembo_pmem::Durability::Emulated,
        };
        let mut engine = (found.open)(&setup)?;
        let mut toggle = |key: u64| -> Result<()> {
            let key = key.to_be_bytes();
            if engine.get(&key, &mut |_| ())? { engine.remove(&key) } else { engine.insert(&key, &key) }
        };
        halves(size.keys).try_for_each(&mut toggle)?;
        return rate_alone(&load, |operations, random| {
            (0..operations).try_for_each(|_| toggle(choose_key(random, size.keys)))
        });
    }
    let mut heap = PmemobjTable::open(&folder.path().join("pool"), size.entries as u64, size.keys / 2)?;
    if kind == Kind::HashTable {
        halves(size.keys).try_for_each(|key| heap.toggle(key))?;
    }
    rate_alone(&load, |operations, random| {
        (0..operations).try_for_each(|_| match kind {
            Kind::Sps => heap.swap(choose_entries(random, size.entries)),
            _ => heap.toggle(choose_key(random, size.keys)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All systems run the programs; that Berkeley DB ends in the state of the program in ordinary memory is
    /// part of the run.
    #[test]
    fn all_systems_run_the_programs() {
        let setup = Setup { quick: true, seed: 3, params: Params::nv_heaps(), medium: "pcm".to_owned() };
        for kind in KINDS {
            for threads in THREADS {
                assert!(berkeley_db(kind, &setup, threads).unwrap() > 0.0, "{}", kind.name());
            }
            assert!(pmemobj(kind, &setup).unwrap() > 0.0, "{}", kind.name());
        }
    }
}
