//! Errors that the libraries raise, and how they read their arguments.
//!
//! The binding wraps an error of a Rust function in a value of its own. Scripts never see that: whatever
//! catches errors unwraps it first ([`crate::sandbox`]).

use std::fmt;
use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Value};

/// An error that a library raises.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raise {
    /// A string.
    Text(Vec<u8>),
    /// A table with this `err`: the error of a command, without its `-`.
    Reply(Vec<u8>),
    /// Any value.
    Value(Value),
    /// The script ends at once; nothing in it catches this.
    Abort,
}

impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raise::Text(text) | Raise::Reply(text) => f.write_str(&String::from_utf8_lossy(text)),
            Raise::Value(_) => f.write_str("an error value"),
            Raise::Abort => f.write_str("the script is aborted"),
        }
    }
}

impl std::error::Error for Raise {}

impl From<Raise> for Error {
    fn from(raise: Raise) -> Error {
        Error::external(raise)
    }
}

/// The meaning of an error that a Rust function has raised, or the binding.
pub(crate) fn meaning(error: &Error) -> Raise {
    match error {
        Error::CallbackError { cause, .. } => meaning(cause),
        Error::WithContext { cause, .. } => meaning(cause),
        Error::ExternalError(cause) => known(cause),
        Error::MemoryError(_) => Raise::Text(b"not enough memory".to_vec()),
        Error::RuntimeError(text) => Raise::Text(text.clone().into_bytes()),
        error => Raise::Text(error.to_string().into_bytes()),
    }
}

fn known(cause: &Arc<dyn std::error::Error>) -> Raise {
    match cause.downcast_ref::<Raise>() {
        Some(raise) => raise.clone(),
        None => Raise::Text(cause.to_string().into_bytes()),
    }
}

/// An error of a command, as a table.
pub(crate) fn reply(text: impl Into<Vec<u8>>) -> Error {
    Raise::Reply(text.into()).into()
}

/// An error with the place of the caller in front.
pub(crate) fn located(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut line = place(lua);
    line.extend_from_slice(text.as_ref());
    Raise::Text(line).into()
}

/// The place that called the function under way: `chunk:line: `, or nothing.
pub(crate) fn place(lua: &Lua) -> Vec<u8> {
    let place = lua.inspect_stack(1, |debug| {
        let line = debug.current_line().filter(|&line| line > 0)?;
        let source = debug.source();
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or("?")))
    });
    place.flatten().unwrap_or_default().into_bytes()
}

/// The arguments of a library function.
pub(crate) struct Args<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) name: &'static str,
    values: Vec<Value>,
}

impl<'a> Args<'a> {
    pub(crate) fn new(lua: &'a Lua, name: &'static str, values: MultiValue) -> Self {
        Args { lua, name, values: values.into_iter().collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The argument at `at`, which counts from 1.
    pub(crate) fn get(&self, at: usize) -> Value {
        self.values.get(at - 1).cloned().unwrap_or(Value::Nil)
    }

    pub(crate) fn is_none_or_nil(&self, at: usize) -> bool {
        matches!(self.values.get(at - 1), None | Some(Value::Nil))
    }

    /// The error of a wrong argument.
    pub(crate) fn bad(&self, at: usize, why: &str) -> Error {
        let names = self.lua.inspect_stack(0, |debug| {
            let names = debug.names();
            (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
        });
        let (name, is_method) = names.unwrap_or_default();
        let name = name.unwrap_or_else(|| self.name.to_owned());
        let text = match (is_method, at) {
            (true, 1) => format!("calling '{name}' on bad self ({why})"),
            (true, at) => format!("bad argument #{} to '{name}' ({why})", at - 1),
            (false, at) => format!("bad argument #{at} to '{name}' ({why})"),
        };
        located(self.lua, text)
    }

    fn wrong_type(&self, at: usize, expected: &str) -> Error {
        let got = match self.values.get(at - 1) {
            None => "no value",
            Some(value) => type_name(value),
        };
        self.bad(at, &format!("{expected} expected, got {got}"))
    }

    /// A string, or a number as one.
    pub(crate) fn string(&self, at: usize) -> Result<LuaString> {
        match self.values.get(at - 1) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Integer(_) | Value::Number(_))) => {
                let text = self.lua.coerce_string(value.clone())?;
                text.ok_or_else(|| self.wrong_type(at, "string"))
            }
            _ => Err(self.wrong_type(at, "string")),
        }
    }

    /// A number, or a string that is one.
    pub(crate) fn number(&self, at: usize) -> Result<f64> {
        let number = match self.values.get(at - 1) {
            Some(&Value::Integer(number)) => Some(number as f64),
            Some(&Value::Number(number)) => Some(number),
            Some(value @ Value::String(_)) => self.lua.coerce_number(value.clone())?,
            _ => None,
        };
        number.ok_or_else(|| self.wrong_type(at, "number"))
    }

    /// An integer: a number whose fraction is dropped.
    pub(crate) fn integer(&self, at: usize) -> Result<i64> {
        Ok(crate::number::truncated(self.number(at)?))
    }

    pub(crate) fn integer_or(&self, at: usize, default: i64) -> Result<i64> {
        if self.is_none_or_nil(at) { Ok(default) } else { self.integer(at) }
    }
}

/// The name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}
