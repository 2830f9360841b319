//! INFO.

use tembo_wire::Request;

use super::context::{Context, Handler};
use crate::fault::Answer;
use crate::info::{self, Facts};

pub(super) const HANDLERS: &[(&str, Handler)] = &[("info", info)];

fn info(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let facts = Facts::of(ctx.keys, ctx.state, ctx.clients, ctx.scripts)?;
    let wanted: Vec<_> = request.args().skip(1).collect();
    let text = info::write(&facts, &wanted);
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}
