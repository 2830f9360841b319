//! Isolation of transactions: ownership records, the clock, and the volatile state of a running transaction.

pub(crate) mod active_tx;
pub(crate) mod clock;
pub(crate) mod commit_buffers;
pub(crate) mod hazards;
pub(crate) mod orec;
pub(crate) mod pending;
pub(crate) mod read_list;
#[expect(unsafe_code, reason = "finds the running transaction of a thread again")]
pub(crate) mod running;
pub(crate) mod shared;
pub(crate) mod sync;
pub(crate) mod validate;
pub(crate) mod writer;
#[expect(unsafe_code, reason = "boxes in atomic pointers")]
pub(crate) mod writer_slots;
