//! The list of the records that a transaction has read.

use std::cell::Cell;
use std::mem::ManuallyDrop;

/// Marks count records in the list.
pub(crate) const COUNT_RECORD: u32 = 1 << 31;

thread_local! {
    /// The thread's list of reads, kept from one transaction to the next. It has no destructor, so that
    /// taking it is a load and a store.
    static READS: Cell<Option<ManuallyDrop<Box<ReadList>>>> = const { Cell::new(None) };
    /// Drops the list when the thread ends.
    static READS_END: ReadsEnd = const { ReadsEnd };
}

struct ReadsEnd;

impl Drop for ReadsEnd {
    fn drop(&mut self) {
        drop(READS.take().map(ManuallyDrop::into_inner));
    }
}

/// Records, each with a version; the record was not newer than this version when it was read.
pub(super) type ReadList = Vec<(u32, u64)>;

/// The thread's list, with room for the reads of most transactions.
#[inline(always)]
pub(super) fn take_list() -> Box<ReadList> {
    match READS.take() {
        Some(list) => ManuallyDrop::into_inner(list),
        None => new_list(),
    }
}

#[inline(never)]
pub(super) fn take_list_to_read() -> Box<ReadList> {
    take_list()
}

#[cold]
#[inline(never)]
fn new_list() -> Box<ReadList> {
    // A thread that is ending keeps the list for good.
    let _ = READS_END.try_with(|_| ());
    Box::new(Vec::with_capacity(64))
}

/// Keeps a list for the thread's next transaction.
#[inline(always)]
pub(super) fn keep_list(list: Box<ReadList>) {
    if let Some(other) = READS.replace(Some(ManuallyDrop::new(list))) {
        drop_list(other);
    }
}

#[cold]
#[inline(never)]
fn drop_list(list: ManuallyDrop<Box<ReadList>>) {
    drop(ManuallyDrop::into_inner(list));
}
