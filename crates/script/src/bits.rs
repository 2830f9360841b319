//! The library `bit`: operations on the low 32 bits of numbers.

use mlua::{Function, Lua, MultiValue, Result, Table, Value};

use crate::raise::Args;

/// Adding it moves the low bits of a number to the low bits of its mantissa, rounded to a whole number.
const SHIFTER: f64 = 6_755_399_441_055_744.0;

pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let bit = lua.create_table()?;
    bit.raw_set("tobit", unary(lua, "tobit", |bits| bits)?)?;
    bit.raw_set("bnot", unary(lua, "bnot", |bits| !bits)?)?;
    bit.raw_set("bswap", unary(lua, "bswap", u32::swap_bytes)?)?;
    bit.raw_set("band", folding(lua, "band", |a, b| a & b)?)?;
    bit.raw_set("bor", folding(lua, "bor", |a, b| a | b)?)?;
    bit.raw_set("bxor", folding(lua, "bxor", |a, b| a ^ b)?)?;
    bit.raw_set("lshift", shift(lua, "lshift", |bits, by| bits << by)?)?;
    bit.raw_set("rshift", shift(lua, "rshift", |bits, by| bits >> by)?)?;
    bit.raw_set("arshift", shift(lua, "arshift", |bits, by| (bits as i32 >> by) as u32)?)?;
    bit.raw_set("rol", shift(lua, "rol", u32::rotate_left)?)?;
    bit.raw_set("ror", shift(lua, "ror", u32::rotate_right)?)?;
    bit.raw_set("tohex", lua.create_function(|lua, args| tohex(&Args::new(lua, "tohex", args)))?)?;
    Ok(bit)
}

fn bits(args: &Args<'_>, at: usize) -> Result<u32> {
    Ok((args.number(at)? + SHIFTER).to_bits() as u32)
}

fn number(bits: u32) -> Value {
    Value::Integer(i64::from(bits as i32))
}

fn unary(lua: &Lua, name: &'static str, map: fn(u32) -> u32) -> Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        bits(&Args::new(lua, name, args), 1).map(|bits| number(map(bits)))
    })
}

fn folding(lua: &Lua, name: &'static str, map: fn(u32, u32) -> u32) -> Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let args = Args::new(lua, name, args);
        let first = bits(&args, 1)?;
        let all = (2..=args.len()).try_fold(first, |all, at| bits(&args, at).map(|bits| map(all, bits)));
        all.map(number)
    })
}

fn shift(lua: &Lua, name: &'static str, map: fn(u32, u32) -> u32) -> Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let args = Args::new(lua, name, args);
        Ok(number(map(bits(&args, 1)?, bits(&args, 2)? & 31)))
    })
}

/// The low digits, as many as the second argument says: in capitals if it is negative.
fn tohex(args: &Args<'_>) -> Result<String> {
    let value = bits(args, 1)?;
    let wanted = if args.is_none_or_nil(2) { 8 } else { bits(args, 2)? as i32 };
    let count = wanted.unsigned_abs().min(8) as usize;
    let digits = if wanted < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    Ok(digits[8 - count..].to_owned())
}
