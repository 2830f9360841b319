//! CLIENT: connections seen from above.

use tembo_wire::Request;
use tembo_wire::number::parse_u64;

use super::args::{Options, is, is_plain_name, quoting};
use super::connection::set_name;
use super::table::Command;
use super::table::flag::{ADMIN, CONNECTION, LOADING, NOSCRIPT, STALE};
use super::transaction::has_changed;
use super::{Context, write_help};
use crate::address::Address;
use crate::conn::Conn;
use crate::fault::{Answer, Fault, SYNTAX};
use crate::session::{BufferSizes, Session};

const OWN: u32 = NOSCRIPT | LOADING | STALE | CONNECTION;
const OTHERS: u32 = OWN | ADMIN;

pub(super) const COMMANDS: &[Command] = &[Command::new("client", -2, 0, help)
    .doc("connection", "2.4.0", "Tells about connections and changes them")
    .subcommands(&[
        Command::new("client|id", 2, OWN, id).doc(
            "connection",
            "5.0.0",
            "Returns the number of this connection",
        ),
        Command::new("client|getname", 2, OWN, getname).doc(
            "connection",
            "2.6.9",
            "Returns the name of this connection",
        ),
        Command::new("client|setname", 3, OWN, setname).doc("connection", "2.6.9", "Names this connection"),
        Command::new("client|setinfo", 4, OWN, setinfo).doc(
            "connection",
            "7.2.0",
            "Says which library this connection comes from",
        ),
        Command::new("client|info", 2, OWN, info).tips(&["nondeterministic_output"]).doc(
            "connection",
            "6.2.0",
            "Describes this connection",
        ),
        Command::new("client|list", -2, OTHERS, list).tips(&["nondeterministic_output"]).doc(
            "connection",
            "2.4.0",
            "Describes all connections",
        ),
        Command::new("client|kill", -3, OTHERS, kill).doc("connection", "2.4.0", "Closes connections"),
        Command::new("client|no-evict", 3, OTHERS, no_evict).doc(
            "connection",
            "7.0.0",
            "Exempts this connection from eviction",
        ),
        Command::new("client|help", 2, LOADING | STALE | CONNECTION, help).doc(
            "connection",
            "5.0.0",
            "Explains the subcommands",
        ),
    ])];

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

fn info(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let line = own_line(ctx);
    ctx.out.write().verbatim(*b"txt", line);
    Ok(())
}

fn own_line(ctx: &Context<'_, '_>) -> Vec<u8> {
    // Its buffers are lent to the command, all but their sizes.
    let buffers = BufferSizes { output: ctx.out.len(), ..ctx.session.buffers };
    let changed = has_changed(ctx.session, ctx.keys);
    ctx.session.describe(ctx.state.now, changed, buffers)
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
    let describe = |conn: &Conn| (conn.session.id, conn.describe(now, has_changed(&conn.session, keys)));
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
    /// There are none of these.
    Replication,
}

impl Class {
    fn parse(word: &[u8]) -> Answer<Self> {
        match word {
            _ if is(word, "normal") => Ok(Class::Normal),
            _ if is(word, "pubsub") => Ok(Class::Subscriber),
            _ if ["master", "replica", "slave"].iter().any(|class| is(word, class)) => Ok(Class::Replication),
            _ => Err(quoting("ERR Unknown client type '", word, "'")),
        }
    }

    fn of(session: &Session) -> Self {
        if session.is_subscriber() { Class::Subscriber } else { Class::Normal }
    }
}

/// Which connections CLIENT KILL is to close.
struct KillFilter<'a> {
    id: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    class: Option<Class>,
    skip_own: bool,
}

impl<'a> KillFilter<'a> {
    fn parse(mut options: Options<'a>) -> Answer<Self> {
        let mut filter = KillFilter { id: None, peer: None, local: None, class: None, skip_own: true };
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
                _ if is(word, "USER") && value == b"default" => {}
                _ if is(word, "USER") => return Err(quoting("ERR No such user '", value, "'")),
                _ if is(word, "SKIPME") && is(value, "yes") => filter.skip_own = true,
                _ if is(word, "SKIPME") && is(value, "no") => filter.skip_own = false,
                _ => return Err(SYNTAX),
            }
        }
        Ok(filter)
    }

    fn wants(&self, session: &Session) -> bool {
        let is_at = |wanted: Option<&[u8]>, address: &Address| {
            wanted.is_none_or(|wanted| is_address(wanted, address))
        };
        self.class.is_none_or(|class| class == Class::of(session))
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
        let filter = KillFilter { id: None, peer: address, local: None, class: None, skip_own: false };
        return match kill_all(ctx, &filter) {
            0 => Err(Fault::Error("ERR No such client")),
            _ => {
                ctx.out.write().ok();
                Ok(())
            }
        };
    }
    let filter = KillFilter::parse(Options::after(request, 2))?;
    let killed = kill_all(ctx, &filter);
    ctx.out.write().integer(killed);
    Ok(())
}

/// Closes the connections that `filter` wants, this one only after its reply; returns their number.
fn kill_all(ctx: &mut Context<'_, '_>, filter: &KillFilter<'_>) -> i64 {
    let mut killed = ctx.clients.kill(|conn| filter.wants(&conn.session));
    if !filter.skip_own && filter.wants(ctx.session) {
        ctx.session.quitting = true;
        killed += 1;
    }
    killed
}

fn help(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let lines = [
        "GETNAME",
        "    The name of this connection.",
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
        "SETINFO (LIB-NAME|LIB-VER) <value>",
        "    Say which library this connection comes from.",
        "SETNAME <name>",
        "    Name this connection.",
    ];
    write_help(&mut ctx.out, "client", &lines);
    Ok(())
}
