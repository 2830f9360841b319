//! Collection: freeing blocks that no held version needs, in steps of a size that the caller chooses, and
//! statistics.
//!
//! Every version frees the blocks that died in the one before it (`builder.rs`). A block that a held version
//! needs is added to the old queue. Collection visits that queue from front to back, and moves a block that
//! is still needed to the back. After a whole pass, a call has work to do only once a version has been given
//! up.

use super::layout::at;
use super::map::{VersionedMap, Writing};
use super::queue::Queues;
use super::readers::Retained;
use super::shared::Shared;
use super::structure::VersionedStructure;
use crate::error::Result;
use tembo_pool::KeptSpace;

/// Items that one transaction looks at.
const STEPS_PER_TX: usize = 32;

/// Statistics of a map's versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedStats {
    /// The newest version.
    pub version: u64,
    /// How many keys it has.
    pub length: u64,
    /// The versions that snapshots hold, named ones included, each once, in order.
    pub held: Vec<u64>,
    /// How many of them are named snapshots.
    pub kept: usize,
    /// Dead blocks that were not visited since they died; the contents removed by
    /// [`clear`](VersionedMap::clear) count as one at first.
    pub young_blocks: u64,
    /// Dead blocks that a held version needed when they were last looked at.
    pub old_blocks: u64,
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// Looks at up to `budget` dead blocks and frees those that no held version needs; returns whether there
    /// is more to do. Costs one fence for each 32 blocks; other writers get their turns in between. Changes
    /// free the blocks that they replace by themselves: this is for blocks that a dropped snapshot held. Call
    /// it in the background, or when there is nothing else to do.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the pool is damaged, or open for reading only. Blocks freed
    /// until then stay freed.
    pub fn collect(&self, budget: usize) -> Result<bool> {
        let mut left = budget;
        loop {
            let (looked_at, has_more) = self.collect_up_to(left.min(STEPS_PER_TX))?;
            left = left.saturating_sub(looked_at);
            if !has_more || left == 0 || looked_at == 0 {
                return Ok(has_more);
            }
        }
    }

    fn collect_up_to(&self, items: usize) -> Result<(usize, bool)> {
        self.shared.collect_some(&mut *self.lock_writer()?, items)
    }

    /// One transaction of collection; returns how many blocks it looked at, and whether there are more.
    pub(super) fn collect_once(&self) -> Result<(usize, bool)> {
        self.collect_up_to(STEPS_PER_TX)
    }

    /// The held versions, and how many dead blocks wait for them.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the head of the map is damaged.
    pub fn stats(&self) -> Result<VersionedStats> {
        let shared = &*self.shared;
        let newest = self.reader();
        let mut held: Vec<u64> = shared.held.lock().keys().copied().collect();
        let kept: Vec<u64> = shared.kept.lock().iter().map(|kept| kept.version.number).collect();
        held.extend(&kept);
        let count = |queue| shared.region().load_u64(shared.header + queue + at!(PmVersionedQueue.count));
        Ok(VersionedStats {
            version: newest.version(),
            length: newest.len(),
            held: Retained::new(held).versions().to_vec(),
            kept: kept.len(),
            young_blocks: count(at!(PmVersionedHead.young))?,
            old_blocks: count(at!(PmVersionedHead.old))?,
        })
    }
}

impl Shared {
    /// One transaction of collection; returns how many items it looked at, and whether there are more to
    /// look at.
    fn collect_some<S: VersionedStructure>(
        &self,
        writing: &mut Writing<S>,
        budget: usize,
    ) -> Result<(usize, bool)> {
        let Writing { lane, scan, .. } = writing;
        let Some(lane) = lane else { return Err(tembo_pool::ErrorKind::ReadOnly.into()) };
        // The collection takes a version number, as a change does, so that late readers take a newer version.
        let mut retained = Retained::default();
        let next = self.intend(&mut retained);
        let mut tx = lane.begin();
        tx.use_kept_space(KeptSpace::All);
        let mut queues = Queues::open(&tx, self.header)?;
        scan.resume(&retained, next - 1, queues.old(&tx)?.poppable());
        let mut looked_at = 0;
        while looked_at < budget {
            let is_young = queues.young.poppable() > 0;
            if !is_young && scan.left == 0 {
                break;
            }
            let queue = if is_young { &mut queues.young } else { queues.old(&tx)? };
            let Some(dead) = queue.pop(&mut tx)? else { break };
            scan.left -= u64::from(!is_young);
            looked_at += queues.free_or_keep::<S>(&mut tx, dead, &retained)?;
        }
        let has_more = queues.young.count() > 0 || scan.left > 0;
        queues.close(&mut tx)?;
        tx.commit()?;
        Ok((looked_at, has_more))
    }
}
