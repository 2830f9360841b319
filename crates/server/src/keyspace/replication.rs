//! The history of the data: a replica's master, the position in the stream, and the arrival of a whole new
//! state.
//!
//! # Media layout
//!
//! The map "db.replication"; a pool that was never a replica and never had one has none:
//!
//! ```text
//!   'm'  -> port_le host              2 bytes, and the rest      the master, if the server is a replica
//!   'p'  -> id offset_le database     40, 8 and 1 bytes          how far the stream goes that made the data
//!           extent                    40 bytes, or none          of the backlog's file, if it is in one
//!   's'  -> id offset_le              40 and 8 bytes             the history before, up to that offset
//!   'b'  -> state boot                1 byte, and the rest       the boot of the system that wrote last
//!   'r'  -> (port_le len host)*       2, 1 and len bytes each    the replicas that get the stream
//!   'a'  -> maps_le                   2 bytes                    bit N: a new state arrives in "dbN"
//! ```
//!
//! The id names a history (the replication id), the offset counts the bytes of the stream since that history
//! began, and the database is the one that the stream has selected there. A replica has its master's stream.
//! A master has its own, which begins with its first replica. A replica that becomes a master continues under
//! a new id at the same offset; up to there the old id names the same bytes.
//!
//! The state of `'b'` is 1 after a clean stop, and 0 while a server runs. If the system's failure can lose an
//! acknowledged write, a server that finds another boot and no clean stop cannot know whether it sent bytes
//! that the pool lacks. It continues under a new id, from the position that the pool has.
//!
//! A new state arrives in maps that hold nothing, beside the old state. Clients do not see them: the server
//! takes them off its databases until the new state is whole. If there are too few of them, the old state is
//! cleared first.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I11. While there is `'a'`, each of its maps was empty when it was
//! written, so that all that is in them belongs to the state that is arriving.
//!
//! # Commit point
//!
//! The commit of the batch. `'p'` is written with the effects of the commands up to its offset, and their
//! bytes in the [`backlog`](super::backlog), and never without them: a stream that is resumed there repeats
//! nothing and leaves out nothing. A new state begins with one commit of `'a'`. One other commit ends it: it
//! gives the databases their new maps, clears the old ones, removes `'a'` and writes `'p'`.
//!
//! # Recovery
//!
//! `'a'` without a server that fills the maps is an arrival that was cut off: the maps are cleared and `'a'`
//! is removed, in one commit, when the databases are opened. The old state and its position are as they were.

use tembo::{Map, Pool};

use super::Keyspace;
use super::batch::writer;
use super::check_report::CheckError;
use super::collection::registry::Registry;
use super::database::Database;
use super::format::{DATABASES, Malformed, Order, REPLICATION};
use super::history::{Id, Master, POSITION, Position, SECOND, Second};
use super::kept_states::stored_kept;
use super::moves::write_moves;
use super::point::Lost;
use super::retention::write_states;
use crate::cluster::migration::Moves;
use crate::fault::{Answer, Fault};

const MASTER: &[u8] = b"m";
const ARRIVING: &[u8] = b"a";
const BOOT: &[u8] = b"b";
const REPLICAS: &[u8] = b"r";
/// The most replicas that are remembered.
pub(crate) const REPLICAS_MAX: usize = 64;
/// Reads the addresses of replicas.
fn decode_replicas(mut value: &[u8]) -> Result<Vec<Master>, Malformed> {
    let mut replicas = Vec::new();
    while !value.is_empty() {
        let len = usize::from(*value.get(2).ok_or(Malformed)?);
        let host = value.get(3..3 + len).ok_or(Malformed)?;
        replicas.push(Master::decode(&[&value[..2], host].concat())?);
        value = &value[3 + len..];
    }
    if replicas.len() > REPLICAS_MAX { Err(Malformed) } else { Ok(replicas) }
}

impl<'p> Keyspace<'p> {
    /// Whether the pool's role was ever chosen; and the master, if it is a replica.
    pub(crate) fn stored_master(&self) -> Answer<(bool, Option<Master>)> {
        let Some(map) = &self.replication.map else { return Ok((false, None)) };
        let master = map.get(MASTER)?.map(|value| Master::decode(&value)).transpose()?;
        Ok((true, master))
    }

    /// Stores the master, or its absence. Without a master, the history continues under a new id, if it does
    /// not have one yet. Commits. There must be no batch.
    pub(crate) fn store_master(&mut self, master: Option<&Master>, new_id: Id) -> Answer {
        self.put_master(master, new_id).inspect_err(|_| self.abandon_batch())
    }

    fn put_master(&mut self, master: Option<&Master>, new_id: Id) -> Answer {
        let map = self.replication_map()?;
        self.write_master(&map, master, new_id)?;
        self.dirty = true;
        self.commit()?;
        self.replication.take_up(master.is_none());
        Ok(())
    }

    /// Lets the batch have another master, or none.
    pub(super) fn write_master(&mut self, map: &Map, master: Option<&Master>, new_id: Id) -> Answer {
        let batch = writer(self.pool, &mut self.batch)?;
        match master {
            Some(Master { host, port }) => {
                let value = [&port.to_le_bytes(), host.as_bytes()].concat();
                match batch.put(map, MASTER, &value) {
                    // A full pool must be able to change its role.
                    Err(tembo::Error::Full { .. }) => batch.put_to_free(map, MASTER, &value).map(drop)?,
                    other => other.map(drop)?,
                }
            }
            None => {
                let was_replica = batch.remove(map, MASTER)?;
                // If effects are on, REPLICAOF has renamed the history already.
                if was_replica && !self.replication.effects.is_on {
                    self.replication.rename(new_id);
                }
            }
        }
        Ok(())
    }

    /// The replicas that got the stream last.
    pub(crate) fn stored_replicas(&self) -> Answer<Vec<Master>> {
        let value = self.replication.map.as_ref().map(|map| map.get(REPLICAS)).transpose()?.flatten();
        Ok(value.map(|value| decode_replicas(&value)).transpose()?.unwrap_or_default())
    }

    /// Stores the replicas that get the stream. Commits. There must be no batch.
    pub(crate) fn store_replicas(&mut self, replicas: &[Master]) -> Answer {
        let map = self.replication_map()?;
        let parts = replicas.iter().map(|Master { host, port }| {
            let len = u8::try_from(host.len()).unwrap_or(0);
            [&port.to_le_bytes()[..], &[len], &host.as_bytes()[..len.into()]].concat()
        });
        let value = parts.collect::<Vec<_>>().concat();
        let batch = writer(self.pool, &mut self.batch)?;
        let stored = match value.is_empty() {
            true => batch.remove(&map, REPLICAS).map(drop),
            false => batch.put(&map, REPLICAS, &value).map(drop),
        };
        self.dirty = true;
        let stored = stored.and_then(|()| self.commit());
        Ok(stored.inspect_err(|_| self.abandon_batch())?)
    }

    /// Goes on at a place of a stream whose bytes before are not known here. Replicas of another history, and
    /// of an earlier place of this one, need a whole copy. Commits. There must be no batch.
    pub(crate) fn adopt_position(&mut self, position: Position) -> Answer {
        let map = self.replication_map()?;
        let batch = writer(self.pool, &mut self.batch)?;
        batch.remove(&map, SECOND)?;
        self.replication.backlog.clear(batch, position.offset)?;
        (self.replication.position, self.replication.second) = (Some(position), None);
        (self.dirty, self.replication.epoch) = (true, self.replication.epoch + 1);
        Ok(self.commit().inspect_err(|_| self.abandon_batch())?)
    }

    /// The boot of the system that the pool was written in last, and whether it was left by a clean stop.
    pub(crate) fn stored_boot(&self) -> Answer<Option<(Vec<u8>, bool)>> {
        let Some(map) = &self.replication.map else { return Ok(None) };
        let value = map.get(BOOT)?;
        let parts = value.as_ref().and_then(|value| value.split_first());
        Ok(parts.map(|(state, boot)| (boot.to_vec(), *state == 1)))
    }

    /// Stores the boot, if it is another one. Commits. There must be no batch.
    pub(crate) fn store_boot(&mut self, boot: &[u8], is_clean: bool) -> Answer {
        if self.replication.position.is_none() || self.stored_boot()? == Some((boot.to_vec(), is_clean)) {
            return Ok(());
        }
        let map = self.replication_map()?;
        let put = writer(self.pool, &mut self.batch)?.put_parts(&map, BOOT, &[&[u8::from(is_clean)], boot]);
        self.dirty = true;
        let stored = put.map(drop).and_then(|()| self.commit());
        Ok(stored.inspect_err(|_| self.abandon_batch())?)
    }

    pub(super) fn replication_map(&mut self) -> Answer<Map> {
        debug_assert!(self.batch.is_none(), "opening a map needs the pool's writer");
        let map = match self.replication.map.take() {
            Some(map) => map,
            None => self.pool.open_map(REPLICATION)?,
        };
        self.replication.map = Some(map.clone());
        Ok(map)
    }

    /// The maps that a new state arrives in, as bits, if one does.
    fn arriving(&self) -> Answer<Option<u16>> {
        let Some(map) = &self.replication.map else { return Ok(None) };
        let bytes = map.get(ARRIVING)?;
        bytes
            .map(|bytes| (*bytes).try_into().map(u16::from_le_bytes).map_err(|_| Fault::Malformed))
            .transpose()
    }

    /// Drops the new state, as far as it has arrived. The old state has all its databases again. There must
    /// be no batch.
    pub(crate) fn give_up_arrival(&mut self) -> Answer {
        self.drop_arrival().inspect_err(|_| self.abandon_batch())
    }

    fn drop_arrival(&mut self) -> Answer {
        let (Some(maps), Some(map)) = (self.arriving()?, self.replication.map.clone()) else { return Ok(()) };
        if self.collections.is_none() {
            self.collections = Registry::find(self.pool)?;
        }
        for (database, number) in self.places.now.iter().filter(|(_, number)| maps >> number & 1 == 1) {
            if self.databases[database].is_none()
                && self.pool.find_map(&self.layout.map_names(number).0)?.is_some()
            {
                self.databases[database] = Some(Box::new(Database::open(self.pool, self.layout, number)?));
            }
        }
        for (database, _) in self.places.now.iter().filter(|(_, number)| maps >> number & 1 == 1) {
            self.clear(database)?;
        }
        writer(self.pool, &mut self.batch)?.remove(&map, ARRIVING)?;
        (self.dirty, self.reclaiming) = (true, true);
        self.commit()?;
        self.replication.is_arriving = false;
        Ok(())
    }

    /// Begins a new state in these databases, beside the old one: a keyspace in which they are empty. Without
    /// enough free maps the old state is cleared, and the second value is true. There must be no batch. After
    /// an error there is nothing to be given up.
    pub(crate) fn begin_arrival(&mut self, wanted: &[bool; DATABASES]) -> Answer<(Keyspace<'p>, bool)> {
        let begun = self.make_room(wanted);
        if begun.is_err() {
            self.abandon_batch();
            self.give_up_arrival()?;
        }
        begun
    }

    fn make_room(&mut self, wanted: &[bool; DATABASES]) -> Answer<(Keyspace<'p>, bool)> {
        // An earlier arrival that could not be given up before.
        self.drop_arrival()?;
        let map = self.replication_map()?;
        let count = |which: &[bool]| which.iter().filter(|is| **is).count();
        let (mut free, clears) = loop {
            let (mut free, kept) = ([false; DATABASES], self.keeping.states.bits());
            for (database, number) in self.places.now.iter() {
                free[number] = self.len(database)? == 0 && kept >> number & 1 == 0;
            }
            self.commit()?;
            let clears = count(wanted) > count(&free);
            if !clears || !self.has_kept() {
                break (free, clears);
            }
            self.give_up_kept()?;
        };
        if clears {
            self.lose_point(Lost::Replaced);
            // Without its position, a restart in the middle copies everything anew.
            (0..DATABASES).try_for_each(|database| self.clear(database))?;
            let batch = writer(self.pool, &mut self.batch)?;
            batch.remove(&map, POSITION)?;
            batch.remove(&map, SECOND)?;
            let replication = &mut self.replication;
            replication.backlog.clear(batch, 0)?;
            self.dirty = true;
            (replication.position, replication.committed) = (None, None);
            (replication.second, replication.committed_second) = (None, None);
            self.commit()?;
            free = [true; DATABASES];
        }
        let order = new_order(&self.places.now, wanted, free);
        let arriving =
            (0..DATABASES).filter(|&database| wanted[database]).map(|database| order.maps(database));
        let arriving = arriving.fold(0u16, |bits, number| bits | 1 << number);
        writer(self.pool, &mut self.batch)?.put(&map, ARRIVING, &arriving.to_le_bytes())?;
        self.dirty = true;
        self.commit()?;
        self.replication.is_arriving = true;
        for (database, _) in self.places.now.iter().filter(|(_, number)| arriving >> number & 1 == 1) {
            self.databases[database] = None;
        }
        let mut arrival = Keyspace::open_in_order(self.pool, Some(order))?;
        (arrival.replication.position, arrival.replication.committed) = (None, None);
        Ok((arrival, clears))
    }

    /// Takes a new state that is whole in place of the old one, with the moves of slots, in one commit.
    pub(crate) fn complete_arrival(
        &mut self,
        mut arrival: Keyspace<'p>,
        wanted: &[bool; DATABASES],
        position: Position,
        moves: &Moves,
    ) -> Answer {
        arrival.commit()?;
        self.lose_point(Lost::Replaced);
        let map = self.replication_map()?;
        self.replication.backlog.open(self.pool, position.offset)?;
        let replaced = self.places_to_keep()?;
        let states = self.kept_with(replaced);
        let mut kept_maps = [const { None }; DATABASES];
        for database in (0..DATABASES).filter(|&database| !wanted[database]) {
            let number = arrival.places.now.maps(database);
            match states.bits() >> number & 1 {
                1 => kept_maps[number] = arrival.databases[database].take(),
                _ => arrival.clear(database)?,
            }
        }
        let Keyspace { pool, batch, collections, places, .. } = &mut arrival;
        let batch = writer(pool, batch)?;
        if let Some(collections) = collections {
            collections.set_order(batch, places.now)?;
            write_states(collections, batch, &states)?;
        }
        if let Some(map) = &self.cluster_map {
            write_moves(batch, map, moves)?;
        }
        batch.remove(&map, ARRIVING)?;
        batch.remove(&map, SECOND)?;
        // The stream before is of another history.
        self.replication.backlog.clear(batch, position.offset)?;
        position.write(batch, &map, self.replication.backlog.extent())?;
        arrival.dirty = true;
        let arrived = arrival.commit();
        self.replication.backlog.note_end(arrived.is_ok());
        arrived?;
        (self.replication.second, self.replication.committed_second) = (None, None);
        self.replication.epoch += 1;
        (self.databases, self.places) = (arrival.databases, arrival.places);
        self.keeping.states = states;
        for (mine, new) in self.keeping.maps.iter_mut().zip(kept_maps) {
            *mine = mine.take().or(new);
        }
        self.collections = arrival.collections.or(self.collections.take());
        (self.replication.position, self.replication.committed) = (Some(position), Some(position));
        (self.reclaiming, self.replication.is_arriving) = (true, false);
        self.watches.touch_everything();
        self.waiters.touch_all();
        Ok(())
    }

    /// Goes on under a new id, without the earlier stream: it does not lead to the present data. Works in the
    /// batch.
    pub(super) fn renew_history(&mut self, id: Id) -> Answer {
        let Keyspace { pool, batch, replication, .. } = self;
        let (Some(map), Some(position)) = (&replication.map, &mut replication.position) else {
            return Ok(());
        };
        let batch = writer(pool, batch)?;
        batch.remove(map, SECOND)?;
        replication.backlog.clear(batch, position.offset)?;
        (position.id, replication.second) = (id, None);
        replication.epoch += 1;
        replication.effects.forget_selected();
        Ok(())
    }

    /// Drops the batch: nothing of it has happened.
    pub(crate) fn abandon_batch(&mut self) {
        self.dirty = false;
        self.replication.note_end(false);
        if self.batch.take().is_some() {
            self.forget_state();
        }
    }
}

/// An order in which these databases have maps that are free, their own where that is possible.
fn new_order(before: &Order, wanted: &[bool; DATABASES], mut free: [bool; DATABASES]) -> Order {
    let mut numbers = [None; DATABASES];
    let mut rest = [true; DATABASES];
    let mut choose = |database: usize, number: usize, free: &mut [bool; DATABASES]| {
        (numbers[database], free[number], rest[number]) = (Some(number as u8), false, false);
    };
    let mut homeless = Vec::new();
    for (database, number) in before.iter().filter(|(database, _)| wanted[*database]) {
        match free[number] {
            true => choose(database, number, &mut free),
            false => homeless.push(database),
        }
    }
    for database in homeless {
        if let Some(number) = free.iter().position(|is_free| *is_free) {
            choose(database, number, &mut free);
        }
    }
    let mut rest = (0..DATABASES).filter(|&number| rest[number]).map(|number| number as u8);
    Order::of(numbers.map(|number| number.or_else(|| rest.next()).unwrap_or_default()))
}

/// The maps of a pool that commands do not see, as bits: those that a new state was arriving in, and those
/// that are kept.
pub(crate) fn hidden_maps(pool: &Pool) -> Result<u16, tembo::Error> {
    Ok(arriving_maps(pool)? | stored_kept(pool)?.bits())
}

/// The maps that a new state was arriving in.
pub(super) fn arriving_maps(pool: &Pool) -> Result<u16, tembo::Error> {
    let Some(map) = pool.find_map(REPLICATION)? else { return Ok(0) };
    let bytes = map.get(ARRIVING)?;
    Ok(bytes.and_then(|bytes| (*bytes).try_into().ok()).map_or(0, u16::from_le_bytes))
}

/// Proves I11; returns whether the pool is that of a replica.
pub(crate) fn check_replication(pool: &Pool) -> Result<bool, CheckError> {
    let Some(map) = pool.find_map(REPLICATION)? else {
        return Ok(false);
    };
    let mut is_replica = false;
    for entry in map.iter() {
        let entry = entry?;
        let sound = match entry.key() {
            MASTER => {
                is_replica = true;
                Master::decode(entry.value()).map(drop)
            }
            POSITION => Position::decode(entry.value()).map(drop),
            SECOND => Second::decode(entry.value()).map(drop),
            BOOT if (1..=65).contains(&entry.value().len()) && entry.value()[0] < 2 => Ok(()),
            REPLICAS => decode_replicas(entry.value()).map(drop),
            ARRIVING if entry.value().len() == 2 => Ok(()),
            _ => Err(Malformed),
        };
        sound.map_err(|Malformed| CheckError::Collection {
            place: format!("the state of a replica, entry \"{}\"", entry.key().escape_ascii()),
            what: "malformed".to_owned(),
        })?;
    }
    Ok(is_replica)
}
