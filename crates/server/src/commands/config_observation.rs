//! The settings of metrics and logs.

use super::parameter::{Parameter, Setter, read_yes_or_no, yes_or_no};
use crate::config::{LogFormat, Supervised};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::at_start(
        "log-format",
        |state| state.config.log_format.name().to_owned(),
        |config, value| {
            let name = str::from_utf8(value).unwrap_or_default();
            config.log_format = LogFormat::from_name(name)?;
            Ok(())
        },
    ),
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
    Parameter::at_start(
        "supervised",
        |state| {
            let name = match state.config.supervised {
                Supervised::No => "no",
                Supervised::Systemd => "systemd",
                Supervised::Auto => "auto",
            };
            name.to_owned()
        },
        READ_SUPERVISED,
    ),
];

const READ_SUPERVISED: Setter = |config, value| {
    config.supervised = match value.to_ascii_lowercase().as_slice() {
        b"no" => Supervised::No,
        b"systemd" => Supervised::Systemd,
        b"auto" => Supervised::Auto,
        b"upstart" => {
            config.without_meaning.push("supervised upstart".to_owned());
            Supervised::No
        }
        _ => return Err("argument(s) must be one of the following: upstart, systemd, auto, no".to_owned()),
    };
    Ok(())
};
