//! An experiment of Echo's section 3: a dedicated master thread merges what the workers have written.
//!
//! In the paper a worker persists its local store as a commit record, and master threads merge it into the
//! master store. The store's commit record makes the merge as well, so that what a master thread can take
//! over is the whole commit: a worker hands its transaction over and waits until it is durable. The master
//! takes all that wait, and commits them as one group.

use crate::engines::Result;
use crate::engines::shared::Hand;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use tembo_store::{Commit, Keyspace, Store, Transaction};

/// Transactions of a group, at most.
const TOGETHER: usize = 64;

/// A transaction, and whom to tell of its end.
type Request = (Transaction, SyncSender<tembo_store::Result<u64>>);

/// A store whose transactions a thread of its own commits.
pub(crate) struct Master {
    store: Store,
    keyspace: Keyspace,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Master {
    pub(crate) fn new(store: Store, keyspace: Keyspace) -> Result<Master> {
        let (requests, waiting) = channel();
        let thread = std::thread::Builder::new().name("master".to_owned()).spawn(move || merge(&waiting))?;
        Ok(Master { store, keyspace, requests: Some(requests), thread: Some(thread) })
    }

    pub(crate) fn hand(&self) -> Result<Worker<'_>> {
        let requests = self.requests.clone().ok_or("the master thread was stopped")?;
        let (done, outcome) = sync_channel(1);
        Ok(Worker { master: self, requests, done, outcome })
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.requests = None;
        // A thread that panicked has said so.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

/// The master thread, until nobody can ask any more.
fn merge(waiting: &Receiver<Request>) {
    while let Ok(first) = waiting.recv() {
        let group: Vec<(Commit, _)> = std::iter::once(first)
            .chain(waiting.try_iter().take(TOGETHER - 1))
            .map(|(tx, done)| (tx.commit_async(), done))
            .collect();
        for (commit, done) in group {
            // A worker that is gone does not need to know.
            _ = done.send(commit.wait());
        }
    }
}

/// A worker: a thread's way into the store.
pub(crate) struct Worker<'a> {
    master: &'a Master,
    requests: Sender<Request>,
    done: SyncSender<tembo_store::Result<u64>>,
    outcome: Receiver<tembo_store::Result<u64>>,
}

impl Hand for Worker<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        loop {
            let mut tx = self.master.store.begin();
            tx.put(&self.master.keyspace, key, value)?;
            self.requests.send((tx, self.done.clone()))?;
            match self.outcome.recv()? {
                Err(e) if e.is_conflict() => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        let value = self.master.store.get(&self.master.keyspace, key)?;
        let is_there = value.is_some();
        *buffer = value.unwrap_or_default();
        Ok(is_there)
    }
}
