//! INFO.

use tembo_wire::Request;

use super::Context;
use super::table::Command;
use super::table::flag::{DANGEROUS, LOADING, STALE};
use crate::fault::Answer;
use crate::info::{self, Facts};

pub(super) const COMMANDS: &[Command] = &[Command::new("info", -1, LOADING | STALE | DANGEROUS, info)
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .doc("server", "1.0.0", "Describes the server, by sections")];

fn info(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let facts = Facts::of(ctx.keys, ctx.state, ctx.clients, ctx.scripts)?;
    let wanted: Vec<_> = request.args().skip(1).collect();
    let text = info::write(&facts, &wanted);
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}
