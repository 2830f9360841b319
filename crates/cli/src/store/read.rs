//! Commands that read a store.

use super::bytes::{of_argument, shown};
use super::opened::Reached;
use super::{StoreDescription, kept, time};
use crate::args::{Encoding, Place, Range, Reading, SnapshotChoice};
use crate::dump::Shown;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use serde::Serialize;
use std::io::{BufWriter, StdoutLock, Write};
use std::ops::Bound;
use tembo::store::Change;

/// A key with its value, as `import` reads it.
#[derive(Serialize)]
struct EntryLine<'a> {
    keyspace: &'a str,
    key: Shown<'a>,
    value: Shown<'a>,
}

/// A version of a key.
#[derive(Serialize)]
struct VersionLine<'a> {
    number: u64,
    time: String,
    value: Option<Shown<'a>>,
}

/// A key whose values differ.
#[derive(Serialize)]
struct DifferenceLine<'a> {
    keyspace: &'a str,
    key: Shown<'a>,
    before: Option<Shown<'a>>,
    after: Option<Shown<'a>>,
}

/// Lines on standard output, written many at a time.
struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    fn new() -> Output {
        Output(BufWriter::new(std::io::stdout().lock()))
    }

    fn line(&mut self, text: &str) -> Outcome {
        writeln!(self.0, "{text}").map_err(Failure::output)
    }

    fn json(&mut self, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string(value).map_err(|e| Failure::Failed(format!("writing JSON: {e}")))?;
        self.line(&text)
    }

    fn finish(mut self) -> Outcome {
        self.0.flush().map_err(Failure::output)
    }
}

pub(super) fn ls(place: &Place, json: bool) -> Outcome {
    let reached = Reached::of(place)?;
    let mut stores = Vec::new();
    if place.store.is_some() {
        stores.push(StoreDescription::of(&reached.find(place)?)?);
    } else {
        for name in reached.names()? {
            let store = reached.open(&name)?;
            stores.extend(store.map(|store| StoreDescription::of(&store)).transpose()?);
        }
    }
    if json {
        return print_json(&stores);
    }
    let mut text = String::new();
    for store in &stores {
        text.push_str(&format!("{}: {}\n", store.name, store.summary()));
        store.lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    if text.is_empty() {
        text.push_str("no stores\n");
    }
    print(&text)
}

pub(super) fn get(place: &Place, (name, key): (&str, &str), reading: &Reading, raw: bool) -> Outcome {
    let key = of_argument(key, reading.encoding)?;
    let store = Reached::of(place)?.find(place)?;
    let Some(value) = store.view(name, reading.at.as_ref())?.get(&key)? else {
        return Err(no_value(name, &key));
    };
    if reading.json {
        return print_json(&EntryLine { keyspace: name, key: Shown(&key), value: Shown(&value) });
    }
    let mut out = std::io::stdout().lock();
    let end: &[u8] = if raw { b"" } else { b"\n" };
    out.write_all(&value)
        .and_then(|()| out.write_all(end))
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// The failure that a key has no value.
pub(super) fn no_value(keyspace: &str, key: &[u8]) -> Failure {
    Failure::Failed(format!("the key {} of the keyspace {keyspace} has no value", shown(key)))
}

pub(super) fn scan(place: &Place, name: &str, range: &Range, reading: &Reading) -> Outcome {
    let part = part(range, reading.encoding)?;
    let store = Reached::of(place)?.find(place)?;
    let entries = store.view(name, reading.at.as_ref())?.range(part, range.reverse)?;
    let mut out = Output::new();
    for entry in entries.take(range.limit.map_or(usize::MAX, |n| n as usize)) {
        let (key, value) = entry?;
        if reading.json {
            out.json(&EntryLine { keyspace: name, key: Shown(&key), value: Shown(&value) })?;
        } else {
            out.line(&format!("{}\t{}", shown(&key), shown(&value)))?;
        }
    }
    out.finish()
}

/// The keys that were asked for.
fn part(range: &Range, encoding: Encoding) -> Outcome<(Bound<Vec<u8>>, Bound<Vec<u8>>)> {
    let bytes = |text: &Option<String>| text.as_ref().map(|text| of_argument(text, encoding)).transpose();
    if let Some(prefix) = bytes(&range.prefix)? {
        let after = after_all_with(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        return Ok((Bound::Included(prefix), after));
    }
    let from = bytes(&range.from)?.map_or(Bound::Unbounded, Bound::Included);
    Ok((from, bytes(&range.to)?.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// The first key after all keys with a prefix, if one exists.
fn after_all_with(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

pub(super) fn history(place: &Place, (name, key): (&str, &str), encoding: Encoding, json: bool) -> Outcome {
    let key = of_argument(key, encoding)?;
    let versions = Reached::of(place)?.find(place)?.versions(name, &key)?;
    if versions.is_empty() {
        return Err(no_value(name, &key));
    }
    let mut out = Output::new();
    for version in versions {
        let (number, time, value) =
            (version.number, time::of_number(version.number), version.value.as_deref());
        if json {
            out.json(&VersionLine { number, time, value: value.map(Shown) })?;
        } else {
            let value = value.map_or("(deleted)".to_owned(), shown);
            out.line(&format!("{time}  {number}  {value}"))?;
        }
    }
    out.finish()
}

pub(super) fn snapshots(place: &Place, json: bool) -> Outcome {
    let kept = kept(&Reached::of(place)?.find(place)?)?;
    if json {
        return print_json(&kept);
    }
    if kept.is_empty() {
        return print("no kept snapshots\n");
    }
    print(&kept.iter().map(|kept| format!("{}\n", kept.text())).collect::<String>())
}

pub(super) fn diff(
    place: &Place,
    (from, to): (&SnapshotChoice, Option<&SnapshotChoice>),
    only: Option<&str>,
    json: bool,
) -> Outcome {
    let store = Reached::of(place)?.find(place)?;
    let two = store.two(from, to)?;
    let names = only.map_or_else(|| store.keyspace_names(), |name| Ok(vec![name.to_owned()]))?;
    let mut out = Output::new();
    let mut progress = Progress::new("comparing", None);
    for name in names {
        let changes = two.changes(&name)?.ok_or_else(|| store.no_keyspace(&name))?;
        for change in changes {
            let Change { key, before, after } = change?;
            progress.advance(1);
            if json {
                let (before, after) = (before.as_deref().map(Shown), after.as_deref().map(Shown));
                out.json(&DifferenceLine { keyspace: &name, key: Shown(&key), before, after })?;
                continue;
            }
            let key = shown(&key);
            out.line(&match (&before, &after) {
                (None, Some(after)) => format!("+ {name}\t{key}\t{}", shown(after)),
                (Some(before), None) => format!("- {name}\t{key}\t{}", shown(before)),
                (before, after) => {
                    let shown = |value: &Option<Vec<u8>>| value.as_deref().map_or_else(String::new, shown);
                    format!("~ {name}\t{key}\t{}\t{}", shown(before), shown(after))
                }
            })?;
        }
    }
    drop(progress);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(after_all_with(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_all_with(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_all_with(b"\xff"), None);
        assert_eq!(after_all_with(b""), None);
    }
}
