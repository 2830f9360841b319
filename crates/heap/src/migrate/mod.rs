//! Migrations: from the layouts that types had to those that they have now.
//!
//! # Media layout
//!
//! While a migration runs the heap begins with another number (`TMBHEAM3`), so that nobody takes it for one that is
//! as it should be. It has both layouts of the types that change. An old object of which a new one has been made is *moved*: the
//! first word of its head leads to its successor, and counts as a strong pointer to it.
//!
//! # Order
//!
//! 1. The new types are added, and the number is `TMBHEAM3`: one transaction.
//! 2. Of each old object a new one is made, a transaction each. Its pointers lead where the old ones do. No pointer
//!    leads to it but the first word of the old object's head.
//! 3. All pointers to moved objects are led to their successors, except those in moved objects: nothing dies. Then those are
//!    taken away. A bounded number in each transaction.
//! 4. No pointer leads to moved objects any more: they are freed, a bounded number in each transaction.
//! 5. The old types are removed, and the number is that of heaps again: one transaction.
//!
//! # Invariants
//!
//! Those of the heap, those in moved objects' heads included, after each transaction; `check.rs` walks them.
//!
//! # Commit point
//!
//! Each transaction's.
//!
//! # Recovery
//!
//! An interrupted migration is run again: which objects are done is seen from the objects, and of which types from the list of
//! types, which has both layouts. Steps 2 and 3 find what there is to do by going through the whole heap.
//!
//! # Concurrency
//!
//! Nobody else has the heap open.

mod buckets;
mod convert;
mod migration;
mod plan;
mod version;

pub use plan::Migrations;
pub use version::Migrate;
