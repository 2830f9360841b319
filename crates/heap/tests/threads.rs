//! Threads that run transactions at once: what they see is one state of the heap, also in a transaction that
//! is going to be run again.
//!
//! `HEAP_ROUNDS=1000 cargo test -p tembo-heap --release --test threads` is the long form.

mod history;

use history::{Attempt, judge};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use tembo_heap::{
    Error, ErrorKind, Handle, Heap, NamedBrand, Obj, Options, PArr, PRc, PWeak, Persist, ReadTx, Ref,
    Summary, brand,
};
use tembo_pmem::Durability;

#[derive(Persist)]
#[repr(C)]
struct Node {
    id: u64,
    value: u64,
    next: PRc<Node>,
    back: PWeak<Node>,
}

fn new_node(id: u64) -> Node {
    Node { id, value: 0, next: PRc::null(), back: PWeak::null() }
}

#[derive(Persist, Default)]
#[repr(C)]
struct Root {
    first: PRc<Node>,
    look: PWeak<Node>,
    count: u64,
    nodes: PArr<PRc<Node>>,
    numbers: PArr<u64>,
    bytes: PArr<u8>,
}

struct Open<B: NamedBrand> {
    heap: Heap<B, Root>,
    _dir: tempfile::TempDir,
}

const THREADS: u64 = 4;

fn open<B: NamedBrand>() -> Open<B> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Emulated).create(true).initial_bytes(8 << 20);
    Open { heap: Heap::open(dir.path().join("heap"), &options).unwrap(), _dir: dir }
}

/// A heap with nodes, whose numbers are their indices, and with numbers.
fn open_with<B: NamedBrand>(nodes: usize, numbers: usize) -> Open<B> {
    let open = open::<B>();
    let made = open.heap.write(|tx, root| {
        let array = tx.alloc_array(nodes, |_| PRc::null())?;
        for i in 0..nodes {
            let node = tx.alloc(new_node(i as u64))?;
            tx.link(array.at(i), node)?;
        }
        tx.link_array(root.nodes(), array)?;
        let array = tx.alloc_array(numbers, |_| 0)?;
        tx.link_array(root.numbers(), array)
    });
    made.unwrap();
    open
}

impl<B: NamedBrand> Open<B> {
    /// Everything that is dead is released, every count is exact, and nothing leaks.
    fn check(&self) -> Summary {
        self.heap.collect().unwrap();
        let summary = self.heap.check().unwrap();
        assert_eq!(summary.dying, 0, "{summary:?}");
        assert!(summary.circles.is_empty(), "{summary:?}");
        summary
    }

    /// Nodes of which more is left than the head.
    fn objects(&self) -> u64 {
        let summary = self.check();
        let nodes = summary.types.iter().filter(|usage| usage.name.ends_with("Node"));
        nodes.map(|usage| usage.objects).sum::<u64>() - summary.shells
    }
}

/// As many rounds as usual, or as `HEAP_ROUNDS` says.
fn rounds(usual: u64) -> u64 {
    std::env::var("HEAP_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Runs `work` on several threads, each with its number and a source of chance.
fn at_once(seed: u64, work: impl Fn(u64, &mut Xoshiro256PlusPlus) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || {
                work(thread, &mut Xoshiro256PlusPlus::seed_from_u64(seed * THREADS + thread));
            });
        }
    });
}

/// A chance for others to come between.
fn pause(chance: u64) {
    if chance.is_multiple_of(4) {
        std::thread::yield_now();
    }
}

brand!(Bank);

const ACCOUNTS: usize = 12;
const SUM: u64 = 100 * ACCOUNTS as u64;

/// Half of the accounts are objects, half share lines of an array.
fn account<'t>(
    tx: &ReadTx<'t, Bank>,
    root: Obj<'t, Bank, Root>,
    i: usize,
) -> Result<Ref<'t, Bank, u64>, Error> {
    if i.is_multiple_of(2) {
        let nodes = tx.array(root.nodes())?.expect("made at first");
        Ok(tx.load(nodes.at(i / 2))?.expect("never unlinked").value())
    } else {
        Ok(tx.array(root.numbers())?.expect("made at first").at(i / 2))
    }
}

/// The sum of all accounts, with a pause between some.
fn sum<'t>(tx: &ReadTx<'t, Bank>, root: Obj<'t, Bank, Root>, chance: u64) -> Result<u64, Error> {
    let mut sum = 0;
    for i in 0..ACCOUNTS {
        sum += tx.get(account(tx, root, i)?)?;
        pause(chance >> i);
    }
    Ok(sum)
}

#[test]
fn transfers_keep_the_sum_in_every_transaction() {
    let open = open_with::<Bank>(ACCOUNTS / 2, ACCOUNTS / 2);
    let heap = &open.heap;
    heap.write(|tx, root| {
        for i in 0..ACCOUNTS {
            let account = account(tx, root, i)?;
            tx.set(account, 100)?;
        }
        Ok(())
    })
    .unwrap();
    let count = rounds(600);
    at_once(1, |_, rng| {
        for _ in 0..count {
            let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
            let (kind, amount, chance) =
                (rng.random_range(0..10), rng.random_range(0..60), rng.random::<u64>());
            match kind {
                0..2 => {
                    let sum = heap.read(|tx, root| {
                        let sum = sum(tx, root, chance)?;
                        assert_eq!(sum, SUM, "as a reader sees it");
                        Ok(sum)
                    });
                    assert_eq!(sum.unwrap(), SUM);
                }
                2 => {
                    let done = heap.write(|tx, root| {
                        assert_eq!(sum(tx, root, chance)?, SUM, "as a writer sees it");
                        *tx.get_mut(root.count())? += 1;
                        Ok(())
                    });
                    done.unwrap();
                }
                _ => {
                    let done = heap.write(|tx, root| {
                        let (from, to) = (account(tx, root, from)?, account(tx, root, to)?);
                        let least = amount.min(tx.get(from)?);
                        *tx.get_mut(from)? -= least;
                        pause(chance);
                        *tx.get_mut(to)? += least;
                        if kind == 3 { Err(tx.cancel()) } else { Ok(()) }
                    });
                    assert!(done.as_ref().err().is_none_or(Error::is_cancelled), "{done:?}");
                }
            }
        }
    });
    open.check();
}

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

#[test]
fn a_shared_list_loses_nothing() {
    brand!(Shared);
    let open = open::<Shared>();
    let heap = &open.heap;
    let popped = Mutex::new(Vec::new());
    let count = rounds(300);
    at_once(2, |thread, rng| {
        let mut mine = Vec::new();
        for i in 0..count {
            let id = thread * count + i;
            heap.write(|tx, root| {
                let node = tx.alloc(new_node(id))?;
                let first = tx.load(root.first())?;
                if let Some(first) = first {
                    tx.link_weak(first.back(), node)?;
                }
                tx.link(node.next(), first)?;
                tx.link(root.first(), node)?;
                *tx.get_mut(root.count())? += 1;
                Ok(())
            })
            .unwrap();
            if rng.random_bool(0.6) {
                let id = heap.write(|tx, root| {
                    let Some(first) = tx.load(root.first())? else { return Ok(None) };
                    let next = tx.load(first.next())?;
                    if let Some(next) = next {
                        assert_eq!(tx.upgrade(next.back())?, Some(first), "the one before");
                    }
                    tx.link(root.first(), next)?;
                    *tx.get_mut(root.count())? -= 1;
                    Ok(Some(tx.get(first.id())?))
                });
                mine.extend(id.unwrap());
            }
        }
        popped.lock().unwrap().append(&mut mine);
    });
    let mut ids = popped.into_inner().unwrap();
    let rest = heap.read(|tx, root| {
        let mut rest = Vec::new();
        let mut next = tx.load(root.first())?;
        while let Some(node) = next {
            rest.push(tx.get(node.id())?);
            next = tx.load(node.next())?;
        }
        assert_eq!(tx.get(root.count())?, rest.len() as u64);
        Ok(rest)
    });
    let rest = rest.unwrap();
    assert_eq!(open.objects(), rest.len() as u64);
    ids.extend(rest);
    ids.sort_unstable();
    assert_eq!(ids, (0..THREADS * count).collect::<Vec<_>>(), "each is in the list, or was taken out once");
}

brand!(Handed);

/// A new node, which a weak pointer sees, and which is linked or not.
fn make_held(heap: &Heap<Handed, Root>, id: u64, linked: bool) -> Handle<Handed, Node> {
    let handle = heap.write(|tx, root| {
        let node = tx.alloc(new_node(id))?;
        let other = tx.alloc(new_node(0))?;
        tx.link(node.next(), other)?;
        tx.link_weak(root.look(), node)?;
        if linked {
            tx.link(root.first(), node)?;
        }
        tx.hold(node)
    });
    handle.unwrap()
}

/// Uses and drops a handle, before, inside or after a transaction; `ids` ends the nodes' numbers.
fn use_handle(heap: &Heap<Handed, Root>, handle: Handle<Handed, Node>, way: u32, ids: u64) {
    match way {
        0 => drop(handle),
        1 => {
            // The last handle is dropped inside of the transaction that links what it holds.
            let handle = Mutex::new(Some(handle));
            heap.write(|tx, root| {
                let handle = handle.lock().unwrap().take();
                let Some(handle) = handle else { return Ok(()) };
                let node = tx.enter(&handle)?;
                drop(handle);
                std::thread::yield_now();
                tx.link(root.first(), node)
            })
            .unwrap();
        }
        2 => {
            let again = heap.write(|tx, root| {
                let node = tx.enter(&handle)?;
                tx.link(root.first(), node)?;
                tx.hold(node)
            });
            drop(handle);
            drop(again.unwrap());
        }
        _ => {
            let id = heap.write(|tx, root| {
                let node = tx.enter(&handle)?;
                assert!(tx.load(node.next())?.is_some());
                tx.link(root.first(), None)?;
                tx.get(node.id())
            });
            assert!(id.unwrap() < ids);
        }
    }
}

#[test]
fn handles_go_to_other_threads_and_are_dropped_there() {
    let open = open::<Handed>();
    let heap = &open.heap;
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Handle<Handed, Node>>()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    let count = rounds(300);
    at_once(3, |thread, rng| {
        let senders = senders.clone();
        let receiver = receivers[thread as usize].lock().unwrap();
        for i in 0..count {
            let linked = rng.random_bool(0.3);
            let handle = make_held(heap, thread * count + i, linked);
            let to = rng.random_range(0..THREADS) as usize;
            senders[to].send(handle).unwrap();
            while let Ok(handle) = receiver.try_recv() {
                use_handle(heap, handle, rng.random_range(0..4), THREADS * count);
                if let Some(node) = heap
                    .write(|tx, root| match tx.upgrade(root.look())? {
                        Some(node) => Ok(Some((tx.get(node.id())?, tx.hold(node)?))),
                        None => Ok(None),
                    })
                    .unwrap()
                {
                    assert!(node.0 < THREADS * count);
                }
            }
        }
    });
    drop((senders, receivers));
    heap.write(|tx, root| tx.link(root.first(), None)).unwrap();
    assert_eq!((open.objects(), open.check().orphans), (0, 0), "nothing keeps them alive");
}

/// A transaction went on with the object of a handle that was dropped meanwhile, and linked it although it
/// had been freed.
#[test]
fn what_dies_with_its_handle_is_not_linked() {
    brand!(Dropped);
    let open = open::<Dropped>();
    let heap = &open.heap;
    let handle = heap.write(|tx, _| {
        let node = tx.alloc(new_node(1))?;
        tx.hold(node)
    });
    let handle = Mutex::new(Some(handle.unwrap()));
    let linked = heap.write(|tx, root| {
        let Some(handle) = handle.lock().unwrap().take() else { return Ok(false) };
        let node = tx.enter(&handle)?;
        drop(handle);
        let heap = AssertUnwindSafe(heap);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The next commit releases it, and another object takes its place.
                for _ in 0..3 {
                    heap.write(|tx, _| tx.alloc(new_node(2)).map(drop)).unwrap();
                    heap.collect().unwrap();
                }
            });
        });
        tx.link(root.first(), node)?;
        Ok(true)
    });
    assert!(!linked.unwrap(), "it was run again, without the handle");
    assert_eq!(open.objects(), 0);
}

#[test]
fn weak_pointers_lead_to_what_is_alive() {
    brand!(Racing);
    let open = open::<Racing>();
    let heap = &open.heap;
    let is_done = AtomicBool::new(false);
    let count = rounds(1500);
    at_once(4, |thread, _| {
        if thread == 0 {
            for id in 1..=count {
                heap.write(|tx, root| {
                    let (node, next) = (tx.alloc(new_node(id))?, tx.alloc(new_node(2 * id))?);
                    tx.set(node.value(), 3 * id)?;
                    tx.link(node.next(), next)?;
                    tx.link_weak(next.back(), node)?;
                    tx.link_weak(root.look(), node)?;
                    tx.link(root.first(), (id % 3 != 0).then_some(node))
                })
                .unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        }
        let mut last = 0;
        while !is_done.load(Ordering::Relaxed) {
            let seen = heap.read(|tx, root| {
                let Some(node) = tx.upgrade(root.look())? else {
                    assert!(tx.load(root.first())?.is_none(), "what is linked is alive");
                    return Ok(None);
                };
                let id = tx.get(node.id())?;
                std::thread::yield_now();
                assert_eq!(tx.load(root.first())?, Some(node), "what is alive is linked");
                let next = tx.load(node.next())?.expect("linked before");
                assert_eq!((tx.get(node.value())?, tx.get(next.id())?), (3 * id, 2 * id));
                assert_eq!(tx.upgrade(next.back())?, Some(node));
                Ok(Some(id))
            });
            if let Some(id) = seen.unwrap() {
                assert!(id >= last, "{id} after {last}");
                last = id;
            }
        }
    });
    heap.write(|tx, root| {
        tx.link(root.first(), None)?;
        tx.link_weak(root.look(), None)
    })
    .unwrap();
    assert_eq!(open.objects(), 0);
}

#[test]
fn counts_that_all_threads_change_are_exact() {
    brand!(Counted);
    let open = open_with::<Counted>(THREADS as usize, 0);
    let heap = &open.heap;
    heap.write(|tx, root| {
        let shared = tx.alloc(new_node(1000))?;
        tx.link(root.first(), shared)
    })
    .unwrap();
    let count = rounds(600);
    at_once(5, |thread, rng| {
        for _ in 0..count {
            let (kind, chance) = (rng.random_range(0..4), rng.random::<u64>());
            heap.write(|tx, root| {
                let mine = tx.load(tx.array(root.nodes())?.unwrap().at(thread as usize))?.unwrap();
                let shared = tx.load(root.first())?;
                pause(chance);
                match kind {
                    0 => tx.link(mine.next(), shared),
                    1 => tx.link(mine.next(), None),
                    2 => tx.link_weak(mine.back(), shared),
                    _ => {
                        // It is replaced, and dies when the last of the others lets go.
                        let new = tx.alloc(new_node(1001))?;
                        tx.link(root.first(), if chance.is_multiple_of(8) { Some(new) } else { shared })
                    }
                }
            })
            .unwrap();
        }
    });
    open.check();
}

/// Bytes of a word, each of which is one thread's: who writes one keeps what others have written to its
/// neighbours meanwhile, also without having read anything.
#[test]
fn bytes_of_a_word_are_written_by_different_threads() {
    brand!(Neighbours);
    let open = open::<Neighbours>();
    let heap = &open.heap;
    heap.write(|tx, root| {
        let bytes = tx.alloc_array(THREADS as usize, |_| 0)?;
        tx.link_array(root.bytes(), bytes)
    })
    .unwrap();
    let count = rounds(600);
    at_once(6, |thread, rng| {
        for round in 0..count {
            let (before, chance) = (round as u8, rng.random::<u64>());
            heap.write(|tx, root| {
                let mine = tx.array(root.bytes())?.unwrap().at(thread as usize);
                if chance.is_multiple_of(3) {
                    assert_eq!(tx.get(mine)?, before);
                }
                tx.set(mine, before.wrapping_add(7))?;
                pause(chance);
                tx.set(mine, before.wrapping_add(1))?;
                assert_eq!(tx.get(mine)?, before.wrapping_add(1));
                Ok(())
            })
            .unwrap();
            let seen = heap.read(|tx, root| tx.get(tx.array(root.bytes())?.unwrap().at(thread as usize)));
            assert_eq!(seen.unwrap(), before.wrapping_add(1), "nobody else writes it");
        }
    });
}

/// Lists of dying objects belong to sessions, and those of other threads were not gone through.
#[test]
fn collect_releases_what_other_threads_let_die() {
    brand!(Others);
    let open = open::<Others>();
    let heap = &open.heap;
    heap.write(|tx, root| {
        for id in 0..4000 {
            let node = tx.alloc(new_node(id))?;
            let first = tx.load(root.first())?;
            tx.link(node.next(), first)?;
            tx.link(root.first(), node)?;
        }
        Ok(())
    })
    .unwrap();
    let ended = heap.write::<()>(|tx, _| {
        // This thread's session is in use, so that the other gets another.
        tx.alloc(new_node(0))?;
        let heap = AssertUnwindSafe(heap);
        std::thread::scope(|scope| {
            scope.spawn(|| heap.write(|tx, root| tx.link(root.first(), None)).unwrap());
        });
        Err(tx.cancel())
    });
    assert!(matches!(&ended, Err(e) if e.is_cancelled()));
    assert_eq!(open.objects(), 0);
}

#[test]
fn who_meets_others_for_the_first_time_is_run_again_once() {
    brand!(Wary);
    let open = open_with::<Wary>(0, 1000);
    let heap = AssertUnwindSafe(&open.heap);
    let attempts_until_done = || {
        let attempts = AtomicU64::new(0);
        let done = heap.write(|tx, root| {
            let numbers = tx.array(root.numbers())?.unwrap();
            let seen = tx.get(numbers.at(0))?;
            if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                // Another thread changes what this transaction has not read.
                let elsewhere = || {
                    heap.write(|tx, root| {
                        let numbers = tx.array(root.numbers())?.unwrap();
                        *tx.get_mut(numbers.at(999))? += 1;
                        Ok(())
                    })
                };
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())?;
            }
            tx.set(numbers.at(0), seen + 1)
        });
        done.unwrap();
        attempts.into_inner()
    };
    // From the second on it notes what it reads, and finds that nothing of it has changed.
    assert_eq!([(); 3].map(|()| attempts_until_done()), [2, 1, 1]);
    let numbers = heap.read(|tx, root| {
        let numbers = tx.array(root.numbers())?.unwrap();
        Ok([tx.get(numbers.at(0))?, tx.get(numbers.at(999))?])
    });
    assert_eq!(numbers.unwrap(), [3, 3]);
}

#[test]
fn panics_and_errors_change_nothing() {
    brand!(Panics);
    let open = open_with::<Panics>(3, 3);
    let heap = &open.heap;
    let before = open.check();
    let change = |ends: &(dyn Fn() -> Error + std::panic::RefUnwindSafe)| {
        heap.write::<()>(|tx, root| {
            let node = tx.alloc(new_node(5))?;
            tx.link(root.first(), node)?;
            tx.link_array(root.nodes(), None)?;
            *tx.get_mut(root.count())? += 1;
            tx.hold(node)?;
            Err(ends())
        })
    };
    assert!(matches!(&change(&|| ErrorKind::Cancelled.into()), Err(e) if e.is_cancelled()));
    let panicked = catch_unwind(|| change(&|| std::panic::resume_unwind(Box::new(7_u32))));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7_u32));
    assert_eq!(open.check(), before);
    let count = heap.read(|tx, root| {
        assert!(tx.load(root.first())?.is_none());
        tx.get(root.count())
    });
    assert_eq!(count.unwrap(), 0);
    // The transaction's records are free again, for other threads too.
    std::thread::scope(|scope| {
        scope.spawn(|| heap.write(|tx, root| tx.set(root.count(), 1)).unwrap());
    });
}

#[test]
fn a_transaction_in_another_is_a_part_of_it() {
    brand!(Outer);
    brand!(Between);
    let (open, other) = (open_with::<Outer>(1, 0), open_with::<Between>(1, 0));
    let (heap, other) = (&open.heap, &other.heap);
    let count = |heap: &Heap<Outer, Root>| heap.read(|tx, root| tx.get(root.count())).unwrap();
    let ended = heap.write::<()>(|tx, root| {
        *tx.get_mut(root.count())? += 1;
        heap.write(|tx, root| {
            *tx.get_mut(root.count())? += 10;
            Ok(())
        })?;
        assert_eq!((tx.get(root.count())?, count(heap)), (11, 11), "it sees what it does");
        Err(tx.cancel())
    });
    assert!(ended.is_err());
    assert_eq!(count(heap), 0, "ended with the outer one");
    // Also with a transaction of another heap between them.
    heap.write(|tx, root| {
        *tx.get_mut(root.count())? += 1;
        other.write(|_, _| {
            heap.write(|tx, root| {
                *tx.get_mut(root.count())? += 10;
                Ok(())
            })
        })
    })
    .unwrap();
    assert_eq!(count(heap), 11);
}

#[test]
fn a_write_in_a_read_is_refused() {
    brand!(Refused);
    let open = open_with::<Refused>(1, 1);
    let heap = &open.heap;
    type Change = fn(&Heap<Refused, Root>) -> Result<(), Error>;
    let changes: [Change; 5] = [
        |heap| heap.write(|tx, root| tx.set(root.count(), 1)),
        |heap| heap.write(|tx, _| tx.alloc(new_node(1)).map(drop)),
        |heap| heap.write(|tx, root| tx.link(root.first(), None)),
        |heap| heap.write(|tx, root| tx.link_array(root.numbers(), None)),
        |heap| {
            heap.write(|tx, root| {
                tx.hold(tx.load(tx.array(root.nodes())?.unwrap().at(0))?.unwrap()).map(drop)
            })
        },
    ];
    for change in changes {
        let refused = heap.read::<()>(|_, _| change(heap));
        assert!(matches!(&refused, Err(e) if matches!(e.kind(), ErrorKind::ReadTransaction)), "{refused:?}");
    }
    // One that changes nothing may run there.
    assert_eq!(heap.read(|_, _| heap.write(|tx, root| tx.get(root.count()))).unwrap(), 0);
    open.check();
}

/// Long transactions and short ones: none waits forever.
#[test]
fn a_long_transaction_is_committed_among_short_ones() {
    brand!(Starved);
    let open = open_with::<Starved>(16, 0);
    let heap = &open.heap;
    let is_done = AtomicBool::new(false);
    at_once(6, |thread, rng| {
        if thread > 0 {
            while !is_done.load(Ordering::Relaxed) {
                let at = rng.random_range(0..16);
                heap.write(|tx, root| {
                    let node = tx.load(tx.array(root.nodes())?.unwrap().at(at))?.unwrap();
                    *tx.get_mut(node.value())? += 1;
                    Ok(())
                })
                .unwrap();
            }
            return;
        }
        for _ in 0..20 {
            heap.write(|tx, root| {
                let mut sum = 0;
                for at in 0..16 {
                    let node = tx.load(tx.array(root.nodes())?.unwrap().at(at))?.unwrap();
                    sum += tx.get(node.value())?;
                    std::thread::sleep(Duration::from_micros(100));
                }
                tx.set(root.count(), sum)
            })
            .unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    open.check();
}

/// This many replacements free so much that its memory is used again.
const REPLACED: u64 = 400;

/// An object that a reader has found may be freed while it runs. Its memory is reused as soon as no
/// transaction can reach it any more.
#[test]
fn memory_that_is_used_again_is_not_read() {
    brand!(UsedAgain);
    let open = open_with::<UsedAgain>(0, 8);
    let heap = AssertUnwindSafe(&open.heap);
    let replace_all = |with: u64| {
        heap.write(|tx, root| {
            let numbers = tx.alloc_array(8, |_| with)?;
            tx.link_array(root.numbers(), numbers)
        })
    };
    for round in 0..20 {
        let attempts = AtomicU64::new(0);
        let seen = heap.read(|tx, root| {
            let numbers = tx.array(root.numbers())?.unwrap();
            let first = tx.get(numbers.at(0))?;
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            if attempt < 2 {
                let elsewhere = || (1..=REPLACED).try_for_each(|i| replace_all(1000 * (round + 1) + i));
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())?;
            }
            for i in 1..numbers.len() {
                assert_eq!(tx.get(numbers.at(i))?, first, "attempt {attempt}");
            }
            Ok(first)
        });
        // An attempt keeps what it has found, or finds out that it is gone.
        seen.unwrap();
        // Until the thread takes it for quiet again.
        for _ in 0..40 {
            let len = open.heap.read(|tx, root| Ok(tx.array(root.numbers())?.map(|n| n.len())));
            assert_eq!(len.unwrap(), Some(8));
        }
    }
    open.check();
}

/// Tells the others when its thread ends, however that comes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The writer pauses, so that readers trust in the clock.
#[test]
fn memory_that_is_used_again_is_not_read_by_threads_that_do_not_wait() {
    brand!(UsedAgainBeside);
    let open = open_with::<UsedAgainBeside>(0, 0);
    let is_over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _ends = Ends(&is_over);
                while !is_over.load(Ordering::Relaxed) {
                    let (len, alive) = open
                        .heap
                        .read(|tx, root| {
                            let numbers = tx.array(root.numbers())?.unwrap();
                            let sum = (0..numbers.len())
                                .try_fold(0, |sum, i| Ok::<_, Error>(sum + tx.get(numbers.at(i))?))?;
                            assert_eq!(sum, (numbers.len() * numbers.len()) as u64);
                            let first = tx.load(root.first())?;
                            let look = tx.upgrade(root.look())?;
                            assert_eq!(first, look);
                            let id = first.map(|first| tx.get(first.id())).transpose()?;
                            Ok((numbers.len() as u64, id))
                        })
                        .unwrap();
                    assert!(alive.is_none_or(|id| id == len), "{alive:?} beside {len}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..rounds(100) {
            for i in 0..REPLACED / 8 {
                let len = 1 + (round * 7 + i) % 61;
                let done = open.heap.write(|tx, root| {
                    let numbers = tx.alloc_array(len as usize, |_| len)?;
                    tx.link_array(root.numbers(), numbers)?;
                    let node = if i % 3 == 0 { None } else { Some(tx.alloc(new_node(len))?) };
                    tx.link(root.first(), node)?;
                    tx.link_weak(root.look(), node)
                });
                done.unwrap();
            }
            let enough = reads.load(Ordering::Relaxed) + 100;
            while reads.load(Ordering::Relaxed) < enough && !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    open.check();
}
