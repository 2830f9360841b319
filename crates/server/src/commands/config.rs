//! CONFIG: settings, under Redis's names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tembo_wire::number::{parse_i64, parse_u64};
use tembo_wire::{Limits, Request};

use super::args::quoting;
use super::context::{Context, Handler, write_help};
use super::parameter::{
    Parameter, Setter, in_range, integer, memory, memory_value, read_yes_or_no, yes_or_no,
};
use super::{
    config_compaction, config_eviction, config_kept, config_observation, config_replica, config_tls,
    config_users, heartbeat,
};
use crate::clock::HZ;
use crate::config::{Bind, ClientMemory, Config, DebugCommands, LogLevel, OutputLimit, OutputLimits};
use crate::eviction::evictor;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::events;
use crate::keyspace::format::DATABASES;
use crate::log::MessageKind;
use crate::machine::clients_allowed;
use crate::password::Password;
use crate::permission::put_user;
use crate::saving::is_file_name;
use crate::state::State;
use crate::{config_file, foreign_directives, glob};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("config", help),
    ("config|get", get),
    ("config|set", set),
    ("config|resetstat", resetstat),
    ("config|rewrite", rewrite),
    ("config|help", help),
];

/// Most commands that the slow log may have.
const SLOW_LEN_MAX: i64 = 100_000;

/// All parameters. Some describe features that Tembo lacks, in Redis's terms: tools ask for them.
const PARAMETERS: &[Parameter] = &[
    Parameter::settable("busy-reply-threshold", show_script_time, read_script_time),
    // Tembo has no append-only file. The value says in Redis's terms which failures a write survives.
    Parameter::fixed("appendfsync", |state| state.in_words_of_redis().to_owned()),
    Parameter::fixed("appendonly", |_| "no".to_owned()),
    Parameter::at_start("bind", show_bind, read_bind),
    Parameter::settable(
        "client-output-buffer-limit",
        |state| show_output_limits(&state.config.output_limits),
        |config, value| read_output_limits(&mut config.output_limits, value),
    ),
    Parameter::settable(
        "client-query-buffer-limit",
        |state| state.config.limits.max_request_bytes.to_string(),
        |config, value| {
            memory(value, 1 << 20, i64::MAX as u64)
                .map(|bytes| config.limits.max_request_bytes = bytes as usize)
        },
    ),
    Parameter::at_start(
        "cluster-enabled",
        |state| yes_or_no(state.config.cluster),
        |config, value| read_yes_or_no(value).map(|is_on| config.cluster = is_on),
    ),
    Parameter::at_start(
        "databases",
        |_| DATABASES.to_string(),
        |_, value| integer(value, 1, DATABASES as i64).map(drop),
    ),
    Parameter::at_start(
        "dbfilename",
        |state| state.config.dump_file.clone(),
        |config, value| {
            let name = str::from_utf8(value).ok().filter(|name| is_file_name(name));
            config.dump_file = name.ok_or("dbfilename can't be a path, just a filename")?.to_owned();
            Ok(())
        },
    ),
    Parameter::at_start(
        "dir",
        |state| state.folder.clone(),
        |config, value| {
            config.dir = Some(PathBuf::from(&*String::from_utf8_lossy(value)));
            Ok(())
        },
    ),
    Parameter::at_start("enable-debug-command", show_debug_commands, read_debug_commands),
    Parameter::settable(
        "hash-max-listpack-entries",
        |state| state.config.encodings.hash_entries.to_string(),
        |config, value| count(value).map(|count| config.encodings.hash_entries = count),
    ),
    Parameter::settable(
        "hash-max-listpack-value",
        |state| state.config.encodings.hash_value_bytes.to_string(),
        |config, value| bytes(value).map(|bytes| config.encodings.hash_value_bytes = bytes),
    ),
    Parameter::settable(
        "hash-max-ziplist-entries",
        |state| state.config.encodings.hash_entries.to_string(),
        |config, value| count(value).map(|count| config.encodings.hash_entries = count),
    ),
    Parameter::settable(
        "hash-max-ziplist-value",
        |state| state.config.encodings.hash_value_bytes.to_string(),
        |config, value| bytes(value).map(|bytes| config.encodings.hash_value_bytes = bytes),
    ),
    Parameter::settable(
        "hll-sparse-max-bytes",
        |state| state.config.hll_sparse_bytes.to_string(),
        |config, value| bytes(value).map(|bytes| config.hll_sparse_bytes = bytes),
    ),
    Parameter::fixed("hz", |_| HZ.to_string()),
    Parameter::fixed("io-threads", |_| "1".to_owned()),
    Parameter::settable(
        "latency-monitor-threshold",
        |state| state.config.noted.latency_threshold.map_or(0, |least| least.as_millis()).to_string(),
        |config, value| {
            let ms = integer(value, 0, i64::MAX)?;
            config.noted.latency_threshold = (ms > 0).then(|| Duration::from_millis(ms as u64));
            Ok(())
        },
    ),
    Parameter::settable(
        "latency-tracking",
        |state| yes_or_no(state.config.noted.histograms),
        |config, value| read_yes_or_no(value).map(|on| config.noted.histograms = on),
    ),
    Parameter::settable(
        "loglevel",
        |state| state.config.log_level.name().to_owned(),
        |config, value| read_log_level(value).map(|level| config.log_level = level),
    ),
    Parameter::settable("lua-time-limit", show_script_time, read_script_time),
    Parameter::settable(
        "maxclients",
        |state| state.config.max_clients.to_string(),
        |config, value| read_max_clients(value).map(|clients| config.max_clients = clients),
    ),
    Parameter::settable(
        "maxmemory-clients",
        |state| match state.config.client_memory {
            ClientMemory::Bytes(bytes) => bytes.to_string(),
            ClientMemory::Percent(percent) => format!("{percent}%"),
        },
        |config, value| memory_or_percent(value).map(|limit| config.client_memory = limit),
    ),
    Parameter::settable(
        "notify-keyspace-events",
        |state| events::show_classes(state.config.notified_events),
        |config, value| {
            let classes = events::read_classes(value);
            let classes = classes.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            config.notified_events = classes;
            Ok(())
        },
    ),
    Parameter::at_start(
        "port",
        |state| state.listen.port().to_string(),
        |config, value| {
            let port = integer(value, 0, 65535)?;
            config.tcp = port > 0;
            config.listen.set_port(port as u16);
            Ok(())
        },
    ),
    Parameter::settable(
        "protected-mode",
        |state| yes_or_no(state.config.protected_mode),
        |config, value| read_yes_or_no(value).map(|on| config.protected_mode = on),
    ),
    Parameter::settable(
        "proto-max-bulk-len",
        |state| state.config.limits.max_bulk_bytes.to_string(),
        |config, value| {
            // The range of Redis is checked first, so that a value outside of both ranges is refused in
            // Redis's words.
            let bytes = memory(value, 1 << 20, i64::MAX as u64)?;
            let bytes = in_range(bytes, 1 << 20, Limits::default().max_bulk_bytes as u64)?;
            config.limits.max_bulk_bytes = bytes as usize;
            Ok(())
        },
    ),
    Parameter::settable(
        "reply-max-bytes",
        |state| state.config.reply_bytes_max.to_string(),
        |config, value| {
            memory(value, 1 << 10, i64::MAX as u64).map(|bytes| config.reply_bytes_max = bytes as usize)
        },
    ),
    Parameter::settable(
        "requirepass",
        |state| {
            let password = state.config.password.as_ref().map_or(&[][..], Password::bytes);
            String::from_utf8_lossy(password).into_owned()
        },
        |config, value| {
            let password = str::from_utf8(value).map_err(|_| "argument must be UTF-8")?;
            config.password = Password::new(password);
            Ok(())
        },
    ),
    Parameter::fixed("save", |_| String::new()),
    Parameter::settable(
        "set-max-intset-entries",
        |state| state.config.encodings.set_intset_entries.to_string(),
        |config, value| count(value).map(|count| config.encodings.set_intset_entries = count),
    ),
    Parameter::settable(
        "slow-turn-ms",
        |state| state.config.slow_turn.map_or(0, |limit| limit.as_millis()).to_string(),
        |config, value| {
            let ms = integer(value, 0, i32::MAX as i64)?;
            config.slow_turn = (ms > 0).then(|| Duration::from_millis(ms as u64));
            Ok(())
        },
    ),
    Parameter::settable(
        "slowlog-log-slower-than",
        |state| state.config.noted.slower_than.map_or(-1, |least| least.as_micros() as i64).to_string(),
        |config, value| {
            let micros = integer(value, -1, i64::MAX)?;
            config.noted.slower_than = u64::try_from(micros).ok().map(Duration::from_micros);
            Ok(())
        },
    ),
    Parameter::settable(
        "slowlog-max-len",
        |state| state.config.noted.slow_len_max.to_string(),
        |config, value| {
            config.noted.slow_len_max = integer(value, 0, SLOW_LEN_MAX)? as usize;
            Ok(())
        },
    ),
    Parameter::settable(
        "tcp-keepalive",
        |state| seconds(state.config.tcp_keepalive),
        |config, value| duration(value).map(|duration| config.tcp_keepalive = duration),
    ),
    Parameter::settable(
        "timeout",
        |state| seconds(state.config.idle_timeout),
        |config, value| duration(value).map(|duration| config.idle_timeout = duration),
    ),
    Parameter::settable(
        "tracking-table-max-keys",
        |state| state.config.tracking_keys_max.to_string(),
        |config, value| count(value).map(|count| config.tracking_keys_max = count),
    ),
    Parameter::at_start(
        "unixsocket",
        |state| state.config.unix_socket.as_deref().unwrap_or(Path::new("")).display().to_string(),
        |config, value| {
            config.unix_socket = (!value.is_empty()).then(|| PathBuf::from(&*String::from_utf8_lossy(value)));
            Ok(())
        },
    ),
    Parameter::at_start(
        "unixsocketperm",
        |state| format!("{:o}", state.config.unix_socket_mode.unwrap_or(0)),
        |config, value| {
            let mode = str::from_utf8(value).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
            let mode = mode.filter(|&mode| mode <= 0o777);
            let mode = mode.ok_or("argument couldn't be parsed into an octal number up to 777")?;
            config.unix_socket_mode = (mode > 0).then_some(mode);
            Ok(())
        },
    ),
    Parameter::settable(
        "zset-max-listpack-entries",
        |state| state.config.encodings.zset_entries.to_string(),
        |config, value| count(value).map(|count| config.encodings.zset_entries = count),
    ),
    Parameter::settable(
        "zset-max-listpack-value",
        |state| state.config.encodings.zset_value_bytes.to_string(),
        |config, value| bytes(value).map(|bytes| config.encodings.zset_value_bytes = bytes),
    ),
    Parameter::settable(
        "zset-max-ziplist-entries",
        |state| state.config.encodings.zset_entries.to_string(),
        |config, value| count(value).map(|count| config.encodings.zset_entries = count),
    ),
    Parameter::settable(
        "zset-max-ziplist-value",
        |state| state.config.encodings.zset_value_bytes.to_string(),
        |config, value| bytes(value).map(|bytes| config.encodings.zset_value_bytes = bytes),
    ),
];

fn parameters() -> impl Iterator<Item = &'static Parameter> {
    let of_subsystems = config_replica::PARAMETERS.iter().chain(config_eviction::PARAMETERS);
    PARAMETERS
        .iter()
        .chain(of_subsystems)
        .chain(config_compaction::PARAMETERS)
        .chain(heartbeat::PARAMETERS)
        .chain(config_users::PARAMETERS)
        .chain(config_tls::PARAMETERS)
        .chain(config_observation::PARAMETERS)
        .chain(config_kept::PARAMETERS)
}

/// The names of all settings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    parameters().map(|parameter| parameter.name)
}

/// How a configuration file changes a setting, if it can.
pub(crate) fn setter_at_start(name: &str) -> Option<Setter> {
    let parameter = parameters().find(|parameter| parameter.name == name)?;
    parameter.start.or(parameter.set)
}

fn show_script_time(state: &State) -> String {
    state.config.script_time.map_or(0, |time| time.as_millis()).to_string()
}

fn read_script_time(config: &mut Config, value: &[u8]) -> Result<(), String> {
    let ms = integer(value, 0, i64::MAX)?;
    config.script_time = (ms > 0).then(|| Duration::from_millis(ms as u64));
    Ok(())
}

fn show_bind(state: &State) -> String {
    let config = &state.config;
    if config.bind.is_empty() {
        return state.listen.ip().to_string();
    }
    let show = |bind: &Bind| format!("{}{}", if bind.optional { "-" } else { "" }, bind.ip);
    config.bind.iter().map(show).collect::<Vec<_>>().join(" ")
}

/// Reads addresses; `*` is all of IPv4, `::*` all of IPv6.
fn read_bind(config: &mut Config, value: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(value);
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        let (address, optional) = word.strip_prefix('-').map_or((word, false), |address| (address, true));
        let ip = match address {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            address => address.parse().map_err(|_| format!("{address} is no IP address"))?,
        };
        all.push(Bind { ip, optional });
    }
    match all.first() {
        Some(first) => config.listen.set_ip(first.ip),
        None => config.tcp = false,
    }
    config.bind = all;
    Ok(())
}

fn show_debug_commands(state: &State) -> String {
    match state.config.debug_commands {
        DebugCommands::No => "no",
        DebugCommands::Local => "local",
        DebugCommands::Yes => "yes",
    }
    .to_owned()
}

fn read_debug_commands(config: &mut Config, value: &[u8]) -> Result<(), String> {
    config.debug_commands = match value.to_ascii_lowercase().as_slice() {
        b"no" => DebugCommands::No,
        b"local" => DebugCommands::Local,
        b"yes" => DebugCommands::Yes,
        _ => return Err("argument(s) must be one of the following: no, yes, local".to_owned()),
    };
    Ok(())
}

fn seconds(duration: Option<Duration>) -> String {
    duration.map_or(0, |duration| duration.as_secs()).to_string()
}

fn duration(value: &[u8]) -> Result<Option<Duration>, String> {
    let seconds = integer(value, 0, i32::MAX as i64)?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds as u64)))
}

fn count(value: &[u8]) -> Result<u64, String> {
    integer(value, 0, i64::MAX).map(|count| count as u64)
}

fn bytes(value: &[u8]) -> Result<u64, String> {
    memory(value, 0, i64::MAX as u64)
}

fn memory_or_percent(value: &[u8]) -> Result<ClientMemory, String> {
    let percent = |digits: &[u8]| match parse_i64(digits) {
        Some(percent @ 0..=100) => Ok(percent as u8),
        Some(101..) => Err("percentage argument must be less or equal to 100"),
        _ => Err("argument must be a memory or percent value"),
    };
    Ok(match value.strip_suffix(b"%") {
        Some(digits) => match percent(digits)? {
            0 => ClientMemory::Bytes(0),
            percent => ClientMemory::Percent(percent),
        },
        None => ClientMemory::Bytes(memory_value(value).ok_or("argument must be a memory or percent value")?),
    })
}

fn read_log_level(value: &[u8]) -> Result<LogLevel, String> {
    let level = str::from_utf8(value).ok().and_then(LogLevel::from_name);
    let names = || LogLevel::ALL.map(|(_, name)| name).join(", ");
    level.ok_or_else(|| format!("argument(s) must be one of the following: {}", names()))
}

fn read_max_clients(value: &[u8]) -> Result<usize, String> {
    let wanted = integer(value, 1, u32::MAX.into())? as usize;
    match clients_allowed(wanted) {
        allowed if allowed >= wanted => Ok(wanted),
        allowed => Err(format!(
            "The operating system is not able to handle the specified number of clients, try with {allowed}"
        )),
    }
}

fn show_output_limits(limits: &OutputLimits) -> String {
    let classes = [("normal", limits.normal), ("slave", limits.replica), ("pubsub", limits.pubsub)];
    let show = |(name, limit): (&str, OutputLimit)| {
        format!("{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
    };
    classes.map(show).join(" ")
}

/// Reads `class hard soft seconds`, any number of times; classes that are not named keep their limits.
fn read_output_limits(limits: &mut OutputLimits, value: &[u8]) -> Result<(), String> {
    let words: Vec<_> =
        value.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let invalid = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
    for words in words.chunks(4) {
        let limit = match words[0].to_ascii_lowercase().as_slice() {
            b"normal" => &mut limits.normal,
            b"slave" | b"replica" => &mut limits.replica,
            b"pubsub" => &mut limits.pubsub,
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        };
        *limit = OutputLimit {
            hard_bytes: memory_value(words[1]).ok_or(invalid)?,
            soft_bytes: memory_value(words[2]).ok_or(invalid)?,
            soft_seconds: parse_u64(words[3]).ok_or(invalid)?,
        };
    }
    Ok(())
}

fn get(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_wanted = |parameter: &&Parameter| {
        request.args().skip(2).any(|pattern| glob::matches(pattern, parameter.name.as_bytes(), true))
    };
    let found: Vec<_> = parameters().filter(is_wanted).collect();
    let mut reply = ctx.out.write();
    reply.map(found.len());
    for parameter in found {
        reply.bulk(parameter.name);
        reply.bulk((parameter.get)(ctx.state));
    }
    Ok(())
}

fn set(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if !request.arg_count().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let settings = (2..request.arg_count()).step_by(2).map(|at| (&request[at], &request[at + 1]));
    // The names first: an unknown one is reported before a wrong value.
    let mut chosen: Vec<(&[u8], &[u8], &Parameter)> = Vec::new();
    for (name, value) in settings {
        let unknown = || quoting("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'");
        let parameter = parameters().find(|parameter| parameter.name.as_bytes().eq_ignore_ascii_case(name));
        let Some(parameter) = parameter else {
            return Err(not_settable(name).unwrap_or_else(unknown));
        };
        // The value asked for may hold already: tools turn persistence off, for example.
        if ["dir", "dbfilename"].contains(&parameter.name) {
            return Err(refused(name, "can't set protected config"));
        }
        if parameter.set.is_none() && (parameter.get)(ctx.state).as_bytes() != value {
            return Err(refused(name, "can't set immutable config"));
        }
        if chosen.iter().any(|(_, _, other)| other.name == parameter.name) {
            return Err(refused(name, "duplicate parameter"));
        }
        chosen.push((name, value, parameter));
    }
    let mut config = ctx.state.config.clone();
    for (name, value, parameter) in &chosen {
        parameter.set.map_or(Ok(()), |set| set(&mut config, value)).map_err(|why| refused(name, &why))?;
    }
    let of_tls = chosen.iter().find(|(name, ..)| name.to_ascii_lowercase().starts_with(b"tls-"));
    if let Some((name, ..)) = of_tls {
        let made = config_tls::made_anew(ctx.state, &config).map_err(|why| refused(name, &why))?;
        ctx.state.tls = made.unwrap_or_else(|| std::mem::take(&mut ctx.state.tls));
    }
    ctx.keys.pubsub.notified = config.notified_events;
    ctx.keys.pubsub.tracking.keys_max = config.tracking_keys_max;
    ctx.keys.pubsub.shrink_tracking();
    let before = std::mem::replace(&mut ctx.state.config, config);
    let eviction_before = before.eviction;
    if ctx.state.config.password != before.password {
        let password = ctx.state.config.password.as_ref().map(Password::bytes);
        let user = ctx.state.users.with_password(password);
        put_user(user, ctx.state, ctx.session, ctx.clients);
    }
    if ctx.state.config.eviction != eviction_before {
        evictor::begin(ctx.keys, ctx.state);
    }
    ctx.out.write().ok();
    Ok(())
}

/// The answer for a directive of Redis that is no setting here.
fn not_settable(name: &[u8]) -> Option<Fault> {
    let why = foreign_directives::why_not(str::from_utf8(name).ok()?)?;
    Some(refused(name, &format!("it has no meaning here: {why}")))
}

fn refused(name: &[u8], why: &str) -> Fault {
    quoting("ERR CONFIG SET failed (possibly related to argument '", name, &format!("') - {why}"))
}

fn resetstat(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.state.reset_stats();
    ctx.keys.stats = Default::default();
    ctx.out.write().ok();
    Ok(())
}

fn rewrite(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let Some(file) = ctx.state.config.file.clone() else {
        return Err(Fault::Error("ERR The server is running without a config file"));
    };
    let mut current = values(ctx.state);
    let own = std::mem::take(&mut ctx.state.config);
    let mut defaults = values(ctx.state);
    ctx.state.config = own;
    config_users::add_lines(ctx.state, &mut current, &mut defaults);
    match config_file::rewrite(&file, &current, &defaults) {
        Ok(()) => {
            ctx.out.write().ok();
            Ok(())
        }
        Err(error) => {
            let message = format_args!("{} cannot be rewritten: {error}", file.display());
            ctx.state.log(LogLevel::Warning, MessageKind::Configuration, message);
            Err(Fault::Quoting(format!("ERR Rewriting config file: {error}").into_bytes()))
        }
    }
}

/// The settings that can change while the server runs, with their values.
fn values(state: &State) -> Vec<(&'static str, String)> {
    let settable = parameters().filter(|parameter| parameter.set.is_some());
    settable.map(|parameter| (parameter.name, (parameter.get)(state))).collect()
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "GET <pattern> [<pattern> ...]",
        "    The settings that match a pattern, and their values.",
        "SET <directive> <value> [<directive> <value> ...]",
        "    Change settings, all or none.",
        "RESETSTAT",
        "    Set the statistics to zero.",
        "REWRITE",
        "    Write the settings into the configuration file.",
    ];
    write_help(&mut ctx.out, "config", &lines);
    Ok(())
}
