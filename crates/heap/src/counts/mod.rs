//! Reference counts: the commit that applies their changes, and the objects that die by them.

pub(crate) mod commit;
pub(crate) mod dying;
pub(crate) mod resolve;
