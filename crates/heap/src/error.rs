//! What can go wrong with a heap, and in a transaction on it.

use crate::describe::TypeInfo;
use tembo_pmem::OutOfBounds;

/// Result of heap operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with a heap, and in a transaction on it.
///
/// In a transaction, give it back with `?`: a transaction that met another one's changes
/// ([`Conflict`](Self::Conflict)) is then run again; any other error ends it, with nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction changed what this one had looked at, or is changing it. Whatever the transaction does next, it is run
    /// again from the start.
    #[error(
        "another transaction changed the same objects, or may have; this one is run again if its closure returns the error"
    )]
    Conflict,
    /// The pool holds something else, or no heap.
    #[error("there is no heap in this pool: {found}; open a pool that was created as a heap")]
    NotAHeap {
        /// What there is.
        found: String,
    },
    /// A type of the program is not laid out as the heap has it.
    #[error(
        "the type {name} has another layout in this heap: {difference}; there it is `{stored}`, in this program `{ours}`; open it with a \
         program that has that one, or say with `Migrate` how old values become new ones"
    )]
    Layout {
        /// The type's name.
        name: String,
        /// Which fields differ, and in what.
        difference: String,
        /// Its layout on media.
        stored: String,
        /// Its layout in this program.
        ours: String,
    },
    /// The heap begins with an object of another type.
    #[error(
        "the root of this heap is a `{stored}`, not a `{ours}`; open it with a program that has that type for its root"
    )]
    OtherRoot {
        /// The root's layout on media.
        stored: String,
        /// The layout of the root in this program.
        ours: String,
    },
    /// Two types of the program have the same name.
    #[error(
        "two types of this program are named {name} in heaps: `{one}` and `{other}`; give one of them another name with \
         #[persist(name = \"...\")]"
    )]
    SameName {
        /// Their name.
        name: String,
        /// The layout of one of them.
        one: String,
        /// The layout of the other.
        other: String,
    },
    /// A migration of the heap was interrupted.
    #[error("a migration of this heap was interrupted; run the same migrations again, and open it then")]
    Migrating,
    /// A migration changed something else than what it was to make.
    #[error(
        "a migration changed what was in the heap before; it may change the new value only, and what it allocates"
    )]
    MigrationChanges,
    /// A migration cannot tell objects from what else is in the pool.
    #[error("besides the heap there is `{root}` in this pool; a heap is migrated where it is alone")]
    NotAlone {
        /// The name of the pool's other root.
        root: String,
    },
    /// The type cannot be reached from the heap's root.
    #[error(
        "a {name} was allocated, which no pointer of the root's type leads to, however far; give the root a pointer to it"
    )]
    UnknownType {
        /// The type's name.
        name: String,
    },
    /// Too many pointers lead to one object.
    #[error("more than {} pointers lead to the object at {off:#x}", u32::MAX)]
    TooManyPointers {
        /// The object's offset.
        off: u64,
    },
    /// Too many types.
    #[error("a heap can hold objects of {max} types")]
    TooManyTypes {
        /// The most there can be.
        max: u64,
    },
    /// The pool's heap is open already.
    #[error("the heap in this pool is open already; use the handle that is open, which threads can share")]
    InUse,
    /// A heap with this named brand is open already.
    #[error("a heap with the brand {brand} is open already; close it, or make another brand")]
    BrandInUse {
        /// The brand's name.
        brand: &'static str,
    },
    /// A transaction that only reads cannot change anything, and neither can one that is nested in it.
    #[error("this transaction only reads; run the change in one that writes, from the outermost on")]
    ReadTransaction,
    /// A place in a variant of an enum was used after the transaction had written values that have variants.
    #[error(
        "an enum was written since its variant was looked at, so that another may lie there; look again with `variant`"
    )]
    StaleVariant,
    /// A transaction was nested in another while a value was borrowed mutably there, and the borrow would have been written over its changes.
    #[error(
        "a value is borrowed mutably in the outer transaction; let the borrow end before another transaction begins in it"
    )]
    Borrowed,
    /// A nested transaction failed, and the outer one went on.
    #[error(
        "a transaction that was nested in this one failed, so that this one cannot be committed; give the inner error back"
    )]
    NestedFailed,
    /// The transaction was ended by the program.
    #[error("the transaction was cancelled")]
    Cancelled,
    /// The array is longer than arrays may be.
    #[error("an array of {len} elements is longer than a heap can hold")]
    ArrayTooLong {
        /// Its length.
        len: u64,
    },
    /// The pool failed: it is full, damaged, in use, or its device is.
    #[error(transparent)]
    Pool(#[from] tembo_pool::Error),
}

impl Error {
    #[cold]
    pub(crate) fn layout(stored: &TypeInfo, ours: &TypeInfo) -> Error {
        Error::Layout {
            name: ours.name.clone(),
            difference: ours.difference(stored),
            stored: stored.text.clone(),
            ours: ours.text.clone(),
        }
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so one that leads nowhere is damage.
    #[cold]
    fn from(e: OutOfBounds) -> Error {
        Error::Pool(e.into())
    }
}

/// Media damage at `off`.
#[cold]
pub(crate) fn corrupt(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
    Error::Pool(tembo_pool::Error::corrupt(what, off, expected, found))
}
