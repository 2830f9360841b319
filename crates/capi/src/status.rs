//! The outcomes of calls: codes, messages, and a wall against panics.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tembo::store::Error as StoreError;
use tembo::{Error, IndexError, PoolError, PoolErrorKind};

macro_rules! statuses {
    ($($name:ident = $value:literal, $constant:literal, $text:literal;)*) => {
        /// The outcome of a call: the `tembo_status` of the header.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status {
            $(
                #[doc = $text]
                $name = $value,
            )*
        }

        impl Status {
            /// Every status with its name in C.
            pub const ALL: &[(Status, &CStr)] = &[$((Status::$name, $constant),)*];
        }
    };
}

statuses! {
    Ok = 0, c"TEMBO_OK", "Done.";
    NotFound = 1, c"TEMBO_NOT_FOUND", "There is no such key, map or pool.";
    Exists = 2, c"TEMBO_EXISTS", "The key, or the pool, is there already.";
    Invalid = 3, c"TEMBO_INVALID", "An argument is not allowed.";
    TooSmall = 4, c"TEMBO_TOO_SMALL", "The caller's buffer is too small.";
    Full = 5, c"TEMBO_FULL", "The pool has no room and could not grow.";
    ReadOnly = 6, c"TEMBO_READ_ONLY", "The pool was opened for reading only.";
    Locked = 7, c"TEMBO_LOCKED", "The pool, or the map that is to be dropped, is open already.";
    WrongKind = 8, c"TEMBO_WRONG_KIND", "The file is no pool, or the name belongs to the other kind of map.";
    Damaged = 9, c"TEMBO_DAMAGED", "The pool is damaged.";
    Io = 10, c"TEMBO_IO", "The operating system or the device failed.";
    NoRoom = 11, c"TEMBO_NO_ROOM", "Too many fixed maps are open, or too many names are in the pool.";
    Bug = 12, c"TEMBO_BUG", "A defect of the library.";
    Unclean = 13, c"TEMBO_UNCLEAN", "The pool was open when the machine stopped, or was copied meanwhile.";
    Forked = 14, c"TEMBO_FORKED", "The handle belongs to the process that this one was forked from.";
    NoMemory = 15, c"TEMBO_NO_MEMORY", "The process has no memory for what the call has to gather.";
    Conflict = 16, c"TEMBO_CONFLICT", "Another transaction was first; run this one again.";
    Gone = 17, c"TEMBO_GONE", "The snapshot or the keyspace is not there any more.";
}

/// The reason why a call did not return [`Status::Ok`].
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: Message,
}

/// Frequent failures have constant messages, which cost nothing.
#[derive(Debug)]
enum Message {
    Fixed(&'static CStr),
    Made(CString),
}

/// The result of a call's work.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) const KEY_ABSENT: Failure = Failure::fixed(Status::NotFound, c"the key is not in the map");
    pub(crate) const KEY_PRESENT: Failure = Failure::fixed(Status::Exists, c"the key is in the map already");
    pub(crate) const MAP_ABSENT: Failure =
        Failure::fixed(Status::NotFound, c"there is no such map; create it with the flag TEMBO_CREATE");

    pub(crate) const NAME_ABSENT: Failure =
        Failure::fixed(Status::NotFound, c"there is no such map; tembo_pool_list tells which there are");

    pub(crate) const STORE_ABSENT: Failure =
        Failure::fixed(Status::NotFound, c"there is no such store; create it with the flag TEMBO_CREATE");

    pub(crate) const KEYSPACE_ABSENT: Failure =
        Failure::fixed(Status::NotFound, c"there is no such keyspace; create it with the flag TEMBO_CREATE");

    pub(crate) const VALUE_ABSENT: Failure =
        Failure::fixed(Status::NotFound, c"the key has no value in this snapshot");

    pub(crate) const fn fixed(status: Status, message: &'static CStr) -> Failure {
        Failure { status, message: Message::Fixed(message) }
    }

    pub(crate) fn made(status: Status, message: &str) -> Failure {
        // A zero would end the message early.
        let text: Vec<u8> = message.bytes().filter(|byte| *byte != 0).collect();
        Failure { status, message: Message::Made(CString::new(text).unwrap_or_default()) }
    }

    pub(crate) fn invalid(message: &str) -> Failure {
        Failure::made(Status::Invalid, message)
    }

    fn from_panic(panic: &(dyn Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        Failure::made(Status::Bug, &format!("a defect of the library: {text}"))
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        Failure::made(status_of(&error), &error.to_string())
    }
}

impl From<StoreError> for Failure {
    #[cold]
    fn from(error: StoreError) -> Failure {
        Failure::from(Error::from(error))
    }
}

fn status_of_store(error: &StoreError) -> Status {
    match error {
        StoreError::Conflict { .. } | StoreError::Contended { .. } => Status::Conflict,
        StoreError::SnapshotGone { .. }
        | StoreError::NotRetained { .. }
        | StoreError::KeyspaceDropped { .. } => Status::Gone,
        StoreError::NoSuchSnapshot { .. } => Status::NotFound,
        StoreError::SnapshotExists { .. } => Status::Exists,
        StoreError::Name { .. } | StoreError::OtherStore { .. } => Status::Invalid,
        StoreError::FormatVersion { .. } => Status::WrongKind,
        StoreError::InUse { .. } => Status::Locked,
        StoreError::Group { .. } => Status::Full,
        StoreError::Pool(error) | StoreError::Index(IndexError::Pool(error)) => status_of_pool(error),
        _ => Status::Bug,
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => Status::Invalid,
        Error::ForeignMap | Error::WouldWait { .. } => Status::Invalid,
        Error::Full { .. } => Status::Full,
        Error::ReadOnly => Status::ReadOnly,
        Error::Internal { .. } => Status::Bug,
        Error::OtherKind { .. } => Status::WrongKind,
        Error::TooManyOpen { .. } => Status::NoRoom,
        Error::OutOfMemory { .. } => Status::NoMemory,
        Error::Index(IndexError::Exists { .. }) => Status::Exists,
        Error::Unknown(_) | Error::NotAMap { .. } | Error::Index(IndexError::FormatVersion { .. }) => {
            Status::WrongKind
        }
        Error::MapOpen { .. } => Status::Locked,
        Error::Store(error) => status_of_store(error),
        Error::Pool(error) | Error::Index(IndexError::Pool(error)) => status_of_pool(error),
        _ => Status::Bug,
    }
}

fn status_of_pool(error: &PoolError) -> Status {
    match error.kind() {
        PoolErrorKind::NotFound { .. } | PoolErrorKind::DanglingLink { .. } => Status::NotFound,
        PoolErrorKind::AlreadyExists { .. } => Status::Exists,
        PoolErrorKind::NoDirectory { exists: false, .. } => Status::NotFound,
        PoolErrorKind::RootName { .. }
        | PoolErrorKind::Options { .. }
        | PoolErrorKind::MaximumTooSmall { .. } => Status::Invalid,
        PoolErrorKind::Region(error) if is_out_of_memory(error) => Status::NoMemory,
        PoolErrorKind::Full { .. } | PoolErrorKind::TooLarge { .. } => Status::Full,
        PoolErrorKind::ReadOnly => Status::ReadOnly,
        PoolErrorKind::Locked { .. } => Status::Locked,
        PoolErrorKind::Unclean { .. } => Status::Unclean,
        PoolErrorKind::Forked => Status::Forked,
        PoolErrorKind::NotAFile { .. }
        | PoolErrorKind::Empty
        | PoolErrorKind::NotAPool { .. }
        | PoolErrorKind::ForeignByteOrder
        | PoolErrorKind::NewerVersion { .. }
        | PoolErrorKind::UnknownFeatures { .. }
        | PoolErrorKind::UnknownClass { .. }
        | PoolErrorKind::RootKind { .. } => Status::WrongKind,
        PoolErrorKind::HeaderDamaged { .. }
        | PoolErrorKind::Truncated { .. }
        | PoolErrorKind::Corrupt { .. } => Status::Damaged,
        PoolErrorKind::NoLane { .. } | PoolErrorKind::NoRoot { .. } => Status::NoRoom,
        PoolErrorKind::Internal { .. } => Status::Bug,
        _ => Status::Io,
    }
}

/// Whether there was no room in memory to map the pool.
fn is_out_of_memory(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::OutOfMemory) {
            return true;
        }
        cause = error.source();
    }
    false
}

thread_local! {
    static LAST: RefCell<Message> = const { RefCell::new(Message::Fixed(c"")) };
}

/// Runs the work of a call; returns its status and remembers its message. No panic gets past this.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok as c_int,
        Ok(Err(failure)) => remember(failure),
        Err(panic) => {
            let status = remember(Failure::from_panic(&*panic));
            // The payload of a panic may panic itself when it is dropped.
            std::mem::forget(panic);
            status
        }
    }
}

fn remember(failure: Failure) -> c_int {
    // A thread that is ending has no room for the message any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.message);
    failure.status as c_int
}

/// The message of this thread's last failure; it stays where it is until the next one.
pub(crate) fn last_message() -> *const c_char {
    let message = LAST.try_with(|last| match &*last.borrow() {
        Message::Fixed(text) => text.as_ptr(),
        Message::Made(text) => text.as_ptr(),
    });
    message.unwrap_or(c"".as_ptr())
}

/// The name of a status code.
pub(crate) fn name_of(code: c_int) -> &'static CStr {
    let known = Status::ALL.iter().find(|(status, _)| *status as c_int == code);
    known.map_or(c"(no tembo_status)", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_gets_across() {
        assert_eq!(call(|| panic!("the story")), Status::Bug as c_int);
        LAST.with(|last| {
            assert!(
                matches!(&*last.borrow(), Message::Made(text) if text.to_bytes().ends_with(b"the story"))
            );
        });
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again, while being dropped");
            }
        }
        assert_eq!(call(|| std::panic::panic_any(Bomb)), Status::Bug as c_int);
        assert_eq!(call(|| Ok(())), Status::Ok as c_int);
    }

    #[test]
    fn messages_belong_to_their_threads() {
        assert_eq!(call(|| Err(Failure::KEY_ABSENT)), 1);
        let here = last_message();
        let other = std::thread::spawn(|| {
            call(|| Err(Failure::invalid("other\0wise")));
            LAST.with(|last| format!("{:?}", last.borrow()))
        });
        assert!(other.join().unwrap().contains("otherwise"));
        assert_eq!(last_message(), here);
    }

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../include/tembo.h");
        let (_, list) = header.split_once("typedef enum tembo_status {").unwrap();
        let (list, _) = list.split_once('}').unwrap();
        let declared: Vec<(&str, i32)> = list
            .lines()
            .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let known: Vec<(&str, i32)> =
            Status::ALL.iter().map(|(status, name)| (name.to_str().unwrap(), *status as i32)).collect();
        assert_eq!(declared, known);
        assert!(known.iter().all(|(name, code)| name_of(*code).to_str() == Ok(name)));
    }
}
