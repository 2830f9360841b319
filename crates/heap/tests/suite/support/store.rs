//! A heap with the graph in it, as one thread has it open.

use super::model::{self, Model};
use super::ops::{self, Op, perform};
use super::{Node, NodeFields, Root, text};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use tembo_heap::{Error, Handle, Heap, NamedBrand, Summary};
use tembo_pool::Pool;

pub(crate) struct Store<B: NamedBrand> {
    pub(crate) pool: Pool,
    heap: Option<Heap<B, Root>>,
    /// Handles that the model knows.
    held: Vec<Handle<B, Node>>,
    /// Handles that it does not.
    kept: Vec<Handle<B, Node>>,
}

impl<B: NamedBrand> Store<B> {
    pub(crate) fn open(pool: Pool) -> Result<Self, String> {
        let heap = Heap::open_pool(pool.clone()).map_err(text)?;
        Ok(Store { pool, heap: Some(heap), held: Vec::new(), kept: Vec::new() })
    }

    pub(crate) fn heap(&self) -> &Heap<B, Root> {
        self.heap.as_ref().expect("it is open")
    }

    /// Performs an operation in a transaction.
    pub(crate) fn commit(&self, op: &Op) -> Result<(), Error> {
        self.heap().write(|tx, root| perform(tx, root, op))
    }

    /// In another session than this thread's, which is in use meanwhile.
    fn commit_beside(&self, op: &Op) -> Result<(), Error> {
        let (heap, outcome) = (self.heap(), Mutex::new(None));
        let ended = heap.write::<()>(|tx, _| {
            tx.alloc(Node::new(0, 0))?;
            let inner = std::thread::scope(|scope| {
                let other = scope.spawn(|| heap.write(|tx, root| perform(tx, root, op)));
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            *outcome.lock().unwrap() = Some(inner);
            Err(tx.cancel())
        });
        assert!(matches!(&ended, Err(e) if e.is_cancelled()), "{ended:?}");
        outcome.into_inner().unwrap().expect("it ran")
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Second(op) => self.commit_beside(op),
            Op::Aborted(ops, panics) => self.abort(ops, *panics),
            Op::Keep { at } => self.take(*at).map(|handle| self.kept.extend(handle)),
            Op::Orphans { id, count } => self.orphans(*id, *count),
            Op::Bounce { id } => self.bounce(*id),
            Op::DropHandles => {
                self.kept.clear();
                Ok(())
            }
            Op::Detour { at, to } => self.detour(*at, *to),
            Op::Hold { at } => {
                let held = self
                    .heap()
                    .write(|tx, root| ops::target(tx, root, *at)?.map(|node| tx.hold(node)).transpose());
                held.map(|handle: Option<_>| self.held.extend(handle))
            }
            Op::LinkHeld { at, handle } => {
                let Some(handle) = self.held.get(*handle) else { return Ok(()) };
                self.heap().write(|tx, root| {
                    let node = tx.enter(handle)?;
                    match ops::strong(tx, root, *at)? {
                        Some(at) => tx.link(at, node),
                        None => Ok(()),
                    }
                })
            }
            Op::Release { handle } => {
                if *handle < self.held.len() {
                    self.held.remove(*handle);
                }
                Ok(())
            }
            Op::Collect => return self.collect(),
            Op::Compact => return self.heap().compact().map(drop).map_err(text),
            Op::Reopen => {
                self.kept.clear();
                self.held.clear();
                self.heap = None;
                Heap::open_pool(self.pool.clone()).map(|heap| self.heap = Some(heap))
            }
            op => self.commit(op),
        }
        .map_err(text)
    }

    fn abort(&self, ops: &[Op], panics: bool) -> Result<(), Error> {
        let run = || {
            self.heap().write::<()>(|tx, root| {
                ops.iter().try_for_each(|op| perform(tx, root, op))?;
                if panics {
                    std::panic::resume_unwind(Box::new("the closure panics"));
                }
                Err(tx.cancel())
            })
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Err(e)) if !panics && e.is_cancelled() => Ok(()),
            Err(_) if panics => Ok(()),
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Takes a pointer away, and gives back a handle of what it led to.
    fn take(&self, at: ops::Place) -> Result<Option<Handle<B, Node>>, Error> {
        self.heap().write(|tx, root| {
            let Some(place) = ops::strong(tx, root, at)? else { return Ok(None) };
            let Some(node) = tx.load(place)? else { return Ok(None) };
            let handle = tx.hold(node)?;
            tx.link(place, None)?;
            Ok(Some(handle))
        })
    }

    fn detour(&self, at: ops::Place, to: ops::Place) -> Result<(), Error> {
        let Some(handle) = self.take(at)? else { return Ok(()) };
        self.heap().write(|tx, root| {
            let node = tx.enter(&handle)?;
            match ops::strong(tx, root, to)? {
                Some(to) => tx.link(to, node),
                None => Ok(()),
            }
        })
    }

    fn orphans(&mut self, id: u64, count: u64) -> Result<(), Error> {
        let handles = self.heap().write(|tx, _| {
            let mut handles = Vec::new();
            for i in 0..count {
                let (node, next) =
                    (tx.alloc(Node::new(id + 2 * i, 0))?, tx.alloc(Node::new(id + 2 * i + 1, 0))?);
                tx.link(node.next(), next)?;
                handles.push(tx.hold(node)?);
            }
            Ok(handles)
        })?;
        self.kept.extend(handles);
        Ok(())
    }

    fn bounce(&mut self, id: u64) -> Result<(), Error> {
        let handle = self.heap().write(|tx, _| {
            let node = tx.alloc(Node::new(id, 0))?;
            tx.hold(node)
        })?;
        self.heap().write(|tx, _| {
            let dies = tx.alloc(Node::new(id + 1, 0))?;
            let held = tx.enter(&handle)?;
            tx.link(dies.next(), held)
        })?;
        self.kept.push(handle);
        Ok(())
    }

    /// Releases what is dead, after which only handles keep orphans.
    fn collect(&self) -> Result<(), String> {
        self.heap().collect().map_err(text)?;
        let summary = self.check()?;
        let handles = (self.held.len() + self.kept.len()) as u64;
        if summary.dying != 0 || summary.orphans > handles {
            return Err(format!("after `collect`, with {handles} handles: {summary:?}"));
        }
        Ok(())
    }

    pub(crate) fn observe(&self) -> Result<Model, String> {
        let held = &self.held;
        self.heap()
            .write(|tx, root| {
                let held = held.iter().map(|handle| tx.enter(handle)).collect::<Result<Vec<_>, _>>()?;
                model::read(tx, root, &held)
            })
            .map_err(|e: Error| text(e))
    }

    /// Proves what a heap promises, and that no block is lost.
    pub(crate) fn check(&self) -> Result<Summary, String> {
        let mut marks = self.pool.marks().map_err(text)?;
        let summary = tembo_heap::check(&self.pool, &mut marks).map_err(text)?;
        marks.finish().map_err(text)?;
        Ok(summary)
    }
}
