//! Reading the header: every kind of file that is not a whole pool gets its own error.

use super::features::{self, INCOMPATIBLE_AT};
use crate::feature::Feature;
use crate::layout::{
    BYTE_ORDER, COMMITTED_BITS, DROPPED_BITS, FEATURE_BITS, FORMAT_VERSION, Geometry, HEADER_BYTES,
    HEADER_SUMMED_BYTES, JOURNAL_BITS, MAGIC, PAGE_BYTES, PmHeader, WATERMARK_BITS, unseal,
};
use crate::{Error, ErrorKind, Quoted, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use tembo_pmem::journal::JournalPlace;
use tembo_pmem::offset_of;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// The contents of a valid header.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub geometry: Geometry,
    pub uuid: Uuid,
    pub committed_bytes: u64,
    /// Bits of the features that the pool has, or that are being added.
    pub features: u64,
    /// `incompatible` lacks some of them.
    pub lacks_features: bool,
    /// The `opening` word, undecoded.
    pub opening: u64,
    /// Where the journal lies, if the pool has one.
    pub journal: Option<JournalPlace>,
}

/// Opens the file without changing it.
pub(crate) fn open_file(path: &Path, read_only: bool) -> Result<File> {
    let not_a_file = |found| Err(ErrorKind::NotAFile { path: path.to_owned(), found }.into());
    let meta = match std::fs::metadata(path) {
        Err(e) => return Err(explain("opening", path, e)),
        Ok(meta) => meta,
    };
    if meta.is_dir() {
        return not_a_file("a directory");
    }
    if !meta.is_file() {
        return not_a_file("a special file");
    }
    OpenOptions::new().read(true).write(!read_only).open(path).map_err(|e| Error::io("opening", path, e))
}

/// The reason why a file at a path is absent, or cannot be made, as exactly as the system reports it.
pub(crate) fn explain(what: &'static str, path: &Path, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return Error::io(what, path, error);
    }
    if let Ok(target) = path.read_link() {
        return ErrorKind::DanglingLink { path: path.to_owned(), target }.into();
    }
    // A person has to look at the outermost directory that is missing or is not a directory.
    let ancestors = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    let wrong = ancestors.filter(|above| !above.is_dir()).last();
    match wrong {
        Some(directory) => {
            ErrorKind::NoDirectory { directory: directory.to_owned(), exists: directory.exists() }.into()
        }
        None if error.kind() == io::ErrorKind::NotFound => {
            ErrorKind::NotFound { path: path.to_owned() }.into()
        }
        None => Error::io(what, path, error),
    }
}

/// The first bytes of a file that is no pool, in printable form.
fn shown(start: &[u8]) -> String {
    if start.iter().all(|byte| *byte == 0) {
        return "zeros".to_owned();
    }
    match std::str::from_utf8(start) {
        Ok(text) if !text.contains(char::is_control) => Quoted(text).to_string(),
        _ => start.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

fn damaged(what: String) -> Error {
    ErrorKind::HeaderDamaged { what }.into()
}

/// Checks that the first page of a file of `length` bytes is that of a pool in this machine's byte order.
fn check_identity(page: &[u8], length: u64) -> Result<()> {
    if page.is_empty() {
        return Err(ErrorKind::Empty.into());
    }
    if !page.starts_with(&MAGIC[..page.len().min(MAGIC.len())]) {
        return Err(ErrorKind::NotAPool { found: shown(&page[..page.len().min(MAGIC.len())]) }.into());
    }
    if (page.len() as u64) < HEADER_BYTES {
        return Err(ErrorKind::Truncated { expected_bytes: HEADER_BYTES, found_bytes: length }.into());
    }
    if u32_at(page, offset_of!(PmHeader, byte_order)) == BYTE_ORDER.swap_bytes() {
        return Err(ErrorKind::ForeignByteOrder.into());
    }
    Ok(())
}

/// Checks checksum, byte order and version. Returns the features that the pool has, or that are being added.
fn read_features(page: &[u8]) -> Result<u64> {
    let sum = u64_at(page, offset_of!(PmHeader, checksum));
    let expected_sum = xxh3_64(&page[..HEADER_SUMMED_BYTES]);
    let added = match u64_at(page, offset_of!(PmHeader, features)) {
        0 => 0,
        word => unseal(word, FEATURE_BITS)
            .ok_or_else(|| damaged(format!("the word of its features is {word:#x}")))?,
    };
    let mut with_added = page[..HEADER_SUMMED_BYTES].to_vec();
    with_added[INCOMPATIBLE_AT..][..8].copy_from_slice(&added.to_le_bytes());
    // I2 of `features.rs`.
    let is_adding = added != 0 && sum == xxh3_64(&with_added);
    if sum != expected_sum && !is_adding {
        return Err(damaged(format!("its checksum is {sum:#x}, its contents sum to {expected_sum:#x}")));
    }
    if u32_at(page, offset_of!(PmHeader, byte_order)) != BYTE_ORDER {
        return Err(damaged("its byte-order mark makes no sense".to_owned()));
    }
    let version = u32_at(page, offset_of!(PmHeader, version));
    if version > FORMAT_VERSION {
        return Err(ErrorKind::NewerVersion { found: version, known: FORMAT_VERSION }.into());
    }
    if version == 0 {
        return Err(damaged("its version is 0".to_owned()));
    }
    let features = if is_adding { added } else { u64_at(page, INCOMPATIBLE_AT) | added };
    // An opening for writing has to know more features than this (`Pool::start`).
    features::accept(features, true)?;
    Ok(features)
}

fn read_geometry(page: &[u8]) -> Result<Geometry> {
    let geometry = Geometry {
        chunk_bytes: u32_at(page, offset_of!(PmHeader, chunk_bytes)),
        lane_bytes: u32_at(page, offset_of!(PmHeader, lane_bytes)),
        zone_chunks: u32_at(page, offset_of!(PmHeader, zone_chunks)),
        lane_count: u32_at(page, offset_of!(PmHeader, lane_count)),
        root_count: u32_at(page, offset_of!(PmHeader, root_count)),
    };
    geometry.validate().map_err(damaged)?;
    Ok(geometry)
}

/// Checks the words that change, and those that must be zero.
fn check_words(page: &[u8], features: u64) -> Result<()> {
    let watermark = u64_at(page, offset_of!(PmHeader, watermark));
    if unseal(watermark, WATERMARK_BITS).is_none() {
        return Err(damaged(format!("its watermark is {watermark:#x}")));
    }
    let dropped = u64_at(page, offset_of!(PmHeader, dropped));
    let may_drop = features & Feature::Dropped.bit() != 0;
    if dropped != 0 && (!may_drop || unseal(dropped, DROPPED_BITS).is_none()) {
        return Err(damaged(format!("its list of what is being freed begins with {dropped:#x}")));
    }
    let journal = u64_at(page, offset_of!(PmHeader, journal));
    let may_have_one = features & Feature::Journal.bit() != 0;
    if journal != 0 && (!may_have_one || unseal(journal, JOURNAL_BITS).is_none()) {
        return Err(damaged(format!("the place of its journal is {journal:#x}")));
    }
    let reserved = [(136, 192), (200, 256), (264, 320), (344, HEADER_BYTES as usize)];
    if reserved.into_iter().any(|(start, end)| page[start..end].iter().any(|b| *b != 0)) {
        return Err(damaged("bytes that must be zero are not".to_owned()));
    }
    Ok(())
}

/// The number by which the checksums of pools differ.
pub(crate) fn seed_of(uuid: Uuid) -> u64 {
    uuid.as_u64_pair().0
}

impl Header {
    /// Checks the first page of a file of `length` bytes: identity, byte order, checksum, version, features,
    /// geometry, length; in this order.
    pub(crate) fn parse(page: &[u8], length: u64) -> Result<Header> {
        check_identity(page, length)?;
        let features = read_features(page)?;
        let geometry = read_geometry(page)?;
        check_words(page, features)?;
        let committed = u64_at(page, offset_of!(PmHeader, committed));
        let committed_bytes = unseal(committed, COMMITTED_BITS)
            .and_then(|pages| pages.checked_mul(PAGE_BYTES))
            .filter(|bytes| *bytes >= geometry.min_bytes())
            .ok_or_else(|| damaged(format!("its length is {committed:#x}")))?;
        if length < committed_bytes {
            return Err(ErrorKind::Truncated { expected_bytes: committed_bytes, found_bytes: length }.into());
        }
        let uuid = Uuid::from_slice(&page[32..48]).expect("sixteen bytes");
        let lacks_features = u64_at(page, INCOMPATIBLE_AT) != features;
        let opening = u64_at(page, offset_of!(PmHeader, opening));
        let journal = Some(u64_at(page, offset_of!(PmHeader, journal)))
            .filter(|word| *word != 0)
            .and_then(|word| unseal(word, JOURNAL_BITS))
            .map(|off| JournalPlace { off, seed: seed_of(uuid) });
        Ok(Header { geometry, uuid, committed_bytes, features, lacks_features, opening, journal })
    }
}
