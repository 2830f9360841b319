//! FAILOVER: see [`crate::master::failover`].

use std::sync::Arc;
use std::time::Duration;

use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::replicas::replicas_of;
use super::replication::read_master;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::history::Master;
use crate::master::failover::{Failover, FailoverStage};

pub(super) const HANDLERS: &[(&str, Handler)] = &[("failover", failover)];

fn refused(why: &'static str) -> Answer {
    Err(Fault::Error(why))
}

fn failover(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.state.cluster.is_some() {
        return refused("ERR FAILOVER not allowed in cluster mode.");
    }
    let (mut target, mut timeout, mut is_forced, mut aborts) = (None, None, false, false);
    let mut options = Options::after(request, 1);
    while let Some(word) = options.next() {
        match word {
            _ if is(word, "ABORT") => aborts = true,
            _ if is(word, "FORCE") => is_forced = true,
            _ if is(word, "TIMEOUT") && timeout.is_none() => {
                let ms = integer(options.value()?)?;
                let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0);
                timeout = Some(ms.ok_or(Fault::Error("ERR FAILOVER timeout must be greater than 0"))?);
            }
            _ if is(word, "TO") && target.is_none() => {
                let (host, port) = (options.value()?, options.value()?);
                let read = read_master(host, port);
                target = Some(read.map_err(|why| Fault::Quoting(format!("ERR {why}").into_bytes()))?);
            }
            _ => return Err(SYNTAX),
        }
    }
    if aborts {
        return abort(ctx, request);
    }
    if ctx.state.failover.is_some() {
        return refused("ERR FAILOVER already in progress.");
    }
    if ctx.state.role.master.is_some() {
        return refused("ERR FAILOVER is not valid when server is a replica.");
    }
    if is_forced && (target.is_none() || timeout.is_none()) {
        return refused("ERR FAILOVER with force option requires both a timeout and target HOST and IP.");
    }
    let replicas = replicas_of(ctx.clients.iter());
    if replicas.is_empty() {
        return refused("ERR FAILOVER requires connected replicas.");
    }
    if let Some(Master { host, port }) = &target
        && !replicas.iter().any(|(ip, replica)| (ip, replica.port) == (host, *port))
    {
        return refused("ERR FAILOVER target HOST and PORT is not a replica.");
    }
    let deadline = timeout.and_then(|ms| ctx.state.now.checked_add(Duration::from_millis(ms)));
    ctx.state.failover = Some(Failover {
        stage: FailoverStage::Waiting,
        target,
        deadline,
        is_forced,
        is_told: Arc::default(),
        is_given_up: false,
    });
    ctx.state.replicas.wants_acks = true;
    ctx.out.write().ok();
    Ok(())
}

/// The failover is given up at the end of the turn.
fn abort(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() > 2 {
        return Err(SYNTAX);
    }
    let Some(failover) = &mut ctx.state.failover else { return refused("ERR No failover in progress.") };
    failover.is_given_up = true;
    ctx.out.write().ok();
    Ok(())
}
