//! Shared by the tests of the trees: kinds of keys to draw from a seed, memories, and trees of any solution
//! as one type.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of this module")]

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_bench::mem::RealMem;
use tembo_bench::trees::check::Reached;
use tembo_bench::trees::{Config, Fixed, KeyKind, Scheme, Solution, Text, Tree, TreeError, Visitor};
use tembo_pmem::Region;

/// Keys that tests can draw.
pub trait Draw: KeyKind {
    /// A key out of about `range` different ones, the smallest and the largest possible among them.
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> Self::Owned;
}

fn number(rng: &mut Xoshiro256PlusPlus, range: u64) -> u64 {
    match rng.random_range(0..range) {
        0 => 0,
        1 => u64::MAX,
        n => n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

impl Draw for Fixed<u64> {
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> u64 {
        number(rng, range)
    }
}

impl Draw for Fixed<i64> {
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> i64 {
        number(rng, range) as i64
    }
}

impl Draw for Fixed<u128> {
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> u128 {
        let n = number(rng, range);
        u128::from(n % 5) << 64 | u128::from(n)
    }
}

impl Draw for Fixed<[u8; 24]> {
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> [u8; 24] {
        let n = number(rng, range).to_be_bytes();
        std::array::from_fn(|i| if i < 16 { n[7] % 3 } else { n[i - 16] })
    }
}

impl Draw for Text {
    fn draw(rng: &mut Xoshiro256PlusPlus, range: u64) -> Vec<u8> {
        let n = rng.random_range(0..range);
        match n {
            0 => Vec::new(),
            1 => vec![0xFF; 255],
            n if n % 3 == 0 => format!("key of 20 bytes{n:05}").into_bytes(),
            n if n % 3 == 1 => [vec![b'x'; (n % 70) as usize], n.to_be_bytes().to_vec()].concat(),
            n => n.to_be_bytes()[8 - (n % 8 + 1) as usize..].to_vec(),
        }
    }
}

/// Memory of zeros in the simulated domain, which counts.
pub fn memory(bytes: u64) -> RealMem {
    RealMem::new(Region::simulated(&vec![0; bytes as usize], bytes, None).expect("memory"))
}

/// A tree of any solution, with numbers for keys; byte strings are made of them.
pub trait Index {
    /// [`Tree::insert`].
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, TreeError>;
    /// [`Tree::update`].
    fn update(&mut self, key: u64, value: u64) -> Result<Option<u64>, TreeError>;
    /// [`Tree::remove`].
    fn remove(&mut self, key: u64) -> Result<Option<u64>, TreeError>;
    /// [`Tree::entries`].
    fn entries(&self) -> Vec<(u64, u64)>;
    /// [`Tree::check`].
    fn check(&self) -> Result<Reached, String>;
    /// [`Tree::levels`].
    fn levels(&self) -> usize;
    /// The memory.
    fn mem(&self) -> &RealMem;
    /// Gives the memory back.
    fn into_region(self: Box<Self>) -> Region;
}

/// Keys that stand for numbers, in their order.
pub trait Numbered: KeyKind {
    /// The key of a number.
    fn of(number: u64) -> Self::Owned;
    /// The number of a key.
    fn number(key: &Self::Owned) -> u64;
}

impl Numbered for Fixed<u64> {
    fn of(number: u64) -> u64 {
        number
    }
    fn number(key: &u64) -> u64 {
        *key
    }
}

impl Numbered for Text {
    fn of(number: u64) -> Vec<u8> {
        let mut text = number.to_be_bytes().to_vec();
        text.resize(8 + (number * 7 % 40) as usize, b'.');
        text
    }
    fn number(key: &Vec<u8>) -> u64 {
        key.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes))
    }
}

impl<K: Numbered, S: Scheme> Index for Tree<RealMem, K, S> {
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, TreeError> {
        self.insert(K::key(&K::of(key)), value)
    }
    fn update(&mut self, key: u64, value: u64) -> Result<Option<u64>, TreeError> {
        self.update(K::key(&K::of(key)), value)
    }
    fn remove(&mut self, key: u64) -> Result<Option<u64>, TreeError> {
        self.remove(K::key(&K::of(key)))
    }
    fn entries(&self) -> Vec<(u64, u64)> {
        self.entries().iter().map(|(key, value)| (K::number(key), *value)).collect()
    }
    fn check(&self) -> Result<Reached, String> {
        self.check()
    }
    fn levels(&self) -> usize {
        self.levels()
    }
    fn mem(&self) -> &RealMem {
        self.mem()
    }
    fn into_region(self: Box<Self>) -> Region {
        self.into_mem().into_region()
    }
}

struct Make {
    mem: RealMem,
    config: Config,
    is_text: bool,
    is_new: bool,
}

impl Visitor for Make {
    type Output = Result<Box<dyn Index>, TreeError>;

    fn visit<S: Scheme>(self) -> Self::Output {
        fn make<K: Numbered, S: Scheme>(from: Make) -> Result<Box<dyn Index>, TreeError> {
            let make = if from.is_new { Tree::<_, K, S>::create } else { Tree::open };
            Ok(Box::new(make(from.mem, from.config)?))
        }
        if self.is_text { make::<Text, S>(self) } else { make::<Fixed<u64>, S>(self) }
    }
}

/// An empty tree.
pub fn create(
    solution: &Solution,
    region: Region,
    config: Config,
    is_text: bool,
) -> Result<Box<dyn Index>, TreeError> {
    solution.visit(Make { mem: RealMem::new(region), config, is_text, is_new: true })
}

/// The tree that is there.
pub fn open(
    solution: &Solution,
    region: Region,
    config: Config,
    is_text: bool,
) -> Result<Box<dyn Index>, TreeError> {
    solution.visit(Make { mem: RealMem::new(region), config, is_text, is_new: false })
}
