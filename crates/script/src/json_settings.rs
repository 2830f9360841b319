//! The settings of JSON that scripts may change, and its `null`.

use mlua::{LightUserData, Value};

/// The settings that functions of the library show and change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) converts_sparse: bool,
    pub(crate) sparse_ratio: i64,
    pub(crate) sparse_safe: i64,
    pub(crate) encode_depth_max: i64,
    pub(crate) decode_depth_max: i64,
    pub(crate) precision: i64,
    pub(crate) keeps_buffer: bool,
    pub(crate) encodes_invalid: Invalid,
    pub(crate) decodes_invalid: bool,
}

/// How numbers are written that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: 14,
            keeps_buffer: true,
            encodes_invalid: Invalid::Refused,
            decodes_invalid: true,
        }
    }
}

/// The value of `null`.
pub(crate) const NULL: Value = Value::LightUserData(LightUserData(std::ptr::null_mut()));
