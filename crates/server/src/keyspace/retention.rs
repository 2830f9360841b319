//! Replaced data that are kept for a while: what FLUSHALL, FLUSHDB or a whole copy of a master took the place
//! of, until its time ends or its space is needed (`flush-grace`), and TEMBO.UNFLUSH.
//!
//! # Media layout
//!
//! A database that is flushed gets the maps of an empty one, and its old maps are *kept*: they hold the data,
//! and belong to no database that a client sees. A record of "db.collections" says so:
//!
//! ```text
//!   'k' -> state...                 oldest first, but see TEMBO.UNFLUSH; no record where nothing is kept
//!   state = deadline_le since_le scope count { database number }
//!           8           8        1     1       1        1
//! ```
//!
//! The times are milliseconds since the Unix epoch. The scope is 1 if the state is that of all databases, and
//! 0 if it is that of those that it names. Each pair names a database and the number of the maps that it had.
//!
//! By [the order](super::swap), kept maps still are those of a database, one that is empty. It is *homeless*:
//! the first write to it gives it maps that are free, or those of the oldest state.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I16. The record can be read; no number is in it twice; no state
//! arrives in maps that are kept.
//!
//! # Commit point
//!
//! The commit of the batch that has the record and the order: one commit retains data, restores them, or
//! gives them up. Giving up clears in constant time; the space is freed in steps.
//!
//! # Recovery
//!
//! None. What TEMBO.UNFLUSH replaces is put before all others, as the oldest: it is restored after them, and
//! given up first when space is needed. A server that starts finds the record, and continues with it.
//!
//! # Replicas
//!
//! They receive FLUSHALL or FLUSHDB, and retain data by their own `flush-grace`. The stream has no command
//! for data that are restored: a history with a new id begins, and replicas take a whole copy.

use super::Keyspace;
use super::batch::{Batch, into_error, writer};
use super::collection::registry::Registry;
use super::database::Database;
use super::format::{DATABASES, Order};
use super::history::Id;
use super::kept_states::{KeptState, KeptStates, stored_kept};
use super::placement::Layout;
use crate::fault::{Answer, Fault};

impl Keyspace<'_> {
    /// Whether there is a state that could be given up.
    pub(crate) fn has_kept(&self) -> bool {
        !self.keeping.states.0.is_empty()
    }

    /// How many keys are kept.
    pub(crate) fn kept_keys(&self) -> Result<u64, tembo::Error> {
        self.keeping.maps.iter().flatten().map(|maps| maps.data.len()).sum()
    }

    /// Removes all keys of these databases, and retains them if requested, in constant time. The caller
    /// notifies clients that track keys.
    pub(crate) fn flush(&mut self, databases: std::ops::Range<usize>) -> Answer {
        let mut full = Vec::new();
        let keeps = self.keeping.grace_ms > 0 && self.layout() == Layout::Plain;
        if keeps && !self.replication.is_arriving && self.collections.is_some() {
            for database in databases.clone() {
                if self.len(database)? > 0 {
                    full.push(database);
                }
            }
        }
        let rooms = self.rooms(full.len())?;
        let full = if rooms.is_empty() { Vec::new() } else { full };
        for database in databases.clone().filter(|database| !full.contains(database)) {
            self.clear(database)?;
        }
        if full.is_empty() {
            return Ok(());
        }
        let mut places = Vec::new();
        for (&database, &empty) in full.iter().zip(&rooms) {
            let number = self.places.now.maps(database);
            self.exchange(database, empty);
            self.keeping.maps[number] = self.databases[empty].take();
            places.push((database as u8, number as u8));
            self.note_replaced(database);
        }
        let is_all = databases.len() == DATABASES;
        self.keep(KeptState { deadline_ms: self.grace_end(), since_ms: self.clock_ms(), is_all, places });
        self.write_kept()
    }

    /// Databases whose maps are ready and hold nothing, as many as are wanted, or none if there are not so
    /// many.
    fn rooms(&mut self, wanted: usize) -> Answer<Vec<usize>> {
        loop {
            let mut rooms = Vec::new();
            // The ones that clients use seldom come first.
            for database in (0..DATABASES).rev() {
                if rooms.len() < wanted && self.databases[database].is_some() && self.len(database)? == 0 {
                    rooms.push(database);
                }
            }
            if rooms.len() == wanted {
                self.keeping.lacks_room = false;
                return Ok(rooms);
            }
            let may_wait = !self.keeping.lacks_room && !self.replication.effects.is_held;
            if let Some(missing) = self.missing_database().filter(|_| may_wait) {
                self.keeping.awaits_maps = true;
                return Err(Fault::MissingDatabase(missing));
            }
            if !self.has_kept() {
                self.keeping.lacks_room = false;
                return Ok(Vec::new());
            }
            self.give_up(0)?;
        }
    }

    /// A database without maps of its own that may get some.
    fn missing_database(&self) -> Option<usize> {
        let is_missing = |database: &usize| {
            self.databases[*database].is_none() && !self.keeping.states.has(self.places.now.maps(*database))
        };
        (0..DATABASES).rev().find(is_missing)
    }

    /// Creates maps for a flush that may come, so that it need not wait for them. There must be no batch.
    pub(crate) fn prepare_to_keep(&mut self) -> Answer {
        if self.keeping.grace_ms == 0 || self.layout() != Layout::Plain || self.replication.is_arriving {
            return Ok(());
        }
        let mut spare = 0i64;
        for database in 0..DATABASES {
            if self.databases[database].is_some() {
                spare += if self.len(database)? > 0 { -1 } else { 1 };
            }
        }
        self.commit()?;
        if spare < 0
            && let Some(missing) = self.missing_database()
        {
            self.create(missing)?;
        }
        Ok(())
    }

    /// Creates the maps of `database`. There must be no batch.
    pub(crate) fn create(&mut self, database: usize) -> Result<(), tembo::Error> {
        debug_assert!(self.batch.is_none(), "opening a map needs the pool's writer");
        match self.create_maps(database) {
            Ok(()) => self.note_created(),
            // A flush keeps nothing then.
            Err(_) if self.note_not_created() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn create_maps(&mut self, database: usize) -> Result<(), tembo::Error> {
        if self.collections.is_none() {
            self.collections = Some(Registry::open(self.pool)?);
        }
        self.house(database).map_err(into_error)?;
        if self.databases[database].is_none() {
            let number = self.places.now.maps(database);
            self.databases[database] = Some(Box::new(Database::open(self.pool, self.layout, number)?));
        }
        Ok(())
    }

    /// Makes sure that a database whose maps are to be created does not get kept ones. There must be no
    /// batch.
    pub(super) fn house(&mut self, database: usize) -> Answer {
        let housed = self.find_house(database);
        if housed.is_err() {
            self.abandon_batch();
        }
        housed
    }

    fn find_house(&mut self, database: usize) -> Answer {
        while self.keeping.states.has(self.places.now.maps(database)) {
            let mut free = None;
            for other in (0..DATABASES).rev() {
                let number = self.places.now.maps(other);
                if free.is_none() && !self.keeping.states.has(number) && self.len(other)? == 0 {
                    free = Some(other);
                }
            }
            match free {
                Some(other) => {
                    self.exchange(database, other);
                    self.write_kept()?;
                }
                None => self.give_up(0)?,
            }
            self.commit()?;
        }
        Ok(())
    }

    /// Notes that maps for a flush could not be created; the flush continues without them.
    pub(super) fn note_not_created(&mut self) -> bool {
        self.keeping.lacks_room = std::mem::take(&mut self.keeping.awaits_maps);
        self.keeping.lacks_room
    }

    pub(super) fn note_created(&mut self) {
        self.keeping.awaits_maps = false;
    }

    /// Gives each of two databases the maps of the other one, in memory.
    fn exchange(&mut self, a: usize, b: usize) {
        self.places.exchange(a, b);
        self.databases.swap(a, b);
    }

    fn keep(&mut self, state: KeptState) {
        self.keeping.states.0.push(state);
    }

    fn clock_ms(&self) -> u64 {
        // A master's stream is applied without a clock.
        if self.now_ms > 0 { self.now_ms } else { crate::clock::unix_ms() }
    }

    fn grace_end(&self) -> u64 {
        self.clock_ms().saturating_add(self.keeping.grace_ms)
    }

    /// Notifies clients that watch keys of a database that all its keys were replaced.
    fn note_replaced(&mut self, database: usize) {
        self.watches.touch_all(database);
        if let Some(changes) = &mut self.changes {
            changes.note_cleared(database);
        }
    }

    /// Writes the record of the kept states and the order of the maps, as part of the batch.
    pub(crate) fn write_kept(&mut self) -> Answer {
        let Keyspace { pool, batch, collections, dirty, places, keeping, .. } = self;
        let batch = writer(pool, batch)?;
        *dirty = true;
        places.note_changed();
        let Some(collections) = collections else { return Err(Fault::Malformed) };
        collections.set_order(batch, places.now)?;
        #[cfg(test)]
        if keeping.keeps_late {
            return Ok(());
        }
        collections.set_kept(batch, &keeping.states.encode())
    }

    /// Clears the maps of a state, as part of the batch.
    fn give_up(&mut self, at: usize) -> Answer {
        let state = self.keeping.states.0.remove(at);
        let Keyspace { pool, batch, collections, databases, places, keeping, reclaiming, .. } = self;
        let batch = writer(pool, batch)?;
        places.note_changed();
        for (_, number) in state.places {
            let number = usize::from(number);
            if let Some(collections) = collections {
                collections.doom_all(batch, number)?;
            }
            let Some(mut maps) = keeping.maps[number].take() else { continue };
            batch.clear(&maps.data)?;
            batch.clear(&maps.expires)?;
            maps.expires_len = Some(0);
            // From now on these maps are those of the database that was without maps.
            if let Some((database, _)) = places.now.iter().find(|(_, other)| *other == number) {
                databases[database] = Some(maps);
            }
        }
        *reclaiming = true;
        keeping.given_up += 1;
        self.write_kept()
    }

    /// Gives up the oldest state, in a commit of its own. There must be no batch.
    pub(crate) fn give_up_kept(&mut self) -> Answer {
        if !self.has_kept() {
            return Ok(());
        }
        let given_up = self.give_up(0).and_then(|()| Ok(self.commit()?));
        given_up.inspect_err(|_| self.abandon_batch())
    }

    /// Gives up the states whose time has ended, in a commit. There must be no batch.
    pub(crate) fn end_kept(&mut self) -> Answer {
        let now_ms = self.clock_ms();
        while let Some(at) = self.keeping.states.0.iter().position(|state| state.deadline_ms <= now_ms) {
            // The time of this state has ended, so it does not count as given up early.
            let early = self.keeping.given_up;
            let given_up = self.give_up(at).and_then(|()| Ok(self.commit()?));
            given_up.inspect_err(|_| self.abandon_batch())?;
            self.keeping.given_up = early;
        }
        Ok(())
    }

    /// The states, their keys, the seconds that the newest has left, and how many were given up early.
    pub(crate) fn kept_facts(&self) -> Result<(usize, u64, u64, u64), tembo::Error> {
        let states = &self.keeping.states.0;
        let left_ms = states.last().map_or(0, |state| state.deadline_ms.saturating_sub(self.clock_ms()));
        Ok((states.len(), self.kept_keys()?, left_ms / 1000, self.keeping.given_up))
    }

    /// For each kept state: whether it has all databases, and its databases with their keys.
    #[cfg(test)]
    #[expect(clippy::type_complexity, reason = "for a test that takes it apart at once")]
    pub(crate) fn kept_names(&self) -> Result<Vec<(bool, Vec<(usize, Vec<Vec<u8>>)>)>, tembo::Error> {
        let names = |(database, number): &(u8, u8)| {
            let maps = self.keeping.maps[usize::from(*number)].iter();
            let names = maps.flat_map(|maps| maps.data.iter());
            let names = names.map(|entry| entry.map(|entry| entry.key().to_vec()));
            Ok((usize::from(*database), names.collect::<Result<_, tembo::Error>>()?))
        };
        let state = |state: &KeptState| {
            Ok((state.is_all, state.places.iter().map(names).collect::<Result<_, tembo::Error>>()?))
        };
        self.keeping.states.0.iter().map(state).collect()
    }

    /// Brings the newest kept state back, and returns whether there was one. The data that it replaces are
    /// kept as the oldest state, so that repeated calls bring back each state. Works in the batch, which has
    /// no other change.
    pub(crate) fn unflush(&mut self, new_id: Id) -> Answer<bool> {
        let Some(state) = self.keeping.states.0.last().cloned() else { return Ok(false) };
        let mut present = Vec::new();
        for database in 0..DATABASES {
            let is_meant =
                state.is_all || state.places.iter().any(|(named, _)| usize::from(*named) == database);
            if is_meant && self.len(database)? > 0 {
                present.push((database as u8, self.places.now.maps(database) as u8));
            }
        }
        self.places.note_changed();
        self.keeping.states.0.pop();
        for &(database, number) in &present {
            self.keeping.maps[usize::from(number)] = self.databases[usize::from(database)].take();
        }
        for &(database, number) in &state.places {
            let (database, number) = (usize::from(database), usize::from(number));
            let holder = self.places.now.iter().find(|(_, other)| *other == number);
            let (holder, _) = holder.ok_or(Fault::Malformed)?;
            self.exchange(database, holder);
            self.databases[database] = self.keeping.maps[number].take();
        }
        if !present.is_empty() {
            let deadline_ms = if self.keeping.grace_ms > 0 { self.grace_end() } else { state.deadline_ms };
            let (since_ms, is_all) = (self.clock_ms(), state.is_all);
            // The replaced data go below the other states: they are needed last.
            let present = KeptState { deadline_ms, since_ms, is_all, places: present };
            self.keeping.states.0.insert(0, present);
        }
        self.write_kept()?;
        (0..DATABASES).for_each(|database| self.note_replaced(database));
        self.watches.touch_everything();
        self.waiters.touch_all();
        self.pubsub.invalidate_all();
        self.renew_history(new_id)?;
        Ok(true)
    }

    /// The databases that are to be kept when a whole new state replaces them, with the numbers of their
    /// maps. There must be no batch.
    pub(super) fn places_to_keep(&mut self) -> Answer<Vec<(u8, u8)>> {
        let mut places = Vec::new();
        if self.keeping.grace_ms > 0 && self.layout() == Layout::Plain {
            for database in 0..DATABASES {
                if self.len(database)? > 0 {
                    places.push((database as u8, self.places.now.maps(database) as u8));
                }
            }
            self.commit()?;
        }
        Ok(places)
    }

    /// The states from now on, where these databases are replaced by a whole new state.
    pub(super) fn kept_with(&self, places: Vec<(u8, u8)>) -> KeptStates {
        let mut states = self.keeping.states.clone();
        if !places.is_empty() {
            let (deadline_ms, since_ms) = (self.grace_end(), self.clock_ms());
            states.0.push(KeptState { deadline_ms, since_ms, is_all: true, places });
        }
        states
    }

    /// The numbers of kept maps as the batch has them, after changes that are undone; the maps of all numbers
    /// go to their holders.
    pub(super) fn restore_kept(&mut self, maps: &mut [Option<Box<Database>>; DATABASES], order: Order) {
        let Keyspace { batch, collections, keeping, pool, .. } = self;
        let states = match (batch.as_ref(), &*collections) {
            (Some(batch), Some(collections)) => collections.kept(batch),
            _ => stored_kept(pool).map_err(Fault::from),
        };
        keeping.states = states.unwrap_or_default();
        for (number, maps) in maps.iter_mut().enumerate().filter(|(number, _)| keeping.states.has(*number)) {
            keeping.maps[number] = maps.take();
        }
        for (database, number) in order.iter() {
            self.databases[database] = maps[number].take();
        }
    }
}

/// Lets a batch have the states.
pub(super) fn write_states(collections: &Registry, batch: &mut Batch<'_>, states: &KeptStates) -> Answer {
    collections.set_kept(batch, &states.encode())
}
