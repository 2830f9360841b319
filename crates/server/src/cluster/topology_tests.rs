//! Topologies: sound ones come back as they were, and hostile ones are refused by name.

use super::topology::{Error, NODES_MAX, NodeId, Topology, parse_range};
use crate::random::Random;

fn id(number: usize) -> String {
    format!("{number:040}")
}

fn line(number: usize, port: usize, rest: &str) -> String {
    format!("{} 10.0.0.1 {port} {rest}\n", id(number))
}

fn three() -> String {
    [
        line(1, 7001, "master - 0-5460"),
        line(2, 7002, "master - 5461-10922 16383"),
        line(3, 7003, "master - 10923-16382"),
        line(4, 7004, &format!("slave {}", id(1))),
        line(5, 7005, &format!("slave,fail {}", id(2))),
    ]
    .concat()
}

fn parse(text: &str) -> Result<Topology, Error> {
    Topology::parse(text.as_bytes(), 7)
}

#[test]
fn a_topology_comes_back_from_its_text() {
    let topology = parse(&three()).unwrap();
    assert_eq!(topology.to_text(), three());
    assert_eq!(
        (topology.version, topology.nodes.len(), topology.assigned(), topology.size()),
        (7, 5, 16_384, 3)
    );
    assert_eq!(
        (topology.owner(5460), topology.owner(5461), topology.owner(16_383)),
        (Some(0), Some(1), Some(1))
    );
    assert_eq!((topology.nodes[3].master, topology.nodes[0].master), (Some(0), None));
    assert!(topology.nodes[4].has_failed() && !topology.nodes[3].has_failed());
    assert_eq!(topology.replicas_by_node(), [vec![3], vec![4], vec![], vec![], vec![]]);
    // Line ends of other systems, empty lines, words in other cases and the other name of a replica.
    let other = three().replace('\n', "\r\n\r\n").replace("slave ", "REPLICA ").replace("master ", "Master ");
    assert_eq!(parse(&other).unwrap(), topology);
}

#[test]
fn random_topologies_come_back_from_their_texts() {
    let mut random = Random::seeded(11);
    for _ in 0..50 {
        let masters = 1 + random.below(9) as usize;
        let mut slots = vec![String::new(); masters];
        let mut slot = 0;
        while slot < 16_384 {
            let last = (slot + random.below(3000) as usize).min(16_383);
            if random.below(4) > 0 {
                let range = if last == slot { format!(" {slot}") } else { format!(" {slot}-{last}") };
                slots[random.below(masters as u64) as usize] += &range;
            }
            slot = last + 1;
        }
        let mut text = String::new();
        for (at, slots) in slots.iter().enumerate() {
            text += &line(at, 1 + at, &format!("master -{slots}"));
            text +=
                &line(100 + at, 100 + at, &format!("slave {}", id(random.below(masters as u64) as usize)));
        }
        let topology = parse(&text).unwrap();
        assert_eq!(parse(&topology.to_text()).unwrap(), topology);
    }
}

#[test]
fn hostile_topologies_are_refused_by_name() {
    let with = |rest: &str| line(1, 7001, "master - 0-100") + rest;
    let long = format!("{} {} 1 master -", id(2), "h".repeat(256));
    for (text, why) in [
        (String::new(), "no nodes"),
        (" \n\r\n".to_owned(), "no nodes"),
        (with(&line(2, 7002, "master - 100-200")), "slot 100 has an owner"),
        (with(&line(2, 7002, "master - 5 7 5")), "slot 5 has an owner"),
        (line(1, 7001, "master - 5 5"), "slot 5 has an owner"),
        (line(1, 7001, "master - 0-16384"), "\"0-16384\" is not a slot"),
        (line(1, 7001, "master - 7-7"), "\"7-7\""),
        (line(1, 7001, "master - 9-7"), "\"9-7\""),
        (line(1, 7001, "master - -7"), "\"-7\""),
        (line(1, 7001, "master - 1-2-3"), "\"1-2-3\""),
        (line(1, 7001, "master - [5->-x]"), "is not a slot"),
        (with(&line(2, 7002, &format!("slave {}", id(9)))), "no node has the id"),
        (with(&line(2, 7002, &format!("slave {} 1-2", id(1)))), "a replica has slots"),
        (line(1, 7001, &format!("slave {}", id(1))), "is no master"),
        (
            with(&(line(2, 7002, &format!("slave {}", id(1))) + &line(3, 7003, &format!("slave {}", id(2))))),
            "is no master",
        ),
        (with(&line(1, 7002, "master -")), "the id is there twice"),
        (with(&line(2, 7001, "master -")), "the host and port are there twice"),
        (line(1, 0, "master -"), "no port"),
        (line(1, 65_536, "master -"), "no port"),
        (line(1, 7001, "king -"), "no role"),
        (line(1, 7001, "slave -"), "no id of a master"),
        (line(1, 7001, &format!("master {}", id(2))), "a master has the id of one"),
        (line(1, 7001, "master,<b> -"), "no flags"),
        (line(1, 7001, "master"), "the id of a master is missing"),
        ("short 10.0.0.1 7001 master -".to_owned(), "\"short\" is no id"),
        (id(1) + " a@b 7001 master -", "no host"),
        (id(1) + " \u{e9} 7001 master -", "no host"),
        (long, "no host"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
        assert!(error.len() < 250, "{error}");
    }
    assert_eq!(Topology::parse(b"\xff", 1), Err(Error::NotText));
}

#[test]
fn so_many_nodes_as_slots_are_taken_and_no_more() {
    let mut text: String = (0..NODES_MAX).map(|at| line(at, 1 + at, &format!("master - {at}"))).collect();
    let topology = parse(&text).unwrap();
    assert_eq!((topology.nodes.len(), topology.assigned(), topology.size()), (NODES_MAX, 16_384, 16_384));
    assert_eq!(parse(&topology.to_text()).unwrap(), topology);
    text += &line(NODES_MAX, 1 + NODES_MAX, "master -");
    assert_eq!(parse(&text), Err(Error::TooMany));
}

#[test]
fn slots_change_hands_with_the_next_version_only() {
    let mut topology = parse(&three()).unwrap();
    let (second, fourth) =
        (NodeId::parse(id(2).as_bytes()).unwrap(), NodeId::parse(id(4).as_bytes()).unwrap());
    let ranges = [parse_range("3").unwrap(), parse_range("100-102").unwrap()];
    for version in [0, 6, 7, 9, u64::MAX] {
        assert_eq!(topology.assign(&ranges, &second, version), Err(Error::Version));
    }
    assert_eq!(topology.assign(&ranges, &fourth, 8), Err(Error::NotMaster));
    let nobody = NodeId::parse(id(9).as_bytes()).unwrap();
    assert_eq!(topology.assign(&ranges, &nobody, 8), Err(Error::UnknownNode));
    assert_eq!(topology.to_text(), three(), "a refusal changes nothing");
    topology.assign(&ranges, &second, 8).unwrap();
    assert_eq!((topology.owner(2), topology.owner(3), topology.owner(101)), (Some(0), Some(1), Some(1)));
    assert_eq!((topology.version, topology.assigned()), (8, 16_384));
}

#[test]
fn noise_is_refused_or_comes_back() {
    let mut random = Random::seeded(3);
    let sound = three().into_bytes();
    for _ in 0..5000 {
        let mut text = sound.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(text.len() as u64) as usize;
            match random.below(3) {
                0 => text[at] = random.below(256) as u8,
                1 => drop(text.remove(at)),
                _ => text.insert(at, b" -,\n09a"[random.below(7) as usize]),
            }
        }
        if let Ok(topology) = Topology::parse(&text, 1) {
            assert_eq!(parse(&topology.to_text()).map(|other| other.nodes), Ok(topology.nodes));
        }
    }
}
