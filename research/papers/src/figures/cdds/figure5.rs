//! Figure 5 of the CDDS paper: how fast objects are written and flushed.
//!
//! The method is the paper's (its section 4.2): a part of memory is divided into objects of one size; all of
//! an object is written and flushed, then the next one. Here there are more instructions, stores past the
//! caches, and three places for fences.

use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use std::fs::File;
use tembo_goals::Error;
use tembo_goals::clock::ThreadTime;
use tembo_goals::progress::Progress;
use tembo_goals::stats::median;
use tembo_goals::table::{Table, number};
use tembo_pmem::{Access, Durability, FlushInstruction, LINE_BYTES, Region, RegionOptions};

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "cdds-figure-5",
    title: "Figure 5 of CDDS: flushing objects",
    steps: |_| (curves().len() * FENCES.len()) as u64,
    measure,
};

/// Objects between two fences, where fences are for more than one.
const BATCH: usize = 32;
const ROUNDS: usize = 5;

/// How an object is written.
#[derive(Debug, Clone, Copy)]
struct Curve {
    name: &'static str,
    flush: Option<FlushInstruction>,
    non_temporal: bool,
}

/// After what is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    Line,
    Object,
    Batch,
}

const FENCES: [(Fence, &str); 3] =
    [(Fence::Line, "line"), (Fence::Object, "object"), (Fence::Batch, "batch")];

/// The curves that this machine has the instructions for.
fn curves() -> Vec<Curve> {
    use FlushInstruction::{Clflush, ClflushOpt, Clwb};
    let curve = |name, flush| Curve { name, flush: Some(flush), non_temporal: false };
    let mut curves = vec![Curve { name: "written, not flushed", flush: None, non_temporal: false }];
    let Some(best) = FlushInstruction::detect() else { return curves };
    match best {
        // A processor that has the better instruction has the others.
        Clwb => {
            curves.extend([curve("clwb", Clwb), curve("clflushopt", ClflushOpt), curve("clflush", Clflush)])
        }
        ClflushOpt => curves.extend([curve("clflushopt", ClflushOpt), curve("clflush", Clflush)]),
        Clflush => curves.push(curve("clflush", Clflush)),
        other => curves.push(curve("dc cvap", other)),
    }
    if Clflush.belongs_to_this_architecture() {
        curves.push(Curve { name: "stored past the caches", flush: Some(best), non_temporal: true });
    }
    curves
}

/// Bytes of the memory, and of the objects.
fn sizes(setup: &Setup) -> (u64, Vec<u64>) {
    let memory: u64 = if setup.quick { 1 << 20 } else { 64 << 20 };
    let objects = (6..=26).step_by(2).map(|bits| 1 << bits).filter(|object| *object <= memory);
    (memory, objects.collect())
}

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let (memory, objects) = sizes(setup);
    let file = nameless_file(memory)?;
    let mut table =
        Table::new(&["written", "fence_after", "object_bytes", "lines_per_s", "bytes_per_s", "ns_per_line"]);
    let mut panels = Vec::new();
    for (fence, fence_name) in FENCES {
        let mut series = Vec::new();
        for curve in curves() {
            progress.doing(format!("{}, fence after each {fence_name}", curve.name));
            let mut region = open(&file, memory, curve)?;
            let mut values = Vec::new();
            for object in &objects {
                let ns = ns_of_a_line(&mut region, *object, fence, setup)?;
                let lines = 1e9 / ns;
                let cells = [lines, lines * LINE_BYTES as f64, ns].map(number);
                let names = [curve.name.to_owned(), fence_name.to_owned(), object.to_string()];
                table.add(names.into_iter().chain(cells).collect());
                values.push(Some(lines / 1e6));
            }
            series.push(Series { name: curve.name.to_owned(), values });
            progress.step();
        }
        panels.push(Panel {
            title: format!("A fence after each {fence_name}"),
            x_label: "size of an object".to_owned(),
            y_label: "million lines per second".to_owned(),
            categories: objects.iter().map(|bytes| short_bytes(*bytes)).collect(),
            series,
            kind: Kind::Lines,
            log: true,
        });
    }
    let notes = vec![format!(
        "a batch is {BATCH} objects; {} of memory, written object by object, each object as a whole and then flushed as a whole (by lines where each line is \
         waited for); medians of {ROUNDS} walks; processor time",
        short_bytes(memory)
    )];
    Ok(Drawing { table, panels, notes })
}

fn short_bytes(bytes: u64) -> String {
    match bytes {
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        0x400.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn nameless_file(bytes: u64) -> Result<File, Error> {
    let shared = std::path::Path::new("/dev/shm");
    let file = if shared.is_dir() { tempfile::tempfile_in(shared)? } else { tempfile::tempfile()? };
    Region::allocate_new_file(&file, bytes, &RegionOptions::default())?;
    Ok(file)
}

fn open(file: &File, bytes: u64, curve: Curve) -> Result<Region, Error> {
    let options = RegionOptions {
        durability: if curve.flush.is_some() { Durability::Emulated } else { Durability::PageCache },
        flush_instruction: curve.flush,
        non_temporal: Some(curve.non_temporal),
        max_bytes: Some(bytes),
        ..RegionOptions::default()
    };
    Ok(Region::map_file(file.try_clone()?, bytes, &options, Access::ReadWrite)?)
}

/// Nanoseconds of a line: the median of some walks through the memory, or through a part of it where each
/// line is waited for.
fn ns_of_a_line(region: &mut Region, object: u64, fence: Fence, setup: &Setup) -> Result<f64, Error> {
    let walked = match fence {
        Fence::Line => (region.len() / 8).max(object),
        _ => region.len(),
    };
    let rounds = if setup.quick { 1 } else { ROUNDS };
    let data = vec![0x5A; object as usize];
    let mut times = Vec::new();
    // The first walk is not timed: it maps the pages.
    for round in 0..=rounds {
        let start = ThreadTime::now();
        walk(region, walked, &data, fence)?;
        if round > 0 {
            times.push(start.elapsed_ns() as f64 / (walked / LINE_BYTES) as f64);
        }
    }
    Ok(median(times.into_iter()))
}

#[inline(never)]
fn walk(region: &mut Region, bytes: u64, object: &[u8], fence: Fence) -> Result<(), Error> {
    let size = object.len() as u64;
    for number in 0..bytes / size {
        let at = number * size;
        if fence == Fence::Line {
            for (line, data) in (at..).step_by(LINE_BYTES as usize).zip(object.chunks(LINE_BYTES as usize)) {
                region.write_and_flush_alone(line, data)?;
                region.fence()?;
            }
            continue;
        }
        region.write_and_flush_alone(at, object)?;
        if fence == Fence::Object || (number + 1).is_multiple_of(BATCH as u64) {
            region.fence()?;
        }
    }
    Ok(region.fence()?)
}
