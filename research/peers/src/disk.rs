//! Bytes that went to a disk, and the puts that several experiments count them for.

use crate::engines::Result;
use crate::workload::mix;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The block device below a folder, counted by the kernel: whatever writes to it counts.
pub(crate) struct Device {
    folder: File,
    stat: PathBuf,
}

const SECTOR_BYTES: u64 = 512;

impl Device {
    pub(crate) fn below(folder: &Path) -> Result<Device> {
        let folder = File::open(folder)?;
        let number = folder.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        if !stat.exists() {
            return Err(format!("the folder lies on no block device: there is no {}", stat.display()).into());
        }
        Ok(Device { folder, stat })
    }

    /// Writes everything that the file system has for the device, and returns how many bytes the device has
    /// been given since the system started.
    pub(crate) fn synced_bytes(&self) -> Result<u64> {
        rustix::fs::syncfs(&self.folder)?;
        Ok(sectors_written(&fs::read_to_string(&self.stat)?)? * SECTOR_BYTES)
    }
}

/// The seventh field of a device's `stat`.
fn sectors_written(stat: &str) -> Result<u64> {
    Ok(stat.split_whitespace().nth(6).ok_or("the device does not count its sectors")?.parse()?)
}

/// Bytes that this process let the system write to devices.
pub(crate) fn process_write_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    Ok(line.ok_or("no count of written bytes")?.trim().parse()?)
}

/// Puts, one by one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Puts {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    pub(crate) p999_us: f64,
    pub(crate) longest_ms: f64,
}

impl Puts {
    /// Calls `put` with random numbers below `keys` and the number of the call, `most` times at most, until
    /// the limit has passed.
    pub(crate) fn random(
        keys: u64,
        most: u64,
        limit: Duration,
        mut put: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<Puts> {
        let mut times: Vec<u32> = Vec::new();
        let begun = Instant::now();
        let mut started = Duration::ZERO;
        for i in 0..most {
            if started >= limit {
                break;
            }
            put(mix(PUT_ORDER ^ mix(i)) % keys, i)?;
            let ended = begun.elapsed();
            times.push(u32::try_from((ended - started).as_nanos()).unwrap_or(u32::MAX));
            started = ended;
        }
        times.sort_unstable();
        let longest = *times.last().ok_or("nothing was put")?;
        let p999 = times[times.len() * 999 / 1000];
        Ok(Puts {
            count: times.len() as u64,
            seconds: started.as_secs_f64(),
            p999_us: f64::from(p999) / 1e3,
            longest_ms: f64::from(longest) / 1e6,
        })
    }

    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// Distinguishes the order of puts from that of keys.
const PUT_ORDER: u64 = 0x7075_7473;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_counts_what_is_written() {
        let stat = " 1506554 74361 124179186 775934 18256307 853806 3161190632 31436230 0 1695124 32764384\n";
        assert_eq!(sectors_written(stat).unwrap(), 3_161_190_632);
        assert!(sectors_written("1 2 3").is_err());
    }

    #[test]
    fn puts_are_of_keys_below_the_number_and_end_at_the_limits() {
        let mut numbers = Vec::new();
        let puts = Puts::random(7, 1000, Duration::from_secs(600), |key, i| {
            assert!(key < 7);
            numbers.push(i);
            Ok(())
        });
        assert_eq!(puts.unwrap().count, 1000);
        assert!(numbers.into_iter().eq(0..1000));
        let slow = Puts::random(7, u64::MAX, Duration::from_millis(20), |_, _| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        });
        let slow = slow.unwrap();
        assert!(slow.count <= 20 && slow.longest_ms >= 1.0 && slow.p999_us >= 1000.0, "{slow:?}");
    }
}
