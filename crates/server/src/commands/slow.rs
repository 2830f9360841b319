//! SLOWLOG and LATENCY: commands and events that took long.

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::context::{Context, Handler, write_help};
use super::latency_graph;
use crate::clock;
use crate::fault::{Answer, Fault};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("slowlog", slowlog_help),
    ("slowlog|get", get),
    ("slowlog|len", len),
    ("slowlog|reset", reset),
    ("slowlog|help", slowlog_help),
    ("latency", latency_help),
    ("latency|graph", graph),
    ("latency|latest", latest),
    ("latency|history", history),
    ("latency|reset", latency_reset),
    ("latency|histogram", histogram),
    ("latency|doctor", doctor),
    ("latency|help", latency_help),
];

/// Commands that SLOWLOG GET returns by default.
const SLOW_DEFAULT: i64 = 10;

fn get(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 3 {
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        return Err(super::args::quoting(before, &request[1], "'. Try SLOWLOG HELP."));
    }
    let invalid = Fault::Error("ERR count should be greater than or equal to -1");
    let count = match request.get(2) {
        None => SLOW_DEFAULT,
        Some(word) => parse_i64(word).filter(|&count| count >= -1).ok_or(invalid)?,
    };
    let slow = &ctx.state.commands.slow;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(slow.len());
    let mut reply = ctx.out.write();
    reply.array(count);
    for slow in slow.iter().take(count) {
        reply.array(6);
        reply.integer(slow.number);
        reply.integer(slow.unix_seconds as i64);
        reply.integer(slow.micros as i64);
        reply.array(slow.arguments.len());
        slow.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(&slow.peer);
        reply.bulk(&slow.name);
    }
    Ok(())
}

fn len(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let len = ctx.state.commands.slow.len();
    ctx.out.write().integer(len as i64);
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.state.commands.slow.clear();
    ctx.out.write().ok();
    Ok(())
}

fn slowlog_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "GET [<count>]",
        "    Commands that took longer than slowlog-log-slower-than, the last one first; -1: all.",
        "LEN",
        "    How many there are.",
        "RESET",
        "    Forget them.",
    ];
    write_help(&mut ctx.out, "slowlog", &lines);
    Ok(())
}

fn latest(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let events = &ctx.state.commands.events;
    let mut reply = ctx.out.write();
    reply.array(events.len());
    for (name, event) in events {
        let (second, ms) = event.samples.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name);
        reply.integer(second as i64);
        reply.integer(ms as i64);
        reply.integer(event.worst_ms as i64);
    }
    Ok(())
}

fn history(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let name = request[2].to_ascii_lowercase();
    let event = str::from_utf8(&name).ok().and_then(|name| ctx.state.commands.events.get(name));
    let mut reply = ctx.out.write();
    reply.array(event.map_or(0, |event| event.samples.len()));
    for (second, ms) in event.into_iter().flat_map(|event| &event.samples) {
        reply.array(2);
        reply.integer(*second as i64);
        reply.integer(*ms as i64);
    }
    Ok(())
}

fn graph(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let name = request[2].to_ascii_lowercase();
    let event = str::from_utf8(&name).ok().and_then(|name| ctx.state.commands.events.get_key_value(name));
    let none = || super::args::quoting("ERR No samples available for event '", &request[2], "'");
    let (name, event) = event.ok_or_else(none)?;
    let picture = latency_graph::draw(name, event, clock::unix_time().as_secs());
    ctx.out.write().verbatim(*b"txt", picture);
    Ok(())
}

fn latency_reset(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let events = &mut ctx.state.commands.events;
    let before = events.len();
    match request.arg_count() {
        2 => events.clear(),
        _ => events.retain(|name, _| !request.args().skip(2).any(|word| super::args::is(word, name))),
    }
    let forgotten = before - events.len();
    ctx.out.write().integer(forgotten as i64);
    Ok(())
}

/// How often each command took up to a power of two of microseconds, as counts that include the smaller ones.
fn histogram(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or(name);
        let mut words = request.args().skip(2).peekable();
        words.peek().is_none()
            || words.any(|word| super::args::is(word, name) || super::args::is(word, container))
    };
    let entries = ctx.state.commands.entries();
    let entries: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| Some((entry, entry.times.as_ref()?)))
        .filter(|(entry, _)| is_wanted(entry.command.name))
        .collect();
    let mut reply = ctx.out.write();
    reply.map(entries.len());
    for (entry, times) in entries {
        let (mut buckets, mut counted, mut micros) = (Vec::new(), 0, 1_u64);
        while counted < times.len() {
            let count = times.count_between(0, micros * 1000);
            if count > counted {
                buckets.push((micros, count));
            }
            (counted, micros) = (count, micros * 2);
        }
        reply.bulk(entry.command.name);
        reply.map(2);
        reply.bulk("calls");
        reply.integer(entry.calls as i64);
        reply.bulk("histogram_usec");
        reply.map(buckets.len());
        for (micros, count) in buckets {
            reply.integer(micros as i64);
            reply.integer(count as i64);
        }
    }
    Ok(())
}

fn doctor(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let text = match (ctx.state.config.noted.latency_threshold, ctx.state.commands.events.is_empty()) {
        (None, _) => {
            "Nothing is measured: latency-monitor-threshold is 0. Set it to milliseconds.\n".to_owned()
        }
        (Some(_), true) => "Nothing took as long as latency-monitor-threshold.\n".to_owned(),
        (Some(_), false) => {
            let events = ctx.state.commands.events.iter();
            let line = |(name, event): (&&str, &crate::command_stats::Event)| {
                let samples = event.samples.len();
                format!("{name}: {samples} seconds with long times, the longest {} ms.\n", event.worst_ms)
            };
            events.map(line).collect()
        }
    };
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}

fn latency_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "DOCTOR",
        "    What made clients wait, in words.",
        "GRAPH <event>",
        "    The times of an event, as a picture.",
        "HISTOGRAM [<command> ...]",
        "    How the times of commands are distributed.",
        "HISTORY <event>",
        "    The times of an event.",
        "LATEST",
        "    The last and the longest time of each event.",
        "RESET [<event> ...]",
        "    Forget the times of events.",
    ];
    write_help(&mut ctx.out, "latency", &lines);
    Ok(())
}
