//! The models: threads that run few transactions, and what must hold.

use crate::tx::{Conflict, Shared, Tx};
use crate::{Sharing, WAY};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::atomic::Ordering::Relaxed;

/// Runs a model under every schedule with this many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

fn spawn(shared: &Arc<Shared>, run: impl Fn(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

/// Writes both words, which are the same in every state.
fn write_both(shared: &Shared, me: u64, value: u64) -> Result<(), Conflict> {
    let mut tx = Tx::begin(shared, me);
    tx.write(0, value)?;
    tx.write(1, value)?;
    tx.commit()
}

/// Reads both words, in a transaction that need not be committed.
fn read_both(shared: &Shared, me: u64) -> Result<u64, Conflict> {
    shared.change_sharing();
    read_both_as_it_is(shared, me)
}

fn read_both_as_it_is(shared: &Shared, me: u64) -> Result<u64, Conflict> {
    let mut tx = Tx::begin(shared, me);
    let first = tx.read(0)?;
    let second = tx.read(1)?;
    assert_eq!(first, second, "one state");
    Ok(first)
}

/// Also a transaction that is going to be run again sees one state.
fn readers_see_one_state() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let done = Arc::new(AtomicU64::new(0));
        let count = done.clone();
        let writer = spawn(&shared, move |shared| {
            if write_both(shared, 1, 1).is_ok() {
                count.store(1, Relaxed);
            }
        });
        let _ = read_both(&shared, 9);
        writer.join().unwrap();
        let done = done.load(Relaxed);
        assert!(matches!(read_both(&shared, 9), Ok(both) if both == done), "what was committed is read");
        let may_fail = !matches!(WAY.get().sharing, Sharing::Never | Sharing::Always);
        assert!(may_fail || done == 1, "the writer met nobody");
    });
}

/// The same after something else was read, with a second commit that the clock is advanced for.
fn readers_see_one_state_between_two_commits() {
    explore(2, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| {
            let _ = write_both(shared, 1, 1);
            let _ = write_both(shared, 1, 2);
        });
        if let (Ok(first), Ok(second)) = (read_both(&shared, 9), read_both(&shared, 9)) {
            assert!(first <= second, "{first}, then {second}");
        }
        writer.join().unwrap();
    });
}

/// A writer that has read one word, and owns the other.
fn writers_see_one_state() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| _ = write_both(shared, 1, 1));
        shared.change_sharing();
        let attempt = || {
            let mut tx = Tx::begin(&shared, 2);
            let first = tx.read(0)?;
            tx.own(1)?;
            assert_eq!(tx.read(1)?, first, "one state");
            Ok::<_, Conflict>(())
        };
        let _ = attempt();
        writer.join().unwrap();
    });
}

/// A writer advances its clock to where others may still be storing.
fn no_write_is_skewed_after_an_extension() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let other = spawn(&shared, |shared| {
            let attempt = || {
                let mut tx = Tx::begin(shared, 2);
                tx.own(1)?;
                if tx.read(0)? == 0 {
                    tx.write(1, 1)?;
                    tx.commit()?;
                }
                Ok::<_, Conflict>(())
            };
            let _ = attempt();
        });
        shared.change_sharing();
        let attempt = || {
            let mut tx = Tx::begin(&shared, 1);
            tx.write(1, 0)?;
            tx.commit()?;
            let mut tx = Tx::begin(&shared, 1);
            if tx.read(1)? == 0 {
                tx.write(0, 1)?;
                tx.commit()?;
            }
            Ok::<_, Conflict>(())
        };
        let _ = attempt();
        other.join().unwrap();
        let both = [shared.words[0].load(Relaxed), shared.words[1].load(Relaxed)];
        assert_ne!(both, [1, 1], "each thought that the other had not");
    });
}

/// Two transactions add one each to a word.
fn no_update_is_lost() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let done = Arc::new(AtomicU64::new(0));
        let add = |me: u64, done: Arc<AtomicU64>| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    let value = tx.read(0)?;
                    tx.write(0, value + 1)?;
                    tx.commit()
                };
                if attempt().is_ok() {
                    done.fetch_add(1, Relaxed);
                }
            }
        };
        let other = spawn(&shared, add(1, done.clone()));
        shared.change_sharing();
        add(2, done.clone())(&shared);
        other.join().unwrap();
        assert_eq!(shared.words[0].load(Relaxed), done.load(Relaxed), "every commit counts");
    });
}

/// Each writes what the other reads: one of them has to see the other's change.
fn no_write_is_skewed() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let take = |me: u64, mine: usize| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    if tx.read(1 - mine)? == 0 {
                        tx.write(mine, 1)?;
                        tx.commit()?;
                    }
                    Ok::<_, Conflict>(())
                };
                let _ = attempt();
            }
        };
        let other = spawn(&shared, take(1, 0));
        shared.change_sharing();
        take(2, 1)(&shared);
        other.join().unwrap();
        let both = [shared.words[0].load(Relaxed), shared.words[1].load(Relaxed)];
        assert_ne!(both, [1, 1], "each thought that the other had not");
    });
}

/// A writer reads its own writes, and its other reads under the same record still hold when it commits.
fn who_writes_sees_it_and_loses_nothing() {
    explore(3, || {
        let shared = Arc::new(Shared::of_one_record());
        let done = Arc::new(AtomicU64::new(0));
        let add = |me: u64, done: Arc<AtomicU64>| {
            move |shared: &Shared| {
                let attempt = || {
                    let mut tx = Tx::begin(shared, me);
                    tx.write(1, 7)?;
                    assert_eq!(tx.read(1)?, 7, "its own");
                    let value = tx.read(0)?;
                    tx.write(0, value)?;
                    let again = tx.read(0)?;
                    assert_eq!(again, value, "its own");
                    tx.write(0, again + 1)?;
                    tx.commit()
                };
                if attempt().is_ok() {
                    done.fetch_add(1, Relaxed);
                }
            }
        };
        let other = spawn(&shared, add(1, done.clone()));
        shared.change_sharing();
        add(2, done.clone())(&shared);
        other.join().unwrap();
        assert_eq!(shared.words[0].load(Relaxed), done.load(Relaxed), "every commit counts");
    });
}

/// A reader has met a version of somebody else's, and raised the clock to it; the commit that goes on
/// meanwhile has the same.
fn readers_see_one_state_after_raising_the_clock() {
    explore(3, || {
        let shared = Arc::new(Shared::new());
        let writer = spawn(&shared, |shared| _ = write_both(shared, 1, 1));
        shared.clock.raise(1);
        let _ = read_both(&shared, 9);
        writer.join().unwrap();
    });
}

/// Somebody else finds that nobody stores any more, so that readers look at the clock again.
fn readers_see_one_state_when_another_ends_sharing() {
    if !matches!(WAY.get().sharing, Sharing::Ended | Sharing::Changing) {
        return;
    }
    explore(2, || {
        let shared = Arc::new(Shared::new());
        let threads = [
            spawn(&shared, |shared| _ = write_both(shared, 1, 1)),
            spawn(&shared, Shared::change_sharing),
            spawn(&shared, |shared| _ = read_both_as_it_is(shared, 9)),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

pub(crate) const MODELS: [(&str, fn()); 9] = [
    ("readers see one state", readers_see_one_state),
    ("writers see one state", writers_see_one_state),
    ("no update is lost", no_update_is_lost),
    ("who writes sees it and loses nothing", who_writes_sees_it_and_loses_nothing),
    ("no write is skewed", no_write_is_skewed),
    ("no write is skewed after an extension", no_write_is_skewed_after_an_extension),
    ("readers see one state between two commits", readers_see_one_state_between_two_commits),
    ("readers see one state after raising the clock", readers_see_one_state_after_raising_the_clock),
    ("readers see one state when another ends sharing", readers_see_one_state_when_another_ends_sharing),
];
