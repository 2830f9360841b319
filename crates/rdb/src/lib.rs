//! Redis's file format (RDB) and the payloads of DUMP and RESTORE, read and written as streams.
//!
//! This crate opens no files and knows no keyspace; it has a source or a sink. Everything that comes in is
//! untrusted: no input makes it panic, no *announced* size makes it allocate, and nothing in it is recursive.
//!
//! ```text
//!   file     = magic { aux | function | module aux | database { key } } end checksum
//!   magic    = "REDIS" version, four digits | "VALKEY" version, three digits
//!   key      = [ deadline ] [ idle | frequency ] type key value          Event::Key, Element*, KeyEnd
//!   payload  = type value version_le2 checksum_le8                       DUMP
//!
//!   Reader: bytes ---> Event          input, reader, value, packed (listpack, ziplist, zipmap, intset), skip
//!   Writer: Element ---> bytes        output, writer, encoder
//! ```
//!
//! | read | |
//! |---|---|
//! | versions | 1 to 12 of Redis, 80 of Valkey |
//! | strings | plain, integers of 8, 16 and 32 bits, LZF |
//! | lists | plain, ziplist, quicklists of both forms with plain nodes |
//! | sets | plain, intset, listpack |
//! | hashes | plain, zipmap, ziplist, listpack, with deadlines of fields (Valkey 9, Redis 7.4) |
//! | sorted sets | scores as text or as 8 bytes, ziplist, listpack |
//! | said and skipped | streams, values and other data of modules, the state of a cluster's slots |
//!
//! Files are written in version 10, which Redis 7.0 and everything after it reads, in the forms that Redis
//! 7.0 has for values of the same size.
//!
//! ```
//! use tembo_rdb::{Element, Event, Key, KeyMeta, Kind, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), Default::default())?;
//! writer.database(0, 1, 0)?;
//! writer.begin(b"fruit", KeyMeta::default(), Kind::List, 2)?;
//! writer.element(Element::Item(b"apple"))?;
//! writer.element(Element::Item(b"pear"))?;
//! writer.end()?;
//! let file = writer.finish()?;
//!
//! let (mut reader, mut items) = (Reader::new(&file[..])?, 0);
//! while let Some(event) = reader.next()? {
//!     match event {
//!         Event::Key(Key { name, .. }) => assert_eq!(name, b"fruit"),
//!         Event::Element(Element::Item(_)) => items += 1,
//!         _ => {}
//!     }
//! }
//! assert_eq!(items, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod checksum;
mod encoder;
mod encodings;
mod error;
mod input;
mod intset;
mod listpack;
mod lzf;
mod number;
mod output;
mod packed;
mod reader;
mod skip;
mod types;
mod value;
mod writer;
mod ziplist;
mod zipmap;

pub use encodings::{Encodings, NodeSize};
pub use error::{Error, Problem};
pub use reader::{Event, Key, KeyMeta, Reader, Skipped, Unread};
pub use skip::ModuleType;
pub use writer::{Writer, dump_payload};

/// Longest string that a reader takes by default: the longest that Redis stores by default.
pub const STRING_BYTES_MAX: u64 = 512 << 20;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A string.
    String,
    /// A list of strings.
    List,
    /// A set of strings.
    Set,
    /// Fields with values.
    Hash,
    /// Members with scores.
    SortedSet,
}

impl Kind {
    /// Redis's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Hash => "hash",
            Kind::SortedSet => "zset",
        }
    }
}

/// An element of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'a> {
    /// The only element of a string: its value.
    Text(&'a [u8]),
    /// An element of a list, or a member of a set.
    Item(&'a [u8]),
    /// A field of a hash.
    Field {
        /// Its name.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, in milliseconds since the Unix epoch. [`Writer`] leaves that out.
        deadline_ms: Option<i64>,
    },
    /// A member of a sorted set. A score is never NaN.
    Scored {
        /// Its name.
        member: &'a [u8],
        /// Its score.
        score: f64,
    },
}
