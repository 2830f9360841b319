//! From errors to failures of the command: their messages and kinds.

use crate::causes::pool_error;
use crate::texts;
use serde::Serialize;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use tembo::store::Error as StoreError;
use tembo::{IndexError, PoolError, PoolErrorKind};

/// Result of a subcommand or a part of it.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a subcommand did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The subcommand was tried and failed: exit code 1, with this message.
    Failed(String),
    /// The store refused, or is damaged: exit code 1, with this message and this kind of failure.
    Store(Kind, String),
    /// The same as a store's failure, where the message already names the file.
    Named(Kind, String),
    /// The answer is no and has been printed already: this exit code, without a message.
    Answered(u8),
    /// The arguments contradict each other: exit code 2.
    Usage(String),
    /// The reader of the output went away, as `head` does: the process ends by SIGPIPE, as others do.
    OutputClosed,
}

/// The kind of failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Bytes of the pool are wrong, or acknowledged changes are missing in it.
    Damaged,
    /// There is no pool: nothing at all, or a file of another kind.
    Absent,
    /// Another process has the pool open.
    InUse,
    /// Anything else: the system, the device, permissions.
    Failed,
    /// The pool holds something that this version does not know.
    Unknown,
}

impl Kind {
    /// The kind of an error of the store.
    fn of(error: &tembo::Error) -> Kind {
        let pool_error = pool_error(error);
        if pool_error.is_some_and(PoolError::is_damage) {
            return Kind::Damaged;
        }
        match pool_error.map(PoolError::kind) {
            Some(
                PoolErrorKind::NotFound { .. }
                | PoolErrorKind::NoDirectory { .. }
                | PoolErrorKind::DanglingLink { .. }
                | PoolErrorKind::NotAFile { .. }
                | PoolErrorKind::Empty
                | PoolErrorKind::NotAPool { .. },
            ) => Kind::Absent,
            Some(PoolErrorKind::Locked { .. }) => Kind::InUse,
            Some(
                PoolErrorKind::ForeignByteOrder
                | PoolErrorKind::NewerVersion { .. }
                | PoolErrorKind::UnknownFeatures { .. },
            ) => Kind::Unknown,
            _ if matches!(
                error,
                tembo::Error::Unknown(_)
                    | tembo::Error::Unproved { .. }
                    | tembo::Error::Index(IndexError::FormatVersion { .. })
                    | tembo::Error::Store(StoreError::FormatVersion { .. })
            ) =>
            {
                Kind::Unknown
            }
            _ => Kind::Failed,
        }
    }

    /// The exit code of `tembo check`, as its help has them; 0 is sound, 2 wrong usage.
    pub(crate) fn check_code(self) -> u8 {
        match self {
            Kind::Damaged => 1,
            Kind::Absent => 3,
            Kind::InUse => 4,
            Kind::Failed => 5,
            Kind::Unknown => 6,
        }
    }
}

impl Failure {
    /// A failure that names the work under way before the error.
    pub(crate) fn during(doing: impl Display) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Failed(format!("{doing}: {error}"))
    }

    /// A failure to open or to make a file that the arguments name.
    pub(crate) fn at_file(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::Failed(texts::of_file(doing, path, &error))
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::OutputClosed
        } else {
            Failure::Failed(format!("writing the output: {error}"))
        }
    }

    /// The same failure, with `more` at the end of its text.
    pub(crate) fn with(self, more: &str) -> Failure {
        match self {
            Failure::Failed(text) => Failure::Failed(text + more),
            Failure::Store(kind, text) => Failure::Store(kind, text + more),
            Failure::Named(kind, text) => Failure::Named(kind, text + more),
            other => other,
        }
    }

    /// The kind of the failure.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Failure::Store(kind, _) | Failure::Named(kind, _) => *kind,
            _ => Kind::Failed,
        }
    }

    /// The message, which says which pool it is about.
    pub(crate) fn about(&self, pool: Option<&Path>) -> String {
        match (self, pool) {
            (Failure::Store(_, text), Some(path)) => format!("{}: {text}", path.display()),
            _ => self.to_string(),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(message)
            | Failure::Store(_, message)
            | Failure::Named(_, message)
            | Failure::Usage(message) => f.write_str(message),
            Failure::Answered(_) | Failure::OutputClosed => Ok(()),
        }
    }
}

impl From<tembo::Error> for Failure {
    fn from(error: tembo::Error) -> Failure {
        let (kind, text) = (Kind::of(&error), texts::of_store(&error));
        if texts::names_a_path(&error) { Failure::Named(kind, text) } else { Failure::Store(kind, text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_pool_once() {
        let (path, failure) =
            (Path::new("a.pool"), |text: &str| Failure::Store(Kind::Failed, text.to_owned()));
        assert_eq!(failure("it is full").about(Some(path)), "a.pool: it is full");
        let named = Failure::Named(Kind::Failed, "there is no a.pool".to_owned());
        assert_eq!(named.about(Some(path)), "there is no a.pool");
        assert_eq!(Failure::Failed("line 2".to_owned()).about(Some(path)), "line 2");
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        assert!(matches!(Failure::output(io::ErrorKind::BrokenPipe.into()), Failure::OutputClosed));
        assert!(matches!(Failure::output(io::ErrorKind::StorageFull.into()), Failure::Failed(_)));
    }
}
