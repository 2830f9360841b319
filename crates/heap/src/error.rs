//! The errors of a heap, and of transactions on it.

use std::fmt;
use tembo_pmem::OutOfBounds;

/// Result of heap operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// Every read of a transaction returns a result, and a commit returns one after its fence: a result of one
// word fits into a register.
const _: () = assert!(size_of::<Result<()>>() == size_of::<usize>());

/// An error of a heap, or of a transaction on it, in one word. Its [`kind`](Self::kind) says the cause and
/// has the details.
///
/// Return it from a transaction with `?`. After a [`Conflict`](ErrorKind::Conflict) the transaction is run
/// again; any other error ends it with nothing changed.
///
/// A program's own errors pass through a transaction as [`User`](ErrorKind::User): [`Error::user`] makes one
/// of any error or text, and [`downcast`](Self::downcast) returns it. With `impl From<MyError> for Error` `?`
/// does that by itself.
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
pub struct Error(Box<ErrorKind>);

/// The cause of an [`Error`], with its details.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction has changed data that this one has read, or is changing it. Whatever this
    /// transaction does next, it is run again from the start.
    #[error(
        "another transaction changed the same objects, or may have; return this error from the closure, and the transaction runs again"
    )]
    Conflict,
    /// The pool holds something else, or no heap.
    #[error("the pool holds no heap: {found}; open a pool that was created as a heap")]
    NotAHeap {
        /// The contents of the pool.
        found: String,
    },
    /// The heap is in the format of another version of this library.
    #[error(
        "the heap in this pool has format {found}, and this program reads format {supported}; {}",
        if found > supported { "use a newer Tembo" } else { "open it with the Tembo that made it, and copy its objects with a program of your own" }
    )]
    Format {
        /// The version of the heap's format.
        found: u64,
        /// The version that this library reads.
        supported: u64,
    },
    /// A type of the program has another layout in the heap.
    #[error(
        "the heap has another layout of the type {}: {}; the heap has `{}`, this program `{}`; open it with a program \
         that has the heap's layout, or convert its values with `Migrate`",
        .0.name, .0.difference, .0.stored, .0.ours
    )]
    Layout(OtherLayout),
    /// The heap begins with an object of another type.
    #[error(
        "the root of this heap is a `{}`, not a `{}`; open it with a program whose root has that type",
        .0.stored, .0.ours
    )]
    OtherRoot(OtherRoot),
    /// Two types of the program have the same name.
    #[error(
        "this program has two types named {} in heaps: `{}` and `{}`; rename one of them with \
         #[persist(name = \"...\")]",
        .0.name, .0.one, .0.other
    )]
    SameName(SameName),
    /// A migration of the heap was interrupted.
    #[error("a migration of this heap was interrupted; run the same migrations again, then open it")]
    Migrating,
    /// A migration changed older objects.
    #[error(
        "a migration changed older objects of the heap; change only the new value, and what the migration allocates"
    )]
    MigrationChanges,
    /// A migration cannot tell objects from other structures of the pool.
    #[error("the pool holds `{root}` besides the heap; migrate a heap in a pool of its own")]
    NotAlone {
        /// The name of the pool's other root.
        root: String,
    },
    /// No pointers lead from the root's type to the type.
    #[error(
        "the transaction allocated a {name}, but no pointer leads there from the root's type, however far; add a pointer to it to the root"
    )]
    UnknownType {
        /// The type's name.
        name: String,
    },
    /// Too many pointers lead to one object.
    #[error(
        "more than {} pointers lead to the object at {off:#x}; let some of them lead to a copy",
        u32::MAX
    )]
    TooManyPointers {
        /// The object's offset.
        off: u64,
    },
    /// Too many types.
    #[error("a heap can hold objects of {max} types; put objects of further types into another heap")]
    TooManyTypes {
        /// The most types.
        max: u64,
    },
    /// The pool's heap is open already.
    #[error("the heap in this pool is open already; use that `Heap`, which threads can share")]
    InUse,
    /// A heap with this named brand is open already.
    #[error("a heap with the brand {brand} is open already; close it, or declare another brand")]
    BrandInUse {
        /// The brand's name.
        brand: &'static str,
    },
    /// A transaction that only reads, or one nested in it, tried to write.
    #[error("this transaction only reads; run the change in one that writes, from the outermost on")]
    ReadTransaction,
    /// The program used a place in a variant of an enum after the transaction had written values with
    /// variants.
    #[error(
        "the transaction wrote an enum after it looked at this variant, so that another may lie there; look again with `variant`"
    )]
    StaleVariant,
    /// The program used the token of a transaction while another runs inside it.
    #[error(
        "a transaction runs inside this one, and has its place until it ends; use the token of the inner transaction"
    )]
    InnerRuns,
    /// A nested transaction changed the map in the middle of an operation.
    #[error(
        "a transaction that ran in the middle of this operation changed the map; look again, and change the map neither in comparisons \
         of keys nor between the steps of an iterator"
    )]
    MapChanged,
    /// The order of a map's keys contradicts itself.
    #[error(
        "the order of the keys of type {key} contradicts itself: the same search ended in two places; make their `Ord` total, and the \
         same each time"
    )]
    KeyOrder {
        /// The keys' type.
        key: String,
    },
    /// The program made a call inside a transaction of the heap that is allowed only between transactions.
    #[error(
        "{what} waits for transactions of this heap to end, and runs inside one; call it after the transaction"
    )]
    InsideTransaction {
        /// The call.
        what: &'static str,
    },
    /// A transaction began inside another in which a value was borrowed mutably: the end of the borrow would
    /// overwrite its changes.
    #[error(
        "the outer transaction has borrowed a value mutably; end the borrow before another transaction begins inside it"
    )]
    Borrowed,
    /// A nested transaction failed, and the outer one went on.
    #[error("a transaction inside this one failed, so that this one cannot commit; return the inner error")]
    NestedFailed,
    /// The program ended the transaction.
    #[error("the program cancelled the transaction")]
    Cancelled,
    /// The program ended the transaction with an error of its own ([`Error::user`]).
    #[error(transparent)]
    User(Box<dyn std::error::Error + Send + Sync>),
    /// The program followed a null pointer.
    #[error(
        "the {pointer} is null, and the program followed it; link it first, or read it with `load` or `array`"
    )]
    NullPointer {
        /// The pointer's type and offset.
        pointer: String,
    },
    /// The program used a handle after its heap was closed, in a later opening.
    #[error(
        "the handle {handle} ended when its heap was closed; find the object by a pointer, and make another handle"
    )]
    ClosedHandle {
        /// The object's type and its offset.
        handle: String,
    },
    /// The array is longer than arrays may be.
    #[error("an array of {len} elements is longer than a heap can hold; divide it")]
    ArrayTooLong {
        /// Its length.
        len: u64,
    },
    /// An error of the pool: it is full, damaged, in use, or its device failed.
    #[error(transparent)]
    Pool(tembo_pool::Error),
}

/// A type that has another layout on media.
#[derive(Debug, Clone)]
pub struct OtherLayout {
    /// The type's name.
    pub name: String,
    /// The differences of the fields.
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
    /// The name that both types have.
    pub name: String,
    /// The layout of one of them.
    pub one: String,
    /// The layout of the other.
    pub other: String,
}

impl Error {
    /// An error of the program's own, or a text, that ends a transaction. [`Heap::write`](crate::Heap::write)
    /// returns it unchanged.
    #[cold]
    pub fn user(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        ErrorKind::User(error.into()).into()
    }

    /// The cause.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The cause, to take its details out.
    pub fn into_kind(self) -> ErrorKind {
        *self.0
    }

    /// The program's own error, if this is one of this type.
    ///
    /// # Errors
    ///
    /// Returns the error unchanged if it is of another type.
    pub fn downcast<E: std::error::Error + 'static>(self) -> Result<E> {
        match self.into_kind() {
            ErrorKind::User(error) => error.downcast().map(|error| *error).map_err(Error::user),
            other => Err(other.into()),
        }
    }

    /// The program's own error, if this is one of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self.kind() {
            ErrorKind::User(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// The pool's error, if this is one.
    pub fn pool_error(&self) -> Option<&tembo_pool::Error> {
        match self.kind() {
            ErrorKind::Pool(error) => Some(error),
            _ => None,
        }
    }

    /// Whether another transaction got in the way ([`ErrorKind::Conflict`]).
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind(), ErrorKind::Conflict)
    }

    /// Whether the program ended the transaction ([`ErrorKind::Cancelled`]).
    pub fn is_cancelled(&self) -> bool {
        matches!(self.kind(), ErrorKind::Cancelled)
    }

    /// Whether the pool has no room.
    pub fn is_full(&self) -> bool {
        self.pool_error().is_some_and(tembo_pool::Error::is_full)
    }

    /// Whether something in the pool is not as it must be.
    pub fn is_corrupt(&self) -> bool {
        self.pool_error().is_some_and(tembo_pool::Error::is_corrupt)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.kind(), f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.kind(), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind().source()
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

impl From<tembo_pool::ErrorKind> for Error {
    #[cold]
    fn from(kind: tembo_pool::ErrorKind) -> Error {
        ErrorKind::Pool(kind.into()).into()
    }
}

impl From<tembo_pool::Error> for Error {
    #[cold]
    fn from(e: tembo_pool::Error) -> Error {
        ErrorKind::Pool(e).into()
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    #[cold]
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::user(error)
    }
}

impl From<OutOfBounds> for Error {
    /// Offsets come from media, so an offset outside the region is damage.
    #[cold]
    fn from(e: OutOfBounds) -> Error {
        tembo_pool::Error::from(e).into()
    }
}

/// Damage on media at `off`.
#[cold]
pub(crate) fn corrupt(what: &'static str, off: u64, expected: impl ToString, found: impl ToString) -> Error {
    tembo_pool::Error::corrupt(what, off, expected, found).into()
}
