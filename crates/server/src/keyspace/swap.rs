//! SWAPDB: two databases get each other's maps, in constant time.
//!
//! # Media layout
//!
//! The maps have numbers, which are in their names and in the list of large collections, and "db.collections"
//! says which database has which maps: see [`format`](super::format). SWAPDB writes that record, of 16 bytes.
//!
//! # Commit point
//!
//! The commit of the batch. In memory the databases change places at once, and back if the change is undone.
//!
//! # Cost
//!
//! One record, and two look-ups for each key of the two databases that a client watches or waits for.

use std::rc::Rc;

use super::Keyspace;
use super::batch::writer;
use super::format::DATABASES;
use crate::fault::Answer;

/// A key of a database.
type Placed = (usize, Rc<[u8]>);

impl Keyspace<'_> {
    /// Lets two databases have each other's keys.
    pub(crate) fn swap(&mut self, a: usize, b: usize) -> Answer {
        if a == b || self.collections.is_none() {
            // All databases are empty.
            return Ok(());
        }
        let (watched, awaited) = self.keys_of_interest(a, b)?;
        let mut order = self.places.now;
        order.swap(a, b);
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        if let Some(collections) = collections {
            collections.set_order(writer(pool, batch)?, order)?;
        }
        *dirty = true;
        (self.places.now, self.places.is_changed) = (order, true);
        self.databases.swap(a, b);
        if let Some(changes) = &mut self.changes {
            changes.swap(a, b);
        }
        self.pubsub.invalidate_all();
        for (database, key) in watched {
            self.watches.touch(database, &key);
        }
        for (database, key) in awaited {
            self.waiters.touch(database, &key);
        }
        Ok(())
    }

    /// The keys that clients watch in two databases and that one of them has; and those that clients wait for
    /// in one of them and that the other one has.
    fn keys_of_interest(&mut self, a: usize, b: usize) -> Answer<(Vec<Placed>, Vec<Placed>)> {
        let (mut watched, mut awaited) = (Vec::new(), Vec::new());
        for (database, other) in [(a, b), (b, a)] {
            for key in self.watches.keys_of(database) {
                if self.find(database, &key)?.live.is_some() || self.find(other, &key)?.live.is_some() {
                    watched.push((database, key));
                }
            }
            for key in self.waiters.keys_of(database) {
                if self.find(other, &key)?.live.is_some() {
                    awaited.push((database, key));
                }
            }
        }
        Ok((watched, awaited))
    }

    /// Puts the databases where they were before changes that are undone.
    #[cold]
    pub(super) fn restore_places(&mut self) {
        if !self.places.is_changed {
            return;
        }
        let Keyspace { batch, collections, places, .. } = self;
        let order = match (batch.as_ref(), collections) {
            (Some(batch), Some(collections)) => collections.order(batch),
            _ => Ok(places.committed),
        };
        // A record that cannot be read is damage, which the next command that writes it finds.
        let order = order.unwrap_or(places.committed);
        let mut maps: [Option<Box<super::Database>>; DATABASES] = [const { None }; DATABASES];
        for (database, number) in self.places.now.iter() {
            maps[number] = self.databases[database].take().or_else(|| self.keeping.maps[number].take());
        }
        self.restore_kept(&mut maps, order);
        self.places.now = order;
        self.places.is_changed = self.batch.is_some() || order != self.places.committed;
    }
}
