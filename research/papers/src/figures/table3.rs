//! Table 3 of the wB+-Tree paper: words written, lines flushed and fences of an operation, by formula and as
//! counted.

use super::{Drawing, Error, Figure, Setup};
use crate::counts::{Counted, LEAVES, Metrics, counted, formulas, split_formulas};
use crate::plot::{Kind, Panel, Series};
use crate::trees::{Solution, all};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_goals::workload::Operation;

pub(super) const FIGURE: Figure = Figure {
    name: "table-3",
    title: "Table 3: words written, lines flushed and fences of an operation",
    steps: |_| 3 * persistent().len() as u64,
    measure,
};

fn persistent() -> Vec<&'static Solution> {
    all().iter().filter(|solution| solution.is_persistent()).collect()
}

/// Lines of a node, and entries when it is 70% full: as in the paper's example, and for slot-only nodes the
/// only size.
fn shape(solution: &Solution) -> (u64, u64) {
    if solution.supports(8) { (8, 21) } else { (2, 5) }
}

/// A metric's name, and where it is.
type Metric = (&'static str, fn(&Metrics) -> f64);

const METRICS: [Metric; 3] = [
    ("words written (Nw)", |metrics| metrics.words),
    ("lines flushed (Nclf)", |metrics| metrics.lines),
    ("fences (Nmf)", |metrics| metrics.fences),
];

/// A row of the paper's table: what it says, and what was counted.
struct Found {
    solution: &'static str,
    printed: Metrics,
    exact: Option<Metrics>,
    counted: Metrics,
}

fn measure(_: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let mut table = Table::new(&[
        "operation",
        "solution",
        "node_lines",
        "entries",
        "metric",
        "formula",
        "formula_exact",
        "counted",
    ]);
    let mut panels = Vec::new();
    let operations = [
        ("insertion without split", Operation::Insert, false),
        ("insertion with one split", Operation::Insert, true),
        ("deletion without merge", Operation::Delete, false),
    ];
    for (name, operation, splits) in operations {
        let mut found = Vec::new();
        for solution in persistent() {
            progress.doing(format!("{name}, {}", solution.name));
            let (node_lines, m) = shape(solution);
            let counted = counted(solution, node_lines, operation, (!splits).then_some(m))?;
            let entries = if splits { counted.capacity } else { m };
            if let Some(row) = compare(solution, operation, splits, m, counted) {
                note(&mut table, name, node_lines, entries, &row);
                found.push(row);
            }
            progress.step();
        }
        panels.extend(METRICS.iter().map(|(metric, of)| panel(format!("{name}: {metric}"), &found, *of)));
    }
    let notes = vec![
        format!(
            "averages over all positions in a leaf of a tree of {LEAVES} leaves; 8-byte keys; counted, not timed"
        ),
        "formula_exact: as printed, but with whole words and lines, and with the deletion that moves nothing"
            .to_owned(),
        format!("with a split: full leaves below a node of {} entries", LEAVES - 1),
    ];
    Ok(Drawing { table, panels, notes })
}

fn compare(
    solution: &Solution,
    operation: Operation,
    splits: bool,
    m: u64,
    counted: Counted,
) -> Option<Found> {
    let (printed, exact) = if splits {
        (split_formulas(solution.name, 1.0, counted.capacity as f64, (LEAVES - 1) as f64)?, None)
    } else {
        let formulas = formulas(solution.name, operation, m as f64)?;
        (formulas.printed, Some(formulas.exact))
    };
    Some(Found { solution: solution.name, printed, exact, counted: counted.metrics })
}

fn note(table: &mut Table, operation: &str, node_lines: u64, entries: u64, row: &Found) {
    for (metric, of) in METRICS {
        table.add(vec![
            operation.to_owned(),
            row.solution.to_owned(),
            node_lines.to_string(),
            entries.to_string(),
            metric.to_owned(),
            number(of(&row.printed)),
            row.exact.map(|exact| number(of(&exact))).unwrap_or_default(),
            number(of(&row.counted)),
        ]);
    }
}

fn panel(title: String, found: &[Found], of: fn(&Metrics) -> f64) -> Panel {
    let bars = |row: &Found| Series {
        name: row.solution.to_owned(),
        values: vec![Some(of(&row.printed)), Some(of(&row.counted))],
    };
    Panel {
        title,
        x_label: String::new(),
        y_label: "per operation".to_owned(),
        categories: vec!["formula".to_owned(), "counted".to_owned()],
        series: found.iter().map(bars).collect(),
        kind: Kind::Bars,
        log: false,
    }
}
