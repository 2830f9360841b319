//! The items: what a turn of the event loop reads and changes, up to its commit.

use crate::Error;
use crate::eviction::{Eviction, LimitSource};
use crate::item::{HEAD_BYTES, Item, ItemHead, STATE_KEY, State};
use crate::stats::Stats;
use std::ops::Bound;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tembo::{Batch, Map, Pool};

/// The count of unique numbers that one change of the state reserves.
const UNIQUE_STEP: u64 = 1 << 20;
/// A batch of more words is committed between two commands.
const WORDS_MAX: usize = 4096;

/// The reason why something was not stored.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The pool is full.
    NoRoom,
    /// The pool is damaged, or its device failed.
    Pool(tembo::Error),
    /// An item has this many bytes, which are too few.
    Damaged(usize),
}

impl From<tembo::Error> for Failure {
    fn from(error: tembo::Error) -> Failure {
        if matches!(error, tembo::Error::Full { .. }) { Failure::NoRoom } else { Failure::Pool(error) }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// The items of a pool, and the batch of the turn.
pub(crate) struct Items<'p> {
    pool: &'p Pool,
    map: &'p Map,
    /// The changes of this turn.
    batch: Option<Batch<'p>>,
    state: State,
    next_unique: u64,
    /// In seconds since 1970.
    pub(crate) now: u32,
    /// Where the next look for items whose time has come begins.
    tidied_to: Vec<u8>,
    pub(crate) stats: Stats,
    pub(crate) eviction: Eviction,
}

impl<'p> Items<'p> {
    pub(crate) fn open(
        pool: &'p Pool,
        map: &'p Map,
        now: u32,
        limit: Option<LimitSource>,
    ) -> std::result::Result<Items<'p>, Error> {
        let state = stored_state(map)?;
        // I2: numbers below the end may have been given.
        let next_unique = state.unique_end;
        Ok(Items {
            pool,
            map,
            batch: None,
            state,
            next_unique,
            now,
            tidied_to: Vec::new(),
            stats: Stats::default(),
            eviction: Eviction::new(limit, Instant::now()),
        })
    }

    /// The pool's figures.
    pub(crate) fn pool(&self) -> &'p Pool {
        self.pool
    }

    pub(crate) fn map(&self) -> &'p Map {
        self.map
    }

    /// Whether there are changes that are not committed.
    pub(crate) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// The number of items, those included whose time has come and that were not removed yet.
    pub(crate) fn len(&self) -> u64 {
        let records = match &self.batch {
            Some(batch) => batch.len(self.map),
            None => self.map.len(),
        };
        records.unwrap_or(0).saturating_sub(u64::from(self.state.unique_end > 1))
    }

    /// Shows the item of a key to `look`, if there is one whose time has not come.
    pub(crate) fn read<T>(&self, key: &[u8], look: impl FnOnce(Option<Item<'_>>) -> T) -> Result<T> {
        let now = self.now;
        let decode = |value: &[u8]| -> Result<Option<(ItemHead, usize)>> {
            let item = Item::decode(value).ok_or(Failure::Damaged(value.len()))?;
            if !item.head.is_over(now) {
                self.eviction.touch(key);
            }
            Ok((!item.head.is_over(now)).then_some((item.head, item.data.len())))
        };
        match &self.batch {
            Some(batch) => match batch.get(self.map, key)? {
                Some(value) => {
                    let found = decode(value)?;
                    Ok(look(found.map(|(head, _)| Item { head, data: &value[HEAD_BYTES..] })))
                }
                None => Ok(look(None)),
            },
            None => match self.map.get(key)? {
                Some(value) => {
                    let found = decode(&value)?;
                    Ok(look(found.map(|(head, _)| Item { head, data: &value[HEAD_BYTES..] })))
                }
                None => Ok(look(None)),
            },
        }
    }

    /// The head of a key's item.
    pub(crate) fn head(&self, key: &[u8]) -> Result<Option<ItemHead>> {
        self.read(key, |item| item.map(|item| item.head))
    }

    /// Stores an item. Its unique number is `unique`, or else the next one. Returns that.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        head: ItemHead,
        data: &[&[u8]],
        unique: Option<u64>,
    ) -> Result<u64> {
        let unique = match unique {
            Some(unique) => unique,
            None => self.next_unique().inspect_err(|failure| self.note_failure(failure))?,
        };
        let head = ItemHead { unique, ..head }.encode();
        let outcome = match data {
            [data] => self.put_parts(key, &[&head, data]),
            [first, second] => self.put_parts(key, &[&head, first, second]),
            _ => self.put_parts(key, &[&head]),
        };
        outcome.inspect_err(|failure| self.note_failure(failure))?;
        self.eviction.note_new(key, data.iter().map(|part| part.len()).sum());
        self.stats.total_items += 1;
        Ok(unique)
    }

    fn put_parts(&mut self, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        let map = self.map;
        Ok(self.batch()?.put_parts(map, key, parts).map(drop)?)
    }

    /// Notes that a command found no space, in a server that evicts items.
    fn note_failure(&mut self, failure: &Failure) {
        self.eviction.lacks_room |= matches!(failure, Failure::NoRoom) && self.eviction.limit().is_some();
    }

    /// Changes the head of an item and leaves its data and its unique number alone.
    pub(crate) fn put_head(&mut self, key: &[u8], head: ItemHead) -> Result<()> {
        let map = self.map;
        let change = |old: Option<&[u8]>| {
            let data = old.and_then(Item::decode).map(|item| item.data);
            data.map(|data| [&head.encode()[..], data].concat())
        };
        let outcome = self.batch()?.modify(map, key, change).map_err(Failure::from);
        outcome.map(drop).inspect_err(|failure| self.note_failure(failure))
    }

    /// Removes an item; returns whether there was one.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        if self.head(key)?.is_none() {
            return Ok(false);
        }
        self.remove_from_map(key)
    }

    pub(crate) fn remove_from_map(&mut self, key: &[u8]) -> Result<bool> {
        let map = self.map;
        Ok(self.batch()?.remove(map, key)?)
    }

    /// Lets all present items go, at once or at a time.
    pub(crate) fn flush(&mut self, at: u64) -> Result<()> {
        if at > u64::from(self.now) {
            return self.change_state(State { flush_at: at, ..self.state });
        }
        let (map, state) = (self.map, self.state);
        let begin = self.batch()?.savepoint();
        // The state is removed with the items, and made again with the number that memcached takes here, too.
        let cleared = self.batch()?.clear(map).map_err(Failure::from);
        let flushed = cleared.and_then(|()| self.change_state(State { flush_at: 0, ..state }));
        let flushed = flushed.and_then(|()| self.next_unique());
        if flushed.is_err() {
            self.batch()?.rollback_to(begin);
            self.state = state;
        }
        flushed.map(drop)
    }

    /// Does the work that is due: the flush, and a look at some items whose time may have come.
    pub(crate) fn tidy(&mut self, looks: usize) -> Result<()> {
        self.eviction.tick(self.pool, self.len());
        if self.state.flush_at != 0 && self.state.flush_at <= u64::from(self.now) {
            self.flush(0)?;
        }
        self.commit()?;
        let from = std::mem::take(&mut self.tidied_to);
        let (mut seen, mut over) = (0, Vec::new());
        for entry in self.map.range((Bound::Included(from), Bound::Unbounded)) {
            let entry = entry?;
            if seen == looks {
                self.tidied_to = entry.key().to_vec();
                break;
            }
            seen += 1;
            let is_over = |item: Item<'_>| item.head.is_over(self.now);
            if !entry.key().is_empty() && Item::decode(entry.value()).is_some_and(is_over) {
                over.push(entry.key().to_vec());
            }
        }
        let map = self.map;
        for key in over {
            self.batch()?.remove(map, &key)?;
            self.stats.reclaimed += 1;
        }
        Ok(())
    }

    /// Makes the changes of the turn durable.
    pub(crate) fn commit(&mut self) -> Result<()> {
        match self.batch.take() {
            Some(batch) => Ok(batch.commit()?),
            None => Ok(()),
        }
    }

    /// Whether the batch is so large that it is committed before the turn ends.
    pub(crate) fn is_large(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.pending_words() > WORDS_MAX)
    }

    /// Takes the changes since the last commit back.
    pub(crate) fn roll_back(&mut self) -> Result<()> {
        self.batch = None;
        // If the reservation of numbers was lost, they are reserved anew.
        self.state = match stored_state(self.map) {
            Ok(state) => state,
            Err(Error::Pool(error)) => return Err(error.into()),
            Err(_) => State::NEW,
        };
        Ok(())
    }

    fn batch(&mut self) -> Result<&mut Batch<'p>> {
        if self.batch.is_none() {
            self.batch = Some(self.pool.batch()?);
        }
        Ok(self.batch.as_mut().expect("begun just now"))
    }

    fn next_unique(&mut self) -> Result<u64> {
        if self.next_unique >= self.state.unique_end {
            let unique_end = self.next_unique + UNIQUE_STEP;
            self.change_state(State { unique_end, ..self.state })?;
        }
        self.next_unique += 1;
        Ok(self.next_unique - 1)
    }

    fn change_state(&mut self, state: State) -> Result<()> {
        let map = self.map;
        self.batch()?.put_to_free(map, STATE_KEY, &state.encode())?;
        self.state = state;
        Ok(())
    }
}

/// The state as it is in the map.
pub(crate) fn stored_state(map: &Map) -> std::result::Result<State, Error> {
    match map.get(STATE_KEY)? {
        Some(value) => State::decode(&value).map_err(|what| Error::Foreign { what }),
        None if map.len()? > 0 => {
            Err(Error::Foreign { what: "it has records, and none with the empty key".to_owned() })
        }
        None => Ok(State::NEW),
    }
}
