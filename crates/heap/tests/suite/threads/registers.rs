//! Recorded histories of registers are opaque, and histories with anomalies are rejected.

use super::history::{Attempt, judge};
use super::{NodePrivateFields, Open, Root, RootPrivateFields, at_once, new_node, open_with, pause, rounds};
use rand::Rng;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_heap::{Error, NamedBrand, brand};

/// One register of three kinds: an object's value, an element of an array, and a node's number in place of
/// which another node is linked.
const REGISTERS: usize = 9;
const KINDS: usize = 3;

macro_rules! read_register {
    ($tx:expr, $root:expr, $register:expr) => {{
        let (kind, index) = ($register % KINDS, $register / KINDS);
        match kind {
            0 => {
                let nodes = $tx.array($root.nodes())?.expect("made at first");
                let node = $tx.load(nodes.at(index))?.expect("never unlinked");
                $tx.get(node.value())?
            }
            1 => $tx.get($tx.array($root.numbers())?.expect("made at first").at(index))?,
            _ => {
                let nodes = $tx.array($root.nodes())?.expect("made at first");
                let holder = $tx.load(nodes.at(REGISTERS + index))?.expect("never unlinked");
                match $tx.load(holder.next())? {
                    Some(node) => $tx.get(node.id())?,
                    None => 0,
                }
            }
        }
    }};
}

fn write_register<'t, B: NamedBrand>(
    tx: &mut tembo_heap::Tx<'t, B>,
    root: tembo_heap::Obj<'t, B, Root>,
    register: usize,
    version: u64,
) -> Result<(), Error> {
    let (kind, index) = (register % KINDS, register / KINDS);
    let nodes = tx.array(root.nodes())?.expect("made at first");
    match kind {
        0 => {
            let node = tx.load(nodes.at(index))?.expect("never unlinked");
            tx.set(node.value(), version)
        }
        1 => {
            let numbers = tx.array(root.numbers())?.expect("made at first");
            tx.set(numbers.at(index), version)
        }
        _ => {
            let holder = tx.load(nodes.at(REGISTERS + index))?.expect("never unlinked");
            let new = tx.alloc(new_node(version))?;
            tx.link_weak(holder.back(), new)?;
            tx.link(holder.next(), new)
        }
    }
}

/// The record of a thread while its transactions run.
struct Notes<'c> {
    clock: &'c AtomicU64,
    attempts: Mutex<Vec<Attempt>>,
}

impl Notes<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn begin(&self) {
        let begin = self.now();
        self.attempts.lock().unwrap().push(Attempt { begin, end: begin, ..Attempt::default() });
    }

    /// Changes the attempt that runs, which goes on at least till now.
    fn note(&self, change: impl FnOnce(&mut Attempt)) {
        let now = self.now();
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.last_mut().expect("one that began");
        attempt.end = now;
        change(attempt);
    }
}

/// One round of random transactions on few registers.
fn record<B: NamedBrand>(open: &Open<B>, seed: u64, first_version: u64, count: u64) -> Vec<Attempt> {
    let (heap, clock) = (&open.heap, AtomicU64::new(1));
    let histories = Mutex::new(Vec::new());
    let version = AtomicU64::new(first_version);
    at_once(seed, |_, rng| {
        let notes = AssertUnwindSafe(Notes { clock: &clock, attempts: Mutex::new(Vec::new()) });
        for _ in 0..count {
            let plan: Vec<(usize, bool)> = (0..rng.random_range(1..6))
                .map(|_| (rng.random_range(0..REGISTERS), rng.random_bool(0.5)))
                .collect();
            let (reads_only, fails, chance) =
                (rng.random_bool(0.3), rng.random_bool(0.1), rng.random::<u64>());
            let (plan, notes, version) = (&plan, &notes, AssertUnwindSafe(&version));
            let outcome = if reads_only {
                heap.read(|tx, root| {
                    notes.begin();
                    for (i, (register, _)) in plan.iter().enumerate() {
                        let seen = read_register!(tx, root, *register);
                        notes.note(|attempt| attempt.reads.push((*register, seen)));
                        pause(chance >> i);
                    }
                    Ok(())
                })
            } else {
                heap.write(|tx, root| {
                    notes.begin();
                    let mut own = [None; REGISTERS];
                    for (i, (register, writes)) in plan.iter().enumerate() {
                        let seen = read_register!(tx, root, *register);
                        match own[*register] {
                            Some(own) => assert_eq!(seen, own, "what the transaction wrote itself"),
                            None => notes.note(|attempt| attempt.reads.push((*register, seen))),
                        }
                        if *writes {
                            let new = version.fetch_add(1, Ordering::Relaxed);
                            write_register(tx, root, *register, new)?;
                            own[*register] = Some(new);
                        }
                        pause(chance >> i);
                    }
                    let writes =
                        own.iter().enumerate().filter_map(|(register, own)| Some((register, (*own)?)));
                    notes.note(|attempt| attempt.writes = writes.collect());
                    if fails { Err(tx.cancel()) } else { Ok(()) }
                })
            };
            match outcome {
                Ok(()) => notes.note(|attempt| attempt.is_committed = true),
                Err(e) if e.is_cancelled() => {}
                Err(e) => panic!("{e}"),
            }
        }
        histories.lock().unwrap().append(&mut notes.attempts.lock().unwrap());
    });
    histories.into_inner().unwrap()
}

#[test]
fn histories_are_opaque_and_in_order_of_time() {
    brand!(Histories);
    let (mut committed, mut aborted) = (0, 0);
    for seed in 0..rounds(25) {
        let open = open_with::<Histories>(REGISTERS + REGISTERS / KINDS, REGISTERS);
        let history = record(&open, seed, 1, 150);
        judge(&history).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        committed += history.iter().filter(|attempt| attempt.is_committed).count();
        aborted += history.iter().filter(|attempt| !attempt.is_committed).count();
        open.check();
    }
    println!("{committed} committed, {aborted} aborted attempts");
}

fn attempt(
    times: (u64, u64),
    is_committed: bool,
    reads: &[(usize, u64)],
    writes: &[(usize, u64)],
) -> Attempt {
    Attempt { begin: times.0, end: times.1, is_committed, reads: reads.to_vec(), writes: writes.to_vec() }
}

/// The first attempt of most histories: it writes both places.
fn first_attempt() -> Attempt {
    attempt((1, 2), true, &[(0, 0), (1, 0)], &[(0, 1), (1, 2)])
}

#[test]
fn histories_in_some_order_are_accepted() {
    let histories: [(&str, Vec<Attempt>); 2] = [
        (
            "serial",
            vec![
                first_attempt(),
                attempt((3, 5), true, &[(0, 1)], &[(0, 3)]),
                attempt((4, 6), false, &[(0, 1), (1, 2)], &[(0, 9)]),
                attempt((7, 8), true, &[(0, 3), (1, 2)], &[]),
            ],
        ),
        (
            "old state, read by who began in time",
            vec![
                first_attempt(),
                attempt((3, 9), true, &[(0, 1), (1, 2)], &[]),
                attempt((4, 5), true, &[(0, 1)], &[(0, 3)]),
            ],
        ),
    ];
    for (name, history) in histories {
        judge(&history).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn seeded_anomalies_are_rejected() {
    let anomalies: [(&str, &str, Vec<Attempt>); 7] = [
        (
            "lost update",
            "a lost update",
            vec![attempt((1, 4), true, &[(0, 0)], &[(0, 1)]), attempt((2, 5), true, &[(0, 0)], &[(0, 2)])],
        ),
        (
            "write skew",
            "no order",
            vec![
                attempt((1, 4), true, &[(0, 0), (1, 0)], &[(0, 1)]),
                attempt((2, 5), true, &[(0, 0), (1, 0)], &[(1, 2)]),
            ],
        ),
        (
            "inconsistent snapshot",
            "no order",
            vec![first_attempt(), attempt((1, 5), true, &[(0, 1), (1, 0)], &[])],
        ),
        (
            "inconsistent snapshot of an aborted transaction",
            "no order",
            vec![first_attempt(), attempt((1, 5), false, &[(0, 0), (1, 2)], &[])],
        ),
        (
            "dirty read",
            "a dirty read",
            vec![attempt((1, 5), false, &[(0, 0)], &[(0, 7)]), attempt((2, 6), true, &[(0, 7)], &[])],
        ),
        ("stale read", "no order", vec![first_attempt(), attempt((3, 4), true, &[(0, 0)], &[])]),
        (
            "two readers that disagree about the order",
            "no order",
            vec![
                attempt((1, 9), true, &[(0, 0)], &[(0, 1)]),
                attempt((2, 9), true, &[(1, 0)], &[(1, 2)]),
                attempt((3, 8), true, &[(0, 1), (1, 0)], &[]),
                attempt((4, 8), false, &[(0, 0), (1, 2)], &[]),
            ],
        ),
    ];
    for (name, expected, history) in anomalies {
        match judge(&history) {
            Ok(()) => panic!("{name} was accepted"),
            Err(e) => assert!(e.contains(expected), "{name}: {e}"),
        }
    }
}

/// A recorded history is no longer accepted when a read is replaced by another version.
#[test]
fn changed_histories_are_rejected() {
    brand!(Changed);
    let open = open_with::<Changed>(REGISTERS + REGISTERS / KINDS, REGISTERS);
    let history = record(&open, 99, 1, 150);
    judge(&history).unwrap();
    let (mut tried, mut rejected) = (0, 0);
    for at in (0..history.len()).filter(|at| history[*at].is_committed && !history[*at].reads.is_empty()) {
        let (register, version) = history[at].reads[0];
        // The version before the one that was read.
        let older =
            history.iter().find(|other| other.is_committed && other.writes.contains(&(register, version)));
        let Some((_, older)) = older.and_then(|other| other.reads.iter().find(|(read, _)| *read == register))
        else {
            continue;
        };
        let mut changed = history.clone();
        changed[at]
            .reads
            .iter_mut()
            .filter(|(read, _)| *read == register)
            .for_each(|(_, seen)| *seen = *older);
        tried += 1;
        rejected += usize::from(judge(&changed).is_err());
    }
    println!("{rejected} of {tried} stale reads rejected");
    // A reader may precede any writer that ran concurrently.
    assert!(tried > 100 && rejected * 10 > tried * 9, "{rejected} of {tried}");
}
