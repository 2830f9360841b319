//! Searches in a circle or a rectangle: GEOSEARCH, GEOSEARCHSTORE and the GEORADIUS commands.
//!
//! A search visits the members of up to nine cells, each of which is a range of scores, and computes the
//! distance of each member. The result is collected in memory, and may have as many bytes as a reply.

use std::ops::ControlFlow;

use tembo_wire::Request;

use super::cell::{Cell, Position};
use super::earth::{Region, Shape};
use super::units::{position_of, read_position, read_unit, write_distance, write_position};
use crate::commands::args::{Options, integer, is};
use crate::commands::context::Context;
use crate::commands::score;
use crate::commands::sorted_range::store;
use crate::commands::sorted_set::read;
use crate::fault::{Answer, Fault, SYNTAX, quotable};
use crate::keyspace::collection::ordered::{Cut, Score};
use crate::keyspace::collection::sorted::Member;
use crate::keyspace::collection::value::Collection;

/// Which commands have which arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchForm {
    /// GEORADIUS and GEORADIUSBYMEMBER, whose centre and radius come first.
    Radius { by_member: bool, may_store: bool },
    /// GEOSEARCH and GEOSEARCHSTORE.
    Search { stores: bool },
}

impl SearchForm {
    /// Whether the key of a result follows the option STORE or STOREDIST.
    fn has_target_option(self) -> bool {
        matches!(self, SearchForm::Radius { may_store: true, .. })
    }
}

/// The parts of a request.
#[derive(Default)]
struct Search<'a> {
    center: Option<Position>,
    /// FROMMEMBER was given. There is no centre if there is no sorted set.
    by_member: bool,
    /// The shape of the region, and the unit of its lengths.
    shape: Option<(Shape, f64)>,
    /// Sorted by their distances, or by the opposite of these.
    downwards: Option<bool>,
    count: Option<usize>,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    /// The key of the result.
    target: Option<&'a [u8]>,
    /// Distances are stored as scores.
    by_distance: bool,
}

pub(super) fn geosearch(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Search { stores: false })
}

pub(super) fn geosearchstore(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Search { stores: true })
}

pub(super) fn georadius(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Radius { by_member: false, may_store: true })
}

pub(super) fn georadiusbymember(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Radius { by_member: true, may_store: true })
}

pub(super) fn georadius_ro(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Radius { by_member: false, may_store: false })
}

pub(super) fn georadiusbymember_ro(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    search(ctx, request, SearchForm::Radius { by_member: true, may_store: false })
}

/// Reads a length; `refused` is the error for a text that is not a number.
fn read_length(arg: &[u8], refused: &'static str) -> Answer<f64> {
    score::read(arg).ok_or(Fault::Error(refused))
}

fn read_circle(radius: &[u8], unit: &[u8]) -> Answer<(Shape, f64)> {
    let radius = read_length(radius, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Fault::Error("ERR radius cannot be negative"));
    }
    let unit = read_unit(unit)?;
    Ok((Shape::Circle { radius: radius * unit }, unit))
}

fn read_rectangle([width, height, unit]: [&[u8]; 3]) -> Answer<(Shape, f64)> {
    let width = read_length(width, "ERR need numeric width")?;
    let height = read_length(height, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Fault::Error("ERR height or width cannot be negative"));
    }
    let unit = read_unit(unit)?;
    Ok((Shape::Rectangle { width: width * unit, height: height * unit }, unit))
}

/// The place of a member that a search begins at; `None` if there is no sorted set at all.
fn read_member(
    ctx: &mut Context<'_, '_>,
    sorted: Option<&Collection>,
    member: &[u8],
) -> Answer<Option<Position>> {
    let position = position_of(ctx, sorted, member)?;
    if sorted.is_some() && position.is_none() {
        return Err(Fault::Error("ERR could not decode requested zset member"));
    }
    Ok(position)
}

impl<'a> Search<'a> {
    fn read(
        ctx: &mut Context<'_, '_>,
        request: &'a Request<'a>,
        form: SearchForm,
        sorted: Option<&Collection>,
    ) -> Answer<Self> {
        let mut asked = Search::default();
        let first_option = match form {
            SearchForm::Radius { by_member: false, .. } => {
                asked.center = Some(read_position(&request[2], &request[3])?);
                asked.shape = Some(read_circle(&request[4], &request[5])?);
                6
            }
            SearchForm::Radius { .. } => {
                asked.center = read_member(ctx, sorted, &request[2])?;
                // Without a sorted set the other arguments are not looked at.
                asked.shape = asked.center.map(|_| read_circle(&request[3], &request[4])).transpose()?;
                5
            }
            SearchForm::Search { stores: true } => {
                asked.target = Some(&request[1]);
                3
            }
            SearchForm::Search { stores: false } => 2,
        };
        let mut options = Options::after(request, first_option);
        while let Some(word) = options.next() {
            if !asked.read_common(word, &mut options)?
                && !asked.read_target(word, &mut options, form)?
                && !asked.read_region(ctx, word, &mut options, form, sorted)?
            {
                return Err(SYNTAX);
            }
        }
        asked.check(request, form)?;
        Ok(asked)
    }

    /// Reads an option that all have, if it is one.
    fn read_common(&mut self, word: &[u8], options: &mut Options<'a>) -> Answer<bool> {
        match word {
            _ if is(word, "WITHDIST") => self.with_distance = true,
            _ if is(word, "WITHHASH") => self.with_hash = true,
            _ if is(word, "WITHCOORD") => self.with_position = true,
            _ if is(word, "ANY") => self.any = true,
            _ if is(word, "ASC") => self.downwards = Some(false),
            _ if is(word, "DESC") => self.downwards = Some(true),
            _ if is(word, "COUNT") && options.left() >= 1 => {
                let count = integer(options.value()?)?;
                let refused = Fault::Error("ERR COUNT must be > 0");
                self.count = Some(usize::try_from(count).ok().filter(|count| *count > 0).ok_or(refused)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads an option about the result's key, if it is one.
    fn read_target(&mut self, word: &[u8], options: &mut Options<'a>, form: SearchForm) -> Answer<bool> {
        let by_distance = is(word, "STOREDIST");
        if form == (SearchForm::Search { stores: true }) && by_distance {
            self.by_distance = true;
        } else if form.has_target_option() && options.left() >= 1 && (by_distance || is(word, "STORE")) {
            self.target = Some(options.value()?);
            self.by_distance = by_distance;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads an option of GEOSEARCH about the region, if it is one.
    fn read_region(
        &mut self,
        ctx: &mut Context<'_, '_>,
        word: &[u8],
        options: &mut Options<'a>,
        form: SearchForm,
        sorted: Option<&Collection>,
    ) -> Answer<bool> {
        let is_circle = matches!(self.shape, Some((Shape::Circle { .. }, _)));
        let is_rectangle = matches!(self.shape, Some((Shape::Rectangle { .. }, _)));
        let is_at_place = self.center.is_some() && !self.by_member;
        match word {
            _ if !matches!(form, SearchForm::Search { .. }) => return Ok(false),
            _ if is(word, "FROMMEMBER") && options.left() >= 1 && !is_at_place => {
                self.center = read_member(ctx, sorted, options.value()?)?;
                self.by_member = true;
            }
            _ if is(word, "FROMLONLAT") && options.left() >= 2 && !self.by_member => {
                self.center = Some(read_position(options.value()?, options.value()?)?);
            }
            _ if is(word, "BYRADIUS") && options.left() >= 2 && !is_rectangle => {
                self.shape = Some(read_circle(options.value()?, options.value()?)?);
            }
            _ if is(word, "BYBOX") && options.left() >= 3 && !is_circle => {
                let lengths = [options.value()?, options.value()?, options.value()?];
                self.shape = Some(read_rectangle(lengths)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses options that do not go together.
    fn check(&self, request: &Request<'_>, form: SearchForm) -> Answer {
        let is_search = matches!(form, SearchForm::Search { .. });
        if self.target.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            let text = if is_search {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            };
            return Err(Fault::Error(text));
        }
        let needed = |what: &str| {
            let text = format!("ERR exactly one of {what} can be specified for ");
            Fault::Quoting([text.as_bytes(), quotable(request.name())].concat())
        };
        if is_search && self.center.is_none() && !self.by_member {
            return Err(needed("FROMMEMBER or FROMLONLAT"));
        }
        if is_search && self.shape.is_none() {
            return Err(needed("BYRADIUS and BYBOX"));
        }
        if self.any && self.count.is_none() {
            return Err(Fault::Error("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

/// A member that was found.
struct FoundMember {
    member: Vec<u8>,
    score: f64,
    position: Position,
    /// In metres, from the centre.
    distance: f64,
}

fn search(ctx: &mut Context<'_, '_>, request: &Request<'_>, form: SearchForm) -> Answer {
    let source = if form == (SearchForm::Search { stores: true }) { 2 } else { 1 };
    let sorted = read(ctx, &request[source])?;
    let asked = Search::read(ctx, request, form, sorted.as_ref())?;
    let (mut places, mut unit) = (Vec::new(), 1.0);
    if let (Some(sorted), Some(center), Some((shape, its_unit))) = (sorted, asked.center, asked.shape) {
        let limit = asked.count.filter(|_| asked.any).unwrap_or(usize::MAX);
        places = find(ctx, &sorted, &Region { center, shape }, limit)?;
        unit = its_unit;
    }
    // A part of the results makes sense only if it is the nearest, unless any will do.
    let nearest = asked.count.filter(|_| !asked.any).map(|_| false);
    match asked.downwards.or(nearest) {
        Some(false) => places.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
        Some(true) => places.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        None => {}
    }
    places.truncate(asked.count.unwrap_or(usize::MAX));
    places.iter_mut().for_each(|place| place.distance /= unit);
    match asked.target {
        Some(target) => store_places(ctx, target, places, asked.by_distance, form),
        None => write_places(ctx, &places, &asked),
    }
}

/// The members in a region, in the order of its cells and of their scores, up to a number.
fn find(
    ctx: &mut Context<'_, '_>,
    sorted: &Collection,
    region: &Region,
    limit: usize,
) -> Answer<Vec<FoundMember>> {
    let mut places = Vec::new();
    let mut room = ctx.state.config.reply_bytes_max;
    for cell in region.cells() {
        if places.len() < limit {
            find_in_cell(ctx, sorted, region, cell, limit, (&mut places, &mut room))?;
        }
    }
    Ok(places)
}

fn find_in_cell(
    ctx: &mut Context<'_, '_>,
    sorted: &Collection,
    region: &Region,
    cell: Cell,
    limit: usize,
    (places, room): (&mut Vec<FoundMember>, &mut usize),
) -> Answer {
    let scores = cell.scores();
    let first = ctx.keys.rank(sorted, Cut::Score { score: Score::new(scores.start), behind: false })?;
    let mut outcome = Ok(());
    ctx.keys.walk_ranks(sorted, first, false, |member, score| {
        let score = score.number();
        if score >= scores.end {
            return ControlFlow::Break(());
        }
        let position = Position::of_score(score);
        if let Some(distance) = region.distance_to(position) {
            match room.checked_sub(member.len()) {
                Some(left) => *room = left,
                None => {
                    let text = "ERR the result exceeds the maximum (reply-max-bytes)";
                    outcome = Err(Fault::Error(text));
                    return ControlFlow::Break(());
                }
            }
            places.push(FoundMember { member: member.to_vec(), score, position, distance });
        }
        if places.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

fn write_places(ctx: &mut Context<'_, '_>, places: &[FoundMember], asked: &Search<'_>) -> Answer {
    let more = [asked.with_distance, asked.with_hash, asked.with_position];
    let more = more.into_iter().filter(|with| *with).count();
    ctx.out.write().array(places.len());
    for place in places {
        if more > 0 {
            ctx.out.write().array(1 + more);
        }
        ctx.out.bulk(&place.member)?;
        if asked.with_distance {
            write_distance(&mut ctx.out, place.distance);
        }
        if asked.with_hash {
            ctx.out.write().integer(place.score as i64);
        }
        if asked.with_position {
            write_position(&mut ctx.out, place.position);
        }
    }
    Ok(())
}

fn store_places(
    ctx: &mut Context<'_, '_>,
    target: &[u8],
    places: Vec<FoundMember>,
    by_distance: bool,
    form: SearchForm,
) -> Answer {
    let member = |place: FoundMember| {
        let score = if by_distance { place.distance } else { place.score };
        (place.member, Score::new(score))
    };
    let members: Vec<Member> = places.into_iter().map(member).collect();
    let event = if matches!(form, SearchForm::Search { .. }) { "geosearchstore" } else { "georadiusstore" };
    let len = store(ctx, target, &members, event)?;
    ctx.out.write().integer(len as i64);
    Ok(())
}
