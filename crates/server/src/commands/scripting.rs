//! Scripts and functions: there are none, and test suites and frameworks begin by removing them.

use tembo_wire::Request;

use super::args::is;
use super::table::Command;
use super::table::flag::{LOADING, NOSCRIPT, SCRIPTING, STALE, WRITE};
use super::{Context, write_help};
use crate::fault::{Answer, Fault};

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
    Command::new("script", -2, 0, script_help)
        .doc("scripting", "2.6.0", "Scripts, of which there are none")
        .subcommands(&[
            Command::new("script|flush", -2, NOSCRIPT | SCRIPTING, script_flush)
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .doc("scripting", "2.6.0", "Does nothing: there are no scripts to remove"),
            Command::new("script|help", 2, HELP, script_help).doc(
                "scripting",
                "5.0.0",
                "Explains the subcommands",
            ),
        ]),
];

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
    ctx.out.write().ok();
    Ok(())
}

fn function_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    write_help(&mut ctx.out, "function", &["FLUSH [ASYNC|SYNC]", "    Accepted; there are no functions."]);
    Ok(())
}

fn script_help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    write_help(&mut ctx.out, "script", &["FLUSH [ASYNC|SYNC]", "    Accepted; there are no scripts."]);
    Ok(())
}
