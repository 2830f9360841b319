//! Beginning and ending a point in time: see [`super::point`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Keyspace;
use super::batch::writer;
use super::format::{ELEMENTS, LISTS, OLD_RECORDS, ORDERED};
use super::point::{
    ELEMENTS_NUMBER, LISTS_NUMBER, Lost, ORDERED_NUMBER, Point, Progress, open_if_there_is_room,
};
use crate::fault::Answer;

impl Keyspace<'_> {
    /// Begins a point in time: the data that are committed now in the databases that a copy walks. There must
    /// be no batch and no other point.
    pub(crate) fn begin_point(&mut self, maps: Vec<u8>) -> Answer<Rc<Point>> {
        debug_assert!(self.batch.is_none() && self.batch.point.is_none());
        self.empty_old_records()?;
        if self.old_records.is_none() {
            self.old_records = open_if_there_is_room(self.pool, OLD_RECORDS)?;
        }
        let (layout, pool) = (self.layout, self.pool);
        let mut found = Vec::new();
        for &number in &maps {
            found.extend(pool.find_map(&layout.map_names(number.into()).0)?.map(|map| (number, map)));
        }
        for (number, name) in [(ELEMENTS_NUMBER, ELEMENTS), (ORDERED_NUMBER, ORDERED), (LISTS_NUMBER, LISTS)]
        {
            found.extend(pool.find_map(name)?.map(|map| (number, map)));
        }
        let point = Rc::new(Point {
            old_records: self.old_records.clone(),
            maps: found,
            next_id: self.collections.as_ref().map_or(Ok(1), |collections| collections.next_id())?,
            progress: RefCell::new(Progress { maps, ..Progress::default() }),
            lost: Cell::new(None),
            old_bytes: Cell::new(0),
            holds_back: Cell::new(false),
            lets_go: Cell::new(false),
        });
        self.batch.point = Some(point.clone());
        Ok(point)
    }

    /// The point whose copy is under way.
    pub(crate) fn point(&self) -> Option<&Point> {
        self.batch.point.as_deref()
    }

    /// Whether the pool would have more room without the copy that is under way.
    pub(crate) fn copy_is_in_the_way(&self) -> bool {
        self.point().is_some_and(Point::is_in_the_way)
    }

    /// Lets collections that were given up be removed beside a copy, which keeps their elements.
    pub(crate) fn let_go_beside_copy(&mut self) {
        if let Some(point) = &self.batch.point
            && point.holds_back.replace(false)
        {
            point.lets_go.set(true);
            self.reclaiming = true;
        }
    }

    /// Bytes of old records, about.
    pub(crate) fn old_bytes(&self) -> u64 {
        self.point().map_or(0, |point| point.old_bytes.get())
    }

    /// Ends the point, and gives up its old records. Works in a full pool. There must be no batch.
    pub(crate) fn end_point(&mut self) -> Answer {
        debug_assert!(self.batch.is_none());
        self.batch.point = None;
        self.reclaiming = true;
        self.empty_old_records()
    }

    /// Notes that the copy cannot be completed.
    pub(crate) fn lose_point(&mut self, why: Lost) {
        if let Some(point) = &self.batch.point {
            point.lost.set(point.lost.get().or(Some(why)));
        }
    }

    /// Removes old records, of a copy that has ended or did not survive a restart.
    pub(super) fn empty_old_records(&mut self) -> Answer {
        if self.old_records.is_none() {
            self.old_records = self.pool.find_map(OLD_RECORDS)?;
        }
        let Some(map) = &self.old_records else { return Ok(()) };
        if map.len()? > 0 {
            writer(self.pool, &mut self.batch)?.clear(map)?;
            (self.dirty, self.reclaiming) = (true, true);
            self.commit()?;
        }
        Ok(())
    }
}
