//! Values that are not read: streams, and the values of modules.

use std::fmt;
use std::io::Read;

use crate::error::{Error, Problem};
use crate::input::Input;
use crate::types;

/// The name of a module's type, from its number: nine characters of six bits, then ten bits of version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleType(u64);

const NAME_CHARS: usize = 9;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for ModuleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in 0..NAME_CHARS {
            let bits = (self.0 >> (64 - 6 * (n + 1))) & 0x3f;
            write!(f, "{}", ALPHABET[bits as usize] as char)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ModuleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The parts of a module's value.
const MODULE_END: u64 = 0;
const MODULE_INTEGERS: [u64; 2] = [1, 2];
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// Skips a module's value.
pub(crate) fn module_value<R: Read>(input: &mut Input<R>) -> Result<ModuleType, Error> {
    let name = ModuleType(input.length()?);
    module_parts(input)?;
    Ok(name)
}

/// Skips the data of a module that belong to no key.
pub(crate) fn module_aux<R: Read>(input: &mut Input<R>) -> Result<ModuleType, Error> {
    let name = ModuleType(input.length()?);
    // The time at which the module wants its data; an integer, as its values are.
    input.length()?;
    input.length()?;
    module_parts(input)?;
    Ok(name)
}

fn module_parts<R: Read>(input: &mut Input<R>) -> Result<(), Error> {
    loop {
        let at = input.offset();
        match input.length()? {
            MODULE_END => return Ok(()),
            part if MODULE_INTEGERS.contains(&part) => {
                input.length()?;
            }
            MODULE_FLOAT => input.skip(4)?,
            MODULE_DOUBLE => input.skip(8)?,
            MODULE_STRING => input.skip_string()?,
            _ => {
                let what = "a part has an unknown type";
                return Err(Error::new(at, Problem::Malformed { format: "module's value", at: 0, what }));
            }
        }
    }
}

/// Skips a stream of any of the three forms.
pub(crate) fn stream<R: Read>(input: &mut Input<R>, type_byte: u8) -> Result<(), Error> {
    let lengths = |input: &mut Input<R>, count: usize| (0..count).try_for_each(|_| input.length().map(drop));
    let (has_entry_counts, has_active_times) = (type_byte != types::STREAM, type_byte == types::STREAM_3);
    for _ in 0..input.length()? {
        input.skip_string()?;
        input.skip_string()?;
    }
    // The number of entries and the last id; then the first id, the highest deleted one, and a count.
    lengths(input, 3)?;
    if has_entry_counts {
        lengths(input, 5)?;
    }
    for _ in 0..input.length()? {
        input.skip_string()?;
        lengths(input, 2 + usize::from(has_entry_counts))?;
        for _ in 0..input.length()? {
            // An entry that is pending: its id, when it was delivered, and how often.
            input.skip(16 + 8)?;
            input.length()?;
        }
        for _ in 0..input.length()? {
            input.skip_string()?;
            input.skip(if has_active_times { 16 } else { 8 })?;
            for _ in 0..input.length()? {
                input.skip(16)?;
            }
        }
    }
    Ok(())
}

/// Skips a library of functions in the form of the release candidates of Redis 7.0.
pub(crate) fn old_function<R: Read>(input: &mut Input<R>) -> Result<(), Error> {
    input.skip_string()?;
    input.skip_string()?;
    if input.length()? != 0 {
        input.skip_string()?;
    }
    input.skip_string()
}

/// Skips an import of slots that was under way.
pub(crate) fn slot_import<R: Read>(input: &mut Input<R>) -> Result<(), Error> {
    input.skip_string()?;
    for _ in 0..input.length()? {
        input.length()?;
        input.length()?;
    }
    Ok(())
}
