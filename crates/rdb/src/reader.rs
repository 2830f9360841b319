//! Files and payloads as sequences of events.

use std::io::Read;

use crate::error::{Error, Problem};
use crate::input::{BUFFER_BYTES, Input};
use crate::skip::{self, ModuleType};
use crate::value::{Buffers, Decoder, Step, form_of};
use crate::{Element, Kind, checksum, types};

/// Highest version of Redis's format that is understood.
const VERSION_MAX: u32 = 12;
/// Versions from this one on end with a checksum.
const VERSION_OF_CHECKSUMS: u32 = 5;
/// The version of Valkey's own format that is understood.
const VERSION_OF_VALKEY: u32 = 80;
/// A payload's version and checksum.
const FOOTER_BYTES: usize = 10;

/// The next thing in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A fact about the file or about the server that wrote it.
    Aux {
        /// `redis-ver`, `ctime`, ...
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The keys that follow are in this database.
    Database(u64),
    /// How many keys the database has, and how many of them have a deadline, as the file says.
    Sizes {
        /// The keys.
        keys: u64,
        /// The number of keys with a deadline.
        deadlines: u64,
    },
    /// A library of functions: its code.
    Function(&'a [u8]),
    /// A library of functions in the form of a release candidate, which was skipped.
    OldFunction,
    /// Data of a module beside the keys, which was skipped.
    ModuleAux(ModuleType),
    /// The state of a cluster's slots, which was skipped.
    Slots,
    /// A key; its elements follow, and then [`KeyEnd`](Event::KeyEnd).
    Key(Key<'a>),
    /// An element of the key's value.
    Element(Element<'a>),
    /// The value is whole.
    KeyEnd,
    /// A key whose value is of a type that is not read. It was skipped.
    Skipped(Skipped<'a>),
    /// The file is whole. It is the last event.
    End {
        /// Whether a checksum confirms that; files may have none.
        is_checked: bool,
    },
}

/// A key, and the facts about its value that the file has before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The key; of a payload, empty.
    pub name: &'a [u8],
    /// The database.
    pub database: u64,
    /// The type of the value.
    pub kind: Kind,
    /// How many elements the value has, where the file says that. A file may lie: it is no size to allocate.
    pub count: Option<u64>,
    /// The rest that a file says about a key.
    pub meta: KeyMeta,
}

/// The facts that a file has about a key beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyMeta {
    /// When the key expires, in milliseconds since the Unix epoch.
    pub deadline_ms: Option<i64>,
    /// For how long nobody had used the key, in seconds.
    pub idle_s: Option<u64>,
    /// How often the key was used, as Redis counts.
    pub frequency: Option<u8>,
}

/// A key that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped<'a> {
    /// The key.
    pub name: &'a [u8],
    /// The database.
    pub database: u64,
    /// The type of its value.
    pub what: Unread,
}

/// The types that are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unread {
    /// A stream.
    Stream,
    /// A value of a module.
    Module(ModuleType),
}

/// Reads a file, or the payload of a DUMP, from a stream.
///
/// No value is ever whole in memory: a string or a packed value is, and of everything else one element.
/// Lengths and counts in the file are not believed. Memory grows with the bytes that were read, and with what
/// they decompress to.
pub struct Reader<R> {
    input: Input<R>,
    state: State,
    version: u32,
    is_valkey: bool,
    is_payload: bool,
    database: u64,
    meta: KeyMeta,
    key: Vec<u8>,
    buffers: Buffers,
}

enum State {
    /// An instruction or a key follows.
    Between,
    /// A payload's value follows.
    Payload,
    Value(Kind, Box<Decoder>),
    /// The value of a payload is whole.
    AfterPayload,
    Done,
}

impl<R: Read> Reader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    /// The source fails, does not begin as a file of this format, or has an unknown version.
    pub fn new(source: R) -> Result<Self, Error> {
        let mut reader = Self::begin(source, BUFFER_BYTES, State::Between);
        let magic: [u8; 9] = match reader.input.array() {
            Err(e) if matches!(e.problem(), Problem::CutShort) => return Err(Error::new(0, Problem::NotRdb)),
            other => other?,
        };
        let digits = magic.strip_prefix(b"REDIS").or(magic.strip_prefix(b"VALKEY"));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(Ok(version)) = number.map(str::parse) else {
            return Err(Error::new(0, Problem::NotRdb));
        };
        reader.is_valkey = magic.starts_with(b"VALKEY");
        reader.set_version(version, if reader.is_valkey { 6 } else { 5 })?;
        Ok(reader)
    }

    fn begin(source: R, buffer_bytes: usize, state: State) -> Self {
        Reader {
            input: Input::new(source, buffer_bytes),
            state,
            version: 0,
            is_valkey: false,
            is_payload: false,
            database: 0,
            meta: KeyMeta::default(),
            key: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    fn set_version(&mut self, version: u32, at: u64) -> Result<(), Error> {
        self.version = version;
        let is_known = match self.is_valkey {
            true => version == VERSION_OF_VALKEY,
            false => (1..=VERSION_MAX).contains(&version),
        };
        if is_known { Ok(()) } else { Err(Error::new(at, Problem::UnknownVersion(version))) }
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether the file has Valkey's own format.
    pub fn is_valkey(&self) -> bool {
        self.is_valkey
    }

    /// How many bytes have been read.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Refuses strings that are longer than this, packed values included. [`STRING_BYTES_MAX`] by default.
    ///
    /// [`STRING_BYTES_MAX`]: crate::STRING_BYTES_MAX
    pub fn set_string_bytes_max(&mut self, bytes: u64) {
        self.input.string_bytes_max = bytes;
    }

    /// The next event; `None` after the last one.
    ///
    /// # Errors
    /// The fault of the file, its place, and the key at hand. The reader is at its end then.
    #[expect(clippy::should_implement_trait, reason = "an event borrows the reader")]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        let token = self.advance().map_err(|error| {
            let has_key = matches!(self.state, State::Value(..)) && !self.is_payload;
            self.state = State::Done;
            if has_key { error.of_key(&self.key) } else { error }
        })?;
        let Buffers { first, second } = &self.buffers;
        let (name, database) = (self.key.as_slice(), self.database);
        Ok(Some(match token {
            Token::None => return Ok(None),
            Token::Aux => Event::Aux { name: first, value: second },
            Token::Database => Event::Database(database),
            Token::Sizes(keys, deadlines) => Event::Sizes { keys, deadlines },
            Token::Function => Event::Function(first),
            Token::OldFunction => Event::OldFunction,
            Token::ModuleAux(module) => Event::ModuleAux(module),
            Token::Slots => Event::Slots,
            Token::Key(kind, count) => Event::Key(Key { name, database, kind, count, meta: self.meta }),
            Token::Element(_, Step::Scored(score)) => {
                Event::Element(Element::Scored { member: first, score })
            }
            Token::Element(_, Step::Pair { deadline_ms }) => {
                Event::Element(Element::Field { field: first, value: second, deadline_ms })
            }
            Token::Element(Kind::String, Step::Item) => Event::Element(Element::Text(first)),
            Token::Element(_, Step::Item) => Event::Element(Element::Item(first)),
            Token::KeyEnd => Event::KeyEnd,
            Token::Skipped(what) => Event::Skipped(Skipped { name, database, what }),
            Token::End(is_checked) => Event::End { is_checked },
        }))
    }

    fn advance(&mut self) -> Result<Token, Error> {
        match &mut self.state {
            State::Done => Ok(Token::None),
            State::Between => self.instruction(),
            State::Payload => {
                let at = self.input.offset();
                let type_byte = self.input.byte()?;
                self.value(at, type_byte)
            }
            State::Value(kind, decoder) => match decoder.next(&mut self.input, &mut self.buffers)? {
                Some(step) => Ok(Token::Element(*kind, step)),
                None => {
                    self.buffers.trim();
                    self.meta = KeyMeta::default();
                    self.state = if self.is_payload { State::AfterPayload } else { State::Between };
                    Ok(Token::KeyEnd)
                }
            },
            State::AfterPayload if self.input.is_at_end()? => {
                self.state = State::Done;
                Ok(Token::End(true))
            }
            State::AfterPayload => self.input.fail(Problem::Trailing),
        }
    }

    /// Reads an instruction of the file, which stands between values.
    fn instruction(&mut self) -> Result<Token, Error> {
        loop {
            let at = self.input.offset();
            let first = self.input.byte()?;
            match first {
                types::DEADLINE_MS => self.meta.deadline_ms = Some(i64::from_le_bytes(self.input.array()?)),
                types::DEADLINE_S => {
                    let deadline_s = i32::from_le_bytes(self.input.array()?);
                    self.meta.deadline_ms = Some(i64::from(deadline_s) * 1000);
                }
                types::IDLE => self.meta.idle_s = Some(self.input.length()?),
                types::FREQUENCY => self.meta.frequency = Some(self.input.byte()?),
                types::AUX => {
                    self.input.string(&mut self.buffers.first)?;
                    self.input.string(&mut self.buffers.second)?;
                    return Ok(Token::Aux);
                }
                types::SIZES => return Ok(Token::Sizes(self.input.length()?, self.input.length()?)),
                types::DATABASE => {
                    self.database = self.input.length()?;
                    return Ok(Token::Database);
                }
                types::FUNCTION => {
                    self.input.string(&mut self.buffers.first)?;
                    return Ok(Token::Function);
                }
                types::FUNCTION_PRE_GA => {
                    return skip::old_function(&mut self.input).map(|()| Token::OldFunction);
                }
                types::MODULE_AUX => return skip::module_aux(&mut self.input).map(Token::ModuleAux),
                types::SLOT_INFO => {
                    (0..3).try_for_each(|_| self.input.length().map(drop))?;
                    return Ok(Token::Slots);
                }
                types::SLOT_IMPORT => {
                    return skip::slot_import(&mut self.input).map(|()| Token::Slots);
                }
                types::END => return self.end(),
                type_byte => {
                    self.input.string(&mut self.key)?;
                    return self.value(at, type_byte);
                }
            }
        }
    }

    /// Begins a value, or skips it.
    fn value(&mut self, at: u64, type_byte: u8) -> Result<Token, Error> {
        let input = &mut self.input;
        if let Some((kind, form)) = form_of(type_byte, self.is_valkey) {
            let decoder = Decoder::begin(form, input).map_err(|error| error.of_key(&self.key))?;
            let count = decoder.announced();
            self.state = State::Value(kind, Box::new(decoder));
            return Ok(Token::Key(kind, count));
        }
        let skipped = match type_byte {
            types::STREAM | types::STREAM_2 | types::STREAM_3 => {
                skip::stream(input, type_byte).map(|()| Unread::Stream)
            }
            types::MODULE_2 => skip::module_value(input).map(Unread::Module),
            types::MODULE_PRE_GA => Err(Error::new(at, Problem::OldModule)),
            unknown => return Err(Error::new(at, Problem::UnknownType(unknown))),
        };
        let what = skipped.map_err(|error| error.of_key(&self.key))?;
        self.meta = KeyMeta::default();
        if self.is_payload {
            self.state = State::AfterPayload;
        }
        Ok(Token::Skipped(what))
    }

    /// Reads and compares the checksum.
    fn end(&mut self) -> Result<Token, Error> {
        let mut stored = 0;
        let computed = self.input.checksum();
        if self.version >= VERSION_OF_CHECKSUMS {
            stored = u64::from_le_bytes(self.input.array()?);
        }
        if stored != 0 && stored != computed {
            return self.input.fail(Problem::Checksum { stored, computed });
        }
        self.state = State::Done;
        Ok(Token::End(stored != 0))
    }
}

impl<'p> Reader<&'p [u8]> {
    /// Begins to read the payload of a DUMP: one value without a key.
    ///
    /// # Errors
    /// The payload is too short, has an unknown version or another checksum.
    pub fn payload(payload: &'p [u8]) -> Result<Self, Error> {
        let Some(value_bytes) = payload.len().checked_sub(FOOTER_BYTES) else {
            return Err(Error::new(0, Problem::CutShort));
        };
        let (value, footer) = payload.split_at(value_bytes);
        let mut reader = Self::begin(value, value_bytes, State::Payload);
        reader.is_payload = true;
        let version = u16::from_le_bytes([footer[0], footer[1]]).into();
        reader.is_valkey = version == VERSION_OF_VALKEY;
        reader.set_version(version, value_bytes as u64)?;
        let (summed, stored) = payload.split_at(payload.len() - 8);
        let stored = stored.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let computed = checksum::of(summed);
        if stored != computed {
            return Err(Error::new(summed.len() as u64, Problem::Checksum { stored, computed }));
        }
        Ok(reader)
    }
}

/// An event, without the data that it borrows.
#[derive(Clone, Copy)]
enum Token {
    None,
    Aux,
    Database,
    Sizes(u64, u64),
    Function,
    OldFunction,
    ModuleAux(ModuleType),
    Slots,
    Key(Kind, Option<u64>),
    Element(Kind, Step),
    KeyEnd,
    Skipped(Unread),
    End(bool),
}
