//! Rows of the command table: those of [`super::super::acl`].

use crate::commands::table::Command;
use crate::commands::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};

const OWN: u32 = NOSCRIPT | LOADING | STALE;
const OTHERS: u32 = OWN | ADMIN;

pub(in crate::commands) const COMMANDS: &[Command] =
    &[Command::new("acl", -2, 0).doc("server", "6.0.0", "Users and what they may do").subcommands(&[
        of_all("acl|cat", -2, OWN, "Returns the categories, or the commands of one"),
        of_all("acl|deluser", -3, OTHERS, "Removes users and disconnects their clients"),
        Command::new("acl|dryrun", -4, OTHERS).doc(
            "server",
            "7.0.0",
            "Tells whether a user may run a command, without running it",
        ),
        of_all("acl|genpass", -2, OWN, "Returns a random password"),
        of_all("acl|getuser", 3, OTHERS, "Returns the rules of a user"),
        of_all("acl|list", 2, OTHERS, "Returns the users as lines of an ACL file"),
        of_all("acl|load", 2, OTHERS, "Takes the users of the ACL file, all or none"),
        of_all("acl|log", -2, OTHERS, "Returns what was denied lately"),
        of_all("acl|save", 2, OTHERS, "Writes the users into the ACL file"),
        of_all("acl|setuser", -3, OTHERS, "Makes a user, or changes its rules, all or none"),
        of_all("acl|users", 2, OTHERS, "Returns the names of the users"),
        of_all("acl|whoami", 2, OWN, "Returns the name of this connection's user"),
        of_all("acl|help", 2, LOADING | STALE, "Explains the subcommands"),
    ])];

const fn of_all(name: &'static str, arity: i32, flags: u32, summary: &'static str) -> Command {
    Command::new(name, arity, flags).doc("server", "6.0.0", summary)
}
