//! Fixed schedules on real nodes: the checker rejects what is not fenced, and accepts the same with leases.

use super::checker::{Kind, check};
use super::clients::{Client, Means, list, register};
use super::nemesis::Nemesis;
use super::record::{Event, History, Outcome};
use super::{LEASES, read_last, ready};
use crate::proxy::State;

const UNFENCED: &str = "cluster-allow-unfenced-failover yes";

/// Writes to a node until it has answered, or to no avail; whether it did.
fn write_at(client: &mut Client, node: usize, key: &str, patient: bool) -> bool {
    loop {
        client.at = node;
        client.write(key);
        let is_done = client.events.last().is_some_and(|event| event.answered.is_some());
        if is_done || !patient {
            return is_done;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn write_acknowledged(client: &mut Client, node: usize, key: &str) {
    client.at = node;
    assert_eq!(client.write(key), Outcome::Acknowledged);
}

/// All at the end, when everybody reaches everybody again.
fn end(nemesis: Nemesis, means: &Means, clients: Vec<Client>) -> History {
    nemesis.links.heal();
    let last = read_last(&nemesis, means);
    let events = clients.into_iter().flat_map(|client| client.events).collect();
    let Nemesis { shard, keeper, .. } = nemesis;
    let history = History { events, terms: keeper.end(), last };
    shard.check();
    history
}

/// A master is parted from its replica, from the controller and from all clients but one, and the replica
/// takes its place. Both are asked to write to the same keys. Whether the old one did.
fn part(lines: &str, waits: bool) -> (History, bool) {
    let (shard, links, keeper, means) = ready(2, lines, waits);
    let mut nemesis = Nemesis::new(0, shard, links, keeper);
    let [mut old, mut new] = [0, 1].map(|client| Client::new(client, &means));
    for key in [list(0), register(0)] {
        write_acknowledged(&mut old, 0, &key);
    }
    nemesis.links.isolate(0, 0, State::Closed);
    nemesis.keeper.elect(1);
    let is_split = write_at(&mut old, 0, &list(0), false);
    for key in [list(0), register(0)] {
        assert!(write_at(&mut new, 1, &key, true), "the new master takes writes");
        write_at(&mut old, 0, &key, false);
    }
    (end(nemesis, &means, vec![old, new]), is_split)
}

fn kind(history: &History) -> Option<Kind> {
    let found = check(history).err();
    if let Some(anomaly) = &found {
        println!("{anomaly}");
    }
    found.map(|anomaly| anomaly.kind)
}

/// As if nobody had said WAIT.
fn without_wait(mut history: History) -> History {
    let believed = |event: &mut Event| {
        if let Some(answered) = event.answered {
            (event.outcome, event.ended) = (Outcome::Acknowledged, answered);
        }
    };
    history.events.iter_mut().for_each(believed);
    history
}

#[test]
fn an_old_master_without_leases_is_rejected() {
    let (history, is_split) = part(UNFENCED, false);
    assert!(is_split, "nobody keeps it from writing");
    assert_eq!(kind(&history), Some(Kind::Split));
    // The writes that it took are gone.
    assert_eq!(kind(&without_wait(history)), Some(Kind::Lost));
}

#[test]
fn an_old_master_with_a_lease_is_accepted() {
    let (history, is_split) = part(LEASES, true);
    assert!(!is_split, "its lease has run out");
    assert_eq!(kind(&history), None);
    assert!(history.count(Outcome::Refused) >= 3, "{:?}", history.events);
}

#[test]
fn a_controller_that_does_not_wait_is_rejected() {
    // On a machine that is busy the lease may have run out before the write.
    let found = (0..5).map(|_| part(LEASES, false)).find(|(_, is_split)| *is_split);
    let (history, _) = found.expect("the old master has a lease for a while");
    assert_eq!(kind(&history), Some(Kind::Split));
}

/// WAIT has counted one of two replicas, and the other one takes the master's place.
#[test]
fn a_replica_that_lacks_what_wait_has_counted_is_rejected() {
    let (shard, links, keeper, mut means) = ready(3, LEASES, true);
    let mut nemesis = Nemesis::new(0, shard, links, keeper);
    means.copies = 1;
    let mut client = Client::new(0, &means);
    nemesis.links.part([0, 1], State::Closed);
    write_acknowledged(&mut client, 0, &list(0));
    nemesis.keeper.elect(1);
    let history = end(nemesis, &means, vec![client]);
    assert_eq!(kind(&history), Some(Kind::Lost));
}
