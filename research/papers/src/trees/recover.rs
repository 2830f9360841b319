//! Opening a tree after a crash, or after it was closed, which is the same.

use super::key::KeyKind;
use super::{Config, IDENTITY_OFF, LOG_BYTES_OFF, LOG_OFF, Scheme, Tree, TreeError, identity, shapes};
use crate::mem::Mem;
use tembo_pmem::LINE_BYTES;

impl<M: Mem, K: KeyKind, S: Scheme> Tree<M, K, S> {
    /// Opens the tree that was made with `config`; the log's size is read. Every node is visited, to find
    /// what is free; the paper's trees need no such visit for their contents.
    ///
    /// # Errors
    ///
    /// [`TreeError::NotThisTree`], [`TreeError::Damaged`], and [`TreeError::Volatile`] of a volatile tree.
    pub fn open(mem: M, config: Config) -> Result<Self, TreeError> {
        if !S::PERSISTENT {
            return Err(TreeError::Volatile);
        }
        shapes::<K, S>(&config)?;
        let (found, expected) = (mem.load_u64(IDENTITY_OFF), identity::<K, S>(&config));
        if found != expected {
            return Err(TreeError::NotThisTree { scheme: S::NAME, found, expected });
        }
        let log_bytes = mem.load_u64(LOG_BYTES_OFF);
        if !log_bytes.is_multiple_of(LINE_BYTES) || log_bytes > mem.len_bytes() - LOG_OFF {
            return Err(TreeError::Damaged(format!("its log has {log_bytes} bytes")));
        }
        let mut tree: Self = Tree::attach(mem, config, log_bytes)?;
        tree.log.recover(&tree.mem).map_err(TreeError::Damaged)?;
        let reached = tree.reach().map_err(TreeError::Damaged)?;
        tree.space.rebuild(reached.nodes, reached.blocks).map_err(TreeError::Damaged)?;
        Ok(tree)
    }
}
