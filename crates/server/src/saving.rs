//! The saves of this run of the server: see [`crate::dump_file`].

use std::path::Path;

use crate::clock;

/// The saves of this run of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saving {
    /// SAVE or BGSAVE was called; the save follows, or is under way.
    pub(crate) is_scheduled: bool,
    /// When the last save ended that succeeded, or the server started: seconds since the Unix epoch.
    pub(crate) last_seconds: u64,
    /// The last BGSAVE failed.
    pub(crate) background_failed: bool,
    /// How long the last BGSAVE took.
    pub(crate) background_seconds: Option<u64>,
    /// Files that were written.
    pub(crate) count: u64,
    /// Commands that wrote since the last one.
    pub(crate) changes: u64,
    /// Those of the changes that came before the save under way.
    pub(crate) changes_before: u64,
}

impl Saving {
    pub(crate) fn new() -> Self {
        Saving { last_seconds: clock::unix_time().as_secs(), ..Saving::default() }
    }
}

/// Whether a name is that of a file in a folder, and no path.
pub(crate) fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    path.file_name().is_some_and(|last| last == path.as_os_str()) && !name.ends_with('/')
}
