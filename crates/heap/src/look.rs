//! Looks at many words of an object at once, under a single check of its ownership record.

use crate::brand::Brand;
use crate::core::Core;
use crate::error::Result;
use crate::layout::LINE;
use crate::node::Room;
use crate::orec::Orec;
use crate::persist::Plain;
use crate::place::FRESH;
use crate::session::{Care, State};
use crate::tx::ReadTx;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that are looked at. Its name is nobody else's, so that what is given them is of this crate: as atomics they could be stored to.
#[derive(Debug, Clone, Copy)]
pub struct Looked<'w>(pub(crate) &'w [AtomicU64]);

/// A word of those that are looked at; `None` after their end.
#[inline(always)]
pub(crate) fn word_in(words: &[AtomicU64], at: usize) -> Option<u64> {
    // ORDER: acquire, as everywhere where a commit may be storing.
    words.get(at).map(|word| word.load(Ordering::Acquire))
}

/// The value that lies so many bytes after the start of `words`; `None` if there is none.
#[inline(always)]
pub(crate) fn value_in<T: Plain>(words: &[AtomicU64], off: usize) -> Option<T> {
    let mut room = Room::<T>::new();
    let mut value = room.zeroed();
    let bytes = size_of::<T>();
    if align_of::<T>() == 8 {
        for (i, out) in value.words_mut().iter_mut().enumerate() {
            *out = word_in(words, off / 8 + i)?;
        }
    } else if bytes > 0 {
        let mut from = word_in(words, off / 8)?.to_ne_bytes();
        for (i, out) in value.value_bytes_mut().iter_mut().enumerate() {
            let at = off + i;
            if i > 0 && at.is_multiple_of(8) {
                from = word_in(words, at / 8)?.to_ne_bytes();
            }
            *out = from[at % 8];
        }
    }
    value.value()
}

/// Words that are looked at while somebody else may store to them.
struct Careful<'t> {
    words: &'t [AtomicU64],
    /// The words with what the transaction has written of them; nothing if it has written none.
    copy: Vec<AtomicU64>,
    index: u32,
    seen: Orec,
    is_mine: bool,
    is_quiet: bool,
    round: u32,
}

impl Careful<'_> {
    fn words(&self) -> &[AtomicU64] {
        if self.copy.is_empty() { self.words } else { &self.copy }
    }

    /// Whether what was seen of them is good; notes that it was read.
    #[inline(never)]
    fn still_holds(&self, core: &Core, state: &State) -> Result<bool> {
        if self.is_mine {
            return Ok(true);
        }
        if self.is_quiet {
            if !core.clock.stands_at(state.rv()) {
                state.end_quiet()?;
                return Ok(false);
            }
            state.note_read(self.index, state.rv());
            return Ok(true);
        }
        let again = core.orecs.load_again(self.index);
        let holds = again.version() == self.seen.version() && !again.is_committing();
        if holds {
            state.note_read(self.index, self.seen.version());
        }
        Ok(holds)
    }
}

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
        let quiet = self.quiet_words(off, count as u64);
        // What is looked at with care, if it has to be. (One call of `look` for both, so that it is compiled into it.)
        let mut careful = None;
        if quiet.is_none() {
            careful = Some(self.copied().look_with_care(key, off, count, 0)?);
        }
        loop {
            let said = look(match &careful {
                Some(careful) => careful.words(),
                None => quiet.unwrap_or_default(),
            });
            let is_good = match &careful {
                Some(careful) => careful.still_holds(self.core, self.state)?,
                None => self.core.clock.stands_at(self.state.quiet_at()),
            };
            if is_good {
                return Ok(said);
            }
            let round = careful.map_or(0, |careful| careful.round);
            careful = Some(self.copied().look_with_care(key, off, count, round)?);
        }
    }

    /// Words to look at, once nobody is storing to them; `round` says how often this has waited for that.
    #[inline(never)]
    fn look_with_care(self, key: u64, off: u64, count: usize, mut round: u32) -> Result<Careful<'t>> {
        let (state, core) = (self.state, self.core);
        if state.cares(Care::DOOMED) {
            return Err(state.refusal());
        }
        let words = core.region().words(off, count as u64)?;
        let index = core.orecs.index(key);
        loop {
            let is_quiet = !state.cares(Care::RECORDS) && !state.cares(Care::WRITTEN) && key != FRESH;
            let seen = if is_quiet { Orec::default() } else { core.orecs.load(index) };
            let is_mine = key == FRESH
                || seen.owner() != 0 && seen.owner() == state.number.get()
                || state.cares(Care::BARE);
            if !is_mine && seen.is_committing() {
                state.wait(&mut round)?;
                continue;
            }
            if !is_mine && seen.version() > state.rv() {
                state.extend(core, seen.version())?;
                continue;
            }
            let has_own = state.cares(Care::WRITTEN) && key != FRESH;
            let copy = if has_own { self.copy_own(off, words) } else { Vec::new() };
            return Ok(Careful { words, copy, index, seen, is_mine, is_quiet, round });
        }
    }

    /// Words of which the transaction has written some: as it has written them, or as they are. Nothing if it has written none of them.
    #[inline(never)]
    fn copy_own(&self, off: u64, words: &[AtomicU64]) -> Vec<AtomicU64> {
        let mut copy: Vec<u64> = Vec::new();
        let session = self.state.session.borrow();
        let end = off + 8 * words.len() as u64;
        for line_off in (off & !(LINE - 1)..end).step_by(LINE as usize) {
            let stored = session.as_ref().and_then(|session| session.ptx.line_words(line_off));
            let Some((mask, line)) = stored else { continue };
            if copy.is_empty() {
                copy = words.iter().map(|word| word.load(Ordering::Acquire)).collect();
            }
            for (i, word) in line.iter().enumerate() {
                let at = line_off + 8 * i as u64;
                if mask >> i & 1 != 0 && (off..end).contains(&at) {
                    copy[((at - off) / 8) as usize] = *word;
                }
            }
        }
        copy.into_iter().map(AtomicU64::new).collect()
    }

    /// Has what lies at these bytes brought into the cache, all at once, for a look at it a little later.
    #[inline(always)]
    pub(crate) fn fetch_bytes(&self, off: u64, bytes: u64) {
        for line in 0..bytes.div_ceil(LINE) {
            self.core.region().prefetch(off.wrapping_add(LINE * line));
        }
    }
}
