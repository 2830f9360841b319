//! The memory and the depth that a script may take.
//!
//! | limit | is |
//! |---|---|
//! | memory of all scripts and their values | [`MEMORY_MAX`]: beyond it an error `not enough memory` |
//! | cached scripts that came with EVAL | [`EVAL_SCRIPTS_MAX`]: the one that was used longest ago goes |
//! | text of all cached scripts | [`SCRIPT_BYTES_MAX`]: beyond it SCRIPT LOAD is refused |
//! | calls within calls | Lua's 20000, and its 200 through C |
//! | coroutines that resume coroutines | [`COROUTINE_DEPTH_MAX`] |
//! | functions that `gsub` calls within another | [`CALLBACK_DEPTH_MAX`] |
//! | a pattern's recursion | 1000 |
//! | time | none, but see [`Host::tick`](crate::Host::tick) |
//!
//! Lua's code runs under the limit of memory at all times. Where Rust makes values, of a reply or of
//! arguments, their size is known before, and the limit is off if they cannot come near it.

/// Bytes that all scripts and their values may have together.
pub const MEMORY_MAX: usize = 256 << 20;
/// Scripts that came with EVAL and are kept.
pub const EVAL_SCRIPTS_MAX: usize = 500;
/// Bytes that the texts of all cached scripts may have together.
pub const SCRIPT_BYTES_MAX: usize = 8 << 20;
/// Coroutines that may resume each other.
pub(crate) const COROUTINE_DEPTH_MAX: usize = 10;
/// Functions that `string.gsub` may call within another.
pub(crate) const CALLBACK_DEPTH_MAX: usize = 30;
/// Tables within tables that a reply may have.
pub(crate) const REPLY_DEPTH_MAX: usize = 1000;
/// Instructions between two looks at the time.
pub(crate) const INSTRUCTIONS_PER_LOOK: u32 = 1000;
