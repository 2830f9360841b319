//! The advisory lock on a pool file, and who holds it.

use crate::{Error, Result};
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
        Err(Errno::WOULDBLOCK) => Err(Error::Locked { path: path.to_owned(), holder: holder_of(file) }),
        Err(e) => Err(Error::io("locking", path, e)),
    }
}

/// Names the process that holds a lock on the file, from the kernel's table of locks.
fn holder_of(file: &File) -> String {
    let unknown = || "another process".to_owned();
    let Ok(meta) = file.metadata() else { return unknown() };
    let Ok(table) = std::fs::read_to_string("/proc/locks") else { return unknown() };
    let Some(pid) = find_holder(&table, meta.ino()) else { return unknown() };
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    }
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
    #[test]
    fn the_holder_is_found_by_inode() {
        let table =
            "1: POSIX  ADVISORY  READ 10 08:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 08:01:99 0 EOF\n";
        assert_eq!(super::find_holder(table, 99), Some(4711));
        assert_eq!(super::find_holder(table, 7), None);
    }
}
