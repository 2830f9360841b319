//! Figure 4 of the NV-heaps paper: throughput and the size of transactions.

use super::{thread_counts, threads_name};
use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use crate::programs::sps::Updates;
use crate::programs::{Fault, Load, places, rate};
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_heap::{Heap, Layer};
use tembo_pmem::Durability;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "nv-heaps-figure-4",
    title: "Figure 4 of NV-heaps: throughput and the size of transactions",
    steps: |_| (PLACES.len() * thread_counts().len() * SIZES.len()) as u64,
    measure,
};

/// Elements that a transaction updates.
const SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

const PLACES: [(&str, Layer); 2] = [
    ("durable: lines flushed, fences waited for", Layer::ConcurrentTx),
    ("NoDur: no log, no flushes, no fences", Layer::NoDur),
];

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let mut table = Table::new(&["where", "threads", "updates_per_transaction", "updates_per_s"]);
    let len = if setup.quick { 1 << 12 } else { 1_000_000 };
    let updates = if setup.quick { 2_000 } else { 400_000 };
    let mut panels = Vec::new();
    for (place, layer) in PLACES {
        let rows = Heap::try_with_layer(places::temporary(Durability::Emulated)?, layer, |heap| {
            let mut program = Updates::open(heap, len)?;
            let mut rows = Vec::new();
            for each in SIZES {
                program.set_each(each);
                for threads in thread_counts() {
                    progress.doing(format!("{place}, {each} updates, {}", threads_name(threads)));
                    let rounds = if setup.quick { 1 } else { 5 };
                    let load = Load { operations: (updates / each).max(20), rounds, seed: setup.seed };
                    rows.push((threads, each, rate(&program, threads, &load)? * each as f64));
                    progress.step();
                }
            }
            Ok::<_, Fault>(rows)
        })?;
        let series = |threads: usize| Series {
            name: threads_name(threads),
            values: rows.iter().filter(|row| row.0 == threads).map(|row| Some(row.2 / 1e6)).collect(),
        };
        panels.push(Panel {
            title: place.to_owned(),
            x_label: "elements updated by a transaction".to_owned(),
            y_label: "million updates per second".to_owned(),
            categories: SIZES.map(|size| size.to_string()).to_vec(),
            series: thread_counts().into_iter().map(series).collect(),
            kind: Kind::Lines,
            log: false,
        });
        for (threads, each, rate) in rows {
            table.add(vec![place.to_owned(), threads.to_string(), each.to_string(), number(rate)]);
        }
    }
    let notes = vec![format!("random elements of an array of {len} words; medians of rounds; wall time")];
    Ok(Drawing { table, panels, notes })
}
