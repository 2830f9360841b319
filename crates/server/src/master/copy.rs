//! A whole copy of the data for replicas.
//!
//! # Consistency
//!
//! The copy is written into a file without a name in the folder of the pool, between two commits and without
//! a fork, so that it is a point in time: that of the offset that goes with it. No client is served
//! meanwhile. Replicas that ask in the same turn share it. It is then sent in slices; what is written
//! meanwhile waits in the backlog.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use super::Stage;
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::export::{ExportError, Exported, export_with};
use crate::import::MOVES_AUX;
use crate::keyspace::Keyspace;
use crate::keyspace::replication::Position;
use crate::log::Kind;
use crate::replica::ask::nameless;
use crate::state::State;
use crate::supervision::Showing;

/// Writes all keys that are committed into a file without a name; returns it with its length. There must be
/// no batch.
fn write(
    keys: &Keyspace<'_>,
    state: &mut State,
    database: Option<u8>,
    moves: Option<String>,
) -> Result<(File, u64, Exported), ExportError> {
    let database = database.map(|database| database.to_string());
    let aux = database.iter().map(|database| (&b"repl-stream-db"[..], database.as_bytes()));
    let aux = aux.chain(moves.iter().map(|moves| (MOVES_AUX, moves.as_bytes())));
    let file = nameless(Path::new(&state.folder))?;
    let state = RefCell::new(state);
    let showing = Showing { sink: file, state: &state };
    let mut progress = || state.borrow_mut().show_alive();
    let (mut showing, exported) = export_with(keys.pool(), showing, aux, &mut progress)?;
    let len = showing.sink.stream_position()?;
    Ok((showing.sink, len, exported))
}

impl Executor<'_, '_> {
    /// Begins whole copies for those who wait for one. Called when the batch is committed.
    pub(super) fn begin_copies(&mut self) {
        let mut wanting = Vec::new();
        for client in &self.state.replicas.list {
            let replica = self.clients.get_mut(client.slot).and_then(|conn| conn.session.replica.as_ref());
            if replica.is_some_and(|replica| matches!(replica.stage, Stage::WantsCopy)) {
                wanting.push(client.slot);
            }
        }
        if wanting.is_empty() {
            return;
        }
        let begun = Instant::now();
        let (file, position, len) = match self.write_copy() {
            Ok((file, len, exported, position)) => {
                let (count, ms) = (exported.keys.total(), begun.elapsed().as_millis());
                let message = format_args!("{count} keys, {len} bytes, were copied for replicas in {ms} ms");
                self.state.log(LogLevel::Notice, Kind::Replication, message);
                (Rc::new(file), position, len)
            }
            Err(why) => {
                let message = format_args!("there is no copy for replicas: {why}");
                self.state.log(LogLevel::Warning, Kind::Replication, message);
                self.clients.kill(|conn| wanting.contains(&conn.session.slot));
                return;
            }
        };
        for slot in wanting {
            let Some(conn) = self.clients.get_mut(slot) else { continue };
            let Some(replica) = &mut conn.session.replica else { continue };
            let id = String::from_utf8_lossy(&position.id);
            if !replica.is_plain {
                let line = format!("+FULLRESYNC {id} {}\r\n", position.offset);
                conn.output.bytes.extend_from_slice(line.as_bytes());
            }
            conn.output.bytes.extend_from_slice(format!("${len}\r\n").as_bytes());
            conn.session.is_plain = false;
            (replica.cursor, replica.heard) = (position.offset, self.state.now);
            replica.stage = Stage::Copying(file.clone(), 0, len);
            self.state.replicas.full += 1;
            self.clients.note_pushed(slot);
        }
    }

    fn write_copy(&mut self) -> Result<(File, u64, Exported, Position), String> {
        let shown = |fault| crate::replica::apply::shown(&fault);
        let is_master = self.state.role.master.is_none();
        if self.keys.replication.position.is_none() {
            let id = self.state.run_id.as_bytes().try_into().unwrap_or([b'0'; 40]);
            self.keys.begin_history(id).map_err(shown)?;
            self.keys.store_boot(&crate::machine::boot_id(), false).map_err(shown)?;
        }
        if is_master {
            self.keys.replication.take_up(true);
        }
        let position = self.keys.replication.committed().ok_or("the history did not begin")?;
        // The stream of a replica does not begin with a SELECT.
        let database = (!is_master).then_some(position.database);
        let moves = self.state.cluster.as_ref().map(|cluster| cluster.moves().to_text());
        let written = write(&self.keys, self.state, database, moves);
        let (file, len, exported) = written.map_err(|error| match error {
            // Its message has a key.
            ExportError::Malformed { .. } => "a value is damaged; run `tembo check`".to_owned(),
            error => error.to_string(),
        })?;
        Ok((file, len, exported, position))
    }
}

/// Appends the next bytes of a copy; returns how many there were.
pub(super) fn read(file: &File, at: u64, most: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    let before = out.len();
    out.resize(before + most, 0);
    let read = file.read_at(&mut out[before..], at);
    out.truncate(before + *read.as_ref().unwrap_or(&0));
    match read {
        Ok(0) if most > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}
