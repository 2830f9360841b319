//! Space for the payloads of records that do not fit into their lane.

use super::commit::commit;
use super::lane::{KeptSpace, Lane};
use crate::Result;
use crate::alloc::Wanted;
use crate::inner::PoolInner;
use crate::layout::PmZone;
use crate::log::lane::Tail;
use tembo_pmem::offset_of;

impl Lane {
    /// Reserves a chain block if the payload does not fit into the lane, and returns its offset; 0 if the
    /// payload fits.
    #[inline]
    pub(super) fn prepare_chain(&mut self) -> Result<u64> {
        let bytes = self.image.payload_bytes();
        // The lane's lock would wait for the last fence. It is not needed: only commits change the tail.
        if !self.tail.must_chain(&self.pool.inner.log.geometry, bytes) {
            return Ok(0);
        }
        self.find_chain(bytes)
    }

    #[cold]
    fn find_chain(&mut self, bytes: u64) -> Result<u64> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let geometry = &inner.log.geometry;
        let slot = inner.log.slot(self.number);
        let state = slot.lock();
        if let Some(block) = &state.chains[state.next_slot(geometry, 0, true).chain()]
            && block.bytes >= bytes
        {
            return Ok(block.off);
        }
        drop(state);
        let image = std::mem::take(&mut self.image);
        let roomy = bytes.next_power_of_two().min(inner.alloc.max_block_bytes()).max(bytes);
        let wanted = Wanted::Bytes(roomy);
        let reserved = match self.reserve_or_grow(wanted) {
            Err(e) if e.is_full() && self.leave_half(bytes)? => {
                self.image = image;
                return Ok(0);
            }
            Err(full) if full.is_full() => {
                let frees = if self.writes.freed.is_empty() { self.kept_space } else { KeptSpace::All };
                self.reclaim_and_reserve(Wanted::Bytes(bytes), full, frees)
            }
            outcome => outcome,
        };
        self.image = image;
        let block = reserved?;
        // Making room may have committed a record of its own, which may have switched halves.
        let mut state = slot.lock();
        let chain = state.next_slot(geometry, 0, true).chain();
        let off = block.off;
        if let Some(old) = state.chains[chain].replace(block) {
            inner.alloc.release(std::iter::once(old), None);
        }
        Ok(off)
    }

    /// Allows the next record to switch to the other half, if the payload fits there: a half with only one
    /// record gets a second that changes nothing. Returns whether the payload fits.
    fn leave_half(&mut self, payload_bytes: u64) -> Result<bool> {
        let geometry = self.pool.inner.log.geometry;
        if Tail::must_chain_in_new_half(&geometry, payload_bytes) {
            return Ok(false);
        }
        if self.tail.must_chain(&geometry, payload_bytes) {
            // This word is always zero.
            let word = geometry.zone_off(0) + offset_of!(PmZone, reserved) as u64;
            self.with_writes_aside(|lane| {
                lane.writes.steps.push_redo(word, 0);
                commit(lane)
            })?;
        }
        Ok(!self.tail.must_chain(&geometry, payload_bytes))
    }
}
