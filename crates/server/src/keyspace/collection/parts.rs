//! How a command commits parts of a large collection.

use tembo::Savepoint;

/// Words of a part: half a megabyte of record.
const PART_WORDS: usize = 1 << 16;

const REMOVED_IN_PLACE: u64 = 1 << 13;

const CHUNKS_IN_PLACE: u64 = 1 << 14;

/// How the command under way may commit parts.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Words of a part.
    pub(crate) words_max: usize,
    /// Elements that are removed from a large collection in place, whatever is left of it.
    pub(crate) removed_in_place: u64,
    /// Chunks that a list loses in place.
    pub(crate) chunks_in_place: u64,
    /// The batch had no changes when the command began.
    pub(super) is_first: bool,
    /// A part may take changes of others with it.
    pub(super) takes_others: bool,
    /// Nothing may be committed before the command under way is done.
    pub(super) in_one_batch: bool,
    /// The undo point of the command since its last part.
    pub(super) resumed: Option<Savepoint>,
    /// The last command that failed had committed parts.
    pub(super) gave_up: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            words_max: PART_WORDS,
            removed_in_place: REMOVED_IN_PLACE,
            chunks_in_place: CHUNKS_IN_PLACE,
            is_first: false,
            takes_others: false,
            // Until there is an executor, which runs commands again.
            in_one_batch: true,
            resumed: None,
            gave_up: false,
        }
    }
}

impl Parts {
    /// Whether nothing may be committed in the middle of a command.
    pub(in crate::keyspace) fn is_in_one_batch(&self) -> bool {
        self.in_one_batch
    }

    #[inline(always)]
    pub(in crate::keyspace) fn begin(&mut self, is_first: bool) {
        self.is_first = is_first;
        self.resumed = None;
    }

    /// The savepoint to which a command that began at `begin` rolls back.
    pub(in crate::keyspace) fn undo_point(&mut self, begin: Savepoint) -> Savepoint {
        self.gave_up = self.resumed.is_some();
        self.resumed.take().unwrap_or(begin)
    }
}

/// Whether a collection is committed in parts before a key has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Construction {
    /// It is not.
    None,
    /// It may be.
    InParts,
    /// It is, and its id is listed as under construction.
    Listed,
}
