//! Any packed value, as a sequence of strings.

use crate::error::{Malformed, Problem};
use crate::listpack::Entry;
use crate::{intset, listpack, ziplist, zipmap};

/// The packed formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Listpack => "listpack",
            Format::Ziplist => "ziplist",
            Format::Zipmap => "zipmap",
            Format::Intset => "intset",
        }
    }

    pub(crate) fn problem(self, malformed: Malformed) -> Problem {
        Problem::Malformed { format: self.name(), at: malformed.at, what: malformed.what }
    }
}

/// A walk over a packed value, which each call gets anew.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedCursor {
    Listpack(listpack::ListpackCursor),
    Ziplist(ziplist::ZiplistCursor),
    Zipmap(zipmap::ZipmapCursor),
    Intset(intset::IntsetCursor),
}

impl PackedCursor {
    pub(crate) fn begin(format: Format, blob: &[u8]) -> Result<Self, Problem> {
        let cursor = match format {
            Format::Listpack => listpack::ListpackCursor::begin(blob).map(PackedCursor::Listpack),
            Format::Ziplist => ziplist::ZiplistCursor::begin(blob).map(PackedCursor::Ziplist),
            Format::Zipmap => zipmap::ZipmapCursor::begin(blob).map(PackedCursor::Zipmap),
            Format::Intset => intset::IntsetCursor::begin(blob).map(PackedCursor::Intset),
        };
        cursor.map_err(|malformed| format.problem(malformed))
    }

    fn format(&self) -> Format {
        match self {
            PackedCursor::Listpack(_) => Format::Listpack,
            PackedCursor::Ziplist(_) => Format::Ziplist,
            PackedCursor::Zipmap(_) => Format::Zipmap,
            PackedCursor::Intset(_) => Format::Intset,
        }
    }

    /// Writes the next string to `out`; tells whether there was one.
    pub(crate) fn next(&mut self, blob: &[u8], out: &mut Vec<u8>) -> Result<bool, Problem> {
        let entry: Result<Option<Entry<'_>>, Malformed> = match self {
            PackedCursor::Listpack(cursor) => cursor.next(blob),
            PackedCursor::Ziplist(cursor) => cursor.next(blob),
            PackedCursor::Zipmap(cursor) => cursor.next(blob),
            PackedCursor::Intset(cursor) => cursor.next(blob),
        };
        let entry = entry.map_err(|malformed| self.format().problem(malformed))?;
        if let Some(entry) = entry {
            entry.write(out);
        }
        Ok(entry.is_some())
    }

    /// As [`next`](Self::next), for the second string of a pair.
    pub(crate) fn partner(&mut self, blob: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
        match self.next(blob, out)? {
            true => Ok(()),
            false => Err(self.format().problem(Malformed { at: blob.len(), what: "a field has no value" })),
        }
    }
}
