//! Control groups of memory, of either version. They need root.

use crate::engines::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group for a process that joins it, removed when this is dropped.
pub(crate) struct Group {
    path: PathBuf,
    is_first_version: bool,
}

/// Bytes of memory of a group's processes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) anonymous: u64,
    /// The page cache, shared memory included.
    pub(crate) cache: u64,
}

impl Memory {
    pub(crate) fn all(self) -> u64 {
        self.anonymous + self.cache
    }
}

impl Group {
    /// Makes a group, with a limit of its memory or without.
    pub(crate) fn create(name: &str, bytes_max: Option<u64>) -> Result<Group> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let is_first_version = first.is_dir();
        let root = if is_first_version { first } else { Path::new("/sys/fs/cgroup") };
        let path = root.join(format!("tembo-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path, is_first_version };
        if let Some(bytes) = bytes_max {
            let limit = if is_first_version { "memory.limit_in_bytes" } else { "memory.max" };
            fs::write(group.path.join(limit), bytes.to_string())?;
        }
        Ok(group)
    }

    /// Where [`join`] finds it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = fs::read_to_string(self.path.join("memory.stat"))?;
        let [anonymous, cache] = if self.is_first_version { ["rss", "cache"] } else { ["anon", "file"] };
        Ok(Memory { anonymous: field(&text, anonymous)?, cache: field(&text, cache)? })
    }

    /// The highest count of the group so far, kernel memory included, where the system has it.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let name = if self.is_first_version { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }
}

/// A line of `memory.stat`.
fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().filter_map(|line| line.split_once(' ')).find(|line| line.0 == name);
    Ok(line.ok_or_else(|| format!("memory.stat has no {name}"))?.1.parse()?)
}

/// Takes this process into a group.
pub(crate) fn join(group: &Path) -> Result<()> {
    Ok(fs::write(group.join("cgroup.procs"), std::process::id().to_string())?)
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process of the group has ended, or is ending.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
