//! Rounds of threads, with what happens beside and between them.

use super::checker::{Anomaly, Checker};
use super::record::{AUDITED, Record, SPACES, Space, WIDE};
use super::threads::{Shared, Worker, contents, get_all_the_time};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tembo_pool::{Options, Pool};
use tembo_store::{Retention, Store, StorePlace};

pub(crate) const THREADS: usize = 8;

/// A store, the threads that work on it, and the checker that follows them.
pub(crate) struct Campaign {
    path: PathBuf,
    rng: Xoshiro256PlusPlus,
    workers: Vec<Worker>,
    pub(crate) checker: Checker,
    shared: Option<Shared>,
    retained_from: u64,
    clock: u64,
    pub(crate) restarts: u64,
    /// Compactions that went through the whole store beside the threads, and the bytes that all moved.
    pub(crate) compactions: u64,
    pub(crate) moved_bytes: u64,
}

fn open(path: &Path) -> Pool {
    let mut options = Options::new();
    options.create = true;
    Pool::open(path, &options).unwrap()
}

impl Campaign {
    pub(crate) fn new(directory: &Path, seed: u64) -> Campaign {
        let workers = (0..THREADS).map(|thread| Worker::new(thread, seed)).collect();
        let mut campaign = Campaign {
            path: directory.join("history.pool"),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            workers,
            checker: Checker::default(),
            shared: None,
            retained_from: 0,
            clock: 1,
            restarts: 0,
            compactions: 0,
            moved_bytes: 0,
        };
        let pool = open(&campaign.path);
        campaign.open_store(&pool);
        campaign
    }

    fn open_store(&mut self, pool: &Pool) {
        let store = Store::open(pool, "store").unwrap();
        let spaces = SPACES.map(|name| {
            let retention =
                if name == SPACES[usize::from(AUDITED)] { Retention::All } else { Retention::None };
            store.keyspace_with(name, retention).unwrap()
        });
        let clock = AtomicU64::new(self.clock);
        self.shared = Some(Shared { store, spaces, clock, retained_from: self.retained_from });
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("the store is open")
    }

    /// Runs the threads for so many transactions each, with gets, collection and compaction beside them;
    /// returns what they did.
    pub(crate) fn run(&mut self, transactions: usize) -> Vec<Record> {
        let shared = self.shared.take().expect("the store is open");
        let is_done = AtomicBool::new(false);
        let seed = self.rng.random();
        let (compactions, moved_bytes, gets) = std::thread::scope(|scope| {
            let collector = scope.spawn(|| collect(&shared, &is_done, seed));
            let compactor = scope.spawn(|| compact(&shared.store, &is_done, seed));
            let getter = scope.spawn(|| get_all_the_time(&shared, THREADS, &is_done, seed));
            let shared = &shared;
            let workers: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| scope.spawn(move || worker.run(shared, transactions)))
                .collect();
            // Those beside them end whatever becomes of them.
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            is_done.store(true, Ordering::Relaxed);
            collector.join().unwrap();
            let ((compactions, moved_bytes), gets) = (compactor.join().unwrap(), getter.join().unwrap());
            outcomes.into_iter().for_each(|outcome| outcome.unwrap_or_else(|p| std::panic::resume_unwind(p)));
            (compactions, moved_bytes, gets)
        });
        self.compactions += compactions;
        self.moved_bytes += moved_bytes;
        self.clock = shared.clock.load(Ordering::Relaxed);
        self.shared = Some(shared);
        self.workers.iter_mut().flat_map(|worker| worker.records.drain(..)).chain(gets).collect()
    }

    /// A round, its check, and what comes between rounds.
    pub(crate) fn round(&mut self, transactions: usize) -> Result<(), Anomaly> {
        let records = self.run(transactions);
        self.checker.round(&records)?;
        self.compare();
        self.between();
        self.compare();
        Ok(())
    }

    /// Compares the current and all kept and held snapshots with the model, in full.
    fn compare(&self) {
        let Shared { store, spaces, .. } = self.shared();
        let current = store.snapshot();
        assert_eq!(current.number(), self.checker.last, "the current snapshot is the last commit");
        let named = self.workers.iter().flat_map(|worker| &worker.kept);
        let kept = named.map(|(name, number)| {
            let snapshot = store.at_name(name).unwrap();
            assert_eq!(snapshot.number(), *number, "the snapshot {name}");
            snapshot
        });
        let held = self.workers.iter().flat_map(|worker| worker.held.iter().cloned());
        let snapshots: Vec<_> = kept.chain(held).chain([current]).collect();
        for snapshot in snapshots {
            for (i, keyspace) in spaces.iter().enumerate() {
                let expected = self.checker.model.contents(i as Space, snapshot.number());
                assert!(
                    contents(&snapshot, keyspace) == expected,
                    "{} in snapshot {}",
                    SPACES[i],
                    snapshot.number()
                );
            }
        }
        let mut marks = store.pool().marks().unwrap();
        store.check(&mut marks).unwrap();
        marks.finish().unwrap();
    }

    /// Restarts, drops a keyspace, or lets retained versions go; then forgets what nobody can ask for.
    fn between(&mut self) {
        if self.rng.random_ratio(1, 3) {
            let Shared { store, spaces, .. } = self.shared();
            let audited = &spaces[usize::from(AUDITED)];
            store.set_retention(audited, Retention::None).unwrap();
            while store.collect(1000).unwrap() {}
            let from = store.snapshot().number();
            store.set_retention(audited, Retention::All).unwrap();
            self.retained_from = from;
        }
        if self.rng.random_ratio(1, 5) {
            assert!(self.shared().store.drop_keyspace(SPACES[usize::from(WIDE)]).unwrap());
            self.checker.model.clear(WIDE);
        }
        let pool = self.shared().store.pool().clone();
        if self.rng.random_ratio(2, 3) {
            self.restarts += 1;
            self.workers.iter_mut().for_each(|worker| worker.held.clear());
            self.shared = None;
            if self.rng.random() {
                drop(pool);
                self.open_store(&open(&self.path));
            } else {
                self.open_store(&pool);
            }
        } else {
            // The store stays open; keyspaces and what is retained may be others.
            let store = self.shared().store.clone();
            let spaces = SPACES.map(|name| store.keyspace(name).unwrap());
            let clock = AtomicU64::new(self.clock);
            self.shared = Some(Shared { store, spaces, clock, retained_from: self.retained_from });
        }
        let kept = self.workers.iter().flat_map(|worker| worker.kept.iter().map(|(_, number)| *number));
        let held = self.workers.iter().flat_map(|worker| worker.held.iter().map(|held| held.number()));
        let horizon = kept.chain(held).min().unwrap_or(u64::MAX).min(self.checker.last);
        for space in 0..SPACES.len() as Space {
            let retained = if space == AUDITED { self.retained_from } else { u64::MAX };
            self.checker.model.forget(space, horizon.min(retained));
        }
    }
}

/// Collects as long as the threads work, and changes what the wide keyspace retains.
fn collect(shared: &Shared, is_done: &AtomicBool, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let wide = &shared.spaces[usize::from(WIDE)];
    while !is_done.load(Ordering::Relaxed) {
        let _ = shared.store.collect(rng.random_range(1..60)).unwrap();
        if rng.random_ratio(1, 50) {
            let kinds = [
                Retention::None,
                Retention::Versions(3),
                Retention::For(Duration::from_millis(2)),
                Retention::All,
            ];
            shared.store.set_retention(wide, kinds[rng.random_range(0..4)]).unwrap();
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..400)));
    }
    shared.store.set_retention(wide, Retention::None).unwrap();
}

/// Compacts the store, a step now and then, as long as the threads work; returns how often it came to the
/// store's end, and how many bytes it moved.
fn compact(store: &Store, is_done: &AtomicBool, seed: u64) -> (u64, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let (mut compactions, mut moved_bytes) = (0, 0);
    while !is_done.load(Ordering::Relaxed) {
        let compaction = store.pool().compaction().unwrap().expect("nobody else compacts");
        let mut place = (!compaction.is_empty()).then(StorePlace::default);
        while let Some(at) = place.take().filter(|_| !is_done.load(Ordering::Relaxed)) {
            let step = store.compact_at(&compaction, &at).unwrap();
            moved_bytes += step.moved_bytes;
            compactions += u64::from(step.next.is_none());
            place = step.next;
            std::thread::sleep(Duration::from_micros(rng.random_range(0..100)));
        }
        drop(compaction);
        store.pool().trim().unwrap();
        std::thread::sleep(Duration::from_micros(rng.random_range(0..2000)));
    }
    (compactions, moved_bytes)
}
