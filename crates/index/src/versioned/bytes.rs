//! Byte strings as readers get them: in place where they lie in a block, else copied out of their entry.

use std::ops::Deref;
use tembo_pmem::assert_not_left_behind;

/// A value, or a key, as it was in a version. It lives as long as the reader's or snapshot's borrow.
#[derive(Clone)]
pub struct CddsBytes<'r>(Place<'r>);

#[derive(Clone)]
enum Place<'r> {
    Media(&'r [u8]),
    Word([u8; 8], usize),
    Owned(Vec<u8>),
}

impl<'r> CddsBytes<'r> {
    pub(crate) fn media(bytes: &'r [u8]) -> CddsBytes<'r> {
        CddsBytes(Place::Media(bytes))
    }

    /// The first `bytes` bytes of a word, as it is in memory.
    #[inline]
    pub(crate) fn word(word: u64, bytes: u8) -> CddsBytes<'static> {
        CddsBytes(Place::Word(word.to_ne_bytes(), usize::from(bytes).min(8)))
    }

    /// The bytes, if they are in place. Values are.
    pub(crate) fn in_place(&self) -> Option<&'r [u8]> {
        match self.0 {
            Place::Media(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> CddsBytes<'static> {
        CddsBytes(Place::Owned(bytes))
    }
}

impl Deref for CddsBytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Media(bytes) => {
                assert_not_left_behind(bytes);
                bytes
            }
            Place::Word(word, bytes) => &word[..*bytes],
            Place::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for CddsBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for CddsBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CddsBytes").field(&&**self).finish()
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for CddsBytes<'_> {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}
