//! Pools that were open when the machine stopped, or were copied while they were open. The command refuses
//! them, or checks them first with `--accept-unclean`.

use crate::causes::with_causes;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use std::path::Path;
use tembo::{Error, Options, Pool, PoolErrorKind};

/// Opens a pool. If its parts may be of different ages, it is refused, or, where the options accept that,
/// checked as a whole before anything is read from it.
pub(crate) fn open(options: &Options, path: &Path) -> Outcome<Pool> {
    let plain = options.clone().accept_unclean(false);
    let ending = match plain.open(path) {
        Err(Error::Pool(error)) => match error.kind() {
            PoolErrorKind::Unclean { ending, .. } => *ending,
            _ => return Err(Error::Pool(error).into()),
        },
        outcome => return Ok(outcome?),
    };
    let (shown, was) = (path.display(), ending.meaning());
    if !options.accepts_unclean() {
        return Err(Failure::Failed(format!(
            "the pool {shown} was last {was}; restore it from a copy that was made when it was closed; or see what \
             `tembo check {shown}` says, and use it with --accept-unclean, which checks it first: that proves its structure, and \
             not its values"
        )));
    }
    let checking = Progress::new("checking the whole pool", None);
    let opened = options.open(path).map_err(|error| {
        let found = with_causes(&error);
        Failure::Failed(format!("the pool {shown} was last {was}, and does not pass the check: {found}"))
    })?;
    drop(checking);
    eprintln!("tembo: {shown} was last {was}; its structure was proved just now, its values were not");
    Ok(opened)
}
