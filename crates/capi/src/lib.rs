//! The store as a C library, declared and documented in `include/tembo.h`.
//!
//! [`ffi`] has the functions, a file per kind of handle; it is the only unsafe code, and consists of pointer
//! checks and copies. Every call goes through `status`: it turns errors into codes, keeps the messages, and
//! lets no panic across. `docs/guide/capi.md` says how the library is built and used.

pub mod ffi;
mod status;

pub use status::Status;
