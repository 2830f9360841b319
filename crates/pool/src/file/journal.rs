//! Pools that have a journal ([`tembo_pmem::journal`]): what it has is a part of the pool's contents, in
//! every domain.

use super::header::Header;
use crate::layout::PAGE_BYTES;
use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::path::Path;
use tembo_pmem::journal::{JournalError, JournalPlace, read_lines, recover};
use tembo_pmem::{LINE_BYTES, Region, RegionError};

/// Lines that are newer than those in the file.
pub(crate) type NewerLines = Vec<(u64, [u8; LINE_BYTES as usize])>;

fn failed(path: &Path, error: JournalError) -> Error {
    match error {
        JournalError::Io(e) => Error::io("reading the journal of", path, e),
        damage @ JournalError::Damaged { .. } => ErrorKind::Region(RegionError::Journal(damage)).into(),
    }
}

/// The header with the journal's lines in its page, and all of these. Changes nothing.
pub(crate) fn read(
    file: &File,
    path: &Path,
    page: &mut [u8],
    length: u64,
    place: JournalPlace,
) -> Result<(Header, NewerLines)> {
    let lines = read_lines(file, place).map_err(|e| failed(path, e))?;
    for (line, content) in lines.iter().take_while(|(line, _)| *line < PAGE_BYTES / LINE_BYTES) {
        page[(line * LINE_BYTES) as usize..][..content.len()].copy_from_slice(content);
    }
    Ok((Header::parse(page, length)?, lines))
}

/// Writes the journal's lines to their places in the file.
pub(crate) fn replay(file: &File, path: &Path, place: JournalPlace) -> Result<()> {
    recover(file, place).map(drop).map_err(|e| failed(path, e))
}

/// Stores the journal's lines in private memory.
pub(crate) fn apply(region: &mut Region, lines: &NewerLines) -> Result<()> {
    let bytes = region.len();
    for (line, content) in lines.iter().filter(|(line, _)| (line + 1) * LINE_BYTES <= bytes) {
        region.write_and_flush_alone(line * LINE_BYTES, content)?;
    }
    Ok(())
}
