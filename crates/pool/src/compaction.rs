//! Compaction: blocks move from sparse slabs into fuller ones, so that the sparse ones become free space.
//!
//! The pool chooses the slabs and closes them to allocation. Structures move their own blocks: each asks
//! [`Compaction::has`] of its blocks, copies those that lie in closed slabs into new blocks, which therefore
//! lie elsewhere, and frees the old ones, in transactions like any other. A crash at any moment leaves either
//! the old block or the new one, so there is nothing to recover.

use crate::{Pool, Result};
use std::ops::Range;

/// Slabs that are being emptied. Dropping it allows allocations from them again.
#[derive(Debug)]
pub struct Compaction {
    pool: Pool,
    /// Where the blocks of closed slabs lie, in ascending order.
    spans: Vec<Range<u64>>,
}

impl Compaction {
    /// Whether the block at `off` is to be moved. O(log n) of the number of closed slabs. Nothing is after
    /// the pool was found full, as new blocks may lie in these slabs again.
    pub fn has(&self, off: u64) -> bool {
        if !self.pool.inner.alloc.has_closed() {
            return false;
        }
        let after = self.spans.partition_point(|span| span.start <= off);
        after > 0 && self.spans[after - 1].contains(&off)
    }

    /// Whether it is a compaction of this pool.
    pub fn is_of(&self, pool: &Pool) -> bool {
        std::sync::Arc::ptr_eq(&self.pool.inner, &pool.inner)
    }

    /// Whether there is nothing to gain.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.pool.inner.alloc.end_compaction();
    }
}

impl Pool {
    /// Closes the sparse slabs whose blocks find room in fuller ones; `None` if a compaction is under way.
    /// Reads every slab of the pool.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the pool is damaged;
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly), [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn compaction(&self) -> Result<Option<Compaction>> {
        self.check_process()?;
        if self.is_read_only() {
            return Err(crate::ErrorKind::ReadOnly.into());
        }
        self.inner.reclaim_all()?;
        let spans = self.inner.alloc.close_sparse(self.region())?;
        Ok(spans.map(|spans| Compaction { pool: self.clone(), spans }))
    }

    /// Whether the pool has grown since the last call although at least 16 MiB, and a quarter of what is in
    /// use, lay in holes: a compaction could have made room. One load.
    pub fn take_outgrown_waste(&self) -> bool {
        self.inner.alloc.take_outgrown_waste()
    }

    /// Bytes of free blocks in slabs that also have allocated ones, as far as this process knows them.
    pub fn spare_bytes(&self) -> u64 {
        self.inner.alloc.spare_bytes()
    }

    /// Reads up to `limit` slabs that this process does not know yet; returns whether there may be more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the pool is damaged;
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn learn_slabs(&self, limit: usize) -> Result<bool> {
        self.check_process()?;
        self.inner.alloc.read_some(self.region(), limit)
    }
}
