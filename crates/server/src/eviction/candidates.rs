//! The keys that may go next.
//!
//! Cursors that are spread over the keyspace go through it in the order of the keys, a few keys at a time. In
//! this way, keys that a random draw seldom reaches are visited nearly as often as others. Neighbours, which
//! are often used alike, alternate with keys from elsewhere. The best candidates are kept, so that an
//! eviction chooses from many more keys than it visits (Redis does the same with keys that it draws).

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};

use super::candidate::Candidate;
use super::policy::Policy;
use crate::fault::Answer;
use crate::keyspace::Keyspace;
use crate::keyspace::format::DATABASES;
use crate::random::Random;

/// Cursors of a database.
const CURSORS: usize = 64;
/// After this many steps, on average, a cursor begins elsewhere, as it does where it finds nothing new.
/// Without that they would meet in the end: where many neighbours were evicted, all cursors that stood there
/// go on from the next key. Half of them do so often, so that keys are seen that were added where no cursor
/// is; the others come to keys that are seldom drawn.
const LOOKS_PER_DRAW: [u64; 2] = [4, 256];
/// Most keys that are kept.
const KEPT_MAX: usize = 64;
/// The number of picks without a result after which an eviction ends.
const TRIES_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Candidates {
    /// The best last.
    kept: Vec<Candidate>,
    /// The keys of the eviction under way: they still exist, and are not to be found again.
    chosen: HashSet<(usize, Vec<u8>)>,
    /// For each database the keys at which its cursors stand.
    cursors: [Vec<Vec<u8>>; DATABASES],
    next: usize,
    /// How many keys of each database may go, when the eviction began.
    counts: [u64; DATABASES],
}

impl Candidates {
    pub(crate) fn new() -> Candidates {
        let cursors = [const { Vec::new() }; DATABASES];
        Candidates { kept: Vec::new(), chosen: HashSet::new(), cursors, next: 0, counts: [0; DATABASES] }
    }

    /// Begins an eviction, without the candidates of the eviction before it.
    pub(crate) fn begin(&mut self, keys: &Keyspace<'_>, policy: Policy) -> Answer {
        self.chosen.clear();
        if policy == Policy::VolatileTtl {
            self.kept.clear();
        }
        for (database, count) in self.counts.iter_mut().enumerate() {
            *count = keys.evictable(database, policy.is_volatile())?;
        }
        Ok(())
    }

    /// The next key to go, if there is any. It is still there, and not named again in this eviction. There
    /// may be no batch.
    pub(crate) fn pick(
        &mut self,
        keys: &Keyspace<'_>,
        random: &mut Random,
        (policy, samples): (Policy, usize),
    ) -> Answer<Option<Candidate>> {
        let is_volatile = policy.is_volatile();
        for _ in 0..TRIES_MAX {
            let picked = match policy {
                Policy::NoEviction => return Ok(None),
                Policy::VolatileTtl => self.first_deadline(keys)?,
                _ => self.best(keys, random, is_volatile, samples)?,
            };
            let Some(mut candidate) = picked else {
                return Ok(None);
            };
            let name = (candidate.database, candidate.key.clone());
            // Since it was seen, it may have been removed, or have lost its deadline.
            let bytes = keys.evictable_bytes(candidate.database, &candidate.key, is_volatile)?;
            if let Some(bytes) = bytes.filter(|_| self.chosen.insert(name)) {
                candidate.value_bytes = bytes;
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    fn first_deadline(&mut self, keys: &Keyspace<'_>) -> Answer<Option<Candidate>> {
        if self.kept.is_empty() {
            let most = KEPT_MAX + self.chosen.len();
            for database in 0..DATABASES {
                let mut left = most;
                keys.visit_evictable(database, true, Bound::Unbounded, |place, key| {
                    // The place begins with the deadline.
                    let deadline = place.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                    self.keep(database, key, u64::MAX - deadline);
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
        }
        Ok(self.kept.pop())
    }

    fn best(
        &mut self,
        keys: &Keyspace<'_>,
        random: &mut Random,
        is_volatile: bool,
        samples: usize,
    ) -> Answer<Option<Candidate>> {
        let Some(database) = self.draw_database(random) else {
            return Ok(None);
        };
        // Another cursor may have seen the same keys.
        for tries in 0..TRIES_MAX {
            self.look(keys, random, (database, is_volatile), samples, tries > 0)?;
            if !self.kept.is_empty() {
                break;
            }
        }
        while let Some(best) = self.kept.pop() {
            // With a policy of random draws, a key keeps the rank that it drew.
            let rank = keys.use_rank(best.database, &best.key).unwrap_or(best.rank);
            if rank >= best.rank || self.kept.last().is_none_or(|next| rank >= next.rank) {
                return Ok(Some(best));
            }
            // The key was used after it became a candidate.
            self.keep(best.database, &best.key, rank);
        }
        Ok(None)
    }

    /// Goes on from the next cursor of a database, or from another place.
    fn look(
        &mut self,
        keys: &Keyspace<'_>,
        random: &mut Random,
        (database, is_volatile): (usize, bool),
        samples: usize,
        is_elsewhere: bool,
    ) -> Answer {
        let number = self.next % CURSORS;
        self.next += 1;
        let cursors = &mut self.cursors[database];
        if cursors.len() <= number {
            cursors.resize_with(number + 1, Vec::new);
        }
        let mut from = std::mem::take(&mut cursors[number]);
        let is_due = random.below(LOOKS_PER_DRAW[number % 2]) == 0;
        let is_drawn = from.is_empty() || is_elsewhere || is_due;
        if is_drawn {
            from = keys.draw_place(database, is_volatile, random)?.unwrap_or_default();
        }
        let mut left = samples;
        // At the end of the keys it continues at their beginning, once.
        for _ in 0..2 {
            let begin = match &from[..] {
                [] => Bound::Unbounded,
                from if is_drawn => Bound::Included(from),
                from => Bound::Excluded(from),
            };
            let mut last = Vec::new();
            keys.visit_evictable(database, is_volatile, begin, |place, key| {
                let rank = keys.use_rank(database, key).unwrap_or_else(|| random.next());
                self.keep(database, key, rank);
                left -= 1;
                if left > 0 {
                    return ControlFlow::Continue(());
                }
                last.extend_from_slice(place);
                ControlFlow::Break(())
            })?;
            from = last;
            if left == 0 {
                break;
            }
        }
        self.cursors[database][number] = from;
        Ok(())
    }

    /// Keeps a key among the others, if it is better than the worst of them or there is room.
    fn keep(&mut self, database: usize, key: &[u8], rank: u64) {
        let at = self.kept.partition_point(|kept| kept.rank <= rank);
        if at == 0 && self.kept.len() == KEPT_MAX {
            return;
        }
        let is_there = |kept: &Candidate| kept.database == database && kept.key == key;
        let candidate = Candidate { database, key: key.to_vec(), rank, value_bytes: 0 };
        if self.kept.iter().any(is_there) || self.chosen.contains(&(database, candidate.key.clone())) {
            return;
        }
        self.kept.insert(at, candidate);
        if self.kept.len() > KEPT_MAX {
            self.kept.remove(0);
        }
    }

    /// Draws a database by its share of the keys that may go.
    fn draw_database(&self, random: &mut Random) -> Option<usize> {
        let sum: u64 = self.counts.iter().sum();
        if sum == 0 {
            return None;
        }
        let mut place = random.below(sum);
        self.counts.iter().position(|count| {
            let is_here = place < *count;
            place = place.wrapping_sub(*count);
            is_here
        })
    }
}
