//! The state of the run under way that the libraries see.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use mlua::{Function, IntoLuaMulti, Lua, Result, Value};
use tembo_wire::Protocol;

use crate::raise::{Raise, meaning};
use crate::random::Random;

/// Time between two calls of the host while a script runs for too long.
const TICK: Duration = Duration::from_millis(5);
/// Calls within calls among which the line is looked for that a script was at.
const LEVELS_MAX: usize = 8;
/// Tables that are written between two looks at the time.
const TABLES_PER_LOOK: u32 = 256;
/// Bytes that the values of a byte of a reply take at most: a number of three bytes is a node of 40 in a
/// table, whose size is a power of two and was copied.
const GROWTH_MAX: usize = 64;
/// Bytes that values take besides.
const SPARE_BYTES: usize = 64 << 10;

pub(crate) struct Shared {
    pub(crate) memory_max: usize,
    pub(crate) random: Cell<Random>,
    /// The protocol of the replies that the script gets.
    pub(crate) protocol: Cell<Protocol>,
    /// Functions that libraries have called and that have not returned.
    pub(crate) depth: Cell<usize>,
    /// When the host is to be asked next whether the script may go on.
    pub(crate) next_tick: Cell<Option<Instant>>,
    /// Asks the host, while a script runs.
    pub(crate) ask: RefCell<Option<Function>>,
    /// The script is aborted, whatever catches errors.
    pub(crate) is_aborted: Cell<bool>,
    /// The place at which the script was aborted: `chunk:line`.
    pub(crate) aborted_at: RefCell<Option<String>>,
    /// Tables that were written.
    tables: Cell<u32>,
    /// The limit of memory is off: see [`Shared::unlimited`].
    is_unlimited: Cell<bool>,
}

impl Shared {
    pub(crate) fn new(memory_max: usize) -> Self {
        Shared {
            memory_max,
            random: Cell::new(Random::FIRST),
            protocol: Cell::new(Protocol::Resp2),
            depth: Cell::new(0),
            next_tick: Cell::new(None),
            ask: RefCell::new(None),
            is_aborted: Cell::new(false),
            aborted_at: RefCell::new(None),
            tables: Cell::new(0),
            is_unlimited: Cell::new(false),
        }
    }

    /// Makes values of Lua from this number of bytes. If the memory in use is far from its limit, the limit
    /// is off meanwhile: with it, the binding makes each value in a protected call, with two functions that
    /// are garbage afterwards.
    pub(crate) fn unlimited<T>(&self, lua: &Lua, bytes: usize, make: impl FnOnce() -> T) -> T {
        let most = bytes.saturating_mul(GROWTH_MAX).saturating_add(lua.used_memory() + SPARE_BYTES);
        self.with_limit(lua, most > self.memory_max, make)
    }

    /// Runs Lua's code under the limit of memory.
    pub(crate) fn limited<T>(&self, lua: &Lua, run: impl FnOnce() -> T) -> T {
        self.with_limit(lua, true, run)
    }

    /// Runs Lua's code without that limit.
    pub(crate) fn without_limit<T>(&self, lua: &Lua, run: impl FnOnce() -> T) -> T {
        self.with_limit(lua, false, run)
    }

    fn with_limit<T>(&self, lua: &Lua, is_limited: bool, body: impl FnOnce() -> T) -> T {
        let set = |is_unlimited| {
            // The state has the binding's allocator, so that there is no error.
            let _ = lua.set_memory_limit(if is_unlimited { 0 } else { self.memory_max });
            self.is_unlimited.set(is_unlimited);
        };
        let before = self.is_unlimited.get();
        if before != is_limited {
            return body();
        }
        set(!is_limited);
        let done = body();
        set(before);
        done
    }

    /// Notes that a library writes a table; fails if the script may not go on. Tables that share parts can
    /// stand for any number of them.
    pub(crate) fn note_table(&self, lua: &Lua) -> Result<()> {
        let tables = self.tables.get().wrapping_add(1);
        self.tables.set(tables);
        if tables.is_multiple_of(TABLES_PER_LOOK) { self.look(lua) } else { Ok(()) }
    }

    /// Looks at the time; fails if the script may not go on.
    pub(crate) fn look(&self, lua: &Lua) -> Result<()> {
        if self.is_aborted.get() {
            return Err(Raise::Abort.into());
        }
        let is_due = self.next_tick.get().is_some_and(|next| Instant::now() >= next);
        if !is_due {
            return Ok(());
        }
        if !self.goes_on() {
            self.abort(lua);
            return Err(Raise::Abort.into());
        }
        self.next_tick.set(Some(Instant::now() + TICK));
        Ok(())
    }

    /// Ends the script: every look at the time fails from now on.
    pub(crate) fn abort(&self, lua: &Lua) {
        self.is_aborted.set(true);
        let place = |level| {
            let place = lua.inspect_stack(level, |debug| {
                let name = debug.source().source.map(|name| name.into_owned());
                let name = name.filter(|name| name.starts_with('@'))?;
                debug.current_line().filter(|&line| line > 0).map(|line| (name, line))
            });
            place.flatten()
        };
        let place = (0..LEVELS_MAX).find_map(place);
        *self.aborted_at.borrow_mut() = place.map(|(name, line)| format!("{name}:{line}"));
    }

    /// Calls a function of the script, whose errors go on as they are.
    pub(crate) fn call(&self, function: &Function, args: impl IntoLuaMulti) -> Result<Value> {
        function.call::<Value>(args).map_err(|error| match error {
            // The binding adds a trace of calls to errors that are strings.
            mlua::Error::RuntimeError(text) => {
                let text = text.split("\nstack traceback:\n").next().unwrap_or_default();
                Raise::Text(text.as_bytes().to_vec()).into()
            }
            error => meaning(&error).into(),
        })
    }
}
