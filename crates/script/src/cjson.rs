//! The library `cjson`: values as JSON and back.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::json_settings::{Invalid, NULL, Settings};
use crate::json_text::Parser;
use crate::number::{general, whole};
use crate::raise::{Args, located, type_name};
use crate::shared::Shared;

pub(crate) fn library(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let settings = Rc::new(Cell::new(Settings::default()));
    let library = lua.create_table()?;
    library.raw_set("null", NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    let of = settings.clone();
    let run = shared.clone();
    let encode = move |lua: &Lua, args| encode(&Args::new(lua, "encode", args), &of.get(), &run);
    library.raw_set("encode", lua.create_function(encode)?)?;
    let of = settings.clone();
    let decode = move |lua: &Lua, args| decode(&Args::new(lua, "decode", args), &of.get());
    library.raw_set("decode", lua.create_function(decode)?)?;
    let run = shared.clone();
    library.raw_set("new", lua.create_function(move |lua, _: MultiValue| library_anew(lua, &run))?)?;
    add_settings(lua, &library, &settings)?;
    Ok(library)
}

fn library_anew(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    library(lua, shared)
}

type Change = fn(&Args<'_>, &mut Settings) -> Result<MultiValue>;

/// The functions that show and change a setting.
const CHANGES: [(&str, Change); 7] = [
    ("encode_sparse_array", sparse_array),
    ("encode_max_depth", |args, settings| {
        settings.encode_depth_max = integer_setting(args, 1, settings.encode_depth_max, 1)?;
        Ok(MultiValue::from_vec(vec![Value::Integer(settings.encode_depth_max)]))
    }),
    ("decode_max_depth", |args, settings| {
        settings.decode_depth_max = integer_setting(args, 1, settings.decode_depth_max, 1)?;
        Ok(MultiValue::from_vec(vec![Value::Integer(settings.decode_depth_max)]))
    }),
    ("encode_number_precision", |args, settings| {
        let precision = args.integer_or(1, settings.precision)?;
        if !(1..=14).contains(&precision) {
            return Err(args.bad(1, "expected integer between 1 and 14"));
        }
        settings.precision = precision;
        Ok(MultiValue::from_vec(vec![Value::Integer(settings.precision)]))
    }),
    ("encode_keep_buffer", |args, settings| {
        if !args.is_none_or_nil(1) {
            settings.keeps_buffer = !matches!(args.get(1), Value::Boolean(false));
        }
        Ok(MultiValue::from_vec(vec![Value::Boolean(settings.keeps_buffer)]))
    }),
    ("encode_invalid_numbers", invalid_numbers),
    ("decode_invalid_numbers", |args, settings| {
        if !args.is_none_or_nil(1) {
            settings.decodes_invalid = !matches!(args.get(1), Value::Boolean(false));
        }
        Ok(MultiValue::from_vec(vec![Value::Boolean(settings.decodes_invalid)]))
    }),
];

fn sparse_array(args: &Args<'_>, settings: &mut Settings) -> Result<MultiValue> {
    if !args.is_none_or_nil(1) {
        settings.converts_sparse = !matches!(args.get(1), Value::Boolean(false));
    }
    settings.sparse_ratio = integer_setting(args, 2, settings.sparse_ratio, 0)?;
    settings.sparse_safe = integer_setting(args, 3, settings.sparse_safe, 0)?;
    let Settings { converts_sparse, sparse_ratio, sparse_safe, .. } = *settings;
    Ok(MultiValue::from_vec(vec![
        Value::Boolean(converts_sparse),
        Value::Integer(sparse_ratio),
        Value::Integer(sparse_safe),
    ]))
}

fn invalid_numbers(args: &Args<'_>, settings: &mut Settings) -> Result<MultiValue> {
    settings.encodes_invalid = match args.get(1) {
        Value::Nil => settings.encodes_invalid,
        Value::Boolean(true) => Invalid::Written,
        Value::Boolean(false) => Invalid::Refused,
        Value::String(word) if word == "on" => Invalid::Written,
        Value::String(word) if word == "off" => Invalid::Refused,
        Value::String(word) if word == "null" => Invalid::Null,
        _ => return Err(args.bad(1, "invalid option")),
    };
    Ok(MultiValue::from_vec(vec![match settings.encodes_invalid {
        Invalid::Refused => Value::Boolean(false),
        Invalid::Written => Value::Boolean(true),
        Invalid::Null => Value::String(args.lua.create_string("null")?),
    }]))
}

fn add_settings(lua: &Lua, library: &Table, settings: &Rc<Cell<Settings>>) -> Result<()> {
    for (name, change) in CHANGES {
        let of = settings.clone();
        let function = lua.create_function(move |lua, args: MultiValue| {
            let mut settings = of.get();
            let values = change(&Args::new(lua, name, args), &mut settings)?;
            of.set(settings);
            Ok(values)
        })?;
        library.raw_set(name, function)?;
    }
    Ok(())
}

fn integer_setting(args: &Args<'_>, at: usize, now: i64, least: i64) -> Result<i64> {
    let value = args.integer_or(at, now)?;
    let is_within = (least..=i64::from(i32::MAX)).contains(&value);
    let why = format!("expected integer between {least} and {}", i32::MAX);
    if is_within { Ok(value) } else { Err(args.bad(at, &why)) }
}

fn encode(args: &Args<'_>, settings: &Settings, shared: &Shared) -> Result<Value> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let mut encoder = Encoder { lua: args.lua, settings, shared, text: Vec::new() };
    encoder.value(&args.get(1), 0)?;
    Ok(Value::String(args.lua.create_string(encoder.text)?))
}

struct Encoder<'a> {
    lua: &'a Lua,
    settings: &'a Settings,
    shared: &'a Shared,
    text: Vec<u8>,
}

impl Encoder<'_> {
    fn refuse(&self, what: &str, why: &str) -> mlua::Error {
        located(self.lua, format!("Cannot serialise {what}: {why}"))
    }

    fn value(&mut self, value: &Value, depth: i64) -> Result<()> {
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(value) => self.text.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.text.extend_from_slice(b"null"),
            Value::Table(table) => self.table(table, depth + 1)?,
            value => return Err(self.refuse(type_name(value), "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.settings.encodes_invalid {
                Invalid::Refused => return Err(self.refuse("number", "must not be NaN or Inf")),
                Invalid::Null => {
                    self.text.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::Written if number.is_nan() => {
                    self.text.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Written => {}
            }
        }
        let text = general(number, self.settings.precision as usize);
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.text.push(b'"');
        for &byte in text {
            match byte {
                b'"' | b'\\' | b'/' => self.text.extend([b'\\', byte]),
                8 => self.text.extend_from_slice(b"\\b"),
                b'\t' => self.text.extend_from_slice(b"\\t"),
                b'\n' => self.text.extend_from_slice(b"\\n"),
                12 => self.text.extend_from_slice(b"\\f"),
                b'\r' => self.text.extend_from_slice(b"\\r"),
                0..=31 | 127 => self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.text.push(byte),
            }
        }
        self.text.push(b'"');
    }

    /// How long the array is that a table is, if it is one.
    fn array_len(&self, table: &Table) -> Result<Option<i64>> {
        let (mut max, mut count) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            let place = match pair?.0 {
                Value::Integer(place) => Some(place),
                Value::Number(place) => whole(place),
                _ => None,
            };
            let Some(place) = place.filter(|&place| place >= 1) else {
                return Ok(None);
            };
            max = max.max(place);
            count += 1;
        }
        let Settings { sparse_ratio, sparse_safe, converts_sparse, .. } = *self.settings;
        if sparse_ratio > 0 && max > count * sparse_ratio && max > sparse_safe {
            return if converts_sparse {
                Ok(None)
            } else {
                Err(self.refuse("table", "excessively sparse array"))
            };
        }
        Ok(Some(max))
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<()> {
        self.shared.note_table(self.lua)?;
        if self.text.len() > self.shared.memory_max {
            // Tables that share parts can stand for any number of bytes.
            return Err(crate::raise::Raise::Text(b"not enough memory".to_vec()).into());
        }
        if depth > self.settings.encode_depth_max.min(crate::limits::REPLY_DEPTH_MAX as i64) {
            return Err(located(self.lua, format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_len(table)? {
            Some(len) if len > 0 => {
                self.text.push(b'[');
                for at in 1..=len {
                    if at > 1 {
                        self.text.push(b',');
                    }
                    self.value(&table.raw_get(at)?, depth)?;
                }
                self.text.push(b']');
            }
            _ => self.object(table, depth)?,
        }
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<()> {
        self.text.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.text.push(b',');
            }
            match &key {
                Value::String(key) => self.string(&key.as_bytes()),
                Value::Integer(_) | Value::Number(_) => {
                    self.text.push(b'"');
                    self.value(&key, depth)?;
                    self.text.push(b'"');
                }
                _ => return Err(self.refuse(type_name(&key), "table key must be a number or string")),
            }
            self.text.push(b':');
            self.value(&value, depth)?;
        }
        self.text.push(b'}');
        Ok(())
    }
}

fn decode(args: &Args<'_>, settings: &Settings) -> Result<Value> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let text = args.string(1)?;
    let text = text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(located(args.lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    Parser::new(args.lua, &text, settings).document()
}
