//! Sorted sets: scores, and the records of "db.ordered", by which the members of large sorted sets are found
//! in order, and their ranks.
//!
//! # Media layout
//!
//! ```text
//!   score    = 8 bytes, big-endian: the bits of the double, with the highest one set; or all bits flipped,
//!              if it is negative. Never NaN, and -0 is 0.
//!   key      = id_be score member                        a member of up to FIELD_BYTES_MAX bytes
//!            | id_be score head digest                   a longer one: its first FIELD_BYTES_MAX bytes, 16 bytes
//!                                                        of a hash of all of it
//!   content  = rest                                      of a long member: the bytes after its head
//!
//!   short    = 1 to 7 bytes, the first of the double, big-endian, where all others are 0
//!   value    = short | score                             of a member in "db.elements": the shorter one
//! ```
//!
//! Bytes of scores are in the order of scores, so that the map is in the order of scores and then of members.
//! It counts its records: ranks, and members by their ranks, take O(log n). A member is in one record here
//! and in one of "db.elements", whose value is the score; both are changed in one batch. Whole numbers up to
//! 2^21 take at most 4 bytes there: then the two records of a member have blocks of one size more often,
//! which are neighbours. Values of 8 bytes that have a short form are those of earlier versions.
//!
//! Long members with one score and one head are in the order of their digests, and not of their rests. A
//! member whose head, digest and score are those of another is refused; no two are known.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use tembo::Map;

use super::keys::Keys;
use super::position::{FIELD_BYTES_MAX, Secret, id_range};
use crate::fault::{Answer, Fault};
use crate::keyspace::batch::Batch;
use crate::keyspace::format::Malformed;

const ID_BYTES: usize = 8;
const DIGEST_BYTES: usize = 16;
const PREFIX_BYTES: usize = ID_BYTES + Score::BYTES;
const LONG_KEY_BYTES: usize = PREFIX_BYTES + FIELD_BYTES_MAX + DIGEST_BYTES;
const SIGN: u64 = 1 << 63;

const TOO_MANY_ALIKE: Fault = Fault::Error("ERR too many long members have the same digest");

/// A score, which is compared as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score(u64);

impl Score {
    const BYTES: usize = 8;

    /// A number that is not NaN; NaN is taken for 0.
    pub(crate) fn new(number: f64) -> Self {
        let bits = if number == 0.0 || number.is_nan() { 0 } else { number.to_bits() };
        Score(if bits & SIGN == 0 { bits | SIGN } else { !bits })
    }

    pub(crate) fn number(self) -> f64 {
        f64::from_bits(if self.0 & SIGN == 0 { !self.0 } else { self.0 ^ SIGN })
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }

    /// The value of an element: the short form if there is one, and the whole score else.
    pub(super) fn to_value(self) -> ScoreValue {
        let double = self.number().to_bits();
        let len = (Self::BYTES - double.trailing_zeros() as usize / 8).max(1);
        let bytes = if len < Self::BYTES { double.to_be_bytes() } else { self.to_bytes() };
        ScoreValue { bytes, len }
    }

    /// The score of a key, or of an element's value.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let score = match bytes.try_into() {
            Ok(bytes) => Score(u64::from_be_bytes(bytes)),
            Err(_) if !(1..Self::BYTES).contains(&bytes.len()) => return Err(Malformed),
            Err(_) if bytes.len() > 1 && bytes.last() == Some(&0) => return Err(Malformed),
            Err(_) => {
                let mut double = [0; Self::BYTES];
                double[..bytes.len()].copy_from_slice(bytes);
                let number = f64::from_be_bytes(double);
                let score = Score::new(number);
                if score.number().to_bits() != number.to_bits() {
                    return Err(Malformed);
                }
                score
            }
        };
        if score == Score::new(score.number()) { Ok(score) } else { Err(Malformed) }
    }
}

/// A score as the value of an element.
pub(super) struct ScoreValue {
    bytes: [u8; Score::BYTES],
    len: usize,
}

impl ScoreValue {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for ScoreValue {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A place between members, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut<'a> {
    /// Before all.
    First,
    /// Behind all.
    Last,
    /// Before all members of this score, or behind them.
    Score { score: Score, behind: bool },
    /// Before this member of this score, or behind it. There need not be such a member.
    Member { score: Score, member: &'a [u8], behind: bool },
}

impl Cut<'_> {
    /// Whether a member precedes.
    pub(super) fn is_behind(self, its: Score, field: &[u8]) -> bool {
        let before = |order: Ordering, behind| order == Ordering::Less || order == Ordering::Equal && behind;
        match self {
            Cut::First => false,
            Cut::Last => true,
            Cut::Score { score, behind } => before(its.cmp(&score), behind),
            Cut::Member { score, member, behind } => before((its, field).cmp(&(score, member)), behind),
        }
    }

    /// The first key that may be of a member behind this place.
    fn key(self, id: u64, secret: Secret) -> Vec<u8> {
        match self {
            Cut::First => id.to_be_bytes().to_vec(),
            Cut::Last => (id + 1).to_be_bytes().to_vec(),
            // No score has the highest number.
            Cut::Score { score, behind } => begin(id, Score(score.0 + u64::from(behind))),
            Cut::Member { score, member, behind } => {
                let mut key = key(id, score, member, secret);
                if behind {
                    key.push(0);
                }
                key
            }
        }
    }
}

fn begin(id: u64, score: Score) -> Vec<u8> {
    [id.to_be_bytes(), score.to_bytes()].concat()
}

fn key(id: u64, score: Score, member: &[u8], secret: Secret) -> Vec<u8> {
    let mut key = begin(id, score);
    match member.split_at_checked(FIELD_BYTES_MAX) {
        Some((head, [_, ..])) => {
            key.extend_from_slice(head);
            key.extend_from_slice(&secret.digest(member));
        }
        _ => key.extend_from_slice(member),
    }
    key
}

/// A record as it is read back.
pub(crate) struct Decoded<'a> {
    pub(crate) id: u64,
    pub(crate) score: Score,
    head: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Decoded<'a> {
    pub(crate) fn read(key: &'a [u8], content: &'a [u8]) -> Result<Self, Malformed> {
        let (id, tail) = key.split_first_chunk().ok_or(Malformed)?;
        let (score, head) = tail.split_at_checked(Score::BYTES).ok_or(Malformed)?;
        let (id, score) = (u64::from_be_bytes(*id), Score::read(score)?);
        if head.len() <= FIELD_BYTES_MAX && content.is_empty() {
            return Ok(Decoded { id, score, head, rest: &[] });
        }
        if key.len() != LONG_KEY_BYTES || content.is_empty() {
            return Err(Malformed);
        }
        Ok(Decoded { id, score, head: &head[..FIELD_BYTES_MAX], rest: content })
    }

    /// Whether this is the place of a member, its own.
    pub(crate) fn is_placed(&self, its_key: &[u8], member: &[u8], secret: Secret) -> bool {
        key(self.id, self.score, member, secret) == its_key
    }

    /// Gives the whole member to `visit`.
    pub(crate) fn with_member<T>(&self, visit: impl FnOnce(&[u8]) -> T) -> T {
        if self.rest.is_empty() { visit(self.head) } else { visit(&[self.head, self.rest].concat()) }
    }
}

/// Puts the record of a member that has none of this score.
pub(super) fn put(
    batch: &mut Batch<'_>,
    map: &Map,
    secret: Secret,
    (id, score, member): (u64, Score, &[u8]),
) -> Answer {
    let key = key(id, score, member, secret);
    let rest = member.get(FIELD_BYTES_MAX..).unwrap_or(&[]);
    if !rest.is_empty() && batch.get(map, &key)?.is_some() {
        return Err(TOO_MANY_ALIKE);
    }
    batch.put(map, &key, rest)?;
    Ok(())
}

/// A change of the record that a short member has, or had, by a score.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change<'e> {
    pub(super) score: Score,
    pub(super) member: &'e [u8],
    /// Changes of one record have ascending numbers.
    pub(super) number: usize,
    pub(super) is_there: bool,
}

/// Makes many changes. Of those of one record, the last one counts.
pub(super) fn change_many(
    batch: &mut Batch<'_>,
    map: &Map,
    (id, secret): (u64, Secret),
    changes: &mut Vec<Change<'_>>,
) -> Answer {
    changes.sort_unstable();
    changes.dedup_by(|next, kept| {
        let is_same = (next.score, next.member) == (kept.score, kept.member);
        if is_same {
            *kept = *next;
        }
        is_same
    });
    let mut keys = Keys::default();
    for &Change { score, member, is_there, .. } in &*changes {
        if is_there {
            keys.push([&id.to_be_bytes()[..], &score.to_bytes(), member]);
        } else {
            remove(batch, map, secret, (id, score, member))?;
        }
    }
    Ok(batch.put_many(map, keys.iter(), |_, _| Some([]))?)
}

pub(super) fn remove(
    batch: &mut Batch<'_>,
    map: &Map,
    secret: Secret,
    (id, score, member): (u64, Score, &[u8]),
) -> Answer {
    batch.remove(map, &key(id, score, member, secret))?;
    Ok(())
}

/// The members of a large sorted set in order, as a batch sees them.
pub(super) struct Ordered<'a, 'p> {
    pub(super) batch: &'a Batch<'p>,
    pub(super) map: &'a Map,
    pub(super) secret: Secret,
    pub(super) id: u64,
}

impl Ordered<'_, '_> {
    fn first_rank(&self) -> Answer<u64> {
        Ok(self.batch.rank(self.map, &self.id.to_be_bytes())?)
    }

    /// How many members there are.
    pub(super) fn len(&self) -> Answer<u64> {
        Ok(self.batch.count(self.map, id_range(self.id))?)
    }

    /// How many members come before a place.
    pub(super) fn rank(&self, cut: Cut<'_>) -> Answer<u64> {
        let rank = self.batch.rank(self.map, &cut.key(self.id, self.secret))?;
        Ok(rank.saturating_sub(self.first_rank()?))
    }

    /// Gives the members from a rank on, upwards or downwards, to `visit`, until it breaks. Upwards there are
    /// none behind the last, downwards it begins with that.
    pub(super) fn walk(
        &self,
        from: u64,
        downwards: bool,
        mut visit: impl FnMut(&[u8], Score) -> ControlFlow<()>,
    ) -> Answer {
        let (begin, end) = (self.id.to_be_bytes(), (self.id + 1).to_be_bytes());
        let first = self.batch.nth(self.map, self.first_rank()?.saturating_add(from))?;
        // Behind the last member comes another collection's.
        let first = first.filter(|first| first.key.starts_with(&begin));
        let mut malformed = false;
        let mut visit = |key: &[u8], content: &[u8]| match Decoded::read(key, content) {
            Ok(record) => record.with_member(|member| visit(member, record.score)),
            Err(Malformed) => {
                malformed = true;
                ControlFlow::Break(())
            }
        };
        // The first is visited without a walk, which sorts a leaf: many callers take one member.
        let goes_on = first.as_ref().is_none_or(|first| visit(first.key, first.value).is_continue());
        if goes_on && downwards {
            let rest = first.map_or(end.to_vec(), |first| first.key.to_vec());
            self.batch.walk_back(self.map, begin.to_vec()..rest, visit)?;
        } else if goes_on && let Some(first) = first {
            let rest = (Bound::Excluded(first.key.to_vec()), Bound::Excluded(end.to_vec()));
            self.batch.walk(self.map, rest, visit)?;
        }
        if malformed { Err(Fault::Malformed) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_scores_are_in_the_order_of_scores() {
        let numbers = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -1.0,
            -5e-324,
            0.0,
            5e-324,
            0.1,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in numbers.windows(2) {
            assert!(Score::new(pair[0]).to_bytes() < Score::new(pair[1]).to_bytes(), "{pair:?}");
        }
        for number in numbers {
            let bytes = Score::new(number).to_bytes();
            assert_eq!(Score::read(&bytes).map(Score::number), Ok(number));
            assert_eq!(Score::read(Score::new(number).to_value().as_bytes()), Ok(Score::new(number)));
        }
        assert_eq!(Score::new(-0.0), Score::new(0.0));
        for bytes in [!SIGN, u64::MAX, 0, f64::NAN.to_bits() | SIGN] {
            assert_eq!(Score::read(&bytes.to_be_bytes()), Err(Malformed), "{bytes:#x}");
        }
        assert_eq!(Score::read(b"too long a"), Err(Malformed));
    }

    #[test]
    fn the_values_of_whole_numbers_are_short() {
        let len = |number: f64| Score::new(number).to_value().as_bytes().len();
        let numbers = [0.0, 1.0, -1.0, 1000.0, 1_048_575.0, 4_294_967_295.0, 0.1, f64::NEG_INFINITY];
        assert_eq!(numbers.map(len), [1, 2, 2, 3, 4, 6, 8, 2]);
        // NaN, -0, zeros that do not belong there, and nothing.
        for bytes in [&[0x7F, 0xF8][..], &[0x80], &[0x3F, 0xF0, 0], &[0, 0], &[]] {
            assert_eq!(Score::read(bytes), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn keys_of_members_are_in_the_order_of_members_up_to_the_limit() {
        let secret = Secret::from_bytes([7; 16]);
        let members = [&[b'a'; 511][..], &[b'a'; 512], &[b'a'; 513], &[b'b'; 600], &[b'c'; 1]];
        let keys = members.map(|member| key(1, Score::new(2.0), member, secret));
        assert!(keys.is_sorted());
        for (key, member) in keys.iter().zip(members) {
            let record = Decoded::read(key, member.get(FIELD_BYTES_MAX..).unwrap_or(&[])).unwrap();
            assert!(record.with_member(|found| found == member && record.is_placed(key, found, secret)));
            assert_eq!(record.score, Score::new(2.0));
        }
    }
}
