//! Byte strings for readers: borrowed in place if they lie in a block, else copied out of their entry.

use std::ops::Deref;
use tembo_pmem::assert_not_left_behind;

/// A value, or a key, as it was in a version. It lives as long as the reader's or snapshot's borrow.
#[derive(Clone)]
pub struct VersionedBytes<'r>(BytesSource<'r>);

#[derive(Clone)]
enum BytesSource<'r> {
    Media(&'r [u8]),
    Word([u8; 8], usize),
    Owned(Vec<u8>),
}

impl<'r> VersionedBytes<'r> {
    pub(crate) fn media(bytes: &'r [u8]) -> VersionedBytes<'r> {
        VersionedBytes(BytesSource::Media(bytes))
    }

    /// The first `bytes` bytes of a word, in memory order.
    #[inline]
    pub(crate) fn word(word: u64, bytes: u8) -> VersionedBytes<'static> {
        VersionedBytes(BytesSource::Word(word.to_ne_bytes(), usize::from(bytes).min(8)))
    }

    /// The bytes, if they are borrowed in place, as values in records are.
    pub(crate) fn in_place(&self) -> Option<&'r [u8]> {
        match self.0 {
            BytesSource::Media(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> VersionedBytes<'static> {
        VersionedBytes(BytesSource::Owned(bytes))
    }
}

impl Deref for VersionedBytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            BytesSource::Media(bytes) => {
                assert_not_left_behind(bytes);
                bytes
            }
            BytesSource::Word(word, bytes) => &word[..*bytes],
            BytesSource::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for VersionedBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for VersionedBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VersionedBytes").field(&&**self).finish()
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for VersionedBytes<'_> {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}
