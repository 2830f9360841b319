//! Random elements.
//!
//! Positions are hashes, so the element behind a random position is a random one, but one behind a wide gap
//! is the more likely. So a draw takes any element of the leaf of the tree that a random position lies in:
//! an element's chance is in proportion to the mean of the leaf's gaps, and differs by some 20 percent. It
//! differs more in a leaf of few elements: one that an insertion at the end of a full leaf has just begun,
//! or one that has lost most. Such a leaf is not always taken. In thousands of sets no element was then four
//! times as likely as the mean; some are less than half as likely. Where another collection's element is
//! met, as at the ends of a collection, a walk steps over a random number of elements from that position on.
//! Where a walk through all elements is short, each is exactly as likely as the others.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::value::{Collection, CollectionBody};
use crate::fault::Answer;
use crate::keyspace::Keyspace;
use crate::keyspace::format::Kind;
use crate::random::Random;

/// A collection with so few elements is walked.
const WALKED_MAX: u64 = 128;
/// The most elements that a draw steps over.
const STEPS_MAX: u64 = 24;
/// The elements of a leaf with fewer are drawn as if it had this many.
const LEAF_COUNT_MIN: u64 = 4;

/// A field and its value.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

impl Keyspace<'_> {
    /// A random element, if there is any.
    pub(crate) fn draw_element(
        &mut self,
        collection: &Collection,
        random: &mut Random,
    ) -> Answer<Option<Element>> {
        let len = collection.len();
        if len == 0 {
            return Ok(None);
        }
        if collection.meta.kind == Kind::SortedSet {
            // Ranks make every member exactly as likely as the others.
            let members = self.members_from(collection, random.below(len), false, 1)?;
            return Ok(members.into_iter().next().map(|(member, score)| (member, score.to_bytes().to_vec())));
        }
        let (mut from, skip) = match len {
            ..=WALKED_MAX => (0, random.below(len)),
            _ => (random.next() as u32, random.below(STEPS_MAX)),
        };
        if let CollectionBody::Large { id, .. } = collection.body
            && collection.meta.kind != Kind::List
            && len > WALKED_MAX
        {
            let elements = self.elements(collection.database, collection.meta.kind)?;
            while let Some((element, leaf_count)) = elements.near(id, from, random.next())? {
                if random.below(LEAF_COUNT_MIN) < leaf_count.into() {
                    return Ok(Some(element));
                }
                from = random.next() as u32;
            }
        }
        let (found, passed) = self.element_behind(collection, from, skip)?;
        // The first element follows the last.
        match found {
            Some(element) => Ok(Some(element)),
            None => Ok(self.element_behind(collection, 0, skip.saturating_sub(passed))?.0),
        }
    }

    /// The element behind so many from a position on; and how many there were, if there is none.
    fn element_behind(
        &mut self,
        collection: &Collection,
        from: u32,
        skip: u64,
    ) -> Answer<(Option<Element>, u64)> {
        let (mut found, mut passed) = (None, 0);
        self.walk_elements(collection, from, |_, field, value| {
            if passed == skip {
                found = Some((field.to_vec(), value.to_vec()));
                return ControlFlow::Break(());
            }
            passed += 1;
            ControlFlow::Continue(())
        })?;
        Ok((found, passed))
    }

    /// Different random elements, this many, or all if there are no more.
    pub(crate) fn sample(
        &mut self,
        collection: &Collection,
        count: u64,
        random: &mut Random,
    ) -> Answer<Vec<Element>> {
        let len = collection.len();
        if len > WALKED_MAX && count.saturating_mul(4) < len {
            return self.sample_by_draws(collection, count, random);
        }
        // Each element is taken with the chance that leaves as many for the rest as are wanted.
        let (mut wanted, mut left, mut sample) = (count.min(len), len, Vec::new());
        self.walk_elements(collection, 0, |_, field, value| {
            if wanted > 0 && random.below(left.max(1)) < wanted {
                sample.push((field.to_vec(), value.to_vec()));
                wanted -= 1;
            }
            left = left.saturating_sub(1);
            if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(sample)
    }

    fn sample_by_draws(
        &mut self,
        collection: &Collection,
        count: u64,
        random: &mut Random,
    ) -> Answer<Vec<Element>> {
        let (mut seen, mut sample) = (HashSet::new(), Vec::new());
        while (sample.len() as u64) < count {
            let Some((field, value)) = self.draw_element(collection, random)? else {
                break;
            };
            if seen.insert(field.clone()) {
                sample.push((field, value));
            }
        }
        Ok(sample)
    }
}
