//! The ways to open a file.

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Stores go to the file.
    ReadWrite,
    /// The memory cannot be stored to.
    ReadOnly,
    /// Stores are kept in this process and lost when the region is dropped; the file is not changed.
    Private,
}
