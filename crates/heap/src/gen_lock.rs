//! Generational locks: held from one transaction to later ones, and free after a crash.
//!
//! A lock is a word: the heap's generation if it is held, any other value if not. Opening a heap for writing
//! starts the next generation, which frees all earlier locks at once, wherever they are (NV-heaps 3.3).
//! Transactions need no such locks. They are for work longer than a transaction: a job that a worker has
//! taken, or a document that is being edited.

use crate::Persist;
use crate::error::Result;
use crate::objects::brand::Brand;

use crate::objects::place::Ref;
use crate::tx::{ReadTx, Tx};

/// A lock in an object, which no crash leaves held.
///
/// ```
/// use tembo_heap::{Error, GenLock, Heap, Options, Persist};
///
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Job {
///     is_taken: GenLock,
///     number: u64,
/// }
///
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("job.heap");
/// let options = Options::new().create(true);
/// Heap::<_, Job>::with(&path, &options, |heap| {
///     assert!(heap.write(|tx, job| job.is_taken().try_lock(tx))?);
///     // Work that takes many transactions; nobody else gets the job meanwhile.
///     assert!(!heap.write(|tx, job| job.is_taken().try_lock(tx))?);
///     Ok(())
/// })?; // The process ends without unlocking.
/// Heap::<_, Job>::with(&path, &options, |heap| {
///     assert!(heap.write(|tx, job| job.is_taken().try_lock(tx))?);
///     heap.write(|tx, job| job.is_taken().unlock(tx))
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct GenLock {
    generation: u64,
}

impl<'t, B: Brand> Ref<'t, B, GenLock> {
    /// Whether the lock is held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub fn is_locked(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(tx.get(self.generation())? == tx.shared.generation)
    }

    /// Takes the lock with the commit, if it is free. It stays held until it is [unlocked](Self::unlock), by
    /// any thread, or until the heap is opened again.
    ///
    /// # Errors
    ///
    /// As for [`Tx::set`].
    pub fn try_lock(self, tx: &mut Tx<'t, B>) -> Result<bool> {
        if self.is_locked(tx)? {
            return Ok(false);
        }
        let generation = tx.shared.generation;
        tx.set(self.generation(), generation)?;
        Ok(true)
    }

    /// Frees the lock with the commit.
    ///
    /// # Errors
    ///
    /// As for [`Tx::set`].
    pub fn unlock(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.set(self.generation(), 0)
    }
}
