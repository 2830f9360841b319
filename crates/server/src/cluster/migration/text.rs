//! The records of moves as text: a line for each, and their parts between blanks.
//!
//! ```text
//!   out copying|doubt|done <id> <source> <target> <slots>
//!   out failed <id> <source> <target> <slots> <reason>
//!   in importing|failed|done <id> <source> <target> <slots>
//!   handed <id> <source> <target> <slots>
//!   removing <slots>
//! ```

use std::fmt::{self, Write as _};

use super::{HANDED_MAX, Importing, Move, Moves, Sending};
use crate::cluster::ranges::Ranges;
use crate::cluster::topology::NodeId;
use crate::keyspace::history::is_id;

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { id, slots, source, target } = self;
        write!(f, "{} {source} {target} {slots}", String::from_utf8_lossy(id))
    }
}

impl Move {
    /// Reads the four parts.
    fn parse<'t>(parts: &mut impl Iterator<Item = &'t str>) -> Option<Self> {
        let id = parts.next()?.as_bytes();
        let id = id.try_into().ok().filter(|_| is_id(id))?;
        let mut node = || NodeId::parse(parts.next()?.as_bytes());
        let (source, target) = (node()?, node()?);
        Some(Move { id, source, target, slots: Ranges::parse(parts.next()?).ok()? })
    }
}

impl Moves {
    /// The records as text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if let Some((moving, stage)) = &self.outgoing {
            let _ = match stage {
                Sending::Copying => writeln!(text, "out copying {moving}"),
                Sending::Doubt => writeln!(text, "out doubt {moving}"),
                Sending::Done => writeln!(text, "out done {moving}"),
                Sending::Failed(why) => writeln!(text, "out failed {moving} {}", why.replace('\n', " ")),
            };
        }
        if let Some((moving, stage)) = &self.incoming {
            let stage = match stage {
                Importing::Receiving => "importing",
                Importing::Failed => "failed",
                Importing::Done => "done",
            };
            let _ = writeln!(text, "in {stage} {moving}");
        }
        for moving in &self.handed {
            let _ = writeln!(text, "handed {moving}");
        }
        if !self.removing.is_empty() {
            let _ = writeln!(text, "removing {}", self.removing);
        }
        text
    }

    /// Reads what [`to_text`](Self::to_text) wrote; `None` if it is anything else.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut moves = Moves::default();
        for line in str::from_utf8(text).ok()?.lines() {
            let mut parts = line.split(' ');
            match parts.next()? {
                "out" if moves.outgoing.is_none() => {
                    let stage = parts.next()?;
                    let moving = Move::parse(&mut parts)?;
                    let stage = match stage {
                        "copying" => Sending::Copying,
                        "doubt" => Sending::Doubt,
                        "done" => Sending::Done,
                        "failed" => Sending::Failed(parts.by_ref().collect::<Vec<_>>().join(" ")),
                        _ => return None,
                    };
                    moves.outgoing = Some((moving, stage));
                }
                "in" if moves.incoming.is_none() => {
                    let stage = match parts.next()? {
                        "importing" => Importing::Receiving,
                        "failed" => Importing::Failed,
                        "done" => Importing::Done,
                        _ => return None,
                    };
                    moves.incoming = Some((Move::parse(&mut parts)?, stage));
                }
                // More than are ever written.
                "handed" if moves.handed.len() < 4 * HANDED_MAX => {
                    moves.handed.push(Move::parse(&mut parts)?)
                }
                "removing" => moves.removing = Ranges::parse(parts.next()?).ok()?,
                _ => return None,
            }
            if parts.next().is_some() {
                return None;
            }
        }
        Some(moves)
    }
}
