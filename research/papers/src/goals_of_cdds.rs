//! The versioned tree beside the CDDS paper's own algorithm, and what its versions cost beside the paper's
//! figures.

use crate::cdds::counts;
use crate::cdds::volatile::volatile_btree;
use crate::figures::cdds::overhead::{PAPER_PERCENT, percent_less};
use tembo_goals::Error;
use tembo_goals::by_turns::{by_turns, cdds};
use tembo_goals::goals::{Goal, Measurement, Row, Scale, Value};
use tembo_pmem::Durability::PageCache;

const PAPERS: &str = "the paper's tree, sorted";

pub(crate) const COUNTS: Measurement = Measurement {
    name: "cdds-paper",
    rows: &[
        Row { name: "cdds-put-fences-paper", unit: "fences", against: PAPERS, goal: Goal::None },
        Row { name: "cdds-delete-fences", unit: "fences", against: PAPERS, goal: Goal::None },
        Row { name: "cdds-put-lines", unit: "lines", against: PAPERS, goal: Goal::None },
    ],
    run: beside_paper,
};

pub(crate) const OVERHEAD: Measurement = Measurement {
    name: "cdds-versions",
    rows: &[
        Row { name: "cdds-versions-put", unit: "% less", against: "the paper's 24%", goal: Goal::None },
        Row { name: "cdds-versions-get", unit: "% less", against: "the paper's 13%", goal: Goal::None },
        Row { name: "cdds-versions-delete", unit: "% less", against: "the paper's 39%", goal: Goal::None },
    ],
    run: versions,
};

fn beside_paper(scale: Scale) -> Result<Vec<Value>, Error> {
    let rows = counts::count(scale.of(100_000), scale.seed)?;
    let [paper, _, ours, _, _] = rows[..] else { return Err("there are five trees".into()) };
    let value = |value: f64, other: f64| Value { value, ratio: value / other };
    Ok(vec![
        value(ours.put.fences, paper.put.fences),
        value(ours.delete.fences, paper.delete.fences),
        value(ours.put.lines, paper.put.lines),
    ])
}

fn versions(scale: Scale) -> Result<Vec<Value>, Error> {
    let keys = scale.of(300_000);
    let mut sides = vec![volatile_btree(keys)?, cdds(PageCache)?];
    let results = by_turns(&mut sides, keys, 2048, scale.seed)?;
    let of = |at: usize| {
        let value = percent_less(results[0][at], results[1][at]);
        Value { value, ratio: value / PAPER_PERCENT[at] }
    };
    Ok((0..3).map(of).collect())
}
