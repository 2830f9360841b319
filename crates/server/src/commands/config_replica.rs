//! The settings of a replica, with the old names that Redis keeps.

use std::time::Duration;

use super::parameter::{Parameter, Setter, integer, memory, read_yes_or_no, yes_or_no};
use super::replication::read_master;
use crate::keyspace::history::Master;
use crate::password::Password;
use crate::replica::ReplicaSettings;
use crate::state::State;

fn settings(state: &State) -> &ReplicaSettings {
    &state.config.replica
}

const READ_ONLY: (fn(&State) -> String, Setter) = (
    |state| yes_or_no(settings(state).read_only),
    |config, value| read_yes_or_no(value).map(|on| config.replica.read_only = on),
);
const SERVES_STALE: (fn(&State) -> String, Setter) = (
    |state| yes_or_no(settings(state).serves_stale),
    |config, value| read_yes_or_no(value).map(|on| config.replica.serves_stale = on),
);
const PRIORITY: (fn(&State) -> String, Setter) = (
    |state| settings(state).priority.to_string(),
    |config, value| integer(value, 0, i32::MAX.into()).map(|number| config.replica.priority = number as u64),
);
const ANNOUNCED_IP: (fn(&State) -> String, Setter) = (
    |state| settings(state).announced_ip.clone().unwrap_or_default(),
    |config, value| text(value).map(|ip| config.replica.announced_ip = ip),
);
const ANNOUNCED_PORT: (fn(&State) -> String, Setter) = (
    |state| settings(state).announced_port.unwrap_or(0).to_string(),
    |config, value| {
        let port = integer(value, 0, 65535)? as u16;
        config.replica.announced_port = (port > 0).then_some(port);
        Ok(())
    },
);
const MIN_REPLICAS: (fn(&State) -> String, Setter) = (
    |state| settings(state).min_replicas.to_string(),
    |config, value| {
        integer(value, 0, i32::MAX.into()).map(|count| config.replica.min_replicas = count as u64)
    },
);
const MAX_LAG: (fn(&State) -> String, Setter) = (
    |state| settings(state).max_lag.as_secs().to_string(),
    |config, value| seconds(value, 0).map(|lag| config.replica.max_lag = lag),
);
const PING_PERIOD: (fn(&State) -> String, Setter) = (
    |state| settings(state).ping_period.as_secs().to_string(),
    |config, value| seconds(value, 1).map(|period| config.replica.ping_period = period),
);
const MASTER: (fn(&State) -> String, Setter) = (
    |state| {
        let master = state.role.master.as_ref();
        master.map(|Master { host, port }| format!("{host} {port}")).unwrap_or_default()
    },
    |config, value| {
        let words: Vec<_> = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        config.replica.master = match words[..] {
            [] => None,
            [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => None,
            [host, port] => Some(read_master(host, port)?),
            _ => return Err("it takes a host and a port".to_owned()),
        };
        Ok(())
    },
);

const fn settable(name: &'static str, (get, set): (fn(&State) -> String, Setter)) -> Parameter {
    Parameter::settable(name, get, set)
}

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::settable(
        "masterauth",
        |state| {
            let password = settings(state).password.as_ref().map_or(&[][..], Password::bytes);
            String::from_utf8_lossy(password).into_owned()
        },
        |config, value| {
            let password = str::from_utf8(value).map_err(|_| "argument must be UTF-8")?;
            config.replica.password = Password::new(password);
            Ok(())
        },
    ),
    Parameter::settable(
        "masteruser",
        |state| settings(state).user.clone().unwrap_or_default(),
        |config, value| text(value).map(|user| config.replica.user = user),
    ),
    Parameter::settable(
        "repl-timeout",
        |state| settings(state).timeout.as_secs().to_string(),
        |config, value| seconds(value, 1).map(|timeout| config.replica.timeout = timeout),
    ),
    settable("min-replicas-max-lag", MAX_LAG),
    settable("min-replicas-to-write", MIN_REPLICAS),
    settable("min-slaves-max-lag", MAX_LAG),
    settable("min-slaves-to-write", MIN_REPLICAS),
    Parameter::settable(
        "repl-backlog-size",
        |state| state.backlog_bytes().to_string(),
        |config, value| {
            memory(value, 1, i64::MAX as u64).map(|bytes| config.replica.backlog_bytes = Some(bytes))
        },
    ),
    settable("repl-ping-replica-period", PING_PERIOD),
    settable("repl-ping-slave-period", PING_PERIOD),
    Parameter::settable(
        "repl-refuse-ahead",
        |state| yes_or_no(settings(state).refuses_ahead),
        |config, value| read_yes_or_no(value).map(|on| config.replica.refuses_ahead = on),
    ),
    settable("replica-announce-ip", ANNOUNCED_IP),
    settable("replica-announce-port", ANNOUNCED_PORT),
    Parameter::settable(
        "replica-announced",
        |state| yes_or_no(settings(state).is_announced),
        |config, value| read_yes_or_no(value).map(|on| config.replica.is_announced = on),
    ),
    settable("replica-priority", PRIORITY),
    settable("replica-read-only", READ_ONLY),
    settable("replica-serve-stale-data", SERVES_STALE),
    Parameter::at_start("replicaof", MASTER.0, MASTER.1),
    settable("slave-announce-ip", ANNOUNCED_IP),
    settable("slave-announce-port", ANNOUNCED_PORT),
    settable("slave-priority", PRIORITY),
    settable("slave-read-only", READ_ONLY),
    settable("slave-serve-stale-data", SERVES_STALE),
    Parameter::at_start("slaveof", MASTER.0, MASTER.1),
];

fn seconds(value: &[u8], least: i64) -> Result<Duration, String> {
    integer(value, least, i32::MAX.into()).map(|seconds| Duration::from_secs(seconds as u64))
}

fn text(value: &[u8]) -> Result<Option<String>, String> {
    let text = str::from_utf8(value).map_err(|_| "argument must be UTF-8")?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
