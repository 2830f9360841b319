//! A whole state into free maps: some keys in each turn, so that clients are served meanwhile.

use std::io::Read;
use std::time::{Duration, Instant};

use tembo_rdb::{Event, Reader};

use super::handshake::{Failure, failed};
use crate::cluster::migration::Moves;
use crate::config::Encodings;
use crate::import::{ImportError, Importing, Survey};
use crate::keyspace::Keyspace;
use crate::keyspace::format::DATABASES;
use crate::keyspace::history::Position;

/// How long a turn loads, up to the end of a key.
const STEP: Duration = Duration::from_millis(2);

pub(crate) struct Loading<'p, R> {
    importing: Importing<'p>,
    reader: Reader<R>,
    wanted: [bool; DATABASES],
    position: Position,
    /// The master's moves of slots.
    moves: Moves,
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        failed(format!("the master's data cannot be stored: {error}"))
    }
}

fn not_stored(fault: crate::fault::Fault) -> Failure {
    failed(format!("the master's data cannot be stored: {}", crate::fault::shown(&fault)))
}

impl<'p, R: Read> Loading<'p, R> {
    /// Begins, with a file that was surveyed. There must be no batch. Tells whether the old state had to go
    /// first.
    pub(crate) fn begin(
        keys: &mut Keyspace<'p>,
        (file, survey): (R, &Survey),
        position: Position,
        encodings: Encodings,
    ) -> Result<(Self, bool), Failure> {
        let wanted = std::array::from_fn(|database| survey.databases.contains(&(database as u64)));
        let reader = Reader::new(file).map_err(ImportError::from)?;
        let (arrival, cleared) = keys.begin_arrival(&wanted).map_err(not_stored)?;
        let importing = Importing::into(arrival, encodings);
        if importing.is_err() {
            keys.give_up_arrival().map_err(not_stored)?;
        }
        let mut importing = importing?;
        // Keys whose deadline has come are the master's to remove.
        importing.keys.now_ms = 0;
        // A master that is no Tembo has none.
        let moves = survey.moves.as_deref().and_then(Moves::parse).unwrap_or_default();
        Ok((Loading { importing, reader, wanted, position, moves }, cleared))
    }

    /// Loads for a while; tells whether that was all. There is no batch, before and after.
    pub(crate) fn step(&mut self) -> Result<bool, Failure> {
        let begun = Instant::now();
        loop {
            let event = self.reader.next().map_err(ImportError::from)?;
            let Some(event) = event else { break };
            let is_end_of_key = matches!(event, Event::KeyEnd);
            self.importing.take(event)?;
            if is_end_of_key && begun.elapsed() > STEP {
                self.importing.keys.commit().map_err(ImportError::from)?;
                return Ok(false);
            }
        }
        self.importing.keys.commit().map_err(ImportError::from)?;
        Ok(true)
    }

    /// Lets the new state take the place of the old one.
    pub(crate) fn complete(self, keys: &mut Keyspace<'p>) -> Result<(), Failure> {
        let Loading { importing, wanted, position, moves, .. } = self;
        keys.complete_arrival(importing.keys, &wanted, position, &moves).map_err(not_stored)
    }
}
