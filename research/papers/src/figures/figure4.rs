//! Figure 4 of the wB+-Tree paper: what flushes and fences add to sequential and to random writes.
//!
//! Records of one line, ten times as many as the last cache holds. A word of each record is written, in
//! sequence or along a random list through all of them, and then the line is flushed, and every so many
//! records a fence follows. The same walk runs on this machine and in the model, which shows how near the
//! model is.

use super::{Drawing, Error, Figure, Setup};
use crate::mem::{Mem, RealMem};
use crate::nvm::{Model, ModelMem};
use crate::plot::{Kind, Panel, Series};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::File;
use std::sync::atomic::{Ordering, fence};
use tembo_goals::clock::ThreadTime;
use tembo_goals::progress::Progress;
use tembo_goals::stats::median;
use tembo_goals::table::{Table, number};
use tembo_pmem::{Access, Durability, FlushInstruction, LINE_BYTES, Region, RegionOptions, WORD_BYTES};

pub(super) const FIGURE: Figure = Figure {
    name: "figure-4",
    title: "Figure 4: the cost of writing, flushing and fencing",
    steps: |_| 2 * (machine_curves().len() + MODEL_CURVES.len()) as u64,
    measure,
};

/// Records between two fences.
const GROUPS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Walks for each point of this machine's curves, of which the median counts.
const ROUNDS: usize = 3;

/// The work after each record's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Curve {
    name: &'static str,
    flush: Option<FlushInstruction>,
    fence: Fence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    None,
    /// As in this project: for stores.
    Stores,
    /// As in the paper: for loads, too.
    Full,
}

const MODEL_CURVES: [Curve; 3] = [
    Curve { name: "write", flush: None, fence: Fence::None },
    Curve { name: "write, flush", flush: Some(FlushInstruction::Clflush), fence: Fence::None },
    Curve {
        name: "write, flush, fence every i records",
        flush: Some(FlushInstruction::Clflush),
        fence: Fence::Stores,
    },
];

/// The curves that this machine has the instructions for.
fn machine_curves() -> Vec<Curve> {
    let mut curves = vec![MODEL_CURVES[0]];
    if let Some(best) = FlushInstruction::detect() {
        curves.push(Curve { name: "write, best flush", flush: Some(best), fence: Fence::None });
        curves.push(Curve {
            name: "write, best flush, store fence every i records",
            flush: Some(best),
            fence: Fence::Stores,
        });
    }
    if FlushInstruction::Clflush.belongs_to_this_architecture() {
        let flush = Some(FlushInstruction::Clflush);
        curves.push(Curve { name: "write, clflush", flush, fence: Fence::None });
        curves.push(Curve { name: "write, clflush, full fence every i records", flush, fence: Fence::Full });
    }
    curves
}

/// The order of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Random,
}

impl Order {
    const ALL: [(Order, &'static str); 2] = [(Order::Sequential, "sequential"), (Order::Random, "random")];
}

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let mut table = Table::new(&["where", "order", "curve", "records_per_fence", "ns_per_record"]);
    let mut panels = Vec::new();
    let (machine, record_count) = measure_machine(setup, progress, &mut table)?;
    panels.extend(machine);
    panels.extend(measure_model(setup, progress, &mut table)?);
    let detected = FlushInstruction::detect().map_or_else(|| "none".to_owned(), |i| i.to_string());
    let notes = vec![
        format!(
            "this machine: {record_count} records of 64 bytes; best flush: {detected}; median of {ROUNDS} walks of {} records",
            walk_count(setup)
        ),
        setup.model_note(),
    ];
    Ok(Drawing { table, panels, notes })
}

/// Records that one measurement visits.
fn walk_count(setup: &Setup) -> usize {
    if setup.quick { 50_000 } else { 500_000 }
}

fn measure_machine(
    setup: &Setup,
    progress: &Progress,
    table: &mut Table,
) -> Result<(Vec<Panel>, usize), Error> {
    let record_count = if setup.quick { 1 << 20 } else { 1 << 25 };
    let walked = walk_count(setup);
    let bytes = record_count as u64 * LINE_BYTES;
    let file = nameless_file(bytes)?;
    let mut panels = Vec::new();
    link(&open(&file, bytes, None)?, record_count, setup.seed);
    // The walks go on where the last one ended: records visited lately are still in the caches.
    let mut at = 0;
    for (order, order_name) in Order::ALL {
        let mut series = Vec::new();
        for curve in machine_curves() {
            progress.doing(format!("this machine, {order_name}, {}", curve.name));
            let mem = open(&file, bytes, curve.flush)?;
            let values = by_groups(curve, |group| {
                median((0..ROUNDS).map(|_| {
                    let start = ThreadTime::now();
                    at = match curve.fence {
                        Fence::Full => {
                            walk(&mem, order, at, walked, curve, group, || fence(Ordering::SeqCst))
                        }
                        _ => walk(&mem, order, at, walked, curve, group, || mem.fence()),
                    };
                    start.elapsed_ns() as f64 / walked as f64
                }))
            });
            note(table, "this machine", order_name, curve.name, &values);
            series.push(Series { name: curve.name.to_owned(), values });
            progress.step();
        }
        panels.push(panel(format!("This machine, {order_name} writes"), series));
    }
    Ok((panels, record_count))
}

fn measure_model(setup: &Setup, progress: &Progress, table: &mut Table) -> Result<Vec<Panel>, Error> {
    let record_count = if setup.quick { 1 << 16 } else { 1 << 20 };
    let bytes = record_count as u64 * LINE_BYTES;
    let walked = walk_count(setup) / 5;
    let mut panels = Vec::new();
    for (order, order_name) in Order::ALL {
        let mut series = Vec::new();
        for curve in MODEL_CURVES {
            progress.doing(format!("model, {order_name}, {}", curve.name));
            let mem = ModelMem::new(Model::new(&setup.params, &setup.medium)?, bytes);
            link(&mem, record_count, setup.seed);
            let mut at = 0;
            let values = by_groups(curve, |group| {
                mem.measure();
                at = walk(&mem, order, at, walked, curve, group, || mem.fence());
                let (cost, _) = mem.finish();
                mem.ns(cost.cycles) / walked as f64
            });
            note(table, "model", order_name, curve.name, &values);
            series.push(Series { name: curve.name.to_owned(), values });
            progress.step();
        }
        panels.push(panel(format!("Model of {}, {order_name} writes", setup.medium), series));
    }
    Ok(panels)
}

/// A value for each number of records between fences; where there are no fences, the same one everywhere.
fn by_groups(curve: Curve, mut measure: impl FnMut(usize) -> f64) -> Vec<Option<f64>> {
    if curve.fence == Fence::None {
        let value = measure(1);
        return vec![Some(value); GROUPS.len()];
    }
    GROUPS.iter().map(|group| Some(measure(*group))).collect()
}

fn note(table: &mut Table, place: &str, order: &str, curve: &str, values: &[Option<f64>]) {
    for (group, value) in GROUPS.iter().zip(values) {
        let value = value.map(number).unwrap_or_default();
        table.add(vec![place.to_owned(), order.to_owned(), curve.to_owned(), group.to_string(), value]);
    }
}

fn panel(title: String, series: Vec<Series>) -> Panel {
    Panel {
        title,
        x_label: "records between two fences".to_owned(),
        y_label: "ns per record".to_owned(),
        categories: GROUPS.map(|group| group.to_string()).to_vec(),
        series,
        kind: Kind::Lines,
        log: false,
    }
}

/// A file of `bytes` bytes in memory, where the system has such a place.
fn nameless_file(bytes: u64) -> Result<File, Error> {
    let shared = std::path::Path::new("/dev/shm");
    let file = if shared.is_dir() { tempfile::tempfile_in(shared)? } else { tempfile::tempfile()? };
    Region::allocate_new_file(&file, bytes, &RegionOptions::default())?;
    Ok(file)
}

/// Maps the file; without a flush instruction nothing is flushed.
fn open(file: &File, bytes: u64, flush: Option<FlushInstruction>) -> Result<RealMem, Error> {
    let options = RegionOptions {
        durability: if flush.is_some() { Durability::Emulated } else { Durability::PageCache },
        flush_instruction: flush,
        max_bytes: Some(bytes),
        ..RegionOptions::default()
    };
    Ok(RealMem::new(Region::map_file(file.try_clone()?, bytes, &options, Access::ReadWrite)?))
}

/// Links all records into one ring, in random order: the first word of each is the offset of the next.
fn link(mem: &impl Mem, record_count: usize, seed: u64) {
    let mut order: Vec<u32> = (0..record_count as u32).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    for (at, record) in order.iter().enumerate() {
        let next = order[(at + 1) % record_count];
        mem.store_u64(u64::from(*record) * LINE_BYTES, u64::from(next) * LINE_BYTES);
    }
}

/// Writes a word of `count` records from that at `at` on; where the next one is.
#[inline(never)]
fn walk(
    mem: &impl Mem,
    order: Order,
    mut at: u64,
    count: usize,
    curve: Curve,
    group: usize,
    fence: impl Fn(),
) -> u64 {
    for number in 1..=count {
        let next = match order {
            Order::Sequential => (at + LINE_BYTES) % mem.len_bytes(),
            Order::Random => mem.load_u64(at),
        };
        mem.store_u64(at + WORD_BYTES, at ^ number as u64);
        if curve.flush.is_some() {
            mem.flush(at, LINE_BYTES);
        }
        if curve.fence != Fence::None && number.is_multiple_of(group) {
            fence();
        }
        at = next;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvm::Params;

    fn model_ns(order: Order, curve: usize, group: usize) -> f64 {
        let mem = ModelMem::new(Model::new(&Params::wbtree(), "pcm").unwrap(), 1 << 22);
        link(&mem, 1 << 16, 1);
        mem.measure();
        walk(&mem, order, 0, 2000, MODEL_CURVES[curve], group, || mem.fence());
        mem.ns(mem.finish().0.cycles) / 2000.0
    }

    #[test]
    fn the_random_list_visits_every_record_once() {
        let mem = ModelMem::new(Model::new(&Params::wbtree(), "pcm").unwrap(), 64 * 100);
        link(&mem, 100, 7);
        let end = walk(&mem, Order::Random, 0, 100, MODEL_CURVES[0], 1, || {});
        assert_eq!(end, 0);
        assert!((0..100).all(|record| mem.load_u64(record * 64 + 8) != 0));
    }

    /// The shape of the paper's figure: flushing makes sequential writes dearer; a fence after each makes all
    /// dearer, and less so the fewer there are.
    #[test]
    fn the_model_has_the_shape_of_the_papers_figure() {
        for order in [Order::Sequential, Order::Random] {
            let (write, flush) = (model_ns(order, 0, 1), model_ns(order, 1, 1));
            let (each, eighth) = (model_ns(order, 2, 1), model_ns(order, 2, 8));
            assert!(write < flush * 1.01, "{order:?}: {write} {flush}");
            assert!(flush < eighth * 1.01 && eighth < each, "{order:?}: {flush} {eighth} {each}");
        }
        assert!(model_ns(Order::Sequential, 0, 1) < model_ns(Order::Random, 0, 1));
    }
}
