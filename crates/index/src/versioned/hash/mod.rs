//! The CDDS hash table: a map of byte strings without an order, of which every version that somebody holds
//! can be read.
//!
//! The essay of `versioned/mod.rs` holds for it, and this one.
//!
//! # Media layout
//!
//! ```text
//! PmCddsHead ──root──▶ PmCddsTrieNode ──child──▶ PmCddsTrieNode ──entry──▶ PmCddsRecord: key, value
//!   │ seed              birth, depth, maps         birth, depth, maps
//!                       up to 16 children,         up to 16 children,
//!                       up to 16 entries           up to 16 entries
//! ```
//!
//! A trie of the keys' hashes, 4 bits from the highest on at a time. A node has as many children and
//! entries as its maps have bits. An entry has the key's hash and leads to a record; a key and a value of
//! up to 8 bytes each lie in the entry itself. Keys whose hashes are equal in all 64 bits lie in one list,
//! a node below 16 others. See `layout.rs` for the structs.
//!
//! Why 16 places: what a change costs are the lines that it writes, which are those of the nodes on its
//! way, and about two more for each of them, for its bit in the allocator and its item in a queue. In a
//! table of n keys these are log16 n nodes of 3 lines where all places have children. With 32 places they
//! are a fifth fewer, of 5 lines; with 8 a third more, of 2 lines.
//!
//! # Invariants
//!
//! I1 to I5 of `versioned/mod.rs`, and:
//!
//! * I6: the hash of an entry's key, under the head's seed, begins with the places on the way to it, and is
//!   the one that the entry has. No key is twice in a version. (`check_node`, `check_entry`,
//!   `TrieNode::place_on`)
//! * I7: the form is canonical: below every node but the root are at least two keys, so that keys and seed
//!   alone decide which nodes there are, and an entry holds its key and value if they fit. (`check_node`,
//!   `check_entry`)
//! * I8: a node was made no later than the one above it, and an entry put no later than its node was made.
//!   (`check_birth`, `check_entry`)
//!
//! I4 is simple here: nodes are never stored to once they are published.
//!
//! # Commit point
//!
//! That of all versions. A change copies all nodes from the root to where it happens into fresh blocks,
//! which the record covers, and the record has the new root.
//!
//! # Recovery
//!
//! None of its own: the head has either root, and what the other one leads to as well is as it was.
//!
//! # Concurrency
//!
//! Readers find the root of their version in memory or in a snapshot, and everything from there on is as it
//! was when they began to.
//!
//! # Source
//!
//! Venkataraman et al., *Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory*,
//! FAST 2011, section 3: the paper tells of a hash table in the manner of persistent data structures, in
//! which an update copies what it changes, and says nothing of its structure. This one is a hash array
//! mapped trie (Bagwell; Steindorfer and Vinju).
//!
//! * D6: what is made and given up in one version is never allocated, and within a version nodes are
//!   changed in place in memory, so that many changes copy a node once.

mod check;
mod clear;
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

/// A map from byte strings to byte strings without an order, of which every version that is held by a
/// snapshot can be read.
///
/// Every change is durable when the call returns, is a version of its own, and costs one fence; changes in
/// a [`batch`](VersionedMap::batch) are one version together, and so are those of threads that change the
/// map at once. Readers never wait.
///
/// A lookup takes fewer steps than in a [`VersionedTree`](crate::VersionedTree) and compares no keys on its
/// way; a change writes more, since it copies all nodes on its way. Keys of equal hash are found one by
/// one: an attacker needs the table's seed, which only the pool's file has, to make such keys.
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
    /// As [`create`](Self::create), with a seed for the hashes instead of one that nobody knows: for tables
    /// that are to be alike in all their nodes, and whose keys nobody chooses to harm.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub fn create_with_seed(pool: &Pool, name: &str, seed: u64) -> Result<VersionedHash> {
        VersionedMap::create_seeded(pool, name, seed)
    }
}
