//! What can go wrong with a heap, and in a transaction on it.

use tembo_pmem::OutOfBounds;

/// Result of heap operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with a heap, and in a transaction on it.
///
/// In a transaction, give it back with `?`: a transaction that met another one's changes
/// ([`Conflict`](Self::Conflict)) is then run again; any other error ends it, with nothing changed.
///
/// A program's own errors pass through a transaction as [`User`](Self::User): [`Error::user`] makes one of any error or text, and
/// [`downcast`](Self::downcast) gives it back. With `impl From<MyError> for Error` `?` does that by itself.
///
/// ```
/// use tembo_heap::{Error, Heap, Options};
///
/// #[derive(Debug)]
/// struct Full;
/// # impl std::fmt::Display for Full {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         f.write_str("full")
/// #     }
/// # }
/// # impl std::error::Error for Full {}
///
/// fn one_more(count: u64) -> Result<u64, Full> {
///     if count == 3 { Err(Full) } else { Ok(count + 1) }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("count.heap");
/// Heap::<_, u64>::with(&path, Options::new().create(true), |heap| {
///     let count = || {
///         heap.write(|tx, count| {
///             let next = one_more(tx.get(*count)?).map_err(Error::user)?;
///             tx.set(*count, next)
///         })
///     };
///     for _ in 0..3 {
///         count()?;
///     }
///     assert!(count().unwrap_err().downcast::<Full>().is_ok());
///     assert_eq!(heap.read(|tx, count| tx.get(*count))?, 3);
///     Ok(())
/// })
/// # }
/// ```
///
/// It is small, since every read of a transaction returns a word or an error: what a variant has to say lies in a box.
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
        found: Box<str>,
    },
    /// The heap is in the format of another version of this library.
    #[error(
        "the heap in this pool has format {found}, and this program reads format {supported}; {}",
        if found > supported { "use a newer Tembo" } else { "open it with the Tembo that made it, and copy its objects by a program of your own" }
    )]
    Format {
        /// The version of the heap's format.
        found: u64,
        /// The version that this library reads.
        supported: u64,
    },
    /// A type of the program is not laid out as the heap has it.
    #[error(
        "the type {} has another layout in this heap: {}; there it is `{}`, in this program `{}`; open it with a \
         program that has that one, or say with `Migrate` how old values become new ones",
        .0.name, .0.difference, .0.stored, .0.ours
    )]
    Layout(Box<OtherLayout>),
    /// The heap begins with an object of another type.
    #[error(
        "the root of this heap is a `{}`, not a `{}`; open it with a program that has that type for its root",
        .0.stored, .0.ours
    )]
    OtherRoot(Box<OtherRoot>),
    /// Two types of the program have the same name.
    #[error(
        "two types of this program are named {} in heaps: `{}` and `{}`; give one of them another name with \
         #[persist(name = \"...\")]",
        .0.name, .0.one, .0.other
    )]
    SameName(Box<SameName>),
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
        root: Box<str>,
    },
    /// The type cannot be reached from the heap's root.
    #[error(
        "a {name} was allocated, which no pointer of the root's type leads to, however far; give the root a pointer to it"
    )]
    UnknownType {
        /// The type's name.
        name: Box<str>,
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
    /// A transaction that runs inside this one has all that it had, until it ends.
    #[error(
        "a transaction runs inside this one, and has its place until it ends; use what that one was given, not what the outer one was"
    )]
    InnerRuns,
    /// A transaction that was nested in this one changed the map that this one was looking at.
    #[error(
        "a transaction that ran in the middle of this operation changed the map; look again, and let comparisons of keys and what runs \
         between the steps of an iterator leave the map as it is"
    )]
    MapChanged,
    /// The order of a map's keys contradicts itself.
    #[error(
        "the order of the keys of type {key} contradicts itself: the same search ended in two places; its `Ord` has to be total, and to \
         say the same each time"
    )]
    KeyOrder {
        /// The keys' type.
        key: Box<str>,
    },
    /// Something was asked for inside a transaction of the heap that can be done between transactions only.
    #[error(
        "{what} waits for transactions of this heap to end, and runs inside one; do it after the transaction"
    )]
    InsideTransaction {
        /// What was asked for.
        what: &'static str,
    },
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
    /// The transaction was ended by the program, with an error of its own ([`Error::user`]).
    #[error(transparent)]
    User(Box<dyn std::error::Error + Send + Sync>),
    /// A pointer was followed that leads to nothing.
    #[error(
        "the {pointer} that was followed is null; link it first, or ask with `load` or `array` whether it leads anywhere"
    )]
    NullPointer {
        /// The pointer's type, and where it lies.
        pointer: Box<str>,
    },
    /// A handle was used with another opening of the heap than the one that it was made in.
    #[error(
        "the handle {handle} is of a heap that was closed since, and ended with it; find the object by a pointer, and make \
         another handle"
    )]
    ClosedHandle {
        /// The object's type, and where it lay.
        handle: Box<str>,
    },
    /// The array is longer than arrays may be.
    #[error("an array of {len} elements is longer than a heap can hold")]
    ArrayTooLong {
        /// Its length.
        len: u64,
    },
    /// The pool failed: it is full, damaged, in use, or its device is.
    #[error(transparent)]
    Pool(Box<tembo_pool::Error>),
}

const _: () = assert!(size_of::<Error>() <= 24);

/// A type that has another layout on media.
#[derive(Debug, Clone)]
pub struct OtherLayout {
    /// The type's name.
    pub name: String,
    /// Which fields differ, and in what.
    pub difference: String,
    /// Its layout on media.
    pub stored: String,
    /// Its layout in this program.
    pub ours: String,
}

/// A root of another type.
#[derive(Debug, Clone)]
pub struct OtherRoot {
    /// The root's layout on media.
    pub stored: String,
    /// The layout of the root in this program.
    pub ours: String,
}

/// Two types with one name.
#[derive(Debug, Clone)]
pub struct SameName {
    /// Their name.
    pub name: String,
    /// The layout of one of them.
    pub one: String,
    /// The layout of the other.
    pub other: String,
}

impl From<tembo_pool::Error> for Error {
    #[cold]
    fn from(e: tembo_pool::Error) -> Error {
        Error::Pool(Box::new(e))
    }
}

impl Error {
    /// An error of the program's own, or a text, that ends a transaction: it comes out of [`Heap::write`](crate::Heap::write) as it went in.
    #[cold]
    pub fn user(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::User(error.into())
    }

    /// The program's own error, if this is one of this type.
    ///
    /// # Errors
    ///
    /// The error as it was, if it is another.
    pub fn downcast<E: std::error::Error + 'static>(self) -> Result<E> {
        match self {
            Error::User(error) => error.downcast().map(|error| *error).map_err(Error::User),
            other => Err(other),
        }
    }

    /// The program's own error, if this is one of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Error::User(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Whether the pool has no room.
    #[cold]
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Pool(e) if matches!(**e, tembo_pool::Error::Full { .. }))
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    #[cold]
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::User(error)
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so one that leads nowhere is damage.
    #[cold]
    fn from(e: OutOfBounds) -> Error {
        tembo_pool::Error::from(e).into()
    }
}

/// Media damage at `off`.
#[cold]
pub(crate) fn corrupt(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
    tembo_pool::Error::corrupt(what, off, expected, found).into()
}
