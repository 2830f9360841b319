//! Looks at many words of an object at once, under a single check of its ownership record.

use crate::brand::Brand;
use crate::error::{Error, Result};
use crate::layout::LINE;
use crate::place::FRESH;
use crate::tx::ReadTx;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of what the transaction owns that are copied without an allocation.
const FEW: usize = 128;

impl<'t, B: Brand> ReadTx<'t, B> {
    /// What `look` says of `count` words from `off` on, all of which belong to `key`.
    ///
    /// `look` is called on words that others may be storing meanwhile: what it says then is thrown away, and it is called again. It has to end
    /// and not to panic whatever the words are.
    #[inline(always)]
    pub(crate) fn look<R>(
        &self,
        key: u64,
        off: u64,
        count: usize,
        look: impl Fn(&[AtomicU64]) -> R,
    ) -> Result<R> {
        let (state, core) = (self.state, self.core);
        if state.doomed.get() {
            return Err(Error::Conflict);
        }
        let words = core.region().words(off, count as u64)?;
        if key == FRESH {
            return Ok(look(words));
        }
        let index = core.orecs.index(key);
        let mut round = 0;
        loop {
            let seen = core.orecs.load(index);
            if seen.owner() != 0 && seen.owner() == state.number.get() {
                return Ok(self.look_at_own(off, words, look));
            }
            if seen.is_committing() {
                state.wait(&mut round)?;
                continue;
            }
            if seen.version() > state.rv.get() {
                state.extend(core)?;
                continue;
            }
            let said = look(words);
            let again = core.orecs.load_again(index);
            if again.version() == seen.version() && !again.is_committing() {
                state.note_read(index, seen);
                return Ok(said);
            }
        }
    }

    /// Words of what the transaction owns: as it has written them, or as they are.
    #[inline(never)]
    fn look_at_own<R>(&self, off: u64, words: &[AtomicU64], look: impl Fn(&[AtomicU64]) -> R) -> R {
        let session = self.state.session.borrow();
        let Some(session) = session.as_ref() else { return look(words) };
        let mut few = [const { AtomicU64::new(0) }; FEW];
        let mut many = Vec::new();
        let copy = match few.get_mut(..words.len()) {
            Some(few) => few,
            None => {
                many.resize_with(words.len(), || AtomicU64::new(0));
                &mut many[..]
            }
        };
        for (copy, word) in copy.iter_mut().zip(words) {
            *copy.get_mut() = word.load(Ordering::Acquire);
        }
        let end = off + 8 * words.len() as u64;
        for line_off in (off & !(LINE - 1)..end).step_by(LINE as usize) {
            let Some(line) = session.writes.line(line_off) else { continue };
            for (i, word) in line.words.iter().enumerate() {
                let at = line_off + 8 * i as u64;
                if line.mask >> i & 1 != 0 && (off..end).contains(&at) {
                    *copy[((at - off) / 8) as usize].get_mut() = *word;
                }
            }
        }
        look(copy)
    }

    /// Has what lies at these bytes brought into the cache, all at once, for a look at it a little later.
    #[inline(always)]
    pub(crate) fn fetch_bytes(&self, off: u64, bytes: u64) {
        for line in 0..bytes.div_ceil(LINE) {
            self.core.region().prefetch(off.wrapping_add(LINE * line));
        }
    }
}
