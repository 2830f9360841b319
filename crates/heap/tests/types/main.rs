//! Programs that the type system of heaps allows: for each that does not compile (`compile_fail/`), one that
//! does the same rightly, and runs.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub)]

mod account;
mod encoding;
mod objects;
// Public like its types: `unreachable_pub` is denied above.
pub mod shapes;
mod transactions;
mod values;

use std::path::PathBuf;
use tembo_heap::{Heap, Options, PRc, PWeak, Persist, Result, Scoped, brand};

brand!(
    /// The only brand that is seen outside of this crate, so that it has to say what it is.
    pub Public
);

/// Runs with a heap that is gone afterwards.
fn with_heap<R: Persist + Default>(body: impl for<'h> FnOnce(Heap<Scoped<'h>, R>) -> Result<()>) {
    let file = File::new();
    Heap::<Scoped, R>::with(&file.path, &file.options, body).unwrap();
}

/// A file that is gone when this is.
struct File {
    path: PathBuf,
    options: Options,
    _directory: tempfile::TempDir,
}

impl File {
    fn new() -> File {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().create(true).initial_bytes(4 << 20).max_bytes(16 << 20);
        File { path: directory.path().join("heap.pool"), options, _directory: directory }
    }
}

/// A node of a tree.
#[derive(Debug, Default, Persist)]
#[repr(C)]
pub struct Node {
    /// The sort key.
    pub key: u64,
    /// Smaller keys.
    pub left: PRc<Node>,
    /// Greater keys.
    pub right: PRc<Self>,
    parent: PWeak<Node>,
}

impl Node {
    fn new(key: u64) -> Node {
        Node { key, ..Node::default() }
    }
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    first: PRc<Node>,
    second: PRc<Node>,
}

fn bytes_of<T: Persist>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    value.encode(&mut bytes);
    bytes
}
