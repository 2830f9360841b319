//! The settings of metrics and logs.

use super::config::{Parameter, read_yes_or_no, yes_or_no};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::at_start(
        "metrics",
        |state| state.config.metrics.map(|address| address.to_string()).unwrap_or_default(),
        |config, value| {
            let address = str::from_utf8(value).unwrap_or_default();
            config.metrics = match address {
                "" | "no" => None,
                _ => Some(
                    address.parse().map_err(|_| "argument must be an address and a port, 127.0.0.1:9122")?,
                ),
            };
            Ok(())
        },
    ),
    Parameter::at_start(
        "metrics-public",
        |state| yes_or_no(state.config.metrics_public),
        |config, value| read_yes_or_no(value).map(|is_public| config.metrics_public = is_public),
    ),
];
