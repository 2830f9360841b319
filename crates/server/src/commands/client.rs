//! CLIENT: connections seen from above.

use std::time::{Duration, Instant};

use tembo_wire::number::{parse_i64, parse_u64};
use tembo_wire::{ReplyWriter, Request};

use super::args::{Options, integer, is, is_plain_name, quoting};
use super::connection::set_name;
use super::context::{Context, Handler, write_help};
use super::tracking;
use super::transaction::has_changed;
use crate::acl::users::Users;
use crate::address::Address;
use crate::conn::Conn;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::Keyspace;
use crate::replica::Phase;
use crate::session::{BufferSizes, Replies, Session, Standing};
use crate::state::Pause;
use crate::wait_service::{InVain, UNBLOCKED, end_in_vain};

pub(super) const HANDLERS: &[(&str, Handler)] = &[
    ("client", help),
    ("client|id", id),
    ("client|getname", getname),
    ("client|setname", setname),
    ("client|setinfo", setinfo),
    ("client|info", info),
    ("client|list", list),
    ("client|kill", kill),
    ("client|reply", reply),
    ("client|pause", pause),
    ("client|unpause", unpause),
    ("client|unblock", unblock),
    ("client|no-evict", no_evict),
    ("client|caching", tracking::caching),
    ("client|getredir", tracking::getredir),
    ("client|tracking", tracking::tracking),
    ("client|trackinginfo", tracking::trackinginfo),
    ("client|help", help),
];

fn id(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let id = ctx.session.id as i64;
    ctx.out.write().integer(id);
    Ok(())
}

fn getname(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let name = Some(&ctx.session.name[..]).filter(|name| !name.is_empty());
    ctx.out.bulk_or_null(name)
}

fn setname(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    set_name(ctx, &request[2])
}

fn setinfo(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let (option, value) = (&request[2], &request[3]);
    let target = match option {
        _ if is(option, "LIB-NAME") => &mut ctx.session.library_name,
        _ if is(option, "LIB-VER") => &mut ctx.session.library_version,
        _ => return Err(quoting("ERR Unrecognized option '", option, "'")),
    };
    if !is_plain_name(value) {
        let option = option.to_ascii_lowercase();
        return Err(quoting("ERR ", &option, " cannot contain spaces, newlines or special characters."));
    }
    *target = value.to_vec();
    ctx.out.write().ok();
    Ok(())
}

fn no_evict(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    ctx.session.no_evict = match &request[2] {
        word if is(word, "ON") => true,
        word if is(word, "OFF") => false,
        _ => return Err(SYNTAX),
    };
    ctx.out.write().ok();
    Ok(())
}

fn reply(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    match &request[2] {
        word if is(word, "ON") => {
            ctx.session.replies = Replies::On;
            ctx.out.write().ok();
        }
        word if is(word, "OFF") => ctx.session.replies = Replies::Off,
        word if is(word, "SKIP") => {
            if ctx.session.replies != Replies::Off {
                ctx.session.replies = Replies::SkipNext;
            }
        }
        _ => return Err(SYNTAX),
    }
    Ok(())
}

fn pause(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expect_at_most_four(request)?;
    let of_writes_only = match request.get(3) {
        None => false,
        Some(word) if is(word, "ALL") => false,
        Some(word) if is(word, "WRITE") => true,
        Some(_) => return Err(Fault::Error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let not_integer = Fault::Error("ERR timeout is not an integer or out of range");
    let ms = parse_i64(&request[2]).ok_or(not_integer)?;
    let ms = u64::try_from(ms).map_err(|_| Fault::Error("ERR timeout is negative"))?;
    let end = ctx.state.now.checked_add(Duration::from_millis(ms));
    let end = end.ok_or(Fault::Error("ERR timeout is out of range"))?;
    // A pause under way becomes longer and stricter only.
    let old = ctx.state.pause.filter(|pause| pause.end > ctx.state.now);
    let end = old.map_or(end, |old| old.end.max(end));
    let of_writes_only = of_writes_only && old.is_none_or(|old| old.of_writes_only);
    ctx.state.pause = Some(Pause { end, of_writes_only });
    ctx.out.write().ok();
    Ok(())
}

fn expect_at_most_four(request: &Request<'_>) -> Answer {
    if request.arg_count() <= 4 {
        return Ok(());
    }
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    Err(quoting(before, &request[1], "'. Try CLIENT HELP."))
}

fn unpause(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    ctx.state.pause = None;
    ctx.out.write().ok();
    Ok(())
}

fn unblock(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    expect_at_most_four(request)?;
    let how = match request.get(3) {
        None => InVain::Timeout,
        Some(word) if is(word, "TIMEOUT") => InVain::Timeout,
        Some(word) if is(word, "ERROR") => InVain::Error,
        Some(_) => return Err(Fault::Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = integer(&request[2])?;
    let slot = ctx.clients.iter().map(|conn| &conn.session).find(|session| session.id as i64 == id);
    let slot = slot.map(|session| session.slot);
    let conn = slot.and_then(|slot| ctx.clients.get_mut(slot));
    let now = ctx.state.now;
    let ended =
        conn.is_some_and(|conn| end_in_vain(conn, ctx.keys, how) || end_wait_for_copies(conn, how, now));
    if let Some(slot) = slot.filter(|_| ended) {
        ctx.clients.note_unblocked(slot);
    }
    ctx.out.write().integer(ended.into());
    Ok(())
}

/// Ends the wait of a client for copies of its writes, if there is one: as if its time were over, or by an
/// error.
fn end_wait_for_copies(conn: &mut Conn, how: InVain, now: Instant) -> bool {
    let Some(awaiting) = &mut conn.session.awaiting else { return false };
    match how {
        // The reply is made at the end of the turn, with the facts of that moment.
        InVain::Timeout => awaiting.deadline = Some(now),
        _ => {
            conn.session.awaiting = None;
            ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol).error(UNBLOCKED);
        }
    }
    true
}

fn info(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let line = own_line(ctx);
    ctx.out.write().verbatim(*b"txt", line);
    Ok(())
}

fn own_line(ctx: &Context<'_, '_>) -> Vec<u8> {
    // The buffers are lent to the command; the session has their sizes.
    let buffers = BufferSizes { output: ctx.out.len(), ..ctx.session.buffers };
    ctx.session.describe(ctx.state.now, standing(ctx.session, ctx.keys), buffers)
}

fn standing<'k>(session: &Session, keys: &'k Keyspace<'_>) -> Standing<'k> {
    Standing { changed: has_changed(session, keys), tracked: keys.pubsub.tracking.get(session.id) }
}

fn list(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let mut options = Options::after(request, 2);
    let mut class = None;
    let ids: Option<Vec<u64>> = match options.next() {
        None => None,
        Some(word) if is(word, "TYPE") && options.left() == 1 => {
            class = Some(Class::parse(options.value()?)?);
            None
        }
        Some(word) if is(word, "ID") && options.left() > 0 => {
            let invalid = || Fault::Error("ERR Invalid client ID");
            Some(options.map(|id| parse_u64(id).ok_or_else(invalid)).collect::<Answer<_>>()?)
        }
        Some(_) => return Err(SYNTAX),
    };
    let is_in = |session: &Session| class.is_none_or(|class| Class::of(session) == class);
    let mut lines = Vec::new();
    if is_in(ctx.session) {
        lines.push((ctx.session.id, own_line(ctx)));
    }
    let now = ctx.state.now;
    let keys = &*ctx.keys;
    let describe = |conn: &Conn| (conn.session.id, conn.describe(now, standing(&conn.session, keys)));
    lines.extend(ctx.clients.iter().filter(|conn| is_in(&conn.session)).map(describe));
    lines.retain(|(id, _)| ids.as_ref().is_none_or(|ids| ids.contains(id)));
    lines.sort_unstable_by_key(|(id, _)| *id);
    let text: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line).collect();
    ctx.out.write().verbatim(*b"txt", text);
    Ok(())
}

/// A type of clients.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Normal,
    Subscriber,
    Replica,
    /// The link to a master. No connection is of this type, as the link is not one of them.
    Master,
}

impl Class {
    fn parse(word: &[u8]) -> Answer<Self> {
        match word {
            _ if is(word, "normal") => Ok(Class::Normal),
            _ if is(word, "pubsub") => Ok(Class::Subscriber),
            _ if is(word, "replica") || is(word, "slave") => Ok(Class::Replica),
            _ if is(word, "master") => Ok(Class::Master),
            _ => Err(quoting("ERR Unknown client type '", word, "'")),
        }
    }

    fn of(session: &Session) -> Self {
        match &session.replica {
            Some(replica) if replica.is_asking() => Class::Replica,
            _ if session.is_subscriber() => Class::Subscriber,
            _ => Class::Normal,
        }
    }
}

/// Which connections CLIENT KILL is to close.
#[derive(Default)]
struct KillFilter<'a> {
    user: Option<&'a [u8]>,
    id: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    class: Option<Class>,
    skip_own: bool,
}

impl<'a> KillFilter<'a> {
    fn parse(mut options: Options<'a>, users: &Users) -> Answer<Self> {
        let mut filter = KillFilter { skip_own: true, ..KillFilter::default() };
        while let Some(word) = options.next() {
            let value = options.value()?;
            match word {
                _ if is(word, "ID") => {
                    let invalid = Fault::Error("ERR client-id should be greater than 0");
                    filter.id = Some(parse_u64(value).filter(|&id| id > 0).ok_or(invalid)?);
                }
                _ if is(word, "ADDR") => filter.peer = Some(value),
                _ if is(word, "LADDR") => filter.local = Some(value),
                _ if is(word, "TYPE") => filter.class = Some(Class::parse(value)?),
                _ if is(word, "USER") && users.get(value).is_some() => filter.user = Some(value),
                _ if is(word, "USER") => return Err(quoting("ERR No such user '", value, "'")),
                _ if is(word, "SKIPME") && is(value, "yes") => filter.skip_own = true,
                _ if is(word, "SKIPME") && is(value, "no") => filter.skip_own = false,
                _ => return Err(SYNTAX),
            }
        }
        Ok(filter)
    }

    /// Whether the filter asks for the link to the master, and sets no other condition.
    fn is_about_master(&self) -> bool {
        let others = (self.user, self.id, self.peer, self.local);
        self.class == Some(Class::Master) && others == (None, None, None, None)
    }

    fn wants(&self, session: &Session) -> bool {
        let is_at = |wanted: Option<&[u8]>, address: &Address| {
            wanted.is_none_or(|wanted| is_address(wanted, address))
        };
        self.class.is_none_or(|class| class == Class::of(session))
            && self.user.is_none_or(|name| name == &*session.user.name)
            && self.id.is_none_or(|id| id == session.id)
            && is_at(self.peer, &session.peer)
            && is_at(self.local, &session.local)
    }
}

fn is_address(text: &[u8], address: &Address) -> bool {
    text == address.to_string().as_bytes()
}

fn kill(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if request.arg_count() == 3 {
        let address = Some(&request[2]);
        let filter = KillFilter { peer: address, ..KillFilter::default() };
        return match kill_all(ctx, &filter) {
            0 => Err(Fault::Error("ERR No such client")),
            _ => {
                ctx.out.write().ok();
                Ok(())
            }
        };
    }
    let filter = KillFilter::parse(Options::after(request, 2), &ctx.state.users)?;
    let killed = kill_all(ctx, &filter);
    ctx.out.write().integer(killed);
    Ok(())
}

/// Closes the connections that `filter` wants, this one only after its reply; returns their number.
fn kill_all(ctx: &mut Context<'_, '_>, filter: &KillFilter<'_>) -> i64 {
    let mut killed = ctx.clients.kill(|conn| filter.wants(&conn.session));
    let role = &mut ctx.state.role;
    if filter.is_about_master() && matches!(role.phase, Phase::Up | Phase::Synchronising) {
        // The link is made again, and continues where it was.
        role.begin();
        killed += 1;
    }
    if !filter.skip_own && filter.wants(ctx.session) {
        ctx.session.quitting = true;
        killed += 1;
    }
    killed
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "CACHING (YES|NO)",
        "    Track what the next command reads (OPTIN), or do not (OPTOUT).",
        "GETNAME",
        "    The name of this connection.",
        "GETREDIR",
        "    The number of the client that gets this one's invalidations; 0 for none, -1 without tracking.",
        "ID",
        "    The number of this connection.",
        "INFO",
        "    A description of this connection.",
        "KILL <ip:port>",
        "    Close the connection from that address.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Close the connections with this ID, ADDR, LADDR, TYPE or USER; with SKIPME no also this one.",
        "LIST [TYPE <type> | ID <id> [...]]",
        "    A description of each connection.",
        "NO-EVICT (ON|OFF)",
        "    Exempt this connection from eviction (maxmemory-clients).",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Let the commands of all clients wait for so many milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Turn replies off and on, or skip the next one.",
        "SETINFO (LIB-NAME|LIB-VER) <value>",
        "    Say which library this connection comes from.",
        "SETNAME <name>",
        "    Name this connection.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
        "    Tell this connection, or another one, of changes of the keys that it reads or that begin so.",
        "TRACKINGINFO",
        "    A description of the tracking of this connection.",
        "UNBLOCK <id> [TIMEOUT|ERROR]",
        "    Let a client go on that waits in a command.",
        "UNPAUSE",
        "    End a pause.",
    ];
    write_help(&mut ctx.out, "client", &lines);
    Ok(())
}
