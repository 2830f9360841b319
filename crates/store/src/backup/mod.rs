//! Backups: a snapshot of a store as a stream of bytes, whole or as the difference to an earlier snapshot.
//!
//! # Format
//!
//! ```text
//! "TmBckup" version  frame(header)  { frame(keyspace) { frame(changes) } }  frame(end)
//! ```
//!
//! All numbers are little-endian. A *frame* is its kind (1 byte), the length of its contents (4 bytes), the
//! contents, and the XXH3-64 of all this, with the frame's position in the stream as the seed (8 bytes). So
//! no byte can change, and no frame go, come or move, without being noticed.
//!
//! | kind | contents |
//! |---|---|
//! | `H` | the pool's UUID (16); the number of the snapshot that it is a difference to, or 0 (8); the number of the snapshot (8); the store's name |
//! | `K` | the keyspace's id (8), its retention as in `PmKeyspace` (8), its name |
//! | `C` | changes: length of the key (4), of the value (4), or 2^32-1 for a key that was deleted; key; value |
//! | `E` | how many keyspaces (8) and changes (8) there are |
//!
//! Keyspaces are in the order of their names, and keys in theirs. A whole backup has no deletions. A
//! difference names all keyspaces that are there: one that is not named was dropped, and one whose id has
//! changed was dropped and made anew.
//!
//! # Restoring
//!
//! [`Restoring`] fills a store under a name that nobody asks for, and gives it its name by one record when
//! all streams were read to their ends. An error drops it. A crash before leaves the other name, which the
//! next restore to the same name drops first.

mod frames;
mod restore;
mod write;

pub use restore::Restoring;
pub(crate) use restore::hidden_store;
pub use write::BackupSummary;

/// The first bytes; the last of them is the version.
const MAGIC: [u8; 8] = *b"TmBckup\x01";
const VERSION: u8 = MAGIC[7];

/// Kinds of frames.
const HEADER: u8 = b'H';
const KEYSPACE: u8 = b'K';
const CHANGES: u8 = b'C';
const END: u8 = b'E';

/// The length of a value that stands for none.
const DELETED: u32 = u32::MAX;
