//! The RESP2 and RESP3 codecs of the Tembo server: bytes to requests, and replies to bytes.
//!
//! This crate does no I/O, stores nothing, knows no commands and contains no unsafe code. Everything that
//! comes in is untrusted: no input makes it panic, and no *announced* size makes it allocate.
//!
//! ```text
//!   bytes from a client ---> RequestParser ---> Request (borrowed arguments)     request, inline
//!                       |--> keys_ahead ---> what the next requests will need       ahead
//!                       `--> RequestQueue ---> requests for later                   queue
//!   a command's answer  ---> ReplyWriter   ---> bytes to the client              reply
//!
//!   the other side, for tests, benchmarks and tools:                             client
//!   arguments ---> write_request ---> bytes        bytes ---> ReplyParser ---> Value
//! ```
//!
//! [`number`] and [`decimal`] hold the textual rules of Redis for integers and floats in arguments and in
//! values.
//!
//! ```
//! use tembo_wire::{Limits, Parsed, Protocol, ReplyWriter, RequestParser};
//!
//! let mut parser = RequestParser::new();
//! let mut out = Vec::new();
//! match parser.parse(b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", &Limits::default())? {
//!     Parsed::Request(request) => ReplyWriter::new(&mut out, Protocol::Resp2).bulk(&request[1]),
//!     Parsed::Empty { .. } | Parsed::Incomplete { .. } => unreachable!("the request is whole"),
//! }
//! assert_eq!(out, b"$2\r\nhi\r\n");
//! # Ok::<(), tembo_wire::ProtocolError>(())
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod decimal;
mod error;
mod inline;
mod limits;
mod lookahead;
pub mod number;
mod queue;
mod reply;
mod request;
mod span;

pub use client::{ReplyParser, Value, write_request};
pub use error::{ProtocolError, ReplyError};
pub use limits::{Limits, ReplyLimits};
pub use lookahead::keys_ahead;
pub use queue::{RequestQueue, Words};
pub use reply::{Protocol, ReplyWriter};
pub use request::{Args, Parsed, Request, RequestParser};
