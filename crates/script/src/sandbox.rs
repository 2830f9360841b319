//! The globals of scripts: which there are, and that no script changes them.
//!
//! A table that scripts share is seen through an empty one in front of it, whose metatable refuses writes.
//! Lua's functions that write without asking the metatable are replaced (`rawset`) or cleaned up after
//! (`table.insert` and its kind: [`Sandbox::clean`]).
//!
//! # Errors
//!
//! The binding wraps an error that Rust raises in a value of its own. `pcall`, `xpcall` and the coroutines
//! are replaced by functions that give scripts the value that Redis would (`prelude.lua`), and that let the
//! end of an aborted script pass.

use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::limits::COROUTINE_DEPTH_MAX;
use crate::raise::{Args, Raise, located, meaning};
use crate::shared::Shared;
use crate::{bits, cjson, commands, maths, msgpack, strings, structs};

const READ_ONLY: &str = "Attempt to modify a readonly table";
/// The globals of Lua that scripts have.
const KEPT: &[&str] = &[
    "_VERSION",
    "assert",
    "collectgarbage",
    "coroutine",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "rawequal",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
];

pub(crate) struct Sandbox {
    /// The globals behind the empty table.
    pub(crate) real: Table,
    pub(crate) redis: Table,
    pub(crate) functions: Table,
    /// Runs one of the functions.
    pub(crate) runner: Function,
    fronts: Vec<Table>,
}

impl Sandbox {
    pub(crate) fn new(lua: &Lua, shared: &Rc<Shared>) -> Result<Self> {
        let globals = lua.globals();
        let real = lua.create_table()?;
        for name in KEPT {
            real.raw_set(*name, globals.raw_get::<Value>(*name)?)?;
        }
        let redis = commands::library(lua, shared)?;
        real.raw_set("redis", &redis)?;
        real.raw_set("cjson", cjson::library(lua, shared)?)?;
        real.raw_set("cmsgpack", msgpack::library(lua, shared)?)?;
        real.raw_set("bit", bits::library(lua)?)?;
        real.raw_set("struct", structs::library(lua)?)?;
        let os = lua.create_table()?;
        os.raw_set("clock", lua.create_function(|_, _: MultiValue| Ok(processor_seconds()))?)?;
        real.raw_set("os", os)?;
        maths::replace(lua, &real.raw_get("math")?, shared)?;
        strings::replace(lua, &real.raw_get("string")?, shared)?;
        add_loaders(lua, &real)?;
        let functions = lua.create_table()?;
        let runner = add_catchers(lua, &real, &functions)?;
        let mut sandbox = Sandbox { real, redis, functions, runner, fronts: Vec::new() };
        sandbox.put_fronts(lua)?;
        Ok(sandbox)
    }

    /// Puts an empty table in front of each that scripts share.
    fn put_fronts(&mut self, lua: &Lua) -> Result<()> {
        let real = self.real.clone();
        let string: Table = real.raw_get("string")?;
        let mut behind = Vec::new();
        for pair in real.clone().pairs::<LuaString, Value>() {
            if let (name, Value::Table(table)) = pair? {
                behind.push((name, table));
            }
        }
        let refuse = lua.create_function(|lua, _: MultiValue| Err::<(), _>(located(lua, READ_ONLY)))?;
        for (name, table) in &behind {
            real.raw_set(name, self.front(lua, table, &refuse)?)?;
        }
        let globals = self.front(lua, &real, &refuse)?;
        real.raw_set("_G", &globals)?;
        let missing = lua.create_function(|lua, (_, name): (Value, Value)| {
            let name = lua.coerce_string(name)?.map(|name| name.to_string_lossy()).unwrap_or_default();
            let text = format!("Script attempted to access nonexistent global variable '{name}'");
            Err::<(), _>(located(lua, text))
        })?;
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", missing)?;
        real.set_metatable(Some(metatable))?;
        behind.push((lua.create_string("_G")?, real.clone()));
        // The methods of strings. `getmetatable` shows a copy of this table.
        let shown = lua.create_table()?;
        shown.raw_set("__index", real.raw_get::<Value>("string")?)?;
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", string)?;
        metatable.raw_set("__metatable", self.front(lua, &shown, &refuse)?)?;
        lua.set_type_metatable::<LuaString>(Some(metatable));
        behind.push((lua.create_string("")?, shown));
        self.add_raw_functions(lua, &behind)?;
        lua.set_globals(globals)
    }

    fn front(&mut self, lua: &Lua, table: &Table, refuse: &Function) -> Result<Table> {
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", table)?;
        metatable.raw_set("__newindex", refuse)?;
        metatable.raw_set("__metatable", false)?;
        let front = lua.create_table()?;
        front.set_metatable(Some(metatable))?;
        self.fronts.push(front.clone());
        Ok(front)
    }

    /// `rawset`, `rawget` and `pairs`, which look through the tables in front.
    fn add_raw_functions(&self, lua: &Lua, behind: &[(LuaString, Table)]) -> Result<()> {
        let find = {
            let fronts: Vec<_> = self.fronts.iter().map(Table::to_pointer).collect();
            let mut tables = Vec::new();
            for front in &self.fronts {
                let metatable = front.metatable();
                tables.push(metatable.map(|metatable| metatable.raw_get::<Table>("__index")).transpose()?);
            }
            debug_assert_eq!(behind.len(), tables.len());
            Rc::new(move |table: &Table| {
                let wanted = table.to_pointer();
                let at = fronts.iter().position(|front| *front == wanted)?;
                tables[at].clone()
            })
        };
        let of = find.clone();
        let rawset = lua.create_function(move |lua, args: MultiValue| {
            let args = Args::new(lua, "rawset", args);
            let table = table(&args)?;
            if of(&table).is_some() {
                return Err(Raise::Text(READ_ONLY.into()).into());
            }
            if args.get(2).is_nil() {
                return Err(Raise::Text(b"table index is nil".to_vec()).into());
            }
            table.raw_set(args.get(2), args.get(3))?;
            Ok(table)
        })?;
        self.real.raw_set("rawset", rawset)?;
        let of = find.clone();
        let rawget = lua.create_function(move |lua, args: MultiValue| {
            let args = Args::new(lua, "rawget", args);
            let table = table(&args)?;
            of(&table).unwrap_or(table).raw_get::<Value>(args.get(2))
        })?;
        self.real.raw_set("rawget", rawget)?;
        let next: Function = self.real.raw_get("next")?;
        let pairs = lua.create_function(move |lua, args: MultiValue| {
            let table = table(&Args::new(lua, "pairs", args))?;
            let Some(behind) = find(&table) else {
                return Ok((next.clone(), table, Value::Nil));
            };
            let copy = lua.create_table()?;
            for pair in behind.pairs::<Value, Value>() {
                let (key, value) = pair?;
                copy.raw_set(key, value)?;
            }
            Ok((next.clone(), copy, Value::Nil))
        })?;
        self.real.raw_set("pairs", pairs)
    }

    /// Removes values that a script has put into the tables in front in spite of the metatables.
    pub(crate) fn clean(&self) {
        self.fronts.iter().filter(|front| !front.is_empty()).for_each(|front| {
            // The walk fails only with a metamethod, which these tables do not have; and nothing could be
            // done about an error.
            let keys: Vec<Value> = front.pairs::<Value, Value>().flatten().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| drop(front.raw_set(key, Value::Nil)));
        });
    }
}

fn table(args: &Args<'_>) -> Result<Table> {
    match args.get(1) {
        Value::Table(table) => Ok(table),
        other if args.len() == 0 => {
            drop(other);
            Err(args.bad(1, "table expected, got no value"))
        }
        other => Err(args.bad(1, &format!("table expected, got {}", crate::raise::type_name(&other)))),
    }
}

/// The time that the processor has given to this process.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
    nanos.unwrap_or(0) as f64 / 1e9
}

/// The name of Lua's own `loadstring` in the registry. Its errors are bytes; the binding's errors lose all
/// that is not UTF-8.
const COMPILER: &str = "tembo.compiler";

/// `load` and `loadstring`, which take text only: Lua does not check the code that it has compiled.
fn add_loaders(lua: &Lua, real: &Table) -> Result<()> {
    lua.set_named_registry_value(COMPILER, lua.globals().raw_get::<Function>("loadstring")?)?;
    let loadstring = lua.create_function(|lua, args: MultiValue| {
        let args = Args::new(lua, "loadstring", args);
        let text = args.string(1)?.as_bytes().to_vec();
        let name = if args.is_none_or_nil(2) { None } else { Some(args.string(2)?) };
        let name = name.map_or_else(|| text.clone(), |name| name.as_bytes().to_vec());
        load(lua, &text, &name)
    })?;
    real.raw_set("loadstring", loadstring)?;
    let load = lua.create_function(|lua, args: MultiValue| {
        let args = Args::new(lua, "load", args);
        let Value::Function(pieces) = args.get(1) else {
            let got = crate::raise::type_name(&args.get(1));
            return Err(args.bad(1, &format!("function expected, got {got}")));
        };
        let name = if args.is_none_or_nil(2) { None } else { Some(args.string(2)?) };
        let mut text = Vec::new();
        while let Value::String(piece) = pieces.call::<Value>(())? {
            if piece.as_bytes().is_empty() {
                break;
            }
            text.extend_from_slice(&piece.as_bytes());
            if text.len() > crate::limits::MEMORY_MAX {
                return Err(Raise::Text(b"not enough memory".to_vec()).into());
            }
        }
        load(lua, &text, &name.map_or_else(|| b"=(load)".to_vec(), |name| name.as_bytes().to_vec()))
    })?;
    real.raw_set("load", load)
}

fn load(lua: &Lua, text: &[u8], name: &[u8]) -> Result<(Value, Value)> {
    match compile(lua, text, name) {
        Ok(function) => Ok((Value::Function(function), Value::Nil)),
        Err(why) => Ok((Value::Nil, Value::String(lua.create_string(why)?))),
    }
}

/// Compiles a text, or says why that is impossible.
pub(crate) fn compile(lua: &Lua, text: &[u8], name: &[u8]) -> std::result::Result<Function, Vec<u8>> {
    // The first byte of compiled code.
    if text.first() == Some(&0x1b) {
        return Err(b"attempt to load a binary chunk (mode is 't')".to_vec());
    }
    let name: Vec<u8> = name.iter().copied().filter(|&byte| byte != 0).take(200).collect();
    let compiled = || {
        let (text, name) = (lua.create_string(text)?, lua.create_string(&name)?);
        lua.named_registry_value::<Function>(COMPILER)?
            .call::<(Option<Function>, Option<LuaString>)>((text, name))
    };
    match compiled() {
        Ok((Some(function), _)) => Ok(function),
        Ok((None, why)) => Err(why.map_or_else(Vec::new, |why| why.as_bytes().to_vec())),
        Err(error) => Err(error.to_string().into_bytes()),
    }
}

/// The value of an error, as a script sees it.
fn lifted(lua: &Lua, error: Value, as_text: bool) -> Result<Value> {
    match error {
        Value::Error(error) => match meaning(&error) {
            Raise::Abort => Err(Raise::Abort.into()),
            Raise::Value(value) => lifted(lua, value, as_text),
            Raise::Reply(line) if !as_text => Ok(Value::Table(crate::replies::error_table(lua, &line)?)),
            Raise::Text(text) | Raise::Reply(text) => Ok(Value::String(lua.create_string(text)?)),
        },
        Value::Table(table) if as_text => match table.raw_get("err")? {
            text @ Value::String(_) => Ok(text),
            _ => Ok(Value::Table(table)),
        },
        other => Ok(other),
    }
}

/// Adds the functions that catch errors, and returns the one that runs a function of the table `functions`.
fn add_catchers(lua: &Lua, real: &Table, functions: &Table) -> Result<Function> {
    let lift = lua.create_function(|lua, error: Value| lifted(lua, error, false))?;
    let as_text = lua.create_function(|lua, error: Value| lifted(lua, error, true))?;
    // The handler of an error does not see that a script is aborted.
    let handler = lua.create_function(|lua, (error, handler): (Value, Value)| {
        let is_abort = matches!(&error, Value::Error(error) if meaning(error) == Raise::Abort);
        match handler {
            Value::Function(handler) if !is_abort => handler.call::<Value>(lifted(lua, error, false)?),
            _ => Ok(error),
        }
    })?;
    let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude").into_function()?;
    let arguments = (lift, as_text, handler, functions, real, COROUTINE_DEPTH_MAX);
    let runner = prelude.call::<Function>(arguments)?;
    let coroutine: Table = real.raw_get("coroutine")?;
    let (create, resume): (Function, Function) = (coroutine.raw_get("create")?, coroutine.raw_get("resume")?);
    let wrap = lua.create_function(move |lua, body: MultiValue| {
        let args = Args::new(lua, "wrap", body);
        let Value::Function(body) = args.get(1) else {
            return Err(args.bad(1, "Lua function expected"));
        };
        let (routine, resume) = (create.call::<Value>(body)?, resume.clone());
        lua.create_function(move |lua, mut values: MultiValue| {
            values.push_front(routine.clone());
            resume_wrapped(lua, &resume, values)
        })
    })?;
    coroutine.raw_set("wrap", wrap)?;
    Ok(runner)
}

/// Resumes a coroutine, whose error goes on with the place of the caller in front.
fn resume_wrapped(lua: &Lua, resume: &Function, values: MultiValue) -> Result<MultiValue> {
    let mut values = resume.call::<MultiValue>(values)?;
    if matches!(values.pop_front(), Some(Value::Boolean(true))) {
        return Ok(values);
    }
    match values.pop_front() {
        Some(Value::String(text)) => Err(located(lua, text.as_bytes())),
        other => Err(Raise::Value(other.unwrap_or(Value::Nil)).into()),
    }
}
