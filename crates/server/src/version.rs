//! The version of Redis that this server speaks like.

/// The version of Redis whose commands, replies and INFO fields these are; clients choose features by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";
