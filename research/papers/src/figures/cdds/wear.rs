//! How skewed updates wear the memory under the CDDS tree, the paper's and Tembo's, and under the wB+-Tree.

use crate::cdds::sides::SideKind;
use crate::cdds::wear::{THETA, Worn, wear};
use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "cdds-wear",
    title: "CDDS: how updates wear the memory",
    steps: |_| SideKind::ALL.len() as u64,
    measure,
};

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let (keys, updates) = if setup.quick { (2_000, 4_000) } else { (50_000, 500_000) };
    let mut rows: Vec<(SideKind, Worn)> = Vec::new();
    for kind in SideKind::ALL {
        progress.doing(kind.name());
        rows.push((kind, wear(kind, keys, updates, setup.seed, &setup.params, &setup.medium)?));
        progress.step();
    }
    let each = |sum: u64| sum as f64 / updates as f64;
    let table = table(&rows, &each);
    let panels = panels(&rows, &each);
    let notes = vec![
        format!(
            "{keys} keys, {updates} updates of keys that a Zipf distribution ({THETA}) chooses; 8-byte keys and values"
        ),
        "a write: a line of which something changed reaches the memory, by a flush or an eviction".to_owned(),
        setup.model_note(),
    ];
    Ok(Drawing { table, panels, notes })
}

fn table(rows: &[(SideKind, Worn)], each: &dyn Fn(u64) -> f64) -> Table {
    let mut table = Table::new(&[
        "tree",
        "line_writes_per_update",
        "bits_per_update",
        "lines_written",
        "mean",
        "p50",
        "p99",
        "p999",
        "max",
        "variation",
    ]);
    for (kind, Worn { wear, cost }) in rows {
        let cells = [
            number(each(cost.lines_written)),
            number(each(cost.bits_modified)),
            wear.line_count.to_string(),
            number(wear.mean),
            wear.p50.to_string(),
            wear.p99.to_string(),
            wear.p999.to_string(),
            wear.max.to_string(),
            number(wear.variation),
        ];
        table.add(std::iter::once(kind.name().to_owned()).chain(cells).collect());
    }
    table
}

fn panels(rows: &[(SideKind, Worn)], each: &dyn Fn(u64) -> f64) -> Vec<Panel> {
    let panel = |title: &str, y_label: &str, categories: &[&str], values: &dyn Fn(&Worn) -> Vec<f64>| Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        categories: categories.iter().map(|name| (*name).to_owned()).collect(),
        series: rows
            .iter()
            .map(|(kind, worn)| Series {
                name: kind.name().to_owned(),
                values: values(worn).into_iter().map(Some).collect(),
            })
            .collect(),
        kind: Kind::Bars,
        log: true,
    };
    vec![
        panel(
            "Writes of a line, of the lines that were written",
            "writes",
            &["half", "99 of 100", "999 of 1000", "the most"],
            &|worn| [worn.wear.p50, worn.wear.p99, worn.wear.p999, worn.wear.max].map(|n| n as f64).to_vec(),
        ),
        panel("Written by an update", "lines, bits", &["lines", "bits"], &|worn| {
            vec![each(worn.cost.lines_written), each(worn.cost.bits_modified)]
        }),
    ]
}
