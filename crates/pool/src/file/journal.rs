//! Pools that have a journal ([`tembo_pmem::journal`]): its records are a part of the pool's contents, in
//! every domain.

use super::header::Header;
use crate::layout::PAGE_BYTES;
use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::path::Path;
use tembo_pmem::journal::{JournalError, JournalPlace, Records, read_lines, recover};
use tembo_pmem::{LINE_BYTES, Region, RegionError};

/// Lines that are newer than those in the file.
pub(crate) type NewerLines = Vec<(u64, [u8; LINE_BYTES as usize])>;

fn failed(path: &Path, error: JournalError) -> Error {
    match error {
        JournalError::Io(e) => Error::io("reading the journal of", path, e),
        damage @ JournalError::Damaged { .. } => ErrorKind::Region(RegionError::Journal(damage)).into(),
    }
}

/// The part of a journal that is newer than the file.
pub(crate) struct Newer {
    /// All lines, for an opening that only reads.
    pub(crate) lines: NewerLines,
    /// The records, for an opening that writes.
    pub(crate) records: Option<Records>,
    /// The number of the lines; of an opening that writes each as often as it was recorded.
    pub(crate) count: u64,
}

/// The header with the journal's lines in its page, and what else is newer. Changes nothing.
pub(crate) fn read(
    file: &File,
    path: &Path,
    page: &mut [u8],
    length: u64,
    place: JournalPlace,
    read_only: bool,
) -> Result<(Header, Newer)> {
    let in_page = PAGE_BYTES / LINE_BYTES;
    let mut put = |lines: &[(u64, [u8; LINE_BYTES as usize])]| {
        for (line, content) in lines.iter().filter(|(line, _)| *line < in_page) {
            page[(line * LINE_BYTES) as usize..][..content.len()].copy_from_slice(content);
        }
    };
    let newer = if read_only {
        let lines = read_lines(file, place).map_err(|e| failed(path, e))?;
        put(&lines);
        Newer { count: lines.len() as u64, lines, records: None }
    } else {
        let found = Records::find_with_lines(file, place, in_page).map_err(|e| failed(path, e))?;
        put(&found.1);
        Newer { count: found.0.lines(), lines: NewerLines::new(), records: Some(found.0) }
    };
    Ok((Header::parse(page, length)?, newer))
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
