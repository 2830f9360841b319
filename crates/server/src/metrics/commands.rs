//! Figures of commands.

use std::borrow::Cow;

use hdrhistogram::Histogram;

use super::family::{FigureKind, Gathered, Value};
use crate::command_stats::{CommandStats, Entry};

/// The upper bounds of buckets, in microseconds: 1, 2, 4 and so on to half a second.
const BOUNDS: u32 = 20;

pub(super) fn gather(stats: &CommandStats, out: &mut Gathered) {
    let entries = stats.entries();
    let of = |count: fn(&Entry) -> u64| {
        entries.iter().map(move |entry| (entry.command.name, count(entry))).filter(|(_, count)| *count > 0)
    };
    out.each(
        FigureKind::Counter,
        ("tembo_commands", "command"),
        "Commands that were run",
        of(|entry| entry.calls),
    );
    let help = "Commands that ended in an error";
    out.each(FigureKind::Counter, ("tembo_failed_commands", "command"), help, of(|entry| entry.failed));
    let help = "Commands that were refused before they were run";
    out.each(FigureKind::Counter, ("tembo_rejected_commands", "command"), help, of(|entry| entry.rejected));
    let seconds = entries
        .iter()
        .filter(|entry| entry.calls > 0)
        .map(|entry| (vec![("command", Cow::from(entry.command.name))], Value::Real(entry.seconds())));
    let help = "Time that commands took, without their commit";
    out.add(FigureKind::Counter, "tembo_command_seconds", help, seconds.collect());
    let times = entries.iter().filter_map(|entry| {
        let times = entry.times.as_deref()?;
        Some((vec![("command", Cow::from(entry.command.name))], times_of(entry, times)))
    });
    let help = "Durations of commands, without their commit (latency-tracking)";
    out.add(FigureKind::Histogram, "tembo_command_duration_seconds", help, times.collect());
    let errors = stats.errors.iter().map(|(word, count)| (word.clone(), *count));
    let help = "Errors that clients got, by their first words";
    out.each(FigureKind::Counter, ("tembo_errors", "error"), help, errors);
    let help = "Commands that took longer than slowlog-log-slower-than";
    out.counter("tembo_slow_commands", help, stats.slow_count());
}

/// The buckets of a histogram in nanoseconds.
fn times_of(entry: &Entry, times: &Histogram<u64>) -> Value {
    let mut buckets: Vec<_> = (0..BOUNDS).map(|power| (f64::from(1 << power) / 1e6, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for step in times.iter_recorded() {
        let micros = step.value_iterated_to().div_ceil(1000);
        let bucket = micros.next_power_of_two().ilog2().min(BOUNDS) as usize;
        buckets[bucket].1 += step.count_since_last_iteration();
    }
    let count = times.len();
    // The sum is exact if the histogram has all calls; otherwise it is as exact as the histogram.
    let seconds = if count == entry.calls { entry.seconds() } else { times.mean() * count as f64 / 1e9 };
    Value::Times { seconds, count, buckets }
}
