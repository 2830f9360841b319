//! SAVE, BGSAVE and LASTSAVE: see [`crate::saving`].

use tembo_wire::Request;

use super::args::is;
use super::context::{Context, Handler};
use crate::client_ref::ClientRef;
use crate::fault::{Answer, Fault, SYNTAX};

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("save", save_now), ("bgsave", schedule), ("lastsave", last)];

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
