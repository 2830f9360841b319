//! The outcomes of a command that has no ordinary reply.

use tembo::Pool;
use tembo_wire::Request;

use crate::commands::table::Command;

/// The result of a command's handler: its reply is written, or nothing has happened.
pub(crate) type Answer<T = ()> = Result<T, Fault>;

/// Ends a command. The executor undoes its changes of the keyspace and drops its unfinished reply.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Answer this error line.
    Error(&'static str),
    /// Answer this error line, which quotes the client.
    Quoting(Vec<u8>),
    /// The engine refused; see [`error_line`].
    Engine(tembo::Error),
    /// A stored value does not decode.
    Malformed,
    /// The command reads the maps themselves: commit the pending batch, then run it again.
    NeedsCommit,
    /// The command writes to a database that has no maps yet: create them, then run it again.
    MissingDatabase(usize),
}

impl From<tembo::Error> for Fault {
    fn from(error: tembo::Error) -> Self {
        Fault::Engine(error)
    }
}

pub(crate) const SYNTAX: Fault = Fault::Error("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: Fault = Fault::Error("ERR value is not an integer or out of range");
pub(crate) const WRONG_TYPE: Fault =
    Fault::Error("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const NO_SUCH_KEY: Fault = Fault::Error("ERR no such key");
pub(crate) const STRING_TOO_LONG: Fault =
    Fault::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(crate) const KEY_TOO_LONG: Fault = Fault::Error("ERR key exceeds the maximum of 65528 bytes");
pub(crate) const NO_AUTHENTICATION: &str = "NOAUTH Authentication required.";
pub(crate) const DB_OUT_OF_RANGE: Fault = Fault::Error("ERR DB index is out of range");

/// The reply, and the logged message, for a stored value that does not decode.
pub(crate) const MALFORMED: &str =
    "the stored value is damaged or was written by a newer version; run `tembo check`";

/// The part of a client's text that errors quote: like Redis's, they end it at a NUL.
pub(crate) fn quotable(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    &text[..end]
}

/// Bytes of an unknown command that its error quotes.
const QUOTED_BYTES_MAX: usize = 128;

pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Whether the pool's own maximum keeps it from growing, and not the disk or a limit of the process.
pub(crate) fn is_at_maximum(pool: tembo::Stats, needed_bytes: u64) -> bool {
    pool.pool_bytes.saturating_add(needed_bytes) > pool.max_bytes
}

/// Redis's errors lose the line ends that a quoted argument brings to their ends; those within become blanks.
pub(crate) fn without_line_ends(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !b"\r\n".contains(byte));
    &line[..end.map_or(0, |last| last + 1)]
}

/// The error line for a command that the engine refused.
pub(crate) fn error_line(error: &tembo::Error, pool: &Pool) -> String {
    match error {
        tembo::Error::Full { needed_bytes, .. } if is_at_maximum(pool.stats(), *needed_bytes) => {
            OUT_OF_MEMORY.to_owned()
        }
        tembo::Error::Full { why, .. } => format!("OOM the pool cannot grow: {why}"),
        tembo::Error::ValueTooLong { .. } => {
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned()
        }
        tembo::Error::Internal { what } => {
            format!(
                "ERR internal error: {what}; this is a bug of the server, not of the data: please report it"
            )
        }
        error => format!("ERR {error}"),
    }
}

fn clipped(bytes: &[u8]) -> &[u8] {
    let bytes = quotable(bytes);
    &bytes[..bytes.len().min(QUOTED_BYTES_MAX)]
}

/// The answer to a request for a command that does not exist.
pub(crate) fn unknown_command(request: &Request<'_>) -> Fault {
    let mut quoted = Vec::new();
    for arg in request.args().skip(1) {
        if quoted.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let room = QUOTED_BYTES_MAX - quoted.len();
        quoted.push(b'\'');
        let arg = quotable(arg);
        quoted.extend_from_slice(&arg[..arg.len().min(room)]);
        quoted.extend_from_slice(b"' ");
    }
    let name = clipped(request.name());
    Fault::Quoting([b"ERR unknown command '", name, b"', with args beginning with: ", &quoted].concat())
}

/// The answer to a request for a subcommand that does not exist.
pub(crate) fn unknown_subcommand(command: &Command, name: &[u8]) -> Fault {
    let help = format!("'. Try {} HELP.", command.name.to_uppercase());
    Fault::Quoting([b"ERR unknown subcommand '", clipped(name), help.as_bytes()].concat())
}

/// A fault in words.
pub(crate) fn shown(fault: &Fault) -> String {
    match fault {
        Fault::Error(line) => (*line).to_owned(),
        Fault::Quoting(line) => String::from_utf8_lossy(line).into_owned(),
        Fault::Engine(error) => error.to_string(),
        Fault::Malformed => MALFORMED.to_owned(),
        Fault::NeedsCommit | Fault::MissingDatabase(_) => "it cannot be stored".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_not_called_damage() {
        let bug = tembo::PoolError::internal("a write", 0x40, "its own memory", "other memory");
        let folder = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(folder.path().join("bug.pool")).unwrap();
        let line = error_line(&bug.into(), &pool);
        assert_eq!(
            line,
            "ERR internal error: a write at offset 0x40: expected its own memory, found other memory; this is a bug of the server, not of the \
             data: please report it"
        );
    }
}
