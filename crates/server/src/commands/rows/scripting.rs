//! Rows of the command table: those of [`super::super::scripting`].

use crate::commands::table::Command;
use crate::commands::table::flag::{
    AFTER_COMMIT, ALLOW_BUSY, LOADING, MOVABLE_KEYS, NOSCRIPT, READONLY, SCRIPTING, STALE, WRITE,
};

const HELP: u32 = LOADING | STALE | SCRIPTING;
const EVAL: u32 = NOSCRIPT | STALE | MOVABLE_KEYS | AFTER_COMMIT | SCRIPTING;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command::new("function", -2, 0)
        .doc("scripting", "7.0.0", "Functions, of which there are none")
        .subcommands(&[
            Command::new("function|flush", -2, WRITE | NOSCRIPT | SCRIPTING)
                .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
                .doc("scripting", "7.0.0", "Does nothing: there are no functions to remove"),
            Command::new("function|help", 2, HELP).doc("scripting", "7.0.0", "Explains the subcommands"),
        ]),
    Command::new("eval", -3, EVAL).doc("scripting", "2.6.0", "Runs a script, durably as one"),
    Command::new("evalsha", -3, EVAL).doc("scripting", "2.6.0", "Runs a cached script, durably as one"),
    Command::new("eval_ro", -3, EVAL | READONLY).doc(
        "scripting",
        "7.0.0",
        "Runs a script that does not write",
    ),
    Command::new("evalsha_ro", -3, EVAL | READONLY).doc(
        "scripting",
        "7.0.0",
        "Runs a cached script that does not write",
    ),
    Command::new("script", -2, 0)
        .doc("scripting", "2.6.0", "The scripts that the server knows")
        .subcommands(SCRIPT),
];

const SCRIPT: &[Command] = &[
    Command::new("script|debug", 3, NOSCRIPT | SCRIPTING).doc(
        "scripting",
        "3.2.0",
        "Refused: scripts cannot be debugged",
    ),
    Command::new("script|exists", -3, NOSCRIPT | SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .doc("scripting", "2.6.0", "Tells which scripts are cached"),
    Command::new("script|flush", -2, NOSCRIPT | AFTER_COMMIT | SCRIPTING)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .doc("scripting", "2.6.0", "Forgets all scripts"),
    Command::new("script|help", 2, HELP).doc("scripting", "5.0.0", "Explains the subcommands"),
    Command::new("script|kill", 2, NOSCRIPT | ALLOW_BUSY | SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .doc("scripting", "2.6.0", "Ends the script under way, if it has not written"),
    Command::new("script|load", 3, NOSCRIPT | STALE | AFTER_COMMIT | SCRIPTING)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .doc("scripting", "2.6.0", "Keeps a script until SCRIPT FLUSH"),
];
