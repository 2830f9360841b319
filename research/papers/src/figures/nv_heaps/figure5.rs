//! Figure 5 of the NV-heaps paper: what its programs do in a second, by memory and number of threads.
//!
//! The paper's own method, with this project's model: without durability a program is timed on this machine;
//! what durability and a memory add to each operation is the difference of two runs in the model, of the
//! memory with flushes and fences, and of DRAM without. Times are added up one after the other, and threads
//! do not share the modelled memory's banks, so that what is said of modelled memories is right for one
//! thread, and on the whole for several. "This machine" is no model: its DRAM with flushes and fences.

use super::{load, size, thread_counts, threads_name};
use crate::figures::{Drawing, Figure, Setup};
use crate::nvm::Params;
use crate::plot::{self, Panel, Series};
use crate::programs::places::{MEDIA, Prepared, slower, temporary};
use crate::programs::{Kind, Load, on_layer, rate, verify_torus};
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_heap::Layer;
use tembo_pmem::Durability;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "nv-heaps-figure-5",
    title: "Figure 5 of NV-heaps: its programs, by memory and threads",
    steps: |_| Kind::ALL.len() as u64 * (2 + MEDIA.len() as u64),
    measure,
};

const NO_DURABILITY: &str = "NoDur";
const THIS_MACHINE: &str = "this machine";

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    verify_torus(temporary(Durability::Emulated)?, if setup.quick { 4 } else { 10 })?;
    let params = Params::nv_heaps();
    let mut table = Table::new(&["program", "memory", "threads", "operations_per_s", "to_nodur_1_thread"]);
    let mut panels = Vec::new();
    for kind in Kind::ALL {
        let mut series = Vec::new();
        let mut note = |name: &str, rates: &[f64], first: f64| {
            for (threads, rate) in thread_counts().into_iter().zip(rates) {
                let row = [kind.name(), name, &threads.to_string(), &number(*rate), &number(rate / first)];
                table.add(row.map(str::to_owned).to_vec());
            }
            let values = rates.iter().map(|rate| Some(rate / first)).collect();
            series.push(Series { name: name.to_owned(), values });
        };
        progress.doing(format!("{}, {NO_DURABILITY}", kind.name()));
        let volatile = rates(kind, setup, Layer::NoDur)?;
        progress.step();
        note(NO_DURABILITY, &volatile, volatile[0]);
        progress.doing(format!("{}, {THIS_MACHINE}", kind.name()));
        let here = rates(kind, setup, Layer::ConcurrentTx)?;
        progress.step();
        note(THIS_MACHINE, &here, volatile[0]);
        let operations = load(setup, kind).operations / if setup.quick { 1 } else { 20 };
        let added = Prepared::new(kind, &size(setup))?.added_ns(&params, operations, |name| {
            progress.doing(format!("{}, {name}", kind.name()));
            progress.step();
        })?;
        for ((name, _), added) in MEDIA.into_iter().zip(added) {
            let modelled = volatile.iter().zip(thread_counts()).map(|(rate, t)| slower(*rate, t, added));
            let rates: Vec<f64> = modelled.collect();
            note(name, &rates, volatile[0]);
        }
        panels.push(Panel {
            title: format!("{}: {} {}s/s", kind.name(), number(volatile[0]), kind.operation()),
            x_label: String::new(),
            y_label: "to NoDur with 1 thread".to_owned(),
            categories: thread_counts().into_iter().map(threads_name).collect(),
            series,
            kind: plot::Kind::Bars,
            log: false,
        });
    }
    let notes = vec![
        size(setup).note(),
        "NoDur and this machine: wall time, medians of rounds; SSCA's verification was passed first"
            .to_owned(),
        format!(
            "DRAM, STTM, PCM: NoDur, and what the model adds for durability and memory: {}",
            params.source
        ),
    ];
    Ok(Drawing { table, panels, notes })
}

/// Operations in a second on this machine with each number of threads.
fn rates(kind: Kind, setup: &Setup, layer: Layer) -> Result<Vec<f64>, Error> {
    let load = load(setup, kind);
    on_layer(kind, &size(setup), temporary(Durability::Emulated)?, layer, |program| {
        let rates = thread_counts().into_iter().map(|threads| {
            // As much work in all.
            let load = Load { operations: load.operations.div_ceil(threads), ..load };
            rate(program, threads, &load)
        });
        let rates = rates.collect();
        program.state()?;
        rates
    })
}
