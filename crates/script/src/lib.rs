//! Lua scripts as Redis 7.0 runs them: its sandbox, its libraries, and its conversions between replies and
//! values. The server is a [`Host`]; this crate knows no commands and no data.
//!
//! ```text
//!   Engine            one state of Lua: compile, run, forget
//!   |- sandbox        the globals; prelude.lua: whatever catches errors
//!   |- commands       redis.call and its kind, which ask the Host
//!   |- replies        RESP to values and back
//!   |- cjson, json_text, msgpack, bits, structs     libraries
//!   |- strings, pattern, maths    parts of Lua's own that are replaced
//!   |- shared, raise  the run under way; errors
//!   |- limits         what a script may take
//! ```
//!
//! Lua is 5.1, in C; its binding is the crate `mlua`. This crate has no unsafe code.
//!
//! # Differences from Redis
//!
//! - `os.clock` is there, as in later versions.
//! - Patterns are matched with a bound on their recursion, and can be interrupted.
//! - Compiled code is refused by `load` and `loadstring`, as in Redis; `string.dump` still makes some.
//! - Tables that cannot be changed have a metatable that `getmetatable` shows as `false`.
#![forbid(unsafe_code)]

mod bits;
mod cjson;
mod commands;
mod engine;
mod header;
mod host;
mod json_settings;
mod json_text;
mod limits;
mod maths;
mod msgpack;
mod number;
mod pattern;
mod raise;
mod random;
mod replies;
mod sandbox;
mod sha1;
mod shared;
mod strings;
mod structs;
#[cfg(test)]
mod tests;

pub use engine::{Compiled, Engine, Outcome, Run};
pub use header::Header;
pub use host::{Flow, Host};
pub use limits::{EVAL_SCRIPTS_MAX, MEMORY_MAX, SCRIPT_BYTES_MAX};
pub use sha1::sha1_hex;
