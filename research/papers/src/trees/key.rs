//! Keys: of fixed size, in the entries themselves; and byte strings, in blocks that the entries point to.

use super::space::Space;
use crate::mem::Mem;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::marker::PhantomData;
use tembo_pmem::WORD_BYTES;

/// The longest byte string that can be a key.
pub const MAX_KEY_BYTES: usize = 255;

/// Words of the longest byte string.
const MAX_KEY_WORDS: usize = MAX_KEY_BYTES.div_ceil(8);

/// How the keys of a tree are stored and compared.
pub trait KeyKind: 'static {
    /// A key as callers give it.
    type Key<'a>: Copy;
    /// A key as callers get it.
    type Owned: Ord + Clone + Debug + Send + Sync;
    /// A key made ready to be compared with stored ones.
    type Probe;
    /// The words of a key in an entry.
    type Stored: Copy + Default + Eq + Debug + AsRef<[u64]> + AsMut<[u64]>;
    /// How many words that are.
    const WORDS: usize;
    /// Whether entries hold pointers to the keys.
    const OUT_OF_LINE: bool;

    /// Borrows an owned key.
    fn key(owned: &Self::Owned) -> Self::Key<'_>;
    /// Makes a key ready.
    fn probe(key: Self::Key<'_>) -> Self::Probe;
    /// How the key stored in the entry at `entry` compares with the probe.
    fn compare<M: Mem>(mem: &M, entry: u64, probe: &Self::Probe) -> Ordering;
    /// How two stored keys compare.
    fn compare_stored<M: Mem>(mem: &M, a: &Self::Stored, b: &Self::Stored) -> Ordering;
    /// Stores what the entry is to point to, if anything, and flushes it if `flush`; `None` if there is no
    /// room.
    fn place<M: Mem>(mem: &M, space: &mut Space, probe: &Self::Probe, flush: bool) -> Option<Self::Stored>;
    /// As [`place`](Self::place), of a key that is stored already and whose block has another owner.
    fn copy<M: Mem>(mem: &M, space: &mut Space, key: &Self::Stored, flush: bool) -> Option<Self::Stored>;
    /// Takes back what `place` or `copy` took, once no entry refers to it.
    fn release<M: Mem>(mem: &M, space: &mut Space, key: &Self::Stored);
    /// The block that the entry points to, if it does: offset and length in bytes.
    fn block<M: Mem>(mem: &M, key: &Self::Stored) -> Option<(u64, u64)>;
    /// Reads a stored key.
    fn owned<M: Mem>(mem: &M, key: &Self::Stored) -> Self::Owned;

    /// Bytes that a key takes outside its entry.
    fn block_bytes(probe: &Self::Probe) -> u64;

    /// Bytes that a key of this kind may take outside its entry.
    fn max_block_bytes() -> u64;

    /// Loads the words of the key in the entry at `entry`.
    #[inline(always)]
    fn load<M: Mem>(mem: &M, entry: u64) -> Self::Stored {
        let mut stored = Self::Stored::default();
        for (i, word) in stored.as_mut().iter_mut().enumerate() {
            *word = mem.load_u64(entry + i as u64 * WORD_BYTES);
        }
        stored
    }
}

/// A type of fixed size that can be a key: it maps to words whose lexicographic order is its own.
pub trait Plain: Copy + Ord + Debug + Send + Sync + 'static {
    /// The words.
    type Words: Copy + Default + Eq + Debug + AsRef<[u64]> + AsMut<[u64]>;
    /// How many they are.
    const WORDS: usize;
    /// The words of a value.
    fn to_words(self) -> Self::Words;
    /// The value with these words.
    fn from_words(words: Self::Words) -> Self;
}

impl Plain for u64 {
    type Words = [u64; 1];
    const WORDS: usize = 1;
    #[inline(always)]
    fn to_words(self) -> [u64; 1] {
        [self]
    }
    fn from_words(words: [u64; 1]) -> u64 {
        words[0]
    }
}

impl Plain for i64 {
    type Words = [u64; 1];
    const WORDS: usize = 1;
    #[inline(always)]
    fn to_words(self) -> [u64; 1] {
        [self as u64 ^ 1 << 63]
    }
    fn from_words(words: [u64; 1]) -> i64 {
        (words[0] ^ 1 << 63) as i64
    }
}

impl Plain for u128 {
    type Words = [u64; 2];
    const WORDS: usize = 2;
    #[inline(always)]
    fn to_words(self) -> [u64; 2] {
        [(self >> 64) as u64, self as u64]
    }
    fn from_words(words: [u64; 2]) -> u128 {
        u128::from(words[0]) << 64 | u128::from(words[1])
    }
}

impl Plain for [u8; 24] {
    type Words = [u64; 3];
    const WORDS: usize = 3;
    #[inline(always)]
    fn to_words(self) -> [u64; 3] {
        std::array::from_fn(|i| be_word(&self[8 * i..]))
    }
    fn from_words(words: [u64; 3]) -> [u8; 24] {
        std::array::from_fn(|i| words[i / 8].to_be_bytes()[i % 8])
    }
}

/// Keys of the fixed-size type `T`, in the entries.
#[derive(Debug)]
pub struct Fixed<T>(PhantomData<T>);

impl<T: Plain> KeyKind for Fixed<T> {
    type Key<'a> = T;
    type Owned = T;
    type Probe = T::Words;
    type Stored = T::Words;
    const WORDS: usize = T::WORDS;
    const OUT_OF_LINE: bool = false;

    #[inline(always)]
    fn key(owned: &T) -> T {
        *owned
    }

    #[inline(always)]
    fn probe(key: T) -> T::Words {
        key.to_words()
    }

    #[inline(always)]
    fn compare<M: Mem>(mem: &M, entry: u64, probe: &T::Words) -> Ordering {
        mem.compute(2);
        for (i, wanted) in probe.as_ref().iter().enumerate() {
            match mem.load_u64(entry + i as u64 * WORD_BYTES).cmp(wanted) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        Ordering::Equal
    }

    fn compare_stored<M: Mem>(_mem: &M, a: &T::Words, b: &T::Words) -> Ordering {
        a.as_ref().cmp(b.as_ref())
    }

    #[inline(always)]
    fn place<M: Mem>(_mem: &M, _space: &mut Space, probe: &T::Words, _flush: bool) -> Option<T::Words> {
        Some(*probe)
    }

    #[inline(always)]
    fn copy<M: Mem>(_mem: &M, _space: &mut Space, key: &T::Words, _flush: bool) -> Option<T::Words> {
        Some(*key)
    }

    #[inline(always)]
    fn release<M: Mem>(_mem: &M, _space: &mut Space, _key: &T::Words) {}

    fn block<M: Mem>(_mem: &M, _key: &T::Words) -> Option<(u64, u64)> {
        None
    }

    fn owned<M: Mem>(_mem: &M, key: &T::Words) -> T {
        T::from_words(*key)
    }

    fn block_bytes(_probe: &T::Words) -> u64 {
        0
    }

    fn max_block_bytes() -> u64 {
        0
    }
}

/// Byte strings of up to [`MAX_KEY_BYTES`], each in a block of its own: a word with the length, then the
/// bytes, the first one the highest of its word, so that words compare as the bytes do.
#[derive(Debug)]
pub struct Text;

/// A byte string as words.
#[derive(Debug)]
pub struct TextProbe {
    bytes: usize,
    words: [u64; MAX_KEY_WORDS],
}

impl TextProbe {
    #[inline(always)]
    fn words(&self) -> &[u64] {
        &self.words[..self.bytes.div_ceil(8)]
    }

    fn block_bytes(&self) -> u64 {
        WORD_BYTES + self.words().len() as u64 * WORD_BYTES
    }
}

/// The first up to 8 bytes as a word, padded with zeros.
#[inline(always)]
fn be_word(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*chunk);
    }
    bytes.iter().enumerate().fold(0, |word, (i, byte)| word | u64::from(*byte) << (56 - 8 * i))
}

impl KeyKind for Text {
    type Key<'a> = &'a [u8];
    type Owned = Vec<u8>;
    type Probe = TextProbe;
    type Stored = [u64; 1];
    const WORDS: usize = 1;
    const OUT_OF_LINE: bool = true;

    fn key(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    /// # Panics
    ///
    /// If the key is longer than [`MAX_KEY_BYTES`].
    #[inline(always)]
    fn probe(key: &[u8]) -> TextProbe {
        assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes is too long", key.len());
        let mut words = [0; MAX_KEY_WORDS];
        for (word, bytes) in words.iter_mut().zip(key.chunks(8)) {
            *word = be_word(bytes);
        }
        TextProbe { bytes: key.len(), words }
    }

    #[inline(always)]
    fn compare<M: Mem>(mem: &M, entry: u64, probe: &TextProbe) -> Ordering {
        mem.compute(6);
        let block = mem.load_u64(entry);
        let bytes = mem.load_u64(block) as usize;
        for (i, wanted) in probe.words[..bytes.min(probe.bytes).div_ceil(8)].iter().enumerate() {
            match mem.load_u64(block + (i as u64 + 1) * WORD_BYTES).cmp(wanted) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        bytes.cmp(&probe.bytes)
    }

    fn compare_stored<M: Mem>(mem: &M, a: &[u64; 1], b: &[u64; 1]) -> Ordering {
        let (a_bytes, b_bytes) = (mem.load_u64(a[0]), mem.load_u64(b[0]));
        let words = a_bytes.min(b_bytes).div_ceil(8);
        let word = |block: u64, i: u64| mem.load_u64(block + (i + 1) * WORD_BYTES);
        let unequal = (0..words).map(|i| word(a[0], i).cmp(&word(b[0], i))).find(|o| o.is_ne());
        unequal.unwrap_or_else(|| a_bytes.cmp(&b_bytes))
    }

    fn place<M: Mem>(mem: &M, space: &mut Space, probe: &TextProbe, flush: bool) -> Option<[u64; 1]> {
        let block = space.take_block(probe.block_bytes())?;
        mem.store_u64(block, probe.bytes as u64);
        for (i, word) in probe.words().iter().enumerate() {
            mem.store_u64(block + (i as u64 + 1) * WORD_BYTES, *word);
        }
        if flush {
            mem.flush(block, probe.block_bytes());
        }
        Some([block])
    }

    fn copy<M: Mem>(mem: &M, space: &mut Space, key: &[u64; 1], flush: bool) -> Option<[u64; 1]> {
        let (from, bytes) = Text::block(mem, key)?;
        let to = space.take_block(bytes)?;
        for at in (0..bytes).step_by(WORD_BYTES as usize) {
            mem.store_u64(to + at, mem.load_u64(from + at));
        }
        if flush {
            mem.flush(to, bytes);
        }
        Some([to])
    }

    fn release<M: Mem>(mem: &M, space: &mut Space, key: &[u64; 1]) {
        if let Some((block, bytes)) = Text::block(mem, key) {
            space.give_block(block, bytes);
        }
    }

    fn block<M: Mem>(mem: &M, key: &[u64; 1]) -> Option<(u64, u64)> {
        let words = mem.load_u64(key[0]).div_ceil(8);
        Some((key[0], WORD_BYTES + words * WORD_BYTES))
    }

    fn owned<M: Mem>(mem: &M, key: &[u64; 1]) -> Vec<u8> {
        let bytes = mem.load_u64(key[0]) as usize;
        let words = 1..=bytes.div_ceil(8) as u64;
        let mut text: Vec<u8> =
            words.flat_map(|i| mem.load_u64(key[0] + i * WORD_BYTES).to_be_bytes()).collect();
        text.truncate(bytes);
        text
    }

    fn block_bytes(probe: &TextProbe) -> u64 {
        probe.block_bytes()
    }

    fn max_block_bytes() -> u64 {
        WORD_BYTES + MAX_KEY_WORDS as u64 * WORD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RealMem;
    use tembo_pmem::Region;

    fn ordered<T: Plain>(mut values: Vec<T>) {
        values.sort_unstable();
        for pair in values.windows(2) {
            assert!(pair[0].to_words().as_ref() < pair[1].to_words().as_ref(), "{pair:?}");
        }
        assert!(values.iter().all(|v| T::from_words(v.to_words()) == *v));
    }

    #[test]
    fn words_are_ordered_as_values_are() {
        ordered(vec![0, 1, u64::MAX, 1 << 63]);
        ordered(vec![0, 1, -1, i64::MIN, i64::MAX]);
        ordered(vec![0, 1, u128::MAX, 1 << 64, (1 << 64) - 1]);
        ordered(vec![[0; 24], [1; 24], std::array::from_fn(|i| i as u8)]);
    }

    #[test]
    fn byte_strings_compare_as_bytes() {
        let mem = RealMem::new(Region::simulated(&vec![0; 1 << 16], 1 << 16, None).unwrap());
        let mut space = Space::new(4096, 128, 1 << 16);
        let texts: [&[u8]; 9] =
            [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"\xff", &[0xFF; 255]];
        let stored = texts.map(|t| Text::place(&mem, &mut space, &Text::probe(t), false).unwrap());
        for (a, a_stored) in texts.iter().zip(&stored) {
            assert_eq!(Text::owned(&mem, a_stored), *a);
            for (b, b_stored) in texts.iter().zip(&stored) {
                assert_eq!(Text::compare_stored(&mem, a_stored, b_stored), a.cmp(b), "{a:?} {b:?}");
                mem.store_u64(0, a_stored[0]);
                assert_eq!(Text::compare(&mem, 0, &Text::probe(b)), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }
}
