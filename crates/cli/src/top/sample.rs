//! The figures that a server gives of itself at one moment.

use super::client::{Client, NoAnswer, printable};
use std::collections::{BTreeMap, HashMap};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tembo_wire::Value;

/// The number of slow commands in a request.
const SLOW: &str = "5";

/// The counts of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) micros: u64,
    pub(super) rejected: u64,
    pub(super) failed: u64,
}

/// A command of the slow log. Its arguments are the users' affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) name: String,
    pub(super) micros: u64,
    pub(super) seconds_ago: u64,
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    /// The fields of INFO.
    fields: HashMap<String, String>,
    pub(super) commands: BTreeMap<String, Counts>,
    /// By command: how many calls took at most this many microseconds, faster ones included.
    pub(super) times: BTreeMap<String, Vec<(u64, u64)>>,
    pub(super) slow: Vec<Slow>,
}

impl Sample {
    pub(super) fn take(client: &mut Client) -> Result<Sample, NoAnswer> {
        let info = client.ask(&["INFO", "everything"])?;
        let at = Instant::now();
        let text = printable_lines(info.as_bytes().unwrap_or_default());
        // A user may be denied these, and another server may not have them.
        let times = optional(client.ask(&["LATENCY", "HISTOGRAM"]))?.map(read_times).unwrap_or_default();
        let slow = optional(client.ask(&["SLOWLOG", "GET", SLOW]))?.map(read_slow).unwrap_or_default();
        Ok(Sample::read(at, &text, times, slow))
    }

    /// Reads the text of INFO.
    pub(super) fn read(
        at: Instant,
        text: &[String],
        times: BTreeMap<String, Vec<(u64, u64)>>,
        slow: Vec<Slow>,
    ) -> Sample {
        let (mut fields, mut commands) = (HashMap::new(), BTreeMap::new());
        for (name, value) in text.iter().filter_map(|line| line.split_once(':')) {
            match name.strip_prefix("cmdstat_") {
                Some(command) => drop(commands.insert(command.to_owned(), read_counts(value))),
                None => drop(fields.insert(name.to_owned(), value.to_owned())),
            }
        }
        Sample { at, fields, commands, times, slow }
    }

    pub(super) fn text(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// A number; 0 if there is none.
    pub(super) fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or(0)
    }

    /// Keys of all databases, and those of them that expire.
    pub(super) fn keys(&self) -> (u64, u64) {
        let databases = self
            .fields
            .iter()
            .filter(|(name, _)| name.strip_prefix("db").is_some_and(|number| number.parse::<u32>().is_ok()));
        databases.fold((0, 0), |(keys, expires), (_, value)| {
            (keys + part(value, "keys"), expires + part(value, "expires"))
        })
    }
}

/// A reply, unless the server refused.
fn optional(reply: Result<Value, NoAnswer>) -> Result<Option<Value>, NoAnswer> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(NoAnswer::Refused(_)) => Ok(None),
        Err(lost) => Err(lost),
    }
}

fn printable_lines(text: &[u8]) -> Vec<String> {
    text.split(|&byte| byte == b'\n')
        .map(|line| printable(line.strip_suffix(b"\r").unwrap_or(line)))
        .collect()
}

/// A part of `a=1,b=2`.
fn part(value: &str, name: &str) -> u64 {
    let parts = value.split(',').filter_map(|part| part.split_once('='));
    parts
        .into_iter()
        .find(|(found, _)| *found == name)
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

fn read_counts(value: &str) -> Counts {
    Counts {
        calls: part(value, "calls"),
        micros: part(value, "usec"),
        rejected: part(value, "rejected_calls"),
        failed: part(value, "failed_calls"),
    }
}

/// The names and values of a map as RESP2 has it.
fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Array(values) => values.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => Vec::new(),
    }
}

fn whole(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

fn read_times(reply: Value) -> BTreeMap<String, Vec<(u64, u64)>> {
    let buckets = |of: &Value| {
        let parts = pairs(of);
        let found = parts.iter().find(|(name, _)| name.as_bytes() == Some(b"histogram_usec"))?;
        Some(pairs(found.1).into_iter().map(|(micros, count)| (whole(micros), whole(count))).collect())
    };
    let commands = pairs(&reply);
    let named =
        commands.into_iter().filter_map(|(name, of)| Some((printable(name.as_bytes()?), buckets(of)?)));
    named.collect()
}

fn read_slow(reply: Value) -> Vec<Slow> {
    let Value::Array(entries) = reply else { return Vec::new() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let read = |entry: &Value| {
        let Value::Array(parts) = entry else { return None };
        let Some(Value::Array(words)) = parts.get(3) else { return None };
        Some(Slow {
            name: printable(words.first()?.as_bytes()?).to_lowercase(),
            micros: whole(parts.get(2)?),
            seconds_ago: now.saturating_sub(whole(parts.get(1)?)),
        })
    };
    entries.iter().filter_map(read).collect()
}
