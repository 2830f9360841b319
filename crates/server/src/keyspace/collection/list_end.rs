//! The end of a list in memory, between two commands of one batch.
//!
//! A push or a pop at an end writes the chunk there and the key's value anew. Where one follows another at
//! the same end of the same list, as in a pipeline that fills a queue, only the last ones matter. A command
//! that has pushed or popped therefore leaves the chunk here, the commands that follow change it in memory,
//! and the batch gets it before the commit, or before any other command runs.
//!
//! # Invariants
//!
//! - E1: an end that is kept is that of the list as the batch has it, but for changes since, if it is
//!   *changed* (`is_changed`). It is dropped with the batch, and when something is taken back.
//! - E2: no command but those of this module runs while an end is changed, and none commits: they come after
//!   [`Keyspace::store_end`].
//! - E3: a change here cannot fail. It needs no other chunk, and leaves neither the chunk nor the list empty.
//!   The list has no deadline.
//!
//! If there is no room for an end when it is stored, the commit fails, like any other in a full pool: all
//! commands of the batch are answered so, and nothing of them has happened. An end that has lost elements may
//! take of the space that is kept for removals.

use super::list::Chunk;
use super::value::{Collection, CollectionBody};

/// An end of a list.
#[derive(Debug)]
pub(crate) struct ListEnd {
    pub(in crate::keyspace) key: Vec<u8>,
    pub(in crate::keyspace) left: bool,
    pub(in crate::keyspace) list: Collection,
    pub(in crate::keyspace) chunk: Chunk,
    /// Where each item of the chunk begins, for pops at the right end; empty until it is needed.
    pub(super) starts: Vec<usize>,
    pub(in crate::keyspace) is_changed: bool,
    /// How many elements the list had as the batch has it.
    pub(in crate::keyspace) count_before: u64,
}

impl ListEnd {
    pub(in crate::keyspace) fn count(&mut self) -> Option<(u64, &mut u64)> {
        match &mut self.list.body {
            CollectionBody::Large { id, count } => Some((*id, count)),
            CollectionBody::Packed(_) => None,
        }
    }

    pub(in crate::keyspace) fn is_of(&self, database: usize, key: &[u8], left: bool) -> bool {
        self.left == left && self.list.database == database && self.key == key
    }

    /// Pushes an element, if there is room in the chunk; returns how many the list has.
    pub(in crate::keyspace) fn push(&mut self, element: &[u8]) -> Option<u64> {
        if !self.chunk.takes(element) {
            return None;
        }
        let items = &mut self.chunk.items;
        if self.left {
            items.insert(0, element);
        } else {
            if !self.starts.is_empty() {
                self.starts.push(items.as_bytes().len());
            }
            items.insert(items.count(), element);
        }
        self.is_changed = true;
        let (_, count) = self.count()?;
        *count += 1;
        Some(*count)
    }

    /// Pops an element, if another one is left in the chunk, and gives it to `visit`.
    pub(in crate::keyspace) fn pop(&mut self, visit: impl FnOnce(&[u8])) -> Option<()> {
        let items = &mut self.chunk.items;
        if items.count() < 2 {
            return None;
        }
        if self.left {
            visit(items.nth(0)?);
            items.cut(0..1);
        } else {
            if self.starts.is_empty() {
                self.starts = items.starts();
            }
            items.cut_last(self.starts.pop()?, visit);
        }
        self.is_changed = true;
        let (_, count) = self.count()?;
        *count = count.saturating_sub(1);
        Some(())
    }
}
