//! Records and names on media. They never change once they are published, so readers borrow them.

use super::layout::KEPT_BYTES;
use super::view::View;
use crate::error::Result;
use crate::record::RECORD_HEAD_BYTES;
use tembo_pmem::Region;

/// A key and its value, in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'m> {
    pub(crate) key: &'m [u8],
    pub(crate) value: &'m [u8],
}

impl<'m> Record<'m> {
    #[inline]
    pub(crate) fn read(region: &'m Region, off: u64) -> Result<Record<'m>> {
        let lengths = region.load_u64(off)?;
        let (key_bytes, value_bytes) = (lengths & 0xFFFF_FFFF, lengths >> 32);
        // SAFETY: a record is written before the commit that links it and never stored to afterwards. Its
        // block is not reused while a version that has it is held, nor before the writer's transaction ends.
        let all = unsafe { region.bytes(off.saturating_add(RECORD_HEAD_BYTES), key_bytes + value_bytes)? };
        let (key, value) = all.split_at(key_bytes as usize);
        Ok(Record { key, value })
    }

    /// As [`read`](Self::read), and prefetches as many lines as the hint of the reader says.
    #[inline]
    pub(crate) fn read_with_hint(view: &View<'m>, off: u64) -> Result<Record<'m>> {
        if let Some(size_hint) = view.size_hint {
            size_hint.fetch(view.region, off);
        }
        let record = Record::read(view.region, off)?;
        if let Some(size_hint) = view.size_hint {
            size_hint.note(off, record.media_bytes());
        }
        Ok(record)
    }

    /// Bytes of the whole record.
    pub(crate) fn media_bytes(&self) -> u64 {
        RECORD_HEAD_BYTES + self.key.len() as u64 + self.value.len() as u64
    }
}

/// The first `bytes` bytes of a word, in memory order.
pub(crate) fn bytes_of_word(word: &u64, bytes: u8) -> &[u8] {
    // SAFETY: a word is 8 bytes, all of them initialised, and bytes may lie anywhere.
    let all = unsafe { &*std::ptr::from_ref(word).cast::<[u8; 8]>() };
    &all[..usize::from(bytes).min(8)]
}

/// The name of a kept snapshot.
pub(crate) fn kept_name(region: &Region, off: u64, bytes: u64) -> Result<&[u8]> {
    // SAFETY: as for a record: it is written before the commit that links it and never stored to afterwards.
    // It is freed only under the lock that its readers hold.
    Ok(unsafe { region.bytes(off.saturating_add(KEPT_BYTES), bytes)? })
}
