//! `math.random` and `math.randomseed`: the numbers that Redis gives, which go on from script to script.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::raise::{Args, located};
use crate::shared::Shared;

/// The generator of 48 bits that C calls `lrand48`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The state before any seed.
    pub(crate) const FIRST: Random = Random(0x1234_abcd_330e);

    pub(crate) fn new(seed: i32) -> Self {
        Random(u64::from(seed as u32) << 16 | 0x330e)
    }

    /// The next number of 31 bits.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
        (self.0 >> 17) as u32
    }

    /// The next number from 0 to 1.
    fn fraction(&mut self) -> f64 {
        const MAX: u32 = i32::MAX as u32;
        f64::from(self.next() % MAX) / f64::from(MAX)
    }
}

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
