//! The engine: one state of Lua, with the scripts that it knows.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};
use tembo_wire::{Protocol, ReplyWriter, Request};

use crate::commands::{Buffers, connect};
use crate::host::{Flow, Host};
use crate::limits::{INSTRUCTIONS_PER_LOOK, MEMORY_MAX};
use crate::raise::{Raise, meaning};
use crate::replies::{Unwritten, Writer};
use crate::sandbox::{Sandbox, compile};
use crate::shared::Shared;

/// Memory that may be in use after a script before the garbage is collected at once.
const KEPT_BYTES: usize = 32 << 20;
/// The name of every script in errors.
const CHUNK_NAME: &[u8] = b"@user_script";

/// A compiled script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled(usize);

/// The circumstances of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The hexadecimal digits of its digest.
    pub sha: &'a str,
    /// Its table KEYS.
    pub keys: &'a [&'a [u8]],
    /// Its table ARGV.
    pub arguments: &'a [&'a [u8]],
    /// The protocol of its client.
    pub protocol: Protocol,
    /// How many bytes the script's reply may have.
    pub reply_bytes_max: usize,
    /// How long the script may run before the host is asked.
    pub time: Option<Duration>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The script's reply is written.
    Done,
    /// The script failed, with this line for the client, which has no `-`.
    Failed(Vec<u8>),
    /// The host stopped the script.
    Stopped,
}

/// A state of Lua. Scripts that are compiled stay until they are forgotten.
pub struct Engine {
    lua: Lua,
    shared: Rc<Shared>,
    sandbox: Sandbox,
    on_error: Function,
    buffers: RefCell<Buffers>,
    free: Vec<usize>,
    count: usize,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("scripts", &self.count).finish_non_exhaustive()
    }
}

impl Engine {
    /// A new state, without scripts. Takes about a millisecond.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new() -> Result<Self, String> {
        Engine::with_memory(MEMORY_MAX)
    }

    /// [`Engine::new`] with another limit on the memory of scripts, in bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn with_memory(memory_max: usize) -> Result<Self, String> {
        Engine::build(memory_max).map_err(|error| error.to_string())
    }

    fn build(memory_max: usize) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let shared = Rc::new(Shared::new(memory_max));
        let sandbox = Sandbox::new(&lua, &shared)?;
        let of = shared.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        lua.set_global_hook(triggers, move |lua, _| of.look(lua).map(|()| VmState::Continue))?;
        let on_error = lua.create_function(|lua, error: Value| explain(lua, error))?;
        lua.set_memory_limit(memory_max)?;
        Ok(Engine { lua, shared, sandbox, on_error, buffers: RefCell::default(), free: Vec::new(), count: 0 })
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The text is no script, for this reason.
    pub fn compile(&mut self, text: &[u8]) -> Result<Compiled, Vec<u8>> {
        let function = compile(&self.lua, text, CHUNK_NAME)?;
        let at = self.free.pop().unwrap_or(self.count + 1);
        self.sandbox.functions.raw_set(at, function).map_err(|error| error.to_string())?;
        self.count = self.count.max(at);
        Ok(Compiled(at))
    }

    /// Forgets a script.
    pub fn forget(&mut self, script: Compiled) {
        // Storing nil in an existing place takes no memory.
        let _ = self.sandbox.functions.raw_set(script.0, Value::Nil);
        self.free.push(script.0);
    }

    /// Bytes of memory that Lua has.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// The place at which the last stopped script was when it was stopped: `chunk:line`.
    pub fn stopped_at(&self) -> Option<String> {
        self.shared.aborted_at.borrow().clone()
    }

    /// Drops what a script has left. To do so takes a little memory, of which the script may have left none.
    fn tidy(&self) {
        self.shared.without_limit(&self.lua, || {
            self.sandbox.clean();
            if self.lua.used_memory() > KEPT_BYTES.min(self.shared.memory_max / 2) {
                let _ = self.lua.gc_collect();
            }
        });
    }

    /// Runs a script, and appends its reply to `out` if it is done.
    pub fn run(
        &mut self,
        script: Compiled,
        run: &Run<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let start = out.len();
        let random = self.shared.random.get();
        let ran = self.run_raising(script, run, host, out);
        *self.shared.ask.borrow_mut() = None;
        self.shared.next_tick.set(None);
        self.tidy();
        let outcome = match ran {
            _ if self.shared.is_aborted.get() => Outcome::Stopped,
            Ok(outcome) => outcome,
            Err(error) => match meaning(&error) {
                Raise::Abort => Outcome::Stopped,
                Raise::Reply(line) => Outcome::Failed(line),
                Raise::Value(_) => Outcome::Failed(b"ERR unknown error".to_vec()),
                Raise::Text(text) => {
                    Outcome::Failed([b"ERR ", &text[..], b" script: ", run.sha.as_bytes(), b"."].concat())
                }
            },
        };
        if outcome == Outcome::Stopped {
            // If the script runs again, it gets the same random numbers.
            self.shared.random.set(random);
        }
        if outcome != Outcome::Done {
            out.truncate(start);
        }
        outcome
    }

    fn run_raising(
        &mut self,
        script: Compiled,
        run: &Run<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> mlua::Result<Outcome> {
        let Engine { lua, shared, sandbox, on_error, buffers, .. } = self;
        shared.protocol.set(Protocol::Resp2);
        shared.depth.set(0);
        shared.is_aborted.set(false);
        *shared.aborted_at.borrow_mut() = None;
        shared.next_tick.set(run.time.and_then(|time| Instant::now().checked_add(time)));
        // Shortens the lifetime to that of the cell.
        let host: &mut dyn Host = &mut Borrowed(host);
        let host = RefCell::new(host);
        let (shared, host, buffers) = (&**shared, &host, &*buffers);
        let bytes = run.keys.iter().chain(run.arguments).map(|text| text.len() + 1).sum();
        let in_scope = || {
            lua.scope(|scope| {
                sandbox.real.raw_set("KEYS", list(lua, run.keys)?)?;
                sandbox.real.raw_set("ARGV", list(lua, run.arguments)?)?;
                connect(scope, &sandbox.redis, shared, host, buffers)?;
                let call = || sandbox.runner.call::<MultiValue>((script.0, &*on_error));
                let mut values = shared.limited(lua, call)?;
                let is_done = matches!(values.pop_front(), Some(Value::Boolean(true)));
                let value = values.pop_front().unwrap_or(Value::Nil);
                if !is_done {
                    return Ok(Outcome::Failed(failure(&value, run.sha)));
                }
                write_reply(lua, shared, run, &value, out).map(|()| Outcome::Done)
            })
        };
        shared.unlimited(lua, bytes, in_scope)
    }
}

/// Writes the values that a script returned.
fn write_reply(
    lua: &Lua,
    shared: &Shared,
    run: &Run<'_>,
    value: &Value,
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let of_script = shared.protocol.get();
    let (begin, protocol) = (out.len(), run.protocol);
    let end_max = begin.saturating_add(run.reply_bytes_max);
    let mut writer = Writer { lua, shared, out, protocol, of_script, end_max };
    match writer.value(value, 0) {
        Ok(()) => {}
        Err(Unwritten::Stopped(error)) => return Err(error),
        Err(Unwritten::TooLong) => {
            out.truncate(begin);
            let why = "ERR reply exceeds the maximum (reply-max-bytes)";
            ReplyWriter::new(out, protocol).error(why);
        }
    }
    Ok(())
}

/// A host behind a reference.
struct Borrowed<'a>(&'a mut dyn Host);

impl Host for Borrowed<'_> {
    fn call(&mut self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Flow {
        self.0.call(request, protocol, out)
    }

    fn tick(&mut self) -> Flow {
        self.0.tick()
    }

    fn log(&mut self, level: u8, message: &[u8]) {
        self.0.log(level, message);
    }

    fn may_run(&mut self, request: &Request<'_>) -> Option<bool> {
        self.0.may_run(request)
    }
}

fn list(lua: &Lua, texts: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(texts.len(), 0)?;
    for (at, text) in texts.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(text)?)?;
    }
    Ok(table)
}

/// Adds the source and line to an error that ends a script. Returns a table with `err`, `source` and `line`,
/// or nil for an abort.
fn explain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match error {
        Value::Error(error) => match meaning(&error) {
            Raise::Abort => return Ok(Value::Nil),
            Raise::Value(value) => return explain_value(lua, value),
            Raise::Reply(line) => crate::replies::error_table(lua, &line)?,
            Raise::Text(text) => crate::replies::error_table(lua, &[b"ERR ", &text[..]].concat())?,
        },
        other => return explain_value(lua, other),
    };
    with_place(lua, table)
}

fn explain_value(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match error {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string().unwrap_or_default().into_bytes(),
            };
            crate::replies::error_table(lua, &[b"ERR ", &text[..]].concat())?
        }
    };
    with_place(lua, table)
}

fn with_place(lua: &Lua, table: Table) -> mlua::Result<Value> {
    let place = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            (source.what == "C", name, debug.current_line())
        })
    };
    let found = place(1).and_then(|found| if found.0 { place(2) } else { Some(found) });
    if let Some((_, source, Some(line))) = found {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The line of an error that ended a script.
fn failure(error: &Value, sha: &str) -> Vec<u8> {
    let Value::Table(table) = error else {
        return b"ERR not enough memory".to_vec();
    };
    let text = |name: &str| match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let mut line = text("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if line.first() == Some(&b'-') {
        line.remove(0);
    }
    line.truncate(crate::replies::up_to_zero(&line).len());
    if let (Some(source), Some(number)) = (text("source"), text("line")) {
        line.extend_from_slice(format!(" script: {sha}, on ").as_bytes());
        line.extend_from_slice(&source);
        line.push(b':');
        line.extend_from_slice(&number);
        line.push(b'.');
    }
    line
}
