//! Persistent objects in a Tembo pool: a program's own structs, linked by pointers, and changed in
//! transactions.
//!
//! The compiler checks the types of objects and the targets of pointers. No pointer leads from the heap to
//! ordinary memory or into another heap, no change happens outside a transaction, and nothing of a
//! transaction outlives it. The rest is automatic: objects die with their last pointer, and a commit costs
//! one fence.
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
//! `PmHeap`, named by the pool's root `heap`, leads to the root object, the type records (`PmType`), the
//! heads of the lists of dying objects (`PmDying`), and the orphan slots (`PmOrphans`). An object is a block:
//! its head (`PmObject`, 16 bytes) and its value. An array has a `PmArray` and elements in place of a value.
//! A value of 64 bytes is a line of its own, whose tag is its head
//! ([`Tx::alloc_tagged`](tembo_pool::Tx::alloc_tagged)). A pointer is the offset of an object, eight bytes;
//! where the head is a tag, it is the offset of the value less 8. See `layout.rs`.
//!
//! # Invariants
//!
//! - I1: an object's counts are those of the pointers that lead to it: from objects that are alive, or dying
//!   and not released yet. The root has one more.
//! - I2: an object without strong pointers is an orphan, dying or a shell, and exactly one of these.
//! - I3: the lists of dying objects end, and have each object once.
//! - I4: a pointer leads to an object of its type.
//!
//! `check/walk.rs` checks all of them.
//!
//! # Commit point
//!
//! The fence of the pool's transaction (`commit.rs`). The pool's record holds all words that a transaction
//! changes, the counts included.
//!
//! # Recovery
//!
//! The pool's alone: records are replayed or not. Each later commit releases a bounded number of dying
//! objects, and of orphans of an ended process.
//!
//! # Concurrency
//!
//! Any number of threads may run transactions. Each transaction sees one state of the heap, and commits as if
//! it ran alone (`orec.rs`). Count records are owned after data records, in the order of their numbers. A
//! wait for a data record is bounded.
//!
//! # Source
//!
//! NV-heaps, all of section 3. D1: types replace its run-time checks. D2: pointers have 8 bytes instead of
//! 16, and objects 16 bytes of metadata instead of 80. D3: changes are redone from one record with one fence,
//! rather than undone from copies with one fence each. D4: weak pointers lead to the object itself, whose
//! memory stays until the last of them is dropped, rather than to a proxy. D5: dying objects wait in a list
//! through the first words of their own heads, so that destruction needs no stack, and resumes after a crash.
//!
//! # Order of the modules
//!
//! Each module uses only those above it:
//!
//! 1. `error`
//! 2. `layout`, then `objects`: persistent types, pointers and places (`persist.rs`, `slots.rs`, `place.rs`)
//! 3. `handles`
//! 4. `stm`: isolation, and the volatile state of transactions (`orec.rs`, `clock.rs`, `active_tx.rs`)
//! 5. `counts`: the commit, and objects that die (`commit.rs`, `resolve.rs`, `dying.rs`)
//! 6. `retry`: attempts of transactions (`run.rs`)
//! 7. `tx`: transactions as programs see them (`read.rs`, `write.rs`), then `collections` and `gen_lock`
//! 8. `check`
//! 9. `compact`: moves of blocks out of sparse slabs; `copy`: copies in other pools
//! 10. `heap`
//! 11. `migrate`

#![deny(unsafe_code)]

mod check;
pub mod collections;
mod compact;
pub mod copy;
mod counts;
mod error;
pub mod format;
mod gen_lock;
mod handles;
mod heap;
mod layout;
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
pub use compact::{HeapCompaction, HeapStep};
pub use error::{Error, ErrorKind, OtherLayout, OtherRoot, Result, SameName};
pub use gen_lock::GenLock;
pub use handles::Handle;
pub use heap::{Heap, Repeatable};
pub use layout::ROOT_KIND;
pub use migrate::{Migrate, Migrations};
pub use objects::brand::{Brand, NamedBrand, SameHeap, Scoped};
pub use objects::persist::{Describe, LayoutHash, Persist, Plain};
pub use objects::place::{Arr, Obj, Ref, Target};
pub use objects::slots::{PArr, PRc, PWeak};
pub use objects::standard::Optional;
#[cfg(feature = "research")]
pub use research::Layer;
pub use tembo_heap_derive::{Persist, Plain};
/// The derives for programs that use `tembo` only, which exports them under their usual names.
#[doc(hidden)]
pub mod derives_of_tembo {
    pub use tembo_heap_derive::{PersistOfTembo, PlainOfTembo};
}
pub use tembo_pool::{Options, Stats};
pub use tx::{ReadTx, RefMut, Tx};
