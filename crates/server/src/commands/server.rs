//! The server's own affairs: TIME, DEBUG, MONITOR, LOLWUT, MODULE, SHUTDOWN.

use std::time::Duration;

use tembo_wire::Request;
use tembo_wire::number::parse_f64;

use super::args::{integer, is};
use super::context::{Context, Handler, write_help};
use super::debug;
use crate::clock;
use crate::config::DebugCommands;
use crate::fault::{Answer, Fault, NOT_AN_INTEGER, SYNTAX};
use crate::version::REDIS_VERSION;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("time", time),
    ("debug", debug),
    ("monitor", monitor),
    ("module", module_help),
    ("module|list", module_list),
    ("module|help", module_help),
    ("lolwut", lolwut),
    ("shutdown", shutdown),
];

/// Longest DEBUG SLEEP.
const SLEEP_SECONDS_MAX: f64 = 3600.0;

fn time(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let now = clock::unix_time();
    let mut reply = ctx.out.write();
    reply.array(2);
    reply.bulk_integer(now.as_secs() as i64);
    reply.bulk_integer(now.subsec_micros().into());
    Ok(())
}

/// Tools ask which modules there are before they show anything.
fn module_list(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.out.write().array(0);
    Ok(())
}

fn module_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    write_help(&mut ctx.out, "module", &["LIST", "    Nothing: there are no modules."]);
    Ok(())
}

fn lolwut(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() >= 3 && is(&request[1], "VERSION") {
        integer(&request[2])?;
    }
    ctx.out.write().verbatim(*b"txt", format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}

/// For tests: no client may use it unless `enable-debug-command` allows it.
fn debug(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let is_allowed = match ctx.state.config.debug_commands {
        DebugCommands::No => false,
        DebugCommands::Local => ctx.session.is_local(),
        DebugCommands::Yes => true,
    };
    if !is_allowed {
        return Err(Fault::Error(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
             you can run it from a local connection, otherwise you need to set this option in the configuration file, \
             and then restart the server.",
        ));
    }
    if debug::run(ctx, request)? {
        return Ok(());
    }
    match (&request[1], request.get(2)) {
        (word, Some(seconds)) if is(word, "SLEEP") && request.arg_count() == 3 => {
            let seconds = parse_f64(seconds).ok_or(NOT_AN_INTEGER)?.clamp(0.0, SLEEP_SECONDS_MAX);
            std::thread::sleep(Duration::from_secs_f64(seconds));
            ctx.keys.now_ms = clock::unix_ms();
            ctx.out.write().ok();
            Ok(())
        }
        (word, None) if is(word, "HELP") => {
            write_help(&mut ctx.out, "debug", debug::HELP);
            Ok(())
        }
        (word, _) => {
            let after = "'. Try DEBUG HELP.";
            let before = "ERR unknown subcommand or wrong number of arguments for '";
            Err(super::args::quoting(before, word, after))
        }
    }
}

fn monitor(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.keys.pubsub.monitor(ctx.session);
    ctx.out.write().ok();
    Ok(())
}

/// Stops the server after this turn. There is nothing to save, so the options that Redis has change nothing.
fn shutdown(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    for word in request.args().skip(1) {
        if is(word, "ABORT") && request.arg_count() == 2 {
            return Err(Fault::Error("ERR No shutdown in progress."));
        }
        if !["SAVE", "NOSAVE", "NOW", "FORCE"].iter().any(|option| is(word, option)) {
            return Err(SYNTAX);
        }
    }
    ctx.state.stopping = true;
    ctx.session.quitting = true;
    Ok(())
}
