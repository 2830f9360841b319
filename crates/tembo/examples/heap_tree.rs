//! A tree of folders that know their parents.
//!
//! `cargo run --example heap_tree -- [file]`
//!
//! `docs/guide/heap.md` explains it step by step.

use std::path::Path;
use tembo::Options;
use tembo::heap::collections::{PString, PVec};
use tembo::heap::{Error, Handle, Heap, Obj, PRc, PWeak, Persist, ReadTx, Tx, brand};

/// A folder keeps those in it alive, and knows which one it is in.
#[derive(Default, Persist)]
#[repr(C)]
struct Folder {
    name: PString,
    parent: PWeak<Folder>,
    children: PVec<PRc<Folder>>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Tree {
    top: PRc<Folder>,
    /// Where somebody was last, if that is still there.
    bookmark: PWeak<Folder>,
}

brand!(Folders);

type TreeHeap = Heap<Folders, Tree>;
type FolderObj<'t> = Obj<'t, Folders, Folder>;

/// Makes a folder in another.
fn make<'t>(tx: &mut Tx<'t, Folders>, parent: FolderObj<'t>, name: &str) -> Result<FolderObj<'t>, Error> {
    let folder = tx.alloc(Folder::default())?;
    folder.name().set(tx, name)?;
    tx.link_weak(folder.parent(), parent)?;
    parent.children().push_link(tx, folder)?;
    Ok(folder)
}

/// The names from the top to a folder.
fn path<'t>(tx: &ReadTx<'t, Folders>, folder: FolderObj<'t>) -> Result<String, Error> {
    let mut path = folder.name().get(tx)?;
    let mut parent = tx.upgrade(folder.parent())?;
    while let Some(folder) = parent {
        path = format!("{}/{path}", folder.name().get(tx)?);
        parent = tx.upgrade(folder.parent())?;
    }
    Ok(path)
}

/// Takes a folder out of the one that it is in.
fn take_out<'t>(tx: &mut Tx<'t, Folders>, folder: FolderObj<'t>) -> Result<(), Error> {
    let Some(parent) = tx.upgrade(folder.parent())? else { return Ok(()) };
    for (i, slot) in parent.children().iter(tx)?.enumerate() {
        if tx.load(slot)? == Some(folder) {
            parent.children().remove(tx, i)?;
            break;
        }
    }
    tx.link_weak(folder.parent(), None)
}

/// Moves a folder, with all that is in it.
fn move_to<'t>(tx: &mut Tx<'t, Folders>, folder: FolderObj<'t>, to: FolderObj<'t>) -> Result<(), Error> {
    take_out(tx, folder)?;
    to.children().push_link(tx, folder)?;
    tx.link_weak(folder.parent(), to)
}

/// The folder in another that has this name.
fn find<'t>(
    tx: &ReadTx<'t, Folders>,
    parent: FolderObj<'t>,
    name: &str,
) -> Result<Option<FolderObj<'t>>, Error> {
    for slot in parent.children().iter(tx)? {
        let child = tx.follow(slot)?;
        if child.name().is(tx, name)? {
            return Ok(Some(child));
        }
    }
    Ok(None)
}

/// Makes a new tree, and returns a handle of one of its folders.
fn plant(heap: &TreeHeap) -> Result<Handle<Folders, Folder>, Error> {
    heap.write(|tx, tree| {
        let top = tx.alloc(Folder::default())?;
        top.name().set(tx, "papers")?;
        tx.link(tree.top(), top)?;
        let heaps = make(tx, top, "heaps")?;
        let old = make(tx, top, "from before the year 2000")?;
        let shadows = make(tx, old, "shadow paging")?;
        tx.link_weak(tree.bookmark(), shadows)?;
        assert_eq!(path(tx, shadows)?, "papers/from before the year 2000/shadow paging");
        assert_eq!(find(tx, top, "heaps")?, Some(heaps));
        tx.hold(shadows)
    })
}

/// Runs the example on a file.
pub(crate) fn run(file: &Path) -> Result<(), Error> {
    let heap = TreeHeap::open(file, Options::new().create(true))?;
    let shadows = plant(&heap)?;

    heap.write(|tx, tree| {
        let top = tx.follow(tree.top())?;
        let Some(heaps) = find(tx, top, "heaps")? else { return Err(tx.cancel()) };
        let shadows = tx.enter(&shadows)?;
        move_to(tx, shadows, heaps)?;
        println!("{}", path(tx, shadows)?);
        Ok(())
    })?;

    // The tree goes; what the handle holds stays, and its parent is gone.
    heap.write(|tx, tree| tx.link(tree.top(), None))?;
    heap.read(|tx, tree| {
        let bookmark = tx.upgrade(tree.bookmark())?;
        println!("{:?}", bookmark.map(|folder| path(tx, folder)).transpose()?);
        Ok(())
    })?;

    // Without the handle it dies, and the bookmark leads nowhere.
    drop(shadows);
    heap.collect()?;
    let is_there = heap.read(|tx, tree| Ok(tx.upgrade(tree.bookmark())?.is_some()))?;
    assert!(!is_there);
    Ok(())
}

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "tree.heap".to_owned());
    run(Path::new(&path))
}
