//! The settings of compactions, which Redis calls active defragmentation.

use super::parameter::{Parameter, Setter, integer, memory, read_yes_or_no, yes_or_no};
use crate::config::{CompactionSettings, Config};
use crate::state::State;

fn settings(state: &State) -> &CompactionSettings {
    &state.config.compaction
}

/// A percentage from 1 on, as Redis has it.
fn percent(value: &[u8], most: i64) -> Result<u64, String> {
    integer(value, 1, most).map(|percent| percent as u64)
}

const IGNORED_BYTES: Setter = |config: &mut Config, value| {
    memory(value, 1, i64::MAX as u64).map(|bytes| config.compaction.least_bytes = bytes)
};
const LOWER: Setter =
    |config: &mut Config, value| percent(value, 1000).map(|of| config.compaction.lower_percent = of);
const UPPER: Setter =
    |config: &mut Config, value| percent(value, 1000).map(|of| config.compaction.upper_percent = of);
const CYCLE_MIN: Setter =
    |config: &mut Config, value| percent(value, 99).map(|of| config.compaction.cycle_min_percent = of);
const CYCLE_MAX: Setter =
    |config: &mut Config, value| percent(value, 99).map(|of| config.compaction.cycle_max_percent = of);
const SCANNED_FIELDS: Setter = |config: &mut Config, value| {
    integer(value, 1, i64::MAX).map(|fields| config.compaction.max_scan_fields = fields as u64)
};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::settable(
        "active-defrag-cycle-max",
        |state| settings(state).cycle_max_percent.to_string(),
        CYCLE_MAX,
    ),
    Parameter::settable(
        "active-defrag-cycle-min",
        |state| settings(state).cycle_min_percent.to_string(),
        CYCLE_MIN,
    ),
    Parameter::settable(
        "active-defrag-ignore-bytes",
        |state| settings(state).least_bytes.to_string(),
        IGNORED_BYTES,
    ),
    Parameter::settable(
        "active-defrag-max-scan-fields",
        |state| settings(state).max_scan_fields.to_string(),
        SCANNED_FIELDS,
    ),
    Parameter::settable(
        "active-defrag-threshold-lower",
        |state| settings(state).lower_percent.to_string(),
        LOWER,
    ),
    Parameter::settable(
        "active-defrag-threshold-upper",
        |state| settings(state).upper_percent.to_string(),
        UPPER,
    ),
    Parameter::settable(
        "activedefrag",
        |state| yes_or_no(settings(state).is_on),
        |config, value| read_yes_or_no(value).map(|on| config.compaction.is_on = on),
    ),
];
