//! The functions of `string` that could run for ever in C: `find`, `match`, `gmatch`, `gsub` and `rep`.

use std::rc::Rc;

use mlua::{Error, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::limits::CALLBACK_DEPTH_MAX;
use crate::pattern::{Capture, Length, Matcher, Trouble};
use crate::raise::{Args, located, type_name};
use crate::shared::Shared;

/// Bytes that `rep` and `gsub` build between two looks at the time.
const BYTES_PER_LOOK: usize = 16 << 20;
const SPECIALS: &[u8] = b"^$*+?.([%-";

pub(crate) fn replace(lua: &Lua, string: &Table, shared: &Rc<Shared>) -> Result<()> {
    let of = shared.clone();
    let find = move |lua: &Lua, args| find(&of, &Args::new(lua, "find", args), true);
    string.raw_set("find", lua.create_function(find)?)?;
    let of = shared.clone();
    let first = move |lua: &Lua, args| self::find(&of, &Args::new(lua, "match", args), false);
    string.raw_set("match", lua.create_function(first)?)?;
    let of = shared.clone();
    let gmatch = move |lua: &Lua, args| gmatch(&of, &Args::new(lua, "gmatch", args));
    string.raw_set("gmatch", lua.create_function(gmatch)?)?;
    let of = shared.clone();
    let gsub = move |lua: &Lua, args| gsub(&of, &Args::new(lua, "gsub", args));
    string.raw_set("gsub", lua.create_function(gsub)?)?;
    let of = shared.clone();
    let rep = move |lua: &Lua, args| rep(&of, &Args::new(lua, "rep", args));
    string.raw_set("rep", lua.create_function(rep)?)
}

fn trouble(lua: &Lua, trouble: Trouble) -> Error {
    match trouble {
        Trouble::Pattern(why) => located(lua, why),
        Trouble::Stop(error) => error,
    }
}

fn rep(shared: &Shared, args: &Args<'_>) -> Result<Value> {
    let text = args.string(1)?;
    let times = usize::try_from(args.integer(2)?).unwrap_or(0);
    let text = text.as_bytes();
    let bytes = if text.is_empty() { 0 } else { text.len().saturating_mul(times) };
    if bytes > shared.memory_max {
        return Err(crate::raise::Raise::Text(b"not enough memory".to_vec()).into());
    }
    shared.look(args.lua)?;
    let repeated = if bytes == 0 { Vec::new() } else { text.repeat(times) };
    Ok(Value::String(args.lua.create_string(repeated)?))
}

/// The place that `find` and `match` begin at, counted from 0.
fn first_place(given: i64, len: usize) -> usize {
    let place = if given < 0 { given.saturating_add(len as i64 + 1) } else { given };
    usize::try_from(place - 1).unwrap_or(0).min(len)
}

fn find(shared: &Shared, args: &Args<'_>, with_places: bool) -> Result<MultiValue> {
    let lua = args.lua;
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let init = first_place(args.integer_or(3, 1)?, subject.len());
    let is_plain = !matches!(args.get(4), Value::Nil | Value::Boolean(false));
    if with_places && (is_plain || !pattern.iter().any(|byte| SPECIALS.contains(byte))) {
        let found = find_bytes(&subject[init..], &pattern);
        return match found {
            Some(at) => (init + at + 1, init + at + pattern.len()).into_lua_multi(lua),
            None => Value::Nil.into_lua_multi(lua),
        };
    }
    let is_anchored = pattern.first() == Some(&b'^');
    let look = || shared.look(lua);
    let mut matcher = Matcher::new(&subject, &pattern, &look);
    for start in init..=subject.len() {
        if let Some(end) = matcher.run(start, usize::from(is_anchored)).map_err(|why| trouble(lua, why))? {
            let captures = captured(lua, &matcher, start, end, !with_places)?;
            let mut values = Vec::new();
            if with_places {
                values.extend([Value::Integer(start as i64 + 1), Value::Integer(end as i64)]);
            }
            values.extend(captures);
            return Ok(MultiValue::from_vec(values));
        }
        if is_anchored {
            break;
        }
    }
    Value::Nil.into_lua_multi(lua)
}

/// Where a text begins in another, in a time that grows with the length of both only.
fn find_bytes(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let Some((&first, rest)) = wanted.split_first() else {
        return Some(0);
    };
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|&byte| byte == first) {
        let begin = from + at;
        if text[begin + 1..].starts_with(rest) {
            return Some(begin);
        }
        from = begin + 1;
    }
    None
}

fn captured(lua: &Lua, matcher: &Matcher<'_>, start: usize, end: usize, or_all: bool) -> Result<Vec<Value>> {
    if matcher.captures.is_empty() && or_all {
        return Ok(vec![Value::String(lua.create_string(&matcher.subject[start..end])?)]);
    }
    matcher.captures.iter().map(|capture| value_of(lua, matcher.subject, capture)).collect()
}

fn value_of(lua: &Lua, subject: &[u8], capture: &Capture) -> Result<Value> {
    match capture.length {
        Length::Open => Err(located(lua, "unfinished capture")),
        Length::Place => Ok(Value::Integer(capture.start as i64 + 1)),
        Length::Bytes(bytes) => {
            let part = &subject[capture.start..capture.start + bytes];
            Ok(Value::String(lua.create_string(part)?))
        }
    }
}

fn gmatch(shared: &Rc<Shared>, args: &Args<'_>) -> Result<Function> {
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let shared = shared.clone();
    let mut next = 0;
    args.lua.create_function_mut(move |lua, _: MultiValue| {
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let look = || shared.look(lua);
        let mut matcher = Matcher::new(&subject, &pattern, &look);
        let first = next;
        for start in first..=subject.len() {
            if let Some(end) = matcher.run(start, 0).map_err(|why| trouble(lua, why))? {
                next = end + usize::from(end == start);
                return Ok(MultiValue::from_vec(captured(lua, &matcher, start, end, true)?));
            }
        }
        next = subject.len() + 1;
        Value::Nil.into_lua_multi(lua)
    })
}

/// The thing that `gsub` puts in place of a match.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(Function),
}

fn gsub(shared: &Rc<Shared>, args: &Args<'_>) -> Result<(Value, i64)> {
    let lua = args.lua;
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let replacement = match args.get(3) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => Replacement::Text(args.string(3)?),
        Value::Table(table) => Replacement::Table(table),
        Value::Function(function) => Replacement::Function(function),
        _ => return Err(args.bad(3, "string/function/table expected")),
    };
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let most = args.integer_or(4, subject.len() as i64 + 1)?;
    let is_anchored = pattern.first() == Some(&b'^');
    let look = || shared.look(lua);
    let mut matcher = Matcher::new(&subject, &pattern, &look);
    let (mut built, mut at, mut count, mut looked) = (Vec::new(), 0, 0, 0);
    while count < most {
        let found = matcher.run(at, usize::from(is_anchored)).map_err(|why| trouble(lua, why))?;
        if let Some(end) = found {
            count += 1;
            append(shared, lua, &mut built, &matcher, (at, end), &replacement)?;
        }
        match found {
            Some(end) if end > at => at = end,
            _ if at < subject.len() => {
                built.push(subject[at]);
                at += 1;
            }
            _ => break,
        }
        if built.len() > shared.memory_max {
            return Err(crate::raise::Raise::Text(b"not enough memory".to_vec()).into());
        }
        if built.len() - looked > BYTES_PER_LOOK {
            shared.look(lua)?;
            looked = built.len();
        }
        if is_anchored {
            break;
        }
    }
    built.extend_from_slice(subject.get(at..).unwrap_or_default());
    Ok((Value::String(lua.create_string(built)?), count))
}

/// Appends the replacement of a match.
fn append(
    shared: &Shared,
    lua: &Lua,
    built: &mut Vec<u8>,
    matcher: &Matcher<'_>,
    (start, end): (usize, usize),
    replacement: &Replacement,
) -> Result<()> {
    let whole = &matcher.subject[start..end];
    let value = match replacement {
        Replacement::Text(text) => return append_text(lua, built, matcher, whole, &text.as_bytes()),
        Replacement::Table(table) => {
            let key = captured(lua, matcher, start, end, true)?.swap_remove(0);
            table.get::<Value>(key)?
        }
        Replacement::Function(function) => {
            let args = MultiValue::from_vec(captured(lua, matcher, start, end, true)?);
            let depth = shared.depth.get();
            if depth >= CALLBACK_DEPTH_MAX {
                return Err(located(lua, "C stack overflow"));
            }
            shared.depth.set(depth + 1);
            let value = shared.call(function, args);
            shared.depth.set(depth);
            value?
        }
    };
    match value {
        Value::Nil | Value::Boolean(false) => built.extend_from_slice(whole),
        Value::String(text) => built.extend_from_slice(&text.as_bytes()),
        value @ (Value::Integer(_) | Value::Number(_)) => {
            let text = lua.coerce_string(value)?;
            built.extend_from_slice(text.as_ref().map(|text| text.as_bytes()).as_deref().unwrap_or_default());
        }
        value => {
            return Err(located(lua, format!("invalid replacement value (a {})", type_name(&value))));
        }
    }
    Ok(())
}

/// Appends a text whose `%1` stand for captures.
fn append_text(
    lua: &Lua,
    built: &mut Vec<u8>,
    matcher: &Matcher<'_>,
    whole: &[u8],
    text: &[u8],
) -> Result<()> {
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            built.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => built.extend_from_slice(whole),
            Some(digit) if digit.is_ascii_digit() => {
                let level = usize::from(digit - b'1');
                match matcher.captures.get(level) {
                    Some(capture) => match capture.length {
                        Length::Open => return Err(located(lua, "unfinished capture")),
                        Length::Place => built.extend_from_slice((capture.start + 1).to_string().as_bytes()),
                        Length::Bytes(bytes) => {
                            built.extend_from_slice(&matcher.subject[capture.start..capture.start + bytes])
                        }
                    },
                    None if level == 0 => built.extend_from_slice(whole),
                    None => return Err(located(lua, "invalid capture index")),
                }
            }
            Some(&other) => built.push(other),
            None => built.push(0),
        }
    }
    Ok(())
}
