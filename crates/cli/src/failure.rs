//! From errors to messages and exit codes.

use crate::report::print_json;
use crate::texts;
use serde::Serialize;
use signal_hook::consts::SIGPIPE;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use tembo::store::Error as StoreError;
use tembo::{IndexError, PoolError, PoolErrorKind};

/// Result of a subcommand or a part of it.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a subcommand did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was tried and failed: exit code 1, with this message.
    Failed(String),
    /// The store refused, or is damaged: exit code 1, with this message and this kind of failure.
    Store(Kind, String),
    /// The same, where the message says already which file it is about.
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
    /// Bytes of the pool are wrong, or what was acknowledged is not in it.
    Damaged,
    /// There is no pool: nothing at all, or a file of another kind.
    Absent,
    /// Another process has it open.
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

/// The error of the pool that an error of the store comes from, if it does.
pub(crate) fn pool_error(error: &tembo::Error) -> Option<&PoolError> {
    match error {
        tembo::Error::Pool(error) | tembo::Error::Index(IndexError::Pool(error)) => Some(error),
        tembo::Error::Heap(error) => error.pool_error(),
        _ => None,
    }
}

impl Failure {
    /// A failure with what was being done before the error.
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

    /// The same, with more to be said.
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

/// An error and what caused it, on one line, without saying anything twice.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

/// The output of a failed command that was asked for JSON.
#[derive(Serialize)]
struct Refusal {
    error: String,
    kind: Kind,
}

/// Says what went wrong on standard error, with `json` on standard output too, and gives the exit code: 0
/// done, 1 failed, 2 wrong usage; `tembo check` has more.
pub(crate) fn exit_code(outcome: Outcome, pool: Option<&Path>, json: bool) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let message = failure.about(pool);
    if !message.is_empty() {
        eprintln!("tembo: {message}");
        if json {
            // Where it cannot be printed either, the exit code says enough.
            let _ = print_json(&Refusal { error: message, kind: failure.kind() });
        }
    }
    match failure {
        Failure::Failed(_) | Failure::Store(..) | Failure::Named(..) => ExitCode::FAILURE,
        Failure::Answered(code) => ExitCode::from(code),
        Failure::Usage(_) => ExitCode::from(2),
        Failure::OutputClosed => {
            // Ends the process, unless the signal is blocked.
            let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Chain {
        text: &'static str,
        #[source]
        cause: Option<Box<Chain>>,
    }

    fn chain(texts: &[&'static str]) -> Option<Box<Chain>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Chain { text, cause: chain(rest) }))
    }

    #[test]
    fn causes_are_said_once() {
        let error = chain(&["opening a.pool: no such file", "no such file", "os error 2"]).unwrap();
        assert_eq!(with_causes(&*error), "opening a.pool: no such file: os error 2");
    }

    #[test]
    fn exit_codes_tell_failure_from_wrong_usage() {
        let code = |failure| format!("{:?}", exit_code(Err(failure), None, false));
        assert_eq!(format!("{:?}", exit_code(Ok(()), None, false)), format!("{:?}", ExitCode::from(0)));
        assert_eq!(code(Failure::Failed("x".into())), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Store(Kind::Absent, "x".into())), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Answered(4)), format!("{:?}", ExitCode::from(4)));
        assert_eq!(code(Failure::Usage("x".into())), format!("{:?}", ExitCode::from(2)));
    }

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
