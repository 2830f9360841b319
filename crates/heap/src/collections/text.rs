//! Bytes and texts of any length: short ones lie in their fields, longer ones in arrays of their own.

use crate::error::{Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::objects::slots::PArr;
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};

/// Up to this many bytes lie in the field itself.
const NEAR_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Persist, Plain)]
#[persist(crate = crate)]
#[repr(C)]
struct Near {
    bytes: u64,
    words: [u64; 2],
}

impl Near {
    const EMPTY: Near = Near { bytes: 0, words: [0; 2] };

    fn of(content: &[u8]) -> Near {
        let mut near = Near { bytes: content.len() as u64, words: [0; 2] };
        if PBytes::is_short(content) {
            for (word, bytes) in near.words.iter_mut().zip(content.chunks(8)) {
                *word = word_of(bytes);
            }
        }
        near
    }

    fn is_all(self) -> bool {
        self.bytes <= NEAR_BYTES as u64
    }
}

/// Up to eight bytes as a word, zeros after them.
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

fn bytes_of(words: &[u64], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Bytes of any length, which are read and set as a whole. Up to 16 of them lie in the field, more in an
/// array that never changes: setting makes another.
///
/// They conflict like the object of which they are a field. For bytes that change one by one, use a
/// [`PVec<u8>`](super::PVec).
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PBytes {
    near: Near,
    far: PArr<u64>,
}

impl PBytes {
    /// No bytes.
    pub const fn new() -> PBytes {
        PBytes { near: Near::EMPTY, far: PArr::null() }
    }

    /// Whether these bytes need no array.
    pub(super) fn is_short(content: &[u8]) -> bool {
        content.len() <= NEAR_BYTES
    }

    /// These bytes, if they are at most 16, so that they need no array.
    pub fn short(content: &[u8]) -> Option<PBytes> {
        let near = Near::of(content);
        near.is_all().then_some(PBytes { near, far: PArr::null() })
    }
}

impl Default for PBytes {
    fn default() -> PBytes {
        PBytes::new()
    }
}

impl<'t, B: Brand> Ref<'t, B, PBytes> {
    /// The number of bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        Ok(tx.get(self.near())?.bytes as usize)
    }

    /// Whether there are no bytes.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(self.len(tx)? == 0)
    }

    /// Calls `look` with the words that hold the bytes, and the number of bytes.
    fn with_words<O>(self, tx: &ReadTx<'t, B>, look: impl FnOnce(&[u64], usize) -> O) -> Result<O> {
        let near = tx.get(self.near())?;
        let len = near.bytes as usize;
        if near.is_all() {
            return Ok(look(&near.words[..len.div_ceil(8)], len));
        }
        let array = tx.array(self.far())?.filter(|array| array.len() == len.div_ceil(8));
        let Some(array) = array else {
            return Err(corrupt("bytes", self.off, format!("an array of {len}"), "another array"));
        };
        let mut words = vec![0; array.len()];
        tx.constant_words(array, &mut words)?;
        Ok(look(&words, len))
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn get(self, tx: &ReadTx<'t, B>) -> Result<Vec<u8>> {
        self.with_words(tx, bytes_of)
    }

    /// Whether the bytes are these.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is(self, tx: &ReadTx<'t, B>, content: &[u8]) -> Result<bool> {
        let near = tx.get(self.near())?;
        if near.is_all() || near.bytes != content.len() as u64 {
            return Ok(near == Near::of(content));
        }
        self.with_words(tx, |words, _| {
            words.iter().zip(content.chunks(8)).all(|(word, bytes)| *word == word_of(bytes))
        })
    }

    /// Sets all bytes.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len), and [`Tx::alloc_array`].
    pub fn set(self, tx: &mut Tx<'t, B>, content: &[u8]) -> Result<()> {
        let near = Near::of(content);
        tx.set(self.near(), near)?;
        if near.is_all() {
            return tx.link_array(self.far(), None);
        }
        let array = tx.alloc_array(content.len().div_ceil(8), |i| {
            word_of(&content[8 * i..content.len().min(8 * i + 8)])
        })?;
        tx.link_array(self.far(), array)
    }
}

/// A text, which is read and set as a whole. Up to 16 bytes of UTF-8 lie in the field, longer texts in an
/// array.
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, collections::PString};
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Page { title: PString }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = Options::new().create(true);
/// # Heap::<_, Page>::with(dir.path().join("page.heap"), &options, |heap| {
/// heap.write(|tx, page| {
///     page.title().set(tx, "On the computable numbers")?;
///     assert_eq!(page.title().get(tx)?, "On the computable numbers");
///     Ok(())
/// })
/// # }).unwrap();
/// ```
#[derive(Debug, Default, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PString {
    utf8: PBytes,
}

impl PString {
    /// The empty text.
    pub const fn new() -> PString {
        PString { utf8: PBytes::new() }
    }

    /// This text, if it has at most 16 bytes, so that it needs no array.
    pub fn short(text: &str) -> Option<PString> {
        Some(PString { utf8: PBytes::short(text.as_bytes())? })
    }
}

impl<'t, B: Brand> Ref<'t, B, PString> {
    /// The text's number of bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        self.utf8().len(tx)
    }

    /// Whether the text is empty.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        self.utf8().is_empty(tx)
    }

    /// A copy of the text.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); corruption if it is not UTF-8.
    pub fn get(self, tx: &ReadTx<'t, B>) -> Result<String> {
        String::from_utf8(self.utf8().get(tx)?).map_err(|e| corrupt("a text", self.off, "UTF-8", e))
    }

    /// Whether the text is this one.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is(self, tx: &ReadTx<'t, B>, text: &str) -> Result<bool> {
        self.utf8().is(tx, text.as_bytes())
    }

    /// Sets the text.
    ///
    /// # Errors
    ///
    /// As for [`PBytes`]' `set`.
    pub fn set(self, tx: &mut Tx<'t, B>, text: &str) -> Result<()> {
        self.utf8().set(tx, text.as_bytes())
    }
}

impl<'t, B: Brand> Ref<'t, B, PString> {
    /// The bytes that hold it, for keys.
    pub(super) fn as_bytes(self) -> Ref<'t, B, PBytes> {
        self.utf8()
    }
}
