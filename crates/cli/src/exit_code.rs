//! The end of the command: a failure is said, and becomes an exit code.

use crate::failure::{Failure, Kind, Outcome};
use crate::report::print_json;
use serde::Serialize;
use signal_hook::consts::SIGPIPE;
use std::path::Path;
use std::process::ExitCode;

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

    #[test]
    fn exit_codes_tell_failure_from_wrong_usage() {
        let code = |failure| format!("{:?}", exit_code(Err(failure), None, false));
        assert_eq!(format!("{:?}", exit_code(Ok(()), None, false)), format!("{:?}", ExitCode::from(0)));
        assert_eq!(code(Failure::Failed("x".into())), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Store(Kind::Absent, "x".into())), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(Failure::Answered(4)), format!("{:?}", ExitCode::from(4)));
        assert_eq!(code(Failure::Usage("x".into())), format!("{:?}", ExitCode::from(2)));
    }
}
