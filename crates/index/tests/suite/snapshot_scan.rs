//! Scans see one moment, whatever writers do meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_index::{WbTree, Writers};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

fn tree_with(writers: usize) -> (Writers, WbTree) {
    let region = Region::simulated(&vec![0; 8 << 20], 1 << 30, None).unwrap();
    let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
    let pool = Pool::create_in(region, &geometry).unwrap();
    let all = Writers::new(pool.lane().unwrap());
    (1..writers).for_each(|_| assert!(all.add().unwrap()));
    let mut tx = all.begin();
    let tree = WbTree::create(&mut tx, "tree").unwrap();
    tx.commit().unwrap();
    (all, tree)
}

/// Stops the other threads when one is done or panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keys far from each other for numbers that follow each other.
fn key(thread: u64, i: u64) -> Vec<u8> {
    let mixed = (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) << 8 | thread;
    [mixed.to_be_bytes(), i.to_be_bytes()].concat()
}

const WINDOW: u64 = 400;

/// Each thread puts one number after another and removes what it put this many steps ago. A scan therefore
/// finds a thread's numbers of one step, or of the moment within it.
#[test]
fn scans_see_what_threads_did_up_to_some_step() {
    let (writers, tree) = tree_with(2);
    let (stop, scans) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (stop, tree) = (&stop, tree.concurrent(&writers));
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    tree.put(&key(thread, i), &[&i.to_le_bytes()]).unwrap();
                    if i >= WINDOW {
                        assert!(tree.remove(&key(thread, i - WINDOW)).unwrap());
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        while scans.fetch_add(1, Ordering::Relaxed) < 1500 {
            let records = tree.scan::<&[u8]>(Some(&writers), .., usize::MAX).unwrap();
            assert!(records.windows(2).all(|two| two[0].0 < two[1].0));
            for thread in 0..2 {
                let mine = records.iter().filter(|(key, _)| u64::from(key[7]) == thread);
                let mut numbers: Vec<u64> =
                    mine.map(|(_, value)| u64::from_le_bytes(value[..].try_into().unwrap())).collect();
                numbers.sort_unstable();
                let whole = numbers.windows(2).all(|two| two[0] + 1 == two[1]);
                let (first, last) = (numbers.first().copied(), numbers.last().copied());
                assert!(whole, "a hole between {first:?} and {last:?}");
                let in_time = match (first, last) {
                    (Some(0), Some(_)) | (None, None) => numbers.len() as u64 <= WINDOW + 1,
                    _ => (WINDOW..=WINDOW + 1).contains(&(numbers.len() as u64)),
                };
                assert!(in_time, "{} numbers between {first:?} and {last:?}", numbers.len());
            }
        }
    });
}

/// A thread replaces the values of some keys by turns, far from each other and beside each other: a scan
/// finds those of one step.
#[test]
fn scans_see_values_that_are_replaced() {
    const KEYS: u64 = 7;
    let (writers, tree) = tree_with(1);
    let key = |i: u64| [&[b'a' + (i % KEYS / 2) as u8][..], &(i % KEYS).to_be_bytes()].concat();
    let beside = tree.concurrent(&writers);
    for filler in 0..800u64 {
        let key = [&[b'a' + (filler % 4) as u8][..], &(100 + filler).to_be_bytes()].concat();
        beside.put(&key, &[]).unwrap();
    }
    (0..KEYS).for_each(|i| assert!(!beside.put(&key(i), &[&i.to_le_bytes()]).unwrap()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            for i in KEYS.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                assert!(beside.put(&key(i), &[&i.to_le_bytes()]).unwrap());
                (0..i * 7919 % 3000).for_each(|_| std::hint::spin_loop());
            }
        });
        let _stop = Stop(stop);
        for _ in 0..3000 {
            let records = tree.scan::<&[u8]>(Some(&writers), .., usize::MAX).unwrap();
            let values = records.iter().filter(|(_, value)| !value.is_empty());
            let mut steps: Vec<u64> =
                values.map(|(_, value)| u64::from_le_bytes(value[..].try_into().unwrap())).collect();
            steps.sort_unstable();
            assert!(
                steps.len() as u64 == KEYS && steps.windows(2).all(|two| two[0] + 1 == two[1]),
                "{steps:?}"
            );
        }
    });
}

/// A thread appends a number to one run of ascending keys and then to another: where the end of a run's
/// last leaf is, new leaves come that change neither it nor the next. No scan finds a number in the second
/// run that is missing in the first.
#[test]
fn scans_see_leaves_that_come_between_others() {
    let (writers, tree) = tree_with(1);
    let key = |run: u8, i: u64| [&[run][..], &i.to_be_bytes()].concat();
    let beside = tree.concurrent(&writers);
    (0..500).for_each(|i| assert!(!beside.put(&key(b'm', i), &[b"between"]).unwrap()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                for run in [b'a', b'z'] {
                    beside.put(&key(run, i), &[]).unwrap();
                }
                if i % 300 == 299 {
                    for run in [b'z', b'a'] {
                        (i - 299..=i).for_each(|i| assert!(beside.remove(&key(run, i)).unwrap()));
                    }
                }
                // The pauses vary, so that now and then a scan finds time for its second look.
                (0..i * 7919 % 6000).for_each(|_| std::hint::spin_loop());
            }
        });
        let _stop = Stop(stop);
        for _ in 0..3000 {
            let records = tree.scan::<&[u8]>(Some(&writers), .., usize::MAX).unwrap();
            let last =
                |run: u8| records.iter().rev().find(|(key, _)| key[0] == run).map(|(key, _)| &key[1..]);
            assert!(last(b'a') >= last(b'z'), "{:?} after {:?}", last(b'z'), last(b'a'));
        }
    });
}

const ACCOUNTS: u64 = 300;

/// Transactions move amounts between accounts; a scan always finds the same sum.
#[test]
fn scans_see_all_of_a_transaction_or_nothing() {
    let (writers, tree) = tree_with(1);
    let account = |i: u64| (i % ACCOUNTS).to_be_bytes();
    let mut tx = writers.begin();
    for i in 0..ACCOUNTS {
        tree.put(&mut tx, &account(i), &[&1000i64.to_le_bytes()]).unwrap();
    }
    writers.commit(tx).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, tree, writers) = (&stop, &tree, &writers);
        for seed in 1..3u64 {
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (from, to) = (account(i * seed * 7919), account(i * seed * 104_729 + 150));
                    let mut tx = writers.begin();
                    for (account, by) in [(from, -1), (to, 1)] {
                        let add = |old: Option<&[u8]>| {
                            let old = old.and_then(|old| old.try_into().ok()).map_or(0, i64::from_le_bytes);
                            Some((old + by).to_le_bytes())
                        };
                        tree.modify(&mut tx, &account, add).unwrap();
                    }
                    writers.commit(tx).unwrap();
                }
            });
        }
        let _stop = Stop(stop);
        for _ in 0..3000 {
            let records = tree.scan::<&[u8]>(Some(writers), .., usize::MAX).unwrap();
            let amounts = records.iter().map(|(_, value)| i64::from_le_bytes(value[..].try_into().unwrap()));
            assert_eq!(amounts.sum::<i64>(), 1000 * ACCOUNTS as i64);
        }
    });
}

/// A change that is decided by a scan, by a thread that has one of the writers' turns and a leaf, while
/// others never rest.
#[test]
fn a_scan_in_the_middle_of_a_change_ends() {
    let (writers, tree) = tree_with(4);
    (0..10_000u64).for_each(|i| assert!(!tree.concurrent(&writers).put(&i.to_be_bytes(), &[]).unwrap()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, writers, tree) = (&stop, &writers, &tree);
        for thread in 1..4u64 {
            scope.spawn(move || {
                let key = [&(2500 * thread).to_be_bytes()[..], &[1]].concat();
                while !stop.load(Ordering::Relaxed) {
                    tree.concurrent(writers).put(&key, &[]).unwrap();
                    assert!(tree.concurrent(writers).remove(&key).unwrap());
                }
            });
        }
        let _stop = Stop(stop);
        for _ in 0..30 {
            let count = |_: Option<&[u8]>| {
                let records = tree.scan::<&[u8]>(Some(writers), .., usize::MAX).unwrap();
                Some(records.len().to_le_bytes())
            };
            tree.concurrent(writers).modify(&5u64.to_be_bytes(), count).unwrap();
        }
    });
}

#[test]
fn scans_keep_to_their_bounds_and_limit() {
    let (writers, tree) = tree_with(1);
    assert_eq!(tree.scan::<&[u8]>(None, .., 5).unwrap(), []);
    let number = |i: u32| i.to_be_bytes();
    for i in 0..1000 {
        tree.concurrent(&writers).put(&number(2 * i), &[&number(i)]).unwrap();
    }
    let keys = |from: u32, to: u32, limit| -> Vec<u32> {
        let records = tree.scan(Some(&writers), number(from)..number(to), limit).unwrap();
        records.iter().map(|(key, _)| u32::from_be_bytes(key[..].try_into().unwrap())).collect()
    };
    for (from, to) in [(0, 2), (1, 2), (0, 3000), (331, 777), (332, 778), (1990, 3000), (5000, 6000), (7, 3)]
    {
        let expected: Vec<u32> = (from..to).filter(|i| i % 2 == 0 && *i < 2000).collect();
        assert_eq!(keys(from, to, usize::MAX), expected);
        for limit in [0, 1, 27, 28, 29, 300] {
            assert_eq!(keys(from, to, limit), expected[..limit.min(expected.len())]);
        }
    }
}
