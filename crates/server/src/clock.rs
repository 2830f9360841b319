//! The time of day, and the rhythm of periodic work.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often per second the event loop looks at idle clients and expired keys.
pub(crate) const HZ: u32 = 10;

/// Time since the Unix epoch; zero before it.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> u64 {
    unix_time().as_millis() as u64
}
