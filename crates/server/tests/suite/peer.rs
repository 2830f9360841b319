//! A real Redis to compare with, where there is one.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::support::{Client, eventually};

/// A redis-server of the version whose replies Tembo gives, and a client of it. Says so if there is none.
pub(crate) fn start_redis() -> Option<(Redis, Client)> {
    let (redis, mut client) = Redis::start()?;
    Redis::is_comparable(&mut client).then_some((redis, client))
}

/// How far below its port a server's bus listens, outside the ports that the system gives to clients.
const BUS_BELOW: u16 = 10_000;

/// Makes each server's port another one.
static PORTS: AtomicU16 = AtomicU16::new(0);

pub(crate) struct Redis {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    /// Starts redis-server if it is installed; says so if it is not.
    fn start() -> Option<(Self, Client)> {
        Self::start_with(|_| {})
    }

    /// [`Redis::start`], in a folder that is prepared.
    pub(crate) fn start_with(prepare: impl Fn(&std::path::Path)) -> Option<(Self, Client)> {
        Self::start_as(prepare, &[])
    }

    /// A node of a cluster, of a version whose replies these are.
    pub(crate) fn start_node() -> Option<(Self, Client)> {
        // Other versions do not know all of the arguments.
        drop(start_redis()?);
        Self::start_as(|_| {}, &["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"])
    }

    /// [`Redis::start_with`], with arguments of its own.
    pub(crate) fn start_as(prepare: impl Fn(&std::path::Path), arguments: &[&str]) -> Option<(Self, Client)> {
        loop {
            let mut redis = match Self::spawn(&prepare, arguments) {
                Ok(redis) => redis,
                Err(error) => {
                    eprintln!("skipped: redis-server cannot be run here ({error})");
                    return None;
                }
            };
            // Another process may have got the port meanwhile.
            if let Some(client) = redis.connect() {
                return Some((redis, client));
            }
        }
    }

    fn spawn(prepare: impl Fn(&std::path::Path), arguments: &[&str]) -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        prepare(dir.path());
        // Not of the ports that the system gives to clients: connecting to one of those before anybody
        // listens can connect a socket to itself.
        let port = 20_000 + (std::process::id() as u16 ^ PORTS.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let bus = ["--cluster-port".to_owned(), (port - BUS_BELOW).to_string()];
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes"])
            .args(arguments)
            .args(if arguments.is_empty() { &[][..] } else { &bus })
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Redis { process, port, _dir: dir })
    }

    /// Waits until it serves; `None` if it ends, or if it is not the one that serves.
    fn connect(&mut self) -> Option<Client> {
        let address = ([127, 0, 0, 1], self.port).into();
        let mut connected = false;
        eventually(|| {
            connected = TcpStream::connect(address).is_ok();
            connected || self.process.try_wait().unwrap().is_some()
        });
        let mut client = connected.then(|| Client::connect(address))?;
        // A node that does not get the port of its bus ends after it has listened.
        client.send(&[b"INFO", b"server"]);
        let info = client.try_receive()?;
        let own = format!("process_id:{}\r\n", self.process.id());
        String::from_utf8_lossy(info.as_bytes()?).contains(&own).then_some(client)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where other nodes of a cluster find it.
    pub(crate) fn bus_port(&self) -> u16 {
        self.port - BUS_BELOW
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    /// Whether it is a version whose replies these are.
    fn is_comparable(client: &mut Client) -> bool {
        let version = client.info("redis_version");
        let comparable = version.starts_with("7.0.");
        if !comparable {
            eprintln!("skipped: redis-server is of version {version}, not 7.0");
        }
        comparable
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 16) as usize % bound
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
