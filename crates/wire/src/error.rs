//! The errors of the two directions. Both are final: the byte stream has lost its framing and the connection
//! must be closed.

use std::fmt;

/// Why a client's bytes are not a request.
///
/// The text is Redis's own (without the `ERR ` that precedes it on the wire) wherever Redis refuses the same
/// input. Answer it, then close the connection.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline command is longer than [`Limits::max_line_bytes`](crate::Limits::max_line_bytes).
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A NUL in an inline command. Redis, whose lines are C strings, waits for the end of such a line until
    /// it is too long, and never runs it.
    #[error("Protocol error: NUL in inline request")]
    NulInInline,
    /// A quote in an inline command is not closed, or is closed in the middle of a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// No line end within [`Limits::max_line_bytes`](crate::Limits::max_line_bytes) after a `*`.
    #[error("Protocol error: too big mbulk count string")]
    CountTooBig,
    /// The argument count is not an integer, or above [`Limits::max_args`](crate::Limits::max_args).
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// Something else than a bulk string where an argument should begin.
    #[error("Protocol error: expected '$', got '{}'", Printable(*got))]
    ExpectedBulk {
        /// The byte that was found.
        got: u8,
    },
    /// No line end within [`Limits::max_line_bytes`](crate::Limits::max_line_bytes) after a `$`.
    #[error("Protocol error: too big bulk count string")]
    LengthTooBig,
    /// An argument's length is not an integer, negative, or above
    /// [`Limits::max_bulk_bytes`](crate::Limits::max_bulk_bytes).
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    /// An argument is not followed by CR LF, so its length was wrong. Redis skips these two bytes unread and
    /// would store what a confused client sent.
    #[error("Protocol error: expected CRLF after bulk")]
    UnterminatedBulk,
    /// The request is longer than [`Limits::max_request_bytes`](crate::Limits::max_request_bytes). Redis
    /// closes such a connection without a word.
    #[error("Protocol error: too big request")]
    RequestTooBig,
}

/// A byte as it may stand in an error line: itself if printable ASCII, else as `\xNN`.
struct Printable(u8);

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            byte @ b' '..=b'~' => write!(f, "{}", char::from(byte)),
            byte => write!(f, "\\x{byte:02x}"),
        }
    }
}

/// Why a server's bytes are not a reply.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The first byte of a reply is no type of RESP2 or RESP3.
    #[error("unknown reply type '{}'", Printable(*got))]
    UnknownType {
        /// The byte that was found.
        got: u8,
    },
    /// A line is longer than [`ReplyLimits::max_line_bytes`](crate::ReplyLimits::max_line_bytes).
    #[error("reply line too long")]
    LineTooLong,
    /// A line does not end in CR LF, or has a CR or LF inside.
    #[error("reply line is not ended by CRLF")]
    UnterminatedLine,
    /// A bulk string is not followed by CR LF.
    #[error("bulk reply is not followed by CRLF")]
    UnterminatedBulk,
    /// A length is not an integer, is negative (other than the -1 of RESP2's nulls) or above its limit.
    #[error("invalid length in reply")]
    InvalidLength,
    /// The text of an integer, double, big number, boolean, null or verbatim string is not one.
    #[error("invalid value in reply of type '{}'", Printable(*kind))]
    InvalidValue {
        /// The type byte of the reply.
        kind: u8,
    },
    /// Aggregates nest deeper than [`ReplyLimits::max_depth`](crate::ReplyLimits::max_depth).
    #[error("reply nests too deeply")]
    TooDeep,
}
