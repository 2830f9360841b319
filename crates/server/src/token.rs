//! The names of the event loop's sources, apart from clients, whose names are their slots.

use mio::Token;

pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);
/// The link to a master.
pub(crate) const MASTER: Token = Token(usize::MAX - 2);
