//! SAVE and BGSAVE: the databases as a file of Redis in the folder of the pool.
//!
//! # Consistency
//!
//! The file has what was committed when the save began. It is written between two commits, without a thread
//! and without a fork: no command runs meanwhile, so that the file is a point in time and costs no memory.
//! Clients wait as long as that takes. BGSAVE answers at once, and the save follows at the end of the turn.
//!
//! # Commit point
//!
//! The file is written under a temporary name, forced to the device, renamed, and its folder is forced to the
//! device. A file of that name is the old one or the new one, whole. A kill in the middle leaves the
//! temporary file, which the next save of a process with that number overwrites.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

use crate::clock;
use crate::config::LogLevel;
use crate::export::{ExportError, export};
use crate::keyspace::Keyspace;
use crate::log::Kind;
use crate::state::State;
use crate::supervision::Showing;

/// The saves of this run of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Saving {
    /// BGSAVE was called; the save follows.
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
}

impl Saving {
    pub(crate) fn new() -> Self {
        Saving { last_seconds: clock::unix_time().as_secs(), ..Saving::default() }
    }
}

/// Writes all keys that are committed into the file that the settings name. There must be no batch.
///
/// # Errors
/// Those of the file and of the pool. A file of that name is as before then.
fn write(keys: &Keyspace<'_>, state: &mut State) -> Result<u64, ExportError> {
    let (folder, name) = (Path::new(&state.folder).to_owned(), state.config.dump_file.clone());
    let temporary = folder.join(format!("temp-{}.rdb", std::process::id()));
    let written = File::create(&temporary).map_err(ExportError::File).and_then(|file| {
        let state = RefCell::new(state);
        let showing = Showing { sink: file, state: &state };
        let (showing, exported) = export(keys.pool(), showing, &mut || state.borrow_mut().show_alive())?;
        showing.sink.sync_all()?;
        std::fs::rename(&temporary, folder.join(name))?;
        File::open(&folder)?.sync_all()?;
        Ok(exported.keys.total())
    });
    if written.is_err() {
        // The error that led here is the one to tell of.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Saves, and notes and logs how that went. There must be no batch.
pub(crate) fn save(keys: &Keyspace<'_>, state: &mut State) -> Result<(), ExportError> {
    let begun = Instant::now();
    let written = write(keys, state);
    match &written {
        Ok(count) => {
            let message = format_args!("{count} keys were saved in {} ms", begun.elapsed().as_millis());
            state.log(LogLevel::Notice, Kind::Saving, message);
            let (before, last_seconds) = (state.saving, clock::unix_time().as_secs());
            state.saving = Saving { last_seconds, changes: 0, count: before.count + 1, ..before };
        }
        Err(error) => {
            let what = match error {
                // Its message has a key.
                ExportError::Malformed { .. } => {
                    &"a value is damaged; run `tembo check`" as &dyn std::fmt::Display
                }
                error => error,
            };
            state.log(LogLevel::Warning, Kind::Saving, format_args!("saving failed: {what}"));
        }
    }
    written.map(drop)
}

/// The save that BGSAVE asked for.
#[cold]
pub(crate) fn save_scheduled(keys: &Keyspace<'_>, state: &mut State) {
    let begun = Instant::now();
    let failed = save(keys, state).is_err();
    let saving = &mut state.saving;
    (saving.is_scheduled, saving.background_failed) = (false, failed);
    saving.background_seconds = Some(begun.elapsed().as_secs());
}

/// Whether a name is one of a file in a folder.
pub(crate) fn is_file_name(name: &str) -> bool {
    let path = Path::new(name);
    path.file_name().is_some_and(|last| last == path.as_os_str()) && !name.ends_with('/')
}

impl From<ExportError> for crate::fault::Fault {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Pool(error) => error.into(),
            error => crate::fault::Fault::Quoting(format!("ERR saving failed: {error}").into_bytes()),
        }
    }
}
