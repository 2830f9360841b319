//! What a transaction is going to store: words, gathered by line, in the order in which lines were first written.

use tembo_pool::LineWrites;

/// Maps keys to values of a transaction: a few are searched one by one, more through an index.
#[derive(Debug)]
pub(crate) struct SmallMap<V> {
    entries: Vec<(u64, V)>,
    index: hashbrown::HashMap<u64, u32, foldhash::fast::FixedState>,
}

const SEARCH_MAX: usize = 12;

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        SmallMap { entries: Vec::new(), index: hashbrown::HashMap::default() }
    }
}

impl<V> SmallMap<V> {
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        if self.entries.len() <= SEARCH_MAX {
            return self.entries.iter().rposition(|(k, _)| *k == key);
        }
        self.index.get(&key).map(|i| *i as usize)
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.find(key).map(|i| &self.entries[i].1)
    }

    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, key: u64, value: impl FnOnce() -> V) -> &mut V {
        let at = self.find(key).unwrap_or_else(|| self.push(key, value()));
        &mut self.entries[at].1
    }

    #[inline]
    fn push(&mut self, key: u64, value: V) -> usize {
        let at = self.entries.len();
        self.entries.push((key, value));
        if at == SEARCH_MAX {
            self.index.extend(self.entries.iter().enumerate().map(|(i, (k, _))| (*k, i as u32)));
        } else if at > SEARCH_MAX {
            self.index.insert(key, at as u32);
        }
        at
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[(u64, V)] {
        &self.entries
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.entries.len() > SEARCH_MAX {
            self.index.clear();
        }
        self.entries.clear();
    }
}

/// The words that a transaction is going to store.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    lines: SmallMap<LineWrites>,
}

impl Writes {
    /// The word at `off`, if it is going to be stored.
    #[inline]
    pub(crate) fn get(&self, off: u64) -> Option<u64> {
        let line = self.lines.get(off / 64)?;
        let word = (off / 8 % 8) as usize;
        (line.mask >> word & 1 != 0).then(|| line.words[word])
    }

    #[inline]
    pub(crate) fn set(&mut self, off: u64, value: u64) {
        let line = self.lines.get_or_insert_with(off / 64, || LineWrites { mask: 0, words: [0; 8] });
        let word = (off / 8 % 8) as usize;
        line.mask |= 1 << word;
        line.words[word] = value;
    }

    /// All of them, by the offsets of their lines.
    #[inline]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, &LineWrites)> + '_ {
        self.lines.entries().iter().map(|(line, writes)| (line * 64, writes))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.lines.clear();
    }
}
