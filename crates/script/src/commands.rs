//! The table `redis`: how scripts run commands, and what else they may ask of the server.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Scope, Table, Value};
use tembo_wire::{Protocol, RequestQueue};

use crate::host::{Flow, Host};
use crate::number::argument;
use crate::raise::{Args, Raise, meaning, reply};
use crate::replies::{Reader, error_table, without_line_ends};
use crate::sha1::sha1_hex;
use crate::shared::Shared;

const NO_ARGUMENTS: &str = "ERR Please specify at least one argument for this redis lib call";
const WRONG_ARGUMENTS: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// The memory of calls, kept from one to the next.
#[derive(Default)]
pub(crate) struct Buffers {
    request: RequestQueue,
    reply: Vec<u8>,
}

/// Bytes of a reply that an idle engine keeps.
const KEPT_REPLY_BYTES: usize = 64 << 10;

/// The parts of the table that do not depend on who runs the script.
pub(crate) fn library(lua: &Lua, shared: &Rc<Shared>) -> Result<Table> {
    let redis = lua.create_table()?;
    for (name, level) in [("DEBUG", 0), ("VERBOSE", 1), ("NOTICE", 2), ("WARNING", 3)] {
        redis.raw_set(format!("LOG_{name}"), level)?;
    }
    for (name, flags) in [("NONE", 0), ("AOF", 1), ("SLAVE", 2), ("REPLICA", 2), ("ALL", 3)] {
        redis.raw_set(format!("REPL_{name}"), flags)?;
    }
    redis.raw_set("REDIS_VERSION", "7.0.15")?;
    redis.raw_set("REDIS_VERSION_NUM", 0x0007_000f)?;
    redis.raw_set("error_reply", lua.create_function(|lua, args| one_field(lua, &args, error_reply))?)?;
    redis.raw_set("status_reply", lua.create_function(|lua, args| one_field(lua, &args, status_reply))?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    let of = shared.clone();
    let setresp = lua.create_function(move |lua, args: MultiValue| {
        of.protocol.set(protocol(&Args::new(lua, "setresp", args))?);
        Ok(())
    })?;
    redis.raw_set("setresp", setresp)?;
    let asking = [("pcall", Question::Pcall), ("log", Question::Log), ("acl_check_cmd", Question::May)];
    for (name, question) in asking {
        let of = shared.clone();
        redis.raw_set(name, lua.create_function(move |_, args: MultiValue| of.ask(question, args))?)?;
    }
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok(redis)
}

fn one_field(lua: &Lua, args: &MultiValue, make: fn(&Lua, &[u8]) -> Result<Table>) -> Result<Table> {
    match args.iter().collect::<Vec<_>>()[..] {
        [Value::String(text)] => make(lua, &text.as_bytes()),
        _ => error_table_plain(lua, b"ERR wrong number or type of arguments"),
    }
}

fn error_table_plain(lua: &Lua, line: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(line)?)?;
    Ok(table)
}

/// An error without a code is one of `ERR`.
fn error_reply(lua: &Lua, text: &[u8]) -> Result<Table> {
    let is_end = |byte: &u8| b"\r\n".contains(byte);
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let begin = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(begin, |last| last + 1);
    let text = &text[begin..end];
    match text.contains(&b' ') {
        true => error_table_plain(lua, text),
        false => error_table_plain(lua, &[b"ERR ", text].concat()),
    }
}

fn status_reply(lua: &Lua, text: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", lua.create_string(text)?)?;
    Ok(table)
}

fn sha1hex(lua: &Lua, args: MultiValue) -> Result<Value> {
    let args = Args::new(lua, "sha1hex", args);
    if args.len() != 1 {
        return Err(reply("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(args.get(1))?;
    let text = text.as_ref().map(|text| text.as_bytes());
    Ok(Value::String(lua.create_string(sha1_hex(text.as_deref().unwrap_or_default()))?))
}

fn protocol(args: &Args<'_>) -> Result<Protocol> {
    if args.len() != 1 {
        return Err(reply("ERR redis.setresp() requires one argument."));
    }
    let version = args.lua.coerce_number(args.get(1))?.unwrap_or(0.0);
    Protocol::from_version(version as i64).ok_or_else(|| reply("ERR RESP version must be 2 or 3."))
}

/// Takes the flags and changes nothing: a script is always replicated as its effects.
fn set_repl(lua: &Lua, args: MultiValue) -> Result<()> {
    let args = Args::new(lua, "set_repl", args);
    if args.len() != 1 {
        return Err(reply("ERR redis.set_repl() requires two arguments."));
    }
    let flags = lua.coerce_number(args.get(1))?.unwrap_or(0.0) as i64;
    let why = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
    if flags & !3 == 0 { Ok(()) } else { Err(reply(why)) }
}

/// The questions to the host of functions of the table that are seldom called.
#[derive(Clone, Copy)]
enum Question {
    /// `redis.pcall`.
    Pcall,
    /// `redis.log`.
    Log,
    /// `redis.acl_check_cmd`.
    May,
    /// Whether the script may go on.
    Tick,
}

const QUESTIONS: [Question; 4] = [Question::Pcall, Question::Log, Question::May, Question::Tick];

impl Shared {
    fn ask(&self, question: Question, args: MultiValue) -> Result<Value> {
        let ask = self.ask.borrow().clone();
        let ask = ask.ok_or_else(|| reply("ERR no script runs"))?;
        let answer = ask.call::<Value>((question as usize, args));
        answer.map_err(|error| meaning(&error).into())
    }

    /// Asks the host whether the script may go on.
    pub(crate) fn goes_on(&self) -> bool {
        let is_running = self.ask.borrow().is_some();
        !is_running || matches!(self.ask(Question::Tick, MultiValue::new()), Ok(Value::Boolean(true)))
    }
}

/// Adds the functions that ask the host, for as long as a script runs. Making a function takes longer than
/// most commands, so that there are only two: `redis.call`, and one for all other questions.
pub(crate) fn connect<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    redis: &Table,
    shared: &'env Shared,
    host: &'env RefCell<&'env mut (dyn Host + 'env)>,
    buffers: &'env RefCell<Buffers>,
) -> Result<()> {
    let call =
        scope.create_function(move |lua, args: MultiValue| run(lua, shared, host, buffers, &args, true))?;
    redis.raw_set("call", call)?;
    let ask = scope.create_function(move |lua, (question, args): (usize, MultiValue)| {
        match QUESTIONS[question] {
            Question::Pcall => run(lua, shared, host, buffers, &args, false),
            Question::Log => log(host, &Args::new(lua, "log", args)).map(|()| Value::Nil),
            Question::May => may_run(lua, host, buffers, &args),
            Question::Tick => {
                let goes_on = host.try_borrow_mut().map(|mut host| host.tick() == Flow::GoOn);
                Ok(Value::Boolean(goes_on.unwrap_or(true)))
            }
        }
    })?;
    *shared.ask.borrow_mut() = Some(ask);
    Ok(())
}

fn may_run(
    lua: &Lua,
    host: &RefCell<&mut dyn Host>,
    buffers: &RefCell<Buffers>,
    args: &MultiValue,
) -> Result<Value> {
    let mut buffers = buffers.borrow_mut();
    read(lua, &mut buffers.request, args)?.map_err(reply)?;
    let request = buffers.request.get(0);
    let may = request.and_then(|request| host.borrow_mut().may_run(&request));
    let may = may.ok_or_else(|| reply("ERR Invalid command passed to redis.acl_check_cmd()"))?;
    Ok(Value::Boolean(may))
}

/// Reads the words of a command; the inner error says why they are no command.
fn read(
    lua: &Lua,
    request: &mut RequestQueue,
    args: &MultiValue,
) -> Result<std::result::Result<(), &'static str>> {
    request.clear();
    if args.is_empty() {
        return Ok(Err(NO_ARGUMENTS));
    }
    let mut is_wrong = false;
    let mut words = request.begin();
    for arg in args {
        match arg {
            Value::String(text) => words.push(&text.as_bytes()),
            Value::Integer(number) => words.push(itoa::Buffer::new().format(*number).as_bytes()),
            Value::Number(number) => words.push(argument(*number).as_bytes()),
            _ => is_wrong = true,
        }
    }
    words.end();
    let _ = lua;
    Ok(if is_wrong { Err(WRONG_ARGUMENTS) } else { Ok(()) })
}

/// Runs a command; its error is raised, or returned.
fn run(
    lua: &Lua,
    shared: &Shared,
    host: &RefCell<&mut dyn Host>,
    buffers: &RefCell<Buffers>,
    args: &MultiValue,
    raises: bool,
) -> Result<Value> {
    shared.look(lua)?;
    let mut buffers = buffers.borrow_mut();
    let Buffers { request, reply: out } = &mut *buffers;
    out.clear();
    out.shrink_to(KEPT_REPLY_BYTES);
    if let Err(why) = read(lua, request, args)? {
        return failed(lua, why.as_bytes(), raises);
    }
    let Some(words) = request.get(0) else {
        return failed(lua, NO_ARGUMENTS.as_bytes(), raises);
    };
    let flow = host.borrow_mut().call(&words, shared.protocol.get(), out);
    if flow == Flow::Stop {
        shared.abort(lua);
        return Err(Raise::Abort.into());
    }
    shared.unlimited(lua, out.len(), || match out.strip_prefix(b"-") {
        Some(line) => failed(lua, without_line_ends(line), raises),
        None => Reader { lua, rest: out }.value(),
    })
}

fn failed(lua: &Lua, line: &[u8], raises: bool) -> Result<Value> {
    if raises { Err(reply(line)) } else { Ok(Value::Table(error_table(lua, line)?)) }
}

fn log(host: &RefCell<&mut dyn Host>, args: &Args<'_>) -> Result<()> {
    if args.len() < 2 {
        return Err(reply("ERR redis.log() requires two arguments or more."));
    }
    let level = match args.get(1) {
        Value::Integer(level) => level,
        Value::Number(level) => level as i64,
        _ => return Err(reply("ERR First argument must be a number (log level).")),
    };
    if !(0..=3).contains(&level) {
        return Err(reply("ERR Invalid debug level."));
    }
    let mut message = Vec::new();
    for at in 2..=args.len() {
        if let Some(text) = args.lua.coerce_string(args.get(at))? {
            if !message.is_empty() {
                message.push(b' ');
            }
            message.extend_from_slice(&text.as_bytes());
        }
    }
    host.borrow_mut().log(level as u8, &message);
    Ok(())
}
