//! The tables.

use super::reopen::{Opened, Opening};
use super::rows::{Counts, Measured, OBJECTS, Plan, ROWS, Row};
use super::side::HashTable;
use super::tembo::Tembo;
use std::fmt::Write as _;

/// Milliseconds within which a heap is to be open, and microseconds for the first allocation.
const OPEN_GOAL_US: f64 = 5000.0;
const FIRST_GOAL_US: f64 = 50.0;

/// Markdown.
pub(super) fn render(plan: &Plan, measured: &Measured, counts: &[Counts], opened: &[Opened]) -> String {
    let mut text = format!(
        "{OBJECTS} objects; {} keys, {} buckets; seed {}; medians of {} parts of {} rounds, the sides by turns in one process; ns of \
         a transaction. In brackets, the middle half.\n\n",
        plan.keys,
        plan.buckets(),
        plan.seed,
        measured.rows.first().map_or(0, |(_, times)| times.tembo.len() / plan.rounds.max(1)),
        plan.rounds,
    );
    text.push_str(
        "| transaction | Tembo | libpmemobj | floor | fences: Tembo | fences: libpmemobj | Tembo / libpmemobj | wanted | |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for (row, times) in &measured.rows {
        let (ours, theirs) = (median(&times.tembo), median(&times.pmemobj));
        let ratio = ours / theirs;
        let goal = ROWS.iter().find(|about| about.row == *row).and_then(|about| about.goal);
        let wanted = goal.map(|(ours, theirs)| ours / theirs);
        let counted = counts.iter().find(|counts| counts.row == *row);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {ratio:.2} | {} | {} |",
            row.name(),
            cell(&times.tembo),
            cell(&times.pmemobj),
            if times.floor.is_empty() { "".to_owned() } else { format!("{:.0}", median(&times.floor)) },
            counted.map_or(String::new(), |c| format!("{:.2}", c.tembo_fences)),
            counted.and_then(|c| c.pmemobj_fences).map_or("-".to_owned(), |fences| format!("{fences:.2}")),
            wanted.map_or(String::new(), |wanted| format!("{wanted:.2}")),
            wanted.map_or("", |wanted| if ratio <= wanted { "met" } else { "missed" }),
        );
    }
    if measured.rows.iter().any(|(row, _)| *row == Row::WriteOne) {
        let _ = writeln!(
            text,
            "\nStoring to one random line, flushing it and waiting for that, in the same run: {} ns.\n",
            cell(&measured.persist)
        );
    }
    render_openings(&mut text, opened);
    text.push_str("\nConfigurations:\n\n");
    for (side, settings) in &measured.settings {
        let _ = writeln!(text, "- {side}: {settings}.");
    }
    let _ = writeln!(text, "- Mapped by huge pages: {}. All pages were touched in advance.", measured.huge);
    text
}

fn render_openings(text: &mut String, opened: &[Opened]) {
    text.push_str(
        "| after kill -9 | size, MiB | open, us | wanted | first allocation and link, us | wanted | |\n\
         |---|---:|---:|---:|---:|---:|---|\n",
    );
    for Opened { side, bytes, times } in opened {
        let of = |value: fn(&Opening) -> f64| times.iter().map(value).collect::<Vec<f64>>();
        let (open, first) = (of(|opening| opening.open_us), of(|opening| opening.first_us));
        let is_ours = *side == Tembo::NAME;
        let is_met = median(&open) <= OPEN_GOAL_US && median(&first) <= FIRST_GOAL_US;
        let _ = writeln!(
            text,
            "| {side} | {} | {} | {} | {} | {} | {} |",
            bytes >> 20,
            cell(&open),
            if is_ours { format!("{OPEN_GOAL_US:.0}") } else { String::new() },
            cell(&first),
            if is_ours { format!("{FIRST_GOAL_US:.0}") } else { String::new() },
            match (is_ours, is_met) {
                (false, _) => "",
                (true, true) => "met",
                (true, false) => "missed",
            },
        );
    }
}

fn cell(times: &[f64]) -> String {
    format!("{:.0} ({:.0}-{:.0})", median(times), quantile(times, 0.25), quantile(times, 0.75))
}

fn median(times: &[f64]) -> f64 {
    quantile(times, 0.5)
}

fn quantile(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_of_nothing_there_is_none() {
        assert_eq!(median(&[5.0, 1.0, 100.0]), 5.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
        assert!(median(&[]).is_nan());
    }
}
