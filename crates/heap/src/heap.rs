//! The heap: opening, creating, and running transactions.

use crate::check::{Summary, check, is_migrating};
use crate::compact::{compact_all, guest};
use crate::counts::dying;
use crate::error::{Error, ErrorKind, OtherRoot, Result, corrupt};
use crate::handles::Of;
use crate::layout::{
    Kind, LINE, MAGIC, OBJECT_HEAD_BYTES, PmHeap, ROOT_KIND, ROOT_NAME, has_line, kind_off, tagged_object,
};
use crate::objects::brand::{Brand, BrandLease, NamedBrand, Scoped};
use crate::objects::persist::Persist;
use crate::objects::persist::TargetFn;
use crate::objects::place::Obj;
use crate::objects::type_info::TypeInfo;
use crate::objects::types::{Types, layout_error};
use crate::objects::value_buffer::ValueBuffer;
#[cfg(feature = "research")]
use crate::research::Layer;
use crate::retry;
use crate::stm::running::Running;
use crate::stm::shared::HeapShared;
use crate::tx::alloc::first_head;
use crate::tx::{ReadTx, Tx};
use std::marker::PhantomData;
use std::panic::UnwindSafe;
use std::path::Path;
use std::sync::Arc;
use tembo_pmem::{OfProcess, offset_of};
use tembo_pool::{Options, Pool, Stats};

/// A closure that may be run again, or be abandoned midway: it captures nothing that it could change.
/// Everything [`UnwindSafe`] is `Repeatable`.
///
/// The compiler does not see everything. A closure can capture a `Mutex`, an atomic, a channel, a file, or a
/// `Cell` in an [`AssertUnwindSafe`](std::panic::AssertUnwindSafe). Its effects on these, its output, and its
/// changes of statics happen each time that it runs, and stay when the transaction is rolled back.
#[diagnostic::on_unimplemented(
    message = "a transaction cannot change anything outside of its heap",
    label = "holds something outside that it could change",
    note = "it is run again when another transaction's changes come between, and taken back when it fails: what it changed elsewhere would stay",
    note = "give results back as the closure's value; `&mut`, `Cell` and `RefCell` cannot be captured"
)]
pub trait Repeatable {}

#[diagnostic::do_not_recommend]
impl<T: UnwindSafe> Repeatable for T {}

/// An open heap, with a root of type `R`.
///
/// Any number of threads may share it. Each of them runs transactions of its own.
pub struct Heap<B: Brand, R: Persist> {
    pub(crate) shared: Arc<OfProcess<HeapShared>>,
    of: Of<B, R>,
}

// A transaction whose closure panics changes nothing.
impl<B: Brand, R: Persist> std::panic::UnwindSafe for Heap<B, R> {}
impl<B: Brand, R: Persist> std::panic::RefUnwindSafe for Heap<B, R> {}

impl<B: Brand, R: Persist> std::fmt::Debug for Heap<B, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("pool", &self.shared.pool).field("root", &R::name()).finish()
    }
}

impl<R: Persist + Default> Heap<Scoped<'static>, R> {
    /// Opens the heap in a file, or creates it, for the length of a closure. No other heap has its brand, so
    /// none of its objects can get into another heap.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file; [`ErrorKind::NotAHeap`], [`ErrorKind::Layout`]; and those
    /// of the closure.
    pub fn with<O>(
        path: impl AsRef<Path>,
        options: impl AsRef<Options>,
        body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<O>,
    ) -> Result<O> {
        Self::try_with(path, options, body)
    }

    /// As [`with`](Self::with), with an error type of the program's own.
    ///
    /// # Errors
    ///
    /// As for [`with`](Self::with).
    pub fn try_with<O, E: From<Error>>(
        path: impl AsRef<Path>,
        options: impl AsRef<Options>,
        body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<O, E>,
    ) -> Result<O, E> {
        let pool = open_pool(path.as_ref(), options.as_ref())?;
        body(Heap::of(open_shared::<R>(pool, None)?))
    }

    /// As [`with`](Self::with), in a pool that is open already.
    ///
    /// # Errors
    ///
    /// As for [`with`](Self::with).
    pub fn with_pool<O>(
        pool: Pool,
        body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<O>,
    ) -> Result<O> {
        Self::try_with_pool(pool, body)
    }

    /// As [`with_pool`](Self::with_pool), with an error type of the program's own.
    ///
    /// # Errors
    ///
    /// As for [`with`](Self::with).
    pub fn try_with_pool<O, E: From<Error>>(
        pool: Pool,
        body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<O, E>,
    ) -> Result<O, E> {
        body(Heap::of(open_shared::<R>(pool, None)?))
    }

    /// As [`try_with_pool`](Self::try_with_pool), with some parts of the heap left out, to measure their
    /// cost. Nothing else can use the pool afterwards.
    #[cfg(feature = "research")]
    pub fn try_with_layer<O, E: From<Error>>(
        pool: Pool,
        layer: Layer,
        body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<O, E>,
    ) -> Result<O, E> {
        let mut shared = open_shared::<R>(pool, None)?;
        shared.parts = layer.parts();
        body(Heap::of(shared))
    }
}

impl<B: NamedBrand, R: Persist + Default> Heap<B, R> {
    /// Opens the heap in a file, or creates it, as the options say.
    ///
    /// The time does not depend on the size of the heap. At most one heap with the brand may be open.
    /// Dropping the heap closes it, even if there are [handles](crate::Handle) left.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file; [`ErrorKind::NotAHeap`], [`ErrorKind::Layout`],
    /// [`ErrorKind::BrandInUse`].
    pub fn open(path: impl AsRef<Path>, options: impl AsRef<Options>) -> Result<Heap<B, R>> {
        let lease = lease::<B>()?;
        let pool = open_pool(path.as_ref(), options.as_ref())?;
        Ok(Heap::of(open_shared::<R>(pool, Some(lease))?))
    }

    /// As [`open`](Self::open), in a pool that is open already, and in which no other heap is open.
    ///
    /// A clone of the pool can write anything anywhere, and thereby make the heap unsound. This is for
    /// programs that have a pool of their own and do not write to the heap through it. A program that does
    /// not use the pool's crate cannot get a pool.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_pool(pool: Pool) -> Result<Heap<B, R>> {
        let lease = lease::<B>()?;
        Ok(Heap::of(open_shared::<R>(pool, Some(lease))?))
    }
}

/// Opens the pool. If its parts may be of different ages, and the options accept that, the heap in it is
/// checked first.
pub(crate) fn open_pool(path: &Path, options: &Options) -> Result<Pool> {
    let plain = Options { accept_unclean: false, ..options.clone() };
    match Pool::open(path, &plain) {
        Err(e) if e.is_unclean() && options.accept_unclean => {}
        outcome => return Ok(outcome?),
    }
    let to_inspect = Options { read_only: true, create: false, create_new: false, ..options.clone() };
    let reader = Pool::open(path, &to_inspect)?;
    let mut marks = reader.marks()?;
    check(&reader, &mut marks)?;
    if reader.roots()?.len() == 1 {
        // Maps in the same pool do not belong to the heap, and the heap does not read them.
        marks.finish()?;
    }
    drop(reader);
    Ok(Pool::open(path, options)?)
}

fn lease<B: NamedBrand>() -> Result<BrandLease> {
    guest::unless_moved(BrandLease::take::<B>)
        .ok_or_else(|| ErrorKind::BrandInUse { brand: std::any::type_name::<B>() }.into())
}

impl<B: Brand, R: Persist> Heap<B, R> {
    fn of(shared: HeapShared) -> Heap<B, R> {
        let shared = Arc::new(OfProcess::new(shared));
        guest::note_open(&shared);
        Heap { shared, of: PhantomData }
    }

    /// Runs a transaction that may write. It is committed, and durable, when the closure returns `Ok`. It
    /// changes nothing if the closure returns an error or panics. It is run again after a conflict with
    /// another transaction. The closure must therefore have no other effects, which `Fn` and [`Repeatable`]
    /// ensure as far as the compiler can.
    ///
    /// Inside a transaction of the same heap it becomes part of that one, which fails as a whole if this one
    /// fails. Until it ends, the outer token does nothing ([`ErrorKind::InnerRuns`]). Inside a transaction of
    /// another heap, or a batch of maps, it is a transaction of its own, and durable when it returns,
    /// whatever becomes of the other. If the other is retried, so is this one.
    ///
    /// It costs one fence, or none if nothing was written.
    ///
    /// # Errors
    ///
    /// The closure's, errors of the program's own among them ([`Error::user`]); the pool's own (full, device
    /// failed); [`ErrorKind::ReadTransaction`], [`ErrorKind::Borrowed`] and [`ErrorKind::NestedFailed`] of
    /// nested ones.
    #[inline(always)]
    pub fn write<O>(
        &self,
        body: impl for<'t> Fn(&mut Tx<'t, B>, Obj<'t, B, R>) -> Result<O> + Repeatable,
    ) -> Result<O> {
        self.try_write(body)
    }

    /// As [`write`](Self::write), with an error type of the program's own that can be made from the heap's.
    /// It waits as `write` does; the `try` is that of [`Iterator::try_for_each`].
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub fn try_write<O, E: From<Error>>(
        &self,
        body: impl for<'t> Fn(&mut Tx<'t, B>, Obj<'t, B, R>) -> Result<O, E> + Repeatable,
    ) -> Result<O, E> {
        let run = |running: &Running<'_>| {
            let mut tx = Tx::new(&self.shared, running.active());
            let root = ReadTx::object_before(self.shared.root);
            body(&mut tx, root)
        };
        retry::write(&self.shared, run)
    }

    /// Runs a transaction that only reads. It waits only for commits that are storing.
    ///
    /// # Errors
    ///
    /// The closure's.
    #[inline(always)]
    pub fn read<O>(
        &self,
        body: impl for<'t> Fn(&ReadTx<'t, B>, Obj<'t, B, R>) -> Result<O> + Repeatable,
    ) -> Result<O> {
        self.try_read(body)
    }

    /// As [`read`](Self::read), with an error type of the program's own that can be made from the heap's.
    ///
    /// # Errors
    ///
    /// The closure's.
    #[inline]
    pub fn try_read<O, E: From<Error>>(
        &self,
        body: impl for<'t> Fn(&ReadTx<'t, B>, Obj<'t, B, R>) -> Result<O, E> + Repeatable,
    ) -> Result<O, E> {
        let run = |running: &Running<'_>| {
            let tx = ReadTx::new(&self.shared, running.active());
            let root = ReadTx::object_before(self.shared.root);
            body(&tx, root)
        };
        retry::read(&self.shared, run)
    }

    /// Releases all objects that have died but have not been released. Every commit releases a bounded part
    /// of them too. Both work in a pool that is full to the last byte: if the redo record of a large step
    /// finds no room, smaller steps are tried.
    ///
    /// # Errors
    ///
    /// The pool's own; [`ErrorKind::InsideTransaction`] in a transaction of this heap.
    pub fn collect(&self) -> Result<()> {
        dying::collect_all(&self.shared)
    }

    /// Returns the error of a release after a commit, if there was one since the last call. The commit itself
    /// is durable. Later commits, and [`collect`](Self::collect), try again.
    pub fn left_behind(&self) -> Option<Error> {
        self.shared.left.lock().take()
    }

    /// Reads the whole heap without changing it, and proves that every pointer leads to an object of its
    /// type, every count is exact, and nothing is lost. No transaction may run meanwhile.
    ///
    /// # Errors
    ///
    /// Corruption.
    pub fn check(&self) -> Result<Summary> {
        let mut marks = self.shared.pool.marks()?;
        let summary = check(&self.shared.pool, &mut marks)?;
        marks.finish()?;
        Ok(summary)
    }

    /// Moves objects with one owner out of sparsely used parts of the file, until nothing more is gained, and
    /// cuts the file at its end. Returns the bytes that became free for objects of any size, or were cut off.
    /// Objects that several pointers share, or that weak pointers or handles lead to, stay where they are.
    ///
    /// Crashes and readers at any moment find everything as it is, and other transactions go on. Takes time
    /// in proportion to the objects. In a pool that has maps, too, use that of the pool, which moves those.
    ///
    /// # Errors
    ///
    /// The pool's own, but for a full one, in which it ends; [`ErrorKind::InsideTransaction`] in a
    /// transaction of this heap.
    pub fn compact(&self) -> Result<u64> {
        compact_all(&self.shared)
    }

    /// The size of the heap's file, and its unused part.
    pub fn stats(&self) -> Stats {
        self.shared.pool.stats()
    }
}

/// Opens the heap of a pool, or makes it if the pool has no roots yet.
fn open_shared<R: Persist + Default>(pool: Pool, brand: Option<BrandLease>) -> Result<HeapShared> {
    pool.check_process()?;
    // Ownership records are in memory, so there must be only one set of them. The offset 0, at which no
    // structure lies, stands for the pool's heap, even before the heap exists.
    let hold = guest::unless_moved(|| pool.hold(0)).ok_or(ErrorKind::InUse)?;
    let root = pool.roots()?.into_iter().find(|root| root.name == ROOT_NAME);
    let (off, types) = match root {
        Some(root) if root.kind == ROOT_KIND => reopen::<R>(&pool, root.off)?,
        Some(root) => {
            let found = format!("its root `heap` is of kind {:#x}", root.kind);
            return Err(ErrorKind::NotAHeap { found }.into());
        }
        None => match pool.roots()?.first() {
            Some(other) => {
                let found = format!("it has a root named `{}`", other.name);
                return Err(ErrorKind::NotAHeap { found }.into());
            }
            None => create::<R>(&pool)?,
        },
    };
    HeapShared::open(pool, off, types, (brand, hold))
}

fn create<R: Persist + Default>(pool: &Pool) -> Result<(u64, Types)> {
    let mut lane = pool.lane()?;
    let mut tx = lane.begin();
    let off = tx.alloc(size_of::<PmHeap>() as u64)?;
    let lanes = u64::from(pool.geometry().lane_count);
    let dying = tx.alloc_zeroed(lanes * LINE)?;
    tx.write_fresh(off, &[0; size_of::<PmHeap>()])?;
    // PERSIST(I3): zeros that are not part of the commit are durable before it.
    pool.region().fence().map_err(tembo_pool::Error::from)?;
    let mut types = Types::default();
    types.add_reachable(&mut tx, off, vec![TargetFn(TypeInfo::of::<R>)], |_| false)?;
    let mut buffer = ValueBuffer::new();
    let words = buffer.of(&R::default());
    let head = first_head(types.number_of::<R>()?, false);
    let root = match has_line::<R>() {
        true => {
            let line_off = tx.alloc_tagged(head)?;
            tx.write_fresh(line_off, words.bytes())?;
            tagged_object(line_off)
        }
        false => {
            let root = tx.alloc(OBJECT_HEAD_BYTES + words.bytes().len() as u64)?;
            tx.write_fresh_words(root, &head, words.words())?;
            root
        }
    };
    for (field, word) in [
        (offset_of!(PmHeap, magic), MAGIC),
        (offset_of!(PmHeap, generation), 1),
        (offset_of!(PmHeap, root), root),
        (offset_of!(PmHeap, dying), dying),
        (offset_of!(PmHeap, dying_count), lanes),
    ] {
        tx.store(off + field as u64, word)?;
    }
    tx.set_root(ROOT_NAME, ROOT_KIND, off)?;
    tx.commit()?;
    Ok((off, types))
}

fn reopen<R: Persist>(pool: &Pool, off: u64) -> Result<(u64, Types)> {
    let region = pool.region();
    if is_migrating(region, off)? {
        return Err(ErrorKind::Migrating.into());
    }
    let lanes = region.load_u64(off + offset_of!(PmHeap, dying_count) as u64)?;
    if lanes != u64::from(pool.geometry().lane_count) {
        return Err(corrupt("the lists of dying objects", off, pool.geometry().lane_count, lanes));
    }
    let mut types = Types::read(region, off, |_, _| Ok(()))?;
    let root = region.load_u64(off + offset_of!(PmHeap, root) as u64)?;
    let stored = types.get(Kind(region.load_u64(kind_off(root))?).type_number());
    let stored = stored.ok_or_else(|| corrupt("the root's type", root, "a type of the heap", "none"))?;
    if stored.hash != R::HASH {
        let ours = TypeInfo::of::<R>().0;
        if stored.name_hash != ours.name_hash {
            let other = OtherRoot { stored: stored.text.clone(), ours: ours.text };
            return Err(ErrorKind::OtherRoot(other).into());
        }
        return Err(layout_error(stored, &ours));
    }
    let generation_off = off + offset_of!(PmHeap, generation) as u64;
    let generation = region.load_u64(generation_off)?;
    if pool.is_read_only() {
        return Ok((off, types));
    }
    let mut lane = pool.lane()?;
    let mut tx = lane.begin();
    types.add_reachable(&mut tx, off, vec![TargetFn(TypeInfo::of::<R>)], |_| false)?;
    tx.store(generation_off, generation + 1)?;
    tx.commit()?;
    Ok((off, types))
}
