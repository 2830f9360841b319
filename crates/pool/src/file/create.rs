//! Creating a pool: all or nothing, also across a crash.
//!
//! The file is made without a name, filled, synchronised and only then linked to its path. Inside the region
//! the magic is the last word to become durable, so a half-written region is not a pool either.

use super::features::{INCOMPATIBLE_AT, of_files};
use super::file_lock;
use super::header::{Header, explain};
use super::opening::{Found, Here, Opened, Opening};
use super::options::Options;
use crate::layout::{
    BYTE_ORDER, COMMITTED_BITS, FORMAT_VERSION, Geometry, HEADER_SUMMED_BYTES, MAGIC, PAGE_BYTES, PmHeader,
    WATERMARK_BITS, seal,
};
use crate::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tembo_pmem::{Access, Region, offset_of};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// The memory and header of a new pool, and how it was opened.
pub(crate) type NewPool = (Region, Header, Opened);

/// Temporary names that are tried.
const ATTEMPTS_MAX: u32 = 100;

/// A new file that has no name yet, or a temporary one.
struct NewFile {
    file: File,
    temporary: Option<PathBuf>,
}

/// Creates a pool at a path that is free.
pub(crate) fn create_file(path: &Path, options: &Options) -> Result<NewPool> {
    if path.symlink_metadata().is_ok() {
        return Err(match (path.metadata(), path.read_link()) {
            (Err(_), Ok(target)) => ErrorKind::DanglingLink { path: path.to_owned(), target }.into(),
            _ => ErrorKind::AlreadyExists { path: path.to_owned() }.into(),
        });
    }
    let new = NewFile::create(path)?;
    let pool = create_in_file(&new.file, path, options)?;
    new.publish(path)?;
    Ok(pool)
}

/// Makes an empty file a pool: empty, marked as open, and durable on return. `path` is the path that the file
/// has or will have; giving it that name is left to the caller.
pub(crate) fn create_in_file(file: &File, path: &Path, options: &Options) -> Result<NewPool> {
    let geometry = options.chosen_geometry();
    geometry.validate().map_err(|what| ErrorKind::Options { what })?;
    let chunk = u64::from(geometry.chunk_bytes);
    let least = options.initial_bytes.max(geometry.min_bytes());
    let bytes = least
        .checked_next_multiple_of(chunk)
        .ok_or_else(|| ErrorKind::Options { what: format!("a pool of {least} bytes is too large") })?;
    if let Some(max_bytes) = options.max_bytes
        && max_bytes < bytes
    {
        return Err(ErrorKind::MaximumTooSmall { needed_bytes: bytes, max_bytes }.into());
    }
    file_lock::lock(file, path, true)?;
    Region::allocate_new_file(file, bytes, &options.region)?;
    let map = || file.try_clone().map_err(|e| Error::io("creating", path, e));
    let mut region_options = options.region.clone();
    region_options.max_bytes = options.max_bytes;
    path.clone_into(&mut region_options.path);
    let region = Region::map_file(map()?, bytes, &region_options, Access::ReadWrite)?;
    let header = format(&region, &geometry, of_files(&geometry))?;
    let opening = Opening::mark_open(&region, Here::of(file, path)?, Found::New)?;
    // PERSIST(I5): the file's contents and length are durable before its name is; and so is the mark
    // that it is open (O1).
    rustix::fs::fsync(file).map_err(|e| Error::io("synchronising", path, e))?;
    let opened = Opened { opening: Some(opening), path: Some(path.to_owned()), ..Opened::default() };
    Ok((region, header, opened))
}

/// Writes an empty pool, which has these features, into a region that reads as zero.
pub(crate) fn format(region: &Region, geometry: &Geometry, features: u64) -> Result<Header> {
    geometry.validate().map_err(|what| ErrorKind::Options { what })?;
    let bytes = region.len();
    if bytes < geometry.min_bytes() || !bytes.is_multiple_of(PAGE_BYTES) {
        let what =
            format!("a pool of this geometry needs at least {} bytes, in whole pages", geometry.min_bytes());
        return Err(ErrorKind::Options { what }.into());
    }
    let uuid = Uuid::new_v4();
    let created_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut page = [0; 256];
    page[..8].copy_from_slice(&MAGIC);
    page[offset_of!(PmHeader, uuid)..][..16].copy_from_slice(uuid.as_bytes());
    let mut put_u32 = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put_u32(offset_of!(PmHeader, version), FORMAT_VERSION);
    put_u32(offset_of!(PmHeader, byte_order), BYTE_ORDER);
    put_u32(offset_of!(PmHeader, chunk_bytes), geometry.chunk_bytes);
    put_u32(offset_of!(PmHeader, lane_bytes), geometry.lane_bytes);
    put_u32(offset_of!(PmHeader, zone_chunks), geometry.zone_chunks);
    put_u32(offset_of!(PmHeader, lane_count), geometry.lane_count);
    put_u32(offset_of!(PmHeader, root_count), geometry.root_count);
    let mut put_u64 = |at: usize, value: u64| page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put_u64(INCOMPATIBLE_AT, features);
    put_u64(offset_of!(PmHeader, created_unix_s), created_unix_s);
    put_u64(offset_of!(PmHeader, committed), seal(bytes / PAGE_BYTES, COMMITTED_BITS));
    put_u64(offset_of!(PmHeader, watermark), seal(0, WATERMARK_BITS));
    let sum = xxh3_64(&page[..HEADER_SUMMED_BYTES]);
    page[offset_of!(PmHeader, checksum)..][..8].copy_from_slice(&sum.to_le_bytes());
    // SAFETY: no other code has the region yet.
    unsafe { region.write(8, &page[8..])? };
    // PERSIST(I5): everything else is durable before the magic makes it a pool.
    region.persist(8, page.len() as u64 - 8)?;
    region.store_u64(0, u64::from_le_bytes(MAGIC))?;
    // PERSIST(I5): the pool exists from here on, and its creator may report success.
    region.persist(0, 8)?;
    Ok(Header {
        geometry: *geometry,
        uuid,
        committed_bytes: bytes,
        features,
        lacks_features: false,
        opening: 0,
        journal: None,
    })
}

impl NewFile {
    fn create(path: &Path) -> Result<NewFile> {
        let directory = parent_of(path);
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(fd) => return Ok(NewFile { file: fd.into(), temporary: None }),
            // The file system cannot make files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
            Err(e) => return Err(explain("creating", path, e)),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let mut attempt = 0;
        loop {
            let temporary = directory.join(temporary_name(path, attempt));
            match rustix::fs::open(&temporary, flags, mode) {
                Ok(fd) => return Ok(NewFile { file: fd.into(), temporary: Some(temporary) }),
                // A process that was killed left a file of this name, or another thread has it.
                Err(Errno::EXIST) if attempt < ATTEMPTS_MAX => attempt += 1,
                Err(Errno::EXIST) => return Err(Error::io("creating", &temporary, Errno::EXIST)),
                // Errors contain the name that the caller gave.
                Err(e) => return Err(explain("creating", path, e)),
            }
        }
    }

    /// Gives the file its name, unless that is taken.
    fn publish(mut self, path: &Path) -> Result<()> {
        let linked = match &self.temporary {
            None => {
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)
            }
            Some(temporary) => rustix::fs::linkat(CWD, temporary, CWD, path, AtFlags::empty()),
        };
        match linked {
            Err(Errno::EXIST) => return Err(ErrorKind::AlreadyExists { path: path.to_owned() }.into()),
            Err(e) => return Err(Error::io("creating", path, e)),
            Ok(()) => {}
        }
        if let Some(temporary) = self.temporary.take() {
            let _ = std::fs::remove_file(temporary);
        }
        // PERSIST(I5): the name is durable when its directory is. Not every file system can synchronise
        // directories.
        if let Ok(directory) = File::open(parent_of(path)) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// A name beside the pool's, for this process.
fn temporary_name(path: &Path, attempt: u32) -> OsString {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}-{attempt}", std::process::id()));
    name
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
