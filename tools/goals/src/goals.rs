//! Goals and how they are run: one line each, with its goal and whether it is met.
//!
//! A [`Measurement`] is one run that yields several [`Row`]s, because sides that are compared must be
//! measured in the same run. To add one, write its rows and its function, and put it into the program's list.
//! A missed goal is printed as missed; only a run that cannot be made is an error.

use crate::Error;
use crate::progress::Progress;
use crate::table::number;
use clap::Args;
use serde::Serialize;
use std::sync::Barrier;
use std::time::Instant;
use tembo_pmem::Durability;
use tembo_pool::{Options, Pool};

/// The promise about a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// None; the figure is for information.
    None,
}

impl Goal {
    fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Goal::AtMost(goal) => Some(ratio <= goal),
            Goal::AtLeast(goal) => Some(ratio >= goal),
            Goal::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtMost(goal) => format!("at most {goal}"),
            Goal::AtLeast(goal) => format!("at least {goal}"),
            Goal::None => String::new(),
        }
    }
}

/// A figure that is promised.
#[derive(Debug)]
pub struct Row {
    /// The name of the row; unique.
    pub name: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// The other side of the ratio.
    pub against: &'static str,
    /// The promise about the ratio.
    pub goal: Goal,
}

/// Seconds that so many threads take for some work with each of the items, divided among them.
pub(crate) fn seconds<T: Sync>(threads: usize, items: &[T], work: &(dyn Fn(&T) + Sync)) -> f64 {
    let begin = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for part in items.chunks(items.len().div_ceil(threads)) {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                part.iter().for_each(work);
            });
        }
        begin.wait();
        Instant::now()
    })
    .elapsed()
    .as_secs_f64()
}

/// The measured value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// In the row's unit.
    pub value: f64,
    /// To what the row compares with.
    pub ratio: f64,
}

/// How large measurements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Small, for finding out whether everything works; the numbers then mean little.
    pub quick: bool,
    /// Seed of keys and of their order.
    pub seed: u64,
}

impl Scale {
    /// That many, or a hundredth of it.
    pub fn of(self, count: usize) -> usize {
        if self.quick { (count / 100).max(1) } else { count }
    }
}

/// One run.
#[derive(Debug)]
pub struct Measurement {
    /// The name of the measurement; unique.
    pub name: &'static str,
    /// The rows that it yields.
    pub rows: &'static [Row],
    /// Measures a value for each row, in their order.
    pub run: fn(Scale) -> Result<Vec<Value>, Error>,
}

/// A new pool in memory, with the flushes and fences of persistent memory, that is gone when it is closed.
///
/// # Errors
///
/// When no pool can be made.
pub fn temporary_pool(count: bool) -> Result<Pool, Error> {
    let shared = std::path::Path::new("/dev/shm");
    let folder = if shared.is_dir() { tempfile::tempdir_in(shared)? } else { tempfile::tempdir()? };
    let mut options = Options::new().durability(Durability::Emulated);
    options.create_new = true;
    options.region.count = count;
    Ok(Pool::open(folder.path().join("summary.pool"), &options)?)
}

/// A line of the summary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The row's name.
    pub name: &'static str,
    /// The measured value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// How it compares.
    pub ratio: f64,
    /// With what.
    pub against: &'static str,
    /// The promise about the ratio, if there is one.
    pub goal: String,
    /// Whether it is.
    pub met: Option<bool>,
}

impl Line {
    fn new(row: &Row, value: Value) -> Line {
        Line {
            name: row.name,
            value: value.value,
            unit: row.unit,
            ratio: value.ratio,
            against: row.against,
            goal: row.goal.text(),
            met: row.goal.is_met(value.ratio),
        }
    }

    /// The line for people.
    pub fn text(&self) -> String {
        let met = self.met.map_or("", |met| if met { "met" } else { "MISSED" });
        let value = format!("{} {}", number(self.value), self.unit);
        let ratio = format!("{:.3} x {}", self.ratio, self.against);
        format!("{:<26} {value:>14}   {ratio:<44} {:<14} {met}", self.name, self.goal).trim_end().to_owned()
    }
}

/// Whether a name is this one, or begins with it and a hyphen.
fn is_called(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// How goals are measured, as given on a command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print a JSON object for each line
    #[arg(long)]
    pub json: bool,
    /// Measure only this row or measurement, or those whose names begin with it and a hyphen
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Measure small, to find out whether everything works
    #[arg(long)]
    pub quick: bool,
    /// Seed of keys and of their order
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
}

impl Arguments {
    /// Runs the measurements and prints their lines.
    ///
    /// # Errors
    ///
    /// As for [`run`].
    pub fn print(&self, measurements: &[Measurement]) -> Result<(), Error> {
        if !self.json {
            println!("{}", crate::machine::Machine::this());
        }
        let scale = Scale { quick: self.quick, seed: self.seed };
        run(measurements, scale, self.only.as_deref(), |line| {
            let json = |line: &Line| serde_json::to_string(line).unwrap_or_default();
            println!("{}", if self.json { json(line) } else { line.text() });
        })
    }
}

/// Runs all measurements, or those that `only` selects (a row, a measurement with all its rows, or a prefix
/// of such a name), and tells each line as soon as it is known.
///
/// # Errors
///
/// When `only` names nothing, or a measurement cannot be made.
pub fn run(
    measurements: &[Measurement],
    scale: Scale,
    only: Option<&str>,
    mut tell: impl FnMut(&Line),
) -> Result<(), Error> {
    let wanted = |measurement: &Measurement, row: &Row| {
        only.is_none_or(|only| [measurement.name, row.name].iter().any(|name| is_called(name, only)))
    };
    let chosen: Vec<&Measurement> =
        measurements.iter().filter(|m| m.rows.iter().any(|row| wanted(m, row))).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = measurements.iter().flat_map(|m| m.rows).map(|row| row.name).collect();
        return Err(format!(
            "nothing is called {}; there are {}",
            only.unwrap_or_default(),
            known.join(", ")
        )
        .into());
    }
    let progress = Progress::new("goals", chosen.len() as u64);
    for measurement in chosen {
        progress.doing(measurement.name);
        let values = (measurement.run)(scale).map_err(|e| format!("{}: {e}", measurement.name))?;
        assert_eq!(values.len(), measurement.rows.len(), "{} has a value for each row", measurement.name);
        let lines = measurement.rows.iter().zip(values).filter(|(row, _)| wanted(measurement, row));
        progress.aside(|| lines.for_each(|(row, value)| tell(&Line::new(row, value))));
        progress.step();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MEASUREMENTS;

    const ROW: Row = Row { name: "row", unit: "ns", against: "something", goal: Goal::AtMost(0.8) };

    #[test]
    fn goals_are_met_or_missed() {
        let met = |goal: Goal, ratio| goal.is_met(ratio);
        assert_eq!(
            [0.79, 0.8, 0.81].map(|ratio| met(Goal::AtMost(0.8), ratio)),
            [Some(true), Some(true), Some(false)]
        );
        assert_eq!([3.9, 4.0].map(|ratio| met(Goal::AtLeast(4.0), ratio)), [Some(false), Some(true)]);
        assert_eq!(met(Goal::None, 1.0), None);
        assert_eq!(met(Goal::AtMost(1.0), f64::NAN), Some(false));
    }

    #[test]
    fn a_missed_goal_is_said_to_be_missed() {
        let line = Line::new(&ROW, Value { value: 12.0, ratio: 0.9 });
        let text = line.text();
        for expected in ["row", "12.0 ns", "0.900 x something", "at most 0.8", "MISSED"] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(Line::new(&ROW, Value { value: 12.0, ratio: 0.5 }).text().ends_with(" met"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = MEASUREMENTS.iter().map(|m| m.name).collect();
        names.extend(MEASUREMENTS.iter().flat_map(|m| m.rows).map(|row| row.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = run(MEASUREMENTS, Scale { quick: true, seed: 1 }, Some("nothing"), |_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("nothing") && error.contains(MEASUREMENTS[0].rows[0].name), "{error}");
    }

    #[test]
    fn one_row_of_a_measurement_can_be_chosen() {
        let mut lines = Vec::new();
        run(MEASUREMENTS, Scale { quick: true, seed: 1 }, Some("string-lookup-1M"), |line| {
            lines.push(line.clone())
        })
        .unwrap();
        assert_eq!(lines.iter().map(|line| line.name).collect::<Vec<_>>(), ["string-lookup-1M"]);
        assert!(lines[0].value > 0.0 && lines[0].ratio > 0.0);
    }
}
