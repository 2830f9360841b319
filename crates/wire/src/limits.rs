//! Limits on the input that the codecs accept from a peer.
//!
//! The limits decide on *accepting* bytes. They never size an allocation: a peer that announces the largest
//! bulk string and sends nothing costs nothing.

/// Limits on one request, the server's protection against its clients. The defaults are Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest inline command, and longest length line of a multibulk request, without its line end. 64 KiB.
    /// A length line may have 32 bytes whatever this says.
    pub max_line_bytes: usize,
    /// Longest argument of a multibulk request. 512 MiB; Redis calls it `proto-max-bulk-len`.
    pub max_bulk_bytes: usize,
    /// Most arguments in one request, the command's name included. 1024 * 1024.
    pub max_args: usize,
    /// Longest request on the wire, and so the longest buffer that a connection can need (and, past a
    /// pipeline's other requests, hold). 1 GiB; Redis calls it `client-query-buffer-limit`.
    pub max_request_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_line_bytes: 64 << 10,
            max_bulk_bytes: 512 << 20,
            max_args: 1 << 20,
            max_request_bytes: 1 << 30,
        }
    }
}

/// Limits on one reply, a client's protection against its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Longest line: a simple string, an error, a number or a length. 64 KiB.
    pub max_line_bytes: usize,
    /// Longest bulk string, verbatim string or bulk error. 512 MiB.
    pub max_bulk_bytes: usize,
    /// How deep arrays, maps, sets, pushes and attributes may nest. 32.
    pub max_depth: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        ReplyLimits { max_line_bytes: 64 << 10, max_bulk_bytes: 512 << 20, max_depth: 32 }
    }
}
