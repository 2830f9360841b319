//! Scripts: the executor runs them ([`crate::script`]). There are no functions, and test suites and
//! frameworks begin by removing them.

use tembo_wire::Request;

use super::args::is;
use super::context::{Context, Handler, write_help};
use crate::config::LogLevel;
use crate::fault::{Answer, Fault};
use crate::log::MessageKind;
use crate::script::cache::read_sha;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("function", function_help),
    ("function|flush", function_flush),
    ("function|help", function_help),
    ("eval", run),
    ("evalsha", run),
    ("eval_ro", run),
    ("evalsha_ro", run),
    ("script", script_help),
    ("script|debug", script_debug),
    ("script|exists", script_exists),
    ("script|flush", script_flush),
    ("script|help", script_help),
    ("script|kill", script_kill),
    ("script|load", script_load),
];

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
    either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

/// The executor runs scripts itself.
fn run(_: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    Err(Fault::Error("ERR a script cannot be run by another command"))
}

/// Whether the option, if there is one, is ASYNC or SYNC.
fn is_when(option: Option<&[u8]>) -> bool {
    option.is_none_or(|option| is(option, "ASYNC") || is(option, "SYNC"))
}

fn function_flush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 3 {
        let after = "'. Try FUNCTION HELP.";
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        return Err(super::args::quoting(before, &request[1], after));
    }
    if !is_when(request.get(2)) {
        return Err(Fault::Error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    ctx.out.write().ok();
    Ok(())
}

fn script_flush(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 3 || !is_when(request.get(2)) {
        return Err(Fault::Error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    ctx.keys.forget_scripts()?;
    ctx.scripts.flush();
    ctx.out.write().ok();
    Ok(())
}

fn function_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    write_help(&mut ctx.out, "function", &["FLUSH [ASYNC|SYNC]", "    Accepted; there are no functions."]);
    Ok(())
}

fn script_load(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (sha, _) = ctx.scripts.add(&request[2], true)?;
    if !ctx.keys.keep_script(&sha, &request[2])? {
        let message = format_args!(
            "a script of SCRIPT LOAD is not kept: all together would have more than 8 MiB, or the pool is full; it is known until the server stops"
        );
        ctx.state.log(LogLevel::Warning, MessageKind::Full, message);
    }
    ctx.out.write().bulk(sha);
    Ok(())
}

fn script_exists(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut known = Vec::new();
    for text in request.args().skip(2) {
        let kept = read_sha(text).map_or(Ok(None), |sha| ctx.keys.kept_script(&sha))?;
        known.push(ctx.scripts.has(text) || kept.is_some());
    }
    let mut reply = ctx.out.write();
    reply.array(known.len());
    known.into_iter().for_each(|is_known| reply.integer(i64::from(is_known)));
    Ok(())
}

fn script_kill(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    match &mut ctx.scripts.running {
        None => return Err(Fault::Error("NOTBUSY No scripts in execution right now.")),
        Some(running) if running.has_written => return Err(Fault::Error(UNKILLABLE)),
        Some(running) => running.is_killed = true,
    }
    ctx.out.write().ok();
    Ok(())
}

fn script_debug(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if is(&request[2], "NO") {
        ctx.out.write().ok();
        return Ok(());
    }
    match is(&request[2], "YES") || is(&request[2], "SYNC") {
        true => Err(Fault::Error("ERR scripts cannot be debugged")),
        false => Err(Fault::Error("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

fn script_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "DEBUG (YES|SYNC|NO)",
        "    Refused but for NO: scripts cannot be debugged.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Which of the scripts are cached.",
        "FLUSH [ASYNC|SYNC]",
        "    Forget all scripts.",
        "KILL",
        "    End the script under way, unless it has written.",
        "LOAD <script>",
        "    Keep a script without running it.",
    ];
    write_help(&mut ctx.out, "script", &lines);
    Ok(())
}
