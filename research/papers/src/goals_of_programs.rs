//! The NV-heaps paper's programs with two threads beside one, with the flushes and fences of persistent
//! memory.

use crate::programs::places::temporary;
use crate::programs::{Kind, Load, Size, on_heap, rate};
use tembo_goals::Error;
use tembo_goals::goals::{Goal, Measurement, Row, Scale, Value};
use tembo_pmem::Durability;

const ONE_THREAD: &str = "one thread";
const UNIT: &str = "M operations/s";

pub(crate) const THREADS: Measurement = Measurement {
    name: "program-threads",
    rows: &[
        Row { name: "sps-2-threads", unit: UNIT, against: ONE_THREAD, goal: Goal::AtLeast(1.8) },
        Row { name: "hash-table-2-threads", unit: UNIT, against: ONE_THREAD, goal: Goal::AtLeast(1.8) },
        Row { name: "btree-2-threads", unit: UNIT, against: ONE_THREAD, goal: Goal::AtLeast(1.8) },
    ],
    run: |scale| {
        [Kind::Sps, Kind::HashTable, Kind::BTree].map(|kind| two_threads(kind, scale)).into_iter().collect()
    },
};

/// The best of rounds by turns.
fn two_threads(kind: Kind, scale: Scale) -> Result<Value, Error> {
    const ROUNDS: usize = 5;
    let size = if scale.quick { Size::quick(scale.seed) } else { Size::full(scale.seed) };
    let operations = scale.of(400_000);
    let mut best = [0.0_f64; 2];
    on_heap(kind, &size, temporary(Durability::Emulated)?, |program| {
        for round in 0..ROUNDS as u64 {
            for (best, threads) in best.iter_mut().zip(1..) {
                let load = Load { operations: operations / threads, rounds: 1, seed: scale.seed + round };
                *best = best.max(rate(program, threads, &load)?);
            }
        }
        Ok(())
    })?;
    Ok(Value { value: best[1] / 1e6, ratio: best[1] / best[0] })
}
