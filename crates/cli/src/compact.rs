//! `tembo compact`: gives the space between records back.

use crate::args::Compact;
use crate::failure::Outcome;
use crate::maps::note_unknown;
use crate::progress::Progress;
use crate::report::{print, print_json};
use crate::size::human_bytes;
use serde::Serialize;
use std::time::Duration;
use tembo::Options;

/// The time between two updates of the bar.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize)]
struct Report {
    moved_bytes: u64,
    freed_bytes: u64,
    unused_bytes: u64,
    pool_bytes: u64,
}

pub(crate) fn run(arguments: &Compact) -> Outcome {
    let pool = Options::new().durability(arguments.durability).open(&arguments.pool)?;
    note_unknown(&pool)?;
    let (mut moved_bytes, mut freed_bytes) = (0, 0);
    let mut progress = Progress::new("moving bytes", None);
    while let Some(mut compaction) = pool.compaction()? {
        let (unused_bytes, mut seen) = (pool.stats().unused_bytes, 0);
        loop {
            let has_more = compaction.step(STEP)?;
            progress.advance(compaction.moved_bytes() - seen);
            seen = compaction.moved_bytes();
            if !has_more {
                break;
            }
        }
        moved_bytes += seen;
        compaction.finish()?;
        // The unused bytes are known only since the compaction has read all slabs.
        let freed = pool.stats().unused_bytes.saturating_sub(unused_bytes);
        freed_bytes += freed;
        if freed == 0 {
            break;
        }
    }
    drop(progress);
    let after = pool.stats();
    let report =
        Report { moved_bytes, freed_bytes, unused_bytes: after.unused_bytes, pool_bytes: after.pool_bytes };
    if arguments.json {
        return print_json(&report);
    }
    print(&format!(
        "moved {}, freed {}; {} of {} are unused now\n",
        human_bytes(report.moved_bytes),
        human_bytes(report.freed_bytes),
        human_bytes(report.unused_bytes),
        human_bytes(report.pool_bytes),
    ))
}
