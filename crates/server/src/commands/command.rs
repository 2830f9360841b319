//! COMMAND: the command table, as clients see it.

use tembo_wire::number::parse_i64;
use tembo_wire::{ReplyWriter, Request};

use super::args::{Options, is};
use super::table::Command;
use super::table::flag::{BLOCKING, CONNECTION, LOADING, MOVABLE_KEYS, NOT_KEYS, STALE, TRANSACTION, WRITE};
use super::{Context, Registry, bitfield, write_help};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;

const FLAGS: u32 = LOADING | STALE | CONNECTION;
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

pub(super) const COMMANDS: &[Command] = &[Command::new("command", -1, FLAGS, all)
    .tips(UNORDERED)
    .doc("server", "2.8.13", "Tells about all commands")
    .subcommands(&[
        Command::new("command|count", 2, FLAGS, count).doc(
            "server",
            "2.8.13",
            "Returns the number of commands",
        ),
        Command::new("command|docs", -2, FLAGS, docs).tips(UNORDERED).doc(
            "server",
            "7.0.0",
            "Returns what commands are for",
        ),
        Command::new("command|info", -2, FLAGS, info).tips(UNORDERED).doc(
            "server",
            "2.8.13",
            "Tells about the commands named",
        ),
        Command::new("command|getkeys", -4, FLAGS, getkeys).doc(
            "server",
            "2.8.13",
            "Returns the keys among the arguments of a command",
        ),
        Command::new("command|getkeysandflags", -4, FLAGS, getkeysandflags).doc(
            "server",
            "7.0.0",
            "Returns the keys among the arguments of a command, and what it does to them",
        ),
        Command::new("command|list", -2, FLAGS, list).tips(UNORDERED).doc(
            "server",
            "7.0.0",
            "Returns the names of commands",
        ),
        Command::new("command|help", 2, FLAGS, help).doc("server", "5.0.0", "Explains the subcommands"),
    ])];

fn all(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let commands = ctx.state.registry.all();
    let mut reply = ctx.out.write();
    reply.array(commands.len());
    commands.iter().for_each(|command| write_info(&mut reply, command));
    Ok(())
}

fn count(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let commands = ctx.state.registry.all().len();
    ctx.out.write().integer(commands as i64);
    Ok(())
}

fn info(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() == 2 {
        return all(ctx, request);
    }
    let registry = &ctx.state.registry;
    let mut reply = ctx.out.write();
    reply.array(request.arg_count() - 2);
    for name in request.args().skip(2) {
        match registry.get_full(name) {
            Some(command) => write_info(&mut reply, command),
            None => reply.null(),
        }
    }
    Ok(())
}

fn write_info(reply: &mut ReplyWriter<'_>, command: &Command) {
    reply.array(10);
    reply.bulk(command.name);
    reply.integer(command.arity.into());
    write_set(reply, command.flag_names(), "");
    reply.integer(command.keys.first.into());
    reply.integer(command.keys.last.into());
    reply.integer(command.keys.step.into());
    write_set(reply, command.categories(), "@");
    reply.array(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip));
    write_key_specification(reply, command);
    reply.array(command.subcommands.len());
    command.subcommands.iter().for_each(|command| write_info(reply, command));
}

fn write_set(reply: &mut ReplyWriter<'_>, names: impl Iterator<Item = &'static str>, prefix: &str) {
    let names: Vec<_> = names.collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(format!("{prefix}{name}")));
}

/// Where the keys are, once more, in the form that can say more than three numbers can.
fn write_key_specification(reply: &mut ReplyWriter<'_>, command: &Command) {
    if command.keys.first == 0 {
        return reply.set(0);
    }
    let keys = command.keys;
    let last = if keys.last < 0 { keys.last } else { keys.last - keys.first };
    reply.set(1);
    reply.map(3);
    reply.bulk("flags");
    let access: &[_] = match () {
        () if command.has(NOT_KEYS) => &["not_key"],
        () if command.has(WRITE) => &["RW", "update"],
        // WATCH reads keys and returns nothing of them.
        () if command.has(TRANSACTION) => &["RO"],
        () => &["RO", "access"],
    };
    write_set(reply, access.iter().copied(), "");
    reply.bulk("begin_search");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("index");
    reply.bulk("spec");
    reply.map(1);
    reply.bulk("index");
    reply.integer(keys.first.into());
    reply.bulk("find_keys");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("range");
    reply.bulk("spec");
    reply.map(3);
    for (name, number) in [("lastkey", last), ("keystep", keys.step), ("limit", 0)] {
        reply.bulk(name);
        reply.integer(number.into());
    }
}

fn docs(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let registry = &ctx.state.registry;
    let commands: Vec<&Command> = match request.arg_count() {
        2 => registry.all().to_vec(),
        _ => request.args().skip(2).filter_map(|name| registry.get_full(name)).collect(),
    };
    write_docs(&mut ctx.out.write(), &commands);
    Ok(())
}

fn write_docs(reply: &mut ReplyWriter<'_>, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.name);
        reply.map(3 + usize::from(!command.subcommands.is_empty()));
        for (name, text) in [("summary", command.summary), ("since", command.since), ("group", command.group)]
        {
            reply.bulk(name);
            reply.bulk(text);
        }
        if !command.subcommands.is_empty() {
            reply.bulk("subcommands");
            write_docs(reply, &command.subcommands.iter().collect::<Vec<_>>());
        }
    }
}

fn getkeys(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (_, positions) = key_positions(ctx, request)?;
    let mut reply = ctx.out.write();
    reply.array(positions.len());
    positions.iter().for_each(|&position| reply.bulk(&request[position + 2]));
    Ok(())
}

fn getkeysandflags(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (command, positions) = key_positions(ctx, request)?;
    let variant = match command.name {
        "bitfield" => bitfield::only_reads(request.args().skip(4)),
        _ => request.args().skip(5).any(|word| is(word, "GET")),
    };
    let mut reply = ctx.out.write();
    reply.array(positions.len());
    for (nth, &position) in positions.iter().enumerate() {
        reply.array(2);
        reply.bulk(&request[position + 2]);
        write_set(&mut reply, key_access(command, nth, variant).iter().copied(), "");
    }
    Ok(())
}

/// The access of a command to its `nth` key, in the words of Redis's specifications of keys. A `variant` is a
/// SET with the option GET, and a BITFIELD that only reads.
fn key_access(command: &Command, nth: usize, variant: bool) -> &'static [&'static str] {
    match (command.name, nth) {
        ("set", _) if variant => &["RW", "access", "update"],
        ("bitfield", _) if variant => &["RO", "access"],
        ("setbit" | "bitfield", _) => &["RW", "access", "update"],
        ("bitop" | "geosearchstore", 0) | ("georadius" | "georadiusbymember", 1..) => &["OW", "update"],
        ("bitop" | "geosearchstore" | "georadius" | "georadiusbymember", _) => &["RO", "access"],
        ("pfmerge", 0) => &["RW", "access", "insert"],
        ("pfmerge", _) => &["RO", "access"],
        ("pfadd", _) => &["RW", "insert"],
        ("pfcount" | "pfdebug", _) => &["RW", "access"],
        ("set" | "setex" | "psetex" | "mset", _) | ("rename" | "copy", 1) => &["OW", "update"],
        ("sinterstore", 0) => &["RW", "update"],
        ("sunionstore" | "sdiffstore", 0) => &["OW", "update"],
        ("sinterstore" | "sunionstore" | "sdiffstore", _) => &["RO", "access"],
        ("setnx" | "msetnx", _) | ("renamenx", 1) => &["OW", "insert"],
        ("getdel" | "spop", _) | ("rename" | "renamenx", _) | ("smove", 0) => &["RW", "access", "delete"],
        ("append" | "hsetnx" | "sadd" | "smove", _) => &["RW", "insert"],
        ("hdel" | "srem", _) => &["RW", "delete"],
        ("del" | "unlink", _) => &["RM", "delete"],
        ("getset" | "getex" | "move", _) => &["RW", "access", "update"],
        ("incr" | "decr" | "incrby" | "decrby" | "incrbyfloat", _) => &["RW", "access", "update"],
        ("hincrby" | "hincrbyfloat", _) => &["RW", "access", "update"],
        ("copy", _) => &["RO", "access"],
        ("zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore", 0) => &["OW", "update"],
        ("zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore", _) => &["RO", "access"],
        ("sort", 0) => &["RO", "access"],
        ("sort", _) => &["OW", "update"],
        ("zpopmin" | "zpopmax" | "zmpop" | "bzpopmin" | "bzpopmax" | "bzmpop", _) => {
            &["RW", "access", "delete"]
        }
        ("zincrby", _) => &["RW", "access", "update"],
        ("zrem" | "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex", _) => &["RW", "delete"],
        ("zcard", _) => &["RO"],
        ("exists" | "touch" | "watch" | "type" | "strlen" | "memory|usage", _) => &["RO"],
        ("hlen" | "hstrlen" | "hexists" | "scard" | "sismember", _) => &["RO"],
        (name, _) if name.starts_with("object|") => &["RO"],
        _ if command.has(WRITE) => &["RW", "update"],
        _ => &["RO", "access"],
    }
}

/// The command that is asked about, and where its keys are.
fn key_positions(ctx: &Context<'_, '_>, request: &Request<'_>) -> Answer<(&'static Command, Vec<usize>)> {
    let invalid = Fault::Error("ERR Invalid command specified");
    let mut command = ctx.state.registry.get(&request[2]).ok_or(invalid)?;
    if !command.subcommands.is_empty() {
        let invalid = Fault::Error("ERR Invalid command specified");
        command = command.subcommand(&request[3]).ok_or(invalid)?;
    }
    if command.keys.first == 0 && !command.has(MOVABLE_KEYS) || command.has(NOT_KEYS) {
        return Err(Fault::Error("ERR The command has no key arguments"));
    }
    let count = request.arg_count() - 2;
    if !command.takes(count) {
        return Err(Fault::Error("ERR Invalid number of arguments specified for command"));
    }
    let positions = if command.has(MOVABLE_KEYS) && command.group == "geo" {
        // The key of a result is behind a keyword among the options.
        let options = command.arity.unsigned_abs() as usize..count - 1;
        let key_behind = |word| options.clone().find(|&at| is(&request[2 + at], word)).map(|at| at + 1);
        let results = ["STORE", "STOREDIST"].into_iter().filter_map(key_behind);
        command.keys.positions(count).chain(results).collect()
    } else if matches!(command.name, "sort" | "sort_ro") {
        let stores = (2..count.saturating_sub(1)).filter(|at| is(&request[2 + at], "STORE"));
        let target = if command.has(WRITE) { stores.last().map(|at| at + 1) } else { None };
        command.keys.positions(count).chain(target).collect()
    } else if command.has(MOVABLE_KEYS) {
        // The number of keys, which follow it, is behind the key of the result or a timeout, if there is one.
        let at = command.keys.positions(count).count() + 1 + usize::from(command.has(BLOCKING));
        let number = parse_i64(&request[2 + at]).and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| (1..count - at).contains(number));
        let number = number.ok_or(Fault::Error("ERR Invalid arguments specified for command"))?;
        command.keys.positions(count).chain(at + 1..at + 1 + number).collect()
    } else {
        command.keys.positions(count).collect()
    };
    Ok((command, positions))
}

/// Which commands COMMAND LIST is to name.
enum ListFilter<'a> {
    All,
    Pattern(&'a [u8]),
    Category(&'a [u8]),
    /// There are no modules.
    Module,
}

impl<'a> ListFilter<'a> {
    fn parse(mut options: Options<'a>) -> Answer<Self> {
        let Some(word) = options.next() else {
            return Ok(ListFilter::All);
        };
        if !is(word, "FILTERBY") || options.left() != 2 {
            return Err(SYNTAX);
        }
        let (by, value) = (options.value()?, options.value()?);
        match by {
            _ if is(by, "PATTERN") => Ok(ListFilter::Pattern(value)),
            _ if is(by, "ACLCAT") => Ok(ListFilter::Category(value)),
            _ if is(by, "MODULE") => Ok(ListFilter::Module),
            _ => Err(SYNTAX),
        }
    }

    fn wants(&self, command: &Command) -> bool {
        match self {
            ListFilter::All => true,
            ListFilter::Pattern(pattern) => glob::matches(pattern, command.name.as_bytes(), true),
            ListFilter::Category(wanted) => command.categories().any(|category| is(wanted, category)),
            ListFilter::Module => false,
        }
    }
}

fn list(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let filter = ListFilter::parse(Options::after(request, 2))?;
    let registry: &Registry = &ctx.state.registry;
    let containers = registry.all().iter().copied();
    let names: Vec<_> = containers
        .flat_map(|command| std::iter::once(command).chain(command.subcommands))
        .filter(|command| filter.wants(command))
        .map(|command| command.name)
        .collect();
    let mut reply = ctx.out.write();
    reply.set(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "(no subcommand)",
        "    All about all commands.",
        "COUNT",
        "    The number of commands.",
        "DOCS [<command-name> ...]",
        "    What the commands are for; all if none is named.",
        "GETKEYS <full-command>",
        "    The keys among the arguments of a command.",
        "GETKEYSANDFLAGS <full-command>",
        "    The keys among the arguments of a command, and what it does to them.",
        "INFO [<command-name> ...]",
        "    All about the commands named; all if none is named.",
        "LIST [FILTERBY (MODULE|ACLCAT|PATTERN) <value>]",
        "    The names of commands.",
    ];
    write_help(&mut ctx.out, "command", &lines);
    Ok(())
}
