//! Facts about this process and its machine, as Linux reports them (`None` where it does not), and the limit
//! of open files.

use std::fs::read_to_string;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors that the process needs in addition to its clients'.
const OTHER_FILES: u64 = 32;

/// Bytes of memory in use by this process, mapped pages of the pool included.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Bytes of memory that the machine has.
pub(crate) fn system_bytes() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of memory that this process may use: the machine's, or less where its control group has a limit.
pub(crate) fn memory_bytes() -> Option<u64> {
    let group = read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = group.and_then(|text| text.trim().parse::<u64>().ok());
    [system_bytes(), limit].into_iter().flatten().min()
}

/// Seconds of processor time spent in user and in system mode.
pub(crate) fn cpu_seconds() -> Option<(f64, f64)> {
    let text = read_to_string("/proc/self/stat").ok()?;
    // The second field, the name in parentheses, may hold blanks.
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut seconds = || {
        let ticks: f64 = fields.next()?.parse().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    };
    Some((seconds()?, seconds()?))
}

/// The operating system's name and release, and the processor's architecture.
pub(crate) fn system_name() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.release(), name.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// The number of clients, at most `wanted`, that the process may have open files for. Raises its limit if it
/// can.
pub(crate) fn clients_allowed(wanted: usize) -> usize {
    let needed = (wanted as u64).saturating_add(OTHER_FILES);
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= needed {
        return wanted;
    }
    let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed)).max(current);
    let result = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    let files = if result.is_ok() { raised } else { current };
    usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(wanted).max(1)
}

/// The name of this boot of the system; empty if the system gives none.
pub(crate) fn boot_id() -> Vec<u8> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_ascii().get(..64).unwrap_or(id.trim_ascii()).to_vec()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory() {
        assert!(resident_bytes().unwrap() > 1 << 16);
        assert!(system_bytes() > resident_bytes());
        assert!(memory_bytes() <= system_bytes());
        assert!(cpu_seconds().is_some());
        assert!(system_name().starts_with("Linux "), "{}", system_name());
    }
}
