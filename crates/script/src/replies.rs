//! Replies of commands as values of Lua, and values as replies.
//!
//! | reply | value | and back |
//! |---|---|---|
//! | integer | number | number, without its fraction |
//! | bulk | string | string |
//! | status | table with `ok` | the same |
//! | error | table with `err` | the same |
//! | array | table | table, up to the first nil |
//! | null of RESP2 | false | false |
//! | null of RESP3 | nil | nil |
//! | boolean | boolean | true is 1 and false is null, unless the script has chosen RESP3 |
//! | double, map, set, big number, verbatim text | table with a field of that name | the same |

use mlua::{Lua, LuaString, Result, Table, Value};
use tembo_wire::{Protocol, ReplyWriter};

use crate::limits::REPLY_DEPTH_MAX;
use crate::number::truncated;
use crate::shared::Shared;

/// Reads the replies of this server's own commands: they are whole and well formed. Anything else is nil.
pub(crate) struct Reader<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| byte == b'\r').unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).unwrap_or_default();
        line
    }

    fn payload(&mut self, len: i64) -> &'a [u8] {
        let len = usize::try_from(len).unwrap_or(0).min(self.rest.len());
        let (payload, rest) = self.rest.split_at(len);
        self.rest = rest.get(2..).unwrap_or_default();
        payload
    }

    fn text(&self, text: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn with(&self, name: &str, value: impl mlua::IntoLua) -> Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: i64) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..count.max(0) {
            let (key, value) = (self.value()?, self.value()?);
            if !key.is_nil() {
                table.raw_set(key, value)?;
            }
        }
        self.with("map", table)
    }

    fn set(&mut self, count: i64) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..count.max(0) {
            let value = self.value()?;
            if !value.is_nil() {
                table.raw_set(value, true)?;
            }
        }
        self.with("set", table)
    }

    /// The next reply as a value.
    pub(crate) fn value(&mut self) -> Result<Value> {
        let Some((&kind, rest)) = self.rest.split_first() else {
            return Ok(Value::Nil);
        };
        self.rest = rest;
        let line = self.line();
        let number = || str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        match kind {
            b':' => Ok(Value::Integer(number())),
            b'$' | b'*' if number() < 0 => Ok(Value::Boolean(false)),
            b'$' => {
                let payload = self.payload(number());
                self.text(payload)
            }
            b'+' => self.with("ok", self.lua.create_string(line)?),
            b'-' => Ok(Value::Table(error_table(self.lua, line)?)),
            b'*' | b'>' => {
                let count = number().max(0) as usize;
                let table = self.lua.create_table_with_capacity(count.min(1 << 16), 0)?;
                for at in 1..=count {
                    let value = self.value()?;
                    table.raw_set(at, value)?;
                }
                Ok(Value::Table(table))
            }
            b'%' => self.map(number()),
            b'~' => self.set(number()),
            b',' => {
                let number = str::from_utf8(line).ok().and_then(|text| text.parse::<f64>().ok());
                self.with("double", number.unwrap_or(0.0))
            }
            b'#' => Ok(Value::Boolean(line == b"t")),
            b'(' => self.with("big_number", self.lua.create_string(line)?),
            b'=' => {
                let payload = self.payload(number());
                let (format, text) = payload.split_at(payload.len().min(3));
                let table = self.lua.create_table()?;
                table.raw_set("format", self.lua.create_string(format)?)?;
                table.raw_set("string", self.lua.create_string(text.get(1..).unwrap_or_default())?)?;
                self.with("verbatim_string", table)
            }
            _ => Ok(Value::Nil),
        }
    }
}

/// A line without the line ends at its end.
pub(crate) fn without_line_ends(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    &line[..end]
}

/// The value of an error of a command.
pub(crate) fn error_table(lua: &Lua, line: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 4)?;
    table.raw_set("err", lua.create_string(line)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

fn field(table: &Table, name: &str) -> Value {
    table.raw_get(name).unwrap_or(Value::Nil)
}

fn string_field(table: &Table, name: &str) -> Option<LuaString> {
    match field(table, name) {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Why a reply is not written.
#[derive(Debug)]
pub(crate) enum Unwritten {
    TooLong,
    Stopped(mlua::Error),
}

/// Writes the reply of a script.
pub(crate) struct Writer<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) shared: &'a Shared,
    pub(crate) out: &'a mut Vec<u8>,
    /// The client's version of the protocol.
    pub(crate) protocol: Protocol,
    /// The version that the script has chosen for the replies that it gets.
    pub(crate) of_script: Protocol,
    /// The buffer may not grow beyond this. Tables that share parts can stand for any number of bytes.
    pub(crate) end_max: usize,
}

impl Writer<'_> {
    fn reply(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.out, self.protocol)
    }

    /// Writes a value.
    pub(crate) fn value(&mut self, value: &Value, depth: usize) -> std::result::Result<(), Unwritten> {
        if self.out.len() > self.end_max {
            return Err(Unwritten::TooLong);
        }
        if depth > REPLY_DEPTH_MAX {
            self.reply().error("ERR reached lua stack limit");
            return Ok(());
        }
        match value {
            Value::String(text) => self.reply().bulk(text.as_bytes()),
            Value::Boolean(value) if self.of_script == Protocol::Resp3 => self.reply().boolean(*value),
            Value::Boolean(true) => self.reply().integer(1),
            Value::Integer(number) => self.reply().integer(*number),
            Value::Number(number) => self.reply().integer(truncated(*number)),
            Value::Table(table) => return self.table(table, depth),
            _ => self.reply().null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> std::result::Result<(), Unwritten> {
        self.shared.note_table(self.lua).map_err(Unwritten::Stopped)?;
        if let Some(error) = string_field(table, "err") {
            let error = error.as_bytes();
            let error = up_to_zero(error.strip_prefix(b"-").unwrap_or(&error));
            self.reply().error(without_line_ends(error));
        } else if let Some(status) = string_field(table, "ok") {
            self.reply().simple(up_to_zero(&status.as_bytes()));
        } else if let Value::Number(number) = field(table, "double") {
            self.reply().double(number);
        } else if let Value::Integer(number) = field(table, "double") {
            self.reply().double(number as f64);
        } else if let Value::Table(map) = field(table, "map") {
            let pairs: Vec<_> = map.pairs::<Value, Value>().flatten().collect();
            self.reply().map(pairs.len());
            for (key, value) in pairs {
                self.value(&key, depth + 1)?;
                self.value(&value, depth + 1)?;
            }
        } else if let Value::Table(set) = field(table, "set") {
            let pairs: Vec<_> = set.pairs::<Value, Value>().flatten().collect();
            self.reply().set(pairs.len());
            for (key, _) in pairs {
                self.value(&key, depth + 1)?;
            }
        } else if let Some(digits) = string_field(table, "big_number") {
            self.reply().big_number(digits.as_bytes());
        } else if let Some((format, text)) = verbatim(table) {
            self.reply().verbatim(format, text.as_bytes());
        } else {
            return self.array(table, depth);
        }
        Ok(())
    }

    fn array(&mut self, table: &Table, depth: usize) -> std::result::Result<(), Unwritten> {
        let element = |at: usize| table.raw_get::<Value>(at).unwrap_or(Value::Nil);
        let len = (1..).take_while(|&at| !element(at).is_nil()).count();
        self.reply().array(len);
        (1..=len).try_for_each(|at| self.value(&element(at), depth + 1))
    }
}

/// A text as C sees it, up to the first zero byte.
pub(crate) fn up_to_zero(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn verbatim(table: &Table) -> Option<([u8; 3], LuaString)> {
    let Value::Table(verbatim) = field(table, "verbatim_string") else {
        return None;
    };
    let mut letters = *b"   ";
    let format = string_field(&verbatim, "format")?;
    letters.iter_mut().zip(format.as_bytes().iter()).for_each(|(to, from)| *to = *from);
    Some((letters, string_field(&verbatim, "string")?))
}
