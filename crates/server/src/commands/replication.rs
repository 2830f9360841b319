//! REPLICAOF and ROLE: see [`crate::replica`].

use tembo_wire::Request;
use tembo_wire::number::parse_u64;

use super::args::is;
use super::context::{Context, Handler};
use super::replicas::replicas_of;
use crate::config::LogLevel;
use crate::fault::{Answer, Fault};
use crate::keyspace::history::{HOST_BYTES_MAX, Master};
use crate::log::MessageKind;
use crate::replica::Phase;

pub(super) const HANDLERS: &[(&str, Handler)] =
    &[("replicaof", replicaof), ("slaveof", replicaof), ("role", role)];

/// Reads the address of a master.
pub(crate) fn read_master(host: &[u8], port: &[u8]) -> Result<Master, &'static str> {
    let port = parse_u64(port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let port = port.ok_or("Invalid master port")?;
    let host = str::from_utf8(host).ok();
    let is_host = |host: &&str| (1..=HOST_BYTES_MAX).contains(&host.len()) && host.chars().all(|c| c > ' ');
    let host = host.filter(is_host).ok_or("Invalid master host")?.to_owned();
    Ok(Master { host, port })
}

/// The role is durable before the answer is sent: see [`crate::replica::link`].
fn replicaof(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    if ctx.state.failover.is_some() {
        return Err(Fault::Error("ERR REPLICAOF not allowed while failing over."));
    }
    let role = &mut ctx.state.role;
    let master = match (is(&request[1], "NO"), is(&request[2], "ONE")) {
        (true, true) => None,
        _ => {
            let read = read_master(&request[1], &request[2]);
            Some(read.map_err(|why| Fault::Quoting(format!("ERR {why}").into_bytes()))?)
        }
    };
    if role.master == master {
        let text = "OK Already connected to specified master";
        if matches!(role.phase, Phase::Stopped | Phase::Down) {
            // A command that cannot be applied is tried again.
            role.begin();
        }
        ctx.out.write().simple(if master.is_some() { text } else { "OK" });
        return Ok(());
    }
    let text = match &master {
        Some(Master { host, port }) => format!("this is a replica of {host}:{port} from now on"),
        None => "this is a master from now on".to_owned(),
    };
    let is_promoted = master.is_none();
    role.choose(master);
    if is_promoted {
        // Writes from now on belong to a history of this server's own.
        let id = ctx.state.random_id();
        ctx.keys.replication.rename(id);
        ctx.keys.replication.take_up(true);
    }
    ctx.state.log(LogLevel::Notice, MessageKind::Replication, format_args!("{text}"));
    ctx.out.write().ok();
    Ok(())
}

fn role(ctx: &mut Context<'_, '_>, _: &Request<'_>) -> Answer {
    let replicas = replicas_of(ctx.clients.iter());
    let (role, offset) = (&ctx.state.role, ctx.keys.replication.position.map(|position| position.offset));
    let mut reply = ctx.out.write();
    let Some(Master { host, port }) = &role.master else {
        reply.array(3);
        reply.bulk("master");
        reply.integer(offset.unwrap_or(0) as i64);
        let online: Vec<_> = replicas.iter().filter(|(_, replica)| replica.is_online()).collect();
        reply.array(online.len());
        for (ip, replica) in online {
            reply.array(3);
            reply.bulk(ip);
            reply.bulk(replica.port.to_string());
            reply.bulk(replica.acknowledged.to_string());
        }
        return Ok(());
    };
    reply.array(5);
    reply.bulk("slave");
    reply.bulk(host);
    reply.integer((*port).into());
    reply.bulk(role.phase.name());
    reply.integer(offset.map_or(-1, |offset| offset as i64));
    Ok(())
}
