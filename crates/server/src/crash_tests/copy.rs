//! A copy in steps, between commands of every type: it has the data that were committed when it began,
//! whatever came after that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::time::{Duration, Instant};

use tembo_pmem::{Access, Region, RegionOptions};
use tembo_rdb::{Element, Event, Kind, Reader};
use tembo_wire::{Limits, Parsed, RequestParser, write_request};

use super::commands::{Command, DATABASES, Model, Value, choose};
use super::{CLOCK, Opened, fault, first_error, text, text_of};
use crate::acl::users::superuser;
use crate::address::Address;
use crate::executor::Executor;
use crate::export::Export;
use crate::keyspace::format::OLD_RECORDS;
use crate::keyspace::point::{BROKEN, Broken, Lost};
use crate::random::Random;
use crate::session::Session;

/// Steps of a copy that ends in the middle of the commands.
pub(super) const STEPS: u32 = 4;

const POOL_BYTES: u64 = 8 << 20;

type Keys = BTreeMap<(usize, String), (Value, Option<u64>)>;

/// A server that goes on from command to command.
struct Server<'o, 'e> {
    executor: Executor<'o, 'e>,
    session: Session,
    model: Model,
}

impl Server<'_, '_> {
    fn run(&mut self, commands: &[Command]) -> Result<(), String> {
        let mut output = Vec::new();
        for command in commands {
            let database = command.database().to_string();
            let words = command.words(self.model.now_ms);
            for words in [vec!["SELECT".to_owned(), database], words] {
                let mut bytes = Vec::new();
                write_request(&mut bytes, &words);
                let mut parser = RequestParser::new();
                let Ok(Parsed::Request(request)) = parser.parse(&bytes, &Limits::default()) else {
                    return Err(format!("{words:?} is no request"));
                };
                self.executor.execute(0, &request, &mut self.session, &mut output, &mut None);
            }
            self.model.apply(command);
        }
        self.executor.commit_batch(None);
        first_error(&output).map_or(Ok(()), |error| Err(format!("{commands:?}: {error}")))
    }

    fn tick(&mut self) -> Result<(), String> {
        self.model.tick(self.model.now_ms + 1);
        self.executor.keys.now_ms = self.model.now_ms;
        self.executor.keys.expire_due(usize::MAX).map_err(fault)?;
        self.executor.keys.commit().map_err(text)
    }

    /// Commands, the time, or what gives space back.
    fn go_on(&mut self, random: &mut Random) -> Result<(), String> {
        match random.below(10) {
            0 => self.tick(),
            1 | 2 => self.executor.keys.reclaim().map_err(fault),
            _ => {
                let mut commands = Vec::new();
                let mut model = self.model.clone();
                for _ in 0..1 + random.below(3) {
                    let command = choose(random, &model);
                    model.apply(&command);
                    // These commands are about clients and replies, and not about data.
                    if matches!(command, Command::Once(..) | Command::Scan(_)) {
                        model = self.model.clone();
                        commands.iter().for_each(|command| model.apply(command));
                    } else {
                        commands.push(command);
                    }
                }
                self.run(&commands)
            }
        }
    }
}

/// The keys of a file.
fn keys_of(file: &[u8]) -> Keys {
    let mut reader = Reader::new(file).unwrap();
    let (mut keys, mut database, mut under_way) = (Keys::new(), 0, None);
    while let Some(event) = reader.next().unwrap() {
        match event {
            Event::Database(number) => database = number as usize,
            Event::Key(key) => {
                let value = match key.kind {
                    Kind::String => Value::String(String::new()),
                    Kind::Hash => Value::Hash(BTreeMap::new()),
                    Kind::Set => Value::Set(BTreeSet::new()),
                    Kind::List => Value::List(Vec::new()),
                    _ => Value::Sorted(BTreeMap::new()),
                };
                let deadline = key.meta.deadline_ms.map(|deadline| deadline as u64);
                under_way = Some(((database, text_of(key.name)), (value, deadline)));
            }
            Event::Element(element) => {
                let (_, (value, _)) = under_way.as_mut().unwrap();
                match (value, element) {
                    (Value::String(text), Element::Text(bytes)) => *text = text_of(bytes),
                    (Value::List(elements), Element::Item(item)) => elements.push(text_of(item)),
                    (Value::Set(members), Element::Item(item)) => assert!(members.insert(text_of(item))),
                    (Value::Hash(fields), Element::Field { field, value, .. }) => {
                        assert!(fields.insert(text_of(field), text_of(value)).is_none());
                    }
                    (Value::Sorted(members), Element::Scored { member, score }) => {
                        assert!(members.insert(text_of(member), score as i64).is_none());
                    }
                    (value, element) => panic!("{element:?} in {value:?}"),
                }
            }
            Event::KeyEnd => keys.extend(under_way.take()),
            _ => {}
        }
    }
    keys
}

/// Copies while commands go on; returns how many records were kept.
fn copy(seed: u64) -> Result<u64, String> {
    let dir = tempfile::tempdir().map_err(text)?;
    let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("a.pool"));
    let file = file.and_then(|file| file.set_len(POOL_BYTES).map(|()| file)).map_err(text)?;
    let region = Region::map_file(file, POOL_BYTES, &RegionOptions::default(), Access::ReadWrite);
    let region = region.map_err(text)?;
    let opened = Opened::create(region, 14)?;
    let mut keys = opened.keys()?;
    (0..DATABASES).try_for_each(|database| keys.create(database)).map_err(text)?;
    let mut state = opened.server.borrow_mut();
    let mut executor = Executor::new(keys, &mut state);
    executor.batch_words_max = usize::MAX;
    let peer = || Address::Ip("127.0.0.1:1".parse().expect("an address"));
    let session = Session::new(1, (peer(), peer()), 0, Instant::now(), superuser());
    let mut server = Server { executor, session, model: Model::default() };
    let mut random = Random::seeded(seed);
    for _ in 0..20 + random.below(60) {
        server.go_on(&mut random)?;
    }
    let now = Duration::from_millis(server.model.now_ms);
    let mut export = Export::begin(&opened.pool, Vec::new(), [], Some(now)).map_err(text)?;
    let point = server.executor.keys.begin_point(export.maps()).map_err(fault)?;
    let expected = server.model.keys.clone();
    loop {
        for _ in 0..random.below(4) {
            server.go_on(&mut random)?;
        }
        assert_eq!(point.lost(), None);
        let mut left = 1 + random.below(3);
        let mut count = |id| server.executor.keys.count_committed(id);
        let progress = &mut point.progress.borrow_mut();
        let is_complete = export.step(progress, point.old_records(), &mut count, &mut || {
            left -= 1;
            left == 0
        });
        if is_complete.map_err(text)? {
            break;
        }
    }
    let kept = point.old_records().ok_or("there was no room")?.len().map_err(text)?;
    drop(point);
    server.executor.keys.end_point().map_err(fault)?;
    let (file, _) = export.finish().map_err(text)?;
    let found: Keys = keys_of(&file).into_iter().filter(|((_, key), _)| key != CLOCK).collect();
    if found != expected {
        return Err(format!("the file has {found:#?}, and there was {expected:#?}"));
    }
    drop(server);
    drop(state);
    opened.reclaim_all()?;
    let left =
        opened.pool.find_map(OLD_RECORDS).map_err(text)?.ok_or("there is no map")?.len().map_err(text)?;
    if left > 0 { Err(format!("{left} records are left")) } else { Ok(kept) }
}

#[test]
fn a_copy_has_what_was_committed_when_it_began() {
    let count = std::env::var("TEMBO_COPIES").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
    let mut kept = 0;
    for seed in 0..count {
        kept += copy(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{kept} records were kept in {count} copies");
    assert!(kept > count, "nearly nothing was kept");
}

#[test]
fn each_broken_promise_of_a_copy_is_noticed() {
    for broken in [Broken::Ranges, Broken::UnderWay, Broken::KeptAgain, Broken::Newer, Broken::Counts] {
        BROKEN.set(Some(broken));
        let is_noticed =
            (0..400).any(|seed| std::panic::catch_unwind(|| copy(seed)).is_ok_and(|it| it.is_err()));
        BROKEN.set(None);
        assert!(is_noticed, "{broken:?} is not noticed");
    }
}

/// Commands in one commit, beside a copy that has made some steps, and that a crash ends.
pub(super) fn run_beside(opened: &Opened, steps: u32, commands: &[Command]) -> Result<(), String> {
    let requests = opened.requests(commands)?;
    let mut keys = opened.keys()?;
    let now = Duration::from_millis(keys.now_ms);
    let mut export = Export::begin(&opened.pool, Vec::new(), [], Some(now)).map_err(text)?;
    let point = keys.begin_point(export.maps()).map_err(fault)?;
    let mut left = steps;
    if steps > 0 {
        let mut is_enough = || {
            left = left.saturating_sub(1);
            left == 0
        };
        let (mut progress, mut count) = (point.progress.borrow_mut(), |id| keys.count_committed(id));
        export.step(&mut progress, point.old_records(), &mut count, &mut is_enough).map_err(text)?;
    }
    opened.run_with(keys, &requests)
}

/// A copy ends even if a client clears large databases again and again.
#[test]
fn a_save_that_is_begun_anew_too_often_is_written_in_one_turn() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
    let mut keys = crate::keyspace::Keyspace::open(&pool).unwrap();
    keys.create(0).unwrap();
    let mut state = crate::state::State::new(Default::default(), "127.0.0.1:1".parse().unwrap(), &pool);
    state.folder = dir.path().to_str().unwrap().to_owned();
    state.saving.is_scheduled = true;
    let mut executor = Executor::new(keys, &mut state);
    let mut turns = 0;
    while executor.state.copier.forcing.is_none() {
        executor.keys.clear(0).unwrap();
        for number in 0..20_000 {
            let name = format!("key {number:05}");
            let keys = &mut executor.keys;
            keys.put(0, name.as_bytes(), Default::default(), Default::default(), &[b"value"]).unwrap();
        }
        executor.keys.commit().unwrap();
        executor.copy();
        turns += 1;
        assert!(turns < 10, "the copy does not end");
    }
    assert_eq!(turns, 4, "the first, and three that were begun anew");
    executor.stop_copying();
    let file = std::fs::read(dir.path().join("dump.rdb")).unwrap();
    assert_eq!(keys_of(&file).len(), 20_000);
}

#[test]
fn clearing_a_large_database_loses_the_copy_and_a_small_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
    for (count, lost) in [(1024, None), (1025, Some(Lost::Cleared))] {
        let mut keys = crate::keyspace::Keyspace::open(&pool).unwrap();
        keys.create(0).unwrap();
        for number in 0..count {
            let name = format!("key {number:04}");
            keys.put(0, name.as_bytes(), Default::default(), Default::default(), &[b"value"]).unwrap();
        }
        keys.commit().unwrap();
        let mut export = Export::begin(&pool, Vec::new(), [], None).unwrap();
        let point = keys.begin_point(export.maps()).unwrap();
        keys.clear(0).unwrap();
        keys.commit().unwrap();
        assert_eq!(point.lost(), lost);
        if lost.is_none() {
            let mut progress = point.progress.borrow_mut();
            let mut members = |id| keys.count_committed(id);
            let is_complete = export.step(&mut progress, point.old_records(), &mut members, &mut || false);
            assert!(is_complete.unwrap());
            assert_eq!(keys_of(&export.finish().unwrap().0).len(), count);
        }
        drop(point);
        keys.end_point().unwrap();
    }
}
