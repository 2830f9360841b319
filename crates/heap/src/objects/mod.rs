//! Persistent types: the types themselves, the encoding of their values and pointers, and the places by which
//! programs name them.

#[allow(unsafe_code, reason = "declares an unsafe trait")]
pub(crate) mod brand;
#[allow(unsafe_code, reason = "implementations of unsafe traits")]
pub(crate) mod numbers;
#[allow(unsafe_code, reason = "declares unsafe traits")]
pub(crate) mod persist;
#[allow(unsafe_code, reason = "projections")]
pub(crate) mod place;
#[allow(unsafe_code, reason = "implementations of unsafe traits")]
pub(crate) mod slots;
#[allow(unsafe_code, reason = "implementations of unsafe traits")]
pub(crate) mod standard;
pub(crate) mod type_info;
pub(crate) mod types;
#[expect(unsafe_code, reason = "values as words")]
pub(crate) mod value_buffer;
