//! The contents of the modelled memory: words, zero until stored, in chunks that appear when needed.

/// Words of a chunk: 1 MiB.
const CHUNK_WORDS: usize = 1 << 17;
/// Words of a line.
const LINE_WORDS: usize = 8;

/// Words by index.
#[derive(Debug, Default)]
pub(super) struct Words {
    chunks: Vec<Option<Box<[u64]>>>,
}

impl Words {
    pub(super) fn get(&self, index: u64) -> u64 {
        let (chunk, at) = place(index);
        self.chunks.get(chunk).and_then(Option::as_ref).map_or(0, |words| words[at])
    }

    pub(super) fn set(&mut self, index: u64, value: u64) {
        let (chunk, at) = place(index);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| vec![0; CHUNK_WORDS].into_boxed_slice())[at] = value;
    }

    pub(super) fn line(&self, line: u64) -> [u64; LINE_WORDS] {
        let (chunk, at) = place(line * LINE_WORDS as u64);
        let mut words = [0; LINE_WORDS];
        if let Some(chunk) = self.chunks.get(chunk).and_then(Option::as_ref) {
            words.copy_from_slice(&chunk[at..at + LINE_WORDS]);
        }
        words
    }
}

fn place(index: u64) -> (usize, usize) {
    (index as usize / CHUNK_WORDS, index as usize % CHUNK_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_until_set_in_every_chunk() {
        let mut words = Words::default();
        let far = CHUNK_WORDS as u64 * 3 + 9;
        assert_eq!((words.get(far), words.line(far / 8)), (0, [0; 8]));
        words.set(far, 7);
        assert_eq!((words.get(far), words.get(far - 1), words.get(9)), (7, 0, 0));
        assert_eq!(words.line(far / 8), [0, 7, 0, 0, 0, 0, 0, 0]);
    }
}
