//! Crashes in the middle of commits, of keeping and deleting snapshots, of choosing what is retained, and of
//! collecting; and crashes in the recovery from these.
//!
//! The directed scenarios go through every kind of change; the campaign does operations at random:
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-store --test suite campaign_of_random_operations`
//! is the long one.

mod script;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use script::{AUDIT, KEYS, Op, Script, State, Write};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tembo_crashsim::{Audit, Failure, Mutation, Report, Scenario, Simulation, Target, campaign};
use tembo_pmem::{Observer, Region, ThreadTag};
use tembo_store::Retention;

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

/// Versions until vectors are made and made again, of short and of long values, with all that keeps and
/// collects them.
fn histories() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let mut ops = vec![
        commit(&[(0, 1, Some(3)), (1, 1, Some(100)), (0, 2, Some(8))]),
        Op::Keep("first"),
        commit(&[(0, 1, Some(40)), (0, 3, Some(0))]),
        Op::Conflict((0, 2, Some(9))),
        Op::Read(true),
        commit(&[(0, 1, None), (1, 2, Some(5))]),
        commit(&[(0, 1, Some(7))]),
        Op::Keep("second"),
        commit(&[(0, 1, Some(50))]),
        commit(&[(0, 1, Some(51)), (0, 2, None)]),
        Op::Read(false),
        Op::Collect(3),
    ];
    ops.extend((0..6).map(|i| commit(&[(0, 1, Some(20 + i)), (1, 2, Some(60 + i))])));
    ops.extend([
        Op::DeleteKept("first"),
        Op::Collect(2),
        Op::Collect(100),
        commit(&[(0, 2, Some(3000))]),
        Op::DeleteKept("second"),
        commit(&[(0, 1, None), (0, 3, None), (1, 1, None)]),
        Op::Collect(100),
        Op::Collect(100),
    ]);
    let continuation = vec![
        commit(&[(0, 9, Some(30)), (0, 1, Some(6))]),
        Op::Keep("after"),
        commit(&[(0, 9, None)]),
        Op::Collect(100),
        Op::DeleteKept("after"),
        Op::Collect(100),
    ];
    Script { name: "histories".to_owned(), start: Vec::new(), ops, continuation, bytes: 256 << 10 }
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn histories_survive_every_crash() {
    survived(Simulation::new(&histories()).limit(24).audit(audit()).run());
}

/// Indexes with several nodes, and transactions of many keys.
fn many_keys() -> Script {
    let all = |range: std::ops::Range<u64>, len: usize| {
        Op::Commit(range.map(|i| (i as usize % 2, i, Some(len + i as usize % 9))).collect())
    };
    let ops = vec![
        all(0..40, 5),
        Op::Keep("forty"),
        all(30..75, 12),
        Op::Commit((10..60).map(|i| (i as usize % 2, i, None)).collect()),
        Op::DeleteKept("forty"),
        Op::Keep("before the drop"),
        Op::Renew(1),
        Op::Collect(7),
        Op::Collect(30),
        Op::Collect(1000),
    ];
    Script {
        name: "many keys".to_owned(),
        start: Vec::new(),
        ops,
        continuation: vec![all(0..5, 1), Op::Collect(1000)],
        bytes: 384 << 10,
    }
}

#[test]
fn transactions_of_many_keys_survive_every_crash() {
    survived(Simulation::new(&many_keys()).limit(12).nested_limit(4).audit(audit()).run());
}

/// Every kind of retention, ranges that are deleted, groups, large values, and snapshots that are kept by
/// their numbers.
fn retained() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let mut ops = vec![
        Op::Retain(0, Retention::Versions(2)),
        commit(&[(0, 1, Some(9)), (1, 1, Some(20_000)), (2, 1, Some(9))]),
        Op::Group(vec![
            vec![(0, 1, Some(10)), (1, 2, Some(3))],
            vec![(1, 4, None), (0, 5, Some(2))],
            vec![(1, 3, Some(11))],
        ]),
        commit(&[(0, 1, Some(11)), (2, 1, None)]),
        Op::KeepNumber,
        Op::Retain(1, Retention::For(Duration::ZERO)),
        commit(&[(0, 1, Some(12)), (1, 1, Some(3000)), (2, 1, Some(4))]),
        Op::DeleteRange(0, 0..5, vec![(0, 3, Some(30))]),
        Op::DeleteRange(1, 1..9, vec![(2, 2, Some(8))]),
        Op::Collect(50),
        Op::Retain(0, Retention::All),
    ];
    ops.extend((0..5).map(|i| commit(&[(0, 3, Some(20 + i)), (2, 1, Some(i))])));
    ops.extend([
        Op::Retain(0, Retention::None),
        Op::Collect(1),
        Op::DeleteNumber,
        Op::Collect(50),
        Op::Renew(AUDIT),
        commit(&[(2, 1, Some(5))]),
        Op::Collect(50),
    ]);
    let continuation = vec![
        Op::KeepNumber,
        commit(&[(0, 3, None), (1, 1, Some(4000)), (2, 1, Some(6))]),
        Op::Retain(0, Retention::Versions(3)),
        Op::DeleteNumber,
        Op::Collect(100),
    ];
    Script { name: "retained".to_owned(), start: Vec::new(), ops, continuation, bytes: 384 << 10 }
}

#[test]
fn retention_ranges_and_groups_survive_every_crash() {
    survived(Simulation::new(&retained()).limit(16).audit(audit()).run());
}

/// Tombstones beside the slots of a table, of a vector, and of one in order; versions after them; and tables
/// that come apart with them.
fn deletions() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let put = |len: usize| commit(&[(AUDIT, 1, Some(len)), (0, 1, Some(len))]);
    let delete = || commit(&[(AUDIT, 1, None), (0, 1, None)]);
    // The retained keyspace: two versions and the tombstone, then a vector of eight.
    let mut ops = vec![put(3), Op::Read(true), put(30), Op::Keep("two"), delete(), Op::Collect(10), put(4)];
    ops.extend((0..4).map(|i| put(31 + i)));
    // The vector is full, then one in order is.
    ops.extend([delete(), Op::Keep("nine"), put(5)]);
    ops.extend((0..10).map(|i| put(40 + i % 2)));
    ops.extend([delete(), Op::DeleteKept("two"), Op::Collect(10), put(6), delete()]);
    ops.extend([Op::Read(false), Op::DeleteKept("nine"), Op::Collect(10), Op::Renew(AUDIT), Op::Collect(10)]);
    let continuation =
        vec![put(7), Op::Keep("after"), put(50), Op::Read(true), delete(), put(8), Op::Collect(10)];
    Script { name: "deletions".to_owned(), start: Vec::new(), ops, continuation, bytes: 256 << 10 }
}

#[test]
fn deletions_survive_every_crash() {
    survived(Simulation::new(&deletions()).limit(16).audit(audit()).run());
}

/// Space that comes back with commits alone: of a deleted snapshot, of a dropped keyspace, of versions that
/// time has passed over; after a crash also what the walk and the drop had left.
fn leftovers() -> Script {
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let all = |len: usize| Op::Commit((0..12).map(|i| (i as usize % 2, i, Some(len))).collect());
    let others = |count: u64| (0..count).map(|i| Op::Commit(vec![(2, 50 + i % 3, Some(4))]));
    let mut ops = vec![all(30), Op::Keep("kept"), all(40), all(41)];
    ops.push(commit(&[(0, 0, None), (1, 1, None), (0, 2, Some(3000))]));
    // One of sixteen commits takes a step, the first one at once.
    ops.push(Op::DeleteKept("kept"));
    ops.extend(others(20));
    ops.extend([Op::Renew(0), commit(&[(0, 3, Some(9))])]);
    ops.extend(others(18));
    ops.extend([all(35), Op::Retain(0, Retention::For(Duration::ZERO)), all(36), commit(&[(0, 4, None)])]);
    ops.extend(others(34));
    let mut continuation: Vec<Op> = others(18).collect();
    continuation.push(all(50));
    Script { name: "leftovers".to_owned(), start: Vec::new(), ops, continuation, bytes: 256 << 10 }
}

#[test]
fn steps_of_commits_survive_every_crash() {
    let script = leftovers();
    // The scenario has the steps: what it leaves at the end is no more than one that collects everything.
    let region = Region::simulated(&vec![0; 256 << 10], 1 << 24, None).unwrap();
    let mut dry = script.setup(region).unwrap();
    script.ops.iter().try_for_each(|op| script.apply(&mut dry, op)).unwrap();
    let left = used(&dry);
    while dry.store.collect(100).unwrap() {}
    assert!(left <= used(&dry) + 600, "{left} bytes, and {} when everything is collected", used(&dry));
    survived(Simulation::new(&script).limit(12).nested_limit(4).audit(audit()).run());
}

/// The bytes that are allocated.
fn used(state: &State) -> u64 {
    let mut marks = state.pool.marks().unwrap();
    state.store.check(&mut marks).unwrap();
    marks.finish().unwrap().allocated_bytes
}

/// A store with holes: keys of one keyspace, with vectors and values, between those of another one that was
/// dropped.
fn sparse(keys: u64) -> Script {
    let write = |i: u64, len: usize| (usize::from(i.is_multiple_of(7)), i, Some(len + i as usize % 5));
    let all = |len: usize| -> Vec<Op> {
        let keys: Vec<u64> = (0..keys).collect();
        keys.chunks(40).map(|part| Op::Commit(part.iter().map(|i| write(*i, len)).collect())).collect()
    };
    let mut start = all(30);
    start.push(Op::Keep("thirty"));
    start.extend(all(50));
    start.push(Op::Keep("fifty"));
    start.extend(all(70));
    start.extend([Op::Renew(0), Op::Collect(2000), Op::Collect(2000)]);
    let commit = |writes: &[Write]| Op::Commit(writes.to_vec());
    let ops = vec![Op::Compact, commit(&[(1, 14, Some(60)), (1, 7, None), (0, 200, Some(9))]), Op::Compact];
    let continuation =
        vec![commit(&[(0, 0, Some(5)), (1, 21, Some(70))]), Op::DeleteKept("fifty"), Op::Collect(2000)];
    Script { name: "a sparse store".to_owned(), start, ops, continuation, bytes: 1 << 20 }
}

#[test]
fn compaction_survives_every_crash() {
    let script = sparse(400);
    let dry = script.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
    let (before, model) = (dry.pool.stats().unused_bytes, script.observe(&dry).unwrap());
    let moved_bytes = dry.compact().unwrap();
    let gained = dry.pool.stats().unused_bytes as i64 - before as i64;
    println!("{moved_bytes} bytes moved, {gained} gained");
    assert!(moved_bytes > 2000 && gained >= 8 << 10, "{moved_bytes} {gained}");
    assert_eq!(script.observe(&dry).unwrap(), model);
    let calls = (1..4).find(|_| dry.compact() == Ok(0));
    println!("left alone after {calls:?} more");
    assert!(calls.is_some() && dry.compact() == Ok(0));
    survived(Simulation::new(&script).limit(8).nested_limit(2).depth(1).audit(audit()).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
#[test]
fn seeded_bugs_of_compaction_are_caught() {
    let script = Script { ops: vec![Op::Compact], ..sparse(150) };
    let simulation =
        Simulation::new(&script).limit(16).depth(0).continue_ops(1).audit(audit()).mutant_limit(16);
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}

/// Operations at random, as a seed chooses.
fn random(seed: u64) -> Script {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let keys = [4, 20, KEYS][rng.random_range(0..3)];
    let inclination = rng.random_range(0.3..0.9);
    let write = |rng: &mut Xoshiro256PlusPlus| -> Write {
        let len = match rng.random_range(0..40) {
            0 => rng.random_range(1000..5000),
            1 => 20_000,
            2..15 => rng.random_range(0..8),
            _ => rng.random_range(8..60),
        };
        let len = rng.random_bool(inclination).then_some(len);
        (rng.random_range(0..3), rng.random_range(0..keys), len)
    };
    let writes = |rng: &mut Xoshiro256PlusPlus, most: usize| -> Vec<Write> {
        (0..rng.random_range(1..=most)).map(|_| write(rng)).collect()
    };
    let op = |rng: &mut Xoshiro256PlusPlus, most: usize| match rng.random_range(0..40) {
        0 | 1 => Op::Keep(NAMES[rng.random_range(0..3)]),
        2 | 3 => Op::DeleteKept(NAMES[rng.random_range(0..3)]),
        4 => Op::KeepNumber,
        5 => Op::DeleteNumber,
        6..9 => Op::Collect(rng.random_range(1..60)),
        9 => Op::Compact,
        10 => Op::Read(rng.random()),
        11 => Op::Renew(rng.random_range(0..3)),
        12..14 => {
            let count = rng.random_range(1..4);
            let kinds = [
                Retention::None,
                Retention::Versions(count),
                Retention::For(Duration::from_millis(u64::from(count) - 1)),
                Retention::All,
            ];
            Op::Retain(rng.random_range(0..2), kinds[rng.random_range(0..4)])
        }
        14..17 => {
            let low = rng.random_range(0..keys);
            Op::DeleteRange(rng.random_range(0..3), low..low + rng.random_range(0..12), writes(rng, 2))
        }
        17..20 => {
            let mut group: Vec<Vec<Write>> = (0..rng.random_range(2..4)).map(|_| writes(rng, 4)).collect();
            // Two members do not write one key, and what is done a second time makes no version more.
            let mut seen = BTreeSet::new();
            for (member, writes) in group.iter_mut().enumerate() {
                writes.retain(|w| w.0 != AUDIT && seen.insert((w.0, w.1)));
                writes.push((0, KEYS + member as u64, Some(8)));
            }
            Op::Group(group)
        }
        20 => Op::Conflict((rng.random_range(0..2), rng.random_range(0..keys), Some(9))),
        _ => Op::Commit(writes(rng, most)),
    };
    let start = (0..rng.random_range(0..40)).map(|_| op(&mut rng, 10)).collect();
    let ops = (0..4).map(|_| op(&mut rng, 16)).collect();
    let continuation = (0..3).map(|_| op(&mut rng, 3)).collect();
    Script { name: format!("random operations, seed {seed}"), start, ops, continuation, bytes: 1 << 20 }
}

#[test]
fn campaign_of_random_operations() {
    survived(campaign(6_000, |seed| {
        let script = random(seed);
        Simulation::new(&script).seed(seed).limit(6).nested_limit(3).depth(1).audit(audit()).run()
    }));
}

#[test]
fn seeded_bugs_are_caught() {
    let simulation_of = histories();
    // Every third operation here flushes home lines, as half of the lane's records are to be written over.
    // The last one does, so that an earlier flush is either needed or done again.
    let short = Script { ops: simulation_of.ops[..9].to_vec(), ..simulation_of };
    let simulation = Simulation::new(&short).limit(48).depth(0).continue_ops(1).audit(audit());
    let report = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    let lines = flushed_lines(&short);
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let line = survivor.what.split_once("flush of line 0x")?.1.split(' ').next()?;
        let line = u64::from_str_radix(line, 16).ok()?;
        let operation = survivor.what.split_once(" of operation ")?.1.split(' ').next()?;
        let operation: usize = operation.parse().ok()?;
        if operation == short.ops.len() {
            return Some("the history ends before the records of this line are written over");
        }
        let later = lines[operation..].iter().any(|lines| lines.contains(&line));
        later.then_some("it is flushed again before the records of it are written over")
    });
    assert!(report.survivors().count() <= HARMLESS_BUGS, "{report}");
}

/// Lines are flushed at home when half of a lane's records are to be written over; in so short a history
/// this many such flushes may be missing.
const HARMLESS_BUGS: usize = 25;

/// Notes lines that are flushed.
#[derive(Default)]
struct Flushes(Mutex<BTreeSet<u64>>);

impl Observer for Flushes {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, line: u64) {
        self.0.lock().unwrap().insert(line);
    }
    fn fence(&self, _: ThreadTag) {}
}

/// The lines that each operation flushes.
fn flushed_lines(script: &Script) -> Vec<BTreeSet<u64>> {
    let flushes = Arc::new(Flushes::default());
    let bytes = vec![0; script.bytes as usize];
    let region = Region::simulated(&bytes, 1 << 24, Some(flushes.clone())).unwrap();
    let mut state = script.setup(region).unwrap();
    let lines = |op: &Op| {
        flushes.0.lock().unwrap().clear();
        script.apply(&mut state, op).unwrap();
        flushes.0.lock().unwrap().clone()
    };
    script.ops.iter().map(lines).collect()
}
