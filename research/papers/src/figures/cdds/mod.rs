//! The figures of the CDDS paper, and what its tree and Tembo's cost and wear. Figure 7 is in
//! `research/peers`.

pub(super) mod costs;
pub(super) mod figure5;
pub(crate) mod overhead;
pub(super) mod wear;
