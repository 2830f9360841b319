//! From errors to messages and exit codes.

use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

/// Result of a subcommand or a part of it.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Of a check that found nothing wrong, in a pool with something in it that this program does not know.
pub(crate) const UNPROVED: u8 = 6;

/// Why a subcommand did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was tried and failed: exit code 1, with this message.
    Failed(String),
    /// The answer is no and has been printed already: exit code 1, without a message.
    Answered,
    /// The answer is that nobody can tell, and has been printed already: exit code [`UNPROVED`], without a message.
    Unproved,
    /// The arguments contradict each other: exit code 2.
    Usage(String),
    /// Whoever read our output went away, as `head` does: exit code 0, nothing to say.
    OutputClosed,
}

impl Failure {
    /// A failure with what was being done before the error.
    pub(crate) fn during(doing: impl Display) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Failed(format!("{doing}: {error}"))
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::OutputClosed
        } else {
            Failure::Failed(format!("writing the output: {error}"))
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(message) | Failure::Usage(message) => f.write_str(message),
            Failure::Answered | Failure::Unproved | Failure::OutputClosed => Ok(()),
        }
    }
}

impl From<tembo::Error> for Failure {
    fn from(error: tembo::Error) -> Failure {
        Failure::Failed(with_causes(&error))
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

/// Says what went wrong on standard error, and gives the exit code: 0 done, 1 failed, 2 wrong usage.
pub(crate) fn exit_code(outcome: Outcome) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let message = failure.to_string();
    if !message.is_empty() {
        eprintln!("tembo: {message}");
    }
    match failure {
        Failure::Failed(_) | Failure::Answered => ExitCode::FAILURE,
        Failure::Unproved => ExitCode::from(UNPROVED),
        Failure::Usage(_) => ExitCode::from(2),
        Failure::OutputClosed => ExitCode::SUCCESS,
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
        let code = |failure| format!("{:?}", exit_code(Err(failure)));
        assert_eq!(format!("{:?}", exit_code(Ok(()))), format!("{:?}", ExitCode::from(0)));
        assert_eq!(code(Failure::Failed("x".into())), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Answered), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Usage("x".into())), format!("{:?}", ExitCode::from(2)));
        assert_eq!(code(Failure::OutputClosed), format!("{:?}", ExitCode::from(0)));
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        assert!(matches!(Failure::output(io::ErrorKind::BrokenPipe.into()), Failure::OutputClosed));
        assert!(matches!(Failure::output(io::ErrorKind::StorageFull.into()), Failure::Failed(_)));
    }
}
