//! Copies while clients write: the target has the data of the source, whenever a write comes.

use std::collections::BTreeMap;

use tembo_wire::{Limits, Parsed, RequestParser};

use super::copy::{Commands, Copy};
use super::filter::filter;
use crate::cluster::ranges::Ranges;
use crate::cluster::slot::slot_of;
use crate::commands::registry::Registry;
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::prepare;
use crate::keyspace::format::Meta;
use crate::random::Random;

/// Runs commands as the target does.
fn run(target: &mut BTreeMap<Vec<u8>, Vec<u8>>, commands: &mut Commands) {
    let (commands, mut parser) = (std::mem::take(commands), RequestParser::new());
    let mut left = &commands.bytes[..];
    while let Ok(Parsed::Request(request)) = parser.parse(left, &Limits::default()) {
        let key = request[1].to_vec();
        match request.name() {
            b"SET" => drop(target.insert(key, request[2].to_vec())),
            b"DEL" => drop(target.remove(&key)),
            other => panic!("{}", other.escape_ascii()),
        }
        left = &left[request.consumed()..];
    }
}

/// Changes a key as a client would, and tells the copy.
fn write(keys: &mut Keyspace<'_>, key: &str, value: Option<&str>) -> Vec<u8> {
    let (old, mut told) = (keys.old(0, key.as_bytes()).unwrap(), Vec::new());
    match value {
        Some(value) => {
            keys.put(0, key.as_bytes(), Meta::default(), old, &[value.as_bytes()]).unwrap();
            tembo_wire::write_request(&mut told, ["SET", key, value]);
        }
        None => {
            keys.remove(0, key.as_bytes(), old).unwrap();
            tembo_wire::write_request(&mut told, ["UNLINK", key]);
        }
    }
    keys.commit().unwrap();
    told
}

#[test]
fn writes_between_any_two_steps_of_a_copy_of_many_ranges_reach_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("copy.pool")).unwrap();
    prepare(&pool, true).unwrap();
    let mut keys = Keyspace::open(&pool).unwrap();
    keys.create(0).unwrap();
    let slots = Ranges::new((0..16_384).step_by(1024).map(|slot| slot..=slot + 1));
    let names = (0..).map(|number| format!("k{number}"));
    let names: Vec<_> = names.filter(|name| slots.contains(slot_of(name.as_bytes()))).take(60).collect();
    let (registry, mut random) = (Registry::new(), Random::seeded(11));
    // The keys are few, so that some are made behind the last key of a range that was just copied to its end.
    for round in 0..80 {
        keys.clear(0).unwrap();
        keys.commit().unwrap();
        let mut source = BTreeMap::new();
        for name in names.iter().step_by(round % 3 + 2) {
            write(&mut keys, name, Some("old"));
            source.insert(name.as_bytes().to_vec(), b"old".to_vec());
        }
        let (mut copy, mut out, mut target) =
            (Copy::new(slots.clone()), Commands::default(), BTreeMap::new());
        let mut steps = 0;
        while !copy.is_done() {
            copy.step(&keys, &mut out).unwrap();
            steps += 1;
            let (name, value) = (&names[random.below(names.len() as u64) as usize], format!("{steps}"));
            let is_there = source.contains_key(name.as_bytes());
            let value = (!is_there || random.below(3) > 0).then_some(&value[..]);
            match value {
                Some(value) => drop(source.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec())),
                None => drop(source.remove(name.as_bytes())),
            }
            let told = write(&mut keys, name, value);
            filter(&registry, &told, &slots, &mut copy, &mut out).unwrap();
            run(&mut target, &mut out);
        }
        assert!(steps > slots.as_slice().len(), "{steps}");
        assert!(target == source, "round {round}: {} and {} keys", target.len(), source.len());
    }
}
