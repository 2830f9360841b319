//! The ring: its heads, and reading and writing bytes by their position.

use super::layout::{HEAD_BYTES, HEAD_STEP_BYTES, Head, RECORDS_AT, next_generation};
use super::{JournalPlace, Medium, RING_MIN_BYTES};
use crate::error::JournalError;
use std::io;

/// Where the records of a generation lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) place: JournalPlace,
    /// The generation of the record at the tail.
    pub(super) generation: u64,
    /// The tail that was read from the head.
    pub(super) tail: u64,
    /// Bytes for records.
    pub(super) capacity: u64,
    /// Bytes of the range in the file that is the ring's alone.
    pub(super) most_bytes: u64,
}

/// Bytes that are written at once where nothing was written yet.
const ZEROS: usize = 1 << 20;

impl Ring {
    /// Writes an empty ring.
    pub(super) fn format(
        medium: &dyn Medium,
        place: JournalPlace,
        bytes: u64,
        most_bytes: u64,
    ) -> io::Result<()> {
        assert!(place.off.is_multiple_of(4096) && bytes.is_multiple_of(4096) && bytes >= RING_MIN_BYTES);
        assert!(most_bytes.is_multiple_of(4096) && most_bytes >= bytes);
        let ring = Ring { place, generation: 0, tail: 0, capacity: bytes - RECORDS_AT, most_bytes };
        write_zeros(medium, place.off, ring.end_off())?;
        ring.write_head(medium, 0, 0)?;
        // PERSIST(I4): a valid head is on the device before anything refers to the ring.
        medium.synchronise()
    }

    /// Reads the newest head.
    pub(super) fn read(medium: &dyn Medium, place: JournalPlace) -> Result<(Ring, Head), JournalError> {
        let file_bytes = medium.bytes()?;
        let mut newest: Option<Head> = None;
        for copy in 0..2 {
            let off = place.off.saturating_add(copy * HEAD_STEP_BYTES);
            if off.saturating_add(HEAD_BYTES as u64) > file_bytes {
                continue;
            }
            let mut bytes = [0; HEAD_BYTES];
            medium.read(off, &mut bytes)?;
            let head = Head::decode(&bytes, place.seed);
            newest = newest.into_iter().chain(head).max_by_key(|head| head.change);
        }
        let damaged = |what: &str| JournalError::Damaged { off: place.off, what: what.to_owned() };
        let head = newest.ok_or_else(|| damaged("neither copy of its head is valid"))?;
        let fits = place.off.is_multiple_of(4096)
            && head.bytes.is_multiple_of(4096)
            && head.bytes >= RING_MIN_BYTES
            && head.most_bytes.is_multiple_of(4096)
            && place.off.checked_add(head.bytes.max(head.most_bytes)).is_some_and(|end| end <= file_bytes);
        if !fits {
            return Err(damaged("its length is not one that the file has room for"));
        }
        let Head { generation, tail, bytes, most_bytes, .. } = head;
        let most_bytes = most_bytes.max(bytes);
        Ok((Ring { place, generation, tail, capacity: bytes - RECORDS_AT, most_bytes }, head))
    }

    /// The same ring, empty, in a new generation.
    pub(super) fn next(&self) -> Ring {
        Ring { generation: next_generation(self.generation), tail: 0, ..*self }
    }

    /// The same ring with twice the capacity, if its range has room for that.
    pub(super) fn longer(&self) -> Option<Ring> {
        let capacity = 2 * self.capacity;
        (capacity + RECORDS_AT <= self.most_bytes).then_some(Ring { capacity, ..*self })
    }

    /// Whether all positions from one to another have the same places in the ring of twice the capacity: they
    /// are of one turn of this ring, and of the first half of a turn of the other.
    pub(super) fn keeps_places(&self, from: u64, to: u64) -> bool {
        let turn = from / self.capacity;
        turn.is_multiple_of(2) && to / self.capacity == turn
    }

    /// The ring's end in the file.
    pub(super) fn end_off(&self) -> u64 {
        self.place.off + RECORDS_AT + self.capacity
    }

    /// The end of the range in the file that is the ring's alone.
    pub(super) fn range_end_off(&self) -> u64 {
        self.place.off + self.most_bytes
    }

    /// Writes the copy of the head that belongs to the number of the change.
    pub(super) fn write_head(&self, medium: &dyn Medium, change: u64, tail: u64) -> io::Result<()> {
        let Ring { generation, most_bytes, .. } = *self;
        let bytes = self.capacity + RECORDS_AT;
        let head = Head { change, generation, tail, bytes, most_bytes, has_failed: false };
        medium.write(self.place.off + (change % 2) * HEAD_STEP_BYTES, &head.encode(self.place.seed))
    }

    /// Notes in the heads that a synchronisation has failed, so that no process resumes the ring. If this
    /// write fails, too, nothing depends on it.
    pub(super) fn note_failure(&self, medium: &dyn Medium) {
        for off in [0, HEAD_STEP_BYTES].map(|copy| self.place.off + copy) {
            let mut bytes = [0; HEAD_BYTES];
            let read = medium.read(off, &mut bytes).ok().and_then(|()| Head::decode(&bytes, self.place.seed));
            if let Some(head) = read {
                // The same change in its own place: one sector, which has it or not.
                let _ = medium.write(off, &Head { has_failed: true, ..head }.encode(self.place.seed));
            }
        }
    }

    /// Waits until the heads that were written are on the device.
    pub(super) fn synchronise_heads(&self, medium: &dyn Medium) -> io::Result<()> {
        medium.synchronise_range(self.place.off, RECORDS_AT)
    }

    /// Writes the part that this ring has and the shorter one has not.
    pub(super) fn write_new_part(&self, medium: &dyn Medium, shorter: &Ring) -> io::Result<()> {
        write_zeros(medium, shorter.end_off(), self.end_off())
    }

    /// Waits until that part is on the device.
    pub(super) fn synchronise_new_part(&self, medium: &dyn Medium, shorter: &Ring) -> io::Result<()> {
        medium.synchronise_range(shorter.end_off(), self.end_off() - shorter.end_off())
    }

    /// Appends bytes at a position, which is the end of the last ones.
    pub(super) fn append(&self, medium: &dyn Medium, pos: u64, bytes: &[u8]) -> io::Result<()> {
        let (off, room) = self.find(pos);
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        medium.append(off, first, room as u64)?;
        let begin = self.place.off + RECORDS_AT;
        if rest.is_empty() { Ok(()) } else { medium.append(begin, rest, self.capacity) }
    }

    /// Writes bytes at a position.
    pub(super) fn write(&self, medium: &dyn Medium, pos: u64, bytes: &[u8]) -> io::Result<()> {
        let (off, room) = self.find(pos);
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        medium.write(off, first)?;
        if rest.is_empty() { Ok(()) } else { medium.write(self.place.off + RECORDS_AT, rest) }
    }

    /// Waits until the device has the bytes between two positions.
    pub(super) fn synchronise(&self, medium: &dyn Medium, from: u64, to: u64) -> io::Result<()> {
        let (off, room) = self.find(from);
        let (bytes, room) = (to - from, room as u64);
        if bytes > 0 {
            medium.synchronise_range(off, bytes.min(room))?;
        }
        if bytes > room {
            medium.synchronise_range(self.place.off + RECORDS_AT, bytes - room)?;
        }
        Ok(())
    }

    /// Reads bytes at a position.
    pub(super) fn read_at(&self, medium: &dyn Medium, pos: u64, into: &mut [u8]) -> io::Result<()> {
        let (off, room) = self.find(pos);
        let room = room.min(into.len());
        let (first, rest) = into.split_at_mut(room);
        medium.read(off, first)?;
        if rest.is_empty() { Ok(()) } else { medium.read(self.place.off + RECORDS_AT, rest) }
    }

    /// The offset of a position, and the bytes from there to the end of the ring.
    fn find(&self, pos: u64) -> (u64, usize) {
        let within = pos % self.capacity;
        (self.place.off + RECORDS_AT + within, (self.capacity - within) as usize)
    }
}

fn write_zeros(medium: &dyn Medium, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS.min((to - from) as usize)];
    let mut at = from;
    while at < to {
        let piece = zeros.len().min((to - at) as usize);
        medium.write(at, &zeros[..piece])?;
        at += piece as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_their_places_in_the_first_half_of_a_turn_of_the_longer_ring() {
        let place = JournalPlace { off: 4096, seed: 0 };
        let ring = Ring { place, generation: 1, tail: 0, capacity: 100, most_bytes: 1 << 20 };
        let longer = ring.longer().unwrap();
        assert_eq!(longer.capacity, 200);
        for (from, to) in (0..450).flat_map(|from| (from..450).map(move |to| (from, to))) {
            let same = (from..=to).all(|pos| ring.find(pos).0 == longer.find(pos).0);
            assert_eq!(ring.keeps_places(from, to), same, "{from} to {to}");
        }
        let full = Ring { most_bytes: RECORDS_AT + 199, ..ring };
        assert!(full.longer().is_none());
    }
}
