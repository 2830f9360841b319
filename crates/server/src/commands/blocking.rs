//! Beginning to wait for a key: the common part of commands that may wait. The rest is in [`crate::waiting`].

use std::time::{Duration, Instant};

use tembo_wire::{Request, RequestQueue};

use super::context::Context;
use crate::client_ref::ClientRef;
use crate::fault::{Answer, Fault};
use crate::keyspace::format::Kind;
use crate::waiting::Waiting;

/// How long a client wants to wait.
#[derive(Clone, Copy)]
pub(super) struct Timeout {
    /// `None`: for ever.
    deadline: Option<Instant>,
}

impl Timeout {
    /// Reads seconds, which may have a fraction; 0 is for ever.
    pub(super) fn parse(ctx: &Context<'_, '_>, arg: &[u8]) -> Answer<Self> {
        let seconds = std::str::from_utf8(arg).ok().and_then(|text| text.parse::<f64>().ok());
        let invalid = Fault::Error("ERR timeout is not a float or out of range");
        let ms = (seconds.filter(|seconds| !seconds.is_nan()).ok_or(invalid)? * 1000.0).ceil();
        // Redis also calls a timeout negative that is too long.
        if ms < 0.0 || ms >= i64::MAX as f64 {
            return Err(Fault::Error("ERR timeout is negative"));
        }
        let deadline = ctx.state.now.checked_add(Duration::from_millis(ms as u64));
        Ok(Timeout { deadline: deadline.filter(|_| ms > 0.0) })
    }
}

/// Lets the client wait for one of these keys to have a value of this type; then the command runs again.
/// Tells whether the client waits: within MULTI none does.
pub(super) fn wait(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    kind: Kind,
    keys: &[&[u8]],
    timeout: Timeout,
) -> bool {
    if ctx.session.queue.is_some() {
        return false;
    }
    let Some(command) = ctx.state.registry.get(request.name()) else {
        return false;
    };
    // A command that ran again without a result keeps waiting.
    if ctx.session.waiting.is_none() {
        let mut requests = RequestQueue::default();
        requests.push(request);
        let keys = keys.iter().map(|key| (*key).into()).collect();
        let when = (timeout.deadline, ctx.keys.waiters.draw());
        let waiting = Waiting::new(command, requests, (kind, ctx.session.database), keys, when);
        waiting.enter(&mut ctx.keys.waiters, ClientRef { slot: ctx.session.slot, id: ctx.session.id });
        ctx.session.waiting = Some(Box::new(waiting));
    }
    true
}
