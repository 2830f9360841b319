//! The owner's side: the socket, and a thread for each client.

use super::collected_host::CollectedHost;
use super::host::{Host, ServeOptions};
use super::message::Reply;
use super::session::Session;
use super::wire::send;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// The pause after a connection could not be accepted, as the process has too many files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Stores that are served at a socket, until this is dropped: that closes all connections, and waits for
/// requests that are being answered. Keeps the stores open.
#[must_use = "the stores are served until this is dropped"]
pub struct Serving {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    listener: UnixListener,
    path: PathBuf,
    /// The device and the inode of the socket.
    identity: (u64, u64),
    host: Arc<dyn Host>,
    options: ServeOptions,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    is_stopped: bool,
    last_id: u64,
    /// Each with its connection, and the thread.
    all: HashMap<u64, (UnixStream, JoinHandle<()>)>,
}

/// Serves stores at a socket until the guard is dropped, as [`Store::serve`](crate::Store::serve) does.
///
/// # Errors
///
/// As there.
pub fn serve(path: impl AsRef<Path>, host: impl Host, options: ServeOptions) -> Result<Serving> {
    let path = path.as_ref();
    let failed = |source| Error::Io { doing: "making the socket at which stores are served", source };
    let listener = bind(path).map_err(failed)?;
    let shared = Shared {
        listener,
        identity: identity(path).map_err(failed)?,
        path: path.to_owned(),
        host: if options.collects { Arc::new(CollectedHost::new(host)) } else { Arc::new(host) },
        options,
        clients: Mutex::default(),
    };
    let shared = Arc::new(shared);
    let mut serving = Serving { shared: shared.clone(), acceptor: None };
    let acceptor = std::thread::Builder::new()
        .name("tembo-serve".to_owned())
        .spawn(move || shared.accept())
        .map_err(Error::Thread)?;
    serving.acceptor = Some(acceptor);
    Ok(serving)
}

/// Makes the socket. Nobody can connect before it has its mode.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let new =
        || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = new()?;
    match rustix::net::bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_left_over(path) => {
            fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        outcome => outcome?,
    }
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Whether a socket is there at which nobody listens any more. The owner of a pool has the lock of the file,
/// so that no other owner makes the same socket at the same time.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).err().is_some_and(refused)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Whether a user may use what another one serves.
pub(super) fn may_use(peer: u32, owner: u32) -> bool {
    peer == owner || peer == 0
}

impl Shared {
    fn accept(self: Arc<Shared>) {
        loop {
            let accepted = self.listener.accept();
            if self.clients.lock().is_stopped {
                return;
            }
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Lets a client in, or says why not.
    fn admit(self: &Arc<Shared>, mut stream: UnixStream) {
        let peer = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
        let is_known = peer.is_ok_and(|peer| may_use(peer, rustix::process::geteuid().as_raw()));
        let outcome = if is_known { self.start(&stream) } else { Err(refused("this user may not use it")) };
        if let Err(e) = outcome {
            // It fits the socket's buffer, so that nobody is waited for; an error has nobody to be told to.
            _ = send(&mut stream, &Reply::Fault(e).encode());
        }
    }

    fn start(self: &Arc<Shared>, stream: &UnixStream) -> Result<()> {
        let mut clients = self.clients.lock();
        if clients.is_stopped {
            return Err(refused("it is being closed"));
        }
        let max = self.options.clients_max;
        if clients.all.len() >= max {
            return Err(refused(&format!("it has {max} clients, and takes no more; try again later")));
        }
        let failed = |source| Error::Io { doing: "taking a client", source };
        let theirs = stream.try_clone().map_err(failed)?;
        let ours = stream.try_clone().map_err(failed)?;
        let id = clients.last_id + 1;
        let shared = self.clone();
        let thread = std::thread::Builder::new()
            .name("tembo-client".to_owned())
            .spawn(move || {
                // Made here: a slot that was dropped by a failed start would wait for the lock held now.
                let slot = ClientSlot { shared, id };
                Session::new(slot.shared.host.clone(), slot.shared.options).run(theirs);
            })
            .map_err(Error::Thread)?;
        clients.last_id = id;
        clients.all.insert(id, (ours, thread));
        Ok(())
    }
}

fn refused(why: &str) -> Error {
    Error::Refused { why: why.to_owned() }
}

/// A client's slot in the list; it is free when the thread ends, however that does.
struct ClientSlot {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        // The session was dropped before, and with it what the client had open.
        self.shared.clients.lock().all.remove(&self.id);
    }
}

impl Serving {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// How many clients are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients.lock().all.len()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if identity(&self.shared.path).is_ok_and(|found| found == self.shared.identity) {
            // A socket that stays is a left-over, which the next owner replaces.
            _ = fs::remove_file(&self.shared.path);
        }
        let clients = {
            let mut clients = self.shared.clients.lock();
            clients.is_stopped = true;
            std::mem::take(&mut clients.all)
        };
        // The thread that accepts wakes up with an error.
        _ = rustix::net::shutdown(&self.shared.listener, Shutdown::Both);
        for (stream, _) in clients.values() {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let threads = clients.into_values().map(|(_, thread)| thread).chain(self.acceptor.take());
        // A thread that panicked has said so.
        threads.for_each(|thread| _ = thread.join());
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("path", &self.shared.path).finish_non_exhaustive()
    }
}
