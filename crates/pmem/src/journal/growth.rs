//! Growth of the ring: a pool with few changes has a short one.

use super::Journal;
use super::ring::Ring;
use crate::SyncError;
use std::sync::PoisonError;

/// The part of the range behind the ring that was prepared.
#[derive(Default)]
pub(super) struct Growth {
    /// The capacity for which zeros are on the device.
    prepared: u64,
    /// The file system had no room: nothing more is tried until the next opening.
    is_refused: bool,
}

/// A ring does not grow beyond this many times the rest of the file. A page is written home at most once for
/// half of the ring: at this length the pages cost at most half as much as the records.
const TIMES_OF_FILE: u64 = 4;

impl Journal {
    /// Doubles the capacity of the ring, if its range and the file system have room for that, the file is
    /// long enough to profit, and no record has to move (I8). Returns whether it did. Takes as long as the
    /// device needs for the new part; fences wait for the synchronisation of a head only.
    ///
    /// # Errors
    ///
    /// [`SyncError`] when the device fails.
    pub fn grow_ring(&self) -> Result<bool, SyncError> {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, keeps_places) = {
            let state = self.lock();
            state.check()?;
            (state.ring, state.ring.keeps_places(state.tail, state.end))
        };
        let Some(longer) = ring.longer().filter(|longer| !growth.is_refused && self.profits(longer)) else {
            return Ok(false);
        };
        if !keeps_places {
            return Ok(false);
        }
        if growth.prepared < longer.capacity {
            // Nothing refers to the new part yet. So a failure costs nothing but the growth.
            if longer.write_new_part(&*self.medium, &ring).is_err() {
                growth.is_refused = true;
                return Ok(false);
            }
            // The failure of another page may be the one that is reported here, and never again.
            let synchronised = longer.synchronise_new_part(&*self.medium, &ring);
            synchronised.map_err(|e| self.fail(&mut self.lock(), &e))?;
            growth.prepared = longer.capacity;
        }
        self.switch_to()
    }

    fn profits(&self, longer: &Ring) -> bool {
        let bytes = self.medium.bytes().unwrap_or(0).saturating_sub(longer.most_bytes);
        longer.capacity <= TIMES_OF_FILE.saturating_mul(bytes)
    }

    /// Uses the ring of twice the capacity, whose new part is prepared.
    fn switch_to(&self) -> Result<bool, SyncError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        state.check()?;
        // A write-back may have changed the generation at the tail meanwhile.
        let Some(longer) = state.ring.longer().filter(|_| state.ring.keeps_places(state.tail, state.end))
        else {
            return Ok(false);
        };
        writer.change += 1;
        let written = longer.write_head(&*self.medium, writer.change, state.tail);
        // PERSIST(I8): the head is on the device before a record lies in the new part, and (I4) before the
        // other copy is written.
        if let Err(e) = written.and_then(|()| longer.synchronise_heads(&*self.medium)) {
            return Err(self.fail(&mut state, &e));
        }
        state.ring = longer;
        Ok(true)
    }
}
