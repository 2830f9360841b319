//! The batch of the keyspace: as [`tembo::Batch`], but a record that a copy of a [`Point`] still needs is
//! kept before it changes.
//!
//! All changes of the keyspace's maps go through this type. It gives away only shared references of the batch
//! that it has, so that none can go past it.

use std::ops::{Bound, ControlFlow, Deref, RangeBounds};
use std::rc::Rc;

use tembo::{Map, Pool, Result, Savepoint};

use super::point::{Broken, Point, is_broken};
use crate::fault::{Answer, Fault};

/// Records of a range that are looked at together.
const RANGE_PART: usize = 256;

pub(crate) struct Batch<'p> {
    inner: tembo::Batch<'p>,
    point: Option<Rc<Point>>,
    /// A command is under way, which is taken back whole if a change of it fails.
    is_nested: bool,
}

impl<'p> Deref for Batch<'p> {
    type Target = tembo::Batch<'p>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Batch<'_> {
    #[inline(always)]
    pub(crate) fn put(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_parts(map, key, &[value])
    }

    #[inline(always)]
    pub(crate) fn put_parts(&mut self, map: &Map, key: &[u8], value: &[&[u8]]) -> Result<bool> {
        self.keep(map, key)?;
        self.inner.put_parts(map, key, value)
    }

    /// As [`tembo::Batch::put_many`].
    pub(crate) fn put_many<'k, V: AsRef<[u8]>>(
        &mut self,
        map: &Map,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        decide: impl FnMut(usize, Option<&[u8]>) -> Option<V>,
    ) -> Result<()> {
        if self.point.is_some() {
            keys.clone().try_for_each(|key| self.keep(map, key))?;
        }
        self.inner.put_many(map, keys, decide)
    }

    pub(crate) fn put_to_free(&mut self, map: &Map, key: &[u8], value: &[u8]) -> Result<bool> {
        self.keep(map, key)?;
        self.inner.put_to_free(map, key, value)
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, map: &Map, key: &[u8]) -> Result<bool> {
        self.keep(map, key)?;
        self.inner.remove(map, key)
    }

    pub(crate) fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        map: &Map,
        bounds: impl RangeBounds<K>,
    ) -> Result<u64> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let bounds = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        if self.point.as_ref().is_some_and(|point| point.has(map)) && !is_broken(Broken::Ranges) {
            self.keep_range(map, bounds.clone())?;
        }
        self.inner.remove_range(map, bounds)
    }

    /// Removes all records. If they are many, a copy that needs them is lost.
    pub(crate) fn clear(&mut self, map: &Map) -> Result<()> {
        if let Some(point) = &self.point
            && point.keeps_what_is_cleared(&self.inner, map)?
        {
            self.keep_range(map, (Bound::Unbounded, Bound::Unbounded))?;
        }
        self.inner.clear(map)
    }

    /// Frees space of a map that was cleared: as [`tembo::Batch::reclaim`].
    pub(crate) fn reclaim(&mut self, map: &Map, steps: usize) -> Result<bool> {
        self.inner.reclaim(map, steps)
    }

    #[inline(always)]
    pub(crate) fn begin_nested(&mut self) -> Savepoint {
        self.is_nested = true;
        self.inner.begin_nested()
    }

    #[inline(always)]
    pub(crate) fn end_nested(&mut self) {
        self.is_nested = false;
        self.inner.end_nested();
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        self.is_nested = false;
        self.inner.rollback_to(savepoint);
    }

    pub(crate) fn commit(self) -> Result<()> {
        self.inner.commit()
    }

    #[inline(always)]
    fn keep(&mut self, map: &Map, key: &[u8]) -> Result<()> {
        match &self.point {
            None => Ok(()),
            Some(point) => point.keep(&mut self.inner, map, key, self.is_nested),
        }
    }

    #[cold]
    fn keep_range(&mut self, map: &Map, (mut low, high): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<()> {
        loop {
            let mut keys = Vec::new();
            self.inner.walk(map, (low.clone(), high.clone()), |key, _| {
                keys.push(key.to_vec());
                if keys.len() < RANGE_PART { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            keys.iter().try_for_each(|key| self.keep(map, key))?;
            match keys.pop() {
                Some(last) if keys.len() + 1 == RANGE_PART => low = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }
}

/// The batch under way, if there is one, and the point that it keeps records for.
#[derive(Default)]
pub(crate) struct Batches<'p> {
    current: Option<Batch<'p>>,
    pub(super) point: Option<Rc<Point>>,
}

impl<'p> Batches<'p> {
    /// The batch under way, opened if there is none.
    #[inline(always)]
    pub(crate) fn open(&mut self, pool: &'p Pool) -> Result<&mut Batch<'p>> {
        match &mut self.current {
            Some(batch) => Ok(batch),
            none => {
                let point = self.point.clone();
                Ok(none.insert(Batch { inner: pool.batch()?, point, is_nested: false }))
            }
        }
    }

    pub(super) fn as_ref(&self) -> Option<&Batch<'p>> {
        self.current.as_ref()
    }

    pub(super) fn as_mut(&mut self) -> Option<&mut Batch<'p>> {
        self.current.as_mut()
    }

    pub(super) fn take(&mut self) -> Option<Batch<'p>> {
        self.current.take()
    }

    pub(super) fn is_some(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn is_none(&self) -> bool {
        self.current.is_none()
    }
}

/// The batch under way, opened if there is none.
pub(in crate::keyspace) fn writer<'b, 'p>(
    pool: &'p Pool,
    batch: &'b mut Batches<'p>,
) -> Answer<&'b mut Batch<'p>> {
    Ok(batch.open(pool)?)
}

/// The error of the pool that a fault stands for.
pub(in crate::keyspace) fn into_error(fault: Fault) -> tembo::Error {
    match fault {
        Fault::Engine(error) => error,
        _ => tembo::Error::ReadOnly,
    }
}
