//! A reference to a client, for code that does not have the connection at hand.

/// A client by its slot; the number tells whether the slot is still that client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientRef {
    pub(crate) slot: usize,
    pub(crate) id: u64,
}
