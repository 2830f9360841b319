//! Handles that are left when their heap is closed.

use tembo_heap::{ErrorKind, Handle, Heap, NamedBrand, Options, PRc, Persist, brand};
use tembo_pool::Pool;

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

brand!(Left);
brand!(Kept);

struct File {
    dir: tempfile::TempDir,
}

impl File {
    fn new() -> File {
        File { dir: tempfile::tempdir().unwrap() }
    }

    fn open<B: NamedBrand>(&self) -> Heap<B, Root> {
        Heap::open(self.dir.path().join("left.heap"), Options::new().create(true)).unwrap()
    }
}

/// A handle of a new object, which a pointer may lead to.
fn hold<B: NamedBrand>(heap: &Heap<B, Root>, number: u64, is_linked: bool) -> Handle<B, u64> {
    let held = heap.write(|tx, root| {
        let object = tx.alloc(number)?;
        if is_linked {
            tx.link(root.first(), object)?;
        }
        tx.hold(object)
    });
    held.unwrap()
}

/// A handle in some struct or thread kept the brand and the file locked after its heap was dropped, and the
/// error said no more than that the heap is open.
#[test]
fn a_heap_is_closed_when_it_is_dropped_whatever_handles_are_left() {
    let file = File::new();
    let heap = file.open::<Left>();
    let left = hold(&heap, 7, true);
    let sent = left.clone();
    let elsewhere = std::thread::spawn(move || {
        std::thread::park();
        drop(sent);
    });
    drop(heap);
    // The file is free, for others too.
    drop(Pool::open(file.dir.path().join("left.heap"), &Options::new()).unwrap());
    let heap = file.open::<Left>();
    let refused = heap.read(|tx, _| tx.get(*tx.enter(&left)?)).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::ClosedHandle { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(
        text.starts_with("the handle Handle(u64 at 0x") && text.contains("ended when its heap was closed"),
        "{text}"
    );
    // The use of old handles does not affect the handles of this opening.
    let held = hold(&heap, 8, false);
    drop(left);
    elsewhere.thread().unpark();
    elsewhere.join().unwrap();
    assert_eq!(heap.read(|tx, root| tx.get(*tx.follow(root.first())?)).unwrap(), 7);
    assert_eq!(heap.read(|tx, _| tx.get(*tx.enter(&held)?)).unwrap(), 8);
}

/// The next opening releases the objects that handles alone had kept alive, even while some of the handles
/// exist.
#[test]
fn what_a_handle_kept_alive_dies_with_the_heap_that_was_closed() {
    let file = File::new();
    let heap = file.open::<Kept>();
    let left = hold(&heap, 7, false);
    drop(heap);
    let heap = file.open::<Kept>();
    let again = hold(&heap, 8, true);
    heap.collect().unwrap();
    drop((again, left));
    heap.collect().unwrap();
    drop(heap);
    let pool = Pool::open(file.dir.path().join("left.heap"), &Options::new()).unwrap();
    let mut marks = pool.marks().unwrap();
    let summary = tembo_heap::check(&pool, &mut marks).unwrap();
    marks.finish().unwrap();
    let numbers = summary.types.iter().find(|usage| usage.name == "u64");
    assert_eq!(numbers.map(|usage| usage.objects), Some(1), "only the one that is linked");
}
