//! SORT and SORT_RO: the elements of a list, a set or a sorted set in another order.
//!
//! All elements are collected in memory before they are sorted, up to as many bytes as a reply may have; and
//! so are the texts or numbers that they are sorted by. Without an order (BY a constant), only the elements
//! that LIMIT wants are collected from a list or a sorted set.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler};
use super::score;
use crate::fault::{Answer, Fault, SYNTAX, WRONG_TYPE};
use crate::keyspace::collection::value::Collection;
use crate::keyspace::events::class;
use crate::keyspace::format::Kind;

pub(super) const HANDLERS: &[(&str, Handler)] = &[("sort", sort), ("sort_ro", sort_ro)];

const BY_DENIED: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const GET_DENIED: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";
const TOO_LARGE: Fault = Fault::Error("ERR the result exceeds the maximum (reply-max-bytes)");

/// Where the value is that belongs to an element.
enum Pattern<'a> {
    /// The element itself.
    Element,
    /// Nowhere: a pattern without a place for the element.
    Constant,
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        /// The field, if the key is that of a hash.
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|&byte| byte == b'*') else {
            return Pattern::Constant;
        };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        let arrow = behind.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < behind.len());
        match arrow {
            Some(at) => Pattern::Key { before, behind: &behind[..at], field: Some(&behind[at + 2..]) },
            None => Pattern::Key { before, behind, field: None },
        }
    }

    /// The value that belongs to an element, if there is one: a string, or a field of a hash.
    fn look_up(&self, ctx: &mut Context<'_, '_>, element: &[u8]) -> Answer<Option<Vec<u8>>> {
        let database = ctx.database();
        match self {
            Pattern::Element => Ok(Some(element.to_vec())),
            Pattern::Constant => Ok(None),
            Pattern::Key { before, behind, field } => {
                let key = [before, element, behind].concat();
                let Some(stored) = ctx.keys.read(database, &key)? else {
                    return Ok(None);
                };
                let Some(field) = field else {
                    return Ok((stored.meta.kind == Kind::String).then(|| stored.payload.to_vec()));
                };
                if stored.meta.kind != Kind::Hash {
                    return Ok(None);
                }
                let opened = Collection::of(database, &stored)?;
                let hash = ctx.keys.counted(opened)?;
                Ok(ctx.keys.element(&hash, field)?.map(<[u8]>::to_vec))
            }
        }
    }
}

/// The arguments behind the key.
struct Sorting<'a> {
    descending: bool,
    alpha: bool,
    start: i64,
    count: i64,
    by: Option<Pattern<'a>>,
    get: Vec<Pattern<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> Sorting<'a> {
    /// Reads the options. Those that read other keys are for users that may read all.
    fn parse(request: &'a Request<'a>, may_store: bool, may_read_all: impl Fn() -> bool) -> Answer<Self> {
        let mut sorting = Sorting {
            descending: false,
            alpha: false,
            start: 0,
            count: -1,
            by: None,
            get: Vec::new(),
            store: None,
        };
        let mut options = Options::after(request, 2);
        while let Some(word) = options.next() {
            match word {
                _ if is(word, "ASC") => sorting.descending = false,
                _ if is(word, "DESC") => sorting.descending = true,
                _ if is(word, "ALPHA") => sorting.alpha = true,
                _ if is(word, "LIMIT") && options.left() >= 2 => {
                    (sorting.start, sorting.count) = (integer(options.value()?)?, integer(options.value()?)?);
                }
                _ if is(word, "STORE") && may_store => sorting.store = Some(options.value()?),
                _ if is(word, "BY") => {
                    let by = Pattern::parse(options.value()?);
                    if matches!(by, Pattern::Key { .. }) && !may_read_all() {
                        return Err(Fault::Error(BY_DENIED));
                    }
                    sorting.by = Some(by);
                }
                _ if is(word, "GET") && options.left() >= 1 && !may_read_all() => {
                    return Err(Fault::Error(GET_DENIED));
                }
                _ if is(word, "GET") => sorting.get.push(Pattern::parse(options.value()?)),
                _ => return Err(SYNTAX),
            }
        }
        Ok(sorting)
    }

    /// Other keys than those of the request may be on other nodes of a cluster.
    fn expect_no_patterns(&self) -> Answer {
        if matches!(self.by, Some(Pattern::Key { .. })) {
            return Err(Fault::Error("ERR BY option of SORT denied in Cluster mode."));
        }
        if !self.get.is_empty() {
            return Err(Fault::Error("ERR GET option of SORT denied in Cluster mode."));
        }
        Ok(())
    }

    /// The places in the order that are wanted, out of `len`.
    fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.start.max(0)).unwrap_or(usize::MAX).min(len);
        let end = match usize::try_from(self.count) {
            Ok(count) => start.saturating_add(count).min(len),
            Err(_) => len,
        };
        start..end
    }
}

fn may_read_all(ctx: &Context<'_, '_>, request: &Request<'_>) -> bool {
    let command = ctx.state.registry.get(request.name());
    command.is_some_and(|command| ctx.session.user.may_read_all_keys(command, request))
}

fn sort(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorting = Sorting::parse(request, true, || may_read_all(ctx, request))?;
    sort_key(ctx, &request[1], sorting)
}

fn sort_ro(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    let sorting = Sorting::parse(request, false, || may_read_all(ctx, request))?;
    sort_key(ctx, &request[1], sorting)
}

fn sort_key(ctx: &mut Context<'_, '_>, key: &[u8], mut sorting: Sorting<'_>) -> Answer {
    if ctx.state.cluster.is_some() {
        sorting.expect_no_patterns()?;
    }
    let database = ctx.database();
    let source = match ctx.keys.read(database, key)? {
        None => None,
        Some(stored) if !matches!(stored.meta.kind, Kind::List | Kind::Set | Kind::SortedSet) => {
            return Err(WRONG_TYPE);
        }
        Some(stored) => {
            let (kind, opened) = (stored.meta.kind, Collection::of(database, &stored)?);
            Some((kind, ctx.keys.counted(opened)?))
        }
    };
    let mut unsorted = matches!(&sorting.by, Some(Pattern::Constant | Pattern::Element));
    if unsorted && sorting.store.is_some() && matches!(&source, Some((Kind::Set, _))) {
        // A stored list has an order that does not depend on how the set is kept.
        (unsorted, sorting.alpha, sorting.by) = (false, true, None);
    }
    let elements = match &source {
        None => Vec::new(),
        Some((kind, collection)) if unsorted => {
            let range = sorting.range(collection.len() as usize);
            in_own_order(ctx, *kind, collection, range, sorting.descending)?
        }
        Some((_, collection)) => {
            let elements = collect(ctx, collection)?;
            let range = sorting.range(elements.len());
            let mut elements = in_order(ctx, elements, &sorting)?;
            elements.truncate(range.end);
            elements.drain(..range.start);
            elements
        }
    };
    match sorting.store {
        Some(target) => store(ctx, target, &elements, &sorting.get),
        None => answer(ctx, &elements, &sorting.get),
    }
}

/// Elements that are collected, up to this many bytes.
struct Gathered {
    elements: Vec<Vec<u8>>,
    wanted: usize,
    bytes: usize,
    max_bytes: usize,
}

impl Gathered {
    fn new(ctx: &Context<'_, '_>, wanted: usize) -> Self {
        Gathered { elements: Vec::new(), wanted, bytes: 0, max_bytes: ctx.state.config.reply_bytes_max }
    }

    fn take(&mut self, element: &[u8]) -> ControlFlow<()> {
        if self.elements.len() == self.wanted || self.bytes > self.max_bytes {
            return ControlFlow::Break(());
        }
        self.bytes += element.len() + size_of::<Vec<u8>>();
        self.elements.push(element.to_vec());
        ControlFlow::Continue(())
    }

    fn finish(self) -> Answer<Vec<Vec<u8>>> {
        if self.bytes > self.max_bytes { Err(TOO_LARGE) } else { Ok(self.elements) }
    }
}

/// All elements.
fn collect(ctx: &mut Context<'_, '_>, collection: &Collection) -> Answer<Vec<Vec<u8>>> {
    let mut gathered = Gathered::new(ctx, usize::MAX);
    ctx.keys.walk_elements(collection, 0, |_, element, _| gathered.take(element))?;
    gathered.finish()
}

/// The elements at some places of the collection's own order, or from its end.
fn in_own_order(
    ctx: &mut Context<'_, '_>,
    kind: Kind,
    collection: &Collection,
    range: Range<usize>,
    descending: bool,
) -> Answer<Vec<Vec<u8>>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let (start, len) = (range.start as u64, collection.len());
    let mut gathered = Gathered::new(ctx, range.len());
    match kind {
        Kind::SortedSet => {
            let from = if descending { len - 1 - start } else { start };
            ctx.keys.walk_ranks(collection, from, descending, |member, _| gathered.take(member))?;
        }
        Kind::List => {
            let from = if descending { len - range.end as u64 } else { start };
            ctx.keys.walk_list(collection, from, |_, element| gathered.take(element))?;
            if descending {
                gathered.elements.reverse();
            }
        }
        // A set has no order of its own that one could ask for backwards.
        _ => {
            gathered.wanted = range.end;
            ctx.keys.walk_elements(collection, 0, |_, member, _| gathered.take(member))?;
            gathered.elements.drain(..range.start);
        }
    }
    gathered.finish()
}

/// The value that an element is sorted by.
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
    /// The element itself, as a text.
    Element,
}

/// The elements in the requested order.
fn in_order(
    ctx: &mut Context<'_, '_>,
    elements: Vec<Vec<u8>>,
    sorting: &Sorting<'_>,
) -> Answer<Vec<Vec<u8>>> {
    let mut weighed = Vec::with_capacity(elements.len());
    let (mut bytes, mut not_a_number) = (0, false);
    for element in elements {
        let weight = match (&sorting.by, sorting.alpha) {
            (None, true) => Weight::Element,
            (None, false) => Weight::Number(number(&element, &mut not_a_number)),
            (Some(by), true) => Weight::Text(by.look_up(ctx, &element)?),
            (Some(by), false) => {
                let text = by.look_up(ctx, &element)?;
                Weight::Number(text.map_or(0.0, |text| number(&text, &mut not_a_number)))
            }
        };
        if let Weight::Text(Some(text)) = &weight {
            bytes += text.len();
        }
        if bytes > ctx.state.config.reply_bytes_max {
            return Err(TOO_LARGE);
        }
        weighed.push((weight, element));
    }
    if not_a_number {
        return Err(Fault::Error("ERR One or more scores can't be converted into double"));
    }
    weighed.sort_by(|a, b| if sorting.descending { compare(b, a) } else { compare(a, b) });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

fn compare(a: &(Weight, Vec<u8>), b: &(Weight, Vec<u8>)) -> Ordering {
    let by_weight = match (&a.0, &b.0) {
        (Weight::Number(a), Weight::Number(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        // An absent text comes first.
        (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    };
    by_weight.then_with(|| a.1.cmp(&b.1))
}

/// Reads a number as C does; notes if there is none.
fn number(text: &[u8], not_a_number: &mut bool) -> f64 {
    score::c_number(text).unwrap_or_else(|| {
        *not_a_number = true;
        0.0
    })
}

fn answer(ctx: &mut Context<'_, '_>, elements: &[Vec<u8>], get: &[Pattern<'_>]) -> Answer {
    ctx.out.write().array(elements.len() * get.len().max(1));
    for element in elements {
        if get.is_empty() {
            ctx.out.bulk(element)?;
        }
        for pattern in get {
            let value = pattern.look_up(ctx, element)?;
            ctx.out.bulk_or_null(value.as_deref())?;
        }
    }
    Ok(())
}

/// Stores what would be answered as a list in place of a key. An absent value is an empty element.
fn store(ctx: &mut Context<'_, '_>, target: &[u8], elements: &[Vec<u8>], get: &[Pattern<'_>]) -> Answer {
    let (database, mut bytes) = (ctx.database(), 0);
    let mut values = Vec::new();
    for element in elements {
        if get.is_empty() {
            values.push(element.clone());
        }
        for pattern in get {
            let value = pattern.look_up(ctx, element)?.unwrap_or_default();
            bytes += value.len();
            values.push(value);
        }
        if bytes > ctx.state.config.reply_bytes_max {
            return Err(TOO_LARGE);
        }
    }
    let had_target = ctx.keys.find(database, target)?.live.is_some();
    let mut result = ctx.keys.replacement(database, target, Kind::List)?;
    if values.is_empty() {
        ctx.keys.store(target, result)?;
        if had_target {
            ctx.keys.notify(class::GENERIC, "del", database, target);
        }
    } else {
        ctx.keys.push(&mut result, false, values.iter().map(|value| &value[..]))?;
        ctx.keys.store_changed(target, result, "sortstore")?;
    }
    ctx.out.write().integer(values.len() as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_key_or_a_field() {
        let parts = |text: &'static str| match Pattern::parse(text.as_bytes()) {
            Pattern::Element => "#".to_owned(),
            Pattern::Constant => "-".to_owned(),
            Pattern::Key { before, behind, field } => {
                let field = field.map(|field| field.escape_ascii().to_string());
                format!("{}|{}|{field:?}", before.escape_ascii(), behind.escape_ascii())
            }
        };
        for (text, expected) in [
            ("#", "#"),
            ("##", "-"),
            ("", "-"),
            ("a->b", "-"),
            ("*", "||None"),
            ("a*b", "a|b|None"),
            ("a*b*->c", "a|b*|Some(\"c\")"),
            ("a*->", "a|->|None"),
            ("*->a->b", "||Some(\"a->b\")"),
            ("->*", "->||None"),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }
}
