//! Where an argument is.

/// A range of the bytes that hold a request's arguments. `start <= end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}
