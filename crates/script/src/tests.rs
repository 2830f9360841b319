//! Scripts with a host that only echoes.

use std::time::Duration;

use tembo_wire::{Protocol, ReplyWriter, Request};

use crate::{Engine, Flow, Host, Outcome, Run};

/// Answers ECHO, answers FRESH with a long text, and refuses all other commands.
struct Echo {
    ticks: usize,
    calls: usize,
    stops: bool,
}

impl Host for Echo {
    fn call(&mut self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Flow {
        let mut reply = ReplyWriter::new(out, protocol);
        match request.name() {
            b"echo" => reply.bulk(&request[1]),
            // A new text each time: Lua keeps equal texts once.
            b"fresh" => {
                self.calls += 1;
                reply.bulk(format!("{:060000}", self.calls).as_bytes());
            }
            b"stop" => return Flow::Stop,
            _ => reply.error("ERR unknown"),
        }
        Flow::GoOn
    }

    fn tick(&mut self) -> Flow {
        self.ticks += 1;
        if self.stops { Flow::Stop } else { Flow::GoOn }
    }

    fn log(&mut self, _: u8, _: &[u8]) {}

    fn may_run(&mut self, _: &Request<'_>) -> Option<bool> {
        Some(true)
    }
}

fn run_in(engine: &mut Engine, text: &str) -> Result<String, Outcome> {
    run_within(engine, text, Duration::from_millis(50))
}

fn run_within(engine: &mut Engine, text: &str, time: Duration) -> Result<String, Outcome> {
    let mut out = Vec::new();
    let script = engine.compile(text.as_bytes()).map_err(Outcome::Failed)?;
    let mut host = Echo { ticks: 0, calls: 0, stops: true };
    let run = Run {
        sha: "sha",
        keys: &[b"k"],
        arguments: &[b"a", b"b"],
        protocol: Protocol::Resp3,
        reply_bytes_max: 1 << 20,
        time: Some(time),
    };
    let outcome = engine.run(script, &run, &mut host, &mut out);
    engine.forget(script);
    match outcome {
        Outcome::Done => Ok(String::from_utf8_lossy(&out).replace("\r\n", " ").trim_end().to_owned()),
        other => Err(other),
    }
}

fn run(text: &str) -> Result<String, Outcome> {
    run_in(&mut Engine::new().unwrap(), text)
}

fn failed(line: &str) -> Result<String, Outcome> {
    Err(Outcome::Failed(line.as_bytes().to_vec()))
}

#[test]
fn values_become_replies() {
    assert_eq!(
        run("return {1,2.9,'x',true,false,{KEYS[1]},{ok='fine'},3,nil,4}").unwrap(),
        "*8 :1 :2 $1 x :1 _ *1 $1 k +fine :3"
    );
    assert_eq!(run("return redis.call('echo', ARGV[2])").unwrap(), "$1 b");
    assert_eq!(run("return redis.call('echo', 12)").unwrap(), "$2 12");
    assert_eq!(run("return {double=2.5}").unwrap(), ",2.5");
}

#[test]
fn errors_have_their_place() {
    assert_eq!(run("return redis.call('x')"), failed("ERR unknown script: sha, on @user_script:1."));
    assert_eq!(run("\nerror('x')"), failed("ERR user_script:2: x script: sha, on @user_script:2."));
    assert_eq!(
        run("return cjson.decode('{')"),
        failed(
            "ERR user_script:1: Expected object key string but found T_END at character 2 script: sha, on @user_script:1."
        )
    );
    let missing = "ERR user_script:1: Script attempted to access nonexistent global variable 'x'";
    assert_eq!(run("return x"), failed(&format!("{missing} script: sha, on @user_script:1.")));
    assert_eq!(run("local ok, e = pcall(redis.call, 'x') return e").unwrap(), "$11 ERR unknown");
    assert_eq!(run("return redis.pcall('x').err").unwrap(), "$11 ERR unknown");
}

#[test]
fn shared_tables_cannot_be_changed() {
    for text in [
        "foo = 1",
        "_G.foo = 1",
        "string.foo = 1",
        "redis.call = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 1, 1)",
        "getmetatable('').__index = {}",
        "setmetatable(_G, {})",
        "KEYS = {}",
        "getmetatable(_G).__index = 1",
    ] {
        assert!(matches!(run(text), Err(Outcome::Failed(_))), "{text}");
    }
    let mut engine = Engine::new().unwrap();
    run_in(&mut engine, "table.insert(string, 'x') return #string").unwrap();
    assert_eq!(run_in(&mut engine, "return #string").unwrap(), ":0");
    let text = "local n, t = pairs(redis) t.call = 1 return type(redis.call)";
    assert_eq!(run_in(&mut engine, text).unwrap(), "$8 function");
}

#[test]
fn errors_of_texts_that_are_no_utf_8_have_their_bytes() {
    let mut engine = Engine::new().unwrap();
    let why = engine.compile(b"\xff\xfe").unwrap_err();
    assert_eq!(why, b"user_script:1: unexpected symbol near '\xff'");
}

#[test]
fn compiled_code_is_refused() {
    let text = "local f, e = loadstring(string.dump(function() return 1 end)) return {tostring(f), e}";
    assert_eq!(run(text).unwrap(), "*2 $3 nil $44 attempt to load a binary chunk (mode is 't')");
    assert!(matches!(run("\x1bLua"), Err(Outcome::Failed(_))));
    assert_eq!(run("return loadstring('return 7')()").unwrap(), ":7");
}

#[test]
fn a_script_that_is_stopped_catches_nothing() {
    let loops = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function(e) return e end) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "return string.find(string.rep('a', 100), string.rep('.-', 20) .. 'b')",
        "while true do pcall(string.find, string.rep('a', 100), string.rep('.-', 20) .. 'b') end",
        "while true do pcall(redis.call, 'stop') end",
        "while true do string.rep('', 1e15) end",
        "while true do redis.pcall('echo', 'x') end",
    ];
    for text in loops {
        assert_eq!(run(text), Err(Outcome::Stopped), "{text}");
    }
    // The engine is usable afterwards.
    let mut engine = Engine::new().unwrap();
    assert_eq!(run_in(&mut engine, loops[0]), Err(Outcome::Stopped));
    assert_eq!(run_in(&mut engine, "return 1").unwrap(), ":1");
}

#[test]
fn memory_and_recursion_are_bounded() {
    let mut engine = Engine::with_memory(32 << 20).unwrap();
    let bombs = [
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "return string.rep('x', 1e15)",
        "local function f() return 1 + f() end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() local ok, e = pcall(f) error(e, 0) end f()",
        "local function f() return (string.gsub('x', 'x', f)) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.x",
        "return string.find(string.rep('a', 5000), string.rep('a?', 5000))",
        "local t = {} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "return unpack({}, 1, 1e7)",
    ];
    for text in bombs {
        let ended = run_in(&mut engine, text);
        assert!(matches!(ended, Err(Outcome::Failed(_) | Outcome::Stopped)), "{text}: {ended:?}");
        let after = run_in(&mut engine, "return 'fine'");
        assert_eq!(after, Ok("$4 fine".to_owned()), "{text}: {ended:?}, {} bytes", engine.memory_bytes());
    }
    let text = "local t = {} for i = 1, 40 do t = {t, t} end return t";
    assert_eq!(run_in(&mut engine, text), Err(Outcome::Stopped));
    let text = "local t, s = {}, string.rep('x', 1000) for i = 1, 2000 do t[i] = s end return t";
    assert_eq!(run_in(&mut engine, text).unwrap(), "-ERR reply exceeds the maximum (reply-max-bytes)");
}

#[test]
fn replies_that_are_kept_are_bounded() {
    let mut engine = Engine::with_memory(32 << 20).unwrap();
    // The table has its places, so that all memory is taken by the replies.
    let text = "local t = {} for i = 1, 1000 do t[i] = 0 end\n\
                for i = 1, 1000 do t[i] = redis.call('fresh') end return #t";
    let expected = failed("ERR not enough memory script: sha, on @user_script:2.");
    assert_eq!(run_within(&mut engine, text, Duration::from_secs(600)), expected);
    assert!(engine.memory_bytes() < 33 << 20, "{} bytes", engine.memory_bytes());
    assert_eq!(run_in(&mut engine, "return #redis.call('fresh')").unwrap(), ":60000");
}
