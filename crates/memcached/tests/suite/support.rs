//! Servers and clients for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use tembo::{Options, Pool};
use tembo_memcached::{Config, Handle, Server};

/// A server in a thread of this process.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(pool: Pool, mut config: Config) -> Served {
        config.listen.set_port(0);
        let mut server = Server::bind(config, pool).unwrap();
        let (address, handle) = (server.local_addr(), server.handle());
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Served { address, handle, thread }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

pub(crate) fn pool_in(dir: &Path) -> Pool {
    Options::new().create(true).open(dir.join("a.pool")).unwrap()
}

/// A client with one connection.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { stream, input: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The replies to `requests`, up to that of a no-op behind them.
    pub(crate) fn ask(&mut self, requests: impl AsRef<[u8]>) -> Vec<u8> {
        self.send(&[requests.as_ref(), b"mn\r\n"].concat());
        let mut reply = self.until(b"MN\r\n");
        reply.truncate(reply.len() - 4);
        reply
    }

    /// As [`ask`](Self::ask), as text without the last line end.
    pub(crate) fn says(&mut self, request: &str) -> String {
        let reply = self.ask(format!("{}\r\n", request.replace('\n', "\r\n")));
        let text = String::from_utf8(reply).unwrap().replace("\r\n", "\n");
        text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
    }

    /// Everything up to these bytes.
    pub(crate) fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut buffer = [0; 1 << 16];
        let mut from = 0;
        loop {
            let found = self.input[from..].windows(end.len()).position(|window| window == end);
            if let Some(found) = found {
                return self.input.drain(..from + found + end.len()).collect();
            }
            from = self.input.len().saturating_sub(end.len());
            let received = self.stream.read(&mut buffer).unwrap();
            assert!(received > 0, "disconnected after {:?}", String::from_utf8_lossy(&self.input));
            self.input.extend_from_slice(&buffer[..received]);
        }
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.input);
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }
}

/// memcached of this machine.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Memcached {
    /// `None`, with a message, if there is none.
    pub(crate) fn start(options: &[&str]) -> Option<Memcached> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = free.port().to_string();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-p", &port, "-u", "nobody"]).args(options);
        let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            eprintln!("SKIPPED: there is no memcached on this machine (Debian: memcached)");
            return None;
        };
        let memcached = Memcached { child, address: free };
        for _ in 0..500 {
            if TcpStream::connect(free).is_ok() {
                return Some(memcached);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("memcached does not listen on {free}");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
