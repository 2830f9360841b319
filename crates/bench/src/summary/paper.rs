//! The paper's trees: their counts beside Table 3, and how they compare in the model of phase-change memory.

use super::{Goal, Measurement, Row, Scale, Value};
use crate::counts::{Metrics, counted, formulas};
use crate::figures::Error;
use crate::nvm::Params;
use crate::runs::{ModelRun, in_model};
use crate::trees::{Family, Solution, all};
use crate::workload::{Case, Keys, Operation};

pub(super) const TABLE_3: Measurement = Measurement {
    name: "table-3",
    rows: &[Row {
        name: "table-3-differences",
        unit: "of 54 cells",
        against: "1; whole words and lines",
        goal: Goal::AtMost(0.0),
    }],
    run: |_| {
        let differences = table_3_differences()?;
        Ok(vec![Value { value: differences, ratio: differences }])
    },
};

/// Cells of Table 3, of insertion without split and deletion without merge, that were counted otherwise.
fn table_3_differences() -> Result<f64, Error> {
    let mut differences = 0;
    for solution in all() {
        let (node_lines, m) = if solution.supports(8) { (8, 21) } else { (2, 5) };
        for operation in [Operation::Insert, Operation::Delete] {
            let Some(formulas) = formulas(solution.name, operation, m as f64) else { continue };
            let counted = counted(solution, node_lines, operation, Some(m))?.metrics;
            let cells = |metrics: Metrics| [metrics.words, metrics.lines, metrics.fences];
            let pairs = cells(counted).into_iter().zip(cells(formulas.exact));
            differences += pairs.filter(|(counted, formula)| (counted - formula).abs() > 1e-9).count();
        }
    }
    Ok(f64::from(u32::try_from(differences)?))
}

pub(super) const MODEL: Measurement = Measurement {
    name: "pcm-model",
    rows: &[
        Row {
            name: "pcm-insert-slowest",
            unit: "ns",
            against: "wB+-Tree (slowest other / it)",
            goal: Goal::AtLeast(4.0),
        },
        Row {
            name: "pcm-insert-fastest",
            unit: "ns",
            against: "wB+-Tree (fastest other / it)",
            goal: Goal::AtLeast(1.5),
        },
        Row { name: "pcm-search-slots", unit: "ns", against: "volatile B+-Tree", goal: Goal::AtMost(1.04) },
    ],
    run: model,
};

/// 8-line nodes, 70% full, 8-byte keys. As in the paper, the best wB+-Tree is compared with the others; search is that of
/// slots and bitmap.
fn model(scale: Scale) -> Result<Vec<Value>, Error> {
    const NODE_LINES: u64 = 8;
    let params = Params::wbtree();
    let keys = Keys::<u64>::new(scale.of(10_000_000), scale.of(100_000), scale.seed);
    let run = |solution: &Solution, case| -> Result<ModelRun, Error> {
        in_model(solution, NODE_LINES, case, &keys, &params, "pcm")
    };
    let (mut ours, mut slowest, mut fastest) = (f64::INFINITY, 0.0f64, f64::INFINITY);
    for solution in all().iter().filter(|solution| solution.supports(NODE_LINES)) {
        match solution.family {
            Family::Volatile => {}
            Family::Atomic => ours = ours.min(run(solution, Case::ALL[1])?.ns),
            Family::Logging | Family::Shadowing => {
                let ns = run(solution, Case::ALL[1])?.ns;
                slowest = slowest.max(ns);
                fastest = fastest.min(ns);
            }
        }
    }
    let search = |name| {
        let solution = crate::trees::named(name).ok_or_else(|| format!("no solution is called {name}"))?;
        run(solution, Case::ALL[0])
    };
    let (slots, volatile) = (search("wbtree")?.ns, search("btree (volatile)")?.ns);
    Ok(vec![
        Value { value: slowest, ratio: slowest / ours },
        Value { value: fastest, ratio: fastest / ours },
        Value { value: slots, ratio: slots / volatile },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_3_has_no_differences() {
        assert_eq!(table_3_differences().unwrap(), 0.0);
    }

    #[test]
    fn the_model_compares_in_one_run() {
        let values = model(Scale { quick: true, seed: 1 }).unwrap();
        assert!(values[0].ratio > values[1].ratio && values[1].ratio > 1.0, "{values:?}");
        assert!(values[2].ratio >= 1.0, "{values:?}");
    }
}
