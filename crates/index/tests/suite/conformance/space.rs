//! Space: what is cleared or removed comes back, and a full pool harms nothing.

use super::{Bench, Model, OrderedIndex};
use tembo_index::Error;

fn key(i: u32) -> Vec<u8> {
    format!("{:010}", i.wrapping_mul(2_654_435_761)).into_bytes()
}

fn allocated_blocks<I>(bench: &Bench<I>) -> u64 {
    bench.pool.marks().unwrap().usage().allocated_blocks
}

fn fill<I: OrderedIndex>(bench: &mut Bench<I>, count: u32) {
    let mut tx = bench.lane.begin();
    for i in 0..count {
        bench.index.put(&mut tx, &key(i), b"some value").unwrap();
    }
    tx.commit().unwrap();
}

fn clear<I: OrderedIndex>(bench: &mut Bench<I>) {
    let mut tx = bench.lane.begin();
    bench.index.clear(&mut tx).unwrap();
    tx.commit().unwrap();
}

/// Reclaims everything, a few steps per transaction; returns how many transactions that took.
fn reclaim_all<I: OrderedIndex>(bench: &mut Bench<I>) -> u32 {
    for transactions in 1.. {
        let mut tx = bench.lane.begin();
        let more = bench.index.reclaim(&mut tx, 3).unwrap();
        tx.commit().unwrap();
        if transactions % 64 == 0 {
            bench.check();
        }
        if !more {
            return transactions;
        }
    }
    unreachable!("the loop ends only by returning")
}

pub(crate) fn clearing_is_cheap_and_gives_everything_back<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let empty = allocated_blocks(&bench);
    fill(&mut bench, 5000);
    let before = tembo_pmem::snapshot();
    clear(&mut bench);
    let cost = tembo_pmem::snapshot() - before;
    assert!(cost.fences <= 1 && cost.words < 40, "{cost:?}");
    bench.compare(&Model::new());
    assert!(allocated_blocks(&bench) > 5000, "clearing must not free 5000 records at once");
    assert!(reclaim_all(&mut bench) > 50);
    assert_eq!(allocated_blocks(&bench), empty);
    bench.compare(&Model::new());
}

pub(crate) fn a_cleared_index_is_used_on_at_once<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    fill(&mut bench, 3000);
    clear(&mut bench);
    let mut model = Model::new();
    for i in 0..2000 {
        assert!(!bench.put(&key(i), b"new"), "{i}");
        model.insert(key(i), b"new".to_vec());
    }
    bench.compare(&model);
    let more = bench.index.reclaim(&mut bench.lane.begin(), 1).unwrap();
    assert!(!more, "2000 puts free a little each");
}

pub(crate) fn clearing_again_before_the_first_is_done<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let empty = allocated_blocks(&bench);
    for count in [1, 28, 29, 700, 0, 2000, 5] {
        fill(&mut bench, count);
        clear(&mut bench);
        bench.compare(&Model::new());
    }
    let mut tx = bench.lane.begin();
    bench.index.put(&mut tx, b"in the same batch", b"").unwrap();
    bench.index.clear(&mut tx).unwrap();
    bench.index.clear(&mut tx).unwrap();
    tx.commit().unwrap();
    bench.compare(&Model::new());
    reclaim_all(&mut bench);
    assert_eq!(allocated_blocks(&bench), empty);
    bench.compare(&Model::new());
}

pub(crate) fn a_full_pool_refuses_puts_and_goes_on<I: OrderedIndex>() {
    let mut bench = Bench::<I>::within(6 << 20);
    let mut model = Model::new();
    for round in 0..3 {
        let mut refusals = 0;
        for i in 0.. {
            let (key, value) = (key(round * 1_000_000 + i), vec![i as u8; 100 + (i % 400) as usize]);
            let mut tx = bench.lane.begin();
            let outcome = bench.index.put(&mut tx, &key, &value);
            // The refused operation was taken back, so that the commit is harmless.
            tx.commit().unwrap();
            match outcome {
                Ok(_) => _ = model.insert(key, value),
                Err(Error::Pool(e)) if e.is_full() => refusals += 1,
                Err(other) => panic!("{other}"),
            }
            if refusals == 50 {
                break;
            }
        }
        assert!(model.len() > 5000, "{}", model.len());
        bench.compare(&model);
        let doomed: Vec<Vec<u8>> =
            model.keys().enumerate().filter(|(n, _)| n % 8 != 0).map(|(_, k)| k.clone()).collect();
        for key in doomed {
            assert!(bench.remove(&key));
            model.remove(&key);
        }
        bench.compare(&model);
    }
    fill(&mut bench, 100);
    clear(&mut bench);
    reclaim_all(&mut bench);
    bench.compare(&Model::new());
}

pub(crate) fn a_refused_change_of_structure_is_taken_back<I: OrderedIndex>() {
    for extra_chunks in 0..12 {
        let mut bench = Bench::<I>::within((2 << 20) + (extra_chunks << 14));
        let mut model = Model::new();
        let mut refusals = 0;
        // Records find room longer than nodes do, or the other way round, as the size of the pool will have
        // it.
        for i in (0..).take_while(|i| *i < 40_000) {
            let mut tx = bench.lane.begin();
            let outcome = bench.index.put(&mut tx, &key(i), b"value");
            tx.commit().unwrap();
            match outcome {
                Ok(_) => _ = model.insert(key(i), b"value".to_vec()),
                Err(_) => refusals += 1,
            }
            if refusals == 100 {
                break;
            }
        }
        assert_eq!(refusals, 100);
        bench.compare(&model);
        // Joining sparse nodes needs room for new ones, which there may not be; removing works all the same.
        let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
        for (removed, key) in keys.iter().enumerate().filter(|(i, _)| i % 16 != 0) {
            assert!(bench.remove(key));
            model.remove(key);
            if removed < 300 && removed % 8 == 1 {
                bench.check();
            }
        }
        bench.compare(&model);
    }
}

pub(crate) fn churn_does_not_use_up_space<I: OrderedIndex>() {
    let mut bench = Bench::<I>::within(8 << 20);
    for round in 0..40u32 {
        for i in 0..500 {
            bench.put(&key(i), &vec![round as u8; 64 + (i * 37 + round * 61) as usize % 900]);
        }
        for i in 0..250 {
            bench.remove(&key(i * 2 + round % 2));
        }
    }
    bench.check();
    assert!(bench.pool.marks().unwrap().usage().allocated_bytes < 1 << 20);
}
