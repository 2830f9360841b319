//! The subcommands of CLIENT about client-side caching, which is not offered: it is off for all connections.

use tembo_wire::Request;

use super::Context;
use super::args::{Options, integer, is};
use crate::fault::{Answer, Fault, SYNTAX};

pub(super) fn caching(_: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
    Err(Fault::Error(text))
}

pub(super) fn getredir(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.out.write().integer(-1);
    Ok(())
}

pub(super) fn trackinginfo(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let mut reply = ctx.out.write();
    reply.map(3);
    reply.bulk("flags");
    reply.set(1);
    reply.bulk("off");
    reply.bulk("redirect");
    reply.integer(-1);
    reply.bulk("prefixes");
    reply.array(0);
    Ok(())
}

pub(super) fn tracking(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut options = Options::after(request, 3);
    while let Some(word) = options.next() {
        match word {
            _ if is(word, "REDIRECT") && options.left() >= 1 => drop(integer(options.value()?)?),
            _ if is(word, "PREFIX") && options.left() >= 1 => drop(options.value()?),
            _ if ["BCAST", "OPTIN", "OPTOUT", "NOLOOP"].iter().any(|option| is(word, option)) => {}
            _ => return Err(SYNTAX),
        }
    }
    match &request[2] {
        word if is(word, "OFF") => ctx.out.write().ok(),
        word if is(word, "ON") => return Err(Fault::Error("ERR client-side caching is not offered")),
        _ => return Err(SYNTAX),
    }
    Ok(())
}
