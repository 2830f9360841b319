//! Persistent objects in a Tembo pool: a program's own structs, linked by pointers, changed in transactions, and there again after a crash.
//!
//! What may lie in a heap, and what may point where, the compiler checks: nothing leads from the heap to ordinary memory or into
//! another heap, nothing is changed outside of a transaction, and nothing of a transaction outlives it. The rest is automatic: objects die with
//! their last pointer, and a commit costs one fence.
//!
//! ```
//! use tembo_heap::{Error, Heap, Options, PRc, Persist, brand};
//!
//! #[derive(Persist)]
//! #[repr(C)]
//! struct Node {
//!     value: u64,
//!     next: PRc<Node>,
//! }
//!
//! #[derive(Default, Persist)]
//! #[repr(C)]
//! struct List {
//!     first: PRc<Node>,
//!     len: u64,
//! }
//!
//! brand!(MyList);
//!
//! # fn main() -> Result<(), Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("list.heap");
//! let options = Options::new().create(true);
//! let heap = Heap::<MyList, List>::open(&path, &options)?;
//! heap.write(|tx, list| {
//!     let node = tx.alloc(Node { value: 7, next: PRc::null() })?;
//!     let first = tx.load(list.first())?;
//!     tx.link(node.next(), first)?;
//!     tx.link(list.first(), node)?;
//!     *tx.get_mut(list.len())? += 1;
//!     Ok(())
//! })?; // durable from here on
//! let value = heap.read(|tx, list| match tx.load(list.first())? {
//!     Some(node) => Ok(Some(tx.get(node.value())?)),
//!     None => Ok(None),
//! })?;
//! assert_eq!(value, Some(7));
//! # Ok(())
//! # }
//! ```
//!
//! # Media layout
//!
//! `PmHeap`, named by the pool's root `heap`, leads to the root object, the type records (`PmType`), the heads of the lists of dying
//! objects (`PmDying`), and the orphan slots (`PmOrphans`). An object is a block: its head (`PmObject`, 16 bytes) and its value; an array has a `PmArray` and elements
//! instead. A value of 64 bytes is a line by itself, whose tag is its head ([`Tx::alloc_tagged`](tembo_pool::Tx::alloc_tagged)). A pointer is the offset of an object, eight bytes; where the
//! head is a tag, that of the value less 8. See `layout.rs`.
//!
//! # Invariants
//!
//! - I1: an object's counts are those of the pointers that lead to it: from objects that are alive, or dying and not released yet. The root has
//!   one more.
//! - I2: an object without strong pointers is an orphan, dying or a shell, and exactly one of these.
//! - I3: the lists of dying objects end, and have each once.
//! - I4: a pointer leads to an object of its type.
//!
//! `check.rs` walks all of them.
//!
//! # Commit point
//!
//! The fence of the pool's transaction (`commit.rs`); the pool's record holds all words that a transaction changes, the counts included.
//!
//! # Recovery
//!
//! The pool's alone: records are replayed or not. Objects that were dying, and the orphans of a process that is gone, are released by the
//! commits after, a bounded number by each.
//!
//! # Concurrency
//!
//! Any number of threads; each transaction sees one state of the heap, and commits as if it had run alone (`orec.rs`). Count records are owned after data records, in the
//! order of their numbers, and nobody waits for a data record without giving up in the end.
//!
//! # Source
//!
//! NV-heaps, all of section 3. D1: what its run-time checks guard is guarded by types. D2: pointers have 8 bytes instead of 16, and
//! objects 16 bytes of metadata instead of 80. D3: changes are redone from one record with one fence, rather than undone from copies with one fence
//! each. D4: weak pointers lead to the object itself, whose memory stays until the last of them is gone, rather than to a proxy. D5: dying objects wait in a list
//! through the first words of their own heads, so that destruction needs no stack, and goes on where it was after a crash.
//!
//! # Reading order
//!
//! `persist.rs`, `slots.rs` and `place.rs` (types), `layout.rs` (media), `orec.rs` (isolation), `tx.rs`, `commit.rs`, `collect.rs`, `run.rs`, `handle.rs`, `heap.rs`, `check.rs`, `migrate.rs`.

#![deny(unsafe_code)]

mod check;
pub mod collections;
mod counts;
mod error;
pub mod format;
mod gen_lock;
mod handles;
mod heap;
mod migrate;
mod objects;
#[cfg(feature = "research")]
mod research;
mod retry;
mod stm;
mod tx;

pub use check::{
    Circle, Description, HeapFormat, Summary, TypeUsage, check, check_beside_unknown, describe, format_at,
};
pub use error::{Error, OtherLayout, OtherRoot, Result, SameName};
pub use gen_lock::GenLock;
pub use handles::Handle;
pub use heap::{Heap, Repeatable};
pub use migrate::{Migrate, Migrations};
pub use objects::brand::{Brand, NamedBrand, SameHeap, Scoped};
pub use objects::layout::ROOT_KIND;
pub use objects::persist::{Describe, LayoutHash, Persist, Plain};
pub use objects::place::{Arr, Obj, Ref, Target};
pub use objects::slots::{PArr, PRc, PWeak};
pub use objects::standard::Optional;
#[cfg(feature = "research")]
pub use research::Layer;
pub use tembo_heap_derive::{Persist, Plain};
/// The derives for programs that know `tembo` only, which has them under the names of those of this crate.
#[doc(hidden)]
pub mod derives_of_tembo {
    pub use tembo_heap_derive::{PersistOfTembo, PlainOfTembo};
}
pub use tembo_pool::{Options, Stats};
pub use tx::{ReadTx, RefMut, Tx};
