//! Figures 11 to 14 of the wB+-Tree paper: its ten solutions beside each other, and the product's maps beside
//! them.
//!
//! Trees of random keys, nodes of several sizes, and four cases: search, insertion and deletion in nodes that
//! are 70% full, and insertion into full nodes. Figures 11 and 12 are of the model, 13 and 14 of this
//! machine. The product's maps have nodes of one size, so that they are level lines.

use super::{Drawing, Error, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use crate::product;
use crate::runs::{ModelRun, TreeKey, in_model, on_this_machine};
use crate::trees::{Solution, all};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_goals::workload::{Case, Keys};

pub(super) const FIGURE_11: Figure = Figure {
    name: "figure-11",
    title: "Figure 11: index performance in the model of phase-change memory, 8-byte keys",
    steps: |setup| grid_steps(setup, &paper_solutions()),
    measure: figure_11,
};

pub(super) const FIGURE_12: Figure = Figure {
    name: "figure-12",
    title: "Figure 12: wear, energy, flushes and fences of insertion into 8-line nodes 70% full, in the model",
    steps: |_| solutions_for(8, &paper_solutions()).len() as u64 + 1,
    measure: figure_12,
};

pub(super) const FIGURE_13: Figure = Figure {
    name: "figure-13",
    title: "Figure 13: index performance on this machine, 8-byte keys",
    steps: |setup| grid_steps(setup, &paper_solutions()),
    measure: |setup, progress| {
        let ours = |case, keys: &Keys<u64>| product::words_on_this_machine(case, keys);
        on_machine(setup, progress, &paper_solutions(), machine_size(setup), (product::LEAF_LINES, &ours))
    },
};

pub(super) const FIGURE_14: Figure = Figure {
    name: "figure-14",
    title: "Figure 14: index performance on this machine, strings of 20 bytes",
    steps: |setup| grid_steps(setup, &string_solutions()),
    measure: |setup, progress| {
        let ours = |case, keys: &Keys<Vec<u8>>| product::strings_on_this_machine(case, keys, setup.seed);
        on_machine(setup, progress, &string_solutions(), string_size(setup), (STRING_LEAF_LINES, &ours))
    },
};

/// How many keys a tree has, and how many operations follow.
#[derive(Debug, Clone, Copy)]
struct Size {
    loaded: usize,
    operations: usize,
}

/// Lines of a leaf of the product's map of byte strings.
const STRING_LEAF_LINES: u64 = 8;

/// Sizes of nodes, in lines.
fn node_sizes(setup: &Setup) -> &'static [u64] {
    if setup.quick { &[2, 8] } else { &[2, 4, 8, 16] }
}

fn model_size(setup: &Setup) -> Size {
    if setup.quick {
        Size { loaded: 100_000, operations: 2_000 }
    } else {
        Size { loaded: 10_000_000, operations: 100_000 }
    }
}

fn machine_size(setup: &Setup) -> Size {
    if setup.quick {
        Size { loaded: 100_000, operations: 10_000 }
    } else {
        Size { loaded: 10_000_000, operations: 500_000 }
    }
}

fn string_size(setup: &Setup) -> Size {
    if setup.quick {
        Size { loaded: 100_000, operations: 10_000 }
    } else {
        Size { loaded: 5_000_000, operations: 500_000 }
    }
}

/// All solutions.
fn paper_solutions() -> Vec<&'static Solution> {
    all().iter().collect()
}

/// All but those with packed unsorted leaves, which the paper leaves out for strings.
fn string_solutions() -> Vec<&'static Solution> {
    all().iter().filter(|solution| !solution.name.starts_with("unsorted leaf")).collect()
}

fn solutions_for(node_lines: u64, solutions: &[&'static Solution]) -> Vec<&'static Solution> {
    solutions.iter().copied().filter(|solution| solution.supports(node_lines)).collect()
}

fn grid_steps(setup: &Setup, solutions: &[&'static Solution]) -> u64 {
    let each = |lines: &u64| solutions_for(*lines, solutions).len() * Case::ALL.len();
    (node_sizes(setup).iter().map(each).sum::<usize>() + Case::ALL.len()) as u64
}

/// Nanoseconds of an operation of the product.
type Timed<'a, K> = &'a dyn Fn(Case, &Keys<K>) -> Result<f64, Error>;

/// Nanoseconds of an operation, and the last cells of its row.
type Measured = (f64, Vec<String>);

/// Measures every solution in every case with every size of nodes by `measure`, and the product by `ours`,
/// whose nodes are of `our_lines`.
fn grid<K: TreeKey>(
    setup: &Setup,
    progress: &Progress,
    solutions: &[&'static Solution],
    keys: &Keys<K>,
    table: &mut Table,
    measure: impl Fn(&Solution, u64, Case, &Keys<K>) -> Result<Measured, Error>,
    (our_lines, ours): (u64, impl Fn(Case, &Keys<K>) -> Result<Measured, Error>),
) -> Result<Vec<Panel>, Error> {
    let sizes = node_sizes(setup);
    let mut panels = Vec::new();
    let mut note = |case: Case, node_lines: u64, name: &str, (ns, more): Measured| {
        let mut row = vec![case.operation.name().to_owned(), case.fill_percent.to_string()];
        row.extend([node_lines.to_string(), name.to_owned(), number(ns)]);
        row.extend(more);
        table.add(row);
        progress.step();
        Some(ns)
    };
    for (case, letter) in Case::ALL.into_iter().zip('a'..) {
        let mut series: Vec<Series> = Vec::new();
        for solution in solutions {
            let mut values = Vec::new();
            for node_lines in sizes {
                let mut value = None;
                if solution.supports(*node_lines) {
                    progress.doing(format!("{}, {node_lines} lines, {}", case.name(), solution.name));
                    let measured = measure(solution, *node_lines, case, keys)?;
                    value = note(case, *node_lines, solution.name, measured);
                }
                values.push(value);
            }
            series.push(Series { name: solution.name.to_owned(), values });
        }
        progress.doing(format!("{}, {}", case.name(), product::NAME));
        let value = note(case, our_lines, product::NAME, ours(case, keys)?);
        series.push(Series { name: product::NAME.to_owned(), values: vec![value; sizes.len()] });
        panels.push(Panel {
            title: format!("({letter}) {}", case.name()),
            x_label: "lines of a node".to_owned(),
            y_label: "ns per operation".to_owned(),
            categories: sizes.iter().map(u64::to_string).collect(),
            series,
            kind: Kind::Lines,
            log: case.operation != tembo_goals::workload::Operation::Search,
        });
    }
    Ok(panels)
}

fn figure_11(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let size = model_size(setup);
    let keys = Keys::<u64>::new(size.loaded, size.operations, setup.seed);
    let mut columns = vec!["operation", "fill_percent", "node_lines", "solution", "ns_per_operation"];
    columns.extend(COST_COLUMNS);
    let mut table = Table::new(&columns);
    let measure = |solution: &Solution, node_lines, case, keys: &Keys<u64>| {
        let run = in_model(solution, node_lines, case, keys, &setup.params, &setup.medium)?;
        Ok((run.ns, cost_cells(&run)))
    };
    let ours = |case, keys: &Keys<u64>| {
        let run = product::in_model(case, keys, &setup.params, &setup.medium)?;
        Ok((run.ns, cost_cells(&run)))
    };
    let ours = (product::LEAF_LINES, ours);
    let panels = grid(setup, progress, &paper_solutions(), &keys, &mut table, measure, ours)?;
    Ok(Drawing { table, panels, notes: vec![size.note(), our_note(product::LEAF_LINES), setup.model_note()] })
}

fn on_machine<K: TreeKey>(
    setup: &Setup,
    progress: &Progress,
    solutions: &[&'static Solution],
    size: Size,
    (our_lines, ours): (u64, Timed<'_, K>),
) -> Result<Drawing, Error> {
    let keys = Keys::<K>::new(size.loaded, size.operations, setup.seed);
    let mut table = Table::new(&["operation", "fill_percent", "node_lines", "solution", "ns_per_operation"]);
    let measure = |solution: &Solution, node_lines, case, keys: &Keys<K>| {
        Ok((on_this_machine(solution, node_lines, case, keys)?, Vec::new()))
    };
    let ours = |case, keys: &Keys<K>| Ok((ours(case, keys)?, Vec::new()));
    let panels = grid(setup, progress, solutions, &keys, &mut table, measure, (our_lines, ours))?;
    let note = "processor time; medians of groups of operations; lines are flushed and fences waited for as on persistent memory";
    Ok(Drawing { table, panels, notes: vec![size.note(), our_note(our_lines), note.to_owned()] })
}

/// The meaning of the product's line.
fn our_note(lines: u64) -> String {
    format!("{}: the product's map, with leaves of {lines} lines, whatever the size below", product::NAME)
}

impl Size {
    fn note(self) -> String {
        format!("{} keys loaded, {} operations", self.loaded, self.operations)
    }
}

/// The model's counts of a run, besides its time; sums are per operation.
const COST_COLUMNS: [&str; 23] = [
    "words_loaded",
    "mispredictions",
    "words_stored",
    "lines_flushed",
    "fences",
    "lines_read",
    "lines_written",
    "dram_lines_read",
    "dram_lines_written",
    "words_modified",
    "bits_modified",
    "read_pj",
    "write_pj",
    "load_stall_cycles",
    "fence_stall_cycles",
    "queue_stall_cycles",
    "tlb_misses",
    "worn_lines",
    "wear_max",
    "wear_mean",
    "wear_p50",
    "wear_p99",
    "wear_variation",
];

fn cost_cells(run: &ModelRun) -> Vec<String> {
    let (cost, wear) = (&run.cost, &run.wear);
    let each = |sum: u64| number(run.each(sum));
    vec![
        each(cost.loads),
        each(cost.mispredictions),
        each(cost.stores),
        each(cost.flushes),
        each(cost.fences),
        each(cost.lines_read),
        each(cost.lines_written),
        each(cost.dram_lines_read),
        each(cost.dram_lines_written),
        each(cost.words_modified),
        each(cost.bits_modified),
        number(cost.read_pj / run.operations as f64),
        number(cost.write_pj / run.operations as f64),
        each(cost.load_stall_cycles),
        each(cost.fence_stall_cycles),
        each(cost.queue_stall_cycles),
        each(cost.tlb_misses),
        wear.line_count.to_string(),
        wear.max.to_string(),
        number(wear.mean),
        wear.p50.to_string(),
        wear.p99.to_string(),
        number(wear.variation),
    ]
}

/// A panel of figure 12: its caption, its unit, and what it shows of a run.
type Shown = (&'static str, &'static str, fn(&ModelRun) -> f64);

const FIGURE_12_PANELS: [Shown; 6] = [
    ("(a) Wear", "bits modified per insertion", |run| run.each(run.cost.bits_modified)),
    ("(b) Energy", "nJ per insertion", |run| {
        (run.cost.read_pj + run.cost.write_pj) / 1000.0 / run.operations as f64
    }),
    ("(c) Flushes", "lines flushed per insertion", |run| run.each(run.cost.flushes)),
    ("(d) Fences", "fences per insertion", |run| run.each(run.cost.fences)),
    ("(e) Endurance: the line written most", "writes per million insertions", |run| {
        run.wear.max as f64 * 1e6 / run.operations as f64
    }),
    ("(f) Evenness of wear", "standard deviation over mean", |run| run.wear.variation),
];

fn figure_12(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let (size, case, node_lines) = (model_size(setup), Case::ALL[1], 8);
    let keys = Keys::<u64>::new(size.loaded, size.operations, setup.seed);
    let mut columns = vec!["solution", "ns_per_operation"];
    columns.extend(COST_COLUMNS);
    let mut table = Table::new(&columns);
    let mut runs = Vec::new();
    let mut note = |name: &'static str, run: ModelRun| {
        let mut row = vec![name.to_owned(), number(run.ns)];
        row.extend(cost_cells(&run));
        table.add(row);
        runs.push((name, run));
        progress.step();
    };
    for solution in solutions_for(node_lines, &paper_solutions()) {
        progress.doing(solution.name);
        let run = in_model(solution, node_lines, case, &keys, &setup.params, &setup.medium)?;
        note(solution.name, run);
    }
    progress.doing(product::NAME);
    note(product::NAME, product::in_model(case, &keys, &setup.params, &setup.medium)?);
    let series = |shown: fn(&ModelRun) -> f64| {
        let bar = |(name, run): &(&str, ModelRun)| Series {
            name: (*name).to_owned(),
            values: vec![Some(shown(run))],
        };
        runs.iter().map(bar).collect()
    };
    let panel = |(title, unit, shown): Shown| Panel {
        title: title.to_owned(),
        x_label: "solution, in the order of the legend".to_owned(),
        y_label: unit.to_owned(),
        categories: vec![String::new()],
        series: series(shown),
        kind: Kind::Bars,
        log: false,
    };
    let panels = FIGURE_12_PANELS.map(panel).to_vec();
    Ok(Drawing { table, panels, notes: vec![size.note(), our_note(product::LEAF_LINES), setup.model_note()] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_solutions_are_those_of_its_figures() {
        let paper = paper_solutions();
        assert_eq!(solutions_for(2, &paper).len(), 8, "with two lines there is one wB+-Tree");
        assert_eq!(solutions_for(8, &paper).len(), 9);
        assert_eq!(solutions_for(8, &string_solutions()).len(), 7);
    }

    /// Checks a run in the model, whatever the times are: the volatile tree flushes nothing, the others
    /// persist, and wB+-Trees change the fewest bits.
    #[test]
    fn costs_in_the_model_are_ordered_as_in_the_paper() {
        let setup =
            Setup { quick: true, seed: 3, params: crate::nvm::Params::wbtree(), medium: "pcm".to_owned() };
        let keys = Keys::<u64>::new(20_000, 500, setup.seed);
        let bits = |name: &str| {
            let solution = crate::trees::named(name).unwrap();
            let run = in_model(solution, 8, Case::ALL[1], &keys, &setup.params, &setup.medium).unwrap();
            assert_eq!(run.cost.flushes > 0, solution.is_persistent(), "{name}");
            assert_eq!(run.cost.fences > 0, solution.is_persistent(), "{name}");
            run.cost.bits_modified
        };
        let names: Vec<&str> = solutions_for(8, &paper_solutions()).iter().map(|s| s.name).collect();
        let wbtree = bits(names[7]).max(bits(names[8]));
        assert!(names[1..7].iter().all(|name| bits(name) > wbtree), "{wbtree}");
    }
}
