//! A queue of jobs, filled by some threads and worked off by others: each job is done once, whenever the
//! program is killed.
//!
//! `cargo run --example heap_queue -- [file]`
//!
//! `docs/guide/heap.md` explains it step by step.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tembo::Options;
use tembo::heap::collections::PHashMap;
use tembo::heap::{Error, Heap, PRc, Persist, brand};

/// A job, and the one after it.
#[derive(Default, Persist)]
#[repr(C)]
struct Job {
    number: u64,
    next: PRc<Job>,
}

/// One end of the queue, in an object of its own.
#[derive(Default, Persist)]
#[repr(C)]
struct End {
    job: PRc<Job>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Work {
    /// The job that was taken last: the next is the one after it.
    front: PRc<End>,
    /// The job that was added last.
    back: PRc<End>,
    /// The results of the tasks that are done.
    results: PRc<Results>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Results {
    by_number: PHashMap<u64, u64>,
}

brand!(Jobs);

type WorkHeap = Heap<Jobs, Work>;

/// A queue begins with a job that counts as taken.
fn prepare(heap: &WorkHeap) -> Result<(), Error> {
    heap.write(|tx, work| {
        if tx.load(work.front())?.is_some() {
            return Ok(());
        }
        let taken = tx.alloc(Job::default())?;
        for end in [work.front(), work.back()] {
            let object = tx.alloc(End::default())?;
            tx.link(object.job(), taken)?;
            tx.link(end, object)?;
        }
        let results = tx.alloc(Results::default())?;
        tx.link(work.results(), results)
    })
}

/// Adds a job.
fn add(heap: &WorkHeap, number: u64) -> Result<(), Error> {
    heap.write(|tx, work| {
        let back = tx.follow(work.back())?;
        let last = tx.follow(back.job())?;
        let job = tx.alloc(Job { number, next: PRc::null() })?;
        tx.link(last.next(), job)?;
        tx.link(back.job(), job)
    })
}

/// Takes a job, and notes what came of it. Says whether there was one.
fn work_on_one(heap: &WorkHeap) -> Result<bool, Error> {
    heap.write(|tx, work| {
        let front = tx.follow(work.front())?;
        let taken = tx.follow(front.job())?;
        let Some(job) = tx.load(taken.next())? else { return Ok(false) };
        tx.link(front.job(), job)?;

        let number = tx.get(job.number())?;
        let results = tx.follow(work.results())?;
        results.by_number().replace(tx, &number, number * number)?;
        Ok(true)
    })
}

const JOBS: u64 = 2000;

/// Runs the example on a file.
pub(crate) fn run(path: &Path) -> Result<(), Error> {
    let heap = WorkHeap::open(path, Options::new().create(true))?;
    prepare(&heap)?;
    // Jobs that the last run left.
    while work_on_one(&heap)? {}

    let adding = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        let (heap, adding) = (&heap, &adding);
        let adders = [0, 1].map(|half| {
            scope.spawn(move || {
                let outcome = (0..JOBS / 2).try_for_each(|i| add(heap, 2 * i + half));
                adding.fetch_sub(1, Ordering::Release);
                outcome
            })
        });
        let workers = [(); 2].map(|()| {
            scope.spawn(move || {
                loop {
                    let is_over = adding.load(Ordering::Acquire) == 0;
                    if !work_on_one(heap)? && is_over {
                        return Ok(());
                    }
                }
            })
        });
        let mut threads = adders.into_iter().chain(workers);
        threads.try_for_each(|thread| thread.join().expect("a thread that ran to its end"))
    })?;

    let (count, sum) = heap.read(|tx, work| {
        let results = tx.follow(work.results())?;
        let mut sum = 0;
        for entry in results.by_number().iter(tx)? {
            sum += tx.get(entry?.1)?;
        }
        Ok((results.by_number().len(tx)?, sum))
    })?;
    println!("{count} jobs are done; the sum of their squares is {sum}");
    assert_eq!((count as u64, sum), (JOBS, (0..JOBS).map(|number| number * number).sum()));
    Ok(())
}

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "queue.heap".to_owned());
    run(Path::new(&path))
}
