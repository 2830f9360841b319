//! The names of histories, the places in them, and the addresses of masters.

use tembo::Map;

use super::batch::Batch;
use super::format::{DATABASES, Malformed};
use super::stream_file::Extent;

pub(super) const SECOND: &[u8] = b"s";
pub(super) const POSITION: &[u8] = b"p";

/// The length of a replication id.
pub(crate) const ID_BYTES: usize = 40;

/// The longest name of a host.
pub(crate) const HOST_BYTES_MAX: usize = 255;

/// The name of a history.
pub(crate) type Id = [u8; ID_BYTES];

/// The address of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Master {
    pub(super) fn decode(value: &[u8]) -> Result<Self, Malformed> {
        let (port, host) = value.split_first_chunk().ok_or(Malformed)?;
        let host = str::from_utf8(host).map_err(|_| Malformed)?;
        if host.is_empty() || host.len() > HOST_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Master { host: host.to_owned(), port: u16::from_le_bytes(*port) })
    }
}

/// How far a stream has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) id: Id,
    pub(crate) offset: u64,
    pub(crate) database: u8,
}

impl Position {
    /// With the extent of the backlog's file, if it is in one.
    pub(super) fn decode(value: &[u8]) -> Result<(Self, Option<Extent>), Malformed> {
        let (id, rest) = value.split_first_chunk().ok_or(Malformed)?;
        let (offset, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (&database, extent) = rest.split_first().ok_or(Malformed)?;
        let is_sound = is_id(id) && usize::from(database) < DATABASES;
        let position = Position { id: *id, offset: u64::from_le_bytes(*offset), database };
        let position = is_sound.then_some(position).ok_or(Malformed)?;
        let extent = match extent {
            [] => None,
            bytes => Some(Extent::decode(bytes, position.offset)?),
        };
        Ok((position, extent))
    }

    pub(super) fn write(
        &self,
        batch: &mut Batch<'_>,
        map: &Map,
        extent: Option<Extent>,
    ) -> Result<(), tembo::Error> {
        let mut parts = [&self.id[..], &self.offset.to_le_bytes(), &[self.database]].concat();
        extent.iter().for_each(|extent| parts.extend_from_slice(&extent.encode()));
        match batch.put(map, POSITION, &parts) {
            // Removals work in a full pool.
            Err(tembo::Error::Full { .. }) => batch.put_to_free(map, POSITION, &parts).map(drop),
            other => other.map(drop),
        }
    }
}

/// The history before the present one, and the offset up to which both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) id: Id,
    pub(crate) offset: u64,
}

impl Second {
    pub(super) fn decode(value: &[u8]) -> Result<Self, Malformed> {
        let (id, rest) = value.split_first_chunk().ok_or(Malformed)?;
        let offset = rest.try_into().map(u64::from_le_bytes).map_err(|_| Malformed)?;
        is_id(id).then_some(Second { id: *id, offset }).ok_or(Malformed)
    }

    pub(super) fn write(&self, batch: &mut Batch<'_>, map: &Map) -> Result<(), tembo::Error> {
        batch.put_parts(map, SECOND, &[&self.id, &self.offset.to_le_bytes()]).map(drop)
    }
}

/// Whether these bytes may be a replication id.
pub(crate) fn is_id(id: &[u8]) -> bool {
    id.len() == ID_BYTES && id.iter().all(u8::is_ascii_alphanumeric)
}
