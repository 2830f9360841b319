//! A server whose device stands still, or fails.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tembo_crashsim::SectorDisk;
use tembo_pmem::Region;
use tembo_pmem::journal::{Journal, JournalPlace, Medium};
use tembo_pool::Geometry;

use crate::{Config, Handle, Server};

const POOL_BYTES: u64 = 8 << 20;
const RING_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Open,
    Closed,
    Failing,
}

/// A slow device, for which the server does not wait. Its synchronisations stand still while its gate is
/// closed.
#[derive(Clone)]
struct Gated {
    disk: SectorDisk,
    gate: Arc<(Mutex<Gate>, Condvar)>,
    synchronisations: Arc<Mutex<u64>>,
}

impl Gated {
    fn set(&self, gate: Gate) {
        *self.gate.0.lock().unwrap() = gate;
        self.gate.1.notify_all();
    }

    fn pass(&self) -> std::io::Result<()> {
        *self.synchronisations.lock().unwrap() += 1;
        std::thread::sleep(Duration::from_millis(4));
        let gate = self.gate.1.wait_while(self.gate.0.lock().unwrap(), |gate| *gate == Gate::Closed).unwrap();
        if *gate == Gate::Failing { Err(std::io::Error::other("the device is gone")) } else { Ok(()) }
    }
}

impl Medium for Gated {
    fn bytes(&self) -> std::io::Result<u64> {
        self.disk.bytes()
    }

    fn read(&self, off: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.disk.read(off, into)
    }

    fn write(&self, off: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.disk.write(off, bytes)
    }

    fn synchronise(&self) -> std::io::Result<()> {
        self.pass()
    }

    fn synchronise_range(&self, _: u64, _: u64) -> std::io::Result<()> {
        self.pass()
    }
}

struct Scene {
    device: Gated,
    handle: Handle,
    thread: Option<std::thread::JoinHandle<()>>,
    clients: Vec<TcpStream>,
}

impl Scene {
    fn new(clients: usize) -> Scene {
        let place = JournalPlace { off: POOL_BYTES, seed: 5 };
        let disk = SectorDisk::new(vec![0; (POOL_BYTES + RING_BYTES) as usize]);
        Journal::format(&disk, place, RING_BYTES, RING_BYTES).unwrap();
        let gate = Arc::new((Mutex::new(Gate::Open), Condvar::new()));
        let device = Gated { disk, gate, synchronisations: Arc::default() };
        let journal = Journal::open(Box::new(device.clone()), place, None).unwrap();
        let region = Region::journaled(&vec![0; POOL_BYTES as usize], POOL_BYTES, journal).unwrap();
        region.start_journal().unwrap();
        let geometry = Geometry { root_count: 16, ..Geometry::tiny() };
        let pool = tembo_pool::Pool::create_in(region, &geometry).unwrap();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        let mut server = Server::bind(config, tembo::Pool::from_pool(pool)).unwrap();
        let (address, handle) = (server.local_addr(), server.handle());
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        let clients = (0..clients).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut scene = Scene { device, handle, thread, clients };
        for client in 0..scene.clients.len() {
            scene.clients[client].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(scene.ask(client, "SET first 1"), "+OK\r\n");
        }
        scene
    }

    fn send(&mut self, client: usize, command: &str) {
        self.clients[client].write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// The bytes that come next; none at the end.
    fn receive(&mut self, client: usize) -> String {
        let mut bytes = [0; 8192];
        let got = self.clients[client].read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..got]).into_owned()
    }

    fn ask(&mut self, client: usize, command: &str) -> String {
        self.send(client, command);
        self.receive(client)
    }

    /// Waits, as a client whose replies say nothing of the data, until a command was run so often.
    fn wait_until_run(&mut self, client: usize, calls: &str) {
        while !self.ask(client, "INFO commandstats").contains(calls) {}
    }

    fn has_nothing(&mut self, client: usize) -> bool {
        self.clients[client].set_nonblocking(true).unwrap();
        let outcome = self.clients[client].peek(&mut [0]);
        self.clients[client].set_nonblocking(false).unwrap();
        outcome.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.device.set(Gate::Open);
        self.handle.shutdown();
        let ended = self.thread.take().map(|thread| thread.join());
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

#[test]
fn replies_wait_for_the_device_and_the_server_goes_on() {
    let mut scene = Scene::new(4);
    scene.device.set(Gate::Closed);
    scene.send(0, "SET k one");
    scene.wait_until_run(3, "cmdstat_set:calls=5,");
    // These writes wait for the next synchronisation, together.
    scene.send(1, "SET k two");
    scene.send(2, "GET k");
    scene.wait_until_run(3, "cmdstat_set:calls=6,");
    scene.wait_until_run(3, "cmdstat_get:calls=1,");
    assert!((0..3).all(|client| scene.has_nothing(client)), "a reply came before the device had its record");
    assert_eq!(scene.ask(3, "PING"), "+PONG\r\n");
    let before = *scene.device.synchronisations.lock().unwrap();
    scene.device.set(Gate::Open);
    assert_eq!((scene.receive(0), scene.receive(1)), ("+OK\r\n".to_owned(), "+OK\r\n".to_owned()));
    assert_eq!(scene.receive(2), "$3\r\ntwo\r\n");
    let since = *scene.device.synchronisations.lock().unwrap() - before;
    assert!(since <= 1, "{since} synchronisations for the commits that waited");
}

#[test]
fn a_device_that_fails_ends_the_clients_whose_replies_wait_for_it() {
    let mut scene = Scene::new(3);
    scene.device.set(Gate::Closed);
    scene.send(0, "SET k one");
    scene.wait_until_run(2, "cmdstat_set:calls=4,");
    scene.device.set(Gate::Failing);
    assert_eq!(scene.receive(0), "", "disconnected, without a reply");
    let reply = scene.ask(1, "SET k two");
    assert!(reply.starts_with("-MISCONF"), "{reply}");
    assert_eq!(scene.ask(2, "PING"), "+PONG\r\n");
}
