//! The advisory lock on a pool file, and who holds it.

use crate::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Locks the file until its last descriptor is closed: exclusively to write, shared to read.
pub(crate) fn lock(file: &File, path: &Path, exclusive: bool) -> Result<()> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(ErrorKind::Locked { path: path.to_owned(), holder: holder_of(file) }.into())
        }
        Err(e) => Err(Error::io("locking", path, e)),
    }
}

/// Names the process that holds a lock on the file.
///
/// The kernel's table of locks shows the locks of all users. It is read in pieces, though, so an entry that
/// moves between two reads is missed, and under some layered file systems its inode numbers are not those of
/// the files. A process that has the file open is the next best answer.
fn holder_of(file: &File) -> String {
    let unknown = || "another process".to_owned();
    let Ok(meta) = file.metadata() else { return unknown() };
    let listed =
        std::fs::read_to_string("/proc/locks").ok().and_then(|table| find_holder(&table, meta.ino()));
    let Some(pid) = listed.or_else(|| find_opener((meta.dev(), meta.ino()))) else { return unknown() };
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    }
}

/// Finds another process that has the file of this device and inode open. It sees only processes whose
/// descriptors this one may read.
fn find_opener(wanted: (u64, u64)) -> Option<u32> {
    let is_open_in = |pid: u32| {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        descriptors.flatten().any(|entry| {
            std::fs::metadata(entry.path()).is_ok_and(|found| (found.dev(), found.ino()) == wanted)
        })
    };
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|&pid| pid != std::process::id() && is_open_in(pid))
}

/// Finds the process that `/proc/locks` names for a lock on inode `inode`.
fn find_holder(table: &str, inode: u64) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip_while(|f| *f != "FLOCK").skip(3);
        let pid = fields.next()?.parse().ok()?;
        let locked_inode = fields.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (locked_inode == inode).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    #[test]
    fn the_holder_is_found_by_inode() {
        let table =
            "1: POSIX  ADVISORY  READ 10 08:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 08:01:99 0 EOF\n";
        assert_eq!(super::find_holder(table, 99), Some(4711));
        assert_eq!(super::find_holder(table, 7), None);
    }

    #[test]
    fn a_process_that_has_the_file_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let meta = file.as_file().metadata().unwrap();
        let wanted = (meta.dev(), meta.ino());
        assert_eq!(super::find_opener(wanted), None, "this process does not count");
        let mut opener = Command::new("sleep").arg("60").stdin(file.reopen().unwrap()).spawn().unwrap();
        assert_eq!(super::find_opener(wanted), Some(opener.id()));
        opener.kill().unwrap();
        opener.wait().unwrap();
    }
}
