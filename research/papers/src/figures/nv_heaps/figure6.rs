//! Figure 6 of the NV-heaps paper: what each layer of safety costs its programs.
//!
//! The layers are the heap with parts left out ([`Layer`]). Under all of them lies the same program in
//! ordinary memory, which has none of the heap: neither its transactions nor its places.

use super::{load, size, thread_counts, threads_name};
use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{self, Panel, Series};
use crate::programs::places::temporary;
use crate::programs::{Kind, Load, in_dram, on_layer, rate};
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_heap::Layer;
use tembo_pmem::Durability;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "nv-heaps-figure-6",
    title: "Figure 6 of NV-heaps: the price of safety",
    steps: |_| (Kind::ALL.len() * (1 + LAYERS.len())) as u64,
    measure,
};

/// The layers with one thread; the last one runs with more, too.
pub(super) const LAYERS: [(&str, Layer); 4] = [
    ("BASE", Layer::Base),
    ("SAFE", Layer::Safe),
    ("TX", Layer::SequentialTx),
    ("C-TX", Layer::ConcurrentTx),
];

const IN_DRAM: &str = "in ordinary memory";

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let mut table = Table::new(&["program", "layer", "threads", "operations_per_s", "to_base"]);
    let mut rates: Vec<(Kind, String, usize, f64)> = Vec::new();
    for kind in Kind::ALL {
        progress.doing(format!("{}, {IN_DRAM}", kind.name()));
        let load = load(setup, kind);
        let plain = rate(&*in_dram(kind, &size(setup))?, 1, &load)?;
        rates.push((kind, IN_DRAM.to_owned(), 1, plain));
        progress.step();
        for (name, layer) in LAYERS {
            progress.doing(format!("{}, {name}", kind.name()));
            let counts = if layer == Layer::ConcurrentTx { thread_counts() } else { vec![1] };
            on_layer(kind, &size(setup), temporary(Durability::Emulated)?, layer, |program| {
                for threads in counts {
                    let load = Load { operations: load.operations.div_ceil(threads), ..load };
                    rates.push((kind, name.to_owned(), threads, rate(program, threads, &load)?));
                }
                program.state().map(drop)
            })?;
            progress.step();
        }
    }
    let find = |kind: Kind, name: &str, threads: usize| {
        rates.iter().find(|row| (row.0, row.1.as_str(), row.2) == (kind, name, threads)).map(|row| row.3)
    };
    let to_base = |kind: Kind, rate: f64| rate / find(kind, LAYERS[0].0, 1).unwrap_or(f64::NAN);
    for (kind, name, threads, rate) in &rates {
        let cells = [kind.name(), name, &threads.to_string(), &number(*rate), &number(to_base(*kind, *rate))];
        table.add(cells.map(str::to_owned).to_vec());
    }
    let mut shown = vec![(IN_DRAM, 1)];
    shown.extend(LAYERS[..3].iter().map(|(name, _)| (*name, 1)));
    shown.extend(thread_counts().into_iter().map(|threads| (LAYERS[3].0, threads)));
    let series = shown.into_iter().map(|(name, threads)| Series {
        name: if threads == 1 { name.to_owned() } else { format!("{name}, {}", threads_name(threads)) },
        values: Kind::ALL.map(|kind| find(kind, name, threads).map(|rate| to_base(kind, rate))).to_vec(),
    });
    let base = |kind: Kind| format!("{} {}", kind.name(), number(find(kind, "BASE", 1).unwrap_or(f64::NAN)));
    let panel = Panel {
        title: "Operations per second, to BASE".to_owned(),
        x_label: String::new(),
        y_label: "to BASE".to_owned(),
        categories: Kind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
        series: series.collect(),
        kind: plot::Kind::Bars,
        log: true,
    };
    let notes = vec![
        size(setup).note(),
        format!("operations per second of BASE: {}", Kind::ALL.map(base).join(", ")),
        "one thread where no number is said; wall time, medians of rounds".to_owned(),
    ];
    Ok(Drawing { table, panels: vec![panel], notes })
}
