//! The rest that is to be collected: keys that commits noted, walks, keyspaces that were dropped.

use crate::active::{Active, Asked};
use crate::error::Result;
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::layout::field;
use crate::retention::Retention;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tembo_pmem::Region;

/// Tables that one record of a collection is about, so that it fits into its lane.
pub(crate) const COLLECTED_PER_RECORD: usize = 32;

/// After so many keys that were noted, a commit collects.
const NOTED_PER_COLLECTION: usize = COLLECTED_PER_RECORD / 2;

/// The walk that looks for what time has passed over begins anew after this part of the shortest time that a
/// keyspace retains.
const WALKS_PER_WINDOW: u32 = 4;

/// The rest that is to be collected.
#[derive(Default)]
pub(crate) struct Left {
    /// Nearly in the order of the numbers.
    pub(crate) garbage: VecDeque<Garbage>,
    /// The length of `garbage` from which on a commit collects.
    due_at: usize,
    pub(crate) walks: Walks,
    /// Whether the space of dropped keyspaces may still have to come back.
    pub(crate) has_dropped: bool,
}

/// A key that has versions which are needed for now, or a tombstone.
pub(crate) struct Garbage {
    /// The commit that left them.
    pub(crate) number: u64,
    pub(crate) keyspace: Arc<KeyspaceInner>,
    pub(crate) key: Box<[u8]>,
}

impl Left {
    /// The rest that an earlier process may have left in the store at `off`; its last commit has the number
    /// `last`.
    pub(crate) fn by_earlier(region: &Region, off: u64, last: u64) -> Result<Left> {
        let has_dropped = region.load_u64(off + field!(PmStore.dropped))? != 0;
        let mut left = Left { has_dropped, ..Left::default() };
        if last != 0 {
            left.walks.begin(last);
        }
        Ok(left)
    }

    /// Whether the next commit is to collect.
    pub(crate) fn is_due(&self) -> bool {
        self.garbage.len() > self.due_at
    }

    /// Takes keys off the queue that were collected.
    pub(crate) fn take_off(&mut self, collected: usize) {
        self.garbage.drain(..collected);
        self.due_at = self.garbage.len() + NOTED_PER_COLLECTION;
    }

    /// Whether there is something for a [`step`](Self::step) to do, or soon will be.
    pub(crate) fn has_step(&self) -> bool {
        self.has_dropped || self.walks.is_under_way()
    }
}

/// The walk that is under way, and those that are to come.
#[derive(Default)]
pub(crate) struct Walks {
    walk: Option<Walk>,
    /// Another walk is to come for this number, when all open snapshots below it are closed.
    after: Option<u64>,
    /// The shortest time that a keyspace retains.
    window: Option<Duration>,
    /// When the last walk began.
    last: Option<Instant>,
}

/// The last key that was looked at, by the name of its keyspace.
#[derive(Clone)]
pub(crate) struct Walk {
    /// The number that was current when there came to be a reason. 0: time has passed.
    pub(crate) since: u64,
    pub(crate) keyspace: String,
    pub(crate) key: Option<Vec<u8>>,
    /// Whether an open snapshot below `since` may hold what was found.
    pub(crate) is_held: bool,
}

impl Walk {
    fn new(since: u64) -> Walk {
        Walk { since, keyspace: String::new(), key: None, is_held: false }
    }

    /// Whether it has looked at nothing yet.
    pub(crate) fn is_at_start(&self) -> bool {
        self.key.is_none() && self.keyspace.is_empty()
    }

    /// Whether it looks at a keyspace.
    pub(crate) fn has(&self, keyspace: &Keyspace) -> bool {
        self.since != 0 || matches!(keyspace.retention(), Retention::For(_))
    }
}

impl Walks {
    /// Has all tables looked at: from snapshot `since` on, less is needed than before.
    pub(crate) fn begin(&mut self, since: u64) {
        // One that is held back is for an older number, and this one comes to it, too.
        self.after = None;
        self.walk = Some(Walk::new(since.max(1)));
    }

    /// Begins the first walk of this process, unless there was one: who collects looks at everything once.
    pub(crate) fn begin_first(&mut self, active: &Active) {
        if self.last.is_none() && self.walk.is_none() {
            self.begin(active.current_alone());
        }
    }

    /// Notes that a keyspace retains versions for a time.
    pub(crate) fn note_window(&mut self, time: Duration) {
        self.window = Some(self.window.map_or(time, |window| window.min(time)));
        self.last.get_or_insert_with(Instant::now);
    }

    /// The walk that is under way; begins one if there is a reason.
    pub(crate) fn under_way(&mut self, needed: &Asked<'_>) -> Option<Walk> {
        if self.walk.is_none() {
            if let Some(since) = self.after.take_if(|since| needed.needed().first_read() >= *since) {
                self.walk = Some(Walk::new(since));
            } else if self.next_window().is_some_and(|at| at <= Instant::now()) {
                self.walk = Some(Walk::new(0));
            }
        }
        self.walk.clone()
    }

    /// Notes that a walk begins now, and the shortest time that a keyspace retains.
    pub(crate) fn note_start(&mut self, window: Option<Duration>) {
        self.window = window;
        self.last = Some(Instant::now());
    }

    /// Notes how far the walk has come.
    pub(crate) fn move_to(&mut self, at: Walk, is_at_end: bool) {
        if is_at_end && at.is_held {
            self.after = Some(at.since);
        }
        self.walk = (!is_at_end).then_some(at);
    }

    /// Whether a step has something to look at.
    pub(crate) fn is_under_way(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether a walk waits until snapshots are closed.
    pub(crate) fn is_held_back(&self) -> bool {
        self.after.is_some()
    }

    /// When the next walk for what time passes over is to begin.
    pub(crate) fn next_window(&self) -> Option<Instant> {
        let pause = (self.window? / WALKS_PER_WINDOW).max(Duration::from_millis(1));
        self.last?.checked_add(pause)
    }
}
