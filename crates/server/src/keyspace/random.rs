//! A random key of an ordered map that does not count its subtrees.
//!
//! The walk descends in the tree of prefixes that the keys form: at each branch it draws one of the bytes
//! between the lowest and the highest that occur there. Keys of one length made of digits, the usual kind,
//! are drawn evenly. In general, a key with fewer neighbours is more likely; an even choice would need counts
//! in the tree.

use std::ops::{Bound, ControlFlow};

use super::Keyspace;
use super::format::Stored;
use crate::fault::Answer;
use crate::random::Random;
use tembo::Map;

/// The most branches of a walk. After these it takes the lowest key with the prefix that it has reached.
const BRANCHES_MAX: usize = 64;
/// The most draws. If all yield expired keys, the next live key in order is taken instead.
const DRAWS_MAX: usize = 32;

impl Keyspace<'_> {
    /// A random key that has not expired, if there is any.
    pub(crate) fn random_key(&self, database: usize, random: &mut Random) -> Answer<Option<Vec<u8>>> {
        self.expect_committed()?;
        let Some(maps) = self.databases[database].as_deref() else {
            return Ok(None);
        };
        let mut begin = Bound::Unbounded;
        for _ in 0..DRAWS_MAX {
            let Some((key, value)) = draw(&maps.data, random)? else {
                break;
            };
            if !self.has_noted(database) && self.live_kind(&Stored::decode(&value)?).is_some() {
                return Ok(Some(self.layout.key(&key).to_vec()));
            }
            begin = Bound::Included(key);
        }
        // The next live key from where the last draw came to, or else from the beginning.
        let next = self.first_live(database, begin.as_ref().map(|key| &key[..]))?;
        if next.is_some() { Ok(next) } else { self.first_live(database, Bound::Unbounded) }
    }

    fn first_live(&self, database: usize, begin: Bound<&[u8]>) -> Answer<Option<Vec<u8>>> {
        let mut found = None;
        self.walk(database, begin, |key, kind| {
            if kind.is_some() {
                found = Some(self.layout.key(key).to_vec());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// The key of a draw, and its value.
pub(super) fn draw(map: &Map, random: &mut Random) -> Answer<Option<(Vec<u8>, Vec<u8>)>> {
    let mut prefix = Vec::new();
    for branch in 0.. {
        let Some(lowest) = map.prefix(&prefix).next().transpose()? else {
            return Ok(None);
        };
        let highest = map.prefix(&prefix).next_back().transpose()?;
        let highest = highest.as_ref().map_or(lowest.key(), |entry| entry.key());
        let low = lowest.key();
        let common = low.iter().zip(highest).take_while(|(a, b)| a == b).count();
        if common == highest.len() || branch == BRANCHES_MAX {
            return Ok(Some((low.to_vec(), lowest.value().to_vec())));
        }
        prefix.clear();
        prefix.extend_from_slice(&low[..common]);
        let ends_here = common == low.len();
        let first = low.get(common).copied().unwrap_or(0);
        let choices = u64::from(highest[common] - first) + 1;
        let choice = random.below(choices + u64::from(ends_here));
        if choice == choices {
            return Ok(Some((low.to_vec(), lowest.value().to_vec())));
        }
        prefix.push(first + choice as u8);
        // If the drawn byte does not occur, the next one that occurs is taken.
        if let Some(next) = map.range(&prefix[..]..).next().transpose()? {
            prefix[common] = next.key().get(common).copied().unwrap_or(first);
        }
    }
    Ok(None)
}
