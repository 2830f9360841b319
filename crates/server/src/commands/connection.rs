//! Commands about the client's own connection.

use tembo_wire::number::parse_i64;
use tembo_wire::{Protocol, Request};

use super::args::{self, Options, is, is_plain_name, quoting};
use super::context::{Context, Handler};
use super::pubsub::expect_delivered;
use super::transaction;
use crate::config::LogLevel;
use crate::fault::{Answer, Fault};
use crate::log::MessageKind;
use crate::permission::note_wrong_password;
use crate::session::Replies;
use crate::version::REDIS_VERSION;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("ping", ping),
    ("echo", echo),
    ("hello", hello),
    ("auth", auth),
    ("select", select),
    ("quit", quit),
    ("reset", reset),
];

const BAD_CLIENT_NAME: Fault =
    Fault::Error("ERR Client names cannot contain spaces, newlines or special characters.");

fn ping(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 2 {
        return Err(Fault::Error("ERR wrong number of arguments for 'ping' command"));
    }
    if ctx.session.is_subscriber() && ctx.out.protocol == Protocol::Resp2 {
        let mut reply = ctx.out.write();
        reply.array(2);
        reply.bulk("pong");
        reply.bulk(request.get(1).unwrap_or_default());
        return Ok(());
    }
    match request.get(1) {
        None => ctx.out.write().simple("PONG"),
        Some(text) => ctx.out.write().bulk(text),
    }
    Ok(())
}

fn echo(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    ctx.out.write().bulk(&request[1]);
    Ok(())
}

fn select(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let database = args::database(&request[1])?;
    if database >= ctx.keys.layout().databases() {
        return Err(Fault::Error("ERR SELECT is not allowed in cluster mode"));
    }
    ctx.session.database = database;
    ctx.out.write().ok();
    Ok(())
}

fn quit(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.session.quitting = true;
    ctx.out.write().ok();
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    expect_delivered(ctx)?;
    transaction::discard(ctx.session, ctx.keys);
    ctx.keys.pubsub.part_with(ctx.session);
    let session = &mut *ctx.session;
    session.database = 0;
    session.protocol = Protocol::Resp2;
    session.name.clear();
    session.no_evict = false;
    session.reads_replica = false;
    session.replies = Replies::On;
    session.user = ctx.state.users.default_user().clone();
    session.authenticated = !ctx.state.users.ask_for_password();
    ctx.out.write().simple("RESET");
    Ok(())
}

fn auth(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    match request.arg_count() {
        2 if ctx.state.users.default_user().any_password => {
            return Err(Fault::Error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(ctx, request, b"default", &request[1])?,
        3 => authenticate(ctx, request, &request[1], &request[2])?,
        _ => return Err(Fault::Error("ERR syntax error")),
    }
    ctx.out.write().ok();
    Ok(())
}

/// Logs a client in as the user whose password it gives.
fn authenticate(ctx: &mut Context<'_, '_>, request: &Request<'_>, user: &[u8], password: &[u8]) -> Answer {
    if let Some(user) = ctx.state.users.authenticate(user, password) {
        (ctx.session.user, ctx.session.authenticated) = (user.clone(), true);
        return Ok(());
    }
    note_wrong_password(ctx.state, ctx.session, user, request.name());
    let message = format_args!("client {} gave a wrong password", ctx.session);
    ctx.state.log(LogLevel::Warning, MessageKind::Security, message);
    Err(Fault::Error("WRONGPASS invalid username-password pair or user is disabled."))
}

fn hello(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut protocol = ctx.session.protocol;
    if let Some(version) = request.get(1) {
        let not_integer = Fault::Error("ERR Protocol version is not an integer or out of range");
        let version = parse_i64(version).ok_or(not_integer)?;
        let unsupported = Fault::Error("NOPROTO unsupported protocol version");
        protocol = Protocol::from_version(version).ok_or(unsupported)?;
    }
    let mut name = None;
    let mut options = Options::after(request, 2);
    while let Some(word) = options.next() {
        if is(word, "AUTH") && options.left() >= 2 {
            let (user, password) = (options.value()?, options.value()?);
            authenticate(ctx, request, user, password)?;
        } else if is(word, "SETNAME") && options.left() >= 1 {
            name = Some(options.value()?);
            if !name.is_some_and(is_plain_name) {
                return Err(BAD_CLIENT_NAME);
            }
        } else {
            return Err(quoting("ERR Syntax error in HELLO option '", word, "'"));
        }
    }
    if ctx.state.users.ask_for_password() && !ctx.session.authenticated {
        return Err(Fault::Error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        ctx.session.name = name.to_vec();
    }
    (ctx.session.protocol, ctx.out.protocol) = (protocol, protocol);
    write_introduction(ctx);
    Ok(())
}

fn write_introduction(ctx: &mut Context<'_, '_>) {
    let id = ctx.session.id as i64;
    let role = if ctx.state.role.master.is_some() { "replica" } else { "master" };
    let mode = if ctx.state.cluster.is_some() { "cluster" } else { "standalone" };
    let mut reply = ctx.out.write();
    let version = reply.protocol().version();
    reply.map(7);
    reply.bulk("server");
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk(REDIS_VERSION);
    reply.bulk("proto");
    reply.integer(version);
    reply.bulk("id");
    reply.integer(id);
    reply.bulk("mode");
    reply.bulk(mode);
    reply.bulk("role");
    reply.bulk(role);
    reply.bulk("modules");
    reply.array(0);
}

pub(super) fn set_name(ctx: &mut Context<'_, '_>, name: &[u8]) -> Answer {
    if !is_plain_name(name) {
        return Err(BAD_CLIENT_NAME);
    }
    ctx.session.name = name.to_vec();
    ctx.out.write().ok();
    Ok(())
}
