//! Migrations: conversions of objects from old layouts of their types to the present ones.
//!
//! # Media layout
//!
//! While a migration runs, the heap has another magic number (`TMBHEAM3`), so that no program opens it. It
//! has both layouts of the types that change. An old object with a new version is *moved*: the first word of
//! its head leads to its successor, and counts as a strong pointer to it.
//!
//! # Order
//!
//! 1. Add the new types, and set the number to `TMBHEAM3`: one transaction.
//! 2. Make a new object of each old one, a transaction each. Its pointers lead where the old ones do. No
//!    pointer leads to it but the first word of the old object's head.
//! 3. Lead all pointers to moved objects to their successors, except those in moved objects, so that nothing
//!    dies. Then remove those. A bounded number in each transaction.
//! 4. Free the moved objects, to which no pointer leads any more: a bounded number in each transaction.
//! 5. Remove the old types, and restore the number: one transaction.
//!
//! # Invariants
//!
//! Those of the heap, with the pointers in moved objects' heads, after each transaction; `check/walk.rs`
//! checks them.
//!
//! # Commit point
//!
//! Each transaction's.
//!
//! # Recovery
//!
//! An interrupted migration is run again. The heads of the objects show which are done, and the list of
//! types, which has both layouts, shows which types change. Steps 2 and 3 find the remaining work by a walk
//! over the whole heap.
//!
//! # Concurrency
//!
//! The migration alone has the heap open.

mod buckets;
mod convert;
mod migration;
mod plan;
mod version;

pub use plan::Migrations;
pub use version::Migrate;
