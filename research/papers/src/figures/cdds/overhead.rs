//! The cost of versions: the CDDS tree without flushes beside a volatile B+-Tree (section 4.3 of its paper),
//! and beside the wB+-Tree without flushes, which lies in the same pool and has no versions.

use crate::cdds::volatile::volatile_btree;
use crate::figures::{Drawing, Figure, Setup};
use crate::plot::{Kind, Panel, Series};
use tembo_goals::Error;
use tembo_goals::by_turns::{OPERATIONS, by_turns, cdds, wbtree};
use tembo_goals::progress::Progress;
use tembo_goals::table::{Table, number};
use tembo_pmem::Durability::{Emulated, PageCache};

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "cdds-overhead",
    title: "CDDS: what versions cost, and what durability does",
    steps: |_| VALUES.len() as u64,
    measure,
};

/// Bytes of values: of those in the paper, and of such as hide nothing.
const VALUES: [usize; 2] = [2048, 8];

const TREES: [&str; 5] =
    ["volatile B+-Tree", "tembo, no flushes", "wB+-Tree, no flushes", "tembo, durable", "wB+-Tree, durable"];

/// How much less throughput than the volatile tree the paper's has.
pub(crate) const PAPER_PERCENT: [f64; 3] = [24.0, 13.0, 39.0];

fn measure(setup: &Setup, progress: &Progress) -> Result<Drawing, Error> {
    let mut table =
        Table::new(&["value_bytes", "tree", "operation", "ns", "throughput_less_percent", "paper_percent"]);
    let (mut panels, mut notes) = (Vec::new(), Vec::new());
    for value_bytes in VALUES {
        progress.doing(format!("values of {value_bytes} bytes"));
        let keys = match (setup.quick, value_bytes) {
            (true, _) => 2_000,
            (false, 8) => 1_000_000,
            (false, _) => 300_000,
        };
        let mut sides = vec![
            volatile_btree(keys)?,
            cdds(PageCache)?,
            wbtree(PageCache)?,
            cdds(Emulated)?,
            wbtree(Emulated)?,
        ];
        let results = by_turns(&mut sides, keys, value_bytes, setup.seed)?;
        for (tree, ns) in TREES.iter().zip(&results) {
            for (at, operation) in OPERATIONS.iter().enumerate() {
                let paper = if *tree == TREES[1] { number(PAPER_PERCENT[at]) } else { String::new() };
                let less = number(percent_less(results[0][at], ns[at]));
                let names = [value_bytes.to_string(), (*tree).to_owned(), (*operation).to_owned()];
                table.add(names.into_iter().chain([number(ns[at]), less, paper]).collect());
            }
        }
        notes.push(format!(
            "values of {value_bytes} bytes, {keys} keys of 25: {}",
            sentence(results[0], results[1])
        ));
        let series = TREES.iter().zip(&results).map(|(tree, ns)| Series {
            name: (*tree).to_owned(),
            values: ns.iter().map(|ns| Some(1e6 / ns)).collect(),
        });
        panels.push(Panel {
            title: format!("Values of {value_bytes} bytes"),
            x_label: String::new(),
            y_label: "thousand operations per second".to_owned(),
            categories: OPERATIONS.iter().map(|name| (*name).to_owned()).collect(),
            series: series.collect(),
            kind: Kind::Bars,
            log: false,
        });
        progress.step();
    }
    notes.push(
        "by turns, processor time; no flushes: a pool in the domain page-cache, in which flushes and fences do nothing and records are \
         written all the same; the volatile B+-Tree has 24 bytes of each key in its nodes, and values in blocks of the allocator"
            .to_owned(),
    );
    Ok(Drawing { table, panels, notes })
}

/// How many percent less is done in the same time.
pub(crate) fn percent_less(other_ns: f64, ns: f64) -> f64 {
    100.0 * (1.0 - other_ns / ns)
}

fn sentence(plain: [f64; 3], versioned: [f64; 3]) -> String {
    let parts = OPERATIONS.iter().enumerate().map(|(at, operation)| {
        format!("{operation} {:.0}% (paper: {}%)", percent_less(plain[at], versioned[at]), PAPER_PERCENT[at])
    });
    format!(
        "versions without flushes do less than the volatile tree by {}",
        parts.collect::<Vec<_>>().join(", ")
    )
}
