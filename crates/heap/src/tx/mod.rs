//! Transactions as programs see them: reading, writing, and following pointers.

pub(crate) mod alloc;
pub(crate) mod bulk_read;
mod hold;
mod link;
mod map_watch;
mod read;
mod ref_mut;
#[allow(unsafe_code, reason = "says that transactions stay on their thread")]
mod thread_bound;
mod value_move;
mod write;

pub(crate) use map_watch::MapWatch;
pub use read::ReadTx;
pub use ref_mut::RefMut;
pub use write::Tx;
pub(crate) use write::writer_of;
