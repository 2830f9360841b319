//! The report of a failure: no more than is needed to explain it.

use crate::config::Config;
use crate::replay::{Pending, PendingLine};
use crate::trace::Event;
use std::fmt::{Debug, Display, Formatter, Write};

/// The kind of rule that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// An operation failed, or did something else than the model, without any crash.
    Run,
    /// Memory changed without a store that the region knows of.
    Unrecorded,
    /// An [`Audit`](crate::Audit) rule.
    Audit,
    /// A crash left something that the component cannot recover, or that is neither before nor after.
    Crash,
}

/// A failure with its story, which [`Display`] and [`Debug`] both print.
pub struct Failure {
    kind: FailureKind,
    head: String,
    /// Outermost first.
    crashes: Vec<CrashStory>,
    verdict: String,
    reproduce: String,
    image: Vec<u8>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, scenario: &str, config: &Config, verdict: String) -> Box<Failure> {
        Box::new(Failure {
            kind,
            head: format!("{scenario}: {}", kind.sentence()),
            crashes: Vec::new(),
            verdict,
            reproduce: config.reproduce(),
            image: Vec::new(),
        })
    }

    /// Notes the image that could not be recovered.
    pub(crate) fn of_image(mut self: Box<Failure>, image: &[u8]) -> Box<Failure> {
        self.image = image.to_vec();
        self
    }

    /// Puts a crash before those already told.
    pub(crate) fn after_crash(mut self: Box<Failure>, crash: CrashStory) -> Box<Failure> {
        self.crashes.insert(0, crash);
        self
    }

    /// The kind of rule that was broken.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The verdict of the component or the oracle.
    pub fn verdict(&self) -> &str {
        &self.verdict
    }

    /// The image that the last crash left, to be looked at with other tools; empty if there was no crash.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// How many crashes the story has: 0 if the failure needs none, 2 or more if one hit a recovery or the
    /// operations after it.
    pub fn crashes(&self) -> usize {
        self.crashes.len()
    }

    /// How many stores the last crash lost, after shrinking.
    pub fn lost_stores(&self) -> usize {
        self.crashes.last().map_or(0, |c| c.lost.len())
    }
}

impl FailureKind {
    fn sentence(self) -> &'static str {
        match self {
            FailureKind::Run => "wrong even without a crash",
            FailureKind::Unrecorded => "memory changed behind the region's back",
            FailureKind::Audit => "an operation broke a persistence rule",
            FailureKind::Crash => "does not survive a crash",
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "crashsim: {}", self.head)?;
        for (i, crash) in self.crashes.iter().enumerate() {
            if self.crashes.len() > 1 {
                writeln!(f, "  crash {} of {}:", i + 1, self.crashes.len())?;
            }
            write!(f, "{crash}")?;
        }
        writeln!(f, "  {}", self.verdict.trim_end().replace('\n', "\n  "))?;
        write!(f, "  reproduce: {}", self.reproduce)
    }
}

impl Debug for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// One crash of a story.
pub(crate) struct CrashStory {
    phase: String,
    point: String,
    lost: Vec<String>,
    needed: Vec<String>,
    other: usize,
}

/// How many stores of a kind are printed.
const SHOWN_STORES: usize = 24;

impl CrashStory {
    /// Tells of a crash after `event` events of `trace` that kept `choice` of the pending `lines`;
    /// `needed` says of each line whether the failure goes away when its stores are lost too.
    pub(crate) fn new(
        phase: &str,
        trace: &[Event],
        event: usize,
        lines: &[PendingLine],
        choice: &[usize],
        needed: Option<&[bool]>,
    ) -> CrashStory {
        let point = match trace.get(event) {
            Some(next) => format!("just before event {event} ({next})"),
            None => format!("at the end, after {event} events"),
        };
        let mut story =
            CrashStory { phase: phase.to_owned(), point, lost: Vec::new(), needed: Vec::new(), other: 0 };
        for (i, (line, &kept)) in lines.iter().zip(choice).enumerate() {
            let (kept, lost) = line.stores.split_at(kept);
            story.lost.extend(lost.iter().map(|s| describe(s, &trace[..event])));
            if needed.is_none_or(|n| n[i]) {
                story.needed.extend(kept.iter().map(|s| describe(s, &trace[..event])));
            } else {
                story.other += kept.len();
            }
        }
        story
    }
}

impl Display for CrashStory {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "  {}, crash {}", self.phase, self.point)?;
        if self.lost.is_empty() {
            writeln!(f, "  lost: nothing; all stores so far had reached media")?;
        } else {
            writeln!(f, "  lost:")?;
            list(f, &self.lost)?;
        }
        if !self.needed.is_empty() {
            writeln!(f, "  arrived, though no fence had waited for it:")?;
            list(f, &self.needed)?;
        }
        if self.other > 0 {
            writeln!(f, "  (whether {} other stores arrive makes no difference)", self.other)?;
        }
        Ok(())
    }
}

fn list(f: &mut Formatter<'_>, stores: &[String]) -> std::fmt::Result {
    for store in stores.iter().take(SHOWN_STORES) {
        writeln!(f, "    {store}")?;
    }
    if stores.len() > SHOWN_STORES {
        writeln!(f, "    and {} more", stores.len() - SHOWN_STORES)?;
    }
    Ok(())
}

/// Thread, place, values and state of write-back of a store.
fn describe(store: &Pending, past: &[Event]) -> String {
    let line = store.off / tembo_pmem::LINE_BYTES;
    let later = past.iter().enumerate().skip(store.event);
    let flushed = later
        .filter(|(_, e)| matches!(e, Event::Flush { line: flushed, .. } if *flushed == line))
        .map(|(i, e)| format!("flushed by t{} in event {i}, not fenced", e.thread()))
        .next_back();
    format!(
        "t{} stored to {:#x} (line {line:#x}) in event {}: {} -> {} ({})",
        store.thread,
        store.off,
        store.event,
        hex(store.old_bytes()),
        hex(store.new_bytes()),
        flushed.as_deref().unwrap_or("not flushed"),
    )
}

/// The bytes as the little-endian number that they are.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().fold(String::from("0x"), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The debugging text of an operation, cut off where it gets long.
pub(crate) fn short_debug(value: &impl Debug) -> String {
    struct Short(String);
    impl Write for Short {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let room = SHOWN_OP_BYTES.saturating_sub(self.0.len());
            let fitting = text.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= room);
            let end = fitting.last().unwrap_or(0);
            self.0.push_str(&text[..end]);
            // The error ends the formatting, so that a long value costs no more than a short one.
            if end == text.len() { Ok(()) } else { Err(std::fmt::Error) }
        }
    }
    let mut short = Short(String::new());
    let whole = write!(short, "{value:?}").is_ok();
    if whole { short.0 } else { short.0 + " ..." }
}

/// How much of an operation is printed.
const SHOWN_OP_BYTES: usize = 160;

/// How much of a model is printed.
const SHOWN_CHARS: usize = 600;

/// Prints `observed` beside the expected models; of long models, the part around their first difference.
pub(crate) fn compare<M: Debug>(observed: &M, expected: &[(&str, &M)]) -> String {
    let observed = format!("{observed:?}");
    let expected: Vec<(&str, String)> = expected.iter().map(|(w, m)| (*w, format!("{m:?}"))).collect();
    let same = expected.iter().map(|(_, e)| common_prefix(&observed, e)).max().unwrap_or(0);
    let mut text = format!("oracle: the contents are\n  {}", window(&observed, same));
    for (i, (what, model)) in expected.iter().enumerate() {
        let head = if i == 0 { "expected" } else { "or" };
        let _ = write!(text, "\n{head} ({what})\n  {}", window(model, same));
    }
    text
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count()
}

fn window(text: &str, from: usize) -> String {
    let count = text.chars().count();
    if count <= SHOWN_CHARS {
        return text.to_owned();
    }
    let start = from.saturating_sub(SHOWN_CHARS / 3);
    let shown: String = text.chars().skip(start).take(SHOWN_CHARS).collect();
    let head = if start > 0 { "... " } else { "" };
    let tail = if start + SHOWN_CHARS < count { " ..." } else { "" };
    format!("{head}{shown}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_operations_are_cut_off_and_short_ones_are_not() {
        assert_eq!(short_debug(&vec![1, 2]), "[1, 2]");
        let long = short_debug(&"\u{e9}".repeat(1000));
        assert!(long.ends_with("\u{e9} ...") && long.len() <= SHOWN_OP_BYTES + 4, "{long}");
    }

    #[test]
    fn long_models_are_shown_around_their_first_difference() {
        let mut other = vec![7; 1000];
        let expected = other.clone();
        other[700] = 8;
        let text = compare(&other, &[("before", &expected)]);
        assert!(text.contains("7, 8, 7") && text.contains("... ") && text.len() < 3 * SHOWN_CHARS, "{text}");
    }
}
