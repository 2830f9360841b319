//! The time of day, and the rhythm of periodic work.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often per second the event loop looks at idle clients and expired keys.
pub(crate) const HZ: u32 = 10;

/// Time since the Unix epoch; zero before it.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time since the boot of the system, sleep included. No program can set it.
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> u64 {
    unix_time().as_millis() as u64
}
