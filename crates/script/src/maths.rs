//! `math.random` and `math.randomseed`: the numbers that Redis gives, which go on from script to script.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::raise::{Args, located};
use crate::random::Random;
use crate::shared::Shared;

pub(crate) fn replace(lua: &Lua, math: &Table, shared: &Rc<Shared>) -> Result<()> {
    let of = shared.clone();
    let random = lua.create_function(move |lua, args: MultiValue| {
        let args = Args::new(lua, "random", args);
        let mut state = of.random.get();
        let fraction = state.fraction();
        of.random.set(state);
        random(&args, fraction)
    })?;
    math.raw_set("random", random)?;
    let of = shared.clone();
    let seed = lua.create_function(move |lua, args: MultiValue| {
        let seed = Args::new(lua, "randomseed", args).integer(1)?;
        of.random.set(Random::new(seed as i32));
        Ok(())
    })?;
    math.raw_set("randomseed", seed)
}

fn random(args: &Args<'_>, fraction: f64) -> Result<Value> {
    let between = |low: i32, high: i32| {
        let width = f64::from(high) - f64::from(low) + 1.0;
        Value::Number((fraction * width).floor() + f64::from(low))
    };
    match args.len() {
        0 => Ok(Value::Number(fraction)),
        1 => {
            let high = args.integer(1)? as i32;
            if high < 1 { Err(args.bad(1, "interval is empty")) } else { Ok(between(1, high)) }
        }
        2 => {
            let (low, high) = (args.integer(1)? as i32, args.integer(2)? as i32);
            if low > high { Err(args.bad(2, "interval is empty")) } else { Ok(between(low, high)) }
        }
        _ => Err(located(args.lua, "wrong number of arguments")),
    }
}
