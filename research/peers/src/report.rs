//! The table, the goals and the JSON.

use crate::measure::{Measured, Phase, Plan, SCAN_RECORDS};
use crate::supervise::{Row, Run};
use crate::workload::Shape;
use serde::Serialize;
use std::fmt::Write as _;

/// A comparison of one shape.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) shape: Shape,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    pub(crate) rounds: usize,
    pub(crate) limit_s: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) goals: Vec<Goal>,
}

/// A figure that we want.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    /// Ours, in nanoseconds.
    pub(crate) ours_ns: f64,
    /// The peer that the ratio refers to.
    pub(crate) peer: String,
    pub(crate) peer_ns: f64,
    /// How many times as fast as the peer we are.
    pub(crate) ratio: f64,
    /// The same by processor time, which says more where other programs compete for the processors.
    pub(crate) processor_ratio: f64,
    /// How many times we want to be.
    pub(crate) goal: f64,
    pub(crate) is_met: bool,
}

/// Chooses a phase of a run.
type Choice = fn(&Measured) -> Option<&Phase>;

/// Chooses a time of a phase.
type Clock = fn(&Phase) -> f64;

const WALL: Clock = |phase| phase.ns;
const PROCESSOR: Clock = |phase| phase.cpu_ns;

const INSERT: Choice = |m| Some(&m.insert);
const LOOKUP: Choice = |m| Some(&m.lookup);
const SHARED_LOOKUP: Choice = |m| m.shared_lookup.as_ref();
const SCAN: Choice = |m| Some(&m.scan);
const REMOVE: Choice = |m| Some(&m.remove);

/// The columns of the table that have ratios.
const COLUMNS: &[(&str, Choice)] = &[
    ("insert", INSERT),
    ("lookup", LOOKUP),
    ("lookup, one snapshot", SHARED_LOOKUP),
    ("scan of 100", SCAN),
    ("remove", REMOVE),
];

const PMEMOBJ: &str = "libpmemobj";

impl Comparison {
    pub(crate) fn new(plan: &Plan, rounds: usize, rows: Vec<Row>) -> Comparison {
        let goals = goals(&rows, plan);
        Comparison {
            shape: plan.shape,
            keys: plan.keys,
            seed: plan.seed,
            rounds,
            limit_s: plan.limit.as_secs(),
            rows,
            goals,
        }
    }

    /// Markdown: the table, its notes, the goals and every engine's configuration.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "### {}\n\n{} random keys, seed {}, medians of {} rounds by turns; ns of an operation, and in brackets how many \
             times as long as ours takes.\n\n",
            self.shape.describe(),
            self.keys,
            self.seed,
            self.rounds
        );
        self.render_table(&mut text, WALL);
        self.render_notes(&mut text);
        text.push_str("\nThe same by processor time, the engine's own threads included:\n\n");
        self.render_table(&mut text, PROCESSOR);
        self.render_goals(&mut text);
        text.push_str("\nConfigurations:\n\n");
        for row in &self.rows {
            let settings = row.runs.first().map_or("did not run", |run| &run.measured.settings);
            let _ = writeln!(text, "- {} {}: {settings}.", row.name, row.version);
        }
        text
    }

    fn render_table(&self, text: &mut String, clock: Clock) {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let _ = writeln!(text, "| engine | {} | open after kill, ms |", names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len() + 1));
        let ours = self.rows.iter().find(|row| row.is_ours);
        for row in &self.rows {
            let mut cells = vec![row.name.to_owned()];
            for (_, choice) in COLUMNS {
                let ns = median_ns(row, *choice, clock);
                // A lookup in a shared snapshot is compared with our ordinary one, if we have no such thing.
                let base = ours.and_then(|ours| {
                    median_ns(ours, *choice, clock).or_else(|| median_ns(ours, LOOKUP, clock))
                });
                let mark = if ns.is_some() && fewest_keys(row) < self.keys { " *" } else { "" };
                cells.push(cell(ns, base) + mark);
            }
            cells.push(
                median(row, |run| run.reopened.open_ms).map_or("-".to_owned(), |ms| format!("{ms:.1}")),
            );
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }

    fn render_notes(&self, text: &mut String) {
        let mut notes = Vec::new();
        for row in &self.rows {
            if let Some(failure) = &row.failure {
                notes.push(format!("{}: {failure}.", row.name));
            }
            let count = fewest_keys(row);
            if count < self.keys && !row.runs.is_empty() {
                notes.push(format!(
                    "\\* {}: stopped inserting after {} s with {count} keys, so that its row is of a smaller database.",
                    row.name, self.limit_s
                ));
            }
            if let Some((low, high)) = spread(row, INSERT).filter(|(low, high)| high / low > 1.25) {
                notes.push(format!(
                    "{}: inserts took {low:.0} to {high:.0} ns from round to round.",
                    row.name
                ));
            }
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }

    fn render_goals(&self, text: &mut String) {
        if self.goals.is_empty() {
            return;
        }
        text.push_str(
            "\n| goal | ours, ns | peer | peer, ns | times as fast | by processor time | wanted | |\n|---|---:|---|---:|---:|---:|---:|---|\n",
        );
        for goal in &self.goals {
            let verdict = if goal.is_met { "met" } else { "missed" };
            let _ = writeln!(
                text,
                "| {} | {:.0} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {verdict} |",
                goal.name, goal.ours_ns, goal.peer, goal.peer_ns, goal.ratio, goal.processor_ratio, goal.goal
            );
        }
    }
}

fn cell(ns: Option<f64>, base: Option<f64>) -> String {
    match (ns, base) {
        (Some(ns), Some(base)) => format!("{ns:.0} ({:.2})", ns / base),
        (Some(ns), None) => format!("{ns:.0}"),
        (None, _) => "-".to_owned(),
    }
}

/// The median of a row's runs, of which the better one if they are even; none if there are none.
fn median(row: &Row, value: impl Fn(&Run) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = row.runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// How many keys an engine inserted within the limit, in its slowest run; none if there was no run.
fn fewest_keys(row: &Row) -> u64 {
    row.runs.iter().map(|run| run.measured.insert.operations).min().unwrap_or(0)
}

fn median_ns(row: &Row, choice: Choice, clock: Clock) -> Option<f64> {
    row.runs.first().and_then(|run| choice(&run.measured))?;
    median(row, |run| choice(&run.measured).map_or(f64::NAN, clock))
}

fn spread(row: &Row, choice: Choice) -> Option<(f64, f64)> {
    let values = row.runs.iter().filter_map(|run| choice(&run.measured)).map(|phase| phase.ns);
    values.fold(None, |range, ns| {
        Some(range.map_or((ns, ns), |(low, high): (f64, f64)| (low.min(ns), high.max(ns))))
    })
}

/// A goal against other engines.
struct Wanted {
    name: &'static str,
    ours: Choice,
    theirs: Choice,
    among: fn(&Row) -> bool,
    goal: f64,
}

fn is_pmemobj(row: &Row) -> bool {
    row.id == PMEMOBJ
}

fn is_peer(row: &Row) -> bool {
    !row.is_ours
}

fn is_other(row: &Row) -> bool {
    is_peer(row) && !is_pmemobj(row)
}

/// The map of 8-byte keys.
const WANTED: &[Wanted] = &[
    Wanted {
        name: "durable inserts, beside libpmemobj's tree",
        ours: INSERT,
        theirs: INSERT,
        among: is_pmemobj,
        goal: 7.0,
    },
    Wanted {
        name: "durable inserts, beside the best of the others",
        ours: INSERT,
        theirs: INSERT,
        among: is_other,
        goal: 6.0,
    },
    Wanted {
        name: "lookups, beside the best of the others",
        ours: LOOKUP,
        theirs: LOOKUP,
        among: is_other,
        goal: 4.0,
    },
    Wanted {
        name: "lookups, beside the best of the others in one snapshot",
        ours: LOOKUP,
        theirs: SHARED_LOOKUP,
        among: is_other,
        goal: 4.0,
    },
    Wanted {
        name: "lookups, beside the best of all peers",
        ours: LOOKUP,
        theirs: LOOKUP,
        among: is_peer,
        goal: 4.0,
    },
];

const STORE: &str = "tembo-store";

fn is_lmdb(row: &Row) -> bool {
    row.id == "lmdb"
}

/// Goals of the store: put, get, delete and scan, as parts of the time of the best peer, a scan of LMDB's.
fn wanted_of_store(shape: Shape) -> Vec<Wanted> {
    let goals = match shape {
        Shape::Words => [Some(0.35), Some(0.7), Some(0.4), Some(4.0)],
        Shape::Strings | Shape::Strings100 => [Some(0.65), Some(1.0), Some(0.55), None],
        Shape::Kib => [Some(0.65), None, Some(0.7), Some(1.2)],
        Shape::Tuples | Shape::TuplesKib => [None; 4],
    };
    let names = [
        ("puts of the store, beside the best peer", INSERT, is_other as fn(&Row) -> bool),
        ("gets of the store, beside the best peer", LOOKUP, is_other),
        ("deletes of the store, beside the best peer", REMOVE, is_other),
        ("scans of the store, beside LMDB", SCAN, is_lmdb),
    ];
    names
        .into_iter()
        .zip(goals)
        .filter_map(|((name, choice, among), goal)| {
            Some(Wanted { name, ours: choice, theirs: choice, among, goal: 1.0 / goal? })
        })
        .collect()
}

/// The goals as measured. One whose peers did not run is left out, and so is a peer that stopped before
/// `keys`: what it then looks up is easier to find.
fn goals(rows: &[Row], plan: &Plan) -> Vec<Goal> {
    let keys = plan.keys;
    let goal = |ours: &Row, wanted: &Wanted| {
        let ours_ns = median_ns(ours, wanted.ours, WALL)?;
        let peers = rows.iter().filter(|row| (wanted.among)(row) && fewest_keys(row) >= keys);
        let measured = peers.filter_map(|row| Some((row, median_ns(row, wanted.theirs, WALL)?)));
        let (peer, peer_ns) = measured.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let ratio = peer_ns / ours_ns;
        let processor_ratio =
            median_ns(peer, wanted.theirs, PROCESSOR)? / median_ns(ours, wanted.ours, PROCESSOR)?;
        let (name, goal, is_met) = (wanted.name, wanted.goal, ratio >= wanted.goal);
        Some(Goal {
            name,
            ours_ns,
            peer: peer.name.to_owned(),
            peer_ns,
            ratio,
            processor_ratio,
            goal,
            is_met,
        })
    };
    let mut goals = Vec::new();
    if let Some(map) = rows.iter().find(|row| row.is_ours && row.id != STORE)
        && plan.shape == Shape::Words
    {
        goals.extend(WANTED.iter().filter_map(|wanted| goal(map, wanted)));
    }
    if let Some(store) = rows.iter().find(|row| row.id == STORE) {
        goals.extend(wanted_of_store(plan.shape).iter().filter_map(|wanted| goal(store, wanted)));
    }
    goals
}

/// One line about what the columns are.
pub(crate) fn legend() -> String {
    format!(
        "Every insert and remove is one durable operation. A lookup finds a key that is there, and its value is compared. \
         A scan visits {SCAN_RECORDS} records from a key that is there. \"One snapshot\": lookups that share one read \
         transaction, of engines that have them. \"Open after kill\": the process was killed without closing; from opening to the first answer. After \
         that, every record is read in order and compared with what was acknowledged.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Reopened;
    use std::time::Duration;

    fn row(id: &'static str, is_ours: bool, insert_ns: &[f64], lookup_ns: f64) -> Row {
        let run = |ns: &f64| {
            let phase = |ns| Phase { operations: 10, ns, cpu_ns: ns };
            let measured = Measured {
                settings: String::new(),
                insert: phase(*ns),
                settle_ms: 0.0,
                lookup: phase(lookup_ns),
                shared_lookup: None,
                scan: phase(1.0),
                remove: phase(1.0),
            };
            Run { measured, reopened: Reopened { open_ms: 1.0, records: 5 } }
        };
        let runs = insert_ns.iter().map(run).collect();
        Row { id, name: id, version: "1", is_ours, runs, failure: None }
    }

    fn plan() -> Plan {
        let limit = Duration::from_secs(1);
        Plan { shape: Shape::Words, keys: 10, seed: 1, limit, durability: tembo_pmem::Durability::Emulated }
    }

    #[test]
    fn goals_take_the_best_peer_and_say_when_they_are_missed() {
        let rows = vec![
            row("tembo", true, &[100.0, 90.0, 400.0], 50.0),
            row(PMEMOBJ, false, &[700.0], 100.0),
            row("slow", false, &[9000.0], 900.0),
            row("quick", false, &[599.0], 200.0),
        ];
        let goals = Comparison::new(&plan(), 3, rows).goals;
        let found: Vec<_> = goals.iter().map(|g| (g.peer.as_str(), g.ours_ns, g.is_met)).collect();
        assert_eq!(
            found,
            [(PMEMOBJ, 100.0, true), ("quick", 100.0, false), ("quick", 50.0, true), (PMEMOBJ, 50.0, false)]
        );
    }

    #[test]
    fn an_engine_that_failed_keeps_its_row_and_says_why() {
        let mut failed = row("broken", false, &[], 0.0);
        failed.failure = Some("no space".to_owned());
        let rows = vec![row("tembo", true, &[100.0], 50.0), failed];
        let text = Comparison::new(&plan(), 1, rows).render();
        assert!(text.contains("| broken | - | - | - | - | - | - |"), "{text}");
        assert!(text.contains("broken: no space."), "{text}");
    }

    #[test]
    fn a_shorter_run_and_a_wide_spread_are_noted() {
        let mut short = row("short", false, &[100.0, 130.0], 1.0);
        short.runs[0].measured.insert.operations = 9;
        let text = Comparison::new(&plan(), 2, vec![row("tembo", true, &[100.0], 1.0), short]).render();
        assert!(text.contains("with 9 keys") && text.contains("100 to 130 ns"), "{text}");
        assert!(text.contains("| 100 (1.00) * |"), "{text}");
    }

    #[test]
    fn a_peer_with_fewer_keys_is_no_measure_for_goals() {
        let mut short = row("short", false, &[10.0], 1.0);
        short.runs[0].measured.insert.operations = 9;
        let rows = vec![row("tembo", true, &[100.0], 1.0), short, row("whole", false, &[500.0], 2.0)];
        let goals = Comparison::new(&plan(), 1, rows).goals;
        assert!(goals.iter().all(|goal| goal.peer == "whole"), "{goals:?}");
    }

    #[test]
    fn the_store_has_goals_of_its_own() {
        let rows = vec![row(STORE, true, &[100.0], 80.0), row("lmdb", false, &[250.0], 90.0)];
        let goals = Comparison::new(&plan(), 1, rows).goals;
        let found: Vec<_> = goals.iter().map(|goal| (goal.name, goal.is_met)).collect();
        let (put, get) =
            ("puts of the store, beside the best peer", "gets of the store, beside the best peer");
        assert_eq!(found[..2], [(put, false), (get, false)]);
        assert_eq!(found[3], ("scans of the store, beside LMDB", true));
    }
}
