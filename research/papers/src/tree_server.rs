//! A small server of memcached's text protocol, with any of the paper's trees as its index: Figure 15 of the
//! wB+-Tree paper.
//!
//! It knows `set`, `get` with one key, `delete` and `quit`. Items are in ordinary memory, as memcached's are;
//! the index leads from a key to its item. As in the paper a lock protects what threads share. Each
//! connection has a thread.

use crate::mem::RealMem;
use crate::trees::{Config, Scheme, Solution, Text, Tree, Visitor, all, named};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use tembo_goals::Error;
use tembo_goals::goals::temporary_pool;
use tembo_index::WbTree;
use tembo_pmem::Durability;
use tembo_pool::Lane;

/// Lines of the nodes of all trees.
const NODE_LINES: u64 = 8;
/// The name of the product's map of byte strings.
const PRODUCT: &str = "tembo";
const VALUE_BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MAX: u64 = 512;

/// The names of the trees that can be served.
pub fn names() -> impl Iterator<Item = &'static str> {
    let paper = all().iter().filter(|solution| solution.supports(NODE_LINES));
    paper.map(|solution| solution.name).chain([PRODUCT])
}

/// Serves the tree `name`, loaded with so many keys of 20 bytes, until the process ends.
///
/// # Errors
///
/// When there is no such tree, no room, or no such port.
pub fn serve(name: &str, port: u16, loaded: u64) -> Result<(), Error> {
    // A client that can connect is served at once.
    let index = open(name, loaded)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let shared = Arc::new(Mutex::new(Store { index, items: vec![Vec::new()], free: Vec::new() }));
    for stream in listener.incoming() {
        let (stream, shared) = (stream?, shared.clone());
        std::thread::spawn(move || {
            if let Err(error) = converse(stream, &shared) {
                eprintln!("a client is disconnected: {error}");
            }
        });
    }
    Ok(())
}

fn open(name: &str, loaded: u64) -> Result<Box<dyn Index>, Error> {
    if name == PRODUCT {
        return Ok(Box::new(Product::new(loaded)?));
    }
    let known = || format!("there is no tree {name}; there are {:?}", names().collect::<Vec<_>>());
    let solution: &Solution = named(name).filter(|tree| tree.supports(NODE_LINES)).ok_or_else(known)?;
    solution.visit(Open { loaded })
}

/// An index from keys to numbers of items.
trait Index: Send {
    fn get(&self, key: &[u8]) -> Result<Option<u64>, Error>;
    /// Adds a key that is not there.
    fn insert(&mut self, key: &[u8], item: u64) -> Result<(), Error>;
    fn remove(&mut self, key: &[u8]) -> Result<Option<u64>, Error>;
}

struct Open {
    loaded: u64,
}

impl Visitor for Open {
    type Output = Result<Box<dyn Index>, Error>;

    fn visit<S: Scheme>(self) -> Self::Output {
        let durability = if S::PERSISTENT { Durability::Emulated } else { Durability::PageCache };
        let mem = RealMem::anonymous(
            (self.loaded * 160 + (256 << 20)).next_multiple_of(1 << 20),
            durability,
            false,
        )?;
        let keys = keys(self.loaded).into_iter().map(|key| (key, 0));
        Ok(Box::new(Paper::<S>(Tree::bulk_load(mem, Config::lines(NODE_LINES), 0.7, keys)?)))
    }
}

struct Paper<S: Scheme>(Tree<RealMem, Text, S>);

impl<S: Scheme> Index for Paper<S> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>, Error> {
        Ok(self.0.get(key))
    }

    fn insert(&mut self, key: &[u8], item: u64) -> Result<(), Error> {
        self.0.insert(key, item)?;
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<Option<u64>, Error> {
        Ok(self.0.remove(key)?)
    }
}

/// The product's map, a commit for each change.
struct Product {
    map: WbTree,
    lane: Lane,
}

impl Product {
    fn new(loaded: u64) -> Result<Product, Error> {
        let pool = temporary_pool(false)?;
        let mut lane = pool.lane()?;
        let mut tx = lane.begin();
        let map = WbTree::create(&mut tx, "index")?;
        tx.commit()?;
        let mut product = Product { map, lane };
        keys(loaded).iter().try_for_each(|key| product.insert(key, 0))?;
        Ok(product)
    }
}

impl Index for Product {
    fn get(&self, key: &[u8]) -> Result<Option<u64>, Error> {
        let value = self.map.get_pinned(key)?;
        Ok(value.and_then(|value| Some(u64::from_le_bytes(value[..].try_into().ok()?))))
    }

    fn insert(&mut self, key: &[u8], item: u64) -> Result<(), Error> {
        let mut tx = self.lane.begin();
        self.map.put(&mut tx, key, &[&item.to_le_bytes()])?;
        Ok(tx.commit()?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<Option<u64>, Error> {
        let item = self.get(key)?;
        let mut tx = self.lane.begin();
        self.map.remove(&mut tx, key)?;
        tx.commit()?;
        Ok(item)
    }
}

/// Ascending keys of 20 bytes, that no client has.
fn keys(count: u64) -> Vec<Vec<u8>> {
    let mix = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut keys: Vec<_> =
        (0..count).map(|number| format!("{:016x}load", mix(number)).into_bytes()).collect();
    keys.sort_unstable();
    keys
}

/// The items, and the index that leads to them.
struct Store {
    index: Box<dyn Index>,
    items: Vec<Vec<u8>>,
    free: Vec<u64>,
}

impl Store {
    fn set(&mut self, key: &[u8], value: Vec<u8>) -> Result<(), Error> {
        if let Some(item) = self.index.get(key)? {
            self.items[item as usize] = value;
            return Ok(());
        }
        let item = self.free.pop().unwrap_or(self.items.len() as u64);
        self.index.insert(key, item)?;
        match self.items.get_mut(item as usize) {
            Some(place) => *place = value,
            None => self.items.push(value),
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Error> {
        let Some(item) = self.index.remove(key)? else { return Ok(false) };
        // The first item is that of all keys that were there from the start.
        if item != 0 {
            self.items[item as usize] = Vec::new();
            self.free.push(item);
        }
        Ok(true)
    }
}

fn converse(stream: TcpStream, shared: &Mutex<Store>) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::with_capacity(1 << 16, stream);
    let (mut line, mut reply) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let words: Vec<&[u8]> = line.trim_ascii_end().split(|byte| *byte == b' ').collect();
        reply.clear();
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        match words[..] {
            [b"" | b"quit"] => return Ok(()),
            [b"get", key] => {
                let store = lock();
                if let Some(item) = store.index.get(key)? {
                    let value = &store.items[item as usize];
                    reply.extend_from_slice(&[b"VALUE ", key, b" 0 "].concat());
                    write!(reply, "{}\r\n", value.len())?;
                    reply.extend_from_slice(value);
                    reply.extend_from_slice(b"\r\n");
                }
                reply.extend_from_slice(b"END\r\n");
            }
            [b"set", key, _, _, bytes] => {
                let bytes = std::str::from_utf8(bytes)?.parse::<usize>()?;
                if bytes > VALUE_BYTES_MAX {
                    return Err("a value is too long".into());
                }
                let mut value = vec![0; bytes + 2];
                input.read_exact(&mut value)?;
                value.truncate(bytes);
                lock().set(key, value)?;
                reply.extend_from_slice(b"STORED\r\n");
            }
            [b"delete", key] => {
                let was_there = lock().delete(key)?;
                reply.extend_from_slice(if was_there { &b"DELETED\r\n"[..] } else { b"NOT_FOUND\r\n" });
            }
            _ => reply.extend_from_slice(b"ERROR\r\n"),
        }
        output.write_all(&reply)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tree_is_an_index() {
        assert_eq!(names().count(), 10);
        for name in names() {
            let (index, items, free) = (open(name, 1000).expect(name), vec![Vec::new()], Vec::new());
            let mut store = Store { index, items, free };
            let key = |number: usize| format!("{number:020}").into_bytes();
            (0..500).for_each(|number| store.set(&key(number), vec![number as u8]).expect(name));
            store.set(&key(7), b"new".to_vec()).expect(name);
            for number in (0..500).step_by(2) {
                assert!(store.delete(&key(number)).expect(name), "{name}");
                assert!(!store.delete(&key(number)).expect(name), "{name}");
            }
            store.set(&key(1000), b"again".to_vec()).expect(name);
            let value = |store: &Store, number| {
                let item = store.index.get(&key(number)).expect(name)?;
                Some(store.items[item as usize].clone())
            };
            assert_eq!(value(&store, 7).as_deref(), Some(&b"new"[..]), "{name}");
            assert_eq!(value(&store, 1000).as_deref(), Some(&b"again"[..]), "{name}");
            assert_eq!((value(&store, 8), value(&store, 9)), (None, Some(vec![9])), "{name}");
            assert!(keys(1000).iter().all(|key| store.index.get(key).expect(name) == Some(0)), "{name}");
        }
    }
}
