//! A whole copy of the data for replicas.
//!
//! # Consistency
//!
//! The copy is a point in time: that of its offset. It is written by the [copier](crate::copier), in steps,
//! into a file without a name in the folder of the pool. Replicas that ask until it is whole share it. It is
//! then sent in slices; what was written since its beginning waits in the backlog.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use super::ReplicaStage;
use crate::client_ref::ClientRef;
use crate::config::LogLevel;
use crate::copier::{NoCopy, Purpose};
use crate::executor::Executor;
use crate::export::{Export, Exported};
use crate::import::MOVES_AUX;
use crate::keyspace::history::Position;
use crate::log::MessageKind;
use crate::replica::handshake::nameless;

/// The copy to be written, or the replicas that get the reason for its absence.
pub(crate) type Begun = Result<(Export<File>, Purpose), Box<(Purpose, NoCopy)>>;

impl Executor<'_, '_> {
    /// The replicas in one of two stages.
    fn replicas_that(&mut self, is_meant: fn(&ReplicaStage) -> bool) -> Vec<ClientRef> {
        let Executor { state, clients, .. } = self;
        let list = state.replicas.list.iter().copied();
        let meant = list.filter(|client| {
            let conn = clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            let conn = conn.filter(|conn| !conn.session.killed);
            conn.and_then(|conn| conn.session.replica.as_ref())
                .is_some_and(|replica| is_meant(&replica.stage))
        });
        meant.collect()
    }

    /// Whether replicas wait for a copy to be begun.
    pub(crate) fn wants_copies(&mut self) -> bool {
        !self.state.replicas.list.is_empty()
            && !self.replicas_that(|stage| matches!(stage, ReplicaStage::WantsCopy)).is_empty()
    }

    /// Whether replicas wait for the copy that is being written.
    pub(crate) fn has_takers(&mut self) -> bool {
        !self.replicas_that(|stage| matches!(stage, ReplicaStage::AwaitsCopy)).is_empty()
    }

    /// Lets replicas that request a copy share the one that is being written.
    pub(super) fn join_copy(&mut self) {
        let Some(offset) = self.state.copier.position().map(|position| position.offset) else { return };
        if offset < self.keys.replication.backlog.first() {
            return;
        }
        for client in self.replicas_that(|stage| matches!(stage, ReplicaStage::WantsCopy)) {
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            let Some(replica) = &mut conn.session.replica else { continue };
            (replica.stage, replica.cursor) = (ReplicaStage::AwaitsCopy, offset);
        }
    }

    /// Sends a sign of life to replicas that wait for a copy.
    pub(super) fn calm_waiting(&mut self) {
        for client in
            self.replicas_that(|stage| matches!(stage, ReplicaStage::WantsCopy | ReplicaStage::AwaitsCopy))
        {
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            conn.output.bytes.push(b'\n');
            conn.session.is_plain = false;
            self.clients.note_pushed(client.slot);
        }
    }

    /// Begins a copy of the committed data for the replicas that wait for one.
    pub(crate) fn begin_for_replicas(&mut self) -> Begun {
        let waiting =
            |stage: &ReplicaStage| matches!(stage, ReplicaStage::WantsCopy | ReplicaStage::AwaitsCopy);
        for client in self.replicas_that(waiting) {
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            conn.session.replica.iter_mut().for_each(|replica| replica.stage = ReplicaStage::WantsCopy);
        }
        let nowhere = Position { id: [b'0'; 40], offset: 0, database: 0 };
        let position = self.position_for_copy();
        let position = position.map_err(|why| Box::new((Purpose::Replicas(nowhere), why)))?;
        let purpose = Purpose::Replicas(position);
        // The stream of a replica does not begin with a SELECT.
        let is_master = self.state.role.master.is_none();
        let database = (!is_master).then(|| position.database.to_string());
        let moves = self.state.cluster.as_ref().map(|cluster| cluster.moves().to_text());
        let aux = database.iter().map(|database| (&b"repl-stream-db"[..], database.as_bytes()));
        let aux = aux.chain(moves.iter().map(|moves| (MOVES_AUX, moves.as_bytes())));
        let file = nameless(Path::new(&self.state.folder)).map_err(NoCopy::from);
        let export = file.and_then(|file| Ok(Export::begin(self.keys.pool(), file, aux, None)?));
        let export = export.map_err(|why| Box::new((purpose.clone(), why)))?;
        for client in self.replicas_that(waiting) {
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            let Some(replica) = &mut conn.session.replica else { continue };
            (replica.stage, replica.cursor) = (ReplicaStage::AwaitsCopy, position.offset);
        }
        Ok((export, purpose))
    }

    /// The offset of a copy that begins now. The history begins if there is none.
    fn position_for_copy(&mut self) -> Result<Position, NoCopy> {
        let shown = |fault| io::Error::other(crate::fault::shown(&fault));
        if self.keys.replication.position.is_none() && self.state.role.master.is_some() {
            return Err(io::Error::other("this replica has no data of its master yet").into());
        }
        if self.keys.replication.position.is_none() {
            let id = self.state.run_id.as_bytes().try_into().unwrap_or([b'0'; 40]);
            self.keys.begin_history(id).map_err(shown)?;
            self.keys.store_boot(&crate::machine::boot_id(), false).map_err(shown)?;
        }
        if self.state.role.master.is_none() {
            self.keys.replication.take_up(true);
        }
        let position = self.keys.replication.committed();
        Ok(position.ok_or_else(|| io::Error::other("the history did not begin"))?)
    }

    /// Gives a whole copy to the replicas that wait for it.
    pub(crate) fn give_copies(
        &mut self,
        mut file: File,
        exported: &Exported,
        position: &Position,
        begun: Instant,
    ) {
        let len = match file.stream_position() {
            Ok(len) => len,
            Err(error) => return self.refuse_copies(&NoCopy::from(error)),
        };
        let (count, ms) = (exported.keys.total(), begun.elapsed().as_millis());
        let message = format_args!("{count} keys, {len} bytes, were copied for replicas in {ms} ms");
        self.state.log(LogLevel::Notice, MessageKind::Replication, message);
        let file = Rc::new(file);
        for client in self.replicas_that(|stage| matches!(stage, ReplicaStage::AwaitsCopy)) {
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            let Some(replica) = &mut conn.session.replica else { continue };
            let id = String::from_utf8_lossy(&position.id);
            if !replica.is_plain {
                let line = format!("+FULLRESYNC {id} {}\r\n", position.offset);
                conn.output.bytes.extend_from_slice(line.as_bytes());
            }
            conn.output.bytes.extend_from_slice(format!("${len}\r\n").as_bytes());
            conn.session.is_plain = false;
            replica.heard = self.state.now;
            replica.stage = ReplicaStage::Copying(file.clone(), 0, len);
            self.state.replicas.full += 1;
            self.clients.note_pushed(client.slot);
        }
    }

    /// Disconnects the replicas that wait for a copy; they will request it again.
    pub(crate) fn refuse_copies(&mut self, why: &NoCopy) {
        let message = format_args!("there is no copy for replicas: {why}");
        self.state.log(LogLevel::Warning, MessageKind::Replication, message);
        let waiting =
            self.replicas_that(|stage| matches!(stage, ReplicaStage::WantsCopy | ReplicaStage::AwaitsCopy));
        let is_waiting = |id| waiting.iter().any(|client| client.id == id);
        self.clients.kill(|conn| is_waiting(conn.session.id));
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
