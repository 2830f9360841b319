//! Publish and subscribe. Messages leave after the commit that they depend on: see [`crate::pubsub`].

use std::rc::Rc;

use tembo_wire::Request;

use super::args;
use super::context::{Context, Handler, write_help};
use crate::fault::{Answer, Fault};
use crate::glob;
use crate::subscriptions::SubscriptionKind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("subscribe", subscribe),
    ("psubscribe", psubscribe),
    ("ssubscribe", ssubscribe),
    ("unsubscribe", unsubscribe),
    ("punsubscribe", punsubscribe),
    ("sunsubscribe", sunsubscribe),
    ("publish", publish),
    ("spublish", spublish),
    ("pubsub", help),
    ("pubsub|channels", channels),
    ("pubsub|numsub", numsub),
    ("pubsub|numpat", numpat),
    ("pubsub|shardchannels", shardchannels),
    ("pubsub|shardnumsub", shardnumsub),
    ("pubsub|help", help),
];

fn subscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    subscribe_all(ctx, request, SubscriptionKind::Channel, "subscribe")
}

fn psubscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    subscribe_all(ctx, request, SubscriptionKind::Pattern, "psubscribe")
}

fn ssubscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    subscribe_all(ctx, request, SubscriptionKind::Shard, "ssubscribe")
}

fn subscribe_all(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    kind: SubscriptionKind,
    word: &str,
) -> Answer {
    for name in request.args().skip(1) {
        ctx.keys.pubsub.subscribe(ctx.session, kind, name);
        tell(ctx, word, Some(name), kind);
    }
    Ok(())
}

/// Tells a client of a change of its subscriptions.
fn tell(ctx: &mut Context<'_, '_>, word: &str, name: Option<&[u8]>, kind: SubscriptionKind) {
    let count = ctx.session.subscriptions.count(kind) as i64;
    let mut reply = ctx.out.write();
    reply.push(3);
    reply.bulk(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count);
}

fn unsubscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    unsubscribe_all(ctx, request, SubscriptionKind::Channel, "unsubscribe")
}

fn punsubscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    unsubscribe_all(ctx, request, SubscriptionKind::Pattern, "punsubscribe")
}

fn sunsubscribe(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    unsubscribe_all(ctx, request, SubscriptionKind::Shard, "sunsubscribe")
}

/// Ends the subscriptions that are named, or all of a kind.
fn unsubscribe_all(
    ctx: &mut Context<'_, '_>,
    request: &Request<'_>,
    kind: SubscriptionKind,
    word: &str,
) -> Answer {
    expect_delivered(ctx)?;
    if request.arg_count() == 1 {
        let names: Vec<Rc<[u8]>> = ctx.session.subscriptions.names(kind);
        if names.is_empty() {
            tell(ctx, word, None, kind);
        }
        for name in names {
            ctx.keys.pubsub.unsubscribe(ctx.session, kind, &name);
            tell(ctx, word, Some(&name), kind);
        }
        return Ok(());
    }
    for name in request.args().skip(1) {
        ctx.keys.pubsub.unsubscribe(ctx.session, kind, name);
        tell(ctx, word, Some(name), kind);
    }
    Ok(())
}

/// Has the messages that are on their way delivered before a subscriber gives up. EXEC has that done before
/// its first command.
pub(super) fn expect_delivered(ctx: &Context<'_, '_>) -> Answer {
    let is_subscriber = !ctx.session.subscriptions.is_empty();
    if is_subscriber && ctx.session.queue.is_none() && ctx.keys.pubsub.has_messages() {
        return Err(Fault::NeedsCommit);
    }
    Ok(())
}

fn publish(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    send(ctx, request, SubscriptionKind::Channel)
}

fn spublish(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    send(ctx, request, SubscriptionKind::Shard)
}

fn send(ctx: &mut Context<'_, '_>, request: &Request<'_>, kind: SubscriptionKind) -> Answer {
    let depends = ctx.keys.is_dirty();
    let receivers = ctx.keys.pubsub.publish(kind, &request[1], &request[2], depends);
    ctx.out.write().integer(receivers as i64);
    Ok(())
}

fn channels(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    list(ctx, request, SubscriptionKind::Channel)
}

fn shardchannels(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    list(ctx, request, SubscriptionKind::Shard)
}

fn list(ctx: &mut Context<'_, '_>, request: &Request<'_>, kind: SubscriptionKind) -> Answer {
    if request.arg_count() > 3 {
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        return Err(args::quoting(before, &request[1], "'. Try PUBSUB HELP."));
    }
    let pattern = request.get(2).unwrap_or(b"*");
    let matching = |name: &&[u8]| glob::matches(pattern, name, false);
    let names: Vec<_> = ctx.keys.pubsub.channels(kind).filter(matching).collect();
    ctx.out.write().array(names.len());
    names.into_iter().try_for_each(|name| ctx.out.bulk(name))
}

fn numsub(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    count(ctx, request, SubscriptionKind::Channel)
}

fn shardnumsub(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    count(ctx, request, SubscriptionKind::Shard)
}

fn count(ctx: &mut Context<'_, '_>, request: &Request<'_>, kind: SubscriptionKind) -> Answer {
    let pubsub = &ctx.keys.pubsub;
    let mut reply = ctx.out.write();
    reply.array(2 * (request.arg_count() - 2));
    for name in request.args().skip(2) {
        reply.bulk(name);
        reply.integer(pubsub.subscribers(kind, name) as i64);
    }
    Ok(())
}

fn numpat(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let patterns = ctx.keys.pubsub.patterns_len();
    ctx.out.write().integer(patterns as i64);
    Ok(())
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "CHANNELS [<pattern>]",
        "    The channels that have subscribers and match the pattern.",
        "NUMPAT",
        "    How many patterns have subscribers.",
        "NUMSUB [<channel> ...]",
        "    How many have subscribed to each channel, without those of patterns.",
        "SHARDCHANNELS [<pattern>]",
        "    The channels of shards that have subscribers and match the pattern.",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    How many have subscribed to each channel of a shard.",
    ];
    write_help(&mut ctx.out, "pubsub", &lines);
    Ok(())
}
