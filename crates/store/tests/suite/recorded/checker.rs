//! The checker of recorded transactions.
//!
//! The numbers of the commits are a total order, so that nothing has to be searched for: the writes of all
//! commits, applied in this order to a [`Model`] that keeps every version, say what every snapshot has.
//!
//! * **Reads.** What any transaction read (committed, refused or aborted) is what the model has at the number
//!   of its snapshot, with its own writes among it; a range is that in full. So nobody reads what was
//!   aborted, intermediate, skewed, or of a commit that is not in the snapshot, and a snapshot with a gap is
//!   noticed by whoever reads what is missing.
//! * **First committer wins.** No key that a commit changed was changed between its snapshot and its number.
//! * **Gets outside a transaction** are linearizable; `gets.rs` says how they are checked.
//! * **Serializable.** What a serializable transaction read is what the model has just before its number,
//!   too.
//! * **Real time.** A snapshot has every commit that was acknowledged before the transaction began, and none
//!   that was asked for after its snapshot was fixed; of two snapshots, one that was fixed before the other
//!   transaction began is no younger; a commit that was acknowledged before another was asked for has the
//!   lower number. With the numbers as points of linearization, each key is linearizable.
//! * **Numbers** are used once, above the snapshot and above all of earlier rounds.
//! * **Conflicts** name a commit that wrote the key after the snapshot, and a key that the transaction wrote,
//!   or has read if it is serializable.

use super::gets::{self, Clock};
use super::model::Model;
use super::record::{Mode, Op, Outcome, Record};

/// Kinds of anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    WrongRead,
    WrongRange,
    StaleRead,
    FutureRead,
    LostUpdate,
    NotSerializable,
    StaleSnapshot,
    FutureSnapshot,
    SnapshotsOutOfOrder,
    NumbersOutOfOrder,
    WrongNumber,
    FalseConflict,
}

/// An anomaly.
#[derive(Debug)]
pub(crate) struct Anomaly {
    pub(crate) kind: Kind,
    story: String,
}

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.story)
    }
}

pub(crate) fn anomaly<T>(kind: Kind, story: impl Into<String>) -> Result<T, Anomaly> {
    Err(Anomaly { kind, story: story.into() })
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Checker {
    pub(crate) model: Model,
    /// The highest number of all rounds so far.
    pub(crate) last: u64,
    /// Commits, refusals and reads that were compared, for reports.
    pub(crate) counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: u64,
    pub(crate) commits: u64,
    pub(crate) conflicts: u64,
    pub(crate) serializable: u64,
    pub(crate) old_writers: u64,
    pub(crate) reads: u64,
    pub(crate) ranges: u64,
    /// Gets outside a transaction, which are neither among the transactions nor among the reads.
    pub(crate) gets: u64,
}

impl Checker {
    /// Checks the transactions of a round, all of which came after those of the rounds before.
    pub(crate) fn round(&mut self, records: &[Record]) -> Result<(), Anomaly> {
        let mut commits: Vec<(u64, &Record)> =
            records.iter().filter_map(|record| Some((record.number()?, record))).collect();
        commits.sort_by_key(|(number, _)| *number);
        let earlier = self.last;
        real_time(records, &commits, earlier)?;
        for (number, record) in &commits {
            self.commit(*number, record)?;
        }
        for record in records {
            self.count(record);
            if record.number().is_none() && record.mode != Mode::Get {
                self.reader(record)?;
            }
        }
        self.gets(records, &commits, earlier)
    }

    /// Checks the gets outside a transaction, and that no snapshot is older than a get before it.
    fn gets(&self, records: &[Record], commits: &[(u64, &Record)], earlier: u64) -> Result<(), Anomaly> {
        let clock = Clock {
            acknowledged: &acknowledged(commits),
            fixed: &fixed(records),
            asked: &asked(commits),
            earlier,
        };
        let places = gets::places(records, &self.model, &clock)?;
        for record in records.iter().filter(is_current) {
            let least = places.before(record.begun);
            if record.snapshot < least {
                return anomaly(Kind::SnapshotsOutOfOrder, format!("a get saw {least} before: {record:?}"));
            }
        }
        Ok(())
    }

    fn count(&mut self, Record { mode, ops, outcome, .. }: &Record) {
        let counts = &mut self.counts;
        if *mode == Mode::Get {
            counts.gets += 1;
            return;
        }
        counts.transactions += 1;
        counts.commits += u64::from(matches!(outcome, Outcome::Committed(_)));
        counts.conflicts += u64::from(matches!(outcome, Outcome::Conflict { .. }));
        counts.serializable += u64::from(*mode == Mode::Serializable);
        counts.old_writers +=
            u64::from(*mode == Mode::Old && ops.iter().any(|op| matches!(op, Op::Put { .. })));
        counts.reads += ops.iter().filter(|op| matches!(op, Op::Get { .. })).count() as u64;
        counts.ranges += ops.iter().filter(|op| matches!(op, Op::Range { .. })).count() as u64;
    }

    /// Checks a commit, all lower numbers having been applied, and applies it.
    fn commit(&mut self, number: u64, record: &Record) -> Result<(), Anomaly> {
        if number <= self.last {
            return anomaly(Kind::WrongNumber, format!("{number} comes after {}: {record:?}", self.last));
        }
        if record.mode == Mode::Blind {
            let (_, writes) = self.model.perform(&record.ops, 0);
            self.model.commit(&writes, number);
            self.last = number;
            return Ok(());
        }
        if number <= record.snapshot {
            return anomaly(Kind::WrongNumber, format!("{number} is not above its snapshot: {record:?}"));
        }
        let (expected, writes) = self.model.perform(&record.ops, record.snapshot);
        compare(record, &expected)?;
        for ((space, key), value) in &writes {
            let last = self.model.version(*space, *key, u64::MAX);
            let is_change = value.is_some() || last.is_some_and(|(_, value)| value.is_some());
            if let Some((by, _)) = last
                && is_change
                && by > record.snapshot
            {
                let story = format!("key {key} of {space} was changed by {by} meanwhile: {record:?}");
                return anomaly(Kind::LostUpdate, story);
            }
        }
        if record.mode == Mode::Serializable {
            let (expected, _) = self.model.perform(&record.ops, u64::MAX);
            if let Some(difference) = difference(&record.ops, &expected) {
                let story = format!("just before {number}, it would have read {difference:?}: {record:?}");
                return anomaly(Kind::NotSerializable, story);
            }
        }
        self.model.commit(&writes, number);
        self.last = number;
        Ok(())
    }

    /// Checks a transaction that changed nothing.
    fn reader(&self, record: &Record) -> Result<(), Anomaly> {
        let (expected, writes) = self.model.perform(&record.ops, record.snapshot);
        compare(record, &expected)?;
        match record.outcome {
            Outcome::Committed(number) if number != record.snapshot => {
                anomaly(Kind::WrongNumber, format!("it has only read: {record:?}"))
            }
            Outcome::Conflict { space, key, by } => {
                let reads = |op: &Op| match op {
                    Op::Get { space: s, key: k, .. } => (*s, *k) == (space, key),
                    Op::Range { space: s, low, high, .. } | Op::DeleteRange { space: s, low, high, .. } => {
                        *s == space && (*low..*high).contains(&key)
                    }
                    _ => false,
                };
                let concerns_it = writes.contains_key(&(space, key))
                    || record.mode == Mode::Serializable && record.ops.iter().any(reads);
                if concerns_it && by > record.snapshot && self.model.has(space, key, by) {
                    return Ok(());
                }
                anomaly(Kind::FalseConflict, format!("{record:?}"))
            }
            _ => Ok(()),
        }
    }
}

fn difference<'o>(ops: &[Op], expected: &'o [Op]) -> Option<&'o Op> {
    expected.iter().zip(ops).find(|(expected, found)| expected != found).map(|(expected, _)| expected)
}

fn compare(record: &Record, expected: &[Op]) -> Result<(), Anomaly> {
    match difference(&record.ops, expected) {
        None => Ok(()),
        Some(expected @ Op::Get { .. }) => anomaly(Kind::WrongRead, format!("not {expected:?}: {record:?}")),
        Some(expected) => anomaly(Kind::WrongRange, format!("not {expected:?}: {record:?}")),
    }
}

/// The highest of some values that were there before a moment.
pub(crate) struct Highest(Vec<(u64, u64)>);

impl Highest {
    /// Pairs of a moment and a value.
    pub(crate) fn of(pairs: impl Iterator<Item = (u64, u64)>) -> Highest {
        let mut pairs: Vec<(u64, u64)> = pairs.collect();
        pairs.sort_unstable();
        let mut highest = 0;
        for (_, value) in &mut pairs {
            highest = highest.max(*value);
            *value = highest;
        }
        Highest(pairs)
    }

    pub(crate) fn before(&self, moment: u64) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at < moment);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// The numbers of commits, from the moment at which they were acknowledged.
fn acknowledged(commits: &[(u64, &Record)]) -> Highest {
    Highest::of(commits.iter().map(|(number, record)| (record.done, *number)))
}

/// The moments at which commits were asked for, from the lowest number to the highest.
fn asked(commits: &[(u64, &Record)]) -> Highest {
    Highest::of(commits.iter().map(|(number, record)| (*number, record.asked)))
}

/// Whether it is a transaction at a snapshot that was current when it was fixed.
fn is_current(record: &&Record) -> bool {
    matches!(record.mode, Mode::Snapshot | Mode::Serializable)
}

/// The snapshots that were current when they were fixed, from that moment.
fn fixed(records: &[Record]) -> Highest {
    Highest::of(records.iter().filter(is_current).map(|record| (record.seen, record.snapshot)))
}

/// The promises of the clock. `commits` are in the order of their numbers; all of earlier rounds, up to
/// `earlier`, were acknowledged.
fn real_time(records: &[Record], commits: &[(u64, &Record)], earlier: u64) -> Result<(), Anomaly> {
    let (acknowledged, asked, fixed) = (acknowledged(commits), asked(commits), fixed(records));
    for record in records.iter().filter(is_current) {
        let least = acknowledged.before(record.begun).max(earlier);
        if record.snapshot < least {
            return anomaly(Kind::StaleSnapshot, format!("{least} was acknowledged before: {record:?}"));
        }
        if asked.before(record.snapshot + 1) > record.seen {
            return anomaly(Kind::FutureSnapshot, format!("a commit of it was not asked for: {record:?}"));
        }
        let least = fixed.before(record.begun);
        if record.snapshot < least {
            return anomaly(Kind::SnapshotsOutOfOrder, format!("{least} was seen before: {record:?}"));
        }
    }
    for (number, record) in commits {
        let least = acknowledged.before(record.asked);
        if *number <= least {
            return anomaly(Kind::NumbersOutOfOrder, format!("{least} was acknowledged before: {record:?}"));
        }
    }
    Ok(())
}
