//! COMMAND: the command table, as clients see it.

use tembo_wire::{ReplyWriter, Request};

use super::args::{Options, is};
use super::context::{Context, Handler, write_help};
use super::key_arguments::{ONCE_COMMAND, only_reads, places_of_keys};
use super::key_places::write_set;
use super::registry::Registry;
use super::table::Command;
use super::table::flag::{MOVABLE_KEYS, NOT_KEYS};
use super::{arguments, key_places};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::glob;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("command", all),
    ("command|count", count),
    ("command|docs", docs),
    ("command|info", info),
    ("command|getkeys", getkeys),
    ("command|getkeysandflags", getkeysandflags),
    ("command|list", list),
    ("command|help", help),
];

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
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip));
    key_places::write(reply, command.name);
    reply.array(command.subcommands.len());
    command.subcommands.iter().for_each(|command| write_info(reply, command));
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
        let arguments = arguments::arguments_of(command.name);
        let more = [!arguments.is_empty(), !command.subcommands.is_empty()];
        reply.map(3 + more.into_iter().filter(|is_there| *is_there).count());
        for (name, text) in [("summary", command.summary), ("since", command.since), ("group", command.group)]
        {
            reply.bulk(name);
            reply.bulk(text);
        }
        if !arguments.is_empty() {
            reply.bulk("arguments");
            arguments::write(reply, &arguments);
        }
        if !command.subcommands.is_empty() {
            reply.bulk("subcommands");
            write_docs(reply, &command.subcommands.iter().collect::<Vec<_>>());
        }
    }
}

fn getkeys(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (_, positions) = key_positions(&ctx.state.registry, &request.from(2))?;
    let mut reply = ctx.out.write();
    reply.array(positions.len());
    positions.iter().for_each(|&position| reply.bulk(&request[position + 2]));
    Ok(())
}

fn getkeysandflags(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let asked = request.from(2);
    let (command, positions) = key_positions(&ctx.state.registry, &asked)?;
    let specifications = key_places::specifications_of(command.name);
    // The specifications of a command within TEMBO.ONCE begin behind the arguments of TEMBO.ONCE.
    let inner = if is(asked.name(), "tembo.once") { ONCE_COMMAND } else { 0 };
    let only_reads = only_reads(asked.args().skip(2));
    let has_get = asked.args().skip(3).any(|word| is(word, "GET"));
    let mut reply = ctx.out.write();
    reply.array(positions.len());
    for &position in &positions {
        reply.array(2);
        reply.bulk(&asked[position]);
        let its = specifications.iter().find(|its| its.has(&asked.from(inner), position - inner));
        match (command.name, its) {
            // The access of SET depends on its options.
            ("set", _) if !has_get => write_set(&mut reply, ["OW", "update"].into_iter(), ""),
            ("bitfield", _) if only_reads => write_set(&mut reply, ["RO", "access"].into_iter(), ""),
            ("set" | "bitfield", _) => {
                write_set(&mut reply, ["RW", "access", "update"].into_iter(), "");
            }
            (_, Some(its)) => write_set(&mut reply, its.flags(), ""),
            // The key that SORT stores to.
            (_, None) => write_set(&mut reply, ["OW", "update"].into_iter(), ""),
        }
    }
    Ok(())
}

/// The command in question, and where its keys are in the request.
fn key_positions(registry: &Registry, request: &Request<'_>) -> Answer<(&'static Command, Vec<usize>)> {
    let invalid = || Fault::Error("ERR Invalid command specified");
    let invalid_count = || Fault::Error("ERR Invalid number of arguments specified for command");
    let mut command = registry.get(request.name()).ok_or_else(invalid)?;
    if !command.subcommands.is_empty() {
        command = request.get(1).and_then(|name| command.subcommand(name)).ok_or_else(invalid)?;
    }
    if command.keys.first == 0 && !command.has(MOVABLE_KEYS) || command.has(NOT_KEYS) {
        return Err(Fault::Error("ERR The command has no key arguments"));
    }
    if !command.takes(request.arg_count()) {
        return Err(invalid_count());
    }
    if command.name == "tembo.once" {
        // The innermost command, without a call for each around it.
        let mut at = ONCE_COMMAND;
        while is(&request[at], "tembo.once") && command.takes(request.arg_count() - at) {
            at += ONCE_COMMAND;
        }
        let (inner, positions) = key_positions(registry, &request.from(at))?;
        return Ok((inner, positions.iter().map(|position| position + at).collect()));
    }
    let invalid_arguments = || Fault::Error("ERR Invalid arguments specified for command");
    Ok((command, places_of_keys(command, request).ok_or_else(invalid_arguments)?))
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
