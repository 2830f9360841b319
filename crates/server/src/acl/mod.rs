//! Users, and the commands, keys and channels that each may use: Redis's access control lists.
//!
//! ```text
//!   rules ---> User: on or off, passwords
//!              `- Selector, ...: commands (a bit each), patterns of keys, patterns of channels
//!   request -> User::check: one selector has to allow all of it
//! ```
//!
//! Users are configuration, as in Redis: they are in the ACL file or the configuration file, and not in the
//! pool. Nothing here reads or writes files.
//!
//! A user is never changed: another one takes its place, and the sessions get that. So the check of a client
//! that may do everything is one look at its user.
//!
//! # Invariants
//!
//! 1. There is a user `default`.
//! 2. A session's user is the one of that name, or, if that was removed, the default one, and the session is
//!    about to end.
//! 3. Passwords are kept as digests only, and no message has one.

pub(crate) mod categories;
pub(crate) mod check;
mod digest;
pub(crate) mod log;
pub(crate) mod rule;
mod selector;
#[cfg(test)]
mod tests;
pub(crate) mod user;
pub(crate) mod users;
