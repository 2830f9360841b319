//! The checker notices each kind of anomaly, and agrees with an exhaustive search.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::checker::{Kind, check, expect_linearizable};
use super::published::{self, Porcupine};
use super::record::{Event, History, Op, Outcome, Term, Time};

const LIST: &str = "list";
const REGISTER: &str = "register";

fn event(op: Op, began: Time, ended: Time, outcome: Outcome) -> Event {
    let key = if op.is_of_list() { LIST } else { REGISTER }.to_owned();
    let answered = (outcome != Outcome::Refused && op.is_write()).then_some(ended);
    Event { client: 0, key, op, node: 0, began, answered, ended, outcome }
}

fn ok(op: Op, began: Time, ended: Time) -> Event {
    event(op, began, ended, Outcome::Acknowledged)
}

fn history(events: Vec<Event>, last: Vec<Event>) -> History {
    History { events, terms: vec![Term { node: 0, from: 0 }], last }
}

fn verdict(events: &[Event], last: Event) -> Option<Kind> {
    check(&history(events.to_vec(), vec![last])).err().map(|anomaly| anomaly.kind)
}

fn list(elements: &[u64]) -> Op {
    Op::List(elements.to_vec())
}

#[test]
fn a_lost_append_is_noticed() {
    let [one, two] = [ok(Op::Append(1), 0, 2), ok(Op::Append(2), 4, 6)];
    let both = [one.clone(), two.clone()];
    assert_eq!(verdict(&both, ok(list(&[1, 2]), 90, 91)), None);
    assert_eq!(verdict(&both, ok(list(&[1]), 90, 91)), Some(Kind::Lost), "the last one");
    assert_eq!(verdict(&both, ok(list(&[2]), 90, 91)), Some(Kind::Lost), "the first one");
    // It was seen, and is gone.
    let unknown = event(Op::Append(2), 4, 6, Outcome::Unknown);
    let seen = [one.clone(), unknown.clone(), ok(list(&[1, 2]), 8, 9)];
    assert_eq!(verdict(&seen, ok(list(&[1, 2]), 90, 91)), None);
    assert_eq!(verdict(&seen, ok(list(&[1]), 90, 91)), Some(Kind::Lost), "one that was read");
    assert_eq!(verdict(&seen[..2], ok(list(&[1]), 90, 91)), None, "one that nobody saw may be gone");
    // No reading but the last shows it: only this checker does.
    assert_eq!(published::anomalies(&history(seen.to_vec(), vec![ok(list(&[1, 2]), 90, 91)])), [""; 0]);
    assert_ne!(published::anomalies(&history(seen.to_vec(), vec![ok(list(&[1]), 90, 91)])), [""; 0]);
}

#[test]
fn a_lost_write_of_a_register_is_noticed() {
    let events = [ok(Op::Set(1), 0, 2), ok(Op::Set(2), 4, 6), event(Op::Set(3), 5, 7, Outcome::Unknown)];
    for (value, expected) in [(2, None), (3, None), (1, Some(Kind::Lost)), (9, Some(Kind::Invented))] {
        assert_eq!(verdict(&events, ok(Op::Get(Some(value)), 90, 91)), expected, "{value}");
    }
    assert_eq!(verdict(&events, ok(Op::Get(None), 90, 91)), Some(Kind::Lost));
}

/// Published checkers say the same, one of them about lists only.
fn expect_published(history: &History, is_right: bool, porcupine: Option<&Porcupine>) {
    if history.last[0].op.is_of_list() {
        let published = published::anomalies(history);
        assert_eq!(published.is_empty(), is_right, "{history:?}: {published:?}");
    }
    assert!(porcupine.is_none_or(|porcupine| porcupine.accepts(history) == is_right), "{history:?}");
}

#[test]
fn a_stale_reading_is_noticed() {
    let porcupine = Porcupine::build();
    let wrong = Some(Kind::NotLinearizable);
    let appends = [ok(Op::Append(1), 0, 2), ok(Op::Append(2), 4, 6)];
    let last = ok(list(&[1, 2]), 90, 91);
    for (began, ended, found, expected) in [
        (3, 8, &[1, 2][..], None),
        (3, 8, &[1], None),
        (5, 8, &[1], None),
        (7, 8, &[1], wrong),
        (3, 8, &[], wrong),
        (1, 3, &[], None),
        (1, 3, &[1, 2], wrong),
    ] {
        let events = [&appends[..], &[ok(list(found), began, ended)]].concat();
        assert_eq!(verdict(&events, last.clone()), expected, "{found:?} from {began} to {ended}");
        expect_published(&history(events, vec![last.clone()]), expected.is_none(), porcupine.as_ref());
    }
    let sets = [ok(Op::Set(1), 0, 2), ok(Op::Set(2), 4, 6)];
    let last = ok(Op::Get(Some(2)), 90, 91);
    for (began, ended, found, expected) in [
        (3, 8, Some(2), None),
        (3, 8, Some(1), None),
        (7, 8, Some(1), wrong),
        (3, 8, None, wrong),
        (1, 3, None, None),
        (1, 3, Some(2), wrong),
    ] {
        let events = [&sets[..], &[ok(Op::Get(found), began, ended)]].concat();
        assert_eq!(verdict(&events, last.clone()), expected, "{found:?} from {began} to {ended}");
        expect_published(&history(events, vec![last.clone()]), expected.is_none(), porcupine.as_ref());
    }
    // A write that comes late, and a value that comes back.
    let late = event(Op::Set(3), 1, 2, Outcome::Unknown);
    let read = |value, began| ok(Op::Get(Some(value)), began, began + 1);
    let comes = [&sets[..], &[late.clone(), read(2, 10), read(3, 12)]].concat();
    assert_eq!(verdict(&comes, ok(Op::Get(Some(3)), 90, 91)), None);
    assert_eq!(verdict(&comes, ok(Op::Get(Some(2)), 90, 91)), wrong);
}

#[test]
fn invented_and_forked_values_are_noticed() {
    let one = ok(Op::Append(1), 0, 2);
    let refused = event(Op::Append(2), 4, 6, Outcome::Refused);
    let events = [one.clone(), refused];
    assert_eq!(verdict(&events, ok(list(&[1]), 90, 91)), None);
    for found in [&[1, 2][..], &[1, 9], &[1, 1]] {
        assert_eq!(verdict(&events, ok(list(found), 90, 91)), Some(Kind::Invented), "{found:?}");
    }
    let [two, three] = [2, 3].map(|value| event(Op::Append(value), 4, 6, Outcome::Unknown));
    let forked = [one, two, three, ok(list(&[1, 2]), 8, 9)];
    assert_eq!(verdict(&forked, ok(list(&[1, 3, 2]), 90, 91)), Some(Kind::Forked));
}

/// A write of a node in the term of another, whether WAIT has counted it or not.
#[test]
fn a_split_write_is_noticed() {
    let at = |node: usize, value: u64, began: Time, outcome: Outcome| Event {
        node,
        ..event(Op::Append(value), began, began + 4, outcome)
    };
    let terms = vec![
        Term { node: 0, from: 0 },
        Term { node: 1, from: 20 },
        Term { node: 2, from: 40 },
        Term { node: 0, from: 60 },
    ];
    let kind = |old: Event| {
        let events = vec![at(0, 1, 0, Outcome::Acknowledged), at(1, 2, 30, Outcome::Acknowledged), old];
        let last = ok(list(&[1, 2]), 90, 91);
        let found = check(&History { events, terms: terms.clone(), last: vec![last] });
        found.err().map(|anomaly| anomaly.kind)
    };
    let unknown = |node, began| kind(at(node, 3, began, Outcome::Unknown));
    assert_eq!([unknown(0, 10), unknown(0, 18), unknown(0, 57), unknown(0, 70)], [None; 4]);
    assert_eq!([unknown(1, 17), unknown(1, 39), unknown(2, 45)], [None; 3]);
    for (node, began) in [(0, 21), (0, 35), (0, 55), (1, 5), (1, 41), (2, 30), (2, 61)] {
        assert_eq!(unknown(node, began), Some(Kind::Split), "node {node} at {began}");
    }
    assert_eq!(kind(at(0, 3, 21, Outcome::Refused)), None);
    assert_eq!(kind(Event { answered: None, ..at(0, 3, 21, Outcome::Unknown) }), None, "no answer");
}

/// Whether there is an order, by trying all.
fn has_order(events: &[Event], done: u32, state: &[u64]) -> bool {
    let left = |at: usize| done >> at & 1 == 0;
    let must = |at: &usize| left(*at) && events[*at].outcome == Outcome::Acknowledged;
    if !(0..events.len()).any(|at| must(&at)) {
        return true;
    }
    let first_end = (0..events.len()).filter(must).map(|at| events[at].ended).min().unwrap_or(Time::MAX);
    (0..events.len()).filter(|at| left(*at) && events[*at].began < first_end).any(|at| {
        let Event { op, outcome, .. } = &events[at];
        let mut next = state.to_vec();
        let is_possible = match op {
            _ if *outcome == Outcome::Refused => false,
            Op::Append(value) => {
                next.push(*value);
                true
            }
            Op::Set(value) => {
                next = vec![*value];
                true
            }
            Op::List(found) => found == state,
            Op::Get(found) => found.as_ref() == state.first(),
        };
        is_possible && has_order(events, done | 1 << at, &next)
    })
}

/// Some operations at once on something right, of which one or two answers may be wrong.
fn random_events(random: &mut Xoshiro256PlusPlus, is_list: bool) -> Vec<Event> {
    let count = random.random_range(2..8);
    let mut times: Vec<Time> = (1..=2 * count).collect();
    times.shuffle(random);
    let mut spans: Vec<[Time; 2]> = times.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    // Not all of them at once with all others.
    for span in &mut spans {
        span.sort_unstable();
        if span[1] - span[0] > 5 && random.random_ratio(2, 3) {
            span[1] = span[0];
        }
        *span = [span[0] * 3, span[1] * 3 + 1];
    }
    let mut points: Vec<(Time, [Time; 2])> =
        spans.iter().map(|span| (random.random_range(span[0]..=span[1]), *span)).collect();
    points.sort_unstable();
    let (mut state, mut events) = (Vec::new(), Vec::new());
    for (value, (_, [began, ended])) in (1..).zip(points) {
        let is_write = random.random_ratio(3, 5);
        let outcome = match random.random_range(0..6) {
            0 if is_write => Outcome::Refused,
            1 if is_write => Outcome::Unknown,
            _ => Outcome::Acknowledged,
        };
        let happens = outcome == Outcome::Acknowledged || outcome == Outcome::Unknown && random.random();
        let op = match (is_list, is_write) {
            (true, true) => Op::Append(value),
            (true, false) => Op::List(state.clone()),
            (false, true) => Op::Set(value),
            (false, false) => Op::Get(state.first().copied()),
        };
        if is_write && happens {
            state.truncate(if is_list { usize::MAX } else { 0 });
            state.push(value);
        }
        events.push(event(op, began, ended, outcome));
    }
    for _ in 0..random.random_range(0..3) {
        let at = random.random_range(0..events.len());
        let value = random.random_range(1..=count + 1);
        match &mut events[at].op {
            Op::List(found) if random.random() => drop(found.pop()),
            Op::List(found) if found.len() > 1 => found.swap(0, 1),
            Op::List(found) => found.push(value),
            Op::Get(found) => *found = Some(value).filter(|value| *value <= count),
            Op::Append(_) | Op::Set(_) => events[at].outcome = Outcome::Acknowledged,
        }
    }
    events.shuffle(random);
    events
}

#[test]
fn the_checker_agrees_with_an_exhaustive_search() {
    let rounds = 20_000;
    for is_list in [true, false] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut right = 0;
        for round in 0..rounds {
            let events = random_events(&mut random, is_list);
            let expected = has_order(&events, 0, &[]);
            let found = expect_linearizable(events.iter());
            assert_eq!(found.is_ok(), expected, "round {round}: {found:?}\n{events:#?}");
            right += u32::from(expected);
        }
        println!("{right} of {rounds} are right");
        assert!((rounds / 5..rounds * 4 / 5).contains(&right), "{right} of {rounds}");
    }
}
