//! CONFIG: settings, under Redis's names.

use std::time::Duration;

use tembo_wire::Request;
use tembo_wire::number::parse_u64;

use super::args::quoting;
use super::table::Command;
use super::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use super::{Context, write_help};
use crate::config::Config;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;
use crate::keyspace::DATABASES;
use crate::state::State;

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(super) const COMMANDS: &[Command] = &[Command::new("config", -2, 0, help)
    .doc("server", "2.0.0", "Reads and changes settings")
    .subcommands(&[
        Command::new("config|get", -3, FLAGS, get).doc(
            "server",
            "2.0.0",
            "Returns the settings that match patterns",
        ),
        Command::new("config|set", -4, FLAGS, set)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .doc("server", "2.0.0", "Changes settings, all or none"),
        Command::new("config|resetstat", 2, FLAGS, resetstat).doc(
            "server",
            "2.0.0",
            "Sets the statistics to zero",
        ),
        Command::new("config|rewrite", 2, FLAGS, rewrite).doc(
            "server",
            "2.8.0",
            "Fails: there is no configuration file",
        ),
        Command::new("config|help", 2, LOADING | STALE, help).doc(
            "server",
            "5.0.0",
            "Explains the subcommands",
        ),
    ])];

/// A setting: its name, how it is shown, and how it is changed if it can be.
struct Parameter {
    name: &'static str,
    get: fn(&State) -> String,
    set: Option<Setter>,
}

/// Changes a setting, or says why not.
type Setter = fn(&mut Config, &[u8]) -> Result<(), &'static str>;

impl Parameter {
    const fn fixed(name: &'static str, get: fn(&State) -> String) -> Self {
        Parameter { name, get, set: None }
    }

    const fn settable(name: &'static str, get: fn(&State) -> String, set: Setter) -> Self {
        Parameter { name, get, set: Some(set) }
    }
}

/// Those that are about what Tembo does not do say so in Redis's terms; tools ask for them.
const PARAMETERS: &[Parameter] = &[
    Parameter::fixed("appendfsync", |_| "always".to_owned()),
    Parameter::fixed("appendonly", |_| "no".to_owned()),
    Parameter::fixed("bind", |state| state.listen.ip().to_string()),
    Parameter::settable(
        "client-query-buffer-limit",
        |state| state.config.limits.max_request_bytes.to_string(),
        |config, value| bytes(value, 1 << 20).map(|bytes| config.limits.max_request_bytes = bytes),
    ),
    Parameter::fixed("cluster-enabled", |_| "no".to_owned()),
    Parameter::fixed("databases", |_| DATABASES.to_string()),
    Parameter::fixed("io-threads", |_| "1".to_owned()),
    Parameter::settable(
        "maxclients",
        |state| state.config.max_clients.to_string(),
        |config, value| integer(value, 1, 1 << 32).map(|clients| config.max_clients = clients as usize),
    ),
    Parameter::fixed("maxmemory", |_| "0".to_owned()),
    Parameter::fixed("maxmemory-policy", |_| "noeviction".to_owned()),
    Parameter::fixed("notify-keyspace-events", |_| String::new()),
    Parameter::fixed("port", |state| state.listen.port().to_string()),
    Parameter::settable(
        "proto-max-bulk-len",
        |state| state.config.limits.max_bulk_bytes.to_string(),
        |config, value| {
            let bytes = bytes(value, 1 << 20)?;
            if bytes > Config::default().limits.max_bulk_bytes {
                return Err("argument must not be more than 512mb");
            }
            config.limits.max_bulk_bytes = bytes;
            Ok(())
        },
    ),
    Parameter::settable(
        "reply-max-bytes",
        |state| state.config.reply_bytes_max.to_string(),
        |config, value| bytes(value, 1 << 10).map(|bytes| config.reply_bytes_max = bytes),
    ),
    Parameter::fixed("requirepass", |_| String::new()),
    Parameter::fixed("save", |_| String::new()),
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
];

fn seconds(duration: Option<Duration>) -> String {
    duration.map_or(0, |duration| duration.as_secs()).to_string()
}

fn duration(value: &[u8]) -> Result<Option<Duration>, &'static str> {
    let seconds = integer(value, 0, i32::MAX as u64)?;
    Ok(Some(seconds).filter(|&seconds| seconds > 0).map(Duration::from_secs))
}

fn integer(value: &[u8], min: u64, max: u64) -> Result<u64, &'static str> {
    let number = parse_u64(value).ok_or("argument couldn't be parsed into an integer")?;
    if (min..=max).contains(&number) { Ok(number) } else { Err("argument is out of range") }
}

/// Reads a number of bytes with Redis's units: k, m, g are powers of 1000, kb, mb, gb of 1024.
fn bytes(value: &[u8], min: u64) -> Result<usize, &'static str> {
    const INVALID: &str = "argument must be a memory value";
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = value.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return Err(INVALID),
    };
    let bytes = parse_u64(number).and_then(|number| number.checked_mul(factor)).ok_or(INVALID)?;
    if bytes < min {
        return Err("argument is out of range");
    }
    usize::try_from(bytes).map_err(|_| INVALID)
}

fn get(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_wanted = |parameter: &&Parameter| {
        request.args().skip(2).any(|pattern| glob::matches(pattern, parameter.name.as_bytes(), true))
    };
    let found: Vec<_> = PARAMETERS.iter().filter(is_wanted).collect();
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
    let mut config = ctx.state.config.clone();
    let mut names = Vec::new();
    for at in (2..request.arg_count()).step_by(2) {
        let (name, value) = (&request[at], &request[at + 1]);
        let unknown = || quoting("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'");
        let parameter = PARAMETERS
            .iter()
            .find(|parameter| parameter.name.as_bytes().eq_ignore_ascii_case(name))
            .ok_or_else(unknown)?;
        if names.contains(&parameter.name) {
            return Err(refused(name, "duplicate parameter"));
        }
        names.push(parameter.name);
        match parameter.set {
            Some(set) => set(&mut config, value).map_err(|why| refused(name, why))?,
            // What is asked for is already so: tools that turn persistence off, for example.
            None if (parameter.get)(ctx.state).as_bytes() == value => {}
            None => return Err(refused(name, "can't set immutable config")),
        }
    }
    ctx.state.config = config;
    ctx.out.write().ok();
    Ok(())
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

fn rewrite(_: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    Err(Fault::Error("ERR The server is running without a config file"))
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
        "    Fails: there is no configuration file.",
    ];
    write_help(&mut ctx.out, "config", &lines);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_units() {
        for (text, expected) in [
            ("1024", Ok(1024)),
            ("1k", Ok(1000)),
            ("1KB", Ok(1024)),
            ("2mb", Ok(2 << 20)),
            ("1Gb", Ok(1 << 30)),
        ] {
            assert_eq!(bytes(text.as_bytes(), 0), expected);
        }
        for text in ["", "k", "1x", "-1", "99999999999gb"] {
            assert!(bytes(text.as_bytes(), 0).is_err(), "{text}");
        }
        assert!(bytes(b"1", 2).is_err());
    }
}
