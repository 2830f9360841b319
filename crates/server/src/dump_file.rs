//! SAVE and BGSAVE: the databases as a file of Redis in the folder of the pool.
//!
//! # Consistency
//!
//! The file has the data that were committed when the save began. The [copier](crate::copier) writes it in
//! steps, between the commands of clients, who do not wait. BGSAVE answers at once, and SAVE when the file is
//! on the device.
//!
//! # Commit point
//!
//! The file is written under a temporary name. A thread forces it to the device, renames it, and forces its
//! folder to the device. A file of that name is the old one or the new one, whole. A kill in the middle
//! leaves the temporary file, which the next save of a process with that number overwrites.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tembo_wire::ReplyWriter;

use crate::clock;
use crate::config::LogLevel;
use crate::copier::{Forcing, NoCopy, Purpose};
use crate::executor::Executor;
use crate::export::{Export, Exported};
use crate::fault::without_line_ends;
use crate::log::MessageKind;
use crate::master::copy::Begun;

impl Executor<'_, '_> {
    /// Begins a save of the committed data.
    pub(crate) fn begin_save(&mut self) -> Begun {
        let name = format!("temp-{}.rdb", std::process::id());
        let temporary = Path::new(&self.state.folder).join(name);
        let begun = File::create(&temporary).map_err(NoCopy::from);
        // Keys of a replica expire by the master's word.
        let now = self.state.role.master.is_none().then(clock::unix_time);
        let begun = begun.and_then(|file| Ok(Export::begin(self.keys.pool(), file, [], now)?));
        let purpose = Purpose::Save(temporary);
        match begun {
            Ok(export) => Ok((export, purpose)),
            Err(why) => Err(Box::new((purpose, why))),
        }
    }

    /// Lets a thread give a file its name.
    pub(crate) fn force_saved(
        &mut self,
        temporary: PathBuf,
        file: File,
        exported: &Exported,
        begun: Instant,
    ) {
        let (folder, name) = (PathBuf::from(&self.state.folder), self.state.config.dump_file.clone());
        let thread = std::thread::Builder::new().name("tembo-save".to_owned()).spawn(move || {
            let named = file.sync_all().and_then(|()| {
                std::fs::rename(&temporary, folder.join(name))?;
                File::open(&folder)?.sync_all()
            });
            if named.is_err() {
                // The earlier error is the one that is reported.
                let _ = std::fs::remove_file(&temporary);
            }
            named
        });
        match thread {
            Ok(thread) => {
                self.state.copier.forcing = Some(Forcing { thread, keys: exported.keys.total(), begun });
            }
            Err(error) => self.end_save(Err(error.to_string())),
        }
    }

    /// Ends the save whose file is on the device.
    pub(crate) fn take_forced(&mut self) {
        let forced = self.state.copier.forcing.take_if(|forcing| forcing.thread.is_finished());
        let Some(Forcing { thread, keys, begun }) = forced else { return };
        let outcome = match thread.join() {
            Ok(outcome) => outcome.map(|()| (keys, begun)).map_err(|error| error.to_string()),
            Err(_) => Err("the thread that forces the file to the device has panicked".to_owned()),
        };
        self.end_save(outcome);
    }

    /// Notes, logs and tells how a save went: how many keys it has and when it began, or why it failed.
    pub(crate) fn end_save(&mut self, outcome: Result<(u64, Instant), String>) {
        let state = &mut *self.state;
        let saving = &mut state.saving;
        (saving.is_scheduled, saving.background_failed) = (false, outcome.is_err());
        match &outcome {
            Ok((count, begun)) => {
                let took = begun.elapsed();
                saving.background_seconds = Some(took.as_secs());
                (saving.last_seconds, saving.count) = (clock::unix_time().as_secs(), saving.count + 1);
                saving.changes -= std::mem::take(&mut saving.changes_before);
                let message = format_args!("{count} keys were saved in {} ms", took.as_millis());
                state.log(LogLevel::Notice, MessageKind::Saving, message);
            }
            Err(why) => {
                state.log(LogLevel::Warning, MessageKind::Saving, format_args!("saving failed: {why}"))
            }
        }
        for client in std::mem::take(&mut self.state.copier.saving) {
            let conn = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            let Some(conn) = conn else { continue };
            conn.session.is_saving = false;
            let mut out = ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol);
            match &outcome {
                Ok(_) => out.ok(),
                Err(why) => out.error(without_line_ends(format!("ERR saving failed: {why}").as_bytes())),
            }
            conn.session.is_plain = false;
            self.clients.note_unblocked(client.slot);
        }
    }
}
