//! ACL: users and what they may do. See [`crate::acl`].

use rustix::rand::{GetRandomFlags, getrandom};
use tembo_wire::Request;

use super::args::{integer, is, quoting};
use super::context::{Context, Handler, write_help};
use crate::acl::categories::{CATALOGUE, CATEGORIES, category};
use crate::acl::check::{Denial, Reason};
use crate::acl::rule::{is_name, join_selectors};
use crate::acl::user::{DEFAULT, User};
use crate::acl_file;
use crate::config::LogLevel;
use crate::fault::{Answer, Fault};
use crate::log::MessageKind;
use crate::permission::{disconnect_users, put_user};

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
    ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
    store users in the Redis configuration.";
const NOT_SAVED: &str =
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information";
const GENPASS_BITS: &str = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
/// Entries that ACL LOG returns by default.
const LOG_DEFAULT: i64 = 10;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("acl", help),
    ("acl|cat", cat),
    ("acl|deluser", deluser),
    ("acl|dryrun", dryrun),
    ("acl|genpass", genpass),
    ("acl|getuser", getuser),
    ("acl|list", list),
    ("acl|load", load),
    ("acl|log", log),
    ("acl|save", save),
    ("acl|setuser", setuser),
    ("acl|users", users),
    ("acl|whoami", whoami),
    ("acl|help", help),
];

fn expect_at_most_three(request: &Request<'_>) -> Answer {
    if request.arg_count() <= 3 {
        return Ok(());
    }
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    Err(quoting(before, &request[1], "'. Try ACL HELP."))
}

fn whoami(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let name = ctx.session.user.name.clone();
    ctx.out.bulk(&name)
}

fn users(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let users = ctx.state.users.iter();
    ctx.out.write().array(users.len());
    users.into_iter().try_for_each(|user| ctx.out.bulk(&user.name))
}

fn list(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = ctx.state.users.lines();
    ctx.out.write().array(lines.len());
    lines.into_iter().try_for_each(|line| ctx.out.bulk(&line))
}

fn cat(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expect_at_most_three(request)?;
    let names: Vec<&str> = match request.get(2) {
        None => CATEGORIES.to_vec(),
        Some(name) => {
            let category = category(name).ok_or_else(|| quoting("ERR Unknown category '", name, "'"))?;
            let is_in = CATALOGUE.all().iter().filter(|known| known.is_in(category));
            is_in.filter(|known| known.command.is_some()).map(|known| known.name).collect()
        }
    };
    let mut reply = ctx.out.write();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn genpass(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expect_at_most_three(request)?;
    let bits = request.get(2).map_or(Ok(256), integer)?;
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits));
    let digits = bits.ok_or(Fault::Error(GENPASS_BITS))?.div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let got = getrandom(&mut bytes, GetRandomFlags::empty());
    if got != Ok(bytes.len()) {
        return Err(Fault::Error("ERR the system has no random numbers to give"));
    }
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    ctx.out.bulk(text.as_bytes())
}

fn getuser(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let Some(user) = ctx.state.users.get(&request[2]).cloned() else {
        ctx.out.write().null_array();
        return Ok(());
    };
    let flags: Vec<_> = user.flags().collect();
    let digests = user.digests();
    let mut reply = ctx.out.write();
    reply.map(6);
    reply.bulk("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("passwords");
    reply.array(digests.len());
    digests.for_each(|digest| reply.bulk(digest));
    let mut rules = user.rules();
    let others = rules.len() - 1;
    if let Some(own) = rules.next() {
        write_rules(&mut reply, &own);
    }
    reply.bulk("selectors");
    reply.array(others);
    for rules in rules {
        reply.map(3);
        write_rules(&mut reply, &rules);
    }
    Ok(())
}

fn write_rules(reply: &mut tembo_wire::ReplyWriter<'_>, rules: &[Vec<u8>; 3]) {
    for (name, rules) in ["commands", "keys", "channels"].into_iter().zip(rules) {
        reply.bulk(name);
        reply.bulk(rules);
    }
}

fn setuser(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let name = &request[2];
    if !is_name(name) {
        return Err(Fault::Error("ERR Usernames can't contain spaces or null characters"));
    }
    let unmatched = |at: usize| {
        quoting("ERR Unmatched parenthesis in acl selector starting at '", &request[3 + at], "'.")
    };
    let rules = join_selectors(request.args().skip(3)).map_err(unmatched)?;
    let all_channels = ctx.state.config.acl.all_channels;
    let known = ctx.state.users.get(name);
    let mut user = known.map_or_else(|| User::new(name, all_channels), |user| User::clone(user));
    for rule in rules {
        let wrong = |error: crate::acl::rule::RuleError| {
            quoting("ERR Error in ACL SETUSER modifier '", &rule, &format!("': {}", error.text()))
        };
        user.apply(&rule, all_channels).map_err(wrong)?;
    }
    put_user(user, ctx.state, ctx.session, ctx.clients);
    ctx.out.write().ok();
    Ok(())
}

fn deluser(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let names: Vec<&[u8]> = request.args().skip(2).collect();
    if names.contains(&DEFAULT) {
        return Err(Fault::Error("ERR The 'default' user cannot be removed"));
    }
    let removed = names.iter().filter(|name| ctx.state.users.remove(name)).count();
    disconnect_users(|name| names.contains(&name), ctx.state, ctx.session, ctx.clients);
    ctx.out.write().integer(removed as i64);
    Ok(())
}

fn load(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let file = ctx.state.config.acl_file.as_ref().ok_or(Fault::Error(NO_FILE))?;
    let loaded = acl_file::load(file, &ctx.state.config);
    let users = loaded.map_err(|why| Fault::Quoting([b"ERR ", &why[..]].concat()))?;
    let default = User::clone(users.default_user());
    ctx.state.users = users;
    // As in Redis, all users but the default one count as new, even if they have the same names.
    disconnect_users(|name| name != DEFAULT, ctx.state, ctx.session, ctx.clients);
    put_user(default, ctx.state, ctx.session, ctx.clients);
    ctx.out.write().ok();
    Ok(())
}

fn save(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let file = ctx.state.config.acl_file.clone().ok_or(Fault::Error(NO_FILE))?;
    if let Err(error) = acl_file::save(&file, &ctx.state.users) {
        let message = format_args!("the ACL file {} cannot be written: {error}", file.display());
        ctx.state.log(LogLevel::Warning, MessageKind::Configuration, message);
        return Err(Fault::Error(NOT_SAVED));
    }
    ctx.out.write().ok();
    Ok(())
}

fn dryrun(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let user = ctx.state.users.get(&request[2]).cloned();
    let user = user.ok_or_else(|| quoting("ERR User '", &request[2], "' not found"))?;
    let asked = request.from(3);
    let unknown = || quoting("ERR Command '", asked.name(), "' not found");
    let mut command = ctx.state.registry.get(asked.name()).ok_or_else(unknown)?;
    if let Some(name) = asked.get(1).filter(|_| !command.subcommands.is_empty()) {
        command = command.subcommand(name).ok_or_else(unknown)?;
    }
    if !command.takes(asked.arg_count()) {
        let text = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(Fault::Quoting(text.into_bytes()));
    }
    match user.check(command, &asked) {
        Ok(()) => {
            ctx.out.write().ok();
            Ok(())
        }
        Err(denial) => ctx.out.bulk(&in_words(&denial, &asked)),
    }
}

fn in_words(denial: &Denial, request: &Request<'_>) -> Vec<u8> {
    let (before, after): (&[u8], &[u8]) = match denial.reason {
        Reason::Key => (b"access the '", b"' key"),
        Reason::Channel => (b"access the '", b"' channel"),
        _ => (b"run the '", b"' command"),
    };
    [b"This user has no permissions to ", before, denial.object(request), after].concat()
}

fn log(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expect_at_most_three(request)?;
    if request.get(2).is_some_and(|word| is(word, "RESET")) {
        ctx.state.acl_log.entries.clear();
        ctx.out.write().ok();
        return Ok(());
    }
    let count = usize::try_from(request.get(2).map_or(Ok(LOG_DEFAULT), integer)?).unwrap_or(0);
    let entries = &ctx.state.acl_log.entries;
    let count = count.min(entries.len());
    let now = ctx.state.now;
    let mut reply = ctx.out.write();
    reply.array(count);
    for entry in entries.iter().take(count) {
        reply.map(7);
        reply.bulk("count");
        reply.integer(entry.count as i64);
        let texts: [(&str, &[u8]); 4] = [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.origin.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ];
        for (name, text) in texts {
            reply.bulk(name);
            reply.bulk(text);
        }
        reply.bulk("age-seconds");
        let age = now.saturating_duration_since(entry.since);
        reply.double(age.as_millis() as f64 / 1000.0);
        reply.bulk("client-info");
        reply.bulk(&entry.client);
    }
    Ok(())
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "CAT [<category>]",
        "    The categories, or the commands of one.",
        "DELUSER <username> [<username> ...]",
        "    Remove users and disconnect their clients.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Whether a user may run a command, which is not run.",
        "GETUSER <username>",
        "    The rules of a user.",
        "GENPASS [<bits>]",
        "    A random password of 256 bits, or of so many.",
        "LIST",
        "    The users as lines of an ACL file.",
        "LOAD",
        "    Take the users of the ACL file, all or none.",
        "LOG [<count> | RESET]",
        "    What was denied lately; or forget it.",
        "SAVE",
        "    Write the users into the ACL file.",
        "SETUSER <username> <rule> [<rule> ...]",
        "    Make a user, or change its rules, all or none.",
        "USERS",
        "    The names of the users.",
        "WHOAMI",
        "    The name of this connection's user.",
    ];
    write_help(&mut ctx.out, "acl", &lines);
    Ok(())
}
