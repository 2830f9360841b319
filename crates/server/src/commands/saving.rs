//! SAVE, BGSAVE and LASTSAVE: see [`crate::saving`].

use tembo_wire::Request;

use super::Context;
use super::args::is;
use super::table::Command;
use super::table::flag::{
    ADMIN, ADMIN_ONLY, DANGEROUS, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, STALE,
};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::pubsub::ClientRef;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("save", 1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, save_now).doc(
        "server",
        "1.0.0",
        "Writes all keys into a file of Redis, and answers when it is on the device",
    ),
    Command::new("bgsave", -1, ADMIN | NOSCRIPT | NO_ASYNC_LOADING, schedule).doc(
        "server",
        "1.0.0",
        "Writes all keys into a file of Redis while commands go on",
    ),
    Command::new("lastsave", 1, LOADING | STALE | FAST | ADMIN_ONLY | DANGEROUS, last)
        .tips(&["nondeterministic_output"])
        .doc("server", "1.0.0", "Returns when the keys were saved last, in seconds"),
];

fn save_now(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    begin(ctx)?;
    ctx.session.is_saving = true;
    ctx.state.copier.saving.push(ClientRef { slot: ctx.session.slot, id: ctx.session.id });
    Ok(())
}

fn schedule(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 2 || request.get(1).is_some_and(|word| !is(word, "SCHEDULE")) {
        return Err(SYNTAX);
    }
    begin(ctx)?;
    ctx.out.write().simple("Background saving started");
    Ok(())
}

/// The save begins at the end of the turn.
fn begin(ctx: &mut Context<'_, '_>) -> Answer {
    let saving = &mut ctx.state.saving;
    if std::mem::replace(&mut saving.is_scheduled, true) {
        return Err(Fault::Error("ERR Background save already in progress"));
    }
    saving.changes_before = saving.changes;
    Ok(())
}

fn last(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let seconds = ctx.state.saving.last_seconds;
    ctx.out.write().integer(seconds as i64);
    Ok(())
}
