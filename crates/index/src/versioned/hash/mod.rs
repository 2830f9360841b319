//! The CDDS hash table: an unordered map of byte strings. Every held version can be read.
//!
//! The head of `versioned/mod.rs` applies as well.
//!
//! # Media layout
//!
//! ```text
//! PmVersionedHead ─root─▶ PmVersionedTrieNode ─child─▶ PmVersionedTrieNode ─entry─▶ PmVersionedRecord
//!   │ seed                birth, depth, maps           birth, depth, maps           key, value
//!                         up to 16 children,           up to 16 children,
//!                         up to 16 entries             up to 16 entries
//! ```
//!
//! A trie of the keys' hashes, 4 bits from the highest on at a time. A node has as many children and
//! entries as its maps have bits. An entry has the key's hash and leads to a record; a key and a value of
//! up to 8 bytes each lie in the entry itself. Keys whose hashes are equal in all 64 bits lie in one list,
//! a node below 16 others. See `layout.rs` for the structs.
//!
//! Why 16 places: the cost of a change is the number of lines that it writes. These are the lines of the
//! nodes on its path, and about two more for each node: its bit in the allocator and its item in a queue. In
//! a table of n keys there are log16 n such nodes, with 3 lines if all places have children. With 32 places
//! there would be a fifth fewer nodes, of 5 lines; with 8 places a third more, of 2 lines.
//!
//! # Invariants
//!
//! I1 to I5 of `versioned/mod.rs`, and:
//!
//! * I6: the entry has the hash of its key under the head's seed, and the places on the path to the entry are
//!   the leading bits of that hash. A key is at most once in a version. (`check_node`, `check_entry`,
//!   `TrieNode::place_on`)
//! * I7: the form is canonical. Every node except the root has at least two keys below it, so keys and seed
//!   alone determine the nodes. An entry holds its key and value if they fit. (`check_node`, `check_entry`)
//! * I8: a node was made no later than the one above it, and an entry put no later than its node was made.
//!   (`check_birth`, `check_entry`)
//!
//! I4 is simple here: nodes are never stored to once they are published.
//!
//! # Commit point
//!
//! As for all versions. A change copies all nodes on its path into fresh blocks; the redo record covers these
//! and has the new root.
//!
//! # Recovery
//!
//! None of its own: the head has the old or the new root, and blocks that both lead to are unchanged.
//!
//! # Concurrency
//!
//! Readers find the root of their version in memory or in a snapshot, and everything below it never changes.
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, section 3. The paper mentions a hash table in the manner of persistent data structures, whose
//! updates copy what they change, but does not describe its structure. This one is a hash array mapped trie
//! (Bagwell; Steindorfer and Vinju).
//!
//! * D6: within a version, nodes are changed in place in memory, so many changes copy a node only once, and a
//!   node that is made and given up in one version is never allocated.

mod check;
mod clear;
mod compact;
mod diff;
mod draft;
mod edit;
mod get;
mod hashed;
pub(crate) mod layout;
mod node;
mod structure;
mod walk;

pub use hashed::HashStructure;
pub use walk::VersionedHashIter;

use super::map::VersionedMap;
use crate::error::Result;
use tembo_pool::Pool;

/// An unordered map from byte strings to byte strings. Every version that a snapshot holds can be read.
///
/// Every change is durable when the call returns, makes a version, and costs one fence. The changes of a
/// [`batch`](VersionedMap::batch) make one version together, and so may concurrent changes of several
/// threads. Readers never wait.
///
/// A lookup takes fewer steps than in a [`VersionedTree`](crate::VersionedTree) and compares no keys in inner
/// nodes. A change writes more, since it copies all nodes on its path. Keys of equal hash are searched one by
/// one. To make such keys, an attacker needs the table's seed, which is only in the pool file.
///
/// ```
/// # fn main() -> Result<(), tembo_index::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("example.pool");
/// use tembo_index::VersionedHash;
/// use tembo_pool::{Options, Pool};
///
/// let mut options = Options::new();
/// options.create = true;
/// let pool = Pool::open(&path, &options)?;
/// let sessions = VersionedHash::create(&pool, "sessions")?;
/// sessions.put(b"4711", b"logged in")?;
/// let before = sessions.snapshot();
/// sessions.batch(|batch| {
///     batch.put(b"4711", b"logged out")?;
///     batch.put(b"4712", b"logged in")
/// })?;
/// assert_eq!(sessions.get(b"4711")?.as_deref(), Some(&b"logged out"[..]));
/// assert_eq!(before.get(b"4711")?.as_deref(), Some(&b"logged in"[..]));
/// assert_eq!(before.iter().count(), 1);
/// sessions.keep(&before, "noon")?;
/// assert_eq!(sessions.diff(before.version(), sessions.version())?.len(), 2);
/// # Ok(())
/// # }
/// ```
pub type VersionedHash = VersionedMap<HashStructure>;

impl VersionedMap<HashStructure> {
    /// As [`create`](Self::create), but with a given seed for the hashes instead of a secret one. For tables
    /// that must have identical nodes, and whose keys no attacker chooses.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn create_with_seed(pool: &Pool, name: &str, seed: u64) -> Result<VersionedHash> {
        VersionedMap::create_seeded(pool, name, seed)
    }
}
