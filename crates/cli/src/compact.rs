//! `tembo compact`: gives the space between records back.

use crate::args::Compact;
use crate::failure::Outcome;
use crate::maps::note_unknown;
use crate::progress::Progress;
use crate::report::{print, print_json};
use crate::rewrite;
use crate::size::human_bytes;
use crate::store::collect_all;
use serde::Serialize;
use std::time::Duration;
use tembo::{Compaction, Durability, Options, Pool};

/// The time between two updates of the bar.
const STEP: Duration = Duration::from_millis(50);

/// The file is not cut for less than this.
const CUT_BYTES_MIN: u64 = 1 << 20;

#[derive(Debug, Default, Serialize)]
struct CompactReport {
    moved_bytes: u64,
    freed_bytes: u64,
    cut_bytes: u64,
    unused_bytes: u64,
    pool_bytes: u64,
}

pub(crate) fn run(arguments: &Compact) -> Outcome {
    if let Some(into) = &arguments.into {
        return rewrite::run(arguments, into);
    }
    let least = arguments.min_bytes.map_or(0, |min| min.bytes);
    let pool = Options::new().durability(durability(arguments)?).min_bytes(least).open(&arguments.pool)?;
    note_unknown(&pool)?;
    let before = pool.stats().unused_bytes;
    collect_all(&pool)?;
    let freed_bytes = pool.stats().unused_bytes.saturating_sub(before);
    let mut report = CompactReport { freed_bytes, ..CompactReport::default() };
    report.compact(&pool)?;
    let after = pool.stats();
    (report.unused_bytes, report.pool_bytes) = (after.unused_bytes, after.pool_bytes);
    if arguments.json {
        return print_json(&report);
    }
    print(&report.text())
}

/// Collects what nobody needs in the stores of a pool, and compacts it, as that leaves holes. Nothing is done
/// to a pool without stores.
pub(crate) fn collect_and_compact(pool: &Pool) -> Outcome {
    if pool.store_names()?.is_empty() {
        return Ok(());
    }
    collect_all(pool)?;
    CompactReport::default().compact(pool)
}

/// By default a pool without a journal gets none here: it would lie at the end, and keep the file from being
/// cut.
fn durability(arguments: &Compact) -> Outcome<Durability> {
    if arguments.durability != Durability::Auto {
        return Ok(arguments.durability);
    }
    let pool = Options::new().read_only(true).open(&arguments.pool)?;
    Ok(if pool.stats().journal_bytes == 0 { Durability::PageCache } else { Durability::Auto })
}

impl CompactReport {
    /// Compacts a pool until nothing more is gained.
    fn compact(&mut self, pool: &Pool) -> Outcome {
        let mut progress = Progress::new("moving bytes", None);
        while let Some(compaction) = pool.compaction()?
            && self.add_round(pool, compaction, &mut progress)?
        {}
        self.cut_bytes += pool.cut(CUT_BYTES_MIN, 0)?;
        // Blocks that stay where they are may have kept the others from making room at the end.
        while let Some(compaction) = pool.tail_compaction()?
            && self.add_round(pool, compaction, &mut progress)?
        {}
        Ok(())
    }

    /// Runs a compaction to its end, and cuts the file; returns whether anything was gained.
    fn add_round(
        &mut self,
        pool: &Pool,
        mut compaction: Compaction,
        progress: &mut Progress,
    ) -> Outcome<bool> {
        let (unused_bytes, mut seen) = (pool.stats().unused_bytes, 0);
        loop {
            let has_more = compaction.step(STEP)?;
            progress.advance(compaction.moved_bytes() - seen);
            seen = compaction.moved_bytes();
            if !has_more {
                break;
            }
        }
        compaction.finish()?;
        // The unused bytes are known only since the compaction has read all slabs.
        let freed = pool.stats().unused_bytes.saturating_sub(unused_bytes);
        let cut = pool.cut(CUT_BYTES_MIN, 0)?;
        self.moved_bytes += seen;
        self.freed_bytes += freed;
        self.cut_bytes += cut;
        Ok(freed > 0 || cut > 0)
    }

    fn text(&self) -> String {
        format!(
            "moved {}, freed {}, cut {} off the file; {} of {} are unused now\n",
            human_bytes(self.moved_bytes),
            human_bytes(self.freed_bytes),
            human_bytes(self.cut_bytes),
            human_bytes(self.unused_bytes),
            human_bytes(self.pool_bytes),
        )
    }
}
