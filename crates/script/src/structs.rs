//! The library `struct`: C structures as strings.

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::raise::{Args, located};

const INTEGER_BYTES_MAX: usize = 32;
const ALIGNMENT_MAX: usize = 8;

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack_all)?)?;
    library.raw_set("unpack", lua.create_function(|lua, args| unpack(&Args::new(lua, "unpack", args)))?)?;
    library.raw_set("size", lua.create_function(|lua, args| size(&Args::new(lua, "size", args)))?)?;
    Ok(library)
}

fn pack_all(lua: &Lua, mut args: MultiValue) -> Result<Value> {
    // The first argument that lacks is nil in errors, and not absent.
    if !args.is_empty() {
        args.push_back(Value::Nil);
    }
    pack(&Args::new(lua, "pack", args))
}

/// A format, read item by item.
struct Format<'a, 'l> {
    args: &'a Args<'l>,
    text: Vec<u8>,
    at: usize,
    is_little: bool,
    alignment: usize,
}

/// An item of a format: its letter, and how many bytes it takes.
struct Item {
    letter: u8,
    bytes: usize,
}

impl<'a, 'l> Format<'a, 'l> {
    fn new(args: &'a Args<'l>) -> Result<Self> {
        let text = args.string(1)?.as_bytes().to_vec();
        Ok(Format { args, text, at: 0, is_little: cfg!(target_endian = "little"), alignment: 1 })
    }

    fn next(&mut self) -> Result<Option<Item>> {
        // A format ends at a zero byte, as the string in C that it was.
        let Some(&letter) = self.text.get(self.at).filter(|&&letter| letter != 0) else {
            return Ok(None);
        };
        self.at += 1;
        let bytes = match letter {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let bytes = self.count(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    let text = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(located(self.args.lua, text));
                }
                bytes
            }
            _ => 0,
        };
        Ok(Some(Item { letter, bytes }))
    }

    fn count(&mut self, default: usize) -> Result<usize> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = &self.text[self.at..self.at + digits];
        self.at += digits;
        let count = text
            .iter()
            .try_fold(0_i32, |count, digit| count.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        let count = count.ok_or_else(|| located(self.args.lua, "integral size overflow"))?;
        Ok(count as usize)
    }

    /// Handles a letter that stands for no value: byte order, alignment.
    fn control(&mut self, letter: u8) -> Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => {
                let alignment = self.count(ALIGNMENT_MAX)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(located(self.args.lua, text));
                }
                self.alignment = alignment;
            }
            letter => {
                let text = format!("invalid format option '{}'", char::from(letter));
                return Err(self.args.bad(1, &text));
            }
        }
        Ok(())
    }

    /// Bytes that stand in front of an item at `place`.
    fn padding(&self, place: usize, item: &Item) -> usize {
        if item.bytes == 0 || item.letter == b'c' {
            return 0;
        }
        let bytes = item.bytes.min(self.alignment);
        bytes.wrapping_sub(place & (bytes.wrapping_sub(1))) & (bytes.wrapping_sub(1))
    }
}

fn pack(args: &Args<'_>) -> Result<Value> {
    let mut format = Format::new(args)?;
    let (mut packed, mut at, mut total) = (Vec::new(), 2, 0);
    while let Some(item) = format.next()? {
        let padding = format.padding(total, &item);
        packed.resize(packed.len() + padding, 0);
        let mut bytes = item.bytes;
        match item.letter {
            b'B' | b'b' | b'H' | b'h' | b'L' | b'l' | b'T' | b'i' | b'I' => {
                let number = args.number(at)?;
                let word = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                put(&mut packed, word, bytes, format.is_little);
                at += 1;
            }
            b'x' => packed.push(0),
            b'f' => {
                put(&mut packed, u64::from((args.number(at)? as f32).to_bits()), 4, format.is_little);
                at += 1;
            }
            b'd' => {
                put(&mut packed, args.number(at)?.to_bits(), 8, format.is_little);
                at += 1;
            }
            b'c' | b's' => {
                let text = args.string(at)?;
                let text = text.as_bytes();
                if bytes == 0 {
                    bytes = text.len();
                }
                if text.len() < bytes {
                    return Err(args.bad(at + 1, "string too short"));
                }
                at += 1;
                packed.extend_from_slice(&text[..bytes]);
                if item.letter == b's' {
                    packed.push(0);
                    bytes += 1;
                }
            }
            letter => format.control(letter)?,
        }
        total += padding + bytes;
    }
    Ok(Value::String(args.lua.create_string(packed)?))
}

fn put(packed: &mut Vec<u8>, word: u64, bytes: usize, is_little: bool) {
    let begin = packed.len();
    packed.extend((0..bytes).map(|at| if at < 8 { (word >> (at * 8)) as u8 } else { 0 }));
    if !is_little {
        packed[begin..].reverse();
    }
}

/// The number in some bytes, most of which are not needed if there are more than 8.
fn word(bytes: &[u8], is_little: bool) -> u64 {
    let add = |word: u64, &byte: &u8| word << 8 | u64::from(byte);
    if is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
}

fn integer(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let word = word(bytes, is_little);
    if !is_signed {
        return word as f64;
    }
    let unused = 64_usize.saturating_sub(bytes.len() * 8).min(63) as u32;
    (((word << unused) as i64) >> unused) as f64
}

fn unpack(args: &Args<'_>) -> Result<MultiValue> {
    let mut format = Format::new(args)?;
    let data = args.string(2)?;
    let data = data.as_bytes();
    let offset = args.integer_or(3, 1)? - 1;
    let mut place = usize::try_from(offset).map_err(|_| args.bad(3, "offset must be 1 or greater"))?;
    let mut values = Vec::new();
    while let Some(item) = format.next()? {
        place = place.saturating_add(format.padding(place, &item));
        let too_short = || args.bad(2, "data string too short");
        let is_there = |bytes: usize| bytes <= data.len() && place <= data.len() - bytes;
        if !is_there(item.bytes) {
            return Err(too_short());
        }
        let mut bytes = item.bytes;
        let field = &data[place..place + bytes];
        match item.letter {
            b'B' | b'b' | b'H' | b'h' | b'L' | b'l' | b'T' | b'i' | b'I' => {
                let is_signed = item.letter.is_ascii_lowercase();
                values.push(Value::Number(integer(field, format.is_little, is_signed)));
            }
            b'x' => {}
            b'f' => {
                let bits = word(field, format.is_little) as u32;
                values.push(Value::Number(f64::from(f32::from_bits(bits))));
            }
            b'd' => values.push(Value::Number(f64::from_bits(word(field, format.is_little)))),
            b'c' => {
                if bytes == 0 {
                    let number = values.pop().and_then(|value| match value {
                        Value::Number(number) => Some(number),
                        value => args.lua.coerce_number(value).ok().flatten(),
                    });
                    let number =
                        number.ok_or_else(|| located(args.lua, "format 'c0' needs a previous size"))?;
                    bytes = number as usize;
                    if !is_there(bytes) {
                        return Err(too_short());
                    }
                }
                values.push(Value::String(args.lua.create_string(&data[place..place + bytes])?));
            }
            b's' => {
                let end = data[place..].iter().position(|&byte| byte == 0);
                let end = end.ok_or_else(|| located(args.lua, "unfinished string in data"))?;
                values.push(Value::String(args.lua.create_string(&data[place..place + end])?));
                bytes = end + 1;
            }
            letter => format.control(letter)?,
        }
        place += bytes;
    }
    values.push(Value::Integer(place as i64 + 1));
    Ok(MultiValue::from_vec(values))
}

fn size(args: &Args<'_>) -> Result<usize> {
    let mut format = Format::new(args)?;
    let mut place = 0;
    while let Some(item) = format.next()? {
        place += format.padding(place, &item);
        match item.letter {
            b's' => return Err(args.bad(1, "option 's' has no fixed size")),
            b'c' if item.bytes == 0 => return Err(args.bad(1, "option 'c0' has no fixed size")),
            letter if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        place += item.bytes;
    }
    Ok(place)
}
