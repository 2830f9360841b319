//! Table 3 of the wB+-Tree paper: words, flushes and fences of one insertion and of one deletion that leaves
//! other entries, by its formulas and as counted.

use crate::mem::{Mem, RealMem};
use crate::trees::{Config, Fixed, Scheme, Solution, Tree, Visitor};
use tembo_goals::Error;
use tembo_goals::workload::Operation;
use tembo_pmem::Region;

/// Words stored, lines flushed, and fences, of one operation; averages where positions differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Nw.
    pub words: f64,
    /// Nclf.
    pub lines: f64,
    /// Nmf.
    pub fences: f64,
}

/// A line of Table 3, for nodes with `m` entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formulas {
    /// As printed: averages, with parts of words and of lines.
    pub printed: Metrics,
    /// With whole words and whole lines where the paper counts parts of them, and with the deletion that
    /// moves nothing.
    pub exact: Metrics,
}

const fn metrics(words: f64, lines: f64, fences: f64) -> Metrics {
    Metrics { words, lines, fences }
}

/// The paper's formulas for a solution with `m` entries in the node; `None` where the table has none.
pub fn formulas(solution: &str, operation: Operation, m: f64) -> Option<Formulas> {
    let insert = match operation {
        Operation::Insert => true,
        Operation::Delete => false,
        Operation::Search => return None,
    };
    let alike = |metrics| Some(Formulas { printed: metrics, exact: metrics });
    match (solution, insert) {
        ("btree log", true) => alike(metrics(4.0 * m + 12.0, m + 3.0, m + 3.0)),
        ("btree log", false) => alike(metrics(4.0 * m, m, m)),
        ("unsorted leaf log" | "uleaf bmp log", true) => alike(metrics(10.0, 2.0, 2.0)),
        ("unsorted leaf log", false) => {
            // The last entry's deletion moves none; a move is two words, each logged and waited for.
            let exact = metrics(12.0 - 8.0 / m, 3.0 - 2.0 / m, 3.0 - 2.0 / m);
            Some(Formulas { printed: metrics(12.0, 3.0, 3.0), exact })
        }
        ("uleaf bmp log", false) => alike(metrics(4.0, 1.0, 1.0)),
        ("btree shadow" | "unsorted leaf shadow" | "uleaf bmp shadow", _) => {
            // The copy has the entries, a number and a link; a line each for log and allocation.
            let (words, lines) =
                if insert { (2.0 * m + 11.0, 0.25 * m + 2.5) } else { (2.0 * m + 7.0, 0.25 * m + 2.0) };
            let copied_words = if insert { 2.0 * m + 4.0 } else { 2.0 * m };
            let exact_lines = (copied_words / 8.0).ceil() + 2.0;
            Some(Formulas { printed: metrics(words, lines, 2.0), exact: metrics(words, exact_lines, 2.0) })
        }
        ("wbtree", true) => {
            let slots = m + 2.0;
            let exact = metrics(4.0 + (slots / 8.0).ceil(), 3.0 + (slots / 64.0).ceil(), 3.0);
            Some(Formulas { printed: metrics(0.125 * m + 4.25, m / 64.0 + 3.0 + 1.0 / 32.0, 3.0), exact })
        }
        ("wbtree", false) => {
            let exact = metrics(2.0 + (m / 8.0).ceil(), 2.0 + (m / 64.0).ceil(), 3.0);
            Some(Formulas { printed: metrics(0.125 * m + 2.0, m / 64.0 + 2.0, 3.0), exact })
        }
        ("wbtree w/ bmp-leaf" | "wbtree w/ slot-only", true) => alike(metrics(3.0, 2.0, 2.0)),
        ("wbtree w/ bmp-leaf" | "wbtree w/ slot-only", false) => alike(metrics(1.0, 1.0, 1.0)),
        _ => None,
    }
}

/// The paper's formulas for an insertion that splits `l` nodes of `n` entries, below a node of `m` entries.
pub fn split_formulas(solution: &str, l: f64, n: f64, m: f64) -> Option<Metrics> {
    let log = |leaf: f64| {
        metrics(
            l * (4.0 * n + 15.0) + leaf * n + 4.0 * m + 19.0,
            l * (0.375 * n + 3.25) + leaf * 0.25 * n + m + 4.125,
            l * (0.25 * n + 2.0) + leaf * 0.25 * n + m + 5.0,
        )
    };
    let wbtree = |words: f64, lines: f64| {
        metrics(
            l * (1.25 * n + 9.75) + 0.125 * m + words,
            l * (19.0 / 128.0 * n + 1.0 + 105.0 / 128.0) + m / 64.0 + lines,
            3.0,
        )
    };
    match solution {
        "btree log" => Some(log(0.0)),
        "unsorted leaf log" => Some(log(1.0)),
        "uleaf bmp log" => Some(log(-1.0)),
        "btree shadow" | "unsorted leaf shadow" | "uleaf bmp shadow" => {
            Some(metrics(l * (2.0 * n + 5.0) + 2.0 * m + 12.0, l * (0.25 * n + 1.5) + 0.25 * m + 2.625, 2.0))
        }
        "wbtree" => Some(wbtree(8.25, 3.0 + 13.0 / 32.0)),
        "wbtree w/ bmp-leaf" => Some(wbtree(7.5 - 0.25 * n, 3.0 + 43.0 / 128.0 - 3.0 / 128.0 * n)),
        "wbtree w/ slot-only" => Some(metrics(l * (n + 9.0) + 7.0, l * (0.125 * n + 1.75) + 2.375, 2.0)),
        _ => None,
    }
}

/// Leaves of the tree that counts are taken in.
pub const LEAVES: u64 = 4;

/// The counts that [`counted`] found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// Averages over all positions.
    pub metrics: Metrics,
    /// Entries that a leaf can have.
    pub capacity: u64,
}

/// Counts an operation in a tree of [`LEAVES`] leaves with `m` entries each, or as many as they can have; on
/// average over all positions in the first leaf.
///
/// # Errors
///
/// When the solution has no such nodes.
pub fn counted(
    solution: &Solution,
    node_lines: u64,
    operation: Operation,
    m: Option<u64>,
) -> Result<Counted, Error> {
    solution.visit(Count { node_lines, operation, m })
}

struct Count {
    node_lines: u64,
    operation: Operation,
    m: Option<u64>,
}

impl Visitor for Count {
    type Output = Result<Counted, Error>;

    fn visit<S: Scheme>(self) -> Self::Output {
        let empty = Tree::<_, Fixed<u64>, S>::create(memory()?, Config::lines(self.node_lines))?;
        let capacity = empty.leaf_capacity() as u64;
        let m = self.m.unwrap_or(capacity);
        let positions = if self.operation == Operation::Insert { m + 1 } else { m };
        let mut sum = metrics(0.0, 0.0, 0.0);
        for position in 0..positions {
            let one = self.count::<S>(m, capacity, position)?;
            sum = metrics(sum.words + one.words, sum.lines + one.lines, sum.fences + one.fences);
        }
        let count = positions as f64;
        Ok(Counted { metrics: metrics(sum.words / count, sum.lines / count, sum.fences / count), capacity })
    }
}

impl Count {
    /// Counts the operation at one position of the first leaf, which takes keys below all others.
    fn count<S: Scheme>(&self, m: u64, capacity: u64, position: u64) -> Result<Metrics, Error> {
        let fill = (m as f64 + 0.5) / capacity as f64;
        let entries = (1..=LEAVES * m).map(|number| (number * 10, number));
        let config = Config::lines(self.node_lines);
        let mut tree = Tree::<_, Fixed<u64>, S>::bulk_load(memory()?, config, fill, entries)?;
        let before = tree.mem().counts();
        let as_expected = match self.operation {
            Operation::Insert => tree.insert(position * 10 + 5, 1)?,
            Operation::Delete => tree.remove((position + 1) * 10)?.is_some(),
            Operation::Search => tree.get((position + 1) * 10).is_some(),
        };
        assert!(as_expected, "{} {} went wrong", S::NAME, self.operation.name());
        let counts = tree.mem().counts() - before;
        Ok(metrics(counts.words as f64, counts.lines as f64, counts.fences as f64))
    }
}

fn memory() -> Result<RealMem, Error> {
    const BYTES: u64 = 4 << 20;
    Ok(RealMem::new(Region::simulated(&vec![0; BYTES as usize], BYTES, None)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::{all, named};

    fn differ(a: Metrics, b: Metrics) -> bool {
        [(a.words, b.words), (a.lines, b.lines), (a.fences, b.fences)]
            .iter()
            .any(|(a, b)| (a - b).abs() > 1e-9)
    }

    #[test]
    fn every_count_is_what_table_3_says_in_whole_words_and_lines() {
        for solution in all() {
            let cases: &[(u64, u64)] =
                if solution.supports(8) { &[(8, 21), (8, 14), (4, 9)] } else { &[(2, 5)] };
            for (node_lines, m) in cases {
                for operation in [Operation::Insert, Operation::Delete] {
                    let counted = counted(solution, *node_lines, operation, Some(*m)).unwrap().metrics;
                    let (name, what) = (solution.name, operation.name());
                    match formulas(name, operation, *m as f64) {
                        Some(expected) => assert!(
                            !differ(counted, expected.exact),
                            "{name}, {what}, {m} of {node_lines} lines: {counted:?}, expected {:?}",
                            expected.exact
                        ),
                        None => assert!(!solution.is_persistent() && counted.lines == 0.0, "{name}"),
                    }
                }
            }
        }
    }

    #[test]
    fn searching_stores_and_flushes_nothing() {
        for solution in all().iter().filter(|solution| solution.supports(8)) {
            let counted = counted(solution, 8, Operation::Search, Some(21)).unwrap().metrics;
            assert_eq!(counted, metrics(0.0, 0.0, 0.0), "{}", solution.name);
        }
    }

    #[test]
    fn the_printed_formulas_have_the_papers_values_for_its_nodes() {
        // Its example: 512-byte nodes, n = 31, n' = 29, m = 21.
        let printed = |name, operation| formulas(name, operation, 21.0).unwrap().printed;
        assert_eq!(printed("btree log", Operation::Insert), metrics(96.0, 24.0, 24.0));
        assert_eq!(printed("btree shadow", Operation::Insert), metrics(53.0, 7.75, 2.0));
        assert_eq!(printed("wbtree", Operation::Insert).words, 6.875);
        assert_eq!(split_formulas("btree log", 1.0, 31.0, 21.0).unwrap().words, 242.0);
        assert_eq!(split_formulas("wbtree", 1.0, 29.0, 21.0).unwrap().words, 56.875);
    }

    #[test]
    fn a_full_leaf_is_split() {
        let counted = counted(named("wbtree").unwrap(), 8, Operation::Insert, None).unwrap();
        assert!(counted.metrics.words > 20.0 && counted.capacity > 20, "{counted:?}");
    }
}
