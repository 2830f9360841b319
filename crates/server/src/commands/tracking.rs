//! The subcommands of CLIENT about client-side caching: see [`crate::tracking`].

use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::Context;
use crate::client_ref::ClientRef;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::session::Session;
use crate::tracking::{Mode, Tracked, Wanted};

pub(super) fn caching(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let Some(tracked) = ctx.keys.pubsub.tracking.get(ctx.session.id) else {
        let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
        return Err(Fault::Error(text));
    };
    match &request[2] {
        word if is(word, "YES") && tracked.mode != Mode::OptIn => {
            let text = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
            return Err(Fault::Error(text));
        }
        word if is(word, "NO") && tracked.mode != Mode::OptOut => {
            let text = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
            return Err(Fault::Error(text));
        }
        word if is(word, "YES") || is(word, "NO") => {}
        _ => return Err(SYNTAX),
    }
    ctx.session.tracking.caching = true;
    ctx.out.write().ok();
    Ok(())
}

pub(super) fn getredir(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let redirect = ctx.keys.pubsub.tracking.get(ctx.session.id).map_or(-1, Tracked::redirect_id);
    ctx.out.write().integer(redirect);
    Ok(())
}

pub(super) fn trackinginfo(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let tracked = ctx.keys.pubsub.tracking.get(ctx.session.id);
    let mut flags = vec![if tracked.is_some() { "on" } else { "off" }];
    let caching = ctx.session.tracking.caching;
    match tracked.map(|tracked| tracked.mode) {
        None | Some(Mode::Reads) => {}
        Some(Mode::Broadcast) => flags.push("bcast"),
        Some(Mode::OptIn) => flags.extend(["optin"].into_iter().chain(caching.then_some("caching-yes"))),
        Some(Mode::OptOut) => flags.extend(["optout"].into_iter().chain(caching.then_some("caching-no"))),
    }
    flags.extend(tracked.filter(|tracked| tracked.no_loop).map(|_| "noloop"));
    flags.extend(tracked.filter(|tracked| tracked.is_broken).map(|_| "broken_redirect"));
    let mut reply = ctx.out.write();
    reply.map(3);
    reply.bulk("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("redirect");
    reply.integer(tracked.map_or(-1, Tracked::redirect_id));
    reply.bulk("prefixes");
    let prefixes = || tracked.iter().flat_map(|tracked| &tracked.prefixes);
    reply.array(prefixes().count());
    prefixes().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

pub(super) fn tracking(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let asked = TrackingOptions::parse(ctx, Options::after(request, 3))?;
    let client = own(ctx.session);
    match &request[2] {
        word if is(word, "OFF") => {
            ctx.keys.pubsub.tracking.disable(client.id, &mut ctx.session.tracking);
        }
        word if is(word, "ON") => {
            let wanted = asked.expect_possible(ctx.keys.pubsub.tracking.get(client.id))?;
            ctx.keys.pubsub.tracking.enable(client, &mut ctx.session.tracking, wanted);
        }
        _ => return Err(SYNTAX),
    }
    ctx.out.write().ok();
    Ok(())
}

fn own(session: &Session) -> ClientRef {
    ClientRef { slot: session.slot, id: session.id }
}

/// Prefixes among which those that overlap are looked for, so that the error can name them: each is compared
/// with all others.
const NAMED_PREFIXES_MAX: usize = 256;

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct TrackingOptions<'a> {
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    redirect: Option<ClientRef>,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> TrackingOptions<'a> {
    fn parse(ctx: &Context<'_, '_>, mut options: Options<'a>) -> Answer<Self> {
        let mut asked = TrackingOptions::default();
        while let Some(word) = options.next() {
            match word {
                _ if is(word, "REDIRECT") && options.left() >= 1 => {
                    if asked.redirect.is_some() {
                        let text = "ERR A client can only redirect to a single other client";
                        return Err(Fault::Error(text));
                    }
                    asked.redirect = Some(find(ctx, integer(options.value()?)?)?);
                }
                _ if is(word, "PREFIX") && options.left() >= 1 => asked.prefixes.push(options.value()?),
                _ if is(word, "BCAST") => asked.broadcast = true,
                _ if is(word, "OPTIN") => asked.opt_in = true,
                _ if is(word, "OPTOUT") => asked.opt_out = true,
                _ if is(word, "NOLOOP") => asked.no_loop = true,
                _ => return Err(SYNTAX),
            }
        }
        Ok(asked)
    }

    /// The options asked for, if they go together, and with the tracking so far.
    fn expect_possible(self, old: Option<&Tracked>) -> Answer<Wanted<'a>> {
        let was = |mode| old.is_some_and(|old| old.mode == mode);
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err(Fault::Error("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if old.is_some() && self.broadcast != was(Mode::Broadcast) {
            return Err(Fault::Error(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            ));
        }
        if self.broadcast && (self.opt_in || self.opt_out) {
            return Err(Fault::Error("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(Fault::Error("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if self.opt_in && was(Mode::OptOut) || self.opt_out && was(Mode::OptIn) {
            return Err(Fault::Error(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            ));
        }
        expect_apart(&self.prefixes, old)?;
        let mode = match (self.broadcast, self.opt_in, self.opt_out) {
            (true, ..) => Mode::Broadcast,
            (_, true, _) => Mode::OptIn,
            (.., true) => Mode::OptOut,
            _ => Mode::Reads,
        };
        let TrackingOptions { no_loop, redirect, prefixes, .. } = self;
        Ok(Wanted { mode, no_loop, redirect, prefixes })
    }
}

/// The client with this number.
fn find(ctx: &Context<'_, '_>, id: i64) -> Answer<ClientRef> {
    let mut all = std::iter::once(&*ctx.session).chain(ctx.clients.iter().map(|conn| &conn.session));
    let found = all.find(|session| session.id as i64 == id).map(own);
    found.ok_or(Fault::Error("ERR The client ID you want redirect to does not exist"))
}

/// Fails if beginnings of keys of one client overlap: it would be told twice.
fn expect_apart(prefixes: &[&[u8]], old: Option<&Tracked>) -> Answer {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let existing = || old.into_iter().flat_map(|old| old.prefixes.iter().map(|prefix| &**prefix));
    let mut sorted: Vec<&[u8]> = existing().chain(prefixes.iter().copied()).collect();
    sorted.sort_unstable();
    // In sorted order, a prefix that is the beginning of others is followed by one of them.
    if !prefixes.is_empty() && !sorted.windows(2).any(|pair| pair[1].starts_with(pair[0])) {
        return Ok(());
    }
    let refuse = |own: &[u8], how: &[u8], other: &[u8]| {
        let texts: [&[u8]; 6] =
            [b"ERR Prefix '", own, how, other, b"'. ", b"Prefixes for a single client must not overlap."];
        Err(Fault::Quoting(texts.concat()))
    };
    for (index, prefix) in prefixes.iter().enumerate().take(NAMED_PREFIXES_MAX) {
        if let Some(existing) = existing().find(|existing| overlap(existing, prefix)) {
            return refuse(prefix, b"' overlaps with an existing prefix '", existing);
        }
        if let Some(other) = prefixes[index + 1..].iter().find(|other| overlap(prefix, other)) {
            return refuse(prefix, b"' overlaps with another provided prefix '", other);
        }
    }
    match prefixes.len() > NAMED_PREFIXES_MAX {
        true => Err(Fault::Error("ERR Prefixes for a single client must not overlap.")),
        false => Ok(()),
    }
}
