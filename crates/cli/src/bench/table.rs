//! The results for people.

use super::measure::Results;
use std::fmt::Write as _;

/// The tables of times and counts.
pub(super) fn text(results: &Results) -> String {
    let mut text = format!(
        "{} entries, {}-byte keys, {}-byte values, random order; ns per operation, median of {}; times the first column\n\n",
        results.entries, results.key_bytes, results.value_bytes, results.rounds
    );
    let mut rows = vec![header(&results.subjects)];
    for phase in &results.phases {
        let cells = phase.ns.iter().zip(&phase.ratio).enumerate().flat_map(|(at, (ns, ratio))| {
            let ratio = (at > 0).then(|| format!("{ratio:.2}x"));
            [Some(format!("{ns:.0}")), ratio].into_iter().flatten()
        });
        rows.push([phase.phase.to_owned()].into_iter().chain(cells).collect());
    }
    align(&mut text, &rows);
    text.push_str("\nper operation, counted:\n\n");
    let mut rows = vec![["", "fences", "lines", "words"].map(str::to_owned).to_vec()];
    for count in &results.counts {
        let numbers = [count.fences, count.lines, count.words].map(|number| format!("{number:.2}"));
        rows.push([count.phase.to_owned()].into_iter().chain(numbers).collect());
    }
    align(&mut text, &rows);
    text
}

fn header(subjects: &[String]) -> Vec<String> {
    let cells = subjects
        .iter()
        .enumerate()
        .flat_map(|(at, name)| [Some(name.clone()), (at > 0).then(String::new)].into_iter().flatten());
    [String::new()].into_iter().chain(cells).collect()
}

/// Columns below each other, the first to the left and the others to the right.
fn align(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, (column, width)) in row.iter().zip(widths.iter().enumerate()) {
            // Writing to a string cannot fail.
            let _ =
                if column == 0 { write!(line, "{cell:width$}") } else { write!(line, "  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{CountResult, PhaseResult};
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let results = Results {
            entries: 10,
            key_bytes: 20,
            value_bytes: 8,
            rounds: 3,
            subjects: vec!["BTreeMap".into(), "page-cache".into()],
            phases: vec![PhaseResult { phase: "insert", ns: vec![100.4, 1500.0], ratio: vec![1.0, 14.94] }],
            counts: vec![CountResult { phase: "insert", fences: 1.0, lines: 3.25, words: 10.0 }],
        };
        let text = text(&results);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "        BTreeMap  page-cache",
                "insert       100        1500  14.94x",
                "",
                "per operation, counted:",
                "",
                "        fences  lines  words",
                "insert    1.00   3.25  10.00",
            ]
        );
    }
}
