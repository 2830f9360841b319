//! The items that go: which, and how many at once.

use crate::eviction::{USES_MAX, entry_bytes};
use crate::item::{Item, STATE_KEY};
use crate::items::{Failure, Items, Result};
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Items that are looked at between two looks at the time.
const LOOKS: usize = 64;
/// The number of items that one batch evicts, usually and in a full pool, which has little room for the
/// record of a commit.
const VICTIMS_MAX: usize = 1024;
const FULL_VICTIMS_MAX: usize = 32;
/// The longest time of one eviction between commands, and of one for a command that found no space.
const TIME_MAX: Duration = Duration::from_micros(500);
const FULL_TIME_MAX: Duration = Duration::from_millis(20);
/// The share of the memory that is evicted for such a command at first, and at last: twice as much each time.
const FIRST_SHARE: u64 = 512;
const LAST_SHARE: u64 = 8;
/// The most evictions for one such command.
pub(crate) const TRIES_MAX: u32 = 64;
/// With this much of the memory in holes between items, the pool is compacted for such a command.
const HOLES_PERCENT: u64 = 10;
/// After a round without a victim, the hand rests for this time.
const FUTILE_PERIOD: Duration = Duration::from_millis(100);

/// An item that may go.
struct Victim {
    key: Vec<u8>,
    bytes: u64,
    /// Whether the item's deadline has passed.
    is_over: bool,
}

impl Items<'_> {
    /// Evicts items if the data have more memory than they may, unless there is a batch; this may begin one.
    pub(crate) fn hold_to_limit(&mut self, now: Instant) -> Result<()> {
        let surplus = self.eviction.surplus_bytes(self.pool(), now);
        if surplus == 0 || self.has_batch() {
            return Ok(());
        }
        self.evict(surplus, VICTIMS_MAX, Instant::now() + TIME_MAX).map(drop)
    }

    /// Evicts items for a command that found no space for this many bytes, and makes that durable; returns
    /// whether it is worth another try. There is no batch.
    ///
    /// It may need a longer piece than those that go leave behind, or one of another size: then the pool is
    /// compacted for a while. `tries` is how often this was done for it before.
    pub(crate) fn evict_for(&mut self, needed_bytes: u64, tries: u32) -> Result<bool> {
        let pool = self.pool();
        let used = pool.stats().used_bytes();
        let share = (used / FIRST_SHARE).saturating_mul(1 << tries.min(16)).min(used / LAST_SHARE);
        let (mut left, until) = (share.max(needed_bytes), Instant::now() + FULL_TIME_MAX);
        let mut may_help = true;
        while may_help && left > 0 && Instant::now() < until {
            let before = (self.eviction.alive_bytes, self.eviction.evicted);
            let freed = self.evict(left, FULL_VICTIMS_MAX, until)?;
            match self.commit() {
                // The items are in the map again; the next try takes others.
                Err(Failure::NoRoom) => {
                    (self.eviction.alive_bytes, self.eviction.evicted) = before;
                    break;
                }
                outcome => outcome?,
            }
            may_help = freed.is_some();
            left = left.saturating_sub(freed.unwrap_or(0));
        }
        let is_scattered = pool.spare_bytes() >= (used / 100 * HOLES_PERCENT).max(needed_bytes);
        if is_scattered || pool.missed_run_bytes() > 0 {
            pool.compact_for(Some(FULL_TIME_MAX))?;
        }
        Ok(may_help)
    }

    /// Evicts items of this many bytes, or about this many items, until a time; returns the bytes of those
    /// that went, or `None` if none may go.
    fn evict(&mut self, bytes: u64, victims_max: usize, until: Instant) -> Result<Option<u64>> {
        if Instant::now() < self.eviction.futile_until {
            return Ok(None);
        }
        let (mut count, mut freed, mut rounds) = (0, 0, 0);
        // After as many rounds every counter is zero.
        while freed < bytes && count < victims_max && rounds <= u32::from(USES_MAX) + 1 {
            let (found, is_at_end) = self.look()?;
            rounds += u32::from(is_at_end);
            for victim in found {
                // In a later round the item may still be where it was seen.
                let removed = match self.remove_from_map(&victim.key) {
                    // The batch has no room for more. Its commit gives the space of the others back.
                    Err(Failure::NoRoom) => return Ok(Some(freed)),
                    removed => removed?,
                };
                if removed {
                    (count, freed) = (count + 1, freed + victim.bytes);
                    self.eviction.alive_bytes = self.eviction.alive_bytes.saturating_sub(victim.bytes);
                    self.eviction.evicted += u64::from(!victim.is_over);
                }
            }
            if Instant::now() >= until {
                return Ok(Some(freed));
            }
        }
        if count == 0 {
            self.eviction.futile_until = Instant::now() + FUTILE_PERIOD;
            return Ok(None);
        }
        Ok(Some(freed))
    }

    /// Moves the hand over some items: those that may go, and whether it came to the end.
    fn look(&mut self) -> Result<(Vec<Victim>, bool)> {
        let hand = std::mem::take(&mut self.eviction.hand);
        let only_with_deadline = self.eviction.limit.is_some_and(|limit| limit.only_with_deadline);
        let (mut found, mut last, mut looks) = (Vec::new(), None, 0);
        // The state has the empty key, which no item has.
        let from = if hand.is_empty() { STATE_KEY } else { &hand };
        for entry in self.map().range::<&[u8]>((Bound::Excluded(from), Bound::Unbounded)) {
            let entry = entry?;
            let (key, value) = (entry.key(), entry.value());
            let item = Item::decode(value);
            let may_go = item.is_some_and(|item| !only_with_deadline || item.head.deadline != 0);
            let is_over = item.is_some_and(|item| item.head.is_over(self.now));
            if is_over || may_go && self.eviction.lower(key) {
                found.push(Victim { key: key.to_vec(), bytes: entry_bytes(key, value.len()), is_over });
            }
            looks += 1;
            if looks == LOOKS {
                last = Some(key.to_vec());
                break;
            }
        }
        let is_at_end = last.is_none();
        self.eviction.hand = last.unwrap_or_default();
        Ok((found, is_at_end))
    }
}
