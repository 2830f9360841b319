//! The changes between two samples.

use super::client::Place;
use super::sample::{Counts, Sample};
use crate::size::human_bytes;
use std::fmt::Write;

/// The figures of one command.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Calls, and those that failed or were refused, in a second.
    pub(super) calls: f64,
    pub(super) errors: f64,
    pub(super) mean_us: f64,
    /// Upper bounds, which are powers of two; none where the server has no histogram.
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Report {
    pub(super) title: String,
    /// Lines with a name each.
    pub(super) lines: Vec<(&'static str, String)>,
    /// The pool by kind, in bytes.
    pub(super) space: Vec<(&'static str, u64)>,
    /// Commands, the most frequent first.
    pub(super) commands: Vec<Row>,
    pub(super) slow: Vec<String>,
}

/// Rates of an interval.
struct Interval<'s> {
    before: &'s Sample,
    after: &'s Sample,
    seconds: f64,
}

impl Interval<'_> {
    /// How much a count of INFO grew.
    fn grew(&self, field: &str) -> u64 {
        self.after.number(field).saturating_sub(self.before.number(field))
    }

    fn rate(&self, field: &str) -> f64 {
        self.grew(field) as f64 / self.seconds
    }
}

impl Report {
    pub(super) fn between(place: &Place, before: &Sample, after: &Sample) -> Report {
        // A server that was started anew has counted from 0 on; there is nothing to compare with.
        let is_same = before.text("run_id") == after.text("run_id");
        let before = if is_same { before } else { after };
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let interval = Interval { before, after, seconds };
        let slow = after.slow.iter().map(|slow| {
            format!("{} took {}, {} ago", slow.name, micros(slow.micros as f64), span(slow.seconds_ago))
        });
        Report {
            title: title(place, after),
            lines: lines(&interval),
            space: space(after),
            commands: commands(&interval),
            slow: slow.collect(),
        }
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        let space: Vec<_> =
            self.space.iter().map(|(kind, bytes)| format!("{kind} {}", human_bytes(*bytes))).collect();
        let space = [("space", space.join(", "))];
        for (name, line) in self.lines.iter().chain(&space) {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name:<12} {line}");
        }
        let _ = writeln!(out, "{}", Report::HEADINGS.map(str::to_owned).join_columns());
        for row in &self.commands {
            let _ = writeln!(out, "{}", row.cells().join_columns());
        }
        for slow in &self.slow {
            let _ = writeln!(out, "{:<12} {slow}", "slow");
        }
        out
    }

    pub(super) const HEADINGS: [&str; 6] = ["command", "calls/s", "errors/s", "mean", "p50", "p99"];
}

/// Cells of a row of text.
trait Columns {
    fn join_columns(&self) -> String;
}

impl Columns for [String; 6] {
    fn join_columns(&self) -> String {
        let [name, numbers @ ..] = self;
        let numbers: String = numbers.iter().map(|number| format!(" {number:>10}")).collect();
        format!("{name:<24}{numbers}")
    }
}

impl Row {
    pub(super) fn cells(&self) -> [String; 6] {
        let bound = |us: Option<u64>| us.map_or("-".to_owned(), |us| micros(us as f64));
        [
            self.name.clone(),
            per_second(self.calls),
            per_second(self.errors),
            micros(self.mean_us),
            bound(self.p50_us),
            bound(self.p99_us),
        ]
    }
}

fn title(place: &Place, after: &Sample) -> String {
    let role = match after.text("role") {
        "slave" => format!(
            "replica of {}:{} (link {})",
            after.text("master_host"),
            after.text("master_port"),
            after.text("master_link_status")
        ),
        _ => format!("master with {} replicas", after.number("connected_slaves")),
    };
    let version = match after.has("tembo_version") {
        true => format!("tembo {}", after.text("tembo_version")),
        false => format!("redis {}", after.text("redis_version")),
    };
    let domain = after.text("durability_domain");
    let domain = if domain.is_empty() { String::new() } else { format!(", {domain}") };
    format!("{version} at {place}, up {}{domain}, {role}", span(after.number("uptime_in_seconds")))
}

fn lines(interval: &Interval<'_>) -> Vec<(&'static str, String)> {
    let after = interval.after;
    let (keys, expires) = after.keys();
    let mut lines = vec![
        (
            "commands",
            format!(
                "{}/s, errors {}/s, hits {}/s, misses {}/s",
                per_second(interval.rate("total_commands_processed")),
                per_second(interval.rate("total_error_replies")),
                per_second(interval.rate("keyspace_hits")),
                per_second(interval.rate("keyspace_misses"))
            ),
        ),
        (
            "clients",
            format!(
                "{} with {}, blocked {}, new {}/s, in {}/s, out {}/s",
                after.number("connected_clients"),
                human_bytes(after.number("mem_clients_normal")),
                after.number("blocked_clients"),
                per_second(interval.rate("total_connections_received")),
                human_bytes(interval.rate("total_net_input_bytes") as u64),
                human_bytes(interval.rate("total_net_output_bytes") as u64)
            ),
        ),
        (
            "keys",
            format!(
                "{keys}, {expires} expire, expired {}/s, evicted {}/s",
                per_second(interval.rate("expired_keys")),
                per_second(interval.rate("evicted_keys"))
            ),
        ),
    ];
    if after.has("commits") {
        lines.push(("commits", commits(interval)));
    }
    if after.has("journal_behind_bytes") {
        lines.push(("device", device(interval)));
    }
    if after.text("role") == "slave" || after.number("connected_slaves") > 0 {
        lines.push(("replication", replication(after)));
    }
    lines
}

fn commits(interval: &Interval<'_>) -> String {
    let commits = interval.grew("commits");
    let each = |count: u64| count as f64 / commits.max(1) as f64;
    let mut line = format!(
        "{}/s, failed {}/s, turns {}/s",
        per_second(interval.rate("commits")),
        per_second(interval.rate("failed_commits")),
        per_second(interval.rate("event_loop_turns"))
    );
    if interval.after.has("fences") {
        let (fences, lines) = (interval.grew("fences"), interval.grew("flushed_lines"));
        line += &format!(", each with {:.1} fences and {:.1} lines", each(fences), each(lines));
    }
    line
}

fn device(interval: &Interval<'_>) -> String {
    let after = interval.after;
    let duration = |field: &str| micros(after.number(field) as f64);
    format!(
        "behind {} and {} ms, written {}/s, synchronisations {}/s (p50 {}, p99 {}), stalls {}/s",
        human_bytes(after.number("journal_behind_bytes")),
        after.number("journal_behind_ms"),
        human_bytes(interval.rate("journal_written_bytes") as u64),
        per_second(interval.rate("journal_synchronisations")),
        duration("journal_synchronisation_us_p50"),
        duration("journal_synchronisation_us_p99"),
        per_second(interval.rate("journal_stalls"))
    )
}

fn replication(after: &Sample) -> String {
    let offset = after.number("master_repl_offset");
    let mut line = format!("offset {offset}");
    for number in 0..after.number("connected_slaves").min(8) {
        let replica = after.text(&format!("slave{number}")).to_owned();
        let part = |name: &str| {
            let parts = replica.split(',').filter_map(|part| part.split_once('='));
            parts.into_iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value).to_owned()
        };
        let behind = offset.saturating_sub(part("offset").parse().unwrap_or(0));
        line += &format!(
            "; {}:{} {} behind, heard {} s ago",
            part("ip"),
            part("port"),
            human_bytes(behind),
            part("lag")
        );
    }
    if after.text("role") == "slave" {
        line += &format!("; master heard {} s ago", after.text("master_last_io_seconds_ago"));
    }
    line
}

/// The pool by kind; nothing of a server that has no pool.
fn space(after: &Sample) -> Vec<(&'static str, u64)> {
    if !after.has("pool_bytes") {
        return vec![("used", after.number("used_memory"))];
    }
    let (pool, unused) = (after.number("pool_bytes"), after.number("pool_unused_bytes"));
    let allocated = after.number("used_memory");
    let waste = after.number("pool_spare_bytes").min(allocated);
    let waiting = after.number("pool_waiting_bytes").min(allocated - waste);
    vec![
        ("alive", allocated - waste - waiting),
        ("waste", waste),
        ("waiting", waiting),
        ("unused", unused),
        ("journal", pool.saturating_sub(unused).saturating_sub(allocated)),
    ]
}

fn commands(interval: &Interval<'_>) -> Vec<Row> {
    let Interval { before, after, seconds } = *interval;
    let row = |(name, now): (&String, &Counts)| {
        let then = before.commands.get(name).copied().unwrap_or_default();
        // Counts that were set to zero meanwhile are all of this interval.
        let then = if then.calls > now.calls { Counts::default() } else { then };
        let (calls, micros) = (now.calls - then.calls, now.micros.saturating_sub(then.micros));
        let errors = (now.failed + now.rejected).saturating_sub(then.failed + then.rejected);
        let times = grown(before.times.get(name), after.times.get(name));
        (calls + errors > 0).then(|| Row {
            name: name.clone(),
            calls: calls as f64 / seconds,
            errors: errors as f64 / seconds,
            mean_us: micros as f64 / calls.max(1) as f64,
            p50_us: quantile(&times, 0.5),
            p99_us: quantile(&times, 0.99),
        })
    };
    let mut rows: Vec<_> = after.commands.iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.calls.total_cmp(&a.calls));
    rows
}

/// The cumulative counts of an interval: for each bound in microseconds, the calls that took at most that
/// long. A server leaves out a bound whose count equals that of the bound before.
fn grown(before: Option<&Vec<(u64, u64)>>, after: Option<&Vec<(u64, u64)>>) -> Vec<(u64, u64)> {
    let up_to = |bound: u64| {
        let below = before.into_iter().flatten().take_while(|(found, _)| *found <= bound);
        below.last().map_or(0, |(_, count)| *count)
    };
    let of = after.into_iter().flatten();
    of.map(|&(bound, count)| (bound, count.saturating_sub(up_to(bound)))).collect()
}

/// The bound that a share of the calls did not exceed.
fn quantile(times: &[(u64, u64)], share: f64) -> Option<u64> {
    let all = times.last().filter(|(_, count)| *count > 0)?.1;
    times.iter().find(|(_, count)| *count as f64 >= share * all as f64).map(|(bound, _)| *bound)
}

fn per_second(rate: f64) -> String {
    if rate >= 100.0 || rate == 0.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us if us < 10_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.0} s", us / 1e6),
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    pub(in crate::top) fn reports() -> Report {
        let start = Instant::now();
        let sample = |at: u64, lines: &[&str], times: &[(u64, u64)]| {
            let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            let times = BTreeMap::from([("get".to_owned(), times.to_vec())]);
            Sample::read(start + Duration::from_secs(at), &lines, times, Vec::new())
        };
        let before = sample(
            0,
            &["run_id:a", "commits:10", "fences:20", "flushed_lines:100", "cmdstat_get:calls=100,usec=1000"],
            &[(1, 50), (4, 100)],
        );
        let after = sample(
            2,
            &[
                "run_id:a",
                "tembo_version:0.1.0",
                "durability_domain:relaxed",
                "uptime_in_seconds:7300",
                "commits:20",
                "fences:40",
                "flushed_lines:150",
                "pool_bytes:1000",
                "pool_unused_bytes:500",
                "used_memory:300",
                "pool_spare_bytes:50",
                "pool_waiting_bytes:10",
                "db0:keys=5,expires=2,avg_ttl=0",
                "db3:keys=1,expires=0",
                "cmdstat_get:calls=200,usec=3000,rejected_calls=0,failed_calls=4",
                "cmdstat_set:calls=8,usec=80",
            ],
            &[(1, 60), (2, 61), (4, 190), (64, 200)],
        );
        Report::between(&Place::Ip("127.0.0.1:1".parse().unwrap()), &before, &after)
    }

    #[test]
    fn a_report_is_of_its_interval() {
        let report = reports();
        assert_eq!(
            report.commands[0],
            Row {
                name: "get".to_owned(),
                calls: 50.0,
                errors: 2.0,
                mean_us: 20.0,
                // 100 calls: 10 took 1 us, 1 more 2 us, 79 more 4 us, and 10 up to 64 us.
                p50_us: Some(4),
                p99_us: Some(64),
            }
        );
        assert_eq!((report.commands[1].calls, report.commands[1].p50_us), (4.0, None));
        let space = [("alive", 240), ("waste", 50), ("waiting", 10), ("unused", 500), ("journal", 200)];
        assert_eq!(report.space, space);
        let text = report.text();
        for part in [
            "tembo 0.1.0 at 127.0.0.1:1, up 2 h, relaxed, master with 0 replicas\n",
            "commits      5.0/s, failed 0/s, turns 0/s, each with 2.0 fences and 5.0 lines\n",
            "keys         6, 2 expire,",
            "get                            50.0        2.0      20 us     4.0 us      64 us\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_server_that_was_started_anew_is_compared_with_itself() {
        let sample = |run: &str, commits: u64| {
            let lines = [format!("run_id:{run}"), format!("commits:{commits}")];
            Sample::read(Instant::now(), &lines, BTreeMap::new(), Vec::new())
        };
        let report = Report::between(&Place::Unix("s".into()), &sample("a", 5), &sample("b", 1000));
        assert!(report.text().contains("commits      0/s"), "{}", report.text());
    }
}
