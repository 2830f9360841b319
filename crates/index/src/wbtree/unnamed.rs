//! Trees without a name, as parts of other structures.

use super::WbTree;
use super::counting::Counting;
use crate::error::{Error, Result};
use crate::map_kind::{MapFormat, MapKind};
use tembo_pool::{Pool, Tx};

impl WbTree {
    /// Makes an empty tree that only its owner's structure leads to, by [`head`](Self::head).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is full. The transaction then is as it was.
    pub fn create_unnamed(tx: &mut Tx<'_>) -> Result<WbTree> {
        let before = tx.savepoint();
        let outcome =
            WbTree::write_header(tx, Counting::Nothing).and_then(|header| WbTree::at(tx.pool(), header));
        if outcome.is_err() {
            tx.rollback_to(before);
        }
        outcome
    }

    /// The tree whose head lies at `off`. Takes the same time for a tree of any size.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if no tree's head lies there, [`Error::FormatVersion`].
    pub fn open_unnamed(pool: &Pool, off: u64) -> Result<WbTree> {
        if let MapFormat::Other { found, supported, .. } = MapKind::Plain.format_at(pool, off)? {
            return Err(Error::FormatVersion { found, supported });
        }
        WbTree::at(pool, off)
    }

    /// Where the tree's head lies.
    pub fn head(&self) -> u64 {
        self.header_off()
    }

    /// Frees the head of a tree that is empty and of which nothing is being freed any more.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] when the pool is damaged.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool, or the tree is not empty.
    pub fn free_unnamed(self, tx: &mut Tx<'_>) -> Result<()> {
        self.assert_writes(tx);
        let is_empty = self.root(self.pending(tx))?.is_empty() && tx.load(self.doomed_off())? == 0;
        assert!(is_empty, "a tree that is not empty");
        Ok(tx.free(self.header_off())?)
    }
}
