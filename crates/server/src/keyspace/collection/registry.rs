//! The ids of large collections, and those whose elements are to be removed: the map "db.collections", whose
//! layout is in [`format`](crate::keyspace::format).

use crate::keyspace::batch::Batch;
use tembo::{Map, MapOptions, Pool};

use super::element::remove_some;
use super::position::Secret;
use crate::fault::Answer;
use crate::keyspace::format::{
    COLLECTIONS, CURSORS, ELEMENTS, LISTS, Malformed, ONCE, ORDERED, Order, SCRIPTS,
};
use crate::keyspace::kept_states::{KEPT, KeptStates};
use crate::keyspace::order::read_order;
use crate::keyspace::placement::counting_of;
use crate::keyspace::point::open_if_there_is_room;
use crate::random::Random;

const NEXT: &[u8] = b"n";
pub(super) const SECRET: &[u8] = b"s";
/// The key of the order of the databases.
pub(crate) const ORDER: &[u8] = b"p";
const HOME: u8 = b'h';
const OWNED: u8 = b'o';
const DOOMED: u8 = b'd';
const COLLECTION: u8 = 0;
const WHOLE_HOME: u8 = 1;
const UNDER_CONSTRUCTION: u8 = 2;

/// The maps of large collections.
pub(crate) struct Registry {
    pub(crate) elements: Map,
    pub(crate) ordered: Map,
    pub(crate) lists: Map,
    pub(crate) cursors: Map,
    pub(crate) once: Map,
    /// None: the pool is older, and too full for another map.
    pub(crate) scripts: Option<Map>,
    list: Map,
    pub(crate) secret: Secret,
}

/// An entry of the list, for a check.
pub(crate) enum Listed {
    /// The home of the maps of a number.
    Home {
        maps: u8,
        home: u64,
    },
    Owned {
        home: u64,
        id: u64,
    },
    Doomed(u64),
    DoomedHome(u64),
    UnderConstruction(u64),
    Next(u64),
    Secret(Secret),
    Order,
    Kept,
}

impl Listed {
    pub(crate) fn read(key: &[u8], value: &[u8]) -> Result<Self, Malformed> {
        match key {
            NEXT => Ok(Listed::Next(u64::from_le_bytes(value.try_into().map_err(|_| Malformed)?))),
            SECRET => Ok(Listed::Secret(Secret::from_bytes(value.try_into().map_err(|_| Malformed)?))),
            ORDER => Order::decode(value).map(|_| Listed::Order),
            KEPT => KeptStates::decode(value).map(|_| Listed::Kept),
            [HOME, maps] => Ok(Listed::Home { maps: *maps, home: number(value)? }),
            [OWNED, ids @ ..] => {
                let (home, id) = ids.split_at_checked(8).ok_or(Malformed)?;
                Ok(Listed::Owned { home: number(home)?, id: number(id)? })
            }
            [DOOMED, id @ ..] => match value {
                [COLLECTION] => Ok(Listed::Doomed(number(id)?)),
                [WHOLE_HOME] => Ok(Listed::DoomedHome(number(id)?)),
                [UNDER_CONSTRUCTION] => Ok(Listed::UnderConstruction(number(id)?)),
                _ => Err(Malformed),
            },
            _ => Err(Malformed),
        }
    }
}

fn number(bytes: &[u8]) -> Result<u64, Malformed> {
    Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

fn owned_key(home: u64, id: u64) -> [u8; 17] {
    let mut key = [OWNED; 17];
    key[1..9].copy_from_slice(&home.to_be_bytes());
    key[9..].copy_from_slice(&id.to_be_bytes());
    key
}

fn doomed_key(id: u64) -> [u8; 9] {
    let mut key = [DOOMED; 9];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

impl Registry {
    /// Opens the maps, which the pool has.
    pub(crate) fn find(pool: &Pool) -> Result<Option<Self>, tembo::Error> {
        match pool.find_map(COLLECTIONS)? {
            Some(_) => Self::open(pool).map(Some),
            None => Ok(None),
        }
    }

    /// Opens the maps, or creates them. There must be no batch.
    pub(crate) fn open(pool: &Pool) -> Result<Self, tembo::Error> {
        let (elements, list) = (pool.open_map(ELEMENTS)?, pool.open_map(COLLECTIONS)?);
        let counting = |name| pool.open_map_with(name, MapOptions::new().counting(counting_of(name)));
        let (ordered, lists) = (counting(ORDERED)?, counting(LISTS)?);
        let (cursors, once) = (pool.open_map(CURSORS)?, pool.open_map(ONCE)?);
        let scripts = open_if_there_is_room(pool, SCRIPTS)?;
        let mut random = Random::new();
        let fresh: Vec<u8> = (0..2).flat_map(|_| random.next().to_le_bytes()).collect();
        list.insert(SECRET, fresh)?;
        // A secret that is damaged is one with which nothing is found; the check says so.
        let bytes = list.get(SECRET)?.and_then(|bytes| (*bytes).try_into().ok()).unwrap_or_default();
        Ok(Registry {
            elements,
            ordered,
            lists,
            cursors,
            once,
            scripts,
            list,
            secret: Secret::from_bytes(bytes),
        })
    }

    /// Which maps each database has, as it is committed.
    pub(crate) fn committed_order(&self) -> Result<Order, tembo::Error> {
        // A record that is damaged is one that the check names; without it, nothing is where it was.
        let value = self.list.get(ORDER)?;
        Ok(read_order(value.as_deref()).unwrap_or_default())
    }

    /// Which maps each database has, as `batch` sees it.
    pub(crate) fn order(&self, batch: &Batch<'_>) -> Answer<Order> {
        Ok(read_order(batch.get(&self.list, ORDER)?)?)
    }

    pub(crate) fn set_order(&self, batch: &mut Batch<'_>, order: Order) -> Answer {
        match batch.put(&self.list, ORDER, order.as_bytes()) {
            // A full pool can be flushed, and what it keeps can be given up.
            Err(tembo::Error::Full { .. }) => {
                batch.put_to_free(&self.list, ORDER, order.as_bytes()).map(drop)?
            }
            other => other.map(drop)?,
        }
        Ok(())
    }

    /// The states that are kept, as `batch` sees them.
    pub(crate) fn kept(&self, batch: &Batch<'_>) -> Answer<KeptStates> {
        Ok(KeptStates::decode(batch.get(&self.list, KEPT)?.unwrap_or_default())?)
    }

    /// Works in a full pool.
    pub(crate) fn set_kept(&self, batch: &mut Batch<'_>, record: &[u8]) -> Answer {
        if record.is_empty() {
            batch.remove(&self.list, KEPT)?;
            return Ok(());
        }
        match batch.put(&self.list, KEPT, record) {
            Err(tembo::Error::Full { .. }) => batch.put_to_free(&self.list, KEPT, record).map(drop)?,
            other => other.map(drop)?,
        }
        Ok(())
    }

    /// A number that was never used.
    fn draw(&self, batch: &mut Batch<'_>) -> Answer<u64> {
        let next = match batch.get(&self.list, NEXT)? {
            Some(bytes) => u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?),
            None => 1,
        };
        batch.put(&self.list, NEXT, &(next + 1).to_le_bytes())?;
        Ok(next)
    }

    /// The number that is drawn next, as it is committed.
    pub(crate) fn next_id(&self) -> Answer<u64> {
        let next = self.list.get(NEXT)?;
        Ok(next
            .map(|bytes| (*bytes).try_into().map(u64::from_le_bytes))
            .transpose()
            .map_err(|_| Malformed)?
            .unwrap_or(1))
    }

    fn home(&self, batch: &Batch<'_>, maps: usize) -> Answer<Option<u64>> {
        let home = batch.get(&self.list, &[HOME, maps as u8])?;
        Ok(home.map(number).transpose()?)
    }

    fn home_or_new(&self, batch: &mut Batch<'_>, maps: usize) -> Answer<u64> {
        if let Some(home) = self.home(batch, maps)? {
            return Ok(home);
        }
        let home = self.draw(batch)?;
        batch.put(&self.list, &[HOME, maps as u8], &home.to_be_bytes())?;
        Ok(home)
    }

    /// An id for a new collection of the maps of a number.
    pub(crate) fn create(&self, batch: &mut Batch<'_>, maps: usize) -> Answer<u64> {
        let home = self.home_or_new(batch, maps)?;
        let id = self.draw(batch)?;
        batch.put(&self.list, &owned_key(home, id), &[])?;
        Ok(id)
    }

    /// Takes an id off the list of those in use. Its elements were removed, or it is doomed in the same
    /// batch.
    pub(crate) fn release(&self, batch: &mut Batch<'_>, maps: usize, id: u64) -> Answer {
        if let Some(home) = self.home(batch, maps)? {
            batch.remove(&self.list, &owned_key(home, id))?;
        }
        Ok(())
    }

    /// Lists an id as under construction, instead of as one of its home.
    pub(crate) fn begin_construction(&self, batch: &mut Batch<'_>, maps: usize, id: u64) -> Answer {
        self.release(batch, maps, id)?;
        batch.put(&self.list, &doomed_key(id), &[UNDER_CONSTRUCTION])?;
        Ok(())
    }

    /// Lists an id that was under construction as one of its home.
    pub(crate) fn end_construction(&self, batch: &mut Batch<'_>, maps: usize, id: u64) -> Answer {
        batch.remove(&self.list, &doomed_key(id))?;
        let home = self.home_or_new(batch, maps)?;
        batch.put(&self.list, &owned_key(home, id), &[])?;
        Ok(())
    }

    /// Lists an id under other maps.
    pub(crate) fn rehome(&self, batch: &mut Batch<'_>, from: usize, to: usize, id: u64) -> Answer {
        self.release(batch, from, id)?;
        let home = self.home_or_new(batch, to)?;
        batch.put(&self.list, &owned_key(home, id), &[])?;
        Ok(())
    }

    /// Lets the elements of an id be removed later. Works in a full pool.
    pub(crate) fn doom(&self, batch: &mut Batch<'_>, maps: usize, id: u64) -> Answer {
        self.release(batch, maps, id)?;
        batch.put_to_free(&self.list, &doomed_key(id), &[COLLECTION])?;
        Ok(())
    }

    /// Lets the elements of all collections of the maps of a number be removed later. Works in a full pool.
    pub(crate) fn doom_all(&self, batch: &mut Batch<'_>, maps: usize) -> Answer {
        if let Some(home) = self.home(batch, maps)? {
            batch.remove(&self.list, &[HOME, maps as u8])?;
            batch.put_to_free(&self.list, &doomed_key(home), &[WHOLE_HOME])?;
        }
        Ok(())
    }

    /// Removes up to `limit` records of each map of an id, whatever its type; returns whether these were the
    /// last.
    fn remove_some(&self, batch: &mut Batch<'_>, id: u64, limit: usize) -> Answer<bool> {
        for map in [&self.elements, &self.ordered, &self.lists] {
            if !remove_some(batch, map, id, limit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether elements are to be removed, as it is committed.
    pub(crate) fn has_doomed(&self) -> bool {
        self.list.prefix([DOOMED]).next().is_some()
    }

    /// Removes up to `limit` elements of a doomed id; returns whether there may be more to do. Everything is
    /// committed but for changes of other maps.
    pub(crate) fn reclaim(&self, batch: &mut Batch<'_>, limit: usize) -> Answer<bool> {
        let Some(entry) = self.list.prefix([DOOMED]).next().transpose()? else {
            return Ok(false);
        };
        match Listed::read(entry.key(), entry.value())? {
            // Nothing is under construction while this runs.
            Listed::Doomed(id) | Listed::UnderConstruction(id) => {
                if self.remove_some(batch, id, limit)? {
                    batch.remove(&self.list, entry.key())?;
                }
            }
            Listed::DoomedHome(home) => {
                let mut prefix = vec![OWNED];
                prefix.extend_from_slice(&home.to_be_bytes());
                match self.list.prefix(&prefix).next().transpose()? {
                    None => _ = batch.remove(&self.list, entry.key())?,
                    Some(owned) => {
                        if let Listed::Owned { id, .. } = Listed::read(owned.key(), owned.value())?
                            && self.remove_some(batch, id, limit)?
                        {
                            batch.remove(&self.list, owned.key())?;
                        }
                    }
                }
            }
            _ => return Err(Malformed.into()),
        }
        Ok(true)
    }
}
