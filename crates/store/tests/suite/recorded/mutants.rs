//! Anomalies, put into a recorded history that has none: the checker notices each.

use super::campaign::Campaign;
use super::checker::{Checker, Kind};
use super::model::Model;
use super::record::{Mode, Op, Outcome, Record, TAILS, Writes};
use std::collections::BTreeSet;

/// How many places of each class are tried.
const PLACES: usize = 25;

/// A round of a history, what came before it, and the model at its end.
struct History {
    before: Checker,
    records: Vec<Record>,
    model: Model,
}

/// Records that take the place of others, or that come to the others, if there is no such place.
type Mutant = Vec<(usize, Record)>;

impl History {
    fn record() -> History {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut campaign = Campaign::new(directory.path(), 0x3117);
        let first = campaign.run(100);
        campaign.checker.round(&first).unwrap_or_else(|anomaly| panic!("{anomaly}"));
        let before = campaign.checker.clone();
        let records = campaign.run(400);
        campaign.checker.round(&records).unwrap_or_else(|anomaly| panic!("{anomaly}"));
        History { before, records, model: campaign.checker.model }
    }

    /// Commits: position, number and record.
    fn commits(&self) -> impl Iterator<Item = (usize, u64, &Record)> {
        self.records.iter().enumerate().filter_map(|(i, record)| Some((i, record.number()?, record)))
    }

    /// Transactions of current snapshots that change nothing.
    fn readers(&self) -> impl Iterator<Item = (usize, &Record)> {
        let all = self.records.iter().enumerate();
        all.filter(|(_, record)| record.number().is_none() && record.mode == Mode::Snapshot)
    }

    fn writes(&self, record: &Record) -> Writes {
        self.model.perform(&record.ops, record.snapshot).1
    }

    /// The record as it is at another snapshot.
    fn moved(&self, record: &Record, snapshot: u64, mode: Mode) -> Record {
        let ops = self.model.perform(&record.ops, snapshot).0;
        Record { snapshot, mode, ops, ..record.clone() }
    }

    /// The looks at single keys before a transaction's first write: their places, and what the key had in the
    /// version before the one that was found.
    fn looks(&self, record: &Record) -> Vec<(usize, Option<u64>)> {
        let early = record.ops.iter().take_while(|op| matches!(op, Op::Get { .. } | Op::Range { .. }));
        let look = |(i, op): (usize, &Op)| {
            let Op::Get { space, key, found } = op else { return None };
            let (number, _) = self.model.version(*space, *key, record.snapshot)?;
            let older = self.model.value(*space, *key, number - 1);
            (older != *found).then_some((i, older))
        };
        early.enumerate().filter_map(look).collect()
    }

    /// Requires that each of the mutants, and there must be some, is rejected as one of `kinds`.
    fn reject(&self, name: &str, kinds: &[Kind], mutants: impl Iterator<Item = Mutant>) {
        let mut count = 0;
        for mutant in mutants.take(PLACES) {
            let mut records = self.records.clone();
            for (place, record) in mutant {
                match records.get_mut(place) {
                    Some(before) => *before = record,
                    None => records.push(record),
                }
            }
            match self.before.clone().round(&records) {
                Ok(()) => panic!("{name}, place {count}: not noticed"),
                Err(anomaly) if kinds.contains(&anomaly.kind) => count += 1,
                Err(anomaly) => panic!("{name}, place {count}: {anomaly}"),
            }
        }
        println!("{name}: {count} places, all rejected");
        assert!(count > 0, "no place for {name}");
    }
}

fn with_found(record: &Record, place: usize, value: Option<u64>) -> Record {
    let mut record = record.clone();
    if let Op::Get { found, .. } = &mut record.ops[place] {
        *found = value;
    }
    record
}

/// A transaction whose snapshot is from before the last change of a key that it writes.
fn writers_before<'h>(history: &'h History, is_deletion: bool) -> impl Iterator<Item = Mutant> + 'h {
    history.commits().filter_map(move |(i, number, record)| {
        if record.mode != Mode::Snapshot {
            return None;
        }
        let writes = history.writes(record);
        let last = |(space, key)| history.model.version(space, key, number - 1);
        let puts = writes.iter().filter(|(_, value)| value.is_some());
        let (missed, _) =
            puts.filter_map(|(at, _)| last(*at)).find(|(_, value)| value.is_none() == is_deletion)?;
        Some(vec![(i, history.moved(record, missed - 1, Mode::Old))])
    })
}

fn writes_are_checked(history: &History) {
    history.reject("a lost update", &[Kind::LostUpdate], writers_before(history, false));
    history.reject(
        "a tombstone collected under an older writer",
        &[Kind::LostUpdate],
        writers_before(history, true),
    );
    let numbers: BTreeSet<u64> = history.commits().map(|(_, number, _)| number).collect();
    let accepted = history.records.iter().enumerate().filter_map(|(i, record)| {
        let Outcome::Conflict { space, key, by } = record.outcome else { return None };
        let is_written = history.writes(record).get(&(space, key)).is_some_and(Option::is_some);
        if !is_written || record.mode == Mode::Serializable || numbers.contains(&(by + 1)) {
            return None;
        }
        let (_, _, first) = history.commits().find(|(_, number, _)| *number == by)?;
        let outcome = Outcome::Committed(by + 1);
        Some(vec![(i, Record { outcome, asked: first.asked, done: u64::MAX, ..record.clone() })])
    });
    history.reject("a conflict that is not refused", &[Kind::LostUpdate], accepted);
    let wrong = history.records.iter().enumerate().filter_map(|(i, record)| {
        let Outcome::Conflict { space, key, by } = record.outcome else { return None };
        let outcome = Outcome::Conflict { space, key, by: by - 1 };
        (!numbers.contains(&(by - 1))).then(|| vec![(i, Record { outcome, ..record.clone() })])
    });
    history.reject("a conflict with nobody", &[Kind::FalseConflict], wrong);
}

fn reads_are_checked(history: &History) {
    reads_of_another_version_are_rejected(history);
    wrong_ranges_are_rejected(history);
    reads_of_what_was_not_committed_are_rejected(history);
    commits_that_vanish_are_rejected(history);
}

const READS: [Kind; 2] = [Kind::WrongRead, Kind::WrongRange];

fn reads_of_another_version_are_rejected(history: &History) {
    let all = || history.records.iter().enumerate();
    let skewed = all().filter_map(|(i, record)| {
        let (place, older) = *history.looks(record).first()?;
        (record.ops.len() > 1).then(|| vec![(i, with_found(record, place, older))])
    });
    history.reject("read skew", &READS[..1], skewed);
    let forks = history.readers().filter_map(|(i, record)| {
        let looks = history.looks(record);
        let [(first, older_first), .., (last, older_last)] = looks[..] else { return None };
        let one = with_found(record, first, older_first);
        Some(vec![(i, one), (usize::MAX, with_found(record, last, older_last))])
    });
    history.reject("a long fork", &READS[..1], forks);
    let gaps = all().filter_map(|(i, record)| {
        let looks_at_tails = |op: &Op| matches!(op, Op::Range { space: TAILS, .. });
        if !record.ops.iter().any(looks_at_tails) || record.mode == Mode::Blind {
            return None;
        }
        let seen = history.model.versions(TAILS).filter(|(_, number, _)| *number <= record.snapshot);
        let last = seen.map(|(_, number, _)| number).max()?;
        let ops = history.model.clone().without(last).perform(&record.ops, record.snapshot).0;
        (ops != record.ops).then(|| vec![(i, Record { ops, ..record.clone() })])
    });
    history.reject("a snapshot published over a gap", &READS, gaps);
}

fn wrong_ranges_are_rejected(history: &History) {
    let phantoms = |is_missing: bool| {
        history.records.iter().enumerate().filter_map(move |(i, record)| {
            let mut record = record.clone();
            let range = record.ops.iter_mut().find_map(|op| match op {
                Op::Range { found, .. } if !found.is_empty() => Some(found),
                _ => None,
            })?;
            let last = *range.last()?;
            match is_missing {
                true => _ = range.remove(range.len() / 2),
                false => range.push((last.0 + 1, last.1)),
            }
            Some(vec![(i, record)])
        })
    };
    history.reject("an entry that a range leaves out", &READS[1..], phantoms(true));
    history.reject("a phantom", &READS[1..], phantoms(false));
}

fn reads_of_what_was_not_committed_are_rejected(history: &History) {
    let all = || history.records.iter().enumerate();
    let looked = || all().filter_map(|(i, record)| Some((i, record, history.looks(record).first()?.0)));
    let aborted = all().filter(|(_, record)| record.outcome == Outcome::Aborted).flat_map(|(_, r)| &r.ops);
    let aborted = aborted.filter_map(|op| if let Op::Put { id, .. } = op { Some(*id) } else { None });
    let read =
        looked().zip(aborted).map(|((i, record, place), id)| vec![(i, with_found(record, place, Some(id)))]);
    history.reject("an aborted read", &READS[..1], read);
    let intermediate = history.commits().filter_map(|(_, _, record)| {
        let mut last = std::collections::BTreeMap::new();
        record.ops.iter().find_map(|op| match op {
            Op::Put { space, key, id } => last.insert((space, key), *id),
            _ => None,
        })
    });
    let read = looked()
        .zip(intermediate)
        .map(|((i, record, place), id)| vec![(i, with_found(record, place, Some(id)))]);
    history.reject("an intermediate read", &READS[..1], read);
}

fn commits_that_vanish_are_rejected(history: &History) {
    let vanished = history.commits().filter_map(|(i, _, record)| {
        let tail = record.ops.iter().find_map(|op| match op {
            Op::Put { space: TAILS, id, .. } => Some(*id),
            _ => None,
        })?;
        let sees = |op: &Op| matches!(op, Op::Range { found, .. } if found.iter().any(|(_, id)| *id == tail));
        let mut others = history.records.iter().enumerate().filter(|(j, _)| i != *j);
        let is_seen = others.any(|(_, other)| other.ops.iter().any(sees));
        is_seen.then(|| vec![(i, Record { outcome: Outcome::Aborted, ..record.clone() })])
    });
    let kinds = [Kind::WrongRead, Kind::WrongRange, Kind::FalseConflict, Kind::NotSerializable];
    history.reject("a commit that vanishes", &kinds, vanished);
}

fn serializability_is_checked(history: &History) {
    let skewed = |in_range: bool| {
        history.commits().filter_map(move |(i, number, record)| {
            let now = history.model.perform(&record.ops, number - 1).0;
            let (_, difference) = record.ops.iter().zip(&now).find(|(then, now)| then != now)?;
            let is_range = matches!(difference, Op::Range { .. } | Op::DeleteRange { .. });
            let is_place = record.mode == Mode::Snapshot && is_range == in_range;
            is_place.then(|| vec![(i, Record { mode: Mode::Serializable, ..record.clone() })])
        })
    };
    history.reject("write skew", &[Kind::NotSerializable], skewed(false));
    history.reject("write skew by a phantom", &[Kind::NotSerializable], skewed(true));
}

fn real_time_is_checked(history: &History) {
    let stale = history.readers().filter_map(|(i, record)| {
        let acknowledged = history.commits().filter(|(_, _, commit)| commit.done < record.begun);
        let last = acknowledged.map(|(_, number, _)| number).max()?;
        Some(vec![(i, history.moved(record, last - 1, Mode::Snapshot))])
    });
    history.reject("a stale snapshot", &[Kind::StaleSnapshot], stale);
    let future = history.readers().filter_map(|(i, record)| {
        let later = history.commits().filter(|(_, _, commit)| commit.asked > record.seen);
        let first = later.map(|(_, number, _)| number).min()?;
        Some(vec![(i, history.moved(record, first, Mode::Snapshot))])
    });
    // Others that began after it, and have older snapshots, are noticed as well.
    let kinds = [Kind::FutureSnapshot, Kind::SnapshotsOutOfOrder];
    history.reject("a snapshot of the future", &kinds, future);
    // A commit that is acknowledged late was seen, and then is not.
    let back = history.readers().filter_map(|(i, record)| {
        let acknowledged = history.commits().filter(|(_, _, commit)| commit.done < record.begun);
        let (place, number, commit) = acknowledged.max_by_key(|(_, number, _)| *number)?;
        let seen = history.readers().any(|(_, r)| r.seen < record.begun && r.snapshot >= number);
        let late = Record { done: u64::MAX, ..commit.clone() };
        seen.then(|| vec![(place, late), (i, history.moved(record, number - 1, Mode::Snapshot))])
    });
    history.reject("time that goes back", &[Kind::SnapshotsOutOfOrder], back);
    let blind = |record: &Record| record.mode == Mode::Blind;
    let swapped =
        history.commits().filter(|(_, _, record)| blind(record)).filter_map(|(i, number, record)| {
            let mut later =
                history.commits().filter(|(_, _, other)| blind(other) && other.asked > record.done);
            let (j, other_number, other) = later.next()?;
            let (first, second) = (Outcome::Committed(other_number), Outcome::Committed(number));
            let one = Record { outcome: first, ..record.clone() };
            Some(vec![(i, one), (j, Record { outcome: second, ..other.clone() })])
        });
    let kinds = [Kind::NumbersOutOfOrder, Kind::StaleSnapshot, Kind::FutureSnapshot];
    history.reject("numbers in the wrong order", &kinds, swapped);
}

/// Gets outside a transaction: record, place, and what was found.
fn gets(history: &History) -> impl Iterator<Item = (usize, &Record, (u8, u32), Option<u64>)> {
    history.records.iter().enumerate().filter_map(|(i, record)| match record.ops[..] {
        [Op::Get { space, key, found }] if record.mode == Mode::Get => Some((i, record, (space, key), found)),
        _ => None,
    })
}

fn gets_are_checked(history: &History) {
    let stale = gets(history).filter_map(|(i, record, (space, key), _)| {
        let acknowledged = history.commits().filter(|(_, _, commit)| commit.done < record.begun);
        let last = acknowledged.map(|(_, number, _)| number).max()?;
        let (number, current) = history.model.version(space, key, last)?;
        let older = history.model.value(space, key, number - 1)?;
        (current != Some(older)).then(|| vec![(i, with_found(record, 0, Some(older)))])
    });
    history.reject("a stale get", &[Kind::StaleRead], stale);
    let future = gets(history).filter_map(|(i, record, (space, key), _)| {
        let later = history.commits().filter(|(_, _, commit)| commit.asked > record.done);
        let wrote = |(_, _, commit)| history.writes(commit).get(&(space, key)).copied().flatten();
        let id = later.filter_map(wrote).next()?;
        Some(vec![(i, with_found(record, 0, Some(id)))])
    });
    history.reject("a get of the future", &[Kind::FutureRead], future);
    let aborted = history.records.iter().filter(|record| record.outcome == Outcome::Aborted);
    let ids = aborted.flat_map(|record| &record.ops).filter_map(|op| match op {
        Op::Put { id, .. } => Some(*id),
        _ => None,
    });
    let read = gets(history).zip(ids).map(|((i, record, ..), id)| vec![(i, with_found(record, 0, Some(id)))]);
    history.reject("a get of what was aborted", &[Kind::WrongRead], read);
    gets_are_checked_beside_a_running_commit(history);
}

/// A commit that is never acknowledged is seen by one get. Another get before that may miss it, and nobody
/// after it.
fn gets_are_checked_beside_a_running_commit(history: &History) {
    let end = history.records.iter().map(|record| record.done).max().expect("a history");
    let last = history.commits().map(|(_, number, _)| number).max().expect("a history");
    let scene = |get: &Record, (space, key), late: Mode| {
        let write = Record {
            mode: Mode::Blind,
            ops: vec![Op::Put { space, key, id: 1 }],
            outcome: Outcome::Committed(last + 1),
            begun: end + 1,
            seen: end + 1,
            asked: end + 1,
            done: u64::MAX,
            ..get.clone()
        };
        let read = |mode, at, value| {
            let record = Record { mode, begun: at, seen: at + 1, asked: at + 1, done: at + 1, ..get.clone() };
            with_found(&Record { snapshot: last, ..record }, 0, value)
        };
        let before = history.model.value(space, key, last);
        let (sees, misses) = (read(Mode::Get, end + 20, Some(1)), |at, mode| read(mode, at, before));
        [write, misses(end + 10, Mode::Get), sees, misses(end + 30, late)]
    };
    for (name, late, kind) in [
        ("a get that goes back", Mode::Get, Kind::StaleRead),
        ("a snapshot before an earlier get", Mode::Snapshot, Kind::SnapshotsOutOfOrder),
    ] {
        let scenes = || gets(history).map(|(_, get, at, _)| scene(get, at, late));
        let whole = scenes().map(|all| all.map(|record| (usize::MAX, record)).to_vec());
        history.reject(name, &[kind], whole);
        for early in scenes().take(PLACES) {
            let records = [&history.records[..], &early[..3]].concat();
            history.before.clone().round(&records).unwrap_or_else(|anomaly| panic!("{name}: {anomaly}"));
        }
    }
}

fn numbers_are_checked(history: &History) {
    let reading = history.records.iter().enumerate().filter_map(|(i, record)| match record.outcome {
        Outcome::Committed(number) if !record.writes() => {
            Some(vec![(i, Record { outcome: Outcome::Committed(number + 1), ..record.clone() })])
        }
        _ => None,
    });
    history.reject("a number for nothing", &[Kind::WrongNumber], reading);
    let twice = history.commits().map(|(_, number, record)| {
        let ops = vec![Op::Put { space: TAILS, key: 7, id: 1 }];
        let outcome = Outcome::Committed(number);
        vec![(usize::MAX, Record { mode: Mode::Blind, ops, outcome, done: u64::MAX, ..record.clone() })]
    });
    history.reject("a number that is used twice", &[Kind::WrongNumber], twice);
    let early = history.commits().map(|(i, _, record)| {
        let outcome = Outcome::Committed(history.before.last);
        vec![(i, Record { outcome, asked: 0, done: u64::MAX, ..record.clone() })]
    });
    history.reject("a number from before a restart", &[Kind::WrongNumber], early);
}

#[test]
fn anomalies_of_every_kind_are_noticed() {
    let history = History::record();
    writes_are_checked(&history);
    reads_are_checked(&history);
    serializability_is_checked(&history);
    real_time_is_checked(&history);
    gets_are_checked(&history);
    numbers_are_checked(&history);
}
