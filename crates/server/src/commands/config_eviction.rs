//! The settings of eviction.

use super::parameter::{Parameter, Setter, integer, memory};
use crate::eviction::policy::{EvictionSettings, Policy};
use crate::state::State;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::settable(
        "lfu-decay-time",
        |state| settings(state).frequency.decay_minutes.to_string(),
        |config, value| number(value, 0).map(|minutes| config.eviction.frequency.decay_minutes = minutes),
    ),
    Parameter::settable(
        "lfu-log-factor",
        |state| settings(state).frequency.log_factor.to_string(),
        |config, value| number(value, 0).map(|factor| config.eviction.frequency.log_factor = factor),
    ),
    Parameter::settable(
        "maxmemory",
        |state| state.memory_bytes_max().to_string(),
        |config, value| memory(value, 0, u64::MAX).map(|bytes| config.eviction.memory_bytes = bytes),
    ),
    Parameter::settable(
        "maxmemory-eviction-tenacity",
        |state| settings(state).tenacity.to_string(),
        |config, value| {
            integer(value, 0, 100).map(|tenacity| config.eviction.tenacity = tenacity.unsigned_abs())
        },
    ),
    Parameter::settable("maxmemory-policy", |state| settings(state).policy.name().to_owned(), READ_POLICY),
    Parameter::settable(
        "maxmemory-samples",
        |state| settings(state).samples.to_string(),
        |config, value| {
            let samples = integer(value, 1, SAMPLES_MAX)?;
            config.eviction.samples = samples as usize;
            Ok(())
        },
    ),
];

/// Redis's.
const SAMPLES_MAX: i64 = 64;

const READ_POLICY: Setter = |config, value| {
    let name = value.to_ascii_lowercase();
    let found = Policy::ALL.iter().find(|(known, _)| known.as_bytes() == name);
    let names = || Policy::ALL.map(|(name, _)| name).join(", ");
    let (_, policy) =
        found.ok_or_else(|| format!("argument(s) must be one of the following: {}", names()))?;
    config.eviction.policy = *policy;
    Ok(())
};

fn settings(state: &State) -> &EvictionSettings {
    &state.config.eviction
}

fn number(value: &[u8], least: i64) -> Result<u64, String> {
    integer(value, least, i32::MAX.into()).map(i64::unsigned_abs)
}
