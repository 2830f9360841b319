//! Table 1 of the NV-heaps paper: what the basic operations take in each layer.
//!
//! An operation is done many times in one transaction, and the transaction's time is divided by that: so each
//! bears its share of the commit and its fence, but not the whole of it, which is the row of a transaction
//! with one write. With STTM and PCM the time is that without durability, and what the model adds, as in
//! Figure 5.

use super::figure6::LAYERS;
use crate::figures::{Drawing, Figure, Setup};
use crate::nvm::{Listener, Model, Params};
use crate::plot::{self, Panel, Series};
use crate::programs::places::{MEDIA, temporary};
use crate::programs::{Fault, Load, rate_alone};
use std::sync::Arc;
use tembo_goals::Error;
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_heap::{Arr, Brand, Error as HeapError, Heap, Layer, Obj, PArr, PRc, PWeak, Persist, Plain, Tx};
use tembo_pmem::{Durability, Region};
use tembo_pool::{Geometry, Pool};

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "nv-heaps-table-1",
    title: "Table 1 of NV-heaps: basic operations",
    steps: |_| (LAYERS.len() + 1 + MEDIA.len()) as u64,
    measure,
};

/// Objects, far more than a transaction uses.
const OBJECTS: usize = 4096;
/// How often a transaction does an operation.
const EACH: usize = 32;

/// A small object, with a line of its own.
#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Small {
    words: [u64; 6],
}

#[derive(Persist)]
#[repr(C)]
struct Holder {
    strong: PRc<Small>,
    weak: PWeak<Small>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    objects: PArr<PRc<Small>>,
    holders: PArr<PRc<Holder>>,
}

/// The rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    NewDelete,
    VToNv,
    NvToNv,
    WeakNvToNv,
    NopTx,
    LogForRead,
    LogForWrite,
    OneWrite,
}

impl Operation {
    const ALL: [Operation; 8] = [
        Operation::NewDelete,
        Operation::VToNv,
        Operation::NvToNv,
        Operation::WeakNvToNv,
        Operation::NopTx,
        Operation::LogForRead,
        Operation::LogForWrite,
        Operation::OneWrite,
    ];

    fn name(self) -> &'static str {
        match self {
            Operation::NewDelete => "new/delete",
            Operation::VToNv => "V-to-NV ptr",
            Operation::NvToNv => "NV-to-NV ptr",
            Operation::WeakNvToNv => "weak NV-to-NV ptr",
            Operation::NopTx => "nop tx",
            Operation::LogForRead => "log for read",
            Operation::LogForWrite => "log for write",
            Operation::OneWrite => "tx with one write",
        }
    }

    /// How often a transaction does it.
    fn each(self) -> usize {
        if matches!(self, Operation::NopTx | Operation::OneWrite) { 1 } else { EACH }
    }
}

struct Basics<B: Brand> {
    heap: Heap<B, Root>,
}

impl<B: Brand> Basics<B> {
    fn open(heap: Heap<B, Root>) -> Result<Self, HeapError> {
        heap.write(|tx, root| {
            let objects = tx.alloc_array(OBJECTS, |_| PRc::null())?;
            tx.link_array(root.objects(), objects)?;
            let holders = tx.alloc_array(OBJECTS, |_| PRc::null())?;
            tx.link_array(root.holders(), holders)
        })?;
        for begin in (0..OBJECTS).step_by(64) {
            heap.write(|tx, root| {
                for at in begin..begin + 64 {
                    let object = tx.alloc(Small { words: [at as u64; 6] })?;
                    let objects = array(tx, tx.array(root.objects())?)?;
                    tx.link(objects.at(at), object)?;
                    let holder = tx.alloc(Holder { strong: PRc::null(), weak: PWeak::null() })?;
                    let holders = array(tx, tx.array(root.holders())?)?;
                    tx.link(holders.at(at), holder)?;
                }
                Ok(())
            })?;
        }
        Ok(Basics { heap })
    }

    /// Nanoseconds of an operation.
    fn ns(&self, operation: Operation, load: &Load) -> Result<f64, Fault> {
        let rate = rate_alone(load, |transactions, _| {
            (0..transactions).try_for_each(|number| Ok(self.transaction(operation, number * EACH)?))
        })?;
        Ok(1e9 / rate / operation.each() as f64)
    }

    /// A transaction that does nothing but the operation, with objects from some number on.
    fn transaction(&self, operation: Operation, first: usize) -> Result<(), HeapError> {
        match operation {
            Operation::NopTx => self.heap.write(|_, _| Ok(())),
            Operation::NewDelete => self.heap.write(|tx, root| {
                let holders = array(tx, tx.array(root.holders())?)?;
                let holder = loaded(tx, tx.load(holders.at(first % OBJECTS))?)?;
                for _ in 0..EACH {
                    let object = tx.alloc(Small { words: [1; 6] })?;
                    tx.link(holder.strong(), object)?;
                    tx.link(holder.strong(), None)?;
                    tx.delete_by_hand(object)?;
                }
                Ok(())
            }),
            Operation::VToNv => self.each(first, |tx, object, _| tx.hold(object).map(drop)),
            Operation::NvToNv => self.each(first, |tx, object, holder| {
                tx.link(holder.strong(), object)?;
                tx.link(holder.strong(), None)
            }),
            Operation::WeakNvToNv => self.each(first, |tx, object, holder| {
                tx.link_weak(holder.weak(), object)?;
                tx.link_weak(holder.weak(), None)
            }),
            Operation::LogForRead => self.each(first, |tx, object, _| tx.get(*object).map(drop)),
            Operation::LogForWrite => {
                self.each(first, |tx, object, _| tx.set(*object, Small { words: [first as u64; 6] }))
            }
            Operation::OneWrite => self.heap.write(|tx, root| {
                let objects = array(tx, tx.array(root.objects())?)?;
                let object = loaded(tx, tx.load(objects.at(first % OBJECTS))?)?;
                tx.set(*object, Small { words: [first as u64; 6] })
            }),
        }
    }

    fn each(
        &self,
        first: usize,
        operate: impl for<'t> Fn(&mut Tx<'t, B>, Obj<'t, B, Small>, Obj<'t, B, Holder>) -> Result<(), HeapError>
        + std::panic::UnwindSafe
        + std::panic::RefUnwindSafe,
    ) -> Result<(), HeapError> {
        let operate = &operate;
        self.heap.write(|tx, root| {
            let objects = array(tx, tx.array(root.objects())?)?;
            let holders = array(tx, tx.array(root.holders())?)?;
            for at in first..first + EACH {
                let object = loaded(tx, tx.load(objects.at(at % OBJECTS))?)?;
                let holder = loaded(tx, tx.load(holders.at(at % OBJECTS))?)?;
                operate(tx, object, holder)?;
            }
            Ok(())
        })
    }
}

fn array<'t, B: Brand, T: Persist>(
    tx: &Tx<'t, B>,
    array: Option<Arr<'t, B, T>>,
) -> Result<Arr<'t, B, T>, HeapError> {
    array.ok_or_else(|| tx.cancel())
}

fn loaded<'t, B: Brand, T>(
    tx: &Tx<'t, B>,
    object: Option<Obj<'t, B, T>>,
) -> Result<Obj<'t, B, T>, HeapError> {
    object.ok_or_else(|| tx.cancel())
}

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let load = match setup.quick {
        true => Load { operations: 20, rounds: 1, seed: setup.seed },
        false => Load { operations: 20_000, rounds: 5, seed: setup.seed },
    };
    let mut columns: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    let no_dur = ("NoDur", Layer::NoDur);
    for (name, layer) in LAYERS.into_iter().chain([no_dur]) {
        progress.doing(name);
        let times = Heap::try_with_layer(temporary(Durability::Emulated)?, layer, |heap| {
            let basics = Basics::open(heap)?;
            Operation::ALL
                .map(|operation| basics.ns(operation, &load))
                .into_iter()
                .collect::<Result<Vec<_>, Fault>>()
        })?;
        columns.push((name.to_owned(), times.into_iter().map(Some).collect()));
        progress.step();
    }
    let volatile = columns.last().map(|column| column.1.clone()).unwrap_or_default();
    let params = Params::nv_heaps();
    let without = in_model(&params, "dram", Layer::NoDur)?;
    for (name, medium) in MEDIA {
        progress.doing(name);
        let with = in_model(&params, medium, Layer::ConcurrentTx)?;
        let added = with.iter().zip(&without).map(|(with, without)| (with - without).max(0.0));
        let times = volatile.iter().zip(added).map(|(ns, added)| ns.map(|ns| ns + added));
        columns.push((format!("C-TX, model of {name}"), times.collect()));
        progress.step();
    }
    let mut table = Table::new(&["operation", "layer", "ns"]);
    for (name, values) in &columns {
        for (operation, value) in Operation::ALL.into_iter().zip(values) {
            let value = value.map(number).unwrap_or_default();
            table.add(vec![operation.name().to_owned(), name.clone(), value]);
        }
    }
    let panel = Panel {
        title: "Nanoseconds of an operation".to_owned(),
        x_label: String::new(),
        y_label: "ns".to_owned(),
        categories: Operation::ALL.map(|operation| operation.name().to_owned()).to_vec(),
        series: columns.into_iter().map(|(name, values)| Series { name, values }).collect(),
        kind: plot::Kind::Bars,
        log: true,
    };
    let notes = vec![
        format!("objects of 48 bytes; {EACH} operations in a transaction, its time divided by that, but in rows of transactions"),
        "new/delete: allocate, link, and unlink; ptr: set, and set to null; V-to-NV: a handle is made and dropped".to_owned(),
        format!("DRAM, STTM, PCM: NoDur, and what the model adds: {}", params.source),
    ];
    Ok(Drawing { table, panels: vec![panel], notes })
}

/// Nanoseconds of each operation in the model.
fn in_model(params: &Params, medium: &str, layer: Layer) -> Result<Vec<f64>, Error> {
    const BYTES: u64 = 32 << 20;
    const TRANSACTIONS: usize = 64;
    let listener = Arc::new(Listener::new(Model::new(params, medium)?, &[]));
    let region = Region::simulated(&vec![0; BYTES as usize], BYTES, Some(listener.clone()))?;
    let pool = Pool::create_in(region, &Geometry { zone_chunks: 1 << 10, ..Geometry::default() })?;
    Heap::try_with_layer(pool, layer, |heap| {
        let basics = Basics::open(heap)?;
        let time = |operation: Operation| {
            listener.measure();
            (0..TRANSACTIONS).try_for_each(|number| basics.transaction(operation, number * EACH))?;
            let ns = listener.ns(listener.finish().0.cycles);
            Ok(ns / (TRANSACTIONS * operation.each()) as f64)
        };
        Operation::ALL.map(time).into_iter().collect()
    })
}
