//! The cost of a change in the CDDS tree as its paper describes it, in both orders of entries, and in
//! Tembo's.

use crate::cdds::counts::{Row, Times, count, time};
use crate::cdds::sides::SideKind;
use crate::counts::Metrics;
use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "cdds-costs",
    title: "CDDS: what a change costs, flushed write by write and in one record",
    steps: |_| 1 + SideKind::ALL.len() as u64,
    measure,
};

const OPERATIONS: [&str; 4] = ["put", "replace", "delete", "get"];

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let (counted_keys, timed_keys) = if setup.quick { (2_000, 2_000) } else { (100_000, 1_000_000) };
    progress.doing("counting");
    let counts = count(counted_keys, setup.seed)?;
    progress.step();
    let mut times = Vec::new();
    for kind in SideKind::ALL {
        progress.doing(format!("timing {}", kind.name()));
        times.push(time(kind, timed_keys, setup.seed)?);
        progress.step();
    }
    let mut table = Table::new(&["tree", "operation", "words", "lines", "fences", "ns"]);
    for (row, times) in counts.iter().zip(&times) {
        for (at, operation) in OPERATIONS.into_iter().enumerate() {
            let Metrics { words, lines, fences } = metrics(row, at);
            let cells = [words, lines, fences, nanoseconds(times, at)].map(number);
            table.add([row.name.to_owned(), operation.to_owned()].into_iter().chain(cells).collect());
        }
    }
    let panels = vec![
        panel("Fences of a change", "fences", &counts, 3, |at, place| metrics(&counts[at], place).fences),
        panel("Lines flushed by a change", "lines", &counts, 3, |at, place| {
            metrics(&counts[at], place).lines
        }),
        panel("Words stored by a change", "words", &counts, 3, |at, place| metrics(&counts[at], place).words),
        panel("Time on this machine", "ns", &counts, 4, |at, place| nanoseconds(&times[at], place)),
    ];
    let notes = vec![
        format!("words, lines and fences: counted, averages over {counted_keys} keys, divisions and joins included"),
        format!("times: {timed_keys} keys, flushes and fences of persistent memory; processor time, medians of groups"),
        "8-byte keys and values; nodes of 28 entries of 32 bytes in all CDDS trees; the paper's has a second fence before each \
         flush, which is not counted"
            .to_owned(),
    ];
    Ok(Drawing { table, panels, notes })
}

/// The metrics of the operation at a place of [`OPERATIONS`].
fn metrics(row: &Row, place: usize) -> Metrics {
    const NOTHING: Metrics = Metrics { words: 0.0, lines: 0.0, fences: 0.0 };
    [row.put, row.replace, row.delete, NOTHING][place]
}

fn nanoseconds(times: &Times, place: usize) -> f64 {
    [times.put, times.replace, times.delete, times.get][place]
}

fn panel(
    title: &str,
    y_label: &str,
    rows: &[Row],
    count: usize,
    value: impl Fn(usize, usize) -> f64,
) -> Panel {
    let series = rows.iter().enumerate().map(|(at, row)| Series {
        name: row.name.to_owned(),
        values: (0..count).map(|place| Some(value(at, place))).collect(),
    });
    Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        categories: OPERATIONS[..count].iter().map(|name| (*name).to_owned()).collect(),
        series: series.collect(),
        kind: Kind::Bars,
        log: true,
    }
}
