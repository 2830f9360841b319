//! Pools that another process has open, and whose stores it serves.

use crate::causes::pool_error;
use crate::failure::{Failure, Kind, Outcome};
use std::path::{Path, PathBuf};
use tembo::PoolErrorKind;
use tembo::store::remote::{RemoteStore, socket_of};

/// The place where the owner of a pool serves its stores.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    /// The names of the stores.
    pub(crate) names: Vec<String>,
}

impl Served {
    /// Looks for the owner of a pool that could not be opened. A failure for other reasons is returned
    /// unchanged. If no process serves the pool, the failure says how to serve it.
    pub(crate) fn of(pool: &Path, failure: Failure) -> Outcome<Served> {
        if failure.kind() != Kind::InUse {
            return Err(failure);
        }
        let mut refusal = None;
        for socket in sockets(pool) {
            match RemoteStore::names(&socket) {
                Ok(names) => return Ok(Served { socket, names }),
                // No process has made a socket there.
                Err(_) if socket.symlink_metadata().is_err() => {}
                Err(e) => refusal = Some(format!("; at {}: {e}", socket.display())),
            }
        }
        Err(failure.with(&refusal.unwrap_or_else(|| {
            "; if it served its stores (`tembo serve --stores`, or Pool::serve_stores in a program), this command \
             would work beside it"
                .to_owned()
        })))
    }

    pub(crate) fn connect(&self, name: &str) -> Outcome<RemoteStore> {
        Ok(RemoteStore::connect(&self.socket, name)?)
    }
}

/// Where the owner may have made its socket: beside the path that was given, or beside the file itself.
fn sockets(pool: &Path) -> Vec<PathBuf> {
    let mut all = vec![socket_of(pool)];
    all.extend(pool.canonicalize().ok().map(socket_of).filter(|socket| *socket != all[0]));
    all
}

/// The process that has the pool open, as well as it can be named.
pub(crate) fn holder(error: &tembo::Error) -> Option<String> {
    match pool_error(error)?.kind() {
        PoolErrorKind::Locked { holder, .. } => Some(holder.clone()),
        _ => None,
    }
}

/// Adds to the failure of a command that needs the pool itself which commands work meanwhile.
pub(crate) fn advise(pool: &Path, failure: Failure) -> Failure {
    let is_served = || sockets(pool).iter().any(|socket| RemoteStore::names(socket).is_ok());
    if failure.kind() != Kind::InUse || !is_served() {
        return failure;
    }
    failure.with(
        "; it serves its stores, so `tembo info`, `tembo check --snapshot`, and `tembo store` with ls, get, \
         scan, history, diff, put, del, snapshot and backup work meanwhile",
    )
}
