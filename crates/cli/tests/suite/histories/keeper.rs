//! The controller of a shard: it decides elections, gives leases, and pushes topologies, by the rules that
//! `docs/cluster.md` has for controllers that are one process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::record::{Clock, Term};
use super::shard::{From, Links, topology};
use crate::cluster_moves::{Talk, text};
use crate::controller::id;

pub(crate) const LEASE: Duration = Duration::from_millis(500);
const BEAT_EVERY: Duration = Duration::from_millis(40);
/// A node that does not answer in this time is asked again on another connection.
const PATIENCE: Duration = Duration::from_millis(300);

#[derive(Clone, Copy)]
struct Election {
    version: u64,
    master: usize,
    /// Nodes may be told.
    is_open: bool,
}

pub(crate) struct Keeper {
    election: Arc<Mutex<Election>>,
    /// The terms so far.
    terms: Vec<Term>,
    clock: Clock,
    waits: bool,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Makes the first node the master. `waits`: it waits for the length of a lease before each other term.
    pub(crate) fn start(links: &Arc<Links>, ports: &[u16], clock: Clock, waits: bool) -> Keeper {
        let election = Arc::new(Mutex::new(Election { version: 1, master: 0, is_open: true }));
        let stop = Arc::new(AtomicBool::new(false));
        let serve = |(node, port): (usize, &u16)| {
            let visits = Visits { links: links.clone(), node, port: *port, election: election.clone() };
            let stop = stop.clone();
            std::thread::spawn(move || visits.run(&stop))
        };
        let threads = ports.iter().enumerate().map(serve).collect();
        Keeper { election, terms: vec![Term { node: 0, from: 0 }], clock, waits, stop, threads }
    }

    pub(crate) fn master(&self) -> usize {
        self.election.lock().unwrap().master
    }

    /// Makes a node the master.
    pub(crate) fn elect(&mut self, master: usize) {
        let version = {
            let mut election = self.election.lock().unwrap();
            *election = Election { version: election.version + 1, master, is_open: false };
            election.version
        };
        if self.waits {
            std::thread::sleep(LEASE);
        }
        self.terms.push(Term { node: master, from: self.clock.now() });
        *self.election.lock().unwrap() = Election { version, master, is_open: true };
    }

    /// Ends; all terms.
    pub(crate) fn end(mut self) -> Vec<Term> {
        self.stop();
        std::mem::take(&mut self.terms)
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the keeper fails");
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The words to a node, on one connection after the other.
struct Visits {
    links: Arc<Links>,
    node: usize,
    port: u16,
    election: Arc<Mutex<Election>>,
}

impl Visits {
    fn run(&self, stop: &AtomicBool) {
        let (mut talk, mut told) = (None, 0);
        while !stop.load(Ordering::Relaxed) {
            if talk.is_none() {
                (talk, told) = (Talk::connect(self.links.link(From::Keeper, self.node).port), 0);
                if let Some(talk) = &talk {
                    talk.set_patience(PATIENCE);
                }
            }
            // One that has not answered gets nothing more on this connection.
            talk = talk.take().and_then(|mut talk| self.visit(&mut talk, &mut told).map(|()| talk));
            std::thread::sleep(BEAT_EVERY);
        }
    }

    /// None if there was no answer.
    fn visit(&self, talk: &mut Talk, told: &mut u64) -> Option<()> {
        // After the answer to the heartbeat before, and before the next one.
        let election = *self.election.lock().unwrap();
        let version = election.version.to_string();
        if election.is_open && *told != election.version {
            let nodes = topology(&self.links, self.port, self.node, election.master);
            talk.ask(&["CLUSTERX", "SETNODEID", &id(self.node)])?;
            let said = text(&talk.ask(&["CLUSTERX", "SETNODES", &nodes, &version])?);
            assert_eq!(said, "OK", "{nodes}");
            *told = election.version;
        }
        let ms = LEASE.as_millis().to_string();
        // A node that has no id yet refuses it.
        talk.ask(&["CLUSTERX", "HEARTBEAT", &id(election.master), &ms, &version])?;
        Some(())
    }
}
