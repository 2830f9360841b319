//! The library `cmsgpack`: values as MessagePack and back.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::number::whole;
use crate::raise::{Args, located};
use crate::shared::Shared;

/// Tables within tables that are packed; deeper ones are nil.
const PACK_DEPTH_MAX: usize = 16;
const UNPACK_DEPTH_MAX: usize = 500;

pub(crate) fn library(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let library = lua.create_table()?;
    let texts = [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd."),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ];
    texts.into_iter().try_for_each(|(name, text)| library.raw_set(name, text))?;
    let of = shared.clone();
    let packs = move |lua: &Lua, args| pack(&Args::new(lua, "pack", args), &of);
    library.raw_set("pack", lua.create_function(packs)?)?;
    let all = |lua: &Lua, args| unpack(&Args::new(lua, "unpack", args), None, 0);
    library.raw_set("unpack", lua.create_function(all)?)?;
    let one = |lua: &Lua, args| {
        let args = Args::new(lua, "unpack_one", args);
        let offset = args.integer_or(2, 0)?;
        unpack(&args, Some(1), offset)
    };
    library.raw_set("unpack_one", lua.create_function(one)?)?;
    let some = |lua: &Lua, args| {
        let args = Args::new(lua, "unpack_limit", args);
        let (limit, offset) = (args.integer(2)?, args.integer_or(3, 0)?);
        unpack(&args, Some(limit), offset)
    };
    library.raw_set("unpack_limit", lua.create_function(some)?)?;
    Ok(library)
}

fn pack(args: &Args<'_>, shared: &Shared) -> Result<Value> {
    if args.len() == 0 {
        return Err(args.bad(0, "MessagePack pack needs input."));
    }
    let mut packed = Vec::new();
    for at in 1..=args.len() {
        put((args.lua, shared), &mut packed, &args.get(at), 0)?;
    }
    Ok(Value::String(args.lua.create_string(packed)?))
}

/// Where the values are of a run.
type Of<'a> = (&'a Lua, &'a Shared);

fn put(of: Of<'_>, packed: &mut Vec<u8>, value: &Value, depth: usize) -> Result<()> {
    match value {
        Value::Boolean(value) => packed.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(value) => put_integer(packed, *value),
        Value::Number(value) => match whole(*value) {
            Some(value) => put_integer(packed, value),
            None => put_double(packed, *value),
        },
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                len @ 0..=31 => packed.push(0xa0 | len as u8),
                len @ 32..=0xff => packed.extend([0xd9, len as u8]),
                len => put_length(packed, len, 0xda),
            }
            packed.extend_from_slice(&text);
        }
        Value::Table(table) if depth < PACK_DEPTH_MAX => put_table(of, packed, table, depth)?,
        _ => packed.push(0xc0),
    }
    Ok(())
}

/// A length in 16 bits behind `tag`, or in 32 behind the next one.
fn put_length(packed: &mut Vec<u8>, len: usize, tag: u8) {
    match u16::try_from(len) {
        Ok(len) => {
            packed.push(tag);
            packed.extend_from_slice(&len.to_be_bytes());
        }
        Err(_) => {
            packed.push(tag + 1);
            packed.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn put_integer(packed: &mut Vec<u8>, value: i64) {
    match value {
        0..=0x7f => packed.push(value as u8),
        0x80..=0xff => packed.extend([0xcc, value as u8]),
        0x100..=0xffff => {
            packed.push(0xcd);
            packed.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            packed.push(0xce);
            packed.extend_from_slice(&(value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            packed.push(0xcf);
            packed.extend_from_slice(&value.to_be_bytes());
        }
        -32..=-1 => packed.push(value as u8),
        -128..=-33 => packed.extend([0xd0, value as u8]),
        -0x8000..=-129 => {
            packed.push(0xd1);
            packed.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            packed.push(0xd2);
            packed.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            packed.push(0xd3);
            packed.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn put_double(packed: &mut Vec<u8>, value: f64) {
    let short = value as f32;
    if f64::from(short) == value {
        packed.push(0xca);
        packed.extend_from_slice(&short.to_be_bytes());
    } else {
        packed.push(0xcb);
        packed.extend_from_slice(&value.to_be_bytes());
    }
}

fn put_table(of: Of<'_>, packed: &mut Vec<u8>, table: &Table, depth: usize) -> Result<()> {
    of.1.note_table(of.0)?;
    if packed.len() > of.1.memory_max {
        // Tables that share parts can stand for any number of bytes.
        return Err(crate::raise::Raise::Text(b"not enough memory".to_vec()).into());
    }
    let (mut count, mut is_array, mut max) = (0_usize, true, 0_i64);
    for pair in table.pairs::<Value, Value>() {
        let place = match pair?.0 {
            Value::Integer(place) => Some(place),
            Value::Number(place) => whole(place),
            _ => None,
        };
        match place.filter(|&place| place > 0) {
            Some(place) => max = max.max(place),
            None => is_array = false,
        }
        count += 1;
    }
    if is_array && max as usize == count {
        match count {
            0..=15 => packed.push(0x90 | count as u8),
            count => put_length(packed, count, 0xdc),
        }
        return (1..=count).try_for_each(|at| put(of, packed, &table.raw_get(at)?, depth + 1));
    }
    match count {
        0..=15 => packed.push(0x80 | count as u8),
        count => put_length(packed, count, 0xde),
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        put(of, packed, &key, depth + 1)?;
        put(of, packed, &value, depth + 1)?;
    }
    Ok(())
}

fn unpack(args: &Args<'_>, limit: Option<i64>, offset: i64) -> Result<MultiValue> {
    let lua = args.lua;
    let data = args.string(1)?;
    let data = data.as_bytes();
    if offset < 0 || limit.is_some_and(|limit| limit < 0) {
        let len = data.len();
        return Err(located(
            lua,
            format!("Invalid request to unpack with offset of {offset} and limit of {len}."),
        ));
    }
    if offset as usize > data.len() {
        let text = format!("Start offset {offset} greater than input length {}.", data.len());
        return Err(located(lua, text));
    }
    let mut cursor = Cursor { lua, rest: &data[offset as usize..] };
    let mut values = Vec::new();
    while !cursor.rest.is_empty() && limit.is_none_or(|limit| values.len() < limit as usize) {
        match cursor.value(0) {
            Ok(value) => values.push(value),
            Err(Bad::Missing) => return Err(located(lua, "Missing bytes in input.")),
            Err(Bad::Format) => return Err(located(lua, "Bad data format in input.")),
            Err(Bad::Lua(error)) => return Err(error),
        }
    }
    if limit.is_some() {
        let place = if cursor.rest.is_empty() { -1 } else { (data.len() - cursor.rest.len()) as i64 };
        values.insert(0, Value::Integer(place));
    }
    Ok(MultiValue::from_vec(values))
}

enum Bad {
    Missing,
    Format,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Bad {
    fn from(error: mlua::Error) -> Bad {
        Bad::Lua(error)
    }
}

struct Cursor<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> std::result::Result<&'a [u8], Bad> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Bad::Missing)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of this many bytes.
    fn word(&mut self, bytes: usize) -> std::result::Result<u64, Bad> {
        Ok(self.take(bytes)?.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    }

    fn signed(&mut self, bytes: usize) -> std::result::Result<Value, Bad> {
        let unused = 64 - bytes as u32 * 8;
        Ok(Value::Integer(((self.word(bytes)? << unused) as i64) >> unused))
    }

    fn text(&mut self, bytes: u64) -> std::result::Result<Value, Bad> {
        let text = self.take(bytes as usize)?;
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn value(&mut self, depth: usize) -> std::result::Result<Value, Bad> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(Bad::Format);
        }
        let tag = self.take(1)?[0];
        Ok(match tag {
            0..=0x7f => Value::Integer(i64::from(tag)),
            0xe0.. => Value::Integer(i64::from(tag as i8)),
            0xa0..=0xbf => self.text(u64::from(tag & 31))?,
            0x80..=0x8f => self.map(u64::from(tag & 15), depth)?,
            0x90..=0x9f => self.array(u64::from(tag & 15), depth)?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Boolean(tag == 0xc3),
            0xca => Value::Number(f64::from(f32::from_bits(self.word(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.word(8)?)),
            0xcc..=0xcf => {
                // The largest ones are negative, as in Redis.
                Value::Integer(self.word(1 << (tag - 0xcc))? as i64)
            }
            0xd0..=0xd3 => self.signed(1 << (tag - 0xd0))?,
            0xd9..=0xdb => {
                let bytes = self.word(1 << (tag - 0xd9))?;
                self.text(bytes)?
            }
            0xdc | 0xdd => {
                let count = self.word(2 << (tag - 0xdc))?;
                self.array(count, depth)?
            }
            0xde | 0xdf => {
                let count = self.word(2 << (tag - 0xde))?;
                self.map(count, depth)?
            }
            _ => return Err(Bad::Format),
        })
    }

    fn array(&mut self, count: u64, depth: usize) -> std::result::Result<Value, Bad> {
        let table = self.lua.create_table()?;
        for at in 1..=count {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: u64, depth: usize) -> std::result::Result<Value, Bad> {
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            let is_nan = matches!(key, Value::Number(key) if key.is_nan());
            if is_nan || key.is_nil() {
                return Err(Bad::Format);
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
