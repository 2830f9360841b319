//! Lines that an addition writes to a set and to a sorted set, as they grow to a million members. ZADD is to
//! write at most 1.5 times as many as SADD; docs/measurements.md says why it writes more.

use super::ordered::Score;
use super::*;
use crate::random::Random;

/// Adds members to one collection.
struct Adder {
    kind: Kind,
    member_bytes: usize,
    /// Whether the scores are those of a clock.
    ascends: bool,
    random: Random,
    next: u64,
}

impl Adder {
    fn add(&mut self, keys: &mut Keyspace<'_>) {
        let key = self.kind.name().as_bytes();
        let mut collection = keys.collection(0, key, self.kind).unwrap();
        // Each number below 2^32 once, in no order.
        let number = self.next.wrapping_mul(0x9E37_79B1) % (1 << 32);
        let member = format!("{number:0width$}", width = self.member_bytes);
        let score = if self.ascends { self.next } else { self.random.below(1 << 20) };
        let score = Score::new(score as f64).to_bytes();
        let value = if self.kind == Kind::Set { &[][..] } else { &score };
        keys.put_element(&mut collection, member.as_bytes(), value).unwrap();
        keys.store(key, collection).unwrap();
        self.next += 1;
    }

    /// Tenths of the lines that a commit of an addition writes, once there are `count` members.
    fn lines(&mut self, keys: &mut Keyspace<'_>, count: u64) -> u64 {
        for number in self.next..count {
            self.add(keys);
            if number % 100 == 99 {
                keys.commit().unwrap();
            }
        }
        keys.commit().unwrap();
        let before = tembo::snapshot();
        for _ in 0..4096 {
            self.add(keys);
            keys.commit().unwrap();
        }
        (tembo::snapshot() - before).lines * 10 / 4096
    }
}

/// Tenths of lines of SADD and ZADD, for names of 12, 16 and 24 bytes with random scores, and for those of 16
/// with ascending ones. A name that is shorter than 13 bytes is in blocks of the size of the key's record,
/// which saves SADD two lines.
fn lines_at(count: u64) -> [(u64, u64); 4] {
    [(12, false), (16, false), (24, false), (16, true)].map(|(member_bytes, ascends)| {
        let dir = tempfile::tempdir().unwrap();
        let options = tembo::Options::new().durability(tembo::Durability::Emulated).count(true);
        let pool = options.create(true).open(dir.path().join("additions.pool")).unwrap();
        pool.open_map("db.collections").unwrap().put("s", [7; 16]).unwrap();
        let mut keys = Keyspace::open(&pool).unwrap();
        keys.create(0).unwrap();
        let [set, sorted] = [Kind::Set, Kind::SortedSet].map(|kind| {
            Adder { kind, member_bytes, ascends, random: Random::seeded(7), next: 0 }.lines(&mut keys, count)
        });
        (set, sorted)
    })
}

/// With 20,000 members, or a million with `TEMBO_MEMBERS=1000000`, in some minutes.
#[test]
fn additions_to_collections_of_many_cost_what_they_should() {
    let members = std::env::var("TEMBO_MEMBERS").map_or(20_000, |text| text.parse().expect("a number"));
    let expected = match members {
        20_000 => [(82, 142), (101, 142), (99, 144), (101, 107)],
        1_000_000 => [(87, 161), (102, 161), (103, 161), (102, 110)],
        other => panic!("nobody has counted the lines at {other}"),
    };
    assert_eq!(lines_at(members), expected);
}
