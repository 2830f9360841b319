//! Scripts: the executor runs them ([`crate::script`]). There are no functions, and test suites and
//! frameworks begin by removing them.

use tembo_wire::Request;

use super::args::is;
use super::table::Command;
use super::table::flag::{
    AFTER_COMMIT, ALLOW_BUSY, LOADING, MOVABLE_KEYS, NOSCRIPT, READONLY, SCRIPTING, STALE, WRITE,
};
use super::{Context, write_help};
use crate::config::LogLevel;
use crate::fault::{Answer, Fault};
use crate::log::Kind;
use crate::script::cache::read_sha;

const EVAL: u32 = NOSCRIPT | STALE | MOVABLE_KEYS | AFTER_COMMIT | SCRIPTING;
const HELP: u32 = LOADING | STALE | SCRIPTING;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("function", -2, 0, function_help)
        .doc("scripting", "7.0.0", "Functions, of which there are none")
        .subcommands(&[
            Command::new("function|flush", -2, WRITE | NOSCRIPT | SCRIPTING, function_flush)
                .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
                .doc("scripting", "7.0.0", "Does nothing: there are no functions to remove"),
            Command::new("function|help", 2, HELP, function_help).doc(
                "scripting",
                "7.0.0",
                "Explains the subcommands",
            ),
        ]),
    Command::new("eval", -3, EVAL, run).doc("scripting", "2.6.0", "Runs a script, durably as one"),
    Command::new("evalsha", -3, EVAL, run).doc("scripting", "2.6.0", "Runs a cached script, durably as one"),
    Command::new("eval_ro", -3, EVAL | READONLY, run).doc(
        "scripting",
        "7.0.0",
        "Runs a script that does not write",
    ),
    Command::new("evalsha_ro", -3, EVAL | READONLY, run).doc(
        "scripting",
        "7.0.0",
        "Runs a cached script that does not write",
    ),
    Command::new("script", -2, 0, script_help)
        .doc("scripting", "2.6.0", "The scripts that the server knows")
        .subcommands(SCRIPT),
];

const SCRIPT: &[Command] = &[
    Command::new("script|debug", 3, NOSCRIPT | SCRIPTING, script_debug).doc(
        "scripting",
        "3.2.0",
        "Refused: scripts cannot be debugged",
    ),
    Command::new("script|exists", -3, NOSCRIPT | SCRIPTING, script_exists)
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .doc("scripting", "2.6.0", "Tells which scripts are cached"),
    Command::new("script|flush", -2, NOSCRIPT | AFTER_COMMIT | SCRIPTING, script_flush)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .doc("scripting", "2.6.0", "Forgets all scripts"),
    Command::new("script|help", 2, HELP, script_help).doc("scripting", "5.0.0", "Explains the subcommands"),
    Command::new("script|kill", 2, NOSCRIPT | ALLOW_BUSY | SCRIPTING, script_kill)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .doc("scripting", "2.6.0", "Ends the script under way, if it has not written"),
    Command::new("script|load", 3, NOSCRIPT | STALE | AFTER_COMMIT | SCRIPTING, script_load)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .doc("scripting", "2.6.0", "Keeps a script until SCRIPT FLUSH"),
];

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
    either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

/// The executor runs scripts itself.
fn run(_: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    Err(Fault::Error("ERR a script cannot be run by another command"))
}

/// Whether the option, if there is one, is about when to remove.
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
        ctx.state.log(LogLevel::Warning, Kind::Full, message);
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
